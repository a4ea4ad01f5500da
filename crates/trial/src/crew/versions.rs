//! Files of which each shows one version after the other, looked at while they are replaced.
//!
//! Invariant: a file is of one version as a whole, and never of an older one than it was before.

use anyhow::{Context, Result};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// What a destination had before, what the source has, and what the destination's owner makes of it later.
pub const OLD: u8 = 1;
pub const NEW: u8 = 2;
pub const OWNERS: u8 = 3;
const FILES: usize = 8;
const BYTES: usize = 64;

pub struct Watch {
    root: PathBuf,
    newest: [u8; FILES],
    pub broken: Option<String>,
}

impl Watch {
    /// Of files that are old.
    pub fn begin(root: &Path) -> Watch {
        Watch { root: root.to_owned(), newest: [OLD; FILES], broken: None }
    }

    pub fn look(&mut self) {
        for (number, newest) in self.newest.iter_mut().enumerate() {
            let seen = fs::read(path(&self.root, number)).ok().and_then(|bytes| version_of(&bytes));
            match seen {
                Some(version) if version >= *newest => *newest = version,
                _ => {
                    let why = || format!("I4: file {number} was of version {newest} and is of {seen:?}");
                    self.broken.get_or_insert_with(why);
                }
            }
        }
    }
}

/// Writes all of the files in place, each with the time of its version.
pub fn put(root: &Path, version: u8) -> Result<()> {
    fs::create_dir_all(root.join("versions")).with_context(|| format!("make {}", root.display()))?;
    let modified = SystemTime::UNIX_EPOCH + Duration::from_secs(1_600_000_000 + u64::from(version));
    for number in 0..FILES {
        let path = path(root, number);
        let written = fs::write(&path, [version; BYTES]);
        let written = written.and_then(|()| File::options().write(true).open(&path)?.set_modified(modified));
        written.with_context(|| format!("write {}", path.display()))?;
    }
    Ok(())
}

fn path(root: &Path, number: usize) -> PathBuf {
    root.join("versions").join(number.to_string())
}

/// None: it is not one version as a whole.
fn version_of(bytes: &[u8]) -> Option<u8> {
    bytes.first().copied().filter(|version| bytes == [*version; BYTES])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_goes_back_to_an_older_version_or_is_half_of_one_is_noticed() {
        let dir = tempfile::tempdir().unwrap();
        put(dir.path(), OLD).unwrap();
        let mut watch = Watch::begin(dir.path());
        watch.look();
        put(dir.path(), NEW).unwrap();
        watch.look();
        assert_eq!((watch.newest, &watch.broken), ([NEW; FILES], &None));
        put(dir.path(), OLD).unwrap();
        watch.look();
        assert!(watch.broken.unwrap().starts_with("I4: file 0 was of version 2"));
        fs::write(path(dir.path(), 3), [NEW; BYTES / 2]).unwrap();
        let mut watch = Watch::begin(dir.path());
        watch.look();
        assert!(watch.broken.unwrap().starts_with("I4: file 3"));
    }
}
