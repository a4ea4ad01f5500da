//! A session: one control stream, the jobs it speaks of, and the data streams joined to it (docs/protocol.md 5, 6).
//!
//! `running` is a job in it, `control` the loop of its control stream. `connector` reaches the peer; `client` opens sessions and
//! runs jobs over its `lanes` on one path or several (`path_lanes`, `ways`); `server` answers them through a `host` that says what
//! may be read and written, and has jobs opened (`opening`); what waits in its buffer is brought to its place without its sender
//! (`draining`). `question` asks about files beside copying them, `answering` answers; `requests`, `arrivals` and `replies` do it for jobs that are
//! handed in. `room` says who gets a place at an endpoint, `roster` which jobs it has.
//!
//! Invariants:
//! - A data stream belongs to a session only by a proof that needs both streams' TLS exporters and the same identity.
//! - When the control stream ends, every job of the session ends with it; what is verified is kept.
//! - A stream, a lane and a job that do not get on end within a stated time, and which of the three diagnoses it was is
//!   said: a silent stream (`watch`), a lost network (the control stream), no progress (`liveness`).

mod error;
mod connector;
mod running;
mod control;
mod addresses;
mod asking;
mod client;
mod lanes;
mod path_lanes;
mod path_supervision;
mod ways;
mod pacing;
mod host;
mod drains;
mod draining;
mod openings;
mod attempts;
mod opening;
mod server;
mod review;
mod liveness;
mod losses;
pub mod lossy_paths;
mod sample;
mod congestion;
mod watch;
mod asks;
mod answering;
mod answers;
mod question;
mod replies;
mod arrivals;
mod requests;
mod seats;
mod room;
mod roster;

pub use asking::{Standby, Tuning};
pub(crate) use client::SEVERAL;
pub use client::{Client, ClientOptions, Guide, Interrupt, PullSpec, PushSpec};
pub use connector::{Connector, Direct, Path};
pub use draining::{DRAIN, DROP, Waiting, waiting};
pub use error::ConnectError;
pub use host::{Grant, Host, HostFacts, Mandate, Opened};
pub use opening::TAKEN_OVER;
pub use question::AskError;
pub use roster::{Member, Roster, Sums, Who};
pub use running::LOWER_EFFORT;
pub use server::Server;

use crate::job::Ending;
use crate::limits::{IDLE_ASK, IDLE_JOB, NO_PROGRESS_TIMEOUT};
use crate::pace::By;
use asks::Asks;
use losses::Follower;
use model::progress::StreamFacts;
use model::{Pin, SessionId};
use net::{Aborter, ControlSender, SendError};
use openings::Openings;
use running::{Job, Running};
use seats::Guest;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError, Weak};
use std::time::{Duration, Instant};
use wire::handshake::feature;
use wire::message::{self, Close};
use wire::{CloseCode, Message, Refusal, bounded};

/// The program and its version, as the other side's log shows it.
pub const AGENT: &str = concat!("thalweg/", env!("CARGO_PKG_VERSION"));

pub(crate) struct Session {
    pub id: SessionId,
    pub peer: Pin,
    pub control: ControlSender,
    /// Keys the proofs of data streams.
    pub exporter: [u8; 32],
    pub jobs: Mutex<HashMap<u32, Arc<Running>>>,
    pub changed: Condvar,
    /// The control stream's connection, for its round trip time.
    connection: OnceLock<Aborter>,
    /// What both sides can do; everything until the other side has told.
    features: AtomicU64,
    no_progress_ms: AtomicU64,
    /// Who the peer is, at an endpoint.
    grant: OnceLock<Grant>,
    /// When its connection was accepted, at an endpoint.
    arrived: OnceLock<std::time::Instant>,
    is_dismissed: AtomicBool,
    /// Somebody chose the congestion control of the streams that this side opens or accepts.
    is_congestion_chosen: AtomicBool,
    /// Reviews, one after the other, in which the host could not tell what the peer may.
    doubts: AtomicU32,
    /// Questions about files, and jobs that are being opened, at an endpoint.
    asks: Asks,
    /// Requests about jobs that are being answered.
    requests: AtomicUsize,
    /// Questions for addresses so far, at an endpoint.
    address_asks: AtomicU32,
    openings: Openings,
    /// Its place and its account, at an endpoint.
    guest: OnceLock<Guest>,
    /// When it last had something to do.
    rested: Mutex<Instant>,
}

