//! The thread that looks again at the rights of those who are here: what expired or was revoked ends within two rounds.

use crate::error::{Error, Result};
use model::Exit;
use mover::session::Server;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

/// F029 asks for 60 s at most. Two small files are read for each session and each job.
pub const REVIEW_INTERVAL: Duration = Duration::from_secs(2);

pub struct Review {
    stop: Arc<Stop>,
}

#[derive(Default)]
struct Stop {
    is_set: Mutex<bool>,
    came: Condvar,
}

impl Review {
    pub fn start(server: Arc<Server>) -> Result<Review> {
        let stop = Arc::new(Stop::default());
        let for_thread = stop.clone();
        let run = move || {
            while !for_thread.comes_within(REVIEW_INTERVAL) {
                server.review();
            }
        };
        let spawned = std::thread::Builder::new().name("review".into()).spawn(run);
        spawned.map_err(|e| Error::new(Exit::Failed, format!("start a thread: {e}")))?;
        Ok(Review { stop })
    }

    pub fn stop(&self) {
        *self.stop.is_set.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.stop.came.notify_all();
    }
}

impl Stop {
    fn comes_within(&self, patience: Duration) -> bool {
        let is_set = self.is_set.lock().unwrap_or_else(PoisonError::into_inner);
        *self.came.wait_timeout_while(is_set, patience, |is_set| !*is_set).unwrap_or_else(PoisonError::into_inner).0
    }
}
