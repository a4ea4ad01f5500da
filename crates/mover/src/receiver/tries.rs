//! How often what a job wants was asked for again.
//!
//! Invariants:
//! - The chunks of a large object do not use up one another's tries, nor those of the object.
//! - What is remembered is bounded: of objects by those that are open, of chunks by `CHUNKS_MAX`.
//!
//! Not here: how many tries there are (`retry`).

use model::Extent;
use std::collections::{BTreeMap, HashMap};
use std::ops::RangeInclusive;

/// Chunks of a job that came damaged and have not come right since: no more than what every job is charged (`limits::JOB_BYTES`)
/// has room for. Chunks that come damaged now and then never meet it, however long their object is: each is sent again at once,
/// and forgotten when it is there. So many at the same time are of a host that damages everything.
pub const CHUNKS_MAX: usize = 4096;

#[derive(Default)]
pub struct Tries {
    objects: HashMap<u64, u32>,
    /// By object and start.
    chunks: BTreeMap<(u64, u64), u32>,
}

impl Tries {
    /// One more of an object, or of the chunk of it that starts there. Nothing where too many chunks are waited for.
    pub fn add(&mut self, id: u64, chunk: Option<u64>) -> Option<u32> {
        let is_full = self.chunks.len() >= CHUNKS_MAX;
        let tries = match chunk {
            None => self.objects.entry(id).or_default(),
            Some(start) if is_full => self.chunks.get_mut(&(id, start))?,
            Some(start) => self.chunks.entry((id, start)).or_default(),
        };
        *tries += 1;
        Some(*tries)
    }

    /// A chunk is there. What grows comes again in other pieces than it came damaged in.
    pub fn came(&mut self, id: u64, extent: Extent) {
        self.forget((id, extent.start)..=(id, extent.end.saturating_sub(1).max(extent.start)));
    }

    /// Objects came to their end.
    pub fn ended(&mut self, ids: impl Iterator<Item = u64>) {
        if self.is_empty() {
            return;
        }
        for id in ids {
            self.objects.remove(&id);
            self.forget((id, 0)..=(id, u64::MAX));
        }
    }

    fn forget(&mut self, chunks: RangeInclusive<(u64, u64)>) {
        while let Some(chunk) = self.chunks.range(chunks.clone()).next().map(|(chunk, _)| *chunk) {
            self.chunks.remove(&chunk);
        }
    }

    pub fn is_empty(&self) -> bool {
        self.objects.is_empty() && self.chunks.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tries_are_counted_apart_until_the_chunk_came_or_the_object_ended() {
        let mut tries = Tries::default();
        assert_eq!([None, Some(0), Some(8), Some(8), None].map(|chunk| tries.add(1, chunk)), [1, 1, 1, 2, 2].map(Some));
        tries.came(1, Extent::new(8, 16));
        assert_eq!((tries.add(1, Some(8)), tries.add(1, Some(0))), (Some(1), Some(2)));
        assert_eq!((tries.add(2, Some(8)), tries.add(2, None)), (Some(1), Some(1)));
        tries.ended([1].into_iter());
        assert_eq!((tries.add(1, None), tries.add(2, Some(8))), (Some(1), Some(2)));
        tries.ended([1, 2, 3].into_iter());
        assert!(tries.is_empty());
    }

    #[test]
    fn no_more_chunks_are_remembered_than_may_be() {
        let mut tries = Tries::default();
        assert!((0..CHUNKS_MAX as u64).all(|start| tries.add(1, Some(start)) == Some(1)));
        assert_eq!(tries.add(2, Some(0)), None);
        // What is remembered already goes on, and so do whole objects.
        assert_eq!((tries.add(1, Some(5)), tries.add(2, None)), (Some(2), Some(1)));
        tries.came(1, Extent::new(4, 6));
        assert_eq!(tries.chunks.len(), CHUNKS_MAX - 2);
        assert_eq!(tries.add(2, Some(0)), Some(1));
        tries.ended([1].into_iter());
        assert_eq!(tries.chunks.len(), 1);
    }
}
