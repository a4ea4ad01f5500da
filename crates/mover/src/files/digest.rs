//! Reads files on several processors and hands their digests out in the order of the listing.
//!
//! Large files are read in parts by several threads where the digest can be put together from parts. Invariant: at most
//! `WINDOW` items lie between the one that is handed out next and the one that was listed last, so that memory is bounded
//! whatever the listing's length.

use super::sum::{PartDigest, PartHasher};
use crate::block::Block;
use model::files::{Sum, SumAlgorithm};
use model::{Digest, Extent, FailureKind};
use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::sync::{Arc, Mutex, OnceLock};
use store::SourceFile;

/// Items between the oldest and the newest under way.
const WINDOW: usize = 4096;
/// A larger file is read by several threads.
const PART_BYTES: u64 = 64 << 20;
/// Stays in the second-level cache between read and digest.
const BLOCK_BYTES: usize = 256 << 10;
/// Parts of one file: 1 PiB.
const PARTS_MAX: u64 = 1 << 24;
const THREADS_MAX: usize = 16;

/// Opens an item; each thread has one of its own.
pub type Opener<'a, T> = Box<dyn FnMut(&T) -> store::Result<Arc<dyn SourceFile>> + 'a>;

/// What is to be read.
pub trait Reading: Sync {
    type Item: Send + Sync;

    /// Hands out what is to be read, until `emit` returns false.
    fn list(&self, emit: &mut dyn FnMut(Self::Item) -> bool);

    /// Whether the item is a file to be read; others are handed out in their place without a digest.
    fn is_read(&self, item: &Self::Item) -> bool {
        let _ = item;
        true
    }

    fn size_bytes(&self, item: &Self::Item) -> u64;

    fn opener(&self) -> Opener<'_, Self::Item>;

    /// Judges the file after it was read.
    fn settle(&self, item: &Self::Item, file: &dyn SourceFile) -> store::Result<()>;
}

/// Takes an item, and the digest of one that is read; false ends it.
pub type Take<'a, T> = &'a mut dyn FnMut(&T, Option<store::Result<Sum>>) -> bool;

/// Reads everything and hands each digest to `take`.
///
/// # Errors
/// When the system gives no threads.
pub fn digest_all<R: Reading>(algorithm: SumAlgorithm, reading: &R, take: Take<'_, R::Item>) -> io::Result<()> {
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(THREADS_MAX);
    let is_stopped = AtomicBool::new(false);
    let (parts_in, parts_out) = sync_channel(threads * 4);
    let parts_out = Mutex::new(parts_out);
    let (done_in, done_out) = channel();
    let (room_in, room_out) = sync_channel(WINDOW);
    std::thread::scope(|scope| {
        let (parts, stopped) = (&parts_out, &is_stopped);
        os::thread::several(scope, "digest", threads, || {
            let done = done_in.clone();
            move || work(algorithm, reading, parts, done, stopped)
        })?;
        let list = move || list(algorithm, reading, parts_in, room_in, done_in, stopped);
        std::thread::Builder::new().name("list".to_owned()).spawn_scoped(scope, list)?;
        let mut waiting: BTreeMap<u64, Done<R::Item>> = BTreeMap::new();
        let mut next = 0;
        for done in done_out {
            waiting.insert(done.file.number, done);
            while let Some(Done { file, digest }) = waiting.remove(&next) {
                next += 1;
                let _ = room_out.try_recv();
                if !is_stopped.load(SeqCst) && !take(&file.item, digest) {
                    is_stopped.store(true, SeqCst);
                }
            }
        }
        Ok(())
    })
}

/// A file under way.
struct Pending<T> {
    number: u64,
    item: T,
    size_bytes: u64,
    /// `None` when it could not be opened.
    opened: OnceLock<Option<Arc<dyn SourceFile>>>,
    digests: Mutex<Vec<Option<PartDigest>>>,
    failure: Mutex<Option<store::Error>>,
    parts_left: AtomicUsize,
}

struct Part<T> {
    file: Arc<Pending<T>>,
    index: usize,
}

