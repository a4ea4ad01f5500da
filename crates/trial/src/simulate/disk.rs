//! A disk that remembers what was not synced, and that fails when it is told to.
//!
//! The calls go to a real directory, which stands for the page cache: it shows what a reader sees now. Beside it this
//! keeps, for each file and directory, what storage is sure to hold and, in order, the changes it may or may not hold.
//! What may be lost is what POSIX allows: a sync of a file keeps its content and attributes but no name; a sync of a
//! directory keeps its names; a sync of the file system keeps everything; nothing else keeps anything. A rename is kept
//! whole or not at all. Names that a failed sync was to keep stay in doubt until the attempt is over, whatever later syncs
//! say.
//!
//! Not here: which states a power loss may leave (`image`).

use super::faults::{Course, DiskFaults, Fired};
use os::simulation::{Call, Disk, Host, Verdict, World};
use rustix::fs::{FileType, fstat, statat};
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::sync::{Arc, Mutex, Weak};

pub type Inode = u64;

/// ext4 by its number in statfs(2).
const MAGIC_EXT4: i64 = 0xef53;
/// NFS: a file system that is not asked to sync everything.
const MAGIC_NFS: i64 = 0x6969;

#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Content {
    pub bytes: Vec<u8>,
    /// Seconds and nanoseconds; zero until they were set.
    pub modified: (i64, i64),
    pub mode: u32,
}

#[derive(Clone, Debug)]
pub enum Node {
    File(Content),
    Link(Vec<u8>),
    Directory(BTreeMap<Vec<u8>, Inode>),
}

/// A change that storage may not hold yet.
#[derive(Clone, Debug)]
pub enum Change {
    Write { inode: Inode, offset: u64, bytes: Vec<u8> },
    Length { inode: Inode, bytes: u64 },
    Modified { inode: Inode, modified: (i64, i64) },
    Mode { inode: Inode, mode: u32 },
    Name { directory: Inode, name: Vec<u8>, inode: Inode },
    NoName { directory: Inode, name: Vec<u8> },
    Move { from: Inode, name: Vec<u8>, to: Inode, new_name: Vec<u8>, inode: Inode },
}

/// A change on its way, and whether a sync that was to keep it failed.
#[derive(Clone, Debug)]
pub struct Pending {
    pub change: Change,
    pub is_doubtful: bool,
}

/// What storage is sure to hold, and what it may hold besides.
#[derive(Clone, Default, Debug)]
pub struct Storage {
    pub root: Inode,
    pub nodes: BTreeMap<Inode, Node>,
    pub pending: Vec<Pending>,
}

pub struct SimulatedDisk {
    state: Mutex<State>,
    is_journaled: bool,
}

type Action = Box<dyn FnOnce() + Send>;

struct State {
    storage: Storage,
    faults: DiskFaults,
    /// Calls that change something or wait for storage, so far.
    calls: u64,
    reads: u64,
    course: Arc<Course>,
    fired: Fired,
    /// Done before the read of this number.
    at_read: Option<(u64, Action)>,
    victim: Option<(Weak<World>, Weak<Host>)>,
}

impl SimulatedDisk {
    /// A disk that is sure to hold what lies below `root` now.
    pub fn new(root: &Path, is_journaled: bool, faults: DiskFaults) -> anyhow::Result<Arc<SimulatedDisk>> {
        let storage = Storage::of_directory(root)?;
        let (course, fired, at_read) = (Arc::default(), Fired::No, None);
        let state = State { storage, faults, calls: 0, reads: 0, course, fired, at_read, victim: None };
        Ok(Arc::new(SimulatedDisk { state: Mutex::new(state), is_journaled }))
    }

    /// Whom a kill by this disk's faults stops.
    pub fn belongs_to(&self, world: &Arc<World>, host: &Arc<Host>) {
        self.state.lock().unwrap().victim = Some((Arc::downgrade(world), Arc::downgrade(host)));
    }

