//! All of a file's bytes by calls that may do a part only, or be interrupted.
//!
//! Not here: many blocks in flight (`engine`), holes (`sparse`).

use rustix::io::Errno;
use std::io;
use std::os::fd::BorrowedFd;

pub(super) fn write_all(file: BorrowedFd<'_>, mut bytes: &[u8]) -> std::result::Result<(), Errno> {
    while !bytes.is_empty() {
        match os::fs::write(file, bytes) {
            Ok(0) => return Err(Errno::IO),
            Ok(n) => bytes = &bytes[n..],
            Err(Errno::INTR) => {}
            Err(e) => return Err(e),
        }
    }
    Ok(())
}

pub(super) fn write_all_at(file: BorrowedFd<'_>, mut bytes: &[u8], mut offset: u64) -> std::result::Result<(), Errno> {
    while !bytes.is_empty() {
        match os::fs::pwrite(file, bytes, offset) {
            Ok(0) => return Err(Errno::IO),
            Ok(n) => {
                bytes = &bytes[n..];
                offset += n as u64;
            }
            Err(Errno::INTR) => {}
            Err(e) => return Err(e),
        }
    }
    Ok(())
}

/// Reads a file from its storage: what the page cache holds is written out and dropped first, where the file system
/// does such a thing.
pub(super) fn read_back(file: BorrowedFd<'_>, check: &mut dyn FnMut(&[u8])) -> io::Result<()> {
    os::fs::fdatasync(file)?;
    let _ = rustix::fs::fadvise(file, 0, None, rustix::fs::Advice::DontNeed);
    let mut buffer = vec![0; 1 << 18];
    let mut offset = 0;
    loop {
        match os::fs::pread(file, &mut buffer[..], offset) {
            Ok(0) => return Ok(()),
            Ok(n) => {
                check(&buffer[..n]);
                offset += n as u64;
            }
            Err(Errno::INTR) => {}
            Err(e) => return Err(e.into()),
        }
    }
}
