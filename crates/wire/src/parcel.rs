//! Parcels: how the bytes of a data stream travel in a job with compression (docs/protocol.md section 15).
//!
//! ```text
//! 0       1          4                8             12
//! | codec | reserved | content length | body length | body ...
//! ```
//! Frames lie in the contents of a stream's parcels, one after the other, and take no notice of where a parcel ends.
//! Pure: nothing is compressed here (`mover::compression`).

use crate::close::{CloseCode, Refusal};
use crate::limits::PARCEL_BYTES_MAX;

pub const PARCEL_HEADER_BYTES: usize = 12;

/// How the body of a parcel holds its content.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Codec {
    /// As it is.
    Raw = 0,
    /// One Zstandard frame (RFC 8878).
    Zstd = 1,
    /// One LZ4 block.
    Lz4 = 2,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ParcelHeader {
    pub codec: Codec,
    /// Of the frames' bytes in it.
    pub content_bytes: u32,
    /// Of the body.
    pub body_bytes: u32,
}

impl ParcelHeader {
    pub fn encode(&self) -> [u8; PARCEL_HEADER_BYTES] {
        let mut bytes = [0; PARCEL_HEADER_BYTES];
        bytes[0] = self.codec as u8;
        bytes[4..8].copy_from_slice(&self.content_bytes.to_le_bytes());
        bytes[8..].copy_from_slice(&self.body_bytes.to_le_bytes());
        bytes
    }

    /// Refuses what no sender in order makes: so that nothing is held for a parcel but what one may have.
    pub fn decode(bytes: &[u8; PARCEL_HEADER_BYTES]) -> Result<ParcelHeader, Refusal> {
        let malformed = |what: &str| Refusal::new(CloseCode::Malformed, what);
        let codec = [Codec::Raw, Codec::Zstd, Codec::Lz4].into_iter().find(|codec| *codec as u8 == bytes[0]);
        let codec = codec.ok_or_else(|| malformed("a parcel of an unknown codec"))?;
        if bytes[1..4] != [0; 3] {
            return Err(malformed("reserved bits are set in a parcel"));
        }
        let number = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        let header = ParcelHeader { codec, content_bytes: number(4), body_bytes: number(8) };
        if header.content_bytes == 0 || header.content_bytes as usize > PARCEL_BYTES_MAX {
            return Err(Refusal::new(CloseCode::Limit, "a parcel that holds nothing or too much"));
        }
        let fits = match codec {
            Codec::Raw => header.body_bytes == header.content_bytes,
            Codec::Zstd | Codec::Lz4 => (1..header.content_bytes).contains(&header.body_bytes),
        };
        if !fits {
            return Err(malformed("a parcel whose lengths do not fit each other"));
        }
        Ok(header)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn golden_bytes_of_a_parcel() {
        let header = ParcelHeader { codec: Codec::Lz4, content_bytes: 0x0102, body_bytes: 5 };
        let bytes = header.encode();
        assert_eq!(bytes, [2, 0, 0, 0, 2, 1, 0, 0, 5, 0, 0, 0]);
        assert_eq!(ParcelHeader::decode(&bytes), Ok(header));
    }

    #[test]
    fn a_parcel_that_claims_too_much_is_refused_before_anything_is_held() {
        let max = PARCEL_BYTES_MAX as u32;
        let read = |codec: u8, content: u32, body: u32| {
            let mut bytes = ParcelHeader { codec: Codec::Raw, content_bytes: content, body_bytes: body }.encode();
            bytes[0] = codec;
            ParcelHeader::decode(&bytes)
        };
        assert!(read(0, max, max).is_ok() && read(1, max, 1).is_ok() && read(2, 2, 1).is_ok());
        for (codec, content, body) in [
            (0, max + 1, max + 1),
            (1, max + 1, 10),
            (1, u32::MAX, 10),
            (1, 10, 10),
            (2, 10, 11),
            (2, 10, 0),
            (0, 10, 9),
            (0, 0, 0),
            (3, 10, 5),
            (255, 10, 5),
        ] {
            assert!(read(codec, content, body).is_err(), "{codec} {content} {body}");
        }
        let mut bytes = ParcelHeader { codec: Codec::Raw, content_bytes: 1, body_bytes: 1 }.encode();
        bytes[2] = 1;
        assert!(ParcelHeader::decode(&bytes).is_err());
    }
}
