//! A folder in memory that belongs to one run, and memory that is warm when a run starts.
//!
//! Invariants:
//! - The folder's name carries the host, the process id and its start time, so the next run can tell whether its owner
//!   lives, and removes it if not. On storage that several hosts share, none judges the processes of another.
//! - What is mounted in a folder goes before the folder does: a mount whose process is gone cannot be looked into.
//! - Of a ballast, what a run needs in the first second is free before the clock starts; the rest follows as it is used.

use std::cmp::Reverse;
use std::ffi::OsString;
use std::fs;
use std::io::ErrorKind;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::mount::{UnmountFlags, unmount};

use crate::account::{Machine, Stat};
use crate::dataset::{self, Free};
use crate::error::{Error, Kind, Result};

/// Where folders are made unless the caller names a place: a tmpfs on every Linux host.
pub const MEMORY_DIR: &str = "/dev/shm";
const PREFIX: &str = "thalweg-bench-";
/// Over which the load of others is judged, and how much of the machine they may use.
const QUIET_WINDOW: Duration = Duration::from_millis(300);
const QUIET_SHARE_MAX: f64 = 0.05;
/// Above this many files the ballast has as many files as the set, since inodes and directory entries are memory too.
const FEW_FILES_MAX: u64 = 10_000;
/// Page tables, sockets and queues of the run want warm memory as well; over an emulated link, windows in flight too.
const BALLAST_EXTRA_BYTES: u64 = 512 << 20;
const SLICE_BYTES: u64 = 64 << 20;
/// Warm memory kept free during a run: more than is used in the time between two looks, less than would wait long enough to
/// be given back to the host.
const WARM_BYTES: u64 = 1 << 30;
const LOOK_EVERY: Duration = Duration::from_millis(10);
/// A process that is ending may still make something in a tree that is being removed: so often it is tried in all.
const REMOVALS: u32 = 5;
const REMOVAL_PAUSE: Duration = Duration::from_millis(200);

/// What a run waits for while its memory is being kept warm.
#[derive(Clone, Copy, Debug)]
pub struct Pauses {
    /// A virtual machine may give free pages back to its host, after about two seconds, and pays several times more to
    /// touch them again. Waiting with the ballast in place lets it give back what lies around it, not during the run.
    pub memory: Duration,
    /// The longest wait for others to leave the machine alone; a run that starts without that is marked disturbed.
    pub quiet_max: Duration,
}

impl Default for Pauses {
    fn default() -> Self {
        Pauses { memory: Duration::from_millis(2_200), quiet_max: Duration::from_secs(10) }
    }
}

#[derive(Debug)]
pub struct Workspace {
    path: PathBuf,
    pauses: Pauses,
}

