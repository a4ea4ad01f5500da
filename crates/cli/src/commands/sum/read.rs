//! Reads files on all processors and hands their digests out in the order of the listing.
//!
//! Large files are read in parts by several threads. Invariant: at most `WINDOW` files lie between the one that is
//! handed out next and the one that was listed last, so that memory is bounded whatever the listing's length.

use model::{ChunkHasher, Digest, DigestAlgorithm, Extent, FailureKind};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::sync::{Arc, Mutex, OnceLock};
use store::SourceFile;

/// Files between the oldest and the newest under way.
const WINDOW: usize = 4096;
/// A larger file is read by several threads.
const PART_BYTES: u64 = 64 << 20;
/// Stays in the second-level cache between read and digest.
const BLOCK_BYTES: usize = 256 << 10;

/// Opens an item; each thread has one of its own.
pub type Opener<'a, T> = Box<dyn FnMut(&T) -> store::Result<Arc<dyn SourceFile>> + 'a>;

/// What is to be read.
pub trait Reading: Sync {
    type Item: Send + Sync;

    /// Hands out what is to be read, until `emit` returns false.
    fn list(&self, emit: &mut dyn FnMut(Self::Item) -> bool);

    fn size_bytes(&self, item: &Self::Item) -> u64;

    fn opener(&self) -> Opener<'_, Self::Item>;

    /// Judges the file after it was read.
    fn settle(&self, item: &Self::Item, file: &dyn SourceFile) -> store::Result<()>;
}

/// Reads everything and hands each digest to `take`, which returns false to stop.
pub fn digest_all<R: Reading>(
    algorithm: DigestAlgorithm,
    reading: &R,
    take: &mut dyn FnMut(&R::Item, store::Result<Digest>) -> bool,
) {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let is_stopped = AtomicBool::new(false);
    let (parts_in, parts_out) = sync_channel(threads * 4);
    let parts_out = Mutex::new(parts_out);
    let (done_in, done_out) = channel();
    let (room_in, room_out) = sync_channel(WINDOW);
    std::thread::scope(|scope| {
        scope.spawn(|| list(reading, parts_in, room_in, &is_stopped));
        for _ in 0..threads {
            let done_in = done_in.clone();
            scope.spawn(|| work(algorithm, reading, &parts_out, done_in, &is_stopped));
        }
        drop(done_in);
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
    });
}

/// A file under way.
struct Pending<T> {
    number: u64,
    item: T,
    size_bytes: u64,
    /// `None` when it could not be opened.
    opened: OnceLock<Option<Arc<dyn SourceFile>>>,
    digests: Mutex<Vec<Option<Digest>>>,
    failure: Mutex<Option<store::Error>>,
    parts_left: AtomicUsize,
}

struct Part<T> {
    file: Arc<Pending<T>>,
    index: usize,
}

struct Done<T> {
    file: Arc<Pending<T>>,
    digest: store::Result<Digest>,
}

fn list<R: Reading>(reading: &R, parts: SyncSender<Part<R::Item>>, room: SyncSender<()>, is_stopped: &AtomicBool) {
    let mut number = 0;
    reading.list(&mut |item| {
        let size_bytes = reading.size_bytes(&item);
        let count = size_bytes.div_ceil(PART_BYTES).max(1) as usize;
        let file = Arc::new(Pending {
            number,
            item,
            size_bytes,
            opened: OnceLock::new(),
            digests: Mutex::new(vec![None; count]),
            failure: Mutex::default(),
            parts_left: AtomicUsize::new(count),
        });
        number += 1;
        let is_wanted = room.send(()).is_ok() && !is_stopped.load(SeqCst);
        is_wanted && (0..count).all(|index| parts.send(Part { file: file.clone(), index }).is_ok())
    });
}

fn work<R: Reading>(
    algorithm: DigestAlgorithm,
    reading: &R,
    parts: &Mutex<Receiver<Part<R::Item>>>,
    done: Sender<Done<R::Item>>,
    is_stopped: &AtomicBool,
) {
    let mut opener = reading.opener();
    let mut block = vec![0; BLOCK_BYTES];
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
            if done.send(Done { file, digest }).is_err() {
                return;
            }
        }
    }
}

/// The digest of one part; `None` when another part has found that the file cannot be read.
fn read_part<T>(
    algorithm: DigestAlgorithm,
    file: &Pending<T>,
    index: usize,
    opener: &mut Opener<'_, T>,
    block: &mut [u8],
) -> store::Result<Option<Digest>> {
    let mut failure = None;
    let opened = file.opened.get_or_init(|| opener(&file.item).map_err(|e| failure = Some(e)).ok());
    let Some(opened) = opened else { return failure.map_or(Ok(None), Err) };
    let start = index as u64 * PART_BYTES;
    let extent = Extent::new(start, file.size_bytes.min(start + PART_BYTES));
    let mut hasher = ChunkHasher::new(algorithm, extent.start);
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

fn conclude<R: Reading>(algorithm: DigestAlgorithm, reading: &R, file: &Pending<R::Item>) -> store::Result<Digest> {
    if let Some(e) = file.failure.lock().unwrap().take() {
        return Err(e);
    }
    let stopped = || store::Error::of_kind(FailureKind::Other, "read file", b"", "stopped");
    let opened = file.opened.get().and_then(Option::as_ref).ok_or_else(stopped)?;
    reading.settle(&file.item, &**opened)?;
    let digests: Option<Vec<Digest>> = file.digests.lock().unwrap().iter().copied().collect();
    Ok(algorithm.combine(&digests.ok_or_else(stopped)?, PART_BYTES, file.size_bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::Generation;
    use std::os::fd::BorrowedFd;

    /// Files of given lengths with the same byte throughout; every seventh cannot be opened.
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

        fn descriptor(&self) -> Option<BorrowedFd<'_>> {
            None
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
        for algorithm in [DigestAlgorithm::Crc64Nvme, DigestAlgorithm::Blake3] {
            let mut next = 0;
            digest_all(algorithm, &made, &mut |index, digest| {
                assert_eq!(*index, next);
                next += 1;
                match index % 7 {
                    6 => assert_eq!(digest.unwrap_err().kind, FailureKind::Permission),
                    _ => assert_eq!(digest.unwrap(), algorithm.of_object(&vec![7; made.0[*index] as usize])),
                }
                true
            });
            assert_eq!(next, made.0.len());
        }
    }

    #[test]
    fn a_reader_that_has_enough_ends_it() {
        let made = Made(vec![10; 100_000]);
        let mut taken = 0;
        digest_all(DigestAlgorithm::Crc64Nvme, &made, &mut |_, _| {
            taken += 1;
            taken < 3
        });
        assert_eq!(taken, 3);
    }
}
