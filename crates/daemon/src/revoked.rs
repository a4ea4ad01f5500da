//! Credentials without limits that were revoked: who was let in by one of them is shut out, whatever became of its file.
//!
//! One empty file each, `revoked/ID` below the state directory, made before the credential is taken away and before anybody
//! is removed: whoever is enrolled meanwhile either is seen then or sees the mark. `revoked/unnamed` stands for clients
//! that a release before wrote down without naming their credential: the first revocation shuts all of them out.
//!
//! Not here: limited tickets, whose own file is the mark (`limited`), and clients removed one by one (`removed`).

use crate::error::{Error, Result};
use crate::private_file::{self, Existing};
use crate::trust;
use std::path::{Path, PathBuf};

const UNNAMED: &str = "unnamed";

pub struct RevokedBook {
    directory: PathBuf,
}

impl RevokedBook {
    pub fn new(state_dir: &Path) -> RevokedBook {
        RevokedBook { directory: state_dir.join("revoked") }
    }

    /// Notes that this credential, named by its id, lets nobody in from here on.
    pub fn mark(&self, id: &str) -> Result<()> {
        trust::make_private_directory(&self.directory)?;
        for name in [id, UNNAMED] {
            let path = self.directory.join(name);
            private_file::write(&path, b"", Existing::Replace).map_err(|e| Error::of_file("write", &path, e))?;
        }
        Ok(())
    }

    /// Whether the credential was revoked; of none: whether any was.
    pub fn holds(&self, id: Option<&str>) -> Result<bool> {
        let path = self.directory.join(id.unwrap_or(UNNAMED));
        path.try_exists().map_err(|e| Error::of_file("look for", &path, e))
    }
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
