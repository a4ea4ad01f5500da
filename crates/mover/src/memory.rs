//! The account of memory: the right to hold bytes, given back when the holder is dropped.
//!
//! Two sums for each process: what lanes work in (`--memory`), which is waited for, and what peers make us hold for as long as
//! a job or a session lasts (descriptions, names, attributes, censuses, what waits to be sent), which is refused when there is
//! no more. At an endpoint both are shared among its clients (`shares`).
//!
//! Invariant: the permits of a sum never exceed its bound. A permit travels inside what holds the memory. Never wait for one
//! while holding a lock.

use crate::limits::{HELD_BYTES_MIN, HELD_FACTOR, HELD_PART, LANE_BYTES, PERMIT_PATIENCE, RECEIVE_PERMIT_PATIENCE};
use crate::progress::{LaneClock, Progress};
use crate::shares::{Full, Holder, Level, Shares};
use model::progress::Stage;
use model::quantity::ByteCount;
use net::Budget;
use os::sync::{Condvar, Mutex};
use os::time::Instant;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use wire::{CloseCode, Refusal};

/// Hears that a lane finds no memory, and in whose share.
pub type Relief = Arc<dyn Fn(Level) + Send + Sync>;

/// A handle on the account: of the process, or of one of its clients.
#[derive(Clone)]
pub struct Memory {
    shared: Arc<Shared>,
    holder: Option<Arc<Holder>>,
    relief: Option<Relief>,
}

struct Shared {
    /// By `Sum`.
    sums: [Mutex<Shares>; 2],
    freed: Condvar,
    /// The most that was held since the allocator last gave back what it had kept.
    held_max: AtomicU64,
}

impl Shared {
    /// Has the allocator give back what it keeps, when much less is held than was.
    fn note_held(&self, held: u64) {
        let held_max = self.held_max.fetch_max(held, Relaxed).max(held);
        if held_max - held >= KEPT_FREE_BYTES
            && self.held_max.compare_exchange(held_max, held, Relaxed, Relaxed).is_ok()
        {
            store::give_back_memory();
        }
    }
}

/// What the allocator may keep of what was held.
const KEPT_FREE_BYTES: u64 = 64 << 20;

/// Which of the two sums.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Sum {
    Work = 0,
    Held = 1,
}

impl Memory {
    /// For a process that works for its user: half of the host's memory may be held, or what an endpoint may hold.
    pub fn new(work_bytes: usize) -> Memory {
        Memory::with(work_bytes, (host_bytes() / 2).max(held_bytes_max(work_bytes)))
    }

    /// For an endpoint, whose jobs belong to several clients.
    pub fn of_endpoint(work_bytes: usize) -> Memory {
        Memory::with(work_bytes, held_bytes_max(work_bytes))
    }

    fn with(work_bytes: usize, held_bytes: u64) -> Memory {
        let sums = [work_bytes as u64, held_bytes].map(|bytes| Mutex::new(Shares::new(bytes, u64::MAX)));
        Memory {
            shared: Arc::new(Shared { sums, freed: Condvar::new(), held_max: AtomicU64::new(0) }),
            holder: None,
            relief: None,
        }
    }

    /// The account of a client in this one. `relief` hears when one of its lanes waits.
    pub fn of(&self, holder: Holder, relief: Option<Relief>) -> Memory {
        Memory { shared: self.shared.clone(), holder: Some(Arc::new(holder)), relief }
    }

    /// Waits until a lane's memory is free, at most for `patience`. The first lane of a job gets it sooner than others.
    pub fn acquire_lane(&self, bytes: usize, is_first: bool, patience: Duration) -> Option<Permit> {
        let deadline = Instant::now() + patience;
        let mut work = self.sum(Sum::Work).lock().unwrap();
        loop {
            let full = match work.take(self.holder.as_deref(), bytes as u64, is_first) {
                Ok(()) => return Some(self.permit(bytes, Sum::Work)),
                Err(full) => full,
            };
            let Some(left) = deadline.checked_duration_since(Instant::now()) else {
                drop(work);
                if let Some(relief) = &self.relief {
                    relief(full.level);
                }
                return None;
            };
            work = self.shared.freed.wait_timeout(work, left).unwrap().0;
        }
    }

