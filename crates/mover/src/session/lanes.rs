//! The lanes of one job at the asking side: started, replaced when they fail, more where more carry more.
//!
//! Not here: how many are right (`plan`), and what a lane does (`sender`, `receiver`).

use super::client::{Shared, connect};
use super::running::{Job, Running, watch_stream};
use super::sample::sample;
use super::{congestion, join_proof};
use crate::job::Ending;
use crate::limits::STREAM_TIMEOUT;
use crate::receiver;
use crate::sender;
use crate::stream::LaneEnd;
use plan::{Adaptation, StreamChoice};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use wire::Refusal;
use wire::handshake::{Direction, EXPORTER_LABEL, Join};

/// Lanes that fail one after the other without anything moving end the job.
const LANE_FAILURES_MAX: u32 = 8;
/// Wait before a failed lane is replaced, doubled with every failure; forgotten after a time without any.
const LANE_RETRY_FIRST: Duration = Duration::from_millis(100);
const LANE_QUIET: Duration = Duration::from_secs(60);

/// The lanes of one job.
pub(super) struct Lanes {
    shared: Arc<Shared>,
    running: Arc<Running>,
    number: u32,
    is_sequential: bool,
    pub choice: StreamChoice,
    pub state: Arc<LaneState>,
    pub started_max: u32,
    is_welcome_known: bool,
    /// `None` where the number is fixed, and until the endpoint has told of itself.
    pub adaptation: Option<Adaptation>,
    began: Instant,
}

#[derive(Default)]
pub(super) struct LaneState {
    alive: AtomicU32,
    /// Failures without a quiet time between them.
    failures: AtomicU32,
    last_failure: Mutex<Option<(Instant, String)>>,
    next_stream: AtomicU32,
    /// Lanes for which there was no memory, or that are not needed any more.
    retired: AtomicU32,
}

impl LaneState {
    fn failed(&self, why: String) {
        *self.last_failure.lock().unwrap() = Some((Instant::now(), why));
        self.failures.fetch_add(1, Relaxed);
    }
}

impl Lanes {
    pub fn new(shared: Arc<Shared>, running: Arc<Running>, number: u32, is_sequential: bool) -> Lanes {
        let is_sender = matches!(running.job, Job::Send(_));
        let choice = shared.choose(is_sender, is_sequential, congestion::asked(&running));
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

    pub fn ending(&self, patience: Duration) -> Option<Ending> {
        match &self.running.job {
            Job::Send(job) => job.end.wait(patience),
            Job::Receive(job) => job.end.wait(patience),
        }
    }

    /// Replaces lanes that died, starts more once the endpoint has told of itself, and more where they carry more.
    pub fn maintain(&mut self) {
        let welcome = || self.shared.state.lock().unwrap().welcome.as_ref().map(|welcome| welcome.streams_max);
        if !self.is_welcome_known
            && let Some(streams_max) = welcome()
        {
            self.is_welcome_known = true;
            let is_sender = matches!(self.running.job, Job::Send(_));
            self.choice = self.shared.choose(is_sender, self.is_sequential, congestion::asked(&self.running));
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
        if let Some(streams) = adaptation.step(&sample(&self.shared.session, &self.running, at_us)) {
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
            if let Err(e) = spawned {
                self.state.alive.fetch_sub(1, Relaxed);
                return self.state.failed(format!("no thread could be started: {e}"));
            }
        }
    }

    /// Gives lanes time to end by themselves.
    pub fn wait(&self, patience: Duration) {
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
            Ok(LaneEnd::Failed(e)) => self.state.failed(e.to_string()),
            Err(why) => self.state.failed(why),
        }
        self.state.alive.fetch_sub(1, Relaxed);
    }

    fn lane(&self) -> Result<LaneEnd, String> {
        let early = self.shared.early.lock().unwrap().pop_front();
        let options = &self.shared.options;
        let connection = match early {
            Some(connection) => connection,
            None => connect(&*options.connector, self.stream).map_err(|e| e.to_string())?,
        };
        let session = &self.shared.session;
        if connection.peer_pin() != session.peer {
            return Err("another endpoint answers there than on the control stream".into());
        }
        let mut stream = connection.into_data();
        let direction = match self.running.job {
            Job::Send(_) => Direction::ClientSends,
            Job::Receive(_) => Direction::ServerSends,
        };
        let mut join = Join { session: session.id, job: self.job, stream: self.stream, direction, proof: [0; 32] };
        join.proof = join_proof(&session.exporter, &join, &stream.export(EXPORTER_LABEL, &session.id.0));
        watch_stream(&self.running, stream.aborter());
        if matches!(self.running.job, Job::Send(_)) {
            congestion::note(&self.running, &stream);
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
