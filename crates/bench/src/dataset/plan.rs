//! What a data set consists of: groups of objects, each object's directory, name and size by arithmetic.
//!
//! Invariant: everything follows from the plan alone, so that threads need nothing from each other and the same plan is the
//! same set on any machine.

use std::collections::BTreeSet;
use std::ops::Range;
use std::path::PathBuf;

use super::object::Object;
use super::scale::Scale;
use super::tree::{self, Tree};

/// Space that a file takes beyond its content is estimated as whole blocks of this size.
const BLOCK_BYTES: u64 = 4 << 10;
/// Directory space per entry: a name of this length on ext4 takes less.
const DIRECTORY_ENTRY_BYTES: u64 = 64;

/// A data set: groups of objects, each in its own folder unless there is only one.
#[derive(Clone, Debug)]
pub struct Plan {
    pub groups: Vec<Group>,
    pub per_dir: u64,
    pub seed: u64,
}

/// Objects that lie together and share a size rule.
#[derive(Clone, Debug)]
pub struct Group {
    /// The set that it is part of; a set's groups follow each other.
    pub set: String,
    /// Relative to the root; empty for the root itself.
    pub folder: String,
    /// Links included.
    pub files: u64,
    pub layout: Layout,
    /// Of every size: below one only when a scale left a single round of the sizes.
    pub shrink: Scale,
}

#[derive(Clone, Debug)]
pub enum Layout {
    /// Plain names in directories of equal size.
    Numbered(Sizes),
    Tree(Tree),
}

#[derive(Clone, Debug)]
pub enum Sizes {
    Fixed(u64),
    /// Takes each in turn.
    Cycle(Vec<u64>),
    /// The logarithm of the size is uniform between the two.
    LogUniform {
        bytes_min: u64,
        bytes_max: u64,
    },
    /// The logarithm of the size is normal, as in `tree`.
    LogNormal,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Totals {
    /// Regular files.
    pub files: u64,
    pub links: u64,
    pub directories: u64,
    pub bytes: u64,
    /// Content rounded up to blocks, without holes, and the directories.
    pub space_bytes: u64,
}

/// A directory and which objects of its group it holds.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Directory {
    /// Relative to the root.
    pub path: PathBuf,
    pub files: Range<u64>,
}

impl Plan {
    pub fn totals(&self) -> Totals {
        self.totals_of(0..self.groups.len())
    }

    /// The sets by name, in order.
    pub fn sets(&self) -> Vec<(String, Totals)> {
        let mut sets = Vec::new();
        let mut first = 0;
        for run in self.groups.chunk_by(|one, other| one.set == other.set) {
            sets.push((run[0].set.clone(), self.totals_of(first..first + run.len())));
            first += run.len();
        }
        sets
    }

    fn totals_of(&self, groups: Range<usize>) -> Totals {
        let mut totals = Totals::default();
        let mut folders = BTreeSet::new();
        for index in groups {
            let group = &self.groups[index];
            let ends = group.folder.match_indices('/').map(|(at, _)| at).chain([group.folder.len()]);
            folders.extend(ends.map(|end| &group.folder[..end]).filter(|folder| !folder.is_empty()));
            totals.directories += self.subdirectories(group);
            self.add_objects(index, &mut totals);
        }
        totals.directories += folders.len() as u64;
        let directory_bytes = blocks(self.per_dir.min(totals.files) * DIRECTORY_ENTRY_BYTES);
        totals.space_bytes = totals.space_bytes.saturating_add(totals.directories.saturating_mul(directory_bytes));
        totals
    }

