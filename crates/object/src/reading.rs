//! Content of one version of an object: by range, with what comes next fetched ahead.
//!
//! Invariants: every range is asked for on the condition that the version is still there, so that two versions never mix; a range
//! whose connection breaks goes on where it stopped; an object that was read whole has the checksum that the store keeps of it, if
//! it keeps one. What is fetched ahead takes spare memory alone (`width`), so that no upload comes to a halt for it.

use crate::bucket::Bucket;
use crate::calls::{Object, crc_of};
use crate::failure::{Failure, Result, Why};
use crate::width::Permit;
use aws_lc_rs::digest;
use model::{Digest, DigestAlgorithm, Extent, FailureKind, Generation, Timestamp, VersionToken};
use std::any::Any;
use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Condvar, Mutex, OnceLock};
use store::SourceFile;

/// Times that a range is continued without a byte having come.
const CONTINUED_MAX: u32 = 4;
/// Extents that are fetched before they are asked for.
pub const AHEAD_MAX: usize = 8;
/// Of an extent that several connections fetch.
const PIECES: u64 = 4;
/// Longer ones are not: they take a connection's full rate by themselves.
const AHEAD_BYTES_MAX: u64 = 16 << 20;
/// Of what is read block by block, one after the other: so much by one request.
const WINDOW_BYTES: u64 = 8 << 20;

impl Bucket {
    /// What tells versions of this bucket's objects apart.
    pub fn generation(&self, key: &str, object: &Object) -> Generation {
        Generation {
            size_bytes: object.size_bytes,
            modified: object.modified(),
            version: VersionToken::new(changed(object.stored), self.number(key, &object.etag), self.storage()),
        }
    }

    /// A number of one version of one object.
    pub fn number(&self, key: &str, etag: &str) -> u64 {
        number(&[key.as_bytes(), etag.as_bytes()].join(&0))
    }

    pub fn storage(&self) -> u64 {
        number(&[self.address().as_bytes(), self.name.as_bytes()].join(&0))
    }

    /// Reads a range of a version and hands over every block; returns how much there was until `each` said false.
    pub fn stream(
        &self,
        (key, etag): (&str, &str),
        (start, end): (u64, u64),
        block: &mut [u8],
        each: &mut dyn FnMut(&[u8]) -> bool,
    ) -> Result<u64> {
        let (mut at, mut continued) = (start, 0);
        while at < end {
            let mut response = self.get(key, Some((at, end)), etag)?;
            let failed = loop {
                match response.read(block) {
                    Ok(0) => break Failure::new(Why::Unknown, "the store sent less than it said"),
                    Err(e) => break Failure::of_web(&e),
                    Ok(read) if read as u64 > end - at => {
                        return Err(Failure::new(Why::Unknown, "the store sent more than it said"));
                    }
                    Ok(read) => {
                        (at, continued) = (at + read as u64, 0);
                        if !each(&block[..read]) {
                            return Ok(at - start);
                        }
                    }
                }
                if at >= end {
                    return Ok(at - start);
                }
            };
            continued += 1;
            if continued > CONTINUED_MAX {
                return Err(failed);
            }
        }
        Ok(at - start)
    }
}

pub fn changed(stored: i64) -> Timestamp {
    Timestamp { seconds: stored, nanoseconds: 0 }
}

fn number(bytes: &[u8]) -> u64 {
    let hash = digest::digest(&digest::SHA256, bytes);
    u64::from_le_bytes(hash.as_ref()[..8].try_into().expect("a hash is longer"))
}

/// One version of an object, open.
pub struct ObjectFile {
    pub bucket: Arc<Bucket>,
    pub key: String,
    pub object: Object,
    generation: Generation,
    is_changed: AtomicBool,
    ahead: Arc<Ahead>,
    /// Comes while content is read, where the checksum was not known before.
    asked: Mutex<Option<Receiver<Option<Object>>>>,
    /// The store's checksum of the whole, once somebody wanted it.
    stored_crc: OnceLock<Option<u64>>,
    /// Checksums of extents that were read, by their starts, with their lengths.
    read: Mutex<BTreeMap<u64, (u64, u64)>>,
    window: Mutex<Window>,
}

/// What was fetched for whoever reads on from where it stopped.
#[derive(Default)]
struct Window {
    /// Where the last read ended.
    next: u64,
    start: u64,
    bytes: Vec<u8>,
    permit: Option<Permit>,
}

