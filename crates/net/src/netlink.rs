//! Questions to the kernel's tables of the network (rtnetlink): one request, and the messages that answer it.
//!
//! Invariants: nothing is changed, and no rights are needed; an answer is bounded in messages and in time; a damaged message
//! ends what is read of it and is never believed beyond its length.
//!
//! Not here: what the messages mean (`interface`, `route`).

use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::sockopt::{self, Timeout};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

const TYPE_ERROR: u16 = 2;
const TYPE_DONE: u16 = 3;
const FLAG_REQUEST: u16 = 0x1;
const FLAGS_DUMP: u16 = 0x300;
pub const HEADER_BYTES: usize = 16;
pub const ATTRIBUTE_BYTES: usize = 4;
const ANSWER_BYTES: usize = 64 << 10;
/// The kernel answers at once, or the answer was lost.
const PATIENCE: Duration = Duration::from_secs(2);
/// More than a host with thousands of queues sends.
const ANSWERS_MAX: usize = 4096;

/// Asks for a whole table; `each` takes the type and the content of every message.
pub fn dump(kind: u16, body: &[u8], each: &mut dyn FnMut(u16, &[u8])) -> io::Result<()> {
    let socket = ask(kind, FLAG_REQUEST | FLAGS_DUMP, body)?;
    for _ in 0..ANSWERS_MAX {
        if read_answer(&socket, each)? {
            break;
        }
    }
    Ok(())
}

/// Asks for one thing; `each` takes the type and the content of the answer.
pub fn get(kind: u16, body: &[u8], each: &mut dyn FnMut(u16, &[u8])) -> io::Result<()> {
    read_answer(&ask(kind, FLAG_REQUEST, body)?, each).map(drop)
}

fn ask(kind: u16, flags: u16, body: &[u8]) -> io::Result<OwnedFd> {
    let socket = rustix::net::socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, None)?;
    rustix::net::bind(&socket, &SocketAddrNetlink::new(0, 0))?;
    sockopt::set_socket_timeout(&socket, Timeout::Recv, Some(PATIENCE))?;
    let mut request = vec![0u8; HEADER_BYTES];
    request[..4].copy_from_slice(&((HEADER_BYTES + body.len()) as u32).to_ne_bytes());
    request[4..6].copy_from_slice(&kind.to_ne_bytes());
    request[6..8].copy_from_slice(&flags.to_ne_bytes());
    request.extend_from_slice(body);
    rustix::net::send(&socket, &request, SendFlags::empty())?;
    Ok(socket)
}

/// One datagram of messages. True after the last.
fn read_answer(socket: &OwnedFd, each: &mut dyn FnMut(u16, &[u8])) -> io::Result<bool> {
    let mut answer = vec![0u8; ANSWER_BYTES];
    let (bytes, _) = rustix::net::recv(socket.as_fd(), &mut answer[..], RecvFlags::empty())?;
    let mut rest = &answer[..bytes.min(ANSWER_BYTES)];
    while let Some((kind, message, after)) = next(rest) {
        match kind {
            TYPE_DONE => return Ok(true),
            TYPE_ERROR => return Err(refused(message)),
            kind => each(kind, message),
        }
        rest = after;
    }
    Ok(bytes == 0)
}

/// The kernel's own error number, negated, begins the message.
fn refused(message: &[u8]) -> io::Error {
    let number = u32_at(message, 0).map_or(0, |number| (number as i32).wrapping_neg());
    if number > 0 { io::Error::from_raw_os_error(number) } else { io::Error::other("the kernel tells nothing") }
}

/// A message's type and content, and what follows it.
pub fn next(bytes: &[u8]) -> Option<(u16, &[u8], &[u8])> {
    let length = u32_at(bytes, 0)? as usize;
    let message = bytes.get(HEADER_BYTES..length)?;
    Some((u16_at(bytes, 4)?, message, bytes.get(length.next_multiple_of(4)..).unwrap_or_default()))
}

/// The attributes of a message: number and value.
pub fn attributes(mut rest: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let length = usize::from(u16_at(rest, 0)?);
        let kind = u16_at(rest, 2)?;
        let value = rest.get(ATTRIBUTE_BYTES..length)?;
        rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some((kind, value))
    })
}

/// An attribute as a request has it.
pub fn put_attribute(request: &mut Vec<u8>, kind: u16, value: &[u8]) {
    request.extend_from_slice(&((ATTRIBUTE_BYTES + value.len()) as u16).to_ne_bytes());
    request.extend_from_slice(&kind.to_ne_bytes());
    request.extend_from_slice(value);
    request.resize(request.len().next_multiple_of(4), 0);
}

/// A text that ends with a zero byte.
pub fn text(value: &[u8]) -> String {
    let text = value.split(|byte| *byte == 0).next().unwrap_or_default();
    String::from_utf8_lossy(text).into_owned()
}

pub fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}
