//! The directories that a source has listed, by number: lanes and reports find them again here.
//!
//! A server decides how many there are. Each is kept as its name and the number of the one above it, so that deep paths take no
//! more room than short ones, and all of them within `BYTES_MAX`.

use crate::{DirectoryKey, Error, Result};
use model::FailureKind;
use std::sync::Mutex;

/// What one source may remember: some four million directories with names of usual length.
const BYTES_MAX: usize = 256 << 20;
/// Of a directory, beside its name.
const EACH_BYTES: usize = 48;

pub struct Directories {
    known: Mutex<Known>,
    bytes_max: usize,
}

#[derive(Default)]
struct Known {
    by_number: Vec<Directory>,
    bytes: usize,
}

struct Directory {
    /// The one that it lies in; `None` for one that a scan begins in.
    above: Option<u64>,
    /// Its own name, or the path to where a scan begins, which reports leave out; a slash ends it, unless it is empty.
    part: Box<[u8]>,
}

impl Default for Directories {
    fn default() -> Directories {
        Directories { known: Mutex::default(), bytes_max: BYTES_MAX }
    }
}

impl Directories {
    /// Remembers a directory: below another one, by its name; or else by its path.
    ///
    /// # Errors
    /// There are too many.
    pub fn enter(&self, above: Option<DirectoryKey>, name: &[u8]) -> Result<DirectoryKey> {
        let mut known = self.known.lock().unwrap();
        let bytes = known.bytes + name.len() + EACH_BYTES;
        if bytes > self.bytes_max {
            let why = format!(
                "the source has more directories than can be remembered ({} of them are): copy it in parts",
                known.by_number.len()
            );
            return Err(Error::of_kind(FailureKind::Other, "list", name, &why));
        }
        let is_ended = name.is_empty() || name.ends_with(b"/");
        let part = if is_ended { name.to_vec() } else { [name, b"/"].concat() };
        let number = known.by_number.len() as u64;
        known.bytes = bytes;
        known.by_number.push(Directory { above: above.map(|above| above.0), part: part.into() });
        Ok(DirectoryKey(number))
    }

    /// The path of a directory, with a slash behind it unless it is empty.
    pub fn path(&self, key: DirectoryKey) -> Vec<u8> {
        self.joined(key, true)
    }

    /// The same from where the scan began.
    pub fn shown(&self, key: DirectoryKey) -> Vec<u8> {
        self.joined(key, false)
    }

    fn joined(&self, key: DirectoryKey, with_base: bool) -> Vec<u8> {
        let known = self.known.lock().unwrap();
        let (mut parts, mut next) = (Vec::new(), Some(key.0));
        while let Some(directory) = next.and_then(|number| known.by_number.get(number as usize)) {
            next = directory.above;
            if with_base || next.is_some() {
                parts.push(&directory.part);
            }
        }
        parts.into_iter().rev().flat_map(|part| part.iter().copied()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_put_together_again_and_reports_begin_where_the_scan_did() {
        let directories = Directories::default();
        let base = directories.enter(None, b"/srv/data").unwrap();
        let deep = directories.enter(Some(directories.enter(Some(base), b"a").unwrap()), b"b").unwrap();
        assert_eq!((directories.path(base), directories.shown(base)), (b"/srv/data/".to_vec(), Vec::new()));
        assert_eq!((directories.path(deep), directories.shown(deep)), (b"/srv/data/a/b/".to_vec(), b"a/b/".to_vec()));
        assert_eq!(directories.path(directories.enter(None, b"").unwrap()), b"");
    }

    #[test]
    fn a_source_without_end_is_refused_at_a_bound_of_bytes() {
        let directories = Directories { bytes_max: 10_000, ..Directories::default() };
        let mut above = directories.enter(None, b"/").unwrap();
        let refused = (0..1000).find_map(|_| match directories.enter(Some(above), &[b'x'; 200]) {
            Ok(key) => {
                above = key;
                None
            }
            Err(error) => Some(error.message()),
        });
        assert!(
            refused.unwrap().contains("more directories than can be remembered (41 of them are): copy it in parts")
        );
    }
}
