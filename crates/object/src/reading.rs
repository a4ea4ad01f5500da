//! Content of one version of an object.
//!
//! Invariant: an object that was read whole has the checksum that the store keeps of it, if it keeps one.
//!
//! Not here: requests (`ranges`), and what is fetched before it is asked for (`ahead`).

use crate::ahead::{Ahead, Fetched};
use crate::bucket::Bucket;
use crate::calls::{Object, crc_of};
use crate::failure::{Failure, Result, Why};
use crate::ranges::CONTINUED_MAX;
use crate::width::Permit;
use aws_lc_rs::digest;
use model::{ChunkHasher, Digest, DigestAlgorithm, Extent, FailureKind, Generation, Timestamp, VersionToken};
use std::any::Any;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex, OnceLock};
use store::SourceFile;

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
        let mut hasher = ChunkHasher::new(DigestAlgorithm::Crc64Nvme, 0);
        let (read, crc) = match self.ahead.take(start) {
            Some((fetched, permit)) => {
                let Some(Fetched { bytes, crc }) = self.settled(fetched)? else { return Ok(0) };
                let mut handed = 0;
                for block in bytes.chunks(block.len()) {
                    handed += block.len() as u64;
                    if crc.is_none() {
                        hasher.update(block);
                    }
                    if !each(block) {
                        return Ok(handed);
                    }
                }
                permit.end_with(bytes);
                (handed, crc)
            }
            None => {
                let read = self.bucket.stream((&self.key, &self.object.etag), (start, end), block, &mut |bytes| {
                    hasher.update(bytes);
                    each(bytes)
                });
                let Some(read) = self.settled(read)? else { return Ok(0) };
                (read, None)
            }
        };
        if read == end - start
            && let Digest::Crc64Nvme(crc) = crc.map_or_else(|| hasher.finish(true), Digest::Crc64Nvme)
        {
            self.judge(start, read, crc)?;
        }
        Ok(read)
    }

    /// Fetches what comes next, as far as memory is spare.
    fn fetch_ahead(&self, from: u64, length: u64) {
        let version = (&self.bucket, &self.key[..], &self.object.etag[..]);
        let is_read = |start: &u64| self.read.lock().unwrap().contains_key(start);
        self.ahead.fetch(version, self.object.size_bytes, (from, length), &is_read);
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
}

pub fn damaged(key: &str) -> store::Error {
    let why = "what the store sent is not what it keeps the checksum of";
    store::Error::of_kind(FailureKind::DigestMismatch, "read file", key.as_bytes(), why)
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
    /// Where a link leads to: what the version says that was looked at.
    pub fn link_target(&self, key: &str, known: &Object) -> store::Result<Vec<u8>> {
        let (target, found) = self.read_whole(key, known.size_bytes as usize)?;
        match found.etag == known.etag {
            true => Ok(target),
            false => Err(Failure::new(Why::Condition, "it changed while it was read").on("read link", key)),
        }
    }

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
pub mod tests {
    use super::*;
    use crate::config::StoreConfig;
    use crate::width::Rooms;
    use fakes::{BUCKET, Fake, SECRET};
    use std::time::Duration;

    /// The bucket of a store, while its keys are kept.
    pub fn bucket(fake: &Fake) -> (Arc<Bucket>, tempfile::NamedTempFile) {
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

    /// As an endpoint beside the store reads for a client far away.
    #[test]
    fn what_is_read_in_short_extents_takes_as_few_requests_as_in_long_ones() {
        const SIZE: u64 = 80 << 20;
        let fake = Fake::start();
        fake.state.lock().unwrap().put_zeros("large", SIZE as usize, Vec::new());
        let (bucket, _keys) = bucket(&fake);
        for length in [1 << 20, 2 << 20, 8 << 20] {
            let file = ObjectFile::open(&bucket, "large").unwrap();
            let before = fake.count("GET /bkt/large");
            for start in (0..SIZE).step_by(length) {
                let extent = Extent::new(start, start + length as u64);
                let read = file.extent(extent, &mut vec![0; 128 << 10], &mut |_| true).unwrap();
                assert_eq!(read, extent.length());
                assert!(file.ahead.len() as u64 <= (64 << 20) / length as u64, "{}", file.ahead.len());
            }
            let requests = fake.count("GET /bkt/large") - before;
            // Whoever begins does not wait for a row.
            assert!(requests <= 11, "{requests} for extents of {length}");
        }
    }

    /// One that copies within a bucket, through this host, has extents at hand while its parts wait to be sent.
    #[test]
    fn a_part_of_any_length_goes_out_while_extents_are_fetched_ahead() {
        let fake = Fake::start();
        fake.put("large", &vec![7; 3 << 20]);
        let (bucket, _keys) = bucket(&fake);
        let file = ObjectFile::open(&bucket, "large").unwrap();
        let read = file.extent(Extent::new(0, 1 << 20), &mut [0; 4096], &mut |_| true).unwrap();
        assert_eq!((read, file.ahead.len()), (1 << 20, 2));
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
}
