//! Questions about files, asked of a store that is no file system.

use conformance::memory::Memory;
use model::FailureKind;
use model::files::{ALL_LEVELS, Doomed, Found, Question, Record, SumAlgorithm, Tally};
use mover::files::{Here, How, NotReached, Reach, answer};
use store::Shelf;

struct InMemory<'a>(&'a Memory);

impl Reach for InMemory<'_> {
    fn reach(&self, path: &[u8], how: How) -> Result<Box<dyn Shelf>, NotReached> {
        Ok(self.0.shelf(path, how)?)
    }
}

fn ask(reach: &dyn Reach, question: &Question) -> (Tally, Vec<Record>) {
    let mut records = Vec::new();
    let tally = answer(question, reach, &|| false, &mut |record| {
        records.push(record);
        true
    });
    (tally.unwrap(), records)
}

/// Each record without what differs from store to store.
fn shown(records: &[Record]) -> Vec<String> {
    let found = |record: &Record| match &record.found {
        Found::Object { status, sum } if status.is_directory() => format!("directory {sum:?}"),
        Found::Object { status, sum } => format!("{} {} {sum:?}", status.kind.name(), status.size_bytes),
        Found::Usage(tally) => format!("{} {} {}", tally.files, tally.directories, tally.bytes),
        Found::Failed { kind, .. } => format!("{kind:?}"),
    };
    records.iter().map(|record| format!("{} {}", record.path.escape_ascii(), found(record))).collect()
}

#[test]
fn lists_sums_and_usage_are_those_of_the_same_tree_on_a_file_system() {
    let (memory, dir) = (super::tree(), tempfile::tempdir().unwrap());
    let names = memory.listing().unwrap();
    for (path, seen) in &names {
        let at = dir.path().join(std::str::from_utf8(path).unwrap());
        match seen {
            conformance::Seen::File(content) => std::fs::write(at, content).unwrap(),
            _ => std::fs::create_dir(at).unwrap(),
        }
    }
    let there = |path: &str| [dir.path().as_os_str().as_encoded_bytes(), b"/", path.as_bytes()].concat();
    let (paths, theirs) = (["sizes", "many"].map(Vec::from), ["sizes", "many"].map(there));
    let questions = |paths: &[Vec<u8>]| {
        let paths = paths.to_vec();
        [
            Question::List { paths: paths.clone(), levels: 1, digest: None },
            Question::List { paths: paths.clone(), levels: ALL_LEVELS, digest: Some(SumAlgorithm::Sha256) },
            Question::Usage { paths, levels: ALL_LEVELS },
        ]
    };
    for (question, theirs) in questions(&paths).iter().zip(&questions(&theirs)) {
        let (tally, records) = ask(&InMemory(&memory), question);
        let (expected, expected_records) = ask(&Here, theirs);
        assert_eq!(shown(&records), shown(&expected_records));
        assert_eq!(
            (tally.files, tally.directories, tally.bytes),
            (expected.files, expected.directories, expected.bytes)
        );
        assert!(!records.is_empty() && tally.failed == 0);
    }
}

#[test]
fn names_are_made_changed_and_taken_away() {
    let memory = Memory::default();
    memory.put("d/e/file", b"one");
    memory.put("other", b"two");
    let reach = InMemory(&memory);
    let doomed = |path: &str| Doomed { path: path.into(), version: None };
    let make = Question::Make { paths: vec![b"new/inner".to_vec()], with_parents: true };
    assert_eq!(ask(&reach, &make).0.directories, 1);
    let rename = |to: &str| Question::Rename { from: b"d".to_vec(), to: to.into(), may_replace: false };
    let (tally, records) = ask(&reach, &rename("other"));
    assert!(matches!(records[0].found, Found::Failed { kind: FailureKind::InTheWay, .. }) && tally.failed == 1);
    ask(&reach, &rename("new/inner/d"));
    assert_eq!(memory.content("new/inner/d/e/file").unwrap(), b"one");
    let objects = vec![doomed("new"), doomed("none"), doomed("other")];
    let remove = |is_recursive| Question::Remove { objects: objects.clone(), is_recursive, may_be_directory: false };
    let (tally, records) = ask(&reach, &remove(false));
    assert_eq!((tally.files, tally.directories, records.len()), (1, 0, 2));
    let (tally, _) = ask(&reach, &remove(true));
    assert_eq!((tally.files, tally.directories, tally.failed), (1, 4, 2));
    assert!(memory.listing().unwrap().is_empty());
}
