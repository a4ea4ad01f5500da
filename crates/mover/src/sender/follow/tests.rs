//! Following without a session: what is known of files that grow, and when they are described again.

use super::super::split::Split;
use super::*;
use crate::Progress;
use crate::job::Port;
use conformance::memory::{Memory, Rules};
use model::TransferOptions;

struct Nobody;

impl Port for Nobody {
    fn send(&self, _: Message) {}
}

#[test]
fn whoever_waits_for_room_for_a_description_does_not_keep_lanes_from_describing() {
    let (source, options) = (Memory::new(Rules::default()).source(), TransferOptions::default());
    let job = SendJob::new(1, options, source, Arc::new(Nobody), Progress::new(), None);
    job.book.lock().unwrap().split = Split::new(1 << 20, 0, 0);
    let (waits, is_waiting) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        let describing = scope.spawn(|| {
            let note = || {
                let _ = waits.send(());
                false
            };
            job.when_describable(&note).is_some()
        });
        is_waiting.recv().unwrap();
        let lane = scope.spawn(|| drop(job.replacing.lock().unwrap()));
        let deadline = std::time::Instant::now() + Duration::from_secs(30);
        while !lane.is_finished() && std::time::Instant::now() < deadline {
            std::thread::park_timeout(Duration::from_millis(1));
        }
        let gets_on = lane.is_finished();
        job.book.lock().unwrap().split.grant(1, 0);
        job.work.notify_all();
        assert!(describing.join().unwrap() && gets_on);
    });
}