impl Window {
    /// Copies what there is from an offset on; returns how much.
    fn copy(&self, offset: u64, buffer: &mut [u8]) -> usize {
        let at = offset.checked_sub(self.start);
        let there = at.and_then(|at| self.bytes.get(at as usize..)).unwrap_or_default();
        let count = there.len().min(buffer.len());
        buffer[..count].copy_from_slice(&there[..count]);
        count
    }
}

/// Extents under way or at hand, by their starts.
#[derive(Default)]
struct Ahead {
    slots: Mutex<BTreeMap<u64, Slot>>,
    came: Condvar,
    /// What of them nobody fetches yet, by its bounds. For each extent threads were started that work off what there is.
    pieces: Mutex<VecDeque<(Arc<Gathered>, u64, u64)>>,
}

/// An extent that is put together.
struct Gathered {
    start: u64,
    state: Mutex<Gathering>,
}

struct Gathering {
    bytes: Vec<u8>,
    /// Pieces.
    left: u64,
    failure: Option<Failure>,
    permit: Option<Permit>,
}

impl Gathering {
    fn put(&mut self, at: usize, block: &[u8]) {
        let end = at + block.len();
        if at == self.bytes.len() {
            self.bytes.extend_from_slice(block);
            return;
        }
        self.bytes.resize(end.max(self.bytes.len()), 0);
        self.bytes[at..end].copy_from_slice(block);
    }
}

enum Slot {
    Coming,
    Here(Result<Vec<u8>>, Permit),
}

impl ObjectFile {
    pub fn new(bucket: Arc<Bucket>, key: String, object: Object, generation: Generation) -> ObjectFile {
        let is_changed = AtomicBool::new(false);
        let (ahead, asked, stored_crc, read, window) = Default::default();
        ObjectFile { bucket, key, object, generation, is_changed, ahead, asked, stored_crc, read, window }
    }

    /// Opens the version that is known to be there. What the store keeps as its checksum is asked for beside the first bytes.
    pub fn known(bucket: &Arc<Bucket>, key: String, object: Object) -> ObjectFile {
        let generation = bucket.generation(&key, &object);
        let file = ObjectFile::new(bucket.clone(), key, object, generation);
        if file.object.crc.is_none() {
            let (tell, asked) = channel();
            let (bucket, key) = (bucket.clone(), file.key.clone());
            file.bucket.crew.hand_in(move || drop(tell.send(bucket.head(&key).ok().flatten())));
            *file.asked.lock().unwrap() = Some(asked);
        }
        file
    }

    /// The store's checksum of the whole, once it is known.
    pub fn stored_crc(&self) -> Option<u64> {
        *self.stored_crc.get_or_init(|| {
            let asked = self.asked.lock().unwrap().take();
            let told = asked.and_then(|asked| asked.recv().ok().flatten());
            self.object.crc.or_else(|| told.filter(|told| told.etag == self.object.etag)?.crc)
        })
    }

    /// Looks at an object and opens the version that is there.
    pub fn open(bucket: &Arc<Bucket>, key: &str) -> store::Result<ObjectFile> {
        let found = bucket.head(key).map_err(|failure| failure.on("open file", key))?;
        let object = found.ok_or_else(|| Failure::new(Why::NoKey, "").on("open file", key))?;
        let generation = bucket.generation(key, &object);
        Ok(ObjectFile::new(bucket.clone(), key.to_owned(), object, generation))
    }

    /// What came of reading. A version that is gone ends early, and its generation tells.
    fn settled<T>(&self, read: Result<T>) -> store::Result<Option<T>> {
        match read {
            Ok(read) => Ok(Some(read)),
            Err(failure) if matches!(failure.why, Why::Condition | Why::NoKey) => {
                self.is_changed.store(true, Relaxed);
                Ok(None)
            }
            Err(failure) => Err(failure.on("read file", &self.key)),
        }
    }

    fn end(&self, end: u64) -> u64 {
        end.min(self.object.size_bytes)
    }

    /// Reads an extent and has those behind it fetched.
    pub fn extent(&self, extent: Extent, block: &mut [u8], each: &mut dyn FnMut(&[u8]) -> bool) -> store::Result<u64> {
        let (start, end) = (extent.start, self.end(extent.end));
        if start >= end {
            return Ok(0);
        }
        self.fetch_ahead(end, end - start);
        let mut hasher = model::ChunkHasher::new(DigestAlgorithm::Crc64Nvme, 0);
        let mut take = |bytes: &[u8]| {
            hasher.update(bytes);
            each(bytes)
        };
        let read = match self.ahead.take(start) {
            Some((fetched, permit)) => {
                let Some(fetched) = self.settled(fetched)? else { return Ok(0) };
                let mut handed = 0;
                for bytes in fetched.chunks(block.len()) {
                    handed += bytes.len() as u64;
                    if !take(bytes) {
                        return Ok(handed);
                    }
                }
                permit.end_with(fetched);
                handed
            }
            None => {
                let read = self.bucket.stream((&self.key, &self.object.etag), (start, end), block, &mut take);
                let Some(read) = self.settled(read)? else { return Ok(0) };
                read
            }
        };
        if read == end - start
            && let Digest::Crc64Nvme(crc) = hasher.finish(true)
        {
            self.judge(start, read, crc)?;
        }
        Ok(read)
    }

