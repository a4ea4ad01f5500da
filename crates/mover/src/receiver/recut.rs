//! What an earlier attempt verified in chunks of another length, in those of this job.
//!
//! Invariant: a chunk counts only if all of it lies in recorded chunks that were read back and have their recorded digests. Its own
//! digest is of the same bytes, which are read once.
//!
//! Not here: the logs that say so (`resume`).

use crate::block::Block;
use crate::limits::BLOCK_BYTES;
use ledger::extent_log::{Chunk, Header};
use model::{ChunkHasher, Digest, Extent};
use store::StagedFile;

/// Reads back what was `recorded`, and returns the chunks of the header's length that are whole in it; `None` when `is_over` says so
/// before what is read next.
pub fn recut(
    file: &dyn StagedFile,
    mut recorded: Vec<Chunk>,
    (header, object_bytes): (&Header, u64),
    is_over: &dyn Fn() -> bool,
) -> store::Result<Option<Vec<Chunk>>> {
    recorded.retain(|(extent, _)| extent.end <= object_bytes);
    recorded.sort_unstable_by_key(|(extent, _)| extent.start);
    let block = Block::new(BLOCK_BYTES);
    let mut cut = Cut { file, header, object_bytes, block, end: 0, open: None, whole: Vec::new() };
    for (extent, digest) in recorded {
        if is_over() {
            return Ok(None);
        }
        let before = cut.whole.len();
        if cut.read(extent)? != Some(digest) {
            cut.whole.truncate(before);
            cut.open = None;
        }
    }
    Ok(Some(cut.whole))
}

struct Cut<'a> {
    file: &'a dyn StagedFile,
    header: &'a Header,
    object_bytes: u64,
    block: Block,
    /// Where what was read last ends.
    end: u64,
    /// The chunk of which the beginning was read, up to there, and where it starts.
    open: Option<(u64, ChunkHasher)>,
    whole: Vec<Chunk>,
}

impl Cut<'_> {
    /// The digest of what is there of a recorded chunk; `None` if that is less.
    fn read(&mut self, recorded: Extent) -> store::Result<Option<Digest>> {
        let (algorithm, chunk_bytes) = (self.header.algorithm, self.header.chunk_bytes);
        let all = Extent::new(0, self.object_bytes);
        if std::mem::replace(&mut self.end, recorded.end) != recorded.start {
            self.open = None;
        }
        let mut hasher = ChunkHasher::new(algorithm, recorded.start);
        let mut at = recorded.start;
        while at < recorded.end {
            if at.is_multiple_of(chunk_bytes) {
                self.open = Some((at, ChunkHasher::new(algorithm, at)));
            }
            let chunk_end = all.end.min((at / chunk_bytes + 1) * chunk_bytes);
            let wanted = self.block.len().min((recorded.end.min(chunk_end) - at) as usize);
            let block = &mut self.block[..wanted];
            if self.file.read_at(at, block)? < wanted {
                return Ok(None);
            }
            hasher.update(block);
            at += wanted as u64;
            let Some((start, open)) = &mut self.open else { continue };
            open.update(block);
            if at == chunk_end {
                let chunk = Extent::new(*start, at);
                self.whole.push((chunk, open.finish(chunk == all)));
                self.open = None;
            }
        }
        Ok(Some(hasher.finish(recorded == all)))
    }
}

#[cfg(test)]
mod tests {
    use super::super::by_hand::{Altered, Rig};
    use super::super::zeros::Zeros;
    use super::*;
    use conformance::memory::Memory;
    use model::options::Fsync;
    use model::{DigestAlgorithm, Entry, JobId, TransferOptions};
    use std::cell::Cell;
    use store::{PublishRule, Result};
    use wire::Message;

    const KIB: u64 = 1 << 10;

    /// What lies in staging. Journals are of no interest.
    struct Staged(Vec<u8>);

    impl StagedFile for Staged {
        fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()> {
            Zeros.write_at(offset, bytes)
        }
        fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<usize> {
            let there = self.0.get(offset as usize..).unwrap_or_default();
            let got = there.len().min(buffer.len());
            buffer[..got].copy_from_slice(&there[..got]);
            Ok(got)
        }
        fn append_journal(&self, bytes: &[u8]) -> Result<()> {
            Zeros.append_journal(bytes)
        }
        fn truncate_journal(&self, length: u64) -> Result<()> {
            Zeros.truncate_journal(length)
        }
        fn checkpoint(&self) -> Result<()> {
            Zeros.checkpoint()
        }
        fn reread(&self, check: &mut dyn FnMut(&[u8])) -> Result<()> {
            Zeros.reread(check)
        }
        fn publish(&self, entry: &Entry, rule: PublishRule) -> Result<()> {
            Zeros.publish(entry, rule)
        }
        fn discard(&self) {}
    }

    fn digest_of(algorithm: DigestAlgorithm, content: &[u8], extent: Extent) -> Digest {
        let mut hasher = ChunkHasher::new(algorithm, extent.start);
        hasher.update(&content[extent.start as usize..extent.end as usize]);
        hasher.finish(extent == Extent::new(0, content.len() as u64))
    }

