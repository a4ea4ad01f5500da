//! A directory tree as a sink.
//!
//! Invariants:
//! - Content lives in private staging until it is complete and verified; a final name appears by one rename (I1).
//! - Everything below the root is reached through the tree of directories, one name at a time (I5).
//! - Metadata is set by descriptor before the rename; a directory gets its final mode and time last.
//!
//! A destination on another mount than the root gets staging of its own beside the first directory seen there; `apart` knows of others
//! that need one.

use super::beneath::Bounds;
use super::blocks::WriteVerdict;
use super::content::read_back;
use super::keep::Keeper;
use super::lane::PosixSinkLane;
use super::large::{LargeFile, Room};
use super::lines::PosixLines;
use super::owners::Sort;
use super::shared::{Apart, Backup, GROUP_BIT, OPEN_DIRECTORY, SCRATCH_FIRST, Shared, UNFINISHED, USABLE, times_of};
use super::source::PosixSource;
use super::spelling::{self, Spellings};
use super::staging::FileNumber;
use super::sweep;
use super::ticks::Ticks;
use super::tree::Tree;
use super::{facts, fence, host, list, parts};
use crate::prune::Prune;
use crate::sink::{
    Decision, Journals, LinkRule, Linked, Parts, PublishRule, Sink, SinkLane, Staged, StagedFile, There,
};
use crate::source::{Source, SourceFile};
use crate::{BlockWriter, Engines, Error, Lines, Result, SinkFacts};
use model::fidelity::Warning;
use model::mutant;
use model::{Entry, Extent, FailureKind, Fidelity, JobId, Kind, Name, ObjectId};
use os::fs::{fchmod, futimens, mkdirat, openat, unlinkat};
use rustix::fs::{AtFlags, FileType, Mode, OFlags, Stat, fstat, statat};
use rustix::io::Errno;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, OnceLock, RwLock};

pub struct PosixSink {
    pub(super) shared: Arc<Shared>,
}

impl PosixSink {
    /// `root` holds the staging; `destination` is the directory the job's entries go below. `chmod` is the permission
    /// bits for (files, directories) instead of the source's less the umask.
    pub fn new(root: Arc<OwnedFd>, destination: Arc<OwnedFd>, chmod: Option<(u32, u32)>) -> PosixSink {
        let tree = Tree::default();
        tree.insert_base(ObjectId::ROOT.0, destination, b"");
        let shared = Shared {
            tree,
            stagings: Mutex::default(),
            staging_parent: root,
            host: host::own().clone(),
            slice: OnceLock::new(),
            lanes: RwLock::default(),
            free_lanes: Mutex::default(),
            apart: Apart::default(),
            inherited: Mutex::default(),
            link_lanes: Mutex::default(),
            unfinished: Mutex::default(),
            is_closed: AtomicBool::new(false),
            changed_directories: Mutex::default(),
            names_failed: Mutex::default(),
            chmod,
            backup: None,
            keeper: Keeper::default(),
            next_scratch: AtomicU64::new(SCRATCH_FIRST),
            spellings: Spellings::default(),
            ticks: Ticks::default(),
            verdict: WriteVerdict::default(),
        };
        PosixSink { shared: Arc::new(shared) }
    }

    /// Directories that are out of these bounds are not entered. Before anything is shared.
    pub fn keep_within(mut self, bounds: impl Into<Bounds>) -> PosixSink {
        Arc::get_mut(&mut self.shared).expect("a sink that nobody uses yet").tree.bounds = bounds.into();
        self
    }

    /// Keeps this of objects besides content. `is_own` says that what is described is on this host and of its user's own
    /// choice. Before anything is shared.
    pub fn with_fidelity(mut self, fidelity: Fidelity, is_own: bool) -> PosixSink {
        if !fidelity.is_none() {
            let shared = Arc::get_mut(&mut self.shared).expect("a sink that nobody uses yet");
            shared.keeper = Keeper::new(fidelity, is_own);
        }
        self
    }

    /// Keeps what the job replaces or removes below this path of the destination. Before anything is shared.
    pub fn with_backup(mut self, path: Option<&[u8]>) -> PosixSink {
        let names = path.and_then(|path| model::name::relative_path(path).ok()).filter(|names| !names.is_empty());
        let shared = Arc::get_mut(&mut self.shared).expect("a sink that nobody uses yet");
        shared.backup = names.map(Backup::new);
        self
    }

    /// As if this were another host than it is. For tests. Before anything is shared.
    pub fn on_host(mut self, host: Name) -> PosixSink {
        Arc::get_mut(&mut self.shared).expect("a sink that nobody uses yet").host = host;
        self
    }

