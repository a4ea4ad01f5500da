//! One record of an extent log, and the appender that numbers and links records.
//!
//! Invariant: what `Appender` encodes, `Record::decode` accepts under the same link, and under no other.

use super::form::{Fields, OBJECT_BYTES_MAX, Unusable, Violation, checksum};
use super::header::Header;
use model::{Digest, DigestAlgorithm, Extent, mutant};

/// Every record has this length.
pub const RECORD_BYTES: usize = 64;
const BODY_BYTES: usize = RECORD_BYTES - 8;
const DIGEST_BYTES: usize = 32;
/// Kinds of records. One more has its number and is not written yet: 4 an upload.
const EXTENT: u32 = 0;
/// Its start is the number of records it vouches for.
const CHECKPOINT: u32 = 1;
/// The beginning of a chunk that is still growing, always with a CRC-64. Not in version 1.
const PREFIX: u32 = 2;
/// What the log tells is durable, and nobody writes for it any more. Not in version 1.
const RANGE: u32 = 3;

/// Records that a log may hold: each chunk four times (a chunk is recorded again when it was sent again), and 65,536
/// checkpoints (4 MiB). A log that is full is started anew with the extents it holds. In version 2 `object_bytes` is where the
/// last extent recorded so far ends.
pub fn records_max(object_bytes: u64, chunk_bytes: u64) -> u32 {
    let chunks = object_bytes.div_ceil(chunk_bytes.max(1));
    u32::try_from(chunks.saturating_mul(4).saturating_add(65_536)).unwrap_or(u32::MAX)
}

/// Encodes the records of one log in order. The caller appends each result to the file before it asks for the next.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Appender {
    shape: Shape,
    sequence: u32,
    /// Checksum of what comes before: the header's, then each record's.
    link: u64,
    /// Where the last of the extents ends.
    reach: u64,
}

/// Begins a log: the bytes of its header, and what encodes the records that follow.
pub fn start(header: &Header) -> Result<(Vec<u8>, Appender), Unusable> {
    let bytes = header.encode()?;
    let (_, crc) = bytes.split_last_chunk::<8>().expect("a header ends in its checksum");
    let appender = Appender::new(header, u64::from_le_bytes(*crc));
    Ok((bytes, appender))
}

impl Appender {
    pub(super) fn new(header: &Header, link: u64) -> Appender {
        let shape =
            Shape { algorithm: header.algorithm, chunk_bytes: header.chunk_bytes, object_bytes: header.object_bytes };
        Appender { shape, sequence: 0, link, reach: 0 }
    }

    /// Records that the bytes of `extent` are written and have this digest.
    pub fn extent(&mut self, extent: Extent, digest: &Digest) -> Result<[u8; RECORD_BYTES], Violation> {
        self.append(Body::Extent(extent, *digest))
    }

    /// Records that so much of a chunk is written, from its start, and has this CRC-64. A longer one takes its place.
    pub fn prefix(&mut self, extent: Extent, crc: u64) -> Result<[u8; RECORD_BYTES], Violation> {
        self.append(Body::Prefix(extent, crc))
    }

    /// Where the log stands. Taken before a sync of the data begins, it says what that sync makes durable; extents may be
    /// recorded while the sync runs.
    pub fn mark(&self) -> Mark {
        Mark { records: self.sequence }
    }

    /// Records that the extents recorded before `mark` are durable. To be called after the sync of the data returned
    /// without error, never before.
    pub fn checkpoint(&mut self, mark: Mark) -> Result<[u8; RECORD_BYTES], Violation> {
        self.append(Body::Checkpoint { records: mark.records })
    }

    /// Records that what a part of several hosts' work was to bring, `range`, has come to its end: all extents recorded before are
    /// durable, and so is the name of the data, and nobody writes to it for this log any more. To be called after that is so.
    pub fn range(&mut self, range: Extent) -> Result<[u8; RECORD_BYTES], Violation> {
        self.append(Body::Range(range))
    }

    fn append(&mut self, body: Body) -> Result<[u8; RECORD_BYTES], Violation> {
        if self.sequence >= self.records_max(&body) {
            return Err(Violation::TooMany);
        }
        self.check(&body)?;
        let bytes = Record { sequence: self.sequence, body }.encode(self.link);
        self.advance(&body, link_of(&bytes));
        Ok(bytes)
    }

