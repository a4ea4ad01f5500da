//! What is kept besides content: a tree with everything that a file system can say of objects goes to an endpoint, back, over
//! ssh and within a host, and is compared by rsync where that is installed, and by this test's own looking always.
//!
//! What the file system below the temporary directory refuses (attributes, ACLs, devices) is left out, and said.

use crate::bed::{Bed, NOBODY, as_nobody, behind, is_root, noise, program};
use rustix::fs::{AtFlags, CWD, FileType, Mode, Timespec, Timestamps, XattrFlags};
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

/// A user and a group that need no name.
const UID: u32 = 41_234;
const GID: u32 = 41_235;
const ALL: &str = "-aHAXS";

/// Version 2; the owner may all, a user and the mask read, the group and others nothing.
fn acl(user: u32) -> Vec<u8> {
    let mut acl = 2u32.to_le_bytes().to_vec();
    for (tag, rights, id) in
        [(1u16, 7u16, u32::MAX), (2, 4, user), (4, 0, u32::MAX), (0x10, 4, u32::MAX), (0x20, 0, u32::MAX)]
    {
        acl.extend(tag.to_le_bytes());
        acl.extend(rights.to_le_bytes());
        acl.extend(id.to_le_bytes());
    }
    acl
}

/// Gives an object an attribute; false where the file system has no such thing.
fn set(path: &Path, name: &str, value: &[u8]) -> bool {
    let set = rustix::fs::lsetxattr(path, name, value, XattrFlags::empty());
    needs::met(set.is_ok(), format!("{name} on {}: {set:?}", path.display()))
}

fn set_mode(path: PathBuf, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

fn set_time(path: PathBuf, seconds: i64, nanoseconds: i64) {
    let time = Timespec { tv_sec: seconds, tv_nsec: nanoseconds };
    let times = Timestamps { last_access: time, last_modification: time };
    rustix::fs::utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW).unwrap();
}

/// A tree with everything that a user may make, and on top of it what only root may.
fn make_tree(root: &Path, is_of_root: bool) {
    let at = |below: &str| root.join(below);
    fs::create_dir_all(at("dir/closed")).unwrap();
    fs::create_dir_all(at("links")).unwrap();
    for (name, bytes) in [("plain", 10), ("dir/open", 100), ("dir/large", 9 << 20), ("dir/closed/in", 5)] {
        fs::write(at(name), noise(bytes, bytes as u64)).unwrap();
    }
    for (first, other) in [("links/a", "links/b"), ("links/a", "dir/c"), ("dir/large", "links/large")] {
        if !at(first).exists() {
            fs::write(at(first), b"several names").unwrap();
        }
        fs::hard_link(at(first), at(other)).unwrap();
    }
    symlink("plain", at("link")).unwrap();
    // Longer and shorter than a chunk, with data in the middle and a hole at the end.
    for (name, bytes) in [("sparse-large", 40 << 20), ("sparse-small", 100 << 10)] {
        let file = fs::File::create(at(name)).unwrap();
        file.set_len(bytes).unwrap();
        file.write_all_at(&noise(5000, 3), bytes / 2).unwrap();
    }
    let special = |kind, name: &str| rustix::fs::mknodat(CWD, at(name), kind, Mode::from_raw_mode(0o640), 0).unwrap();
    special(FileType::Fifo, "fifo");
    special(FileType::Socket, "socket");
    set(&at("plain"), "user.note", b"kept\0as it is\xff");
    set(&at("plain"), "user.empty", b"");
    set(&at("dir"), "user.of-directory", b"1");
    set(&at("dir/closed/in"), "user.read-only", b"2");
    if set(&at("dir/open"), "system.posix_acl_access", &acl(NOBODY)) {
        set(&at("dir"), "system.posix_acl_default", &acl(NOBODY));
    }
    if is_of_root {
        as_root(root);
    }
    for (name, mode) in [("plain", 0o666), ("dir/closed/in", 0o400), ("dir/closed", 0o555), ("links", 0o2775)] {
        set_mode(at(name), mode);
    }
    for (name, seconds) in [("plain", 1_234_567_890), ("link", 1_000_000_000), ("fifo", 1_100_000_000)] {
        set_time(at(name), seconds, 123_456_789);
    }
    for (name, seconds) in [("dir/closed", 1_300_000_000), ("links", -5), ("dir", 1_400_000_000), ("", 1_500_000_000)] {
        set_time(at(name), seconds, 987_654_321);
    }
}

