//! One attempt at a transfer between two simulated hosts, with the production halves of a job on either side.
//!
//! The sender's host runs `SendJob` and its lanes, the receiver's `ReceiveJob`, its lanes and its committer. Messages
//! travel encoded, through the production codec. What `session` does around them in the product (joining streams,
//! making new ones for those that died, ending jobs with their session) is done here in the shortest way.

use super::eager::Eager;
use super::faults::{Course, Fired};
pub use super::network::PipeFaults;
use super::network::{Pipe, SimulatedStream};
use super::reference::Reference;
use model::options::Buffer;
use model::{JobId, Pin, TransferOptions};
use mover::job::{Ending, Port};
use mover::receiver::{ReceiveJob, ReceiveSpec};
use mover::sender::{LaneEnd, SendJob};
use mover::{Memory, Progress};
use os::simulation::scheduler::spawn_on;
use os::simulation::{Host, World};
use os::sync::Mutex;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::SeqCst};
use std::time::Duration;
use store::Source;
use store::posix::{PosixSink, PosixSource, beneath};
use store::spool::Spool;
use wire::{FrameReader, Message, Refusal, message};

/// A lane that died is replaced so often.
const REDIALS_MAX: u32 = 6;
const REDIAL_AFTER: Duration = Duration::from_millis(100);
/// How often the attempt is looked at, and the longest that one may take.
const LOOK_EVERY: Duration = Duration::from_millis(20);
const ATTEMPT_MAX: Duration = Duration::from_secs(600);
const BUFFER_BYTES: u64 = 4 << 20;

#[derive(Clone)]
pub struct Sides {
    pub sender: Arc<Host>,
    pub receiver: Arc<Host>,
}

/// What goes wrong between the hosts in one attempt.
#[derive(Clone, Default, Debug)]
pub struct NetworkFaults {
    pub delay: Duration,
    /// The first data stream's own faults.
    pub stream: PipeFaults,
    /// The control stream breaks after so many bytes from the receiver.
    pub control_cut_at: Option<u64>,
}

pub struct Spec<'a> {
    pub source: &'a Path,
    pub root: &'a Path,
    pub options: TransferOptions,
    pub streams: u32,
    pub network: NetworkFaults,
    /// Where both hosts have a buffer that everything goes through, if they have.
    pub buffers: Option<&'a Path>,
    /// Files that grow are sent once they are complete, as to a store in which nothing can grow.
    pub takes_whole: bool,
    /// The sender's lanes claim chunks ahead.
    pub reads_ahead: bool,
    pub course: Arc<Course>,
}

/// How an attempt ended.
#[derive(Debug)]
pub struct Attempt {
    /// `None` when a host died or the session was lost.
    pub ending: Option<Ending>,
    pub network_fired: Fired,
    /// Listed, done, skipped, failed at the sender.
    pub counts: [u64; 4],
    /// What one side said was wrong with what the other sent.
    pub refused: Option<Refusal>,
    /// Why one side did not get as far as a job.
    pub not_started: Option<String>,
    /// Who waited for what when it took too long.
    pub overdue: Option<String>,
}

/// The pipes of an attempt, broken when it ends.
#[derive(Default)]
struct Wires {
    course: Arc<Course>,
    pipes: Mutex<Vec<Arc<Pipe>>>,
    is_over: AtomicBool,
    refused: Mutex<Option<Refusal>>,
}

impl Wires {
    fn pipe(&self, faults: PipeFaults) -> Arc<Pipe> {
        let pipe = Pipe::new(faults, &self.course);
        if self.is_over.load(SeqCst) {
            pipe.cut();
        }
        self.pipes.lock().unwrap().push(pipe.clone());
        pipe
    }

    fn cut(&self) {
        self.is_over.store(true, SeqCst);
        self.pipes.lock().unwrap().iter().for_each(|pipe| pipe.cut());
    }
}

/// Carries one half's messages, and shows them to the reference on their way.
struct PipePort {
    pipe: Arc<Pipe>,
    reference: Arc<Reference>,
    course: Arc<Course>,
}

