//! Section 3: cuts the bytes of one direction of a stream into frames and holds their limits.

pub const MESSAGE: u8 = 1;
pub const JOIN: u8 = 2;
pub const CHUNK: u8 = 3;
pub const PACK: u8 = 4;
pub const END: u8 = 5;

const HEADER_BYTES: usize = 8;
const SKIPPABLE: u8 = 1;
const MESSAGE_BYTES_MAX: u64 = 1 << 20;
const SKIPPED_BYTES_MAX: u64 = 1 << 20;
const FIRST_BYTES_MAX: u64 = 4 << 10;
const JOIN_BYTES: u64 = 60;
const PACK_BYTES_MAX: u64 = 319_504;
const CHUNK_EXTRA_BYTES: u64 = 72;

#[derive(Debug)]
pub struct Frame {
    pub kind: u8,
    pub flags: u8,
    pub body: Vec<u8>,
}

/// Where a frame stands; decides what may stand there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Place {
    /// The first frame of a stream from its client, which says what the stream is.
    FirstOfClient,
    Control,
    /// Payload of a job with this chunk size.
    Data {
        chunk_bytes: u64,
    },
}

#[derive(Clone, Default)]
pub struct Deframer {
    buffer: Vec<u8>,
}

impl Deframer {
    pub fn push(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
    }

    /// The next whole frame. The limits are held as soon as the header is there.
    pub fn next(&mut self, place: Place) -> Result<Option<Frame>, String> {
        let Some(&[kind, flags, low, high, ref length @ ..]) = self.buffer.first_chunk::<HEADER_BYTES>() else {
            return Ok(None);
        };
        let length = u32::from_le_bytes(*length);
        if flags & !SKIPPABLE != 0 || low != 0 || high != 0 {
            return Err(format!("flags {flags:#04x} or reserved bytes {low:#04x} {high:#04x} are not zero"));
        }
        let length_max = body_bytes_max(place, kind, flags)?;
        if u64::from(length) > length_max {
            return Err(format!("a frame of type {kind} has {length} bytes, more than {length_max}"));
        }
        let end = HEADER_BYTES + length as usize;
        if self.buffer.len() < end {
            return Ok(None);
        }
        let body = self.buffer[HEADER_BYTES..end].to_vec();
        self.buffer.drain(..end);
        Ok(Some(Frame { kind, flags, body }))
    }

    /// Bytes of a frame that is not whole.
    pub fn rest(&self) -> usize {
        self.buffer.len()
    }
}

fn body_bytes_max(place: Place, kind: u8, flags: u8) -> Result<u64, String> {
    match (place, kind) {
        (Place::FirstOfClient, MESSAGE) => Ok(FIRST_BYTES_MAX),
        (Place::FirstOfClient, JOIN) => Ok(JOIN_BYTES),
        (Place::Control, MESSAGE) => Ok(MESSAGE_BYTES_MAX),
        (Place::Data { chunk_bytes }, CHUNK) => Ok(chunk_bytes + CHUNK_EXTRA_BYTES),
        (Place::Data { .. }, PACK) => Ok(PACK_BYTES_MAX),
        (Place::Data { .. }, END) => Ok(0),
        (_, MESSAGE | JOIN | CHUNK | PACK | END) => Err(format!("a frame of type {kind} does not belong here")),
        (Place::FirstOfClient, _) => Err(format!("the stream begins with type {kind}")),
        _ if flags & SKIPPABLE != 0 => Ok(SKIPPED_BYTES_MAX),
        _ => Err(format!("type {kind} is unknown and may not be skipped")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn first(place: Place, bytes: &[u8]) -> Result<Option<(u8, usize)>, String> {
        let mut deframer = Deframer::default();
        deframer.push(bytes);
        deframer.next(place).map(|frame| frame.map(|frame| (frame.kind, frame.body.len())))
    }

    #[test]
    fn a_frame_is_whole_or_waited_for() {
        assert_eq!(first(Place::Control, &[1, 0, 0, 0, 1, 0, 0, 0, 7]), Ok(Some((1, 1))));
        assert_eq!(first(Place::Control, &[1, 0, 0, 0, 1, 0, 0, 0]), Ok(None));
        assert_eq!(first(Place::Control, &[9, 1, 0, 0, 0, 0, 0, 0]), Ok(Some((9, 0))));
    }

    #[test]
    fn a_frame_over_its_limit_or_out_of_place_is_refused_by_its_header() {
        assert!(first(Place::FirstOfClient, &[1, 0, 0, 0, 1, 16, 0, 0]).is_err());
        assert!(first(Place::FirstOfClient, &[5, 0, 0, 0, 0, 0, 0, 0]).is_err());
        assert!(first(Place::Control, &[1, 0, 0, 0, 1, 0, 16, 0]).is_err());
        assert!(first(Place::Control, &[9, 0, 0, 0, 0, 0, 0, 0]).is_err());
        assert!(first(Place::Control, &[1, 2, 0, 0, 0, 0, 0, 0]).is_err());
        assert!(first(Place::Control, &[1, 0, 1, 0, 0, 0, 0, 0]).is_err());
        assert!(first(Place::Data { chunk_bytes: 1 << 20 }, &[3, 0, 0, 0, 73, 0, 16, 0]).is_err());
        assert_eq!(first(Place::Data { chunk_bytes: 1 << 20 }, &[3, 0, 0, 0, 72, 0, 16, 0]), Ok(None));
    }
}
