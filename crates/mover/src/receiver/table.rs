//! What the receiver expects, by id: a value behind one lock that is held for the time of a lookup.
//!
//! Invariant: an object is handed to one lane at a time (small ones), and leaves the table when it is settled.

use super::write::Large;
use model::{Entry, Name, ObjectId};
use std::collections::BTreeMap;
use std::sync::Arc;
use store::PublishRule;

/// One object that is wanted.
#[derive(Debug)]
pub struct Expected {
    pub entry: Entry,
    pub rule: PublishRule,
}

/// A batch of the listing after it was decided; `None` for what is settled by the decision.
#[derive(Debug)]
pub struct Listed {
    pub first: u64,
    pub objects: Vec<Option<Expected>>,
}

impl Listed {
    /// # Panics
    /// For an object that was not wanted: lanes get indices only of those that were.
    pub fn expected(&self, index: usize) -> &Expected {
        self.objects[index].as_ref().expect("only wanted objects are handed out")
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Expected,
    /// In the hands of a lane.
    Receiving,
    Settled,
}

struct Held {
    listed: Arc<Listed>,
    states: Vec<State>,
    open: usize,
}

#[derive(Default)]
pub struct Table {
    batches: BTreeMap<u64, Held>,
    large: BTreeMap<u64, Arc<Large>>,
}

/// What the table knows of an id that a lane came upon.
pub enum Found {
    Small(Arc<Listed>, usize),
    Large(Arc<Large>),
    /// Settled, void, or in the hands of another lane: to be dropped.
    NotNow,
}

pub struct Slot {
    pub large: Option<Arc<Large>>,
}

impl Table {
    pub fn insert(&mut self, listed: Arc<Listed>, large: Vec<(u64, Arc<Large>)>) {
        let states: Vec<_> =
            listed.objects.iter().map(|o| if o.is_some() { State::Expected } else { State::Settled }).collect();
        let open = states.iter().filter(|s| **s == State::Expected).count();
        if open > 0 {
            self.batches.insert(listed.first, Held { listed, states, open });
        }
        self.large.extend(large);
    }

    fn find(&mut self, id: u64) -> Option<(&mut Held, usize)> {
        let (first, held) = self.batches.range_mut(..=id).next_back()?;
        let index = usize::try_from(id - first).ok().filter(|i| *i < held.states.len())?;
        Some((held, index))
    }

    /// Takes an object into a lane's hands.
    pub fn take(&mut self, id: u64) -> Found {
        if let Some(large) = self.large.get(&id) {
            return Found::Large(large.clone());
        }
        match self.find(id) {
            Some((held, index))
                if held.states[index] == State::Expected
                    || model::mutant::is_on("take-twice") && held.states[index] == State::Receiving =>
            {
                held.states[index] = State::Receiving;
                Found::Small(held.listed.clone(), index)
            }
            _ => Found::NotNow,
        }
    }

    /// A lane gives an object back: it will come again.
    pub fn expect_again(&mut self, id: u64) {
        if let Some((held, index)) = self.find(id)
            && held.states[index] == State::Receiving
        {
            held.states[index] = State::Expected;
        }
    }

    /// Marks an object settled; `None` when it was before.
    pub fn settle(&mut self, id: u64) -> Option<Slot> {
        let (held, index) = self.find(id)?;
        if std::mem::replace(&mut held.states[index], State::Settled) == State::Settled
            && !model::mutant::is_on("settle-twice")
        {
            return None;
        }
        held.open -= 1;
        if held.open == 0 {
            let first = held.listed.first;
            self.batches.remove(&first);
        }
        Some(Slot { large: self.large.remove(&id) })
    }

    /// Nothing is expected any more.
    pub fn is_empty(&self) -> bool {
        self.batches.is_empty()
    }

    /// The open object of this place, if there is one: what is described again takes its place.
    pub fn find_place(&self, parent: ObjectId, name: &Name) -> Option<u64> {
        let open = self.batches.values().flat_map(|held| {
            let states = held.states.iter().zip(&held.listed.objects);
            states.filter(|(state, _)| **state != State::Settled).filter_map(|(_, object)| object.as_ref())
        });
        let mut found = open.filter(|expected| expected.entry.parent == parent && expected.entry.name == *name);
        found.next().map(|expected| expected.entry.id.0)
    }

    pub fn large_objects(&self) -> Vec<Arc<Large>> {
        self.large.values().cloned().collect()
    }
}
