//! Who works on which bundle: claimed in pages, committed once, taken away from whoever is silent or late.
//!
//! Invariants:
//! - A claim has an epoch that no other ever has. Only a claim that holds its bundles commits them.
//! - A bundle is open, claimed once, done, or put aside after `OWNERS_MAX` owners lost it.
//! - The same commit said twice is one: whoever did not hear the answer asks again.

use crate::cut::Weight;
use model::mutant;
use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;

/// Owners that lose a bundle before it is put aside: it may be what they stumble over.
const OWNERS_MAX: u8 = 3;
/// Bundles in one page.
const PAGE_MAX: usize = 1024;
/// A claim is late when it takes so many times what it should, and at least `LATE_MIN_MS`.
const LATE_FACTOR: u64 = 4;
const LATE_MIN_MS: u64 = 30_000;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Epoch(u64);

/// What came of a commit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Commit {
    /// It counts, now or already.
    Done,
    /// Somebody else has the bundles, or had them since.
    Fenced,
    /// Nobody was given this epoch.
    Unknown,
}

/// Bundles that one host has.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Page<T> {
    pub epoch: Epoch,
    pub bundles: Vec<T>,
    pub weight: Weight,
}

#[derive(Clone)]
struct Item<T> {
    /// Until it is done.
    what: Option<T>,
    weight: Weight,
    owners_lost: u8,
}

#[derive(Clone)]
struct Claim {
    host: usize,
    items: Vec<usize>,
    weight: Weight,
    since_ms: u64,
    was_there: bool,
}

#[derive(Clone)]
pub struct Board<T> {
    items: Vec<Item<T>>,
    open: VecDeque<usize>,
    open_cost: u64,
    claims: BTreeMap<Epoch, Claim>,
    committed: std::collections::BTreeSet<Epoch>,
    last: u64,
    aside: usize,
    done: usize,
    /// What committed claims cost, and the time that they took; without those of which everything was there already.
    cost_done: u64,
    claim_ms: u64,
    is_complete: bool,
}

impl<T> Default for Board<T> {
    fn default() -> Board<T> {
        Board {
            items: Vec::new(),
            open: VecDeque::new(),
            open_cost: 0,
            claims: BTreeMap::new(),
            committed: Default::default(),
            last: 0,
            aside: 0,
            done: 0,
            cost_done: 0,
            claim_ms: 0,
            is_complete: false,
        }
    }
}

impl<T: Clone> Board<T> {
    pub fn add(&mut self, what: T, weight: Weight) {
        self.open.push_back(self.items.len());
        self.open_cost = self.open_cost.saturating_add(weight.cost());
        self.items.push(Item { what: Some(what), weight, owners_lost: 0 });
    }

    /// Nothing more is added.
    pub fn complete(&mut self) {
        self.is_complete = true;
    }

    /// A page for a host, worth `cost.end` at most, but one bundle at least; near the end no more than its share, so that hosts end
    /// together, unless that is less than `cost.start`. `fits` is asked before each bundle after the first.
    pub fn claim(
        &mut self,
        host: usize,
        (claimants, cost): (usize, Range<u64>),
        now_ms: u64,
        fits: &mut dyn FnMut(&T) -> bool,
    ) -> Option<Page<T>> {
        let share = self.open_cost / (2 * claimants.max(1)) as u64;
        let cost_max = share.max(cost.start).min(cost.end);
        let (mut items, mut weight, mut bundles) = (Vec::new(), Weight::default(), Vec::new());
        while let Some(&next) = self.open.front() {
            let item = &self.items[next];
            let mut with = weight;
            with.add(item.weight);
            let what = item.what.as_ref().expect("open bundles are there");
            // What was lost goes alone: it must not take others with it.
            let is_apart =
                item.owners_lost > 0 || items.first().is_some_and(|first: &usize| self.items[*first].owners_lost > 0);
            let is_enough = items.len() >= PAGE_MAX || with.cost() > cost_max || is_apart;
            if !fits(what) && !items.is_empty() || !items.is_empty() && is_enough {
                break;
            }
            self.open_cost = self.open_cost.saturating_sub(item.weight.cost());
            bundles.push(what.clone());
            (weight, items) = (with, [items, vec![next]].concat());
            self.open.pop_front();
        }
        if items.is_empty() {
            return None;
        }
        self.last += 1;
        let epoch = Epoch(self.last);
        self.claims.insert(epoch, Claim { host, items, weight, since_ms: now_ms, was_there: false });
        Some(Page { epoch, bundles, weight })
    }

