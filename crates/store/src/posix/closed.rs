//! Sets whose publisher named their readers, below the root of an endpoint: whether a client may enter a directory.
//!
//! Invariants:
//! - A directory with a note (`.thalweg-set/note`) is a set, whatever signed it. Everything below belongs to it, other sets included.
//! - What cannot be read for certain is closed: only where there is no note at all everybody may enter.
//! - What is judged is the directory that is open, and those above it by `..`: renaming changes nothing of the answer.
//!
//! Not here: where directories are opened (`beneath`), what a note says (`model::set`).

use model::set::signed::NOTE_BYTES_MAX;
use model::set::{DIRECTORY, NOTE, Note, Signed};
use model::{Name, Pin, mutant};
use rustix::fs::{Mode, OFlags, ResolveFlags, fstat, openat, openat2};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;

/// A link with `..` in it is not resolved while anything on the machine is renamed, because the kernel cannot tell then
/// whether it stayed below; the caller tries again (openat2(2)). The kernel's own test of this needs a few tries.
pub(super) const RESOLVE_TRIES_MAX: u32 = 128;

/// Directories between one that was opened and the root: more than a path has names.
const LEVELS_MAX: usize = 4096;
const NOTE_FILE: OFlags =
    OFlags::RDONLY.union(OFlags::NOFOLLOW).union(OFlags::NONBLOCK).union(OFlags::CLOEXEC).union(OFlags::NOCTTY);

/// Why a directory is not entered.
#[derive(Debug)]
struct Closed(String);

impl fmt::Display for Closed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Closed {}

/// Whether this is the error of a set that is closed to the client, whose text says what to do.
pub fn is_closed(e: &io::Error) -> bool {
    e.get_ref().is_some_and(|inner| inner.is::<Closed>())
}

fn closed(why: String) -> io::Error {
    io::Error::new(io::ErrorKind::PermissionDenied, Closed(why))
}

fn unreadable(why: &str) -> io::Error {
    closed(format!(
        "a set lies there whose note cannot be read ({why}), so nobody is let in; its publisher can publish it again"
    ))
}

/// Whether a directory is one that `reader` may enter, as far as its own note goes.
pub fn check(directory: BorrowedFd<'_>, reader: Pin) -> io::Result<()> {
    answer(open_note(directory, &[]), reader)
}

fn answer(note: Result<OwnedFd, Errno>, reader: Pin) -> io::Result<()> {
    match note {
        Ok(note) => judge(note, reader),
        Err(Errno::NOENT) => Ok(()),
        Err(e @ (Errno::LOOP | Errno::NOTDIR | Errno::XDEV)) => Err(unreadable(&plain(e))),
        Err(e) => Err(e.into()),
    }
}

/// The same of a directory by its name.
pub fn check_child(parent: BorrowedFd<'_>, name: &Name, reader: Pin) -> io::Result<()> {
    answer(open_note(parent, name.as_bytes()), reader)
}