impl Port for PipePort {
    fn send(&self, message: Message) {
        self.reference.saw(&message);
        let is_last = matches!(message, Message::Finished(_) | Message::Cancel(_));
        let _ = self.pipe.send(&message::encode(message), false);
        if is_last {
            self.course.end();
        }
    }
}

/// What both halves of an attempt share.
struct Shared {
    wires: Arc<Wires>,
    receive: Mutex<Option<Arc<ReceiveJob>>>,
    send: Mutex<Option<Arc<SendJob>>>,
    failed: Mutex<Option<String>>,
}

pub fn attempt(world: &Arc<World>, sides: &Sides, reference: &Arc<Reference>, spec: &Spec<'_>) -> Attempt {
    let wires = Arc::new(Wires { course: spec.course.clone(), ..Wires::default() });
    let delay = spec.network.delay;
    let plain = PipeFaults { delay, ..PipeFaults::default() };
    let to_receiver = wires.pipe(plain.clone());
    let to_sender = wires.pipe(PipeFaults { cut_at: spec.network.control_cut_at, ..plain.clone() });
    let shared = Arc::new(Shared {
        wires: wires.clone(),
        receive: Mutex::new(None),
        send: Mutex::new(None),
        failed: Mutex::new(None),
    });
    start_receiver(world, sides, reference, spec, &shared, (&to_receiver, &to_sender));
    start_sender(world, sides, reference, spec, &shared, (&to_sender, &to_receiver));
    for lane in 0..spec.streams {
        let faults = if lane == 0 { PipeFaults { delay, ..spec.network.stream.clone() } } else { plain.clone() };
        start_lane(world, sides, &shared, lane, faults);
    }
    let overdue = watch(world, sides, &shared, (&to_receiver, &to_sender)).then(|| world.stuck());
    spec.course.end();
    end(world, sides, &shared, overdue)
}

fn port(outgoing: &Arc<Pipe>, reference: &Arc<Reference>, spec: &Spec<'_>) -> Arc<PipePort> {
    let (pipe, reference, course) = (outgoing.clone(), reference.clone(), spec.course.clone());
    Arc::new(PipePort { pipe, reference, course })
}

fn start_receiver(
    world: &Arc<World>,
    sides: &Sides,
    reference: &Arc<Reference>,
    spec: &Spec<'_>,
    shared: &Arc<Shared>,
    (incoming, outgoing): (&Arc<Pipe>, &Arc<Pipe>),
) {
    let port = port(outgoing, reference, spec);
    let (root, options, shared, incoming) =
        (spec.root.to_owned(), spec.options.clone(), shared.clone(), incoming.clone());
    let buffer = spec.buffers.map(|buffers| buffers.join("behind"));
    spawn_on(world, &sides.receiver, "control of the receiver", move || {
        let opened = beneath::open_directory(&root).and_then(|root| {
            let root = Arc::new(root);
            let below = model::name::relative_path(b"to").map_err(std::io::Error::other)?;
            use std::os::fd::AsFd;
            let destination = Arc::new(beneath::make_directories(root.as_fd(), &below)?);
            let sink = PosixSink::new(root, destination, None).with_backup(options.backup.as_deref());
            Ok(Arc::new(sink.with_fidelity(options.fidelity, false)))
        });
        let sink = match opened {
            Ok(sink) => sink,
            Err(e) => return *shared.failed.lock().unwrap() = Some(e.to_string()),
        };
        let receive = ReceiveSpec { number: 0, id: JobId([7; 16]), sender: Pin([0; 32]), options, rename_to: None };
        let job = match ReceiveJob::new(receive, sink, port, Progress::new(), None) {
            Ok(job) => job,
            Err(e) => return *shared.failed.lock().unwrap() = Some(e.to_string()),
        };
        match buffer.map(|buffer| Spool::open(&buffer, BUFFER_BYTES)).transpose() {
            Ok(spool) => spool.map_or((), |spool| job.wait_in(spool, Buffer::Always)),
            Err(e) => return *shared.failed.lock().unwrap() = Some(e.to_string()),
        }
        job.start();
        *shared.receive.lock().unwrap() = Some(job.clone());
        let mut handle = |message| job.handle(message);
        let why = listen(&incoming, &shared.wires, &mut handle);
        job.stop(why);
    });
}

