//! Live counters of one transfer: written by its lanes, read by whoever shows them.
//!
//! Each lane writes to cells of its own; a snapshot adds them up. Nothing here formats or prints.

use model::fidelity::{Warning, Warnings};
use model::progress::{Behind, Counts, Fill, LaneTimes, STAGES, Stage, StreamFacts, Tail};
use os::sync::Mutex;
use os::time::Instant;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

macro_rules! counters {
    ($($name:ident),+) => {
        /// The counters of `model::progress::Counts`, live.
        #[derive(Default)]
        pub struct Counters { $(pub $name: AtomicU64),+ }

        impl Counters {
            pub fn counts(&self) -> Counts {
                Counts { $($name: self.$name.load(Relaxed)),+ }
            }
        }
    };
}

counters!(
    files_listed,
    bytes_listed,
    files_done,
    bytes_done,
    files_skipped,
    bytes_skipped,
    files_failed,
    directories,
    bytes_sent,
    bytes_resumed,
    bytes_wire
);

/// Adds to a counter.
pub fn count(counter: &AtomicU64, amount: u64) {
    counter.fetch_add(amount, Relaxed);
}

/// How the lanes of a job stand.
#[derive(Default)]
pub struct LaneCounts {
    /// They have the memory they work in.
    pub running: AtomicU32,
    waiting: AtomicU32,
    /// They are in the middle of a frame from their sender.
    pub in_frame: AtomicU32,
}

impl LaneCounts {
    /// Lanes are there, and none has memory.
    pub fn wait_for_memory(&self) -> bool {
        self.waiting.load(Relaxed) > 0 && self.running.load(Relaxed) == 0
    }

    /// Counts the calling lane among those that wait for memory.
    pub fn enter_waiting(&self) -> Counted<'_> {
        Counted::enter(&self.waiting)
    }

    pub fn enter_frame(&self) -> Counted<'_> {
        Counted::enter(&self.in_frame)
    }
}

/// One of a count, until it is dropped.
pub struct Counted<'a>(&'a AtomicU32);

impl Counted<'_> {
    fn enter(count: &AtomicU32) -> Counted<'_> {
        count.fetch_add(1, Relaxed);
        Counted(count)
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

pub struct Progress {
    pub counters: Counters,
    pub lanes: LaneCounts,
    pub is_listing_complete: AtomicBool,
    /// Steps of work that moves nothing: blocks that are compared or read back, names that are linked, removed or finished, and times
    /// that a listing was seen to get on, whether or not it found something.
    pub worked: AtomicU64,
    /// The other side's `mark`, as it last told.
    pub mark_there: AtomicU64,
    started: Instant,
    /// Microseconds from the start to the first payload byte; 0 before it.
    first_payload_us: AtomicU64,
    streams: AtomicU32,
    here: Mutex<Lanes>,
    commit: CommitCells,
    /// The other side's times, as it last told.
    there: Mutex<LaneTimes>,
    pub stream_facts: Mutex<StreamFacts>,
    /// Congestion control of the streams that send, by the word of whoever sends; empty until it is known.
    pub congestion: Mutex<String>,
    notes: Mutex<Vec<String>>,
    /// Where the source is followed.
    pub behind: Mutex<Option<Behind>>,
    /// Where this side sent over a network, and all of it is settled.
    pub tail: Mutex<Option<Tail>>,
    /// The size of this side's buffer, and what waits in it.
    buffer: OnceLock<(u64, Arc<AtomicU64>)>,
    /// What could not be kept of objects that arrived.
    warnings: Mutex<Warnings>,
}

/// In the destination's storage.
const STORAGE: [Stage; 4] = [Stage::Create, Stage::Write, Stage::Sync, Stage::Publish];

/// A stage's number fits.
const STAGE_BITS: u32 = 8;

/// Choices and findings kept for the report, at most.
const NOTES_MAX: usize = 32;

