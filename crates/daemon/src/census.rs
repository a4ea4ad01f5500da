//! How many clients are enrolled, in all and by each ticket: neither one ticket nor all of them make clients without end.
//!
//! This process enrols clients, others remove them: its counts may be too high, never too low. So a bound that seems to
//! be reached is believed only after the directory was counted again, which happens at most once in `RECOUNT_INTERVAL`.
//!
//! Not here: who is enrolled (`clients`), the uses that the maker of a ticket allowed (`limited`).

use crate::enrolment::{CLIENTS_MAX, Enrolment};
use std::collections::HashMap;
use std::time::{Duration, Instant};

/// Clients that may live by one ticket whose maker named no number. Bounds of what one client may hold count keys, and who
/// has a ticket can make keys.
pub const CLIENTS_OF_TICKET_MAX: usize = 1024;
/// Counting reads a file for each client.
const RECOUNT_INTERVAL: Duration = Duration::from_secs(10);

#[derive(Default)]
pub struct Census {
    counted: Option<Instant>,
    all: usize,
    /// Without a name: the endpoint's own ticket.
    by_ticket: HashMap<Option<String>, usize>,
}

/// Why no client is enrolled any more.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Crowded {
    Endpoint,
    Ticket,
}

impl Census {
    /// Whether one more client may live by this ticket. `visit` shows each client that is enrolled; nothing of one that
    /// cannot be read.
    pub fn check(
        &mut self,
        ticket: &Option<String>,
        of_ticket_max: usize,
        now: Instant,
        visit: impl FnOnce(&mut dyn FnMut(Option<Enrolment>)),
    ) -> Result<(), Crowded> {
        let may_count = self.counted.is_none_or(|counted| now.duration_since(counted) >= RECOUNT_INTERVAL);
        if may_count && (self.counted.is_none() || self.full(ticket, of_ticket_max).is_some()) {
            *self = Census { counted: Some(now), ..Census::default() };
            visit(&mut |client| self.count(client));
        }
        self.full(ticket, of_ticket_max).map_or(Ok(()), Err)
    }

    #[cfg(test)]
    pub fn full_at(counted: Instant) -> Census {
        Census { counted: Some(counted), all: CLIENTS_MAX, by_ticket: HashMap::new() }
    }

    /// A client lives by this ticket from now on; `is_new` where it was not enrolled before.
    pub fn add(&mut self, ticket: &Option<String>, is_new: bool) {
        self.all += usize::from(is_new);
        *self.by_ticket.entry(ticket.clone()).or_default() += 1;
    }

    fn count(&mut self, client: Option<Enrolment>) {
        match client {
            Some(client) => self.add(&client.ticket, true),
            None => self.all += 1,
        }
    }

    fn full(&self, ticket: &Option<String>, of_ticket_max: usize) -> Option<Crowded> {
        if self.all >= CLIENTS_MAX {
            return Some(Crowded::Endpoint);
        }
        (self.by_ticket.get(ticket).is_some_and(|clients| *clients >= of_ticket_max)).then_some(Crowded::Ticket)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn never(_: &mut dyn FnMut(Option<Enrolment>)) {
        unreachable!("not counted again")
    }

    #[test]
    fn a_bound_that_seems_reached_is_counted_again_and_not_too_often() {
        let [a, b] = ["a", "b"].map(|ticket| Some(ticket.to_owned()));
        let (pin, name, enrolled) = ("p".into(), "n".into(), "e".into());
        let (ticket, credential, manages_by) = (a.clone(), None, None);
        let client = Enrolment { pin, name, enrolled, may_write: true, ticket, credential, manages_by };
        let mut census = Census::default();
        let start = Instant::now();
        let late = start + RECOUNT_INTERVAL;
        let two = |see: &mut dyn FnMut(Option<Enrolment>)| (0..2).for_each(|_| see(Some(client.clone())));
        assert_eq!(census.check(&a, 3, start, two), Ok(()));
        census.add(&a, true);
        assert_eq!(census.check(&a, 3, start, never), Err(Crowded::Ticket));
        assert_eq!(census.check(&b, 3, start, never), Ok(()));
        // All were removed meanwhile.
        assert_eq!(census.check(&a, 3, late, |_| {}), Ok(()));
        assert_eq!(census.check(&a, 3, late, never), Ok(()));
    }

    #[test]
    fn a_full_endpoint_opens_again_when_clients_were_removed() {
        let start = Instant::now();
        let mut census = Census::full_at(start);
        assert_eq!(census.check(&None, 9, start, never), Err(Crowded::Endpoint));
        assert_eq!(census.check(&None, 9, start + RECOUNT_INTERVAL, |see| see(None)), Ok(()));
        assert_eq!(census.all, 1);
    }
}
