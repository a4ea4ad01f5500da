//! What the two sides of an ssh connection say to each other: a request, its answer, and for a copy between two hosts where
//! to and what came of it. JSON; unknown keys are passed over, so that either side may be the newer one.
//!
//! Invariant: nothing in here is secret. Keys are public halves; whoever reads them can do nothing with them.

use daemon::error::{Error, Result};
use data_encoding::BASE64;
use model::name::Escaped;
use model::{Exit, Pin};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// Counts up when an older program could not understand a request any more.
pub const VERSION: u32 = 1;
/// More of the remote side's text is not shown.
const TEXT_CHARS_MAX: usize = 2000;
const ADDRESSES_MAX: usize = 16;

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Request {
    pub version: u32,
    #[serde(rename = "wish")]
    pub role: Role,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    Serve(ServeRequest),
    Copy(CopyRequest),
}

/// Which way an endpoint's paths may be used.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Access {
    Read,
    Write,
    /// Questions about files, anywhere that the user may go.
    Files,
}

/// To be an endpoint for one client.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ServeRequest {
    pub access: Access,
    /// Relative to the directory that the user logs in to, absolute, or below `~/`.
    pub paths: Vec<PathBytes>,
    /// The keys that are let in.
    pub clients: Vec<PinText>,
    /// The first and the last port that may be listened on; any by default.
    pub ports: Option<(u16, u16)>,
    /// No connection is to be expected but through the link.
    pub is_tunnel_only: bool,
    pub memory_bytes: usize,
    pub congestion: Option<String>,
    /// What another host was told to send here, by whoever gave the command.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub terms: Option<CopyTerms>,
}

/// What a host that copies to another was told to send: nothing else is taken from it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct CopyTerms {
    pub sources: Vec<PathBytes>,
    /// Filter rules in their order, as `+ PATTERN` or `- PATTERN`.
    pub rules: Vec<String>,
    pub may_delete: bool,
    pub backup: Option<PathBytes>,
    /// As bits of the protocol.
    pub fidelity: u32,
    /// The fields below are new: a program that does not know them holds the sender to the others alone.
    #[serde(default)]
    pub bounds: BoundTerms,
    /// The only paths below the source that are taken, where the command gave a list.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub listed: Option<Vec<PathBytes>>,
    #[serde(default)]
    pub spares: SparedTerms,
    /// Nothing where an older program gives the command: then the sender says what the bits are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chmod: Option<ChmodTerms>,
}

/// The permission bits of files and of directories that the command sets (`--chmod`).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ChmodTerms {
    pub bits: Option<(u32, u32)>,
}

/// What of the destination the command leaves as it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct SparedTerms {
    pub everything: bool,
    /// `--no-clobber`, or what a comparison by existence comes to.
    pub what_is_there: bool,
    pub what_is_newer: bool,
    pub what_is_missing: bool,
}

/// Sizes and times, in seconds since 1970, of the files that may be sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct BoundTerms {
    pub size_bytes_min: u64,
    /// The first size that is too large; 0 where none is.
    pub size_bytes_end: u64,
    pub modified_since: Option<i64>,
    pub modified_before: Option<i64>,
}

/// To copy what is here to an endpoint of which more is said later (`Peer`).
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct CopyRequest {
    pub sources: Vec<PathBytes>,
    pub destination: PathBytes,
    /// What the other host is called where the command was given.
    pub name: String,
    /// The flags of the command.
    pub flags: Vec<String>,
    /// 32 hexadecimal digits: the same for the same command.
    pub job: String,
    /// What the list in `flags` says, which is a file where the command was given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub listed: Option<Vec<PathBytes>>,
}

/// The endpoint to copy to.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Peer {
    /// `HOST:PORT`; none where it can only be reached through the link.
    pub addresses: Vec<String>,
    pub pin: PinText,
}

/// The remote side's first words.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Answer {
    Ready(Ready),
    Failed(Failed),
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Ready {
    /// The program and its version.
    pub agent: String,
    pub pin: PinText,
    /// `HOST:PORT` where it listens, the likeliest first; none when it does not, or only for the link.
    pub addresses: Vec<String>,
    pub landlock: String,
}

/// Why something did not come about.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Failed {
    pub exit: i32,
    pub message: String,
    pub hint: Option<String>,
}

/// What a copying host tells, while it copies and at the end.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum News {
    /// A line for standard output.
    Line(String),
    /// It came to its end; what there is to say about it has been said.
    Ended(i32),
}

/// Bytes that need not be text, in base64.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PathBytes(pub Vec<u8>);

impl Serialize for PathBytes {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        serializer.serialize_str(&BASE64.encode(&self.0))
    }
}

