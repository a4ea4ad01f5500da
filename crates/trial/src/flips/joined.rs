//! A sender's and a receiver's half of one job, joined by a real stream: control messages by a call, content over TLS.
//!
//! Whoever carries the stream may change what passes. The lanes are the production ones; a lane whose stream failed is
//! replaced, as a session does.

use anyhow::{Context, Result, bail};
use model::options::Engine;
use model::{DigestAlgorithm, JobId, Pin, TransferOptions};
use mover::job::Port;
use mover::receiver::{self, ReceiveJob, ReceiveSpec};
use mover::sender::{self, LaneEnd, SendJob};
use mover::{Ending, Memory, Progress};
use net::DataStream;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Condvar, Mutex, OnceLock, Weak};
use std::time::{Duration, Instant};
use store::{Sink, Source};
use wire::{Message, Refusal};

/// Nothing moves for so long: the job waits for something that does not come.
pub const STALL: Duration = Duration::from_secs(10);
const LANES_MAX: u32 = 6;
/// Threads of a job that has ended are gone by then.
const PATIENCE: Duration = Duration::from_secs(20);

/// The two ends that the lanes get. What carries the bytes between them runs on threads of its own and ends with them.
pub struct Carrier {
    pub sender: DataStream,
    pub receiver: DataStream,
}

#[derive(Debug)]
pub enum End {
    Finished,
    /// Ended by what a check said, with an error.
    Refused(String),
    /// Neither went on nor ended: left to whoever watches for progress.
    Stalled,
    /// Cut by the trial.
    Cut,
}

#[derive(Debug)]
pub struct Outcome {
    pub end: End,
    /// Objects and chunks that the receiver asked for again.
    pub asked_again: u64,
    pub bytes_resumed: u64,
}

pub struct Job {
    pub source: Arc<dyn Source>,
    pub sink: Arc<dyn Sink>,
    pub options: TransferOptions,
    /// How long nothing may be said before the job counts as stalled.
    pub stall: Duration,
}

pub fn options(digest: DigestAlgorithm) -> TransferOptions {
    TransferOptions { digest, chunk_bytes: 1 << 20, engine: Engine::Plain, ..TransferOptions::default() }
}

/// Lets a job come so far and no further, until it was stopped.
pub struct Gate {
    /// Passed so far; whether the rest may pass.
    state: Mutex<(u64, bool)>,
    opened: Condvar,
    passes_max: u64,
}

impl Gate {
    pub fn new(passes_max: u64) -> Gate {
        Gate { state: Mutex::default(), opened: Condvar::new(), passes_max }
    }

    /// Counts one pass and holds whoever comes when all were made.
    pub fn pass(&self) {
        let mut state = self.state.lock().unwrap();
        while state.0 >= self.passes_max && !state.1 {
            state = self.opened.wait_timeout(state, PATIENCE).unwrap().0;
        }
        state.0 += 1;
    }

    fn is_reached(&self) -> bool {
        self.state.lock().unwrap().0 >= self.passes_max
    }

    fn open(&self) {
        self.state.lock().unwrap().1 = true;
        self.opened.notify_all();
    }
}

#[derive(Default)]
struct Bridge {
    sender: OnceLock<Weak<SendJob>>,
    receiver: OnceLock<Weak<ReceiveJob>>,
    asked_again: AtomicU64,
    /// Grows with everything that is said.
    said: AtomicU64,
}

struct ToSender(Arc<Bridge>);
struct ToReceiver(Arc<Bridge>);

impl Port for ToSender {
    fn send(&self, message: Message) {
        self.0.said.fetch_add(1, SeqCst);
        if let Message::Resend(again) = &message {
            let objects = again.runs.iter().map(|run| run.count).sum::<u64>() + again.extents.len() as u64;
            self.0.asked_again.fetch_add(objects, SeqCst);
        }
        if let Some(job) = self.0.sender.get().and_then(Weak::upgrade)
            && let Err(refusal) = job.handle(message)
        {
            self.0.refuse(refusal);
        }
    }
}

impl Port for ToReceiver {
    fn send(&self, message: Message) {
        self.0.said.fetch_add(1, SeqCst);
        if let Some(job) = self.0.receiver.get().and_then(Weak::upgrade)
            && let Err(refusal) = job.handle(message)
        {
            self.0.refuse(refusal);
        }
    }
}