    /// Reads from an offset on by a request of its own.
    fn read_now(&self, offset: u64, buffer: &mut [u8]) -> store::Result<usize> {
        let end = offset + buffer.len() as u64;
        let (mut filled, mut block) = (0, vec![0; buffer.len().min(128 << 10)]);
        let read = self.bucket.stream((&self.key, &self.object.etag), (offset, end), &mut block, &mut |bytes| {
            buffer[filled..filled + bytes.len()].copy_from_slice(bytes);
            filled += bytes.len();
            true
        });
        Ok(self.settled(read)?.map_or(0, |read| read as usize))
    }

    /// Fetches what begins at an offset. False where memory is scarce, or the version is gone.
    fn fill(&self, window: &mut Window, start: u64) -> store::Result<bool> {
        *window = Window { next: window.next, start, ..Window::default() };
        let end = self.end(start + WINDOW_BYTES);
        let Some(mut permit) = self.bucket.permits.spare(end - start) else { return Ok(false) };
        let (mut bytes, mut block) = (permit.buffer(), vec![0; 128 << 10]);
        bytes.reserve_exact((end - start) as usize);
        let read = self.bucket.stream((&self.key, &self.object.etag), (start, end), &mut block, &mut |block| {
            bytes.extend_from_slice(block);
            true
        });
        if self.settled(read)?.is_none() {
            return Ok(false);
        }
        (window.bytes, window.permit) = (bytes, Some(permit));
        Ok(true)
    }

    /// Compares the whole, once all of it was read, with what the store keeps of it.
    fn judge(&self, start: u64, length: u64, crc: u64) -> store::Result<()> {
        let mut read = self.read.lock().unwrap();
        read.insert(start, (length, crc));
        let first = read.first_key_value().filter(|(at, _)| **at == 0).map_or(0, |(_, (length, _))| *length);
        let size = self.object.size_bytes;
        let is_whole = first > 0 && read.len() as u64 == size.div_ceil(first) && read.keys().all(|at| at % first == 0);
        if !is_whole || read.values().map(|(length, _)| length).sum::<u64>() != size {
            return Ok(());
        }
        let Some(stored) = self.stored_crc() else { return Ok(()) };
        let parts: Vec<_> = read.values().map(|(_, crc)| Digest::Crc64Nvme(*crc)).collect();
        read.clear();
        match DigestAlgorithm::Crc64Nvme.combine(&parts, first, size) == Digest::Crc64Nvme(stored) {
            true => Ok(()),
            false => Err(damaged(&self.key)),
        }
    }

    /// Fetches what comes next, as far as memory is spare.
    fn fetch_ahead(&self, from: u64, length: u64) {
        let size = self.object.size_bytes;
        if length > AHEAD_BYTES_MAX {
            return;
        }
        let mut start = from;
        for _ in 0..AHEAD_MAX {
            let end = (start + length).min(size);
            if start >= end {
                return;
            }
            let mut slots = self.ahead.slots.lock().unwrap();
            // What lanes have gone past is not wanted any more.
            slots.retain(|at, slot| *at + length * 2 * AHEAD_MAX as u64 > from || matches!(slot, Slot::Coming));
            let is_free = !slots.contains_key(&start) && !self.read.lock().unwrap().contains_key(&start);
            if is_free && slots.len() < AHEAD_MAX {
                let Some(permit) = self.bucket.permits.spare(end - start) else { return };
                slots.insert(start, Slot::Coming);
                drop(slots);
                if !self.spawn(start, end, permit) {
                    self.ahead.slots.lock().unwrap().remove(&start);
                    return;
                }
            }
            start = end;
        }
    }

