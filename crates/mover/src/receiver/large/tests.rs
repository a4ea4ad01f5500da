//! Checks of a large object's account: turns, and staging that dies.

use super::super::zeros::Zeros;
use super::*;
use crate::job::End;
use ledger::extent_log::{self, Header};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};

pub(crate) fn large(size_bytes: u64, file: Arc<dyn StagedFile>) -> Arc<Large> {
    let object = Arc::new(Object::default());
    object.state.lock().unwrap().file = Some(file);
    let feeder = object.state.lock().unwrap().feeders.join();
    Arc::new(Large {
        id: 1,
        size_bytes,
        is_open_ended: false,
        is_growing: false,
        spared_bytes: 0,
        chunk_bytes: 8,
        rule: PublishRule::Replace,
        stem: String::new(),
        path: Vec::new(),
        listed: OnceLock::new(),
        feeder,
        together: None,
        object,
    })
}

#[test]
fn one_lane_at_a_time_writes_a_chunk_and_the_one_that_waits_for_its_stream_is_broken_off() {
    let file: Arc<dyn StagedFile> = Arc::new(Zeros);
    let large = large(16, file.clone());
    let (broken, end) = (Arc::new(AtomicBool::new(false)), Arc::new(End::default()));
    let told = broken.clone();
    let breaker: Breaker = Arc::new(move || told.store(true, Relaxed));
    let quiet: Breaker = Arc::new(|| {});
    let chunk = Extent::new(0, 8);
    let Claimed::Turn(first) = large.turn(chunk, &breaker, &end) else { panic!("it is free") };
    assert!(matches!(large.turn(Extent::new(8, 16), &quiet, &end), Claimed::Turn(_)), "other chunks are free");
    let (second, second_end) = (large.clone(), end.clone());
    let waiting = std::thread::spawn(move || matches!(second.turn(chunk, &quiet, &second_end), Claimed::Held(_)));
    while !broken.load(Relaxed) {
        std::thread::yield_now();
    }
    // It was all there: the chunk is held when its turn ends, and nobody writes it again.
    large.record(&file, chunk, DigestAlgorithm::Crc64Nvme.of_object(b"x"), None, false).unwrap();
    drop(first);
    assert!(waiting.join().unwrap());
}

#[test]
fn a_chunk_of_staging_that_died_is_not_held_in_the_one_after_it() {
    let [dead, next]: [Arc<dyn StagedFile>; 2] = [Arc::new(Zeros), Arc::new(Zeros)];
    let large = large(16, dead.clone());
    let digest = DigestAlgorithm::Crc64Nvme.of_object(b"x");
    let record =
        |file, start, sealed| large.record(file, Extent::new(start, start + 8), digest, sealed, false).unwrap();
    assert_eq!(record(&dead, 0, None), Some(false));
    assert!(large.restart(&dead));
    assert!(!large.restart(&dead));
    large.object.state.lock().unwrap().file = Some(next.clone());
    // A lane was in the middle of it when the staging died.
    assert_eq!(record(&dead, 8, Some(16)), None);
    assert_eq!(large.claim(u64::MAX), None);
    assert_eq!(record(&next, 0, None), Some(false));
    assert_eq!(record(&next, 8, Some(16)), Some(true));
    // A lane does not take back what is being published.
    assert!(!large.restart(&next));
}

/// Storage whose sync takes until `is_over`, and fails.
#[derive(Default)]
struct Hanging {
    syncs: AtomicU32,
    is_over: AtomicBool,
    /// How often it was asked what outlasts it.
    asks: AtomicU32,
}