struct Done<T> {
    file: Arc<Pending<T>>,
    digest: Option<store::Result<Sum>>,
}

fn list<R: Reading>(
    algorithm: SumAlgorithm,
    reading: &R,
    parts: SyncSender<Part<R::Item>>,
    room: SyncSender<()>,
    done: Sender<Done<R::Item>>,
    is_stopped: &AtomicBool,
) {
    let mut number = 0;
    reading.list(&mut |item| {
        let is_read = reading.is_read(&item);
        let size_bytes = if is_read { reading.size_bytes(&item) } else { 0 };
        let parts_needed = match algorithm.in_chunks() {
            Some(_) => size_bytes.div_ceil(PART_BYTES).max(1),
            None => 1,
        };
        // A size that a list claims must not take memory.
        let too_large = || store::Error::of_kind(FailureKind::Other, "read file", b"", "larger than any file can be");
        let (count, failure) = match parts_needed <= PARTS_MAX {
            true => (parts_needed as usize, None),
            false => (1, Some(too_large())),
        };
        let file = Arc::new(Pending {
            number,
            item,
            size_bytes,
            opened: OnceLock::new(),
            digests: Mutex::new(vec![None; count]),
            failure: Mutex::new(failure),
            parts_left: AtomicUsize::new(count),
        });
        number += 1;
        let is_wanted = room.send(()).is_ok() && !is_stopped.load(SeqCst);
        match is_read {
            _ if !is_wanted => false,
            true => (0..count).all(|index| parts.send(Part { file: file.clone(), index }).is_ok()),
            false => done.send(Done { file, digest: None }).is_ok(),
        }
    });
}

fn work<R: Reading>(
    algorithm: SumAlgorithm,
    reading: &R,
    parts: &Mutex<Receiver<Part<R::Item>>>,
    done: Sender<Done<R::Item>>,
    is_stopped: &AtomicBool,
) {
    let mut opener = reading.opener();
    let mut block = Block::new(BLOCK_BYTES);
    loop {
        // The lock is held while this thread waits for work: the others would wait for the same.
        let next = parts.lock().unwrap().recv();
        let Ok(Part { file, index }) = next else { return };
        if !is_stopped.load(SeqCst) {
            match read_part(algorithm, &file, index, &mut opener, &mut block) {
                Ok(digest) => file.digests.lock().unwrap()[index] = digest,
                Err(e) => _ = file.failure.lock().unwrap().get_or_insert(e),
            }
        }
        if file.parts_left.fetch_sub(1, SeqCst) == 1 {
            let digest = conclude(algorithm, reading, &file);
            if done.send(Done { file, digest: Some(digest) }).is_err() {
                return;
            }
        }
    }
}

/// The digest of one part; `None` when another part has found that the file cannot be read.
fn read_part<T>(
    algorithm: SumAlgorithm,
    file: &Pending<T>,
    index: usize,
    opener: &mut Opener<'_, T>,
    block: &mut [u8],
) -> store::Result<Option<PartDigest>> {
    let mut failure = None;
    let opened = file.opened.get_or_init(|| opener(&file.item).map_err(|e| failure = Some(e)).ok());
    let Some(opened) = opened else { return failure.map_or(Ok(None), Err) };
    if file.size_bytes == 0 && opened.read_at(0, &mut block[..1])? > 0 {
        return Err(store::Error::of_kind(FailureKind::ReadError, "read file", b"", store::SIZE_UNTRUE));
    }
    let start = index as u64 * PART_BYTES;
    let end = if algorithm.in_chunks().is_some() { start + PART_BYTES } else { u64::MAX };
    let extent = Extent::new(start, file.size_bytes.min(end));
    let mut hasher = PartHasher::new(algorithm, extent.start);
    let mut at = extent.start;
    while at < extent.end {
        let wanted = (extent.end - at).min(block.len() as u64) as usize;
        let got = opened.read_at(at, &mut block[..wanted])?;
        if got < wanted {
            return Err(store::Error::of_kind(FailureKind::Changed, "read file", b"", "it became shorter meanwhile"));
        }
        hasher.update(&block[..wanted]);
        at += wanted as u64;
    }
    Ok(Some(hasher.finish(extent == Extent::new(0, file.size_bytes))))
}

