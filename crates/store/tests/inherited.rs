//! What files get of the directory that they are published in, wherever they were staged: as if they had been made there.

use model::{Entry, Generation, Kind, Name, Node, ObjectId, Timestamp};
use rustix::fs::{XattrFlags, getxattr, setxattr};
use std::fs;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, chown};
use std::path::Path;
use std::sync::Arc;
use store::posix::{PosixSink, beneath};
use store::{PublishRule, Sink};

/// One that no test runs in.
const GROUP: u32 = 4711;
/// Less than what the umask leaves, and more.
const MODE: u32 = 0o664;

fn entry(id: u64, parent: u64, name: &str, kind: Kind) -> Entry {
    let modified = Timestamp { seconds: 1_000_001, nanoseconds: 0 };
    Entry {
        id: ObjectId(id),
        parent: ObjectId(parent),
        name: Name::new(name.as_bytes()).unwrap(),
        mode: if kind == Kind::Directory { 0o775 } else { MODE },
        kind,
        generation: Generation { size_bytes: 7, modified, ..Generation::default() },
        attributes: None,
    }
}

fn sink(root: &Path) -> PosixSink {
    let root = Arc::new(beneath::open_directory(root).unwrap());
    PosixSink::new(root.clone(), root, None)
}

/// A small file that is staged under a name, and a large one.
fn publish_files(sink: &PosixSink, parent: u64) {
    let (small, large) = (entry(100, parent, "small", Kind::File), entry(101, parent, "large", Kind::File));
    let mut lane = sink.lane(false).unwrap();
    lane.create(&small, PublishRule::NoReplace).unwrap();
    lane.write(b"content").unwrap();
    let staged = lane.seal(&small, false).unwrap();
    sink.publish(&small, staged).unwrap();
    let (file, _) = sink.begin(&large, "stem").unwrap();
    file.write_at(0, b"content").unwrap();
    file.publish(&large, PublishRule::NoReplace).unwrap();
}

#[test]
fn all_that_is_published_in_a_directory_of_a_group_belongs_to_the_group() {
    if !needs::root() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    for (name, group, mode) in [("theirs", GROUP, 0o2775), ("plain", 0, 0o755)] {
        let path = dir.path().join(name);
        fs::create_dir(&path).unwrap();
        chown(&path, None, Some(group)).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
    }
    // Staging lies in the root: first in one that gives nothing, then in one that gives the group.
    for is_of_group in [false, true] {
        if is_of_group {
            chown(dir.path(), None, Some(GROUP)).unwrap();
            fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o2775)).unwrap();
        }
        let sink = sink(dir.path());
        let directories = [(1, 0, "theirs", GROUP), (2, 0, "plain", 0), (3, 1, "new", GROUP)];
        for (id, parent, name, _) in directories {
            sink.make_directory(&entry(id, parent, name, Kind::Directory)).unwrap();
            publish_files(&sink, id);
            let link = entry(102, id, "link", Kind::Symlink((*b"small").into()));
            assert!(sink.make_symlink(&link, PublishRule::NoReplace).unwrap());
            assert!(sink.make_node(&entry(103, id, "fifo", Kind::Node(Node::Fifo)), PublishRule::NoReplace).unwrap());
        }
        for (id, parent, name, _) in directories.into_iter().rev() {
            sink.finish_directory(&entry(id, parent, name, Kind::Directory)).unwrap();
        }
        sink.close();
        for (path, group) in [("theirs", GROUP), ("plain", 0), ("theirs/new", GROUP)] {
            for name in ["small", "large", "link", "fifo"] {
                let path = dir.path().join(path).join(name);
                assert_eq!(fs::symlink_metadata(&path).unwrap().gid(), group, "{}", path.display());
                fs::remove_file(&path).unwrap();
            }
        }
        let new = dir.path().join("theirs/new");
        assert_ne!(fs::metadata(&new).unwrap().mode() & 0o2000, 0, "it gives the group on");
        fs::remove_dir(new).unwrap();
    }
}

/// An ACL as the kernel takes it (linux/posix_acl_xattr.h).
fn acl(entries: &[(u16, u16, u32)]) -> Vec<u8> {
    let entry =
        |(tag, bits, of): &(u16, u16, u32)| [&tag.to_le_bytes()[..], &bits.to_le_bytes(), &of.to_le_bytes()].concat();
    [2u32.to_le_bytes().to_vec(), entries.iter().flat_map(entry).collect()].concat()
}

