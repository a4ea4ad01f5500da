//! Readers and writers of extents that choose their engine: the bytes are the same by each, and what was won is remembered.

use super::*;
use crate::posix::{PosixSink, PosixSource, beneath};
use crate::{Account, Found, PublishRule, Sink, Source, SourceLane, SourceObject};
use model::{Entry, Generation, Kind, Name, ObjectId};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

const BYTES: usize = (3 << 20) + 4099;

/// Room for one queue, or for none.
struct Room {
    free: Arc<AtomicUsize>,
    notes: Mutex<Vec<String>>,
}

struct Given(Arc<AtomicUsize>, usize);

impl Drop for Given {
    fn drop(&mut self) {
        self.0.fetch_add(self.1, Relaxed);
    }
}

impl Account for Room {
    fn hold(&self, bytes: usize) -> Option<Box<dyn Send>> {
        self.free.fetch_update(Relaxed, Relaxed, |free| free.checked_sub(bytes)).ok()?;
        Some(Box::new(Given(self.free.clone(), bytes)))
    }

    fn note(&self, text: String) {
        self.notes.lock().unwrap().push(text);
    }
}

fn engines(requested: Engine, free: usize) -> (Engines, Arc<Room>) {
    let room = Arc::new(Room { free: Arc::new(AtomicUsize::new(free)), notes: Mutex::default() });
    (Engines { requested, depth: 0, is_durable: true, account: room.clone() }, room)
}

#[test]
fn a_queue_that_won_is_remembered_for_its_device_until_it_loses_there() {
    let device = (u64::MAX, true);
    let verdict = |chosen, reason: &str| Verdict {
        chosen,
        plain_bytes_per_second: None,
        uring_bytes_per_second: None,
        reason: reason.to_owned(),
    };
    let recalled_of = |device| {
        let verdict = WriteVerdict::default();
        verdict.recall_of(device);
        verdict.0.get().map(|verdict| verdict.reason.clone())
    };
    let recalled = || recalled_of(device);
    WriteVerdict::remember(device, &verdict(EngineKind::UringDirect, "it won"));
    assert_eq!(recalled(), Some("it won, in an earlier job".to_owned()));
    assert_eq!(recalled_of((device.0, false)), None, "what need not be durable is another matter");
    WriteVerdict::remember(device, &verdict(EngineKind::PreadPwrite, "it lost"));
    assert_eq!(recalled(), None);
}

fn content() -> Vec<u8> {
    (0..BYTES as u64).map(|at| ((at * at) >> 7) as u8).collect()
}

fn file_of(directory: &std::path::Path) -> (Box<dyn SourceLane>, SourceObject) {
    std::fs::write(directory.join("f"), content()).unwrap();
    let mut source = PosixSource::new();
    source.add_local(directory.join("f").as_os_str().as_encoded_bytes()).unwrap();
    let mut found = None;
    let mut emit = |object| {
        let Found::Object(object) = object else { panic!("nothing fails") };
        found = Some(object);
        true
    };
    source.scan(&mut emit).unwrap();
    (source.lane(), found.unwrap())
}

#[test]
fn an_extent_is_the_same_by_a_queue_and_without_one_and_a_queue_without_memory_is_none() {
    let dir = tempfile::tempdir().unwrap();
    let queue_bytes = Shape::of(EngineKind::UringDirect).block_bytes * Shape::of(EngineKind::UringDirect).depth;
    for (requested, free, noted) in [
        (Engine::Plain, queue_bytes, None),
        (Engine::Uring, queue_bytes, Some("reads by ")),
        (Engine::Uring, queue_bytes - 1, Some("reads without ")),
    ] {
        let (mut lane, object) = file_of(dir.path());
        let (engines, room) = engines(requested, free);
        lane.serve(engines);
        let file = lane.open(&object).unwrap();
        let mut block = vec![0; 128 << 10];
        let mut read = Vec::new();
        let extent = Extent::new(4096, BYTES as u64 + 100);
        let count = lane.read_extent(&*file, extent, &mut block, &mut |block| {
            read.extend_from_slice(block);
            true
        });
        assert_eq!((count.unwrap(), read == content()[4096..]), (BYTES as u64 - 4096, true), "{requested:?}");
        let notes = room.notes.lock().unwrap().clone();
        assert_eq!(notes.len(), usize::from(noted.is_some()), "{notes:?}");
        assert!(notes.iter().zip(noted).all(|(note, noted)| note.starts_with(noted)), "{notes:?}");
        drop(lane);
        assert_eq!(room.free.load(Relaxed), free, "what a lane held it gave back");
    }
}

