//! What a source has besides content, for the seeds whose job keeps it: modes, owners, extended attributes, several names of
//! one file, special files.
//!
//! Owners and devices are drawn only where the trial runs as root, who may give them.

use super::image::make_special;
use super::reference::{Kept, Reference, Version};
use super::scenario::{join, write};
use crate::random::Random;
use anyhow::Result;
use model::Fidelity;
use rustix::fs::XattrFlags;
use std::collections::BTreeMap;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::Path;

/// The null device's number, as Linux writes major and minor into one.
const NULL_DEVICE: u64 = 1 << 8 | 3;

pub fn everything() -> Fidelity {
    Fidelity {
        owner: true,
        group: true,
        numeric_ids: true,
        mode: true,
        xattrs: true,
        hard_links: true,
        specials: true,
        devices: is_root(),
        ..Fidelity::default()
    }
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Gives files modes, owners and attributes, and tells the reference of them.
pub fn give(random: &mut Random, source: &Path, files: &[Vec<u8>], reference: &Reference) -> Result<()> {
    for path in files {
        let kept = give_one(random, &join(source, path))?;
        reference.source_keeps(path, kept);
    }
    Ok(())
}

fn give_one(random: &mut Random, at: &Path) -> Result<Kept> {
    use std::os::unix::fs::MetadataExt;
    let mut attributes = BTreeMap::new();
    for number in 0..random.below(3) {
        let (name, value) = (format!("user.trial-{number}").into_bytes(), format!("{}", random.next()).into_bytes());
        rustix::fs::lsetxattr(at, &name[..], &value, XattrFlags::empty())?;
        attributes.insert(name, value);
    }
    if is_root() && random.one_in(2) {
        chown(at, Some(1000 + random.below(3) as u32), Some(100))?;
    }
    let mode = [0o644, 0o600, 0o755, 0o664, 0o1644][random.below(5) as usize];
    std::fs::set_permissions(at, std::fs::Permissions::from_mode(mode))?;
    let status = std::fs::metadata(at)?;
    Ok(Kept { mode, owner: (status.uid(), status.gid()), attributes })
}

/// Now and then a file of two or three names. Returns them.
pub fn link(
    random: &mut Random,
    source: &Path,
    to: &Path,
    directories: &[Vec<u8>],
    reference: &Reference,
) -> Result<Vec<Vec<u8>>> {
    if random.one_in(2) {
        return Ok(Vec::new());
    }
    let mut names: Vec<Vec<u8>> = Vec::new();
    let first = below(random, directories, "name-0");
    let version = write(random, &join(source, &first), 1_500_000)?;
    let kept = give_one(random, &join(source, &first))?;
    for number in 0..2 + random.below(2) {
        let path = if number == 0 { first.clone() } else { below(random, directories, &format!("name-{number}")) };
        if number > 0 {
            std::fs::hard_link(join(source, &first), join(source, &path))?;
        }
        reference.source_has(&path, version.clone());
        reference.source_keeps(&path, kept.clone());
        if random.one_in(3) {
            let at = join(to, &path);
            std::fs::create_dir_all(at.parent().unwrap_or(to))?;
            let before = write(random, &at, 500)?;
            reference.destination_had(&path, before);
        }
        names.push(path);
    }
    Ok(names)
}

/// Now and then a FIFO, and a device.
pub fn add_specials(random: &mut Random, source: &Path, directories: &[Vec<u8>], reference: &Reference) -> Result<()> {
    let kinds = [("fifo", libc::S_IFIFO, 0), ("device", libc::S_IFCHR, NULL_DEVICE)];
    for (name, kind, device) in kinds {
        if random.one_in(2) || kind == libc::S_IFCHR && !is_root() {
            continue;
        }
        let path = below(random, directories, name);
        make_special(&join(source, &path), kind, device)?;
        reference.source_has(&path, Version::Special(kind, device));
    }
    Ok(())
}

fn below(random: &mut Random, directories: &[Vec<u8>], name: &str) -> Vec<u8> {
    let directory = &directories[random.below(directories.len() as u64) as usize];
    match directory.is_empty() {
        true => name.as_bytes().to_vec(),
        false => [&directory[..], b"/", name.as_bytes()].concat(),
    }
}