impl Session {
    pub fn new(id: SessionId, peer: Pin, control: ControlSender, exporter: [u8; 32]) -> Arc<Session> {
        Arc::new(Session {
            id,
            peer,
            control,
            exporter,
            jobs: Mutex::default(),
            changed: Condvar::new(),
            connection: OnceLock::new(),
            features: AtomicU64::new(feature::ALL),
            no_progress_ms: AtomicU64::new(NO_PROGRESS_TIMEOUT.as_millis() as u64),
            grant: OnceLock::new(),
            arrived: OnceLock::new(),
            is_dismissed: AtomicBool::new(false),
            is_congestion_chosen: AtomicBool::new(false),
            doubts: AtomicU32::new(0),
            asks: Asks::default(),
            requests: AtomicUsize::new(0),
            address_asks: AtomicU32::new(0),
            openings: Openings::default(),
            guest: OnceLock::new(),
            rested: Mutex::new(Instant::now()),
        })
    }

    pub fn set_no_progress_timeout(&self, timeout: Duration) {
        self.no_progress_ms.store(timeout.as_millis() as u64, Relaxed);
    }

    /// Its account at an endpoint, which it has once it is let in.
    fn guest(&self) -> Result<&Guest, Refusal> {
        self.guest.get().ok_or_else(|| Refusal::new(CloseCode::WrongState, "a session that was not let in"))
    }

    fn no_progress_timeout(&self) -> Duration {
        Duration::from_millis(self.no_progress_ms.load(Relaxed))
    }

    /// Notes what both sides can do, and holds the jobs to it.
    pub fn agree_on(&self, features: u64) {
        self.features.store(features, Relaxed);
        self.running().iter().for_each(|running| running.job.restrict(features));
    }

    /// How long ago the peer was heard on the control stream.
    fn heard_ms(&self) -> u32 {
        let info = self.connection.get().and_then(Aborter::watched_tcp_info);
        info.map_or(0, |info| info.last_data_received_ms)
    }

    /// For how long nothing came on the control stream.
    fn silent_for(&self) -> Duration {
        Duration::from_millis(self.heard_ms().into())
    }

    pub fn watch_control(&self, aborter: Aborter) {
        let _ = self.connection.set(aborter);
    }

    /// Smallest round trip time that the kernel saw on the control stream; 0 when it is not known.
    pub fn rtt_us(&self) -> u64 {
        self.connection.get().and_then(Aborter::tcp_info).map_or(0, |info| u64::from(info.rtt_us_min))
    }

    pub fn add_job(&self, number: u32, job: Job) -> Arc<Running> {
        job.restrict(self.features.load(Relaxed));
        let losses = match &job {
            Job::Send(job) if !self.is_congestion_chosen.load(Relaxed) => {
                Follower::of(job, self.connection.get().and_then(Aborter::peer))
            }
            _ => None,
        };
        let running = Arc::new(Running {
            job,
            watch: Arc::default(),
            lanes: AtomicU32::new(0),
            stall: Mutex::default(),
            moved: Mutex::new((0, Instant::now())),
            asked: OnceLock::new(),
            limits: Mutex::default(),
            losses,
        });
        self.jobs.lock().unwrap().insert(number, running.clone());
        self.changed.notify_all();
        running
    }

    /// Lists a job among those of this endpoint.
    fn list_job(self: &Arc<Session>, roster: &Roster, who: Who, running: &Arc<Running>, number: u32) {
        let (is_sender, progress) = (matches!(running.job, Job::Send(_)), running.job.progress().clone());
        let job = InSession { session: Arc::downgrade(self), running: Arc::downgrade(running), number };
        roster.add(who, Arc::new(job), progress, is_sender);
    }

    /// A job has ended, or was refused.
    pub fn remove_job(&self, number: u32) {
        let mut jobs = self.jobs.lock().unwrap();
        let _removed = jobs.remove(&number);
        self.openings.note_past(number);
        drop(jobs);
        self.changed.notify_all();
        self.note_rest();
    }

    fn note_rest(&self) {
        *self.rested.lock().unwrap() = Instant::now();
    }

    /// For how long it has had no job and no question.
    fn idle_for(&self) -> Duration {
        let jobs = self.jobs.lock().unwrap().len();
        let is_busy = jobs + self.openings.count() + self.asks.count() + self.requests.load(Relaxed) > 0;
        if is_busy { Duration::ZERO } else { self.rested.lock().unwrap().elapsed() }
    }

