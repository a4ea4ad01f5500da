//! The asking side: opens a session, runs jobs on it, keeps as many lanes as the path needs.
//!
//! The first data streams are dialled together with the control stream and the listing is described without waiting
//! for an answer, so that the first payload leaves three round trips after the start (docs/protocol.md section 5).

use super::error::ConnectError;
use super::question::Answers;
use super::sample::sample;
use super::{
    ControlOutcome, ControlPort, Job, Running, Session, control_options, join_proof, run_control, watch_stream,
};
use crate::job::{Ending, Observer, options_to_wire};
use crate::limits::{ANSWER_TIMEOUT, STREAM_TIMEOUT};
use crate::memory::Memory;
use crate::progress::{Progress, processors};
use crate::receiver::{self, ReceiveJob, ReceiveSpec};
use crate::report::Report;
use crate::sender::{self, LaneEnd, SendJob};
use crate::wishes;
use model::{JobId, Name, SessionId, TransferOptions};
use net::{Connection, DialOptions};
use plan::{Adaptation, StreamChoice, StreamInputs};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};
use store::{Sink, Source};
use wire::handshake::{Direction, EXPORTER_LABEL, Join, VERSION_MAX, VERSION_MIN, check_welcome, feature};
use wire::limits::STREAMS_MAX;
use wire::message::{self, Hello, Open, Welcome};
use wire::{CloseCode, FrameReader, Message, Refusal};

/// Data streams dialled before the round trip time is known.
const EARLY_STREAMS: u32 = 2;
/// Lanes that fail one after the other without anything moving end the job.
const LANE_FAILURES_MAX: u32 = 8;
/// Wait before a failed lane is replaced, doubled with every failure; forgotten after a time without any.
const LANE_RETRY_FIRST: Duration = Duration::from_millis(100);
const LANE_QUIET: Duration = Duration::from_secs(60);
/// How often a running job looks after its lanes.
const CARE_INTERVAL: Duration = Duration::from_millis(50);

/// What the user may set by hand; everything else is chosen.
#[derive(Clone, Debug, Default)]
pub struct Tuning {
    pub streams: Option<u32>,
}

pub struct ClientOptions {
    /// `HOST:PORT`.
    pub address: String,
    pub dial: DialOptions,
    /// Enrols this client's key; empty once it is known there.
    pub credential: Vec<u8>,
    pub tuning: Tuning,
    pub memory: Memory,
}

/// Asked again and again while a job runs: true ends it.
pub type Interrupt<'a> = &'a dyn Fn() -> bool;

pub struct PushSpec {
    pub id: JobId,
    /// Relative to the endpoint's root.
    pub path: Vec<u8>,
    /// One file or link: the path may be its new name.
    pub is_single: bool,
    pub options: TransferOptions,
}

pub struct PullSpec {
    pub id: JobId,
    /// Relative to the endpoint's root.
    pub paths: Vec<Vec<u8>>,
    pub options: TransferOptions,
    pub rename_to: Option<Name>,
    /// The sink takes chunks in order only.
    pub is_sequential: bool,
}

pub struct Client {
    pub(super) shared: Arc<Shared>,
    control: Option<std::thread::JoinHandle<()>>,
    next_job: AtomicU32,
}

pub(super) struct Shared {
    options: ClientOptions,
    pub(super) session: Arc<Session>,
    pub(super) answers: Answers,
    /// Connections dialled early, not yet joined.
    early: Mutex<VecDeque<Connection>>,
    pub(super) state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
pub(super) struct State {
    welcome: Option<Welcome>,
    /// The session is over, and why.
    pub(super) ended: Option<Ending>,
    pub(super) refused: Option<Refusal>,
}

impl Client {
    /// Dials the endpoint and says hello. The answer is waited for when it is needed.
    pub fn connect(options: ClientOptions) -> Result<Client, ConnectError> {
        let early: Vec<_> = (0..options.tuning.streams.unwrap_or(EARLY_STREAMS).min(EARLY_STREAMS))
            .map(|_| {
                let (address, dial) = (options.address.clone(), options.dial.clone());
                std::thread::spawn(move || net::dial(&address, &dial).ok())
            })
            .collect();
        let connection = net::dial(&options.address, &options.dial).map_err(ConnectError::Net)?;
        let id = SessionId(net::random_bytes());
        let peer = connection.peer_pin();
        let exporter = connection.export(EXPORTER_LABEL, &id.0);
        let lost = |e: std::io::Error| ConnectError::Lost(e.to_string());
        let (control, stream) = connection.into_control(control_options()).map_err(lost)?;
        let hello = Hello {
            version_min: VERSION_MIN,
            version_max: VERSION_MAX,
            features: feature::ALL,
            session: id.0.to_vec(),
            agent: super::AGENT.into(),
            credential: options.credential.clone(),
            processors: processors(),
        };
        let _ = control.send(message::encode(hello));
        let aborter = stream.aborter();
        let session = Session::new(id, peer, control, exporter);
        let shared = Arc::new(Shared {
            options,
            session,
            answers: Answers::default(),
            early: Mutex::default(),
            state: Mutex::default(),
            changed: Condvar::new(),
        });
        shared.session.watch_control(aborter);
        let for_thread = shared.clone();
        let run = move || for_thread.run(stream);
        let control = std::thread::Builder::new().name("control".into()).spawn(run).expect("the system gives a thread");
        let mut held = shared.early.lock().unwrap();
        held.extend(early.into_iter().filter_map(|dialled| dialled.join().ok().flatten()));
        drop(held);
        Ok(Client { shared, control: Some(control), next_job: AtomicU32::new(1) })
    }

