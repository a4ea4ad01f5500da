//! The path of an object as a number, by which the listings of several holders are compared.
//!
//! A path is digested name by name under a key that no peer knows; a listing needs its directories alone to be remembered. What
//! the top of a listing is called does not count where the user named a file or a directory, because replicas may be called
//! differently; below it, names count.

use model::{Kind, Name, ObjectId};
use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use wire::listing::Described;

pub struct Keys {
    state: RandomState,
    has_name: bool,
    directories: HashMap<u64, u64>,
}

impl Keys {
    /// `path` as it was asked for. All listings that are compared have the same `state`.
    pub fn new(state: &RandomState, path: &[u8]) -> Keys {
        let is_contents = path.is_empty() || path == b"." || path.ends_with(b"/") || path.ends_with(b"/.");
        Keys { state: state.clone(), has_name: !is_contents, directories: HashMap::from([(ObjectId::ROOT.0, 0)]) }
    }

    /// The key of a path below the top of a listing whose top has no name.
    pub fn of_path(state: &RandomState, names: &[Name]) -> u64 {
        names.iter().fold(0, |above: u64, name| state.hash_one((&above, name)))
    }

    /// Remembers a directory.
    pub fn note(&mut self, described: &Described) {
        if let Described::Entry { entry, .. } = described
            && entry.kind == Kind::Directory
        {
            let key = self.of(entry.parent, &entry.name);
            self.directories.insert(entry.id.0, key);
        }
    }

    pub fn of(&self, parent: ObjectId, name: &Name) -> u64 {
        match self.directories.get(&parent.0) {
            Some(_) if parent == ObjectId::ROOT && self.has_name => 1,
            Some(above) => self.state.hash_one((above, name)),
            // Its directory was refused: nothing is the same as it.
            None => self.state.hash_one((parent, name, "orphan")),
        }
    }
}