    /// An attempt begins or is over: its faults, and the job that they are to disturb.
    pub fn set_faults(&self, faults: DiskFaults, course: &Arc<Course>) {
        let mut state = self.state.lock().unwrap();
        (state.faults, state.course, state.fired) = (faults, course.clone(), Fired::No);
        state.storage.pending.iter_mut().for_each(|pending| pending.is_doubtful = false);
    }

    /// Has something done right before a read, counted from 1.
    pub fn at_read(&self, number: u64, action: Action) {
        self.state.lock().unwrap().at_read = Some((number, action));
    }

    pub fn storage(&self) -> Storage {
        self.state.lock().unwrap().storage.clone()
    }

    pub fn calls(&self) -> u64 {
        self.state.lock().unwrap().calls
    }

    /// Whether its faults fired in this attempt.
    pub fn fired(&self) -> Fired {
        self.state.lock().unwrap().fired
    }
}

/// Reads a tree as durable content.
fn load(path: &Path, nodes: &mut BTreeMap<Inode, Node>) -> anyhow::Result<Inode> {
    use std::os::unix::ffi::OsStrExt;
    use std::os::unix::fs::MetadataExt;
    let status = std::fs::symlink_metadata(path)?;
    let node = if status.is_dir() {
        let mut names = BTreeMap::new();
        for child in std::fs::read_dir(path)? {
            let child = child?;
            let inode = load(&child.path(), nodes)?;
            names.insert(child.file_name().as_bytes().to_vec(), inode);
        }
        Node::Directory(names)
    } else if status.file_type().is_symlink() {
        Node::Link(std::fs::read_link(path)?.as_os_str().as_bytes().to_vec())
    } else {
        let modified = (status.mtime(), status.mtime_nsec());
        Node::File(Content { bytes: std::fs::read(path)?, modified, mode: status.mode() & 0o7777 })
    };
    nodes.insert(status.ino(), node);
    Ok(status.ino())
}

fn inode_of(file: BorrowedFd<'_>) -> Inode {
    fstat(file).map_or(0, |status| status.st_ino)
}

impl SimulatedDisk {
    fn due_at_read(&self) -> Option<Action> {
        let mut state = self.state.lock().unwrap();
        state.reads += 1;
        let reads = state.reads;
        state.at_read.take_if(|(number, _)| *number == reads).map(|(_, action)| action)
    }
}

impl State {
    fn has_fired(&mut self) {
        self.fired = self.fired.max(self.course.fired());
    }
}

impl Disk for SimulatedDisk {
    fn before(&self, call: &Call<'_>) -> Verdict {
        let is_read = matches!(call, Call::Read { .. });
        if is_read && let Some(action) = self.due_at_read() {
            action();
        }
        let mut state = self.state.lock().unwrap();
        state.calls += u64::from(!is_read);
        let calls = state.calls;
        if !is_read && state.faults.kills_before(calls) {
            state.has_fired();
            let victim = state.victim.clone();
            drop(state);
            stop(victim);
            return Verdict::Fail(Errno::IO);
        }
        let (verdict, is_fault) = state.faults.verdict(call, calls);
        if is_fault {
            state.has_fired();
        }
        if matches!(verdict, Verdict::Fail(_)) {
            state.storage.doubt(call);
        }
        verdict
    }

    fn after(&self, call: &Call<'_>, opened: Option<BorrowedFd<'_>>) {
        let mut state = self.state.lock().unwrap();
        state.storage.note(call, opened);
        let calls = state.calls;
        if !matches!(call, Call::Read { .. }) && state.faults.kills_after(calls) {
            state.has_fired();
            let victim = state.victim.clone();
            drop(state);
            stop(victim);
        }
    }

    fn magic(&self) -> i64 {
        if self.is_journaled { MAGIC_EXT4 } else { MAGIC_NFS }
    }
}

fn stop(victim: Option<(Weak<World>, Weak<Host>)>) {
    if let Some((world, host)) = victim
        && let (Some(world), Some(host)) = (world.upgrade(), host.upgrade())
    {
        world.kill(&host);
    }
}