/// The same of a directory and all those above it, up to `root`.
pub fn check_up_to(root: BorrowedFd<'_>, directory: BorrowedFd<'_>, reader: Pin) -> io::Result<()> {
    let id = |fd: BorrowedFd<'_>| fstat(fd).map(|status| (status.st_dev, status.st_ino));
    let (root, mut at) = (id(root)?, directory.try_clone_to_owned()?);
    for _ in 0..LEVELS_MAX {
        check(at.as_fd(), reader)?;
        let here = id(at.as_fd())?;
        if here == root {
            return Ok(());
        }
        at = openat(&at, c"..", OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
        if id(at.as_fd())? == here {
            break;
        }
    }
    // It was moved out of the root meanwhile.
    Err(Errno::NOENT.into())
}

/// The note of a directory, or of the one of this name in it.
fn open_note(directory: BorrowedFd<'_>, name: &[u8]) -> Result<OwnedFd, Errno> {
    let slash: &[u8] = if name.is_empty() { b"" } else { b"/" };
    let path = [name, slash, DIRECTORY.as_bytes(), b"/", NOTE.as_bytes()].concat();
    let resolve = ResolveFlags::NO_SYMLINKS | ResolveFlags::BENEATH;
    for _ in 0..RESOLVE_TRIES_MAX {
        match openat2(directory, OsStr::from_bytes(&path), NOTE_FILE, Mode::empty(), resolve) {
            Err(Errno::AGAIN | Errno::INTR) => {}
            // A kernel without it.
            Err(Errno::NOSYS) => {
                let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                let start = if name.is_empty() { &b"."[..] } else { name };
                let at = openat(directory, OsStr::from_bytes(start), flags, Mode::empty())?;
                return openat(openat(at, DIRECTORY, flags, Mode::empty())?, NOTE, NOTE_FILE, Mode::empty());
            }
            opened => return opened,
        }
    }
    Err(Errno::AGAIN)
}

fn judge(note: OwnedFd, reader: Pin) -> io::Result<()> {
    let mut bytes = Vec::new();
    // A FIFO would have to be waited for.
    let is_file = fstat(&note).is_ok_and(|status| rustix::fs::FileType::from_raw_mode(status.st_mode).is_file());
    if !is_file {
        return Err(unreadable("it is no file"));
    }
    let read = File::from(note).take(NOTE_BYTES_MAX as u64 + 1).read_to_end(&mut bytes);
    read.map_err(|e| unreadable(&e.to_string()))?;
    let note = Signed::parse(&bytes).and_then(|signed| Note::parse(&signed.text)).map_err(|why| unreadable(&why))?;
    if note.readers.admit(reader) || mutant::is_on("any-reader") {
        return Ok(());
    }
    Err(closed(format!(
        "the set {} lies there, and this client is not one of its readers; its publisher can let it in with \
         `thalweg publish --readers`, by its key {reader}",
        note.name
    )))
}

fn plain(e: Errno) -> String {
    let text = io::Error::from(e).to_string();
    text.split(" (os error").next().unwrap_or_default().to_lowercase()
}

#[cfg(test)]
mod tests {
    use super::super::beneath::{self, Bounds};
    use super::*;
    use model::name::relative_path;
    use std::fs;
    use std::os::unix::fs::symlink;
    use std::path::Path;

    const READER: Pin = Pin([1; 32]);
    const OTHER: Pin = Pin([2; 32]);

    fn note(readers: &str) -> String {
        let digest = "ab".repeat(32);
        format!(
            "thalweg set 1\nname a/b\nserial 1\ncatalogue blake3:{digest} 1\nfiles 0\nbytes 0\nchunk 8388608\n\
             readers {readers}\nkey k\n\n\u{2014} k AAAAAAAA\n"
        )
    }

    fn close(directory: &Path, note: &str) {
        fs::create_dir_all(directory.join(DIRECTORY)).unwrap();
        fs::write(directory.join(DIRECTORY).join(NOTE), note).unwrap();
    }

    fn opens(root: &Path, path: &str, reader: Pin) -> bool {
        let root = beneath::open_directory(root).unwrap();
        let (bounds, names) =
            (Bounds { reader: Some(reader), ..Bounds::default() }, relative_path(path.as_bytes()).unwrap());
        let resolved = bounds.resolve_directory(root.as_fd(), &names);
        let walked = bounds.walk(root.as_fd(), &names).is_ok();
        if let Err(e) = &resolved {
            assert!(is_closed(e) && !walked, "{path}: {e}");
        }
        resolved.is_ok()
    }

    #[test]
    fn a_set_and_all_below_it_opens_to_its_readers_alone_whichever_way_leads_there() {
        let dir = tempfile::tempdir().unwrap();
        let at = |path: &str| dir.path().join(path);
        fs::create_dir_all(at("open")).unwrap();
        fs::create_dir_all(at("set/in/deep")).unwrap();
        symlink("set/in", at("link")).unwrap();
        symlink("../set/in/deep", at("open/there")).unwrap();
        close(&at("set"), &note(&READER.to_string()));
        // A public one inside opens nothing.
        close(&at("set/in"), &note("public"));
        for path in ["set", "set/in", "set/in/deep", "set/.thalweg-set"] {
            assert!(opens(dir.path(), path, READER) && !opens(dir.path(), path, OTHER), "{path}");
        }
        let root = beneath::open_directory(dir.path()).unwrap();
        for path in ["link", "link/deep", "open/there"] {
            let of = |reader| {
                let names = relative_path(path.as_bytes()).unwrap();
                Bounds { reader: Some(reader), ..Bounds::default() }.resolve_directory(root.as_fd(), &names)
            };
            assert!(of(READER).is_ok() && is_closed(&of(OTHER).unwrap_err()), "{path}");
        }
        assert!(opens(dir.path(), "open", OTHER) && opens(dir.path(), "", OTHER));
        // A directory of it that was moved elsewhere belongs to where it is.
        fs::rename(at("set"), at("open/moved")).unwrap();
        assert!(!opens(dir.path(), "open/moved/in/deep", OTHER));
        // The root itself may be one.
        assert!(!opens(&at("open/moved"), "", OTHER) && !opens(&at("open/moved"), "in/deep", OTHER));
    }

    #[test]
    fn what_cannot_be_read_for_certain_is_closed() {
        let dir = tempfile::tempdir().unwrap();
        let at = |path: &str| dir.path().join(path);
        let good = note("public");
        close(&at("good"), &good);
        assert!(opens(dir.path(), "good", OTHER));
        let hostile = [String::new(), "x".into(), good.replace("readers public", "readers publik"), good[..99].into()];
        for (number, text) in hostile.iter().enumerate() {
            let name = format!("bad{number}");
            close(&at(&name), text);
            assert!(!opens(dir.path(), &name, READER), "{text}");
        }
        fs::create_dir_all(at("linked")).unwrap();
        symlink("../good/.thalweg-set", at("linked/.thalweg-set")).unwrap();
        fs::create_dir_all(at("inner/.thalweg-set")).unwrap();
        symlink("../../good/.thalweg-set/note", at("inner/.thalweg-set/note")).unwrap();
        fs::create_dir_all(at("file")).unwrap();
        fs::write(at("file/.thalweg-set"), good.as_bytes()).unwrap();
        fs::create_dir_all(at("directory/.thalweg-set/note")).unwrap();
        for name in ["linked", "inner", "file", "directory"] {
            assert!(!opens(dir.path(), name, READER), "{name}");
        }
        // Without a note it is no set.
        fs::create_dir_all(at("none/.thalweg-set")).unwrap();
        assert!(opens(dir.path(), "none", OTHER));
    }
}
