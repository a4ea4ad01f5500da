//! The states in which a power loss may leave a disk, and how one of them becomes a directory again.
//!
//! Any subset of the pending changes may be held, in order for each name and each attribute; a write may be torn at a
//! sector. Up to `EXHAUSTIVE_MAX` pending changes all subsets are looked at, above it a sample that always has the
//! empty and the full one.

use super::disk::{Change, Content, Inode, Node, Pending, Storage};
use anyhow::{Context, Result};
use std::collections::BTreeMap;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Pending changes of which every subset is tried.
pub const EXHAUSTIVE_MAX: usize = 12;
const SECTOR_BYTES: usize = 512;

/// What a path leads to after the loss.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Found {
    File(Content),
    Link(Vec<u8>),
    Special(u32, u64),
    Directory,
}

/// Everything that can be reached from the root, by path.
pub type Image = BTreeMap<Vec<u8>, Found>;

impl Storage {
    /// Storage after a loss that keeps the pending changes that `keep` says; it may answer with a part of a write.
    pub fn after_loss(&self, keep: &mut dyn FnMut(usize, &Change) -> Kept) -> Storage {
        let mut storage = Storage { pending: Vec::new(), ..self.clone() };
        for (index, Pending { change, .. }) in self.pending.iter().enumerate() {
            match keep(index, change) {
                Kept::No => {}
                Kept::Whole => storage.apply(change),
                Kept::Sectors(count) => {
                    if let Change::Write { inode, offset, bytes } = change {
                        let part = bytes[..bytes.len().min(count * SECTOR_BYTES)].to_vec();
                        storage.apply(&Change::Write { inode: *inode, offset: *offset, bytes: part });
                    }
                }
            }
        }
        storage
    }

    /// Looks at states after a loss: all subsets of few changes, else `samples` of them. Returns how many.
    pub fn each_loss(
        &self,
        samples: usize,
        random: &mut dyn FnMut() -> u64,
        check: &mut dyn FnMut(&Storage) -> Result<(), String>,
    ) -> Result<u64, String> {
        let pending = self.pending.len();
        if pending <= EXHAUSTIVE_MAX {
            for subset in 0..1u64 << pending {
                check(&self.after_loss(&mut |index, _| Kept::from(subset >> index & 1 == 1)))?;
            }
            return Ok(1 << pending);
        }
        check(&self.after_loss(&mut |_, _| Kept::No))?;
        check(&self.after_loss(&mut |_, _| Kept::Whole))?;
        for _ in 0..samples {
            check(&self.some_loss(random))?;
        }
        Ok(samples as u64 + 2)
    }

    /// One state after a loss, drawn at random: between nearly nothing and nearly everything is kept.
    pub fn some_loss(&self, random: &mut dyn FnMut() -> u64) -> Storage {
        let share = [0, 64, 128, 192, 240, 256][(random() % 6) as usize];
        self.after_loss(&mut |_, change| {
            let is_kept = random() % 256 < share;
            match change {
                Change::Write { bytes, .. } if bytes.len() > SECTOR_BYTES && random().is_multiple_of(8) => {
                    Kept::Sectors((random() % (bytes.len() / SECTOR_BYTES) as u64) as usize)
                }
                _ => Kept::from(is_kept),
            }
        })
    }

    pub fn image(&self) -> Image {
        self.places().into_iter().map(|(path, (_, found))| (path, found)).collect()
    }

    /// As `image`, and which paths lead to one file.
    fn places(&self) -> BTreeMap<Vec<u8>, (Inode, Found)> {
        let mut places = BTreeMap::new();
        self.walk(self.root, b"", &mut places, 0);
        places
    }

    fn walk(&self, inode: Inode, path: &[u8], places: &mut BTreeMap<Vec<u8>, (Inode, Found)>, depth: usize) {
        let Some(Node::Directory(names)) = self.nodes.get(&inode) else { return };
        // A directory that was moved below itself cannot come about here; the bound is for a model that is wrong.
        assert!(depth < 64, "directories form a ring");
        for (name, inode) in names {
            let path = if path.is_empty() { name.clone() } else { [path, b"/", name].concat() };
            let found = match self.nodes.get(inode) {
                Some(Node::File(content)) => Found::File(content.clone()),
                Some(Node::Link(target)) => Found::Link(target.clone()),
                Some(Node::Special(kind, device)) => Found::Special(*kind, *device),
                Some(Node::Directory(_)) => {
                    self.walk(*inode, &path, places, depth + 1);
                    Found::Directory
                }
                None => continue,
            };
            places.insert(path, (*inode, found));
        }
    }

    /// Makes a directory of it, as the next boot finds it.
    pub fn materialise(&self, root: &Path) -> Result<()> {
        std::fs::create_dir(root).with_context(|| format!("make {}", root.display()))?;
        let mut made: BTreeMap<Inode, PathBuf> = BTreeMap::new();
        for (path, (inode, found)) in &self.places() {
            let at = root.join(std::ffi::OsStr::from_bytes(path));
            match found {
                Found::Directory => {
                    std::fs::create_dir(&at)?;
                    if path.starts_with(store::posix::facts::STAGING_PREFIX) {
                        use std::os::unix::fs::PermissionsExt;
                        std::fs::set_permissions(&at, std::fs::Permissions::from_mode(0o700))?;
                    }
                }
                Found::Link(target) => std::os::unix::fs::symlink(std::ffi::OsStr::from_bytes(target), &at)?,
                Found::Special(kind, device) => make_special(&at, *kind, *device)?,
                Found::File(content) => match made.get(inode) {
                    Some(first) => std::fs::hard_link(first, &at)?,
                    None => {
                        write_file(&at, content)?;
                        made.insert(*inode, at);
                    }
                },
            }
        }
        Ok(())
    }
}

pub fn make_special(at: &Path, kind: u32, device: u64) -> Result<()> {
    use rustix::fs::{CWD, FileType, Mode, mknodat};
    let made = mknodat(CWD, at, FileType::from_raw_mode(kind), Mode::from_raw_mode(0o600), device);
    made.with_context(|| format!("make {}", at.display()))
}

fn write_file(at: &Path, content: &Content) -> Result<()> {
    use rustix::fs::{Mode, Timespec, Timestamps, fchmod, futimens};
    std::fs::write(at, &content.bytes).with_context(|| format!("write {}", at.display()))?;
    let file = std::fs::File::open(at)?;
    // An owner may be given by root only, who runs the trials that change owners.
    let _ = std::os::unix::fs::fchown(&file, Some(content.owner.0), Some(content.owner.1));
    for (name, value) in &content.attributes {
        rustix::fs::fsetxattr(&file, &name[..], value, rustix::fs::XattrFlags::empty())?;
    }
    fchmod(&file, Mode::from_raw_mode(content.mode))?;
    // A time that was never stored is that of the loss: now.
    if content.modified != (0, 0) {
        let (tv_sec, tv_nsec) = content.modified;
        let modified = Timespec { tv_sec, tv_nsec };
        futimens(&file, &Timestamps { last_access: modified, last_modification: modified })?;
    }
    Ok(())
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kept {
    No,
    Whole,
    /// So many sectors of a write.
    Sectors(usize),
}

impl From<bool> for Kept {
    fn from(is_kept: bool) -> Kept {
        if is_kept { Kept::Whole } else { Kept::No }
    }
}
