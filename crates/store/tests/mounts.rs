//! What is mounted below the root of an endpoint: not entered, and not passed over in silence. And what is apart from its root otherwise, a
//! bound directory or a quota project: what is published there appears.
//!
//! Runs on real mounts; skipped, with the reason printed, only where nothing can be mounted.

use lab::storage::{SlowStorage, StorageProfile, is_available};
use model::name::relative_path;
use model::{Entry, FailureKind, Generation, Kind, Name, ObjectId, Timestamp};
use std::fs;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use store::Slots;
use store::posix::beneath::{self, Bounds, Mounts};
use store::posix::survey::survey;
use store::posix::target::Target;
use store::posix::{PosixSink, PosixSource, change};
use store::{Fate, Found, LinkRule, Linked, Prune, PublishRule, Sink, Source};

/// A root with `t/plain/f` and `t/mnt`, where something with `theirs` is mounted.
struct Ground {
    _mounted: SlowStorage,
    directory: tempfile::TempDir,
}

fn ground() -> Option<Ground> {
    if !is_available() {
        eprintln!("skipped: /dev/fuse cannot be opened");
        return None;
    }
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    ["backing", "root/t/mnt", "root/t/plain"].iter().for_each(|name| fs::create_dir_all(at(name)).unwrap());
    fs::write(at("backing/theirs"), "theirs").unwrap();
    fs::write(at("root/t/plain/f"), "ours").unwrap();
    let mounted = SlowStorage::mount(&at("backing"), &at("root/t/mnt"), StorageProfile::default()).unwrap();
    Some(Ground { _mounted: mounted, directory })
}

impl Ground {
    fn root(&self) -> PathBuf {
        self.directory.path().join("root")
    }

    fn target(&self, mounts: Mounts) -> Target {
        let root = beneath::open_directory(&self.root()).unwrap();
        Target::beneath(root.as_fd(), &relative_path(b"t").unwrap(), false, mounts).unwrap()
    }
}

#[test]
fn a_path_into_what_is_mounted_is_refused_with_its_place() {
    let Some(ground) = ground() else { return };
    let root = beneath::open_directory(&ground.root()).unwrap();
    let names = relative_path(b"t/mnt/new").unwrap();
    for refused in [
        Bounds::from(Mounts::Kept).resolve_directory(root.as_fd(), &names[..2]),
        Bounds::from(Mounts::Kept).resolve_directory(root.as_fd(), &names),
        Bounds::from(Mounts::Kept).resolve_directory(root.as_fd(), &relative_path(b"t/mnt/theirs").unwrap()),
        Bounds::from(Mounts::Kept).make_directories(root.as_fd(), &names, false),
        Bounds::from(Mounts::Kept).walk(root.as_fd(), &names[..2]),
    ] {
        let said = refused.unwrap_err().to_string();
        assert!(
            said.contains("mnt: another file system is mounted there") && said.contains("--cross-mounts"),
            "{said}"
        );
    }
    assert!(!ground.directory.path().join("backing/new").exists());
    Bounds::from(Mounts::Kept).resolve_directory(root.as_fd(), &relative_path(b"t/plain").unwrap()).unwrap();
    Bounds::from(Mounts::Crossed).make_directories(root.as_fd(), &names, false).unwrap();
}

#[test]
fn what_is_mounted_below_a_source_is_skipped_and_told() {
    let Some(ground) = ground() else { return };
    for (mounts, objects) in [(Mounts::Kept, 3), (Mounts::Crossed, 5)] {
        let mut source = PosixSource::new();
        source.keep_within(mounts);
        let root = beneath::open_directory(&ground.root()).unwrap();
        source.add_beneath(root.as_fd(), b"t").unwrap();
        let (mut found, mut skipped) = (0, Vec::new());
        let emit = &mut |one| {
            match one {
                Found::Object(_) => found += 1,
                Found::Failed(failure) => skipped.push(failure),
            }
            true
        };
        source.scan(emit).unwrap();
        assert_eq!(found, objects, "{mounts:?}");
        if mounts == Mounts::Kept {
            let [failure] = &skipped[..] else { panic!("{skipped:?}") };
            assert_eq!((failure.kind, &failure.path[..]), (FailureKind::Special, &b"t/mnt"[..]));
            assert!(failure.message.contains("another file system is mounted there"), "{}", failure.message);
        }
    }
}

