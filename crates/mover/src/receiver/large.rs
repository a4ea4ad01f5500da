//! Large objects: staged under their own name in chunks that any lane may bring, journaled as they are verified. A `Large` is one
//! job's part in an object; several jobs may feed one object, which has one staging and one journal.
//!
//! Invariants:
//! - An extent counts as held only after its digest was compared and its bytes were handed to storage.
//! - Nothing writes to an object that is complete: no lane gets a turn (`turns`) at what is held.
//! - The object is complete when a sender sealed it (`feeders`: one version of the source was read) and every byte is held; exactly
//!   one caller is told so.

mod account;
mod endless;
mod feeders;
mod growing;
mod opening;
mod parts;
mod together;
mod turns;

use self::feeders::Feeders;
pub use self::turns::{Claimed, Turn};
use super::listed::Listed;
use super::resume;
use crate::memory::Permit;
use crate::stream::Breaker;
use ledger::extent_log::Appender;
use model::mutant;
use model::{Digest, DigestAlgorithm, Entry, Extent, ExtentSet, FailureKind, Generation};
use os::sync::{Condvar, Mutex};
use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock, Weak};
use store::{PublishRule, SourceFile, StagedFile};

/// A smaller object is over before a probe is.
pub const PROBED_FILE_BYTES: u64 = 64 << 20;
/// One of this size is worth a probe where there are many of them and storage is slow.
pub const QUEUED_FILE_BYTES: u64 = 8 << 20;

pub struct Large {
    pub id: u64,
    pub size_bytes: u64,
    pub is_open_ended: bool,
    /// It is written while it comes; `seal` says when it is complete.
    pub is_growing: bool,
    pub rule: PublishRule,
    /// What of it will not be written, as far as is known: holes, and what it will share with its source.
    pub spared_bytes: u64,
    chunk_bytes: u64,
    stem: String,
    path: Vec<u8>,
    listed: OnceLock<(Arc<Listed>, usize)>,
    /// This job's number among those that feed the object.
    feeder: u32,
    /// Slices of the same run write to it too.
    together: Option<together::Together>,
    object: Arc<Object>,
}

/// What became of a chunk that was handed to storage.
pub enum Kept {
    /// Nothing but its staging is to keep it any more: it is durable there, or there is no journal that would ever say so.
    Staged,
    /// It is as yet to be made durable, by a checkpoint or with all of a complete object.
    Pending,
    /// Its staging died.
    Lost,
}

/// What all jobs share that feed an object.
#[derive(Default)]
struct Object {
    state: Mutex<State>,
    turn_ended: Condvar,
    /// Held while a checkpoint waits for storage. Taken before `state`, and by nobody who writes.
    syncing: Mutex<()>,
}

#[derive(Default)]
struct State {
    feeders: Feeders,
    /// Extents that lanes are writing, and of which feeder they are.
    turns: Vec<(Extent, u32, Breaker)>,
    file: Option<Arc<dyn StagedFile>>,
    /// The staging of a complete object, for as long as it is being published.
    taken: Option<Weak<dyn StagedFile>>,
    appender: Option<Appender>,
    held: ExtentSet,
    digests: BTreeMap<u64, Digest>,
    /// The size of the complete object.
    complete_bytes: Option<u64>,
    is_discarded: bool,
    /// What an earlier attempt left is in the staging, and is not held.
    has_set_aside: bool,
    /// The job was over before all of that was read back: its journal is as it was, and not gone on with.
    is_left: bool,
    /// Chunks recorded since the last checkpoint.
    is_dirty: bool,
    /// What a checkpoint vouches for: a later attempt finds it, after a power loss too.
    durable: ExtentSet,
    /// While its staging was opened to take chunks over.
    delta_place: Option<Arc<()>>,
    /// Whether the staging shares its blocks with the source, once that was tried.
    is_shared: Option<bool>,
    resumed_bytes: u64,
    /// Of an object that grows: how far it was put down in the journal, and as what it is to be published, once it was sealed.
    frontier: Option<resume::Frontier>,
    sealed: Option<(Entry, PublishRule)>,
    is_append_only: bool,
    /// As which version it was sealed when it was found changed last, and how often.
    found_changed: Option<(Generation, u32)>,
    /// What the pieces take that are held of it.
    charge: Option<Permit>,
}

