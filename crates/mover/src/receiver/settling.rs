//! Objects that were sealed and are being compared with their source.

use super::large::Large;
use model::{Digest, Entry, Extent};
use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

/// Objects under comparison, by id.
#[derive(Default)]
pub struct Settling(pub HashMap<u64, Comparison>);

pub struct Comparison {
    pub large: Arc<Large>,
    pub entry: Entry,
    pub asked: Range<u64>,
    /// Of all chunks before `asked`, as they are here.
    pub digests: Vec<Digest>,
    /// Of `asked`.
    pub here: Vec<Digest>,
    pub differing: Vec<Extent>,
}
