//! The sending half: cuts what a lane sends into parcels and makes those smaller that can be.
//!
//! Not here: which method is worth it (`choice`, `gate`).

use super::choice::{Choice, Parcel};
use super::codec::{Encoder, Method};
use super::gate::Gate;
use crate::progress::{Progress, count};
use crate::stream::{Breaker, Parts, Stream};
use std::io;
use std::sync::Arc;
use wire::limits::PARCEL_BYTES_MAX;
use wire::parcel::{Codec, PARCEL_HEADER_BYTES, ParcelHeader};

pub struct Packer<'a, S> {
    pub(super) inner: S,
    /// Nothing where frames travel as they are.
    packing: Option<Box<Packing<'a>>>,
}

struct Packing<'a> {
    choice: &'a Choice,
    progress: Arc<Progress>,
    gate: Gate,
    encoder: Encoder,
    /// A block whose parts lie apart.
    gathered: Vec<u8>,
}

impl<'a, S: Stream> Packer<'a, S> {
    /// `is_on` as the job has it: both sides must agree.
    pub fn new(inner: S, is_on: bool, choice: &'a Choice, progress: &Arc<Progress>) -> Packer<'a, S> {
        let packing = is_on.then(|| {
            choice.enter_lane();
            let (gate, encoder) = (Gate::default(), Encoder::new());
            let gathered = Vec::with_capacity(PARCEL_BYTES_MAX);
            Box::new(Packing { choice, progress: progress.clone(), gate, encoder, gathered })
        });
        Packer { inner, packing }
    }
}

impl Packing<'_> {
    fn send(&mut self, piece: &[&[u8]], inner: &mut impl Stream) -> io::Result<()> {
        let content_bytes: usize = piece.iter().map(|part| part.len()).sum();
        let before_ns = waited_ns(inner);
        let (is_promising, body_bytes) = self.parcel(piece, content_bytes, inner)?;
        let wire_bytes = (PARCEL_HEADER_BYTES + body_bytes) as u64;
        let waited_ns = waited_ns(inner).saturating_sub(before_ns);
        count(&self.progress.counters.bytes_wire, wire_bytes);
        self.choice.note(Parcel { content_bytes: content_bytes as u64, wire_bytes, waited_ns, is_promising });
        Ok(())
    }

    /// Sends one parcel; says whether its content could become smaller, and what its body came to.
    fn parcel(&mut self, piece: &[&[u8]], content_bytes: usize, inner: &mut impl Stream) -> io::Result<(bool, usize)> {
        let mut is_promising = false;
        if self.gate.looks(content_bytes) {
            let content = match piece {
                [whole] => *whole,
                parts => {
                    self.gathered.clear();
                    parts.iter().for_each(|part| self.gathered.extend_from_slice(part));
                    &self.gathered[..]
                }
            };
            is_promising = self.gate.admits(content);
            let method = self.choice.method();
            if is_promising && method != Method::Raw {
                let encoded = self.encoder.encode(method, content);
                self.gate.learn(encoded.is_some());
                if let Some((codec, body)) = encoded {
                    let header = header(codec, content_bytes, body.len());
                    inner.send(&[&header, body])?;
                    return Ok((true, body.len()));
                }
                is_promising = false;
            }
        }
        let header = header(Codec::Raw, content_bytes, content_bytes);
        let parts: Vec<&[u8]> = std::iter::once(&header[..]).chain(piece.iter().copied()).collect();
        inner.send(&parts)?;
        Ok((is_promising, content_bytes))
    }
}

/// For the path, or because a rate was set, which is as good as a slow path.
fn waited_ns(stream: &impl Stream) -> u64 {
    stream.send_blocked_ns() + stream.paced_ns()
}

fn header(codec: Codec, content_bytes: usize, body_bytes: usize) -> [u8; PARCEL_HEADER_BYTES] {
    ParcelHeader { codec, content_bytes: content_bytes as u32, body_bytes: body_bytes as u32 }.encode()
}

impl<S: Stream> Stream for Packer<'_, S> {
    fn send(&mut self, parts: &[&[u8]]) -> io::Result<()> {
        let Some(packing) = &mut self.packing else { return self.inner.send(parts) };
        let mut parts = Parts::new(parts);
        while !parts.is_empty() {
            packing.send(&parts.take(PARCEL_BYTES_MAX), &mut self.inner)?;
        }
        Ok(())
    }

    fn recv_exact(&mut self, buffer: &mut [u8]) -> io::Result<()> {
        self.inner.recv_exact(buffer)
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

    fn paced_ns(&self) -> u64 {
        self.inner.paced_ns()
    }
}

impl Drop for Packing<'_> {
    fn drop(&mut self) {
        self.choice.leave_lane();
    }
}
