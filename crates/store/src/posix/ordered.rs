//! A walk in the order of keys: a directory stands among its neighbours as its name with a slash, and what is in it follows at once.
//!
//! Invariant: at most `2 * NAMES_MAX` names of a directory are held; a larger one is read again for each `NAMES_MAX` of them.

use super::list::{Pending, Visitor, Walk};
use crate::{Error, keys};
use model::Name;
use rustix::fs::{AtFlags, FileType, Mode, OFlags, RawDir, openat, statat};
use rustix::io::Errno;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

/// Names that one reading of a directory gives.
const NAMES_MAX: usize = 1 << 18;
const LIST_BUFFER_BYTES: usize = 64 << 10;

/// A directory on the way to where the walk is.
struct Level {
    at: Pending,
    /// Of the innermost one alone, so that depth takes no descriptors.
    directory: Option<Arc<OwnedFd>>,
    names: std::vec::IntoIter<(String, Name)>,
    /// The last key of those names, where there are more behind it.
    more_after: Option<String>,
}

impl Walk<'_> {
    /// Goes through a directory and everything below it. `forgets`: nobody opens a directory later. False when the visitor asked
    /// to stop.
    pub fn in_order(&mut self, base: Pending, forgets: bool, visitor: &mut dyn Visitor) -> bool {
        let mut levels = Vec::new();
        if !self.enter(base, &mut levels, visitor) {
            return false;
        }
        while let Some(level) = levels.last_mut() {
            let Some((_, name)) = level.names.next() else {
                if let Some(last) = level.more_after.take() {
                    if !self.read(level, Some(&last), visitor) {
                        return false;
                    }
                    continue;
                }
                let left = levels.pop().expect("it is the last one");
                if forgets && !levels.is_empty() {
                    self.tree.forget(left.at.key.0);
                }
                continue;
            };
            let directory = match &level.directory {
                Some(directory) => directory.clone(),
                None => match self.tree.open(level.at.key.0) {
                    Ok(opened) => level.directory.insert(opened).clone(),
                    Err(e) => {
                        let failed = self.failed(&level.at, b"", Error::new("open directory", b"", e));
                        (level.names, level.more_after) = (Vec::new().into_iter(), None);
                        if !visitor.found(failed) {
                            return false;
                        }
                        continue;
                    }
                },
            };
            let mut below = Vec::new();
            let goes_on = match statat(&directory, name.as_c_str(), AtFlags::SYMLINK_NOFOLLOW) {
                // Gone between listing and looking: it was never part of this copy.
                Err(Errno::NOENT) => true,
                Err(e) => visitor.found(self.failed(&level.at, name.as_bytes(), Error::new("look at", b"", e))),
                Ok(status) => self.visit(&level.at, directory.as_fd(), (&name, &status), &mut below, visitor),
            };
            if !goes_on {
                return false;
            }
            if let Some(below) = below.pop() {
                level.directory = None;
                if !self.enter(below, &mut levels, visitor) {
                    return false;
                }
            }
        }
        true
    }

    fn enter(&self, at: Pending, levels: &mut Vec<Level>, visitor: &mut dyn Visitor) -> bool {
        let mut level = Level { at, directory: None, names: Vec::new().into_iter(), more_after: None };
        let goes_on = self.read(&mut level, None, visitor);
        levels.push(level);
        goes_on
    }

    /// Reads the names of a directory that come behind a key.
    fn read(&self, level: &mut Level, after: Option<&str>, visitor: &mut dyn Visitor) -> bool {
        let read = self.tree.open(level.at.key.0).and_then(|directory| {
            let (names, is_whole) = names_after(directory.as_fd(), after, NAMES_MAX)?;
            level.more_after = names.last().filter(|_| !is_whole).map(|(key, _)| key.clone());
            level.names = names.into_iter();
            level.directory = Some(directory);
            Ok(())
        });
        match read {
            Ok(()) => true,
            Err(e) => visitor.found(self.failed(&level.at, b"", Error::new("read directory", b"", e))),
        }
    }
}

