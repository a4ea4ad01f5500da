//! Packets of SFTP version 3 as values (draft-ietf-secsh-filexfer-02), and the extensions of OpenSSH that are used.
//!
//! Invariant: whatever bytes arrive are a value or an error; nothing is believed of a length before it was compared with what is there.

use crate::tree::Attributes;

/// The longest packet that is taken: twice what OpenSSH sends.
pub const PACKET_BYTES_MAX: u32 = 512 << 10;
/// The longest handle that the draft allows.
const HANDLE_BYTES_MAX: usize = 256;
/// Of a status's text; the rest is not kept.
const TEXT_BYTES_MAX: usize = 500;

pub const VERSION: u32 = 3;
pub const INIT: u8 = 1;
pub const VERSION_REPLY: u8 = 2;

/// Requests.
pub mod request {
    pub const OPEN: u8 = 3;
    pub const CLOSE: u8 = 4;
    pub const READ: u8 = 5;
    pub const WRITE: u8 = 6;
    pub const LSTAT: u8 = 7;
    pub const FSTAT: u8 = 8;
    pub const SETSTAT: u8 = 9;
    pub const FSETSTAT: u8 = 10;
    pub const OPENDIR: u8 = 11;
    pub const READDIR: u8 = 12;
    pub const REMOVE: u8 = 13;
    pub const MKDIR: u8 = 14;
    pub const RMDIR: u8 = 15;
    pub const STAT: u8 = 17;
    pub const RENAME: u8 = 18;
    pub const READLINK: u8 = 19;
    pub const SYMLINK: u8 = 20;
    pub const EXTENDED: u8 = 200;
}

/// Codes of a status.
pub mod status {
    pub const OK: u32 = 0;
    pub const EOF: u32 = 1;
    pub const NO_SUCH_FILE: u32 = 2;
    pub const PERMISSION_DENIED: u32 = 3;
    pub const UNSUPPORTED: u32 = 8;
}

/// How a file is opened.
pub mod flags {
    pub const READ: u32 = 1;
    pub const WRITE: u32 = 2;
    pub const CREATE: u32 = 8;
    pub const TRUNCATE: u32 = 16;
    pub const EXCLUSIVE: u32 = 32;
}

const HAS_SIZE: u32 = 1;
const HAS_OWNER: u32 = 2;
const HAS_MODE: u32 = 4;
const HAS_TIMES: u32 = 8;
const HAS_EXTENDED: u32 = 1 << 31;

/// Bytes that make no packet, and why.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Malformed(pub &'static str);

type Result<T> = std::result::Result<T, Malformed>;

/// An answer.
#[derive(PartialEq, Eq, Debug)]
pub enum Reply {
    Status { code: u32, text: String },
    Handle(Vec<u8>),
    Data(Vec<u8>),
    Names(Vec<(Vec<u8>, Attributes)>),
    Attributes(Attributes),
    Extended(Vec<u8>),
}

/// What is still unread of a packet.
pub struct Input<'a>(pub &'a [u8]);

impl<'a> Input<'a> {
    pub fn take(&mut self, count: usize) -> Result<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count).ok_or(Malformed("a packet is shorter than it says"))?;
        self.0 = rest;
        Ok(taken)
    }

    pub fn u32(&mut self) -> Result<u32> {
        self.take(4).map(|bytes| u32::from_be_bytes(bytes.try_into().expect("four bytes")))
    }

    pub fn u64(&mut self) -> Result<u64> {
        self.take(8).map(|bytes| u64::from_be_bytes(bytes.try_into().expect("eight bytes")))
    }

    pub fn string(&mut self) -> Result<&'a [u8]> {
        let length = self.u32()? as usize;
        self.take(length)
    }

    fn attributes(&mut self) -> Result<Attributes> {
        let has = self.u32()?;
        let mut found = Attributes::default();
        if has & HAS_SIZE != 0 {
            found.size_bytes = Some(self.u64()?);
        }
        if has & HAS_OWNER != 0 {
            found.owner = Some((self.u32()?, self.u32()?));
        }
        if has & HAS_MODE != 0 {
            found.mode = Some(self.u32()?);
        }
        if has & HAS_TIMES != 0 {
            self.u32()?;
            found.modified = Some(self.u32()?);
        }
        if has & HAS_EXTENDED != 0 {
            for _ in 0..self.u32()? {
                self.string()?;
                self.string()?;
            }
        }
        Ok(found)
    }
}

/// Reads an answer: its kind, and what stands behind its number.
pub fn read(kind: u8, body: &[u8]) -> Result<Reply> {
    let mut input = Input(body);
    let reply = match kind {
        101 => {
            let code = input.u32()?;
            // Some servers leave the text out.
            let text = input.string().unwrap_or_default();
            let text = String::from_utf8_lossy(&text[..text.len().min(TEXT_BYTES_MAX)]);
            return Ok(Reply::Status { code, text: text.chars().filter(|c| !model::name::is_unsafe(*c)).collect() });
        }
        102 => match input.string()? {
            handle if handle.len() <= HANDLE_BYTES_MAX => Reply::Handle(handle.to_vec()),
            _ => return Err(Malformed("a handle is longer than 256 bytes")),
        },
        103 => Reply::Data(input.string()?.to_vec()),
        104 => {
            let count = input.u32()?;
            let mut names = Vec::new();
            for _ in 0..count {
                let name = input.string()?.to_vec();
                input.string()?;
                names.push((name, input.attributes()?));
            }
            Reply::Names(names)
        }
        105 => Reply::Attributes(input.attributes()?),
        201 => return Ok(Reply::Extended(body.to_vec())),
        _ => return Err(Malformed("an answer is of no kind that version 3 has")),
    };
    if input.0.is_empty() { Ok(reply) } else { Err(Malformed("a packet is longer than what is in it")) }
}

