//! Another file system that is mounted below the root of an endpoint: not entered, and not passed over in silence.
//!
//! Runs on a real mount (`lab::storage`); skipped, with the reason printed, only where `/dev/fuse` cannot be opened.

use lab::storage::{SlowStorage, StorageProfile, is_available};
use model::name::relative_path;
use model::{Entry, FailureKind, Generation, Kind, Name, ObjectId};
use std::fs;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::sync::Arc;
use store::Slots;
use store::posix::beneath::{self, Bounds, Mounts};
use store::posix::survey::survey;
use store::posix::target::Target;
use store::posix::{PosixSink, PosixSource, change};
use store::{Found, Sink, Source};

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
