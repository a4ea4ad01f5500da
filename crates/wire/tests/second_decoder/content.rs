//! Section 7: the bodies of pack and chunk frames, and the digests that bind content to its place.

use super::crc64::crc64;

const PACK_FILES_MAX: usize = 1024;
const PACK_PAYLOAD_BYTES_MAX: usize = 256 << 10;
const CHUNK_HEAD_BYTES: usize = 24;
const CHUNK_TAIL_BYTES: usize = 16;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Algorithm {
    Crc64Nvme,
    Blake3,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Status {
    Good,
    /// Good, and every chunk of the object is of one version.
    Final,
    Changed,
    Unreadable,
}

/// Content of one object as a frame carries it. Its digest was not compared yet.
#[derive(Clone, Debug)]
pub struct Piece {
    pub object: u64,
    pub start: u64,
    pub payload: Vec<u8>,
    pub status: Status,
    /// The object's size as the sender knows it; a pack does not say it.
    pub size: Option<u64>,
    bound: Vec<u8>,
}

impl Algorithm {
    pub fn digest_bytes(self) -> usize {
        match self {
            Algorithm::Crc64Nvme => 8,
            Algorithm::Blake3 => 32,
        }
    }

    /// The digest of `bytes` as a whole object.
    pub fn digest(self, bytes: &[u8]) -> Vec<u8> {
        match self {
            Algorithm::Crc64Nvme => crc64(bytes).to_le_bytes().to_vec(),
            Algorithm::Blake3 => blake3::hash(bytes).as_bytes().to_vec(),
        }
    }

    /// The digest of a part of an object that is neither the whole nor empty.
    fn digest_of_part(self, start: u64, bytes: &[u8]) -> Vec<u8> {
        use blake3::hazmat::HasherExt;
        match self {
            Algorithm::Crc64Nvme => self.digest(bytes),
            Algorithm::Blake3 => {
                let mut hasher = blake3::Hasher::new();
                hasher.set_input_offset(start).update(bytes).finalize_non_root().to_vec()
            }
        }
    }
}

impl Piece {
    pub fn end(&self) -> u64 {
        self.start + self.payload.len() as u64
    }

    /// Compares the bound digest with the content, which is only done for good content.
    pub fn check(&self, algorithm: Algorithm) -> Result<(), String> {
        if matches!(self.status, Status::Changed | Status::Unreadable) {
            return Ok(());
        }
        let is_sealed = self.status == Status::Final && self.size == Some(self.end());
        let is_whole = self.start == 0 && (self.size.is_none() || is_sealed);
        if !is_whole && self.payload.is_empty() {
            return Err(format!("object {}, {}: an empty chunk that is not the whole", self.object, self.start));
        }
        let digest = if is_whole {
            algorithm.digest(&self.payload)
        } else {
            algorithm.digest_of_part(self.start, &self.payload)
        };
        let place = [self.object, self.start, self.end()].map(u64::to_le_bytes).concat();
        if self.bound != algorithm.digest(&[place, digest].concat()) {
            return Err(format!("object {}, {}..{}: the digest does not match", self.object, self.start, self.end()));
        }
        Ok(())
    }
}

pub fn read_chunk(body: &[u8], algorithm: Algorithm, chunk_bytes: u64) -> Result<Piece, String> {
    let digest_bytes = algorithm.digest_bytes();
    let payload_bytes = body.len().checked_sub(CHUNK_HEAD_BYTES + CHUNK_TAIL_BYTES + digest_bytes);
    let payload_bytes = payload_bytes.ok_or("a chunk is shorter than its fields")?;
    let (object, start) = (u64_at(body, 0)?, u64_at(body, 8)?);
    let tail = CHUNK_HEAD_BYTES + payload_bytes;
    if u32_at(body, 16)? as usize != payload_bytes || payload_bytes as u64 > chunk_bytes {
        return Err(format!("a chunk of {payload_bytes} bytes names another length or is too long"));
    }
    if !start.is_multiple_of(chunk_bytes) || start > i64::MAX as u64 - payload_bytes as u64 {
        return Err(format!("a chunk starts at {start}"));
    }
    require_zero(&body[20..24])?;
    require_zero(&body[tail + 1..tail + 8])?;
    Ok(Piece {
        object,
        start,
        payload: body[CHUNK_HEAD_BYTES..tail].to_vec(),
        status: Status::of_byte(body[tail])?,
        size: Some(u64_at(body, tail + 8)?),
        bound: body[tail + CHUNK_TAIL_BYTES..].to_vec(),
    })
}

pub fn read_pack(body: &[u8], algorithm: Algorithm) -> Result<Vec<Piece>, String> {
    let digest_bytes = algorithm.digest_bytes();
    let count = u32_at(body, 0)? as usize;
    if count == 0 || count > PACK_FILES_MAX {
        return Err(format!("a pack of {count} files"));
    }
    require_zero(body.get(4..8).ok_or("a pack is shorter than its head")?)?;
    let row_bytes = 16 + digest_bytes;
    let (rows, mut payload) = body[8..].split_at_checked(count * row_bytes).ok_or("a pack is shorter than its rows")?;
    if payload.len() > PACK_PAYLOAD_BYTES_MAX {
        return Err(format!("a pack with {} bytes of payload", payload.len()));
    }
    let mut pieces = Vec::new();
    for row in rows.chunks_exact(row_bytes) {
        require_zero(&row[13..16])?;
        let length = u32_at(row, 8)? as usize;
        let (bytes, rest) = payload.split_at_checked(length).ok_or("a pack is shorter than its files")?;
        payload = rest;
        pieces.push(Piece {
            object: u64_at(row, 0)?,
            start: 0,
            payload: bytes.to_vec(),
            status: Status::of_byte(row[12])?,
            size: None,
            bound: row[16..].to_vec(),
        });
    }
    if payload.is_empty() { Ok(pieces) } else { Err(format!("{} bytes after the last file of a pack", payload.len())) }
}

impl Status {
    fn of_byte(byte: u8) -> Result<Status, String> {
        match byte {
            0 => Ok(Status::Good),
            1 => Ok(Status::Final),
            2 => Ok(Status::Changed),
            3 => Ok(Status::Unreadable),
            other => Err(format!("status {other} does not exist")),
        }
    }
}

pub fn u64_at(bytes: &[u8], at: usize) -> Result<u64, String> {
    bytes.get(at..).and_then(|bytes| bytes.first_chunk()).map(|&b| u64::from_le_bytes(b)).ok_or_else(|| short(at))
}

pub fn u32_at(bytes: &[u8], at: usize) -> Result<u32, String> {
    bytes.get(at..).and_then(|bytes| bytes.first_chunk()).map(|&b| u32::from_le_bytes(b)).ok_or_else(|| short(at))
}

pub fn require_zero(bytes: &[u8]) -> Result<(), String> {
    if bytes.iter().all(|&byte| byte == 0) { Ok(()) } else { Err(format!("{bytes:?} must be zero")) }
}

fn short(at: usize) -> String {
    format!("the body ends at a number at {at}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chaining_values_join_to_the_hash_of_the_whole() {
        use blake3::hazmat::{Mode, merge_subtrees_root};
        let content: Vec<u8> = (0..3000_u32).map(|n| (n % 241) as u8).collect();
        let cv = |start: u64, end: usize| {
            let part = Algorithm::Blake3.digest_of_part(start, &content[start as usize..end]);
            <[u8; 32]>::try_from(part).unwrap()
        };
        let whole = merge_subtrees_root(&cv(0, 2048), &cv(2048, 3000), Mode::Hash);
        assert_eq!(whole.as_bytes().as_slice(), Algorithm::Blake3.digest(&content));
    }

    #[test]
    fn a_body_cut_anywhere_is_refused() {
        let mut chunk = vec![0; 24 + 10 + 16 + 8];
        chunk[16] = 10;
        assert!(read_chunk(&chunk, Algorithm::Crc64Nvme, 1 << 20).is_ok());
        let mut pack = vec![0; 8 + 24 + 5];
        (pack[0], pack[16]) = (1, 5);
        assert!(read_pack(&pack, Algorithm::Crc64Nvme).is_ok());
        for end in 0..chunk.len() {
            assert!(read_chunk(&chunk[..end], Algorithm::Crc64Nvme, 1 << 20).is_err());
        }
        for end in 0..pack.len() {
            assert!(read_pack(&pack[..end], Algorithm::Crc64Nvme).is_err());
        }
    }
}