    /// The endpoint's answer to the hello.
    pub fn welcome(&self) -> Result<Welcome, ConnectError> {
        let deadline = Instant::now() + ANSWER_TIMEOUT;
        let mut state = self.shared.state.lock().unwrap();
        loop {
            if let Some(refusal) = &state.refused {
                return Err(ConnectError::Refused(refusal.clone()));
            }
            if let Some(welcome) = &state.welcome {
                return Ok(welcome.clone());
            }
            if let Some(ending) = &state.ended {
                return Err(ConnectError::Lost(ending.to_string()));
            }
            let Some(left) = deadline.checked_duration_since(Instant::now()) else {
                return Err(ConnectError::Lost("no answer to the greeting".into()));
            };
            state = self.shared.changed.wait_timeout(state, left).unwrap().0;
        }
    }

    /// How long a job may stand still before it is given up, while the endpoint answers; 15 minutes by itself.
    pub fn set_no_progress_timeout(&self, timeout: Duration) {
        self.shared.session.set_no_progress_timeout(timeout);
    }

    /// Whether the endpoint knows the locations without storage, which another one would take for names of files.
    pub fn knows_synthetic(&self) -> Result<bool, ConnectError> {
        Ok(self.welcome()?.features & feature::SYNTHETIC != 0)
    }

    /// Whether the endpoint knows selections, comparisons, dry runs and deletion; another one would pass them over.
    pub fn knows_sync(&self) -> Result<bool, ConnectError> {
        Ok(self.welcome()?.features & feature::SYNC != 0)
    }

    /// How many abilities of this program the endpoint does not have.
    pub fn features_lacking(&self) -> Result<u32, ConnectError> {
        Ok((feature::ALL & !self.welcome()?.features).count_ones())
    }

    /// Sends `source` to the endpoint and waits for the end.
    pub fn push(
        &self,
        spec: PushSpec,
        source: Arc<dyn Source>,
        progress: Arc<Progress>,
        observer: Option<Arc<dyn Observer>>,
        interrupt: Interrupt<'_>,
    ) -> Report {
        let number = self.next_job.fetch_add(1, Relaxed);
        let is_sequential = source.is_sequential();
        let port = Arc::new(ControlPort(self.shared.session.control.clone()));
        let job = SendJob::new(number, spec.options.clone(), source, port, progress.clone(), observer);
        let running = self.shared.session.add_job(number, Job::Send(job.clone()));
        self.open(Open {
            job: number,
            job_id: spec.id.0.to_vec(),
            direction: Direction::ClientSends as u32,
            paths: vec![spec.path],
            options: Some(options_to_wire(&wishes::for_receiver(&spec.options))),
            is_single: spec.is_single,
            is_sequential,
        });
        job.start();
        self.care(number, running, &spec.options, is_sequential, &progress, interrupt)
    }

