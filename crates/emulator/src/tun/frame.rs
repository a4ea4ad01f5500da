//! What a TUN device hands over: a virtio_net header, then one IP packet or an aggregate of TCP segments.
//!
//! Owns: where the parts of a frame are, its size on the wire, and Internet checksums.
//!
//! Invariant: a `Layout` is only of a frame whose parts all lie inside it, so that offsets taken from it never point
//! outside. Numbers of the virtio_net header are in the machine's byte order, those of the packet in the network's.
//!
//! Not here: changing frames (`surgery`), keeping them (`memory`).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::channel::Size;
use crate::impairment::FRAMING_BYTES;

/// The virtio_net header as a TUN device has it unless told otherwise.
pub const VNET_BYTES: usize = 10;
/// The longest frame: an IPv6 packet may carry 65,535 bytes after its header.
pub const FRAME_BYTES_MAX: usize = VNET_BYTES + IPV6_BYTES + u16::MAX as usize;

/// The checksum at `checksum_offset` holds the sum of the pseudo header only; the rest is still to be added.
pub const NEEDS_CHECKSUM: u8 = 1;
/// `gso_type`: a single packet.
pub const GSO_NONE: u8 = 0;
pub const GSO_TCPV4: u8 = 1;
pub const GSO_TCPV6: u8 = 4;
/// Added to `gso_type`: the first segment carries the CWR flag.
pub const GSO_ECN: u8 = 0x80;

pub const IPV6_BYTES: usize = 40;
const IPV4_BYTES_MIN: usize = 20;
const TCP_BYTES_MIN: usize = 20;
pub const TCP_CHECKSUM_OFFSET: usize = 16;

const ICMP: u8 = 1;
pub const TCP: u8 = 6;
const UDP: u8 = 17;
const ICMPV6: u8 = 58;

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct VnetHeader {
    pub flags: u8,
    pub gso_type: u8,
    /// How much of the packet the kernel shall keep in one piece.
    pub header_bytes: u16,
    /// Payload of each segment but the last.
    pub segment_bytes: u16,
    /// Both from the start of the packet.
    pub checksum_start: u16,
    pub checksum_offset: u16,
}

/// Where the parts of a frame are, counted from the start of its virtio_net header.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Layout {
    pub destination: IpAddr,
    pub transport: usize,
    pub transport_protocol: u8,
    pub payload: usize,
    pub frame_bytes: usize,
    /// Payload of each segment but the last; of a single packet all of it.
    pub segment_bytes: usize,
    pub segments: u32,
}

impl VnetHeader {
    pub fn read(frame: &[u8; VNET_BYTES]) -> VnetHeader {
        let number = |at: usize| u16::from_ne_bytes([frame[at], frame[at + 1]]);
        VnetHeader {
            flags: frame[0],
            gso_type: frame[1],
            header_bytes: number(2),
            segment_bytes: number(4),
            checksum_start: number(6),
            checksum_offset: number(8),
        }
    }

    pub fn bytes(&self) -> [u8; VNET_BYTES] {
        let mut bytes = [self.flags, self.gso_type, 0, 0, 0, 0, 0, 0, 0, 0];
        let numbers = [self.header_bytes, self.segment_bytes, self.checksum_start, self.checksum_offset];
        for (place, number) in bytes[2..].chunks_exact_mut(2).zip(numbers) {
            place.copy_from_slice(&number.to_ne_bytes());
        }
        bytes
    }
}

impl Layout {
    /// None: not a whole IP packet, or an aggregate of a kind that was not asked for.
    pub fn of(frame: &[u8]) -> Option<Layout> {
        let vnet = VnetHeader::read(frame.first_chunk()?);
        let packet = &frame[VNET_BYTES..];
        let is_v4 = packet.first()? >> 4 == 4;
        let (destination, ip_bytes, protocol) = if is_v4 { parse_v4(packet)? } else { parse_v6(packet)? };
        if vnet.gso_type == GSO_NONE {
            let header_bytes = transport_bytes(protocol, packet.get(ip_bytes..)?);
            return Some(Layout {
                destination,
                transport: VNET_BYTES + ip_bytes,
                transport_protocol: protocol,
                payload: VNET_BYTES + ip_bytes + header_bytes,
                frame_bytes: frame.len(),
                segment_bytes: packet.len() - ip_bytes - header_bytes,
                segments: 1,
            });
        }
        let expected_type = if is_v4 { GSO_TCPV4 } else { GSO_TCPV6 };
        // Extension headers of IPv6 stand before the place where the checksum starts.
        let tcp = usize::from(vnet.checksum_start);
        let is_partial = vnet.flags & NEEDS_CHECKSUM != 0 && usize::from(vnet.checksum_offset) == TCP_CHECKSUM_OFFSET;
        if vnet.gso_type & !GSO_ECN != expected_type || !is_partial || tcp < ip_bytes || vnet.segment_bytes == 0 {
            return None;
        }
        let payload = tcp + tcp_bytes(packet.get(tcp..)?)?;
        let segments = (packet.len() - payload).div_ceil(vnet.segment_bytes.into()).max(1);
        Some(Layout {
            destination,
            transport: VNET_BYTES + tcp,
            transport_protocol: TCP,
            payload: VNET_BYTES + payload,
            frame_bytes: frame.len(),
            segment_bytes: vnet.segment_bytes.into(),
            segments: segments as u32,
        })
    }

