//! Frames: a kind, a channel and a length (three little-endian 32-bit numbers) and a body.
//!
//! Invariant: no frame is longer than its kind may be, and its length is looked at before anything is allocated.

use std::io::{self, Read, Write};

/// A request with as many paths as a job takes, in base64, stays below it.
pub const MESSAGE_BYTES_MAX: usize = 2 << 20;
pub const DATA_BYTES_MAX: usize = 64 << 10;
const HEADER_BYTES: usize = 12;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum Kind {
    Message = 1,
    Open = 2,
    Data = 3,
    /// The sender of this has no more data.
    End = 4,
    /// The body is a number of bytes for which there is room again.
    Credit = 5,
    /// Neither direction goes on.
    Abort = 6,
}

pub struct Frame {
    pub kind: Kind,
    pub channel: u32,
    pub body: Vec<u8>,
}

/// Writes one message without a link.
pub fn write_message(writer: &mut impl Write, message: &[u8]) -> io::Result<()> {
    write_frame(writer, Kind::Message, 0, message)
}

/// Reads one message without a link; `None` when there is none before the end.
pub fn read_message(reader: &mut impl Read) -> io::Result<Option<Vec<u8>>> {
    match read_frame(reader)? {
        Some(Frame { kind: Kind::Message, body, .. }) => Ok(Some(body)),
        Some(_) => Err(invalid("something else where a message is due")),
        None => Ok(None),
    }
}

pub fn write_frame(writer: &mut impl Write, kind: Kind, channel: u32, body: &[u8]) -> io::Result<()> {
    let mut frame = Vec::with_capacity(HEADER_BYTES + body.len());
    for number in [kind as u32, channel, body.len() as u32] {
        frame.extend_from_slice(&number.to_le_bytes());
    }
    frame.extend_from_slice(body);
    writer.write_all(&frame)?;
    writer.flush()
}

pub fn read_frame(reader: &mut impl Read) -> io::Result<Option<Frame>> {
    let mut header = [0; HEADER_BYTES];
    let mut filled = 0;
    while filled < HEADER_BYTES {
        match reader.read(&mut header[filled..]) {
            Ok(0) if filled == 0 => return Ok(None),
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(bytes) => filled += bytes,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    let number = |at: usize| u32::from_le_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
    let (kind, bytes_max) = match number(0) {
        1 => (Kind::Message, MESSAGE_BYTES_MAX),
        2 => (Kind::Open, 0),
        3 => (Kind::Data, DATA_BYTES_MAX),
        4 => (Kind::End, 0),
        5 => (Kind::Credit, 4),
        6 => (Kind::Abort, 0),
        _ => return Err(invalid("no kind of frame that this version knows")),
    };
    let length = number(8) as usize;
    if length > bytes_max {
        return Err(invalid("a frame that is too long"));
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body)?;
    Ok(Some(Frame { kind, channel: number(4), body }))
}

pub fn invalid(what: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}
