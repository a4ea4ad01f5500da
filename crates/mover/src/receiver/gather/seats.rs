//! The holders of one job as its book sees them: who is there, how fast, what was asked of each and what came of it.
//!
//! Pure.

use crate::memory::Permit;
use model::{Name, Timestamp};
use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::Arc;

/// The holder whose content is the one that counts.
pub const LEAD: usize = 0;
/// A holder whose chunks were found to be other content this often brings nothing more.
pub const BAD_CHUNKS_MAX: u64 = 3;
/// What a small file costs beside its bytes, so that many empty ones are not asked for at once.
pub const FILE_COST_BYTES: u64 = 1024;
/// Asked of a holder before its rate is known, and at least, in chunks.
const CHUNKS_FIRST: u64 = 3;
const CHUNKS_MIN: u64 = 2;
/// Asked of one holder and not here yet: 21 Gbit/s at 200 ms (docs/limits.md). It takes no memory but the book's.
const WANTED_BYTES_MAX: u64 = 512 << 20;

/// What a holder says that it has.
pub struct Offer {
    /// By its own number.
    pub theirs: u64,
    pub name: Name,
    pub size_bytes: u64,
    pub modified: Timestamp,
    /// What its description takes.
    pub _charge: Option<Arc<Permit>>,
}

/// What came of a holder.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Of content that counted.
    pub bytes: u64,
    pub files: u64,
    /// Chunks and small files with other content than the lead's.
    pub bad_chunks: u64,
    /// Files of which it has another version, and the first of them.
    pub differing: u64,
    pub difference: Option<String>,
    /// Why it brings nothing more.
    pub dropped: Option<String>,
    /// And it is not to come back.
    pub is_for_good: bool,
}

impl Tally {
    /// Adds what came of a later attempt.
    pub fn add(&mut self, later: Tally) {
        self.bytes += later.bytes;
        self.files += later.files;
        self.bad_chunks += later.bad_chunks;
        self.differing = self.differing.max(later.differing);
        self.difference = later.difference.or(self.difference.take());
        (self.dropped, self.is_for_good) = (later.dropped, later.is_for_good);
    }
}

#[derive(Default)]
pub struct Seat {
    pub is_here: bool,
    /// What it brings is compared with nothing: it leads.
    pub is_trusted: bool,
    /// It has described everything that it has.
    pub has_listed: bool,
    /// It is not to come back.
    pub is_dropped: bool,
    /// What it offers and the lead has not described yet, by the lead's keys, and those by its own numbers.
    pub waiting: HashMap<u64, Offer>,
    pub waiting_keys: HashMap<u64, u64>,
    /// The lead's numbers by its own.
    pub ids: HashMap<u64, u64>,
    /// Small files that it has, some of which are over.
    pub queue: VecDeque<u64>,
    /// Large objects that it has and of which something may be asked.
    pub large: BTreeSet<u64>,
    /// Small files that it was asked for.
    pub small: BTreeSet<u64>,
    pub asked_bytes: u64,
    /// Bytes a second, as measured while something was asked of it.
    pub rate: f64,
    pub moved_bytes: u64,
    pub moved_at_us: u64,
    /// When it last described or brought something, or had nothing to say or to bring.
    pub stirred_at_us: u64,
    pub looked_at_us: u64,
    pub tally: Tally,
}

impl Seat {
    /// An offer waits for the lead's word. Returns the one that it takes the place of.
    pub fn wait(&mut self, key: u64, offer: Offer) -> Option<Offer> {
        self.waiting_keys.insert(offer.theirs, key);
        let before = self.waiting.insert(key, offer)?;
        self.waiting_keys.remove(&before.theirs);
        Some(before)
    }

    /// It waits no longer.
    pub fn take_waiting(&mut self, key: u64) -> Option<Offer> {
        let offer = self.waiting.remove(&key)?;
        self.waiting_keys.remove(&offer.theirs);
        Some(offer)
    }

    /// The holder takes an offer back that waits. False if none does under this number.
    pub fn take_back(&mut self, theirs: u64) -> bool {
        self.waiting_keys.remove(&theirs).is_some_and(|key| self.waiting.remove(&key).is_some())
    }

    /// None waits any longer. Returns their numbers.
    pub fn end_waiting(&mut self) -> Vec<u64> {
        self.waiting.clear();
        self.waiting_keys.drain().map(|(theirs, _)| theirs).collect()
    }

    /// It has something to say or to bring.
    pub fn is_busy(&self) -> bool {
        self.is_here && (!self.has_listed || self.asked_bytes > 0)
    }

    /// What is to be asked of it now beyond what is: a second's worth, so that two round trips are covered on any path.
    pub fn room(&self, chunk_bytes: u64) -> u64 {
        let wanted = match self.rate > 0.0 {
            // Whoever has to prove what it brings is asked for little before something of it counted.
            _ if !self.is_trusted && self.tally.bytes == 0 => chunk_bytes,
            true => (self.rate as u64).clamp(CHUNKS_MIN * chunk_bytes, WANTED_BYTES_MAX.max(CHUNKS_MIN * chunk_bytes)),
            false => CHUNKS_FIRST * chunk_bytes,
        };
        // Not for every file that came: what is asked for fills a message.
        let is_asked_enough = self.asked_bytes > wanted / 4 * 3;
        if self.is_here && !is_asked_enough { wanted - self.asked_bytes.min(wanted) } else { 0 }
    }

    /// How long it will take, in seconds, for what it was asked and so much more.
    pub fn seconds_for(&self, bytes: u64) -> f64 {
        if self.rate > 0.0 { (self.asked_bytes + bytes) as f64 / self.rate } else { 0.0 }
    }

    /// Measures its rate.
    pub fn look(&mut self, now_us: u64, moved_bytes: u64) {
        let span_us = now_us.saturating_sub(self.looked_at_us);
        if span_us < 200_000 {
            return;
        }
        let moved = moved_bytes.saturating_sub(self.moved_bytes);
        if self.asked_bytes > 0 || moved > 0 {
            let rate = moved as f64 * 1e6 / span_us as f64;
            self.rate = if self.rate == 0.0 { rate } else { 0.6 * self.rate + 0.4 * rate };
        }
        if moved > 0 || self.asked_bytes == 0 {
            self.moved_at_us = now_us;
        }
        if moved > 0 || !self.is_busy() {
            self.stirred_at_us = now_us;
        }
        (self.looked_at_us, self.moved_bytes) = (now_us, moved_bytes);
    }
}
