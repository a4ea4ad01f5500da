//! A job in its session: whichever half it is, and what the session keeps of it beside.
//!
//! Not here: who looks after it (`liveness`, `lanes`), and the halves themselves (`crate::sender`, `crate::receiver`).

use super::losses::Follower;
use super::watch::StreamWatch;
use crate::job::Ending;
use crate::pace::RateLimits;
use crate::progress::Progress;
use crate::receiver::ReceiveJob;
use crate::sender::SendJob;
use crate::stall::{Headway, Stall};
use model::Class;
use model::options::{Compression, Wait};
use net::Aborter;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};
use wire::handshake::{Direction, feature};
use wire::{CloseCode, Message, Refusal};

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

    pub(super) fn handle(&self, message: Message) -> Result<(), Refusal> {
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

    pub(super) fn is_ended(&self) -> bool {
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

    pub(super) fn headway(&self) -> Headway {
        match self {
            Job::Send(job) => job.headway(),
            Job::Receive(job) => job.headway(),
        }
    }

    /// The other side goes on answering, and not with the listing that it was asked for.
    pub(super) fn waits_for_listing(&self) -> bool {
        matches!(self, Job::Receive(job) if job.is_listing_owed())
    }

    pub(super) fn waits_for_memory(&self) -> bool {
        self.progress().lanes.wait_for_memory()
    }

    /// Holds the job to the features that both sides have.
    pub(super) fn restrict(&self, features: u64) {
        let has = |bit: u64| features & bit != 0;
        match self {
            Job::Send(job) if job.is_sequential() && !has(feature::OPEN_ENDED) => {
                job.cancel(CloseCode::Version, "the other side does not accept a file of unknown length (a pipe)");
            }
            Job::Receive(job) if !has(feature::OPEN_ENDED) => job.forbid_open_ended(),
            _ => {}
        }
        match self {
            Job::Send(job) if job.options.follow.is_some() && !has(feature::GROWTH) => {
                job.cancel(CloseCode::Version, NO_GROWTH);
            }
            Job::Receive(job) if !has(feature::SOURCES) && job.is_lead() => {
                job.cancel(CloseCode::Version, NO_SOURCES);
            }
            Job::Receive(job) if !has(feature::GROWTH) => job.forbid_growing(),
            _ => {}
        }
        match self {
            Job::Send(job) if job.options.wait == Wait::Buffered && !has(feature::BUFFERED) => {
                job.cancel(CloseCode::Version, NO_BUFFER);
            }
            Job::Receive(job) if !has(feature::BUFFERED) => job.forbid_buffered(),
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

pub(crate) const NO_BUFFER: &str =
    "the other side has no buffer for what it receives: omit --wait buffered, or give it one (`serve --buffer`)";

const NO_SOURCES: &str = "the first of several holders has to prove what the others send, which this one cannot do yet: bring it up \
                          to date, or name another one first";

const NO_GROWTH: &str = "the other side does not take files while they are written: bring both sides up to date";

pub(crate) const NO_BLAKE3: &str =
    "the session has no BLAKE3: choose --digest crc64nvme, or bring both sides up to date";

pub(crate) const NO_COMPRESSION: &str = "the session has no compression: omit -z, or bring both sides up to date";

pub(crate) struct Running {
    pub job: Job,
    pub watch: Arc<StreamWatch>,
    pub(super) lanes: AtomicU32,
    /// Touched once a second by the control loop.
    pub(super) stall: Mutex<Stall>,
    /// How far the job had come when it last moved.
    pub(super) moved: Mutex<(u64, Instant)>,
    /// What was asked for, at an endpoint: rights are looked at again while the job runs.
    pub(super) asked: OnceLock<(Direction, Vec<Vec<u8>>)>,
    /// The limits that this side sets to a sender elsewhere.
    pub(super) limits: Mutex<RateLimits>,
    /// Looks after the congestion control of streams that send, where nobody has chosen one.
    pub(super) losses: Option<Follower>,
}

impl Running {
    /// A number for a lane that no other lane of the job has had.
    pub fn next_lane(&self) -> u32 {
        self.lanes.fetch_add(1, Relaxed)
    }

    /// Where the streams send, and nobody chose their congestion control.
    pub(super) fn look_at_losses(&self) {
        if let (Some(follower), Job::Send(job)) = (&self.losses, &self.job)
            && !self.job.is_ended()
        {
            follower.step(&self.watch, job);
        }
    }

    /// For how long the job has not moved, owed or not, as far as the control loop has seen.
    pub(super) fn idle_for(&self) -> Duration {
        self.moved.lock().unwrap().1.elapsed()
    }
}

/// RFC 8622: what is sent with less than best effort.
pub const LOWER_EFFORT: u8 = 1;
const NICE_MAX: i32 = 19;

/// Called on the lane's own thread: one of a low job sends what gives way on every path that knows how, and takes the processor
/// time that others leave.
pub(crate) fn give_way(job: &Job, aborter: &Aborter) {
    let options = match job {
        Job::Send(job) => &job.options,
        Job::Receive(job) => &job.options,
    };
    if options.class == Some(Class::Low) {
        aborter.set_dscp(LOWER_EFFORT);
        // Where it is refused, the job is just not that modest.
        let _ = rustix::process::setpriority_process(None, NICE_MAX);
    }
}

/// Lets a job's lane be broken off and its kernel counters be read. `way` is the place of its path.
pub(crate) fn watch_stream(running: &Running, aborter: Aborter, way: usize) {
    running.watch.add(aborter, way);
}
