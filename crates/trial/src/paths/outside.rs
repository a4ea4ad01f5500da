//! What a tree looks like to someone who is not the product: every name with everything that a call could change.

use anyhow::{Context, Result};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

pub type Snapshot = BTreeMap<PathBuf, String>;

/// Files of this name get and lose further names by the attacker's own hand: links and change time are left out.
pub const LINKED: &str = "linked";

/// Adds everything below `path`, itself included.
pub fn look(path: &Path, snapshot: &mut Snapshot) -> Result<()> {
    let meta = std::fs::symlink_metadata(path).with_context(|| format!("look at {}", path.display()))?;
    let mut line = format!("{:o} {}:{} {} bytes", meta.mode(), meta.uid(), meta.gid(), meta.size());
    write!(line, " inode {} modified {}.{:09}", meta.ino(), meta.mtime(), meta.mtime_nsec())?;
    if path.file_name().is_none_or(|name| name != LINKED) {
        // Nobody sets the time of change by hand: it tells of any change of owner, mode, link or attribute.
        write!(line, " links {} changed {}.{:09}", meta.nlink(), meta.ctime(), meta.ctime_nsec())?;
    }
    write!(line, " {}", attributes(path))?;
    if meta.is_symlink() {
        write!(line, " to {:?}", std::fs::read_link(path)?)?;
    } else if meta.is_file() {
        write!(line, " {}", blake3::hash(&std::fs::read(path)?))?;
    } else if meta.is_dir() {
        for found in std::fs::read_dir(path)? {
            look(&found?.path(), snapshot)?;
        }
    }
    snapshot.insert(path.to_owned(), line);
    Ok(())
}

/// Names and values of the extended attributes; empty where there are none.
fn attributes(path: &Path) -> String {
    let mut names = vec![0u8; 4096];
    let Ok(length) = rustix::fs::llistxattr(path, &mut names[..]) else { return String::new() };
    let mut shown = String::new();
    for name in names[..length].split(|&byte| byte == 0).filter(|name| !name.is_empty()) {
        let mut value = vec![0u8; 4096];
        let length = rustix::fs::lgetxattr(path, name, &mut value[..]).unwrap_or(0);
        shown.push_str(&format!("{}={:?} ", String::from_utf8_lossy(name), &value[..length]));
    }
    shown
}

pub fn differences(before: &Snapshot, after: &Snapshot) -> Vec<String> {
    let mut differences = Vec::new();
    for (path, line) in before {
        match after.get(path) {
            None => differences.push(format!("outside, {} is gone", path.display())),
            Some(now) if now != line => differences.push(format!("outside, {}: {line} became {now}", path.display())),
            Some(_) => {}
        }
    }
    let appeared = after.keys().filter(|path| !before.contains_key(*path));
    differences.extend(appeared.map(|path| format!("outside, {} appeared", path.display())));
    differences
}
