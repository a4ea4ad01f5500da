//! Why a name that was free a moment ago cannot be taken: another writer was first, or the file system takes two
//! spellings for one name.
//!
//! Only asked after a failure; what it finds changes nothing but the words.

use model::Name;
use rustix::fs::{Mode, OFlags, RawDir, openat};
use std::mem::MaybeUninit;
use std::os::fd::BorrowedFd;

/// Names looked at: a directory with more is not searched to its end.
const NAMES_MAX: usize = 65_536;
const LIST_BUFFER_BYTES: usize = 32 << 10;

pub fn why(directory: BorrowedFd<'_>, name: &Name) -> &'static str {
    match holds(directory, name) {
        Some(false) => {
            "the file system there takes this name for one that is there already (it does not tell upper from lower \
             case, or spells letters in its own way)"
        }
        _ => "another writer made this name meanwhile",
    }
}

/// Whether the directory lists exactly these bytes; nothing where that is not known.
fn holds(directory: BorrowedFd<'_>, name: &Name) -> Option<bool> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let listing = openat(directory, c".", flags, Mode::empty()).ok()?;
    let mut buffer = vec![MaybeUninit::uninit(); LIST_BUFFER_BYTES];
    let mut raw = RawDir::new(&listing, &mut buffer);
    for _ in 0..NAMES_MAX {
        match raw.next() {
            Some(Ok(found)) if found.file_name() == name.as_c_str() => return Some(true),
            Some(Ok(_)) => {}
            Some(Err(_)) => return None,
            None => return Some(false),
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
        let why = |name: &[u8]| why(opened.as_fd(), &Name::new(name).unwrap());
        assert_eq!(why(b"Name"), "another writer made this name meanwhile");
        assert!(why(b"name").contains("upper from lower"));
    }
}
