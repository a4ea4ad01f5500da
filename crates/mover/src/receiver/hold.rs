//! What a job has in the buffer of its endpoint: frames that wait for slow storage, and the messages that describe them.
//!
//! A frame is verified, committed to the spool, synced, handed to storage by a drain lane, and released. Whoever reads from the
//! network, whoever syncs and whoever writes to storage are three pools that meet here and nowhere else.
//!
//! Invariants:
//! - Nothing is said to be buffered before it is synced, and what describes it too.
//! - A frame stays until what is in it is settled; while there is a sender that could send it again, a chunk of a larger object
//!   until it is durable in staging, and the chunk that seals its object until the object is settled.
//! - When the job ends without its end, what it holds stays for whoever carries it to its place next.
//! - What storage refuses of a job that has no sender stays for the next time.
//!
//! Not here: what describes the frames, and making both durable (`journal`), receiving into it (`receive::keep`), draining
//! (`receive::drain`), and doing it without the sender (`replay`).

mod frame;
mod journal;
mod slow;

pub(super) use self::frame::{Frame, REST_HEAD, What};
pub(super) use self::journal::{Told, Untold, settled_in};
pub(crate) use self::slow::{is_slow, is_slow_within};
use super::large::{Kept, Large};
use crate::job::End;
use crate::limits::STALL_REMEMBERED;
use model::options::Buffer;
use model::{Extent, ExtentSet, mutant};
use os::sync::{Condvar, Mutex};
use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, PoisonError, Weak};
use std::time::Duration;
use store::spool::{Kind, Owner, Parcel, Room, Side, Spool};
use wire::message::ExtentRecord;

/// How often whoever waits for room looks whether the job is over.
const ROOM_INTERVAL: Duration = Duration::from_millis(100);

pub(crate) struct Hold {
    spool: Arc<Spool>,
    owner: Owner,
    how: Buffer,
    /// What is in it can be brought to its place without its sender.
    has_journal: bool,
    state: Mutex<State>,
    changed: Condvar,
    /// The sender understands what is said of buffered content.
    pub(super) may_tell: AtomicBool,
    /// The content outlives this value.
    is_kept: Arc<AtomicBool>,
    /// Bytes of frames that were kept, and not drained yet.
    pub(super) taken_bytes: AtomicU64,
    waiting_bytes: Arc<AtomicU64>,
}

#[derive(Default)]
struct State {
    /// Messages that are not in the spool yet, with what they take, and parcels of those that are.
    untold: VecDeque<Untold>,
    journal: Vec<Parcel>,
    unsynced: Vec<Arc<Frame>>,
    ready: VecDeque<Arc<Frame>>,
    draining: usize,
    lanes: u32,
    /// Until the object is settled.
    until_settled: HashMap<u64, Vec<Arc<Frame>>>,
    /// Until they are durable in staging, or their object is settled.
    until_durable: Vec<(Arc<Large>, Arc<Frame>)>,
    durable_due_bytes: u64,
    covered: HashMap<u64, Covered>,
    frames: BTreeMap<u64, Weak<Frame>>,
    /// Ids of what came to its end, and was not put down yet; and of what an earlier holder put down.
    settled: ExtentSet,
    over: ExtentSet,
    /// What storage did not take, and may take later.
    refused: HashSet<u64>,
    lost: Option<String>,
    is_over: bool,
    /// The sender said that it leaves the rest to this side.
    is_left: bool,
    /// Nobody is there to send again what was let go.
    is_alone: bool,
}

/// What of a large object is durable in the spool.
#[derive(Default)]
struct Covered {
    extents: ExtentSet,
    is_sealed: bool,
}

impl Hold {
    pub fn new(spool: Arc<Spool>, owner: Owner, how: Buffer) -> Hold {
        Hold {
            spool,
            owner,
            how,
            has_journal: true,
            state: Mutex::default(),
            changed: Condvar::new(),
            may_tell: AtomicBool::new(true),
            is_kept: Arc::default(),
            taken_bytes: AtomicU64::new(0),
            waiting_bytes: Arc::default(),
        }
    }

    /// One at a client: what is in it when the client ends comes again with the next attempt.
    pub fn of_client(spool: Arc<Spool>, owner: Owner, how: Buffer) -> Hold {
        let mut hold = Hold::new(spool, owner, how);
        hold.has_journal = false;
        hold.may_tell.store(false, Relaxed);
        hold
    }

