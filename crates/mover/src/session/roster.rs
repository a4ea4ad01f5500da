//! The jobs of one endpoint that are under way, whoever asked for them: what each moves, and the limit that the endpoint sets
//! to its rate.
//!
//! Invariant: the roster keeps no job alive; one that has ended is forgotten at the next look, but for what it amounts to in the
//! sums, which only grow.
//!
//! Not here: which rate is right (`plan::shares`), and who sets it (`daemon::governor`).

use crate::progress::{Progress, Snapshot};
use model::progress::{Counts, LaneTimes, StreamFacts};
use model::{Class, JobId, Pin};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// In whose name a job runs, and what it counts.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Who {
    pub job: JobId,
    /// The endpoint or client at the other end.
    pub peer: Pin,
    /// The ticket of whoever asked for it.
    pub user: String,
    /// What the endpoint calls whoever asked for it.
    pub name: String,
    pub class: Class,
}

/// What all jobs of one direction have amounted to.
#[derive(Clone, Debug, Default)]
pub struct Sums {
    pub jobs_ended: u64,
    pub counts: Counts,
    /// Of this side's lanes.
    pub times: LaneTimes,
    pub retransmits: u64,
}

impl Sums {
    fn add(&mut self, progress: &Progress) {
        let snapshot = progress.snapshot();
        let (sum, more) = (&mut self.counts, &snapshot.counts);
        sum.files_done += more.files_done;
        sum.files_skipped += more.files_skipped;
        sum.files_failed += more.files_failed;
        sum.bytes_sent += more.bytes_sent;
        sum.bytes_resumed += more.bytes_resumed;
        self.times.add(&snapshot.here);
        self.retransmits += snapshot.stream_facts.retransmits;
    }
}

#[derive(Default)]
pub struct Roster {
    entries: Mutex<Vec<Entry>>,
    /// Of jobs that have ended: received, sent.
    ended: Mutex<[Sums; 2]>,
    changed: Condvar,
    next: AtomicU64,
}

/// A job in its session.
pub(crate) trait Listed: Send + Sync {
    fn is_ended(&self) -> bool;
    /// On all streams since it began, as far as the other side's kernel has it, or this one's.
    fn moved_bytes(&self) -> u64;
    /// The kernel's counters of the streams that send, as they are now.
    fn facts(&self) -> Option<StreamFacts>;
    fn limit_rate(&self, bytes_per_second: Option<u64>);
    fn mark(&self, code_point: u8);
}

struct Entry {
    id: u64,
    who: Arc<Who>,
    job: Arc<dyn Listed>,
    progress: Arc<Progress>,
    is_sender: bool,
}

/// A job under way.
pub struct Member {
    /// Of this process, never given twice.
    pub id: u64,
    pub who: Arc<Who>,
    job: Arc<dyn Listed>,
    progress: Arc<Progress>,
    is_sender: bool,
}

impl Roster {
    pub(super) fn add(&self, who: Who, job: Arc<dyn Listed>, progress: Arc<Progress>, is_sender: bool) {
        let mut entries = self.lock();
        let id = self.next.fetch_add(1, Relaxed);
        entries.push(Entry { id, who: Arc::new(who), job, progress, is_sender });
        drop(entries);
        self.changed.notify_all();
    }

    /// The jobs that have not ended, in the order in which they began.
    pub fn members(&self) -> Vec<Member> {
        let mut members = Vec::new();
        self.lock().retain(|entry| {
            if entry.job.is_ended() {
                let mut ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
                let sums = &mut ended[usize::from(entry.is_sender)];
                sums.add(&entry.progress);
                sums.jobs_ended += 1;
                return false;
            }
            let Entry { id, who, job, progress, is_sender } = entry;
            let (who, job, progress) = (who.clone(), job.clone(), progress.clone());
            members.push(Member { id: *id, who, job, progress, is_sender: *is_sender });
            true
        });
        members
    }

    /// What all jobs have amounted to up to now: received, sent.
    pub fn sums(&self) -> [Sums; 2] {
        drop(self.members());
        let entries = self.lock();
        let mut sums = self.ended.lock().unwrap_or_else(PoisonError::into_inner).clone();
        entries.iter().for_each(|entry| sums[usize::from(entry.is_sender)].add(&entry.progress));
        sums
    }

    /// Waits until a job was added to the `known` first ones, or for this long while there are jobs, or until whoever waits is stopped.
    /// Returns how many have been added.
    pub fn wait(&self, known: u64, patience: Duration, is_stopped: &AtomicBool) -> u64 {
        let is_quiet = |_: &mut Vec<Entry>| self.next.load(Relaxed) == known && !is_stopped.load(Relaxed);
        let mut entries = self.lock();
        let patience = if entries.is_empty() { Duration::MAX } else { patience };
        entries = self.changed.wait_timeout_while(entries, patience, is_quiet).unwrap_or_else(PoisonError::into_inner).0;
        drop(entries);
        self.next.load(Relaxed)
    }

    /// Stops whoever waits with this flag.
    pub fn stop(&self, is_stopped: &AtomicBool) {
        let _entries = self.lock();
        is_stopped.store(true, Relaxed);
        self.changed.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Entry>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Member {
    /// Whether content leaves this host with it.
    pub fn is_sender(&self) -> bool {
        self.is_sender
    }

    pub fn moved_bytes(&self) -> u64 {
        self.job.moved_bytes()
    }

    /// With the kernel's counters as they are now.
    pub fn snapshot(&self) -> Snapshot {
        if let Some(facts) = self.job.facts() {
            *self.progress.stream_facts.lock().unwrap() = facts;
        }
        self.progress.snapshot()
    }

    /// Limits the rate; nothing lifts this limit. The smallest of all limits of the job holds.
    pub fn set_rate(&self, bytes_per_second: Option<u64>) {
        self.job.limit_rate(bytes_per_second);
    }

    /// Marks what the job's streams send from here with a code point for differentiated services.
    pub fn mark(&self, code_point: u8) {
        self.job.mark(code_point);
    }
}
