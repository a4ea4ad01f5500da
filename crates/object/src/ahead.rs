//! Extents of an object that are fetched before they are asked for.
//!
//! Invariants: at most `AHEAD_MAX` are under way or at hand, in spare memory alone (`width`), so that no upload comes to a halt for
//! them; whoever takes one waits for it while it is under way.

use crate::bucket::Bucket;
use crate::failure::{Failure, Result, Why};
use crate::ranges::Reader;
use crate::width::Permit;
use model::{ChunkHasher, Digest, DigestAlgorithm};
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Condvar, Mutex};

/// Extents that are fetched before they are asked for.
pub const AHEAD_MAX: usize = 8;
/// Of an extent that several connections fetch.
const PIECES: u64 = 4;
/// Longer ones are not: they take a connection's full rate by themselves.
const AHEAD_BYTES_MAX: u64 = 16 << 20;
const BLOCK_BYTES: usize = 128 << 10;

/// Extents under way or at hand, by their starts.
#[derive(Default)]
pub struct Ahead {
    slots: Mutex<BTreeMap<u64, Slot>>,
    came: Condvar,
    /// What nobody fetches yet. For each of them threads were started that work off what there is.
    pieces: Mutex<VecDeque<Piece>>,
}

/// What one request asks for: an extent, or some of it.
struct Piece {
    extent: Arc<Gathered>,
    start: u64,
    end: u64,
}

/// An extent that is put together.
struct Gathered {
    start: u64,
    end: u64,
    state: Mutex<Gathering>,
}

struct Gathering {
    bytes: Vec<u8>,
    /// Pieces.
    left: u64,
    failure: Option<Failure>,
    permit: Option<Permit>,
}

pub struct Fetched {
    pub bytes: Vec<u8>,
    /// Where one connection brought all of it.
    pub crc: Option<u64>,
}

enum Slot {
    Coming,
    Here(Result<Fetched>, Permit),
}

/// A version of an object: its key and its `ETag`.
type Version<'a> = (&'a Arc<Bucket>, &'a str, &'a str);