    /// Makes nothing to find out how fine the storage's times are: a rehearsal may not. Before anything is shared.
    pub(crate) fn only_looks(mut self) -> PosixSink {
        Arc::get_mut(&mut self.shared).expect("a sink that nobody uses yet").ticks.are_unasked = true;
        self
    }

    /// Opens a small object that lies complete in staging, where it has a name.
    pub fn open_staged(&self, staged: Staged, access: OFlags) -> rustix::io::Result<OwnedFd> {
        let lane = self.shared.lanes.read().unwrap()[staged.lane() as usize].clone();
        let flags = access | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        openat(&lane.directory.directory, FileNumber::new(staged.number()).as_c_str(), flags, Mode::empty())
    }

    /// The mode that a directory is to get in the end; none where it has the one that it was made with, and what that came from
    /// the directory above with it.
    fn final_mode_of(&self, entry: &Entry, status: &Stat, is_fresh: bool) -> Option<u32> {
        let (shared, keeper) = (&self.shared, &self.shared.keeper);
        let had = shared.unfinished.lock().unwrap().get(&entry.id.0).copied();
        let is_marked = had.is_some() || is_fresh && shared.first_mode_of(entry) & UNFINISHED != 0;
        if keeper.fidelity.mode || !(is_marked || shared.chmod.is_some()) {
            return None;
        }
        let mode = match (shared.chmod, had) {
            // One that its user could use was opened for the job alone.
            (None, Some(had)) if had & USABLE == USABLE => had,
            // Less than it was made with: a default ACL may have left less than the umask.
            (None, _) if !keeper.changes_owner() => status.st_mode & entry.mode & 0o777,
            _ => shared.mode_of(entry),
        };
        Some(mode | status.st_mode & GROUP_BIT).filter(|mode| *mode != status.st_mode & 0o7777)
    }

    pub(super) fn is_another(&self, directory: &OwnedFd, entry: &Entry, status: &Stat) -> bool {
        self.shared.spellings.is_another(entry.parent, directory.as_fd(), &entry.name, status)
    }

    pub(super) fn error(&self, operation: &'static str, entry: &Entry, e: impl Into<io::Error>) -> Error {
        Error::new(operation, self.path(entry), e)
    }
}

impl Sink for PosixSink {
    fn facts(&self) -> Result<SinkFacts> {
        facts::sink_facts(self.shared.tree.open(ObjectId::ROOT.0).map_err(|e| Error::new("open", b"", e))?.as_fd())
    }

    fn fence(&self, slice: JobId, instead_of: &[JobId]) -> Result<()> {
        fence::take_over(&self.shared.staging_parent, instead_of, &parts::take_from)?;
        fence::check(self.shared.staging_parent.as_fd(), slice)?;
        let _ = self.shared.slice.set(slice);
        Ok(())
    }

    fn probe(&self, engines: &Engines) {
        if let Ok(directory) = self.shared.tree.open(ObjectId::ROOT.0) {
            self.shared.verdict.find(directory, engines);
        }
    }

    fn writer(&self, engines: &Engines) -> Option<Box<dyn BlockWriter>> {
        // A queue writes what it is given: it leaves no holes.
        if self.shared.keeper.fidelity.sparse {
            return None;
        }
        self.shared.verdict.recall(|| self.shared.tree.open(ObjectId::ROOT.0).ok(), engines);
        self.shared.verdict.writer(engines)
    }

    fn enter(&self, name: &Name) -> Result<()> {
        let fail = |e: io::Error| Error::new("make directory", name.as_bytes(), e);
        let here = self.shared.tree.open(ObjectId::ROOT.0).map_err(fail)?;
        let bounds = self.shared.tree.bounds;
        let below = bounds.make_directories(here.as_fd(), std::slice::from_ref(name), false).map_err(fail)?;
        self.shared.tree.insert_base(ObjectId::ROOT.0, Arc::new(below), b"");
        // Also if it was there: an attempt that was cut off may have left a name that is not durable yet.
        let above = self.shared.scratch_number();
        self.shared.tree.insert_base(above, here, b"");
        self.shared.changed(ObjectId(above));
        Ok(())
    }

    fn make_directory(&self, entry: &Entry) -> Result<()> {
        let parent = self.shared.open_directory(entry)?;
        let mode = self.shared.first_mode_of(entry);
        let is_fresh = match mkdirat(&parent, entry.name.as_c_str(), Mode::from_raw_mode(mode)) {
            Ok(()) => true,
            Err(Errno::EXIST) => {
                self.open_existing(&parent, entry, mode)?;
                false
            }
            Err(e) => return Err(self.error("make directory", entry, e)),
        };
        self.shared.tree.insert(entry.id.0, entry.parent.0, entry.name.clone(), is_fresh);
        if !mutant::is_on("forget-new-directories") {
            self.shared.changed(entry.parent);
        }
        Ok(())
    }

