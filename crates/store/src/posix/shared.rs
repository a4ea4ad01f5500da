//! What the lanes, large files and links of one sink have in common: the tree, staging, and what is not durable yet.
//!
//! Invariant: what a failed wait for a whole file system has put in doubt is never taken for durable afterwards (F072).

use super::attributes::plain;
use super::blocks::WriteVerdict;
use super::facts;
use super::fence;
use super::inherit::Inherited;
use super::keep::Keeper;
use super::list::generation_of;
use super::rename::to_free_name;
use super::spelling::{self, Spellings};
use super::staging::{FileNumber, LaneDirectory, Staging};
use super::ticks::{ASKED, Ticks};
use super::tree::Tree;
use super::wait::{once, sync_names};
use crate::sink::{PublishRule, Staged};
use crate::{Error, Result};
use model::mutant;
use model::{Entry, FailureKind, JobId, Kind, Name, ObjectId, Timestamp};
use os::fs::{fchmod, fsync, futimens, openat, renameat_with, syncfs, unlinkat};
use rustix::fs::{AtFlags, Mode, OFlags, RenameFlags, Stat, Timespec, Timestamps, fstat};
use rustix::io::Errno;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::ffi::CStr;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{
    AtomicBool, AtomicU64, AtomicUsize,
    Ordering::{Relaxed, SeqCst},
};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, RwLock};

/// The sticky bit of a directory that is not to have it in the end.
pub(super) const UNFINISHED: u32 = 0o1000;
/// The set-group-id bit of a directory comes from the one above, and says which group its files get.
pub(super) const GROUP_BIT: u32 = 0o2000;
/// Without these its owner can neither list a directory nor reach what is in it.
pub(super) const USABLE: u32 = 0o500;
/// What was tried, where it fails: the source has a directory of the same path.
pub(super) const OPEN_DIRECTORY: &str = "open directory at the destination";
/// Numbers of directories that are not the job's begin here: far above those that a sender counts to.
pub(super) const SCRATCH_FIRST: u64 = 1 << 61;
/// Directories of which it is remembered what files in them get: they are visited one after the other.
const INHERITED_MAX: usize = 4096;

/// What the lanes and large files of one sink have in common.
pub(super) struct Shared {
    pub tree: Tree,
    pub stagings: Mutex<BTreeMap<Ground, Arc<Staging>>>,
    pub apart: Apart,
    /// What files in a directory get, by the directory's number.
    pub inherited: Mutex<HashMap<u64, Arc<Inherited>>>,
    pub staging_parent: Arc<OwnedFd>,
    /// Whose staging it is of those that share the storage.
    pub host: Name,
    /// The job is a slice of one that several hosts work on: its staging is its own, so that another host can take it away.
    pub slice: OnceLock<JobId>,
    pub lanes: RwLock<Vec<Arc<Lane>>>,
    /// Those of them that nobody uses, with their numbers.
    pub free_lanes: Mutex<Vec<(u64, Arc<Lane>)>>,
    /// Where links are made before they get their names, one in each staging.
    pub link_lanes: Mutex<Vec<Arc<Lane>>>,
    /// Directories that are open to this user only as long as the job fills them, and the mode that they had. One that
    /// an attempt which died has made counts as having had the mode that it is to get.
    pub unfinished: Mutex<BTreeMap<u64, u32>>,
    pub is_closed: AtomicBool,
    /// Directories whose names changed since the last `sync_names`.
    pub changed_directories: Mutex<BTreeSet<u64>>,
    /// Held while names are being made durable, so that nobody takes them for done meanwhile. True after a failure, which
    /// no later success makes good (F072).
    pub names_failed: Mutex<bool>,
    pub chmod: Option<(u32, u32)>,
    /// Where what is replaced or removed goes.
    pub backup: Option<Backup>,
    /// What objects get besides content.
    pub keeper: Keeper,
    pub next_scratch: AtomicU64,
    pub spellings: Spellings,
    pub ticks: Ticks,
    pub verdict: WriteVerdict,
}

/// Within one, everything can be renamed.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Ground {
    /// As `facts::mount_of`.
    pub mount: (u64, u64),
    pub apart: Option<u64>,
}

