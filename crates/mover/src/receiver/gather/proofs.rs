//! What a catalogue tells of the objects that it lists: the digests of their chunks, known before anything is asked of anybody.
//!
//! Not here: where the catalogue comes from, and why it is believed.

use super::book::Book;
use super::keys::Keys;
use model::{Digest, Name};
use std::collections::HashMap;
use std::hash::RandomState;
use std::sync::Arc;

/// A catalogue, by the numbers of its files.
pub trait Proofs: Send + Sync {
    /// The path of each file, in the order of their numbers.
    fn paths(&self, each: &mut dyn FnMut(&[u8]));

    /// Digests of chunks of a file; of one that has a single chunk the file's.
    fn digests(&self, file: usize, first: u64, count: u64) -> Vec<Digest>;
}

pub struct Told {
    proofs: Arc<dyn Proofs>,
    numbers: HashMap<u64, usize>,
}

impl Told {
    pub fn new(proofs: Arc<dyn Proofs>, key: &RandomState) -> Told {
        let mut numbers = HashMap::new();
        let mut number = 0;
        proofs.paths(&mut |path| {
            let names: Result<Vec<Name>, _> = path.split(|byte| *byte == b'/').map(Name::new).collect();
            if let Ok(names) = names {
                numbers.insert(Keys::of_path(key, &names), number);
            }
            number += 1;
        });
        Told { proofs, numbers }
    }

    pub fn tell(&self, book: &mut Book, id: u64, first: u64, count: u64) {
        let file = book.key(id).and_then(|key| self.numbers.get(&key));
        let digests = file.map(|file| self.proofs.digests(*file, first, count));
        book.told(id, &digests.unwrap_or_default());
    }
}
