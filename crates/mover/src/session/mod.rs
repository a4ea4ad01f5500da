//! A session: one control stream, the jobs it speaks of, and the data streams joined to it (docs/protocol.md 5, 6).
//!
//! `client` opens sessions and runs jobs over its `lanes`; `server` answers them through a `Host` that says what may be
//! read and written.
//! `question` asks about files beside copying them, `asks` answers. `room` says who gets a place at an endpoint.
//!
//! Invariants:
//! - A data stream belongs to a session only by a proof that needs both streams' TLS exporters and the same identity.
//! - When the control stream ends, every job of the session ends with it; what is verified is kept.
//! - A stream, a lane and a job that do not get on end within a stated time, and which of the three diagnoses it was is
//!   said: a silent stream (`watch`), a lost network (the control stream), no progress (`care`).

mod error;
mod client;
mod lanes;
mod pacing;
mod server;
mod review;
mod care;
mod sample;
mod congestion;
mod watch;
mod asks;
mod question;
mod room;

pub use client::{Client, ClientOptions, Interrupt, PullSpec, PushSpec, Tuning};
pub use error::ConnectError;
pub use question::AskError;
pub use server::{Grant, Host, HostFacts, Opened, Server};

use crate::job::{Ending, Port};
use crate::limits::{CONTROL_TIMEOUT, NO_PROGRESS_TIMEOUT, PING_INTERVAL, TIMES_INTERVAL};
use crate::progress::Progress;
use crate::receiver::ReceiveJob;
use crate::sender::SendJob;
use crate::stall::{Stall, Standing};
use asks::Asks;
use model::options::Compression;
use model::{Pin, SessionId};
use net::{Aborter, ControlEnd, ControlEvent, ControlOptions, ControlSender, ControlStream, SendError};
use room::Guest;
use std::collections::HashMap;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};
use watch::StreamWatch;
use wire::handshake::{Direction, feature};
use wire::message::{self, Close, Ping, Pong};
use wire::{CloseCode, FrameReader, FrameType, Message, Refusal, bounded};

/// The program and its version, as the other side's log shows it.
pub const AGENT: &str = concat!("thalweg/", env!("CARGO_PKG_VERSION"));

pub(crate) fn control_options() -> ControlOptions {
    ControlOptions { idle_timeout: CONTROL_TIMEOUT, tick: TIMES_INTERVAL, ..ControlOptions::default() }
}

/// One half of a job, whichever it is.
#[derive(Clone)]
pub(crate) enum Job {
    Send(Arc<SendJob>),
    Receive(Arc<ReceiveJob>),
}

impl Job {
    pub fn progress(&self) -> &Arc<Progress> {
        match self {
            Job::Send(job) => &job.progress,
            Job::Receive(job) => &job.progress,
        }
    }

    fn handle(&self, message: Message) -> Result<(), Refusal> {
        match self {
            Job::Send(job) => job.handle(message),
            Job::Receive(job) => job.handle(message),
        }
    }

    pub fn stop(&self, ending: Ending) {
        match self {
            Job::Send(job) => job.stop(ending),
            Job::Receive(job) => job.stop(ending),
        }
    }

    pub fn cancel(&self, code: CloseCode, text: &str) {
        match self {
            Job::Send(job) => job.cancel(code, text),
            Job::Receive(job) => job.cancel(code, text),
        }
    }

    fn is_ended(&self) -> bool {
        match self {
            Job::Send(job) => job.end.is_set(),
            Job::Receive(job) => job.end.is_set(),
        }
    }

    pub fn wait_for_end(&self) -> Ending {
        let end = match self {
            Job::Send(job) => &job.end,
            Job::Receive(job) => &job.end,
        };
        loop {
            if let Some(ending) = end.wait(Duration::from_secs(3600)) {
                return ending;
            }
        }
    }

    fn standing(&self) -> Standing {
        match self {
            Job::Send(job) => job.standing(),
            Job::Receive(job) => job.standing(),
        }
    }

    fn waits_for_memory(&self) -> bool {
        self.progress().lanes.wait_for_memory()
    }

    /// Holds the job to the features that both sides have.
    fn restrict(&self, features: u64) {
        let has = |bit: u64| features & bit != 0;
        match self {
            Job::Send(job) if job.is_sequential() && !has(feature::OPEN_ENDED) => {
                job.cancel(CloseCode::Version, "the other side does not accept a file of unknown length (a pipe)");
            }
            Job::Receive(job) if !has(feature::OPEN_ENDED) => job.forbid_open_ended(),
            _ => {}
        }
        if let Job::Receive(job) = self
            && !has(feature::DELTA)
        {
            job.forbid_chunk_digests();
        }
        let options = match self {
            Job::Send(job) => &job.options,
            Job::Receive(job) => &job.options,
        };
        if options.digest == model::DigestAlgorithm::Blake3 && !has(feature::BLAKE3) {
            self.cancel(CloseCode::Version, NO_BLAKE3);
        }
        if options.compression != Compression::None && !has(feature::LIMITS) {
            self.cancel(CloseCode::Version, NO_COMPRESSION);
        }
    }
}

