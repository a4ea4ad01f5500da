//! Units of work: what the scan describes in one go, and what a lane takes of it.

use super::ahead::Ready;
use crate::limits::CLAIM_BYTES;
use crate::memory::Permit;
use model::Extent;
use std::ops::Range;
use std::sync::Arc;
use store::{DirectoryKey, SourceObject};
use wire::limits::PACK_BYTES_MAX;

/// Objects described in one frame; ids count up from that of the first.
#[derive(Debug)]
pub struct Batch {
    pub objects: Vec<SourceObject>,
    /// What they take, until the last of them is settled.
    pub charge: Option<Permit>,
}

impl Batch {
    pub fn first(&self) -> u64 {
        self.objects[0].entry.id.0
    }
}

/// Wanted small files: a stretch of a batch within one directory.
pub struct Run {
    pub batch: Arc<Batch>,
    pub range: Range<usize>,
    pub owner: Option<u32>,
}

impl Run {
    pub fn directory(&self) -> DirectoryKey {
        self.batch.objects[self.range.start].directory
    }
}

/// How much of small files a lane takes at once when so much is left in all: half of its part of that, so that what one
/// lane still has to do when the others are done shrinks with what is left. No less than a frame holds.
///
/// Guided self-scheduling (Polychronopoulos and Kuck, IEEE Transactions on Computers 36(12), 1987); half of the part,
/// because lanes differ, is factoring (Hummel, Schonberg and Flynn, Communications of the ACM 35(8), 1992).
pub fn claim_bytes(left_bytes: u64, lanes: usize) -> u64 {
    (left_bytes / (2 * lanes.max(1) as u64)).clamp(PACK_BYTES_MAX as u64, CLAIM_BYTES)
}

const _: () = assert!(PACK_BYTES_MAX as u64 <= CLAIM_BYTES);

/// A unit of work for a lane.
#[derive(Debug)]
pub enum Work {
    /// Small files of one directory, `batch.objects[range]`.
    Files { batch: Arc<Batch>, range: Range<usize> },
    /// A chunk of `batch.objects[index]`; of an open-ended object it ends where the source does.
    Chunk { batch: Arc<Batch>, index: usize, extent: Extent },
    /// A frame that was read ahead.
    Ready(Ready),
}

#[derive(Debug)]
pub enum Claim {
    Work(Work),
    /// Nothing to do until the listing or the receiver's answer brings something.
    NoWork,
    /// The receiver's credit is used up.
    NoCredit,
    /// As much was claimed as may be sent in all.
    Spent,
    /// Everything is settled.
    Complete,
}