fn start_sender(
    world: &Arc<World>,
    sides: &Sides,
    reference: &Arc<Reference>,
    spec: &Spec<'_>,
    shared: &Arc<Shared>,
    (incoming, outgoing): (&Arc<Pipe>, &Arc<Pipe>),
) {
    let port = port(outgoing, reference, spec);
    let (path, options, shared, incoming) =
        (spec.source.to_owned(), spec.options.clone(), shared.clone(), incoming.clone());
    let (buffer, takes_whole) = (spec.buffers.map(|buffers| buffers.join("ahead")), spec.takes_whole);
    let reads_ahead = spec.reads_ahead;
    spawn_on(world, &sides.sender, "control of the sender", move || {
        let mut source = PosixSource::new();
        source.select(options.selection_at_source());
        source.keep(options.fidelity);
        let contents = [std::os::unix::ffi::OsStrExt::as_bytes(path.as_os_str()), b"/"].concat();
        if let Err(e) = source.add_local(&contents) {
            return *shared.failed.lock().unwrap() = Some(e.to_string());
        }
        let source: Arc<dyn Source> = if reads_ahead { Arc::new(Eager(source)) } else { Arc::new(source) };
        let job = SendJob::new(0, options, source, port, Progress::new(), None);
        match buffer.map(|buffer| Spool::open(&buffer, BUFFER_BYTES)).transpose() {
            Ok(spool) => spool.map_or((), |spool| job.read_ahead_in(spool, Buffer::Always)),
            Err(e) => return *shared.failed.lock().unwrap() = Some(e.to_string()),
        }
        job.is_taken(takes_whole);
        job.start();
        *shared.send.lock().unwrap() = Some(job.clone());
        let mut handle = |message| job.handle(message);
        let why = listen(&incoming, &shared.wires, &mut handle);
        job.stop(why);
    });
}

/// Hands what comes in to a job until the stream ends; returns why.
fn listen(incoming: &Pipe, wires: &Wires, handle: &mut dyn FnMut(Message) -> Result<(), Refusal>) -> Ending {
    let mut reader = FrameReader::new();
    reader.authenticated();
    let mut buffer = vec![0; 16 << 10];
    loop {
        let count = match incoming.recv(&mut buffer) {
            Ok(0) => return Ending::Lost("closed".into()),
            Err(e) => return Ending::Lost(e.to_string()),
            Ok(count) => count,
        };
        let taken = reader.push(&buffer[..count], &mut |_, body| match message::decode(body)? {
            Some(message) => handle(message),
            None => Ok(()),
        });
        if let Err(refusal) = taken {
            wires.refused.lock().unwrap().get_or_insert(refusal.clone());
            return Ending::Cancelled { by_peer: true, refusal };
        }
    }
}