    /// Receives from the endpoint into `sink` and waits for the end.
    ///
    /// # Errors
    /// When the destination cannot be used.
    pub fn pull(
        &self,
        spec: PullSpec,
        sink: Arc<dyn Sink>,
        progress: Arc<Progress>,
        observer: Option<Arc<dyn Observer>>,
        interrupt: Interrupt<'_>,
    ) -> store::Result<Report> {
        let number = self.next_job.fetch_add(1, Relaxed);
        let port = Arc::new(ControlPort(self.shared.session.control.clone()));
        let receive = ReceiveSpec {
            number,
            id: spec.id,
            sender: self.shared.session.peer,
            options: spec.options.clone(),
            rename_to: spec.rename_to.clone(),
        };
        let job = ReceiveJob::new(receive, sink, port, progress.clone(), observer)?;
        let running = self.shared.session.add_job(number, Job::Receive(job.clone()));
        self.open(Open {
            job: number,
            job_id: spec.id.0.to_vec(),
            direction: Direction::ServerSends as u32,
            paths: spec.paths,
            options: Some(options_to_wire(&wishes::for_sender(&spec.options))),
            is_single: false,
            is_sequential: spec.is_sequential,
        });
        job.start();
        Ok(self.care(number, running, &spec.options, spec.is_sequential, &progress, interrupt))
    }

    fn open(&self, open: Open) {
        let _ = self.shared.session.control.send(message::encode(open));
    }

    /// Looks after a job until it ends: lanes, interruption, facts for the report.
    fn care(
        &self,
        number: u32,
        running: Arc<Running>,
        options: &TransferOptions,
        is_sequential: bool,
        progress: &Arc<Progress>,
        interrupt: Interrupt<'_>,
    ) -> Report {
        let mut lanes = Lanes::new(self.shared.clone(), running.clone(), number, is_sequential);
        let ending = loop {
            if let Some(ending) = lanes.ending(CARE_INTERVAL) {
                break ending;
            }
            if interrupt() {
                running.job.cancel(CloseCode::Cancelled, "interrupted");
            }
            lanes.tend();
            if let Job::Send(job) = &running.job {
                *job.progress.stream_facts.lock().unwrap() = running.watch.facts();
            }
            if let Some(ending) = &self.shared.state.lock().unwrap().ended {
                running.job.stop(ending.clone());
            }
        };
        if matches!(ending, Ending::Finished(_)) {
            lanes.wait(Duration::from_secs(2));
        }
        *progress.stream_facts.lock().unwrap() = match &running.job {
            Job::Send(_) => running.watch.facts(),
            Job::Receive(_) => *progress.stream_facts.lock().unwrap(),
        };
        running.watch.abort();
        self.shared.session.remove_job(number);
        let is_sender = matches!(running.job, Job::Send(_));
        let mut report = Report::new(progress, ending, options.clone(), is_sender);
        report.streams = lanes.started_max;
        report.congestion = lanes.state.congestion.lock().unwrap().clone();
        let adapted = lanes.adaptation.as_ref().and_then(Adaptation::note);
        report.notes.splice(..0, std::iter::once(lanes.choice.reason).chain(adapted));
        report
    }

    /// Ends the session in order.
    pub fn close(mut self) {
        self.shared.session.leave();
        if let Some(control) = self.control.take() {
            let _ = control.join();
        }
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.shared.session.control.abort();
    }
}

impl Shared {
    fn run(&self, stream: net::ControlStream) {
        let mut reader = FrameReader::new();
        reader.authenticated();
        let outcome = run_control(&self.session, stream, reader, &mut |message| self.answer(message));
        let mut state = self.state.lock().unwrap();
        let ending = match outcome {
            ControlOutcome::Closed(refusal) => {
                state.refused.get_or_insert(refusal.clone());
                Ending::Cancelled { by_peer: true, refusal }
            }
            ControlOutcome::Refused(refusal) => Ending::Cancelled { by_peer: false, refusal },
            ControlOutcome::Lost(why) => Ending::Lost(why),
        };
        state.ended = Some(ending.clone());
        drop(state);
        self.session.end_jobs(&ending);
        self.answers.close();
        self.changed.notify_all();
    }

    /// What the endpoint says of the session and of opening jobs.
    fn answer(&self, message: Message) -> Result<(), Refusal> {
        let message = match message {
            Message::Records(batch) => return self.answers.records(batch),
            Message::Answered(answered) => {
                self.answers.answered(&answered);
                return Ok(());
            }
            message => message,
        };
        let mut state = self.state.lock().unwrap();
        match message {
            Message::Welcome(welcome) => {
                check_welcome(&welcome)?;
                if state.welcome.is_some() {
                    return Err(Refusal::new(CloseCode::WrongState, "a second welcome"));
                }
                let features = welcome.features;
                state.welcome = Some(welcome);
                drop(state);
                self.session.agree_on(features);
            }
            // Nothing waits for it: what an accepted job brings tells the same.
            Message::Accept(_) => {}
            Message::Reject(reject) => {
                drop(state);
                let running = self.session.jobs.lock().unwrap().get(&reject.job).cloned();
                if let Some(running) = running {
                    let refusal = Refusal::new(CloseCode::from_number(reject.code), &reject.text);
                    running.job.stop(Ending::Cancelled { by_peer: true, refusal });
                }
            }
            _ => return Err(Refusal::new(CloseCode::WrongState, "a message that only a client sends")),
        }
        self.changed.notify_all();
        Ok(())
    }

