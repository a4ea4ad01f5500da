//! Shares the rates of this endpoint out among its jobs, by class and contract, whoever asked for them: plain copies too.
//!
//! Every quarter of a second, and only while there are jobs: what each job moves is measured, what it can use estimated, and the
//! division (`plan::shares`) told to whoever sends it: here by a call, there by message 70.
//!
//! Invariants:
//! - Nothing is done to jobs of one class without a contract: they are not even measured.
//! - A limit only ever slows a job down, and what its users set goes on to hold beside it.
//! - When the governor stops, its limits are lifted.
//!
//! Not here: the contracts (`contracts`), showing what was seen (`board`), whose a job is and how it is slowed down (`mover::session::roster`).

pub mod board;
pub mod contracts;
mod division;
#[cfg(test)]
mod tests;

use crate::error::{Error, Result};
use board::Board;
use contracts::Held;
pub use division::{Allotment, Held as HeldBy};
use division::{Division, Governed};
use model::Exit;
use mover::Snapshot;
use mover::session::{Member, Roster, Who};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How often the rates are looked at, besides when a job begins.
const INTERVAL: Duration = Duration::from_millis(250);

pub struct Governor {
    shared: Arc<Shared>,
}

struct Shared {
    roster: Arc<Roster>,
    is_stopped: AtomicBool,
    allotted: Mutex<Vec<Allotment>>,
}

impl Governor {
    pub fn start(mut held: Held, state_dir: &Path, roster: Arc<Roster>) -> Result<Governor> {
        let mut board = Board::new(state_dir);
        let shared = Arc::new(Shared { roster, is_stopped: AtomicBool::new(false), allotted: Mutex::default() });
        let of_thread = shared.clone();
        let run = move || {
            let (mut division, mut known) = (Division::default(), 0);
            while !of_thread.is_stopped.load(Relaxed) {
                // A new job is held from its first bytes on, or many short ones would pass any limit.
                known = of_thread.roster.wait(known, INTERVAL, &of_thread.is_stopped);
                let members = of_thread.roster.members();
                let terms = held.now();
                let now = Instant::now();
                let allotted = division.look(&members, &terms, net::clock::local_minute_of_week(), now);
                board.show(&allotted, now);
                *of_thread.allotted.lock().unwrap_or_else(PoisonError::into_inner) = allotted;
            }
            of_thread.roster.members().iter().for_each(|member| member.set_rate(None));
        };
        let spawned = std::thread::Builder::new().name("governor".into()).spawn(run);
        spawned.map_err(|e| Error::new(Exit::Failed, format!("start a thread: {e}")))?;
        Ok(Governor { shared })
    }

    /// What each job may have, and why: as of the last look.
    pub fn allotted(&self) -> Vec<Allotment> {
        self.shared.allotted.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Drop for Governor {
    fn drop(&mut self) {
        self.shared.roster.stop(&self.shared.is_stopped);
    }
}

impl Governed for Member {
    fn id(&self) -> u64 {
        self.id
    }

    fn who(&self) -> &Arc<Who> {
        &self.who
    }

    fn is_sender(&self) -> bool {
        self.is_sender()
    }

    fn moved_bytes(&self) -> u64 {
        self.moved_bytes()
    }

    fn snapshot(&self) -> Snapshot {
        self.snapshot()
    }

    fn set_rate(&self, bytes_per_second: Option<u64>) {
        self.set_rate(bytes_per_second);
    }

    fn mark(&self, code_point: u8) {
        self.mark(code_point);
    }
}