    fn look_directory(&self, entry: &Entry) -> Result<()> {
        self.look_for_directory(entry)
    }

    fn is_fresh(&self, directory: ObjectId) -> bool {
        self.shared.tree.is_fresh(directory.0)
    }

    fn open_published(&self, entry: &Entry) -> Result<Arc<dyn SourceFile>> {
        self.open_at(entry)
    }

    fn open_lines(&self, name: &Name) -> Result<Box<dyn Lines>> {
        let top = self.shared.tree.open(ObjectId::ROOT.0).map_err(|e| Error::new("open list", name.as_bytes(), e))?;
        Ok(Box::new(PosixLines::open(top.as_fd(), name)?))
    }

    fn touch(&self, entry: &Entry) -> Result<()> {
        self.set_time(entry)
    }

    fn mirror(&self) -> Option<Arc<dyn Source>> {
        let tree = &self.shared.tree;
        let root = tree.open(ObjectId::ROOT.0).ok()?;
        Some(Arc::new(PosixSource::mirror(root, tree.bounds)))
    }

    fn prune_paths(&self, next: &mut dyn FnMut() -> Option<(Vec<u8>, bool)>, prune: &mut Prune<'_>) {
        self.shared.prune_paths(next, prune);
    }

    fn prune(&self, prune: &mut Prune<'_>) {
        self.shared.prune(prune);
    }

    fn make_symlink(&self, entry: &Entry, rule: PublishRule) -> Result<bool> {
        self.make_link(entry, rule)
    }

    fn make_node(&self, entry: &Entry, rule: PublishRule) -> Result<bool> {
        self.make_special(entry, rule)
    }

    fn make_hard_link(&self, first: &Entry, entry: &Entry, rule: LinkRule) -> Result<Linked> {
        self.link_to(first, entry, rule)
    }

    fn amend(&self, entry: &Entry) -> Result<u32> {
        self.amend_at(entry)
    }

    fn differences(&self, entry: &Entry) -> Result<u32> {
        self.differences_at(entry)
    }

    fn learn_owner(&self, is_group: bool, number: u32, name: &[u8]) {
        self.shared.keeper.learn(if is_group { Sort::Group } else { Sort::User }, number, name);
    }

    fn take_warnings(&self) -> Vec<Warning> {
        self.shared.keeper.take_warnings()
    }

    fn decide(&self, entry: &Entry) -> Result<Decision> {
        if self.shared.tree.is_fresh(entry.parent.0) {
            return Ok(Decision::Absent);
        }
        let directory = self.shared.open_directory(entry)?;
        match statat(&directory, entry.name.as_c_str(), AtFlags::SYMLINK_NOFOLLOW) {
            Err(Errno::NOENT) => Ok(Decision::Absent),
            Err(e) => Err(self.error("look at", entry, e)),
            Ok(status) if self.is_another(&directory, entry, &status) => {
                Err(Error::of_kind(FailureKind::InTheWay, "replace", self.path(entry), spelling::ANOTHER))
            }
            Ok(status) => match FileType::from_raw_mode(status.st_mode) {
                FileType::Directory => {
                    let why = "there is a directory where a file is to be written";
                    Err(Error::of_kind(FailureKind::InTheWay, "replace", self.path(entry), why))
                }
                FileType::RegularFile => {
                    let there = list::generation_of(&status);
                    let is_same = there.size_bytes == entry.generation.size_bytes
                        && self.shared.has_time(&status, entry)
                        && entry.kind == Kind::File;
                    let size_bytes = there.size_bytes;
                    if is_same && !mutant::is_on("trust-names-that-are-there") {
                        // An attempt that was cut off may have left a name that is not durable yet.
                        self.shared.changed(entry.parent);
                    }
                    let there = There { is_file: true, modified: there.modified };
                    Ok(if is_same { Decision::Same } else { Decision::Replace { size_bytes, there } })
                }
                _ => Ok(Decision::Replace { size_bytes: 0, there: There::default() }),
            },
        }
    }

    fn lane(&self, is_published_at_once: bool) -> Result<Box<dyn SinkLane>> {
        Ok(Box::new(PosixSinkLane::new(self.shared.clone(), is_published_at_once)))
    }