    fn choose(&self, is_sender: bool, is_sequential: bool) -> StreamChoice {
        let state = self.state.lock().unwrap();
        let welcome = state.welcome.as_ref();
        let here = net::socket::granted_send_buffer_bytes_max().unwrap_or(4 << 20);
        let there = welcome.map_or(here, |w| w.send_buffer_bytes_max);
        plan::streams(&StreamInputs {
            rtt_us: self.session.rtt_us(),
            send_buffer_bytes_max: if is_sender { here } else { there },
            receive_buffer_bytes_max: None,
            processors_here: processors(),
            processors_there: welcome.map_or(0, |w| w.processors),
            asked: self.options.tuning.streams,
            streams_max: welcome.map_or(STREAMS_MAX, |w| w.streams_max),
            is_sequential,
            congestion: self.options.dial.congestion.clone().unwrap_or_default(),
        })
    }
}

/// The lanes of one job.
struct Lanes {
    shared: Arc<Shared>,
    running: Arc<Running>,
    number: u32,
    is_sequential: bool,
    choice: StreamChoice,
    state: Arc<LaneState>,
    started_max: u32,
    is_welcome_known: bool,
    /// `None` where the number is fixed, and until the endpoint has told of itself.
    adaptation: Option<Adaptation>,
    began: Instant,
}

#[derive(Default)]
struct LaneState {
    alive: AtomicU32,
    /// Failures without a quiet time between them.
    failures: AtomicU32,
    last_failure: Mutex<Option<(Instant, String)>>,
    congestion: Mutex<String>,
    next_stream: AtomicU32,
    /// Lanes for which there was no memory, or that are not needed any more.
    retired: AtomicU32,
}

impl Lanes {
    fn new(shared: Arc<Shared>, running: Arc<Running>, number: u32, is_sequential: bool) -> Lanes {
        let is_sender = matches!(running.job, Job::Send(_));
        let choice = shared.choose(is_sender, is_sequential);
        let mut lanes = Lanes {
            shared,
            running,
            number,
            is_sequential,
            choice,
            state: Arc::default(),
            started_max: 0,
            is_welcome_known: false,
            adaptation: None,
            began: Instant::now(),
        };
        lanes.start_missing();
        lanes
    }

    fn ending(&self, patience: Duration) -> Option<Ending> {
        match &self.running.job {
            Job::Send(job) => job.end.wait(patience),
            Job::Receive(job) => job.end.wait(patience),
        }
    }

    /// Replaces lanes that died, starts more once the endpoint has told of itself, and more where they carry more.
    fn tend(&mut self) {
        let welcome = || self.shared.state.lock().unwrap().welcome.as_ref().map(|welcome| welcome.streams_max);
        if !self.is_welcome_known
            && let Some(streams_max) = welcome()
        {
            self.is_welcome_known = true;
            let is_sender = matches!(self.running.job, Job::Send(_));
            self.choice = self.shared.choose(is_sender, self.is_sequential);
            if self.shared.options.tuning.streams.is_none() && !self.is_sequential {
                self.adaptation = Some(Adaptation::new(self.choice.streams, streams_max));
            }
        }
        self.adapt();
        let failures = self.state.failures.load(Relaxed);
        if failures >= LANE_FAILURES_MAX && self.state.alive.load(Relaxed) == 0 {
            let failure = self.state.last_failure.lock().unwrap().clone();
            let why = failure.map_or(String::new(), |(_, why)| why);
            return self.running.job.stop(Ending::Lost(format!("no data stream could be kept open: {why}")));
        }
        if self.may_start(failures) {
            self.start_missing();
        }
    }