impl std::fmt::Debug for Large {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Large({})", self.id)
    }
}

impl Large {
    pub fn belongs_to(&self, listed: Arc<Listed>, index: usize) {
        let _ = self.listed.set((listed, index));
    }

    /// The batch and the index in it.
    pub fn place(&self) -> &(Arc<Listed>, usize) {
        self.listed.get().expect("placed before it is wanted")
    }

    pub fn entry(&self) -> &Entry {
        let (listed, index) = self.place();
        &listed.expected(*index).entry
    }

    /// What this feeder is to be asked for: `bytes_max` (whole chunks) of what is missing and was not asked of others. `None` when
    /// that is all of an object of which nothing is held.
    pub fn claim(&self, bytes_max: u64) -> Option<Vec<Extent>> {
        let mut state = self.object.state.lock().unwrap();
        let missing = state.held.gaps(self.size_bytes);
        let claimed = state.feeders.claim(self.feeder, &missing, bytes_max);
        let is_all = state.held.is_empty() && claimed == missing;
        (!is_all).then_some(claimed)
    }

    /// What came of an extent was refused: whoever claims it next is asked for it.
    pub fn refuse(&self, extent: Extent) {
        self.object.state.lock().unwrap().feeders.release(extent);
    }

    pub fn is_held_whole(&self) -> bool {
        let state = self.object.state.lock().unwrap();
        !state.held.is_empty() && state.held.covers(self.size_bytes)
    }

    /// No other job feeds the object.
    pub fn is_fed_alone(&self) -> bool {
        self.object.state.lock().unwrap().feeders.count() == 1
    }

    /// All of it is there, and on its way to its name.
    pub fn is_complete(&self) -> bool {
        self.object.state.lock().unwrap().is_complete()
    }

    /// What is in staging.
    pub fn staged(&self) -> ExtentSet {
        self.object.state.lock().unwrap().held.clone()
    }

    /// What of it is durable in staging: a later attempt finds it there.
    pub fn durable(&self) -> ExtentSet {
        let state = self.object.state.lock().unwrap();
        let (file, taken, durable) = (state.file.clone(), state.taken.clone(), state.durable.clone());
        drop(state);
        match (file, taken) {
            (Some(file), _) => file.confirmed(&durable),
            // What became of it by now is the object's end to tell.
            (None, Some(taken)) => taken.upgrade().map(|file| file.confirmed(&durable)).unwrap_or_default(),
            (None, None) => durable,
        }
    }

    pub fn kept(&self, extent: Extent) -> Kept {
        let state = self.object.state.lock().unwrap();
        let has_no_journal = state.appender.is_none() && !state.is_complete() && !state.is_left;
        match state.held.contains(extent) {
            false => Kept::Lost,
            true if has_no_journal || state.durable.contains(extent) => Kept::Staged,
            true => Kept::Pending,
        }
    }

    pub fn held_bytes(&self) -> u64 {
        self.object.state.lock().unwrap().resumed_bytes
    }

    pub fn keep_place(&self, place: Arc<()>) {
        self.object.state.lock().unwrap().delta_place = Some(place);
    }

    pub fn holds(&self, extent: Extent) -> bool {
        self.object.state.lock().unwrap().held.contains(extent)
    }

    /// Records a chunk that was made from what stands at the object's name, before anything of the object came.
    pub fn adopt(&self, file: &Arc<dyn StagedFile>, extent: Extent, digest: Digest) -> store::Result<()> {
        self.record(file, extent, digest, None, false)?;
        self.object.state.lock().unwrap().resumed_bytes += extent.length();
        Ok(())
    }

