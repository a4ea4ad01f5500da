//! Following events: those of before are read from the database, the newest come from memory.
//!
//! Invariant: a subscriber sees every event behind the number it named, once, in order.

use crate::Result;
use crate::events::{Event, Found, Ring};
use crate::reader::Reader;
use std::sync::Arc;

/// Events that are told in one go.
const TOLD_MAX: usize = 500;

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

    /// Whether there are more at this moment.
    pub fn has_more(&self) -> bool {
        self.after < self.ring.last()
    }

    /// The next events. Empty when there is none for this one yet; nothing when the hub ends.
    pub fn poll(&mut self) -> Result<Option<Vec<Arc<Event>>>> {
        let last = self.ring.last();
        let found = match self.ring.after(self.after, TOLD_MAX) {
            Found::Closed => return Ok(None),
            Found::Nothing => return Ok(Some(Vec::new())),
            Found::Events(events) => events,
            Found::Older => {
                let replayed = self.reader.events(self.after, TOLD_MAX)?;
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

#[cfg(test)]
mod tests {
    use super::*;
    use model::JobId;
    use std::path::Path;

    #[test]
    fn many_events_come_in_parts() {
        let ring = Ring::starting_after(0);
        let event = |id| Event { id, job: JobId([1; 16]), owner: "anna".into(), data: String::new() };
        ring.publish((1..=2 * TOLD_MAX as i64 + 1).map(event).collect());
        let reader = Arc::new(Reader::new(Path::new("/nonexistent")));
        let mut subscription = Subscription::new(ring, reader, None, 0);
        let mut parts = Vec::new();
        while subscription.has_more() {
            parts.push(subscription.poll().unwrap().unwrap().len());
        }
        assert_eq!(parts, [TOLD_MAX, TOLD_MAX, 1]);
    }
}
