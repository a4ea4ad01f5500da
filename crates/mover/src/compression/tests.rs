//! Both halves together, over a stream in memory, and what a hostile peer may put into it.

use super::*;
use crate::progress::Progress;
use crate::stream::{Breaker, Stream};
use proptest::prelude::*;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use wire::limits::PARCEL_BYTES_MAX;
use wire::parcel::{Codec, PARCEL_HEADER_BYTES, ParcelHeader};
use wire::{CloseCode, Refusal};

/// What was sent comes back.
#[derive(Default)]
struct Memory {
    bytes: Vec<u8>,
    at: usize,
}

impl Stream for Memory {
    fn send(&mut self, parts: &[&[u8]]) -> io::Result<()> {
        parts.iter().for_each(|part| self.bytes.extend_from_slice(part));
        Ok(())
    }

    fn recv_exact(&mut self, buffer: &mut [u8]) -> io::Result<()> {
        let end = self.at + buffer.len();
        let bytes = self.bytes.get(self.at..end).ok_or(io::ErrorKind::UnexpectedEof)?;
        buffer.copy_from_slice(bytes);
        self.at = end;
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

/// Half noise, half filler.
fn content(bytes: usize) -> Vec<u8> {
    let mut state = 7u64;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as u8
    };
    (0..bytes).map(|at| if at & 8192 == 0 { next() } else { 5 }).collect()
}

/// Sends pieces in twos, as a lane sends a header and a block; returns what is on the wire.
fn sent(compression: Compression, pieces: &[Vec<u8>]) -> Vec<u8> {
    let (choice, progress) = (Choice::new(compression), Progress::new());
    let mut packer = Packer::new(Memory::default(), compression != Compression::None, &choice, &progress);
    for pair in pieces.chunks(2) {
        let parts: Vec<&[u8]> = pair.iter().map(|piece| &piece[..]).collect();
        packer.send(&parts).unwrap();
    }
    let wire = packer.inner.bytes;
    let counted = progress.counters.bytes_wire.load(Relaxed);
    assert!(compression == Compression::None || counted == wire.len() as u64);
    wire
}

/// Receives in reads of these lengths, over and over.
fn received(wire: Vec<u8>, is_on: bool, total: usize, reads: &[usize]) -> io::Result<Vec<u8>> {
    let mut opener = Opener::new(Memory { bytes: wire, at: 0 }, is_on, &Progress::new());
    let mut content = vec![0; total];
    let mut at = 0;
    for read in reads.iter().cycle() {
        let end = (at + read).min(total);
        opener.recv_exact(&mut content[at..end])?;
        at = end;
        if at == total {
            return Ok(content);
        }
    }
    Ok(content)
}

#[test]
fn content_that_halves_halves_and_noise_costs_next_to_nothing() {
    let block = 128 << 10;
    for compression in [Compression::Auto, Compression::Zstd, Compression::Lz4] {
        let halves: Vec<_> = (0..8).map(|_| content(block)).collect();
        let wire = sent(compression, &halves);
        // Auto begins without, and goes on from there when the path is slower than the lanes.
        let percent = if compression == Compression::Auto { 101 } else { 55 };
        assert!(wire.len() < 8 * block * percent / 100, "{compression}: {}", wire.len());
        assert_eq!(received(wire, true, 8 * block, &[8, 24, block]).unwrap(), halves.concat());
        let noise: Vec<_> = (0..8).map(|_| content(8192)).collect();
        let wire = sent(compression, &noise);
        assert!(wire.len() <= 8 * (8192 + PARCEL_HEADER_BYTES), "{compression}: {}", wire.len());
    }
}

#[test]
fn without_compression_the_bytes_are_those_that_were_sent() {
    let pieces = [content(100_000), vec![1, 2, 3]];
    assert_eq!(sent(Compression::None, &pieces), pieces.concat());
    assert_eq!(received(pieces.concat(), false, 100_003, &[7, 4096]).unwrap(), pieces.concat());
}

#[test]
fn a_bomb_is_refused_and_what_is_damaged_or_cut_off_never_panics() {
    let refused = |wire: Vec<u8>| {
        let error = received(wire, true, 10, &[10]).unwrap_err();
        error.get_ref().and_then(|inner| inner.downcast_ref::<Refusal>()).map(|refusal| refusal.code)
    };
    let parcel = |codec, content_bytes: usize, body: &[u8]| {
        let header = ParcelHeader { codec, content_bytes: content_bytes as u32, body_bytes: body.len() as u32 };
        [&header.encode()[..], body].concat()
    };
    let zeros = zstd::bulk::compress(&vec![0; 64 << 20], 3).unwrap();
    assert!(zeros.len() < PARCEL_BYTES_MAX);
    // It gives 64 MiB and says it would give a block; it says what it gives.
    assert_eq!(refused(parcel(Codec::Zstd, PARCEL_BYTES_MAX, &zeros)), Some(CloseCode::Malformed));
    assert_eq!(refused(parcel(Codec::Zstd, 64 << 20, &zeros)), Some(CloseCode::Limit));
    let short = zstd::bulk::compress(&[0; 20], 1).unwrap();
    assert_eq!(refused(parcel(Codec::Zstd, 21, &short)), Some(CloseCode::Malformed));
    assert_eq!(refused(parcel(Codec::Lz4, 100, &[0xff; 99])), Some(CloseCode::Malformed));
    let good = sent(Compression::Zstd, &[content(128 << 10)]);
    for at in (0..good.len()).step_by(997).chain(0..40) {
        for bit in 0..8 {
            let mut bad = good.clone();
            bad[at] ^= 1 << bit;
            let _ = received(bad, true, 128 << 10, &[4096]);
        }
        assert!(received(good[..at].to_vec(), true, 128 << 10, &[4096]).is_err());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn whatever_is_sent_in_whatever_pieces_arrives(
        lengths in prop::collection::vec(prop_oneof![1usize..40, 1000usize..3000, 100_000usize..400_000], 1..6),
        reads in prop::collection::vec(prop_oneof![1usize..40, 1000usize..200_000], 1..5),
        how in 0usize..3,
    ) {
        let compression = [Compression::Auto, Compression::Zstd, Compression::Lz4][how];
        let pieces: Vec<_> = lengths.iter().map(|length| content(*length)).collect();
        let all = pieces.concat();
        prop_assert_eq!(received(sent(compression, &pieces), true, all.len(), &reads).unwrap(), all);
    }

    #[test]
    fn any_bytes_are_opened_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        let _ = received(bytes, true, 1000, &[13]);
    }
}
