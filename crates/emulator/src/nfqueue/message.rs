//! The messages of the kernel's packet queue over netlink (`linux/netfilter/nfnetlink_queue.h`).
//!
//! Owns: opening and binding, reading a packet's announcement, writing verdicts. Message and attribute headers are in the
//! machine's byte order, the queue's own fields in the network's.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};

use crate::schedule::Outcome;

const SUBSYSTEM: u16 = 3 << 8;
const TYPE_ERROR: u16 = 2;
const TYPE_PACKET: u16 = SUBSYSTEM;
const TYPE_VERDICT: u16 = SUBSYSTEM | 1;
const TYPE_CONFIG: u16 = SUBSYSTEM | 2;
const TYPE_VERDICT_UP_TO: u16 = SUBSYSTEM | 3;
const FLAG_REQUEST: u16 = 1;
const FLAG_ACK: u16 = 4;

const CONFIG_COMMAND: u16 = 1;
const CONFIG_PARAMETERS: u16 = 2;
const CONFIG_LENGTH_MAX: u16 = 3;
const CONFIG_MASK: u16 = 4;
const CONFIG_FLAGS: u16 = 5;
const COMMAND_BIND: u8 = 1;
const COPY_PACKET: u8 = 2;
const QUEUE_FLAG_GSO: u32 = 4;

const PACKET_HEADER: u16 = 1;
const PACKET_VERDICT: u16 = 2;
const PACKET_PAYLOAD: u16 = 10;
const PACKET_WHOLE_BYTES: u16 = 13;

const VERDICT_DROP: u32 = 0;
const VERDICT_ACCEPT: u32 = 1;

const MESSAGE_HEADER_BYTES: usize = 16;
const FAMILY_HEADER_BYTES: usize = 4;

/// Longest headers that are looked at: IPv6 or IPv4 with options, and TCP with options.
const COPY_BYTES: u32 = 120;
/// Packets that a queue holds at most: ten seconds of full-sized aggregates at 50 Gbit/s, or one of small packets.
const QUEUE_PACKETS_MAX: u32 = 1 << 20;
/// Announcements that may wait for the thread: half a second of small packets at a million a second.
const RECEIVE_BUFFER_BYTES: usize = 256 << 20;

/// A packet that waits in a queue.
#[derive(Debug)]
pub struct Packet<'a> {
    pub queue: u16,
    pub id: u32,
    /// The first bytes, from IP's header on.
    pub head: &'a [u8],
    pub ip_bytes: u32,
}

pub fn open_socket() -> io::Result<OwnedFd> {
    let netfilter = Some(rustix::net::netlink::NETFILTER);
    let socket = rustix::net::socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, netfilter)?;
    rustix::net::bind(&socket, &SocketAddrNetlink::new(0, 0))?;
    // The kernel may hold the announcement of every packet in flight; a full buffer would be a loss of ours.
    rustix::net::sockopt::set_socket_recv_buffer_size_force(&socket, RECEIVE_BUFFER_BYTES)
        .or_else(|_| rustix::net::sockopt::set_socket_recv_buffer_size(&socket, RECEIVE_BUFFER_BYTES / 2))?;
    crate::sys::mmsg::ignore_netlink_overruns(socket.as_fd())?;
    Ok(socket)
}

pub fn bind_queue(socket: &OwnedFd, queue: u16) -> io::Result<()> {
    let parameters = [&COPY_BYTES.to_be_bytes()[..], &[COPY_PACKET]].concat();
    let attributes: [&[(u16, &[u8])]; 3] = [
        &[(CONFIG_COMMAND, &[COMMAND_BIND, 0, 0, 0])],
        &[(CONFIG_PARAMETERS, &parameters)],
        &[
            (CONFIG_LENGTH_MAX, &QUEUE_PACKETS_MAX.to_be_bytes()),
            (CONFIG_MASK, &QUEUE_FLAG_GSO.to_be_bytes()),
            (CONFIG_FLAGS, &QUEUE_FLAG_GSO.to_be_bytes()),
        ],
    ];
    for attributes in attributes {
        let mut message = Vec::new();
        write(&mut message, TYPE_CONFIG, FLAG_REQUEST | FLAG_ACK, queue, attributes);
        rustix::net::send(socket, &message, SendFlags::empty())?;
        await_ack(socket)?;
    }
    Ok(())
}

fn await_ack(socket: &OwnedFd) -> io::Result<()> {
    let mut answer = [0; 1024];
    loop {
        let (length, _) = rustix::net::recv(socket, &mut answer[..], RecvFlags::empty())?;
        // Packets of queues bound before may come first.
        let Some((TYPE_ERROR, body)) = message(&answer[..length]) else { continue };
        let code = body.first_chunk().map_or(0, |code| i32::from_ne_bytes(*code));
        return if code == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(-code)) };
    }
}

/// None: not the announcement of a packet.
pub fn read_packet(datagram: &[u8]) -> Option<Packet<'_>> {
    let (TYPE_PACKET, body) = message(datagram)? else { return None };
    let queue = u16::from_be_bytes(*body.get(2..)?.first_chunk()?);
    let (mut id, mut head, mut whole_bytes) = (None, None, None);
    let mut rest = body.get(FAMILY_HEADER_BYTES..)?;
    while let Some((kind, value, after)) = attribute(rest) {
        match kind {
            PACKET_HEADER => id = Some(u32::from_be_bytes(*value.first_chunk()?)),
            PACKET_PAYLOAD => head = Some(value),
            PACKET_WHOLE_BYTES => whole_bytes = Some(u32::from_be_bytes(*value.first_chunk()?)),
            _ => (),
        }
        rest = after;
    }
    let head = head?;
    Some(Packet { queue, id: id?, head, ip_bytes: whole_bytes.unwrap_or(head.len() as u32) })
}

