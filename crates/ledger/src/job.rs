//! The records of the ledger as its callers see them.

use crate::limits::ROWS_MAX;
use crate::state::State;
use model::progress::Counts;
use model::{Digest, Failure, JobId};

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
    /// At most 10,000.
    pub limit: usize,
}

impl Default for JobFilter {
    fn default() -> Self {
        JobFilter { id: None, role: None, states: Vec::new(), limit: ROWS_MAX }
    }
}

/// A part of a job: about 1,000 small files or 1 GiB.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Bundle {
    pub number: u64,
    pub files: u64,
    pub bytes: u64,
    pub state: BundleState,
    /// Of the bundle's work list. A bundle found durable may be skipped only where this is the same.
    pub digest: Option<Digest>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum BundleState {
    Started,
    /// Every object of it is published and survives power loss. The caller made it so before it says so.
    Durable,
    Failed,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RecordedBundle {
    pub bundle: Bundle,
    /// The attempt that recorded it last.
    pub attempt: u64,
    pub recorded_unix_ms: i64,
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

impl BundleState {
    /// The form in the ledger; part of its format.
    pub fn name(self) -> &'static str {
        match self {
            BundleState::Started => "started",
            BundleState::Durable => "durable",
            BundleState::Failed => "failed",
        }
    }

    pub(crate) fn from_name(name: &str) -> Option<BundleState> {
        [BundleState::Started, BundleState::Durable, BundleState::Failed].into_iter().find(|s| s.name() == name)
    }
}
