//! Frames of control and data streams, and the parcels of compressed ones: however bytes are cut, they are read alike, and
//! what is read writes back.

use super::bytes::Bytes;
use model::DigestAlgorithm;
use wire::data::{self, ChunkHeader, ChunkTrailer};
use wire::frame::{self, FrameHeader, FrameReader, FrameType};
use wire::handshake::{Join, check_welcome, negotiate};
use wire::limits::{CONTROL_BODY_BYTES_MAX, HELLO_BODY_BYTES_MAX, PACK_BYTES_MAX, PACK_FILES_MAX};
use wire::listing::{Described, ListingCheck};
use wire::message::{self, Message};

const ALGORITHMS: [DigestAlgorithm; 2] = [DigestAlgorithm::Crc64Nvme, DigestAlgorithm::Blake3];

pub fn run(data: &[u8]) {
    let mut bytes = Bytes::new(data);
    match bytes.u8() % 7 {
        0 => control(bytes.u8(), bytes.rest()),
        1 => body(bytes.rest()),
        2 => ALGORITHMS.into_iter().for_each(|algorithm| pack(data.get(1..).unwrap_or_default(), algorithm)),
        3 => chunk(&mut bytes),
        4 => trailer(bytes.rest()),
        5 => headers(bytes.rest()),
        _ => super::parcels::run(&mut bytes),
    }
}

/// What came out of a reader: the frames, and whether it refused in the end.
type Read = (Vec<(FrameType, Vec<u8>)>, bool);

fn control(how: u8, stream: &[u8]) {
    let read = |piece: usize| -> Read {
        let mut reader = FrameReader::new();
        if how & 1 == 1 {
            reader.authenticated();
        }
        let (mut frames, mut is_refused) = (Vec::new(), false);
        for piece in stream.chunks(piece) {
            let pushed = reader.push(piece, &mut |kind, body| {
                frames.push((kind, body.to_vec()));
                Ok(())
            });
            // As a session does, which goes on receiving until its peer has heard of the refusal.
            assert!(pushed.is_err() || !is_refused, "a reader goes on after it has refused");
            is_refused |= pushed.is_err();
        }
        (frames, is_refused)
    };
    let whole = read(stream.len().max(1));
    let cut = read(usize::from(how >> 1) + 1);
    assert_eq!(whole.0, cut.0, "frames depend on how the bytes arrive");
    assert_eq!(whole.1, cut.1, "a refusal depends on how the bytes arrive");
    let bound = if how & 1 == 1 { CONTROL_BODY_BYTES_MAX } else { HELLO_BODY_BYTES_MAX };
    for (kind, content) in whole.0 {
        assert!(content.len() <= bound && matches!(kind, FrameType::Message | FrameType::Join));
        match kind {
            FrameType::Join => join(&content),
            _ => body(&content),
        }
    }
}

fn body(content: &[u8]) {
    let Ok(Some(message)) = message::decode(content) else { return };
    let again = message::encode(message.clone());
    assert_eq!(
        message::decode(&again[frame::HEADER_BYTES..]),
        Ok(Some(message.clone())),
        "a message does not write back"
    );
    match message {
        Message::Hello(hello) => _ = negotiate(&hello),
        Message::Welcome(welcome) => _ = check_welcome(&welcome),
        Message::Entries(entries) => {
            let count = entries.entries.len() as u64;
            let first = entries.first;
            let Ok(described) = ListingCheck::new(64).check(entries) else { return };
            assert!(count <= 64 && described.len() as u64 == count);
            for (id, described) in (first..).zip(&described) {
                match described {
                    Described::Entry { entry, .. } => {
                        assert!(entry.id.0 == id && entry.mode <= 0o7777 && entry.size_bytes() <= i64::MAX as u64);
                        let name = entry.name.as_bytes();
                        assert!(!name.is_empty() && !name.contains(&b'/') && name != b".." && name != b".");
                    }
                    Described::BadName { id: told, .. } => assert_eq!(told.0, id),
                }
            }
        }
        Message::Want(want) => want.runs.iter().for_each(|run| assert!(run.ids().start <= run.ids().end)),
        _ => {}
    }
}

fn join(content: &[u8]) {
    if let Ok(join) = Join::decode(content) {
        assert_eq!(&join.encode()[frame::HEADER_BYTES..], content, "a join does not write back");
    }
}

fn pack(content: &[u8], algorithm: DigestAlgorithm) {
    let mut rows = Vec::new();
    let Ok(payload) = data::decode_pack(content, algorithm, &mut rows) else { return };
    assert!((1..=PACK_FILES_MAX).contains(&rows.len()) && payload.len() <= PACK_BYTES_MAX);
    assert_eq!(rows.iter().map(|row| row.length as usize).sum::<usize>(), payload.len());
    let mut again = vec![0; data::pack_table_bytes(rows.len(), algorithm)];
    data::encode_pack_table(&rows, &mut again);
    again.extend_from_slice(payload);
    assert_eq!(again, content, "a pack does not write back");
}

fn chunk(bytes: &mut Bytes<'_>) {
    let chunk_bytes = 1u64 << (20 + bytes.u8() % 11);
    let body_bytes = bytes.u32();
    let rest = bytes.rest();
    let Some(head) = rest.first_chunk::<{ data::CHUNK_HEADER_BYTES }>() else { return };
    for algorithm in ALGORITHMS {
        let Ok(header) = ChunkHeader::decode(head, body_bytes, algorithm, chunk_bytes) else { continue };
        let extent = header.extent;
        assert!(
            extent.length() <= chunk_bytes && extent.end <= i64::MAX as u64 && extent.start.is_multiple_of(chunk_bytes)
        );
        assert_eq!(header.encode(), *head, "a chunk header does not write back");
    }
}

fn trailer(content: &[u8]) {
    for algorithm in ALGORITHMS {
        if let Ok(trailer) = ChunkTrailer::decode(content, algorithm) {
            let mut again = Vec::new();
            trailer.put(&mut again);
            assert_eq!(again, content, "a trailer does not write back");
        }
    }
}

fn headers(content: &[u8]) {
    for head in content.as_chunks::<{ frame::HEADER_BYTES }>().0 {
        let Ok(header) = FrameHeader::decode(head) else { continue };
        assert_eq!(header.encode(), *head);
        if let Ok(Some(kind)) = header.known() {
            let is_bounded = frame::check_data_body(kind, header.body_bytes, 1 << 20).is_ok();
            assert!(!is_bounded || u64::from(header.body_bytes) <= (1 << 20) + (1 << 10));
        }
    }
}