/// The first names of a directory behind a key, in the order of keys; true when these are all.
fn names_after(
    directory: BorrowedFd<'_>,
    after: Option<&str>,
    names_max: usize,
) -> std::io::Result<(Vec<(String, Name)>, bool)> {
    // A descriptor of its own: the offset of a shared one belongs to someone else.
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let listing = openat(directory, c".", flags, Mode::empty())?;
    let mut buffer = vec![MaybeUninit::uninit(); LIST_BUFFER_BYTES];
    let mut raw = RawDir::new(&listing, &mut buffer);
    let (mut names, mut is_whole): (Vec<(String, Name)>, bool) = (Vec::new(), true);
    let mut bound: Option<String> = None;
    while let Some(found) = raw.next().transpose()? {
        let Ok(name) = Name::new(found.file_name().to_bytes()) else { continue };
        let is_directory = match found.file_type() {
            FileType::Unknown => statat(&listing, name.as_c_str(), AtFlags::SYMLINK_NOFOLLOW)
                .is_ok_and(|status| FileType::from_raw_mode(status.st_mode).is_dir()),
            known => known.is_dir(),
        };
        let mut key = keys::of_name(name.as_bytes());
        if is_directory {
            key.push('/');
        }
        if after.is_some_and(|after| key.as_str() <= after) || bound.as_ref().is_some_and(|bound| key > *bound) {
            continue;
        }
        names.push((key, name));
        if names.len() == 2 * names_max {
            names.sort_unstable();
            names.truncate(names_max);
            bound = names.last().map(|(key, _)| key.clone());
            is_whole = false;
        }
    }
    names.sort_unstable();
    if names.len() > names_max {
        names.truncate(names_max);
        is_whole = false;
    }
    Ok((names, is_whole))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::posix::{PosixSource, beneath};
    use crate::{Found, Source};
    use model::Kind;

    #[test]
    fn a_directory_stands_where_its_keys_do_and_its_content_follows_at_once() {
        let dir = tempfile::tempdir().unwrap();
        for directory in ["a", "b/c/d", "e"] {
            std::fs::create_dir_all(dir.path().join(directory)).unwrap();
        }
        for file in ["a-", "a.txt", "a0", "a/x", "b/c/d/1", "b/c/2", "b/a", "z"] {
            std::fs::write(dir.path().join(file), "").unwrap();
        }
        let mut source = PosixSource::new();
        source.add_local(&[dir.path().as_os_str().as_encoded_bytes(), b"/"].concat()).unwrap();
        assert!(source.sort_by_key());
        let mut keys = Vec::new();
        let scan = source.scan(&mut |found| {
            let Found::Object(object) = found else { panic!("{found:?}") };
            let mut key = String::from_utf8(source.path(&object)).unwrap();
            if object.entry.kind == Kind::Directory {
                key.push('/');
            }
            keys.push(key);
            true
        });
        scan.unwrap();
        let expected = ["a-", "a.txt", "a/", "a/x", "a0", "b/", "b/a", "b/c/", "b/c/2", "b/c/d/", "b/c/d/1", "e/", "z"];
        assert_eq!(keys, expected);
        assert!(keys.is_sorted());
    }

    #[test]
    fn a_large_directory_comes_in_pieces_that_leave_nothing_out() {
        let dir = tempfile::tempdir().unwrap();
        for number in 0..100 {
            std::fs::write(dir.path().join(format!("f{number}")), "").unwrap();
        }
        let directory = beneath::open_directory(dir.path()).unwrap();
        let (mut all, mut after) = (Vec::new(), None);
        loop {
            let (names, is_whole) = names_after(directory.as_fd(), after.as_deref(), 7).unwrap();
            after = names.last().map(|(key, _)| key.clone());
            all.extend(names.into_iter().map(|(key, _)| key));
            if is_whole {
                break;
            }
        }
        assert_eq!(all.len(), 100);
        assert!(all.is_sorted());
    }
}
