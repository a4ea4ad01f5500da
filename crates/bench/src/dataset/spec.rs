//! From a specification such as `large,50000x1KiB` to the list of directories and file sizes it means.

use model::quantity::{GIB, MIB, parse_bytes};

use super::content;
use crate::error::{Error, Result};

const KIB: u64 = 1 << 10;
/// Space that a file takes beyond its content is estimated as whole blocks of this size.
const BLOCK_BYTES: u64 = 4 << 10;
/// Directory space per entry: a name of this length on ext4 takes less.
const DIRECTORY_ENTRY_BYTES: u64 = 64;
/// Bounds the specification, not the machine: above it a typing error is more likely than a wish.
const FILES_MAX: u64 = 1_000_000_000;

/// A data set: groups of files, each in its own folder unless there is only one.
#[derive(Clone, Debug)]
pub struct Plan {
    pub groups: Vec<Group>,
    pub per_dir: u64,
    pub seed: u64,
}

/// Files that share a size rule.
#[derive(Clone, Debug)]
pub struct Group {
    /// Relative to the root; empty for the root itself.
    pub folder: String,
    pub files: u64,
    pub sizes: Sizes,
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
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Totals {
    pub files: u64,
    pub directories: u64,
    pub bytes: u64,
    /// Content rounded up to blocks, and the directories.
    pub space_bytes: u64,
}

impl Plan {
    pub fn parse(spec: &str, per_dir: u64, seed: u64) -> Result<Plan> {
        if per_dir == 0 {
            return Err(Error::usage("the number of files per directory", "must be at least 1"));
        }
        let mut groups = Vec::new();
        let parts: Vec<&str> = spec.split(',').map(str::trim).collect();
        for part in &parts {
            let folder = if parts.len() == 1 { "" } else { part };
            groups.extend(parse_part(part, folder)?);
        }
        let mut folders: Vec<&str> = groups.iter().map(|group| group.folder.as_str()).collect();
        folders.sort_unstable();
        if folders.windows(2).any(|pair| pair[0] == pair[1]) {
            return Err(Error::usage(format!("data set {spec:?}"), "names the same set twice"));
        }
        Ok(Plan { groups, per_dir, seed })
    }

    pub fn totals(&self) -> Totals {
        let mut totals = Totals::default();
        for (index, group) in self.groups.iter().enumerate() {
            totals.files += group.files;
            let folders = group.folder.split('/').filter(|part| !part.is_empty()).count() as u64;
            totals.directories += folders + self.subdirectories(group);
            match group.sizes {
                Sizes::Fixed(bytes) => {
                    totals.bytes = totals.bytes.saturating_add(bytes.saturating_mul(group.files));
                    totals.space_bytes = totals.space_bytes.saturating_add(blocks(bytes).saturating_mul(group.files));
                }
                _ => (0..group.files).map(|file| self.file_bytes(index, file)).for_each(|bytes| {
                    totals.bytes += bytes;
                    totals.space_bytes += blocks(bytes);
                }),
            }
        }
        let directory_bytes = blocks(self.per_dir.min(totals.files) * DIRECTORY_ENTRY_BYTES);
        totals.space_bytes = totals.space_bytes.saturating_add(totals.directories * directory_bytes);
        totals
    }

    /// Directories below the group's folder; a group that fits in one directory needs none.
    pub fn subdirectories(&self, group: &Group) -> u64 {
        if group.files <= self.per_dir { 0 } else { group.files.div_ceil(self.per_dir) }
    }

