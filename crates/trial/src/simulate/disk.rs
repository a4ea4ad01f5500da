//! A disk that remembers what was not synced, and that fails when it is told to.
//!
//! The calls go to a real directory, which stands for the page cache: it shows what a reader sees now. Beside it this
//! keeps, for each file and directory, what storage is sure to hold and, in order, the changes it may or may not hold.
//! What may be lost is what POSIX allows: a sync of a file keeps its content and attributes but no name; a sync of a
//! directory keeps its names; a sync of the file system keeps everything; nothing else keeps anything. A rename is kept
//! whole or not at all.
//!
//! A sync that fails is the last that storage hears of the content that it was to keep: the kernel takes the pages for clean,
//! and a later sync succeeds without them. Where a sync of the whole file system failed, each file that lost content so says
//! it once more when it is synced itself. Names stay in doubt until the attempt is over, whatever later syncs say.
//!
//! Not here: which states a power loss may leave (`image`). Attributes of directories, links and special files are not kept
//! account of.

use super::faults::{Course, DiskFaults, Fired};
use crate::random::Random;
use os::simulation::{Call, Disk, Host, Object, Verdict, World};
use rustix::fs::{AtFlags, FileType, OFlags, Stat, fstat, statat};
use rustix::io::Errno;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::CStr;
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
    pub owner: (u32, u32),
    pub attributes: BTreeMap<Vec<u8>, Vec<u8>>,
}

#[derive(Clone, Debug)]
pub enum Node {
    File(Content),
    Link(Vec<u8>),
    /// A FIFO, socket or device: its type, and the device's number.
    Special(u32, u64),
    Directory(BTreeMap<Vec<u8>, Inode>),
}

/// A change that storage may not hold yet.
#[derive(Clone, Debug)]
pub enum Change {
    Write { inode: Inode, offset: u64, bytes: Vec<u8> },
    Length { inode: Inode, bytes: u64 },
    Modified { inode: Inode, modified: (i64, i64) },
    Mode { inode: Inode, mode: u32 },
    Owner { inode: Inode, owner: (u32, u32) },
    Attribute { inode: Inode, name: Vec<u8>, value: Option<Vec<u8>> },
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
    /// Files whose content was lost by a failed sync of everything, and whose own sync has not said so yet.
    pub owes_error: BTreeSet<Inode>,
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

    /// Makes a directory of one of the states that it may have after a loss of power.
    pub fn lose_power(&self, root: &Path, random: &mut Random) -> anyhow::Result<()> {
        self.storage().some_loss(&mut || random.next()).materialise(root)
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

/// Extended attributes of users.
fn attributes_of(path: &Path) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let mut room = vec![0; 4096];
    let length = rustix::fs::llistxattr(path, &mut room[..]).unwrap_or(0);
    let names = room[..length].split(|byte| *byte == 0).filter(|name| name.starts_with(b"user."));
    let value = |name: &[u8]| {
        let mut value = vec![0; 4096];
        let length = rustix::fs::lgetxattr(path, name, &mut value[..]).unwrap_or(0);
        value.truncate(length);
        value
    };
    names.map(|name| (name.to_vec(), value(name))).collect()
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
    } else if status.is_file() {
        Node::File(Content {
            bytes: std::fs::read(path)?,
            modified: (status.mtime(), status.mtime_nsec()),
            mode: status.mode() & 0o7777,
            owner: (status.uid(), status.gid()),
            attributes: attributes_of(path),
        })
    } else {
        Node::Special(status.mode() & libc::S_IFMT, status.rdev())
    };
    nodes.insert(status.ino(), node);
    Ok(status.ino())
}

fn inode_of(file: BorrowedFd<'_>) -> Inode {
    fstat(file).map_or(0, |status| status.st_ino)
}

fn status_at(directory: BorrowedFd<'_>, name: &CStr) -> Option<Stat> {
    statat(directory, name, AtFlags::SYMLINK_NOFOLLOW).ok()
}

fn inode_at(directory: BorrowedFd<'_>, name: &CStr) -> Inode {
    status_at(directory, name).map_or(0, |status| status.st_ino)
}

