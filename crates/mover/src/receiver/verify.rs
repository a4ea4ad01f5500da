//! Judges what arrived: whether the digest of the bytes at hand is the one the sender bound to object and extent.
//!
//! Pure. Who asks again, and how often, is decided elsewhere.

use model::{Digest, DigestAlgorithm, Extent, ObjectId};
use wire::data::{ChunkTrailer, PackRow, Status};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// The bytes are the sender's; this is their digest.
    Good(Digest),
    /// They are not: to be sent again.
    Mismatch,
    /// The sender itself takes the object back; it says more on the control stream.
    Void,
}

pub fn packed_file(row: &PackRow, bytes: &[u8], algorithm: DigestAlgorithm) -> Verdict {
    match row.status {
        Status::Changed | Status::Failed if !model::mutant::is_on("publish-what-was-taken-back") => Verdict::Void,
        _ => bound(algorithm.of_object(bytes), row.object, Extent::new(0, bytes.len() as u64), &row.bound),
    }
}

pub fn chunk(trailer: &ChunkTrailer, object: ObjectId, extent: Extent, digest: Digest) -> Verdict {
    match trailer.status {
        Status::Changed | Status::Failed => Verdict::Void,
        Status::Good | Status::GoodLast => bound(digest, object, extent, &trailer.bound),
    }
}

fn bound(digest: Digest, object: ObjectId, extent: Extent, told: &Digest) -> Verdict {
    if digest.bind(object, extent) == *told || model::mutant::is_on("commit-before-verify") {
        Verdict::Good(digest)
    } else {
        Verdict::Mismatch
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_flipped_bit_or_a_wrong_place_is_a_mismatch() {
        for algorithm in [DigestAlgorithm::Crc64Nvme, DigestAlgorithm::Blake3] {
            let mut bytes = *b"some content of a file";
            let extent = Extent::new(0, bytes.len() as u64);
            let bound = algorithm.of_object(&bytes).bind(ObjectId(5), extent);
            let row = PackRow { object: ObjectId(5), length: bytes.len() as u32, status: Status::Good, bound };
            assert_eq!(packed_file(&row, &bytes, algorithm), Verdict::Good(algorithm.of_object(&bytes)));
            assert_eq!(packed_file(&PackRow { object: ObjectId(6), ..row }, &bytes, algorithm), Verdict::Mismatch);
            assert_eq!(packed_file(&PackRow { status: Status::Changed, ..row }, &bytes, algorithm), Verdict::Void);
            for bit in 0..bytes.len() * 8 {
                bytes[bit / 8] ^= 1 << (bit % 8);
                assert_eq!(packed_file(&row, &bytes, algorithm), Verdict::Mismatch);
                bytes[bit / 8] ^= 1 << (bit % 8);
            }
        }
    }
}
