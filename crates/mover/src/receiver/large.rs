//! Large objects: staged under their own name in chunks that any lane may bring, journaled as they are verified.
//!
//! Invariants:
//! - An extent counts as held only after its digest was compared and its bytes were handed to storage.
//! - One lane at a time writes a chunk, and none one that is held: so nothing writes to an object that is complete.
//! - The object is complete when a sender sealed it (one version of the source was read) and every byte is held; exactly
//!   one caller is told so.

use super::table::Listed;
use super::{ReceiveJob, resume};
use crate::job::End;
use crate::stream::Breaker;
use ledger::extent_log::Appender;
use model::mutant;
use model::{Digest, Entry, Extent, ExtentSet, FailureKind};
use os::sync::{Condvar, Mutex};
use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use store::{PublishRule, SourceFile, StagedFile};

/// Smaller objects are over before a probe is.
pub const PROBED_FILE_BYTES: u64 = 64 << 20;
/// How often a lane that waits for its turn looks whether the job is over.
const TURN_INTERVAL: Duration = Duration::from_millis(100);

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
    state: Mutex<State>,
    turn_ended: Condvar,
}

#[derive(Default)]
struct State {
    /// Extents that lanes are writing.
    turns: Vec<(Extent, Breaker)>,
    file: Option<Arc<dyn StagedFile>>,
    appender: Option<Appender>,
    held: ExtentSet,
    digests: BTreeMap<u64, Digest>,
    /// The size that the sender sealed.
    sealed_bytes: Option<u64>,
    is_complete: bool,
    is_discarded: bool,
    /// Chunks recorded since the last checkpoint.
    is_dirty: bool,
    /// While its staging was opened to take chunks over.
    delta_place: Option<Arc<()>>,
    /// Whether the staging shares its blocks with the source, once that was tried.
    is_shared: Option<bool>,
    resumed_bytes: u64,
    /// Of an object that grows: how far it was put down in the journal, and as what it is to be published, once it was sealed.
    frontier: Option<resume::Frontier>,
    sealed: Option<(Entry, PublishRule)>,
}

impl std::fmt::Debug for Large {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Large({})", self.id)
    }
}

impl Large {
    /// Looks for what an earlier attempt left; staging is otherwise opened when the first chunk comes.
    pub fn new(job: &ReceiveJob, entry: &Entry, rule: PublishRule, end: model::End) -> store::Result<Arc<Large>> {
        let is_growing = end == model::End::Growing;
        let path = job.sink.path(entry);
        let options = &job.options;
        let large = Large {
            id: entry.id.0,
            // Where it ends is known when it is sealed.
            size_bytes: if is_growing { i64::MAX as u64 } else { entry.size_bytes() },
            is_open_ended: end == model::End::ReadOnce,
            is_growing,
            rule,
            spared_bytes: job.footing(entry).map_or(0, |footing| match footing.has_holes {
                true => entry.size_bytes().saturating_sub(footing.allocated_bytes),
                false => 0,
            }),
            chunk_bytes: options.chunk_bytes,
            stem: match is_growing {
                true => resume::stem_of_growing(job.sender, &path, entry, options.digest, options.chunk_bytes),
                false => resume::stem(job.sender, &path, entry, options.digest, options.chunk_bytes),
            },
            path,
            listed: OnceLock::new(),
            state: Mutex::default(),
            turn_ended: Condvar::new(),
        };
        if !large.is_open_ended && job.sink.has_journal(entry, &large.stem) {
            match large.open(job, entry) {
                // Its log could not be written: it is gone, and the object comes whole.
                Err(e) if kind_of(&e) == FailureKind::WriteError => {}
                Err(e) => return Err(e),
                Ok(_) => {}
            }
            crate::progress::count(&job.progress.counters.bytes_resumed, large.held_bytes());
        }
        Ok(Arc::new(large))
    }

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

    /// The staging of the object; `None` after it was discarded, or handed out to be published.
    pub fn file(&self, job: &ReceiveJob) -> store::Result<Option<Arc<dyn StagedFile>>> {
        self.open(job, self.entry())
    }

    /// The same before the object has its place.
    pub fn staging(&self, job: &ReceiveJob, entry: &Entry) -> store::Result<Option<Arc<dyn StagedFile>>> {
        self.open(job, entry)
    }

