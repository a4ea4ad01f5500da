//! Checks of a large object's account: turns, and staging that dies.

use super::super::zeros::Zeros;
use super::*;
use crate::job::End;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

fn large(size_bytes: u64, file: Arc<dyn StagedFile>) -> Arc<Large> {
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
