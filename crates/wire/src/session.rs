//! Messages that open and end a session and its jobs (docs/protocol.md section 4).
//!
//! Plain fields as they travel; `handshake` and the reader of each message check them.

use crate::selection::{Decisions, Selection};
use zeroize::Zeroize;

#[derive(Clone, PartialEq, prost::Message)]
pub struct Hello {
    #[prost(uint32, tag = "1")]
    pub version_min: u32,
    #[prost(uint32, tag = "2")]
    pub version_max: u32,
    /// Bit set of `handshake::feature`.
    #[prost(uint64, tag = "3")]
    pub features: u64,
    /// 16 bytes, random.
    #[prost(bytes = "vec", tag = "4")]
    pub session: Vec<u8>,
    /// Program and version, for logs.
    #[prost(string, tag = "5")]
    pub agent: String,
    /// Enrols the client's key; empty once it is known.
    #[prost(bytes = "vec", tag = "6")]
    pub credential: Vec<u8>,
    #[prost(uint32, tag = "7")]
    pub processors: u32,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct Welcome {
    #[prost(uint32, tag = "1")]
    pub version: u32,
    #[prost(uint64, tag = "2")]
    pub features: u64,
    #[prost(string, tag = "3")]
    pub agent: String,
    /// What the endpoint calls itself.
    #[prost(string, tag = "4")]
    pub name: String,
    #[prost(uint32, tag = "5")]
    pub processors: u32,
    #[prost(uint32, tag = "6")]
    pub streams_max: u32,
    /// The ceiling of a send buffer there, for choosing streams when it sends.
    #[prost(uint64, tag = "7")]
    pub send_buffer_bytes_max: u64,
    #[prost(bool, tag = "8")]
    pub is_read_only: bool,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct Close {
    #[prost(uint32, tag = "1")]
    pub code: u32,
    #[prost(string, tag = "2")]
    pub text: String,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct Ping {
    #[prost(uint64, tag = "1")]
    pub number: u64,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct Pong {
    #[prost(uint64, tag = "1")]
    pub number: u64,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct Open {
    /// Number of the job in this session, chosen by the client; data streams name it.
    #[prost(uint32, tag = "1")]
    pub job: u32,
    /// 16 bytes.
    #[prost(bytes = "vec", tag = "2")]
    pub job_id: Vec<u8>,
    /// 1: the client sends. 2: the server sends.
    #[prost(uint32, tag = "3")]
    pub direction: u32,
    /// Client sends: one path, the destination. Server sends: the sources. Relative to the endpoint's root.
    #[prost(bytes = "vec", repeated, tag = "4")]
    pub paths: Vec<Vec<u8>>,
    #[prost(message, optional, tag = "5")]
    pub options: Option<Options>,
    /// Client sends one file or link: the destination is its new name unless a directory is there.
    #[prost(bool, tag = "6")]
    pub is_single: bool,
    /// The client's sink or source takes chunks in order only (a pipe).
    #[prost(bool, tag = "7")]
    pub is_sequential: bool,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct Options {
    /// 1 file, 2 batch, 3 never.
    #[prost(uint32, tag = "1")]
    pub fsync: u32,
    /// 1 stream, 2 reread.
    #[prost(uint32, tag = "2")]
    pub verify: u32,
    /// 1 crc64nvme, 2 blake3.
    #[prost(uint32, tag = "3")]
    pub digest: u32,
    #[prost(uint64, tag = "4")]
    pub chunk_bytes: u64,
    #[prost(bool, tag = "5")]
    pub no_clobber: bool,
    /// Permission bits plus 0o10000 when given; 0 otherwise.
    #[prost(uint32, tag = "6")]
    pub chmod_files: u32,
    #[prost(uint32, tag = "7")]
    pub chmod_directories: u32,
    /// 0 auto, 1 pread, 2 uring.
    #[prost(uint32, tag = "8")]
    pub engine: u32,
    /// What of the source is taken; absent where that is everything.
    #[prost(message, optional, tag = "9")]
    pub selection: Option<Selection>,
    /// What becomes of what is there; absent where it is replaced when size or time differ.
    #[prost(message, optional, tag = "10")]
    pub decisions: Option<Decisions>,
    /// How data streams are compressed: 0 not at all, 1 auto, 2 zstd, 3 lz4.
    #[prost(uint32, tag = "20")]
    pub compression: u32,
    /// Congestion control of the server's data streams (server sends); empty for its system's.
    #[prost(string, tag = "21")]
    pub congestion: String,
    /// What has arrived of a growing file can be read, under the name it has where that matches one of `unfinished`: patterns
    /// with a slash between each two.
    #[prost(bool, tag = "22")]
    pub shows_prefix: bool,
    #[prost(bytes = "vec", tag = "23")]
    pub unfinished: Vec<u8>,
    /// Whether content may wait in the receiver's buffer: 0 auto, 1 always, 2 never.
    #[prost(uint32, tag = "24")]
    pub buffer: u32,
    /// What it counts beside other jobs: 0 not asked for, else a number of `model::Class`.
    #[prost(uint32, tag = "25")]
    pub class: u32,
    /// Blocks in flight where storage is read and written; absent where the engine's own number is.
    #[prost(message, optional, tag = "28")]
    pub depths: Option<Depths>,
    /// What the list of what is complete is called, at the top of the destination; empty for none.
    #[prost(bytes = "vec", tag = "29")]
    pub sealed_list: Vec<u8>,
    /// The job is a slice of one that several hosts work on; the ids of the slices that it takes over from.
    #[prost(bool, tag = "31")]
    pub is_slice: bool,
    #[prost(bytes = "vec", repeated, tag = "32")]
    pub instead_of: Vec<Vec<u8>>,
    /// What the slice shares with others of the same job: empty, or 16 bytes; and what of its one file it brings: nothing else than
    /// from the first to before the last, where the last is not 0.
    #[prost(bytes = "vec", tag = "33")]
    pub run: Vec<u8>,
    #[prost(uint64, tag = "34")]
    pub range_start: u64,
    #[prost(uint64, tag = "35")]
    pub range_end: u64,
    /// Bits of `model::Fidelity`: what is kept besides content, time and permission bits less the umask.
    #[prost(uint32, tag = "60")]
    pub fidelity: u32,
}

#[derive(Clone, Copy, PartialEq, prost::Message)]
pub struct Depths {
    #[prost(uint32, tag = "1")]
    pub read: u32,
    #[prost(uint32, tag = "2")]
    pub write: u32,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct Accept {
    #[prost(uint32, tag = "1")]
    pub job: u32,
    /// The source paths name one file or link (server sends).
    #[prost(bool, tag = "2")]
    pub is_single: bool,
    /// What the destination's file system is called (server receives).
    #[prost(string, tag = "3")]
    pub file_system: String,
    /// Size of the buffer that the job may use (server receives); 0 for none.
    #[prost(uint64, tag = "4")]
    pub buffer_bytes: u64,
    /// Nothing can grow at the destination: files are to be described once they are complete (server receives).
    #[prost(bool, tag = "5")]
    pub takes_whole: bool,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct Reject {
    #[prost(uint32, tag = "1")]
    pub job: u32,
    #[prost(uint32, tag = "2")]
    pub code: u32,
    #[prost(string, tag = "3")]
    pub text: String,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct Cancel {
    #[prost(uint32, tag = "1")]
    pub job: u32,
    #[prost(uint32, tag = "2")]
    pub code: u32,
    #[prost(string, tag = "3")]
    pub text: String,
}

impl Hello {
    /// Overwrites the credential, which nobody needs once it was sent or checked.
    pub fn forget_credential(&mut self) {
        self.credential.zeroize();
    }
}