    fn open(&self, job: &ReceiveJob, entry: &Entry) -> store::Result<Option<Arc<dyn StagedFile>>> {
        let mut state = self.state.lock().unwrap();
        if state.is_discarded || state.is_complete || state.file.is_some() {
            return Ok(state.file.clone());
        }
        let (file, journal) = match self.spared_bytes {
            _ if self.is_growing => job.sink.begin_growing(entry, &self.stem)?,
            0 => job.sink.begin(entry, &self.stem)?,
            _ => job.sink.begin_sparse(entry, &self.stem)?,
        };
        if self.is_growing {
            let options = &job.options;
            let header = resume::header_of_growing(&self.path, entry, options.digest, options.chunk_bytes, job.id);
            let held = resume::open_growing(&*file, &journal, &header, &|| job.end.is_set());
            let (frontier, appender) = held.inspect_err(|_| file.discard())?;
            state.held.insert(Extent::new(0, frontier.end()));
            state.resumed_bytes = frontier.end();
            (state.frontier, state.appender) = (Some(frontier), appender);
        } else if !self.is_open_ended {
            let options = &job.options;
            let header = resume::header(&self.path, entry, options.digest, options.chunk_bytes, job.id);
            let asked = (&header, entry.size_bytes());
            let held = resume::open(&*file, &journal, asked, &|| job.end.is_set()).inspect_err(|_| file.discard())?;
            for (extent, digest) in held.chunks {
                if state.held.insert(extent) {
                    state.digests.insert(extent.start, digest);
                    state.resumed_bytes += extent.length();
                }
            }
            state.appender = held.appender;
        }
        state.file = Some(file.clone());
        Ok(Some(file))
    }

    /// What is missing, or `None` when nothing is held and the object is wanted whole.
    pub fn gaps(&self) -> Option<Vec<Extent>> {
        let state = self.state.lock().unwrap();
        (!state.held.is_empty()).then(|| state.held.gaps(self.size_bytes))
    }

    pub fn held_bytes(&self) -> u64 {
        self.state.lock().unwrap().resumed_bytes
    }

    pub fn keep_place(&self, place: Arc<()>) {
        self.state.lock().unwrap().delta_place = Some(place);
    }

    pub fn holds(&self, extent: Extent) -> bool {
        self.state.lock().unwrap().held.contains(extent)
    }

    /// Records a chunk that was made from what stands at the object's name, before anything of the object came.
    pub fn adopt(&self, file: &Arc<dyn StagedFile>, extent: Extent, digest: Digest) -> store::Result<()> {
        self.record(file, extent, digest, None, false)?;
        self.state.lock().unwrap().resumed_bytes += extent.length();
        Ok(())
    }

    /// Gives up the held chunk at `start`, so that it can come again.
    pub fn forget(&self, start: u64) {
        let mut state = self.state.lock().unwrap();
        state.digests.remove(&start);
        let kept: Vec<_> = state.held.gaps(self.size_bytes);
        let mut held = ExtentSet::new();
        held.insert(Extent::new(0, start));
        debug_assert!(kept.is_empty(), "only a complete object is asked for its last chunk again");
        state.resumed_bytes = start;
        state.held = held;
    }

    /// The right to write a chunk, once no other lane has it. A lane that has it and is waiting for its stream is broken off:
    /// a sender sends a chunk twice only when it has given the first stream up.
    pub fn turn(self: &Arc<Large>, extent: Extent, breaker: &Breaker, end: &End) -> Claimed {
        loop {
            let mut state = self.state.lock().unwrap();
            if state.needs_no(extent, self.is_open_ended) {
                // In the same moment: what is held is held in this staging, and not in one that comes after it.
                return state.file.clone().map_or(Claimed::Nothing, Claimed::Held);
            }
            if end.is_set() {
                return Claimed::Nothing;
            }
            let is_other = |(taken, _): &&(Extent, Breaker)| {
                taken.start == extent.start || taken.start < extent.end && extent.start < taken.end
            };
            match state.turns.iter().find(is_other).map(|(_, breaker)| breaker.clone()) {
                None => {
                    state.turns.push((extent, breaker.clone()));
                    return Claimed::Turn(Turn { large: self.clone(), extent });
                }
                Some(other) => {
                    other();
                    let _ = self.turn_ended.wait_timeout(state, TURN_INTERVAL).unwrap();
                }
            }
        }
    }

