//! Who brings what of a large object: which extents each job that feeds it was asked for, and which of the jobs said that they
//! read one version of the source.
//!
//! Invariants:
//! - An extent is asked for of one feeder at a time.
//! - What a feeder that left was asked for is open to the others; so is what came of a feeder and was refused, also while it
//!   sends that again.
//! - The object is sealed when every feeder that brought something of it, and is still there, has sealed it. What was proved needs no
//!   seal.
//!
//! Not here: what is held (`large`), and which jobs meet at one object.

use model::{Extent, ExtentSet};
use std::collections::BTreeMap;

#[derive(Default)]
pub struct Feeders {
    next: u32,
    there: BTreeMap<u32, Feeder>,
    /// Something came whose digest the source itself had told: the size of the version that it is of.
    proved_bytes: Option<u64>,
}

#[derive(Default)]
struct Feeder {
    asked: ExtentSet,
    /// What it brought last.
    brought: Option<Extent>,
    sealed_bytes: Option<u64>,
}

impl Feeders {
    pub fn join(&mut self) -> u32 {
        self.next += 1;
        self.there.insert(self.next, Feeder::default());
        self.next
    }

    pub fn is_there(&self, feeder: u32) -> bool {
        self.there.contains_key(&feeder)
    }

    pub fn count(&self) -> usize {
        self.there.len()
    }

    /// What a feeder is asked for: of what is missing, the first `bytes_max` (whole chunks) that no feeder was asked for.
    pub fn claim(&mut self, feeder: u32, missing: &[Extent], bytes_max: u64) -> Vec<Extent> {
        let mut open = ExtentSet::new();
        missing.iter().for_each(|extent| _ = open.insert(*extent));
        self.there.values().flat_map(|other| other.asked.iter()).for_each(|asked| open.remove(asked));
        let mut left = bytes_max;
        let mut first = |extent: Extent| {
            let extent = Extent::new(extent.start, extent.end.min(extent.start.saturating_add(left)));
            left -= extent.length();
            extent
        };
        let claimed: Vec<_> = open.iter().map(&mut first).take_while(|extent| !extent.is_empty()).collect();
        if let Some(feeder) = self.there.get_mut(&feeder) {
            claimed.iter().for_each(|extent| _ = feeder.asked.insert(*extent));
        }
        claimed
    }

    /// Nobody is asked for an extent any more: it is held, or what came of it was refused.
    pub fn release(&mut self, extent: Extent) {
        self.there.values_mut().for_each(|feeder| feeder.asked.remove(extent));
    }

    pub fn brought(&mut self, feeder: u32, extent: Extent, sealed_bytes: Option<u64>) {
        self.release(extent);
        if let Some(feeder) = self.there.get_mut(&feeder) {
            feeder.brought = Some(extent);
            feeder.sealed_bytes = sealed_bytes.or(feeder.sealed_bytes);
        }
    }

    /// An extent came, from whomever, whose digest the source had told when it still was the version that was listed.
    pub fn proved(&mut self, extent: Extent, object_bytes: u64) {
        self.release(extent);
        self.proved_bytes = Some(object_bytes);
    }

    /// The size that the object was sealed with.
    pub fn sealed_bytes(&self) -> Option<u64> {
        let brought = self.there.values().filter(|feeder| feeder.brought.is_some());
        let mut sealed = brought.map(|feeder| feeder.sealed_bytes).chain(self.proved_bytes.map(Some));
        let first = sealed.next()??;
        sealed.all(|bytes| bytes == Some(first)).then_some(first)
    }

    /// Lets a feeder go. Returns what it brought last if it sealed nothing and others are there: that has to come again, from
    /// one of them, because only a sender can say that the source is still the one that was listed.
    pub fn leave(&mut self, feeder: u32) -> Option<Extent> {
        let gone = self.there.remove(&feeder)?;
        gone.brought.filter(|_| gone.sealed_bytes.is_none() && !self.there.is_empty())
    }

    /// Nothing that was brought is worth anything.
    pub fn start_over(&mut self) {
        self.there.values_mut().for_each(|feeder| *feeder = Feeder::default());
        self.proved_bytes = None;
    }
}