#[test]
fn an_extent_is_the_same_whether_it_was_expected_or_another_one_was() {
    let dir = tempfile::tempdir().unwrap();
    let (mut lane, object) = file_of(dir.path());
    assert!(!lane.reads_ahead());
    lane.serve(engines(Engine::Uring, usize::MAX).0);
    let mut file = lane.open(&object).unwrap();
    let half = 1 << 20;
    for (at, expected) in [(0, half), (half, 3), (3, half), (half, 0), (0, 0)] {
        // The file may be opened anew in between.
        if at == 3 {
            file = lane.open(&object).unwrap();
        }
        lane.expect(file.clone(), Extent::new(expected, BYTES as u64));
        let mut read = Vec::new();
        let count = lane.read_extent(&*file, Extent::new(at, BYTES as u64), &mut [0; 4096], &mut |block| {
            read.extend_from_slice(block);
            true
        });
        assert_eq!((count.unwrap(), read == content()[at as usize..]), (BYTES as u64 - at, true), "{at}");
        assert!(lane.reads_ahead());
    }
}

#[test]
fn reading_ends_when_it_is_told_to() {
    let dir = tempfile::tempdir().unwrap();
    for requested in [Engine::Plain, Engine::Auto, Engine::Uring] {
        let (mut lane, object) = file_of(dir.path());
        lane.serve(engines(requested, usize::MAX).0);
        let file = lane.open(&object).unwrap();
        let mut blocks = 0;
        let read = lane.read_extent(&*file, Extent::new(0, BYTES as u64), &mut [0; 4096], &mut |_| {
            blocks += 1;
            blocks < 2
        });
        assert!(blocks == 2 && read.unwrap() < BYTES as u64, "{requested:?}");
    }
}

/// Staging that does not say what it is to the file system.
struct Wrapped(Arc<dyn StagedFile>);

impl StagedFile for Wrapped {
    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.0.write_at(offset, bytes)
    }
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        self.0.read_at(offset, buffer)
    }
    fn append_journal(&self, bytes: &[u8]) -> Result<()> {
        self.0.append_journal(bytes)
    }
    fn truncate_journal(&self, length: u64) -> Result<()> {
        self.0.truncate_journal(length)
    }
    fn checkpoint(&self) -> Result<()> {
        self.0.checkpoint()
    }
    fn reread(&self, check: &mut dyn FnMut(&[u8])) -> Result<()> {
        self.0.reread(check)
    }
    fn publish(&self, entry: &Entry, rule: PublishRule) -> Result<()> {
        self.0.publish(entry, rule)
    }
    fn discard(&self) {
        self.0.discard();
    }
}

#[test]
fn a_writer_of_blocks_fills_staging_that_it_knows_and_staging_that_it_does_not() {
    let dir = tempfile::tempdir().unwrap();
    let root = Arc::new(beneath::open_directory(dir.path()).unwrap());
    let sink = PosixSink::new(root.clone(), root, None);
    assert!(sink.writer(&engines(Engine::Plain, usize::MAX).0).is_none());
    assert!(sink.writer(&engines(Engine::Auto, usize::MAX).0).is_none(), "nothing was measured");
    assert!(sink.writer(&engines(Engine::Uring, 0).0).is_none());
    let mut writer = sink.writer(&engines(Engine::Uring, usize::MAX).0).unwrap();
    for name in ["known", "unknown"] {
        let entry = Entry {
            id: ObjectId(1),
            parent: ObjectId::ROOT,
            name: Name::new(name.as_bytes()).unwrap(),
            kind: Kind::File,
            mode: 0o644,
            generation: Generation { size_bytes: BYTES as u64, ..Generation::default() },
            attributes: None,
        };
        let (file, _) = sink.begin(&entry, name).unwrap();
        let file = if name == "known" { file } else { Arc::new(Wrapped(file)) };
        let mut at = 0;
        while at < BYTES {
            let buffer = writer.buffer().unwrap();
            let length = buffer.len().min(BYTES - at);
            buffer[..length].copy_from_slice(&content()[at..at + length]);
            writer.write(&*file, at as u64, length).unwrap();
            at += length;
        }
        writer.drain().unwrap();
        file.publish(&entry, PublishRule::NoReplace).unwrap();
        assert!(std::fs::read(dir.path().join(name)).unwrap() == content(), "{name}");
    }
}
