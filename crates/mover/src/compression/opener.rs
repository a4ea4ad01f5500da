//! The receiving half: gives a lane the bytes of its frames back.
//!
//! Invariant: never holds more than one parcel, and nothing of it before its header was checked. A parcel that breaks a
//! rule is the peer's fault: its error carries the refusal.

use super::codec::Decoder;
use crate::progress::{Progress, count};
use crate::stream::{Breaker, Stream};
use std::io;
use std::sync::Arc;
use wire::limits::PARCEL_BYTES_MAX;
use wire::parcel::{Codec, PARCEL_HEADER_BYTES, ParcelHeader};
use wire::{CloseCode, Refusal};

pub struct Opener<S> {
    inner: S,
    /// Nothing where frames travel as they are.
    opening: Option<Box<Opening>>,
}

struct Opening {
    progress: Arc<Progress>,
    decoder: Decoder,
    body: Vec<u8>,
    content: Vec<u8>,
    /// What of `content` was given out, and where it ends.
    given: usize,
    end: usize,
    /// Of a parcel that is not compressed: what of it is still in the stream.
    raw_bytes: usize,
}

impl<S: Stream> Opener<S> {
    /// `is_on` as the job has it: both sides must agree.
    pub fn new(inner: S, is_on: bool, progress: &Arc<Progress>) -> Opener<S> {
        let opening = is_on.then(|| {
            Box::new(Opening {
                progress: progress.clone(),
                decoder: Decoder::default(),
                body: vec![0; PARCEL_BYTES_MAX],
                content: vec![0; PARCEL_BYTES_MAX],
                given: 0,
                end: 0,
                raw_bytes: 0,
            })
        });
        Opener { inner, opening }
    }
}

impl Opening {
    fn fill(&mut self, buffer: &mut [u8], inner: &mut impl Stream) -> io::Result<()> {
        let mut filled = 0;
        while filled < buffer.len() {
            let rest = &mut buffer[filled..];
            if self.given < self.end {
                let part = rest.len().min(self.end - self.given);
                rest[..part].copy_from_slice(&self.content[self.given..self.given + part]);
                self.given += part;
                filled += part;
            } else if self.raw_bytes > 0 {
                let part = rest.len().min(self.raw_bytes);
                inner.recv_exact(&mut rest[..part])?;
                self.raw_bytes -= part;
                filled += part;
            } else {
                self.next(inner)?;
            }
        }
        Ok(())
    }

    /// Takes the next parcel in; of one that is not compressed only its header.
    fn next(&mut self, inner: &mut impl Stream) -> io::Result<()> {
        let mut head = [0; PARCEL_HEADER_BYTES];
        inner.recv_exact(&mut head)?;
        let header = ParcelHeader::decode(&head).map_err(refused)?;
        let (content_bytes, body_bytes) = (header.content_bytes as usize, header.body_bytes as usize);
        count(&self.progress.counters.bytes_wire, (PARCEL_HEADER_BYTES + body_bytes) as u64);
        if header.codec == Codec::Raw {
            self.raw_bytes = content_bytes;
            return Ok(());
        }
        inner.recv_exact(&mut self.body[..body_bytes])?;
        let (body, content) = (&self.body[..body_bytes], &mut self.content[..content_bytes]);
        if !self.decoder.decode(header.codec, body, content) {
            return Err(refused(Refusal::new(CloseCode::Malformed, "a parcel that does not give what it claims")));
        }
        (self.given, self.end) = (0, content_bytes);
        Ok(())
    }
}

fn refused(refusal: Refusal) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, refusal)
}

impl<S: Stream> Stream for Opener<S> {
    fn send(&mut self, parts: &[&[u8]]) -> io::Result<()> {
        self.inner.send(parts)
    }

    fn recv_exact(&mut self, buffer: &mut [u8]) -> io::Result<()> {
        match &mut self.opening {
            Some(opening) => opening.fill(buffer, &mut self.inner),
            None => self.inner.recv_exact(buffer),
        }
    }

    fn close(&mut self) -> io::Result<()> {
        self.inner.close()
    }

    fn is_broken(&self) -> bool {
        self.inner.is_broken()
    }

    fn breaker(&self) -> Breaker {
        self.inner.breaker()
    }

    fn send_blocked_ns(&self) -> u64 {
        self.inner.send_blocked_ns()
    }

    fn recv_blocked_ns(&self) -> u64 {
        self.inner.recv_blocked_ns()
    }
}
