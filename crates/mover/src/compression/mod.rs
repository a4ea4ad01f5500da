//! Compressed data streams: a layer between a lane's frames and its stream (docs/protocol.md section 15).
//!
//! `packer` cuts what is sent into parcels, `opener` gives the frames' bytes back; `gate` passes over what would not become
//! smaller, `choice` finds out how strong a compression pays, `codec` holds the libraries.
//!
//! Invariants:
//! - Digests are of what is not compressed: a fault of a codec is a mismatch, and never a wrong file.
//! - What a peer claims of a parcel is checked before anything is held for it, and nothing longer than one is ever held.
//! - Without compression both halves pass everything through.

mod choice;
mod codec;
mod gate;
mod opener;
mod packer;

pub use choice::Choice;
pub use opener::Opener;
pub use packer::Packer;

use crate::limits::{LANE_BYTES, OPENER_BYTES, PACKER_BYTES};
use codec::{Encoder, Method};
use model::options::Compression;
use std::time::{Duration, Instant};
use wire::limits::PARCEL_BYTES_MAX;

/// What a sender's lane may hold.
pub fn sender_lane_bytes(compression: Compression) -> usize {
    LANE_BYTES + if compression == Compression::None { 0 } else { PACKER_BYTES }
}

/// What a receiver's lane may hold.
pub fn receiver_lane_bytes(compression: Compression) -> usize {
    LANE_BYTES + if compression == Compression::None { 0 } else { OPENER_BYTES }
}

/// What content becomes by each of the quicker methods, for plans: bytes, and how long that took on this processor.
pub fn try_out(content: &[u8]) -> Vec<(u64, Duration)> {
    let mut encoder = Encoder::new();
    let mut by = |method: Method| {
        let begun = Instant::now();
        let parcels = content.chunks(PARCEL_BYTES_MAX);
        let bytes = parcels.map(|parcel| encoder.encode(method, parcel).map_or(parcel.len(), |(_, body)| body.len()));
        (bytes.sum::<usize>() as u64, begun.elapsed())
    };
    vec![by(Method::Lz4), by(Method::Zstd(1))]
}

#[cfg(test)]
mod tests;