    /// Whether the chunk is held with another content.
    pub fn contradicts(&self, extent: Extent, digest: Digest) -> bool {
        let state = self.state.lock().unwrap();
        state.held.contains(extent) && state.digests.get(&extent.start).is_some_and(|held| *held != digest)
    }

    /// Records a verified chunk that was written to `file`; one that is a hole is not put down in the journal, because it costs
    /// less to make again. True for the one caller with whose chunk the object is
    /// complete; nothing when that staging died meanwhile: the chunk is not in the one that came after it.
    pub fn record(
        &self,
        file: &Arc<dyn StagedFile>,
        extent: Extent,
        digest: Digest,
        sealed_bytes: Option<u64>,
        is_hole: bool,
    ) -> store::Result<Option<bool>> {
        let mut state = self.state.lock().unwrap();
        if state.is_discarded || state.is_complete {
            return Ok(Some(false));
        }
        if !state.is_staged_in(file) {
            return Ok(None);
        }
        if let Some(size) = sealed_bytes {
            state.sealed_bytes = Some(size);
        }
        let says_nothing = extent.is_empty() && (extent.start > 0 || !state.held.is_empty());
        if self.is_growing {
            // What overlaps was asked for again in other pieces.
            for gap in state.held.gaps(extent.end) {
                state.held.insert(Extent::new(gap.start.max(extent.start).min(gap.end), gap.end));
            }
            state.is_dirty = true;
            return Ok(Some(false));
        }
        if state.held.insert(extent) && !says_nothing {
            state.digests.insert(extent.start, digest);
            let appender = state.appender.as_mut().filter(|_| !is_hole);
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
        let Some(size) = state.sealed_bytes else { return Ok(Some(false)) };
        if mutant::is_on("complete-with-the-seal") {
            state.is_complete = true;
            return Ok(Some(true));
        }
        if !state.held.covers(size) {
            return Ok(Some(false));
        }
        let chunks = size.div_ceil(self.chunk_bytes).max(1);
        if state.held.length() != size || state.digests.len() as u64 != chunks {
            // Only an open-ended object can be sealed so, and only by a peer that lies about its end.
            let why = "its chunks do not make an object of the size it was sealed with";
            return Err(store::Error::of_kind(FailureKind::DigestMismatch, "receive", self.path.clone(), why));
        }
        state.is_complete = true;
        Ok(Some(true))
    }

    /// Has the staging share the blocks of its source, in the name of the first lane that comes to it: none has written to it by
    /// then. True when all of the content is there.
    pub fn share(&self, file: &Arc<dyn StagedFile>, source: &dyn SourceFile) -> bool {
        let mut state = self.state.lock().unwrap();
        if !state.is_staged_in(file) || state.is_complete {
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
        let mut state = self.state.lock().unwrap();
        if state.is_staged_in(file) {
            state.stop_journal(file);
        }
    }

    /// Hands out the staging of a complete object, once, with the digest of the whole and its final size. Nothing when it
    /// started over meanwhile, or was given up.
    pub fn take_complete(&self, job: &ReceiveJob) -> Option<(Arc<dyn StagedFile>, Digest, u64)> {
        let mut state = self.state.lock().unwrap();
        if !state.is_complete {
            return None;
        }
        let (file, size) = (state.file.take()?, state.sealed_bytes?);
        state.delta_place = None;
        let chunks: Vec<Digest> = state.digests.values().copied().collect();
        Some((file, job.options.digest.combine(&chunks, job.options.chunk_bytes, size), size))
    }

    /// Puts down in the journal how far an object that grows has come, and what the bytes on the way are.
    pub fn note_frontier(&self) -> store::Result<()> {
        let mut state = self.state.lock().unwrap();
        let State { file, appender, frontier, held, .. } = &mut *state;
        let (Some(file), Some(appender), Some(frontier)) = (file, appender, frontier) else { return Ok(()) };
        let end = held.gaps(u64::MAX).first().map_or(u64::MAX, |gap| gap.start);
        if end <= frontier.end() {
            return Ok(());
        }
        let records = frontier.note(&**file, end, appender)?;
        file.append_journal(&records)
    }

    /// The object is to end here, under this name, if what is held is what its source has.
    pub fn seal(&self, entry: Entry, rule: PublishRule) {
        self.state.lock().unwrap().sealed = Some((entry, rule));
    }

    /// Its source went on: whoever compares it starts again with the next seal.
    pub fn unseal(&self) {
        self.state.lock().unwrap().sealed = None;
    }

    /// What is published of it, and how.
    pub fn final_entry(&self) -> (Entry, PublishRule) {
        self.state.lock().unwrap().sealed.clone().unwrap_or_else(|| (self.entry().clone(), self.rule))
    }

    /// The entry that an object which grows was sealed with, once all of it is held.
    pub fn covered(&self) -> Option<Entry> {
        let state = self.state.lock().unwrap();
        let (entry, _) = state.sealed.as_ref()?;
        (!state.is_complete && !state.is_discarded && state.held.covers(entry.size_bytes())).then(|| entry.clone())
    }

    /// Gives up an extent of an object that grows: it comes again.
    pub fn give_up(&self, extent: Extent) {
        let mut state = self.state.lock().unwrap();
        let mut held = ExtentSet::new();
        for kept in state.held.iter() {
            held.insert(Extent::new(kept.start, kept.end.min(extent.start).max(kept.start)));
            held.insert(Extent::new(kept.start.max(extent.end).min(kept.end), kept.end));
        }
        state.held = held;
        // What was put down of it is not true any more.
        if state.frontier.as_ref().is_some_and(|frontier| frontier.end() > extent.start) {
            state.frontier = None;
            if let Some(file) = state.file.clone() {
                state.stop_journal(&file);
            }
        }
    }

    /// What is held of an object that grows is what its source has, chunk by chunk: it can be published. False when it was given
    /// up meanwhile.
    pub fn complete(&self, size_bytes: u64, digests: impl IntoIterator<Item = Digest>) -> bool {
        let mut state = self.state.lock().unwrap();
        if state.is_complete || state.is_discarded || !state.held.covers(size_bytes) {
            return false;
        }
        state.digests = (0..).step_by(self.chunk_bytes as usize).zip(digests).collect();
        (state.sealed_bytes, state.is_complete) = (Some(size_bytes), true);
        true
    }

    /// Makes what was recorded so far survive a power loss.
    pub fn checkpoint(&self) -> store::Result<()> {
        if self.is_growing {
            return self.checkpoint_growing();
        }
        let (file, mark) = {
            let mut state = self.state.lock().unwrap();
            if !std::mem::take(&mut state.is_dirty) || state.is_complete || state.is_discarded {
                return Ok(());
            }
            match (&state.file, &state.appender) {
                (Some(file), Some(appender)) => (file.clone(), appender.mark()),
                _ => return Ok(()),
            }
        };
        file.checkpoint()?;
        let mut state = self.state.lock().unwrap();
        if let Some(Ok(record)) = state.appender.as_mut().map(|appender| appender.checkpoint(mark)) {
            file.append_journal(&record)?;
        }
        Ok(())
    }

    fn checkpoint_growing(&self) -> store::Result<()> {
        let file = {
            let mut state = self.state.lock().unwrap();
            if !std::mem::take(&mut state.is_dirty) || state.is_complete || state.is_discarded {
                return Ok(());
            }
            state.file.clone()
        };
        self.note_frontier()?;
        file.map_or(Ok(()), |file| file.checkpoint())
    }

    /// Drops everything staged: nothing of it can be used.
    pub fn discard(&self) {
        let mut state = self.state.lock().unwrap();
        if std::mem::replace(&mut state.is_discarded, true) {
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
        let mut state = self.state.lock().unwrap();
        let may = !state.is_complete && state.is_staged_in(dead);
        if may {
            state.start_over();
        }
        may
    }

    /// The same for whoever publishes: what was handed to it as complete, or was not durable, is worth nothing.
    pub fn restart_complete(&self) {
        self.state.lock().unwrap().start_over();
    }
}

/// What a lane gets that comes with a chunk.
pub enum Claimed {
    Turn(Turn),
    /// The chunk is in this staging already.
    Held(Arc<dyn StagedFile>),
    /// Nobody wants it.
    Nothing,
}

/// The right to write a chunk. Given back when dropped, which must be after the last write and after the chunk was recorded.
pub struct Turn {
    large: Arc<Large>,
    extent: Extent,
}

impl Drop for Turn {
    fn drop(&mut self) {
        let mut state = self.large.state.lock().unwrap();
        if let Some(at) = state.turns.iter().position(|(extent, _)| *extent == self.extent) {
            state.turns.swap_remove(at);
        }
        drop(state);
        self.large.turn_ended.notify_all();
    }
}

impl State {
    fn start_over(&mut self) {
        if let Some(file) = self.file.take() {
            file.discard();
        }
        let turns = std::mem::take(&mut self.turns);
        *self = State { is_discarded: self.is_discarded, turns, ..State::default() };
    }

    /// Whether a chunk is to be dropped: it is here, or the object needs no more. Of an open-ended object a peer may send
    /// chunks of other lengths: what was verified first is not written over (F010).
    fn needs_no(&self, extent: Extent, is_open_ended: bool) -> bool {
        let is_here = match is_open_ended {
            true => self.held.overlaps(extent),
            false => !extent.is_empty() && self.held.contains(extent),
        };
        self.is_discarded || self.is_complete || is_here
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
mod tests {
    use super::super::zeros::Zeros;
    use super::*;
    use model::DigestAlgorithm;
    use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

    fn large(size_bytes: u64, file: Arc<dyn StagedFile>) -> Arc<Large> {
        Arc::new(Large {
            id: 1,
            size_bytes,
            is_open_ended: false,
            is_growing: false,
            spared_bytes: 0,
            chunk_bytes: 8,
            rule: PublishRule::Replace,
            stem: String::new(),
            path: Vec::new(),
            listed: OnceLock::new(),
            state: Mutex::new(State { file: Some(file), ..State::default() }),
            turn_ended: Condvar::new(),
        })
    }

    #[test]
    fn one_lane_at_a_time_writes_a_chunk_and_the_one_that_waits_for_its_stream_is_broken_off() {
        let file: Arc<dyn StagedFile> = Arc::new(Zeros);
        let large = large(16, file.clone());
        let (broken, end) = (Arc::new(AtomicBool::new(false)), Arc::new(End::default()));
        let told = broken.clone();
        let breaker: Breaker = Arc::new(move || told.store(true, Relaxed));
        let quiet: Breaker = Arc::new(|| {});
        let chunk = Extent::new(0, 8);
        let Claimed::Turn(first) = large.turn(chunk, &breaker, &end) else { panic!("it is free") };
        assert!(matches!(large.turn(Extent::new(8, 16), &quiet, &end), Claimed::Turn(_)), "other chunks are free");
        let (second, second_end) = (large.clone(), end.clone());
        let waiting = std::thread::spawn(move || matches!(second.turn(chunk, &quiet, &second_end), Claimed::Held(_)));
        while !broken.load(Relaxed) {
            std::thread::yield_now();
        }
        // It was all there: the chunk is held when its turn ends, and nobody writes it again.
        large.record(&file, chunk, DigestAlgorithm::Crc64Nvme.of_object(b"x"), None, false).unwrap();
        drop(first);
        assert!(waiting.join().unwrap());
    }

    #[test]
    fn a_chunk_of_staging_that_died_is_not_held_in_the_one_after_it() {
        let [dead, next]: [Arc<dyn StagedFile>; 2] = [Arc::new(Zeros), Arc::new(Zeros)];
        let large = large(16, dead.clone());
        let digest = DigestAlgorithm::Crc64Nvme.of_object(b"x");
        let record =
            |file, start, sealed| large.record(file, Extent::new(start, start + 8), digest, sealed, false).unwrap();
        assert_eq!(record(&dead, 0, None), Some(false));
        assert!(large.restart(&dead));
        assert!(!large.restart(&dead));
        large.state.lock().unwrap().file = Some(next.clone());
        // A lane was in the middle of it when the staging died.
        assert_eq!(record(&dead, 8, Some(16)), None);
        assert_eq!(large.gaps(), None);
        assert_eq!(record(&next, 0, None), Some(false));
        assert_eq!(record(&next, 8, Some(16)), Some(true));
        // A lane does not take back what is being published.
        assert!(!large.restart(&next));
    }
}
