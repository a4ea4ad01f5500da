//! Messages in which the two halves of a job tell each other of its objects (docs/protocol.md section 4): what there is, what is
//! wanted, what arrived.
//!
//! Plain fields as they travel; `listing`, `credit` and the reader of each message check them.

use crate::fidelity::AttributesRecord;
use crate::limits::{FAILURES_MAX, FAILURES_TOLD_BYTES};
use prost::Message as _;

#[derive(Clone, PartialEq, prost::Message)]
pub struct Entries {
    #[prost(uint32, tag = "1")]
    pub job: u32,
    /// Id of the first entry; the others follow without a gap.
    #[prost(uint64, tag = "2")]
    pub first: u64,
    #[prost(message, repeated, tag = "3")]
    pub entries: Vec<EntryRecord>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct EntryRecord {
    /// Id of a directory described before, or 0 for the root of the job.
    #[prost(uint64, tag = "1")]
    pub parent: u64,
    #[prost(bytes = "vec", tag = "2")]
    pub name: Vec<u8>,
    /// 1 directory, 2 file, 3 symbolic link, 4 file whose end is not known, 5 FIFO, 6 socket, 7 character device, 8 block
    /// device, 9 another name of a file.
    #[prost(uint32, tag = "3")]
    pub kind: u32,
    #[prost(uint32, tag = "4")]
    pub mode: u32,
    #[prost(uint64, tag = "5")]
    pub size_bytes: u64,
    #[prost(sint64, tag = "6")]
    pub modified_seconds: i64,
    #[prost(uint32, tag = "7")]
    pub modified_nanoseconds: u32,
    #[prost(sint64, tag = "8")]
    pub changed_seconds: i64,
    #[prost(uint32, tag = "9")]
    pub changed_nanoseconds: u32,
    #[prost(uint64, tag = "10")]
    pub inode: u64,
    #[prost(uint64, tag = "11")]
    pub device: u64,
    #[prost(bytes = "vec", tag = "12")]
    pub link: Vec<u8>,
    /// Where the job asks for it.
    #[prost(message, optional, tag = "60")]
    pub attributes: Option<AttributesRecord>,
    /// Of a device.
    #[prost(uint64, tag = "61")]
    pub number: u64,
    /// Of another name: the file described before.
    #[prost(uint64, tag = "62")]
    pub same_as: u64,
    /// Of what is described again where something grows: the id that this voids, or 0 for none. Where it is not said, whatever
    /// was described under the same name is void.
    #[prost(uint64, optional, tag = "63")]
    pub replaces: Option<u64>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct SourceFailures {
    #[prost(uint32, tag = "1")]
    pub job: u32,
    #[prost(message, repeated, tag = "2")]
    pub failures: Vec<FailureRecord>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct FailureRecord {
    /// The object, or 0 when it was never described.
    #[prost(uint64, tag = "1")]
    pub object: u64,
    /// Relative to the destination; empty when `object` says it.
    #[prost(bytes = "vec", tag = "2")]
    pub path: Vec<u8>,
    /// Number of a `model::FailureKind`.
    #[prost(uint32, tag = "3")]
    pub kind: u32,
    #[prost(string, tag = "4")]
    pub text: String,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct ListEnd {
    #[prost(uint32, tag = "1")]
    pub job: u32,
    #[prost(uint64, tag = "2")]
    pub entries: u64,
    #[prost(uint64, tag = "3")]
    pub bytes: u64,
}

/// Ids `first..first + count`.
#[derive(Clone, Copy, PartialEq, prost::Message)]
pub struct Run {
    #[prost(uint64, tag = "1")]
    pub first: u64,
    #[prost(uint64, tag = "2")]
    pub count: u64,
}

#[derive(Clone, Copy, PartialEq, prost::Message)]
pub struct ExtentRecord {
    #[prost(uint64, tag = "1")]
    pub object: u64,
    #[prost(uint64, tag = "2")]
    pub start: u64,
    #[prost(uint64, tag = "3")]
    pub end: u64,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct Want {
    #[prost(uint32, tag = "1")]
    pub job: u32,
    /// Wanted whole.
    #[prost(message, repeated, tag = "2")]
    pub runs: Vec<Run>,
    /// Wanted in part: only these extents, in order, of objects that are not in `runs`.
    #[prost(message, repeated, tag = "3")]
    pub extents: Vec<ExtentRecord>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct Settled {
    #[prost(uint32, tag = "1")]
    pub job: u32,
    /// Verified and published.
    #[prost(message, repeated, tag = "2")]
    pub published: Vec<Run>,
    /// There already.
    #[prost(message, repeated, tag = "3")]
    pub skipped: Vec<Run>,
    #[prost(message, repeated, tag = "4")]
    pub failed: Vec<FailureRecord>,
    /// Digests of objects in `published` that travelled in several chunks.
    #[prost(message, repeated, tag = "5")]
    pub digests: Vec<DigestRecord>,
    /// Verified, and durable in the receiver's buffer: on their way to their places, not settled.
    #[prost(message, repeated, tag = "6")]
    pub buffered: Vec<Run>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct DigestRecord {
    #[prost(uint64, tag = "1")]
    pub object: u64,
    #[prost(bytes = "vec", tag = "2")]
    pub digest: Vec<u8>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct Held {
    #[prost(uint32, tag = "1")]
    pub job: u32,
    #[prost(message, repeated, tag = "2")]
    pub extents: Vec<ExtentRecord>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct Resend {
    #[prost(uint32, tag = "1")]
    pub job: u32,
    /// Whole small objects.
    #[prost(message, repeated, tag = "2")]
    pub runs: Vec<Run>,
    #[prost(message, repeated, tag = "3")]
    pub extents: Vec<ExtentRecord>,
    #[prost(string, tag = "4")]
    pub why: String,
}

#[derive(Clone, Copy, PartialEq, prost::Message)]
pub struct Credit {
    #[prost(uint32, tag = "1")]
    pub job: u32,
    /// Entries that may be described in all, counted from the start of the job.
    #[prost(uint64, tag = "2")]
    pub entries: u64,
    /// Payload bytes that may be sent and not yet acknowledged.
    #[prost(uint64, tag = "3")]
    pub in_flight_bytes: u64,
}

#[derive(Clone, Copy, PartialEq, prost::Message)]
pub struct Finish {
    #[prost(uint32, tag = "1")]
    pub job: u32,
    /// The sender leaves when the receiver has in its buffer, durable, all that is not settled.
    #[prost(bool, tag = "2")]
    pub is_buffered: bool,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct Finished {
    #[prost(uint32, tag = "1")]
    pub job: u32,
    /// `file`, `batch`, `never` or `memory`.
    #[prost(string, tag = "2")]
    pub durable: String,
    /// Directories whose mode or time could not be set, other names that could not be made, what could not be removed; as many
    /// as there is room for.
    #[prost(message, repeated, tag = "3")]
    pub failures: Vec<FailureRecord>,
    #[prost(string, tag = "4")]
    pub engine: String,
    /// Objects removed, or that would be.
    #[prost(uint64, tag = "5")]
    pub removed: u64,
    /// Objects that the source does not have.
    #[prost(uint64, tag = "6")]
    pub extraneous: u64,
    /// 0 none was asked for, 1 done, 2 the listing was not whole, 3 more than allowed.
    #[prost(uint32, tag = "7")]
    pub deletion: u32,
    /// Failures beyond those in `failures`.
    #[prost(uint64, tag = "8")]
    pub failures_untold: u64,
    /// Other names of files that were made, and that were there.
    #[prost(uint64, tag = "60")]
    pub linked: u64,
    #[prost(uint64, tag = "61")]
    pub linked_before: u64,
}

/// How many failures, from the first on, go into one message.
pub fn failures_that_fit(records: &[FailureRecord]) -> usize {
    let mut bytes = 0;
    let fitting = records.iter().take(FAILURES_MAX).take_while(|record| {
        bytes += record.encoded_len() + 4;
        bytes <= FAILURES_TOLD_BYTES
    });
    fitting.count()
}

/// Collapses ids into runs; they are sorted on the way.
pub fn runs_of(mut ids: Vec<u64>) -> Vec<Run> {
    ids.sort_unstable();
    let mut runs: Vec<Run> = Vec::new();
    for id in ids {
        match runs.last_mut() {
            Some(run) if run.first + run.count == id => run.count += 1,
            _ => runs.push(Run { first: id, count: 1 }),
        }
    }
    runs
}

impl Run {
    /// The ids of the run; empty when a peer's numbers overflow.
    pub fn ids(&self) -> std::ops::Range<u64> {
        self.first..self.first.checked_add(self.count).unwrap_or(self.first)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_collapse_neighbours_only() {
        let runs = runs_of(vec![5, 1, 2, 3, 9]);
        assert_eq!(runs.iter().map(Run::ids).collect::<Vec<_>>(), vec![1..4, 5..6, 9..10]);
        assert!(Run { first: u64::MAX, count: 2 }.ids().is_empty());
    }
}