    /// Whether a claim still holds its bundles.
    pub fn holds(&self, epoch: Epoch) -> bool {
        self.claims.contains_key(&epoch)
    }

    /// Takes its bundles away from a claim: its host is gone, silent or late. False when it has none.
    pub fn lose(&mut self, epoch: Epoch) -> bool {
        self.take_away(epoch, 1)
    }

    /// The same where nobody has begun with them: they are not what anybody stumbled over.
    pub fn give_back(&mut self, epoch: Epoch) -> bool {
        self.take_away(epoch, 0)
    }

    fn take_away(&mut self, epoch: Epoch, owners_lost: u8) -> bool {
        let claim = match mutant::is_on("steal-keeps-epoch") {
            true => self.claims.get(&epoch).cloned(),
            false => self.claims.remove(&epoch),
        };
        let Some(claim) = claim else { return false };
        for number in claim.items.into_iter().rev() {
            let item = &mut self.items[number];
            item.owners_lost += owners_lost;
            if item.owners_lost >= OWNERS_MAX {
                self.aside += 1;
                item.what = None;
            } else if item.what.is_some() {
                self.open.push_front(number);
                self.open_cost = self.open_cost.saturating_add(item.weight.cost());
            }
        }
        true
    }

    /// The claim of another host that has taken longest for what it is, if that is too long.
    pub fn late(&self, host: usize, now_ms: u64) -> Option<Epoch> {
        if !self.open.is_empty() || self.cost_done == 0 {
            return None;
        }
        let expected = |claim: &Claim| {
            (u128::from(claim.weight.cost()) * u128::from(self.claim_ms) / u128::from(self.cost_done)) as u64
        };
        let is_late = |claim: &&Claim| {
            let patience = LATE_MIN_MS.max(expected(claim).saturating_mul(LATE_FACTOR));
            claim.host != host && now_ms.saturating_sub(claim.since_ms) > patience
        };
        let late = self.claims.iter().filter(|(_, claim)| is_late(claim));
        late.min_by_key(|(_, claim)| claim.since_ms).map(|(epoch, _)| *epoch)
    }

    /// Of a claim of which everything was there already: it does not say how long others take.
    pub fn was_there(&mut self, epoch: Epoch) {
        if let Some(claim) = self.claims.get_mut(&epoch) {
            claim.was_there = true;
        }
    }

    pub fn commit(&mut self, epoch: Epoch, now_ms: u64) -> Commit {
        if epoch.0 == 0 || epoch.0 > self.last {
            return Commit::Unknown;
        }
        if self.committed.contains(&epoch) {
            return Commit::Done;
        }
        let Some(claim) = self.claims.remove(&epoch) else {
            return if mutant::is_on("commit-without-epoch") { Commit::Done } else { Commit::Fenced };
        };
        self.committed.insert(epoch);
        if !claim.was_there {
            self.cost_done = self.cost_done.saturating_add(claim.weight.cost());
            self.claim_ms = self.claim_ms.saturating_add(now_ms.saturating_sub(claim.since_ms));
        }
        for number in claim.items {
            self.done += 1;
            self.items[number].what = None;
        }
        Commit::Done
    }

    /// Everything is done or put aside.
    pub fn is_over(&self) -> bool {
        self.is_complete && self.open.is_empty() && self.claims.is_empty()
    }

    /// Bundles that wait, and all there are, those done, and those put aside.
    pub fn counts(&self) -> Counts {
        Counts { open: self.open.len(), all: self.items.len(), done: self.done, aside: self.aside }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Counts {
    pub open: usize,
    pub all: usize,
    pub done: usize,
    pub aside: usize,
}

#[cfg(test)]
mod tests;
