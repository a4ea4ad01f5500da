//! What was decided of a batch of the listing, until the sender is told.

use super::large::Large;
use super::listed::Expected;
use super::settle::Outcome;
use crate::memory::Permit;
use model::Change;
use std::sync::Arc;
use wire::message::ExtentRecord;

/// What is decided of a batch.
#[derive(Default)]
pub struct Answer {
    pub described: usize,
    pub charge: Option<Arc<Permit>>,
    pub objects: Vec<(u32, Expected)>,
    pub large: Vec<(u64, Arc<Large>)>,
    pub wanted: Vec<u64>,
    pub extents: Vec<ExtentRecord>,
    pub outcome: Outcome,
    /// Links that were made: settled when their names are as durable as the user asked.
    pub links: Vec<u64>,
    pub changes: Vec<Change>,
    /// Ids and digests of paths of all files, where several holders have them.
    pub keys: Vec<(u64, u64)>,
}
