//! What the sender told of, by name: the rest is what the source does not have.
//!
//! Memory: eight bytes for each object of the job, and once more for each name with letters in upper case. Two names whose keyed
//! hashes are the same only spare one more object.

use model::{Name, ObjectId};
use os::sync::Mutex;
use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher, RandomState};

/// Names that are remembered: 16 million, about 300 MiB. A job with more removes nothing.
const NAMES_MAX: usize = 16 << 20;

/// What the sender told of.
#[derive(Default)]
pub struct Census {
    hasher: RandomState,
    known: Mutex<Known>,
}

#[derive(Default)]
struct Known {
    names: HashSet<u64>,
    /// Hashes of names in lower case that are no names themselves.
    alike: HashSet<u64>,
    /// Hashes of the paths of directories, by their ids.
    directories: HashMap<u64, u64>,
    /// Something could not be listed, or there was too much to remember.
    has_gaps: bool,
}

impl Census {
    fn hash(&self, above: u64, name: &[u8]) -> u64 {
        self.hasher.hash_one((above, name))
    }

    /// Notes a name; `directory` is the id of the object if it is one.
    pub fn note(&self, parent: ObjectId, name: &Name, directory: Option<ObjectId>) {
        let mut known = self.known.lock().unwrap();
        let above = known.directories.get(&parent.0).copied().unwrap_or(0);
        let hash = self.hash(above, name.as_bytes());
        known.insert(hash);
        if let Some(lower) = lower(name.as_bytes()) {
            let hash = self.hash(above, &lower);
            known.insert_alike(hash);
        }
        if let Some(id) = directory {
            known.directories.insert(id.0, hash);
        }
    }

    /// Notes what is at the source and not copied.
    pub fn note_path(&self, path: &[u8]) {
        let parts = path.split(|b| *b == b'/').filter(|part| !part.is_empty());
        let hash = parts.fold(0, |above, name| self.hash(above, name));
        self.known.lock().unwrap().insert(hash);
    }

    /// The listing is not whole, or more than can be remembered.
    pub fn has_gaps(&self) -> bool {
        self.known.lock().unwrap().has_gaps
    }

    /// The source could not list something.
    pub fn note_gap(&self) {
        self.known.lock().unwrap().has_gaps = true;
    }

    pub fn is_listed(&self, directory: ObjectId, name: &Name) -> bool {
        let known = self.known.lock().unwrap();
        let Some(above) = known.above(directory) else { return true };
        known.names.contains(&self.hash(above, name.as_bytes()))
    }

    /// The same, where upper and lower case make no difference.
    pub fn is_listed_alike(&self, directory: ObjectId, name: &Name) -> bool {
        let known = self.known.lock().unwrap();
        let Some(above) = known.above(directory) else { return true };
        let lower = lower(name.as_bytes()).unwrap_or_else(|| name.as_bytes().to_vec());
        let hash = self.hash(above, &lower);
        known.names.contains(&hash) || known.alike.contains(&hash)
    }
}

/// The name in lower case, if that is another.
fn lower(name: &[u8]) -> Option<Vec<u8>> {
    Some(store::lower(name)).filter(|lower| lower != name)
}

impl Known {
    fn insert(&mut self, hash: u64) {
        if self.names.len() < NAMES_MAX {
            self.names.insert(hash);
        } else {
            self.has_gaps = true;
        }
    }

    fn insert_alike(&mut self, hash: u64) {
        if self.alike.len() < NAMES_MAX {
            self.alike.insert(hash);
        } else {
            self.has_gaps = true;
        }
    }

    /// Nothing is known about a directory that was never described.
    fn above(&self, directory: ObjectId) -> Option<u64> {
        let root = (directory == ObjectId::ROOT).then_some(0);
        self.directories.get(&directory.0).copied().or(root)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> Name {
        Name::new(text.as_bytes()).unwrap()
    }

    #[test]
    fn a_name_is_known_in_its_directory_only() {
        let census = Census::default();
        census.note(ObjectId::ROOT, &name("d"), Some(ObjectId(1)));
        census.note(ObjectId(1), &name("f"), None);
        census.note_path(b"d/socket");
        assert!(census.is_listed(ObjectId::ROOT, &name("d")) && census.is_listed(ObjectId(1), &name("f")));
        assert!(census.is_listed(ObjectId(1), &name("socket")));
        assert!(!census.is_listed(ObjectId::ROOT, &name("f")) && !census.is_listed(ObjectId(1), &name("d")));
        assert!(census.is_listed(ObjectId(7), &name("x")), "nothing is known of that directory");
        assert!(!census.has_gaps());
    }

    #[test]
    fn a_name_is_known_in_another_case_where_that_is_asked() {
        let census = Census::default();
        census.note(ObjectId::ROOT, &name("Bild.JPG"), None);
        census.note(ObjectId::ROOT, &name("d"), Some(ObjectId(1)));
        let is_alike = |text: &str| census.is_listed_alike(ObjectId::ROOT, &name(text));
        assert!(is_alike("bild.jpg") && is_alike("BILD.JPG") && is_alike("Bild.JPG") && is_alike("D"));
        assert!(!is_alike("bild") && !census.is_listed(ObjectId::ROOT, &name("bild.jpg")));
        assert!(!census.is_listed_alike(ObjectId(1), &name("bild.jpg")));
    }
}