impl Workspace {
    /// `tell` hears of what earlier runs have left and cannot be removed.
    pub fn create(parent: Option<&Path>, pauses: Pauses, tell: &mut dyn FnMut(&str)) -> Result<Workspace> {
        let parent = parent.unwrap_or(Path::new(MEMORY_DIR));
        remove_leftovers(parent, tell);
        let pid = std::process::id();
        let (host, start) = (host().unwrap_or_else(|| "unknown".into()), start_time_ticks(pid).unwrap_or(0));
        let path = parent.join(format!("{PREFIX}{host}-{pid}-{start}"));
        // Only one run at a time per process: the folder of a second one would be the same.
        fs::create_dir(&path).map_err(Error::io("create", &path))?;
        Ok(Workspace { path, pauses })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Refuses when the folder's file system cannot hold `bytes` more.
    pub fn check_space(&self, bytes: u64) -> Result<()> {
        let free = Free::at(&self.path)?;
        if bytes <= free.bytes {
            return Ok(());
        }
        let sizes = [bytes, free.bytes].map(model::quantity::ByteCount);
        let cause = format!("needs {}, {} free", sizes[0], sizes[1]);
        Err(Error::new(Kind::NoSpace, "race in", self.path.display(), cause))
    }

    /// Fills memory as a delivery of this size will. `Ballast::give` gives it back, warm.
    pub fn ballast(&self, files: u64, bytes: u64) -> Result<Ballast> {
        let path = self.path.join("ballast");
        remove_tree(&path)?;
        let spec = if files > FEW_FILES_MAX {
            format!("{files}x{}", bytes / files)
        } else {
            format!("{}x{SLICE_BYTES}", (bytes + BALLAST_EXTRA_BYTES).div_ceil(SLICE_BYTES))
        };
        dataset::run(&dataset::Options::new(spec, &path), &mut |_| ())?;
        thread::sleep(self.pauses.memory);
        wait_for_quiet(self.pauses.quiet_max);
        Ok(Ballast { path, is_sliced: files <= FEW_FILES_MAX })
    }
}

impl Drop for Workspace {
    fn drop(&mut self) {
        let _ = remove_with_mounts(&self.path);
    }
}

#[derive(Debug)]
pub struct Ballast {
    path: PathBuf,
    is_sliced: bool,
}

/// A ballast that shrinks as a run uses memory; dropping it removes the rest.
#[derive(Debug)]
pub struct Giving {
    path: PathBuf,
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Ballast {
    /// All at once.
    pub fn drop_now(self) -> Result<()> {
        remove_tree(&self.path)
    }

    /// As much as a run needs at first, and from then on as much as it uses: memory that is free for long is given back to
    /// the host in the middle of a run that takes seconds, and touching it again stops the machine for tens of ms.
    pub fn give(self) -> Result<Giving> {
        let is_over = Arc::new(AtomicBool::new(false));
        let mut giving = Giving { path: self.path, is_over, thread: None };
        if !self.is_sliced {
            remove_tree(&giving.path)?;
            return Ok(giving);
        }
        let free_bytes_min = memory_free_bytes() + WARM_BYTES;
        let mut slices = files_below(&giving.path);
        give_until(free_bytes_min, &mut slices);
        let is_over = Arc::clone(&giving.is_over);
        giving.thread = Some(thread::spawn(move || {
            while !is_over.load(Relaxed) && !slices.is_empty() {
                give_until(free_bytes_min, &mut slices);
                thread::sleep(LOOK_EVERY);
            }
        }));
        Ok(giving)
    }
}

impl Drop for Giving {
    fn drop(&mut self) {
        self.is_over.store(true, Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        let _ = remove_tree(&self.path);
    }
}

fn give_until(free_bytes_min: u64, slices: &mut Vec<PathBuf>) {
    while memory_free_bytes() < free_bytes_min {
        let Some(slice) = slices.pop() else { return };
        let _ = fs::remove_file(slice);
    }
}

fn files_below(dir: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(dir) else { return Vec::new() };
    let paths = entries.flatten().map(|entry| entry.path());
    paths.flat_map(|path| if path.is_dir() { files_below(&path) } else { vec![path] }).collect()
}

fn memory_free_bytes() -> u64 {
    let text = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("MemFree:"));
    line.and_then(|line| line.trim().trim_end_matches("kB").trim().parse::<u64>().ok()).map_or(0, |kib| kib << 10)
}

/// Removes a tree; that it does not exist is fine.
pub fn remove_tree(path: &Path) -> Result<()> {
    for left in (0..REMOVALS).rev() {
        match fs::remove_dir_all(path) {
            Err(error) if error.kind() == ErrorKind::DirectoryNotEmpty && left > 0 => thread::sleep(REMOVAL_PAUSE),
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(Error::io("remove", path)(error)),
            _ => break,
        }
    }
    Ok(())
}

fn remove_with_mounts(dir: &Path) -> Result<()> {
    // This thread may have mounts of its own.
    let listed = fs::read("/proc/thread-self/mountinfo").unwrap_or_default();
    // The kernel lists mounts by paths without links.
    let parent = dir.parent().and_then(|parent| parent.canonicalize().ok());
    let listed_as = parent.zip(dir.file_name()).map_or(dir.to_owned(), |(parent, name)| parent.join(name));
    for mount in mounts_below(&listed, &listed_as) {
        // What stays mounted keeps the folder from being removed, which is told.
        let _ = unmount(&mount, UnmountFlags::DETACH | UnmountFlags::NOFOLLOW);
    }
    remove_tree(dir)
}

/// The mount points of a directory's tree, the deepest first.
fn mounts_below(mountinfo: &[u8], dir: &Path) -> Vec<PathBuf> {
    const POINT: usize = 4;
    let lines = mountinfo.split(|byte| *byte == b'\n');
    let points = lines.filter_map(|line| line.split(|byte| *byte == b' ').nth(POINT)).map(unescaped);
    let mut points: Vec<PathBuf> = points.filter(|point| point.starts_with(dir)).collect();
    points.sort_by_key(|point| Reverse(point.components().count()));
    points
}

/// A path as the kernel lists it: blanks, line feeds and backslashes are three octal digits.
fn unescaped(mut field: &[u8]) -> PathBuf {
    let mut path = Vec::with_capacity(field.len());
    while let [first, rest @ ..] = field {
        let (byte, rest) = match field {
            [b'\\', a @ b'0'..=b'3', b @ b'0'..=b'7', c @ b'0'..=b'7', rest @ ..] => {
                ((a - b'0') * 64 + (b - b'0') * 8 + (c - b'0'), rest)
            }
            _ => (*first, rest),
        };
        path.push(byte);
        field = rest;
    }
    PathBuf::from(OsString::from_vec(path))
}

fn wait_for_quiet(limit: Duration) {
    let started = Instant::now();
    let busy_max = QUIET_SHARE_MAX * dataset::cores() as f64 * QUIET_WINDOW.as_secs_f64();
    while started.elapsed() < limit {
        let before = Machine::read();
        thread::sleep(QUIET_WINDOW);
        let after = Machine::read();
        if after.busy_seconds + after.steal_seconds - before.busy_seconds - before.steal_seconds <= busy_max {
            return;
        }
    }
}

/// Removes what dead runs have left; `tell` hears of what cannot be removed.
pub fn remove_leftovers(parent: &Path, tell: &mut dyn FnMut(&str)) {
    let (Some(host), Ok(entries)) = (host(), fs::read_dir(parent)) else { return };
    let own_prefix = format!("{PREFIX}{host}-");
    for entry in entries.flatten() {
        let name = entry.file_name();
        // Of another host nobody here knows which processes live; names of earlier versions do not say whose they are.
        let owner = name.to_str().and_then(|name| name.strip_prefix(&own_prefix));
        let owner = owner.and_then(|owner| owner.split_once('-'));
        let Some((pid, start)) = owner else { continue };
        let (Ok(pid), Ok(start)) = (pid.parse::<u32>(), start.parse::<u64>()) else { continue };
        // Root could remove anybody's, and what others left is theirs.
        let is_own = entry.metadata().is_ok_and(|found| found.uid() == rustix::process::geteuid().as_raw());
        let is_left = is_own && start_time_ticks(pid) != Some(start);
        if let Some(Err(error)) = is_left.then(|| remove_with_mounts(&entry.path())) {
            let what = "unmount what is below it, if anything is, and remove it";
            tell(&format!("a run that was killed has left files that stay: {}; {what}", error.chain()));
        }
    }
}

/// What tells the processes of this boot and process namespace from all others; none where the system does not say.
fn host() -> Option<String> {
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    let namespace = fs::read_link("/proc/self/ns/pid").ok()?;
    let digest = net::sha256(format!("{} {}", boot.trim(), namespace.display()).as_bytes());
    Some(digest[..4].iter().map(|byte| format!("{byte:02x}")).collect())
}

fn start_time_ticks(pid: u32) -> Option<u64> {
    Stat::read(pid).map(|stat| stat.start_time_ticks)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::mount::{MountPropagationFlags, mount_change};
    use std::os::unix::fs::PermissionsExt;
    use std::process::Command;

    /// The folder of a run whose process has gone: the same process id with another start time is another process.
    fn dead(parent: &Path) -> PathBuf {
        parent.join(format!("{PREFIX}{}-{}-1", host().unwrap(), std::process::id()))
    }

    #[test]
    fn a_dead_runs_folder_is_removed_and_a_living_ones_or_another_hosts_kept() {
        let dir = tempfile::tempdir().unwrap();
        let (own, host) = (std::process::id(), host().unwrap());
        let living = format!("{PREFIX}{host}-{own}-{}", start_time_ticks(own).unwrap());
        let elsewhere = format!("{PREFIX}{}-{own}-1", if host == "0123abcd" { "0123abce" } else { "0123abcd" });
        let before_hosts = format!("{PREFIX}{own}-1");
        let mut kept = [&*living, &*elsewhere, &*before_hosts, "thalweg-bench-notes", "other"];
        for folder in kept.iter().map(|name| dir.path().join(name)).chain([dead(dir.path())]) {
            fs::create_dir_all(folder.join("inside")).unwrap();
        }
        remove_leftovers(dir.path(), &mut |told| panic!("{told}"));
        let mut left: Vec<_> = fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        left.sort();
        kept.sort_unstable();
        assert_eq!(left, kept);
    }

    #[test]
    fn mounts_are_found_by_their_escaped_names_and_the_deepest_comes_first() {
        let listed = ["/", r"/w/a\040b", r"/w/a\040b/c\134d", r"/w/a\040bc"];
        let listed = listed.map(|point| format!("41 22 0:41 / {point} rw shared:1 - tmpfs none rw\n")).concat();
        let found = mounts_below(listed.as_bytes(), Path::new("/w/a b"));
        assert_eq!(found, [Path::new("/w/a b/c\\d"), Path::new("/w/a b")]);
    }

    #[test]
    fn what_a_dead_run_has_mounted_goes_with_its_folder() {
        if !needs::root() {
            return;
        }
        // What this thread mounts is seen by nobody else.
        lab::unshare_mounts().unwrap();
        mount_change("/", MountPropagationFlags::REC | MountPropagationFlags::PRIVATE).unwrap();
        let dir = tempfile::tempdir().unwrap();
        let (dead, mut told) = (dead(dir.path()), Vec::new());
        for place in [dead.join("a b"), dead.join("a b/deeper")] {
            fs::create_dir_all(&place).unwrap();
            assert!(Command::new("mount").args(["-t", "tmpfs", "none"]).arg(&place).status().unwrap().success());
        }
        remove_leftovers(dir.path(), &mut |text| told.push(text.to_owned()));
        assert!(told.is_empty() && !dead.exists(), "{told:?}");
    }

    #[test]
    fn what_cannot_be_removed_of_a_dead_run_is_told() {
        let dir = tempfile::tempdir().unwrap();
        let kept = dead(dir.path()).join("kept");
        fs::create_dir_all(kept.join("inside")).unwrap();
        fs::set_permissions(&kept, fs::Permissions::from_mode(0o500)).unwrap();
        let parent = dir.path();
        let told = needs::bound_by_permissions(|| {
            let mut told = Vec::new();
            remove_leftovers(parent, &mut |text| told.push(text.to_owned()));
            told
        });
        fs::set_permissions(&kept, fs::Permissions::from_mode(0o700)).unwrap();
        assert!(told.len() == 1 && told[0].contains("Permission denied"), "{told:?}");
    }

    #[test]
    fn a_workspace_leaves_nothing_behind() {
        let dir = tempfile::tempdir().unwrap();
        let pauses = Pauses { memory: Duration::ZERO, quiet_max: Duration::ZERO };
        let workspace = Workspace::create(Some(dir.path()), pauses, &mut |_| ()).unwrap();
        fs::write(workspace.path().join("file"), b"content").unwrap();
        drop(workspace);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    }
}
