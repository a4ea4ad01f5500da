//! The record of a laboratory: who holds it, what belongs to it, and how to remove it, its holder alive or not.
//!
//! Owns: one directory per laboratory below `state_dir`, named by a random token, with the holder (`owner`), the scenario, the
//! hosts and the control socket; and the removal of the namespaces whose names follow from the token.
//!
//! Invariants: the record exists before anything it names is made, and goes after all of it is gone. A process id alone may
//! be in use again, so a holder is known by its start time too.

use std::collections::hash_map::RandomState;
use std::fs::{self, File};
use std::hash::{BuildHasher, Hasher};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, PidfdFlags, Signal};

use crate::error::{Error, Kind, Result};
use crate::iproute::{NETNS_DIR, NETNS_ETC_DIR, batch};
use crate::unprivileged::{outer_user, user_namespace};

/// How long killed processes get to disappear before the namespace is removed around them.
const KILL_WAIT: Duration = Duration::from_secs(3);
const TOKEN_DIGITS: usize = 5;
const OWNER: &str = "owner";
const USER_NAMESPACE: &str = "user-namespace";
const HOSTS: &str = "hosts";

/// Where the records of this user are. Without root `/run` is out of reach, and inside a user namespace it is another one.
pub fn state_dir() -> PathBuf {
    match outer_user() {
        None => PathBuf::from("/run/thalweg-lab"),
        Some(user) => std::env::temp_dir().join(format!("thalweg-lab-{user}")),
    }
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Lease {
    pub dir: PathBuf,
    pub token: String,
    pid: u32,
    start_time_ticks: u64,
}

impl Lease {
    /// Takes a token that nobody has, for the calling process.
    pub fn take() -> Result<Lease> {
        let state_dir = state_dir();
        let pid = std::process::id();
        for _ in 0..64 {
            let token = format!("{:0TOKEN_DIGITS$x}", random() & 0xf_ffff);
            let dir = state_dir.join(&token);
            match fs::create_dir(&dir) {
                Ok(()) => {
                    let lease = Lease { dir, token, pid, start_time_ticks: start_time_ticks(pid).unwrap_or(0) };
                    lease.write(OWNER, &format!("{pid} {}\n", lease.start_time_ticks))?;
                    if let Some(namespace) = outer_user().and_then(|_| user_namespace(pid)) {
                        lease.write(USER_NAMESPACE, &namespace)?;
                    }
                    return Ok(lease);
                }
                Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => (),
                Err(error) => return Err(Error::io("create", &dir, error)),
            }
        }
        Err(Error::new(Kind::Failed, "find", "a free name", "all that were tried are in use"))
    }

    /// Of the laboratories that are on record, dead or alive.
    pub fn all() -> Vec<Lease> {
        let dir = state_dir();
        let Some(entries) = is_own(&dir).then(|| fs::read_dir(dir).ok()).flatten() else { return Vec::new() };
        entries.flatten().filter_map(|entry| Lease::read(&entry.path())).collect()
    }

    fn read(dir: &Path) -> Option<Lease> {
        let token = dir.file_name()?.to_str()?.to_owned();
        if !dir.is_dir() || token.len() != TOKEN_DIGITS || !token.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return None;
        }
        // A directory without a readable owner belongs to a process that was killed between two calls.
        let text = fs::read_to_string(dir.join(OWNER)).unwrap_or_default();
        let mut words = text.split_whitespace().map(str::parse::<u64>);
        let mut number = || words.next()?.ok();
        let (pid, start_time_ticks) = (number().unwrap_or(0) as u32, number().unwrap_or(0));
        Some(Lease { dir: dir.to_owned(), token, pid, start_time_ticks })
    }

    pub fn is_holder_alive(&self) -> bool {
        self.pid != 0 && start_time_ticks(self.pid) == Some(self.start_time_ticks)
    }

    pub fn pid(&self) -> u32 {
        self.pid
    }

    pub fn write(&self, name: &str, text: &str) -> Result<()> {
        let path = self.dir.join(name);
        fs::write(&path, text).map_err(|source| Error::io("write", &path, source))
    }

    pub fn read_text(&self, name: &str) -> Option<String> {
        fs::read_to_string(self.dir.join(name)).ok()
    }

    /// Puts on record which namespaces are about to be made.
    pub fn record_hosts<'a>(&self, names: impl Iterator<Item = &'a str>) -> Result<()> {
        self.write(HOSTS, &names.map(|name| format!("{name}\n")).collect::<String>())
    }

    pub fn hosts(&self) -> Vec<String> {
        self.read_text(HOSTS).unwrap_or_default().lines().map(str::to_owned).collect()
    }

    pub fn namespace(&self, host: &str) -> String {
        format!("tw-{}-{host}", self.token)
    }

    /// Removes processes, namespaces, files and finally the record. Parts that do not exist are passed over.
    pub fn remove(&self) {
        let namespaces: Vec<_> = self.hosts().iter().map(|host| self.namespace(host)).collect();
        kill(namespaces.iter().flat_map(|namespace| pids_inside(namespace)).collect());
        if let Some(namespace) = self.read_text(USER_NAMESPACE) {
            kill(pids_of_user_namespace(&namespace));
        }
        let lines: String = namespaces
            .iter()
            .filter(|namespace| Path::new(NETNS_DIR).join(namespace).exists())
            .map(|namespace| format!("netns del {namespace}\n"))
            .collect();
        if !lines.is_empty() {
            let _ = batch(None, &lines);
        }
        for namespace in &namespaces {
            let _ = fs::remove_dir_all(Path::new(NETNS_ETC_DIR).join(namespace));
        }
        // Fails, as it should, where something else lies in it.
        let _ = fs::remove_dir(NETNS_ETC_DIR);
        if !namespaces.iter().any(|namespace| Path::new(NETNS_DIR).join(namespace).exists()) {
            let _ = fs::remove_dir_all(&self.dir);
        }
    }
}