    /// What an earlier attempt left, which counts for nothing here until it was compared with the source.
    pub fn set_aside(&self) -> Vec<(Extent, Digest)> {
        let mut state = self.object.state.lock().unwrap();
        (state.held, state.durable) = Default::default();
        state.has_set_aside = true;
        let chunk = |start: u64| Extent::new(start, self.size_bytes.min(start + self.chunk_bytes));
        std::mem::take(&mut state.digests).into_iter().map(|(start, digest)| (chunk(start), digest)).collect()
    }

    /// Gives up the held chunk at `start`, the last one, so that it can come again.
    pub fn forget(&self, start: u64) {
        let mut state = self.object.state.lock().unwrap();
        debug_assert!(state.held.covers(self.size_bytes), "only a complete object is asked for its last chunk again");
        state.forget(Extent::new(start, self.size_bytes));
        state.resumed_bytes = start;
    }

    /// Whether the chunk is held with another content.
    pub fn contradicts(&self, extent: Extent, digest: Digest) -> bool {
        let state = self.object.state.lock().unwrap();
        state.held.contains(extent) && state.digests.get(&extent.start).is_some_and(|held| *held != digest)
    }

    /// Records a verified chunk that was written to `file`; one that is a hole is not put down in the journal, because it costs
    /// less to make again. True for the one caller with whose chunk the object is complete; nothing when that staging died meanwhile: the chunk is not in the one that came after it.
    pub fn record(
        &self,
        file: &Arc<dyn StagedFile>,
        extent: Extent,
        digest: Digest,
        sealed_bytes: Option<u64>,
        is_hole: bool,
    ) -> store::Result<Option<bool>> {
        let mut state = self.object.state.lock().unwrap();
        if state.is_over_for(self.feeder) {
            return Ok(Some(false));
        }
        if !state.is_staged_in(file) {
            return Ok(None);
        }
        state.feeders.brought(self.feeder, extent, sealed_bytes);
        self.note(&mut state, extent, digest, is_hole)
    }

    /// The same of a chunk whose digest the source itself has told: it needs no seal. What an earlier attempt left is in the journal,
    /// and gone with that staging.
    pub fn record_proved(
        &self,
        file: &Arc<dyn StagedFile>,
        extent: Extent,
        digest: Digest,
        is_in_journal: bool,
    ) -> store::Result<Option<bool>> {
        let mut state = self.object.state.lock().unwrap();
        if state.is_over_for(self.feeder) {
            return Ok(Some(false));
        }
        if !state.is_staged_in(file) || is_in_journal && !state.has_set_aside {
            return Ok(None);
        }
        state.feeders.proved(extent, self.size_bytes);
        self.note(&mut state, extent, digest, is_in_journal)
    }

    fn note(
        &self,
        state: &mut State,
        extent: Extent,
        digest: Digest,
        is_outside_journal: bool,
    ) -> store::Result<Option<bool>> {
        let says_nothing = extent.is_empty() && (extent.start > 0 || !state.held.is_empty());
        if self.is_growing {
            // What overlaps was asked for again in other pieces.
            if !state.held.insert(extent) {
                for gap in state.held.gaps(extent.end) {
                    state.held.insert(Extent::new(gap.start.max(extent.start).min(gap.end), gap.end));
                }
            }
            state.is_dirty = true;
            return Ok(Some(false));
        }
        if state.held.insert(extent) && !says_nothing {
            state.digests.insert(extent.start, digest);
            let appender = state.appender.as_mut().filter(|_| !is_outside_journal);
            let record = appender.map(|appender| appender.extent(extent, &digest));
            match (record, &state.file) {
                (Some(Ok(record)), Some(file)) => file.seal_extent(extent, &record)?,
                (record, Some(file)) => {
                    file.seal_extent(extent, &[])?;
                    // A journal that is full stops helping; the transfer goes on.
                    if record.is_some() {
                        state.appender = None;
                    }
                }
                (_, None) => {}
            }
            state.is_dirty = true;
        }
        let Some(size) = state.feeders.sealed_bytes() else { return Ok(Some(false)) };
        if mutant::is_on("complete-with-the-seal") {
            state.complete_bytes = Some(size);
            return Ok(Some(true));
        }
        if !state.held.covers(size) {
            return Ok(Some(false));
        }
        let chunks = size.div_ceil(self.chunk_bytes).max(1);
        if self.range().is_some() {
            state.complete_bytes = Some(size);
            return Ok(Some(true));
        }
        if state.held.length() != size || state.digests.len() as u64 != chunks {
            // Only an open-ended object can be sealed so, and only by a peer that lies about its end.
            let why = "its chunks do not make an object of the size it was sealed with";
            return Err(store::Error::of_kind(FailureKind::DigestMismatch, "receive", self.path.clone(), why));
        }
        state.complete_bytes = Some(size);
        Ok(Some(true))
    }