    fn begin(&self, entry: &Entry, stem: &str) -> Result<(Arc<dyn StagedFile>, Vec<u8>)> {
        let (file, journal) = LargeFile::open(self.shared.clone(), entry, stem, Room::Reserved, None)?;
        Ok((Arc::new(file), journal))
    }

    fn begin_sparse(&self, entry: &Entry, stem: &str) -> Result<(Arc<dyn StagedFile>, Vec<u8>)> {
        let (file, journal) = LargeFile::open(self.shared.clone(), entry, stem, Room::AsWritten, None)?;
        Ok((Arc::new(file), journal))
    }

    fn begin_growing(&self, entry: &Entry, stem: &str, view: Option<&Name>) -> Result<(Arc<dyn StagedFile>, Vec<u8>)> {
        let (file, journal) = LargeFile::open(self.shared.clone(), entry, stem, Room::Growing, view)?;
        Ok((Arc::new(file), journal))
    }

    fn begin_part(&self, entry: &Entry, stem: &str, part: Extent) -> Result<(Arc<dyn StagedFile>, Journals)> {
        let (file, journals) = parts::begin(&self.shared, entry, stem, part)?;
        Ok((Arc::new(file), journals))
    }

    fn take_parts(&self, entry: &Entry, stem: &str) -> Result<Option<Parts>> {
        parts::take(&self.shared, entry, stem)
    }

    fn begin_on_parts(&self, entry: &Entry, stem: &str) -> Result<Arc<dyn StagedFile>> {
        Ok(Arc::new(parts::begin_on_all(&self.shared, entry, stem)?))
    }

    fn drop_parts(&self, stem_prefix: &str) {
        for staging in self.shared.left_over().values() {
            parts::drop_all(staging, stem_prefix);
        }
    }

    fn has_journal(&self, entry: &Entry, stem: &str) -> bool {
        let directory = self.shared.open_directory(entry);
        directory
            .and_then(|d| self.shared.staging_for(entry.parent, &d))
            .is_ok_and(|staging| super::staging::has_journal(&staging, stem))
    }

    fn drop_staged(&self, is_needless: &dyn Fn(&str, &[u8]) -> bool) {
        for staging in self.shared.left_over().values() {
            sweep::drop_pairs(&staging.directory, is_needless);
        }
    }

    fn sync_group(&self, group: &mut dyn Iterator<Item = Staged>) -> Result<bool> {
        let mut names_failed = self.shared.names_failed.lock().unwrap();
        let named = std::mem::take(&mut *self.shared.changed_directories.lock().unwrap());
        let synced = self.shared.sync_contents(group);
        // What a file system's own sync did not cover is left to `sync_names`.
        let is_covered = |key: &u64| {
            let directory = self.shared.tree.open(*key);
            let device = directory.and_then(|directory| Ok(fstat(&directory)?.st_dev));
            synced.as_ref().is_ok_and(|synced| device.is_ok_and(|device| synced.contains(&device)))
        };
        let mut changed = self.shared.changed_directories.lock().unwrap();
        let mut is_all = true;
        for key in named.into_iter().filter(|key| !is_covered(key)) {
            is_all = false;
            changed.insert(key);
        }
        drop(changed);
        *names_failed |= synced.is_err() && !is_all;
        // A wait that works does not undo one that failed: `sync_names` says so, and the job ends.
        synced.map(|_| is_all && !*names_failed)
    }

    fn publish(&self, entry: &Entry, staged: Staged) -> Result<()> {
        let lane = self.shared.lanes.read().unwrap()[staged.lane() as usize].clone();
        let directory = self.shared.open_directory(entry)?;
        let name = FileNumber::new(staged.number());
        let file = (&lane.staging, lane.directory.directory.as_fd(), name.as_c_str());
        let published = self.shared.publish_file(file, directory.as_fd(), entry, staged.rule());
        match published {
            Ok(()) => self.shared.changed(entry.parent),
            Err(_) => self.discard(staged),
        }
        published
    }

    fn discard(&self, staged: Staged) {
        let lane = self.shared.lanes.read().unwrap()[staged.lane() as usize].clone();
        let _ = unlinkat(&lane.directory.directory, FileNumber::new(staged.number()).as_c_str(), AtFlags::empty());
    }

    fn reread(&self, entry: &Entry, staged: Staged, check: &mut dyn FnMut(&[u8])) -> Result<()> {
        let file = self.open_staged(staged, OFlags::RDONLY).map_err(|e| self.error("read back", entry, e))?;
        read_back(file.as_fd(), check).map_err(|e| self.error("read back", entry, e))
    }

