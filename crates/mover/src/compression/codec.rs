//! The two libraries behind one face, with their state kept from block to block.
//!
//! Invariant: what comes out has a bound that is known before: a body that would give more is an error.

use lz4_flex::block::{CompressTable, compress_into_with_table, decompress_into, get_maximum_output_size};
use wire::limits::PARCEL_BYTES_MAX;
use wire::parcel::Codec;
use zstd::bulk::{Compressor, Decompressor};

/// How a block is sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Method {
    Raw,
    Lz4,
    /// With the library's level.
    Zstd(i32),
}

/// A block that becomes smaller by less than a 32nd is not worth the receiver's time.
const GAIN_MIN: usize = 32;

pub struct Encoder {
    zstd: Option<(i32, Compressor<'static>)>,
    lz4: CompressTable,
    out: Vec<u8>,
}

impl Encoder {
    pub fn new() -> Encoder {
        let out = vec![0; get_maximum_output_size(PARCEL_BYTES_MAX)];
        Encoder { zstd: None, lz4: CompressTable::large(), out }
    }

    /// The block in a smaller form, where it has one.
    pub fn encode(&mut self, method: Method, content: &[u8]) -> Option<(Codec, &[u8])> {
        debug_assert!(content.len() <= PARCEL_BYTES_MAX);
        let (codec, bytes) = match method {
            Method::Raw => return None,
            Method::Lz4 => (Codec::Lz4, compress_into_with_table(content, &mut self.out, &mut self.lz4).ok()?),
            Method::Zstd(level) => (Codec::Zstd, self.zstd(level, content)?),
        };
        (bytes < content.len() - content.len() / GAIN_MIN).then_some((codec, &self.out[..bytes]))
    }

    fn zstd(&mut self, level: i32, content: &[u8]) -> Option<usize> {
        let (held, compressor) = match &mut self.zstd {
            Some(held) => held,
            none => none.insert((level, Compressor::new(level).ok()?)),
        };
        if *held != level {
            compressor.set_compression_level(level).ok()?;
            *held = level;
        }
        compressor.compress_to_buffer(content, &mut self.out[..]).ok()
    }
}

#[derive(Default)]
pub struct Decoder {
    zstd: Option<Decompressor<'static>>,
}

impl Decoder {
    /// Fills `content` from the body; false when it does not give exactly that much.
    pub fn decode(&mut self, codec: Codec, body: &[u8], content: &mut [u8]) -> bool {
        let given = match codec {
            Codec::Raw => None,
            Codec::Lz4 => decompress_into(body, content).ok(),
            Codec::Zstd => {
                if self.zstd.is_none() {
                    self.zstd = Decompressor::new().ok();
                }
                self.zstd.as_mut().and_then(|decompressor| decompressor.decompress_to_buffer(body, content).ok())
            }
        };
        given == Some(content.len())
    }
}