    /// Whether `body` may be the next record.
    pub(super) fn check(&self, body: &Body) -> Result<(), Violation> {
        match body {
            Body::Extent(extent, digest) => self.shape.check(*extent, digest),
            Body::Prefix(extent, _) => self.shape.check_prefix(*extent),
            Body::Range(range) => self.shape.check_range(*range),
            Body::Checkpoint { records } if *records <= self.sequence => Ok(()),
            Body::Checkpoint { .. } => Err(Violation::Checkpoint),
        }
    }

    pub(super) fn algorithm(&self) -> DigestAlgorithm {
        self.shape.algorithm
    }

    pub(super) fn sequence(&self) -> u32 {
        self.sequence
    }

    pub(super) fn link(&self) -> u64 {
        self.link
    }

    /// With `body` as the next record.
    pub(super) fn records_max(&self, body: &Body) -> u32 {
        let object_bytes = self.shape.object_bytes.unwrap_or(self.reach.max(body.end()));
        records_max(object_bytes, self.shape.chunk_bytes)
    }

    /// Steps over one record that is in the log. Its sequence number was below `records_max`, so this cannot overflow.
    pub(super) fn advance(&mut self, body: &Body, link: u64) {
        self.reach = self.reach.max(body.end());
        self.sequence += 1;
        self.link = link;
    }
}

/// A place in a log, between two records.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Mark {
    records: u32,
}

/// How the object is cut: what an extent has to agree with.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Shape {
    algorithm: DigestAlgorithm,
    chunk_bytes: u64,
    object_bytes: Option<u64>,
}

impl Shape {
    fn check(&self, extent: Extent, digest: &Digest) -> Result<(), Violation> {
        if !extent.start.is_multiple_of(self.chunk_bytes) {
            return Err(Violation::Unaligned);
        }
        let end = extent.start.saturating_add(self.chunk_bytes);
        let is_chunk = match self.object_bytes {
            Some(object_bytes) => extent.start < object_bytes && extent.end == end.min(object_bytes),
            // Which chunk is the last is not known here: only that may be shorter.
            None => !extent.is_empty() && extent.end <= end && extent.end <= OBJECT_BYTES_MAX,
        };
        if !is_chunk {
            return Err(Violation::NotAChunk);
        }
        if digest.algorithm() != self.algorithm {
            return Err(Violation::Digest);
        }
        Ok(())
    }

    fn check_range(&self, range: Extent) -> Result<(), Violation> {
        match self.object_bytes {
            Some(_) => Err(Violation::Kind),
            None if !range.start.is_multiple_of(self.chunk_bytes) || range.end > OBJECT_BYTES_MAX => {
                Err(Violation::Range)
            }
            None => Ok(()),
        }
    }

