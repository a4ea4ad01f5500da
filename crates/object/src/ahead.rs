//! Extents of an object that are fetched before they are asked for.
//!
//! Short extents that follow one another are a row, which one request asks for: how much that is does not depend on how
//! content is cut into chunks.
//!
//! Invariants: at most `AHEAD_MAX` rows are under way or at hand, in spare memory alone (`width`), so that no upload
//! comes to a halt for them; whoever takes an extent waits for it while it is under way.

use crate::bucket::Bucket;
use crate::failure::{Failure, Result, Why};
use crate::ranges::Reader;
use crate::width::{Permit, Permits};
use model::{ChunkHasher, Digest, DigestAlgorithm};
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Condvar, Mutex};

/// Rows that are fetched before they are asked for.
pub const AHEAD_MAX: usize = 8;
/// A row of extents that are shorter: as much as a chunk of the usual length.
const ROW_BYTES: u64 = 8 << 20;
/// Extents of a row, if they are as short as chunks can be.
const ROW_MAX: u64 = 8;
/// Of a row that several connections fetch.
const PIECES: u64 = 4;
/// Longer extents are not fetched ahead: they take a connection's full rate by themselves.
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

/// What one request asks for: a row, or some of it.
struct Piece {
    row: Arc<[Gathered]>,
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
    /// Pieces that have some of it.
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
/// An extent of a row, from its start to its end, and its memory.
type Granted = (u64, u64, Permit);

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
        let bucket = version.0;
        let of_row = (ROW_BYTES / length).clamp(1, ROW_MAX);
        let most = AHEAD_MAX as u64 * of_row;
        let reach = most * length;
        let mut slots = self.slots.lock().unwrap();
        // What lanes have gone past is not wanted any more.
        slots.retain(|at, slot| *at + 2 * reach > from || matches!(slot, Slot::Coming));
        let (mut start, mut row, mut rows) = (from, Vec::new(), Vec::new());
        while start < size.min(from + reach) {
            let end = size.min(start + length);
            let is_wanted = !slots.contains_key(&start) && !is_read(&start);
            row.extend(is_wanted.then_some((start, end)));
            // One that goes on beyond the reach waits until it is within.
            let is_complete = !is_wanted || row.len() as u64 == of_row || end == size;
            if is_complete && !row.is_empty() {
                let Some(granted) = grant(&mut slots, &bucket.permits, &row, most) else { break };
                rows.push(granted);
                row.clear();
            }
            start = end;
        }
        drop(slots);
        for row in rows {
            let starts: Vec<u64> = row.iter().map(|(start, ..)| *start).collect();
            // The last rows of a far object are shared out among connections, the slow ones too.
            let is_shared = bucket.is_far() && starts[0] + reach >= size;
            if !self.spawn(version, row, is_shared) {
                self.slots.lock().unwrap().retain(|start, _| !starts.contains(start));
                self.came.notify_all();
            }
        }
    }

    fn spawn(self: &Arc<Ahead>, (bucket, key, etag): Version<'_>, granted: Vec<Granted>, is_shared: bool) -> bool {
        let (bucket, key, etag) = (bucket.clone(), key.to_owned(), etag.to_owned());
        let (start, end) = (granted[0].0, granted[granted.len() - 1].1);
        let step = if is_shared { (end - start).div_ceil(PIECES) } else { end - start };
        let gathered = |(from, to, mut permit): Granted| {
            let bytes = permit.filled((to - from) as usize);
            let left = (to - 1 - start) / step - (from - start) / step + 1;
            let state = Mutex::new(Gathering { bytes, left, failure: None, permit: Some(permit) });
            Gathered { start: from, end: to, state }
        };
        let row: Arc<[Gathered]> = granted.into_iter().map(gathered).collect();
        let bound = |number: u64| end.min(start + number * step);
        let piece = |number| Piece { row: row.clone(), start: bound(number), end: bound(number + 1) };
        self.pieces.lock().unwrap().extend((0..(end - start).div_ceil(step)).map(piece));
        let fetch = {
            let ahead = self.clone();
            move || ahead.work_off(&bucket, &key, &etag)
        };
        let spawn = |_: &u64| std::thread::Builder::new().name("store".to_owned()).spawn(fetch.clone()).is_ok();
        // Between two short pieces a connection waits for a round trip: twice as many fill the path.
        let is_fetched = (0..if is_shared { 2 } else { 1 }).take_while(spawn).count() > 0;
        if !is_fetched {
            self.pieces.lock().unwrap().retain(|piece| !Arc::ptr_eq(&piece.row, &row));
        }
        is_fetched
    }

    fn work_off(&self, bucket: &Bucket, key: &str, etag: &str) {
        loop {
            let next = self.pieces.lock().unwrap().pop_front();
            let Some(Piece { row, start, end }) = next else { return };
            let mut reader = bucket.range((key, etag), (start, end));
            let mut failure: Option<Failure> = None;
            for extent in row.iter().filter(|extent| extent.start < end && start < extent.end) {
                let part = (extent.start.max(start), extent.end.min(end));
                // Behind what did not come nothing comes either.
                let read = failure.take().map_or_else(|| extent.read(&mut reader, part), Err);
                failure = read.as_ref().err().cloned();
                self.came(extent, read);
            }
        }
    }

    /// Takes in what came of a part of an extent.
    fn came(&self, extent: &Gathered, read: Result<Option<u64>>) {
        let mut state = extent.state.lock().unwrap();
        state.left -= 1;
        let (crc, failure) = match read {
            Ok(crc) => (crc, None),
            Err(failure) => (None, Some(failure)),
        };
        state.failure = state.failure.take().or(failure);
        if state.left > 0 {
            return;
        }
        let bytes = std::mem::take(&mut state.bytes);
        let fetched = state.failure.take().map_or(Ok(Fetched { bytes, crc }), Err);
        let permit = state.permit.take();
        drop(state);
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

/// Takes places and memory for a row of which at most so many extents are under way or at hand; for all of it or none.
fn grant(slots: &mut BTreeMap<u64, Slot>, permits: &Permits, row: &[(u64, u64)], most: u64) -> Option<Vec<Granted>> {
    if (slots.len() + row.len()) as u64 > most {
        return None;
    }
    let grant = |(start, end): &(u64, u64)| Some((*start, *end, permits.spare(end - start)?));
    let granted: Vec<Granted> = row.iter().map(grant).collect::<Option<_>>()?;
    slots.extend(row.iter().map(|(start, _)| (*start, Slot::Coming)));
    Some(granted)
}

impl Gathered {
    /// Reads a part of it; all of it, where no other request has any, is summed up.
    fn read(&self, reader: &mut Reader<'_>, (start, end): (u64, u64)) -> Result<Option<u64>> {
        if (start, end) == (self.start, self.end) {
            let mut bytes = std::mem::take(&mut self.state.lock().unwrap().bytes);
            let filled = fill(&mut bytes, reader);
            self.state.lock().unwrap().bytes = bytes;
            return filled;
        }
        let (mut at, until) = ((start - self.start) as usize, (end - self.start) as usize);
        let mut block = vec![0; BLOCK_BYTES.min(until - at)];
        while at < until {
            let wanted = block.len().min(until - at);
            let read = some(reader, &mut block[..wanted])?;
            self.state.lock().unwrap().bytes[at..at + read].copy_from_slice(&block[..read]);
            at += read;
        }
        Ok(None)
    }
}

/// Reads some of what is to come.
fn some(reader: &mut Reader<'_>, block: &mut [u8]) -> Result<usize> {
    match reader.read(block)? {
        0 => Err(Failure::new(Why::Unknown, "the store sent less than it said")),
        read => Ok(read),
    }
}

/// Fills a buffer, and tells the checksum of what came.
fn fill(bytes: &mut [u8], reader: &mut Reader<'_>) -> Result<Option<u64>> {
    let mut hasher = ChunkHasher::new(DigestAlgorithm::Crc64Nvme, 0);
    // What just came is summed while it is in the processor's cache.
    let mut filled = 0;
    while filled < bytes.len() {
        let until = bytes.len().min(filled + BLOCK_BYTES);
        let read = some(reader, &mut bytes[filled..until])?;
        hasher.update(&bytes[filled..filled + read]);
        filled += read;
    }
    Ok(match hasher.finish(true) {
        Digest::Crc64Nvme(crc) => Some(crc),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reading::tests::bucket;
    use fakes::{Fake, Fault};

    const SIZE: usize = 1_000_000;

    fn content() -> Vec<u8> {
        (0..SIZE as u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8).collect()
    }

    /// Has all of an object fetched in extents of this length as one row, and tells what comes of each.
    fn fetched(fake: &Fake, length: usize, is_shared: bool) -> Vec<Result<Fetched>> {
        let (bucket, _keys) = bucket(fake);
        let etag = bucket.head("large").unwrap().unwrap().etag;
        let row: Vec<(u64, u64)> =
            (0..SIZE).step_by(length).map(|at| (at as u64, SIZE.min(at + length) as u64)).collect();
        let ahead = Arc::new(Ahead::default());
        let granted = grant(&mut ahead.slots.lock().unwrap(), &bucket.permits, &row, u64::MAX).unwrap();
        assert!(ahead.spawn((&bucket, "large", &etag), granted, is_shared));
        row.iter().map(|(start, _)| ahead.take(*start).unwrap().0).collect()
    }

    #[test]
    fn a_row_comes_whole_by_one_request_or_by_several_whose_bounds_are_not_those_of_its_extents() {
        let (fake, content) = (Fake::start(), content());
        fake.put("large", &content);
        for (length, is_shared, requests) in
            [(150_000, false, 1), (SIZE, false, 1), (150_000, true, 4), (400_000, true, 4), (SIZE, true, 4)]
        {
            let before = fake.count("GET /bkt/large");
            let mut at = 0;
            for fetched in fetched(&fake, length, is_shared) {
                let Fetched { bytes, crc } = fetched.unwrap();
                assert!(bytes == content[at..at + bytes.len()], "{length} {is_shared} {at}");
                assert!(crc.is_none_or(|crc| crc == crate::calls::crc_of(&bytes)) && (is_shared || crc.is_some()));
                at += bytes.len();
            }
            assert_eq!((at, fake.count("GET /bkt/large") - before), (SIZE, requests), "{length} {is_shared}");
        }
    }

    #[test]
    fn what_fails_on_the_way_fails_for_each_extent_behind_it() {
        let fake = Fake::start();
        fake.put("large", &content());
        for is_shared in [false, true] {
            fake.order("GET", "/bkt/large", 0, 9, Fault::Status(403));
            let fetched = fetched(&fake, 150_000, is_shared);
            assert!(fetched.iter().all(|one| matches!(one, Err(failure) if failure.why == Why::Forbidden)));
        }
    }
}
