//! The right to use a state directory: a lock on a file in it, held as long as the descriptor is open.

use crate::error::{Error, Result, shown};
use model::Exit;
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

pub struct StateLock {
    _file: File,
}

impl StateLock {
    /// Takes the lock, or tells which process has it.
    pub fn take(state_dir: &Path) -> Result<StateLock> {
        let path = state_dir.join("lock");
        let failed = |e| Error::of_file("lock", &path, e);
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false).mode(0o600);
        let mut file = options.open(&path).map_err(failed)?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(Errno::WOULDBLOCK) => return Err(in_use(state_dir, &mut file)),
            Err(e) => return Err(failed(e.into())),
        }
        // The number is for people only; the lock itself does not depend on it.
        file.set_len(0)
            .and_then(|()| file.write_all(format!("{}\n", std::process::id()).as_bytes()))
            .map_err(failed)?;
        Ok(StateLock { _file: file })
    }
}

fn in_use(state_dir: &Path, file: &mut File) -> Error {
    let mut text = String::new();
    // What cannot be read is simply not told.
    let _ = file.take(32).read_to_string(&mut text);
    let process = match text.trim().parse::<u32>() {
        Ok(pid) => format!("process {pid}"),
        Err(_) => "another process".to_owned(),
    };
    Error::new(Exit::Failed, format!("the state directory {} is in use by {process}", shown(state_dir)))
        .hint("stop that process, or give this one its own --state-dir")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_holder_at_a_time_and_the_refusal_names_it() {
        let dir = tempfile::tempdir().unwrap();
        let held = StateLock::take(dir.path()).unwrap();
        let refused = StateLock::take(dir.path()).err().unwrap();
        assert!(refused.message.contains(&format!("process {}", std::process::id())), "{refused}");
        assert!(refused.hint.is_some());
        drop(held);
        StateLock::take(dir.path()).unwrap();
    }
}