    /// Waits until `bytes` are free to work in, at most for `patience`.
    pub fn acquire(&self, bytes: usize, patience: Duration) -> Option<Permit> {
        self.acquire_lane(bytes, false, patience)
    }

    /// Takes what a peer makes us hold, before it is held.
    ///
    /// # Errors
    /// At once when the share is used up; the refusal names the account.
    pub fn hold(&self, bytes: usize, what: &str) -> Result<Permit, Refusal> {
        self.try_hold(bytes).map_err(|full| self.refusal(&full, what))
    }

    /// The same for whoever can make room, and knows where.
    pub(crate) fn try_hold(&self, bytes: usize) -> Result<Permit, Full> {
        let mut held = self.sum(Sum::Held).lock().unwrap();
        held.take(self.holder.as_deref(), bytes as u64, false)?;
        self.shared.held_max.fetch_max(held.held(), Relaxed);
        Ok(self.permit(bytes, Sum::Held))
    }

    pub(crate) fn refusal(&self, full: &Full, what: &str) -> Refusal {
        // Nobody else's end would make room for who is alone.
        let code = if full.is_alone { CloseCode::Limit } else { CloseCode::Busy };
        let held = format!("{} of memory ({what})", ByteCount(full.held));
        let text = match &self.holder {
            Some(holder) => {
                let advice = if full.is_alone { "copy it in parts, or raise" } else { "try again later, or raise" };
                format!("{}; {advice} --memory of `serve`", full.text(holder, &held))
            }
            None => format!("this process holds {held}, as much as it may: copy it in parts, or raise --memory"),
        };
        Refusal::new(code, &text)
    }

    fn permit(&self, bytes: usize, sum: Sum) -> Permit {
        Permit { bytes, sum, shared: self.shared.clone(), holder: self.holder.clone() }
    }

    fn sum(&self, sum: Sum) -> &Mutex<Shares> {
        &self.shared.sums[sum as usize]
    }

    /// Of what lanes work in.
    pub fn free_bytes(&self) -> usize {
        self.sum(Sum::Work).lock().unwrap().free() as usize
    }

    /// Of what peers may make us hold.
    pub fn free_to_hold_bytes(&self) -> usize {
        self.sum(Sum::Held).lock().unwrap().free() as usize
    }

    /// What lanes may work in, in all.
    pub fn work_bytes(&self) -> usize {
        self.sum(Sum::Work).lock().unwrap().capacity() as usize
    }
}

/// What peers may make a process hold whose lanes have so much.
pub fn held_bytes_max(work_bytes: usize) -> u64 {
    let part = (host_bytes() / HELD_PART).max(HELD_BYTES_MIN);
    (work_bytes as u64).saturating_mul(HELD_FACTOR).clamp(HELD_BYTES_MIN, part).max(work_bytes as u64)
}

/// The host's memory, read once: a process that is confined later could not. Nothing where the kernel does not tell.
fn host_bytes() -> u64 {
    static BYTES: OnceLock<u64> = OnceLock::new();
    *BYTES.get_or_init(|| {
        let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
        let kib = text.strip_prefix("MemTotal:").and_then(|rest| rest.split_ascii_whitespace().next()?.parse().ok());
        kib.unwrap_or(0_u64) << 10
    })
}

impl Default for Memory {
    fn default() -> Self {
        Memory::new(crate::limits::MEMORY_BYTES_MAX)
    }
}

/// What waits to be sent on a control stream.
impl Budget for Memory {
    fn take(&self, bytes: usize) -> bool {
        self.hold(bytes, "unread answers").map(Permit::keep).is_ok()
    }