/// What only root may make.
fn as_root(root: &Path) {
    let at = |below: &str| root.join(below);
    let device = |kind, name: &str| {
        let number = rustix::fs::makedev(1, 3);
        let made = rustix::fs::mknodat(CWD, at(name), kind, Mode::from_raw_mode(0o660), number);
        needs::met(made.is_ok(), format!("{name}: {made:?}"));
    };
    device(FileType::CharacterDevice, "character-device");
    device(FileType::BlockDevice, "block-device");
    fs::write(at("set-id"), b"#!/bin/true\n").unwrap();
    for name in ["plain", "dir", "dir/open", "link", "fifo", "links/a", "set-id"] {
        std::os::unix::fs::lchown(at(name), Some(UID), Some(GID)).unwrap();
    }
    set(&at("plain"), "trusted.note", b"of root");
    set_mode(at("set-id"), 0o6755);
}

/// Everything that can be said of what is below a directory.
fn looks(root: &Path) -> BTreeMap<PathBuf, String> {
    let mut found = BTreeMap::new();
    let mut first_names: BTreeMap<(u64, u64), PathBuf> = BTreeMap::new();
    let mut pending = vec![root.to_owned()];
    while let Some(directory) = pending.pop() {
        let mut names: Vec<_> = fs::read_dir(&directory).unwrap().map(|entry| entry.unwrap().path()).collect();
        names.sort();
        for path in names {
            let status = path.symlink_metadata().unwrap();
            let below = path.strip_prefix(root).unwrap().to_owned();
            let kind = status.file_type();
            let what = if kind.is_file() {
                let first = first_names.entry((status.dev(), status.ino())).or_insert_with(|| below.clone()).clone();
                let bytes = fs::read(&path).unwrap();
                let digest = model::DigestAlgorithm::Blake3.of_object(&bytes);
                format!("file of {} names, {first:?}, {} bytes {digest}", status.nlink(), bytes.len())
            } else if kind.is_symlink() {
                format!("link to {:?}", fs::read_link(&path).unwrap())
            } else {
                if kind.is_dir() {
                    pending.push(path.clone());
                }
                let is_special = [kind.is_fifo(), kind.is_socket(), kind.is_char_device(), kind.is_block_device()];
                format!("{is_special:?} {}", status.rdev())
            };
            let owner = (status.uid(), status.gid(), format!("{:o}", status.mode()));
            let time = (status.mtime(), status.mtime_nsec());
            found.insert(below, format!("{what} {owner:?} {time:?} {:?}", xattrs(&path)));
        }
    }
    found
}

fn xattrs(path: &Path) -> BTreeMap<String, String> {
    let mut list = vec![0; 64 << 10];
    let length = rustix::fs::llistxattr(path, &mut list[..]).unwrap_or(0);
    let names = list[..length].split(|b| *b == 0).filter(|name| !name.is_empty());
    // Labels of the host's security module are its own.
    let names = names.filter(|name| !name.starts_with(b"security."));
    let value = |name: &[u8]| {
        let mut value = vec![0; 64 << 10];
        let length = rustix::fs::lgetxattr(path, OsStr::from_bytes(name), &mut value[..]).unwrap_or(0);
        format!("{:?}", &value[..length])
    };
    names.map(|name| (String::from_utf8_lossy(name).into_owned(), value(name))).collect()
}

