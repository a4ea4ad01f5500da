//! Clients removed one by one: tickets that existed then no longer admit them.
//!
//! One file each, `struck/PIN` below the state directory, with the ids of those tickets, one a line. Ids and not times: they
//! hold whatever the clock does. A ticket that is made later is not among them.
//!
//! Not here: removing them (`issue`), what an id is (`limited`).

use crate::error::Result;
use crate::records::Records;
use model::Pin;

/// More than all tickets of a state directory take.
const FILE_BYTES_MAX: u64 = 4 << 20;

pub struct RemovedClients {
    records: Records,
}

impl RemovedClients {
    pub fn new(records: impl Into<Records>) -> RemovedClients {
        RemovedClients { records: records.into() }
    }

    /// Notes that these tickets, which are all there are, enrol the client no more.
    pub fn mark(&self, pin: Pin, tickets: &[String]) -> Result<()> {
        let lines: String = tickets.iter().map(|id| format!("{id}\n")).collect();
        self.records.put(&key(pin), lines.as_bytes())
    }

    /// Whether the client was removed when this ticket was there already.
    pub fn forbids(&self, pin: Pin, ticket: &str) -> Result<bool> {
        let bytes = self.records.get(&key(pin), FILE_BYTES_MAX, false)?.unwrap_or_default();
        Ok(String::from_utf8_lossy(&bytes).lines().any(|id| id == ticket))
    }
}

pub fn key(pin: Pin) -> String {
    format!("struck/{pin}")
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
