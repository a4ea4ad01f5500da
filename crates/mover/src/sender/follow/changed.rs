//! Files that were complete when they were described, and changed while they were read: in a source that is followed, the thread that
//! follows it describes them again.
//!
//! Invariants:
//! - Until it is described again such a file is open under its earlier id: nothing that is to arrive after it overtakes it.
//! - What the watch tells of it next replaces what was described of it last. No content that was read earlier comes later.
//! - As long as the source is watched, none fails because it changed: each time it is tried again after a longer pause. After that it is
//!   tried as often as in any copy.
//!
//! Not here: how a change is noticed (`send`), and what becomes of a file of which the watch tells (`follow`).

use super::Following;
use super::again::{PAUSE_FIRST, PAUSE_MAX};
use crate::limits::TRIES_MAX;
use crate::sender::SendJob;
use model::FailureKind;
use os::time::Instant;
use std::time::Duration;
use store::SourceObject;

/// So many may be left to one thread. They take room for descriptions, and it may be waiting for that.
const CHANGED_MAX: usize = 1024;

fn pause_after(tries: u32) -> Duration {
    match tries {
        0 => Duration::ZERO,
        _ => (PAUSE_FIRST * 2_u32.pow((tries - 1).min(6))).min(PAUSE_MAX),
    }
}

impl SendJob {
    /// Leaves an object that changed while it was read to the thread that follows the source. False where there is none, or enough
    /// waits for it.
    pub(crate) fn leave_to_follower(&self, id: u64) -> bool {
        let mut book = self.book.lock().unwrap();
        let due = Instant::now() + pause_after(book.tries.get(&id).copied().unwrap_or(0));
        let Some(changed) = book.changed.as_mut().filter(|changed| changed.len() < CHANGED_MAX) else { return false };
        changed.entry(id).or_insert(due);
        book.files.remove(&id);
        book.split.stop_claims(id);
        true
    }
}

impl Following<'_> {
    /// Describes again what changed while it was read, once its pause is over, unless the watch has told of it meanwhile.
    pub(super) fn look_at_changed(&mut self) {
        let (now, mut due) = (Instant::now(), Vec::new());
        let mut book = self.job.book.lock().unwrap();
        let Some(mut changed) = book.changed.take() else { return };
        changed.retain(|id, at| {
            let (is_open, is_due) = (!book.split.is_settled(*id), self.is_over || *at <= now);
            if is_open && is_due {
                due.extend(book.split.object(*id));
            }
            is_open && !is_due
        });
        book.changed = Some(changed);
        drop(book);
        due.iter().for_each(|object| self.describe_changed(object));
    }

    fn describe_changed(&mut self, object: &SourceObject) {
        let (job, id) = (self.job, object.entry.id);
        let number = self.resting.iter().find(|(_, known)| **known == id).map(|(number, _)| *number);
        // The watch knows it by another name by now, or not any more.
        let Some(number) = number else { return job.describe_changed(object) };
        let tries = job.book.lock().unwrap().tries.get(&id.0).copied().unwrap_or(0) + 1;
        if self.is_over && tries >= TRIES_MAX {
            let message = format!("the file changed while it was read, {tries} times");
            return job.source_failed(object, FailureKind::Changed, message);
        }
        match job.source.look_again(object) {
            Ok(again) => self.describe_again(number, again, None),
            Err(e) => return job.source_failed(object, e.kind, e.message()),
        }
        if let Some(id) = self.id_of(number) {
            job.book.lock().unwrap().tries.insert(id.0, tries);
        }
    }

    /// This thread describes nothing more: what changes is described again by whoever reads it.
    pub(super) fn hand_back_changed(&self) {
        let mut book = self.job.book.lock().unwrap();
        let changed = book.changed.take().unwrap_or_default();
        let open = changed.into_keys().filter(|id| !book.split.is_settled(*id));
        let open: Vec<_> = open.filter_map(|id| book.split.object(id)).collect();
        drop(book);
        open.iter().for_each(|object| self.job.describe_changed(object));
    }
}

#[cfg(test)]
mod tests;