    /// For how long none of its jobs has moved and none of its answers was taken, if that is so long that each may be ended.
    fn stands_still_for(&self) -> Option<Duration> {
        if self.openings.count() > 0 {
            return None;
        }
        let (running, asked) = (self.running(), self.asks.all());
        let jobs = running.iter().map(|running| Some(running.idle_for()).filter(|idle| *idle >= IDLE_JOB));
        let asks = asked.iter().map(|asked| asked.waits_for().filter(|idle| *idle >= IDLE_ASK));
        jobs.chain(asks).min().flatten()
    }

    fn running(&self) -> Vec<Arc<Running>> {
        // Also of a session of which a thread panicked: it has to be ended.
        self.jobs.lock().unwrap_or_else(PoisonError::into_inner).values().cloned().collect()
    }

    /// Ends every job of the session and breaks its data streams off.
    pub fn end_jobs(&self, why: &Ending) {
        self.openings.end(why);
        for running in self.running() {
            running.job.stop(why.clone());
            running.watch.abort();
        }
        self.asks.stop_all();
        self.changed.notify_all();
    }

    /// Never waits: one thread closes the sessions of many peers, of which one may not read.
    pub fn close(&self, code: CloseCode, text: &str) {
        say_last(&self.control, Close { code: code as u32, text: bounded(text).to_owned() });
        self.control.close_after_flush();
    }

    /// Ends a session whose peer may not be here any more: its jobs at once, and the connection when it has heard why. A peer
    /// that does not hear is cut off the second time.
    pub fn dismiss(&self, refusal: &Refusal) {
        if self.is_dismissed.swap(true, Relaxed) {
            return self.control.abort();
        }
        self.asks.stop_all();
        self.openings.end(&Ending::Cancelled { by_peer: false, refusal: refusal.clone() });
        let running = self.running();
        for one in &running {
            one.job.cancel(refusal.code, &refusal.text);
        }
        self.close(refusal.code, &refusal.text);
        running.iter().for_each(|one| one.watch.abort());
    }

    /// Ends a session of which everything has been heard, without waiting for the peer to agree.
    pub fn leave(&self) {
        say_last(&self.control, Close { code: CloseCode::Done as u32, text: String::new() });
        self.control.leave_after_flush();
    }
}

/// A job in the roster, which keeps neither it nor its session alive.
struct InSession {
    session: Weak<Session>,
    running: Weak<Running>,
    number: u32,
}

impl InSession {
    fn running(&self) -> Option<Arc<Running>> {
        self.running.upgrade().filter(|running| !running.job.is_ended())
    }
}

impl roster::Listed for InSession {
    fn is_ended(&self) -> bool {
        self.running().is_none() || self.session.strong_count() == 0
    }

    fn moved_bytes(&self) -> u64 {
        self.running().map_or(0, |running| running.watch.sample(None).1.moved_bytes)
    }

    fn facts(&self) -> Option<StreamFacts> {
        self.running().filter(|running| matches!(running.job, Job::Send(_))).map(|running| running.watch.facts())
    }

    fn limit_rate(&self, bytes_per_second: Option<u64>) {
        let Some((session, running)) = self.session.upgrade().zip(self.running()) else { return };
        // A client of an earlier version would forget its own limits for it.
        let needed = if session.grant.get().is_some() { feature::SHARED_PACE } else { feature::LIMITS };
        if matches!(running.job, Job::Send(_)) || session.features.load(Relaxed) & needed != 0 {
            running.limit_rate(&session, self.number, By::Endpoint, bytes_per_second);
        }
    }

    fn mark(&self, code_point: u8) {
        if let Some(running) = self.running() {
            running.watch.mark(code_point);
        }
    }
}

/// Says what needs no answer, without waiting. A peer that does not read for 8 MiB of messages is as good as gone.
fn say_last(control: &ControlSender, message: impl Into<Message>) {
    if let Err(SendError::Full) = control.try_send(message::encode(message)) {
        control.abort();
    }
}

/// The proof with which a data stream joins.
pub(crate) fn join_proof(exporter: &[u8; 32], join: &wire::handshake::Join, stream_exporter: &[u8; 32]) -> [u8; 32] {
    net::hmac_sha256(exporter, &[&join.authenticated(), stream_exporter])
}
