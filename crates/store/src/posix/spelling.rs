//! File systems that take two spellings for one name, as those do that do not tell upper from lower case: what is there
//! under another spelling is another object, which is neither replaced nor taken for the one that is described.
//!
//! Invariants: a directory where case counts costs one look-up in all; where it does not, its names are listed once. In a directory where
//! one was met nothing is removed as not being at the source: it may be what the source calls otherwise.
//!
//! Not here: file systems that spell letters in their own way and tell case apart; what arrives there is seen to be in the
//! way when it is published, in the run that made the other one.

use model::{Name, ObjectId};
use rustix::fs::{AtFlags, Mode, OFlags, RawDir, Stat, openat, statat};
use std::collections::HashSet;
use std::mem::MaybeUninit;
use std::os::fd::BorrowedFd;
use std::sync::Mutex;

/// Names looked at: a directory with more is not searched to its end.
const NAMES_MAX: usize = 65_536;
const LIST_BUFFER_BYTES: usize = 32 << 10;

pub const ANOTHER: &str = "the file system there treats this name as one that already exists (it does not distinguish upper \
                           from lower case, or normalizes letters)";

/// Why a name that was free a moment ago cannot be taken. Only asked after a failure; what it finds changes nothing but
/// the words.
pub fn why_taken(directory: BorrowedFd<'_>, name: &Name) -> &'static str {
    match holds(directory, name) {
        Some(false) => ANOTHER,
        _ => "another writer made this name meanwhile",
    }
}

/// What is known of the directory that was looked at last, and in which directories another spelling was met.
#[derive(Default)]
pub struct Spellings(Mutex<Option<(ObjectId, Spelling)>>, Mutex<HashSet<ObjectId>>);

enum Spelling {
    /// Or the directory has too many names to tell.
    Counts,
    Folds(HashSet<Name>),
}

impl Spellings {
    /// Whether `status`, which the directory gives for the name, is that of an object with another spelling.
    pub fn is_another(&self, parent: ObjectId, directory: BorrowedFd<'_>, name: &Name, status: &Stat) -> bool {
        let mut known = self.0.lock().unwrap();
        if known.as_ref().is_none_or(|(of, _)| *of != parent) {
            *known = look(directory, name, status).map(|spelling| (parent, spelling));
        }
        let is_another = matches!(&*known, Some((_, Spelling::Folds(names))) if !names.contains(name));
        is_another.then(|| self.1.lock().unwrap().insert(parent));
        is_another
    }

    /// Whether another spelling was met in a directory.
    pub fn were_met_in(&self, directory: ObjectId) -> bool {
        self.1.lock().unwrap().contains(&directory)
    }
}

/// Nothing where this name cannot tell.
fn look(directory: BorrowedFd<'_>, name: &Name, status: &Stat) -> Option<Spelling> {
    if !name.as_bytes().iter().any(u8::is_ascii_alphabetic) {
        return None;
    }
    let swap = |letter: &u8| if letter.is_ascii_alphabetic() { letter ^ 0x20 } else { *letter };
    let swapped = Name::new(&name.as_bytes().iter().map(swap).collect::<Vec<u8>>()).ok()?;
    let is_one = statat(directory, swapped.as_c_str(), AtFlags::SYMLINK_NOFOLLOW)
        .is_ok_and(|other| (other.st_dev, other.st_ino) == (status.st_dev, status.st_ino));
    if !is_one {
        return Some(Spelling::Counts);
    }
    let mut names = HashSet::new();
    let listed = list(directory, &mut |found| {
        names.insert(found);
        false
    });
    Some(if listed.is_some() { Spelling::Folds(names) } else { Spelling::Counts })
}

/// Whether the directory lists exactly these bytes; nothing where that is not known.
fn holds(directory: BorrowedFd<'_>, name: &Name) -> Option<bool> {
    let mut is_there = false;
    list(directory, &mut |found| {
        is_there = found == *name;
        is_there
    })?;
    Some(is_there)
}

/// Hands over names until `is_enough` says so. Nothing when there are too many, or they cannot be read.
fn list(directory: BorrowedFd<'_>, is_enough: &mut dyn FnMut(Name) -> bool) -> Option<()> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let listing = openat(directory, c".", flags, Mode::empty()).ok()?;
    let mut buffer = vec![MaybeUninit::uninit(); LIST_BUFFER_BYTES];
    let mut raw = RawDir::new(&listing, &mut buffer);
    for _ in 0..NAMES_MAX {
        match raw.next() {
            Some(Ok(found)) => {
                if Name::new(found.file_name().to_bytes()).is_ok_and(&mut *is_enough) {
                    return Some(());
                }
            }
            Some(Err(_)) => return None,
            None => return Some(()),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;

    #[test]
    fn a_name_that_is_there_is_another_writers_and_one_that_is_not_another_spelling() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("Name"), b"").unwrap();
        let opened = std::fs::File::open(directory.path()).unwrap();
        let why = |name: &[u8]| why_taken(opened.as_fd(), &Name::new(name).unwrap());
        assert_eq!(why(b"Name"), "another writer made this name meanwhile");
        assert!(why(b"name").contains("upper from lower"));
    }

    #[test]
    fn two_names_of_one_file_are_no_spellings_of_each_other() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("readme"), b"").unwrap();
        std::fs::hard_link(directory.path().join("readme"), directory.path().join("README")).unwrap();
        let opened = std::fs::File::open(directory.path()).unwrap();
        let spellings = Spellings::default();
        for name in [&b"readme"[..], b"README"] {
            let name = Name::new(name).unwrap();
            let status = statat(&opened, name.as_c_str(), AtFlags::empty()).unwrap();
            assert!(!spellings.is_another(ObjectId(1), opened.as_fd(), &name, &status));
        }
    }
}
