//! The lanes of one job on one path: started, replaced when they fail, more where more carry more.
//!
//! Invariant: what fails on a path holds up no lane of another.
//!
//! Not here: which paths there are (`lanes`, `ways`), how many streams are right (`plan`), what a lane does (`sender`, `receiver`).

use super::asking::Asker;
use super::connector::Path;
use super::running::{Job, Running, give_way, watch_stream};
use super::sample::sample;
use super::{congestion, join_proof};
use crate::limits::STREAM_TIMEOUT;
use crate::receiver;
use crate::sender;
use crate::stream::LaneEnd;
use net::{Connection, ErrorKind};
use plan::{Adaptation, StreamChoice};
use std::cell::Cell;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::time::{Duration, Instant};
use wire::Refusal;
use wire::handshake::{Direction, EXPORTER_LABEL, Join};
use wire::limits::STREAMS_MAX;

/// Lanes that fail one after the other without anything moving end their path, and the job when all of its paths have ended.
const LANE_FAILURES_MAX: u32 = 8;
/// Wait before a failed lane is replaced, doubled with every failure; forgotten after a time without any.
const LANE_RETRY_FIRST: Duration = Duration::from_millis(100);
const LANE_QUIET: Duration = Duration::from_secs(60);
/// A path that has ended while others carry the job is tried again this often, or when it was quiet for long.
const DOUBLINGS_MAX: u32 = 9;

/// A job as all of its lanes know it.
#[derive(Clone)]
pub(super) struct LaneJob {
    pub asker: Arc<Asker>,
    pub running: Arc<Running>,
    pub number: u32,
    pub is_sequential: bool,
    /// Numbers streams throughout the job.
    pub next_stream: Arc<AtomicU32>,
}

impl LaneJob {
    pub fn is_sender(&self) -> bool {
        matches!(self.running.job, Job::Send(_))
    }
}

pub(super) struct PathLanes {
    job: LaneJob,
    pub path: Path,
    /// Its place among the paths of the job.
    pub place: usize,
    pub choice: StreamChoice,
    pub state: Arc<LaneState>,
    /// `None` where the number is fixed, and until the endpoint has told of itself.
    pub adaptation: Option<Adaptation>,
    pub started_max: u32,
    began: Instant,
    rests_until: Cell<Option<Instant>>,
}

#[derive(Default)]
pub(super) struct LaneState {
    alive: AtomicU32,
    /// Of those, the ones that have no stream yet.
    dialling: AtomicU32,
    /// Failures without a quiet time between them.
    failures: AtomicU32,
    last_failure: Mutex<Option<(Instant, String)>>,
    /// Lanes for which there was no memory, or that are not needed any more.
    retired: AtomicU32,
    /// Why no lane is started on it any more.
    given_up: OnceLock<String>,
    /// What its streams carried, and between which addresses.
    pub bytes: AtomicU64,
    pub ends: OnceLock<(SocketAddr, SocketAddr)>,
}

impl LaneState {
    fn failed(&self, why: String) {
        *self.last_failure.lock().unwrap() = Some((Instant::now(), why));
        self.failures.fetch_add(1, Relaxed);
    }

    pub fn last_failure(&self) -> Option<String> {
        self.last_failure.lock().unwrap().as_ref().map(|(_, why)| why.clone())
    }
}

impl PathLanes {
    pub fn new(job: LaneJob, path: Path, place: usize, paths: usize) -> PathLanes {
        let choice = choose(&job, place, paths);
        let (state, began) = (Arc::default(), Instant::now());
        let (adaptation, started_max, rests_until) = Default::default();
        PathLanes { job, path, place, choice, state, adaptation, started_max, began, rests_until }
    }

