//! The file system of each root: what kind it is, how it is mounted, how full it is.

use crate::finding::{Area, Finding, Level};
use crate::host::{Host, Mounted};
use model::name::Escaped;
use model::quantity::ByteCount;
use std::path::Path;

/// Below this share of free room file systems search long for it, and copies are likely to end without.
const FREE_SHARE_MIN: f64 = 0.05;

/// Kinds of file systems, and what to know of them.
const KINDS: &[(&str, &str)] = &[
    (
        "nfs",
        "network storage: creating a file takes round trips, and a sync goes to the server; more streams help with small files",
    ),
    (
        "nfs4",
        "network storage: creating a file takes round trips, and a sync goes to the server; more streams help with small files",
    ),
    ("cifs", "network storage: names that differ only in case may collide, and owners are not the real ones"),
    ("smb3", "network storage: names that differ only in case may collide, and owners are not the real ones"),
    ("overlay", "a container's layer: the first write to a file copies it whole; mount a volume for data"),
    ("tmpfs", "held in memory: nothing survives a restart, and its content takes memory from everything else"),
    ("vfat", "names that differ only in case collide; no owners or modes; files of up to 4 GiB"),
    ("exfat", "names that differ only in case collide; no owners or modes"),
    ("9p", "shared by the host of this virtual machine: every call goes there"),
    ("virtiofs", "shared by the host of this virtual machine: every call goes there"),
];

pub fn findings(host: &Host, roots: &[std::path::PathBuf]) -> Vec<Finding> {
    let Some(calls) = host.calls() else { return Vec::new() };
    let mounts = host.read("proc/self/mountinfo").unwrap_or_default();
    let mut findings = Vec::new();
    for root in roots {
        let shown = Escaped(root.as_os_str().as_encoded_bytes()).to_string();
        match calls.mounted(root) {
            Ok(mounted) => findings.push(of_root(&shown, root, &mounted, &mounts)),
            Err(e) => {
                let found = format!("cannot be looked at: {e}");
                let finding = Finding::new(Area::Storage, Level::Note, shown, found);
                findings.push(finding.by_hand("name a directory that is there with --root"));
            }
        }
    }
    findings
}

fn of_root(shown: &str, root: &Path, mounted: &Mounted, mounts: &str) -> Finding {
    let mount = mount_of(mounts, mounted.device, root);
    let kind = mount.as_ref().map_or("not known", |mount| mount.kind);
    let options = mount.as_ref().map_or(String::new(), |mount| format!(" ({})", mount.options));
    let found = format!("{kind}{options}, {} of {} free", ByteCount(mounted.free_bytes), ByteCount(mounted.bytes));
    let finding = |level| Finding::new(Area::Storage, level, shown, &found);
    if mounted.is_read_only {
        return finding(Level::Optional).costs("it is mounted read-only: nothing can be received here");
    }
    if (mounted.free_bytes as f64) < mounted.bytes as f64 * FREE_SHARE_MIN {
        return finding(Level::Optional)
            .costs("hardly any room is left")
            .by_hand("make room, or name another directory");
    }
    if mounted.files > 0 && (mounted.free_files as f64) < mounted.files as f64 * FREE_SHARE_MIN {
        let cost = format!("hardly any inode is left: {} of {}", mounted.free_files, mounted.files);
        return finding(Level::Optional).costs(cost).by_hand("remove small files, or name another directory");
    }
    let is_set = |option: &str| mount.as_ref().is_some_and(|mount| mount.options.split(',').any(|set| set == option));
    if is_set("sync") || is_set("data=journal") {
        let cost = "every write waits for the disk, or is written twice";
        return finding(Level::Optional).costs(cost).by_hand("mount it without `sync` and `data=journal`");
    }
    match KINDS.iter().find(|(name, _)| *name == kind || (kind.starts_with("fuse") && *name == "9p")) {
        Some((_, _)) if kind.starts_with("fuse") => {
            finding(Level::Note).costs("a program on this machine (FUSE) answers every call: it sets the rate")
        }
        Some((_, note)) => finding(Level::Note).costs(*note),
        None => finding(Level::Good),
    }
}

struct Mount<'a> {
    kind: &'a str,
    options: String,
}

/// The mount of a device that a path is on: of several the one whose place is the longest beginning of the path.
fn mount_of<'a>(mounts: &'a str, device: (u32, u32), path: &Path) -> Option<Mount<'a>> {
    let path = std::path::absolute(path).ok()?;
    let number = format!("{}:{}", device.0, device.1);
    let rows = mounts.lines().filter_map(|line| {
        let (left, right) = line.split_once(" - ")?;
        let left: Vec<&str> = left.split(' ').collect();
        let (place, own) = (*left.get(4)?, *left.get(5)?);
        (*left.get(2)? == number).then_some((place, own, right))
    });
    // A path through a link starts with none of the places; any mount of the device tells its kind.
    let length = |place: &str| if path.starts_with(place) { place.len() + 1 } else { 0 };
    let (_, own, right) = rows.max_by_key(|(place, ..)| length(place))?;
    let mut right = right.split(' ');
    let (kind, device_options) = (right.next()?, right.nth(1).unwrap_or_default());
    let mut options: Vec<&str> = own.split(',').collect();
    options.extend(device_options.split(',').filter(|option| ["sync", "data=journal", "discard"].contains(option)));
    options.dedup();
    Some(Mount { kind, options: options.join(",") })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::imitation::{Answers, files};

    const MOUNTS: &str = "\
21 1 8:1 / / rw,relatime - ext4 /dev/sda1 rw,data=journal\n\
22 21 0:40 / /mnt/far rw,noatime - nfs4 server:/x rw,vers=4.2\n\
23 21 0:41 / /mnt/u rw - fuse.sshfs x rw\n";

    fn found(device: (u32, u32), path: &str, change: impl Fn(&mut Mounted)) -> Finding {
        let mut answers = Answers::default();
        answers.mounted.device = device;
        change(&mut answers.mounted);
        let dir = files(&[("proc/self/mountinfo", MOUNTS)]);
        findings(&Host::imitated(dir.path(), &answers), &[path.into()]).remove(0)
    }

    #[test]
    fn the_kind_and_the_options_come_from_the_mount() {
        let remote = found((0, 40), "/mnt/far/x", |_| {});
        assert!(remote.found.starts_with("nfs4 (rw,noatime), 50.0 GiB of 100 GiB free"), "{}", remote.found);
        assert!(remote.level == Level::Note && remote.cost.contains("round trips"));
        assert!(found((0, 41), "/mnt/u", |_| {}).cost.contains("a program on this machine"));
        let journal = found((8, 1), "/data", |_| {});
        assert!(journal.level == Level::Optional && journal.cost.contains("twice"));
    }

    #[test]
    fn little_room_and_no_right_to_write_are_found() {
        assert!(found((8, 1), "/d", |m| m.free_bytes = 1 << 30).cost.contains("room"));
        assert!(found((8, 1), "/d", |m| m.free_files = 10).cost.contains("inode"));
        assert!(found((8, 1), "/d", |m| m.is_read_only = true).cost.contains("read-only"));
    }
}