/// A lane on either side; the sender's makes a new stream when one dies.
fn start_lane(world: &Arc<World>, sides: &Sides, shared: &Arc<Shared>, number: u32, faults: PipeFaults) {
    let (shared, sides) = (shared.clone(), sides.clone());
    let inner = world.clone();
    let next = Arc::new(AtomicU32::new(number));
    spawn_on(world, &sides.sender.clone(), "lane of the sender", move || {
        let mut faults = faults;
        for _ in 0..REDIALS_MAX {
            let Some(job) = ready(&inner, &shared, &|shared| shared.send.lock().unwrap().clone()) else { return };
            let (there, back) = (shared.wires.pipe(faults.clone()), shared.wires.pipe(PipeFaults::default()));
            let (incoming, outgoing) = (there.clone(), back.clone());
            let for_receiver = shared.clone();
            let world = inner.clone();
            let receive = move || {
                let Some(job) = ready(&world, &for_receiver, &|shared| shared.receive.lock().unwrap().clone()) else {
                    return incoming.cut();
                };
                let stream = SimulatedStream { outgoing, incoming: incoming.clone() };
                let mut refused =
                    |refusal: Refusal| _ = for_receiver.wires.refused.lock().unwrap().get_or_insert(refusal);
                mover::receiver::run_lane(&job, stream, &Memory::default(), &mut refused);
                incoming.cut();
            };
            spawn_on(&inner, &sides.receiver, "lane of the receiver", receive);
            let stream = SimulatedStream { outgoing: there.clone(), incoming: back };
            let lane = number + 100 * next.fetch_add(1, SeqCst);
            match mover::sender::run_lane(&job, lane, stream, &Memory::default()) {
                LaneEnd::Failed(_) => there.cut(),
                _ => return,
            }
            faults = PipeFaults { delay: faults.delay, ..PipeFaults::default() };
            inner.sleep(REDIAL_AFTER);
        }
    });
}

/// Waits until a half of the job is there.
fn ready<T>(world: &World, shared: &Shared, get: &dyn Fn(&Shared) -> Option<T>) -> Option<T> {
    loop {
        if let Some(found) = get(shared) {
            return Some(found);
        }
        if shared.wires.is_over.load(SeqCst) {
            return None;
        }
        world.sleep(Duration::from_millis(1));
    }
}

/// Waits for the end of the attempt; true when it took too long.
fn watch(world: &Arc<World>, sides: &Sides, shared: &Shared, control: (&Arc<Pipe>, &Arc<Pipe>)) -> bool {
    let deadline_ns = world.now_ns() + ATTEMPT_MAX.as_nanos() as u64;
    loop {
        world.sleep(LOOK_EVERY);
        let is_ended = shared.send.lock().unwrap().as_ref().is_some_and(|job| job.end.is_set());
        let is_failed = shared.failed.lock().unwrap().is_some();
        let has_died = !sides.sender.is_alive() || !sides.receiver.is_alive();
        if is_ended || is_failed || has_died {
            return false;
        }
        if shared.wires.refused.lock().unwrap().is_some() {
            control.0.cut();
            control.1.cut();
        }
        if world.now_ns() > deadline_ns {
            return true;
        }
    }
}

fn end(world: &Arc<World>, sides: &Sides, shared: &Arc<Shared>, overdue: Option<String>) -> Attempt {
    let send = shared.send.lock().unwrap().clone();
    let ending = send.as_ref().and_then(|job| job.end.get());
    let network_fired = shared.wires.pipes.lock().unwrap().iter().map(|pipe| pipe.fired()).max();
    shared.wires.cut();
    let lost = || Ending::Lost("the session ended".into());
    if let Some(job) = &send {
        job.stop(lost());
    }
    if let Some(job) = shared.receive.lock().unwrap().take() {
        job.stop(lost());
        // What it removes in the end is removed by its own host.
        spawn_on(world, &sides.receiver, "end of the receiver", move || drop(job));
    }
    for host in [&sides.sender, &sides.receiver] {
        let patience_ns = world.now_ns() + 60_000_000_000;
        while !world.is_empty(host) && world.now_ns() < patience_ns {
            world.sleep(LOOK_EVERY);
        }
    }
    let counts = send.as_ref().map(|job| job.progress.counters.counts()).unwrap_or_default();
    let refused = shared.wires.refused.lock().unwrap().clone();
    let not_started = shared.failed.lock().unwrap().clone();
    *shared.send.lock().unwrap() = None;
    Attempt {
        ending: ending.filter(|ending| !matches!(ending, Ending::Lost(_))),
        network_fired: network_fired.unwrap_or_default(),
        counts: [counts.files_listed, counts.files_done, counts.files_skipped, counts.files_failed],
        refused,
        not_started,
        overdue,
    }
}
