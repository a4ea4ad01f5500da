//! One operation of one round: raw figures, with the latencies of its calls.

use std::fmt;

use serde::Serialize;

use super::latency::Histogram;

/// What is measured. Those of metadata count only the time inside the call of that name.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Operation {
    Write,
    Read,
    Create,
    Close,
    Stat,
    Open,
    Rename,
    List,
    Unlink,
    /// Create, write, close and rename, all of it.
    Publish,
    /// As before, with one sync for each group before its renames, and one after.
    PublishDurable,
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Operation::Write => "write",
            Operation::Read => "read",
            Operation::Create => "create",
            Operation::Close => "close",
            Operation::Stat => "stat",
            Operation::Open => "open",
            Operation::Rename => "rename",
            Operation::List => "list",
            Operation::Unlink => "unlink",
            Operation::Publish => "publish",
            Operation::PublishDurable => "publish durable",
        })
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Call {
    Create,
    Open,
    WriteBlock,
    ReadBlock,
    Sync,
    Close,
    Stat,
    Rename,
    List,
    Unlink,
}

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Call::Create => "create",
            Call::Open => "open",
            Call::WriteBlock => "write a block",
            Call::ReadBlock => "read a block",
            Call::Sync => "sync",
            Call::Close => "close",
            Call::Stat => "stat",
            Call::Rename => "rename",
            Call::List => "list a directory",
            Call::Unlink => "unlink",
        })
    }
}

#[derive(Clone, PartialEq, Debug)]
pub struct Measured {
    pub operation: Operation,
    /// Zero for empty files.
    pub file_bytes: u64,
    /// 0 is the discarded one.
    pub round: u32,
    pub files: u64,
    /// Blocks, or calls on metadata.
    pub operations: u64,
    pub bytes: u64,
    /// Of metadata: inside the calls, on the thread that needed longest.
    pub seconds: f64,
    pub cpu_seconds: f64,
    pub foreign_cpu_seconds: f64,
    pub steal_seconds: f64,
    /// What the kernel fetched from storage for the reads; None where it does not say.
    pub fetched_bytes: Option<u64>,
    /// Ended at the limit; rates are of what was done.
    pub is_cut: bool,
    pub calls: Vec<(Call, Histogram)>,
}

impl Measured {
    pub fn bytes_per_second(&self) -> f64 {
        self.bytes as f64 / self.seconds.max(f64::MIN_POSITIVE)
    }

    pub fn operations_per_second(&self) -> f64 {
        self.operations as f64 / self.seconds.max(f64::MIN_POSITIVE)
    }

    /// Whether others used so much of the machine that the time says little about storage.
    pub fn is_disturbed(&self) -> bool {
        /// Of the machine's capacity during the measurement; ticks of the kernel's accounts are not noise.
        const FOREIGN_SHARE_MAX: f64 = 0.05;
        const FOREIGN_SECONDS_MIN: f64 = 0.05;
        let foreign = self.foreign_cpu_seconds + self.steal_seconds;
        let capacity = crate::dataset::cores() as f64 * self.seconds;
        foreign > FOREIGN_SECONDS_MIN && foreign > FOREIGN_SHARE_MAX * capacity
    }

    pub fn files_per_second(&self) -> f64 {
        self.files as f64 / self.seconds.max(f64::MIN_POSITIVE)
    }
}
