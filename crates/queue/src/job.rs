//! What is known of one job.

use crate::status::{Goal, Reason, Status};
use model::order::Role;
use model::{Class, JobId};
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

/// What was asked for; it changes only when somebody asks for something else (`change`).
#[derive(Clone, PartialEq, Debug)]
pub struct Facts {
    pub common: Arc<Common>,
    /// Where it writes, below `to`: no two jobs that run have one below the other's.
    pub claims: Claims,
    /// What is asked, by whom: an open job of the same nature is the same job.
    pub nature: [u8; 16],
}

/// What many jobs have alike; `Facts` are read and changed as if it were part of them.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Common {
    pub owner: Arc<str>,
    pub project: Arc<str>,
    pub class: Class,
    /// Among the jobs of one owner and project: higher first.
    pub priority: i8,
    /// Endpoints.
    pub from: Arc<str>,
    pub to: Arc<str>,
    /// Milliseconds since 1970.
    pub start_by: Option<i64>,
    pub finish_by: Option<i64>,
    /// For the calendar.
    pub windows: Option<Arc<str>>,
    /// It waits for what comes and ends when somebody says so: what it holds for days is the place of a small job.
    pub is_standing: bool,
    /// It only finds out what it would do: what it counts was seen, not moved.
    pub is_rehearsal: bool,
}

/// Paths, each with a NUL behind it.
#[derive(Clone, PartialEq, Debug)]
pub struct Claims(Box<[u8]>);

impl Claims {
    pub fn new(paths: &[impl AsRef<[u8]>]) -> Claims {
        let parts = paths.iter().flat_map(|path| [path.as_ref(), b"\0"]);
        Claims(parts.collect::<Vec<_>>().concat().into())
    }

    pub fn iter(&self) -> impl Iterator<Item = &[u8]> {
        self.0.split_inclusive(|byte| *byte == 0).map(|path| &path[..path.len() - 1])
    }
}

/// A job and where it stands. The pure part of what its owner keeps of it.
///
/// Memory: the book of a queue holds a million of these; what is alike is shared (`Facts::common`, `state`).
#[derive(Clone, PartialEq, Debug)]
pub struct Job {
    pub id: JobId,
    /// In order of submission.
    pub seq: u64,
    pub facts: Facts,
    /// Read and changed as if it were part of the job.
    pub state: Arc<State>,
}

/// Where a job stands.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct State {
    /// Jobs that it comes after: of an open one those that are open, of an ended one also those that did not succeed.
    pub after: Vec<JobId>,
    pub status: Status,
    pub reason: Reason,
    /// What a person is told of the wait or of the end.
    pub text: String,
    pub hint: String,
    /// When the wait ends, as far as it is known; milliseconds since 1970.
    pub until: Option<i64>,
    /// Counts the orders given: the epoch.
    pub attempt: u32,
    /// Which end has the order of this attempt.
    pub role: Option<Role>,
    pub goal: Option<Goal>,
    /// Since the last progress: tries below `heard::LOOK`, and looks for space in multiples of it.
    pub failures: u32,
    /// Further passes over objects that failed.
    pub passes: u32,
    /// An attempt by the source's endpoint could not reach the other one.
    pub is_switched: bool,
    pub has_begun: bool,
    pub work: Work,
    /// The exit code of an ended one.
    pub code: Option<i32>,
}

impl Deref for Facts {
    type Target = Common;

    fn deref(&self) -> &Common {
        &self.common
    }
}

impl DerefMut for Facts {
    fn deref_mut(&mut self) -> &mut Common {
        Arc::make_mut(&mut self.common)
    }
}

impl Deref for Job {
    type Target = State;

    fn deref(&self) -> &State {
        &self.state
    }
}

impl DerefMut for Job {
    fn deref_mut(&mut self) -> &mut State {
        Arc::make_mut(&mut self.state)
    }
}