impl<'de> Deserialize<'de> for PathBytes {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let bytes = BASE64.decode(text.as_bytes()).map_err(serde::de::Error::custom)?;
        if bytes.len() > wire::limits::PATH_BYTES_MAX || bytes.contains(&0) {
            return Err(serde::de::Error::custom("a path that is too long, or has a zero byte"));
        }
        Ok(PathBytes(bytes))
    }
}

/// A pin in hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PinText(pub Pin);

impl Serialize for PinText {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0.to_string())
    }
}

impl<'de> Deserialize<'de> for PinText {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Pin::from_hex(&text).map(PinText).ok_or_else(|| serde::de::Error::custom("a pin is 64 hexadecimal digits"))
    }
}

pub fn encode(message: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(message).expect("texts, numbers and lists have a JSON form")
}

/// Reads a message that `from` has sent.
pub fn decode<T: DeserializeOwned>(from: &str, bytes: &[u8]) -> Result<T> {
    serde_json::from_slice(bytes).map_err(|_| {
        Error::new(Exit::Version, format!("{from} says something that this program does not understand"))
            .hint("bring thalweg to the same version on both hosts")
    })
}

impl Peer {
    pub fn pin(&self) -> Pin {
        self.pin.0
    }
}

impl Ready {
    /// Addresses that have the form of one.
    pub fn usable_addresses(&self) -> Vec<String> {
        let usable = self.addresses.iter().filter(|address| daemon::ticket::is_address(address));
        usable.take(ADDRESSES_MAX).cloned().collect()
    }
}

impl Failed {
    pub fn new(error: &Error) -> Failed {
        Failed { exit: error.exit as i32, message: error.message.clone(), hint: error.hint.clone() }
    }

    /// As an error of this side about `host`; what the remote side says cannot control a terminal.
    pub fn into_error(self, host: &str) -> Error {
        let shown = |text: String| {
            let text: String = text.chars().take(TEXT_CHARS_MAX).collect();
            Escaped(text.as_bytes()).to_string()
        };
        // It failed, whatever it says of that.
        let exit = Some(Exit::from_number(self.exit)).filter(|exit| *exit != Exit::Done).unwrap_or(Exit::Failed);
        let error = Error::new(exit, format!("{host}: {}", shown(self.message)));
        Error { hint: self.hint.map(shown), ..error }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request() -> Request {
        let serve = ServeRequest {
            access: Access::Write,
            paths: vec![PathBytes(b"a\xff b".to_vec())],
            clients: vec![PinText(Pin([7; 32]))],
            ports: Some((7740, 7760)),
            is_tunnel_only: false,
            memory_bytes: 1 << 20,
            congestion: None,
            terms: None,
        };
        Request { version: VERSION, role: Role::Serve(serve) }
    }

    #[test]
    fn a_request_reads_back_and_a_newer_ones_keys_are_passed_over() {
        let bytes = encode(&request());
        assert_eq!(decode::<Request>("x", &bytes), Ok(request()));
        let text = String::from_utf8(bytes).unwrap();
        let newer = text.replace("\"access\"", "\"more\":[1],\"access\"");
        assert_ne!(text, newer);
        assert_eq!(decode::<Request>("x", newer.as_bytes()), Ok(request()));
        let error = decode::<Request>("far", b"{}").unwrap_err();
        assert_eq!(error.exit, Exit::Version);
        assert!(error.message.starts_with("far says"));
    }

    #[test]
    fn paths_and_pins_that_cannot_be_are_refused() {
        for text in ["\"AA==\"".to_owned(), "\"?\"".to_owned(), format!("\"{}\"", BASE64.encode(&[b'x'; 5000]))] {
            assert!(serde_json::from_str::<PathBytes>(&text).is_err());
        }
        assert!(serde_json::from_str::<PinText>("\"01\"").is_err());
    }

    #[test]
    fn the_far_sides_words_are_harmless_and_its_exit_is_kept() {
        let failed = Failed { exit: 44, message: "\u{1b}[2J".into(), hint: Some("x\u{202e}".into()) };
        let error = failed.into_error("far");
        assert_eq!(error.exit, Exit::NoSpace);
        assert!(!error.message.contains('\u{1b}') && !error.hint.unwrap().contains('\u{202e}'));
        let exit = |exit| Failed { exit, message: String::new(), hint: None }.into_error("far").exit;
        assert_eq!([99, 130, 46].map(exit), [Exit::Failed, Exit::Interrupted, Exit::OutOfReach]);
        assert_eq!(exit(0), Exit::Failed, "what failed would pass for done");
    }

    #[test]
    fn only_addresses_of_the_right_form_are_tried() {
        let addresses = ["10.0.0.1:80", "-oProxyCommand=x", "[::1]:7", "nothing"].map(String::from).to_vec();
        let ready = Ready { agent: String::new(), pin: PinText(Pin([0; 32])), addresses, landlock: String::new() };
        assert_eq!(ready.usable_addresses(), ["10.0.0.1:80", "[::1]:7"]);
    }
}