#[track_caller]
fn assert_alike(a: &Path, b: &Path) {
    let (a_looks, b_looks) = (looks(a), looks(b));
    for (path, look) in &a_looks {
        assert_eq!(b_looks.get(path), Some(look), "{path:?}");
    }
    assert_eq!(a_looks.keys().collect::<Vec<_>>(), b_looks.keys().collect::<Vec<_>>());
    // Holes are where they were, as far as the file system has any.
    for name in ["sparse-large", "sparse-small"] {
        let [was, is] = [a, b].map(|root| root.join(name).metadata().unwrap().blocks());
        assert!(is <= was + 256, "{name}: {is} blocks instead of {was}");
    }
    if needs::program("rsync") {
        let rsync = Command::new("rsync").args(["-aHAXSni", "--delete"]).arg(a.join("")).arg(b.join("")).output();
        let said = rsync.unwrap();
        let text = String::from_utf8_lossy(&said.stdout).into_owned();
        // The destination itself is no object of the copy.
        let lines: Vec<_> = text.lines().filter(|line| !line.ends_with(" ./")).collect();
        assert!(said.status.success() && lines.is_empty(), "{lines:#?} {}", String::from_utf8_lossy(&said.stderr));
    }
}

/// Copies to an endpoint and back, and within this host.
fn there_and_back(bed: &Bed, run: &dyn Fn(&[&str])) {
    run(&["cp", ALL, "tree/", "lab:in/"]);
    assert_alike(&bed.path("tree"), &bed.path("root/in"));
    run(&["cp", ALL, "lab:in/", "back/"]);
    assert_alike(&bed.path("tree"), &bed.path("back"));
    run(&["sync", ALL, "tree/", "copy/"]);
    assert_alike(&bed.path("tree"), &bed.path("copy"));
    // What is there already stays as it is.
    run(&["sync", ALL, "tree/", "copy/"]);
    run(&["sync", ALL, "--delete", "tree/", "lab:in/"]);
    assert_alike(&bed.path("tree"), &bed.path("copy"));
    assert_alike(&bed.path("tree"), &bed.path("root/in"));
}

#[test]
fn root_keeps_everything_there_and_back() {
    if !needs::root() {
        return;
    }
    let bed = Bed::new();
    make_tree(&bed.path("tree"), true);
    // An endpoint gives up what `trusted.*` takes, whoever starts it.
    rustix::fs::lremovexattr(bed.path("tree/plain"), "trusted.note").unwrap_or_default();
    let _server = bed.serve(&["--super"]);
    bed.enrol();
    there_and_back(&bed, &|args| {
        let ran = bed.run(args).succeeded();
        assert!(!ran.stderr.contains("warning:"), "{}", ran.stderr);
    });
    set(&bed.path("tree/plain"), "trusted.note", b"of root");
    bed.run(&["cp", ALL, "tree/", "own/"]).succeeded();
    assert_alike(&bed.path("tree"), &bed.path("own"));
}

#[test]
fn a_user_keeps_what_is_theirs_there_and_back() {
    let bed = Bed::new();
    make_tree(&bed.path("tree"), false);
    if is_root() {
        // Then the tree is an ordinary user's, who runs everything below.
        set_mode(bed.dir.path().to_owned(), 0o755);
        let owned = ["tree", "root", "client", "server"].map(|name| bed.path(name));
        as_nobody(&mut Command::new("true"), &owned);
        std::os::unix::fs::chown(bed.dir.path(), Some(NOBODY), Some(NOBODY)).unwrap();
    }
    let as_user = |mut command: Command| {
        if is_root() {
            as_nobody(&mut command, &[]);
        }
        command
    };
    let _server = bed.serve_with(as_user(bed.command("server", SERVE)));
    let run = |args: &[&str]| {
        let ran = bed.finish(as_user(bed.command("client", args))).succeeded();
        assert!(!ran.stderr.contains("warning:"), "{}", ran.stderr);
    };
    run(&["endpoint", "add", "lab", "--ticket-file", "ticket"]);
    there_and_back(&bed, &run);
}

const SERVE: &[&str] = &["serve", "--listen", "127.0.0.1:0", "--root", "root", "--ticket-file", "ticket"];

