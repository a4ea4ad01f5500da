//! Trees of files with known content, and what came of them at a destination.
//!
//! Invariant: what stands there is read by `check`, and compared with what was written to the source, by content alone:
//! not every tool keeps modes and times.

use crate::check;
use anyhow::{Context, Result};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

const PIECE_BYTES: usize = 1 << 20;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Known {
    pub bytes: u64,
    pub digest: blake3::Hash,
}

/// The files of a tree by their path below it.
pub type Files = BTreeMap<PathBuf, Known>;

/// What stands at the final names of a destination.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    pub absent: u64,
    /// An object that was there before.
    pub old: u64,
    pub complete: u64,
    pub complete_bytes: u64,
    /// Neither the old nor the new object: half, mixed or damaged.
    pub wrong: Vec<PathBuf>,
    /// Names that neither tree has.
    pub foreign: Vec<PathBuf>,
}

impl Seen {
    pub fn is_complete(&self) -> bool {
        self.absent == 0 && self.old == 0 && self.wrong.is_empty()
    }
}

/// Files of one size in directories of at most 256, with content that follows from the seed.
pub fn make(root: &Path, count: u64, bytes: u64, seed: u64) -> Result<Files> {
    let mut files = Files::new();
    for index in 0..count {
        let below = PathBuf::from(format!("d{:03}/f{index:06}", index / 256));
        let known = write(&root.join(&below), bytes, seed.wrapping_mul(1_000_003).wrapping_add(index))?;
        files.insert(below, known);
    }
    Ok(files)
}

/// Writes a file of content that does not repeat, with a time long past.
pub fn write(path: &Path, bytes: u64, seed: u64) -> Result<Known> {
    let failed = || format!("write {}", path.display());
    fs::create_dir_all(path.parent().unwrap_or(path)).with_context(failed)?;
    let mut file = File::create(path).with_context(failed)?;
    let (mut digest, mut reader) = (blake3::Hasher::new(), noise(seed));
    let mut piece = vec![0; PIECE_BYTES];
    let mut left = bytes;
    while left > 0 {
        let now = &mut piece[..left.min(PIECE_BYTES as u64) as usize];
        reader.fill(now);
        digest.update(now);
        file.write_all(now).with_context(failed)?;
        left -= now.len() as u64;
    }
    let modified = SystemTime::UNIX_EPOCH + Duration::from_secs(1_600_000_000 + seed % 100_000);
    file.set_modified(modified).with_context(failed)?;
    Ok(Known { bytes, digest: digest.finalize() })
}

/// The files below `root` as they are; staging is left out.
pub fn read(root: &Path) -> Result<Files> {
    let found = check::tree(root).with_context(|| format!("read {}", root.display()))?;
    let file = |(path, object): (PathBuf, check::Object)| match object.kind {
        check::Kind::File { bytes, digest } => Some((path, Known { bytes, digest })),
        _ => None,
    };
    Ok(found.into_iter().filter_map(file).collect())
}

/// Compares what stands below `root` with the new objects, and with the old ones that may still stand there.
pub fn compare(root: &Path, new: &Files, old: &Files) -> Result<Seen> {
    let mut found = read(root)?;
    let mut seen = Seen::default();
    for (path, known) in new {
        match found.remove(path) {
            None => seen.absent += 1,
            Some(there) if there == *known => {
                seen.complete += 1;
                seen.complete_bytes += known.bytes;
            }
            Some(there) if old.get(path) == Some(&there) => seen.old += 1,
            Some(_) => seen.wrong.push(path.clone()),
        }
    }
    seen.foreign = found.into_keys().filter(|path| !old.contains_key(path)).collect();
    Ok(seen)
}

/// Sum of the lengths of all files below `root`.
pub fn lengths(root: &Path) -> u64 {
    let listing = fs::read_dir(root).into_iter().flatten().flatten();
    let of = |entry: fs::DirEntry| match entry.metadata() {
        Ok(found) if found.is_dir() => lengths(&entry.path()),
        found => found.map_or(0, |found| found.len()),
    };
    listing.map(of).sum()
}

/// Names below `root` that show another length than they must have. Cheap enough for a look in mid job.
pub fn odd_lengths(root: &Path, new: &Files) -> Vec<PathBuf> {
    let is_odd = |(path, known): &(&PathBuf, &Known)| {
        fs::symlink_metadata(root.join(path)).is_ok_and(|found| found.len() != known.bytes)
    };
    new.iter().filter(is_odd).map(|(path, _)| path.clone()).collect()
}

/// An endless stream of bytes that follows from the seed.
pub fn noise(seed: u64) -> blake3::OutputReader {
    blake3::Hasher::new().update(&seed.to_le_bytes()).finalize_xof()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_stands_at_a_name_is_absent_old_complete_or_wrong() {
        let dir = tempfile::tempdir().unwrap();
        let (from, to) = (dir.path().join("from"), dir.path().join("to"));
        let new = make(&from, 4, 3000, 1).unwrap();
        let names: Vec<_> = new.keys().cloned().collect();
        fs::create_dir_all(to.join("d000")).unwrap();
        let old = Files::from([(names[1].clone(), write(&to.join(&names[1]), 10, 9).unwrap())]);
        fs::copy(from.join(&names[2]), to.join(&names[2])).unwrap();
        fs::write(to.join(&names[3]), "half").unwrap();
        fs::write(to.join("left"), "over").unwrap();
        let seen = compare(&to, &new, &old).unwrap();
        assert_eq!((seen.absent, seen.old, seen.complete, seen.complete_bytes), (1, 1, 1, 3000));
        assert_eq!((&seen.wrong[..], &seen.foreign[..]), (&names[3..], &[PathBuf::from("left")][..]));
        assert_eq!(odd_lengths(&to, &new).len(), 2);
        assert!(!seen.is_complete());
        assert!(compare(&from, &new, &Files::new()).unwrap().is_complete());
    }
}