    /// One for what an earlier holder left: nothing of it is written again.
    pub fn resumed(spool: Arc<Spool>, owner: Owner, parcels: Vec<Parcel>) -> Hold {
        let hold = Hold::new(spool, owner, Buffer::Never);
        hold.may_tell.store(false, Relaxed);
        let (journal, content): (Vec<_>, Vec<_>) = parcels.into_iter().partition(|p| p.kind == Kind::Journal);
        let mut state = hold.state.lock().unwrap();
        (state.journal, state.is_alone) = (journal, true);
        for parcel in content {
            // Otherwise it was torn, and nobody was told that it was kept.
            if let Some(frame) = Frame::found(&hold.spool, parcel, &hold.is_kept, &hold.waiting_bytes) {
                state.enter(Arc::new(frame));
            }
        }
        drop(state);
        hold
    }

    /// A lane that is in the middle of a chunk cannot turn aside when storage stands still: it finds out with the write that does not
    /// come back. So for a while everything goes through the buffer, that of all jobs.
    pub fn note_stall(&self) {
        self.spool.note_stall(Side::Destination);
    }

    pub fn capacity_bytes(&self) -> u64 {
        self.spool.capacity_bytes()
    }

    pub fn waiting(&self) -> &Arc<AtomicU64> {
        &self.waiting_bytes
    }

    /// Bytes that wait for storage.
    pub fn waiting_bytes(&self) -> u64 {
        self.waiting_bytes.load(Relaxed)
    }

    /// Room for a frame that is to wait here; nothing when it is to go straight to storage.
    pub fn room(&self, frame_bytes: u64, is_store_slow: &dyn Fn() -> bool, end: &End) -> Option<Room> {
        loop {
            let (need_not_wait, may_take) = {
                let state = self.state.lock().unwrap();
                (state.frames.is_empty() || state.is_left, state.lost.is_none() && !state.is_over)
            };
            let takes = match self.how {
                Buffer::Never => false,
                Buffer::Always => true,
                Buffer::Auto => {
                    !self.is_drained() || self.spool.has_stalled(Side::Destination, STALL_REMEMBERED) || is_store_slow()
                }
            };
            if end.is_set() || !may_take || !takes {
                return None;
            }
            match self.spool.reserve_within(self.owner, Kind::Content, frame_bytes, ROOM_INTERVAL) {
                Ok(Some(room)) => return Some(room),
                // Others have it all, or there never is room for so much; or what is here waits for what comes, and not for storage.
                Ok(None) if need_not_wait || self.is_handed_on() => return None,
                Ok(None) => self.forget_released(),
                Err(e) => self.lose(&e.to_string()),
            }
        }
    }

    /// A lane that is stuck in storage may turn to the buffer.
    pub fn may_turn_aside(&self) -> bool {
        self.how == Buffer::Auto
    }

    /// Room, at once or not at all, for the rest of a frame whose lane is stuck in storage.
    pub fn room_for_rest(&self, bytes: u64) -> Option<Room> {
        let may_take = self.state.lock().map(|state| state.lost.is_none() && !state.is_over).unwrap_or(false);
        let bytes = bytes + REST_HEAD.len() as u64;
        self.spool.reserve(self.owner, Kind::Content, bytes).ok().flatten().filter(|_| may_take)
    }

    pub fn spool(&self) -> &Spool {
        &self.spool
    }

    /// Takes a frame in that was verified and committed.
    pub fn keep(&self, parcel: Parcel, what: What) {
        let bytes = parcel.bytes;
        self.taken_bytes.fetch_add(bytes, Relaxed);
        let frame = Frame::new(&self.spool, parcel, what, &self.is_kept, &self.waiting_bytes);
        self.state.lock().unwrap().enter(Arc::new(frame));
        self.changed.notify_all();
    }

    /// Nothing waits for storage.
    pub fn is_drained(&self) -> bool {
        let state = self.state.lock().unwrap();
        state.ready.is_empty() && state.draining == 0
    }

    /// Nothing waits for storage, nor to be durable there.
    pub fn is_handed_on(&self) -> bool {
        let state = self.state.lock().unwrap();
        state.ready.is_empty() && state.draining == 0 && state.until_durable.is_empty()
    }

    pub fn has(&self, id: u64) -> bool {
        self.state.lock().unwrap().until_settled.contains_key(&id)
    }

    /// Nothing is held, nor on its way to its place.
    pub fn is_empty(&self) -> bool {
        self.forget_released();
        let state = self.state.lock().unwrap();
        state.frames.is_empty() && state.draining == 0
    }

    fn forget_released(&self) {
        self.state.lock().unwrap().frames.retain(|_, frame| frame.strong_count() > 0);
    }

    pub fn has_lanes(&self) -> bool {
        self.state.lock().unwrap().lanes > 0
    }