    fn check_prefix(&self, extent: Extent) -> Result<(), Violation> {
        match self.object_bytes {
            Some(_) => Err(Violation::Kind),
            None if !extent.start.is_multiple_of(self.chunk_bytes) => Err(Violation::Unaligned),
            None if extent.is_empty() || extent.length() > self.chunk_bytes || extent.end > OBJECT_BYTES_MAX => {
                Err(Violation::Prefix)
            }
            None => Ok(()),
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Body {
    Extent(Extent, Digest),
    Checkpoint { records: u32 },
    Prefix(Extent, u64),
    Range(Extent),
}

impl Body {
    /// Where its extent ends.
    fn end(&self) -> u64 {
        match self {
            Body::Extent(extent, _) | Body::Prefix(extent, _) => extent.end,
            Body::Checkpoint { .. } | Body::Range(_) => 0,
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Record {
    pub sequence: u32,
    pub body: Body,
}

impl Record {
    pub(super) fn encode(&self, link: u64) -> [u8; RECORD_BYTES] {
        let mut bytes = [0u8; RECORD_BYTES];
        let kind = match &self.body {
            Body::Extent(extent, digest) => {
                bytes[..8].copy_from_slice(&extent.start.to_le_bytes());
                bytes[8..16].copy_from_slice(&extent.end.to_le_bytes());
                let digest = digest.to_bytes();
                bytes[16..16 + digest.len()].copy_from_slice(&digest);
                EXTENT
            }
            Body::Prefix(extent, crc) => {
                bytes[..8].copy_from_slice(&extent.start.to_le_bytes());
                bytes[8..16].copy_from_slice(&extent.end.to_le_bytes());
                bytes[16..24].copy_from_slice(&crc.to_le_bytes());
                PREFIX
            }
            Body::Range(range) => {
                bytes[..8].copy_from_slice(&range.start.to_le_bytes());
                bytes[8..16].copy_from_slice(&range.end.to_le_bytes());
                RANGE
            }
            Body::Checkpoint { records } => {
                bytes[..8].copy_from_slice(&u64::from(*records).to_le_bytes());
                CHECKPOINT
            }
        };
        bytes[48..52].copy_from_slice(&kind.to_le_bytes());
        bytes[52..56].copy_from_slice(&self.sequence.to_le_bytes());
        let crc = checksum(&[&link.to_le_bytes(), &bytes[..BODY_BYTES]]);
        bytes[BODY_BYTES..].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// `None` when the checksum does not match: a torn tail, or not a record of this log at this place.
    pub(super) fn decode(
        bytes: &[u8; RECORD_BYTES],
        link: u64,
        algorithm: DigestAlgorithm,
    ) -> Option<Result<Record, Violation>> {
        let is_right = link_of(bytes) == checksum(&[&link.to_le_bytes(), &bytes[..BODY_BYTES]]);
        if !is_right && !mutant::is_on("accept-torn-records") {
            return None;
        }
        let mut fields = Fields(bytes);
        let (start, end) = (fields.u64()?, fields.u64()?);
        let digest: [u8; DIGEST_BYTES] = fields.array()?;
        let (kind, sequence) = (fields.u32()?, fields.u32()?);
        let body = match kind {
            EXTENT => extent_body(start, end, &digest, algorithm),
            CHECKPOINT => checkpoint_body(start, end, &digest),
            PREFIX => prefix_body(start, end, &digest),
            RANGE if start <= end && digest == [0; DIGEST_BYTES] => Ok(Body::Range(Extent::new(start, end))),
            RANGE => Err(Violation::Range),
            _ => Err(Violation::Kind),
        };
        Some(body.map(|body| Record { sequence, body }))
    }
}

fn extent_body(
    start: u64,
    end: u64,
    digest: &[u8; DIGEST_BYTES],
    algorithm: DigestAlgorithm,
) -> Result<Body, Violation> {
    if start > end {
        return Err(Violation::NotAChunk);
    }
    let (digest, padding) = digest.split_at(algorithm.digest_bytes());
    if padding.iter().any(|&byte| byte != 0) {
        return Err(Violation::Digest);
    }
    let digest = algorithm.digest_from_bytes(digest).ok_or(Violation::Digest)?;
    Ok(Body::Extent(Extent::new(start, end), digest))
}

fn checkpoint_body(start: u64, end: u64, digest: &[u8; DIGEST_BYTES]) -> Result<Body, Violation> {
    match u32::try_from(start) {
        Ok(records) if (end, *digest) == (0, [0; DIGEST_BYTES]) => Ok(Body::Checkpoint { records }),
        _ => Err(Violation::Checkpoint),
    }
}

fn prefix_body(start: u64, end: u64, digest: &[u8; DIGEST_BYTES]) -> Result<Body, Violation> {
    if start > end {
        return Err(Violation::Prefix);
    }
    match extent_body(start, end, digest, DigestAlgorithm::Crc64Nvme)? {
        Body::Extent(extent, Digest::Crc64Nvme(crc)) => Ok(Body::Prefix(extent, crc)),
        _ => Err(Violation::Digest),
    }
}

/// The last eight bytes of a record: its checksum, which the next record is linked to.
pub(super) fn link_of(bytes: &[u8; RECORD_BYTES]) -> u64 {
    let (_, crc) = bytes.split_last_chunk::<8>().expect("a record is longer than its checksum");
    u64::from_le_bytes(*crc)
}
