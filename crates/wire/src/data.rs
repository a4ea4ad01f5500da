//! Frames of data streams: chunks of large objects, packs of small ones (docs/protocol.md section 7).
//!
//! ```text
//! Chunk body:  object u64 | start u64 | length u32 | reserved u32 | payload ... | trailer
//!   trailer:   status u8 | reserved 7 | object size u64 | bound digest
//! Pack body:   count u32 | reserved u32 | row ... (count times) | payload ...
//!   row:       object u64 | length u32 | status u8 | reserved 3 | bound digest
//! ```
//! The digest is bound to object and extent (`model::Digest::bind`); its length follows from the job's algorithm.

use crate::close::{CloseCode, Refusal};
use crate::limits::{FRAGMENT_BYTES_MAX, PACK_BYTES_MAX, PACK_FILES_MAX, PACKED_FILE_BYTES_MAX};
use model::{Digest, DigestAlgorithm, Extent, ObjectId};

pub const CHUNK_HEADER_BYTES: usize = 24;
const TRAILER_FIXED_BYTES: usize = 16;
/// What a chunk body holds besides payload, at most.
pub const CHUNK_EXTRA_BYTES_MAX: usize = CHUNK_HEADER_BYTES + TRAILER_FIXED_BYTES + 32;
const PACK_HEADER_BYTES: usize = 8;
const ROW_FIXED_BYTES: usize = 16;

/// What the sender says of a chunk or a packed file after reading it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Status {
    /// As it was listed.
    Good = 0,
    /// Good, and with it every chunk of the object has been read from one version of the source.
    GoodLast = 1,
    /// The source changed: the object's id is void, it may come again under another.
    Changed = 2,
    /// The source could not be read: payload is filler. The sender reports why on the control stream.
    Failed = 3,
}