    /// Whether one more drain lane would have something to do.
    pub fn wants_lane(&self, lanes_max: u32) -> bool {
        let mut state = self.state.lock().unwrap();
        let wants = state.lanes < lanes_max && state.ready.len() > state.lanes as usize;
        state.lanes += u32::from(wants);
        wants
    }

    /// The next frame for a drain lane, or nothing after `patience`.
    pub fn next(&self, patience: Duration) -> Option<Arc<Frame>> {
        let mut state = self.state.lock().unwrap();
        if state.ready.is_empty() {
            state = self.changed.wait_timeout(state, patience).unwrap().0;
        }
        let frame = state.ready.pop_front()?;
        state.draining += 1;
        Some(frame)
    }

    /// A drain lane has done with a frame what was to be done; `held_in` names the object whose staging has it, as yet not
    /// durable.
    pub fn drained(&self, frame: Arc<Frame>, held_in: Option<Arc<Large>>) {
        let mut state = self.state.lock().unwrap();
        state.draining -= 1;
        match held_in {
            Some(_) if mutant::is_on("release-too-early") => {}
            Some(large) => {
                state.durable_due_bytes += frame.bytes();
                state.until_durable.push((large, frame));
            }
            None => state.let_go(frame),
        }
        drop(state);
        self.changed.notify_all();
    }

    /// What became of chunks that storage took. What died with its staging is drained again.
    pub fn written(&self, chunks: Vec<(Arc<Large>, Arc<Frame>, Kept)>) {
        let mut state = self.state.lock().unwrap();
        for (large, frame, kept) in chunks {
            match kept {
                Kept::Staged => state.let_go(frame),
                Kept::Pending => state.until_durable.push((large, frame)),
                Kept::Lost => state.ready.push_back(frame),
            }
        }
        drop(state);
        self.changed.notify_all();
    }

    /// It has what an earlier holder left, and no sender.
    pub fn is_alone(&self) -> bool {
        self.state.lock().unwrap().is_alone
    }

    /// The job ended while a drain lane had the frame: it waits for whoever carries the job on.
    pub fn undrained(&self, frame: Arc<Frame>) {
        let mut state = self.state.lock().unwrap();
        state.draining -= 1;
        state.ready.push_front(frame);
    }

    /// A frame is worth nothing: what was in it comes again.
    pub fn spoiled(&self, frame: &Frame) {
        let mut state = self.state.lock().unwrap();
        if let What::Chunk { extent, is_seal, .. } = frame.what {
            let id = extent.object;
            if let Some(covered) = state.covered.get_mut(&id) {
                covered.extents.remove(Extent::new(extent.start, extent.end));
                covered.is_sealed &= !is_seal;
            }
        }
        for id in frame.what.objects() {
            if let Some(frames) = state.until_settled.get_mut(&id) {
                frames.retain(|held| held.number() != frame.number());
            }
        }
    }

    /// What storage is to make durable now, if it is much or `is_all`.
    pub fn take_until_durable(&self, is_all: bool) -> Vec<(Arc<Large>, Arc<Frame>)> {
        let due = (self.spool.capacity_bytes() / 8).min(64 << 20);
        let mut state = self.state.lock().unwrap();
        if state.durable_due_bytes < due && !is_all {
            return Vec::new();
        }
        state.durable_due_bytes = 0;
        std::mem::take(&mut state.until_durable)
    }

    /// Objects came to their end: that is put down, and what waits of them is let go.
    pub fn settled(&self, ids: impl Iterator<Item = u64>) {
        let ids: Vec<u64> = ids.collect();
        let mut state = self.state.lock().unwrap();
        if self.has_journal && state.lost.is_none() {
            for id in ids.iter().map(|id| Extent::new(*id, id.saturating_add(1))) {
                if !state.over.contains(id) {
                    state.settled.insert(id);
                }
            }
        }
        drop(state);
        self.let_go(ids.into_iter());
    }

    /// What waits of objects that came to their end is not wanted any more.
    pub fn let_go(&self, ids: impl Iterator<Item = u64>) {
        let mut state = self.state.lock().unwrap();
        if state.until_settled.is_empty() && state.covered.is_empty() {
            return;
        }
        let State { until_settled, covered, refused, .. } = &mut *state;
        let frames: Vec<_> = ids
            .filter(|id| !refused.contains(id))
            .filter_map(|id| {
                covered.remove(&id);
                until_settled.remove(&id)
            })
            .collect();
        drop(state);
        drop(frames);
    }

    /// Storage did not take an object, and may take it later: what is here of it stays.
    pub fn refuse(&self, id: u64) {
        self.state.lock().unwrap().refused.insert(id);
    }