    fn give(&self, bytes: usize) {
        drop(self.permit(bytes, Sum::Held));
    }
}

/// A lane's memory, counted among the lanes of its job that have theirs.
pub struct LanePermit {
    _permit: Permit,
    progress: Arc<Progress>,
}

impl LanePermit {
    /// Waits for at most `patience`.
    pub fn acquire(memory: &Memory, bytes: usize, progress: &Arc<Progress>, patience: Duration) -> Option<LanePermit> {
        let is_first = progress.lanes.running.load(Relaxed) == 0;
        let permit = memory.acquire_lane(bytes, is_first, patience)?;
        progress.lanes.running.fetch_add(1, Relaxed);
        Some(LanePermit { _permit: permit, progress: progress.clone() })
    }

    /// For a receiver's lane. What the sender has put into its stream waits with it, so a lane gives up as long as others of
    /// its job can take that over; while there are none, the job waits for other jobs to end, and is not lost.
    pub fn acquire_to_receive(
        memory: &Memory,
        bytes: usize,
        progress: &Arc<Progress>,
        clock: &mut LaneClock,
        is_over: &dyn Fn() -> bool,
    ) -> Option<LanePermit> {
        let _waiting = progress.lanes.enter_waiting();
        let deadline = Instant::now() + RECEIVE_PERMIT_PATIENCE;
        loop {
            if let Some(permit) = LanePermit::acquire(memory, bytes, progress, PERMIT_PATIENCE) {
                return Some(permit);
            }
            if is_over() {
                return None;
            }
            if progress.lanes.running.load(Relaxed) > 0 && Instant::now() >= deadline {
                progress.note("a stream was given up: no memory was left for it (--memory)".into());
                return None;
            }
            clock.enter(Stage::Memory);
        }
    }
}

impl Drop for LanePermit {
    fn drop(&mut self) {
        self.progress.lanes.running.fetch_sub(1, Relaxed);
    }
}

/// The right to hold `bytes`.
pub struct Permit {
    bytes: usize,
    sum: Sum,
    shared: Arc<Shared>,
    holder: Option<Arc<Holder>>,
}

impl std::fmt::Debug for Permit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Permit({})", self.bytes)
    }
}

impl Permit {
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Takes `bytes` of it, or all there is, as a permit of their own.
    pub fn split(&mut self, bytes: usize) -> Permit {
        let bytes = bytes.min(self.bytes);
        self.bytes -= bytes;
        Permit { bytes, sum: self.sum, shared: self.shared.clone(), holder: self.holder.clone() }
    }

    /// Adds one of the same account and sum.
    pub fn absorb(&mut self, mut other: Permit) {
        debug_assert!(self.sum == other.sum && Arc::ptr_eq(&self.shared, &other.shared));
        self.bytes += std::mem::take(&mut other.bytes);
    }

    /// Leaves the bytes taken, for whoever counts them.
    fn keep(mut self) {
        self.bytes = 0;
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        if self.bytes == 0 {
            return;
        }
        let mut shares = self.shared.sums[self.sum as usize].lock().unwrap();
        shares.give(self.holder.as_deref(), self.bytes as u64);
        let held = shares.held();
        drop(shares);
        match self.sum {
            Sum::Work => self.shared.freed.notify_all(),
            Sum::Held => self.shared.note_held(held),
        }
    }
}

const _: () = assert!(LANE_BYTES as u64 <= HELD_BYTES_MIN);

#[cfg(test)]
mod tests {
    use super::*;
    use model::Pin;

    fn of(memory: &Memory, client: &str, key: u8) -> Memory {
        memory.of(Holder { client: client.into(), key: Pin([key; 32]), name: "name".into() }, None)
    }