/// Everything known of a transfer at one moment.
#[derive(Clone, Debug)]
pub struct Snapshot {
    pub counts: Counts,
    pub is_listing_complete: bool,
    pub elapsed: Duration,
    pub first_payload: Option<Duration>,
    /// Data streams now open.
    pub streams: u32,
    /// Lanes of this side and of the other.
    pub here: LaneTimes,
    pub there: LaneTimes,
    pub stream_facts: StreamFacts,
    /// Where the source is followed; in the end, over all of the time.
    pub behind: Option<Behind>,
    /// Where this side sent over a network, and all of it is settled.
    pub tail: Option<Tail>,
}

impl Snapshot {
    /// Payload that is known and not sent; `None` while the listing goes on.
    pub fn left_bytes(&self) -> Option<u64> {
        let gone_bytes = self.counts.bytes_sent + self.counts.bytes_resumed + self.counts.bytes_skipped;
        self.is_listing_complete.then(|| self.counts.bytes_listed.saturating_sub(gone_bytes))
    }
}

impl Progress {
    pub fn new() -> Arc<Progress> {
        Arc::new(Progress {
            counters: Counters::default(),
            lanes: LaneCounts::default(),
            is_listing_complete: AtomicBool::new(false),
            worked: AtomicU64::new(0),
            mark_there: AtomicU64::new(0),
            started: Instant::now(),
            first_payload_us: AtomicU64::new(0),
            streams: AtomicU32::new(0),
            here: Mutex::default(),
            commit: CommitCells::default(),
            there: Mutex::default(),
            stream_facts: Mutex::default(),
            congestion: Mutex::default(),
            notes: Mutex::default(),
            behind: Mutex::default(),
            tail: Mutex::default(),
            buffer: OnceLock::new(),
            warnings: Mutex::default(),
        })
    }

    pub fn warn(&self, warning: Warning) {
        self.warnings.lock().unwrap().add(warning);
    }

    pub fn warnings(&self) -> Vec<Warning> {
        self.warnings.lock().unwrap().all().to_vec()
    }

    pub fn snapshot(&self) -> Snapshot {
        let first = self.first_payload_us.load(Relaxed);
        Snapshot {
            counts: self.counters.counts(),
            is_listing_complete: self.is_listing_complete.load(Relaxed),
            elapsed: self.started.elapsed(),
            first_payload: (first > 0).then(|| Duration::from_micros(first)),
            streams: self.streams.load(Relaxed),
            here: self.here(),
            there: self.there.lock().unwrap().clone(),
            stream_facts: *self.stream_facts.lock().unwrap(),
            behind: *self.behind.lock().unwrap(),
            tail: *self.tail.lock().unwrap(),
        }
    }

    /// Changes whenever something was listed, moved, settled or worked on here. The other side is told.
    pub fn mark(&self) -> u64 {
        let counts = self.counters.counts();
        let listed = [counts.files_listed, counts.directories, counts.bytes_listed];
        let settled = [counts.files_done, counts.files_skipped, counts.files_failed];
        let moved = [counts.bytes_sent, counts.bytes_resumed, self.worked.load(Relaxed)];
        // The other side makes sizes what it likes.
        listed.into_iter().chain(settled).chain(moved).fold(0, u64::wrapping_add)
    }

    /// Changes whenever either side got on, as far as the other one tells: one may have much to do that the other sees nothing of.
    pub fn headway(&self) -> u64 {
        self.mark().wrapping_add(self.mark_there.load(Relaxed))
    }

    /// This side's lanes, added up.
    pub fn here(&self) -> LaneTimes {
        let here = self.here.lock().unwrap();
        let mut sum = LaneTimes { processors: processors(), ..here.ended.clone() };
        for lane in &here.running {
            sum.add(&lane.times());
        }
        drop(here);
        sum.commit_sync_ns = self.commit.sync_ns.load(Relaxed);
        sum.commit_publish_ns = self.commit.publish_ns.load(Relaxed);
        if let Some((capacity_bytes, waiting_bytes)) = self.buffer.get() {
            sum.fill = Fill { capacity_bytes: *capacity_bytes, waiting_bytes: waiting_bytes.load(Relaxed) };
        }
        sum
    }

    /// A lane has been in storage for so long without coming back.
    pub fn is_in_storage_for(&self, time: Duration) -> bool {
        self.is_in_for(&STORAGE, time)
    }

