//! The bytes of a spool: the head of a segment, and what stands before and behind each piece of a parcel. Pure.
//!
//! A segment is its head (one page) and pieces one after the other. A piece is 64 bytes that say what it is, its content, and 16
//! bytes that are written last. Numbers are little-endian; every record ends with the CRC-64/NVME of what precedes it.

use model::Crc64;
use model::mutant;

const MAGIC: &[u8; 8] = b"twspool1";
const VERSION: u32 = 1;
const PIECE_MAGIC: u32 = 0x6563_7077;
pub const HEAD_BYTES: u64 = 4096;
pub const HEAD_USED: usize = 112;
pub const BEFORE_BYTES: usize = 64;
pub const BEHIND_BYTES: usize = 16;
/// What a piece takes beside its content.
pub const PIECE_BYTES: u64 = (BEFORE_BYTES + BEHIND_BYTES) as u64;

pub const OWNER_BYTES: usize = 56;

/// Whose a parcel is: opaque here. Never the same twice.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Owner(pub [u8; OWNER_BYTES]);

/// How long a parcel stays.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// To its owner's end.
    Journal = 0,
    /// Until it is released.
    Content = 1,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SegmentHead {
    /// Which spool it is a part of.
    pub spool: u64,
    pub number: u32,
    pub segment_bytes: u64,
    /// Counts the uses of segments, each process from a number that it draws: a piece of another one is an older use's.
    pub epoch: u64,
    pub owner: Owner,
}

/// What the head of a segment says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Head {
    /// Nothing that can be read: the segment is free.
    Free,
    Used(SegmentHead),
    /// It was written by a version of the program that this one does not know.
    Version(u32),
}

/// What stands before a piece.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PieceHead {
    pub epoch: u64,
    /// Where in the segment this head stands.
    pub at: u64,
    /// Of the content.
    pub bytes: u64,
    pub parcel: u64,
    pub piece: u32,
    pub is_last: bool,
    pub kind: Kind,
}

impl SegmentHead {
    pub fn encode(&self) -> [u8; HEAD_USED] {
        let mut bytes = [0; HEAD_USED];
        bytes[..8].copy_from_slice(MAGIC);
        bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.number.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.spool.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.segment_bytes.to_le_bytes());
        bytes[32..40].copy_from_slice(&self.epoch.to_le_bytes());
        bytes[40..40 + OWNER_BYTES].copy_from_slice(&self.owner.0);
        seal(&mut bytes);
        bytes
    }
}

impl Head {
    pub fn decode(bytes: &[u8; HEAD_USED]) -> Head {
        if &bytes[..8] != MAGIC || !is_sealed(bytes) {
            return Head::Free;
        }
        match u32_at(bytes, 8) {
            VERSION => {}
            version => return Head::Version(version),
        }
        Head::Used(SegmentHead {
            number: u32_at(bytes, 12),
            spool: u64_at(bytes, 16),
            segment_bytes: u64_at(bytes, 24),
            epoch: u64_at(bytes, 32),
            owner: Owner(bytes[40..40 + OWNER_BYTES].try_into().expect("56 bytes")),
        })
    }
}

impl PieceHead {
    pub fn encode(&self) -> [u8; BEFORE_BYTES] {
        let mut bytes = [0; BEFORE_BYTES];
        bytes[..4].copy_from_slice(&PIECE_MAGIC.to_le_bytes());
        bytes[4..8].copy_from_slice(&self.piece.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.epoch.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.at.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.bytes.to_le_bytes());
        bytes[32..40].copy_from_slice(&self.parcel.to_le_bytes());
        bytes[40] = self.is_last as u8;
        bytes[41] = self.kind as u8;
        seal(&mut bytes);
        bytes
    }

