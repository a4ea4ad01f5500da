//! What of a job goes into the list of what is complete.
//!
//! Invariant: what cannot be listed is not settled: the attempt ends, and the next one finds it there.
//!
//! Not here: what the list looks like (`sealed_list`).

use super::ReceiveJob;
use super::sealed_list::{LINE_BYTES, SealedList};
use super::settle::Published;
use model::{Entry, FailureKind, Kind, ObjectId};
use store::{Durability, Error, Result};
use wire::CloseCode;

/// Said of an object that would be where the list is.
pub const TAKEN: &str = "the list of what is complete has this name (--sealed-list): give the list another one";

impl ReceiveJob {
    /// Once nobody of an earlier attempt writes it any more.
    pub(super) fn open_sealed_list(&self) {
        let Some(name) = &self.options.sealed_list else { return };
        let is_synced = self.durability != Durability::None;
        let opened = self.sink.open_lines(name);
        match opened.and_then(|lines| SealedList::open(lines, self.options.digest, is_synced)) {
            Ok(list) => _ = self.sealed_list.set(list),
            Err(e) => {
                self.cancel(CloseCode::Forbidden, &format!("the list of what is complete cannot be written: {e}"))
            }
        }
    }

    pub(super) fn is_sealed_list(&self, entry: &Entry) -> bool {
        entry.parent == ObjectId::ROOT && self.options.sealed_list.as_ref() == Some(&entry.name)
    }

    /// Lists what was published. False when it could not be listed.
    pub(super) fn list_published(&self, files: &[(Vec<u8>, &Published)]) -> bool {
        let Some(list) = self.sealed_list.get().filter(|_| !files.is_empty()) else { return true };
        let mut lines = files.iter().map(|(path, file)| (&path[..], file.digest, file.size_bytes));
        self.may_list(files.len()) && self.is_listed(list.published(&mut lines))
    }

    /// Lists what was there already.
    pub(super) fn list_found(&self, entry: &Entry) {
        let Some(list) = self.sealed_list.get().filter(|_| entry.kind == Kind::File) else { return };
        let path = self.sink.path(entry);
        let listed = self.sink.open_published(entry).and_then(|file| {
            list.found((&path, entry.size_bytes()), &*file, &|| !self.end.is_set(), &|| self.may_list(1))
        });
        self.is_listed(listed);
    }

    /// Where the sender is gone, its job is not at its end.
    pub(super) fn close_sealed_list(&self) -> Result<()> {
        let list = self.sealed_list.get().filter(|_| self.replayed.get().is_none());
        list.map_or(Ok(()), SealedList::close)
    }

    fn may_list(&self, files: usize) -> bool {
        self.charge_to_the_end(files * LINE_BYTES, "the list of complete files")
    }

    fn is_listed(&self, listed: Result<()>) -> bool {
        let code = |e: &Error| if e.kind == FailureKind::NoSpace { CloseCode::NoSpace } else { CloseCode::Internal };
        listed.inspect_err(|e| self.cancel(code(e), &e.to_string())).is_ok()
    }
}