#[test]
fn a_sync_mends_what_differs_beside_content_without_sending_it_again() {
    let (bed, _server) = Bed::with_endpoint();
    for (way, destination) in [("lab:d/", "root/d"), ("d/", "d")] {
        bed.write("s/f", &noise(300_000, 1));
        bed.write("s/g", b"g");
        fs::remove_file(bed.path("s/h")).unwrap_or_default();
        fs::hard_link(bed.path("s/g"), bed.path("s/h")).unwrap();
        set_mode(bed.path("s/f"), 0o600);
        let has_xattrs = set(&bed.path("s/f"), "user.a", b"1");
        bed.run(&["sync", "-aHX", "s/", way]).succeeded();
        let there = bed.path(destination);
        let before = there.join("f").metadata().unwrap().ino();
        // What differs: a mode, an attribute, one that is gone, and a name that became a file of its own.
        set_mode(bed.path("s/f"), 0o666);
        set(&bed.path("s/f"), "user.a", b"2");
        set(&there.join("f"), "user.b", b"3");
        let modified = there.join("g").metadata().unwrap().modified().unwrap();
        fs::remove_file(there.join("h")).unwrap();
        fs::write(there.join("h"), b"g").unwrap();
        fs::File::options().write(true).open(there.join("h")).unwrap().set_modified(modified).unwrap();
        let lines = |flags: &[&str]| {
            let args = [&["sync", "-aHX", "--itemize"], flags, &["s/", way]].concat();
            String::from_utf8(bed.run(&args).succeeded().stdout).unwrap()
        };
        let letters = if has_xattrs { ".f...p....x f" } else { ".f...p..... f" };
        for flags in [&["-n"][..], &[]] {
            let said = lines(flags);
            assert!(said.contains(letters) && said.contains("hf") && !said.contains("<f"), "{way}: {said}");
        }
        let f = there.join("f").metadata().unwrap();
        assert_eq!((f.ino(), f.mode() & 0o7777), (before, 0o666), "mended in place");
        assert_eq!(xattrs(&there.join("f")), xattrs(&bed.path("s/f")));
        assert_eq!(there.join("g").metadata().unwrap().ino(), there.join("h").metadata().unwrap().ino());
        assert_eq!(lines(&[]), "", "nothing is left to do");
        let done = bed.run(&["sync", "-aHX", "--json", "s/", way]).succeeded().done();
        assert_eq!(done["files"], serde_json::json!({"ok": 0, "skipped": 3, "failed": 0}), "{done}");
    }
}

#[test]
fn an_endpoint_without_rights_keeps_the_data_and_counts_what_it_could_not() {
    if !needs::root() {
        return;
    }
    let (bed, _server) = Bed::with_endpoint();
    bed.write("s/f", b"content");
    bed.write("s/g", b"content");
    for name in ["s/f", "s/g"] {
        std::os::unix::fs::chown(bed.path(name), Some(UID), Some(GID)).unwrap();
        set_mode(bed.path(name), 0o6755);
    }
    let device = rustix::fs::mknodat(CWD, bed.path("s/null"), FileType::CharacterDevice, Mode::RUSR, 259);
    let ran = bed.run(&["cp", "--json", "-a", "s/", "lab:d/"]).succeeded();
    let done = ran.done();
    let skipped = u64::from(device.is_ok());
    assert_eq!(done["files"], serde_json::json!({"ok": 2, "skipped": skipped, "failed": 0}), "{done}");
    let warned = |text: &str| {
        let warnings = done["warnings"].as_array().unwrap().iter();
        warnings.filter(|warning| warning["text"].as_str().unwrap().contains(text)).map(|w| w["count"].clone()).next()
    };
    assert_eq!(warned("owner was not set"), Some(2.into()), "{done}");
    assert_eq!(warned("set-id bits were omitted"), Some(2.into()), "{done}");
    let f = bed.path("root/d/f").metadata().unwrap();
    assert_eq!((f.mode() & 0o7777, f.uid()), (0o755, 0));
    let ran = bed.run(&["cp", "-a", "s/f", "lab:again"]).succeeded();
    assert!(ran.stderr.contains("warning: again: the owner was not set"), "{}", ran.stderr);
}

