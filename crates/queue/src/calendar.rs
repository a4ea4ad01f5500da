//! Moments, windows, and when the calendar next has a word about a job.

use crate::job::Job;
use crate::status::{Reason, Status};

/// A moment: for waiting, and on the calendar. The calendar may jump.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Now {
    /// Monotonic; from any start.
    pub ms: u64,
    /// Since 1970.
    pub unix_ms: i64,
}

/// When jobs may run that have windows, and when those begin that have a schedule.
pub trait Calendar {
    fn opening(&self, windows: &str, unix_ms: i64) -> Opening;

    /// The moments of a schedule on both sides of this one, which may be the last itself.
    fn slots(&self, times: &str, unix_ms: i64) -> Slots;
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Slots {
    pub last: Option<i64>,
    pub next: Option<i64>,
}

/// Whether a window is open, and when that changes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Opening {
    pub is_open: bool,
    pub until: i64,
}

/// A calendar without windows or schedules.
pub struct Always;

impl Calendar for Always {
    fn opening(&self, _windows: &str, _unix_ms: i64) -> Opening {
        Opening { is_open: true, until: i64::MAX }
    }

    fn slots(&self, _times: &str, _unix_ms: i64) -> Slots {
        Slots::default()
    }
}

/// The next moment at which the calendar says something about a job.
pub(crate) fn date_of(job: &Job, calendar: &dyn Calendar, now: Now) -> Option<i64> {
    if job.status.is_end() {
        return None;
    }
    let start = job.facts.start_by.filter(|_| !job.has_begun);
    // A deadline is said once, and does not take the place of a cancel.
    let finish = job.facts.finish_by.filter(|_| !job.is_ending());
    let follows_windows = matches!(job.status, Status::Queued | Status::Running)
        || job.status == Status::Waiting && matches!(job.reason, Reason::Window);
    let windows = job.facts.windows.as_ref().filter(|_| follows_windows);
    let change = windows.map(|windows| match calendar.opening(windows, now.unix_ms) {
        // They closed while it waited at its executor, or while nobody looked.
        Opening { is_open: false, .. } if job.status == Status::Running => now.unix_ms,
        opening => opening.until,
    });
    [start, finish, change].into_iter().flatten().min()
}
