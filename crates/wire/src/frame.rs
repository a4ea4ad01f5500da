//! Frames: every byte on every stream is in one (docs/protocol.md section 3).
//!
//! ```text
//! 0      1      2          4              8
//! | type | flags| reserved |  body length | body ...
//! ```
//! Little-endian. A frame of unknown type is skipped when flag bit 0 is set and refused otherwise; reserved bits are 0.

use crate::bounds;
use crate::close::{CloseCode, Refusal};
use crate::limits::{CONTROL_BODY_BYTES_MAX, FRAGMENT_BYTES_MAX, HELLO_BODY_BYTES_MAX, PACK_BODY_BYTES_MAX};

pub const HEADER_BYTES: usize = 8;
/// Of a body, so many bytes tell which message it is.
const KIND_BYTES: usize = 2;
/// Room that a reader keeps for the next frame.
const KEPT_BYTES_MAX: usize = 64 << 10;
/// A receiver that does not know the frame's type may skip it.
pub const FLAG_SKIPPABLE: u8 = 1;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum FrameType {
    /// Control stream: one message (section 4).
    Message = 1,
    /// First frame of a data stream (section 6).
    Join = 2,
    /// Data stream: one chunk of an object (section 7).
    Chunk = 3,
    /// Data stream: several small objects (section 7).
    Pack = 4,
    /// Data stream: nothing follows (section 7).
    End = 5,
    /// Data stream: a fragment of an object that grows (section 17).
    Growth = 6,
}

