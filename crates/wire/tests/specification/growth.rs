//! Golden bytes of what is said of objects that grow (section 17): a fragment with either digest, and the seal. A version that was
//! released reads and writes them for ever.

use crate::second_decoder::content::{Algorithm, require_zero, u32_at, u64_at};
use model::{DigestAlgorithm, Extent, ObjectId};
use wire::data::{CHUNK_HEADER_BYTES, ChunkHeader, ChunkTrailer, Status};
use wire::frame::{FrameHeader, FrameType, HEADER_BYTES, check_data_body};
use wire::message::{self, Seal};
use wire::{FrameReader, Message};

const OBJECT: u64 = 70_000;
const START: u64 = (1 << 20) - 3;
const PAYLOAD: &[u8] = b"growing";
const FRAGMENT_CRC64: &str = "06000000370000007011010000000000fdff0f0000000000070000000000000067726f77696e67\
    00000000000000000400100000000000e1d26fd38bdb995c";
const FRAGMENT_BLAKE3: &str = "060000004f0000007011010000000000fdff0f0000000000070000000000000067726f77696e670000000000\
    000000040010000000000099094e7d52c0a9d5536ecd4cdb25cfe6da127a7dce2c519ff9a16b13d035b3c8";
const SEAL: &str = "010000002100000082051e080310f0a2041884804020a4032880c49fd50c30053a05782e6461744001";

fn bytes_of(hex: &str) -> Vec<u8> {
    let digit = |byte: u8| (byte as char).to_digit(16).unwrap() as u8;
    hex.as_bytes().chunks(2).map(|pair| digit(pair[0]) << 4 | digit(pair[1])).collect()
}

fn hex_of(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn fragment(algorithm: DigestAlgorithm) -> Vec<u8> {
    let header =
        ChunkHeader { object: ObjectId(OBJECT), extent: Extent::from_length(START, PAYLOAD.len() as u64).unwrap() };
    let bound = algorithm.of_object(PAYLOAD).bind(header.object, header.extent);
    let mut body = [&header.encode()[..], PAYLOAD].concat();
    ChunkTrailer { status: Status::Good, object_bytes: header.extent.end, bound }.put(&mut body);
    wire::frame::encode(FrameType::Growth, &body)
}

/// By the document alone: object, start and payload of a fragment, whose digest is compared.
fn read_fragment(body: &[u8], algorithm: Algorithm) -> Result<(u64, u64, Vec<u8>), String> {
    let fields = 24 + 16 + algorithm.digest_bytes();
    let payload_bytes = body.len().checked_sub(fields).ok_or("a fragment is shorter than its fields")?;
    let (object, start, tail) = (u64_at(body, 0)?, u64_at(body, 8)?, 24 + payload_bytes);
    if u32_at(body, 16)? as usize != payload_bytes || !(1..=262_144).contains(&payload_bytes) {
        return Err(format!("a fragment of {payload_bytes} bytes names another length, is empty or too long"));
    }
    let end = start.checked_add(payload_bytes as u64).filter(|end| *end <= i64::MAX as u64);
    let end = end.ok_or_else(|| format!("a fragment starts at {start}"))?;
    require_zero(&body[20..24])?;
    require_zero(&body[tail..tail + 8])?;
    if u64_at(body, tail + 8)? != end {
        return Err(format!("a fragment that ends at {end} says something else"));
    }
    let payload = body[24..tail].to_vec();
    let place = [object, start, end].map(u64::to_le_bytes).concat();
    if body[tail + 16..] != algorithm.digest(&[place, algorithm.digest(&payload)].concat()) {
        return Err(format!("object {object}, {start}..{end}: the digest does not match"));
    }
    Ok((object, start, payload))
}

const BOTH: [(DigestAlgorithm, Algorithm, &str); 2] = [
    (DigestAlgorithm::Crc64Nvme, Algorithm::Crc64Nvme, FRAGMENT_CRC64),
    (DigestAlgorithm::Blake3, Algorithm::Blake3, FRAGMENT_BLAKE3),
];

#[test]
fn the_program_writes_and_reads_golden_fragments() {
    for (algorithm, _, hex) in BOTH {
        let golden = bytes_of(hex);
        assert_eq!(hex_of(&fragment(algorithm)), hex_of(&golden), "{algorithm:?}");
        let (head, body) = golden.split_first_chunk::<HEADER_BYTES>().unwrap();
        let header = FrameHeader::decode(head).unwrap();
        assert_eq!(header.known().unwrap(), Some(FrameType::Growth));
        assert!(check_data_body(FrameType::Growth, header.body_bytes, 1 << 20).is_ok());
        let head = body.first_chunk::<CHUNK_HEADER_BYTES>().unwrap();
        let read = ChunkHeader::decode_fragment(head, header.body_bytes, algorithm).unwrap();
        assert_eq!((read.object.0, read.extent.start, read.extent.length()), (OBJECT, START, PAYLOAD.len() as u64));
        let trailer = ChunkTrailer::decode(&body[CHUNK_HEADER_BYTES + PAYLOAD.len()..], algorithm).unwrap();
        assert_eq!(trailer.bound, algorithm.of_object(PAYLOAD).bind(read.object, read.extent));
    }
}

#[test]
fn the_second_decoder_reads_golden_fragments_and_refuses_them_damaged() {
    for (_, algorithm, hex) in BOTH {
        let body = bytes_of(hex).split_off(HEADER_BYTES);
        assert_eq!(read_fragment(&body, algorithm), Ok((OBJECT, START, PAYLOAD.to_vec())));
        for at in 0..body.len() {
            let mut damaged = body.clone();
            damaged[at] ^= 1;
            assert!(read_fragment(&damaged, algorithm).is_err(), "byte {at}");
            assert!(read_fragment(&body[..at], algorithm).is_err(), "cut at {at}");
        }
    }
}

#[test]
fn the_program_writes_and_reads_the_golden_seal() {
    let seal = Seal {
        job: 3,
        object: OBJECT,
        size_bytes: START + PAYLOAD.len() as u64,
        mode: 0o644,
        modified_seconds: 1_700_000_000,
        modified_nanoseconds: 5,
        name: b"x.dat".to_vec(),
        is_append_only: true,
    };
    let golden = bytes_of(SEAL);
    assert!(message::encode(seal.clone()) == golden);
    let mut reader = FrameReader::new();
    reader.authenticated();
    let mut found = Vec::new();
    let read = reader.push(&golden, &mut |_, body| {
        found.push(message::decode(body)?);
        Ok(())
    });
    read.unwrap();
    assert!(matches!(&found[..], [Some(Message::Seal(read))] if *read == seal));
}