pub(crate) const NO_BLAKE3: &str =
    "the session has no BLAKE3: choose --digest crc64nvme, or bring both sides up to date";

pub(crate) const NO_COMPRESSION: &str = "the session has no compression: omit -z, or bring both sides up to date";

pub(crate) struct Running {
    pub job: Job,
    pub watch: Arc<StreamWatch>,
    lanes: AtomicU32,
    /// Touched once a second by the control loop.
    stall: Mutex<Stall>,
    /// How far the job had come when it last moved.
    moved: Mutex<(u64, Instant)>,
    /// What was asked for, at an endpoint: rights are looked at again while the job runs.
    asked: OnceLock<(Direction, Vec<Vec<u8>>)>,
}

impl Running {
    /// A number for a lane that no other lane of the job has had.
    pub fn next_lane(&self) -> u32 {
        self.lanes.fetch_add(1, Relaxed)
    }

    /// For how long the job has not moved, owed or not, as far as the control loop has seen.
    fn idle_for(&self) -> Duration {
        self.moved.lock().unwrap().1.elapsed()
    }
}

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
    /// Reviews, one after the other, in which the host could not tell what the peer may.
    doubts: AtomicU32,
    /// Questions about files, at an endpoint.
    asks: Asks,
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
            doubts: AtomicU32::new(0),
            asks: Asks::default(),
            guest: OnceLock::new(),
            rested: Mutex::new(Instant::now()),
        })
    }

    pub fn set_no_progress_timeout(&self, timeout: Duration) {
        self.no_progress_ms.store(timeout.as_millis() as u64, Relaxed);
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
        let info = self.connection.get().and_then(Aborter::tcp_info);
        info.map_or(0, |info| info.last_data_received_ms)
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
        let running = Arc::new(Running {
            job,
            watch: Arc::default(),
            lanes: AtomicU32::new(0),
            stall: Mutex::default(),
            moved: Mutex::new((0, Instant::now())),
            asked: OnceLock::new(),
        });
        self.jobs.lock().unwrap().insert(number, running.clone());
        self.changed.notify_all();
        running
    }

    pub fn remove_job(&self, number: u32) {
        self.jobs.lock().unwrap().remove(&number);
        self.note_rest();
    }

    fn note_rest(&self) {
        *self.rested.lock().unwrap() = Instant::now();
    }

    /// For how long it has had no job and no question.
    fn idle_for(&self) -> Duration {
        let is_busy = !self.jobs.lock().unwrap().is_empty() || self.asks.count() > 0;
        if is_busy { Duration::ZERO } else { self.rested.lock().unwrap().elapsed() }
    }

    fn running(&self) -> Vec<Arc<Running>> {
        // Also of a session of which a thread panicked: it has to be ended.
        self.jobs.lock().unwrap_or_else(PoisonError::into_inner).values().cloned().collect()
    }

    /// Ends every job of the session and breaks its data streams off.
    pub fn end_jobs(&self, why: &Ending) {
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

/// What may wait on a control stream before those who can wait do: far from what a peer may leave unread.
const QUEUED_BYTES: usize = 1 << 20;

/// Says what needs no answer, without waiting. A peer that does not read for 8 MiB of messages is as good as gone.
fn say_last(control: &ControlSender, message: impl Into<Message>) {
    if let Err(SendError::Full) = control.try_send(message::encode(message)) {
        control.abort();
    }
}

/// Sends a job's messages over the control stream.
pub(crate) struct ControlPort(pub ControlSender);

impl Port for ControlPort {
    fn send(&self, message: Message) {
        if matches!(message, Message::Cancel(_)) {
            return say_last(&self.0, message);
        }
        // Full is said to the loop's thread only; a closed stream ends the jobs anyway.
        if let Err(SendError::Full) = self.0.send(message::encode(message)) {
            self.0.abort();
        }
    }

    fn make_room(&self) {
        while self.0.queued_bytes() > QUEUED_BYTES {
            std::thread::park_timeout(Duration::from_millis(1));
        }
    }
}

/// What a control loop leaves behind.
pub(crate) enum ControlOutcome {
    /// The peer said why it closes.
    Closed(Refusal),
    /// This side refused what the peer said.
    Refused(Refusal),
    Lost(String),
}

/// Runs the control stream on the calling thread. Messages that are not of a job go to `other`.
pub(crate) fn run_control(
    session: &Arc<Session>,
    stream: ControlStream,
    mut reader: FrameReader,
    other: &mut dyn FnMut(Message) -> Result<(), Refusal>,
) -> ControlOutcome {
    let mut outcome = None;
    let mut last_ping = Instant::now();
    let end = stream.run(|event| match event {
        ControlEvent::Tick => {
            tick(session, &mut last_ping);
            ControlFlow::Continue(())
        }
        ControlEvent::Received(bytes) => {
            let mut closed = None;
            let taken = reader.push(bytes, &mut |frame_type, body| {
                if frame_type != FrameType::Message {
                    return Err(Refusal::new(CloseCode::WrongState, "a frame that a control stream does not carry"));
                }
                match message::decode(body)? {
                    Some(Message::Close(close)) => {
                        closed = Some(Refusal::new(CloseCode::from_number(close.code), &close.text));
                        Ok(())
                    }
                    Some(message) => dispatch(session, message, other),
                    None => Ok(()),
                }
            });
            match (taken, closed) {
                (Err(refusal), _) => {
                    session.close(refusal.code, &refusal.text);
                    outcome.get_or_insert(ControlOutcome::Refused(refusal));
                    ControlFlow::Continue(())
                }
                (Ok(()), Some(refusal)) => {
                    outcome.get_or_insert(ControlOutcome::Closed(refusal));
                    session.control.close_after_flush();
                    ControlFlow::Continue(())
                }
                (Ok(()), None) => ControlFlow::Continue(()),
            }
        }
    });
    outcome.unwrap_or_else(|| ControlOutcome::Lost(why_lost(end)))
}

fn why_lost(end: ControlEnd) -> String {
    match end {
        ControlEnd::PeerClosed | ControlEnd::Closed => "closed".into(),
        ControlEnd::Stopped | ControlEnd::Aborted => "ended on this side".into(),
        ControlEnd::Truncated => "the other side went away".into(),
        ControlEnd::TimedOut => format!("nothing was heard for {} s", CONTROL_TIMEOUT.as_secs()),
        ControlEnd::Io(e) => e.to_string(),
    }
}

fn tick(session: &Arc<Session>, last_ping: &mut Instant) {
    if last_ping.elapsed() >= PING_INTERVAL {
        *last_ping = Instant::now();
        let _ = session.control.send(message::encode(Ping { number: 0 }));
    }
    let heard_ms = session.heard_ms();
    for running in session.running() {
        if running.job.is_ended() {
            continue;
        }
        care::look_after(session, &running, heard_ms);
        match &running.job {
            Job::Send(job) => {
                *job.progress.stream_facts.lock().unwrap() = running.watch.facts();
                job.tell_times();
            }
            Job::Receive(job) => job.tell_times(),
        }
    }
}

fn dispatch(
    session: &Arc<Session>,
    message: Message,
    other: &mut dyn FnMut(Message) -> Result<(), Refusal>,
) -> Result<(), Refusal> {
    let number = match &message {
        Message::Ping(ping) => {
            let _ = session.control.send(message::encode(Pong { number: ping.number }));
            return Ok(());
        }
        Message::Pong(_) => return Ok(()),
        Message::Hello(_) | Message::Welcome(_) | Message::Close(_) | Message::Open(_) => return other(message),
        Message::Accept(_) | Message::Reject(_) => return other(message),
        Message::Ask(_) | Message::Records(_) | Message::Answered(_) => return other(message),
        Message::Proceed(_) | Message::Stop(_) => return other(message),
        Message::Entries(m) => m.job,
        Message::SourceFailures(m) => m.job,
        Message::ListEnd(m) => m.job,
        Message::Want(m) => m.job,
        Message::Settled(m) => m.job,
        Message::Held(m) => m.job,
        Message::Resend(m) => m.job,
        Message::Credit(m) => m.job,
        Message::Finish(m) => m.job,
        Message::Finished(m) => m.job,
        Message::Cancel(m) => m.job,
        Message::Times(m) => m.job,
        Message::AskDigests(m) => m.job,
        Message::Digests(m) => m.job,
        Message::Changes(m) => m.job,
        Message::Names(m) => m.job,
        Message::Warnings(m) => m.job,
        Message::Pace(m) => m.job,
    };
    let running = session.jobs.lock().unwrap().get(&number).cloned();
    // What is said of a job that is over, or that was refused, crossed its end on the way.
    match running {
        Some(running) => running.job.handle(message),
        None => Ok(()),
    }
}

/// The proof with which a data stream joins.
pub(crate) fn join_proof(exporter: &[u8; 32], join: &wire::handshake::Join, stream_exporter: &[u8; 32]) -> [u8; 32] {
    net::hmac_sha256(exporter, &[&join.authenticated(), stream_exporter])
}

/// Lets a job's lane be broken off and its kernel counters be read.
pub(crate) fn watch_stream(running: &Running, aborter: Aborter) {
    running.watch.add(aborter);
}