/// Directories into which nothing can be renamed from staging above them, though they are on the same mount (`apart`).
#[derive(Default)]
pub(super) struct Apart {
    directories: Mutex<BTreeSet<u64>>,
    count: AtomicUsize,
    /// Held while such a directory is looked for.
    pub search: Mutex<()>,
}

impl Apart {
    /// It changes with each that is found.
    pub fn count(&self) -> usize {
        self.count.load(Relaxed)
    }

    pub fn add(&self, directory: u64) {
        self.directories.lock().unwrap().insert(directory);
        self.count.fetch_add(1, Relaxed);
    }

    pub fn contains(&self, directory: u64) -> bool {
        self.directories.lock().unwrap().contains(&directory)
    }

    /// The nearest of them, the directory itself or one above it.
    pub fn above(&self, tree: &Tree, directory: u64) -> Option<u64> {
        if self.count() == 0 {
            return None;
        }
        let mut at = directory;
        while !self.contains(at) {
            at = tree.place(at)?.0;
        }
        Some(at)
    }
}

pub(super) struct Lane {
    pub directory: LaneDirectory,
    pub staging: Arc<Staging>,
    /// The number of the file that was begun last, and of the last one that a failed wait for the whole file system has put in
    /// doubt: its content may be lost, and no later wait says so (F072).
    pub begun: AtomicU64,
    pub doubtful: AtomicU64,
}

impl Lane {
    pub fn new(directory: LaneDirectory, staging: Arc<Staging>) -> Lane {
        Lane { directory, staging, begun: AtomicU64::default(), doubtful: AtomicU64::default() }
    }
}

/// After a failed wait for a whole file system: what was begun there, and not waited for before, is in doubt.
fn doubt(lanes: &[Arc<Lane>], device: u64) {
    let there = lanes.iter().filter(|lane| lane.staging.device == device);
    there.for_each(|lane| lane.doubtful.store(lane.begun.load(SeqCst), SeqCst));
}

/// Where the backups of one job lie.
pub struct Backup {
    /// Below the destination.
    pub names: Vec<Name>,
    /// Directories of the job and where their backups go, by their numbers in the tree.
    pub directories: Mutex<HashMap<u64, u64>>,
    /// A wait for one of these directories failed.
    pub is_in_doubt: AtomicBool,
}

impl Backup {
    pub fn new(names: Vec<Name>) -> Backup {
        Backup { names, directories: Mutex::default(), is_in_doubt: AtomicBool::new(false) }
    }

    /// The path is on the way to the backup directory, is it, or lies in it.
    pub fn covers(&self, path: &[u8]) -> bool {
        let mut parts = path.split(|b| *b == b'/');
        self.names.iter().all(|name| parts.next().is_none_or(|part| part == name.as_bytes()))
    }
}

impl Shared {
    pub fn open_directory(&self, entry: &Entry) -> Result<Arc<OwnedFd>> {
        let path = || self.tree.path(entry.parent.0, b"");
        self.tree.open(entry.parent.0).map_err(|e| Error::new(OPEN_DIRECTORY, path(), e))
    }

    /// The staging from which objects are renamed into a directory, whose number is `parent`.
    pub fn staging_for(&self, parent: ObjectId, directory: &Arc<OwnedFd>) -> Result<Arc<Staging>> {
        let mount = |fd: BorrowedFd<'_>| facts::mount_of(fd).map_err(|e| Error::new("look at", b"", e));
        let ground = Ground { mount: mount(directory.as_fd())?, apart: self.apart.above(&self.tree, parent.0) };
        let mut stagings = self.stagings.lock().unwrap();
        let slice = self.slice.get().copied();
        if let Some(staging) = stagings.get(&ground) {
            // Each time: whoever takes it over removes what is there, and would not come to an end beside a host that makes
            // new files faster than that.
            slice.map_or(Ok(()), |job| fence::check(self.staging_parent.as_fd(), job))?;
            return Ok(staging.clone());
        }
        let top = match ground.apart {
            Some(key) => self.tree.open(key).map_err(|e| Error::new(OPEN_DIRECTORY, self.tree.path(key, b""), e))?,
            None => self.staging_parent.clone(),
        };
        let is_below = mount(top.as_fd())? == ground.mount;
        if slice.is_some() && !(is_below && ground.apart.is_none()) {
            return Err(not_for_slices());
        }
        let place = if is_below { top } else { directory.clone() };
        let staging = Arc::new(Staging::open(place, &self.host, slice)?);
        // It may have been taken over since the job began: whoever did that has not seen this staging.
        if let Some(job) = slice
            && let Err(e) = fence::check(self.staging_parent.as_fd(), job)
        {
            staging.remove_if_empty();
            return Err(e);
        }
        stagings.insert(ground, staging.clone());
        Ok(staging)
    }