    /// Has more lanes started when the streams' sample asks for it.
    fn adapt(&mut self) {
        let Some(adaptation) = &mut self.adaptation else { return };
        // A lane that found no memory is missed by nobody, and more of them would find none either.
        if self.state.retired.load(Relaxed) > 0 {
            return;
        }
        let at_us = self.began.elapsed().as_micros() as u64;
        let congestion = self.state.congestion.lock().unwrap().clone();
        if let Some(streams) = adaptation.step(&sample(&self.shared.session, &self.running, &congestion, at_us)) {
            self.choice.streams = streams;
        }
    }

    /// After a failure the next lane waits twice as long as after the one before; a quiet time makes up for all.
    fn may_start(&self, failures: u32) -> bool {
        let Some((at, _)) = self.state.last_failure.lock().unwrap().clone() else { return true };
        if at.elapsed() > LANE_QUIET {
            self.state.failures.store(0, Relaxed);
            return true;
        }
        at.elapsed() >= LANE_RETRY_FIRST * (1 << failures.min(10).saturating_sub(1))
    }

    fn start_missing(&mut self) {
        let wanted = self.choice.streams.saturating_sub(self.state.retired.load(Relaxed));
        while self.state.alive.load(Relaxed) < wanted && self.state.failures.load(Relaxed) < LANE_FAILURES_MAX {
            let stream = self.state.next_stream.fetch_add(1, Relaxed);
            self.state.alive.fetch_add(1, Relaxed);
            self.started_max = self.started_max.max(self.state.alive.load(Relaxed));
            let lane = LaneThread {
                shared: self.shared.clone(),
                running: self.running.clone(),
                job: self.number,
                stream,
                state: self.state.clone(),
            };
            let spawned = std::thread::Builder::new().name(format!("lane-{stream}")).spawn(move || lane.run());
            if spawned.is_err() {
                self.state.alive.fetch_sub(1, Relaxed);
                self.state.retired.fetch_add(1, Relaxed);
                return;
            }
        }
    }

    /// Gives lanes time to end by themselves.
    fn wait(&self, patience: Duration) {
        let deadline = Instant::now() + patience;
        while self.state.alive.load(Relaxed) > 0 && Instant::now() < deadline {
            std::thread::park_timeout(Duration::from_millis(1));
        }
    }
}

struct LaneThread {
    shared: Arc<Shared>,
    running: Arc<Running>,
    job: u32,
    stream: u32,
    state: Arc<LaneState>,
}

impl LaneThread {
    fn run(self) {
        match self.lane() {
            Ok(LaneEnd::Done) => {
                self.state.retired.fetch_add(1, Relaxed);
            }
            Ok(LaneEnd::NoMemory) => {
                self.state.retired.fetch_add(1, Relaxed);
            }
            Ok(LaneEnd::Failed(e)) => self.failed(e.to_string()),
            Err(why) => self.failed(why),
        }
        self.state.alive.fetch_sub(1, Relaxed);
    }

    fn failed(&self, why: String) {
        *self.state.last_failure.lock().unwrap() = Some((Instant::now(), why));
        self.state.failures.fetch_add(1, Relaxed);
    }

    fn lane(&self) -> Result<LaneEnd, String> {
        let early = self.shared.early.lock().unwrap().pop_front();
        let options = &self.shared.options;
        let connection = match early {
            Some(connection) => connection,
            None => net::dial(&options.address, &options.dial).map_err(|e| e.to_string())?,
        };
        let mut stream = connection.into_data();
        let session = &self.shared.session;
        let direction = match self.running.job {
            Job::Send(_) => Direction::ClientSends,
            Job::Receive(_) => Direction::ServerSends,
        };
        let mut join = Join { session: session.id, job: self.job, stream: self.stream, direction, proof: [0; 32] };
        join.proof = join_proof(&session.exporter, &join, &stream.export(EXPORTER_LABEL, &session.id.0));
        watch_stream(&self.running, stream.aborter());
        if let Ok(name) = net::socket::congestion(&stream) {
            *self.state.congestion.lock().unwrap() = name;
        }
        // A peer that takes not even this much is not waited for.
        stream.set_io_timeout(Some(STREAM_TIMEOUT));
        stream.send(&[&join.encode()]).map_err(|e| e.to_string())?;
        stream.set_io_timeout(None);
        Ok(match &self.running.job {
            Job::Send(job) => sender::run_lane(job, self.running.next_lane(), stream, &options.memory),
            Job::Receive(job) => {
                let mut refused = |refusal: Refusal| session.close(refusal.code, &refusal.text);
                receiver::run_lane(job, stream, &options.memory, &mut refused)
            }
        })
    }
}