#[test]
fn what_cannot_be_read_of_a_source_is_not_removed_at_the_destination() {
    if !needs::root() {
        return;
    }
    let bed = Bed::new();
    bed.write("s/f", b"1");
    bed.write("s/dir/g", b"2");
    // Others may see their names, and no more.
    for (name, mode) in [("s", 0o755), ("s/f", 0o600), ("s/dir", 0o700), ("", 0o755)] {
        set_mode(bed.path(name), mode);
    }
    for (name, acl_name) in [("s/f", "system.posix_acl_access"), ("s/dir", "system.posix_acl_default")] {
        if !set(&bed.path(name), "user.x", b"1") {
            return;
        }
        set(&bed.path(name), acl_name, &acl(UID));
    }
    bed.run(&["cp", "-AX", "s/", "d/"]).succeeded();
    std::os::unix::fs::chown(bed.dir.path(), Some(NOBODY), Some(NOBODY)).unwrap();
    let mut command = bed.command("client", &["cp", "-AX", "--json", "s/", "d/"]);
    as_nobody(&mut command, &["client", "d"].map(|name| bed.path(name)));
    let done = bed.finish(command).done();
    let warnings = done["warnings"].as_array().unwrap();
    let is_told = |warning: &serde_json::Value| warning["text"].as_str().unwrap().contains("could not be read");
    assert!(warnings.iter().any(is_told), "{done}");
    for name in ["f", "dir"] {
        let [source, destination] = ["s", "d"].map(|top| xattrs(&bed.path(top).join(name)));
        assert!(source.contains_key("user.x"), "{source:?}");
        assert_eq!(destination, source, "{name}: {done}");
    }
}

/// A command on a host where these numbers are those of a user and of a group that both sides know.
fn knowing(command: &Command, bed: &Bed, user: u32, group: u32) -> Command {
    let file = |name: &str, line: String| bed.write(&format!("etc-{user}/{name}"), line.as_bytes());
    file("passwd", format!("root:x:0:0::/root:/bin/sh\ntw-user:x:{user}:{group}::/:/bin/false\n"));
    file("group", format!("root:x:0:\ntw-group:x:{group}:\n"));
    let bind = |name: &str| format!("mount --bind etc-{user}/{name} /etc/{name} && ");
    let script = format!("{}{}exec \"$0\" \"$@\"", bind("passwd"), bind("group"));
    behind(&["unshare", "--mount", "sh", "-c", &script], command)
}

#[test]
fn owners_and_those_named_in_acls_go_by_name_unless_numbers_are_asked_for() {
    if !needs::root() {
        return;
    }
    let bed = Bed::new();
    let args = ["serve", "--super", "--listen", "127.0.0.1:0", "--root", "root", "--ticket-file", "ticket"];
    let _server = bed.serve_with(knowing(&bed.command("server", &args), &bed, 42_001, 42_002));
    bed.enrol();
    bed.write("s/f", b"1");
    std::os::unix::fs::lchown(bed.path("s/f"), Some(41_001), Some(41_002)).unwrap();
    let has_acl = set(&bed.path("s/f"), "system.posix_acl_access", &acl(41_001));
    let copy = |to: &str, flags: &[&str], (user, group): (u32, u32)| {
        let command = bed.command("client", &[&["cp", "-aA"], flags, &["s/f", &format!("lab:{to}")]].concat());
        bed.finish(knowing(&command, &bed, 41_001, 41_002)).succeeded();
        let there = bed.path("root").join(to);
        let status = there.metadata().unwrap();
        assert_eq!((status.uid(), status.gid()), (user, group));
        if has_acl {
            assert_eq!(xattrs(&there)["system.posix_acl_access"], format!("{:?}", acl(user)));
        }
    };
    copy("by-name", &[], (42_001, 42_002));
    copy("by-number", &["--numeric-ids"], (41_001, 41_002));
}

#[test]
fn modes_are_less_the_umask_without_a_letter() {
    let bed = Bed::new();
    bed.write("s/f", b"1");
    set_mode(bed.path("s/f"), 0o666);
    let mut command = Command::new("sh");
    command.args(["-c", "umask 077; exec \"$0\" cp -q s/f plain"]).arg(program()).current_dir(bed.dir.path());
    assert!(command.status().unwrap().success());
    let mut command = Command::new("sh");
    command.args(["-c", "umask 077; exec \"$0\" cp -q -p s/f exact"]).arg(program()).current_dir(bed.dir.path());
    assert!(command.status().unwrap().success());
    let mode = |name: &str| bed.path(name).metadata().unwrap().mode() & 0o7777;
    assert_eq!((mode("plain"), mode("exact")), (0o600, 0o666));
}

