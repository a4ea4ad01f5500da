//! Which storage engine a job writes large objects with: what was asked for, or what a probe of the destination found.
//!
//! Not here: the engines and the probe itself (`store::posix::engine`).

use super::ReceiveJob;
use crate::memory::Permit;
use model::options::Engine;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use store::Durability;
use store::posix::engine::{self, BlockWriter, EngineKind, Shape, Verdict};

/// Smaller objects are over before a probe is.
pub const PROBED_FILE_BYTES: u64 = 64 << 20;
const PROBE_BUDGET: Duration = Duration::from_millis(150);

/// A lane's queue, with the memory of its blocks.
pub struct Queue {
    pub writer: Box<dyn BlockWriter>,
    _permit: Permit,
}

/// Which engine a job writes large objects with, as soon as a probe has told.
#[derive(Default)]
pub struct WriteEngine {
    verdict: OnceLock<Verdict>,
    used: OnceLock<String>,
}

impl WriteEngine {
    /// A queue for a lane, where one pays; `None` for plain writes.
    pub fn queue(&self, job: &ReceiveJob) -> Option<Queue> {
        // A queue writes what it is given: it leaves no holes.
        if job.options.fidelity.sparse {
            return None;
        }
        let kind = match (job.options.engine, self.verdict.get()) {
            (Engine::Plain, _) | (Engine::Auto, None) => return None,
            (Engine::Uring, _) => EngineKind::UringDirect,
            (Engine::Auto, Some(verdict)) if verdict.chosen == EngineKind::PreadPwrite => return None,
            (Engine::Auto, Some(verdict)) => verdict.chosen,
        };
        let shape = Shape::of(kind);
        let Some(permit) = job.memory().acquire(shape.block_bytes * shape.depth, Duration::ZERO) else {
            job.progress.note(format!("writes without {kind}: its blocks found no memory (--memory)"));
            return None;
        };
        let writer = engine::writer(kind, shape).ok()?;
        let why = self.verdict.get().map_or("asked for", |verdict| &verdict.reason);
        let fallback = writer.fallback().map_or(String::new(), |f| format!(" ({f})"));
        let _ = self.used.set(writer.engine().to_string());
        job.progress.note(format!("writes by {}{fallback}: {why}", writer.engine()));
        Some(Queue { writer, _permit: permit })
    }

    pub fn name(&self) -> String {
        self.used.get().cloned().unwrap_or_else(|| EngineKind::PreadPwrite.to_string())
    }
}

/// Probes the destination's file system beside the running transfer.
pub fn start_probe(job: &Arc<ReceiveJob>) {
    let Some(directory) = job.sink.descriptor().filter(|_| job.options.engine == Engine::Auto) else { return };
    let fsync = job.durability != Durability::None;
    let job = job.clone();
    let probe = move || {
        use std::os::fd::AsFd;
        let verdict = engine::probe_write(directory.as_fd(), fsync, PROBE_BUDGET);
        job.progress.note(format!("probe of the destination: {}", verdict.reason));
        let _ = job.write_engine.verdict.set(verdict);
    };
    os::thread::spawn("probe", probe);
}