impl Status {
    fn from_number(number: u8) -> Result<Status, Refusal> {
        [Status::Good, Status::GoodLast, Status::Changed, Status::Failed]
            .into_iter()
            .find(|s| *s as u8 == number)
            .ok_or_else(|| Refusal::new(CloseCode::Malformed, &format!("unknown chunk status {number}")))
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ChunkHeader {
    pub object: ObjectId,
    pub extent: Extent,
}

impl ChunkHeader {
    pub fn encode(&self) -> [u8; CHUNK_HEADER_BYTES] {
        let mut bytes = [0; CHUNK_HEADER_BYTES];
        bytes[..8].copy_from_slice(&self.object.0.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.extent.start.to_le_bytes());
        let length: u32 = self.extent.length().try_into().expect("a chunk is at most 1 GiB long");
        bytes[16..20].copy_from_slice(&length.to_le_bytes());
        bytes
    }

    /// Checks the header against the frame it came in and the job's chunk length.
    pub fn decode(
        bytes: &[u8; CHUNK_HEADER_BYTES],
        body_bytes: u32,
        algorithm: DigestAlgorithm,
        chunk_bytes: u64,
    ) -> Result<ChunkHeader, Refusal> {
        let malformed = |what: &str| Refusal::new(CloseCode::Malformed, what);
        let length = u64::from(u32_at(bytes, 16));
        if bytes[20..24] != [0; 4] {
            return Err(malformed("reserved bits are set in a chunk"));
        }
        if length > chunk_bytes || length + chunk_extra_bytes(algorithm) as u64 != u64::from(body_bytes) {
            return Err(malformed("a chunk's length does not fit its frame"));
        }
        let extent = Extent::from_length(u64_at(bytes, 8), length).filter(|e| e.end <= i64::MAX as u64);
        let extent = extent.ok_or_else(|| malformed("a chunk beyond any file's end"))?;
        if extent.start % chunk_bytes != 0 {
            return Err(malformed("a chunk does not start on a multiple of the chunk length"));
        }
        Ok(ChunkHeader { object: ObjectId(u64_at(bytes, 0)), extent })
    }

    /// The same of a fragment: it begins anywhere and has at most `FRAGMENT_BYTES_MAX` bytes.
    pub fn decode_fragment(
        bytes: &[u8; CHUNK_HEADER_BYTES],
        body_bytes: u32,
        algorithm: DigestAlgorithm,
    ) -> Result<ChunkHeader, Refusal> {
        let malformed = |what: &str| Refusal::new(CloseCode::Malformed, what);
        let length = u64::from(u32_at(bytes, 16));
        if bytes[20..24] != [0; 4] {
            return Err(malformed("reserved bits are set in a fragment"));
        }
        let is_fit = length > 0 && length <= FRAGMENT_BYTES_MAX;
        if !is_fit || length + chunk_extra_bytes(algorithm) as u64 != u64::from(body_bytes) {
            return Err(malformed("a fragment's length does not fit its frame"));
        }
        let extent = Extent::from_length(u64_at(bytes, 8), length).filter(|e| e.end <= i64::MAX as u64);
        let extent = extent.ok_or_else(|| malformed("a fragment beyond any file's end"))?;
        Ok(ChunkHeader { object: ObjectId(u64_at(bytes, 0)), extent })
    }
}

/// What a chunk body holds besides payload.
pub fn chunk_extra_bytes(algorithm: DigestAlgorithm) -> usize {
    CHUNK_HEADER_BYTES + trailer_bytes(algorithm)
}

pub fn trailer_bytes(algorithm: DigestAlgorithm) -> usize {
    TRAILER_FIXED_BYTES + algorithm.digest_bytes()
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ChunkTrailer {
    pub status: Status,
    /// The object's size as the sender knows it now; final when the status is `GoodLast`.
    pub object_bytes: u64,
    pub bound: Digest,
}

impl ChunkTrailer {
    pub fn put(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&[self.status as u8, 0, 0, 0, 0, 0, 0, 0]);
        out.extend_from_slice(&self.object_bytes.to_le_bytes());
        self.bound.put(out);
    }

    pub fn decode(bytes: &[u8], algorithm: DigestAlgorithm) -> Result<ChunkTrailer, Refusal> {
        let malformed = || Refusal::new(CloseCode::Malformed, "a chunk's trailer cannot be read");
        if bytes.len() != trailer_bytes(algorithm) || bytes[1..8] != [0; 7] {
            return Err(malformed());
        }
        Ok(ChunkTrailer {
            status: Status::from_number(bytes[0])?,
            object_bytes: u64_at(bytes, 8),
            bound: algorithm.digest_from_bytes(&bytes[16..]).ok_or_else(malformed)?,
        })
    }
}

/// One file of a pack.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PackRow {
    pub object: ObjectId,
    pub length: u32,
    pub status: Status,
    pub bound: Digest,
}

pub fn row_bytes(algorithm: DigestAlgorithm) -> usize {
    ROW_FIXED_BYTES + algorithm.digest_bytes()
}

/// Bytes in front of the payload of a pack of `count` files.
pub fn pack_table_bytes(count: usize, algorithm: DigestAlgorithm) -> usize {
    PACK_HEADER_BYTES + count * row_bytes(algorithm)
}

/// Writes the table of a pack into `out`, which is exactly `pack_table_bytes` long.
pub fn encode_pack_table(rows: &[PackRow], out: &mut [u8]) {
    out[..4].copy_from_slice(&(rows.len() as u32).to_le_bytes());
    out[4..8].fill(0);
    let row_length = (out.len() - PACK_HEADER_BYTES).checked_div(rows.len()).unwrap_or(0);
    for (row, place) in rows.iter().zip(out[PACK_HEADER_BYTES..].chunks_exact_mut(row_length.max(1))) {
        place[..8].copy_from_slice(&row.object.0.to_le_bytes());
        place[8..12].copy_from_slice(&row.length.to_le_bytes());
        place[12] = row.status as u8;
        place[13..16].fill(0);
        match row.bound {
            Digest::Crc64Nvme(crc) => place[16..].copy_from_slice(&crc.to_le_bytes()),
            Digest::Blake3(hash) => place[16..].copy_from_slice(&hash),
        }
    }
}

/// Reads a pack: fills `rows` and returns the payload, whose parts follow one another in the order of the rows.
pub fn decode_pack<'a>(
    body: &'a [u8],
    algorithm: DigestAlgorithm,
    rows: &mut Vec<PackRow>,
) -> Result<&'a [u8], Refusal> {
    let malformed = |what: &str| Refusal::new(CloseCode::Malformed, what);
    rows.clear();
    if body.len() < PACK_HEADER_BYTES || body[4..8] != [0; 4] {
        return Err(malformed("a pack without a header"));
    }
    let count = u32_at(body, 0) as usize;
    if count == 0 || count > PACK_FILES_MAX || body.len() < pack_table_bytes(count, algorithm) {
        return Err(malformed("a pack whose table does not fit"));
    }
    let (table, payload) = body.split_at(pack_table_bytes(count, algorithm));
    let mut total = 0;
    for row in table[PACK_HEADER_BYTES..].chunks_exact(row_bytes(algorithm)) {
        let length = u32_at(row, 8);
        if u64::from(length) > PACKED_FILE_BYTES_MAX || row[13..16] != [0; 3] {
            return Err(malformed("a packed file that is too long"));
        }
        total += length as usize;
        rows.push(PackRow {
            object: ObjectId(u64_at(row, 0)),
            length,
            status: Status::from_number(row[12])?,
            bound: algorithm.digest_from_bytes(&row[16..]).ok_or_else(|| malformed("a digest of a wrong length"))?,
        });
    }
    if total != payload.len() || total > PACK_BYTES_MAX {
        return Err(malformed("a pack whose parts do not add up"));
    }
    Ok(payload)
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const CHUNK: u64 = 1 << 20;

    fn pack(files: &[(u64, &[u8])], algorithm: DigestAlgorithm) -> Vec<u8> {
        let rows: Vec<_> = files
            .iter()
            .map(|(id, bytes)| PackRow {
                object: ObjectId(*id),
                length: bytes.len() as u32,
                status: Status::Good,
                bound: algorithm.of_object(bytes),
            })
            .collect();
        let mut body = vec![0; pack_table_bytes(rows.len(), algorithm)];
        encode_pack_table(&rows, &mut body);
        body.extend(files.iter().flat_map(|(_, bytes)| bytes.iter()));
        body
    }

    #[test]
    fn packs_read_back() {
        for algorithm in [DigestAlgorithm::Crc64Nvme, DigestAlgorithm::Blake3] {
            let body = pack(&[(1, b"abc"), (2, b""), (9, b"defg")], algorithm);
            let mut rows = Vec::new();
            assert_eq!(decode_pack(&body, algorithm, &mut rows).unwrap(), b"abcdefg");
            assert_eq!(rows.iter().map(|r| (r.object.0, r.length)).collect::<Vec<_>>(), [(1, 3), (2, 0), (9, 4)]);
        }
    }

    #[test]
    fn golden_bytes_of_a_chunk() {
        let header = ChunkHeader { object: ObjectId(258), extent: Extent::new(CHUNK, CHUNK + 5) };
        let bytes = header.encode();
        assert_eq!(bytes, [2, 1, 0, 0, 0, 0, 0, 0, 0, 0, 16, 0, 0, 0, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(ChunkHeader::decode(&bytes, 5 + 48, DigestAlgorithm::Crc64Nvme, CHUNK), Ok(header));
        let mut trailer = Vec::new();
        ChunkTrailer { status: Status::GoodLast, object_bytes: 7, bound: Digest::Crc64Nvme(0x0102) }.put(&mut trailer);
        assert_eq!(trailer, [1, 0, 0, 0, 0, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0, 2, 1, 0, 0, 0, 0, 0, 0]);
    }

    #[test]
    fn a_fragment_begins_anywhere_and_is_never_empty_or_long() {
        let decode = |start: u64, length: u32, body: u32| {
            let mut bytes = ChunkHeader { object: ObjectId(1), extent: Extent::new(start, start + 5) }.encode();
            bytes[16..20].copy_from_slice(&length.to_le_bytes());
            ChunkHeader::decode_fragment(&bytes, body, DigestAlgorithm::Crc64Nvme)
        };
        assert_eq!(decode(7, 5, 53).unwrap().extent, Extent::new(7, 12));
        let long = FRAGMENT_BYTES_MAX as u32;
        assert!(decode(7, long, long + 48).is_ok());
        for (start, length, body) in [(7, 0, 48), (7, long + 1, long + 49), (7, 5, 52), (i64::MAX as u64 - 4, 5, 53)] {
            assert!(decode(start, length, body).is_err(), "{start} {length} {body}");
        }
    }

    #[test]
    fn hostile_chunk_headers_are_refused() {
        let good = ChunkHeader { object: ObjectId(1), extent: Extent::new(CHUNK, CHUNK + 5) }.encode();
        let decode = |bytes: &[u8; 24], body: u32| ChunkHeader::decode(bytes, body, DigestAlgorithm::Crc64Nvme, CHUNK);
        assert!(decode(&good, 52).is_err());
        for (at, value) in [(8, 1), (15, 0xff), (20, 1), (19, 0xff)] {
            let mut bad = good;
            bad[at] = value;
            assert!(decode(&bad, 53).is_err(), "byte {at}");
        }
    }

    proptest! {
        #[test]
        fn any_pack_body_is_read_or_refused(body in prop::collection::vec(any::<u8>(), 0..300)) {
            let _ = decode_pack(&body, DigestAlgorithm::Crc64Nvme, &mut Vec::new());
        }
    }
}