    /// Has the staging share the blocks of its source, in the name of the first lane that comes to it: none has written to it by
    /// then. True when all of the content is there.
    pub fn share(&self, file: &Arc<dyn StagedFile>, source: &dyn SourceFile) -> bool {
        let mut state = self.object.state.lock().unwrap();
        if !state.is_staged_in(file) || state.is_complete() {
            return false;
        }
        if state.is_shared.is_none() {
            let is_shared = file.share_from(source);
            state.is_shared = Some(is_shared);
            if is_shared {
                state.stop_journal(file);
            }
        }
        state.is_shared == Some(true)
    }

    /// Chunks come without a digest: nothing an attempt leaves could be told from damage, so that the next one starts anew.
    pub fn forgo_journal(&self, file: &Arc<dyn StagedFile>) {
        let mut state = self.object.state.lock().unwrap();
        if state.is_staged_in(file) {
            state.stop_journal(file);
        }
    }

    /// Hands out the staging of a complete object, once, with the digest of the whole and its final size. Nothing when it
    /// started over meanwhile, or was given up.
    pub fn take_complete(&self, algorithm: DigestAlgorithm) -> Option<(Arc<dyn StagedFile>, Digest, u64)> {
        let mut state = self.object.state.lock().unwrap();
        let size = state.complete_bytes?;
        let file = state.file.take()?;
        state.taken = Some(Arc::downgrade(&file));
        state.delta_place = None;
        let chunks: Vec<Digest> = state.digests.values().copied().collect();
        Some((file, algorithm.combine(&chunks, self.chunk_bytes, size), size))
    }

    /// Makes what was recorded so far survive a power loss, unless the object is complete: then it is the committer's. When storage
    /// fails, the object starts over before anybody else looks at it: the next sync of the same file would say nothing.
    pub fn checkpoint(&self) -> store::Result<()> {
        if self.is_growing {
            return self.checkpoint_growing();
        }
        let _one = self.object.syncing.lock().unwrap();
        let (file, mark, held) = {
            let mut state = self.object.state.lock().unwrap();
            if state.is_complete() || state.is_discarded {
                return Ok(());
            }
            // What an earlier attempt left may never have been synced.
            let is_due = std::mem::take(&mut state.is_dirty) || state.durable.length() < state.held.length();
            match (&state.file, &state.appender) {
                (Some(file), Some(appender)) if is_due => (file.clone(), appender.mark(), state.held.clone()),
                _ => return Ok(()),
            }
        };
        let synced = file.checkpoint();
        let mut state = self.object.state.lock().unwrap();
        if !state.is_staged_in(&file) {
            return Ok(());
        }
        let record = state.appender.as_mut().and_then(|appender| appender.checkpoint(mark).ok());
        let kept = synced.and_then(|()| record.as_ref().map_or(Ok(()), |record| file.append_journal(record)));
        match kept {
            Ok(()) if record.is_some() => state.durable = held,
            // Full, it stops helping, as in `note`.
            Ok(()) => state.appender = None,
            Err(_) => state.start_over(),
        }
        kept
    }

