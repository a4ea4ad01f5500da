//! The record of a laboratory: who holds it, what belongs to it, and how to remove it, its holder alive or not.
//!
//! Owns: one directory per laboratory below `state_dir`, named by a random token, with the holder (`owner`), the scenario, the
//! hosts, the control groups and the control socket; and the removal of the groups, and of the namespaces, whose names follow
//! from the token.
//!
//! Invariants: the record exists before anything it names is made, and goes after all of it is gone. A process id alone may
//! be in use again, so a holder is known by its start time too, and by the boot and the process namespace. So may the
//! number of a user namespace: a process is a laboratory's only if that has mounted its names for it.

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
use crate::quota;
use crate::unprivileged::{RUN_SOURCE, outer_user, user_namespace};

/// How long killed processes get to disappear before the namespace is removed around them.
const KILL_WAIT: Duration = Duration::from_secs(3);
const TOKEN_DIGITS: usize = 5;
const OWNER: &str = "owner";
const BOOT: &str = "boot";
const USER_NAMESPACE: &str = "user-namespace";
const HOSTS: &str = "hosts";
const GROUPS: &str = "groups";
/// Has a shell join the group whose list of processes comes first, and become the program that follows.
const JOIN: &str = r#"echo $$ >"$0" && exec "$@""#;

/// Where the records of this user are. Without root `/run` is out of reach, and inside a user namespace it is another one.
pub fn state_dir() -> PathBuf {
    match outer_user() {
        None => PathBuf::from("/run/thalweg-lab"),
        Some(user) => std::env::temp_dir().join(format!("thalweg-lab-{user}")),
    }
}

/// Where the processes of a record are, if they are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Origin {
    Here,
    /// Whatever it was ended with that.
    AnotherBoot,
    /// Of the same boot, in another process namespace: nobody here can tell.
    Elsewhere,
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
                    if let Some(here) = boot_and_namespace() {
                        lease.write(BOOT, &here)?;
                    }
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
        let is_running = self.pid != 0 && start_time_ticks(self.pid) == Some(self.start_time_ticks);
        is_running && self.origin() == Origin::Here
    }

    fn origin(&self) -> Origin {
        // Records of earlier versions do not say, and a system that does not say has one of each.
        let (Some(there), Some(here)) = (self.read_text(BOOT), boot_and_namespace()) else { return Origin::Here };
        let boot_of = |text: &str| text.split_whitespace().next().map(str::to_owned);
        match () {
            () if there.trim() == here => Origin::Here,
            () if boot_of(&there) == boot_of(&here) => Origin::Elsewhere,
            () => Origin::AnotherBoot,
        }
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

    /// Puts on record which control groups are about to be made, by host.
    pub fn record_groups<'a>(&self, groups: impl Iterator<Item = (&'a str, PathBuf)>) -> Result<()> {
        let lines = groups.map(|(host, group)| format!("{host} {}\n", group.display()));
        self.write(GROUPS, &lines.collect::<String>())
    }

    /// The control group of a host that has one.
    pub fn group(&self, host: &str) -> Option<PathBuf> {
        self.groups().into_iter().find(|(name, _)| name == host).map(|(_, group)| group)
    }

    fn groups(&self) -> Vec<(String, PathBuf)> {
        let text = self.read_text(GROUPS).unwrap_or_default();
        let lines = text.lines().filter_map(|line| line.split_once(' '));
        lines.map(|(host, group)| (host.to_owned(), PathBuf::from(group))).collect()
    }

    pub fn namespace(&self, host: &str) -> String {
        format!("tw-{}-{host}", self.token)
    }

    /// The beginning of a command on a host: a program and its arguments follow. Where the host has a quota, it runs with
    /// that or not at all.
    pub fn command(&self, host: &str) -> Result<Command> {
        let mut command = match self.group(host) {
            None => Command::new("ip"),
            // Before `ip`, which hides the control groups of the machine.
            Some(group) => {
                let mut shell = Command::new("sh");
                shell.args(["-c", JOIN]).arg(quota::processes(&group)?).arg("ip");
                shell
            }
        };
        command.args(["netns", "exec"]).arg(self.namespace(host));
        Ok(command)
    }

    /// Removes processes, namespaces, control groups, files and finally the record, if the processes are known to be gone.
    /// Parts that do not exist are passed over.
    pub fn remove(&self) {
        let origin = self.origin();
        if origin == Origin::Elsewhere {
            return;
        }
        let namespaces: Vec<_> = self.hosts().iter().map(|host| self.namespace(host)).collect();
        let groups = self.groups();
        if origin == Origin::Here {
            kill(namespaces.iter().flat_map(|namespace| pids_inside(namespace)).collect());
            // Also what is about to enter a namespace, and what has left one.
            kill(groups.iter().flat_map(|(_, group)| quota::pids(group)).collect());
            kill(self.pids_without_root());
        }
        let are_gone = origin == Origin::AnotherBoot || self.are_gone_without_root();
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
        if !namespaces.is_empty() {
            // Fails, as it should, where something else lies in it.
            let _ = fs::remove_dir(NETNS_ETC_DIR);
        }
        let left = groups.iter().filter(|(_, group)| !quota::remove(group)).count();
        if are_gone && left == 0 && !namespaces.iter().any(|namespace| Path::new(NETNS_DIR).join(namespace).exists()) {
            let _ = fs::remove_dir_all(&self.dir);
        }
    }

    /// Of a laboratory without root. Never the calling process: its holder removes it from inside too.
    fn pids_without_root(&self) -> Vec<Pid> {
        let Some(namespace) = self.read_text(USER_NAMESPACE) else { return Vec::new() };
        let is_its = |pid: &u32| {
            // From inside another user namespace it is not to be seen.
            let may_be = *pid != std::process::id() && user_namespace(*pid).is_none_or(|found| found == namespace);
            may_be && is_marked(&fs::read(format!("/proc/{pid}/mountinfo")).unwrap_or_default(), &self.token)
        };
        let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
        let pids = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
        pids.filter(is_its).filter_map(|pid| Pid::from_raw(pid as i32)).collect()
    }

    /// Whether that is known: from inside a user namespace of its own, this process is shown no others where `/proc`
    /// hides them.
    fn are_gone_without_root(&self) -> bool {
        let is_inside = outer_user().is_some() && rustix::process::geteuid().is_root();
        let is_hidden = || fs::read_to_string("/proc/mounts").is_ok_and(|mounts| mounts.contains("hidepid="));
        self.read_text(USER_NAMESPACE).is_none() || !(is_inside && is_hidden()) && self.pids_without_root().is_empty()
    }
}

