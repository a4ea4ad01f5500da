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
//!
//! Not here: receiving into it (`receive::keep`), draining (`receive::drain`), and doing it without the sender (`replay`).

mod frame;
mod lateness;

pub(super) use self::frame::{Frame, REST_HEAD, What};
pub(crate) use self::lateness::{Lateness, is_slow};
use super::large::{Kept, Large};
use crate::job::End;
use crate::memory::Permit;
use model::options::Buffer;
use model::{Extent, ExtentSet, mutant};
use os::sync::{Condvar, Mutex};
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Weak};
use std::time::Duration;
use store::spool::{Kind, Owner, Parcel, Room, Spool};
use wire::Message;
use wire::message::{self, ExtentRecord};

/// How often whoever waits for room looks whether the job is over.
const ROOM_INTERVAL: Duration = Duration::from_millis(100);

pub(crate) struct Hold {
    spool: Arc<Spool>,
    owner: Owner,
    how: Buffer,
    /// What is in it can be brought to its place without its sender.
    has_journal: bool,
    pub(super) lateness: Arc<Lateness>,
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

/// A message as it is put down, and whether the sender leaves with it.
pub(crate) struct Told {
    frame: Vec<u8>,
    is_leave: bool,
}

impl Told {
    pub fn bytes(&self) -> usize {
        self.frame.len()
    }
}

struct Untold {
    frame: Vec<u8>,
    _charge: Option<Permit>,
}

/// What the thread has to do that makes things durable.
pub(crate) struct Due {
    messages: Vec<Untold>,
    pub frames: Vec<Arc<Frame>>,
}

impl Hold {
    pub fn new(spool: Arc<Spool>, owner: Owner, how: Buffer, lateness: Arc<Lateness>) -> Hold {
        Hold {
            spool,
            owner,
            how,
            has_journal: true,
            lateness,
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
        let mut hold = Hold::new(spool, owner, how, Arc::default());
        hold.has_journal = false;
        hold.may_tell.store(false, Relaxed);
        hold
    }

    /// One for what an earlier holder left: nothing of it is written again.
    pub fn resumed(spool: Arc<Spool>, owner: Owner, parcels: Vec<Parcel>) -> Hold {
        let hold = Hold::new(spool, owner, Buffer::Never, Arc::default());
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

    /// What is put down of a message, if it describes what comes.
    pub fn told(&self, message: &Message) -> Option<Told> {
        let is_kept = matches!(
            message,
            Message::Entries(_)
                | Message::SourceFailures(_)
                | Message::ListEnd(_)
                | Message::Names(_)
                | Message::Finish(_)
        );
        let is_leave = matches!(message, Message::Finish(finish) if finish.is_buffered);
        let is_told = is_kept && self.has_journal && self.how != Buffer::Never;
        is_told.then(|| Told { frame: message::encode(message.clone()), is_leave })
    }

    /// Puts down a message that was accepted, before any of what it describes can come. `charge` goes with it until it is in the
    /// spool.
    pub fn note(&self, Told { frame, is_leave }: Told, charge: Option<Permit>) {
        let mut state = self.state.lock().unwrap();
        state.is_left |= is_leave;
        if state.lost.is_none() {
            state.untold.push_back(Untold { frame, _charge: charge });
            self.changed.notify_all();
        }
    }

    /// Notes what was asked for, in the endpoint's words: the first of the journal.
    pub fn begin(&self, opening: Vec<u8>) {
        self.state.lock().unwrap().untold.push_front(Untold { frame: opening, _charge: None });
    }

    /// Room for a frame that is to wait here; nothing when it is to go straight to storage.
    pub fn room(&self, frame_bytes: u64, is_store_slow: &dyn Fn() -> bool, end: &End) -> Option<Room> {
        loop {
            let (is_empty, may_take) = {
                let state = self.state.lock().unwrap();
                (state.frames.is_empty(), state.lost.is_none() && !state.is_over)
            };
            let takes = match self.how {
                Buffer::Never => false,
                Buffer::Always => true,
                Buffer::Auto => !self.is_drained() || self.lateness.is_noted() || is_store_slow(),
            };
            if end.is_set() || !may_take || !takes {
                return None;
            }
            match self.spool.reserve_within(self.owner, Kind::Content, frame_bytes, ROOM_INTERVAL) {
                Ok(Some(room)) => return Some(room),
                // Others have it all, or there never is room for so much.
                Ok(None) if is_empty => return None,
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

    /// Objects came to their end.
    pub fn settled(&self, ids: impl Iterator<Item = u64>) {
        let mut state = self.state.lock().unwrap();
        if state.until_settled.is_empty() && state.covered.is_empty() {
            return;
        }
        let frames: Vec<_> = ids
            .filter_map(|id| {
                state.covered.remove(&id);
                state.until_settled.remove(&id)
            })
            .collect();
        drop(state);
        drop(frames);
    }

    /// What is to be made durable, or nothing after `patience`.
    pub fn take_due(&self, patience: Duration) -> Due {
        let mut state = self.state.lock().unwrap();
        if state.untold.is_empty() && state.unsynced.is_empty() {
            state = self.changed.wait_timeout(state, patience).unwrap().0;
        }
        Due { messages: state.untold.drain(..).collect(), frames: std::mem::take(&mut state.unsynced) }
    }

    /// Makes durable what is due. Frames that may be called buffered come back.
    pub fn make_durable(&self, due: Due) -> Vec<Arc<Frame>> {
        match self.try_make_durable(&due) {
            Ok(()) => {
                let mut state = self.state.lock().unwrap();
                // What was let go meanwhile is in staging.
                for frame in due.frames.iter().filter(|frame| Arc::strong_count(frame) > 1) {
                    if let What::Chunk { extent, is_seal, .. } = frame.what {
                        let covered = state.covered.entry(extent.object).or_default();
                        covered.extents.insert(Extent::new(extent.start, extent.end));
                        covered.is_sealed |= is_seal;
                    }
                }
                due.frames
            }
            Err(why) => {
                self.lose(&why);
                Vec::new()
            }
        }
    }

    fn try_make_durable(&self, due: &Due) -> Result<(), String> {
        if !self.has_journal {
            return Ok(());
        }
        let written: Vec<Parcel> =
            due.messages.iter().map(|message| self.write_journal(&message.frame)).collect::<Result<_, _>>()?;
        if due.frames.is_empty() && written.is_empty() {
            return Ok(());
        }
        if !mutant::is_on("buffered-before-sync") {
            let frames = due.frames.iter().map(|frame| frame.parcel());
            self.spool.sync(written.iter().chain(frames)).map_err(|e| e.to_string())?;
        }
        self.state.lock().unwrap().journal.extend(written);
        Ok(())
    }

    fn write_journal(&self, message: &[u8]) -> Result<Parcel, String> {
        let room = self.spool.reserve(self.owner, Kind::Journal, message.len() as u64).map_err(|e| e.to_string())?;
        let mut room = room.ok_or("other jobs have all of the buffer")?;
        room.write(message).and_then(|()| room.commit()).map_err(|e| e.to_string())
    }

    /// All that was noted and kept is durable.
    pub fn is_durable(&self) -> bool {
        let state = self.state.lock().unwrap();
        state.untold.is_empty() && state.unsynced.is_empty()
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
        let Ok(state) = self.state.get_mut() else { return };
        if state.is_over {
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