    #[test]
    fn permits_never_exceed_the_limit_and_come_back_on_drop() {
        let memory = Memory::new(10);
        let first = memory.acquire(6, Duration::ZERO).unwrap();
        assert!(memory.acquire(5, Duration::ZERO).is_none());
        drop(first);
        assert!(memory.acquire(10, Duration::ZERO).is_some());
        assert_eq!(memory.free_bytes(), 10);
    }

    #[test]
    fn one_job_leaves_memory_for_the_first_lanes_of_others() {
        let memory = Memory::of_endpoint(8 * LANE_BYTES);
        let lane = |memory: &Memory, is_first| memory.acquire_lane(LANE_BYTES, is_first, Duration::ZERO);
        let [one, its_other_key, other] = [of(&memory, "a", 1), of(&memory, "a", 2), of(&memory, "b", 3)];
        let mut of_one = vec![lane(&one, true).unwrap()];
        while let Some(permit) = lane(&one, false) {
            of_one.push(permit);
        }
        assert_eq!(of_one.len(), 6);
        let _first_of_others = [lane(&its_other_key, true).unwrap(), lane(&other, true).unwrap()];
        assert!(lane(&other, true).is_none());
        // The one lane that little memory has room for starts.
        let little = Memory::of_endpoint(LANE_BYTES);
        assert!(lane(&of(&little, "a", 1), false).is_some());
    }

    #[test]
    fn a_lane_that_finds_no_memory_says_whose_share_is_used_up() {
        let memory = Memory::of_endpoint(LANE_BYTES);
        let _held = of(&memory, "a", 1).acquire(LANE_BYTES, Duration::ZERO).unwrap();
        let said = Arc::new(Mutex::new(None));
        let heard = said.clone();
        let relief: Relief = Arc::new(move |level| *heard.lock().unwrap() = Some(level));
        let holder = Holder { client: "b".into(), key: Pin([2; 32]), name: "n".into() };
        assert!(memory.of(holder, Some(relief)).acquire(LANE_BYTES, Duration::ZERO).is_none());
        assert_eq!(*said.lock().unwrap(), Some(Level::Endpoint));
    }

    #[test]
    fn what_is_held_is_split_joined_and_given_back() {
        let memory = Memory::of_endpoint(LANE_BYTES);
        let free = memory.free_to_hold_bytes();
        let mut batch = of(&memory, "a", 1).hold(100, "names").unwrap();
        let mut kept = batch.split(30);
        kept.absorb(batch.split(1000));
        assert_eq!((batch.bytes(), kept.bytes()), (0, 100));
        drop(batch);
        assert_eq!(memory.free_to_hold_bytes(), free - 100);
        drop(kept);
        assert!(of(&memory, "a", 1).take(50) && memory.free_to_hold_bytes() == free - 50);
        of(&memory, "a", 1).give(50);
        assert_eq!(memory.free_to_hold_bytes(), free);
    }

    #[test]
    fn a_refusal_names_the_account_and_says_whether_waiting_helps() {
        let memory = Memory::of_endpoint(LANE_BYTES);
        let all = memory.free_to_hold_bytes();
        let one = of(&memory, "serve", 1);
        let mut held = Vec::new();
        let refused = (0..200).find_map(|_| one.hold(all / 100, "directories").map(|permit| held.push(permit)).err());
        let refused = refused.expect("one client does not get all");
        assert!((60..=75).contains(&held.len()), "{}", held.len());
        assert_eq!(refused.code, CloseCode::Limit);
        assert!(refused.text.starts_with("client 'name' (ticket serve) has "), "{refused}");
        assert!(refused.text.contains("memory (directories)"), "{refused}");
        // Others are not touched by it, and are told to wait when they are.
        let other = of(&memory, "t", 2);
        let _small = other.hold(all / 100, "names").unwrap();
        while let Ok(permit) = other.hold(all / 100, "names") {
            held.push(permit);
        }
        assert_eq!(other.hold(all / 100, "names").unwrap_err().code, CloseCode::Busy);
    }
}
