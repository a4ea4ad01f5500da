//! What the kernel tells of a network interface only through calls: rings and offloads of its driver (ethtool's ioctl),
//! queue disciplines (netlink).
//!
//! Nothing is changed here. An interface whose driver does not answer a question has no value for it.

use crate::netlink::{self, attributes, u32_at};
use std::io;
use std::mem;
use std::os::fd::AsRawFd;

use rustix::net::{AddressFamily, SocketFlags, SocketType};

/// Descriptors of the driver's rings: how many there are, how many there may be.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Rings {
    pub receive: u32,
    pub receive_max: u32,
    pub send: u32,
    pub send_max: u32,
}

/// Work that the interface or the kernel's edge does for many packets at once.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Offloads {
    pub segmentation_tcp: Option<bool>,
    pub segmentation: Option<bool>,
    pub receive_merging: Option<bool>,
    pub receive_merging_hardware: Option<bool>,
    pub checksum_send: Option<bool>,
}

/// A queue discipline of an interface.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct QueueDiscipline {
    pub interface_index: u32,
    /// Below another one, as those of each queue are below `mq`.
    pub is_root: bool,
    pub kind: String,
}

// Commands of `linux/ethtool.h`.
const GET_RINGS: u32 = 0x10;
const GET_CHECKSUM_SEND: u32 = 0x16;
const GET_SEGMENTATION_TCP: u32 = 0x1e;
const GET_SEGMENTATION: u32 = 0x23;
const GET_FLAGS: u32 = 0x25;
const GET_RECEIVE_MERGING: u32 = 0x2b;
const FLAG_RECEIVE_MERGING_HARDWARE: u32 = 1 << 15;

const RINGS_WORDS: usize = 9;

/// Whether this network namespace has an interface of that name.
pub fn exists(interface: &str) -> bool {
    let flags = SocketFlags::CLOEXEC;
    let socket = rustix::net::socket_with(AddressFamily::INET, SocketType::DGRAM, flags, None);
    socket.is_ok_and(|socket| rustix::net::netdevice::name_to_index(socket, interface).is_ok())
}

/// The rings of an interface, where its driver has any to tell of.
pub fn rings(interface: &str) -> Option<Rings> {
    let mut words = [0u32; RINGS_WORDS];
    words[0] = GET_RINGS;
    ethtool(interface, &mut words).ok()?;
    // cmd, rx_max, rx_mini_max, rx_jumbo_max, tx_max, rx, rx_mini, rx_jumbo, tx
    let rings = Rings { receive_max: words[1], send_max: words[4], receive: words[5], send: words[8] };
    (rings.receive_max > 0).then_some(rings)
}

pub fn offloads(interface: &str) -> Offloads {
    let value = |command: u32| {
        let mut words = [command, 0];
        ethtool(interface, &mut words).ok().map(|()| words[1])
    };
    let is_on = |command: u32| value(command).map(|value| value != 0);
    Offloads {
        segmentation_tcp: is_on(GET_SEGMENTATION_TCP),
        segmentation: is_on(GET_SEGMENTATION),
        receive_merging: is_on(GET_RECEIVE_MERGING),
        receive_merging_hardware: value(GET_FLAGS).map(|flags| flags & FLAG_RECEIVE_MERGING_HARDWARE != 0),
        checksum_send: is_on(GET_CHECKSUM_SEND),
    }
}

