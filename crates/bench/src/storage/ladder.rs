//! Rising concurrency: what more operations in flight bring, for reading and for writing.

use std::time::Duration;

use super::Session;
use super::measured::{Call, Measured};
use super::options::{Engine, LADDER_THREADS_MAX, Step};
use super::verdict::{LADDER_BYTES_MAX, Ladders, Rung, is_climbed};
use crate::error::Result;

/// Of one rung and direction; long enough for latencies, short enough for the whole ladder.
const RUNG_LIMIT: Duration = Duration::from_secs(2);
const DEPTH_MAX: usize = 128;

impl Session<'_> {
    /// Doubles the depth of the queue, or the threads where each has one operation, until neither side gains.
    pub(super) fn ladders(&mut self, target_bytes_per_second: f64) -> Result<Ladders> {
        let mut ladders = Ladders { write: Vec::new(), read: Vec::new() };
        let is_queued = self.options.engine == Engine::Uring;
        let most = if is_queued { DEPTH_MAX } else { LADDER_THREADS_MAX };
        let mut concurrency = 1;
        while concurrency <= most {
            self.say(&format!("{concurrency} in flight"))?;
            let (threads, depth) = if is_queued { (1, concurrency) } else { (concurrency, 1) };
            let way = super::Way { depth, ..super::way(self.options) };
            let blocks = LADDER_BYTES_MAX.div_euclid(way.block_bytes).div_euclid(threads as u64).max(1);
            let file_bytes = blocks * way.block_bytes;
            let step = Step { file_bytes, files: threads as u64, bytes: file_bytes * threads as u64 };
            let root = self.root.join(format!("ladder-{concurrency}"));
            let limit = self.options.limit.min(RUNG_LIMIT);
            let [written, read] = self.write_and_read(root, step, way, threads, limit)?;
            ladders.write.push(rung(threads, depth, &written, Call::WriteBlock));
            ladders.read.push(rung(threads, depth, &read, Call::ReadBlock));
            if [&ladders.write, &ladders.read].iter().all(|ladder| is_climbed(ladder, target_bytes_per_second)) {
                break;
            }
            concurrency *= 2;
        }
        Ok(ladders)
    }
}

fn rung(threads: usize, depth: usize, measured: &Measured, block: Call) -> Rung {
    let calls = measured.calls.iter().find(|(call, _)| *call == block);
    Rung {
        threads,
        depth,
        bytes_per_second: measured.bytes_per_second(),
        latency_us_mean: calls.map_or(0.0, |(_, histogram)| histogram.percentiles().mean_us),
    }
}
