//! Landlock: a process that serves gives up what it does not need of the file system, before it has a second thread.
//!
//! Allowed are the root, the endpoint's own files, and what the kernel says of this process and its network. Files and sockets
//! that are open already (standard output, the log, the listener) stay so. An endpoint that is not one for a session over ssh
//! also neither listens anew nor connects to anything over TCP, and reaches no other process by a signal or an abstract socket. Best effort: a kernel without it, or before 5.19, which would
//! forbid every rename between directories, leaves things as they are, and the log says so. It is a second wall: paths
//! are kept below the root by `openat2` (`store::posix::beneath`).

use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible, PathBeneath, PathFd, Ruleset, RulesetAttr,
    RulesetCreatedAttr, RulesetError, RulesetStatus, Scope,
};
use rustix::fs::FileType;
use rustix::thread::{CapabilitySet, capabilities};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::Path;

/// The newest set of rights that is asked for; an older kernel applies those it knows.
const NEWEST: ABI = ABI::V5;
/// For the network and other processes, which an endpoint needs nothing of.
const NEWEST_OUTSIDE: ABI = ABI::V6;
/// What is read while serving: this process's own accounts, limits of sockets, the boot's id, limits of processors.
const READ: [&str; 4] = ["/proc/self", "/proc/sys/net", "/proc/sys/kernel/random", "/sys/fs/cgroup"];

/// What came of it, in the log's words.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Landlock {
    On,
    /// The kernel knows some of the rights only.
    Partly,
    /// The kernel has none, or none that allows renames between directories.
    Off,
}

impl Landlock {
    pub fn word(self) -> &'static str {
        match self {
            Landlock::On => "on",
            Landlock::Partly => "partly",
            Landlock::Off => "off",
        }
    }
}

