//! Credentials without limits that were revoked: who was let in by one of them is shut out, whatever became of its file.
//!
//! One empty file each, `revoked/ID` below the state directory, made before the credential is taken away and before anybody
//! is removed: whoever is enrolled meanwhile either is seen then or sees the mark. `revoked/unnamed` stands for clients
//! that a release before wrote down without naming their credential: the first revocation shuts all of them out.
//!
//! Not here: limited tickets, whose own file is the mark (`limited`), and clients removed one by one (`removed`).

use crate::error::Result;
use crate::records::Records;

const UNNAMED: &str = "unnamed";

pub struct RevokedBook {
    records: Records,
}

impl RevokedBook {
    pub fn new(records: impl Into<Records>) -> RevokedBook {
        RevokedBook { records: records.into() }
    }

    /// Notes that this credential, named by its id, lets nobody in from here on.
    pub fn mark(&self, id: &str) -> Result<()> {
        [id, UNNAMED].iter().try_for_each(|name| self.records.put(&key(name), b""))
    }

    /// Whether the credential was revoked; of none: whether any was.
    pub fn holds(&self, id: Option<&str>) -> Result<bool> {
        self.records.has(&key(id.unwrap_or(UNNAMED)))
    }
}

fn key(id: &str) -> String {
    format!("revoked/{id}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_holds_for_its_credential_and_for_those_who_named_none() {
        let dir = tempfile::tempdir().unwrap();
        let book = RevokedBook::new(dir.path());
        assert!(!book.holds(None).unwrap() && !book.holds(Some("0123456789")).unwrap());
        book.mark("0123456789").unwrap();
        assert!(book.holds(None).unwrap() && book.holds(Some("0123456789")).unwrap());
        assert!(!book.holds(Some("abcdef0123")).unwrap());
        // What cannot be looked at is no permission.
        std::fs::remove_dir_all(dir.path().join("revoked")).unwrap();
        std::os::unix::fs::symlink("revoked", dir.path().join("revoked")).unwrap();
        assert!(book.holds(None).is_err());
    }
}