    /// Chooses again, since more is known of the endpoint or there are more paths; streams that run stay.
    pub fn choose(&mut self, paths: usize) {
        self.choice = choose(&self.job, self.place, paths);
        let Some(welcome) = self.job.asker.welcome.get() else { return };
        if self.job.asker.tuning.streams.is_none() && !self.job.is_sequential {
            let streams_max = (welcome.streams_max.min(STREAMS_MAX) / paths as u32).max(1);
            let adaptation = Adaptation::new(self.choice.streams, streams_max);
            // Lanes on several paths are told apart by what they carry: none of them is to rest.
            self.adaptation = Some(if paths > 1 { adaptation.only_growing() } else { adaptation });
            self.job.running.limit_streams(&self.job.asker.session, self.job.number, 0);
        }
    }

    /// Has more lanes started, or lanes rest, when the streams' sample asks for it.
    pub fn adapt(&mut self) {
        let Some(adaptation) = &mut self.adaptation else { return };
        // A lane that found no memory is missed by nobody, and more of them would find none either.
        if self.state.retired.load(Relaxed) > 0 {
            return;
        }
        let at_us = self.began.elapsed().as_micros() as u64;
        if let Some(streams) =
            adaptation.step(&sample(&self.job.asker.session, &self.job.running, Some(self.place), at_us))
        {
            // Lanes that are not needed any more rest; their streams stay open.
            self.choice.streams = self.choice.streams.max(streams);
            let working = if streams < self.choice.streams { streams } else { 0 };
            self.job.running.limit_streams(&self.job.asker.session, self.job.number, working);
        }
    }

    /// It carries nothing, and nothing is tried on it for now.
    pub fn is_down(&self) -> bool {
        let is_failed = self.state.failures.load(Relaxed) >= LANE_FAILURES_MAX || self.state.given_up.get().is_some();
        is_failed && self.alive() == 0
    }

    pub fn given_up(&self) -> Option<&String> {
        self.state.given_up.get()
    }

    /// Ends it for this job: its streams break off, and others carry what was under way.
    pub fn give_up(&self, why: String) {
        if self.state.given_up.set(why).is_ok() {
            self.job.running.watch.abort_on(self.place);
        }
    }

    /// Ends its streams, and opens new ones after a time.
    pub fn rest(&self, span: Duration) {
        self.rests_until.set(Some(Instant::now() + span));
        self.job.running.watch.abort_on(self.place);
    }

    pub fn alive(&self) -> u32 {
        self.state.alive.load(Relaxed)
    }

    /// Lanes with a stream.
    pub fn busy(&self) -> u32 {
        self.alive().saturating_sub(self.state.dialling.load(Relaxed))
    }

    /// Starts the lanes that are missing. A path that has failed again and again is left alone, unless `is_patient` says that others
    /// carry the job meanwhile.
    pub fn start_missing(&mut self, is_patient: bool) {
        let failures = self.state.failures.load(Relaxed);
        let rests = self.rests_until.get().is_some_and(|until| Instant::now() < until);
        if rests || self.state.given_up.get().is_some() || !self.may_start(failures) {
            return;
        }
        let wanted = self.choice.streams.saturating_sub(self.state.retired.load(Relaxed));
        let may_go_on = || is_patient || self.state.failures.load(Relaxed) < LANE_FAILURES_MAX;
        while self.alive() < wanted && may_go_on() {
            self.state.alive.fetch_add(1, Relaxed);
            self.state.dialling.fetch_add(1, Relaxed);
            self.started_max = self.started_max.max(self.alive());
            let lane = LaneThread {
                asker: self.job.asker.clone(),
                running: Arc::downgrade(&self.job.running),
                number: self.job.number,
                path: self.path.clone(),
                place: self.place,
                stream: self.job.next_stream.fetch_add(1, Relaxed),
                state: self.state.clone(),
            };
            let spawned = std::thread::Builder::new().name(format!("lane-{}", lane.stream)).spawn(move || lane.run());
            if let Err(e) = spawned {
                self.state.alive.fetch_sub(1, Relaxed);
                self.state.dialling.fetch_sub(1, Relaxed);
                return self.state.failed(format!("no thread could be started: {e}"));
            }
        }
    }