/// How much there is, and how much of that is done.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Work {
    pub files_listed: u64,
    pub bytes_listed: u64,
    pub is_listed: bool,
    pub files_done: u64,
    pub bytes_done: u64,
}

/// A job below both is small.
const SMALL_BYTES: u64 = 64 << 20;
const SMALL_FILES: u64 = 1000;
/// What a file costs beside its bytes.
const FILE_BYTES: u64 = 256 << 10;

impl Work {
    /// Nothing where it is not known yet.
    pub fn is_small(&self) -> Option<bool> {
        let is_small = self.bytes_listed < SMALL_BYTES && self.files_listed < SMALL_FILES;
        (self.is_listed || !is_small).then_some(is_small)
    }

    /// What its owner is charged for it. A job costs a file even if it had none.
    pub fn charge(&self) -> f64 {
        if model::mutant::is_on("queue-charges-jobs") {
            return FILE_BYTES as f64;
        }
        let files = self.files_done.max(1);
        self.bytes_done.saturating_add(files.saturating_mul(FILE_BYTES)) as f64
    }
}

impl Job {
    pub fn new(id: JobId, seq: u64, facts: Facts, after: Vec<JobId>) -> Job {
        let state = State {
            after,
            status: Status::Queued,
            reason: Reason::None,
            text: String::new(),
            hint: String::new(),
            until: None,
            attempt: 0,
            role: None,
            goal: None,
            failures: 0,
            passes: 0,
            is_switched: false,
            has_begun: false,
            work: Work::default(),
            code: None,
        };
        Job { id, seq, facts, state: Arc::new(state) }
    }

    /// The endpoint that has its order.
    pub fn executor(&self) -> Option<&Arc<str>> {
        self.role.map(|role| self.at(role))
    }

    /// The other one.
    pub fn peer(&self) -> Option<&Arc<str>> {
        self.role.map(|role| if role == Role::Sends { &self.facts.to } else { &self.facts.from })
    }

    pub fn at(&self, role: Role) -> &Arc<str> {
        match role {
            Role::Sends => &self.facts.from,
            Role::Fetches => &self.facts.to,
        }
    }

    /// It ends as soon as it has stopped, whatever else comes.
    pub fn is_ending(&self) -> bool {
        self.status == Status::Stopping && matches!(self.goal, Some(Goal::Cancel | Goal::Deadline))
    }

    pub fn waits_for_destination(&self) -> bool {
        self.status == Status::Waiting && self.reason == Reason::Destination
    }

    /// Two jobs that write below one place.
    pub fn overlaps(&self, other: &Job) -> bool {
        self.facts.to == other.facts.to
            && self.facts.claims.iter().any(|a| other.facts.claims.iter().any(|b| is_within(a, b) || is_within(b, a)))
    }
}

/// Whether a path is another, or lies below it. Both are free of `.`, `..` and empty parts.
fn is_within(path: &[u8], other: &[u8]) -> bool {
    other.is_empty() || path.strip_prefix(other).is_some_and(|rest| rest.is_empty() || rest[0] == b'/')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_overlap_by_whole_names() {
        for (a, b, overlap) in [
            ("x", "x", true),
            ("x", "x/y", true),
            ("x", "xy", false),
            ("", "x", true),
            ("x/y", "x/z", false),
            ("x/yz", "x/y", false),
        ] {
            let found = is_within(a.as_bytes(), b.as_bytes()) || is_within(b.as_bytes(), a.as_bytes());
            assert_eq!(found, overlap, "{a} {b}");
        }
    }

    #[test]
    fn a_job_is_small_once_it_is_known_to_be() {
        let work =
            |files_listed, bytes_listed, is_listed| Work { files_listed, bytes_listed, is_listed, ..Work::default() };
        assert_eq!(work(1, 1, false).is_small(), None);
        assert_eq!(work(1, 1, true).is_small(), Some(true));
        assert_eq!(work(SMALL_FILES, 1, false).is_small(), Some(false));
        assert_eq!(work(1, SMALL_BYTES, true).is_small(), Some(false));
    }
}