    /// A lane has been in one of these stages for so long without coming back.
    pub fn is_in_for(&self, stages: &[Stage], time: Duration) -> bool {
        let elapsed = self.started.elapsed();
        self.here.lock().unwrap().running.iter().any(|lane| lane.is_in_for(stages, elapsed, time))
    }

    /// Has a buffer told of beside the times of this side.
    pub fn show_buffer(&self, capacity_bytes: u64, waiting_bytes: Arc<AtomicU64>) {
        let _ = self.buffer.set((capacity_bytes, waiting_bytes));
    }

    pub fn set_there(&self, times: LaneTimes) {
        *self.there.lock().unwrap() = times;
    }

    /// Keeps a choice and its reason; the same one is kept once.
    pub fn note(&self, note: String) {
        let mut notes = self.notes.lock().unwrap();
        if notes.len() < NOTES_MAX && !notes.contains(&note) {
            notes.push(note);
        }
    }

    pub fn notes(&self) -> Vec<String> {
        self.notes.lock().unwrap().clone()
    }

    pub fn payload_moved(&self, bytes: u64) {
        if self.first_payload_us.load(Relaxed) == 0 {
            let us = self.started.elapsed().as_micros().max(1) as u64;
            let _ = self.first_payload_us.compare_exchange(0, us, Relaxed, Relaxed);
        }
        count(&self.counters.bytes_sent, bytes);
    }

    /// Starts the account of a lane on the calling thread.
    pub fn lane(self: &Arc<Progress>, first: Stage) -> LaneClock {
        let cells = Arc::new(LaneCells { account: Mutex::new(Account::open()), ..LaneCells::default() });
        self.here.lock().unwrap().running.push(cells.clone());
        self.streams.fetch_add(1, Relaxed);
        LaneClock { cells, stage: first, since: Instant::now(), is_resting: false, progress: self.clone() }
    }

    /// Starts the account of the thread that commits groups.
    pub fn commit_clock(self: &Arc<Progress>) -> CommitClock {
        CommitClock { progress: self.clone(), stage: None, since: Instant::now() }
    }
}

pub fn processors() -> u32 {
    // The kernel is asked once: the answer comes from several files.
    static PROCESSORS: OnceLock<u32> = OnceLock::new();
    *PROCESSORS.get_or_init(|| std::thread::available_parallelism().map_or(1, |n| n.get() as u32))
}

/// Lanes that run, and the times of those that ended: a job may see many.
#[derive(Default)]
struct Lanes {
    running: Vec<Arc<LaneCells>>,
    ended: LaneTimes,
}

#[derive(Default)]
struct LaneCells {
    /// Since when (microseconds from the job's start) it has been in the stage of this number.
    now: AtomicU64,
    stage_ns: [AtomicU64; STAGES],
    cpu_ns: AtomicU64,
    cpu_wait_ns: AtomicU64,
    /// While the lane lives.
    account: Mutex<Option<Account>>,
}

impl LaneCells {
    fn is_in_for(&self, stages: &[Stage], elapsed: Duration, time: Duration) -> bool {
        let now = self.now.load(Relaxed);
        let is_in = stages.iter().any(|stage| *stage as u64 == now & ((1 << STAGE_BITS) - 1));
        is_in && (elapsed.as_micros() as u64).saturating_sub(now >> STAGE_BITS) > time.as_micros() as u64
    }

    fn times(&self) -> LaneTimes {
        self.note_wait();
        LaneTimes {
            lanes: 1,
            stage_ns: std::array::from_fn(|i| self.stage_ns[i].load(Relaxed)),
            cpu_ns: self.cpu_ns.load(Relaxed),
            cpu_wait_ns: self.cpu_wait_ns.load(Relaxed),
            ..LaneTimes::default()
        }
    }

    fn note_wait(&self) {
        if let Some(wait_ns) = self.account.lock().unwrap().as_ref().and_then(Account::wait_ns) {
            self.cpu_wait_ns.store(wait_ns, Relaxed);
        }
    }
}

