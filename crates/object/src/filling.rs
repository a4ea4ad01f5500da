//! A part of a large object that is being put together, and the memory that all such parts of a job take.
//!
//! Invariants: bytes that come twice replace what they were; a part is complete when every byte of it was written, and never for its
//! length alone; the parts of a job that are open at once take no more than a bound. Whoever begins another one waits for room while
//! parts are completed or given up, and is refused when none is for a while.

use model::{Extent, ExtentSet};
use std::collections::TryReserveError;
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

/// What a job's open parts take: 128 of the usual length.
const OPEN_BYTES_MAX: u64 = 1 << 30;
/// So many may be open, however long they are.
const OPEN_MIN: u64 = 4;
/// When no part has ended for so long, what the open ones lack may be what waits.
pub const ROOM_PATIENCE: Duration = Duration::from_secs(60);

/// The memory for a job's open parts.
#[derive(Default)]
pub struct Rooms(Arc<Shared>);

#[derive(Default)]
struct Shared {
    state: Mutex<Taken>,
    given_back: Condvar,
}

#[derive(Default)]
struct Taken {
    bytes: u64,
    /// Parts that were completed or given up.
    ended: u64,
}

/// The memory of one part. Given back when it is dropped.
pub struct Room {
    of: Arc<Shared>,
    bytes: u64,
}

impl Rooms {
    /// Waits until there is room for a part of this length. Nothing when no part has ended for `patience`.
    pub fn take(&self, bytes: u64, patience: Duration) -> Option<Room> {
        let bound = OPEN_BYTES_MAX.max(OPEN_MIN * bytes);
        let mut taken = self.0.state.lock().unwrap();
        let (mut ended, mut since) = (taken.ended, Instant::now());
        while taken.bytes + bytes > bound {
            if taken.ended != ended {
                (ended, since) = (taken.ended, Instant::now());
            }
            let left = patience.checked_sub(since.elapsed())?;
            taken = self.0.given_back.wait_timeout(taken, left).unwrap().0;
        }
        taken.bytes += bytes;
        Some(Room { of: self.0.clone(), bytes })
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        let mut taken = self.of.state.lock().unwrap();
        taken.bytes -= self.bytes;
        taken.ended += 1;
        drop(taken);
        self.of.given_back.notify_all();
    }
}

/// A part that is being put together.
pub struct Filling {
    bytes: Vec<u8>,
    written: ExtentSet,
    /// Of that, what was verified: it is not written again.
    sealed: ExtentSet,
    /// Until it is complete and waits for its name only.
    _room: Option<Room>,
}

impl Filling {
    /// An empty one; the buffer may have room already.
    pub fn new(buffer: Vec<u8>, room: Room) -> Filling {
        Filling { bytes: buffer, written: ExtentSet::new(), sealed: ExtentSet::new(), _room: Some(room) }
    }

    /// It waits for its name: who publishes bounds how many do.
    pub fn leave_room(&mut self) {
        self._room = None;
    }

    /// Puts bytes in their place. The part has this length, or where `is_open` at most.
    ///
    /// # Errors
    /// When there is no memory for it.
    pub fn write(&mut self, offset: u64, bytes: &[u8], length: u64, is_open: bool) -> Result<(), TryReserveError> {
        let (start, end) = (offset as usize, offset as usize + bytes.len());
        let before = self.bytes.len();
        if before < start {
            self.stretch(length as usize)?;
        } else if before < end && is_open {
            self.bytes.try_reserve(end - before)?;
        } else if before < end {
            // What is large gets its room at once.
            self.bytes.try_reserve_exact(length as usize - before)?;
        }
        let (over, behind) = bytes.split_at(end.min(self.bytes.len()) - start);
        self.bytes[start..start + over.len()].copy_from_slice(over);
        self.bytes.extend_from_slice(behind);
        let extent = Extent::new(offset, end as u64);
        cover(&mut self.written, extent);
        self.sealed.remove(extent);
        Ok(())
    }

    /// Makes it that long. What was not written yet reads as zeros, and takes no memory.
    fn stretch(&mut self, length: usize) -> Result<(), TryReserveError> {
        if self.bytes.capacity() < length {
            // Memory that is not to be had is an error here; below it would end the process.
            let mut trial: Vec<u8> = Vec::new();
            trial.try_reserve_exact(length)?;
            drop(std::hint::black_box(trial));
            let mut whole = vec![0; length];
            whole[..self.bytes.len()].copy_from_slice(&self.bytes);
            self.bytes = whole;
        }
        self.bytes.resize(length, 0);
        Ok(())
    }

    pub fn seal(&mut self, extent: Extent) {
        cover(&mut self.sealed, extent);
    }

    /// So much, and no more, was written of it from its start.
    pub fn is_written(&self, length: u64) -> bool {
        self.written.covers(length) && self.written.length() == length
    }

    /// All of it was verified.
    pub fn is_sealed(&self, length: u64) -> bool {
        self.is_written(length) && self.sealed.covers(length)
    }

    /// Its content, once so much of it was written.
    pub fn into_bytes(mut self, length: u64) -> Vec<u8> {
        self.bytes.truncate(length as usize);
        self.bytes
    }
}

/// Adds an extent of which something may be there.
fn cover(set: &mut ExtentSet, extent: Extent) {
    if !set.insert(extent) {
        set.remove(extent);
        set.insert(extent);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filling() -> Filling {
        Filling::new(Vec::new(), Rooms::default().take(1, Duration::ZERO).unwrap())
    }

    #[test]
    fn bytes_that_come_in_any_order_and_twice_are_where_they_belong() {
        for is_open in [false, true] {
            let mut part = filling();
            for (offset, bytes) in [(6, &b"gh"[..]), (0, b"xbc"), (0, b"a"), (1, b"bcde"), (4, b"ef")] {
                assert!(!part.is_written(8));
                part.write(offset, bytes, 8, is_open).unwrap();
            }
            assert!(part.is_written(8) && !part.is_written(7) && !part.is_written(9));
            assert_eq!(part.into_bytes(8), b"abcdefgh");
        }
    }

    #[test]
    fn a_part_is_sealed_when_all_of_it_is_and_not_after_something_of_it_came_again() {
        let mut part = filling();
        part.write(0, b"abcd", 4, false).unwrap();
        part.seal(Extent::new(0, 2));
        assert!(!part.is_sealed(4));
        part.seal(Extent::new(2, 4));
        assert!(part.is_sealed(4));
        part.write(2, b"c", 4, false).unwrap();
        assert!(part.is_written(4) && !part.is_sealed(4));
        part.seal(Extent::new(2, 4));
        assert!(part.is_sealed(4));
    }

    #[test]
    fn no_more_parts_are_open_than_have_room_and_some_always_have() {
        let rooms = Rooms::default();
        let take = |bytes| rooms.take(bytes, Duration::ZERO);
        let mut open: Vec<_> = std::iter::from_fn(|| take(8 << 20)).collect();
        assert_eq!(open.len(), 128);
        open.pop();
        assert!(take(8 << 20).is_some());
        drop(open);
        let open: Vec<_> = std::iter::from_fn(|| take(4 << 30)).collect();
        assert_eq!(open.len(), 4);
        // Whoever waits gets the room of one that ends.
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| rooms.take(4 << 30, Duration::from_secs(600)).is_some());
            drop(open);
            assert!(waiting.join().unwrap());
        });
    }

    #[test]
    fn memory_that_is_not_to_be_had_is_an_error() {
        assert!(filling().write(0, b"x", 1 << 60, false).is_err());
        assert!(filling().write(1 << 59, b"x", 1 << 60, false).is_err());
    }
}