#[test]
fn what_is_mounted_is_neither_listed_nor_removed_nor_written_to() {
    let Some(ground) = ground() else { return };
    let mut failures = Vec::new();
    survey(&ground.target(Mounts::Kept), u32::MAX, &Slots::new(80), &mut |one| {
        assert_ne!(one.path, b"mnt/theirs");
        failures.extend(one.found.err().map(|error| (one.path, error.to_string())));
        true
    });
    assert!(
        matches!(&failures[..], [(path, said)] if path == b"mnt" && said.contains("mounted there")),
        "{failures:?}"
    );
    let destination = Arc::new(beneath::open_directory(&ground.root().join("t")).unwrap());
    let sink = PosixSink::new(destination.clone(), destination, None).keep_within(Mounts::Kept);
    let entry = Entry {
        id: ObjectId(1),
        parent: ObjectId::ROOT,
        name: Name::new(b"mnt").unwrap(),
        kind: Kind::Directory,
        mode: 0o755,
        generation: Generation::default(),
        attributes: None,
    };
    assert!(sink.make_directory(&entry).unwrap_err().to_string().contains("mounted there"));
    sink.close();
    let mut said = Vec::new();
    change::remove_tree(&ground.target(Mounts::Kept), &|| false, &mut |path, e| {
        said.push((path.to_vec(), e.to_string()))
    });
    assert!(said.iter().any(|(path, why)| path == b"mnt" && why.contains("mounted there")), "{said:?}");
    assert_eq!(fs::read_to_string(ground.directory.path().join("backing/theirs")).unwrap(), "theirs");
    assert!(!ground.root().join("t/plain").exists(), "the rest went");
}

/// Something that is mounted at `mount` below a directory, while this lives.
struct Mounted {
    directory: tempfile::TempDir,
    mount: PathBuf,
}

impl Mounted {
    /// `theirs`, of the same file system, bound to `root/mnt`.
    fn bound() -> Option<Mounted> {
        if !needs::root() {
            return None;
        }
        let directory = tempfile::tempdir().unwrap();
        let (theirs, mount) = (directory.path().join("theirs"), directory.path().join("root/mnt"));
        [&theirs, &mount].into_iter().for_each(|path| fs::create_dir_all(path).unwrap());
        let mounted = Mounted { directory, mount };
        let is_mounted = is_done(Command::new("mount").arg("--bind").arg(&theirs).arg(&mounted.mount));
        needs::met(is_mounted, "no directory can be bound to another place").then_some(mounted)
    }

    /// An XFS in an image, with the directory `project` of a quota project: nothing is renamed or linked into it from outside.
    fn with_project() -> Option<Mounted> {
        if !needs::root() || !needs::program("mkfs.xfs") || !needs::program("chattr") {
            return None;
        }
        let directory = tempfile::tempdir().unwrap();
        let (image, mount) = (directory.path().join("image"), directory.path().join("root"));
        fs::File::create(&image).unwrap().set_len(300 << 20).unwrap();
        fs::create_dir(&mount).unwrap();
        let mounted = Mounted { directory, mount };
        let is_mounted = is_done(Command::new("mkfs.xfs").arg("-q").arg(&image))
            && is_done(Command::new("mount").args(["-o", "loop"]).arg(&image).arg(&mounted.mount));
        if !needs::met(is_mounted, "no loop device with XFS can be mounted") {
            return None;
        }
        let project = mounted.root().join("project");
        fs::create_dir(&project).unwrap();
        needs::met(has_project(&project, "7"), "chattr gives no project").then_some(mounted)
    }

    fn root(&self) -> PathBuf {
        self.directory.path().join("root")
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.mount).output();
    }
}

fn has_project(directory: &Path, number: &str) -> bool {
    is_done(Command::new("chattr").args(["+P", "-p", number]).arg(directory))
}

fn is_done(command: &mut Command) -> bool {
    command.output().is_ok_and(|output| output.status.success())
}

fn entry(id: u64, parent: u64, name: &str, kind: Kind) -> Entry {
    Entry {
        id: ObjectId(id),
        parent: ObjectId(parent),
        name: Name::new(name.as_bytes()).unwrap(),
        kind,
        mode: 0o640,
        generation: Generation {
            size_bytes: 7,
            modified: Timestamp { seconds: 1_000_001, nanoseconds: 0 },
            ..Generation::default()
        },
        attributes: None,
    }
}

