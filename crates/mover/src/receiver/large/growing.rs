//! Large objects that are written while they come: how far each was put down in its journal, and the seal that says where it
//! ends.
//!
//! Invariant: what is put down of such an object is held from its start without a gap.
//!
//! Not here: the comparison that precedes its publication (`receiver::seal`).

use super::{Large, State};
use model::{Digest, Entry, Extent, Generation, mutant};
use store::PublishRule;

/// Pieces of an object that are held apart from one another. Fragments overtake one another, and what lies between two pieces is
/// under way on a slower stream: so many need a writer that appends a few bytes at a time, and streams that stand still for
/// seconds while others go on. Whoever meets it loses nothing: what would be one piece more is asked for again.
const PIECES_MAX: usize = 65_536;

impl Large {
    /// Puts down in the journal how far an object that grows has come, and what the bytes on the way are.
    pub fn note_frontier(&self) -> store::Result<()> {
        let mut state = self.object.state.lock().unwrap();
        let State { file, appender, frontier, held, .. } = &mut *state;
        let (Some(file), Some(appender), Some(frontier)) = (file, appender, frontier) else { return Ok(()) };
        let end = held.gaps(u64::MAX).first().map_or(u64::MAX, |gap| gap.start);
        if end <= frontier.end() {
            return Ok(());
        }
        let records = frontier.note(&**file, end, appender)?;
        file.append_journal(&records)
    }

    /// The object is to end here, under this name, if what is held is what its source has. One that is complete was compared as it
    /// was sealed before, and is published as that.
    pub fn seal(&self, entry: Entry, rule: PublishRule, is_append_only: bool) {
        let mut state = self.object.state.lock().unwrap();
        if state.is_complete() {
            return;
        }
        (state.sealed, state.is_append_only) = (Some((entry, rule)), is_append_only);
    }

    /// What is held is not what its source has, whatever was promised: all of it is to be compared. Returns how often that was found
    /// of this version, which is forgotten with the object.
    pub fn distrust(&self, version: Generation) -> u32 {
        let mut state = self.object.state.lock().unwrap();
        let before = state.found_changed.filter(|(sealed, _)| *sealed == version).map_or(0, |(_, rounds)| rounds);
        (state.found_changed, state.is_append_only) = (Some((version, before + 1)), false);
        before + 1
    }

    /// Of its chunks only the first and the last are to be compared.
    pub fn is_append_only(&self) -> bool {
        self.object.state.lock().unwrap().is_append_only
    }

    /// Its source went on: whoever compares it starts again with the next seal.
    pub fn unseal(&self) {
        self.object.state.lock().unwrap().sealed = None;
    }

    /// What is published of it, and how.
    pub fn final_entry(&self) -> (Entry, PublishRule) {
        self.object.state.lock().unwrap().sealed.clone().unwrap_or_else(|| (self.entry().clone(), self.rule))
    }

    /// The entry that an object which grows was sealed with, once all of it is held.
    pub fn covered(&self) -> Option<Entry> {
        let state = self.object.state.lock().unwrap();
        let (entry, _) = state.sealed.as_ref()?;
        (!state.is_complete() && !state.is_discarded && state.held.covers(entry.size_bytes())).then(|| entry.clone())
    }

    /// Whether a fragment would be one piece more than may be held apart.
    pub fn is_too_scattered(&self, extent: Extent) -> bool {
        let state = self.object.state.lock().unwrap();
        let around = Extent::new(extent.start.saturating_sub(1), extent.end.saturating_add(1));
        state.held.iter().count() >= PIECES_MAX && !state.held.overlaps(around)
    }

    /// Gives up an extent of an object that grows: it comes again.
    pub fn give_up(&self, extent: Extent) {
        let mut state = self.object.state.lock().unwrap();
        state.held.remove(extent);
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
        let mut state = self.object.state.lock().unwrap();
        if state.is_complete() || state.is_discarded || !state.held.covers(size_bytes) {
            return false;
        }
        state.digests = (0..).step_by(self.chunk_bytes as usize).zip(digests).collect();
        state.complete_bytes = Some(size_bytes);
        true
    }

    pub(super) fn checkpoint_growing(&self) -> store::Result<()> {
        let file = {
            let mut state = self.object.state.lock().unwrap();
            if !std::mem::take(&mut state.is_dirty) || state.is_complete() || state.is_discarded {
                return Ok(());
            }
            state.file.clone()
        };
        self.note_frontier()?;
        file.map_or(Ok(()), |file| file.checkpoint())
    }

    /// Leaves what there is of an object that grows to the next attempt. What cannot be put down of it comes again.
    pub fn leave(&self) {
        let is_durable = self.checkpoint_growing().is_ok() || mutant::is_on("keep-what-was-not-synced");
        let mut state = self.object.state.lock().unwrap();
        state.let_go(self.feeder);
        if state.feeders.count() == 0 {
            state.is_discarded = true;
            // After a failed sync the next one says nothing: what is staged can be read, and may be lost all the same.
            if let Some(file) = state.file.take().filter(|_| !is_durable) {
                file.discard();
            }
        }
    }
}