impl Storage {
    /// A directory as a reader sees it, all of it taken for durable.
    pub fn of_directory(root: &Path) -> anyhow::Result<Storage> {
        let mut storage = Storage::default();
        storage.root = load(root, &mut storage.nodes)?;
        Ok(storage)
    }

    fn note(&mut self, call: &Call<'_>, opened: Option<BorrowedFd<'_>>) {
        match *call {
            Call::Open { directory, name, .. } => {
                let inode = opened.map_or(0, inode_of);
                if self.nodes.contains_key(&inode) {
                    return;
                }
                let status = opened.and_then(|fd| fstat(fd).ok());
                if status.is_some_and(|s| FileType::from_raw_mode(s.st_mode).is_file()) {
                    let mode = status.map_or(0, |s| s.st_mode & 0o7777);
                    self.nodes.insert(inode, Node::File(Content { mode, ..Content::default() }));
                    self.name(directory, name.to_bytes(), inode);
                }
            }
            Call::MakeDirectory { directory, name } => {
                let inode = statat(directory, name, rustix::fs::AtFlags::SYMLINK_NOFOLLOW).map_or(0, |s| s.st_ino);
                self.nodes.insert(inode, Node::Directory(BTreeMap::new()));
                self.name(directory, name.to_bytes(), inode);
            }
            Call::MakeLink { target, directory, name } => {
                let inode = statat(directory, name, rustix::fs::AtFlags::SYMLINK_NOFOLLOW).map_or(0, |s| s.st_ino);
                self.nodes.insert(inode, Node::Link(target.to_bytes().to_vec()));
                self.name(directory, name.to_bytes(), inode);
            }
            Call::Unlink { directory, name } => {
                let directory = inode_of(directory);
                self.push(Change::NoName { directory, name: name.to_bytes().to_vec() });
            }
            Call::Rename { from, name, to, new_name } => {
                let inode = statat(to, new_name, rustix::fs::AtFlags::SYMLINK_NOFOLLOW).map_or(0, |s| s.st_ino);
                self.push(Change::Move {
                    from: inode_of(from),
                    name: name.to_bytes().to_vec(),
                    to: inode_of(to),
                    new_name: new_name.to_bytes().to_vec(),
                    inode,
                });
            }
            Call::Write { file, offset, bytes } => {
                let inode = inode_of(file);
                let end = fstat(file).map_or(0, |s| s.st_size as u64);
                // An append went to the end of the file; the file now ends behind it.
                let offset = offset.unwrap_or(end.saturating_sub(bytes.len() as u64));
                self.push(Change::Write { inode, offset, bytes: bytes.to_vec() });
            }
            Call::Truncate { file, length } => {
                self.push(Change::Length { inode: inode_of(file), bytes: length });
            }
            Call::Reserve { file, length } => {
                let there = fstat(file).map_or(0, |s| s.st_size as u64);
                self.push(Change::Length { inode: inode_of(file), bytes: there.max(length) });
            }
            Call::Mode { file, mode } => {
                self.push(Change::Mode { inode: inode_of(file), mode: mode.as_raw_mode() });
            }
            Call::Times { file, times } => {
                let modified = (times.last_modification.tv_sec, times.last_modification.tv_nsec);
                self.push(Change::Modified { inode: inode_of(file), modified });
            }
            Call::Sync { file } => self.settle(inode_of(file), true),
            Call::SyncData { file } => self.settle(inode_of(file), false),
            Call::SyncAll { .. } => self.settle_those(&|_| true),
            Call::Read { .. } => {}
        }
    }

    fn name(&mut self, directory: BorrowedFd<'_>, name: &[u8], inode: Inode) {
        self.push(Change::Name { directory: inode_of(directory), name: name.to_vec(), inode });
    }

    fn push(&mut self, change: Change) {
        self.pending.push(Pending { change, is_doubtful: false });
    }

