//! What a recovery may send: everything that is not there, and of large files only what was not verified (I10).
//!
//! The bound, for a process that was killed and storage that kept its power:
//! - each object that is not complete at its name, less each chunk of it that lies whole in staging;
//! - for each stream the chunk under way: it may lie whole in staging and not be noted there;
//! - for each large object its last chunk, which is asked for again because only the sender can say that the source is
//!   still the one that was listed;
//! - `PROTOCOL_BYTES`.
//!
//! Small files that were on the way, or staged in a group that was not published, are among the objects that are not
//! there. What the sockets held was passed in the run that died and is no part of what the recovery sends.
//!
//! The checker finds verified chunks by comparing staging with the source: it reads no log of the program.

use crate::check::{self, Kind, Tree};
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// Of every copy of `job::Bed`.
pub const STREAMS: u64 = 2;
/// Handshakes of a session and its streams, a listing of thirty entries, messages, and TLS's 22 bytes for each record of
/// at most 16 KiB, of six megabytes.
pub const PROTOCOL_BYTES: u64 = 128 << 10;

/// The most that the next run may send.
///
/// # Errors
/// When something cannot be read.
pub fn bound(source: &Path, new: &Tree, destination: &Path, staged: &[PathBuf], chunk_bytes: u64) -> io::Result<u64> {
    let mut bound = STREAMS * chunk_bytes + PROTOCOL_BYTES;
    for (path, object) in new {
        let Kind::File { bytes, .. } = object.kind else { continue };
        if check::object(&destination.join(path))?.as_ref() == Some(object) {
            continue;
        }
        bound += bytes;
        if bytes > chunk_bytes {
            let content = fs::read(source.join(path))?;
            let mut held = 0;
            for file in staged {
                held = held.max(equal_bytes(&content, file, chunk_bytes)?);
            }
            bound = bound - held + chunk_bytes;
        }
    }
    Ok(bound)
}

/// Bytes of the chunks that a staged file of the same length has in common with the content.
fn equal_bytes(content: &[u8], staged: &Path, chunk_bytes: u64) -> io::Result<u64> {
    // The side that was not killed may be clearing up.
    let opened = match fs::symlink_metadata(staged) {
        Ok(status) if status.is_file() && status.len() == content.len() as u64 => File::open(staged),
        Ok(_) => return Ok(0),
        Err(e) => Err(e),
    };
    let file = match opened {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(0),
        opened => opened?,
    };
    let (mut equal, mut at) = (0, 0);
    let mut there = vec![0; chunk_bytes as usize];
    for chunk in content.chunks(chunk_bytes as usize) {
        let there = &mut there[..chunk.len()];
        file.read_exact_at(there, at)?;
        equal += if there == chunk { chunk.len() as u64 } else { 0 };
        at += chunk.len() as u64;
    }
    Ok(equal)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_there_and_what_is_staged_whole_is_not_owed() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        for name in ["source", "to", "staged"] {
            fs::create_dir(at(name)).unwrap();
        }
        fs::write(at("source/small"), [1; 10]).unwrap();
        fs::write(at("source/large"), [2; 250]).unwrap();
        let new = check::tree(&at("source")).unwrap();
        let owed = |staged: &[PathBuf]| {
            bound(&at("source"), &new, &at("to"), staged, 100).unwrap() - STREAMS * 100 - PROTOCOL_BYTES
        };
        assert_eq!(owed(&[]), 10 + 250 + 100);
        fs::write(at("staged/0.data"), [vec![2; 100], vec![0; 100], vec![2; 50]].concat()).unwrap();
        assert_eq!(owed(&[at("staged"), at("staged/0.data")]), 10 + 100 + 100);
        let copied = std::process::Command::new("cp").arg("-a").arg(at("source/small")).arg(at("to/small")).status();
        assert!(copied.unwrap().success());
        assert_eq!(owed(&[]), 250 + 100);
    }
}
