//! What SFTP servers say: greetings and answers, cut anywhere, which are refused or write back; and what they are asked,
//! which reads back.

use super::bytes::Bytes;
use foreign::sftp::said::{Attributes, Input, Output, PACKET_BYTES_MAX, Reply, greeted, read, read_packet};
use model::name::is_unsafe;
use std::io::{self, Read};

/// What is kept of a status's text; a byte that is no UTF-8 is shown by three.
const TEXT_BYTES_MAX: usize = 500;
/// Of a name in a listing: two lengths, and which attributes there are.
const NAME_BYTES_MIN: usize = 12;
/// The kind of an answer that has attributes.
const ATTRIBUTES: u8 = 105;

pub fn run(data: &[u8]) {
    let mut bytes = Bytes::new(data);
    match bytes.u8() % 4 {
        0 => answer(bytes.u8(), bytes.rest()),
        1 => answers(usize::from(bytes.u8()) + 1, bytes.rest()),
        2 => greeting(usize::from(bytes.u8()) + 1, bytes.rest()),
        _ => request(&mut bytes),
    }
}

/// Bytes that come in pieces of this length.
struct Pieces<'a>(&'a [u8], usize);

impl Read for Pieces<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let length = self.1.min(buffer.len());
        self.0.read(&mut buffer[..length])
    }
}

fn answers(piece: usize, stream: &[u8]) {
    let heard = |piece: usize| {
        let (mut reader, mut body, mut packets) = (Pieces(stream, piece), Vec::new(), Vec::new());
        while let Ok((kind, number)) = read_packet(&mut reader, &mut body) {
            packets.push((kind, number, body.clone()));
        }
        assert!(body.len() <= PACKET_BYTES_MAX as usize, "a packet takes {} bytes", body.len());
        packets
    };
    let whole = heard(stream.len().max(1));
    assert_eq!(heard(piece), whole, "packets depend on where they are cut");
    whole.iter().for_each(|(kind, _, body)| answer(*kind, body));
}

fn answer(kind: u8, body: &[u8]) {
    let Ok(reply) = read(kind, body) else { return };
    match &reply {
        Reply::Status { text, .. } => {
            assert!(text.len() <= 3 * TEXT_BYTES_MAX && !text.chars().any(is_unsafe), "{text:?}");
            if text.len() > TEXT_BYTES_MAX {
                return;
            }
        }
        Reply::Names(names) => assert!(names.len() * NAME_BYTES_MIN <= body.len(), "names of which nothing came"),
        _ => {}
    }
    assert_eq!(read(kind, &written(&reply)).as_ref(), Ok(&reply), "an answer does not write back");
}

fn greeting(piece: usize, stream: &[u8]) {
    let heard = |piece: usize| greeted(&mut Pieces(stream, piece)).ok();
    let whole = heard(stream.len().max(1));
    assert_eq!(heard(piece), whole, "a greeting depends on where it is cut");
    let Some(can) = whole else { return };
    let known = [
        (can.posix_rename, "posix-rename@openssh.com", "1"),
        (can.fsync, "fsync@openssh.com", "1"),
        (can.limits, "limits@openssh.com", "1"),
        (can.statvfs, "statvfs@openssh.com", "2"),
    ];
    let mut packet = vec![2, 0, 0, 0, 3];
    for (_, name, version) in known.iter().filter(|(is_told, ..)| *is_told) {
        string(&mut packet, name.as_bytes());
        string(&mut packet, version.as_bytes());
    }
    let mut again = Vec::new();
    string(&mut again, &packet);
    assert_eq!(greeted(&mut &again[..]).ok(), Some(can), "a greeting does not write back");
}

fn request(bytes: &mut Bytes<'_>) {
    let (kind, number, has, offset) = (bytes.u8(), bytes.u32(), bytes.u8(), bytes.u64());
    let attributes = Attributes {
        size_bytes: (has & 1 != 0).then_some(offset),
        owner: None,
        mode: (has & 2 != 0).then_some(bytes.u32() & 0o7777),
        modified: (has & 4 != 0).then_some(bytes.u32()),
    };
    let (path, tail) = (bytes.slice(255), bytes.rest());
    let head = Output::new(kind).string(path).u64(offset).attributes(&attributes).finish(number, tail.len());
    let mut body = Vec::new();
    let read_back = read_packet(&mut &[&head[..], tail].concat()[..], &mut body);
    assert_eq!(read_back.ok(), Some((kind, number)), "a request is no packet");
    let mut input = Input(&body);
    assert_eq!((input.string(), input.u64()), (Ok(path), Ok(offset)), "a request does not read back");
    let (told, sent) = input.0.split_at(input.0.len() - tail.len());
    assert_eq!(read(ATTRIBUTES, told), Ok(Reply::Attributes(attributes)), "attributes do not read back");
    assert_eq!(sent, tail);
}

/// What stands behind the kind and the number of an answer.
fn written(reply: &Reply) -> Vec<u8> {
    let mut body = Vec::new();
    match reply {
        Reply::Status { code, text } => {
            body.extend_from_slice(&code.to_be_bytes());
            string(&mut body, text.as_bytes());
        }
        Reply::Handle(bytes) | Reply::Data(bytes) => string(&mut body, bytes),
        Reply::Names(names) => {
            body.extend_from_slice(&(names.len() as u32).to_be_bytes());
            for (name, attributes) in names {
                string(&mut body, name);
                string(&mut body, b"");
                put(&mut body, attributes);
            }
        }
        Reply::Attributes(attributes) => put(&mut body, attributes),
        Reply::Extended(bytes) => body.extend_from_slice(bytes),
    }
    body
}

fn string(out: &mut Vec<u8>, bytes: &[u8]) {
    out.extend_from_slice(&(bytes.len() as u32).to_be_bytes());
    out.extend_from_slice(bytes);
}

fn put(out: &mut Vec<u8>, attributes: &Attributes) {
    let Attributes { size_bytes, owner, mode, modified } = *attributes;
    let has = [size_bytes.is_some(), owner.is_some(), mode.is_some(), modified.is_some()];
    let flags: u32 = has.into_iter().enumerate().map(|(bit, is_there)| u32::from(is_there) << bit).sum();
    out.extend_from_slice(&flags.to_be_bytes());
    out.extend(size_bytes.iter().flat_map(|size| size.to_be_bytes()));
    let numbers = owner.into_iter().flat_map(|(user, group)| [user, group]).chain(mode);
    let numbers = numbers.chain(modified.into_iter().flat_map(|time| [time, time]));
    out.extend(numbers.flat_map(u32::to_be_bytes));
}