/// A request being written; its length and number come with `finish`.
pub struct Output(Vec<u8>);

impl Output {
    pub fn new(kind: u8) -> Output {
        Output(vec![0, 0, 0, 0, kind, 0, 0, 0, 0])
    }

    pub fn u32(mut self, number: u32) -> Output {
        self.0.extend_from_slice(&number.to_be_bytes());
        self
    }

    pub fn u64(mut self, number: u64) -> Output {
        self.0.extend_from_slice(&number.to_be_bytes());
        self
    }

    pub fn string(self, bytes: &[u8]) -> Output {
        let mut next = self.u32(bytes.len() as u32);
        next.0.extend_from_slice(bytes);
        next
    }

    pub fn attributes(self, attributes: &Attributes) -> Output {
        let Attributes { size_bytes, mode, modified, .. } = *attributes;
        let has = [(size_bytes.is_some(), HAS_SIZE), (mode.is_some(), HAS_MODE), (modified.is_some(), HAS_TIMES)];
        let mut next = self.u32(has.iter().filter(|(is_there, _)| *is_there).map(|(_, bit)| bit).sum());
        if let Some(size) = size_bytes {
            next = next.u64(size);
        }
        if let Some(mode) = mode {
            next = next.u32(mode & 0o7777);
        }
        match modified {
            Some(seconds) => next.u32(seconds).u32(seconds),
            None => next,
        }
    }

    /// The packet without `tail_bytes` that follow it.
    pub fn finish(mut self, number: u32, tail_bytes: usize) -> Vec<u8> {
        let length = (self.0.len() - 4 + tail_bytes) as u32;
        self.0[..4].copy_from_slice(&length.to_be_bytes());
        self.0[5..9].copy_from_slice(&number.to_be_bytes());
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn string(text: &[u8]) -> Vec<u8> {
        [&(text.len() as u32).to_be_bytes(), text].concat()
    }

    #[test]
    fn a_request_is_the_bytes_of_the_draft() {
        let sent = Output::new(request::OPEN).string(b"/a").u32(flags::READ).attributes(&Attributes::default());
        let expected = [&[0, 0, 0, 19, 3, 0, 0, 0, 7][..], &string(b"/a"), &[0, 0, 0, 1], &[0, 0, 0, 0]].concat();
        assert_eq!(sent.finish(7, 0), expected);
    }

    #[test]
    fn attributes_are_read_as_they_are_flagged() {
        let mut body = (HAS_SIZE | HAS_OWNER | HAS_MODE | HAS_TIMES | HAS_EXTENDED).to_be_bytes().to_vec();
        body.extend_from_slice(&5u64.to_be_bytes());
        for number in [10u32, 20, 0o100_644, 1, 2, 1] {
            body.extend_from_slice(&number.to_be_bytes());
        }
        body.extend([string(b"acl"), string(b"x")].concat());
        let expected =
            Attributes { size_bytes: Some(5), owner: Some((10, 20)), mode: Some(0o100_644), modified: Some(2) };
        assert_eq!(read(105, &body), Ok(Reply::Attributes(expected)));
        assert!(expected.is_file() && expected.is_full());
    }

    #[test]
    fn a_cut_or_padded_answer_is_an_error_and_never_a_panic() {
        let mut names = 1u32.to_be_bytes().to_vec();
        names.extend([string(b"name"), string(b"-rw"), vec![0, 0, 0, 0]].concat());
        assert!(read(104, &names).is_ok());
        for end in 0..names.len() {
            assert!(read(104, &names[..end]).is_err(), "{end}");
        }
        names.push(0);
        assert!(read(104, &names).is_err());
        // A count of names, or of extended attributes, that nothing stands behind ends with the packet.
        assert!(read(104, &u32::MAX.to_be_bytes()).is_err());
        assert!(read(105, &[HAS_EXTENDED.to_be_bytes(), u32::MAX.to_be_bytes()].concat()).is_err());
        assert!(read(102, &string(&[0; 257])).is_err());
        assert!(read(99, b"").is_err());
    }

    #[test]
    fn the_text_of_a_status_may_be_missing_and_cannot_control_a_terminal() {
        assert_eq!(read(101, &4u32.to_be_bytes()), Ok(Reply::Status { code: 4, text: String::new() }));
        let body = [&4u32.to_be_bytes()[..], &string(b"\x1b[2Jno")].concat();
        assert_eq!(read(101, &body), Ok(Reply::Status { code: 4, text: "[2Jno".to_owned() }));
    }
}
