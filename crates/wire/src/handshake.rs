//! Opening a session and joining streams to it (docs/protocol.md sections 5 and 6). Pure: keys and random bytes come in.

use crate::close::{CloseCode, Refusal};
use crate::frame::{self, FrameType};
use crate::message::{Hello, Welcome};
use model::SessionId;

/// The versions this program speaks.
pub const VERSION_MIN: u32 = 1;
pub const VERSION_MAX: u32 = 1;

/// Features, as bits of `Hello::features` and `Welcome::features`. A session uses those that both sides name.
pub mod feature {
    /// Chunk and object digests by CRC-64/NVME. Every version 1 peer has it.
    pub const CRC64NVME: u64 = 1 << 0;
    pub const BLAKE3: u64 = 1 << 1;
    /// Small files travel in packs.
    pub const PACK: u64 = 1 << 2;
    /// Objects whose end is not known when they are described.
    pub const OPEN_ENDED: u64 = 1 << 3;
    /// The paths `null:` and `gen:COUNTxSIZE` name no storage; another peer would take them for names of files.
    pub const SYNTHETIC: u64 = 1 << 4;

    /// Questions about files beside copying them.
    pub const FILES: u64 = 1 << 8;
    /// Selections, comparisons, dry runs and deletion, which another peer would pass over; messages 50 to 52.
    pub const SYNC: u64 = 1 << 9;
    /// Compressed data streams, and message 70: a receiver says how fast and how far is sent.
    pub const LIMITS: u64 = 1 << 11;
    /// Digests of chunks, so that only those travel that differ from what is there.
    pub const DELTA: u64 = 1 << 12;
    /// The client chooses the congestion control of the server's data streams; another server would not hear of it.
    pub const CONGESTION: u64 = 1 << 13;

    /// What arrives may wait in a buffer: `Options.buffer`, `Accept.buffer_bytes`, `Settled.buffered`, `Finish.is_buffered`.
    pub const BUFFERED: u64 = 1 << 14;
    /// Jobs that the server carries out in a client's name, and warrants as credentials; messages 90 to 97.
    pub const ORDERS: u64 = 1 << 15;
    /// Several network paths in one session; messages 100 and 101.
    pub const PATHS: u64 = 1 << 16;
    /// Files that are sent while they are written: kind 10, frame 6, message 80.
    pub const GROWTH: u64 = 1 << 19;

    /// What has arrived of a growing file can be read: `Options.shows_prefix`.
    pub const VIEW: u64 = 1 << 20;

    /// A sender takes message 70 from either side, and keeps to the smallest rate that it knows; `Options.class`.
    pub const SHARED_PACE: u64 = 1 << 21;

    /// What is complete is listed at the destination: `Options.sealed_list`.
    pub const LIST: u64 = 1 << 23;

    /// Digests are told of objects that are wanted already, so that other holders can bring parts of them.
    pub const SOURCES: u64 = 1 << 24;

    /// Jobs that are slices of one on which several hosts work: `Options.is_slice`, `Options.instead_of`.
    pub const SLICES: u64 = 1 << 25;

    /// Orders that move, compare, rehearse and follow, where another peer would only copy: `Order.kind` 3 and 4, and `dry-run` and
    /// `until` in `Order.transfer`.
    pub const ERRANDS: u64 = 1 << 26;

    /// Endpoints of several hosts; messages 115 to 118.
    pub const HOSTS: u64 = 1 << 27;

    /// Slices that bring a range of a file: `Options.run`, `Options.range_start`, `Options.range_end`.
    pub const RANGES: u64 = 1 << 28;

    /// Owners, exact modes, extended attributes, ACLs, other names of files, special files; messages 60 and 61.
    pub const FIDELITY: u64 = 1 << 10;

    pub const ALL: u64 = CRC64NVME
        | BLAKE3
        | PACK
        | OPEN_ENDED
        | SYNTHETIC
        | FILES
        | SYNC
        | FIDELITY
        | LIMITS
        | DELTA
        | CONGESTION
        | BUFFERED
        | ORDERS
        | PATHS
        | GROWTH
        | VIEW
        | SHARED_PACE
        | LIST
        | SOURCES
        | SLICES
        | ERRANDS
        | HOSTS
        | RANGES;
    /// Without these two peers have nothing in common.
    pub const NEEDED: u64 = CRC64NVME | PACK;
}

/// The label of the TLS exporter that binds streams to a session (RFC 8446 section 7.5).
pub const EXPORTER_LABEL: &[u8] = b"EXPORTER-thalweg-join";

