//! Stores that have whoever asks wait.

use crate::kept;
use crate::support::{Bed, bed, buckets, put};
use fakes::Fault;
use object::Stop;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};
use store::PublishRule;

#[test]
fn a_store_that_says_when_to_come_again_is_asked_no_sooner() {
    let bed = bed();
    bed.put("first", b"x").unwrap();
    bed.fake.order("PUT", "/bkt/small", 0, 1, Fault::Later);
    let begun = Instant::now();
    bed.put("small", b"x").unwrap();
    assert!(begun.elapsed() >= Duration::from_secs(1) && bed.fake.fired() == 1);
}

#[test]
fn a_store_that_says_nothing_does_not_hold_whoever_is_to_stop() {
    let is_over = Arc::new(AtomicBool::new(false));
    let bed = bed();
    let bed = Bed { buckets: buckets(&bed.config).stopped_by(Stop::by(is_over.clone())), ..bed };
    bed.fake.order("PUT", "/bkt/small", 0, 9, Fault::Stall);
    let sink = bed.sink();
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| put(&*sink, "small", b"own", PublishRule::NoReplace));
        while bed.fake.fired() == 0 && !waiting.is_finished() {
            std::thread::sleep(Duration::from_millis(5));
        }
        assert!(!waiting.is_finished());
        is_over.store(true, Relaxed);
        assert!(waiting.join().unwrap().is_err());
    });
    assert!(kept(&bed).is_empty());
}