/// What a move does not keep is lost with its source.
#[test]
fn a_move_to_other_storage_keeps_what_a_rename_does() {
    let bed = Bed::new();
    let Some(other) = bed.elsewhere() else { return };
    let _server = bed.serve(if is_root() { &["--super"][..] } else { &[] });
    bed.enrol();
    bed.write("t/dir/f", b"1");
    bed.write("t/a", b"several names");
    fs::hard_link(bed.path("t/a"), bed.path("t/dir/b")).unwrap();
    if is_root() {
        std::os::unix::fs::lchown(bed.path("t/dir/f"), Some(UID), Some(GID)).unwrap();
    }
    // Not every kernel keeps them in memory.
    if rustix::fs::lsetxattr(other.path(), "user.note", b"1", XattrFlags::empty()).is_ok() {
        set(&bed.path("t/a"), "user.note", b"kept");
    }
    for (name, mode) in [("t/dir/f", 0o640), ("t/dir", 0o2770), ("t", 0o700)] {
        set_mode(bed.path(name), mode);
    }
    let before = looks(&bed.path("t"));
    let there = other.path().display();
    let ways = [
        ("lab:in/".to_owned(), "lab:in/t".to_owned(), bed.path("root/in/t")),
        (format!("{there}/in/"), format!("{there}/in/t"), other.path().join("in/t")),
    ];
    for (into, moved, arrived) in ways {
        // Back it comes as the new directory `t`, not into one.
        for (from, to, at) in [("t", &into[..], arrived.clone()), (&moved[..], "t", bed.path("t"))] {
            let ran = bed.run(&["mv", from, to]).succeeded();
            assert!(!ran.stderr.contains("warning:"), "{from} {to}: {}", ran.stderr);
            assert_eq!(looks(&at), before, "{from} {to}");
            assert_eq!(at.metadata().unwrap().mode() & 0o7777, 0o700, "{from} {to}");
        }
        assert!(!arrived.exists(), "{moved}");
    }
}

#[test]
fn a_move_says_what_its_destination_did_not_keep() {
    if !needs::root() {
        return;
    }
    let (bed, _server) = Bed::with_endpoint();
    bed.write("f", b"content");
    std::os::unix::fs::lchown(bed.path("f"), Some(UID), Some(GID)).unwrap();
    let ran = bed.run(&["mv", "f", "lab:"]).succeeded();
    assert!(ran.stderr.contains("warning: f: the owner was not set"), "{}", ran.stderr);
    assert!(!bed.path("f").exists() && bed.path("root/f").exists());
}

#[test]
fn an_interrupted_copy_of_names_is_finished_by_the_same_command() {
    let (bed, _server) = Bed::with_endpoint();
    bed.write("s/a", b"one file");
    for name in ["b", "c"] {
        fs::hard_link(bed.path("s/a"), bed.path("s").join(name)).unwrap();
    }
    bed.run(&["cp", "-H", "s/", "lab:d/"]).succeeded();
    // As an attempt leaves it that ended before the last name.
    fs::remove_file(bed.path("root/d/c")).unwrap();
    let done = bed.run(&["cp", "-H", "--json", "s/", "lab:d/"]).succeeded().done();
    // Where the name that is gone is the first in the listing, the file comes again and takes the others along.
    let [ok, skipped] = ["ok", "skipped"].map(|name| done["files"][name].as_u64().unwrap());
    assert!(ok > 0 && ok + skipped == 3, "{done}");
    assert_eq!(bed.path("root/d/c").metadata().unwrap().nlink(), 3);
    // The file changed: all of its names follow it.
    fs::write(bed.path("s/a"), b"another content").unwrap();
    bed.run(&["cp", "-H", "s/", "lab:d/"]).succeeded();
    assert_eq!(fs::read(bed.path("root/d/c")).unwrap(), b"another content");
    assert_eq!(bed.path("root/d/c").metadata().unwrap().nlink(), 3);
}
