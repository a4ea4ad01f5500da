//! What was found, by where it lies: its number. One directory's names stand together, so that a look at one directory costs what is
//! in it.

use model::Name;
use std::collections::{BTreeMap, HashMap};

#[derive(Default)]
pub struct Places(HashMap<u64, BTreeMap<Name, u64>>);

impl Places {
    pub fn get(&self, (key, name): &(u64, Name)) -> Option<u64> {
        self.0.get(key)?.get(name).copied()
    }

    pub fn insert(&mut self, (key, name): (u64, Name), number: u64) {
        self.0.entry(key).or_default().insert(name, number);
    }

    pub fn remove(&mut self, key: u64, name: &Name) -> Option<u64> {
        let names = self.0.get_mut(&key)?;
        let number = names.remove(name);
        if names.is_empty() {
            self.0.remove(&key);
        }
        number
    }

    /// Removes a name that leads to this.
    pub fn remove_if(&mut self, place: &(u64, Name), number: u64) {
        if self.get(place) == Some(number) {
            self.remove(place.0, &place.1);
        }
    }

    pub fn names(&self, key: u64) -> impl Iterator<Item = &Name> {
        self.0.get(&key).into_iter().flat_map(BTreeMap::keys)
    }
}
