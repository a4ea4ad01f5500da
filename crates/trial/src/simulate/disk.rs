//! A disk that remembers what was not synced, and that fails when it is told to.
//!
//! The calls go to a real directory, which stands for the page cache: it shows what a reader sees now. Beside it this
//! keeps, for each file and directory, what storage is sure to hold and, in order, the changes it may or may not hold.
//! What may be lost is what POSIX allows: a sync of a file keeps its content and attributes but no name; a sync of a
//! directory keeps its names; a sync of the file system keeps everything; nothing else keeps anything. A rename is kept
//! whole or not at all.
//!
//! Not here: which states a power loss may leave (`image`).

use super::faults::DiskFaults;
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

/// What storage is sure to hold, and what it may hold besides.
#[derive(Clone, Default, Debug)]
pub struct Storage {
    pub root: Inode,
    pub nodes: BTreeMap<Inode, Node>,
    pub pending: Vec<Change>,
}

pub struct SimulatedDisk {
    state: Mutex<State>,
    is_journaled: bool,
}

struct State {
    storage: Storage,
    faults: DiskFaults,
    /// Calls that change something or wait for storage, so far.
    calls: u64,
    victim: Option<(Weak<World>, Weak<Host>)>,
}

impl SimulatedDisk {
    /// A disk that is sure to hold what lies below `root` now.
    pub fn new(root: &Path, is_journaled: bool, faults: DiskFaults) -> anyhow::Result<Arc<SimulatedDisk>> {
        let storage = Storage::of_directory(root)?;
        let state = State { storage, faults, calls: 0, victim: None };
        Ok(Arc::new(SimulatedDisk { state: Mutex::new(state), is_journaled }))
    }

    /// Whom a kill by this disk's faults stops.
    pub fn belongs_to(&self, world: &Arc<World>, host: &Arc<Host>) {
        self.state.lock().unwrap().victim = Some((Arc::downgrade(world), Arc::downgrade(host)));
    }

    pub fn set_faults(&self, faults: DiskFaults) {
        self.state.lock().unwrap().faults = faults;
    }

    pub fn storage(&self) -> Storage {
        self.state.lock().unwrap().storage.clone()
    }

    pub fn calls(&self) -> u64 {
        self.state.lock().unwrap().calls
    }

    /// How many faults fired.
    pub fn fired(&self) -> u64 {
        self.state.lock().unwrap().faults.fired
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

impl Disk for SimulatedDisk {
    fn before(&self, call: &Call<'_>) -> Verdict {
        let mut state = self.state.lock().unwrap();
        let is_read = matches!(call, Call::Read { .. });
        state.calls += u64::from(!is_read);
        let calls = state.calls;
        if !is_read && state.faults.kills_before(calls) {
            let victim = state.victim.clone();
            drop(state);
            stop(victim);
            return Verdict::Fail(Errno::IO);
        }
        state.faults.verdict(call, calls)
    }

    fn after(&self, call: &Call<'_>, opened: Option<BorrowedFd<'_>>) {
        let mut state = self.state.lock().unwrap();
        state.storage.note(call, opened);
        let calls = state.calls;
        if !matches!(call, Call::Read { .. }) && state.faults.kills_after(calls) {
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
                self.pending.push(Change::NoName { directory, name: name.to_bytes().to_vec() });
            }
            Call::Rename { from, name, to, new_name } => {
                let inode = statat(to, new_name, rustix::fs::AtFlags::SYMLINK_NOFOLLOW).map_or(0, |s| s.st_ino);
                self.pending.push(Change::Move {
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
                self.pending.push(Change::Write { inode, offset, bytes: bytes.to_vec() });
            }
            Call::Truncate { file, length } => {
                self.pending.push(Change::Length { inode: inode_of(file), bytes: length });
            }
            Call::Reserve { file, length } => {
                let there = fstat(file).map_or(0, |s| s.st_size as u64);
                self.pending.push(Change::Length { inode: inode_of(file), bytes: there.max(length) });
            }
            Call::Mode { file, mode } => {
                self.pending.push(Change::Mode { inode: inode_of(file), mode: mode.as_raw_mode() });
            }
            Call::Times { file, times } => {
                let modified = (times.last_modification.tv_sec, times.last_modification.tv_nsec);
                self.pending.push(Change::Modified { inode: inode_of(file), modified });
            }
            Call::Sync { file } => self.settle(inode_of(file), true),
            Call::SyncData { file } => self.settle(inode_of(file), false),
            Call::SyncAll { .. } => {
                for change in std::mem::take(&mut self.pending) {
                    self.apply(&change);
                }
            }
            Call::Read { .. } => {}
        }
    }

    fn name(&mut self, directory: BorrowedFd<'_>, name: &[u8], inode: Inode) {
        self.pending.push(Change::Name { directory: inode_of(directory), name: name.to_vec(), inode });
    }

    /// Storage now holds everything of one file or directory; without `attributes` only what its bytes need.
    fn settle(&mut self, inode: Inode, attributes: bool) {
        let pending = std::mem::take(&mut self.pending);
        for change in pending {
            match change.concerns(inode, attributes) {
                true => self.apply(&change),
                false => self.pending.push(change),
            }
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
