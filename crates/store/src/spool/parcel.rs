//! A parcel in its pieces: written once from its beginning to its end, read back any number of times.
//!
//! Invariant: the bytes behind a piece, which make it count, are written after its content.
//!
//! Not here: which segments the pieces lie in, and when they are free again (`ring`).

use crate::spool::format::{BEFORE_BYTES, BEHIND_BYTES, Kind, PieceHead};
use crate::spool::place::read_at;
use model::Crc64;
use model::mutant;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

const COMPARED_BYTES: usize = 128 << 10;

#[derive(Clone, Debug)]
pub(super) struct Piece {
    pub segment: u32,
    pub file: Arc<File>,
    pub head: PieceHead,
}

/// Content of an owner, of one or more pieces.
#[derive(Clone, Debug)]
pub struct Parcel {
    pub(super) id: u64,
    pub kind: Kind,
    pub bytes: u64,
    pub(super) pieces: Vec<Piece>,
}

impl Parcel {
    /// Later parcels have larger numbers.
    pub fn number(&self) -> u64 {
        self.id
    }

    /// Reads all of it, into one piece of memory.
    pub fn read(&self) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; self.bytes as usize];
        self.read_exact_at(&mut bytes, 0)?;
        Ok(bytes)
    }

    /// Fills the buffer with what stands from `at` on; a parcel that ends before it is full is an error.
    pub fn read_exact_at(&self, mut buffer: &mut [u8], mut at: u64) -> io::Result<()> {
        for piece in &self.pieces {
            if buffer.is_empty() {
                break;
            }
            if at >= piece.head.bytes {
                at -= piece.head.bytes;
                continue;
            }
            let (part, rest) = buffer.split_at_mut(buffer.len().min((piece.head.bytes - at) as usize));
            piece.file.read_exact_at(part, piece.content_at() + at)?;
            (buffer, at) = (rest, 0);
        }
        if buffer.is_empty() { Ok(()) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
    }

    /// Whether the content is what was written: after a power loss, storage may have kept the end of a piece and not its middle.
    pub fn is_sound(&self) -> io::Result<bool> {
        if mutant::is_on("spool-unverified") {
            return Ok(true);
        }
        let mut block = vec![0; COMPARED_BYTES];
        for piece in &self.pieces {
            let mut crc = Crc64::new();
            let mut at = 0;
            while at < piece.head.bytes {
                let part = &mut block[..COMPARED_BYTES.min((piece.head.bytes - at) as usize)];
                piece.file.read_exact_at(part, piece.content_at() + at)?;
                crc.update(part);
                at += part.len() as u64;
            }
            let behind: [u8; BEHIND_BYTES] = read_at(&piece.file, piece.content_at() + piece.head.bytes)?;
            if piece.head.content_crc(&behind) != Some(crc.finish()) {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

impl Piece {
    fn content_at(&self) -> u64 {
        self.head.at + BEFORE_BYTES as u64
    }

    pub fn content(&self) -> io::Result<Vec<u8>> {
        let mut content = vec![0; self.head.bytes as usize];
        self.file.read_exact_at(&mut content, self.content_at())?;
        Ok(content)
    }

    /// The piece was completed in this use of its segment.
    pub fn is_complete(&self) -> io::Result<bool> {
        let behind: [u8; BEHIND_BYTES] = read_at(&self.file, self.content_at() + self.head.bytes)?;
        Ok(self.head.content_crc(&behind).is_some())
    }
}

/// Writes the content of a parcel into its pieces, in order.
pub(super) struct Filler {
    piece: usize,
    at: u64,
    crc: Crc64,
}

impl Filler {
    pub fn new() -> Filler {
        Filler { piece: 0, at: 0, crc: Crc64::new() }
    }

    pub fn write(&mut self, parcel: &Parcel, mut block: &[u8]) -> io::Result<()> {
        while !block.is_empty() {
            let piece = parcel.pieces.get(self.piece).ok_or(io::ErrorKind::WriteZero)?;
            let left = piece.head.bytes - self.at;
            let (part, rest) = block.split_at(block.len().min(left as usize));
            piece.file.write_all_at(part, piece.content_at() + self.at)?;
            self.crc.update(part);
            self.at += part.len() as u64;
            if self.at == piece.head.bytes {
                self.complete(piece)?;
            }
            block = rest;
        }
        Ok(())
    }

    pub fn is_full(&self, parcel: &Parcel) -> bool {
        self.piece == parcel.pieces.len()
    }

    fn complete(&mut self, piece: &Piece) -> io::Result<()> {
        let crc = std::mem::replace(&mut self.crc, Crc64::new()).finish();
        piece.file.write_all_at(&piece.head.behind(crc), piece.content_at() + piece.head.bytes)?;
        (self.piece, self.at) = (self.piece + 1, 0);
        Ok(())
    }
}