    pub fn is_refused(&self, id: u64) -> bool {
        self.state.lock().unwrap().refused.contains(&id)
    }

    pub fn has_refused(&self) -> bool {
        !self.state.lock().unwrap().refused.is_empty()
    }

    /// These came to their end while an earlier holder had them: what is here of them is not wanted any more.
    pub fn pass_over(&self, settled: ExtentSet) {
        let mut state = self.state.lock().unwrap();
        let is_over = |id: u64| settled.contains(Extent::new(id, id.saturating_add(1)));
        let is_wanted = |frame: &Arc<Frame>| !frame.what.objects().all(is_over);
        state.ready.retain(is_wanted);
        state.unsynced.retain(is_wanted);
        state.until_settled.retain(|id, _| !is_over(*id));
        state.over = settled;
    }

    /// It came to its end while an earlier holder had it.
    pub fn was_settled(&self, id: u64) -> bool {
        self.state.lock().unwrap().over.contains(Extent::new(id, id.saturating_add(1)))
    }

    /// The sender said that it leaves the rest to this side.
    pub fn is_left(&self) -> bool {
        self.state.lock().unwrap().is_left
    }

    /// Takes nothing in any more. What is in it is read as long as it can be.
    pub fn lose(&self, why: &str) {
        let mut state = self.state.lock().unwrap();
        state.untold.clear();
        state.lost.get_or_insert_with(|| why.to_owned());
    }

    pub fn why_lost(&self) -> Option<String> {
        self.state.lock().unwrap().lost.clone()
    }

    /// Objects with content here.
    pub fn objects(&self) -> Vec<u64> {
        let state = self.state.lock().unwrap();
        state.ready.iter().flat_map(|frame| frame.what.objects()).collect()
    }

    /// Whether the object is here, whole and durable, beside the extents that are in staging.
    pub fn covers(&self, id: u64, size_bytes: u64, staged: &ExtentSet) -> bool {
        let state = self.state.lock().unwrap();
        if let Some(covered) = state.covered.get(&id) {
            let mut missing = staged.gaps(size_bytes).into_iter();
            return covered.is_sealed && missing.all(|gap| covered.extents.contains(gap));
        }
        let is_unsynced = state.unsynced.iter().any(|frame| frame.what.objects().any(|object| object == id));
        state.until_settled.contains_key(&id) && !is_unsynced
    }

    /// The job is at its end: nothing of it comes back.
    pub fn end(&self) -> store::Result<()> {
        self.state.lock().unwrap().is_over = true;
        self.spool.end(self.owner)
    }
}

impl State {
    fn enter(&mut self, frame: Arc<Frame>) {
        self.frames.insert(frame.number(), Arc::downgrade(&frame));
        if self.stays(&frame.what) {
            for id in frame.what.objects() {
                self.until_settled.entry(id).or_default().push(frame.clone());
            }
        }
        self.unsynced.push(frame.clone());
        self.ready.push_back(frame);
    }

    /// Until what is in it is settled.
    fn stays(&self, what: &What) -> bool {
        self.is_alone || !matches!(what, What::Chunk { is_seal: false, is_large: true, .. })
    }

    /// Storage has done with a frame: unless it stays, what is in it is not here any more.
    fn let_go(&mut self, frame: Arc<Frame>) {
        if let What::Chunk { extent, .. } = frame.what
            && !self.stays(&frame.what)
            && let Some(covered) = self.covered.get_mut(&extent.object)
        {
            covered.extents.remove(Extent::new(extent.start, extent.end));
        }
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        // A thread that failed under the lock takes nothing from what was called buffered.
        let state = self.state.get_mut().unwrap_or_else(PoisonError::into_inner);
        if state.is_over {
            // A message that was on its way to the spool may have come there afterwards.
            let _ = self.spool.end(self.owner);
            return;
        }
        let content: Vec<_> = state.frames.values().filter_map(Weak::upgrade).collect();
        if content.is_empty() && !state.is_left || state.journal.is_empty() {
            // Nothing that somebody could bring to its place: what comes of it then is the next attempt's.
            let _ = self.spool.end(self.owner);
            return;
        }
        self.is_kept.store(true, Relaxed);
        // Staging is let go before somebody finds what is to go there.
        state.until_durable.clear();
        let parcels = content.iter().map(|frame| frame.parcel().clone()).chain(state.journal.drain(..)).collect();
        self.spool.put_back(self.owner, parcels);
    }
}

#[cfg(test)]
mod tests;

/// Which extent of which object a chunk is.
pub(super) fn record_of(object: u64, extent: Extent) -> ExtentRecord {
    ExtentRecord { object, start: extent.start, end: extent.end }
}
