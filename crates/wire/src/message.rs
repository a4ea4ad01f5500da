//! Messages of the control stream: protobuf with the field numbers below (docs/protocol.md section 4).
//!
//! Unknown fields are ignored and absent ones read as zero or empty, so that later versions can add. A message of an
//! unknown kind reads as an `Envelope` without a message and is skipped.

use crate::bounds;
use crate::close::{CloseCode, Refusal};
pub use crate::fidelity::{AttributesRecord, NameRecord, Names, WarningRecord, Warnings, XattrRecord};
use crate::frame::{self, FrameType};
pub use crate::growth::Seal;
pub use crate::inquiry::{Answered, Ask, FileRecord, Proceed, Records, Stop, VersionRecord};
use crate::limits::{FAILURES_MAX, FAILURES_TOLD_BYTES};
pub use crate::orders::{
    Order, OrderAsk, OrderEnded, OrderEvents, OrderFailure, OrderNews, OrderSteer, OrderTaken, Revoke,
};
pub use crate::pace::{Pace, Times};
pub use crate::wishes::{AskDigests, ChangeRecord, Changes, Decisions, Digests, RuleRecord, Selection};
use prost::Message as _;
use zeroize::Zeroize;

macro_rules! messages {
    ($($(#[$doc:meta])* $kind:ident = $number:literal),+ $(,)?) => {
        #[derive(Clone, PartialEq, prost::Oneof)]
        pub enum Message {
            $($(#[$doc])* #[prost(message, tag = $number)] $kind($kind),)+
        }

        $(impl From<$kind> for Message {
            fn from(message: $kind) -> Message {
                Message::$kind(message)
            }
        })+
    };
}

messages! {
    /// First message of a client.
    Hello = "1",
    /// First message of a server.
    Welcome = "2",
    /// Last message of either side.
    Close = "3",
    Ping = "4",
    Pong = "5",
    /// Client: opens a job.
    Open = "10",
    /// Server: the job is open.
    Accept = "11",
    /// Server: the job is not opened.
    Reject = "12",
    /// Sender: a batch of the listing.
    Entries = "20",
    /// Sender: objects that could not be listed or read.
    SourceFailures = "21",
    /// Sender: the listing is complete.
    ListEnd = "22",
    /// Receiver: objects to be sent.
    Want = "23",
    /// Receiver: objects that are settled.
    Settled = "24",
    /// Receiver: chunks that are verified and held.
    Held = "25",
    /// Receiver: what has to be sent again.
    Resend = "26",
    /// Receiver: how far the sender may go.
    Credit = "27",
    /// Sender: everything is settled; finish directories.
    Finish = "28",
    /// Receiver: all is in place.
    Finished = "29",
    /// Either: the job is given up.
    Cancel = "30",
    /// Either: where its lanes' time went so far.
    Times = "31",
    /// Client: a question about files beside copying them.
    Ask = "40",
    /// Server: a part of the answer.
    Records = "41",
    /// Server: the end of the answer.
    Answered = "42",
    /// Client: how far the answer may go.
    Proceed = "43",
    /// Client: the answer is not wanted any more.
    Stop = "44",
    /// Receiver: objects whose digests it compares with what it has.
    AskDigests = "50",
    /// Sender: those digests.
    Digests = "51",
    /// Receiver: what it changes.
    Changes = "52",
    /// Sender: what owners and groups are called.
    Names = "60",
    /// Either: what could not be kept of objects that arrived.
    Warnings = "61",
    /// Receiver: how fast and how far the sender may go, as its user set it.
    Pace = "70",
    /// Sender: an object that grew is complete.
    Seal = "80",
    /// Client: a job that the server is to carry out.
    Order = "90",
    /// Server: the end of an answer about such jobs.
    OrderTaken = "91",
    /// Server: how such a job stands.
    OrderNews = "92",
    /// Server: what failed in it.
    OrderEvents = "93",
    /// Client: what is to become of it.
    OrderSteer = "94",
    /// Client: asks for it.
    OrderAsk = "95",
    /// Server: how it ended.
    OrderEnded = "96",
    /// Client: a warrant of its own does not hold any more.
    Revoke = "97",
}

#[derive(Clone, PartialEq, prost::Message)]
struct Envelope {
    #[prost(
        oneof = "Message",
        tags = "1, 2, 3, 4, 5, 10, 11, 12, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31, 40, 41, 42, 43, 44, 50, 51, 52, 60, 61, 70, 80, 90, 91, 92, 93, 94, 95, 96, 97"
    )]
    message: Option<Message>,
}

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
    /// Bits of `model::Fidelity`: what is kept beside content, time and permission bits less the umask.
    #[prost(uint32, tag = "60")]
    pub fidelity: u32,
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
pub struct Entries {
    #[prost(uint32, tag = "1")]
    pub job: u32,
    /// Id of the first entry; the others follow without a gap.
    #[prost(uint64, tag = "2")]
    pub first: u64,
    #[prost(message, repeated, tag = "3")]
    pub entries: Vec<EntryRecord>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct EntryRecord {
    /// Id of a directory described before, or 0 for the root of the job.
    #[prost(uint64, tag = "1")]
    pub parent: u64,
    #[prost(bytes = "vec", tag = "2")]
    pub name: Vec<u8>,
    /// 1 directory, 2 file, 3 symbolic link, 4 file whose end is not known, 5 FIFO, 6 socket, 7 character device, 8 block
    /// device, 9 another name of a file.
    #[prost(uint32, tag = "3")]
    pub kind: u32,
    #[prost(uint32, tag = "4")]
    pub mode: u32,
    #[prost(uint64, tag = "5")]
    pub size_bytes: u64,
    #[prost(sint64, tag = "6")]
    pub modified_seconds: i64,
    #[prost(uint32, tag = "7")]
    pub modified_nanoseconds: u32,
    #[prost(sint64, tag = "8")]
    pub changed_seconds: i64,
    #[prost(uint32, tag = "9")]
    pub changed_nanoseconds: u32,
    #[prost(uint64, tag = "10")]
    pub inode: u64,
    #[prost(uint64, tag = "11")]
    pub device: u64,
    #[prost(bytes = "vec", tag = "12")]
    pub link: Vec<u8>,
    /// Where the job asks for it.
    #[prost(message, optional, tag = "60")]
    pub attributes: Option<AttributesRecord>,
    /// Of a device.
    #[prost(uint64, tag = "61")]
    pub number: u64,
    /// Of another name: the file described before.
    #[prost(uint64, tag = "62")]
    pub same_as: u64,
    /// Of what is described again where something grows: the id that this voids, or 0 for none. Where it is not said, whatever
    /// was described under the same name is void.
    #[prost(uint64, optional, tag = "63")]
    pub replaces: Option<u64>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct SourceFailures {
    #[prost(uint32, tag = "1")]
    pub job: u32,
    #[prost(message, repeated, tag = "2")]
    pub failures: Vec<FailureRecord>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct FailureRecord {
    /// The object, or 0 when it was never described.
    #[prost(uint64, tag = "1")]
    pub object: u64,
    /// Relative to the destination; empty when `object` says it.
    #[prost(bytes = "vec", tag = "2")]
    pub path: Vec<u8>,
    /// Number of a `model::FailureKind`.
    #[prost(uint32, tag = "3")]
    pub kind: u32,
    #[prost(string, tag = "4")]
    pub text: String,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct ListEnd {
    #[prost(uint32, tag = "1")]
    pub job: u32,
    #[prost(uint64, tag = "2")]
    pub entries: u64,
    #[prost(uint64, tag = "3")]
    pub bytes: u64,
}

/// Ids `first..first + count`.
#[derive(Clone, Copy, PartialEq, prost::Message)]
pub struct Run {
    #[prost(uint64, tag = "1")]
    pub first: u64,
    #[prost(uint64, tag = "2")]
    pub count: u64,
}

#[derive(Clone, Copy, PartialEq, prost::Message)]
pub struct ExtentRecord {
    #[prost(uint64, tag = "1")]
    pub object: u64,
    #[prost(uint64, tag = "2")]
    pub start: u64,
    #[prost(uint64, tag = "3")]
    pub end: u64,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct Want {
    #[prost(uint32, tag = "1")]
    pub job: u32,
    /// Wanted whole.
    #[prost(message, repeated, tag = "2")]
    pub runs: Vec<Run>,
    /// Wanted in part: only these extents, in order, of objects that are not in `runs`.
    #[prost(message, repeated, tag = "3")]
    pub extents: Vec<ExtentRecord>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct Settled {
    #[prost(uint32, tag = "1")]
    pub job: u32,
    /// Verified and published.
    #[prost(message, repeated, tag = "2")]
    pub published: Vec<Run>,
    /// There already.
    #[prost(message, repeated, tag = "3")]
    pub skipped: Vec<Run>,
    #[prost(message, repeated, tag = "4")]
    pub failed: Vec<FailureRecord>,
    /// Digests of objects in `published` that travelled in several chunks.
    #[prost(message, repeated, tag = "5")]
    pub digests: Vec<DigestRecord>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct DigestRecord {
    #[prost(uint64, tag = "1")]
    pub object: u64,
    #[prost(bytes = "vec", tag = "2")]
    pub digest: Vec<u8>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct Held {
    #[prost(uint32, tag = "1")]
    pub job: u32,
    #[prost(message, repeated, tag = "2")]
    pub extents: Vec<ExtentRecord>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct Resend {
    #[prost(uint32, tag = "1")]
    pub job: u32,
    /// Whole small objects.
    #[prost(message, repeated, tag = "2")]
    pub runs: Vec<Run>,
    #[prost(message, repeated, tag = "3")]
    pub extents: Vec<ExtentRecord>,
    #[prost(string, tag = "4")]
    pub why: String,
}

#[derive(Clone, Copy, PartialEq, prost::Message)]
pub struct Credit {
    #[prost(uint32, tag = "1")]
    pub job: u32,
    /// Entries that may be described in all, counted from the start of the job.
    #[prost(uint64, tag = "2")]
    pub entries: u64,
    /// Payload bytes that may be sent and not yet acknowledged.
    #[prost(uint64, tag = "3")]
    pub in_flight_bytes: u64,
}

#[derive(Clone, Copy, PartialEq, prost::Message)]
pub struct Finish {
    #[prost(uint32, tag = "1")]
    pub job: u32,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct Finished {
    #[prost(uint32, tag = "1")]
    pub job: u32,
    /// `file`, `batch`, `never` or `memory`.
    #[prost(string, tag = "2")]
    pub durable: String,
    /// Directories whose mode or time could not be set, other names that could not be made, what could not be removed; as many
    /// as there is room for.
    #[prost(message, repeated, tag = "3")]
    pub failures: Vec<FailureRecord>,
    #[prost(string, tag = "4")]
    pub engine: String,
    /// Objects removed, or that would be.
    #[prost(uint64, tag = "5")]
    pub removed: u64,
    /// Objects that the source does not have.
    #[prost(uint64, tag = "6")]
    pub extraneous: u64,
    /// 0 none was asked for, 1 done, 2 the listing was not whole, 3 more than allowed.
    #[prost(uint32, tag = "7")]
    pub deletion: u32,
    /// Failures beyond those in `failures`.
    #[prost(uint64, tag = "8")]
    pub failures_untold: u64,
    /// Other names of files that were made, and that were there.
    #[prost(uint64, tag = "60")]
    pub linked: u64,
    #[prost(uint64, tag = "61")]
    pub linked_before: u64,
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

/// A message as a frame.
pub fn encode(message: impl Into<Message>) -> Vec<u8> {
    let mut envelope = Envelope { message: Some(message.into()) };
    let mut body = envelope.encode_to_vec();
    let frame = frame::encode(FrameType::Message, &body);
    if let Some(Message::Hello(hello)) = &mut envelope.message {
        hello.forget_credential();
        body.zeroize();
    }
    frame
}

impl Hello {
    /// Overwrites the credential, which nobody needs once it was sent or checked.
    pub fn forget_credential(&mut self) {
        self.credential.zeroize();
    }
}

/// Reads the body of a message frame; `None` for a kind this version does not know. What holds more than it may is refused
/// before anything is made of it.
pub fn decode(body: &[u8]) -> Result<Option<Message>, Refusal> {
    if !model::mutant::is_on("decode-before-counting") {
        bounds::check(body)?;
    }
    decode_unchecked(body)
}

pub(crate) fn decode_unchecked(body: &[u8]) -> Result<Option<Message>, Refusal> {
    let envelope = Envelope::decode(body)
        .map_err(|e| Refusal::new(CloseCode::Malformed, &format!("a control message cannot be read: {e}")))?;
    Ok(envelope.message)
}

/// Whether a peer may take a frame of this side.
///
/// # Errors
/// When it is longer, or holds more, than a message may.
pub fn fits(frame: &[u8]) -> Result<(), Refusal> {
    bounds::check(&frame[frame::HEADER_BYTES..]).map(drop)
}

/// How many failures, from the first on, go into one message.
pub fn failures_that_fit(records: &[FailureRecord]) -> usize {
    let mut bytes = 0;
    let fitting = records.iter().take(FAILURES_MAX).take_while(|record| {
        bytes += record.encoded_len() + 4;
        bytes <= FAILURES_TOLD_BYTES
    });
    fitting.count()
}

/// Collapses ids into runs; they are sorted on the way.
pub fn runs_of(mut ids: Vec<u64>) -> Vec<Run> {
    ids.sort_unstable();
    let mut runs: Vec<Run> = Vec::new();
    for id in ids {
        match runs.last_mut() {
            Some(run) if run.first + run.count == id => run.count += 1,
            _ => runs.push(Run { first: id, count: 1 }),
        }
    }
    runs
}

impl Run {
    /// The ids of the run; empty when a peer's numbers overflow.
    pub fn ids(&self) -> std::ops::Range<u64> {
        self.first..self.first.checked_add(self.count).unwrap_or(self.first)
    }
}

#[cfg(test)]
#[path = "own_tests.rs"]
mod own;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_credential_is_sent_and_forgotten_afterwards() {
        let hello = Hello { credential: vec![7; 64], ..Hello::default() };
        let Some(Message::Hello(mut told)) = decode(&encode(hello.clone())[8..]).unwrap() else { panic!("a hello") };
        assert_eq!(told, hello);
        told.forget_credential();
        assert!(told.credential.is_empty());
    }

    #[test]
    fn golden_bytes_of_version_1() {
        let hello = Hello {
            version_min: 1,
            version_max: 1,
            features: 5,
            session: vec![7; 16],
            agent: "thalweg/0.1".into(),
            credential: vec![],
            processors: 2,
        };
        let bytes = encode(hello.clone());
        let mut expected = vec![1, 0, 0, 0, 41, 0, 0, 0, 0x0a, 39, 0x08, 1, 0x10, 1, 0x18, 5, 0x22, 16];
        expected.extend([7; 16]);
        expected.extend([0x2a, 11]);
        expected.extend(b"thalweg/0.1");
        expected.extend([0x38, 2]);
        assert_eq!(bytes, expected);
        assert_eq!(decode(&bytes[8..]).unwrap(), Some(Message::Hello(hello)));
    }

    #[test]
    fn unknown_kinds_are_skipped_and_garbage_is_refused() {
        assert_eq!(decode(&[0xfa, 0x07, 0]).unwrap(), None);
        assert!(decode(&[0x0a, 0xff, 0xff]).is_err());
    }

    #[test]
    fn runs_collapse_neighbours_only() {
        let runs = runs_of(vec![5, 1, 2, 3, 9]);
        assert_eq!(runs.iter().map(Run::ids).collect::<Vec<_>>(), vec![1..4, 5..6, 9..10]);
        assert!(Run { first: u64::MAX, count: 2 }.ids().is_empty());
    }
}
