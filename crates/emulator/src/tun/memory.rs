//! Where frames wait: slabs that are filled one after the other and used again once empty.
//!
//! Owns: the slabs, and who still needs which. A frame is read straight into its place; nothing is copied, zeroed or
//! allocated for it once there are as many slabs as the path holds.
//!
//! Invariants: a slab is written to through one cursor at a time, and starts again from its beginning only when no frame
//! is left in it. Frames of one port lie in the order of their arrival, so slabs empty in that order too, except that
//! the path with the longest delay keeps those of the shorter ones; `slabs_max` has to allow for it.

use super::frame::FRAME_BYTES_MAX;

/// Room for the longest frame is kept free at the end, 3 % of it.
/// Ordinary pages: single runs with huge ones showed longer stalls and no clear gain.
pub const SLAB_BYTES: usize = 2 << 20;

#[derive(Debug, Default)]
pub struct Memory {
    slabs: Vec<Slab>,
    empty: Vec<u32>,
}

#[derive(Debug)]
struct Slab {
    bytes: Box<[u8]>,
    /// Frames, and the cursor that writes here.
    users: u32,
}

/// Where one port puts its next frame.
#[derive(Debug, Default)]
pub struct Cursor {
    slab: Option<u32>,
    at: usize,
}

/// A frame's place; to be given back with `Memory::free`.
#[derive(Debug)]
pub struct Place {
    slab: u32,
    start: u32,
    bytes: u32,
}

impl Memory {
    /// Room for the longest frame; none: all slabs are taken.
    pub fn room(&mut self, cursor: &mut Cursor, slabs_max: usize) -> Option<&mut [u8]> {
        if let Some(index) = cursor.slab {
            // Only the cursor is left: the start of the slab is warm in the cache.
            if self.slabs[index as usize].users == 1 {
                cursor.at = 0;
            }
            if cursor.at + FRAME_BYTES_MAX > SLAB_BYTES {
                cursor.slab = None;
                self.leave(index);
            }
        }
        if cursor.slab.is_none() {
            *cursor = Cursor { slab: Some(self.take_slab(slabs_max)?), at: 0 };
        }
        let slab = &mut self.slabs[cursor.slab? as usize];
        Some(&mut slab.bytes[cursor.at..cursor.at + FRAME_BYTES_MAX])
    }

    /// The first `bytes` of the room given out last.
    pub fn written(&self, cursor: &Cursor, bytes: usize) -> &[u8] {
        let slab = cursor.slab.expect("room was given out");
        &self.slabs[slab as usize].bytes[cursor.at..cursor.at + bytes]
    }

    /// Keeps them.
    pub fn keep(&mut self, cursor: &mut Cursor, bytes: usize) -> Place {
        let slab = cursor.slab.expect("room was given out");
        self.slabs[slab as usize].users += 1;
        let place = Place { slab, start: cursor.at as u32, bytes: bytes as u32 };
        cursor.at += bytes;
        place
    }

    pub fn bytes(&self, place: &Place) -> &[u8] {
        let start = place.start as usize;
        &self.slabs[place.slab as usize].bytes[start..start + place.bytes as usize]
    }

    pub fn free(&mut self, place: Place) {
        self.leave(place.slab);
    }

    fn take_slab(&mut self, slabs_max: usize) -> Option<u32> {
        let index = match self.empty.pop() {
            Some(index) => index,
            None if self.slabs.len() >= slabs_max => return None,
            None => {
                self.slabs.push(Slab { bytes: vec![0; SLAB_BYTES].into_boxed_slice(), users: 0 });
                (self.slabs.len() - 1) as u32
            }
        };
        self.slabs[index as usize].users = 1;
        Some(index)
    }

    fn leave(&mut self, index: u32) {
        let slab = &mut self.slabs[index as usize];
        slab.users -= 1;
        if slab.users == 0 {
            self.empty.push(index);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::VecDeque;

    fn put(memory: &mut Memory, cursor: &mut Cursor, byte: u8, bytes: usize, slabs_max: usize) -> Option<Place> {
        memory.room(cursor, slabs_max)?[..bytes].fill(byte);
        Some(memory.keep(cursor, bytes))
    }

    #[test]
    fn frames_keep_their_bytes_while_slabs_are_used_again() {
        let (mut memory, mut cursors) = (Memory::default(), [Cursor::default(), Cursor::default()]);
        let mut held = VecDeque::new();
        for i in 0..3000_usize {
            let bytes = 1 + i * 977 % 60_000;
            held.push_back((i as u8, bytes, put(&mut memory, &mut cursors[i % 2], i as u8, bytes, 8).unwrap()));
            if held.len() > 100 {
                let (byte, bytes, place) = held.pop_front().unwrap();
                assert_eq!(memory.bytes(&place), vec![byte; bytes]);
                memory.free(place);
            }
        }
        assert!(memory.slabs.len() <= 6, "{}", memory.slabs.len());
    }

    #[test]
    fn room_ends_with_the_last_slab_and_comes_back_with_the_first_that_empties() {
        let (mut memory, mut cursor) = (Memory::default(), Cursor::default());
        let mut held: VecDeque<_> = std::iter::from_fn(|| put(&mut memory, &mut cursor, 1, 60_000, 2)).collect();
        assert_eq!(held.len(), 2 * ((SLAB_BYTES - FRAME_BYTES_MAX) / 60_000 + 1));
        held.drain(..held.len() / 2).for_each(|place| memory.free(place));
        assert!(put(&mut memory, &mut cursor, 2, 10, 2).is_some());
    }
}