    /// The chunks of this length, by their numbers, with their digests.
    fn chunks(algorithm: DigestAlgorithm, content: &[u8], chunk_bytes: u64, numbers: &[u64]) -> Vec<Chunk> {
        let chunk = |number: &u64| {
            let start = number * chunk_bytes;
            let extent = Extent::new(start, (start + chunk_bytes).min(content.len() as u64));
            (extent, digest_of(algorithm, content, extent))
        };
        numbers.iter().map(chunk).collect()
    }

    fn header(algorithm: DigestAlgorithm, chunk_bytes: u64) -> Header {
        let (stem, name) = (b"stem".to_vec(), b"data".to_vec());
        Header { algorithm, chunk_bytes, object_bytes: None, stem, boot: [1; 16], job: JobId([1; 16]), name }
    }

    #[test]
    fn chunks_of_another_length_are_made_of_what_is_whole_and_sound() {
        // Longer than a block, and no multiple of either length.
        let byte = |at: u64| (at.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8;
        let content: Vec<u8> = (0..300 * KIB + 7).map(byte).collect();
        let object_bytes = content.len() as u64;
        for algorithm in [DigestAlgorithm::Crc64Nvme, DigestAlgorithm::Blake3] {
            let cut = |file: &Staged, from: (u64, &[u64]), to: u64| {
                let recorded = chunks(algorithm, &content, from.0, from.1);
                recut(file, recorded, (&header(algorithm, to), object_bytes), &|| false).unwrap().unwrap()
            };
            let of = |chunk_bytes, numbers: &[u64]| chunks(algorithm, &content, chunk_bytes, numbers);
            let sound = Staged(content.clone());
            // In whatever order they came; 4 of 64 KiB is the last one, and so is 1 of 256 KiB.
            let small = (64 * KIB, &[3, 1, 0, 2, 4][..]);
            assert_eq!(cut(&sound, small, 256 * KIB), of(256 * KIB, &[0, 1]));
            assert_eq!(cut(&sound, (64 * KIB, &[0, 1, 3, 4]), 256 * KIB), of(256 * KIB, &[1]));
            assert_eq!(cut(&sound, (256 * KIB, &[1]), 64 * KIB), of(64 * KIB, &[4]));
            assert_eq!(cut(&sound, (256 * KIB, &[1, 0]), 64 * KIB), of(64 * KIB, &[0, 1, 2, 3, 4]));
            // One bit has flipped, in the third of the small ones.
            let mut damaged = Staged(content.clone());
            damaged.0[130 << 10] ^= 1;
            assert_eq!(cut(&damaged, small, 256 * KIB), of(256 * KIB, &[1]));
            assert_eq!(cut(&damaged, small, 128 * KIB), of(128 * KIB, &[0, 2]));
            assert_eq!(cut(&damaged, (256 * KIB, &[0, 1]), 64 * KIB), of(64 * KIB, &[4]));
            // The end was never written.
            let short = Staged(content[..300 << 10].to_vec());
            assert_eq!(cut(&short, small, 256 * KIB), of(256 * KIB, &[0]));
        }
    }

    #[test]
    fn a_job_that_is_over_reads_no_more_chunks_of_another_length() {
        let (algorithm, content) = (DigestAlgorithm::Crc64Nvme, vec![7; 8 << 10]);
        let recorded = chunks(algorithm, &content, KIB, &[0, 1, 2, 3]);
        let asked = Cell::new(0);
        let is_over = || asked.replace(asked.get() + 1) == 2;
        let header = header(algorithm, 2 * KIB);
        assert_eq!(recut(&Staged(content), recorded, (&header, 8 * KIB), &is_over).unwrap(), None);
        assert_eq!(asked.get(), 3);
    }

    #[test]
    fn what_an_earlier_attempt_left_counts_in_chunks_of_another_length() {
        const SHORT: u64 = 64 << 10;
        const BYTES: u64 = 6 * SHORT;
        for (before, after) in [(SHORT, 2 * SHORT), (2 * SHORT, SHORT)] {
            let memory = Memory::default();
            let rig = |chunk_bytes| {
                let options = TransferOptions { chunk_bytes, fsync: Fsync::Never, ..TransferOptions::default() };
                Rig::new(Altered::of(&memory), options)
            };
            let first = rig(before);
            first.describe(1, "f", BYTES, 1).unwrap();
            (0..4 * SHORT).step_by(before as usize).for_each(|start| first.bring(&mut first.writer(), 1, start, BYTES));
            drop(first);
            // Its thread may still have the staging.
            while memory.is_held() {
                std::thread::yield_now();
            }
            let second = rig(after);
            let wanted = second.describe(1, "f", BYTES, 1).unwrap();
            let missing: Vec<_> = wanted.extents.iter().map(|extent| (extent.start, extent.end)).collect();
            assert_eq!((missing, wanted.runs), (vec![(4 * SHORT, BYTES)], vec![]));
            let rest = (4 * SHORT..BYTES).step_by(after as usize);
            rest.for_each(|start| second.bring(&mut second.writer(), 1, start, BYTES));
            let failed = second.hear(|message| match message {
                Message::Settled(settled) => Some(settled.failed),
                _ => None,
            });
            assert!(failed.is_empty(), "{failed:?}");
            assert_eq!(memory.content("f"), Some(vec![b'x'; BYTES as usize]));
        }
    }
}
