//! The digest of a file while it is read, by any of the algorithms that lists are made with.

use aws_lc_rs::digest::{Context, SHA256};
use md5::{Digest as _, Md5};
use model::files::{Sum, SumAlgorithm};
use model::{ChunkHasher, Digest};
use simd_adler32::Adler32;

/// One part of a file, or all of it.
pub enum PartHasher {
    Chunk(Box<ChunkHasher>),
    Sha256(Context),
    Md5(Md5),
    Adler32(Adler32),
}

/// What a part comes to.
#[derive(Clone)]
pub enum PartDigest {
    Chunk(Digest),
    Whole(Sum),
}

impl PartHasher {
    pub fn new(algorithm: SumAlgorithm, start: u64) -> PartHasher {
        match (algorithm.in_chunks(), algorithm) {
            (Some(chunks), _) => PartHasher::Chunk(Box::new(ChunkHasher::new(chunks, start))),
            (None, SumAlgorithm::Md5) => PartHasher::Md5(Md5::new()),
            (None, SumAlgorithm::Adler32) => PartHasher::Adler32(Adler32::new()),
            (None, _) => PartHasher::Sha256(Context::new(&SHA256)),
        }
    }

    pub fn update(&mut self, bytes: &[u8]) {
        match self {
            PartHasher::Chunk(hasher) => hasher.update(bytes),
            PartHasher::Sha256(context) => context.update(bytes),
            PartHasher::Md5(hasher) => hasher.update(bytes),
            PartHasher::Adler32(hasher) => hasher.write(bytes),
        }
    }

    pub fn finish(self, is_whole: bool) -> PartDigest {
        let whole = |algorithm, bytes: &[u8]| PartDigest::Whole(Sum { algorithm, bytes: bytes.into() });
        match self {
            PartHasher::Chunk(hasher) => PartDigest::Chunk(hasher.finish(is_whole)),
            PartHasher::Sha256(context) => whole(SumAlgorithm::Sha256, context.finish().as_ref()),
            PartHasher::Md5(hasher) => whole(SumAlgorithm::Md5, &hasher.finalize()[..]),
            PartHasher::Adler32(hasher) => whole(SumAlgorithm::Adler32, &hasher.finish().to_be_bytes()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_words_have_their_known_digests() {
        for (algorithm, hex) in [
            (SumAlgorithm::Crc64Nvme, "ae8b14860a799888"),
            (SumAlgorithm::Sha256, "15e2b0d3c33891ebb0f1ef609ec419420c20e320ce94c65fbc8c3312448eb225"),
            (SumAlgorithm::Md5, "25f9e794323b453885f5181f1b624d0b"),
            (SumAlgorithm::Adler32, "091e01de"),
        ] {
            let mut hasher = PartHasher::new(algorithm, 0);
            hasher.update(b"1234");
            hasher.update(b"56789");
            let sum = match hasher.finish(true) {
                PartDigest::Chunk(digest) => Sum::from(&digest),
                PartDigest::Whole(sum) => sum,
            };
            assert_eq!(sum.to_string(), hex, "{algorithm}");
        }
    }
}