    fn sync_names(&self) -> Result<()> {
        let mut names_failed = self.shared.names_failed.lock().unwrap();
        if *names_failed && !mutant::is_on("retry-failed-name-sync") {
            let why = "an earlier wait for names failed";
            return Err(Error::of_kind(FailureKind::WriteError, "write directory to storage", b"", why));
        }
        let synced = self.shared.sync_changed();
        *names_failed = synced.is_err();
        synced
    }

    fn finish_directory(&self, entry: &Entry) -> Result<()> {
        let directory = self.shared.tree.open(entry.id.0).map_err(|e| self.error(OPEN_DIRECTORY, entry, e))?;
        let fail = |e: Errno| self.error("set mode and time of directory", entry, e);
        let status = fstat(&directory).map_err(fail)?;
        let is_fresh = self.shared.tree.is_fresh(entry.id.0);
        // What is there already may be somebody else's, and full of their own files.
        let set = |done: std::result::Result<(), Errno>, what: &str| match done {
            Err(Errno::PERM | Errno::ACCESS) if !is_fresh => {
                let text = format!("the {what} of the directory was not set: it belongs to another user");
                self.shared.keeper.warn(&text, &|| self.path(entry));
                Ok(())
            }
            done => done.map_err(fail),
        };
        if let Some(mode) = self.final_mode_of(entry, &status, is_fresh) {
            set(fchmod(&directory, Mode::from_raw_mode(mode)), "mode")?;
        }
        self.shared.keep(directory.as_fd(), entry, true);
        self.shared.changed(entry.id);
        if list::generation_of(&status).modified == entry.generation.modified {
            return Ok(());
        }
        set(futimens(&directory, &times_of(entry.generation.modified)), "time")
    }

    fn close(&self) {
        if mutant::is_on("leave-staging") {
            return;
        }
        let was_closed = self.shared.is_closed.swap(true, Relaxed);
        self.shared.free_lanes.lock().unwrap().clear();
        // What a lane still holds stays for the second call, when the last lane is gone.
        self.shared.lanes.write().unwrap().retain(|lane| !lane.staging.remove_lane(&lane.directory));
        self.shared.link_lanes.lock().unwrap().clear();
        // A job that had nothing to stage removes what one that died has left (I20).
        let stagings = match was_closed {
            true => self.shared.stagings.lock().unwrap(),
            false => self.shared.left_over(),
        };
        for staging in stagings.values() {
            staging.remove_if_empty();
        }
    }

    fn path(&self, entry: &Entry) -> Vec<u8> {
        self.shared.tree.path(entry.parent.0, entry.name.as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::posix::beneath;
    use model::{Generation, Timestamp};
    use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};

    fn entry(modified: Timestamp) -> Entry {
        Entry {
            id: ObjectId(1),
            parent: ObjectId::ROOT,
            name: Name::new(b"theirs").unwrap(),
            kind: Kind::Directory,
            mode: 0o755,
            generation: Generation { modified, ..Generation::default() },
            attributes: None,
        }
    }

    #[test]
    fn what_cannot_be_set_of_a_directory_of_somebody_else_is_a_warning_and_only_where_it_differs() {
        if !needs::root() {
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        let theirs = dir.path().join("theirs");
        std::fs::create_dir(&theirs).unwrap();
        std::fs::set_permissions(&theirs, std::fs::Permissions::from_mode(0o755)).unwrap();
        chown(&theirs, Some(1000), Some(1000)).unwrap();
        let status = std::fs::metadata(&theirs).unwrap();
        let has = Timestamp { seconds: status.mtime(), nanoseconds: status.mtime_nsec() as u32 };
        let other = Timestamp { seconds: 7, nanoseconds: 0 };
        let finish = |chmod, modified| {
            needs::bound_by_permissions(|| {
                let root = Arc::new(beneath::open_directory(dir.path()).unwrap());
                let sink = PosixSink::new(root.clone(), root, chmod);
                sink.make_directory(&entry(modified)).unwrap();
                sink.finish_directory(&entry(modified)).unwrap();
                sink.take_warnings().into_iter().map(|warning| warning.text).collect::<Vec<_>>()
            })
        };
        assert_eq!(finish(None, has), Vec::<String>::new());
        assert_eq!(finish(Some((0o644, 0o755)), has), Vec::<String>::new());
        let refused = |what: &str| format!("the {what} of the directory was not set: it belongs to another user");
        assert_eq!(finish(None, other), [refused("time")]);
        assert_eq!(finish(Some((0o600, 0o700)), other), [refused("mode"), refused("time")]);
    }
}