impl FrameType {
    pub fn from_number(number: u8) -> Option<FrameType> {
        use FrameType::*;
        [Message, Join, Chunk, Pack, End, Growth].into_iter().find(|t| *t as u8 == number)
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FrameHeader {
    pub frame_type: u8,
    pub flags: u8,
    pub body_bytes: u32,
}

impl FrameHeader {
    pub fn new(frame_type: FrameType, body_bytes: usize) -> FrameHeader {
        FrameHeader {
            frame_type: frame_type as u8,
            flags: 0,
            body_bytes: body_bytes.try_into().expect("frame too long"),
        }
    }

    pub fn encode(&self) -> [u8; HEADER_BYTES] {
        let length = self.body_bytes.to_le_bytes();
        [self.frame_type, self.flags, 0, 0, length[0], length[1], length[2], length[3]]
    }

    pub fn decode(bytes: &[u8; HEADER_BYTES]) -> Result<FrameHeader, Refusal> {
        let header = FrameHeader {
            frame_type: bytes[0],
            flags: bytes[1],
            body_bytes: u32::from_le_bytes([bytes[4], bytes[5], bytes[6], bytes[7]]),
        };
        let has_reserved = bytes[2..4] != [0, 0] || header.flags & !FLAG_SKIPPABLE != 0;
        if has_reserved && !model::mutant::is_on("ignore-reserved-bits") {
            return Err(Refusal::new(CloseCode::Malformed, "reserved bits are set in a frame header"));
        }
        Ok(header)
    }

    /// The type, or `None` for one that is to be skipped.
    pub fn known(&self) -> Result<Option<FrameType>, Refusal> {
        match FrameType::from_number(self.frame_type) {
            Some(known) => Ok(Some(known)),
            None if self.flags & FLAG_SKIPPABLE != 0 && self.body_bytes as usize <= CONTROL_BODY_BYTES_MAX => Ok(None),
            None => Err(unknown(self.frame_type)),
        }
    }
}

fn unknown(frame_type: u8) -> Refusal {
    Refusal::new(CloseCode::Malformed, &format!("unknown frame type {frame_type}"))
}

/// Bytes of a frame with its body.
pub fn encode(frame_type: FrameType, body: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(HEADER_BYTES + body.len());
    bytes.extend_from_slice(&FrameHeader::new(frame_type, body.len()).encode());
    bytes.extend_from_slice(body);
    bytes
}

/// Takes the type and body of a complete frame, and may refuse it.
pub type EachFrame<'a> = &'a mut dyn FnMut(FrameType, &[u8]) -> Result<(), Refusal>;

/// Cuts a stream of bytes into message frames, in pieces of any size. Memory is bounded by one frame, and that by what the
/// message in it may be long. Once it has refused something it holds nothing and takes nothing more: where a frame ends is not
/// known any more.
pub struct FrameReader {
    held: Vec<u8>,
    body_bytes_max: usize,
    skipping: usize,
    refused: Option<Refusal>,
}

impl FrameReader {
    /// Starts with the bound for peers that are not authenticated yet.
    pub fn new() -> FrameReader {
        FrameReader { held: Vec::new(), body_bytes_max: HELLO_BODY_BYTES_MAX, skipping: 0, refused: None }
    }

    /// Lifts the bound to that of an authenticated session.
    pub fn authenticated(&mut self) {
        self.body_bytes_max = CONTROL_BODY_BYTES_MAX;
    }

    /// Takes in bytes; `each` gets the body of every complete message frame and may refuse it. After a refusal every later call
    /// returns the same one.
    pub fn push(&mut self, bytes: &[u8], each: EachFrame<'_>) -> Result<(), Refusal> {
        if let Some(refusal) = &self.refused {
            return Err(refusal.clone());
        }
        self.cut(bytes, each).inspect_err(|refusal| {
            self.held = Vec::new();
            self.refused = Some(refusal.clone());
        })
    }

    fn cut(&mut self, mut bytes: &[u8], each: EachFrame<'_>) -> Result<(), Refusal> {
        while !bytes.is_empty() {
            if self.skipping > 0 {
                let skipped = self.skipping.min(bytes.len());
                self.skipping -= skipped;
                bytes = &bytes[skipped..];
                continue;
            }
            let wanted = self.wanted()?;
            let taken = (wanted - self.held.len()).min(bytes.len());
            self.hold(&bytes[..taken])?;
            bytes = &bytes[taken..];
            if self.held.len() == HEADER_BYTES {
                self.check_header()?;
            }
            if self.held.len() == HEADER_BYTES + KIND_BYTES {
                self.check_kind()?;
            }
            if self.held.len() >= HEADER_BYTES && self.held.len() == self.whole()? {
                let frame = std::mem::take(&mut self.held);
                let kind = FrameType::from_number(frame[0]).ok_or_else(|| unknown(frame[0]))?;
                each(kind, &frame[HEADER_BYTES..])?;
                if frame.capacity() <= KEPT_BYTES_MAX {
                    self.held = frame;
                    self.held.clear();
                }
            }
        }
        Ok(())
    }

    /// Room grows with what has come, and never beyond the frame.
    fn hold(&mut self, bytes: &[u8]) -> Result<(), Refusal> {
        let needed = self.held.len() + bytes.len();
        if needed > self.held.capacity() {
            let room = needed.max(2 * self.held.capacity()).min(self.whole()?.max(HEADER_BYTES + KIND_BYTES));
            self.held.reserve_exact(room - self.held.len());
        }
        self.held.extend_from_slice(bytes);
        Ok(())
    }

    fn header(&self) -> Result<FrameHeader, Refusal> {
        FrameHeader::decode(self.held[..HEADER_BYTES].try_into().expect("checked length"))
    }

    /// How far the next step goes: the header, what tells the message, all of the frame.
    fn wanted(&self) -> Result<usize, Refusal> {
        let whole = self.whole()?;
        match self.held.len() {
            held if held < HEADER_BYTES + KIND_BYTES => Ok(whole.min(HEADER_BYTES + KIND_BYTES)),
            _ => Ok(whole),
        }
    }

    /// The length of the frame, or of its header while that is not known.
    fn whole(&self) -> Result<usize, Refusal> {
        if self.held.len() < HEADER_BYTES {
            return Ok(HEADER_BYTES);
        }
        Ok(HEADER_BYTES + self.header()?.body_bytes as usize)
    }

    /// A message of a kind that is never long is refused before it is held.
    fn check_kind(&self) -> Result<(), Refusal> {
        let body_bytes = self.whole()? - HEADER_BYTES;
        let is_message = self.held[0] == FrameType::Message as u8;
        if is_message && body_bytes > bounds::body_bytes_max(&self.held[HEADER_BYTES..]) {
            return Err(bounds::too_long(body_bytes));
        }
        Ok(())
    }

    fn check_header(&mut self) -> Result<(), Refusal> {
        let header = self.header()?;
        let body_bytes = header.body_bytes as usize;
        match header.known()? {
            None => {
                self.skipping = body_bytes;
                self.held.clear();
                Ok(())
            }
            Some(FrameType::Message | FrameType::Join) if body_bytes <= self.body_bytes_max => Ok(()),
            Some(FrameType::Message | FrameType::Join) => Err(bounds::too_long(body_bytes)),
            Some(_) => Err(Refusal::new(CloseCode::WrongState, "a data frame on a control stream")),
        }
    }
}

impl Default for FrameReader {
    fn default() -> Self {
        FrameReader::new()
    }
}

/// The bound on the body of a data frame.
pub fn check_data_body(frame_type: FrameType, body_bytes: u32, chunk_bytes: u64) -> Result<(), Refusal> {
    let bound = match frame_type {
        FrameType::Pack => PACK_BODY_BYTES_MAX as u64,
        FrameType::Chunk => chunk_bytes + crate::data::CHUNK_EXTRA_BYTES_MAX as u64,
        FrameType::End => 0,
        FrameType::Growth => FRAGMENT_BYTES_MAX + crate::data::CHUNK_EXTRA_BYTES_MAX as u64,
        FrameType::Message | FrameType::Join => {
            return Err(Refusal::new(CloseCode::WrongState, "a control frame on a data stream"));
        }
    };
    if u64::from(body_bytes) > bound {
        return Err(Refusal::new(CloseCode::Limit, &format!("a data frame of {body_bytes} bytes is too long")));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn collect(reader: &mut FrameReader, bytes: &[u8]) -> Result<Vec<Vec<u8>>, Refusal> {
        let mut bodies = Vec::new();
        reader.push(bytes, &mut |_, body| {
            bodies.push(body.to_vec());
            Ok(())
        })?;
        Ok(bodies)
    }

    #[test]
    fn frames_are_cut_alike_however_the_bytes_arrive() {
        let mut stream = encode(FrameType::Message, b"one");
        stream.extend(encode(FrameType::Message, b""));
        let mut skippable = FrameHeader { frame_type: 200, flags: FLAG_SKIPPABLE, body_bytes: 4 }.encode().to_vec();
        skippable.extend(b"skip");
        stream.extend(skippable);
        stream.extend(encode(FrameType::Message, b"two"));
        for piece in 1..stream.len() {
            let mut reader = FrameReader::new();
            let bodies: Vec<_> = stream.chunks(piece).flat_map(|p| collect(&mut reader, p).unwrap()).collect();
            assert_eq!(bodies, vec![b"one".to_vec(), b"".to_vec(), b"two".to_vec()], "pieces of {piece}");
        }
    }

    const HOSTILE: [[u8; HEADER_BYTES]; 10] = [
        [1, 0, 0, 0, 0xff, 0xff, 0xff, 0xff],
        [1, 0, 0, 0, 0, 0, 0x10, 0],
        [1, 2, 0, 0, 0, 0, 0, 0],
        [1, 0, 1, 0, 0, 0, 0, 0],
        [2, 0, 0, 0, 0xff, 0xff, 0xff, 0xff],
        [77, 0, 0, 0, 0, 0, 0, 0],
        [77, 0, 0, 0, 1, 0, 0, 0],
        [77, 1, 0, 0, 0xff, 0xff, 0xff, 0xff],
        [99, 0, 0, 0, 1, 0, 0, 0],
        [3, 0, 0, 0, 1, 0, 0, 0],
    ];

    #[test]
    fn hostile_headers_are_refused_before_anything_is_held() {
        for bad in HOSTILE {
            let mut reader = FrameReader::new();
            assert!(collect(&mut reader, &bad).is_err(), "{bad:?}");
            assert!(reader.held.capacity() < 64);
        }
    }

    /// Whoever refuses goes on receiving until the peer has heard of it.
    #[test]
    fn after_a_refusal_whatever_comes_is_refused_and_nothing_of_it_is_held() {
        let piece = vec![0; 16 << 10];
        let refused_by_its_taker = encode(FrameType::Message, b"one");
        for bad in HOSTILE.iter().map(|bad| &bad[..]).chain([&refused_by_its_taker[..]]) {
            let mut reader = FrameReader::new();
            let mut taken = 0;
            let mut push = |bytes: &[u8]| {
                let refused = reader.push(bytes, &mut |_, _| {
                    taken += 1;
                    Err(Refusal::new(CloseCode::WrongState, "not now"))
                });
                (refused, reader.held.capacity())
            };
            let (first, _) = push(bad);
            assert!(first.is_err(), "{bad:?}");
            for bytes in std::iter::once(&piece[..1]).chain((0..64).map(|_| &piece[..])) {
                let (refused, held) = push(bytes);
                assert!(refused == first && held < 64, "{bad:?}: {refused:?} with {held} bytes held");
            }
            assert!(taken <= 1);
        }
    }

    /// A message that is never long is refused with its third byte, and room is made for what has come.
    #[test]
    fn what_a_reader_holds_is_bounded_by_what_the_message_may_be_long() {
        let frame = |key: u8, body_bytes| {
            let mut frame = FrameHeader::new(FrameType::Message, body_bytes).encode().to_vec();
            frame.extend([key, 0]);
            frame
        };
        let reader = || {
            let mut reader = FrameReader::new();
            reader.authenticated();
            reader
        };
        let ping = 4 << 3 | 2;
        assert_eq!(collect(&mut reader(), &frame(ping, 1 << 20)).unwrap_err().code, CloseCode::Limit);
        let entries = [&frame(0xa2, 1 << 20)[..HEADER_BYTES], &[0xa2, 1]].concat();
        let mut reader = reader();
        assert!(collect(&mut reader, &entries).unwrap().is_empty() && reader.held.capacity() < 64);
        let piece = vec![0; 10_000];
        let mut frames = 0;
        while frames == 0 {
            let left = HEADER_BYTES + (1 << 20) - reader.held.len();
            frames += collect(&mut reader, &piece[..left.min(piece.len())]).unwrap().len();
            assert!(reader.held.capacity() <= HEADER_BYTES + (1 << 20));
        }
        assert_eq!(reader.held.capacity(), 0);
    }
}