/// Whether the mounts of a process are a laboratory's without root: its `/run`, and there the names of its hosts.
fn is_marked(mountinfo: &[u8], token: &str) -> bool {
    let mounts = String::from_utf8_lossy(mountinfo);
    let has = |part: String| mounts.contains(&part);
    has(format!(" - tmpfs {RUN_SOURCE} ")) && has(format!(" {NETNS_DIR}/tw-{token}-"))
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
    let is_dead = |lease: &Lease| !lease.is_holder_alive() && lease.origin() != Origin::Elsewhere;
    let dead: Vec<_> = Lease::all().into_iter().filter(is_dead).collect();
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

/// What tells the process ids of this boot and process namespace from all others; none where the system does not say.
fn boot_and_namespace() -> Option<String> {
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    let namespace = fs::read_link("/proc/self/ns/pid").ok()?;
    Some(format!("{} {}", boot.trim(), namespace.display()))
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

    /// A record that names this process as its holder.
    fn record(boot: &str) -> (tempfile::TempDir, Lease) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("00a7f");
        fs::create_dir(&path).unwrap();
        let pid = std::process::id();
        fs::write(path.join(OWNER), format!("{pid} {}\n", start_time_ticks(pid).unwrap())).unwrap();
        fs::write(path.join(BOOT), boot).unwrap();
        (dir, Lease::read(&path).unwrap())
    }

    #[test]
    fn a_holder_of_another_boot_is_gone_and_one_in_another_process_namespace_is_left_alone() {
        let here = boot_and_namespace().unwrap();
        let elsewhere = format!("{} pid:[1]", here.split_whitespace().next().unwrap());
        for (boot, is_alive, is_removed) in
            [(here.as_str(), true, true), ("0000-0000 pid:[1]", false, true), (elsewhere.as_str(), false, false)]
        {
            let (_dir, lease) = record(boot);
            assert_eq!(lease.is_holder_alive(), is_alive, "{boot}");
            lease.remove();
            assert_eq!(!lease.dir.exists(), is_removed, "{boot}");
        }
    }

    #[test]
    fn a_control_group_is_where_it_was_made_and_a_command_that_it_would_not_hold_is_refused() {
        let (dir, lease) = record(&boot_and_namespace().unwrap());
        let group = dir.path().join("group");
        fs::create_dir(&group).unwrap();
        assert_eq!(lease.command("a").unwrap().get_program(), "ip");
        lease.record_groups([("a", group.clone())].into_iter()).unwrap();
        assert!(lease.command("a").is_err(), "it has no quota");
        assert_eq!(lease.command("b").unwrap().get_program(), "ip");
        let quota = group.join("cpu.max");
        fs::write(&quota, "20000 100000").unwrap();
        assert_eq!(lease.command("a").unwrap().get_program(), "sh");
        fs::remove_file(quota).unwrap();
        lease.remove();
        assert!(!group.exists() && !lease.dir.exists());
    }

    #[test]
    fn a_process_is_not_killed_for_the_number_of_its_user_namespace() {
        if !needs::root() {
            return;
        }
        let mut other = Command::new("unshare").args(["--user", "sleep", "1000"]).spawn().unwrap();
        let (own, deadline) = (user_namespace(std::process::id()), Instant::now() + KILL_WAIT);
        let number = loop {
            match user_namespace(other.id()).filter(|found| Some(found) != own.as_ref()) {
                Some(number) => break number,
                None => assert!(Instant::now() < deadline, "it has no namespace of its own"),
            }
        };
        let (_dir, lease) = record(&boot_and_namespace().unwrap());
        lease.write(USER_NAMESPACE, &number).unwrap();
        lease.remove();
        let ended = other.try_wait().unwrap();
        let _ = other.kill();
        other.wait().unwrap();
        assert_eq!(ended, None, "it is nobody's laboratory");
        assert!(!lease.dir.exists());
    }

    #[test]
    fn a_laboratory_without_root_is_known_by_what_it_has_mounted() {
        let run = "600 560 0:70 / /run rw,nosuid,nodev - tmpfs thalweg-lab rw,mode=755,uid=1000\n";
        let network = "601 600 0:4 net:[4026532299] /run/netns/tw-00a7f-a rw shared:9 - nsfs nsfs rw\n";
        let of = |mounts: &[&str], token| is_marked(mounts.concat().as_bytes(), token);
        assert!(of(&[run, network], "00a7f"));
        assert!(!of(&[run, network], "00a70") && !of(&[run], "00a7f"));
        // One that root made is seen by every process of the machine.
        assert!(!of(&[network], "00a7f"));
    }
}
