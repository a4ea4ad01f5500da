//! Two hosts that stage on one file system whose locks hold only within a host, as Lustre's with `localflock`.
//!
//! Runs on two real mounts of one directory (`lab::storage`); skipped, with the reason printed, only where `/dev/fuse` cannot
//! be opened.

use lab::storage::{SlowStorage, StorageProfile, is_available};
use model::{Entry, Generation, Kind, Name, ObjectId, Timestamp};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use store::posix::{PosixSink, beneath, host};
use store::{PublishRule, Sink, SinkLane};

/// One directory, mounted by two hosts.
struct Shared {
    hosts: [SlowStorage; 2],
    directory: tempfile::TempDir,
}

impl Shared {
    fn mount() -> Option<Shared> {
        if !is_available() {
            eprintln!("skipped: /dev/fuse cannot be opened");
            return None;
        }
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        ["backing", "a", "b"].iter().for_each(|name| fs::create_dir(at(name)).unwrap());
        let profile = StorageProfile { is_shared: true, ..StorageProfile::default() };
        let hosts = ["a", "b"].map(|name| SlowStorage::mount(&at("backing"), &at(name), profile).unwrap());
        Some(Shared { hosts, directory })
    }

    fn backing(&self) -> PathBuf {
        self.directory.path().join("backing")
    }

    /// A job at one of the hosts.
    fn sink(&self, host: usize) -> PosixSink {
        let root = Arc::new(beneath::open_directory(self.hosts[host].mountpoint()).unwrap());
        PosixSink::new(root.clone(), root, None).on_host(host::named(["a", "b"][host]))
    }
}

fn entry(id: u64, name: &str, size_bytes: u64) -> Entry {
    let modified = Timestamp { seconds: 1, nanoseconds: 0 };
    Entry {
        id: ObjectId(id),
        parent: ObjectId::ROOT,
        name: Name::new(name.as_bytes()).unwrap(),
        kind: Kind::File,
        mode: 0o644,
        generation: Generation { size_bytes, modified, ..Generation::default() },
        attributes: None,
    }
}

fn write_small(lane: &mut dyn SinkLane, entry: &Entry, bytes: &[u8]) {
    lane.create(entry, PublishRule::Replace).unwrap();
    lane.write(bytes).unwrap();
    let staged = lane.seal(entry, false).unwrap();
    lane.publish(entry, staged).unwrap();
}

fn left(directory: &Path) -> Vec<String> {
    let mut names: Vec<_> =
        fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn what_one_host_stages_is_not_swept_by_another_host() {
    let Some(shared) = Shared::mount() else { return };
    let (first, second) = (shared.sink(0), shared.sink(1));
    let small = entry(1, "small", 5);
    let large = entry(2, "large", 5);
    let mut lane = first.lane(false).unwrap();
    lane.create(&small, PublishRule::Replace).unwrap();
    lane.write(b"small").unwrap();
    let (file, _) = first.begin(&large, "stem").unwrap();
    file.write_at(0, b"large").unwrap();
    // The other opens its staging, which sweeps, works, and closes it again.
    let mut other = second.lane(false).unwrap();
    write_small(&mut *other, &entry(1, "theirs", 6), b"theirs");
    let (their_file, held) = second.begin(&entry(2, "theirs-too", 5), "stem").unwrap();
    assert!(held.is_empty(), "the stem of another host is not continued");
    their_file.write_at(0, b"other").unwrap();
    their_file.publish(&entry(2, "theirs-too", 5), PublishRule::Replace).unwrap();
    drop((other, their_file));
    second.close();
    drop(second);
    // The first goes on with what it has.
    let staged = lane.seal(&small, false).unwrap();
    lane.publish(&small, staged).unwrap();
    file.publish(&large, PublishRule::Replace).unwrap();
    drop((lane, file));
    first.close();
    drop(first);
    let content = |name: &str| fs::read_to_string(shared.backing().join(name)).unwrap();
    assert_eq!((content("small"), content("large")), ("small".into(), "large".into()));
    assert_eq!(left(&shared.backing()), ["large", "small", "theirs", "theirs-too"], "no staging is left");
}

#[test]
fn a_host_that_comes_back_continues_and_sweeps_its_own() {
    let Some(shared) = Shared::mount() else { return };
    let large = entry(1, "large", 5);
    let killed = shared.sink(0);
    let mut lane = killed.lane(false).unwrap();
    lane.create(&entry(2, "small", 5), PublishRule::Replace).unwrap();
    let (file, _) = killed.begin(&large, "stem").unwrap();
    file.write_at(0, b"large").unwrap();
    file.append_journal(b"all of it").unwrap();
    // As killed: nothing is closed, and its locks are gone.
    drop((lane, file, killed));
    let other = shared.sink(1);
    let mut lane = other.lane(false).unwrap();
    write_small(&mut *lane, &entry(1, "theirs", 1), b"x");
    drop(lane);
    other.close();
    let again = shared.sink(0);
    let (file, held) = again.begin(&large, "stem").unwrap();
    assert_eq!(held, b"all of it");
    file.publish(&large, PublishRule::Replace).unwrap();
    drop(file);
    again.close();
    assert_eq!(left(&shared.backing()), ["large", "theirs"], "its lane was swept, and nothing is left");
}
