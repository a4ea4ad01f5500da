//! The receiving half's buffer: ciphertext as it came from the socket, opened record by record.
//!
//! Invariants:
//! - `plaintext` lies within what was received and before `start`; it is handed over before the next record is opened.
//! - The buffer has room for two of the longest records, so that there is always space to complete one.

use std::ops::Range;

use crate::record::{HEADER_BYTES, Opened, Place, RECORD_BYTES_MAX, RecordError, RecordLayer, record_bytes};

pub(crate) struct Inbound {
    buffer: Box<[u8]>,
    /// Ciphertext not opened yet.
    start: usize,
    end: usize,
    /// Payload opened in place and not handed over yet.
    plaintext: Range<usize>,
    is_closed: bool,
}

/// What [`Inbound::take`] found.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Taken {
    /// That many bytes, at least one.
    Bytes(usize),
    /// No whole record is here; the socket has to deliver more.
    NeedMore,
    /// The peer's close_notify has been reached.
    Closed,
}

impl Inbound {
    pub(crate) fn new(bytes: usize) -> Self {
        assert!(bytes >= 2 * RECORD_BYTES_MAX, "the longest record has to fit behind payload not handed over");
        Self { buffer: vec![0; bytes].into(), start: 0, end: 0, plaintext: 0..0, is_closed: false }
    }

    /// Goes on in a longer buffer.
    pub(crate) fn widen(&mut self, bytes: usize) {
        let mut buffer: Box<[u8]> = vec![0; bytes.max(self.buffer.len())].into();
        buffer[..self.end].copy_from_slice(&self.buffer[..self.end]);
        self.buffer = buffer;
    }

    /// Opens records until `out` (not empty) is full or no whole record is left.
    pub(crate) fn take(&mut self, records: &mut RecordLayer, out: &mut [u8]) -> Result<Taken, RecordError> {
        let mut filled = self.hand_over(out);
        while filled < out.len() {
            match self.open(records, &mut out[filled..])? {
                Taken::Bytes(bytes) => filled += bytes,
                end if filled == 0 => return Ok(end),
                _ => break,
            }
            filled += self.hand_over(&mut out[filled..]);
        }
        Ok(Taken::Bytes(filled))
    }

    /// Opens the next record in place; the payload, never empty, is lent until the next call.
    pub(crate) fn take_in_place(&mut self, records: &mut RecordLayer) -> Result<(Taken, &[u8]), RecordError> {
        if self.plaintext.is_empty() {
            match self.open(records, &mut [])? {
                Taken::Bytes(_) => {}
                end => return Ok((end, &[])),
            }
        }
        let payload = std::mem::replace(&mut self.plaintext, 0..0);
        Ok((Taken::Bytes(payload.len()), &self.buffer[payload]))
    }

    /// Nothing is here, not even a part of a record.
    pub(crate) fn is_empty(&self) -> bool {
        self.plaintext.is_empty() && self.start == self.end
    }

    /// Where the socket's next bytes go. Not empty if `take` said `NeedMore`.
    pub(crate) fn space(&mut self) -> &mut [u8] {
        if self.plaintext.is_empty() && self.start > 0 {
            // At most one incomplete record moves.
            self.buffer.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        &mut self.buffer[self.end..]
    }

    /// Says how much of `space` has been filled.
    pub(crate) fn extend(&mut self, bytes: usize) {
        assert!(bytes <= self.buffer.len() - self.end);
        self.end += bytes;
    }

    /// Opens records until one has payload. `Bytes(n)`: n bytes were opened to `out`; the rest is in `plaintext`.
    fn open(&mut self, records: &mut RecordLayer, out: &mut [u8]) -> Result<Taken, RecordError> {
        while !self.is_closed {
            let received = &mut self.buffer[self.start..self.end];
            let record = match record_bytes(received)? {
                Some(bytes) if bytes <= received.len() => &mut received[..bytes],
                _ => return Ok(Taken::NeedMore),
            };
            let (opened, place) = records.open(record, out)?;
            let payload_start = self.start + HEADER_BYTES;
            self.start += record.len();
            match (opened, place) {
                (Opened::Payload(0) | Opened::Internal, _) => {}
                (Opened::Payload(bytes), Place::Out) => return Ok(Taken::Bytes(bytes)),
                (Opened::Payload(bytes), Place::Record) => {
                    self.plaintext = payload_start..payload_start + bytes;
                    return Ok(Taken::Bytes(0));
                }
                (Opened::CloseNotify, _) => self.is_closed = true,
            }
        }
        Ok(Taken::Closed)
    }

    fn hand_over(&mut self, out: &mut [u8]) -> usize {
        let bytes = self.plaintext.len().min(out.len());
        let payload = self.plaintext.start..self.plaintext.start + bytes;
        out[..bytes].copy_from_slice(&self.buffer[payload]);
        self.plaintext.start += bytes;
        bytes
    }
}