/// The kernel's account of a thread, by which others than the thread itself can see how long it had a processor, and waited for
/// one: reading it costs the thread nothing.
pub(crate) struct Account {
    file: File,
    /// What the thread had waited before this account began.
    before_ns: u64,
}

impl Account {
    /// Of the calling thread; `None` where the kernel keeps none.
    pub(crate) fn open() -> Option<Account> {
        let mut account = Account { file: File::open("/proc/thread-self/schedstat").ok()?, before_ns: 0 };
        account.before_ns = account.wait_ns()?;
        Some(account)
    }

    /// How long it could have run and did not.
    fn wait_ns(&self) -> Option<u64> {
        Some(self.number(1)?.saturating_sub(self.before_ns))
    }

    /// How long the thread ran since it began.
    pub(crate) fn cpu_ns(&self) -> Option<u64> {
        self.number(0)
    }

    /// One of three numbers; `None` when the thread is gone.
    fn number(&self, place: usize) -> Option<u64> {
        let mut text = [0; 96];
        let length = self.file.read_at(&mut text, 0).ok()?;
        std::str::from_utf8(&text[..length]).ok()?.split_ascii_whitespace().nth(place)?.parse().ok()
    }
}

/// Times of the one thread that commits groups.
#[derive(Default)]
struct CommitCells {
    sync_ns: AtomicU64,
    publish_ns: AtomicU64,
}

/// The account of the thread that commits groups: it says when it makes data durable, gives names, or has nothing to do.
pub struct CommitClock {
    progress: Arc<Progress>,
    stage: Option<Stage>,
    since: Instant,
}

impl CommitClock {
    /// Ends what the thread was doing. Only `Sync` and `Publish` are counted.
    pub fn enter(&mut self, stage: Option<Stage>) {
        let now = Instant::now();
        let ns = (now - self.since).as_nanos() as u64;
        match self.stage {
            Some(Stage::Sync) => count(&self.progress.commit.sync_ns, ns),
            Some(Stage::Publish) => count(&self.progress.commit.publish_ns, ns),
            _ => {}
        }
        self.stage = stage;
        self.since = now;
    }
}

impl Drop for CommitClock {
    fn drop(&mut self) {
        self.enter(None);
    }
}

/// One lane's account of its time. The lane says which stage it enters; everything until the next stage counts there.
pub struct LaneClock {
    cells: Arc<LaneCells>,
    stage: Stage,
    since: Instant,
    /// It is not needed for now: that time counts nowhere.
    is_resting: bool,
    progress: Arc<Progress>,
}

/// Tells other threads how long a lane has been in its stage.
pub struct LaneWatch {
    cells: Arc<LaneCells>,
    started: Instant,
}

impl LaneWatch {
    /// How long the lane could have run and had no processor, where the kernel tells.
    pub fn waited_ns(&self) -> u64 {
        self.cells.account.lock().unwrap().as_ref().and_then(Account::wait_ns).unwrap_or(0)
    }

    pub fn is_in_storage_for(&self, time: Duration) -> bool {
        self.cells.is_in_for(&STORAGE, self.started.elapsed(), time)
    }
}

fn thread_cpu_ns() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

impl LaneClock {
    /// Up to the stage that the lane is in, and of the calling thread's processor up to now: for the lane itself.
    pub fn times(&self) -> LaneTimes {
        LaneTimes { cpu_ns: thread_cpu_ns(), ..self.cells.times() }
    }

    pub fn watch(&self) -> LaneWatch {
        LaneWatch { cells: self.cells.clone(), started: self.progress.started }
    }

    /// Ends the stage the lane was in.
    pub fn enter(&mut self, stage: Stage) {
        let now = Instant::now();
        if !std::mem::take(&mut self.is_resting) {
            // The lane is the cell's only writer: a load and a store are enough.
            let cell = &self.cells.stage_ns[self.stage as usize];
            cell.store(cell.load(Relaxed) + (now - self.since).as_nanos() as u64, Relaxed);
        }
        self.stage = stage;
        self.since = now;
        let since_us = (now - self.progress.started).as_micros() as u64;
        self.cells.now.store(since_us << STAGE_BITS | stage as u64, Relaxed);
    }

