//! What a large object takes: memory for its pieces, which is charged to its job in steps, and room on storage.
//!
//! Not here: the account itself (`receiver::charge`), and what is made of the room (`receiver::room`).

use super::Large;
use crate::memory::Permit;
use model::{Digest, Extent};

/// Pieces are charged in such steps; a first part costs nothing.
const PIECES_CHARGED: usize = 1024;
/// What a piece takes of an object that grows: its extent, and that of the gap beside it in what is asked for, both in lists that
/// grow.
const PIECE_BYTES: usize = 4 * size_of::<Extent>();
/// What a chunk takes: its digest in a tree whose nodes are half full, and its extent where it is held and where it is durable.
const CHUNK_BYTES: usize = 2 * size_of::<(u64, Digest)>() + 2 * size_of::<Extent>();

impl Large {
    /// What the pieces take that are held, beyond what was charged for them.
    pub fn uncharged_bytes(&self) -> usize {
        let state = self.object.state.lock().unwrap();
        let (pieces, piece_bytes) = match self.is_growing {
            true => (state.held.iter().count(), PIECE_BYTES),
            false => (state.digests.len(), CHUNK_BYTES),
        };
        let bytes = pieces / PIECES_CHARGED * PIECES_CHARGED * piece_bytes;
        bytes.saturating_sub(state.charge.as_ref().map_or(0, Permit::bytes))
    }

    /// Keeps what was charged, for as long as the object is staged.
    pub fn keep_charge(&self, charge: Permit) {
        let mut state = self.object.state.lock().unwrap();
        match &mut state.charge {
            Some(kept) => kept.absorb(charge),
            None => state.charge = Some(charge),
        }
    }

    /// Room that the object has on storage, reserved or written, or will not need.
    pub fn taken_bytes(&self) -> u64 {
        let state = self.object.state.lock().unwrap();
        let allocated_bytes = state.file.as_ref().map_or(0, |file| file.allocated_bytes());
        state.held.length().max(allocated_bytes).max(self.spared_bytes)
    }
}