fn sink(root: &Path) -> PosixSink {
    let root = Arc::new(beneath::open_directory(root).unwrap());
    PosixSink::new(root.clone(), root, None)
}

fn publish_large(sink: &PosixSink, file: &Entry) {
    let (staged, _) = sink.begin(file, "stem").unwrap();
    staged.write_at(0, b"content").unwrap();
    staged.make_durable(file).unwrap();
    staged.publish(file, PublishRule::NoReplace).unwrap();
}

/// Publishes an object of each sort in the directory of this number; returns their names.
fn publish_each(sink: &PosixSink, parent: u64) -> [&'static str; 6] {
    let file = |name| entry(100, parent, name, Kind::File);
    for name in ["grouped", "again"] {
        let mut lane = sink.lane(false).unwrap();
        lane.create(&file(name), PublishRule::NoReplace).unwrap();
        lane.write(b"content").unwrap();
        let staged = lane.seal(&file(name), false).unwrap();
        sink.sync_group(&mut [staged].into_iter()).unwrap();
        sink.publish(&file(name), staged).unwrap();
    }
    let mut lane = sink.lane(true).unwrap();
    lane.create(&file("alone"), PublishRule::Replace).unwrap();
    lane.write(b"content").unwrap();
    let staged = lane.seal(&file("alone"), true).unwrap();
    lane.publish(&file("alone"), staged).unwrap();
    publish_large(sink, &file("large"));
    let link = entry(101, parent, "link", Kind::Symlink((*b"large").into()));
    assert!(sink.make_symlink(&link, PublishRule::NoReplace).unwrap());
    let other = entry(102, parent, "other", Kind::HardLink(ObjectId(100)));
    let rule = LinkRule { may_make: true, may_replace: false, ignores_time: false, is_rehearsal: false };
    let linked = sink.make_hard_link(&file("alone"), &other, rule).unwrap();
    assert_eq!(linked, Linked::Made { has_replaced: false });
    ["again", "alone", "grouped", "large", "link", "other"]
}

/// What was published in a directory is there, whole, and nothing else is.
fn check_each(directory: &Path, names: &[&str]) {
    let mut found: Vec<_> =
        fs::read_dir(directory).unwrap().map(|one| one.unwrap().file_name().into_string().unwrap()).collect();
    found.sort();
    assert_eq!(found, names, "{}", directory.display());
    for name in names {
        let status = fs::metadata(directory.join(name)).unwrap();
        let seen = (status.mode() & 0o7777, status.mtime(), fs::read(directory.join(name)).unwrap());
        assert_eq!(seen, (0o640, 1_000_001, b"content".to_vec()), "{name}");
    }
}

#[test]
fn what_is_published_below_a_bound_directory_appears_there() {
    let Some(mounted) = Mounted::bound() else { return };
    let sink = sink(&mounted.root());
    sink.make_directory(&entry(1, 0, "mnt", Kind::Directory)).unwrap();
    let names = publish_each(&sink, 1);
    sink.close();
    check_each(&mounted.directory.path().join("theirs"), &names);
}

#[test]
fn what_is_published_in_a_quota_project_appears_there() {
    let Some(mounted) = Mounted::with_project() else { return };
    let project = mounted.root().join("project");
    // What is in its directories has only as much room as they.
    ["one", "two"].into_iter().for_each(|name| fs::create_dir(project.join(name)).unwrap());
    let open = || {
        let sink = sink(&mounted.root());
        for (id, parent, name) in [(1, 0, "project"), (2, 1, "one"), (3, 1, "two")] {
            sink.make_directory(&entry(id, parent, name, Kind::Directory)).unwrap();
        }
        sink
    };
    // What comes first finds out how far it is: a large file, or a small one or link.
    let first = open();
    publish_large(&first, &entry(100, 1, "first", Kind::File));
    let link = entry(100, 2, "link", Kind::Symlink((*b"large").into()));
    assert!(first.make_symlink(&link, PublishRule::NoReplace).unwrap());
    first.close();
    assert_eq!(fs::read(project.join("first")).unwrap(), b"content");
    let other = open();
    assert!(!other.make_symlink(&link, PublishRule::NoReplace).unwrap(), "it is there");
    let new = entry(100, 3, "new", Kind::Symlink((*b"large").into()));
    assert!(other.make_symlink(&new, PublishRule::NoReplace).unwrap());
    other.close();
    [project.join("one/link"), project.join("two/new")].into_iter().for_each(|path| fs::remove_file(path).unwrap());
    let sink = open();
    let names = publish_each(&sink, 2);
    publish_each(&sink, 3);
    let is_staging = |path: &Path| {
        let mut names = fs::read_dir(path).unwrap().map(|one| one.unwrap().file_name());
        names.any(|name| name.as_encoded_bytes().starts_with(b".thalweg-staging-"))
    };
    assert!(is_staging(&project) && !is_staging(&project.join("one")), "one staging is enough for all of it");
    sink.close();
    check_each(&project.join("one"), &names);
    check_each(&project.join("two"), &names);
    assert!(!is_staging(&project) && !is_staging(&mounted.root()));
}