    /// Waits for a checkpoint that is under way. False when storage failed it: the object starts over.
    pub fn outlasts_checkpoint(&self) -> bool {
        drop(self.object.syncing.lock().unwrap());
        self.is_complete()
    }

    /// This job has no more to do with the object. What is staged is dropped, unless others feed it: nothing of it can be used.
    pub fn discard(&self) {
        let mut state = self.object.state.lock().unwrap();
        state.let_go(self.feeder);
        if state.feeders.count() > 0 || std::mem::replace(&mut state.is_discarded, true) {
            return;
        }
        state.delta_place = None;
        if let Some(file) = state.file.take() {
            file.discard();
        }
    }

    /// Starts over after a failed write or sync or a mismatch: fresh staging, nothing held. False when there is nothing to
    /// start over, because another has done it already, or because the object is complete: then it is the committer's
    /// (`restart_complete`), and no lane's.
    pub fn restart(&self, dead: &Arc<dyn StagedFile>) -> bool {
        let mut state = self.object.state.lock().unwrap();
        let may = !state.is_complete() && state.is_staged_in(dead);
        if may {
            state.start_over();
        }
        may
    }

    /// The same for whoever publishes: what was handed to it as complete, or was not durable, is worth nothing.
    pub fn restart_complete(&self) {
        self.object.state.lock().unwrap().start_over();
    }
}

impl Drop for Large {
    /// What this job was asked for is open to the others. What is read once cannot come again: nobody goes on with it.
    fn drop(&mut self) {
        let Ok(mut state) = self.object.state.lock() else { return };
        state.let_go(self.feeder);
        if self.is_open_ended
            && let Some(file) = state.file.take()
        {
            file.discard();
        }
    }
}

impl State {
    fn start_over(&mut self) {
        if let Some(file) = self.file.take() {
            file.discard();
        }
        let (turns, mut feeders) = (std::mem::take(&mut self.turns), std::mem::take(&mut self.feeders));
        feeders.start_over();
        *self = State { is_discarded: self.is_discarded, turns, feeders, ..State::default() };
    }

    /// Its staging could not be opened: what was read of it on the way is worth nothing.
    fn hold_nothing(&mut self) {
        (self.held, self.digests, self.appender) = Default::default();
        (self.frontier, self.is_left, self.resumed_bytes) = Default::default();
    }

    fn is_complete(&self) -> bool {
        self.complete_bytes.is_some()
    }

    /// Nothing of the object is to be had from this feeder any more.
    fn is_over_for(&self, feeder: u32) -> bool {
        self.is_discarded || self.is_complete() || !self.feeders.is_there(feeder)
    }

    fn let_go(&mut self, feeder: u32) {
        if let Some(extent) = self.feeders.leave(feeder)
            && !self.is_complete()
        {
            self.forget(extent);
        }
    }

    fn forget(&mut self, extent: Extent) {
        self.held.remove(extent);
        self.durable.remove(extent);
        self.digests.remove(&extent.start);
    }

    fn stop_journal(&mut self, file: &Arc<dyn StagedFile>) {
        if self.appender.take().is_some() {
            // Its entries are true but incomplete. A part of it that remains does no harm.
            let _ = file.truncate_journal(0);
        }
    }

    fn is_staged_in(&self, file: &Arc<dyn StagedFile>) -> bool {
        self.file.as_ref().is_some_and(|staged| std::ptr::addr_eq(Arc::as_ptr(staged), Arc::as_ptr(file)))
    }
}

/// Splits what a lane must tell of a write error from what is only its own.
pub fn kind_of(error: &store::Error) -> FailureKind {
    match error.kind {
        FailureKind::Other => FailureKind::WriteError,
        kind => kind,
    }
}

#[cfg(test)]
mod feeding_tests;
#[cfg(test)]
pub(super) mod tests;
