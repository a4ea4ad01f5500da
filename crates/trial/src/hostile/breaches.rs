//! The ways in which a peer breaks the rules, by the faults of the table (F001-F027), each drawn anew from a seed.
//!
//! A breach answers with an error when the endpoint did not do what it has to do about it.

use super::peer::{Acted, Target, drained, opening};
use crate::job::ATTACKED;
use crate::random::Random;
use model::{DigestAlgorithm, Extent, ObjectId};
use wire::data::{ChunkHeader, ChunkTrailer, Status, chunk_extra_bytes};
use wire::frame::{self, FrameHeader, FrameType};
use wire::handshake::Direction::{ClientSends, ServerSends};
use wire::limits::{CONTROL_BODY_BYTES_MAX, HELLO_BODY_BYTES_MAX, JOBS_MAX};
use wire::message::{
    self, Accept, Credit, DigestRecord, Entries, EntryRecord, ExtentRecord, Finish, Finished, Held, ListEnd, Ping,
    Resend, Run, Settled, Want, Welcome,
};
use wire::{CloseCode, Message};

pub struct Breach {
    pub name: &'static str,
    pub faults: &'static [&'static str],
    pub act: fn(&Target, &mut Random) -> Acted,
}

const fn breach(name: &'static str, faults: &'static [&'static str], act: fn(&Target, &mut Random) -> Acted) -> Breach {
    Breach { name, faults, act }
}

pub const BREACHES: &[Breach] = &[
    breach("another protocol", &["F001"], another_protocol),
    breach("TLS 1.2", &["F019"], tls12),
    breach("a frame of absurd length", &["F002"], absurd_length),
    breach("a frame of no known kind", &["F005"], unknown_frame),
    breach("a version that does not match", &["F018"], version),
    breach("a message at a wrong time", &["F006"], wrong_time),
    breach("an id out of range", &["F007"], foreign_id),
    breach("a length beyond any file", &["F003"], beyond),
    breach("a chunk of other content", &["F010"], other_content),
    breach("a chunk that breaks off", &["F004"], broken_chunk),
    breach("frames of noise on a data stream", &[], noise_on_data),
    breach("messages of noise", &[], noise_in_session),
    breach("digests of any length", &["F008"], any_digest),
    breach("very many ranges", &["F011"], many_ranges),
    breach("too many jobs", &["F013"], many_jobs),
    breach("a proof that is none", &["F026"], no_proof),
];

fn noise(random: &mut Random, bytes_max: u64) -> Vec<u8> {
    (0..random.below(bytes_max)).map(|_| random.next() as u8).collect()
}

fn another_protocol(target: &Target, random: &mut Random) -> Acted {
    match random.below(4) {
        0 => target.stranger(b"GET / HTTP/1.1\r\nHost: example.org\r\n\r\n"),
        1 => target.stranger(b"SSH-2.0-OpenSSH_9.9\r\n"),
        2 => target.stranger(&[0x16, 3, 1, 0xff, 0xff]),
        _ => target.stranger(&[noise(random, 4096), vec![0xff]].concat()),
    }
}

/// A hello with one suite of 1.2 and without the extension that names 1.3, whole or followed by an early close.
fn tls12(target: &Target, random: &mut Random) -> Acted {
    let client_random: Vec<u8> = (0..32).map(|_| random.next() as u8).collect();
    let hello = [&[3, 3][..], &client_random, &[0, 0, 2, 0xc0, 0x2f, 1, 0]].concat();
    let handshake = [&[1, 0, 0, hello.len() as u8], &hello[..]].concat();
    let mut record = [&[0x16, 3, 1, 0, handshake.len() as u8], &handshake[..]].concat();
    if random.below(2) == 0 {
        record.extend_from_slice(&[0x15, 3, 3, 0, 2, 1, 0]);
    }
    target.stranger(&record)
}

fn header(frame_type: u8, flags: u8, body_bytes: u32) -> Vec<u8> {
    FrameHeader { frame_type, flags, body_bytes }.encode().to_vec()
}

/// Before a session is welcome it may say little, and afterwards not much.
fn absurd_length(target: &Target, random: &mut Random) -> Acted {
    let above = |limit: usize, random: &mut Random| {
        let limit = limit as u64;
        (limit + 1 + random.below(u64::from(u32::MAX) - limit)) as u32
    };
    if random.below(2) == 0 {
        return target.first(&header(1, 0, above(HELLO_BODY_BYTES_MAX, random)));
    }
    let mut peer = target.session()?;
    let _ = peer.control.send(&[&header(1, 0, above(CONTROL_BODY_BYTES_MAX, random))]);
    peer.is_refused(&[CloseCode::Malformed, CloseCode::Limit])
}

fn unknown_frame(target: &Target, random: &mut Random) -> Acted {
    match random.below(3) {
        0 => target.first(&header(6 + random.below(250) as u8, 0, 0)),
        1 => target.first(&header(1, 1 + random.below(255) as u8, 0)),
        _ => {
            let mut peer = target.session()?;
            let _ = peer.control.send(&[&header(3 + random.below(253) as u8, 0, 0)]);
            peer.is_refused(&[CloseCode::Malformed, CloseCode::WrongState])
        }
    }
}

fn version(target: &Target, random: &mut Random) -> Acted {
    let mut hello = target.hello(&net::random_bytes::<16>());
    (hello.version_min, hello.version_max) = match random.below(3) {
        0 => (2 + random.below(100) as u32, 200),
        1 => (3, 1),
        _ => (0, 0),
    };
    target.first(&message::encode(hello))
}

fn wrong_time(target: &Target, random: &mut Random) -> Acted {
    if random.below(3) == 0 {
        let first = [message::encode(Ping { number: 1 }), message::encode(opening(1, ClientSends, ATTACKED))];
        return target.first(&first[random.below(2) as usize]);
    }
    let mut peer = target.session()?;
    peer.open(ClientSends)?;
    let message: Message = match random.below(9) {
        0 => Want { job: 1, ..Want::default() }.into(),
        1 => Settled { job: 1, ..Settled::default() }.into(),
        2 => Credit { job: 1, entries: u64::MAX, in_flight_bytes: u64::MAX }.into(),
        3 => target.hello(&net::random_bytes::<16>()).into(),
        4 => Welcome::default().into(),
        5 => Accept::default().into(),
        6 => Finish { job: 1, is_buffered: false }.into(),
        7 => Held { job: 1, ..Held::default() }.into(),
        _ => Finished { job: 1, ..Finished::default() }.into(),
    };
    peer.say(message);
    peer.is_refused(&[CloseCode::WrongState, CloseCode::Malformed])
}

fn file(name: &str, size_bytes: u64) -> EntryRecord {
    EntryRecord { name: name.into(), kind: 2, mode: 0o644, size_bytes, ..EntryRecord::default() }
}

fn foreign_id(target: &Target, random: &mut Random) -> Acted {
    let mut peer = target.session()?;
    let codes = [CloseCode::Malformed, CloseCode::WrongState, CloseCode::Limit];
    if random.below(2) == 0 {
        peer.open(ClientSends)?;
        let any = 2 + random.next() / 2;
        let entries = match random.below(3) {
            0 => Entries { job: 1, first: any, entries: vec![file("f", 5)] },
            1 => Entries { job: 1, first: 1, entries: vec![EntryRecord { parent: any, ..file("f", 5) }] },
            _ => Entries { job: 1, first: 0, entries: vec![file("f", 5)] },
        };
        peer.say(entries);
    } else {
        peer.open(ServerSends)?;
        let runs = vec![Run { first: 1 << 40 | random.next() >> 20, count: 1 }];
        peer.say(Want { job: 1, runs, extents: Vec::new() });
    }
    peer.is_refused(&codes)
}

/// Sizes and ranges that overflow or lie behind the end.
fn beyond(target: &Target, random: &mut Random) -> Acted {
    let mut peer = target.session()?;
    peer.open(ClientSends)?;
    if random.below(2) == 0 {
        peer.say(Entries { job: 1, first: 1, entries: vec![file("f", (1 << 63) + random.next() / 2)] });
        return peer.is_refused(&[CloseCode::Malformed, CloseCode::Limit]);
    }
    peer.say(Entries { job: 1, first: 1, entries: vec![file("f", 5 << 20)] });
    let start = (random.next() | 1 << 33) & !((1 << 20) - 1);
    let stream = peer.join(ClientSends, 0)?;
    send_chunk(stream, 1, start, 1000, 1000)?;
    peer.is_answered_or_ended()
}

/// A chunk of an object with the digest of something else, and then no more of that stream.
fn send_chunk(mut stream: net::DataStream, object: u64, start: u64, said: u32, sent: usize) -> Acted {
    let algorithm = DigestAlgorithm::Crc64Nvme;
    let body_bytes = said + chunk_extra_bytes(algorithm) as u32;
    let mut chunk = ChunkHeader { object: ObjectId(object), extent: Extent::new(0, u64::from(said)) }.encode();
    // Put in by hand: the encoder refuses what does not fit a file.
    chunk[8..16].copy_from_slice(&start.to_le_bytes());
    let mut bytes = [&header(FrameType::Chunk as u8, 0, body_bytes)[..], &chunk].concat();
    bytes.resize(bytes.len() + sent, 0x5a);
    if sent == said as usize {
        let bound = algorithm.of_object(b"something else");
        ChunkTrailer { status: Status::Good, object_bytes: 5 << 20, bound }.put(&mut bytes);
    }
    let _ = stream.send(&[&bytes]);
    if sent < said as usize {
        return Ok(());
    }
    let _ = stream.send(&[&header(FrameType::End as u8, 0, 0)]);
    drained(&mut stream)
}

fn other_content(target: &Target, random: &mut Random) -> Acted {
    let mut peer = target.session()?;
    peer.open(ClientSends)?;
    peer.say(Entries { job: 1, first: 1, entries: vec![file("f", 5 << 20)] });
    for _ in 0..1 + random.below(4) {
        let length = 1 << random.below(21);
        let stream = peer.join(ClientSends, 0)?;
        send_chunk(stream, 1, random.below(5) << 20, length, length as usize)?;
    }
    peer.is_answered_or_ended()
}

fn broken_chunk(target: &Target, random: &mut Random) -> Acted {
    let mut peer = target.session()?;
    peer.open(ClientSends)?;
    peer.say(Entries { job: 1, first: 1, entries: vec![file("f", 5 << 20)] });
    let sent = random.below(1 << 20) as usize;
    let stream = peer.join(ClientSends, 0)?;
    send_chunk(stream, 1, random.below(5) << 20, 1 << 20, sent)?;
    peer.is_answered_or_ended()
}

fn noise_on_data(target: &Target, random: &mut Random) -> Acted {
    let mut peer = target.session()?;
    peer.open(ClientSends)?;
    let mut stream = peer.join(ClientSends, 0)?;
    let body = noise(random, 300);
    let frames = match random.below(4) {
        0 => body,
        1 => [header(FrameType::Pack as u8, 0, u32::MAX - random.below(1 << 20) as u32), body].concat(),
        2 => frame::encode(FrameType::Pack, &body),
        _ => frame::encode(FrameType::Chunk, &body),
    };
    let _ = stream.send(&[&frames]);
    let _ = stream.send(&[&header(FrameType::End as u8, 0, 0)]);
    drop(stream);
    peer.is_answered_or_ended()
}

fn noise_in_session(target: &Target, random: &mut Random) -> Acted {
    let mut peer = target.session()?;
    peer.open(if random.below(2) == 0 { ClientSends } else { ServerSends })?;
    // Tag and length of a message that there is, and noise in it.
    let inner = noise(random, 100);
    let tag = 1 + random.below(30);
    let body = [&[(tag << 3 | 2) as u8 | 0x80, (tag >> 4) as u8, inner.len() as u8][..], &inner].concat();
    let _ = peer.control.send(&[&frame::encode(FrameType::Message, &body)]);
    peer.is_answered_or_ended()
}

fn any_digest(target: &Target, random: &mut Random) -> Acted {
    let mut peer = target.session()?;
    peer.open(ServerSends)?;
    let digest = [noise(random, 2000), vec![0; 33]].concat();
    let digests = vec![DigestRecord { object: 1, digest }];
    peer.say(Settled { job: 1, published: vec![Run { first: 1, count: 1 }], digests, ..Settled::default() });
    peer.is_answered_or_ended()
}

fn many_ranges(target: &Target, random: &mut Random) -> Acted {
    let mut peer = target.session()?;
    peer.open(ServerSends)?;
    let count = u64::MAX - random.below(1000);
    if random.below(2) == 0 {
        peer.say(Want { job: 1, runs: vec![Run { first: 1, count }], extents: Vec::new() });
    } else {
        let extent = |n: u64| ExtentRecord { object: 1 + n % 3, start: n << 20, end: (n + 1) << 20 };
        let (extents, why) = ((0..10_000).map(extent).collect(), "again".to_owned());
        peer.say(Resend { job: 1, runs: vec![Run { first: 1, count }], extents, why });
    }
    peer.is_refused(&[CloseCode::Malformed, CloseCode::WrongState, CloseCode::Limit])
}

fn many_jobs(target: &Target, _: &mut Random) -> Acted {
    let mut peer = target.session()?;
    for job in 1..=JOBS_MAX as u32 + 1 {
        peer.say(opening(job, ClientSends, ATTACKED));
    }
    peer.is_refused(&[CloseCode::Limit, CloseCode::Busy])?;
    peer.say(ListEnd { job: 1, entries: 7, bytes: 7 });
    peer.is_refused(&[CloseCode::Malformed, CloseCode::WrongState])
}

fn no_proof(target: &Target, random: &mut Random) -> Acted {
    let mut peer = target.session()?;
    peer.open(ClientSends)?;
    let mut stream = peer.join(ClientSends, 1 + random.below(255) as u8)?;
    drained(&mut stream)?;
    peer.is_answered_or_ended()
}