#[test]
fn a_large_file_is_written_where_it_can_be_renamed_from_when_its_directory_is_of_a_project() {
    let Some(mounted) = Mounted::with_project() else { return };
    let sink = sink(&mounted.root());
    sink.make_directory(&entry(1, 0, "project", Kind::Directory)).unwrap();
    let file = entry(100, 1, "large", Kind::File);
    let (staged, _) = sink.begin(&file, "stem").unwrap();
    staged.write_at(0, b"content").unwrap();
    let data = staged.native().and_then(|native| native.downcast_ref::<fs::File>()).unwrap();
    let written = data.metadata().unwrap().ino();
    staged.publish(&file, PublishRule::NoReplace).unwrap();
    let published = mounted.root().join("project/large");
    assert_eq!(fs::metadata(&published).unwrap().ino(), written, "it is not written again");
    drop(staged);
    sink.close();
    check_each(&mounted.root().join("project"), &["large"]);
}

#[test]
fn what_was_staged_before_two_projects_one_in_the_other_were_found_appears_in_the_inner_one() {
    let Some(mounted) = Mounted::with_project() else { return };
    let (project, inner) = (mounted.root().join("project"), mounted.root().join("project/inner"));
    fs::create_dir(&inner).unwrap();
    assert!(has_project(&inner, "8"));
    let sink = sink(&mounted.root());
    for (id, parent, name) in [(1, 0, "project"), (2, 1, "inner")] {
        sink.make_directory(&entry(id, parent, name, Kind::Directory)).unwrap();
    }
    let file = entry(100, 2, "file", Kind::File);
    let mut lane = sink.lane(false).unwrap();
    lane.create(&file, PublishRule::NoReplace).unwrap();
    lane.write(b"content").unwrap();
    let staged = lane.seal(&file, false).unwrap();
    // The outer one is known when the file is to get its name.
    let link = entry(101, 1, "link", Kind::Symlink((*b"file").into()));
    assert!(sink.make_symlink(&link, PublishRule::NoReplace).unwrap());
    sink.publish(&file, staged).unwrap();
    drop(lane);
    sink.close();
    check_each(&inner, &["file"]);
    assert_eq!(fs::read_dir(&project).unwrap().count(), 2, "staging is gone");
}

#[test]
fn what_is_bound_to_a_place_in_a_destination_is_not_removed_with_it() {
    let Some(mounted) = Mounted::bound() else { return };
    let theirs = mounted.directory.path().join("theirs");
    fs::write(theirs.join("f"), "theirs").unwrap();
    fs::create_dir_all(mounted.root().join("plain/deep")).unwrap();
    let sink = sink(&mounted.root());
    let mut removed = Vec::new();
    let mut failures = Vec::new();
    let mut prune = Prune {
        directories: &[ObjectId::ROOT],
        is_listed: &|_, _| false,
        is_listed_alike: &|_, _| false,
        fate: &|_, _| Fate::Remove,
        is_rehearsal: false,
        removed: &mut |path, _| removed.push(String::from_utf8(path.to_vec()).unwrap()),
        failed: &mut |failure| failures.push(failure),
        goes_on: &|| true,
    };
    let mut named = [(b"mnt/f".to_vec(), false), (b"mnt".to_vec(), true)].into_iter();
    sink.prune_paths(&mut || named.next(), &mut prune);
    sink.prune(&mut prune);
    assert_eq!((removed, failures), (vec!["plain/deep".to_owned(), "plain".to_owned()], Vec::new()));
    assert_eq!(fs::read_to_string(theirs.join("f")).unwrap(), "theirs");
}