impl Bridge {
    /// A refusal ends the session, and every job of it.
    fn refuse(&self, refusal: Refusal) {
        self.stop(&Ending::Cancelled { by_peer: false, refusal });
    }

    fn stop(&self, ending: &Ending) {
        if let Some(job) = self.sender.get().and_then(Weak::upgrade) {
            job.stop(ending.clone());
        }
        if let Some(job) = self.receiver.get().and_then(Weak::upgrade) {
            job.stop(ending.clone());
        }
    }
}

/// Runs a job to its end, or until `gate` was reached.
pub fn run(job: Job, connect: &mut dyn FnMut() -> io::Result<Carrier>, gate: Option<&Gate>) -> Result<Outcome> {
    let bridge = Arc::new(Bridge::default());
    let spec = ReceiveSpec {
        number: 0,
        id: JobId([1; 16]),
        sender: Pin([0; 32]),
        options: job.options.clone(),
        rename_to: None,
    };
    let to_sender = Arc::new(ToSender(bridge.clone()));
    let receiver = ReceiveJob::new(spec, job.sink, to_sender, Progress::new(), None)?;
    let to_receiver = Arc::new(ToReceiver(bridge.clone()));
    let sender = SendJob::new(0, job.options, job.source, to_receiver, Progress::new(), None);
    let _ = bridge.sender.set(Arc::downgrade(&sender));
    let _ = bridge.receiver.set(Arc::downgrade(&receiver));
    receiver.start();
    sender.start();
    let mut end = None;
    for lane in 0..LANES_MAX {
        let carrier = connect().context("connect two ends")?;
        end = run_lane(&bridge, &sender, &receiver, lane, carrier, gate, job.stall);
        if end.is_some() {
            break;
        }
    }
    let end = match end {
        Some(end) => end,
        None => {
            bridge.stop(&Ending::Lost("no lane could be kept".into()));
            End::Stalled
        }
    };
    let asked_again = bridge.asked_again.load(SeqCst);
    let bytes_resumed = receiver.progress.snapshot().counts.bytes_resumed;
    drop(sender);
    gone(receiver)?;
    Ok(Outcome { end, asked_again, bytes_resumed })
}

/// Waits for the threads of the receiver: what they publish they have published then.
fn gone(receiver: Arc<ReceiveJob>) -> Result<()> {
    let deadline = Instant::now() + PATIENCE;
    while Arc::strong_count(&receiver) > 1 {
        if Instant::now() > deadline {
            bail!("the threads of a job that has ended do not end");
        }
        std::thread::park_timeout(Duration::from_micros(100));
    }
    Ok(())
}

/// One lane at both ends. `None` when its stream failed and the job goes on.
fn run_lane(
    bridge: &Bridge,
    sender: &Arc<SendJob>,
    receiver: &Arc<ReceiveJob>,
    lane: u32,
    carrier: Carrier,
    gate: Option<&Gate>,
    stall: Duration,
) -> Option<End> {
    let memory = Memory::default();
    std::thread::scope(|scope| {
        let sending = scope.spawn(|| sender::run_lane(sender, lane, carrier.sender, &memory));
        scope.spawn(|| receiver::run_lane(receiver, carrier.receiver, &memory, &mut |refusal| bridge.refuse(refusal)));
        let (mut said, mut since) = (0, Instant::now());
        loop {
            if let Some(ending) = sender.end.wait(Duration::from_millis(1)) {
                return Some(end_of(&ending));
            }
            if sending.is_finished() {
                break;
            }
            let now_said = bridge.said.load(SeqCst);
            if now_said != said {
                (said, since) = (now_said, Instant::now());
            }
            if let Some(gate) = gate.filter(|gate| gate.is_reached()) {
                bridge.stop(&Ending::Lost("cut by the trial".into()));
                gate.open();
                return Some(End::Cut);
            }
            if since.elapsed() > stall {
                bridge.stop(&Ending::Lost("nothing moves".into()));
                return Some(End::Stalled);
            }
        }
        match sending.join() {
            Ok(LaneEnd::Failed(_) | LaneEnd::NoMemory) => None,
            // Its work was over a moment before the end was noted.
            _ => sender.end.wait(stall).map(|ending| end_of(&ending)),
        }
    })
}

fn end_of(ending: &Ending) -> End {
    match ending {
        Ending::Finished(_) => End::Finished,
        Ending::Cancelled { refusal, .. } => End::Refused(refusal.text.clone()),
        Ending::Lost(why) => End::Refused(why.clone()),
    }
}
