//! The golden sessions: what they say by the specification, and that the program still reads every byte of them.
//!
//! They were recorded between two ends of this program (`crates/mover/tests/record`). A version that was released keeps
//! its sessions for ever.

use crate::second_decoder::recording::{Recording, Side, What};
use crate::second_decoder::{Outcome, Published, decode};
use crate::tree::{Item, tree};
use model::DigestAlgorithm;
use std::collections::BTreeMap;
use wire::data::{CHUNK_HEADER_BYTES, ChunkHeader, ChunkTrailer, decode_pack, trailer_bytes};
use wire::frame::{FrameHeader, FrameType, HEADER_BYTES, check_data_body};
use wire::handshake::Join;
use wire::{FrameReader, message};

pub const SESSIONS: [(&str, &[u8]); 5] = [
    ("push", include_bytes!("../golden/push.twsession")),
    ("pull-blake3", include_bytes!("../golden/pull-blake3.twsession")),
    ("push-interrupted", include_bytes!("../golden/push-interrupted.twsession")),
    ("push-resumed", include_bytes!("../golden/push-resumed.twsession")),
    ("refused", include_bytes!("../golden/refused.twsession")),
];

const CHUNK_BYTES: u64 = 1 << 20;

pub fn recording(name: &str) -> Recording {
    let (_, file) = SESSIONS.into_iter().find(|session| session.0 == name).unwrap();
    Recording::of_file(file).unwrap()
}

/// What an interrupted session before this one left behind.
pub fn left_before(name: &str) -> Outcome {
    match name {
        "push-resumed" => decoded("push-interrupted").1,
        _ => Outcome::default(),
    }
}

fn decoded(name: &str) -> (Vec<String>, Outcome) {
    decode(&recording(name), &left_before(name)).unwrap_or_else(|refusal| panic!("{name}: {refusal:#?}"))
}

fn published_tree() -> BTreeMap<Vec<u8>, Published> {
    let published = |item| match item {
        Item::Directory => Published::Directory,
        Item::File(content) => Published::File(content),
        Item::Link(target) => Published::Link(target.into()),
    };
    tree().into_iter().map(|(path, item)| (path.into_bytes(), published(item))).collect()
}

/// The bytes of one side of one stream.
pub fn joined(recording: &Recording, stream: usize, from: Side) -> Vec<u8> {
    let events = recording.events.iter().filter(|event| (event.stream, event.from) == (stream, from));
    let bytes = events.filter_map(|event| match &event.what {
        What::Bytes(bytes) => Some(bytes.as_slice()),
        What::Ended | What::Cut => None,
    });
    bytes.collect::<Vec<_>>().concat()
}

fn lines_with<'a>(transcript: &'a [String], word: &str) -> Vec<&'a String> {
    transcript.iter().filter(|line| line.contains(word)).collect()
}

#[test]
fn a_pushed_and_a_pulled_tree_are_the_tree() {
    for name in ["push", "pull-blake3"] {
        let (transcript, outcome) = decoded(name);
        assert!(outcome.published == published_tree(), "{name}");
        assert_eq!(lines_with(&transcript, " join ").len(), 2, "{name}");
        assert!(lines_with(&transcript, " chunk ").len() >= 3, "{name}");
    }
    assert_eq!(lines_with(&decoded("push").0, "digest=1").len(), 1);
    assert_eq!(lines_with(&decoded("pull-blake3").0, "digest=2").len(), 1);
}

#[test]
fn an_interrupted_session_and_its_successor_make_the_tree_together() {
    let (transcript, first) = decoded("push-interrupted");
    assert_eq!(transcript.last().unwrap(), "the session ends without a Close");
    assert!(!first.published.contains_key(b"big".as_slice()));
    let (transcript, second) = decoded("push-resumed");
    assert_eq!(lines_with(&transcript, "start=1048576 end=2621440").len(), 1);
    let published: BTreeMap<_, _> = first.published.into_iter().chain(second.published).collect();
    assert!(published == published_tree());
}

