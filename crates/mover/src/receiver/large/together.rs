//! Which file a large object shares with other slices of its run, and what of it this one brings.
//!
//! Invariant: a range is whole chunks of the object as it was listed.
//!
//! Not here: what becomes of it (`parts`).

use super::super::resume;
use model::options::{Slice, TransferOptions};
use model::{Entry, Extent};

/// That other slices write to the object too.
pub struct Together {
    pub(super) stem: String,
    /// Whole chunks; nothing for whoever completes the object.
    pub(super) range: Option<Extent>,
}

impl Together {
    pub fn of(slice: &Slice, path: &[u8], entry: &Entry, options: &TransferOptions) -> Option<Together> {
        let (size, chunk_bytes) = (entry.size_bytes(), options.chunk_bytes);
        let whole = |range: Extent| {
            let start = size.min(range.start / chunk_bytes * chunk_bytes);
            Extent::new(start, size.min(range.end.div_ceil(chunk_bytes).saturating_mul(chunk_bytes)).max(start))
        };
        let stem = resume::stem_of_parts(slice.run?, path, entry, options.digest, chunk_bytes);
        Some(Together { stem, range: slice.range.map(whole) })
    }
}
