//! When reading ahead begins, and for how long a buffer remembers that a source has stood still.

use super::*;
use crate::Progress;
use crate::job::{Port, cancelled};
use conformance::memory::{Memory, Rules};
use model::TransferOptions;
use std::fs::File;
use std::time::{Instant, SystemTime};
use wire::{CloseCode, Message};

const QUOTA: u64 = 8 << 20;
const PATIENCE: Duration = Duration::from_secs(30);
/// In so long a job has looked at its source more than once.
const LOOKS: Duration = Duration::from_millis(350);

struct Nobody;

impl Port for Nobody {
    fn send(&self, _: Message) {}
}

/// A job with a spool, whose source has nothing yet; it ends with the test.
struct Started(Arc<SendJob>);

impl Started {
    fn new(spool: &Arc<Spool>) -> Started {
        let source = Memory::new(Rules::default()).source();
        let job = SendJob::new(1, TransferOptions::default(), source, Arc::new(Nobody), Progress::new(), None);
        job.read_ahead_in(spool.clone(), Buffer::Auto);
        crate::job::spawn(&job, "read", run, SendJob::cancel);
        Started(job)
    }

    /// Whether it begins to read ahead, within so long.
    fn begins(&self, within: Duration) -> bool {
        let deadline = Instant::now() + within;
        let has_begun = || self.0.ahead.get().is_some_and(Ahead::has_readers);
        while !has_begun() && Instant::now() < deadline {
            std::thread::park_timeout(Duration::from_millis(1));
        }
        has_begun()
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        self.0.stop(cancelled(CloseCode::Cancelled, "the test is over"));
    }
}

#[test]
fn what_stood_still_for_one_job_is_read_ahead_from_the_start_of_the_next() {
    let dir = tempfile::tempdir().unwrap();
    let spool = Spool::open(&dir.path().join("spool"), QUOTA).unwrap();
    let first = Started::new(&spool);
    assert!(!first.begins(LOOKS), "nothing has stood still");
    let mut clock = first.0.progress.lane(Stage::Scan);
    clock.enter(Stage::Read);
    assert!(first.begins(PATIENCE), "its source stands still");
    drop(clock);
    drop(first);
    assert!(Started::new(&spool).begins(PATIENCE), "that of the next one does not, and is expected to");
}

#[test]
fn a_buffer_remembers_for_ten_minutes_that_its_source_stood_still() {
    for (minutes_ago, is_remembered) in [(9, true), (11, false)] {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("spool");
        Spool::open(&path, QUOTA).unwrap().note_stall(Side::Source);
        // The age of the mark is what the next process goes by.
        let mark = File::options().write(true).open(path.join("source-stalled")).unwrap();
        mark.set_modified(SystemTime::now() - Duration::from_secs(60 * minutes_ago)).unwrap();
        let spool = Spool::open(&path, QUOTA).unwrap();
        let within = if is_remembered { PATIENCE } else { LOOKS };
        assert_eq!(Started::new(&spool).begins(within), is_remembered, "{minutes_ago} minutes ago");
    }
}