#[test]
fn a_resumed_session_does_not_decode_without_what_it_resumes() {
    let refusal = decode(&recording("push-resumed"), &Outcome::default()).unwrap_err();
    assert!(refusal.reason.contains("published and not complete"), "{refusal:?}");
}

#[test]
fn a_hello_without_a_common_version_is_closed_with_code_4() {
    let (transcript, outcome) = decoded("refused");
    let [hello, close, ..] = transcript.as_slice() else { panic!("{transcript:?}") };
    assert!(hello.starts_with("control > Hello version_min=9 version_max=9"), "{hello}");
    assert!(close.starts_with("control < Close code=4 text="), "{close}");
    assert!(close.contains("1 to 1") && close.contains("9 to 9"), "{close}");
    assert!(outcome == Outcome::default());
}

#[test]
fn the_program_reads_every_message_of_the_golden_sessions_and_writes_it_alike() {
    for (name, _) in SESSIONS {
        let recording = recording(name);
        for from in [Side::Client, Side::Server] {
            let bytes = joined(&recording, control_of(&recording), from);
            let mut reader = FrameReader::new();
            reader.authenticated();
            let mut written = Vec::new();
            let read = reader.push(&bytes, &mut |frame_type, body| {
                assert_eq!(frame_type, FrameType::Message);
                written.extend(message::encode(message::decode(body)?.expect("a message that is known")));
                Ok(())
            });
            read.unwrap();
            assert!(written == bytes, "{name}");
        }
    }
}

#[test]
fn the_program_reads_every_data_frame_of_the_golden_sessions() {
    for (name, algorithm) in [
        ("push", DigestAlgorithm::Crc64Nvme),
        ("push-resumed", DigestAlgorithm::Crc64Nvme),
        ("pull-blake3", DigestAlgorithm::Blake3),
    ] {
        let recording = recording(name);
        let control = control_of(&recording);
        for stream in (0..recording.streams.len()).filter(|&stream| stream != control) {
            let types: Vec<_> = [Side::Client, Side::Server]
                .into_iter()
                .flat_map(|from| read_data(&joined(&recording, stream, from), algorithm))
                .collect();
            assert_eq!(types.first(), Some(&FrameType::Join), "{name}");
            assert_eq!(types.last(), Some(&FrameType::End), "{name}");
        }
    }
}

fn control_of(recording: &Recording) -> usize {
    recording.streams.iter().position(|stream| stream.name == "control").unwrap()
}

/// Reads one side of a data stream with the program's own functions.
fn read_data(mut bytes: &[u8], algorithm: DigestAlgorithm) -> Vec<FrameType> {
    let mut types = Vec::new();
    while let Some((head, rest)) = bytes.split_first_chunk::<HEADER_BYTES>() {
        let header = FrameHeader::decode(head).unwrap();
        let frame_type = header.known().unwrap().unwrap();
        let (body, rest) = rest.split_at(header.body_bytes as usize);
        bytes = rest;
        types.push(frame_type);
        if frame_type == FrameType::Join {
            assert_eq!(Join::decode(body).unwrap().encode()[HEADER_BYTES..], *body);
            continue;
        }
        check_data_body(frame_type, header.body_bytes, CHUNK_BYTES).unwrap();
        match frame_type {
            FrameType::Chunk => {
                let head = body.first_chunk::<CHUNK_HEADER_BYTES>().unwrap();
                ChunkHeader::decode(head, header.body_bytes, algorithm, CHUNK_BYTES).unwrap();
                ChunkTrailer::decode(&body[body.len() - trailer_bytes(algorithm)..], algorithm).unwrap();
            }
            FrameType::Pack => _ = decode_pack(body, algorithm, &mut Vec::new()).unwrap(),
            _ => {}
        }
    }
    types
}
