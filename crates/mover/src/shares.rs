//! Shares of what an endpoint has for its clients: places for sessions, jobs, questions and connections, bytes of memory.
//!
//! A tree of accounts: the endpoint, its clients (a client is a ticket with all keys enrolled by it), their keys. A key may grow
//! while it holds less than a multiple of what its client has left, a client while it holds less than a multiple of what the
//! endpoint has left (dynamic thresholds: Choudhury and Hahne, 1998). Whoever is alone gets most of it; the more others hold,
//! the less each may; and a part always stays free for who holds nothing yet.
//!
//! Invariants: what is held is never more than the capacity; what holds nothing has no account; nothing here waits.
//!
//! Values without a clock, and one lock around them for places. Not here: who makes room for whom (`session::server`).

use model::{Pin, mutant};
use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What a client that is alone leaves free for others: one part in 1 + 4 of everything.
const OF_CLIENT: i128 = 4;
/// What a key that is alone leaves free for other keys of its client: one part in 1 + 8 of what the client may have.
const OF_KEY: i128 = 8;
/// What gets somebody started may take half of what is left free otherwise.
const FIRST: i128 = 2;
/// Nobody gives anything back because others come: so that many clients, one after the other, leave no crumbs to the last,
/// this part of everything is for clients that hold no more than the second part.
const RESERVE: i128 = 8;
const MODEST: i128 = 64;

/// Who holds something: a client, and which of its keys.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Holder {
    /// The ticket by which it lives; all of its keys have one account.
    pub client: Arc<str>,
    pub key: Pin,
    /// What the endpoint calls this key.
    pub name: Arc<str>,
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "client '{}' (ticket {})", model::name::Escaped(self.name.as_bytes()), self.client)
    }
}

/// Whose share is used up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Level {
    Endpoint,
    Client,
    Key,
}

/// Why nothing more is given.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Full {
    pub level: Level,
    /// What that account holds.
    pub held: u64,
    /// It holds all that anybody holds: nobody else's end would help.
    pub is_alone: bool,
}

impl Full {
    /// Whose share is used up, as a refusal says it; `held` is such as "12 sessions".
    pub fn text(&self, holder: &Holder, held: &str) -> String {
        match self.level {
            Level::Endpoint => format!("this endpoint holds {held}, as much as it is allowed"),
            Level::Client => {
                let ticket = &holder.client;
                format!("the clients of ticket {ticket} together have {held} here, as much as they are allowed")
            }
            Level::Key => format!("{holder} has {held} here, as much as it is allowed"),
        }
    }
}

/// Accounts of one thing that can be counted.
pub struct Shares {
    capacity: u64,
    /// What one key may have in any case.
    key_max: u64,
    held: u64,
    clients: HashMap<Arc<str>, OfClient>,
}

#[derive(Default)]
struct OfClient {
    held: u64,
    keys: HashMap<Pin, u64>,
}

impl Shares {
    pub fn new(capacity: u64, key_max: u64) -> Shares {
        Shares { capacity, key_max, held: 0, clients: HashMap::new() }
    }

    pub fn capacity(&self) -> u64 {
        self.capacity
    }

    pub fn held(&self) -> u64 {
        self.held
    }

    pub fn free(&self) -> u64 {
        self.capacity - self.held
    }

    /// What a client and a key of it hold.
    pub fn of(&self, client: &str, key: Pin) -> (u64, u64) {
        let client = self.clients.get(client);
        client.map_or((0, 0), |of| (of.held, of.keys.get(&key).copied().unwrap_or(0)))
    }