    /// The staging that this job has opened; one that had nothing to stage opens what one that died has left.
    pub fn left_over(&self) -> MutexGuard<'_, BTreeMap<Ground, Arc<Staging>>> {
        let mut stagings = self.stagings.lock().unwrap();
        if stagings.is_empty()
            && Staging::is_there(&self.staging_parent)
            && let Ok(mount) = facts::mount_of(self.staging_parent.as_fd())
            && let Ok(staging) = Staging::open(self.staging_parent.clone(), &self.host, None)
        {
            stagings.insert(Ground { mount, apart: None }, Arc::new(staging));
        }
        stagings
    }

    /// What stands at an entry's name has the time that is described, as far as the storage keeps it.
    pub fn has_time(&self, status: &Stat, entry: &Entry) -> bool {
        let times = (generation_of(status).modified, entry.generation.modified);
        self.ticks.is_kept(times, status.st_dev, || self.ask_for_time(status.st_dev, entry))
    }

    /// What the storage that an entry is on makes of `ASKED`: found out in staging.
    fn ask_for_time(&self, device: u64, entry: &Entry) -> Result<Timestamp> {
        let staging = self.staging_for(entry.parent, &self.open_directory(entry)?)?;
        let lane = self.link_lane(&staging)?;
        let (at, name) = (&lane.directory.directory, c"time");
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::RDWR | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let asked = openat(at, name, flags, Mode::RUSR | Mode::WUSR)
            .and_then(|file| futimens(&file, &times_of(ASKED)).and_then(|()| fstat(&file)));
        let _ = unlinkat(at, name, AtFlags::empty());
        let status = asked.map_err(|e| Error::new("look at", b"", e))?;
        // A single file of another storage may be mounted there.
        Ok(if status.st_dev == device { generation_of(&status).modified } else { ASKED })
    }

    /// What the files in a directory get of it.
    pub fn inherited(&self, directory: ObjectId) -> Arc<Inherited> {
        // A directory that this job has made gives what the one above gives.
        let key = self.tree.found_above(directory.0);
        if let Some(known) = self.inherited.lock().unwrap().get(&key) {
            return known.clone();
        }
        let Ok(opened) = self.tree.open(key) else { return Arc::new(Inherited::nothing()) };
        let found = Arc::new(Inherited::of(opened.as_fd()));
        let mut inherited = self.inherited.lock().unwrap();
        if inherited.len() >= INHERITED_MAX {
            inherited.clear();
        }
        inherited.insert(key, found.clone());
        found
    }

    /// Gives a file that was just made in staging what it would have of its directory, if it were made there with this mode.
    pub fn give(&self, file: BorrowedFd<'_>, staging: &Staging, entry: &Entry, mode: u32) {
        let inherited = self.inherited(entry.parent);
        if *inherited != staging.inherited
            && let Err(e) = inherited.give(file, &staging.inherited, mode)
        {
            let text = format!("the group or the default ACL of its directory was not set: {}", plain(e));
            self.keeper.warn(&text, &|| self.tree.path(entry.parent.0, entry.name.as_bytes()));
        }
    }

    /// The mode a new file or directory gets: the source's less the umask, or what its directory or `--chmod` says.
    pub fn mode_of(&self, entry: &Entry) -> u32 {
        match (self.chmod, &entry.kind) {
            (Some((_, mode)), Kind::Directory) => mode,
            (Some((mode, _)), _) => mode,
            (None, Kind::Directory) if self.keeper.fidelity.mode => entry.mode & 0o1777,
            (None, _) if self.keeper.fidelity.mode => entry.mode & 0o777,
            (None, Kind::Directory) => entry.mode & 0o777 & !facts::umask(),
            (None, _) => self.inherited(entry.parent).mode_of(entry.mode & 0o777),
        }
    }

    /// What `--chmod` says of an object.
    pub fn chmod_of(&self, entry: &Entry) -> Option<u32> {
        self.chmod.map(|(files, directories)| if entry.kind == Kind::Directory { directories } else { files })
    }

    /// Gives a small file, complete in staging, the rest of what its entry says.
    pub fn seal(&self, file: BorrowedFd<'_>, entry: &Entry) -> std::result::Result<(), Errno> {
        if let Some((mode, _)) = self.chmod {
            fchmod(file, Mode::from_raw_mode(mode))?;
        }
        self.keep(file, entry, false);
        futimens(file, &times_of(entry.generation.modified))
    }

    /// Gives an object what its source has besides content. Returns what changed, as bits of `cause`.
    pub fn keep(&self, file: BorrowedFd<'_>, entry: &Entry, is_visible: bool) -> u32 {
        if !self.keeper.fidelity.has_attributes() {
            return 0;
        }
        let path = || self.tree.path(entry.parent.0, entry.name.as_bytes());
        self.keeper.apply(file, entry, self.chmod_of(entry), is_visible, &path)
    }

    /// The mode a directory is made with: writable for us until `finish_directory`, and never for more people than in the
    /// end. One that is to change carries a mark, so that the next attempt knows it for an unfinished one.
    pub fn first_mode_of(&self, entry: &Entry) -> u32 {
        // Its group and the others are those of another owner until then.
        let mode = if self.keeper.changes_owner() { 0o700 } else { entry.mode & 0o777 | 0o700 };
        if mode & !facts::umask() == self.mode_of(entry) { mode } else { mode | UNFINISHED }
    }

    /// A lane of a staging, with its number among the sink's: one that was given back, or a new one.
    pub fn take_lane(&self, staging: &Arc<Staging>) -> Result<(u64, Arc<Lane>)> {
        let mut free = self.free_lanes.lock().unwrap();
        if let Some(at) = free.iter().position(|(_, lane)| Arc::ptr_eq(&lane.staging, staging)) {
            return Ok(free.swap_remove(at));
        }
        drop(free);
        let lane = Arc::new(Lane::new(staging.make_lane()?, staging.clone()));
        let mut all = self.lanes.write().unwrap();
        all.push(lane.clone());
        Ok((all.len() as u64 - 1, lane))
    }

    /// Leaves lanes to whoever needs one next. Once the sink is closed their numbers are no longer true.
    pub fn give_back(&self, lanes: &mut Vec<(u64, Arc<Lane>)>) {
        let mut free = self.free_lanes.lock().unwrap();
        if !self.is_closed.load(Relaxed) {
            free.append(lanes);
        }
    }

    /// The lane for links of a staging: what it holds is swept like that of any lane.
    pub fn link_lane(&self, staging: &Arc<Staging>) -> Result<Arc<Lane>> {
        let mut link_lanes = self.link_lanes.lock().unwrap();
        if let Some(lane) = link_lanes.iter().find(|lane| Arc::ptr_eq(&lane.staging, staging)) {
            return Ok(lane.clone());
        }
        let (_, lane) = self.take_lane(staging)?;
        link_lanes.push(lane.clone());
        Ok(lane)
    }

    /// Renames `name` in `from` to the entry's name in `directory`. Whoever calls it tells `changed` of it.
    pub fn rename(
        &self,
        from: BorrowedFd<'_>,
        name: &CStr,
        directory: BorrowedFd<'_>,
        entry: &Entry,
        rule: PublishRule,
    ) -> Result<()> {
        if rule == PublishRule::Replace {
            self.keep_second(directory, entry.parent, &entry.name)?;
        }
        if mutant::is_on("remove-before-replacing") {
            let _ = unlinkat(directory, entry.name.as_c_str(), AtFlags::empty());
        }
        let new_name = entry.name.as_c_str();
        let renamed = match rule {
            PublishRule::NoReplace if !mutant::is_on("replace-what-appeared") => {
                to_free_name((from, name), (directory, new_name))
            }
            _ => renameat_with(from, name, directory, new_name, RenameFlags::empty()),
        };
        renamed.map_err(|e| {
            let path = self.tree.path(entry.parent.0, entry.name.as_bytes());
            match e {
                Errno::EXIST => {
                    Error::of_kind(FailureKind::InTheWay, "publish", path, spelling::why_taken(directory, &entry.name))
                }
                e => Error::new("publish", path, e),
            }
        })
    }

    /// Makes the contents of a group durable; returns the devices of which everything was.
    pub fn sync_contents(&self, group: &mut dyn Iterator<Item = Staged>) -> Result<HashSet<u64>> {
        let lanes = self.lanes.read().unwrap();
        let mut synced: HashSet<u64> = HashSet::new();
        if mutant::is_on("publish-before-sync") {
            return Ok(synced);
        }
        for staged in group {
            let lane = &lanes[staged.lane() as usize];
            if (1..=lane.doubtful.load(SeqCst)).contains(&staged.number()) && !mutant::is_on("forget-doubt") {
                let why = "an earlier wait for the same file system failed";
                return Err(Error::of_kind(FailureKind::WriteError, "write to storage", b"", why));
            }
            if !facts::syncfs_tells() || !facts::has_local_journal(lane.staging.directory.as_fd()) {
                let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                let name = FileNumber::new(staged.number());
                let file = openat(&lane.directory.directory, name.as_c_str(), flags, Mode::empty());
                file.and_then(|file| once(|| fsync(&file)))
                    .map_err(|e| Error::new("write to storage (fsync)", b"", e))?;
            } else if synced.insert(lane.staging.device) {
                let device = lane.staging.device;
                once(|| syncfs(&lane.staging.directory))
                    .inspect_err(|_| doubt(&lanes, device))
                    .map_err(|e| Error::new("write to storage (syncfs)", b"", e))?;
            }
        }
        Ok(synced)
    }

    /// Makes the names in all changed directories durable.
    pub fn sync_changed(&self) -> Result<()> {
        let changed = std::mem::take(&mut *self.changed_directories.lock().unwrap());
        if mutant::is_on("drop-directory-sync") {
            return Ok(());
        }
        let fail = |e: io::Error| Error::new("write directory to storage", b"", e);
        let mut synced = HashSet::new();
        for key in changed {
            let directory = self.tree.open(key).map_err(fail)?;
            if facts::has_local_journal(directory.as_fd()) {
                // One wait for the journal covers every directory of that file system.
                let device = fstat(&directory).map_err(|e| fail(e.into()))?.st_dev;
                if synced.insert(device) {
                    let whole = syncfs(&directory).inspect_err(|_| doubt(&self.lanes.read().unwrap(), device));
                    whole.map_err(|e| fail(e.into()))?;
                }
            } else if !facts::is_memory_backed(directory.as_fd()) {
                sync_names(directory.as_fd()).map_err(|e| fail(e.into()))?;
            }
        }
        Ok(())
    }

    /// A number for a directory that is none of the job's.
    pub fn scratch_number(&self) -> u64 {
        self.next_scratch.fetch_add(1, Relaxed)
    }

    /// Lets a directory go that was removed, or that nothing more is done in.
    pub fn forget(&self, number: u64) {
        self.changed_directories.lock().unwrap().remove(&number);
        self.tree.forget(number);
    }

    /// Remembers that a directory's names are to be made durable.
    pub fn changed(&self, directory: ObjectId) {
        self.changed_directories.lock().unwrap().insert(directory.0);
    }
}

pub(super) fn not_for_slices() -> Error {
    let why = "another file system, fileset or quota project begins here, where several hosts cannot work on one job: copy \
               it without --hosts";
    Error::of_kind(FailureKind::InTheWay, "stage", b"", why)
}

pub(super) fn times_of(modified: Timestamp) -> Timestamps {
    let omitted = Timespec { tv_sec: 0, tv_nsec: rustix::fs::UTIME_OMIT as _ };
    let modified = Timespec { tv_sec: modified.seconds as _, tv_nsec: modified.nanoseconds as _ };
    Timestamps { last_access: omitted, last_modification: modified }
}
