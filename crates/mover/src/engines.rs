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
    is_asked_for: bool,
}

impl Account for JobAccount {
    fn hold(&self, bytes: usize) -> Option<Box<dyn Send>> {
        // What nobody asked for leaves lanes their room.
        if !self.is_asked_for && self.memory.free_bytes() < bytes + self.memory.work_bytes() / 4 {
            return None;
        }
        Some(Box::new(self.memory.acquire(bytes, Duration::ZERO)?))
    }

    fn note(&self, text: String) {
        self.progress.note(text);
    }
}

/// `depth` is of blocks in flight; 0 is the engine's own.
pub fn of(requested: Engine, depth: u32, memory: &Memory, progress: &Arc<Progress>) -> Engines {
    let account =
        JobAccount { memory: memory.clone(), progress: progress.clone(), is_asked_for: requested == Engine::Uring };
    Engines { requested, depth: depth as usize, is_durable: false, account: Arc::new(account) }
}
