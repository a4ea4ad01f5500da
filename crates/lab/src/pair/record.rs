//! The record of a pair: who owns it, what it is called, and how to remove it, its owner alive or not.
//!
//! Invariant: the record exists before anything it names is made, and goes after all of it is gone.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, PidfdFlags, Signal};

use super::{Error, NETNS_DIR, NETNS_ETC_DIR, Result, Side, ip};

/// Where the records of living pairs are kept, one file per pair.
pub const STATE_DIR: &str = "/run/thalweg-lab";
/// How long killed processes get to disappear before the namespace is removed around them.
const KILL_WAIT: Duration = Duration::from_secs(3);

/// Who owns a pair, and the names that follow from it.
///
/// The file name is the record's token; the content is `pid start_time`, since a process id alone may be in use again.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Record {
    pid: u32,
    start_time_ticks: u64,
    token: u16,
}

impl Record {
    pub fn of_this_process(token: u16) -> Record {
        let pid = std::process::id();
        Record { pid, start_time_ticks: start_time_ticks(pid).unwrap_or(0), token }
    }

    fn read(path: &Path) -> Option<Record> {
        let token = u16::from_str_radix(path.file_stem()?.to_str()?.rsplit('-').next()?, 16).ok()?;
        let text = fs::read_to_string(path).ok()?;
        let mut words = text.split_whitespace().map(str::parse::<u64>);
        let (pid, start_time_ticks) = (words.next()?.ok()?, words.next()?.ok()?);
        Some(Record { pid: pid.try_into().ok()?, start_time_ticks, token })
    }

    pub fn write(&self, dir: &Path) -> Result<()> {
        let path = self.path(dir);
        fs::write(&path, format!("{} {}\n", self.pid, self.start_time_ticks))
            .map_err(|source| Error::io("write", &path, source))
    }

    pub fn path(&self, dir: &Path) -> PathBuf {
        dir.join(format!("{}-{:04x}.pair", self.pid, self.token))
    }

    pub fn namespace(&self, side: Side) -> String {
        let letter = if side == Side::A { 'a' } else { 'b' };
        format!("tw{}{:04x}{letter}", self.pid, self.token)
    }

    fn is_owner_alive(&self) -> bool {
        start_time_ticks(self.pid) == Some(self.start_time_ticks)
    }

    /// Removes processes, namespaces, files and finally the record. Parts that do not exist are passed over.
    pub fn remove_pair(&self, state_dir: &Path) {
        for side in Side::BOTH {
            let namespace = self.namespace(side);
            kill_inside(&namespace);
            let _ = ip(&["netns", "del", &namespace]);
            let _ = fs::remove_dir_all(Path::new(NETNS_ETC_DIR).join(&namespace));
        }
        // Fails, as it should, where something else lies in it.
        let _ = fs::remove_dir(NETNS_ETC_DIR);
        let is_gone = Side::BOTH.iter().all(|&side| !Path::new(NETNS_DIR).join(self.namespace(side)).exists());
        if is_gone {
            let _ = fs::remove_file(self.path(state_dir));
        }
    }
}

/// The returned file holds the lock: runs that start or end together must not sweep each other's half-made pair, nor
/// remove a directory that the other is about to use.
pub fn lock_state_dir() -> Result<File> {
    let dir = Path::new(STATE_DIR);
    fs::create_dir_all(dir).map_err(|source| Error::io("create", dir, source))?;
    let path = dir.join("lock");
    let file = File::create(&path).map_err(|source| Error::io("create", &path, source))?;
    file.lock().map_err(|source| Error::io("lock", &path, source))?;
    Ok(file)
}

pub fn remove_leftovers(state_dir: &Path) {
    let Ok(entries) = fs::read_dir(state_dir) else { return };
    for path in entries.flatten().map(|entry| entry.path()).filter(|path| path.extension() == Some("pair".as_ref())) {
        if let Some(record) = Record::read(&path).filter(|record| !record.is_owner_alive()) {
            record.remove_pair(state_dir);
        }
    }
}

/// Kills what runs in a namespace and waits, for a bounded time, until it is gone.
fn kill_inside(namespace: &str) {
    let Ok(output) = Command::new("ip").args(["netns", "pids", namespace]).stderr(Stdio::null()).output() else {
        return;
    };
    let text = String::from_utf8_lossy(&output.stdout);
    let pids = text.split_whitespace().filter_map(|word| word.parse().ok()).filter_map(Pid::from_raw);
    // A pidfd cannot come to mean another process between the kill and the wait.
    let handles: Vec<_> = pids.filter_map(|pid| rustix::process::pidfd_open(pid, PidfdFlags::empty()).ok()).collect();
    for handle in &handles {
        let _ = rustix::process::pidfd_send_signal(handle, Signal::KILL);
    }
    let deadline = Instant::now() + KILL_WAIT;
    for handle in &handles {
        let mut polled = [rustix::event::PollFd::new(handle, rustix::event::PollFlags::IN)];
        let left = deadline.saturating_duration_since(Instant::now());
        let timeout = rustix::event::Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() };
        let _ = rustix::event::poll(&mut polled, Some(&timeout));
    }
}

/// Start of a process in clock ticks since boot, field 22 of its stat file.
fn start_time_ticks(pid: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let after_name = &stat[stat.rfind(')')? + 1..];
    after_name.split_whitespace().nth(19)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::super::{check_privilege, random};
    use super::*;

    #[test]
    fn leftovers_of_a_dead_owner_are_removed_and_those_of_a_living_one_kept() {
        if check_privilege().is_err() {
            return;
        }
        let _lock = lock_state_dir().unwrap();
        let dir = tempfile::tempdir().unwrap();
        let mut exited = Command::new("true").spawn().unwrap();
        exited.wait().unwrap();
        let dead = Record { pid: exited.id(), start_time_ticks: 1, token: random() as u16 };
        let living = Record::of_this_process(random() as u16);
        for record in [&dead, &living] {
            record.write(dir.path()).unwrap();
            ip(&["netns", "add", &record.namespace(Side::A)]).unwrap();
        }
        remove_leftovers(dir.path());
        let exists = |record: &Record| Path::new(NETNS_DIR).join(record.namespace(Side::A)).exists();
        let found = (exists(&dead), dead.path(dir.path()).exists(), exists(&living), living.path(dir.path()).exists());
        living.remove_pair(dir.path());
        assert_eq!(found, (false, false, true, true));
    }

    #[test]
    fn a_record_reads_back_and_a_reused_process_id_is_not_its_owner() {
        let dir = tempfile::tempdir().unwrap();
        let record = Record::of_this_process(0x00a7);
        record.write(dir.path()).unwrap();
        assert_eq!(Record::read(&record.path(dir.path())), Some(record.clone()));
        assert!(record.is_owner_alive());
        assert!(!Record { start_time_ticks: record.start_time_ticks + 1, ..record }.is_owner_alive());
    }
}