    /// After a failure the next lane waits twice as long as after the one before; a quiet time makes up for all.
    fn may_start(&self, failures: u32) -> bool {
        let Some((at, _)) = self.state.last_failure.lock().unwrap().clone() else { return true };
        if at.elapsed() > LANE_QUIET {
            self.state.failures.store(0, Relaxed);
            return true;
        }
        at.elapsed() >= LANE_RETRY_FIRST * (1 << failures.saturating_sub(1).min(DOUBLINGS_MAX))
    }
}

fn choose(job: &LaneJob, place: usize, paths: usize) -> StreamChoice {
    job.asker.choose(job.is_sender(), job.is_sequential, congestion::asked(&job.running), (place, paths))
}

struct LaneThread {
    asker: Arc<Asker>,
    /// A job that ends waits for no lane that has no stream yet.
    running: Weak<Running>,
    /// Of the job.
    number: u32,
    path: Path,
    place: usize,
    stream: u32,
    state: Arc<LaneState>,
}

impl LaneThread {
    fn run(self) {
        let connection = self.dial();
        self.state.dialling.fetch_sub(1, Relaxed);
        let end = connection.and_then(|connection| match self.running.upgrade() {
            Some(running) => self.lane(&running, connection),
            None => Ok(LaneEnd::Done),
        });
        match end {
            Ok(LaneEnd::Done | LaneEnd::NoMemory) => {
                self.state.retired.fetch_add(1, Relaxed);
            }
            Ok(LaneEnd::Failed(e)) => self.state.failed(e.to_string()),
            Err(why) => self.state.failed(why),
        }
        self.state.alive.fetch_sub(1, Relaxed);
    }

    fn dial(&self) -> Result<Connection, String> {
        const STRANGER: &str = "another endpoint answers there than on the control stream";
        let connection = self.asker.connect(self.place, &self.path).map_err(|e| {
            if matches!(e.kind, ErrorKind::IdentityChanged { .. }) {
                let _ = self.state.given_up.set(STRANGER.to_owned());
            }
            e.to_string()
        })?;
        if connection.peer_pin() != self.asker.session.peer {
            let _ = self.state.given_up.set(STRANGER.to_owned());
            return Err(STRANGER.to_owned());
        }
        let _ = self.state.ends.set((connection.local_addr(), connection.peer_addr()));
        Ok(connection)
    }

    fn lane(&self, running: &Running, connection: Connection) -> Result<LaneEnd, String> {
        let LaneThread { asker, number, .. } = self;
        let session = &asker.session;
        let mut stream = connection.into_data();
        let direction = match running.job {
            Job::Send(_) => Direction::ClientSends,
            Job::Receive(_) => Direction::ServerSends,
        };
        let mut join = Join { session: session.id, job: *number, stream: self.stream, direction, proof: [0; 32] };
        join.proof = join_proof(&session.exporter, &join, &stream.export(EXPORTER_LABEL, &session.id.0));
        watch_stream(running, stream.aborter(), self.place);
        // If the job ends from here on, this stream is found and broken off; if it ended before, nobody would do that.
        if running.job.is_ended() {
            return Ok(LaneEnd::Done);
        }
        give_way(&running.job, &stream.aborter());
        if running.watch.has_several_ways() {
            net::numa::stay_near(stream.local_addr().ip());
        }
        if matches!(running.job, Job::Send(_)) {
            congestion::note(running, &stream);
        }
        // A peer that takes not even this much is not waited for.
        stream.set_io_timeout(Some(STREAM_TIMEOUT));
        stream.send(&[&join.encode()]).map_err(|e| e.to_string())?;
        stream.set_io_timeout(None);
        let end = match &running.job {
            Job::Send(job) => sender::run_lane(job, running.next_lane(), &mut stream, &asker.memory),
            Job::Receive(job) => {
                let mut refused = |refusal: Refusal| session.close(refusal.code, &refusal.text);
                receiver::run_lane(job, &mut stream, &asker.memory, &mut refused)
            }
        };
        let counters = stream.counters();
        let is_sender = matches!(running.job, Job::Send(_));
        let bytes = if is_sender { counters.wire_bytes_sent } else { counters.wire_bytes_received };
        self.state.bytes.fetch_add(bytes, Relaxed);
        Ok(end)
    }
}