    /// A call failed: of the names that it was to keep nobody knows what became.
    fn doubt(&mut self, call: &Call<'_>) {
        let (is_all, of) = match *call {
            Call::SyncAll { .. } => (true, 0),
            Call::Sync { file } | Call::SyncData { file } => (false, inode_of(file)),
            _ => return,
        };
        for Pending { change, is_doubtful } in &mut self.pending {
            *is_doubtful |= !change.slots().is_empty() && (is_all || change.concerns(of, false));
        }
    }

    /// Storage now holds everything of one file or directory; without `attributes` only what its bytes need.
    fn settle(&mut self, inode: Inode, attributes: bool) {
        self.settle_those(&|change| change.concerns(inode, attributes));
    }

    fn settle_those(&mut self, is_covered: &dyn Fn(&Change) -> bool) {
        for pending in std::mem::take(&mut self.pending) {
            if pending.is_doubtful || !is_covered(&pending.change) {
                self.pending.push(pending);
                continue;
            }
            self.apply(&pending.change);
            // What came before it under the same name is of no account any more.
            let slots = pending.change.slots();
            let is_past = |earlier: &Pending| earlier.change.slots().iter().any(|slot| slots.contains(slot));
            self.pending.retain(|earlier| !earlier.is_doubtful || !is_past(earlier));
        }
    }

    /// Lets storage hold a change.
    pub fn apply(&mut self, change: &Change) {
        match change {
            Change::Write { inode, offset, bytes } => {
                if let Some(Node::File(content)) = self.nodes.get_mut(inode) {
                    let end = *offset as usize + bytes.len();
                    if content.bytes.len() < end {
                        content.bytes.resize(end, 0);
                    }
                    content.bytes[*offset as usize..end].copy_from_slice(bytes);
                }
            }
            Change::Length { inode, bytes } => {
                if let Some(Node::File(content)) = self.nodes.get_mut(inode) {
                    content.bytes.resize(*bytes as usize, 0);
                }
            }
            Change::Modified { inode, modified } => {
                if let Some(Node::File(content)) = self.nodes.get_mut(inode) {
                    content.modified = *modified;
                }
            }
            Change::Mode { inode, mode } => {
                if let Some(Node::File(content)) = self.nodes.get_mut(inode) {
                    content.mode = *mode;
                }
            }
            Change::Name { directory, name, inode } => {
                _ = self.names(*directory).map(|n| n.insert(name.clone(), *inode))
            }
            Change::NoName { directory, name } => _ = self.names(*directory).map(|n| n.remove(name)),
            Change::Move { from, name, to, new_name, inode } => {
                self.names(*from).map(|names| names.remove(name));
                self.names(*to).map(|names| names.insert(new_name.clone(), *inode));
            }
        }
    }

    fn names(&mut self, directory: Inode) -> Option<&mut BTreeMap<Vec<u8>, Inode>> {
        match self.nodes.get_mut(&directory) {
            Some(Node::Directory(names)) => Some(names),
            _ => None,
        }
    }
}

impl Change {
    /// The names that it changes, each in its directory.
    fn slots(&self) -> Vec<(Inode, &[u8])> {
        match self {
            Change::Name { directory, name, .. } | Change::NoName { directory, name } => vec![(*directory, &name[..])],
            Change::Move { from, name, to, new_name, .. } => vec![(*from, &name[..]), (*to, &new_name[..])],
            _ => Vec::new(),
        }
    }

    /// Whether a sync of `inode` covers this.
    fn concerns(&self, of: Inode, attributes: bool) -> bool {
        match self {
            Change::Write { inode, .. } | Change::Length { inode, .. } => *inode == of,
            Change::Modified { inode, .. } | Change::Mode { inode, .. } => attributes && *inode == of,
            Change::Name { directory, .. } | Change::NoName { directory, .. } => *directory == of,
            Change::Move { from, to, .. } => *from == of || *to == of,
        }
    }
}
