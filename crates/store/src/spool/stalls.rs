//! Whether the storage beside a spool has lately stood still: the source that is read ahead into it, or the destination behind it.
//!
//! What has stood still once is expected to do so again for a while, by the next process too: the age of a mark in the spool's
//! directory tells it.
//!
//! Not here: how long it counts, and what stands still (see `mover`).

use super::place::Place;
use os::sync::Mutex;
use os::time::Instant;
use std::time::Duration;

/// A mark may be younger than it says by this.
const MARK_INTERVAL: Duration = Duration::from_secs(30);

/// Which storage stands still.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Side {
    Source,
    Destination,
}

impl Side {
    pub(super) fn mark(self) -> &'static str {
        match self {
            Side::Source => "source-stalled",
            Side::Destination => "destination-stalled",
        }
    }
}

/// By side.
pub(super) struct Stalls([Mutex<Stall>; 2]);

#[derive(Default)]
struct Stall {
    /// When it was noted here, and how long ago it was then.
    noted: Option<(Instant, Duration)>,
    marked: Option<Instant>,
}

impl Stalls {
    /// As earlier processes left them.
    pub fn found(place: &Place) -> Stalls {
        let found = |side: Side| {
            let noted = place.marked_ago(side.mark()).map(|ago| (Instant::now(), ago));
            Mutex::new(Stall { noted, marked: None })
        };
        Stalls([found(Side::Source), found(Side::Destination)])
    }

    pub fn note(&self, place: &Place, side: Side) {
        let now = Instant::now();
        let mut stall = self.0[side as usize].lock().unwrap();
        stall.noted = Some((now, Duration::ZERO));
        if stall.marked.is_some_and(|at| at.elapsed() < MARK_INTERVAL) {
            return;
        }
        stall.marked = Some(now);
        drop(stall);
        // Without it, only this process knows.
        let _ = place.mark(side.mark());
    }

    pub fn is_noted(&self, side: Side, within: Duration) -> bool {
        let stall = self.0[side as usize].lock().unwrap();
        stall.noted.is_some_and(|(at, ago)| at.elapsed() + ago < within)
    }
}