    fn add_objects(&self, index: usize, totals: &mut Totals) {
        let group = &self.groups[index];
        if let Layout::Numbered(Sizes::Fixed(_)) = group.layout {
            let bytes = self.file_bytes(index, 0);
            totals.files += group.files;
            totals.bytes = totals.bytes.saturating_add(bytes.saturating_mul(group.files));
            totals.space_bytes = totals.space_bytes.saturating_add(blocks(bytes).saturating_mul(group.files));
            return;
        }
        for file in 0..group.files {
            let (bytes, space_bytes) = match self.object(index, file) {
                Object::File { bytes } => (bytes, blocks(bytes)),
                Object::Sparse { bytes } => (bytes, blocks(bytes / tree::SPARSE_SHARE)),
                Object::Link { .. } => {
                    totals.links += 1;
                    continue;
                }
            };
            totals.files += 1;
            totals.bytes = totals.bytes.saturating_add(bytes);
            totals.space_bytes = totals.space_bytes.saturating_add(space_bytes);
        }
    }

    /// Directories below the group's folder; a group that fits in one directory needs none.
    fn subdirectories(&self, group: &Group) -> u64 {
        match &group.layout {
            Layout::Tree(tree) => tree.directories() - 1,
            Layout::Numbered(_) if group.files <= self.per_dir => 0,
            Layout::Numbered(_) => group.files.div_ceil(self.per_dir),
        }
    }

    /// The directories of a group that hold its objects, each object once.
    pub fn directories(&self, group: usize) -> impl Iterator<Item = Directory> {
        let group = &self.groups[group];
        let folder = PathBuf::from(&group.folder);
        let count = self.subdirectories(group);
        let numbers = match &group.layout {
            Layout::Tree(tree) => 0..tree.directories(),
            Layout::Numbered(_) => 0..count.max(1),
        };
        numbers.map(move |number| match &group.layout {
            Layout::Tree(tree) => Directory {
                path: folder.join(tree::os(tree.directory_path(number))),
                files: tree.directory_files(number),
            },
            Layout::Numbered(_) if count == 0 => Directory { path: folder.clone(), files: 0..group.files },
            Layout::Numbered(_) => {
                let first = number * self.per_dir;
                let files = first..group.files.min(first + self.per_dir);
                Directory { path: folder.join(format!("d{number:04}")), files }
            }
        })
    }

    pub fn name(&self, group: usize, file: u64) -> Vec<u8> {
        match &self.groups[group].layout {
            Layout::Numbered(_) => format!("f{file:07}").into_bytes(),
            Layout::Tree(tree) => tree.name(file),
        }
    }

    pub fn object(&self, group: usize, file: u64) -> Object {
        match &self.groups[group].layout {
            Layout::Numbered(_) => Object::File { bytes: self.file_bytes(group, file) },
            Layout::Tree(tree) => match tree.object(file) {
                Object::File { bytes } => Object::File { bytes: shrunk(bytes, self.groups[group].shrink) },
                other => other,
            },
        }
    }

    /// The length of an object; zero for a link.
    pub fn file_bytes(&self, group: usize, file: u64) -> u64 {
        let sizes = match &self.groups[group].layout {
            Layout::Numbered(sizes) => sizes,
            Layout::Tree(_) => {
                return match self.object(group, file) {
                    Object::File { bytes } | Object::Sparse { bytes } => bytes,
                    Object::Link { .. } => 0,
                };
            }
        };
        let whole = match sizes {
            Sizes::Fixed(bytes) => *bytes,
            Sizes::Cycle(sizes) => sizes[(file % sizes.len() as u64) as usize],
            Sizes::LogUniform { bytes_min, bytes_max } => {
                let part = content::unit_interval(self.seed, group as u64, file);
                let (low, high) = ((*bytes_min as f64).ln(), (*bytes_max as f64).ln());
                ((low + part * (high - low)).exp() as u64).clamp(*bytes_min, *bytes_max)
            }
            Sizes::LogNormal => {
                let files = self.groups[group].files;
                tree::quantile_bytes(tree::shuffled(self.seed, group as u64, file, files), files)
            }
        };
        shrunk(whole, self.groups[group].shrink)
    }
}

/// A file that holds something still does when it is made smaller.
fn shrunk(bytes: u64, shrink: Scale) -> u64 {
    shrink.of(bytes).max(bytes.min(1))
}

fn blocks(bytes: u64) -> u64 {
    bytes.div_ceil(BLOCK_BYTES).saturating_mul(BLOCK_BYTES)
}
