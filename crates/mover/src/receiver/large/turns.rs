//! Whose turn it is to write a chunk of a large object.
//!
//! Invariant: one lane at a time writes a chunk, and none one that is held.

use super::{Large, State};
use crate::job::End;
use crate::stream::Breaker;
use model::Extent;
use std::sync::Arc;
use std::time::Duration;
use store::StagedFile;

/// How often a lane that waits for its turn looks whether the job is over.
const TURN_INTERVAL: Duration = Duration::from_millis(100);

/// What a lane gets that comes with a chunk.
pub enum Claimed {
    Turn(Turn),
    /// The chunk is in this staging already.
    Held(Arc<dyn StagedFile>),
    /// Nobody wants it.
    Nothing,
}

/// The right to write a chunk. Given back when dropped, which must be after the last write and after the chunk was recorded.
pub struct Turn {
    large: Arc<Large>,
    extent: Extent,
}

impl Drop for Turn {
    fn drop(&mut self) {
        let mut state = self.large.object.state.lock().unwrap();
        if let Some(at) = state.turns.iter().position(|(extent, ..)| *extent == self.extent) {
            state.turns.swap_remove(at);
        }
        drop(state);
        self.large.object.turn_ended.notify_all();
    }
}

impl Large {
    /// The right to write a chunk, once no other lane has it. A lane of the same feeder that has it and is waiting for its stream
    /// is broken off: a sender sends a chunk twice only when it has given the first stream up.
    pub fn turn(self: &Arc<Large>, extent: Extent, breaker: &Breaker, end: &End) -> Claimed {
        loop {
            let mut state = self.object.state.lock().unwrap();
            if state.is_over_for(self.feeder) || state.needs_no(extent, self.is_open_ended) {
                // In the same moment: what is held is held in this staging, and not in one that comes after it.
                return state.file.clone().map_or(Claimed::Nothing, Claimed::Held);
            }
            if end.is_set() || !self.takes(extent) {
                return Claimed::Nothing;
            }
            let is_other = |(taken, ..): &&(Extent, u32, Breaker)| {
                taken.start == extent.start || taken.start < extent.end && extent.start < taken.end
            };
            match state.turns.iter().find(is_other).map(|(_, feeder, breaker)| (*feeder, breaker.clone())) {
                None => {
                    state.turns.push((extent, self.feeder, breaker.clone()));
                    return Claimed::Turn(Turn { large: self.clone(), extent });
                }
                Some((feeder, other)) => {
                    if feeder == self.feeder {
                        other();
                    }
                    let _ = self.object.turn_ended.wait_timeout(state, TURN_INTERVAL).unwrap();
                }
            }
        }
    }
}

impl State {
    /// Whether a chunk is to be dropped, because it is here. Of an open-ended object a peer may send
    /// chunks of other lengths: what was verified first is not written over (F010).
    fn needs_no(&self, extent: Extent, is_open_ended: bool) -> bool {
        match is_open_ended {
            true => self.held.overlaps(extent),
            false => !extent.is_empty() && self.held.contains(extent),
        }
    }
}
