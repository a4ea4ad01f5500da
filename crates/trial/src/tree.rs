//! The trees of the trials: a small mixed source, older versions of some of it at the destination, and a large one.
//!
//! Invariant: times lie years back, as those of real archives do. What is swept by age must not take them for its own.

use crate::random::Random;
use anyhow::{Context, Result};
use std::fs::{self, File, FileTimes, Permissions};
use std::io::Write;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::time::{Duration, SystemTime};

const MIB: usize = 1 << 20;
/// 2019; each object lies a bit later.
const TIME_FIRST_SECONDS: u64 = 1_550_000_000;

/// (path, bytes, mode).
const FILES: &[(&str, usize, u32)] = &[
    ("plain/empty", 0, 0o644),
    ("plain/one-byte", 1, 0o600),
    ("plain/a", 100, 0o644),
    ("plain/b", 4096, 0o755),
    ("plain/c", 70_001, 0o444),
    ("plain/deep/d", 300, 0o640),
    ("plain/deep/e", 131_072, 0o644),
    ("plain/deep/deeper/f", 2_000, 0o644),
    ("plain/deep/deeper/g", 9, 0o644),
    ("locked/h", 1_234, 0o400),
    ("locked/i", 5_000, 0o644),
    ("replaced/0", 500, 0o644),
    ("replaced/1", 50_000, 0o600),
    ("replaced/2", 5, 0o644),
    ("replaced/large", 2 * MIB + 77, 0o644),
    ("same", 3_000, 0o644),
    ("large", 3 * MIB + 12_345, 0o640),
    ("half-a-chunk", MIB / 2, 0o644),
];
const LINKS: &[(&str, &str)] = &[("plain/link", "deep/d"), ("dangling", "nowhere/at/all"), ("replaced/link", "0")];
const DIRECTORIES: &[(&str, u32)] = &[
    ("plain", 0o755),
    ("plain/deep", 0o750),
    ("plain/deep/deeper", 0o755),
    ("replaced", 0o755),
    ("empty", 0o711),
    ("locked", 0o550),
];

/// The source: about thirty entries, two of them in several chunks of 1 MiB.
pub fn fill_source(root: &Path) -> Result<()> {
    for (path, _) in DIRECTORIES {
        fs::create_dir_all(root.join(path)).context("make the source")?;
    }
    for (i, (path, bytes, mode)) in FILES.iter().enumerate() {
        write(&root.join(path), &noise(*bytes, i as u64 + 1), *mode, i as u64)?;
    }
    for (path, target) in LINKS {
        symlink(target, root.join(path)).context("make a link")?;
    }
    let another = |path: &str| root.join(path);
    fs::hard_link(another("plain/deep/d"), another("plain/another-name-of-d")).context("make another name")?;
    // Where the file system has them, and root is asked.
    let _ = rustix::fs::lsetxattr(another("plain/b"), "user.trial", b"kept", rustix::fs::XattrFlags::empty());
    let _ = std::os::unix::fs::chown(another("plain/a"), Some(1000), Some(1000));
    // Innermost first: an entry that is made changes the time of its directory.
    for (i, (path, mode)) in DIRECTORIES.iter().enumerate().rev() {
        finish_directory(&root.join(path), *mode, i as u64)?;
    }
    Ok(())
}

/// What the destination holds before: older versions, one object that is the same, and some that the job does not name.
pub fn fill_older(root: &Path) -> Result<()> {
    fs::create_dir_all(root.join("replaced")).context("make the destination")?;
    for (i, (path, bytes, mode)) in FILES.iter().enumerate() {
        if path.starts_with("replaced/") {
            write(&root.join(path), &noise(bytes / 2 + 1, i as u64 + 1000), *mode, 9_000 + i as u64)?;
        } else if *path == "same" {
            write(&root.join(path), &noise(*bytes, i as u64 + 1), *mode, i as u64)?;
        }
    }
    symlink("an-older-target", root.join("replaced/link")).context("make a link")?;
    write(&root.join("kept"), b"the job does not name this", 0o640, 7)?;
    write(&root.join("replaced/kept"), b"nor this", 0o600, 8)
}

