//! The records of the ledger as its callers see them.

use crate::limits::ROWS_MAX;
use crate::state::State;
use model::progress::Counts;
use model::{Failure, JobId};

/// Which part of the job this host plays.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, PartialOrd, Ord)]
pub enum Role {
    Sender,
    Receiver,
}

/// Names one job of the ledger. The peer belongs to it: a peer that presents another's job id finds nothing of it.
#[derive(Clone, PartialEq, Eq, Debug, Hash)]
pub struct JobKey {
    pub id: JobId,
    pub role: Role,
    /// The other endpoint's pin or name; empty for a job within one host.
    pub peer: String,
}

/// What was asked for. Texts are for eyes and hold no secrets.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct JobSpec {
    pub key: JobKey,
    pub source: String,
    pub destination: String,
    pub options: String,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Job {
    pub key: JobKey,
    pub source: String,
    pub destination: String,
    pub options: String,
    pub state: State,
    pub attempts: u64,
    pub created_unix_ms: i64,
    pub updated_unix_ms: i64,
    /// Set in the final states only.
    pub finished_unix_ms: Option<i64>,
    /// Of the latest attempt.
    pub counts: Counts,
    /// Failures of the latest attempt that are kept as rows, and those beyond the bound.
    pub failures_listed: u64,
    pub failures_unlisted: u64,
}

/// Selects jobs; the newest change first.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct JobFilter {
    pub id: Option<JobId>,
    pub role: Option<Role>,
    /// Empty selects every state.
    pub states: Vec<State>,
    /// Jobs of which something was recorded at this time or later.
    pub changed_since_unix_ms: Option<i64>,
    /// At most 10,000.
    pub limit: usize,
}

impl Default for JobFilter {
    fn default() -> Self {
        JobFilter { id: None, role: None, states: Vec::new(), changed_since_unix_ms: None, limit: ROWS_MAX }
    }
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RecordedFailure {
    /// Counts from 1 within the job's latest attempt.
    pub number: u64,
    pub failure: Failure,
    pub at_unix_ms: i64,
}

/// What a sweep deletes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SweepBefore {
    /// Jobs in a final state since before this time.
    pub finished_unix_ms: i64,
    /// Jobs in any other state that nothing touched since before this time; `None` keeps them all. A live attempt whose
    /// job is swept gets `Kind::NotFound`.
    pub abandoned_unix_ms: Option<i64>,
}

impl Role {
    /// The form in the ledger; part of its format.
    pub fn name(self) -> &'static str {
        match self {
            Role::Sender => "sender",
            Role::Receiver => "receiver",
        }
    }

    pub(crate) fn from_name(name: &str) -> Option<Role> {
        [Role::Sender, Role::Receiver].into_iter().find(|role| role.name() == name)
    }
}