fn status_of(object: Object<'_>) -> Option<Stat> {
    match object {
        Object::Open(file) => fstat(file).ok(),
        Object::Named(directory, name) => status_at(directory, name),
    }
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
        let (mut verdict, is_fault) = state.faults.verdict(call, calls);
        if is_fault {
            state.has_fired();
        }
        if verdict == Verdict::Go && state.storage.owes_error(call) {
            verdict = Verdict::Fail(Errno::IO);
        }
        if matches!(verdict, Verdict::Fail(_)) {
            state.storage.sync_failed(call);
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
            Call::Open { directory, name, flags, .. } => {
                let inode = opened.map_or(0, inode_of);
                if self.nodes.contains_key(&inode) {
                    return;
                }
                let status = opened.and_then(|fd| fstat(fd).ok());
                if let Some(status) = status.filter(|s| FileType::from_raw_mode(s.st_mode).is_file()) {
                    let (mode, owner) = (status.st_mode & 0o7777, (status.st_uid, status.st_gid));
                    self.nodes.insert(inode, Node::File(Content { mode, owner, ..Content::default() }));
                    if !flags.contains(OFlags::TMPFILE) {
                        self.name(directory, name, inode);
                    }
                }
            }
            Call::MakeDirectory { directory, name } => {
                let inode = inode_at(directory, name);
                self.nodes.insert(inode, Node::Directory(BTreeMap::new()));
                self.name(directory, name, inode);
            }
            Call::MakeLink { target, directory, name } => {
                let inode = inode_at(directory, name);
                self.nodes.insert(inode, Node::Link(target.to_bytes().to_vec()));
                self.name(directory, name, inode);
            }
            Call::MakeNode { directory, name } => {
                if let Some(status) = status_at(directory, name) {
                    self.nodes.insert(status.st_ino, Node::Special(status.st_mode & libc::S_IFMT, status.st_rdev));
                    self.name(directory, name, status.st_ino);
                }
            }
            Call::HardLink { to, new_name, .. } => self.name(to, new_name, inode_at(to, new_name)),
            Call::Unlink { directory, name } => {
                let directory = inode_of(directory);
                self.push(Change::NoName { directory, name: name.to_bytes().to_vec() });
            }
            Call::Rename { from, name, to, new_name } => {
                let inode = inode_at(to, new_name);
                self.push(Change::Move {
                    from: inode_of(from),
                    name: name.to_bytes().to_vec(),
                    to: inode_of(to),
                    new_name: new_name.to_bytes().to_vec(),
                    inode,
                });
            }
            Call::Sync { file } => self.settle(inode_of(file), true),
            Call::SyncData { file } => self.settle(inode_of(file), false),
            Call::SyncAll { .. } => self.settle_those(&|_| true),
            Call::Read { .. } => {}
            _ => self.note_content(call),
        }
    }

    /// Content and attributes.
    fn note_content(&mut self, call: &Call<'_>) {
        match *call {
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
            Call::Mode { object, mode } => {
                let inode = status_of(object).map_or(0, |s| s.st_ino);
                self.push(Change::Mode { inode, mode: mode.as_raw_mode() });
            }
            Call::Owner { object, .. } => {
                // What it has now; the kernel takes set-id bits away with it.
                if let Some(status) = status_of(object) {
                    self.push(Change::Owner { inode: status.st_ino, owner: (status.st_uid, status.st_gid) });
                    self.push(Change::Mode { inode: status.st_ino, mode: status.st_mode & 0o7777 });
                }
            }
            Call::Times { object, times } => {
                let inode = status_of(object).map_or(0, |s| s.st_ino);
                let modified = (times.last_modification.tv_sec, times.last_modification.tv_nsec);
                self.push(Change::Modified { inode, modified });
            }
            Call::Attribute { file, name, value } => {
                let (name, value) = (name.to_bytes().to_vec(), value.map(<[u8]>::to_vec));
                self.push(Change::Attribute { inode: inode_of(file), name, value });
            }
            _ => {}
        }
    }

    fn name(&mut self, directory: BorrowedFd<'_>, name: &CStr, inode: Inode) {
        self.push(Change::Name { directory: inode_of(directory), name: name.to_bytes().to_vec(), inode });
    }

    fn push(&mut self, change: Change) {
        self.pending.push(Pending { change, is_doubtful: false });
    }

    /// Whether the file that this call syncs lost content before, and nobody was told.
    fn owes_error(&mut self, call: &Call<'_>) -> bool {
        let (Call::Sync { file } | Call::SyncData { file }) = *call else { return false };
        self.owes_error.remove(&inode_of(file))
    }

    /// A call failed. If it was a sync: the content that it was to keep is lost, and of the names nobody knows what became.
    fn sync_failed(&mut self, call: &Call<'_>) {
        let (is_all, of) = match *call {
            Call::SyncAll { .. } => (true, 0),
            Call::Sync { file } | Call::SyncData { file } => (false, inode_of(file)),
            _ => return,
        };
        let is_covered = |change: &Change| is_all || change.concerns(of, false);
        for Pending { change, .. } in &self.pending {
            if let (true, Change::Write { inode, .. }) = (is_all, change) {
                self.owes_error.insert(*inode);
            }
        }
        self.pending.retain(|pending| !(pending.change.is_content() && is_covered(&pending.change)));
        for Pending { change, is_doubtful } in &mut self.pending {
            *is_doubtful |= !change.slots().is_empty() && is_covered(change);
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
            Change::Owner { inode, owner } => {
                if let Some(Node::File(content)) = self.nodes.get_mut(inode) {
                    content.owner = *owner;
                }
            }
            Change::Attribute { inode, name, value } => {
                if let Some(Node::File(content)) = self.nodes.get_mut(inode) {
                    match value {
                        Some(value) => _ = content.attributes.insert(name.clone(), value.clone()),
                        None => _ = content.attributes.remove(name),
                    }
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
    /// What a kernel drops when it could not write it. A length is its file's, and is written with that.
    fn is_content(&self) -> bool {
        matches!(self, Change::Write { .. })
    }

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
            Change::Modified { inode, .. }
            | Change::Mode { inode, .. }
            | Change::Owner { inode, .. }
            | Change::Attribute { inode, .. } => attributes && *inode == of,
            Change::Name { directory, .. } | Change::NoName { directory, .. } => *directory == of,
            Change::Move { from, to, .. } => *from == of || *to == of,
        }
    }
}
