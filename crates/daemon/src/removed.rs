//! Clients that were removed one by one: the tickets that were there at that time let them in no more.
//!
//! One file each, `struck/PIN` below the state directory, with the ids of those tickets, one a line. Ids and not times: they
//! hold whatever the clock does. A ticket that is made later is not among them.
//!
//! Not here: removing them (`issue`), what an id is (`limited`).

use crate::error::{Error, Result};
use crate::private_file::{self, Existing};
use crate::trust;
use model::Pin;
use std::path::{Path, PathBuf};

/// More than all tickets of a state directory take.
const FILE_BYTES_MAX: u64 = 4 << 20;

pub struct RemovedClients {
    directory: PathBuf,
}

impl RemovedClients {
    pub fn new(state_dir: &Path) -> RemovedClients {
        RemovedClients { directory: state_dir.join("struck") }
    }

    /// Notes that these tickets, which are all there are, enrol the client no more.
    pub fn mark(&self, pin: Pin, tickets: &[String]) -> Result<()> {
        trust::make_private_directory(&self.directory)?;
        let path = self.path(pin);
        let lines: String = tickets.iter().map(|id| format!("{id}\n")).collect();
        private_file::write(&path, lines.as_bytes(), Existing::Replace).map_err(|e| Error::of_file("write", &path, e))
    }

    /// Whether the client was removed when this ticket was there already.
    pub fn forbids(&self, pin: Pin, ticket: &str) -> Result<bool> {
        let bytes = private_file::read(&self.path(pin), FILE_BYTES_MAX, false)?.unwrap_or_default();
        Ok(String::from_utf8_lossy(&bytes).lines().any(|id| id == ticket))
    }

    fn path(&self, pin: Pin) -> PathBuf {
        self.directory.join(pin.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_holds_for_the_tickets_that_were_there_and_for_its_client() {
        let dir = tempfile::tempdir().unwrap();
        let book = RemovedClients::new(dir.path());
        let pin = Pin([1; 32]);
        assert!(!book.forbids(pin, "0123456789").unwrap());
        book.mark(pin, &["0123456789".into(), "abcdef0123".into()]).unwrap();
        assert!(book.forbids(pin, "abcdef0123").unwrap() && book.forbids(pin, "0123456789").unwrap());
        assert!(!book.forbids(pin, "0123456780").unwrap() && !book.forbids(Pin([2; 32]), "0123456789").unwrap());
        book.mark(pin, &[]).unwrap();
        assert!(!book.forbids(pin, "abcdef0123").unwrap());
    }
}
