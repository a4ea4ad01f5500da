//! The durable record of jobs, and the format of the receiver's extent log.
//!
//! - `Ledger`: jobs and their failures in one SQLite file, written by one thread with group commit.
//! - `Reader`: the same file, looked at while others may write it.
//! - `extent_log`: the bytes beside the staging files that say which chunks have arrived; a pure codec.
//!
//! docs/ledger-format.md specifies both formats.
//!
//! Invariants:
//! - A call that waits returns only after its change, and every change queued before it, would survive power loss.
//! - The ledger never runs ahead of the destination: it records what its caller already made durable (I2).
//! - Every change of a job's state is one of the table in `state`; a superseded attempt changes nothing (I4).
//! - A change that was not waited for and was lost is reported by the attempt's next call.
//! - A damaged, foreign or newer file is refused and left as it is.
//!
//! Not here: storage. The SQLite file is the only thing this crate opens.

mod error;
mod limits;
mod state;
mod job;
mod ledger;
mod queue;
mod writer;
mod operation;
mod query;
mod reader;
mod schema;
pub mod extent_log;

pub use error::{Error, Kind, Result, Subject};
pub use job::{Job, JobFilter, JobKey, JobSpec, RecordedFailure, Role, SweepBefore};
pub use ledger::{Attempt, End, Ledger, Wait};
pub use limits::Settings;
pub use reader::Reader;
pub use state::{State, Verb};
