//! What an endpoint has places for, and what those who got one hold: a session its account, a job and a question a seat.
//!
//! Not here: who gets a place, and who gives one up for another (`room`).

use crate::limits::IDLE_LANE_INTERVAL;
use crate::memory::{Memory, Permit};
use crate::shares::{Holder, Level, Place, Places};
use model::Pin;
use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Instant;

/// Sessions at once, of all clients and of one key.
const SESSIONS_MAX: usize = 256;
const SESSIONS_OF_KEY_MAX: usize = 64;
/// Jobs at once, of all clients and of one key. A job takes up to four threads beside its lanes.
const JOBS_MAX: usize = 512;
const JOBS_OF_KEY_MAX: usize = 128;
/// Questions about files at once, of all clients and of one key.
const ASKS_MAX: usize = 64;
const ASKS_OF_KEY_MAX: usize = 8;

/// Of a client, of a key; of the endpoint, if neither is named.
type Share = (Option<Arc<str>>, Option<Pin>);

/// The places that an endpoint has.
pub(super) struct Rooms {
    pub sessions: Places,
    pub jobs: Places,
    pub asks: Places,
    /// When idle lanes were last looked for, and in whose share.
    looked: Mutex<HashMap<Share, Instant>>,
}

impl Default for Rooms {
    fn default() -> Rooms {
        Rooms {
            sessions: Places::new(SESSIONS_MAX, SESSIONS_OF_KEY_MAX),
            jobs: Places::new(JOBS_MAX, JOBS_OF_KEY_MAX),
            asks: Places::new(ASKS_MAX, ASKS_OF_KEY_MAX),
            looked: Mutex::default(),
        }
    }
}

impl Rooms {
    /// Whether it is time to look for idle lanes again, which many may ask for at once.
    pub fn may_look(&self, holder: &Holder, level: Level) -> bool {
        let (mut looked, now) = (self.looked.lock().unwrap(), Instant::now());
        looked.retain(|_, at| now.saturating_duration_since(*at) < IDLE_LANE_INTERVAL);
        let share = match level {
            Level::Endpoint => (None, None),
            Level::Client => (Some(holder.client.clone()), None),
            Level::Key => (Some(holder.client.clone()), Some(holder.key)),
        };
        let is_time = !looked.contains_key(&share);
        looked.entry(share).or_insert(now);
        is_time
    }
}

/// What a session has at an endpoint.
pub(crate) struct Guest {
    pub holder: Holder,
    pub memory: Memory,
    pub(super) seat: Seat,
}

/// A place, and the memory that comes with it.
pub(super) struct Seat(Mutex<Option<(Place, Permit)>>);

impl Seat {
    pub fn new(place: Place, base: Permit) -> Seat {
        Seat(Mutex::new(Some((place, base))))
    }

    /// Gives it to others before its holder is gone.
    pub fn give_up(&self) {
        drop(self.0.lock().unwrap().take());
    }

    pub fn is_taken(&self) -> bool {
        self.0.lock().unwrap().is_some()
    }
}