    fn spawn(&self, start: u64, end: u64, mut permit: Permit) -> bool {
        let (bucket, key, etag) = (self.bucket.clone(), self.key.clone(), self.object.etag.clone());
        let ahead = self.ahead.clone();
        // The last extents of a far object are shared out among connections, the slow ones too.
        let is_shared = bucket.is_far() && start + AHEAD_MAX as u64 * (end - start) >= self.object.size_bytes;
        let step = if is_shared { (end - start).div_ceil(PIECES) } else { end - start };
        let mut bytes = permit.buffer();
        bytes.reserve_exact((end - start) as usize);
        let left = (end - start).div_ceil(step);
        let state = Gathering { bytes, left, failure: None, permit: Some(permit) };
        let gathered = Arc::new(Gathered { start, state: Mutex::new(state) });
        let pieces = (0..left).map(|at| (gathered.clone(), start + at * step, end.min(start + (at + 1) * step)));
        ahead.pieces.lock().unwrap().extend(pieces);
        let fetch = move || ahead.work_off(&bucket, &key, &etag);
        let spawn = |_: &u64| std::thread::Builder::new().name("store".to_owned()).spawn(fetch.clone()).is_ok();
        // Between two short pieces a connection waits for a round trip: twice as many fill the path.
        (0..if is_shared { 2 } else { 1 }).take_while(spawn).count() > 0
    }
}

pub fn damaged(key: &str) -> store::Error {
    let why = "what the store sent is not what it keeps the checksum of";
    store::Error::of_kind(FailureKind::DigestMismatch, "read file", key.as_bytes(), why)
}

impl Ahead {
    fn work_off(&self, bucket: &Bucket, key: &str, etag: &str) {
        let mut block = vec![0; 128 << 10];
        loop {
            let next = self.pieces.lock().unwrap().pop_front();
            let Some((gathered, start, end)) = next else { return };
            let mut at = (start - gathered.start) as usize;
            let read = bucket.stream((key, etag), (start, end), &mut block, &mut |block| {
                gathered.state.lock().unwrap().put(at, block);
                at += block.len();
                true
            });
            let mut state = gathered.state.lock().unwrap();
            state.left -= 1;
            state.failure = state.failure.take().or(read.err());
            let done = if state.left == 0 { state.permit.take() } else { None };
            if let Some(permit) = done {
                let bytes = std::mem::take(&mut state.bytes);
                let fetched = state.failure.take().map_or(Ok(bytes), Err);
                self.slots.lock().unwrap().insert(gathered.start, Slot::Here(fetched, permit));
                self.came.notify_all();
            }
        }
    }

    /// What was fetched of an extent, waiting for it while it is under way.
    fn take(&self, start: u64) -> Option<(Result<Vec<u8>>, Permit)> {
        let mut slots = self.slots.lock().unwrap();
        while matches!(slots.get(&start), Some(Slot::Coming)) {
            slots = self.came.wait(slots).unwrap();
        }
        match slots.remove(&start)? {
            Slot::Here(bytes, permit) => Some((bytes, permit)),
            Slot::Coming => None,
        }
    }
}

impl SourceFile for ObjectFile {
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> store::Result<usize> {
        let end = self.end(offset.saturating_add(buffer.len() as u64));
        if offset >= end {
            return Ok(0);
        }
        let buffer = &mut buffer[..(end - offset) as usize];
        // Whoever reads elsewhere meanwhile does not wait.
        let Ok(mut window) = self.window.try_lock() else { return self.read_now(offset, buffer) };
        let mut filled = window.copy(offset, buffer);
        if filled < buffer.len() {
            let (at, rest) = (offset + filled as u64, &mut buffer[filled..]);
            let goes_on = offset > 0 && (filled > 0 || window.next == offset) && (rest.len() as u64) < WINDOW_BYTES;
            filled += match goes_on && self.fill(&mut window, at)? {
                true => window.copy(at, rest),
                false => self.read_now(at, rest)?,
            };
        }
        window.next = offset + filled as u64;
        if window.next == self.object.size_bytes {
            *window = Window::default();
        }
        Ok(filled)
    }

    fn generation(&self) -> store::Result<Generation> {
        Ok(if self.is_changed.load(Relaxed) { Generation::default() } else { self.generation })
    }

    fn native(&self) -> Option<&dyn Any> {
        Some(self)
    }
}

