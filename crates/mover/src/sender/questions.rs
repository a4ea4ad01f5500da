//! What a receiver asked the digest of, and was not told yet.
//!
//! Bounded by the entries' credit: an object is asked for only while it is open, and once.

use os::sync::{Condvar, Mutex};
use std::collections::{HashSet, VecDeque};
use std::ops::Range;
use store::SourceObject;

#[derive(Default)]
pub struct Asked {
    pub state: Mutex<State>,
    pub arrived: Condvar,
}

#[derive(Default)]
pub struct State {
    pub queue: VecDeque<Question>,
    /// In the queue or in the thread's hands.
    pub open: HashSet<u64>,
    pub is_started: bool,
}

pub struct Question {
    pub object: SourceObject,
    /// Of the whole object if there are none.
    pub chunks: Option<Range<u64>>,
}
