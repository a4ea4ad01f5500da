//! The receiver's extent log: which chunks of one unfinished object have arrived and verified, as bytes.
//!
//! docs/ledger-format.md part A specifies the format. Everything here is a pure function over bytes: the caller reads,
//! appends, syncs and truncates the file.
//!
//! Invariants:
//! - Replay never reports an extent that was not recorded, whatever happened to the bytes: each record's checksum covers
//!   the checksum before it, so that records that were moved, dropped, repeated or taken from another log do not verify.
//! - Memory is bounded by the number of chunks recorded, and the number of records by `records_max`.
//! - An extent is relied on unread only by a checkpoint's word, and only in the boot in which the log was started.
//!
//! Not here: files, syncing, and the decision whether the source still is the generation in the header.

mod form;
mod header;
mod record;
mod replay;
#[cfg(test)]
mod tests;

pub use form::{Unusable, Violation};
pub use header::{Header, NAME_BYTES_MAX, STEM_BYTES_MAX, stem_of};
pub use record::{Appender, Mark, RECORD_BYTES, records_max, start};
pub use replay::{Chunk, Continuation, Replayed, replay};
