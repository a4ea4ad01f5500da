//! The jobs themselves, side by side, found by id and by nature.
//!
//! A million of them wait at a time: both indices hold places alone, four bytes each.
//!
//! Invariant: a job that `own_nature` named is found by its nature until it leaves, another one takes the nature, or `leave_nature`
//! was said. What a job is is changed only between `leave_nature` and `own_nature`.

use crate::job::Job;
use hashbrown::HashTable;
use model::JobId;
use std::hash::{BuildHasher, RandomState};

/// A job, and what its queue holds of it.
pub(crate) struct Entry {
    pub job: Job,
    pub share: usize,
    pub pair: usize,
    /// Eighths of slots.
    pub slots: u32,
    pub parked: u32,
    pub charged: f64,
    /// When it came into its state, or, where it waits at an executor, when that was last told in other words.
    pub since: u64,
    pub timer: Option<u64>,
    pub date: Option<i64>,
}

#[derive(Default)]
pub(crate) struct Book {
    entries: Vec<Option<Entry>>,
    /// Places of jobs that have left.
    free: Vec<u32>,
    ids: HashTable<u32>,
    natures: HashTable<u32>,
    hasher: RandomState,
}

impl Book {
    pub fn len(&self) -> usize {
        self.ids.len()
    }

    pub fn get(&self, id: &JobId) -> Option<&Entry> {
        self.entries[self.place(id)?].as_ref()
    }

    pub fn get_mut(&mut self, id: &JobId) -> Option<&mut Entry> {
        let place = self.place(id)?;
        self.entries[place].as_mut()
    }

    pub fn has(&self, id: &JobId) -> bool {
        self.place(id).is_some()
    }

    pub fn entries(&self) -> impl Iterator<Item = &Entry> {
        self.entries.iter().flatten()
    }

    /// In the place of one that has the same id.
    pub fn insert(&mut self, entry: Entry) {
        let id = entry.job.id;
        if let Some(place) = self.place(&id) {
            self.leave_nature(&id);
            self.entries[place] = Some(entry);
            return;
        }
        let place = self.free.pop().unwrap_or(self.entries.len() as u32);
        match self.entries.get_mut(place as usize) {
            Some(free) => *free = Some(entry),
            None => self.entries.push(Some(entry)),
        }
        let Book { entries, ids, hasher, .. } = self;
        let hash_of = |place: &u32| entries[*place as usize].as_ref().map_or(0, |entry| hasher.hash_one(entry.job.id));
        ids.insert_unique(hasher.hash_one(id), place, hash_of);
    }

    pub fn remove(&mut self, id: &JobId) -> Option<Entry> {
        self.leave_nature(id);
        let Book { entries, ids, hasher, .. } = self;
        let is_it = |place: &u32| entries[*place as usize].as_ref().is_some_and(|entry| entry.job.id == *id);
        let (place, _) = ids.find_entry(hasher.hash_one(id), is_it).ok()?.remove();
        let entry = self.entries[place as usize].take();
        match self.ids.is_empty() {
            // What a million took is given back once they are gone.
            true => *self = Book::default(),
            false => self.free.push(place),
        }
        entry
    }

    /// The job that owns a nature.
    pub fn of_nature(&self, nature: &[u8; 16]) -> Option<JobId> {
        let place = self.natures.find(self.hasher.hash_one(nature), |place| self.has_nature(*place, nature))?;
        self.entries[*place as usize].as_ref().map(|entry| entry.job.id)
    }

    /// The job is the one of its nature from now on.
    pub fn own_nature(&mut self, id: &JobId) {
        let Some(place) = self.place(id) else { return };
        let Some(nature) = self.entries[place].as_ref().map(|entry| entry.job.facts.nature) else { return };
        let Book { entries, natures, hasher, .. } = self;
        let of = |place: &u32| entries[*place as usize].as_ref().map(|entry| entry.job.facts.nature);
        let hash_of = |place: &u32| of(place).map_or(0, |nature| hasher.hash_one(nature));
        match natures.entry(hasher.hash_one(nature), |place| of(place) == Some(nature), hash_of) {
            hashbrown::hash_table::Entry::Occupied(mut owner) => *owner.get_mut() = place as u32,
            hashbrown::hash_table::Entry::Vacant(free) => drop(free.insert(place as u32)),
        }
    }

    pub fn leave_nature(&mut self, id: &JobId) {
        let Some(place) = self.place(id) else { return };
        let Some(nature) = self.entries[place].as_ref().map(|entry| entry.job.facts.nature) else { return };
        if let Ok(owner) = self.natures.find_entry(self.hasher.hash_one(nature), |other| *other == place as u32) {
            owner.remove();
        }
    }

    fn place(&self, id: &JobId) -> Option<usize> {
        let is_it = |place: &u32| self.entries[*place as usize].as_ref().is_some_and(|entry| entry.job.id == *id);
        self.ids.find(self.hasher.hash_one(id), is_it).map(|place| *place as usize)
    }

    fn has_nature(&self, place: u32, nature: &[u8; 16]) -> bool {
        self.entries[place as usize].as_ref().is_some_and(|entry| entry.job.facts.nature == *nature)
    }
}
