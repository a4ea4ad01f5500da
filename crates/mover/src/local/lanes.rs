//! The lanes of a copy within one process: started, and where their number is not fixed, as many as storage is worth.
//!
//! Not here: what a lane does (`local`), the number (`plan::tuner`).

use crate::receiver::ReceiveJob;
use crate::sender::SendJob;
use plan::{Adaptation, Log, StreamSample};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Instant;

pub struct Lanes {
    sender: Arc<SendJob>,
    receiver: Arc<ReceiveJob>,
    run: Arc<dyn Fn(u32) + Send + Sync>,
    threads: Vec<JoinHandle<()>>,
    /// `None` where the number is fixed.
    adaptation: Option<Adaptation>,
    began: Instant,
}

/// More are never started; each has blocks of its own.
const LANES_MAX: u32 = 32;

impl Lanes {
    /// `run` is what a lane does, by its number.
    pub fn start(
        (sender, receiver): (&Arc<SendJob>, &Arc<ReceiveJob>),
        count: u32,
        is_fixed: bool,
        run: impl Fn(u32) + Send + Sync + 'static,
    ) -> Lanes {
        let adaptation = (!is_fixed).then(|| Adaptation::new(count, LANES_MAX.max(count)));
        let (threads, began) = (Vec::new(), Instant::now());
        let (sender, receiver) = (sender.clone(), receiver.clone());
        let mut lanes = Lanes { sender, receiver, run: Arc::new(run), threads, adaptation, began };
        lanes.start_until(count);
        lanes
    }

    fn start_until(&mut self, count: u32) {
        for number in self.threads.len() as u32..count {
            let run = self.run.clone();
            match std::thread::Builder::new().name(format!("lane-{number}")).spawn(move || run(number)) {
                Ok(thread) => self.threads.push(thread),
                // Those that there are do all of it.
                Err(_) => return,
            }
        }
    }

    pub fn count(&self) -> u32 {
        self.threads.len() as u32
    }

    /// Starts more, or has some rest.
    pub fn adapt(&mut self) {
        let Some(adaptation) = &mut self.adaptation else { return };
        let snapshot = self.sender.progress.snapshot();
        let counts = &snapshot.counts;
        let gone_bytes = counts.bytes_sent + counts.bytes_resumed + counts.bytes_skipped;
        let sample = StreamSample {
            at_us: self.began.elapsed().as_micros() as u64,
            is_local: true,
            streams: snapshot.streams,
            delivered_bytes: counts.bytes_sent,
            sender: snapshot.here,
            receiver: self.receiver.progress.here(),
            files: counts.files_done,
            file_bytes: counts.bytes_done,
            left_bytes: snapshot.is_listing_complete.then(|| counts.bytes_listed.saturating_sub(gone_bytes)),
            ..StreamSample::default()
        };
        if let Some(lanes) = adaptation.step(&sample) {
            self.start_until(lanes);
            self.sender.set_working(if lanes < self.count() { lanes } else { 0 });
        }
    }

    /// Waits for their end, and says what came of their number.
    pub fn join(self) -> Adapted {
        let lanes = self.count();
        for thread in self.threads {
            let _ = thread.join();
        }
        let adaptation = self.adaptation.as_ref();
        Adapted { lanes, note: adaptation.and_then(Adaptation::note), log: adaptation.map(Adaptation::log) }
    }
}

pub struct Adapted {
    pub lanes: u32,
    pub note: Option<String>,
    pub log: Option<Log>,
}
