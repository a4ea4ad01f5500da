//! Compressed data streams: whatever a peer puts into parcels is opened or refused within a known bound of memory, and what is
//! packed comes back.

use super::bytes::Bytes;
use model::options::Compression;
use mover::Progress;
use mover::compression::{Choice, Opener, Packer};
use mover::stream::{Breaker, Stream};
use std::io;
use std::sync::{Arc, Mutex};
use wire::limits::PARCEL_BYTES_MAX;
use wire::parcel::{Codec, PARCEL_HEADER_BYTES, ParcelHeader};

/// More than one parcel may hold, read in the end.
const CONTENT_BYTES: usize = PARCEL_BYTES_MAX + 1000;

pub fn run(bytes: &mut Bytes<'_>) {
    let (how, piece) = (bytes.u8(), usize::from(bytes.u16()) + 1);
    match how % 3 {
        0 => open(bytes.rest(), piece),
        1 => {
            // A header in order, so that the libraries see what follows.
            let codec = if how & 64 == 0 { Codec::Zstd } else { Codec::Lz4 };
            let content_bytes = bytes.u32() % PARCEL_BYTES_MAX as u32 + 1;
            let body = bytes.rest();
            let header = ParcelHeader { codec, content_bytes, body_bytes: body.len() as u32 };
            open(&[&header.encode()[..], body].concat(), piece);
        }
        _ => come_back(how, bytes.rest(), piece),
    }
}

fn open(stream: &[u8], piece: usize) {
    if let Some(head) = stream.first_chunk::<PARCEL_HEADER_BYTES>()
        && let Ok(header) = ParcelHeader::decode(head)
    {
        assert!(header.content_bytes as usize <= PARCEL_BYTES_MAX && header.body_bytes <= header.content_bytes);
        assert_eq!(header.encode(), *head, "a parcel's header does not write back");
    }
    let mut opener = Opener::new(Held::new(stream), true, &Progress::new());
    let mut content = vec![0; CONTENT_BYTES];
    for piece in content.chunks_mut(piece) {
        if opener.recv_exact(piece).is_err() {
            break;
        }
    }
}

/// Packs something that compresses, made of the input, and opens it in other pieces.
fn come_back(how: u8, seed: &[u8], piece: usize) {
    let compression = [Compression::Auto, Compression::Zstd, Compression::Lz4][usize::from(how / 3 % 3)];
    let content = seed.repeat(6000 / seed.len().max(1) + 1);
    if content.is_empty() {
        return;
    }
    let wire = Held::new(&[]);
    let (choice, progress) = (Choice::new(compression), Progress::new());
    let mut packer = Packer::new(wire.clone(), true, &choice, &progress);
    let parts: Vec<&[u8]> = content.chunks(piece.max(content.len() / 7 + 1)).collect();
    packer.send(&parts).expect("memory takes everything");
    let mut opener = Opener::new(wire, true, &progress);
    let mut opened = vec![0; content.len()];
    for piece in opened.chunks_mut(piece) {
        opener.recv_exact(piece).expect("what was packed opens");
    }
    assert!(opened == content, "what was packed comes back as something else");
}

/// A stream in memory: what is sent is received.
#[derive(Clone)]
struct Held {
    /// The bytes, and how many of them were received.
    bytes: Arc<Mutex<(Vec<u8>, usize)>>,
}

impl Held {
    fn new(bytes: &[u8]) -> Held {
        Held { bytes: Arc::new(Mutex::new((bytes.to_vec(), 0))) }
    }
}

impl Stream for Held {
    fn send(&mut self, parts: &[&[u8]]) -> io::Result<()> {
        let mut held = self.bytes.lock().unwrap();
        parts.iter().for_each(|part| held.0.extend_from_slice(part));
        Ok(())
    }

    fn recv_exact(&mut self, buffer: &mut [u8]) -> io::Result<()> {
        let (bytes, at) = &mut *self.bytes.lock().unwrap();
        let end = *at + buffer.len();
        buffer.copy_from_slice(bytes.get(*at..end).ok_or(io::ErrorKind::UnexpectedEof)?);
        *at = end;
        Ok(())
    }

    fn close(&mut self) -> io::Result<()> {
        Ok(())
    }

    fn is_broken(&self) -> bool {
        false
    }

    fn breaker(&self) -> Breaker {
        Arc::new(|| {})
    }

    fn send_blocked_ns(&self) -> u64 {
        0
    }

    fn recv_blocked_ns(&self) -> u64 {
        0
    }
}
