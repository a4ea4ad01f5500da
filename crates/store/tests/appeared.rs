//! A name that another writer makes between the decision and the publishing is kept, and the loser is told.

use model::{Entry, FailureKind, Generation, Kind, Name, ObjectId, Timestamp};
use std::sync::Arc;
use store::posix::{PosixSink, beneath};
use store::{Decision, PublishRule, Sink};

#[test]
fn what_appeared_meanwhile_is_not_replaced() {
    let dir = tempfile::tempdir().unwrap();
    let root = Arc::new(beneath::open_directory(dir.path()).unwrap());
    let sink = PosixSink::new(root.clone(), root, None);
    let modified = Timestamp { seconds: 1, nanoseconds: 0 };
    let entry = Entry {
        id: ObjectId(1),
        parent: ObjectId::ROOT,
        name: Name::new(b"file").unwrap(),
        kind: Kind::File,
        mode: 0o644,
        generation: Generation { size_bytes: 4, modified, ..Generation::default() },
        attributes: None,
    };
    assert!(matches!(sink.decide(&entry).unwrap(), Decision::Absent));
    let (file, _) = sink.begin(&entry, "stem").unwrap();
    file.write_at(0, b"ours").unwrap();
    std::fs::write(dir.path().join("file"), "theirs").unwrap();
    let error = file.publish(&entry, PublishRule::NoReplace).unwrap_err();
    assert_eq!(error.kind, FailureKind::InTheWay);
    assert_eq!(std::fs::read(dir.path().join("file")).unwrap(), b"theirs");
}
