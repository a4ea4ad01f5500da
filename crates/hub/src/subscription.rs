//! Following events: those of before are read from the database, the newest come from memory.
//!
//! Invariant: a subscriber sees every event behind the number it named, once, in order.

use crate::Result;
use crate::events::{Event, Found, Ring};
use crate::reader::Reader;
use std::sync::Arc;

/// Events read from the database in one go.
const REPLAY_MAX: usize = 500;

/// Somebody who follows the events of an owner, or of all.
pub struct Subscription {
    ring: Arc<Ring>,
    reader: Arc<Reader>,
    owner: Option<String>,
    after: i64,
}

impl Subscription {
    pub(crate) fn new(ring: Arc<Ring>, reader: Arc<Reader>, owner: Option<String>, after: i64) -> Subscription {
        Subscription { ring, reader, owner, after }
    }

    /// Whether the next events are in the database alone, so that `poll` takes a while.
    pub fn is_behind(&self) -> bool {
        self.after < self.ring.last() && self.after + 1 < self.ring.first()
    }

    /// The next events. Empty when there is none for this one yet; nothing when the hub ends.
    pub fn poll(&mut self) -> Result<Option<Vec<Arc<Event>>>> {
        let last = self.ring.last();
        let found = match self.ring.after(self.after) {
            Found::Closed => return Ok(None),
            Found::Nothing => return Ok(Some(Vec::new())),
            Found::Events(events) => events,
            Found::Older => {
                let replayed = self.reader.events(self.after, REPLAY_MAX)?;
                // All that was between is older than what is kept.
                self.after = replayed.last().map_or(last, |event| event.id);
                replayed.into_iter().map(Arc::new).collect()
            }
        };
        self.after = found.last().map_or(self.after, |event| event.id);
        Ok(Some(found.into_iter().filter(|event| self.is_for(event)).collect()))
    }

    fn is_for(&self, event: &Event) -> bool {
        self.owner.as_ref().is_none_or(|owner| *owner == event.owner)
    }
}