/// The newest common version and the common features, or a refusal that names both sides' versions.
pub fn negotiate(hello: &Hello) -> Result<(u32, u64), Refusal> {
    let version = VERSION_MAX.min(hello.version_max);
    if version < VERSION_MIN.max(hello.version_min) || hello.version_min > hello.version_max {
        let text = format!(
            "no common protocol version: this side speaks {VERSION_MIN} to {VERSION_MAX}, the other {} to {}",
            hello.version_min, hello.version_max
        );
        return Err(Refusal::new(CloseCode::Version, &text));
    }
    let features = feature::ALL & hello.features;
    if features & feature::NEEDED != feature::NEEDED {
        return Err(Refusal::new(CloseCode::Version, "the other side lacks a feature that version 1 needs"));
    }
    Ok((version, features))
}

/// What a client checks of the answer.
pub fn check_welcome(welcome: &Welcome) -> Result<(), Refusal> {
    if !(VERSION_MIN..=VERSION_MAX).contains(&welcome.version) {
        let text = format!("the endpoint chose protocol version {}, which was not offered", welcome.version);
        return Err(Refusal::new(CloseCode::Version, &text));
    }
    if welcome.features & !feature::ALL != 0 || welcome.features & feature::NEEDED != feature::NEEDED {
        return Err(Refusal::new(CloseCode::Version, "the endpoint chose features that were not offered"));
    }
    Ok(())
}

/// Which way payload flows on a data stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Direction {
    ClientSends = 1,
    ServerSends = 2,
}

impl Direction {
    pub fn from_number(number: u32) -> Option<Direction> {
        match number {
            1 => Some(Direction::ClientSends),
            2 => Some(Direction::ServerSends),
            _ => None,
        }
    }
}

/// The first frame of a data stream.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Join {
    pub session: SessionId,
    pub job: u32,
    /// Number of the stream within the job, for logs and reports.
    pub stream: u32,
    pub direction: Direction,
    /// HMAC-SHA-256, keyed by the control stream's exporter, over `authenticated` of this frame and the data stream's
    /// own exporter.
    pub proof: [u8; 32],
}

pub const JOIN_BODY_BYTES: usize = 16 + 4 + 4 + 1 + 3 + 32;

impl Join {
    /// The bytes that the proof covers, in front of the data stream's exporter.
    pub fn authenticated(&self) -> [u8; JOIN_BODY_BYTES - 32] {
        let mut bytes = [0; JOIN_BODY_BYTES - 32];
        bytes[..16].copy_from_slice(&self.session.0);
        bytes[16..20].copy_from_slice(&self.job.to_le_bytes());
        bytes[20..24].copy_from_slice(&self.stream.to_le_bytes());
        bytes[24] = self.direction as u8;
        bytes
    }

    pub fn encode(&self) -> Vec<u8> {
        let mut body = self.authenticated().to_vec();
        body.extend_from_slice(&self.proof);
        frame::encode(FrameType::Join, &body)
    }

    pub fn decode(body: &[u8]) -> Result<Join, Refusal> {
        let malformed = || Refusal::new(CloseCode::Malformed, "a join frame cannot be read");
        let body: &[u8; JOIN_BODY_BYTES] = body.try_into().map_err(|_| malformed())?;
        let number = |at: usize| u32::from_le_bytes([body[at], body[at + 1], body[at + 2], body[at + 3]]);
        if body[25..28] != [0; 3] {
            return Err(malformed());
        }
        Ok(Join {
            session: SessionId::from_slice(&body[..16]).ok_or_else(malformed)?,
            job: number(16),
            stream: number(20),
            direction: Direction::from_number(u32::from(body[24])).ok_or_else(malformed)?,
            proof: body[28..].try_into().map_err(|_| malformed())?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hello(min: u32, max: u32) -> Hello {
        Hello { version_min: min, version_max: max, features: u64::MAX, ..Hello::default() }
    }

    #[test]
    fn newer_and_older_peers_meet_or_hear_both_versions() {
        assert_eq!(negotiate(&hello(1, 1)), Ok((1, feature::ALL)));
        assert_eq!(negotiate(&hello(1, 9)), Ok((1, feature::ALL)));
        for (min, max) in [(2, 3), (0, 0), (5, 1), (u32::MAX, u32::MAX)] {
            let refused = negotiate(&hello(min, max)).unwrap_err();
            assert_eq!(refused.code, CloseCode::Version);
            assert!(refused.text.contains("1 to 1") || refused.text.contains("lacks"), "{}", refused.text);
        }
        assert!(negotiate(&Hello { features: 0, ..hello(1, 1) }).is_err());
    }

    #[test]
    fn join_frames_read_back_and_their_padding_is_checked() {
        let join =
            Join { session: SessionId([3; 16]), job: 1, stream: 2, direction: Direction::ServerSends, proof: [9; 32] };
        let bytes = join.encode();
        assert_eq!(Join::decode(&bytes[8..]), Ok(join));
        let mut bad = bytes[8..].to_vec();
        bad[26] = 1;
        assert!(Join::decode(&bad).is_err());
        assert!(Join::decode(&bytes[8..60]).is_err());
    }
}