    /// Gives `amount` to a holder; without one only the capacity counts. `is_first` is what gets somebody started.
    ///
    /// # Errors
    /// When the holder's share is used up; nothing has changed then.
    pub fn take(&mut self, holder: Option<&Holder>, amount: u64, is_first: bool) -> Result<(), Full> {
        if let Some(holder) = holder {
            self.check(holder, amount, is_first)?;
        }
        if amount > self.free() {
            return Err(Full { level: Level::Endpoint, held: self.held, is_alone: holder.is_none() });
        }
        self.held += amount;
        if let Some(holder) = holder {
            let of = self.clients.entry(holder.client.clone()).or_default();
            of.held += amount;
            *of.keys.entry(holder.key).or_default() += amount;
        }
        Ok(())
    }

    fn check(&self, holder: &Holder, amount: u64, is_first: bool) -> Result<(), Full> {
        let (of_client, of_key) = self.of(&holder.client, holder.key);
        let full = |level, held| Full { level, held, is_alone: of_key == self.held };
        if of_key.saturating_add(amount) > self.key_max {
            return Err(full(Level::Key, of_key));
        }
        if mutant::is_on("no-share-for-others") {
            return Ok(());
        }
        let eager = if is_first { FIRST } else { 1 };
        let [capacity, held, of_client, of_key] = [self.capacity, self.held, of_client, of_key].map(i128::from);
        if of_client == 0 || of_client + i128::from(amount) <= capacity / MODEST {
            return Ok(());
        }
        if capacity - held - i128::from(amount) < capacity / (RESERVE * eager) {
            return Err(full(Level::Endpoint, held as u64));
        }
        // What the client has while it holds less than `alpha` times what is free, others as they are: alpha / (1 + alpha) of
        // what others leave. Everything is multiplied by 1 + alpha.
        let alpha = OF_CLIENT * eager;
        let left_of_client = alpha * (capacity - (held - of_client)) - (1 + alpha) * of_client;
        if of_client >= alpha * (capacity - held) || left_of_client <= 0 {
            return Err(full(Level::Client, of_client as u64));
        }
        if of_key > 0 && of_key * (1 + alpha) >= OF_KEY * eager * left_of_client {
            return Err(full(Level::Key, of_key as u64));
        }
        Ok(())
    }

    /// Takes back what was given.
    pub fn give(&mut self, holder: Option<&Holder>, amount: u64) {
        self.held -= amount;
        let Some(holder) = holder else { return };
        let Some(of) = self.clients.get_mut(&holder.client) else { return };
        of.held -= amount;
        if let Some(of_key) = of.keys.get_mut(&holder.key) {
            *of_key -= amount;
            if *of_key == 0 {
                of.keys.remove(&holder.key);
            }
        }
        if of.held == 0 && of.keys.is_empty() {
            self.clients.remove(&holder.client);
        }
    }
}

/// Places that are given back when they are dropped.
#[derive(Clone)]
pub struct Places(Arc<Mutex<Shares>>);

impl Places {
    pub fn new(places: usize, of_key: usize) -> Places {
        Places(Arc::new(Mutex::new(Shares::new(places as u64, of_key as u64))))
    }

    pub fn enter(&self, holder: &Holder) -> Result<Place, Full> {
        self.lock().take(Some(holder), 1, false)?;
        Ok(Place { places: self.clone(), holder: holder.clone() })
    }

    /// How many a key has.
    pub fn of_key(&self, holder: &Holder) -> u64 {
        self.lock().of(&holder.client, holder.key).1
    }

