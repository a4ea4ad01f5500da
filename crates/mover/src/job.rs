//! What the two halves of a job have in common: how they speak to each other, how they end, who watches.

use model::name::Escaped;
use model::pace::Timetable;
use model::progress::Behind;
use model::{Change, Digest, Failure, TransferOptions};
use os::sync::{Condvar, Mutex};
use os::time::Instant;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use wire::limits::PATH_BYTES_MAX;
use wire::message::Finished;
use wire::{CloseCode, Message, Refusal};

/// Carries messages to the other half of a job: over a control stream, or by a call where both are in one process.
pub trait Port: Send + Sync {
    /// Never blocks on the other half's work; a message that cannot be carried any more is dropped, because then the
    /// session ends and both halves hear of it.
    fn send(&self, message: Message);

    /// The same without waiting for room either, for whoever speaks to several: a peer that leaves too much unread loses its
    /// session.
    fn send_now(&self, message: Message) {
        self.send(message);
    }

    /// Waits until what was sent before has gone, as far as it waits in this process: for messages that nothing bounds but
    /// the work behind them. Not from the thread that receives.
    fn make_room(&self) {}
}

/// An object that was verified and published.
#[derive(Debug)]
pub struct Delivered {
    /// Relative to the destination of the job.
    pub path: Vec<u8>,
    pub size_bytes: u64,
    pub digest: Digest,
}

/// What becomes of files that are followed. Paths are relative to the destination.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Followed {
    /// Complete, compared and published.
    Sealed { path: Vec<u8>, size_bytes: u64 },
    /// It went on after it had been published, and is sent again.
    Reopened { path: Vec<u8> },
    /// It became shorter than what was sent of it, and begins anew.
    Truncated { path: Vec<u8> },
    /// Another file has its name.
    Replaced { path: Vec<u8> },
    /// Its writer went back and changed what had been sent.
    Rewritten { path: Vec<u8> },
    /// It was removed before it was complete.
    Vanished { path: Vec<u8> },
    /// It has another name, under which it goes on.
    Moved { path: Vec<u8>, to: Vec<u8> },
    /// How far the destination is behind, each second.
    Lag(Behind),
    /// The destination is further behind than the user wants to hear nothing of, or is not any more.
    LagAlarm(Behind),
}

/// Watches what becomes of each object. Called in batches, from any thread, never under a lock of the data path.
pub trait Observer: Send + Sync {
    /// Whether paths and digests are wanted at all: making them costs.
    fn wants_delivered(&self) -> bool {
        true
    }

    fn delivered(&self, batch: &[Delivered]);

    fn failed(&self, failure: &Failure);

    fn followed(&self, event: &Followed) {
        let _ = event;
    }

    /// Whether changes are told here; otherwise the receiver tells the sender of them.
    fn wants_changes(&self) -> bool {
        false
    }

    fn changed(&self, changes: &[Change]) {
        let _ = changes;
    }
}

/// How a job ended.
#[derive(Clone, Debug)]
pub enum Ending {
    /// Everything listed is settled and finished at the receiver.
    Finished(Finished),
    /// One side gave up.
    Cancelled { by_peer: bool, refusal: Refusal },
    /// The session was lost under it; what is verified is kept.
    Lost(String),
}

impl fmt::Display for Ending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Ending::Finished(_) => f.write_str("finished"),
            Ending::Cancelled { by_peer: true, refusal } => write!(f, "the other side stopped it: {refusal}"),
            Ending::Cancelled { refusal, .. } => write!(f, "{refusal}"),
            Ending::Lost(why) => write!(f, "the connection was lost: {}", Escaped(why.as_bytes())),
        }
    }
}

/// A place where the first ending is kept and waited for.
#[derive(Default)]
pub struct End {
    ending: Mutex<Option<Ending>>,
    ended: Condvar,
}

impl End {
    /// True when this ending is the first.
    pub fn set(&self, ending: Ending) -> bool {
        let mut held = self.ending.lock().unwrap();
        if held.is_some() {
            return false;
        }
        *held = Some(ending);
        self.ended.notify_all();
        true
    }

    pub fn get(&self) -> Option<Ending> {
        self.ending.lock().unwrap().clone()
    }

    pub fn is_set(&self) -> bool {
        self.ending.lock().unwrap().is_some()
    }

    /// Waits for the end, at most for `patience`.
    pub fn wait(&self, patience: Duration) -> Option<Ending> {
        let deadline = Instant::now() + patience;
        let mut held = self.ending.lock().unwrap();
        while held.is_none() {
            let left = deadline.checked_duration_since(Instant::now())?;
            held = self.ended.wait_timeout(held, left).unwrap().0;
        }
        held.clone()
    }
}

/// Starts one of a job's threads. One that panics, or that the system does not give, ends the job and not the process (F092).
pub(crate) fn spawn<J: Send + Sync + 'static>(
    job: &Arc<J>,
    name: &'static str,
    run: impl FnOnce(&Arc<J>) + Send + 'static,
    cancel: fn(&J, CloseCode, &str),
) {
    let of_thread = job.clone();
    let guarded = move || {
        if panics(|| run(&of_thread)) {
            cancel(&of_thread, CloseCode::Internal, "a thread of this program failed; this is a bug");
        }
    };
    if let Err(e) = os::thread::spawn(name, guarded) {
        cancel(job, CloseCode::Internal, &format!("no thread could be started for the job: {e}"));
    }
}

/// Runs a thread's work; true when it panicked. The panic itself was reported by the hook on its way.
pub(crate) fn panics(work: impl FnOnce()) -> bool {
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(work)).is_err()
}

pub fn cancelled(code: CloseCode, text: &str) -> Ending {
    Ending::Cancelled { by_peer: false, refusal: Refusal::new(code, text) }
}

/// Whoever has a job carried out: asked again and again while it runs.
pub trait Guide {
    /// It is to end now.
    fn is_over(&self) -> bool;

    /// How fast it may be, from now on.
    fn pace(&self, options: &TransferOptions) -> Option<Arc<Timetable>> {
        options.pace.clone()
    }
}

impl<F: Fn() -> bool> Guide for F {
    fn is_over(&self) -> bool {
        self()
    }
}

/// A path as a peer names it, as far as it is kept.
pub(crate) fn bounded_path(path: &[u8]) -> Vec<u8> {
    path[..path.len().min(PATH_BYTES_MAX)].to_vec()
}
