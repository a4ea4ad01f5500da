//! What a job lends to the engines of its storage: memory out of its account, and its notes.

use crate::memory::Memory;
use crate::progress::Progress;
use model::options::Engine;
use std::sync::Arc;
use std::time::Duration;
use store::{Account, Engines};

struct JobAccount {
    memory: Memory,
    progress: Arc<Progress>,
}

impl Account for JobAccount {
    fn hold(&self, bytes: usize) -> Option<Box<dyn Send>> {
        Some(Box::new(self.memory.acquire(bytes, Duration::ZERO)?))
    }

    fn note(&self, text: String) {
        self.progress.note(text);
    }
}

/// `depth` is of blocks in flight; 0 is the engine's own.
pub fn of(requested: Engine, depth: u32, memory: &Memory, progress: &Arc<Progress>) -> Engines {
    let account = JobAccount { memory: memory.clone(), progress: progress.clone() };
    Engines { requested, depth: depth as usize, account: Arc::new(account) }
}
