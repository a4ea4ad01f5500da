//! What cannot be had of a catalogue: whether to wait for a holder that may still bring it, and when to say that nobody will.
//!
//! Pure, as all of the book.

use super::{Action, Book, Missing, Object, Work};
use crate::receiver::gather::seats::{LEAD, Seat};

/// How long a holder that is away is waited for while nobody else brings anything.
const AWAY_US: u64 = 30_000_000;
/// What those who are there may still be about to say.
const SETTLED_US: u64 = 1_000_000;

impl Object {
    /// Nobody was asked for all that is missing of it.
    fn is_missing(&self) -> bool {
        match &self.work {
            Work::Small { of, .. } => of.is_none(),
            Work::Large(spans) => spans.is_open(),
        }
    }
}

impl Book {
    /// Says what nobody has, once nobody is left who might.
    pub(super) fn look_for_missing(&mut self) {
        if !self.is_of_list {
            return;
        }
        let others = &self.seats[LEAD + 1..];
        let is_waited_for = !self.is_listed || others.iter().any(Seat::is_busy);
        if is_waited_for || !self.objects.values().any(Object::is_missing) {
            self.stuck_since_us = None;
            return;
        }
        let since = *self.stuck_since_us.get_or_insert(self.now_us);
        let patience = match others.iter().all(|seat| seat.is_here || seat.is_dropped) {
            true => SETTLED_US,
            false => AWAY_US,
        };
        if self.now_us - since < patience {
            return;
        }
        self.stuck_since_us = None;
        if others.iter().any(|seat| seat.is_here) {
            let missing =
                |(id, object): (&u64, &Object)| Missing { id: *id, is_other_content: !object.votes.is_empty() };
            let all = self.objects.iter().filter(|(_, object)| object.is_missing()).map(missing).collect();
            return self.actions.push(Action::Unobtainable(all));
        }
        let why = match others.iter().all(|seat| seat.is_dropped) {
            true => "none of the holders is left",
            false => "none of the holders can be reached",
        };
        self.actions.push(Action::Drop(LEAD, why.to_owned()));
    }
}
