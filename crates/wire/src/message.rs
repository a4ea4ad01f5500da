//! Messages of the control stream: protobuf with the field numbers below (docs/protocol.md section 4).
//!
//! Unknown fields are ignored and absent ones read as zero or empty, so that later versions can add. A message of an
//! unknown kind reads as an `Envelope` without a message and is skipped.

pub use crate::addresses::{AddressRecord, Addresses, AskAddresses};
use crate::bounds;
use crate::close::{CloseCode, Refusal};
pub use crate::fidelity::{AttributesRecord, NameRecord, Names, WarningRecord, Warnings, XattrRecord};
use crate::frame::{self, FrameType};
pub use crate::growth::Seal;
pub use crate::hosts::{AskHosts, Attend, ClientRecord, HostRecord, Hosts, Standing};
pub use crate::inquiry::{Answered, Ask, FileRecord, Proceed, Records, Stop, VersionRecord};
pub use crate::objects::{
    Credit, DigestRecord, Entries, EntryRecord, ExtentRecord, FailureRecord, Finish, Finished, Held, ListEnd, Resend,
    Run, Settled, SourceFailures, Want, failures_that_fit, runs_of,
};
pub use crate::orders::{
    Order, OrderAsk, OrderEnded, OrderEvents, OrderFailure, OrderNews, OrderSteer, OrderTaken, Revoke,
};
pub use crate::pace::{Pace, Times};
pub use crate::selection::{AskDigests, ChangeRecord, Changes, Decisions, Digests, RuleRecord, Selection};
pub use crate::session::{Accept, Cancel, Close, Depths, Hello, Open, Options, Ping, Pong, Reject, Welcome};
pub use crate::terms::{AskTerms, ShareRecord, Terms};
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
    /// Client: asks for the server's addresses.
    AskAddresses = "100",
    /// Server: those addresses.
    Addresses = "101",
    /// Client: asks for the hosts of the endpoint.
    AskHosts = "115",
    /// Server: those hosts.
    Hosts = "116",
    /// Client: one of those hosts says that it is there, and asks who clients are.
    Attend = "117",
    /// Server: what becomes of that host, and what these clients may.
    Standing = "118",
    /// Client: asks for what it may, and for how rates are shared out, or changes that.
    AskTerms = "119",
    /// Server: those.
    Terms = "120",
}

#[derive(Clone, PartialEq, prost::Message)]
struct Envelope {
    #[prost(
        oneof = "Message",
        tags = "1, 2, 3, 4, 5, 10, 11, 12, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31, 40, 41, 42, 43, 44, 50, 51, 52, 60, 61, 70, 80, 90, 91, 92, 93, 94, 95, 96, 97, 100, 101, 115, 116, 117, 118, 119, 120"
    )]
    message: Option<Message>,
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
}