impl Bucket {
    /// A whole small object, with what is known of it.
    pub fn read_whole(&self, key: &str, bytes_max: usize) -> std::result::Result<(Vec<u8>, Object), store::Error> {
        let failed = |failure: Failure| failure.on("read file", key);
        let mut last = None;
        for _ in 0..CONTINUED_MAX {
            let response = self.get(key, None, "").map_err(failed)?;
            let object = Object::of_response(&response);
            if object.size_bytes > bytes_max as u64 {
                // It grew: what is known of it says so.
                return Ok((Vec::new(), object));
            }
            match response.into_bytes(bytes_max) {
                Ok(bytes) if object.crc.is_some_and(|crc| crc != crc_of(&bytes)) => last = Some(damaged(key)),
                Ok(bytes) if bytes.len() as u64 == object.size_bytes => return Ok((bytes, object)),
                Ok(_) => last = Some(failed(Failure::new(Why::Unknown, "the store sent less than it said"))),
                Err(e) => last = Some(failed(Failure::of_web(&e))),
            }
        }
        Err(last.expect("it was tried"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::StoreConfig;
    use crate::width::Rooms;
    use fakes::{BUCKET, Fake, SECRET};
    use std::time::Duration;

    /// The bucket of a store, while its keys are kept.
    fn bucket(fake: &Fake) -> (Arc<Bucket>, tempfile::NamedTempFile) {
        let keys = tempfile::NamedTempFile::new().unwrap();
        let text = format!("[default]\naws_access_key_id = fake\naws_secret_access_key = {SECRET}\n");
        std::fs::write(keys.path(), text).unwrap();
        let config = StoreConfig {
            endpoint: Some(fake.url.clone()),
            region: Some("us-east-1".to_owned()),
            credentials_file: Some(keys.path().to_owned()),
            ..StoreConfig::default()
        };
        let bucket = Bucket::new(BUCKET, format!("s3://{BUCKET}"), &config, web::Stop::default());
        (Arc::new(bucket.ok().unwrap()), keys)
    }

    #[test]
    fn what_is_read_block_by_block_takes_a_few_requests() {
        let fake = Fake::start();
        let bytes: Vec<u8> = (0..16_u32 << 20).map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
        fake.put("large", &bytes);
        let (bucket, _keys) = bucket(&fake);
        let file = ObjectFile::open(&bucket, "large").unwrap();
        let (mut read, mut block) = (Vec::new(), vec![0; 128 << 10]);
        loop {
            let count = file.read_at(read.len() as u64, &mut block).unwrap();
            if count == 0 {
                break;
            }
            assert!(count == block.len());
            read.extend_from_slice(&block[..count]);
        }
        assert!(read == bytes && fake.count("GET /bkt/large") <= 4, "{}", fake.count("GET /bkt/large"));
        // What is fetched at once is not what somebody else reads, or what was read before.
        for offset in [5 << 20, (5 << 20) + (128 << 10), 3, 9 << 20, (16 << 20) - 7] {
            let count = file.read_at(offset, &mut block).unwrap();
            let end = bytes.len().min(offset as usize + block.len());
            assert!(block[..count] == bytes[offset as usize..end], "{offset}");
        }
        let spare = bucket.permits.spare(64 << 20);
        assert!(spare.is_some(), "nothing is held of what was read to its end");
    }

    /// One that copies within a bucket, through this host, has extents at hand while its parts wait to be sent.
    #[test]
    fn a_part_of_any_length_goes_out_while_extents_are_fetched_ahead() {
        let fake = Fake::start();
        fake.put("large", &vec![7; 3 << 20]);
        let (bucket, _keys) = bucket(&fake);
        let file = ObjectFile::open(&bucket, "large").unwrap();
        let read = file.extent(Extent::new(0, 1 << 20), &mut [0; 4096], &mut |_| true).unwrap();
        assert_eq!((read, file.ahead.slots.lock().unwrap().len()), (1 << 20, 2));
        // As the parts of the largest objects are.
        let (tell, told) = channel();
        let rooms = Rooms::new(bucket.permits.clone());
        std::thread::spawn(move || {
            (0..2).for_each(|_| drop(rooms.take(5 << 30, &mut || Ok(()))));
            tell.send(())
        });
        assert!(told.recv_timeout(Duration::from_secs(20)).is_ok());
        assert_eq!(file.extent(Extent::new(1 << 20, 2 << 20), &mut [0; 4096], &mut |_| true).unwrap(), 1 << 20);
    }

    #[test]
    fn pieces_in_any_order_make_the_extent() {
        let whole: Vec<u8> = (0..1000u32).map(|at| (at * 7 % 251) as u8).collect();
        for order in [[0, 1, 2, 3], [3, 1, 0, 2], [2, 3, 1, 0]] {
            let mut state = Gathering { bytes: Vec::new(), left: 4, failure: None, permit: None };
            for piece in order {
                // By blocks, as they come.
                for at in (piece * 250..(piece + 1) * 250).step_by(100) {
                    state.put(at, &whole[at..(at + 100).min((piece + 1) * 250)]);
                }
            }
            assert!(state.bytes == whole, "{order:?}");
        }
    }
}