/// The returned file holds the lock: runs that start or end together must not sweep each other's half-made laboratory, nor
/// remove a directory that the other is about to use.
pub fn lock() -> Result<File> {
    let dir = state_dir();
    let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(&dir);
    made.map_err(|source| Error::io("create", &dir, source))?;
    if !is_own(&dir) {
        let said = "it is not a directory of this user alone";
        return Err(
            Error::new(Kind::Refused, "use", dir.display().to_string(), said).hint("remove it, or have it removed")
        );
    }
    let path = dir.join("lock");
    let file = File::create(&path).map_err(|source| Error::io("create", &path, source))?;
    file.lock().map_err(|source| Error::io("lock", &path, source))?;
    Ok(file)
}

/// Removes what dead holders left behind; returns the tokens. Call it with the lock held.
pub fn remove_leftovers() -> Vec<String> {
    let dead: Vec<_> = Lease::all().into_iter().filter(|lease| !lease.is_holder_alive()).collect();
    dead.iter().for_each(Lease::remove);
    dead.into_iter().map(|lease| lease.token).collect()
}

/// Whether the directory is this user's alone, and no link to another place.
fn is_own(dir: &Path) -> bool {
    let owner = rustix::process::geteuid().as_raw();
    fs::symlink_metadata(dir).is_ok_and(|found| found.is_dir() && found.uid() == owner && found.mode() & 0o022 == 0)
}

/// Kills processes and waits, for a bounded time, until they are gone.
fn kill(pids: Vec<Pid>) {
    // A pidfd cannot come to mean another process between the kill and the wait.
    let handles: Vec<_> =
        pids.into_iter().filter_map(|pid| rustix::process::pidfd_open(pid, PidfdFlags::empty()).ok()).collect();
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

/// Never the calling process, one of whose threads may be inside.
fn pids_inside(namespace: &str) -> Vec<Pid> {
    let output = Command::new("ip").args(["netns", "pids", namespace]).stderr(Stdio::null()).output();
    let Ok(output) = output else { return Vec::new() };
    let text = String::from_utf8_lossy(&output.stdout);
    let pids = text.split_whitespace().filter_map(|word| word.parse().ok()).filter_map(Pid::from_raw);
    pids.filter(|pid| *pid != rustix::process::getpid()).collect()
}

/// Never the calling process: a laboratory without root is removed by its holder from inside too.
fn pids_of_user_namespace(namespace: &str) -> Vec<Pid> {
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let inside = pids.filter(|pid| *pid != std::process::id() && user_namespace(*pid).as_deref() == Some(namespace));
    inside.filter_map(|pid| Pid::from_raw(pid as i32)).collect()
}

/// Start of a process in clock ticks since boot, field 22 of its stat file.
fn start_time_ticks(pid: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let after_name = &stat[stat.rfind(')')? + 1..];
    after_name.split_whitespace().nth(19)?.parse().ok()
}

fn random() -> u64 {
    // The standard library seeds its hasher from the system's random source.
    let mut hasher = RandomState::new().build_hasher();
    hasher.write_u32(std::process::id());
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reused_process_id_is_not_the_holder() {
        let pid = std::process::id();
        let start_time_ticks = start_time_ticks(pid).unwrap();
        let lease = Lease { dir: "x".into(), token: "0".into(), pid, start_time_ticks };
        assert!(lease.is_holder_alive());
        assert!(!Lease { start_time_ticks: start_time_ticks + 1, ..lease.clone() }.is_holder_alive());
        assert!(!Lease { pid: 0, ..lease }.is_holder_alive());
    }

    #[test]
    fn a_record_without_an_owner_is_a_leftover_and_other_directories_are_not_ours() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["00a7f", "lost+found", "2024"] {
            fs::create_dir(dir.path().join(name)).unwrap();
        }
        let lease = Lease::read(&dir.path().join("00a7f")).unwrap();
        assert!(!lease.is_holder_alive());
        assert_eq!(lease.namespace("a"), "tw-00a7f-a");
        assert!(["lost+found", "2024"].iter().all(|name| Lease::read(&dir.path().join(name)).is_none()));
    }
}
