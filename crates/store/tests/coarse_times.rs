//! A storage that cuts off times: what was published there is known again, and nothing else is taken for it.
//!
//! Runs on a real ext4 whose inodes have room for seconds only; skipped, with the reason printed, where that cannot be mounted.

use model::{Entry, Fidelity, Generation, Kind, Name, Node, ObjectId, Timestamp};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use store::posix::{PosixSink, beneath};
use store::{Decision, LinkRule, Linked, PublishRule, Rehearsal, Sink};

/// A file system in an image of its own, while this lives.
struct Mounted {
    directory: tempfile::TempDir,
}

impl Mounted {
    /// `None` where the kernel of this test does not let it be.
    fn ext4_of_seconds() -> Option<Mounted> {
        if !needs::root() || !needs::program("mkfs.ext4") {
            return None;
        }
        let mounted = Mounted { directory: tempfile::tempdir().unwrap() };
        let image = mounted.directory.path().join("image");
        fs::File::create(&image).unwrap().set_len(16 << 20).unwrap();
        fs::create_dir(mounted.at()).unwrap();
        let done = |command: &mut Command| command.output().is_ok_and(|output| output.status.success());
        let is_mounted = done(Command::new("mkfs.ext4").args(["-q", "-I", "128"]).arg(&image))
            && done(Command::new("mount").args(["-o", "loop"]).arg(&image).arg(mounted.at()));
        needs::met(is_mounted, "no loop device can be mounted").then_some(mounted)
    }

    fn at(&self) -> PathBuf {
        self.directory.path().join("mount")
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(self.at()).output();
    }
}

fn sink(path: &Path) -> PosixSink {
    let root = Arc::new(beneath::open_directory(path).unwrap());
    let fidelity = Fidelity { mode: true, hard_links: true, specials: true, ..Fidelity::default() };
    PosixSink::new(root.clone(), root, None).with_fidelity(fidelity, true)
}

fn entry(name: &str, kind: Kind, (seconds, nanoseconds): (i64, u32)) -> Entry {
    let modified = Timestamp { seconds, nanoseconds };
    Entry {
        id: ObjectId(1),
        parent: ObjectId::ROOT,
        name: Name::new(name.as_bytes()).unwrap(),
        kind,
        mode: 0o644,
        generation: Generation { size_bytes: 7, modified, ..Generation::default() },
        attributes: None,
    }
}

fn publish(sink: &PosixSink, entry: &Entry) {
    let mut lane = sink.lane(true).unwrap();
    lane.create(entry, PublishRule::Replace).unwrap();
    lane.write(b"content").unwrap();
    let staged = lane.seal(entry, false).unwrap();
    lane.publish(entry, staged).unwrap();
}

fn is_there(sink: &dyn Sink, modified: (i64, u32)) -> bool {
    matches!(sink.decide(&entry("file", Kind::File, modified)).unwrap(), Decision::Same)
}

#[test]
fn what_was_published_where_times_are_seconds_is_there_at_the_next_attempt() {
    let Some(mounted) = Mounted::ext4_of_seconds() else { return };
    let first = sink(&mounted.at());
    publish(&first, &entry("file", Kind::File, (1_000_001, 999_999_999)));
    let fifo = |modified| entry("fifo", Kind::Node(Node::Fifo), modified);
    assert!(first.make_node(&fifo((1_000_001, 5)), PublishRule::Replace).unwrap());
    first.close();
    let rehearsal = Rehearsal::new(Some(sink(&mounted.at())));
    assert!(!is_there(&rehearsal, (1_000_001, 999_999_999)), "it may not try what the storage keeps");
    let names = || fs::read_dir(mounted.at()).unwrap().count();
    let before = names();
    let second = sink(&mounted.at());
    for (modified, is_same) in [
        ((1_000_001, 0), true),
        ((1_000_001, 999_999_999), true),
        ((1_000_001, 1), true),
        ((1_000_002, 0), false),
        ((1_000_000, 999_999_999), false),
        ((1_000_002, 999_999_999), false),
    ] {
        assert_eq!(is_there(&second, modified), is_same, "{modified:?}");
    }
    let file = entry("file", Kind::File, (1_000_001, 7));
    let other = entry("other", Kind::HardLink(file.id), (0, 0));
    let rule = LinkRule { may_make: true, may_replace: false, ignores_time: false, is_rehearsal: false };
    assert_eq!(second.make_hard_link(&file, &other, rule).unwrap(), Linked::Made { has_replaced: false });
    assert!(!second.make_node(&fifo((1_000_001, 5)), PublishRule::Replace).unwrap(), "it is made once");
    second.close();
    assert_eq!(names(), before + 1, "nothing but the other name is left");
}

#[test]
fn where_nanoseconds_are_kept_they_count() {
    let directory = tempfile::tempdir_in("/dev/shm").unwrap();
    let sink = sink(directory.path());
    publish(&sink, &entry("file", Kind::File, (1_000_001, 0)));
    for (modified, is_same) in [((1_000_001, 0), true), ((1_000_001, 1), false), ((1_000_001, 999_999_999), false)] {
        assert_eq!(is_there(&sink, modified), is_same, "{modified:?}");
    }
    sink.close();
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1, "staging is gone");
}