impl StagedFile for Hanging {
    fn write_at(&self, _: u64, _: &[u8]) -> store::Result<()> {
        Ok(())
    }
    fn read_at(&self, _: u64, _: &mut [u8]) -> store::Result<usize> {
        Ok(0)
    }
    fn append_journal(&self, _: &[u8]) -> store::Result<()> {
        Ok(())
    }
    fn truncate_journal(&self, _: u64) -> store::Result<()> {
        Ok(())
    }
    fn checkpoint(&self) -> store::Result<()> {
        self.syncs.fetch_add(1, Relaxed);
        while !self.is_over.load(Relaxed) {
            std::thread::yield_now();
        }
        Err(store::Error::of_kind(FailureKind::WriteError, "write to storage", b"", "it was lost"))
    }
    fn confirmed(&self, held: &ExtentSet) -> ExtentSet {
        self.asks.fetch_add(1, Relaxed);
        held.clone()
    }
    fn reread(&self, _: &mut dyn FnMut(&[u8])) -> store::Result<()> {
        Ok(())
    }
    fn publish(&self, _: &Entry, _: PublishRule) -> store::Result<()> {
        Ok(())
    }
    fn discard(&self) {}
}

#[test]
fn nobody_takes_for_durable_or_publishes_what_a_sync_that_still_runs_may_lose() {
    let hanging = Arc::new(Hanging::default());
    let file: Arc<dyn StagedFile> = hanging.clone();
    let mut large = large(2 << 10, file.clone());
    Arc::get_mut(&mut large).unwrap().chunk_bytes = 1 << 10;
    let header = Header {
        algorithm: DigestAlgorithm::Crc64Nvme,
        chunk_bytes: 1 << 10,
        object_bytes: None,
        stem: b"stem".to_vec(),
        boot: [1; 16],
        job: model::JobId([1; 16]),
        name: b"f".to_vec(),
    };
    large.object.state.lock().unwrap().appender = Some(extent_log::start(&header).unwrap().1);
    let digest = DigestAlgorithm::Crc64Nvme.of_object(b"x");
    let chunk = |number: u64| Extent::new(number << 10, (number + 1) << 10);
    large.record(&file, chunk(0), digest, None, false).unwrap();
    assert!(matches!(large.kept(chunk(0)), Kept::Pending));
    let begun = std::sync::Barrier::new(3);
    std::thread::scope(|scope| {
        let first = scope.spawn(|| large.checkpoint());
        while hanging.syncs.load(Relaxed) == 0 {
            std::thread::yield_now();
        }
        let second = scope.spawn(|| {
            begun.wait();
            (large.checkpoint(), large.kept(chunk(0)))
        });
        // The last of it comes while the first is being synced.
        assert_eq!(large.record(&file, chunk(1), digest, Some(2 << 10), false).unwrap(), Some(true));
        let published = scope.spawn(|| {
            begun.wait();
            large.outlasts_checkpoint()
        });
        begun.wait();
        // Whoever does not wait has time to show it.
        (0..1000).for_each(|_| std::thread::yield_now());
        let waits = !second.is_finished() && !published.is_finished();
        hanging.is_over.store(true, Relaxed);
        assert!(waits);
        assert!(first.join().unwrap().is_err());
        assert!(!published.join().unwrap(), "it starts over");
        assert!(matches!(second.join().unwrap(), (Ok(()), Kept::Lost)));
    });
    assert!(large.staged().is_empty() && large.durable().is_empty());
    assert_eq!(hanging.syncs.load(Relaxed), 1, "a sync that failed is not tried again");
}

#[test]
fn storage_is_asked_what_outlasts_an_attempt_only_by_whoever_wants_to_know_and_as_long_as_it_can_tell() {
    let hanging = Arc::new(Hanging::default());
    let file: Arc<dyn StagedFile> = hanging.clone();
    let large = large(8, file.clone());
    let (algorithm, chunk) = (DigestAlgorithm::Crc64Nvme, Extent::new(0, 8));
    assert_eq!(large.record(&file, chunk, algorithm.of_object(b"x"), Some(8), false).unwrap(), Some(true));
    large.object.state.lock().unwrap().durable.insert(chunk);
    drop(file);
    let (taken, ..) = large.take_complete(algorithm).unwrap();
    assert_eq!(hanging.asks.load(Relaxed), 0);
    assert!(large.durable().contains(chunk));
    assert_eq!(hanging.asks.load(Relaxed), 1);
    drop((taken, hanging));
    assert!(large.durable().is_empty(), "nobody vouches for it");
}