    pub fn size(&self) -> Size {
        self.size_of(self.segments, self.frame_bytes - self.payload)
    }

    /// Of some of its segments, with `payload_bytes` between them.
    pub fn size_of(&self, segments: u32, payload_bytes: usize) -> Size {
        let header_bytes = (self.payload - VNET_BYTES) as u64;
        let wire_bytes = payload_bytes as u64 + u64::from(segments) * (header_bytes + FRAMING_BYTES);
        Size { wire_bytes, segments }
    }
}

/// Sum in ones' complement of big-endian words, the last padded with zero, added to `start`; folded, not inverted.
pub fn checksum(start: u16, bytes: &[u8]) -> u16 {
    let words = bytes.chunks_exact(2);
    let last = words.remainder().first().map_or(0, |byte| u64::from(*byte) << 8);
    let sum: u64 = words.map(|word| u64::from(u16::from_be_bytes([word[0], word[1]]))).sum();
    fold(u64::from(start) + sum + last)
}

/// `sum` with one of its words replaced.
pub fn checksum_replace(sum: u16, old: u16, new: u16) -> u16 {
    fold(u64::from(sum) + u64::from(!old) + u64::from(new))
}

fn fold(mut sum: u64) -> u16 {
    while sum > u64::from(u16::MAX) {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

/// Destination, bytes of the header, protocol of what follows; protocol 0 where no header of it follows.
fn parse_v4(packet: &[u8]) -> Option<(IpAddr, usize, u8)> {
    let fixed: &[u8; IPV4_BYTES_MIN] = packet.first_chunk()?;
    let header_bytes = usize::from(fixed[0] & 15) * 4;
    if header_bytes < IPV4_BYTES_MIN || packet.len() < header_bytes {
        return None;
    }
    let fragment_offset = u16::from_be_bytes([fixed[6], fixed[7]]) & 0x1fff;
    let protocol = if fragment_offset == 0 { fixed[9] } else { 0 };
    let address = Ipv4Addr::new(fixed[16], fixed[17], fixed[18], fixed[19]);
    Some((address.into(), header_bytes, protocol))
}

fn parse_v6(packet: &[u8]) -> Option<(IpAddr, usize, u8)> {
    let fixed: &[u8; IPV6_BYTES] = packet.first_chunk()?;
    if fixed[0] >> 4 != 6 {
        return None;
    }
    let address: [u8; 16] = *fixed.last_chunk()?;
    Some((Ipv6Addr::from(address).into(), IPV6_BYTES, fixed[6]))
}

/// Of a header that is whole, else 0: then all of it counts as payload.
fn transport_bytes(protocol: u8, transport: &[u8]) -> usize {
    match protocol {
        TCP => tcp_bytes(transport).unwrap_or(0),
        UDP | ICMP | ICMPV6 if transport.len() >= 8 => 8,
        _ => 0,
    }
}

fn tcp_bytes(tcp: &[u8]) -> Option<usize> {
    let bytes = usize::from(tcp.get(12)? >> 4) * 4;
    (bytes >= TCP_BYTES_MIN && bytes <= tcp.len()).then_some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn no_bytes_make_a_layout_that_points_outside(mut frame in prop::collection::vec(any::<u8>(), 0..200), v4: bool, gso: bool) {
            if frame.len() > VNET_BYTES + 16 {
                frame[VNET_BYTES] = if v4 { 0x45 } else { 0x60 };
                if gso {
                    let vnet = VnetHeader {
                        flags: NEEDS_CHECKSUM,
                        gso_type: if v4 { GSO_TCPV4 } else { GSO_TCPV6 },
                        checksum_start: u16::from(frame[3]) % 80,
                        checksum_offset: 16,
                        segment_bytes: u16::from(frame[5]),
                        ..VnetHeader::default()
                    };
                    frame[..VNET_BYTES].copy_from_slice(&vnet.bytes());
                }
            }
            if let Some(layout) = Layout::of(&frame) {
                prop_assert!(VNET_BYTES <= layout.transport && layout.transport <= layout.payload);
                prop_assert!(layout.payload <= frame.len() && layout.segments >= 1);
            }
        }

        #[test]
        fn a_replaced_word_gives_the_sum_of_the_new_words(mut words: Vec<u16>, new: u16) {
            words.push(7);
            let bytes = |words: &[u16]| words.iter().flat_map(|word| word.to_be_bytes()).collect::<Vec<_>>();
            let old_sum = checksum(0, &bytes(&words));
            let old = std::mem::replace(&mut words[0], new);
            // 0 and 0xffff are the same number.
            prop_assert_eq!(checksum_replace(old_sum, old, new) % 0xffff, checksum(0, &bytes(&words)) % 0xffff);
        }
    }

    #[test]
    fn the_checksum_of_a_known_header_is_right() {
        // The example header of RFC 1071's usual illustration: its checksum field, 0xb861, is zeroed here.
        let header = [0x45, 0, 0, 0x73, 0, 0, 0x40, 0, 0x40, 0x11, 0, 0, 0xc0, 0xa8, 0, 1, 0xc0, 0xa8, 0, 0xc7];
        assert_eq!(!checksum(0, &header), 0xb861);
        assert_eq!(checksum(0, &[1, 2, 3]), 0x0402);
    }
}