    /// Ends the stage the lane was in; until the next one nothing is counted.
    pub fn rest(&mut self) {
        self.enter(self.stage);
        self.is_resting = true;
    }

    /// Stands in the stage in which the lane waits, or rests.
    pub fn wait(&mut self, stage: Option<Stage>) {
        match stage {
            Some(stage) => self.enter(stage),
            None => self.rest(),
        }
    }

    /// Moves time that was counted in one stage to another, where a call does two things and tells how long each took.
    pub fn reassign(&mut self, from: Stage, to: Stage, ns: u64) {
        let take = &self.cells.stage_ns[from as usize];
        let moved = ns.min(take.load(Relaxed));
        take.store(take.load(Relaxed) - moved, Relaxed);
        let give = &self.cells.stage_ns[to as usize];
        give.store(give.load(Relaxed) + moved, Relaxed);
    }

    /// Notes the thread's processor time; called for each unit of work, not for each block.
    pub fn note_cpu(&mut self) {
        self.cells.cpu_ns.store(thread_cpu_ns(), Relaxed);
    }
}

impl Drop for LaneClock {
    fn drop(&mut self) {
        self.enter(self.stage);
        self.cells.now.store(Stage::Receive as u64, Relaxed);
        self.note_cpu();
        self.cells.note_wait();
        *self.cells.account.lock().unwrap() = None;
        let mut here = self.progress.here.lock().unwrap();
        here.running.retain(|lane| !Arc::ptr_eq(lane, &self.cells));
        here.ended.add(&self.cells.times());
        drop(here);
        self.progress.streams.fetch_sub(1, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_beyond_all_bounds_are_no_standstill_and_no_failure() {
        let progress = Progress::new();
        count(&progress.counters.bytes_listed, u64::MAX);
        let before = progress.mark();
        count(&progress.counters.files_listed, 2);
        assert_ne!(progress.mark(), before);
    }

    /// Both tell their own mark: what each makes of the other's is not told back, or neither would ever stand still.
    #[test]
    fn work_on_either_side_is_headway_and_only_that_of_this_side_is_told() {
        let progress = Progress::new();
        let (mark, headway) = (progress.mark(), progress.headway());
        progress.mark_there.store(7, Relaxed);
        assert!(progress.mark() == mark && progress.headway() != headway);
        let headway = progress.headway();
        count(&progress.worked, 1);
        assert!(progress.mark() != mark && progress.headway() != headway);
    }

    #[test]
    fn lanes_that_ended_leave_their_times_and_nothing_else() {
        let progress = Progress::new();
        let longest = progress.lane(Stage::Receive);
        for _ in 0..500 {
            let lane = progress.lane(Stage::Receive);
            lane.cells.stage_ns[Stage::Write as usize].store(3, Relaxed);
        }
        assert_eq!(progress.here.lock().unwrap().running.len(), 1);
        let times = progress.here();
        assert_eq!((times.lanes, times.stage_ns[Stage::Write as usize]), (501, 1500));
        drop(longest);
        assert_eq!((progress.here().lanes, progress.snapshot().streams), (501, 0));
    }

    #[test]
    fn time_is_counted_in_the_stage_it_was_spent_in() {
        let progress = Progress::new();
        let mut clock = progress.lane(Stage::Read);
        while progress.started.elapsed() < Duration::from_millis(2) {}
        clock.enter(Stage::Send);
        clock.reassign(Stage::Read, Stage::Seal, 500_000);
        drop(clock);
        let mut commit = progress.commit_clock();
        for stage in [Some(Stage::Sync), Some(Stage::Publish), None] {
            commit.enter(stage);
            let begun = Instant::now();
            while begun.elapsed() < Duration::from_millis(1) {}
        }
        commit.enter(None);
        let times = progress.here();
        assert!(times.commit_sync_ns >= 1_000_000 && times.commit_publish_ns >= 1_000_000);
        assert!(times.stage_ns[Stage::Read as usize] >= 1_000_000);
        assert_eq!(times.stage_ns[Stage::Seal as usize], 500_000);
        assert_eq!(progress.snapshot().streams, 0);
    }
}
