//! Batches of the listing after they were decided: what is wanted of each.

use crate::memory::Permit;
use model::Entry;
use std::sync::Arc;
use store::PublishRule;

/// One object that is wanted.
#[derive(Debug)]
pub struct Expected {
    pub entry: Entry,
    pub rule: PublishRule,
    /// What it takes on storage beyond what it replaces and what is there of it already.
    pub room_bytes: u64,
}

/// A batch of the listing after it was decided.
#[derive(Debug)]
pub struct Listed {
    pub first: u64,
    /// How many objects it had.
    pub described: usize,
    /// Those that are wanted, by their index in it, in order. It is kept until the last of them is settled.
    pub objects: Vec<(u32, Expected)>,
    /// What all of it takes.
    pub _charge: Option<Arc<Permit>>,
}

impl Listed {
    /// # Panics
    /// For an object that was not wanted: lanes get indices only of those that were.
    pub fn expected(&self, index: usize) -> &Expected {
        let found = self.objects.binary_search_by_key(&index, |(index, _)| *index as usize);
        &self.objects[found.expect("only wanted objects are handed out")].1
    }
}
