//! What headers and records are made of: versions, bounds, checksums and fields, and why they may be refused.

use crc_fast::{CrcAlgorithm, Digest};
use thiserror::Error;

pub const VERSION: u16 = 2;
/// Largest file offset of the operating system; it also keeps start + chunk_bytes from overflowing.
pub const OBJECT_BYTES_MAX: u64 = i64::MAX as u64;

/// Why a log says nothing that may be relied on. The object is then received again from its start.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum Unusable {
    #[error("the extent log ends inside its header")]
    Truncated,
    #[error("not an extent log")]
    NotALog,
    #[error("extent log of version {0}; this program reads versions 1 to {version}", version = VERSION)]
    Version(u16),
    #[error("the header's checksum does not match")]
    Checksum,
    #[error("unknown digest algorithm {0}")]
    Algorithm(u8),
    #[error("header field out of range: {0}")]
    Field(&'static str),
    #[error("record {index}: {violation}")]
    Record { index: u32, violation: Violation },
}

/// A record that is intact and still cannot be right, or that may not be written.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum Violation {
    #[error("its sequence number is not the next one")]
    Sequence,
    #[error("unknown kind of record")]
    Kind,
    #[error("a checkpoint that carries an extent or vouches for records that do not precede it")]
    Checkpoint,
    #[error("the extent does not begin at a chunk boundary")]
    Unaligned,
    #[error("the extent is not a chunk of the object")]
    NotAChunk,
    #[error("a prefix that is empty, longer than a chunk or shorter than before")]
    Prefix,
    #[error("a durable range that does not begin at a chunk boundary, or carries a digest")]
    Range,
    #[error("the digest is of another algorithm or not padded with zeros")]
    Digest,
    #[error("another digest was recorded for the same extent")]
    Contradiction,
    #[error("more records than a log may hold")]
    TooMany,
}

/// CRC-64/NVME of the parts, one after the other.
pub fn checksum(parts: &[&[u8]]) -> u64 {
    let mut digest = Digest::new(CrcAlgorithm::Crc64Nvme);
    for part in parts {
        digest.update(part);
    }
    digest.finalize()
}

/// Reads little-endian fields off the front of a slice; `None` when the slice is too short.
pub struct Fields<'a>(pub &'a [u8]);

impl<'a> Fields<'a> {
    pub fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (head, tail) = self.0.split_first_chunk::<N>()?;
        self.0 = tail;
        Some(*head)
    }

    pub fn slice(&mut self, length: usize) -> Option<&'a [u8]> {
        let (head, tail) = self.0.split_at_checked(length)?;
        self.0 = tail;
        Some(head)
    }

    /// A length in 16 bits, and so many bytes.
    pub fn counted(&mut self) -> Option<&'a [u8]> {
        let length = self.u16()?;
        self.slice(usize::from(length))
    }

    pub fn u8(&mut self) -> Option<u8> {
        self.array().map(u8::from_le_bytes)
    }

    pub fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_le_bytes)
    }

    pub fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    pub fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }
}