    /// The head of a piece that stands at `at` in this use of the segment; nothing where none does.
    pub fn decode(bytes: &[u8; BEFORE_BYTES], segment: &SegmentHead, at: u64) -> Option<PieceHead> {
        if u32_at(bytes, 0) != PIECE_MAGIC || !is_sealed(bytes) {
            return None;
        }
        let head = PieceHead {
            epoch: u64_at(bytes, 8),
            at: u64_at(bytes, 16),
            bytes: u64_at(bytes, 24),
            parcel: u64_at(bytes, 32),
            piece: u32_at(bytes, 4),
            is_last: bytes[40] == 1,
            kind: if bytes[41] == 0 { Kind::Journal } else { Kind::Content },
        };
        let is_here = head.at == at && (head.epoch == segment.epoch || mutant::is_on("take-old-epoch"));
        let is_within = head.bytes <= segment.segment_bytes.checked_sub(at + PIECE_BYTES)?;
        (is_here && is_within).then_some(head)
    }

    /// What is written behind the piece when its content is written: it counts from then on.
    pub fn behind(&self, content_crc: u64) -> [u8; BEHIND_BYTES] {
        let mut bytes = [0; BEHIND_BYTES];
        bytes[..8].copy_from_slice(&content_crc.to_le_bytes());
        bytes[8..].copy_from_slice(&self.bond(content_crc).to_le_bytes());
        bytes
    }

    /// The checksum of the content, if the piece was completed in this use of the segment.
    pub fn content_crc(&self, behind: &[u8; BEHIND_BYTES]) -> Option<u64> {
        let crc = u64_at(behind, 0);
        (u64_at(behind, 8) == self.bond(crc)).then_some(crc)
    }

    fn bond(&self, content_crc: u64) -> u64 {
        let mut hasher = Crc64::new();
        // Without its own checksum: with it, every head would add up to the same.
        hasher.update(&self.encode()[..BEFORE_BYTES - 8]);
        hasher.update(&content_crc.to_le_bytes());
        hasher.finish()
    }
}

fn seal(bytes: &mut [u8]) {
    let (body, crc) = bytes.split_at_mut(bytes.len() - 8);
    crc.copy_from_slice(&Crc64::of(body).to_le_bytes());
}

fn is_sealed(bytes: &[u8]) -> bool {
    let (body, crc) = bytes.split_at(bytes.len() - 8);
    Crc64::of(body).to_le_bytes() == crc
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("4 bytes"))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("8 bytes"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn segment() -> SegmentHead {
        SegmentHead { spool: 7, number: 3, segment_bytes: 1 << 20, epoch: 9, owner: Owner([5; OWNER_BYTES]) }
    }

    fn piece() -> PieceHead {
        PieceHead { epoch: 9, at: 4096, bytes: 100, parcel: 2, piece: 1, is_last: true, kind: Kind::Content }
    }

    #[test]
    fn heads_come_back_as_they_were_and_one_flipped_bit_makes_them_nothing() {
        let bytes = segment().encode();
        assert_eq!(Head::decode(&bytes), Head::Used(segment()));
        for bit in 0..HEAD_USED * 8 {
            let mut bytes = bytes;
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(Head::decode(&bytes), Head::Free, "bit {bit}");
        }
        let bytes = piece().encode();
        assert_eq!(PieceHead::decode(&bytes, &segment(), 4096), Some(piece()));
        for bit in 0..BEFORE_BYTES * 8 {
            let mut bytes = bytes;
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(PieceHead::decode(&bytes, &segment(), 4096), None, "bit {bit}");
        }
    }

    #[test]
    fn a_piece_of_another_use_place_or_length_is_none() {
        let decode = |piece: PieceHead, at| PieceHead::decode(&piece.encode(), &segment(), at);
        assert_eq!(decode(PieceHead { epoch: 8, ..piece() }, 4096), None);
        assert_eq!(decode(piece(), 8192), None);
        assert_eq!(decode(PieceHead { bytes: 1 << 20, ..piece() }, 4096), None);
        assert_eq!(decode(PieceHead { bytes: u64::MAX, ..piece() }, 4096), None);
        let behind = piece().behind(77);
        assert_eq!(piece().content_crc(&behind), Some(77));
        assert_eq!(PieceHead { epoch: 8, ..piece() }.content_crc(&behind), None);
    }

    #[test]
    fn another_version_is_told_apart_from_nothing() {
        let mut bytes = segment().encode();
        bytes[8] = 2;
        seal(&mut bytes);
        assert_eq!(Head::decode(&bytes), Head::Version(2));
    }
}