/// A tree beside the root that nothing may touch.
pub fn fill_outside(root: &Path) -> Result<()> {
    write(&root.join("secret"), b"not to be read", 0o600, 1)?;
    write(&root.join("kept/file"), b"not to be changed", 0o444, 2)?;
    symlink("../secret", root.join("kept/link")).context("make a link")?;
    finish_directory(&root.join("kept"), 0o700, 3)
}

/// 2 GiB in one file and 20,000 small ones.
pub fn fill_large(root: &Path) -> Result<()> {
    fill_sized(root, 2 << 30, 20_000)
}

/// The mixed tree, a file of several chunks and 1,500 small ones.
pub fn fill_soak(root: &Path) -> Result<()> {
    fs::create_dir(root.join("mixed")).context("make the source")?;
    fill_source(&root.join("mixed"))?;
    fill_sized(root, 64 << 20, 1_500)
}

/// One large file and many small ones in directories of 500.
pub fn fill_sized(root: &Path, large_bytes: u64, files: u64) -> Result<()> {
    let mut large = File::create(root.join("large")).context("make the large file")?;
    let block = noise(MIB, 1);
    let mut written = 0;
    while written < large_bytes {
        // The number in front makes every block another one.
        let part = block.len().min((large_bytes - written) as usize);
        large.write_all(&written.to_le_bytes()[..part.min(8)]).context("write the large file")?;
        large.write_all(&block[part.min(8)..part]).context("write the large file")?;
        written += part as u64;
    }
    finish(&large, 0o644, 0)?;
    for number in 0..files {
        let directory = root.join(format!("small/{:03}", number / 500));
        if number % 500 == 0 {
            fs::create_dir_all(&directory).context("make a directory")?;
        }
        write(&directory.join(format!("{number:06}")), &noise((number * 37 % 6_000) as usize, number), 0o644, number)?;
    }
    Ok(())
}

fn write(path: &Path, content: &[u8], mode: u32, number: u64) -> Result<()> {
    let made = || format!("make {}", path.display());
    let mut file = File::create(path).with_context(made)?;
    file.write_all(content).with_context(made)?;
    finish(&file, mode, number)
}

fn finish_directory(path: &Path, mode: u32, number: u64) -> Result<()> {
    let directory = File::open(path).with_context(|| format!("open {}", path.display()))?;
    finish(&directory, mode, 50_000 + number)
}

fn finish(file: &File, mode: u32, number: u64) -> Result<()> {
    file.set_permissions(Permissions::from_mode(mode)).context("set a mode")?;
    let time =
        SystemTime::UNIX_EPOCH + Duration::new(TIME_FIRST_SECONDS + number * 61, (number * 1_009) as u32 % 999_999_999);
    file.set_times(FileTimes::new().set_modified(time)).context("set a time")
}

/// Bytes that do not repeat.
pub fn noise(bytes: usize, seed: u64) -> Vec<u8> {
    let mut random = Random::new(seed);
    let mut out = Vec::with_capacity(bytes + 8);
    while out.len() < bytes {
        out.extend_from_slice(&random.next().to_le_bytes());
    }
    out.truncate(bytes);
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check;

    #[test]
    fn the_trees_are_the_same_each_time_and_the_older_one_differs_where_it_should() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| {
            let path = dir.path().join(name);
            fs::create_dir(&path).unwrap();
            path
        };
        let (first, second, older) = (at("first"), at("second"), at("older"));
        fill_source(&first).unwrap();
        fill_source(&second).unwrap();
        fill_older(&older).unwrap();
        let new = check::tree(&first).unwrap();
        assert_eq!(new, check::tree(&second).unwrap());
        let old = check::tree(&older).unwrap();
        check::half_done(&older, &old, &new).unwrap();
        assert_eq!(old.get(Path::new("same")), new.get(Path::new("same")));
        assert_ne!(old.get(Path::new("replaced/large")), new.get(Path::new("replaced/large")));
    }
}