    /// Holds counts only, which are right after each statement: a panic elsewhere does not harm them.
    fn lock(&self) -> MutexGuard<'_, Shares> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One place.
pub struct Place {
    places: Places,
    holder: Holder,
}

impl Drop for Place {
    fn drop(&mut self) {
        self.places.lock().give(Some(&self.holder), 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn holder(client: &str, key: u16) -> Holder {
        let mut pin = [0; 32];
        pin[..2].copy_from_slice(&key.to_be_bytes());
        Holder { client: client.into(), key: Pin(pin), name: "n".into() }
    }

    /// Takes one by one as long as anything is given.
    fn greedy(shares: &mut Shares, holder: &Holder) -> u64 {
        let mut taken = 0;
        while shares.take(Some(holder), 1, false).is_ok() {
            taken += 1;
        }
        taken
    }

    #[test]
    fn who_is_alone_gets_most_and_a_share_stays_free_for_others() {
        let mut shares = Shares::new(1000, u64::MAX);
        let alone = greedy(&mut shares, &holder("a", 1));
        assert!((700..=720).contains(&alone), "{alone}");
        // Another key of the same client, and another client, find something at once.
        assert!(greedy(&mut shares, &holder("a", 2)) > 50);
        assert!(greedy(&mut shares, &holder("b", 1)) > 60);
        // However many keys of one ticket are greedy, a fifth is left for other clients.
        let mut shares = Shares::new(1000, u64::MAX);
        (0..1024).for_each(|key| _ = greedy(&mut shares, &holder("a", key)));
        assert!((195..=201).contains(&shares.free()), "{}", shares.free());
        assert!(greedy(&mut shares, &holder("b", 1)) > 60);
    }

    #[test]
    fn after_many_greedy_clients_the_next_one_still_starts() {
        let mut shares = Shares::new(4096, u64::MAX);
        let taken: Vec<_> = (0..8).map(|client| greedy(&mut shares, &holder(&format!("c{client}"), 1))).collect();
        // A sixty-fourth at least for each of eight, whoever came before them.
        assert!(taken.iter().all(|taken| *taken >= 64), "{taken:?}");
        assert!(shares.take(Some(&holder("small", 1)), 1, false).is_ok(), "{taken:?}");
    }

    #[test]
    fn a_refusal_says_whose_share_is_used_up_and_all_comes_back() {
        let mut shares = Shares::new(100, 10);
        let (one, other) = (holder("a", 1), holder("a", 2));
        assert_eq!(greedy(&mut shares, &one), 10);
        let full = shares.take(Some(&one), 1, false).unwrap_err();
        assert_eq!(full, Full { level: Level::Key, held: 10, is_alone: true });
        assert_eq!(
            full.text(&one, "10 sessions"),
            "client 'n' (ticket a) has 10 sessions here, as much as it is allowed"
        );
        (2..40).for_each(|key| _ = greedy(&mut shares, &holder("a", key)));
        let full = shares.take(Some(&holder("a", 99)), 1, false).unwrap_err();
        assert_eq!((full.level, full.is_alone), (Level::Client, false));
        assert_eq!(shares.take(Some(&holder("b", 1)), 11, false).unwrap_err().level, Level::Key);
        (0..10).for_each(|_| shares.give(Some(&one), 1));
        assert_eq!(shares.of("a", one.key), (shares.of("a", other.key).0, 0));
        for key in 2..40 {
            let (_, held) = shares.of("a", holder("a", key).key);
            shares.give(Some(&holder("a", key)), held);
        }
        assert_eq!((shares.free(), shares.clients.len()), (100, 0));
    }

    #[test]
    fn places_come_back_when_dropped() {
        let places = Places::new(10, 2);
        let one = holder("a", 1);
        let held = [(); 2].map(|()| places.enter(&one).unwrap());
        assert_eq!(places.enter(&one).err().unwrap().level, Level::Key);
        drop(held);
        assert_eq!(places.of_key(&one), 0);
    }

    /// A key that holds nothing is not let in by the rules alone: the capacity counts too.
    #[test]
    fn the_capacity_holds_for_everybody() {
        let mut shares = Shares::new(2, u64::MAX);
        assert!(shares.take(Some(&holder("a", 1)), 3, true).is_err());
        shares.take(Some(&holder("a", 1)), 1, true).unwrap();
        shares.take(Some(&holder("b", 1)), 1, true).unwrap();
        assert_eq!(shares.take(Some(&holder("c", 1)), 1, true).unwrap_err().level, Level::Endpoint);
        assert!(shares.take(None, 1, false).is_err());
    }
}