    pub fn file_bytes(&self, group: usize, file: u64) -> u64 {
        match &self.groups[group].sizes {
            Sizes::Fixed(bytes) => *bytes,
            Sizes::Cycle(sizes) => sizes[(file % sizes.len() as u64) as usize],
            Sizes::LogUniform { bytes_min, bytes_max } => {
                let part = content::unit_interval(self.seed, group as u64, file);
                let (low, high) = ((*bytes_min as f64).ln(), (*bytes_max as f64).ln());
                ((low + part * (high - low)).exp() as u64).clamp(*bytes_min, *bytes_max)
            }
        }
    }
}

fn parse_part(part: &str, folder: &str) -> Result<Vec<Group>> {
    let group = |folder: String, files, sizes| Group { folder, files, sizes };
    let inside = |name: &str| if folder.is_empty() { name.to_owned() } else { format!("{folder}/{name}") };
    let own = folder.to_owned();
    Ok(match part {
        "large" => vec![group(own, 4, Sizes::Fixed(GIB))],
        "small" => vec![group(own, 2_500, Sizes::Cycle((0..10).map(|power| (8 * KIB) << power).collect()))],
        "tiny" => vec![group(own, 50_000, Sizes::Fixed(KIB))],
        "mixed" => {
            let sizes = Sizes::LogUniform { bytes_min: 8 * KIB, bytes_max: 4 * MIB };
            vec![
                group(inside("large"), 2, Sizes::Fixed(256 * MIB)),
                group(inside("mixed"), 1_000, sizes),
                group(inside("tiny"), 20_000, Sizes::Fixed(KIB)),
            ]
        }
        _ => {
            let (files, bytes) = parse_count_and_size(part)?;
            vec![group(own, files, Sizes::Fixed(bytes))]
        }
    })
}

fn parse_count_and_size(part: &str) -> Result<(u64, u64)> {
    let refuse = |cause: &str| Error::usage(format!("data set {part:?}"), cause);
    let (count, size) = part
        .split_once('x')
        .ok_or_else(|| refuse("neither large, small, tiny or mixed nor of the form NxSIZE, such as 50000x1KiB"))?;
    let count: u64 = count.trim().replace('_', "").parse().map_err(|_| refuse("the part before x is not a number"))?;
    if count == 0 || count > FILES_MAX {
        return Err(refuse("the number of files must be between 1 and 1,000,000,000"));
    }
    let bytes = parse_bytes(size.trim()).map_err(|cause| refuse(&cause))?;
    Ok((count, bytes))
}

fn blocks(bytes: u64) -> u64 {
    bytes.div_ceil(BLOCK_BYTES).saturating_mul(BLOCK_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn totals(spec: &str) -> Totals {
        Plan::parse(spec, 1_000, 1).unwrap().totals()
    }

    #[test]
    fn named_sets_have_their_published_counts_and_sizes() {
        assert_eq!((totals("large").files, totals("large").bytes), (4, 4 * GIB));
        let small = totals("small");
        assert_eq!((small.files, small.bytes, small.directories), (2_500, 250 * 8 * KIB * 1_023, 3));
        let tiny = totals("tiny");
        assert_eq!((tiny.files, tiny.bytes, tiny.directories), (50_000, 50_000 * KIB, 50));
        let mixed = totals("mixed");
        assert_eq!((mixed.files, mixed.directories), (21_002, 3 + 20));
        assert!((1.05..1.3).contains(&(mixed.bytes as f64 / GIB as f64)), "{}", mixed.bytes);
    }

    #[test]
    fn counts_and_sizes_with_binary_and_decimal_units_are_read() {
        assert_eq!(totals("3x8KiB").bytes, 3 * 8 * KIB);
        assert_eq!(totals("3x8K").bytes, 3 * 8 * KIB);
        assert_eq!(totals("1_000x8KB").bytes, 8_000_000);
        assert_eq!(totals("2x0").bytes, 0);
    }

    #[test]
    fn several_sets_lie_in_folders_of_their_own() {
        let plan = Plan::parse("tiny, 3x1MiB,mixed", 1_000, 1).unwrap();
        let folders: Vec<&str> = plan.groups.iter().map(|group| group.folder.as_str()).collect();
        assert_eq!(folders, ["tiny", "3x1MiB", "mixed/large", "mixed/mixed", "mixed/tiny"]);
    }

    #[test]
    fn what_is_not_a_data_set_is_refused_with_a_reason() {
        for spec in ["", "huge", "x1KiB", "0x1KiB", "5x", "5x1XB", "5000000000x1", "tiny,tiny", "tiny,"] {
            assert_eq!(Plan::parse(spec, 1_000, 1).unwrap_err().kind, crate::error::Kind::Usage, "{spec:?}");
        }
        assert!(Plan::parse("tiny", 0, 1).is_err());
    }

    #[test]
    fn space_counts_whole_blocks() {
        assert_eq!(totals("10x1").space_bytes, 10 * BLOCK_BYTES);
    }
}