/// Asks the driver; the first word is the command, and the answer comes in the same words.
fn ethtool(interface: &str, words: &mut [u32]) -> io::Result<()> {
    let name = interface.as_bytes();
    if name.is_empty() || name.len() >= libc::IFNAMSIZ || name.contains(&0) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let flags = SocketFlags::CLOEXEC;
    let socket = rustix::net::socket_with(AddressFamily::INET, SocketType::DGRAM, flags, None)?;
    // SAFETY: `ifreq` is plain old data, for which all zeroes is a value.
    let mut request: libc::ifreq = unsafe { mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(name) {
        *to = *from as libc::c_char;
    }
    request.ifr_ifru.ifru_data = words.as_mut_ptr().cast();
    // SAFETY: `request` and `words` outlive the call. Every command used here reads its first word and writes at most as
    // many words as its caller's array has: 9 for the rings, 2 for a single value.
    let result = unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCETHTOOL as _, &mut request) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

// Messages and attributes of `linux/rtnetlink.h` and `linux/pkt_sched.h`.
const TYPE_GET: u16 = 38;
const TYPE_NEW: u16 = 36;
const ATTRIBUTE_KIND: u16 = 1;
const PARENT_ROOT: u32 = u32::MAX;
const TRAFFIC_BYTES: usize = 20;

/// All queue disciplines of this network namespace.
pub fn queue_disciplines() -> io::Result<Vec<QueueDiscipline>> {
    let mut found = Vec::new();
    netlink::dump(TYPE_GET, &[0; TRAFFIC_BYTES], &mut |kind, message| {
        found.extend((kind == TYPE_NEW).then(|| discipline(message)).flatten());
    })?;
    Ok(found)
}

fn discipline(message: &[u8]) -> Option<QueueDiscipline> {
    let (interface_index, parent) = (u32_at(message, 4)?, u32_at(message, 12)?);
    let kind = attributes(message.get(TRAFFIC_BYTES..)?).find(|(kind, _)| *kind == ATTRIBUTE_KIND)?.1;
    Some(QueueDiscipline { interface_index, is_root: parent == PARENT_ROOT, kind: netlink::text(kind) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::netlink::{ATTRIBUTE_BYTES, HEADER_BYTES, next};

    /// As the kernel sends it: header, traffic message, one attribute.
    fn message(kind: u16, index: u32, parent: u32, name: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0; HEADER_BYTES + TRAFFIC_BYTES];
        bytes[4..6].copy_from_slice(&kind.to_ne_bytes());
        bytes[HEADER_BYTES + 4..HEADER_BYTES + 8].copy_from_slice(&index.to_ne_bytes());
        bytes[HEADER_BYTES + 12..HEADER_BYTES + 16].copy_from_slice(&parent.to_ne_bytes());
        bytes.extend_from_slice(&((ATTRIBUTE_BYTES + name.len()) as u16).to_ne_bytes());
        bytes.extend_from_slice(&ATTRIBUTE_KIND.to_ne_bytes());
        bytes.extend_from_slice(name);
        let length = bytes.len() as u32;
        bytes[..4].copy_from_slice(&length.to_ne_bytes());
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes
    }

    #[test]
    fn disciplines_are_read_from_the_kernels_messages() {
        let bytes = [message(TYPE_NEW, 2, PARENT_ROOT, b"mq\0"), message(TYPE_NEW, 2, 1, b"fq_codel\0")].concat();
        let (kind, first, rest) = next(&bytes).unwrap();
        assert_eq!(kind, TYPE_NEW);
        let root = QueueDiscipline { interface_index: 2, is_root: true, kind: "mq".into() };
        assert_eq!(discipline(first), Some(root));
        let (_, second, rest) = next(rest).unwrap();
        assert_eq!(discipline(second).unwrap().kind, "fq_codel");
        assert!(next(rest).is_none());
    }

    #[test]
    fn damaged_messages_are_no_disciplines() {
        let whole = message(TYPE_NEW, 2, PARENT_ROOT, b"fq\0");
        for cut in 0..HEADER_BYTES + TRAFFIC_BYTES {
            assert!(next(&whole[..cut]).is_none_or(|(_, message, _)| discipline(message).is_none()));
        }
        assert!(discipline(&[0; TRAFFIC_BYTES + 4]).is_none(), "an attribute of no length ends the search");
    }

    #[test]
    fn the_loopback_interface_answers_or_has_nothing_to_say() {
        assert_eq!(rings("lo"), None);
        assert_eq!(rings("a name that is far too long"), None);
        let _ = offloads("lo");
        assert!(queue_disciplines().is_ok());
    }
}