fn conclude<R: Reading>(algorithm: SumAlgorithm, reading: &R, file: &Pending<R::Item>) -> store::Result<Sum> {
    if let Some(e) = file.failure.lock().unwrap().take() {
        return Err(e);
    }
    let stopped = || store::Error::of_kind(FailureKind::Other, "read file", b"", "stopped");
    let opened = file.opened.get().and_then(Option::as_ref).ok_or_else(stopped)?;
    reading.settle(&file.item, &**opened)?;
    let parts: Option<Vec<PartDigest>> = std::mem::take(&mut *file.digests.lock().unwrap()).into_iter().collect();
    let mut chunks: Vec<Digest> = Vec::new();
    for part in parts.ok_or_else(stopped)? {
        match part {
            PartDigest::Whole(sum) => return Ok(sum),
            PartDigest::Chunk(digest) => chunks.push(digest),
        }
    }
    let chunked = algorithm.in_chunks().expect("what is digested in chunks can be put together");
    Ok(Sum::from(&chunked.combine(&chunks, PART_BYTES, file.size_bytes)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::Generation;

    /// Files of given lengths with the same byte throughout; of each seven one is not read and one cannot be opened.
    struct Made(Vec<u64>);

    struct MadeFile(u64);

    impl SourceFile for MadeFile {
        fn read_at(&self, offset: u64, buffer: &mut [u8]) -> store::Result<usize> {
            let bytes = (self.0 - offset).min(buffer.len() as u64) as usize;
            buffer[..bytes].fill(7);
            Ok(bytes)
        }

        fn generation(&self) -> store::Result<Generation> {
            Ok(Generation::default())
        }
    }

    impl Reading for Made {
        type Item = usize;

        fn list(&self, emit: &mut dyn FnMut(usize) -> bool) {
            for index in 0..self.0.len() {
                if !emit(index) {
                    return;
                }
            }
        }

        fn is_read(&self, index: &usize) -> bool {
            index % 7 != 5
        }

        fn size_bytes(&self, index: &usize) -> u64 {
            self.0[*index]
        }

        fn opener(&self) -> Opener<'_, usize> {
            Box::new(|index| match index % 7 {
                6 => Err(store::Error::of_kind(FailureKind::Permission, "open file", b"", "refused")),
                _ => Ok(Arc::new(MadeFile(self.0[*index]))),
            })
        }

        fn settle(&self, _: &usize, _: &dyn SourceFile) -> store::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn digests_come_in_the_order_of_the_listing_and_large_files_are_combined() {
        let mut sizes: Vec<u64> = (0..9000).map(|i| i % 100).collect();
        sizes[3] = 2 * PART_BYTES + 5;
        sizes[4] = PART_BYTES;
        let made = Made(sizes);
        for algorithm in SumAlgorithm::ALL {
            let mut next = 0;
            let begun = digest_all(algorithm, &made, &mut |index, digest| {
                assert_eq!(*index, next);
                next += 1;
                match index % 7 {
                    5 => assert!(digest.is_none()),
                    6 => assert_eq!(digest.unwrap().unwrap_err().kind, FailureKind::Permission),
                    _ => {
                        let mut hasher = PartHasher::new(algorithm, 0);
                        hasher.update(&vec![7; made.0[*index] as usize]);
                        let sum = match hasher.finish(true) {
                            PartDigest::Whole(sum) => sum,
                            PartDigest::Chunk(digest) => Sum::from(&digest),
                        };
                        assert_eq!(digest.unwrap().unwrap(), sum);
                    }
                }
                true
            });
            begun.unwrap();
            assert_eq!(next, made.0.len());
        }
    }

    #[test]
    fn a_reader_that_has_enough_ends_it() {
        let made = Made(vec![10; 100_000]);
        let mut taken = 0;
        let begun = digest_all(SumAlgorithm::Crc64Nvme, &made, &mut |_, _| {
            taken += 1;
            taken < 3
        });
        begun.unwrap();
        assert_eq!(taken, 3);
    }
}
