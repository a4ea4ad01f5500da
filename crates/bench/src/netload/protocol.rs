//! What client and server say to each other: a greeting of fixed length, then JSON messages with their length before them.
//!
//! Version 1. A connection begins with 32 bytes from the client: `thwgload`, the version (2 bytes, network order), what it
//! is (1 control, 2 data), one byte 0, the lane (4), the token (16, zeros for control). Only a control connection is
//! answered: `thwgload`, the server's version (2), status (2: 0 welcome, 1 not understood, 2 busy). Its messages follow,
//! each after its length (4 bytes). On a data connection payload follows in one direction, inside TLS 1.3 if it was asked
//! for. There is no compatibility between versions: both ends are the same program.

use serde::{Deserialize, Serialize};

use super::Load;
use super::measure::Sample;

pub const VERSION: u16 = 1;
pub const HELLO_BYTES: usize = 32;
pub const GREETING_BYTES: usize = 12;
/// A sample of 2,048 lanes with the longest numbers.
pub const MESSAGE_BYTES_MAX: usize = 1 << 20;
const MAGIC: [u8; 8] = *b"thwgload";

/// Ties data connections to the control connection that announced them.
pub type Token = [u8; 16];

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Hello {
    Control,
    Data { lane: u32, token: Token },
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Greeting {
    Welcome,
    NotUnderstood { version: u16 },
    Busy,
}

/// The bytes begin otherwise than those of any version.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Foreign;

impl Hello {
    pub fn encode(self) -> [u8; HELLO_BYTES] {
        let mut bytes = [0; HELLO_BYTES];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..10].copy_from_slice(&VERSION.to_be_bytes());
        match self {
            Hello::Control => bytes[10] = 1,
            Hello::Data { lane, token } => {
                bytes[10] = 2;
                bytes[12..16].copy_from_slice(&lane.to_be_bytes());
                bytes[16..].copy_from_slice(&token);
            }
        }
        bytes
    }

    /// None: something else, or another version.
    pub fn decode(bytes: &[u8; HELLO_BYTES]) -> Option<Hello> {
        if bytes[..8] != MAGIC || bytes[8..10] != VERSION.to_be_bytes() || bytes[11] != 0 {
            return None;
        }
        let lane = u32::from_be_bytes(bytes[12..16].try_into().expect("4 bytes"));
        let token: Token = bytes[16..].try_into().expect("16 bytes");
        match bytes[10] {
            1 if lane == 0 && token == Token::default() => Some(Hello::Control),
            2 => Some(Hello::Data { lane, token }),
            _ => None,
        }
    }
}

impl Greeting {
    pub fn encode(self) -> [u8; GREETING_BYTES] {
        let status: u16 = match self {
            Greeting::Welcome => 0,
            Greeting::NotUnderstood { .. } => 1,
            Greeting::Busy => 2,
        };
        let mut bytes = [0; GREETING_BYTES];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..10].copy_from_slice(&VERSION.to_be_bytes());
        bytes[10..].copy_from_slice(&status.to_be_bytes());
        bytes
    }

    pub fn decode(bytes: &[u8; GREETING_BYTES]) -> Result<Greeting, Foreign> {
        if bytes[..8] != MAGIC {
            return Err(Foreign);
        }
        let version = u16::from_be_bytes([bytes[8], bytes[9]]);
        match u16::from_be_bytes([bytes[10], bytes[11]]) {
            0 if version == VERSION => Ok(Greeting::Welcome),
            2 if version == VERSION => Ok(Greeting::Busy),
            _ => Ok(Greeting::NotUnderstood { version }),
        }
    }
}

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FromClient {
    Request(Load),
    /// Payload flows from here on.
    Start,
    /// Everything that was wanted is known.
    Stop,
}

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FromServer {
    Accepted {
        /// 32 hexadecimal digits.
        token: String,
        /// Of the key made for this run, 64 hexadecimal digits; none for clear text.
        pin: Option<String>,
    },
    Refused {
        reason: String,
    },
    /// All data connections are there.
    Ready {
        kernel: String,
        congestion: String,
    },
    Started,
    Sample(Sample),
    Failed {
        reason: String,
    },
}

pub fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// None unless `text` is exactly `N` bytes in hexadecimal digits.
pub fn from_hex<const N: usize>(text: &str) -> Option<[u8; N]> {
    if text.len() != 2 * N || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    let mut bytes = [0; N];
    for (index, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&text[2 * index..2 * index + 2], 16).ok()?;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn greetings_have_these_bytes() {
        assert_eq!(&Hello::Control.encode()[..12], b"thwgload\x00\x01\x01\x00");
        assert_eq!(&Greeting::Busy.encode(), b"thwgload\x00\x01\x00\x02");
        for hello in [Hello::Control, Hello::Data { lane: 7, token: [9; 16] }] {
            assert_eq!(Hello::decode(&hello.encode()), Some(hello));
        }
    }

    #[test]
    fn other_versions_and_other_programs_are_told_apart() {
        let mut bytes = Greeting::Welcome.encode();
        bytes[9] = 2;
        assert_eq!(Greeting::decode(&bytes), Ok(Greeting::NotUnderstood { version: 2 }));
        assert_eq!(Greeting::decode(b"SSH-2.0-Open"), Err(Foreign));
        let mut hello = Hello::Control.encode();
        hello[9] = 2;
        assert_eq!(Hello::decode(&hello), None);
        assert_eq!(Hello::decode(b"GET / HTTP/1.1\r\nHost: example\r\n\r"), None);
    }

    #[test]
    fn only_whole_hexadecimal_values_are_read() {
        assert_eq!(from_hex::<2>(&to_hex(&[1, 0xfe])), Some([1, 0xfe]));
        for wrong in ["01f", "01fg", "01fe0", "+1fe", "é1f"] {
            assert_eq!(from_hex::<2>(wrong), None, "{wrong}");
        }
    }
}
