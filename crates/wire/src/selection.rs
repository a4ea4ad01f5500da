//! Messages of what a job selects, decides and tells (docs/protocol.md sections 4 and 6).
//!
//! Plain fields as they travel; they are checked where they are read (`mover::job_options`).

use crate::objects::{DigestRecord, Run};

#[derive(Clone, PartialEq, prost::Message)]
pub struct Selection {
    #[prost(message, repeated, tag = "1")]
    pub rules: Vec<RuleRecord>,
    #[prost(uint64, tag = "2")]
    pub size_bytes_min: u64,
    /// The first size that is too large; 0 where none is.
    #[prost(uint64, tag = "3")]
    pub size_bytes_end: u64,
    #[prost(bool, tag = "4")]
    pub has_modified_since: bool,
    #[prost(sint64, tag = "5")]
    pub modified_since: i64,
    #[prost(bool, tag = "6")]
    pub has_modified_before: bool,
    #[prost(sint64, tag = "7")]
    pub modified_before: i64,
    #[prost(bool, tag = "8")]
    pub is_listed: bool,
    #[prost(bytes = "vec", repeated, tag = "9")]
    pub listed: Vec<Vec<u8>>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct RuleRecord {
    #[prost(bool, tag = "1")]
    pub takes: bool,
    #[prost(string, tag = "2")]
    pub pattern: String,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct Decisions {
    /// 0 mtime, 1 exists, 2 size, 3 checksum.
    #[prost(uint32, tag = "1")]
    pub compare: u32,
    #[prost(bool, tag = "2")]
    pub keeps_newer: bool,
    #[prost(bool, tag = "3")]
    pub only_existing: bool,
    #[prost(bool, tag = "4")]
    pub is_dry_run: bool,
    #[prost(bool, tag = "5")]
    pub tells_changes: bool,
    #[prost(bool, tag = "6")]
    pub deletes: bool,
    #[prost(bool, tag = "7")]
    pub deletes_at_root: bool,
    #[prost(bool, tag = "8")]
    pub has_removals_max: bool,
    #[prost(uint64, tag = "9")]
    pub removals_max: u64,
    /// Below the destination; empty where nothing is kept.
    #[prost(bytes = "vec", tag = "10")]
    pub backup: Vec<u8>,
    /// Only with BLAKE3.
    #[prost(bool, tag = "11")]
    pub is_delta: bool,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct AskDigests {
    #[prost(uint32, tag = "1")]
    pub job: u32,
    #[prost(message, repeated, tag = "2")]
    pub runs: Vec<Run>,
    /// With `chunk_count`: of the one object in `runs`, these chunks.
    #[prost(uint64, tag = "3")]
    pub chunk_first: u64,
    /// 0 asks for digests of whole objects.
    #[prost(uint32, tag = "4")]
    pub chunk_count: u32,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct Digests {
    #[prost(uint32, tag = "1")]
    pub job: u32,
    /// Of whole objects, or one after the other of the chunks asked for; empty where it could not be made.
    #[prost(message, repeated, tag = "2")]
    pub digests: Vec<DigestRecord>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct Changes {
    #[prost(uint32, tag = "1")]
    pub job: u32,
    #[prost(message, repeated, tag = "2")]
    pub changes: Vec<ChangeRecord>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct ChangeRecord {
    /// Relative to the destination.
    #[prost(bytes = "vec", tag = "1")]
    pub path: Vec<u8>,
    /// 1 file, 2 directory, 3 symbolic link, 4 FIFO or socket, 5 device.
    #[prost(uint32, tag = "2")]
    pub subject: u32,
    /// Bits of `model::change::cause`.
    #[prost(uint32, tag = "3")]
    pub causes: u32,
}
