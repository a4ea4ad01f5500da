//! Names of users and groups, and their numbers on this host.
//!
//! A confined endpoint reaches neither the files nor the services that know them: it reads the host's own files once, before
//! it is confined (`remember`). Everybody else asks the system, which may ask a directory service.
//!
//! Invariant: nothing that is asked for by name or number is opened as a path.

use std::collections::HashMap;
use std::ffi::{CStr, CString, c_char, c_int};
use std::sync::OnceLock;

/// What a record of a user or group may take.
const RECORD_BYTES_MAX: usize = 64 << 10;
/// What is read of the host's files.
const FILE_BYTES_MAX: u64 = 16 << 20;

/// Whether it is users that are asked for, or groups.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Sort {
    User,
    Group,
}

#[derive(Default)]
struct Remembered {
    names: HashMap<(Sort, u32), Box<[u8]>>,
    numbers: HashMap<(Sort, Box<[u8]>), u32>,
}

static REMEMBERED: OnceLock<Remembered> = OnceLock::new();

/// Reads the host's own users and groups, for a process that cannot ask later.
pub fn remember() {
    REMEMBERED.get_or_init(|| {
        let mut remembered = Remembered::default();
        remembered.add(Sort::User, &content("/etc/passwd"));
        remembered.add(Sort::Group, &content("/etc/group"));
        remembered
    });
}

/// What a user or group of this number is called here.
pub fn name_of(sort: Sort, number: u32) -> Option<Box<[u8]>> {
    let remembered = REMEMBERED.get().and_then(|remembered| remembered.names.get(&(sort, number)).cloned());
    remembered.or_else(|| ask(&|buffer| system_name(sort, number, buffer)))
}

/// The number of a user or group of this name here.
pub fn number_of(sort: Sort, name: &[u8]) -> Option<u32> {
    let remembered = REMEMBERED.get().and_then(|remembered| remembered.numbers.get(&(sort, name.into())).copied());
    let name = CString::new(name).ok()?;
    remembered.or_else(|| ask(&|buffer| system_number(sort, &name, buffer)))
}

impl Remembered {
    /// Takes the lines of a file whose fields are the name, a password, and the number. The first of equal ones counts.
    fn add(&mut self, sort: Sort, content: &[u8]) {
        for line in content.split(|b| *b == b'\n') {
            let mut fields = line.split(|b| *b == b':');
            let (name, number) = (fields.next().unwrap_or_default(), fields.nth(1).unwrap_or_default());
            let number = std::str::from_utf8(number).ok().and_then(|number| number.parse().ok());
            if let (false, Some(number)) = (name.is_empty(), number) {
                self.names.entry((sort, number)).or_insert_with(|| name.into());
                self.numbers.entry((sort, name.into())).or_insert(number);
            }
        }
    }
}

fn content(path: &str) -> Vec<u8> {
    use std::io::Read;
    let mut content = Vec::new();
    let read = std::fs::File::open(path).and_then(|file| file.take(FILE_BYTES_MAX).read_to_end(&mut content));
    if read.is_ok() { content } else { Vec::new() }
}

/// What the system says: an answer, nothing, or that it needs more room.
enum Said<T> {
    Answer(T),
    Nothing,
    NoRoom,
}

fn ask<T>(once: &dyn Fn(&mut [u8]) -> Said<T>) -> Option<T> {
    let mut buffer = vec![0; 1 << 10];
    loop {
        match once(&mut buffer) {
            Said::Answer(answer) => return Some(answer),
            Said::NoRoom if buffer.len() < RECORD_BYTES_MAX => buffer.resize(buffer.len() * 4, 0),
            Said::Nothing | Said::NoRoom => return None,
        }
    }
}

fn said<T>(code: c_int, is_found: bool, answer: impl FnOnce() -> T) -> Said<T> {
    match code {
        0 if is_found => Said::Answer(answer()),
        libc::ERANGE => Said::NoRoom,
        _ => Said::Nothing,
    }
}

fn system_name(sort: Sort, number: u32, buffer: &mut [u8]) -> Said<Box<[u8]>> {
    let (room, bytes) = (buffer.as_mut_ptr().cast::<c_char>(), buffer.len());
    // SAFETY: the records are plain data for the call to fill in, `room` has `bytes` bytes, and a name that was found lies
    // in it and ends in NUL; it is copied before the buffer goes.
    unsafe {
        match sort {
            Sort::User => {
                let (mut record, mut found) = (std::mem::zeroed::<libc::passwd>(), std::ptr::null_mut());
                let code = libc::getpwuid_r(number, &mut record, room, bytes, &mut found);
                said(code, !found.is_null(), || CStr::from_ptr(record.pw_name).to_bytes().into())
            }
            Sort::Group => {
                let (mut record, mut found) = (std::mem::zeroed::<libc::group>(), std::ptr::null_mut());
                let code = libc::getgrgid_r(number, &mut record, room, bytes, &mut found);
                said(code, !found.is_null(), || CStr::from_ptr(record.gr_name).to_bytes().into())
            }
        }
    }
}

fn system_number(sort: Sort, name: &CStr, buffer: &mut [u8]) -> Said<u32> {
    let (room, bytes) = (buffer.as_mut_ptr().cast::<c_char>(), buffer.len());
    // SAFETY: as in `system_name`; `name` ends in NUL and outlives the call.
    unsafe {
        match sort {
            Sort::User => {
                let (mut record, mut found) = (std::mem::zeroed::<libc::passwd>(), std::ptr::null_mut());
                let code = libc::getpwnam_r(name.as_ptr(), &mut record, room, bytes, &mut found);
                said(code, !found.is_null(), || record.pw_uid)
            }
            Sort::Group => {
                let (mut record, mut found) = (std::mem::zeroed::<libc::group>(), std::ptr::null_mut());
                let code = libc::getgrnam_r(name.as_ptr(), &mut record, room, bytes, &mut found);
                said(code, !found.is_null(), || record.gr_gid)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_files_of_a_host_name_users_by_their_first_line() {
        let mut remembered = Remembered::default();
        remembered.add(Sort::User, b"root:x:0:0::/:\ntoor:x:0:0::/:\nalice:x:1000:\nbroken\n:x:5:\nbob:x:no:\n");
        remembered.add(Sort::Group, b"staff:x:50:alice\n");
        assert_eq!(remembered.names[&(Sort::User, 0)][..], b"root"[..]);
        assert_eq!(remembered.numbers[&(Sort::User, (*b"alice").into())], 1000);
        assert_eq!(remembered.numbers[&(Sort::Group, (*b"staff").into())], 50);
        assert_eq!(remembered.names.len() + remembered.numbers.len(), 2 + 3 + 2);
    }

    #[test]
    fn the_system_knows_root_both_ways_and_nobody_without_a_name() {
        for (sort, file) in [(Sort::User, "/etc/passwd"), (Sort::Group, "/etc/group")] {
            let listed = std::fs::read_to_string(file).unwrap_or_default();
            if needs::met(listed.starts_with("root:x:0:"), format!("{file} does not begin with root")) {
                assert_eq!(name_of(sort, 0).unwrap()[..], b"root"[..]);
                assert_eq!(number_of(sort, b"root"), Some(0));
            }
            assert_eq!(name_of(sort, 4_000_000_123), None);
            assert_eq!(number_of(sort, b"no such name, surely"), None);
            assert_eq!(number_of(sort, b"with\0nul"), None);
        }
    }
}