impl Ahead {
    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.slots.lock().unwrap().len()
    }

    /// Fetches what comes behind `from`, as far as memory is spare.
    pub fn fetch(
        self: &Arc<Ahead>,
        version: Version<'_>,
        size: u64,
        (from, length): (u64, u64),
        is_read: &dyn Fn(&u64) -> bool,
    ) {
        if length > AHEAD_BYTES_MAX {
            return;
        }
        let (bucket, mut start) = (version.0, from);
        for _ in 0..AHEAD_MAX {
            let end = (start + length).min(size);
            if start >= end {
                return;
            }
            let mut slots = self.slots.lock().unwrap();
            // What lanes have gone past is not wanted any more.
            slots.retain(|at, slot| *at + length * 2 * AHEAD_MAX as u64 > from || matches!(slot, Slot::Coming));
            if !slots.contains_key(&start) && !is_read(&start) && slots.len() < AHEAD_MAX {
                let Some(permit) = bucket.permits.spare(end - start) else { return };
                slots.insert(start, Slot::Coming);
                drop(slots);
                // The last extents of a far object are shared out among connections, the slow ones too.
                let is_shared = bucket.is_far() && start + AHEAD_MAX as u64 * (end - start) >= size;
                if !self.spawn(version, (start, end), permit, is_shared) {
                    self.slots.lock().unwrap().remove(&start);
                    self.came.notify_all();
                    return;
                }
            }
            start = end;
        }
    }

    fn spawn(
        self: &Arc<Ahead>,
        (bucket, key, etag): Version<'_>,
        (start, end): (u64, u64),
        mut permit: Permit,
        is_shared: bool,
    ) -> bool {
        let (bucket, key, etag) = (bucket.clone(), key.to_owned(), etag.to_owned());
        let step = if is_shared { (end - start).div_ceil(PIECES) } else { end - start };
        let left = (end - start).div_ceil(step);
        let bytes = permit.filled((end - start) as usize);
        let state = Mutex::new(Gathering { bytes, left, failure: None, permit: Some(permit) });
        let extent = Arc::new(Gathered { start, end, state });
        let bound = |number: u64| end.min(start + number * step);
        let piece = |number| Piece { extent: extent.clone(), start: bound(number), end: bound(number + 1) };
        self.pieces.lock().unwrap().extend((0..left).map(piece));
        let fetch = {
            let ahead = self.clone();
            move || ahead.work_off(&bucket, &key, &etag)
        };
        let spawn = |_: &u64| std::thread::Builder::new().name("store".to_owned()).spawn(fetch.clone()).is_ok();
        // Between two short pieces a connection waits for a round trip: twice as many fill the path.
        let is_fetched = (0..if is_shared { 2 } else { 1 }).take_while(spawn).count() > 0;
        if !is_fetched {
            self.pieces.lock().unwrap().retain(|piece| !Arc::ptr_eq(&piece.extent, &extent));
        }
        is_fetched
    }

    fn work_off(&self, bucket: &Bucket, key: &str, etag: &str) {
        loop {
            let next = self.pieces.lock().unwrap().pop_front();
            let Some(Piece { extent, start, end }) = next else { return };
            let mut reader = bucket.range((key, etag), (start, end));
            match (extent.start, extent.end) == (start, end) {
                true => {
                    let mut bytes = std::mem::take(&mut extent.state.lock().unwrap().bytes);
                    let filled = fill(&mut bytes, &mut reader);
                    self.came(&extent, filled.map(|crc| Fetched { bytes, crc }));
                }
                false => self.gather(&extent, &mut reader, start),
            }
        }
    }

    /// Fetches some of an extent, beside others.
    fn gather(&self, extent: &Gathered, reader: &mut Reader<'_>, start: u64) {
        let (mut at, mut block) = ((start - extent.start) as usize, vec![0; BLOCK_BYTES]);
        let failure = loop {
            match reader.read(&mut block) {
                Ok(0) => break None,
                Ok(read) => {
                    extent.state.lock().unwrap().bytes[at..at + read].copy_from_slice(&block[..read]);
                    at += read;
                }
                Err(failure) => break Some(failure),
            }
        };
        let mut state = extent.state.lock().unwrap();
        state.left -= 1;
        state.failure = state.failure.take().or(failure);
        if state.left == 0 {
            let bytes = std::mem::take(&mut state.bytes);
            let fetched = state.failure.take().map_or(Ok(Fetched { bytes, crc: None }), Err);
            drop(state);
            self.came(extent, fetched);
        }
    }

    fn came(&self, extent: &Gathered, fetched: Result<Fetched>) {
        let permit = extent.state.lock().unwrap().permit.take();
        if let Some(permit) = permit {
            self.slots.lock().unwrap().insert(extent.start, Slot::Here(fetched, permit));
            self.came.notify_all();
        }
    }

    /// What was fetched of an extent, waiting for it while it is under way.
    pub fn take(&self, start: u64) -> Option<(Result<Fetched>, Permit)> {
        let mut slots = self.slots.lock().unwrap();
        while matches!(slots.get(&start), Some(Slot::Coming)) {
            slots = self.came.wait(slots).unwrap();
        }
        match slots.remove(&start)? {
            Slot::Here(fetched, permit) => Some((fetched, permit)),
            Slot::Coming => None,
        }
    }
}

/// Fills a buffer, and tells the checksum of what came.
fn fill(bytes: &mut [u8], reader: &mut Reader<'_>) -> Result<Option<u64>> {
    let mut hasher = ChunkHasher::new(DigestAlgorithm::Crc64Nvme, 0);
    // What just came is summed while it is in the processor's cache.
    let mut filled = 0;
    while filled < bytes.len() {
        let until = bytes.len().min(filled + BLOCK_BYTES);
        match reader.read(&mut bytes[filled..until])? {
            0 => return Err(Failure::new(Why::Unknown, "the store sent less than it said")),
            read => {
                hasher.update(&bytes[filled..filled + read]);
                filled += read;
            }
        }
    }
    Ok(match hasher.finish(true) {
        Digest::Crc64Nvme(crc) => Some(crc),
        _ => None,
    })
}
