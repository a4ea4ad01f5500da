//! The bytes of data sets, and the checksum that judges what arrived of them.
//!
//! A crate of its own because it is optimized in every build (`Cargo.toml`), which the rest of `bench` need not be. Not
//! here: names, sizes and trees of data sets; files.

mod crc64;
mod stream;

pub use crc64::Crc64;
pub use stream::{Content, Stream, UNIT_BYTES, mix, unit_interval};