/// Mode and ACL of a file.
fn rights(path: &Path) -> (u32, Vec<u8>) {
    let mut room = vec![0; 1024];
    let length = getxattr(path, "system.posix_acl_access", &mut room[..]).unwrap_or(0);
    (fs::metadata(path).unwrap().mode() & 0o7777, room[..length].to_vec())
}

/// Rights of a file that is shown while it grows, when its beginning turned out to be another one.
fn show_anew(sink: &PosixSink, parent: u64, shown: &Path) -> (u32, Vec<u8>) {
    let (file, view) = (entry(104, parent, "growing", Kind::File), Name::new(b"shown").unwrap());
    let begin = || sink.begin_growing(&file, "growing", Some(&view)).unwrap().0;
    let first = begin();
    first.resume(0).unwrap();
    first.write_at(0, b"content").unwrap();
    let before = fs::metadata(shown).unwrap().ino();
    drop(first);
    let again = begin();
    again.resume(3).unwrap();
    again.write_at(3, b"trary").unwrap();
    assert_ne!(fs::metadata(shown).unwrap().ino(), before);
    let rights = rights(shown);
    again.discard();
    rights
}

#[test]
fn what_is_published_where_there_is_a_default_acl_has_it_as_if_it_were_made_there() {
    const ANY: u32 = u32::MAX;
    let dir = tempfile::tempdir().unwrap();
    let named = acl(&[(1, 7, ANY), (2, 7, GROUP), (4, 5, ANY), (16, 7, ANY), (32, 0, ANY)]);
    let minimal = acl(&[(1, 7, ANY), (4, 7, ANY), (32, 0, ANY)]);
    let directories = [(1, "named", Some(&named)), (2, "minimal", Some(&minimal)), (3, "none", None)];
    for (_, name, acl) in directories {
        let path = dir.path().join(name);
        fs::create_dir(&path).unwrap();
        let set = acl.map_or(Ok(()), |acl| setxattr(&path, "system.posix_acl_default", acl, XattrFlags::empty()));
        if !needs::met(set.is_ok(), format!("the temporary directory has no ACLs: {set:?}")) {
            return;
        }
    }
    let asked = |path: &Path, mode: u32| {
        fs::OpenOptions::new().write(true).create_new(true).mode(mode).open(path).unwrap();
        let made = rights(path);
        fs::remove_file(path).unwrap();
        made
    };
    let left_by_umask = asked(&dir.path().join("none/asked"), 0o777).0;
    // Staging lies in the root: first in one that gives nothing, then in one with an ACL.
    for root in [None, Some(&named)] {
        if let Some(acl) = root {
            setxattr(dir.path(), "system.posix_acl_default", acl, XattrFlags::empty()).unwrap();
        }
        let sink = sink(dir.path());
        for (id, name, _) in directories {
            let path = dir.path().join(name);
            sink.make_directory(&entry(id, 0, name, Kind::Directory)).unwrap();
            publish_files(&sink, id);
            let expected = asked(&path.join("asked"), MODE);
            for file in ["small", "large"] {
                assert_eq!(rights(&path.join(file)), expected, "{name}/{file}, root {root:?}");
            }
            let shown = show_anew(&sink, id, &path.join("shown"));
            assert_eq!(shown, asked(&path.join("asked"), MODE & 0o444), "{name}/shown, root {root:?}");
            assert!(sink.make_node(&entry(103, id, "fifo", Kind::Node(Node::Fifo)), PublishRule::NoReplace).unwrap());
            // It has an ACL only of its staging. Without one its group has what the ACL gives the group.
            let is_given = name == "named" && root.is_some();
            let group = if name == "named" { 0o757 } else { 0o777 };
            let expected = if is_given { expected.0 } else { expected.0 & left_by_umask & group };
            assert_eq!(rights(&path.join("fifo")).0, expected, "{name}/fifo, root {root:?}");
            ["small", "large", "fifo"].into_iter().for_each(|file| fs::remove_file(path.join(file)).unwrap());
        }
        sink.close();
    }
}