pub fn write_verdict(message: &mut Vec<u8>, queue: u16, id: u32, outcome: Outcome) {
    let verdict = if outcome == Outcome::Deliver { VERDICT_ACCEPT } else { VERDICT_DROP };
    write(message, TYPE_VERDICT, FLAG_REQUEST, queue, &[(PACKET_VERDICT, &verdict_header(verdict, id))]);
}

/// Accepts everything that waits in the queue up to `id`.
pub fn write_verdict_up_to(message: &mut Vec<u8>, queue: u16, id: u32) {
    write(message, TYPE_VERDICT_UP_TO, FLAG_REQUEST, queue, &[(PACKET_VERDICT, &verdict_header(VERDICT_ACCEPT, id))]);
}

/// (queue, packets dropped because it or its socket was full), from the kernel's table.
pub fn dropped_by_queue(table: &[u8]) -> impl Iterator<Item = (u16, u64)> {
    table.split(|byte| *byte == b'\n').filter_map(|line| {
        let words: Vec<u64> = std::str::from_utf8(line).ok()?.split_whitespace().flat_map(str::parse).collect();
        Some((u16::try_from(*words.first()?).ok()?, words.get(5)? + words.get(6)?))
    })
}

fn verdict_header(verdict: u32, id: u32) -> [u8; 8] {
    let mut header = [0; 8];
    header[..4].copy_from_slice(&verdict.to_be_bytes());
    header[4..].copy_from_slice(&id.to_be_bytes());
    header
}

/// (type, body) of the first message.
fn message(datagram: &[u8]) -> Option<(u16, &[u8])> {
    let length = u32::from_ne_bytes(*datagram.first_chunk()?) as usize;
    let kind = u16::from_ne_bytes(*datagram.get(4..)?.first_chunk()?);
    Some((kind, datagram.get(MESSAGE_HEADER_BYTES..length.min(datagram.len()))?))
}

/// (type, value, what follows) of the first attribute.
fn attribute(bytes: &[u8]) -> Option<(u16, &[u8], &[u8])> {
    let length = usize::from(u16::from_ne_bytes(*bytes.first_chunk()?));
    let kind = u16::from_ne_bytes(*bytes.get(2..)?.first_chunk()?) & 0x3fff;
    Some((kind, bytes.get(4..length)?, bytes.get(length.next_multiple_of(4)..).unwrap_or_default()))
}

fn write(message: &mut Vec<u8>, kind: u16, flags: u16, queue: u16, attributes: &[(u16, &[u8])]) {
    let start = message.len();
    message.extend([0; 4]);
    message.extend(kind.to_ne_bytes());
    message.extend(flags.to_ne_bytes());
    // Sequence number and sender: not needed, the kernel fills in the sender.
    message.extend([0; 8]);
    // Family and version are 0; then the queue.
    message.extend([0; 2]);
    message.extend(queue.to_be_bytes());
    for (kind, value) in attributes {
        message.extend((4 + value.len() as u16).to_ne_bytes());
        message.extend(kind.to_ne_bytes());
        message.extend(*value);
        message.resize(message.len().next_multiple_of(4), 0);
    }
    let length = (message.len() - start) as u32;
    message[start..start + 4].copy_from_slice(&length.to_ne_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn announcement(attributes: &[(u16, &[u8])]) -> Vec<u8> {
        let mut message = Vec::new();
        write(&mut message, TYPE_PACKET, 0, 7, attributes);
        message
    }

    #[test]
    fn an_announcement_tells_queue_id_head_and_whole_length() {
        let header = [&9_u32.to_be_bytes()[..], &[8, 0, 2]].concat();
        let cut = announcement(&[
            (PACKET_HEADER, &header),
            (PACKET_PAYLOAD, b"abcde"),
            (PACKET_WHOLE_BYTES, &[0, 0, 250, 0]),
        ]);
        let packet = read_packet(&cut).unwrap();
        assert_eq!((packet.queue, packet.id, packet.head, packet.ip_bytes), (7, 9, &b"abcde"[..], 64_000));
        let whole = announcement(&[(PACKET_HEADER, &header), (PACKET_PAYLOAD, b"abcde")]);
        assert_eq!(read_packet(&whole).unwrap().ip_bytes, 5);
    }

    #[test]
    fn a_damaged_message_is_no_packet_and_no_panic() {
        let header = [&9_u32.to_be_bytes()[..], &[8, 0, 2]].concat();
        let good = announcement(&[(PACKET_HEADER, &header), (PACKET_PAYLOAD, b"abcde")]);
        for length in 0..good.len() - 8 {
            assert!(read_packet(&good[..length]).is_none(), "{length}");
        }
        for (at, value) in (0..good.len()).flat_map(|at| [0, 1, 3, 255].map(|value| (at, value))) {
            let mut bad = good.clone();
            bad[at] = value;
            let _ = read_packet(&bad);
        }
    }

    #[test]
    fn drops_are_read_from_the_kernels_table() {
        let table =
            b"    0  12345     0 2   120     3     4    900  1\n    1  12345     0 2   120     0     1    10  1\n";
        assert_eq!(dropped_by_queue(table).collect::<Vec<_>>(), [(0, 7), (1, 1)]);
    }
}