/// What of the file system is left to a confined process besides `READ`.
pub enum Left<'a> {
    /// A root and directories of its own, with everything in them.
    ReadAndWrite(BorrowedFd<'a>, &'a [&'a Path]),
    /// Objects, with what is below them.
    Read(&'a [OwnedFd]),
}

/// Confines the calling thread, and all threads it starts from here on, for good.
pub fn restrict(left: Left<'_>) -> Result<Landlock, RulesetError> {
    confine(files_handled()?, left)
}

/// The same, and what leads outside is given up: new listeners, TCP connections that it opens, signals to others, abstract
/// sockets; connections are left to one that carries out jobs at other endpoints. What it accepts is no part of that. One set of rules for all: a second one would forbid renames.
pub fn seclude(left: Left<'_>, connects: bool) -> Result<Landlock, RulesetError> {
    let given_up = if connects { AccessNet::BindTcp.into() } else { AccessNet::from_all(NEWEST_OUTSIDE) };
    let outside = files_handled()?.handle_access(given_up)?;
    confine(outside.scope(Scope::from_all(NEWEST_OUTSIDE))?, left)
}

fn files_handled() -> Result<Ruleset, RulesetError> {
    Ruleset::default()
        .set_compatibility(CompatLevel::SoftRequirement)
        .handle_access(AccessFs::Refer)?
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(AccessFs::from_all(NEWEST))
}

fn confine(ruleset: Ruleset, left: Left<'_>) -> Result<Landlock, RulesetError> {
    let mut ruleset = ruleset.create()?;
    match left {
        Left::ReadAndWrite(root, own) => {
            ruleset = ruleset.add_rule(PathBeneath::new(root, files()))?;
            for directory in own.iter().filter_map(|path| PathFd::new(path).ok()) {
                ruleset = ruleset.add_rule(PathBeneath::new(directory, files()))?;
            }
        }
        Left::Read(objects) => {
            for object in objects {
                let kind = rustix::fs::fstat(object).map(|status| FileType::from_raw_mode(status.st_mode));
                let rights = match kind {
                    Ok(FileType::Directory) => AccessFs::ReadFile | AccessFs::ReadDir,
                    Ok(FileType::RegularFile) => AccessFs::ReadFile.into(),
                    // Of a link its text is read, which needs no right; of anything else nothing is.
                    _ => continue,
                };
                ruleset = ruleset.add_rule(PathBeneath::new(object, rights))?;
            }
        }
    }
    for path in READ {
        // What is not there is not read either.
        if let Ok(directory) = PathFd::new(path) {
            ruleset = ruleset.add_rule(PathBeneath::new(directory, AccessFs::ReadFile | AccessFs::ReadDir))?;
        }
    }
    Ok(word_of(ruleset.restrict_self()?.ruleset))
}

fn word_of(status: RulesetStatus) -> Landlock {
    match status {
        RulesetStatus::FullyEnforced => Landlock::On,
        RulesetStatus::PartiallyEnforced => Landlock::Partly,
        RulesetStatus::NotEnforced => Landlock::Off,
    }
}

/// Everything that is done with files and directories, FIFOs and sockets included. Nothing is executed, and devices are made
/// only by a process that kept the power to.
fn files() -> BitFlags<AccessFs> {
    let foreign = AccessFs::Execute | AccessFs::IoctlDev;
    let devices = AccessFs::MakeChar | AccessFs::MakeBlock;
    let makes_devices = capabilities(None).is_ok_and(|held| held.effective.contains(CapabilitySet::MKNOD));
    AccessFs::from_all(NEWEST) & !(if makes_devices { foreign } else { foreign | devices })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::fd::AsFd;

    #[test]
    fn a_confined_thread_reaches_root_and_state_and_nothing_else() {
        if !needs::landlock() {
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        let [root, state, other] = ["root", "state", "other"].map(|name| dir.path().join(name));
        for directory in [&root, &state, &other] {
            fs::create_dir_all(directory.join("a/b")).unwrap();
            fs::write(directory.join("a/file"), "x").unwrap();
        }
        // A thread of its own: it does not get out again.
        let confined = std::thread::spawn(move || {
            let opened = store::posix::beneath::open_directory(&root).unwrap();
            let landlock = seclude(Left::ReadAndWrite(opened.as_fd(), &[state.as_path()]), false).unwrap();
            assert_ne!(landlock, Landlock::Off);
            for directory in [&root, &state] {
                assert_eq!(fs::read(directory.join("a/file")).unwrap(), b"x");
                fs::write(directory.join("a/new"), "y").unwrap();
                fs::rename(directory.join("a/new"), directory.join("a/b/moved")).unwrap();
                fs::hard_link(directory.join("a/b/moved"), directory.join("linked")).unwrap();
                fs::remove_file(directory.join("a/b/moved")).unwrap();
            }
            fs::read_to_string("/proc/thread-self/schedstat").unwrap();
            fs::read_to_string("/proc/self/status").unwrap();
            net::socket::granted_send_buffer_bytes_max().unwrap();
            let denied = |result: std::io::Result<()>| {
                assert_eq!(result.unwrap_err().kind(), std::io::ErrorKind::PermissionDenied);
            };
            denied(fs::read(other.join("a/file")).map(drop));
            denied(fs::write(other.join("new"), "z"));
            denied(fs::read("/etc/passwd").map(drop));
            denied(fs::remove_file(other.join("a/file")));
        });
        confined.join().unwrap();
    }

    #[test]
    fn a_secluded_thread_accepts_and_neither_connects_listens_nor_signals() {
        if !needs::landlock_outside() {
            return;
        }
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let earlier = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let reached = earlier.local_addr().unwrap();
        let other = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let mut sleeper = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let pid = rustix::process::Pid::from_child(&sleeper);
        let client = std::net::TcpStream::connect(address).unwrap();
        let secluded = std::thread::spawn(move || {
            let landlock = seclude(Left::Read(&[]), false).unwrap();
            listener.accept().unwrap();
            assert_eq!(landlock, Landlock::On);
            let denied = |error: std::io::Error| assert_eq!(error.kind(), std::io::ErrorKind::PermissionDenied);
            denied(std::net::TcpStream::connect(address).unwrap_err());
            denied(std::net::TcpListener::bind(other).unwrap_err());
            denied(rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap_err().into());
        });
        secluded.join().unwrap();
        // One that carries out jobs may connect, and no more.
        let there = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let connects = std::thread::spawn(move || {
            let landlock = seclude(Left::Read(&[]), true).unwrap();
            std::net::TcpStream::connect(reached).unwrap();
            assert_eq!(landlock, Landlock::On);
            assert!(std::net::TcpListener::bind(there).is_err());
        });
        connects.join().unwrap();
        drop((client, earlier));
        sleeper.kill().unwrap();
        sleeper.wait().unwrap();
    }
}
