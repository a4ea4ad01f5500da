//! Cutting an aggregate so that each of its segments meets its own fate.
//!
//! Owns: which pieces remain of a frame, and the bytes of each: headers, lengths, sequence, flags, checksums.
//!
//! Invariants: segmenting the pieces gives, bit by bit, the segments of the original without the lost ones; order is
//! kept. A duplicate follows its original at once. A corrupted segment has the checksum of the intact one and one wrong
//! bit; where it is doubled too, both copies have it.
//!
//! Pure. Not here: drawing fates (`channel`).

use super::frame::{
    GSO_ECN, GSO_NONE, IPV6_BYTES, Layout, NEEDS_CHECKSUM, TCP, TCP_CHECKSUM_OFFSET, VNET_BYTES, VnetHeader, checksum,
    checksum_replace,
};
use crate::channel::{Fate, Size};

const TCP_FLAGS: usize = 13;
const FIN: u8 = 0x01;
const PSH: u8 = 0x08;
const CWR: u8 = 0x80;

/// Segments `first..end` of a frame, to be sent as one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Piece {
    pub first: u32,
    pub end: u32,
    /// Then it is a single segment.
    pub is_corrupted: bool,
}

/// Gives out what remains of a frame of `segments`, in order.
pub fn pieces(segments: u32, fate: &Fate, mut give: impl FnMut(Piece)) {
    let mut first = 0;
    for segment in 0..segments {
        let [is_lost, is_duplicated, is_corrupted] =
            [&fate.lost, &fate.duplicated, &fate.corrupted].map(|hit| hit.binary_search(&segment).is_ok());
        if !(is_lost || is_duplicated || is_corrupted) {
            continue;
        }
        // An intact segment that is doubled still ends the run before it.
        let end = if is_lost || is_corrupted { segment } else { segment + 1 };
        if first < end {
            give(Piece { first, end, is_corrupted: false });
        }
        let alone = Piece { first: segment, end: segment + 1, is_corrupted };
        let copies = if is_lost { 0 } else { u32::from(is_corrupted) + u32::from(is_duplicated) };
        (0..copies).for_each(|_| give(alone));
        first = segment + 1;
    }
    if first < segments {
        give(Piece { first, end: segments, is_corrupted: false });
    }
}

impl Piece {
    pub fn frame_bytes(&self, layout: &Layout) -> usize {
        layout.payload + self.payload(layout).len()
    }

    pub fn size(&self, layout: &Layout) -> Size {
        let payload = self.payload(layout);
        layout.size_of(self.end - self.first, payload.len())
    }

    /// Where its payload stands in the frame that it is cut from.
    fn payload(&self, layout: &Layout) -> std::ops::Range<usize> {
        let at = |segment: u32| (layout.payload + segment as usize * layout.segment_bytes).min(layout.frame_bytes);
        at(self.first)..at(self.end)
    }

    /// Writes the piece into `piece`, which has its `frame_bytes`; `random` chooses the bit that is wrong.
    pub fn cut(&self, frame: &[u8], layout: &Layout, random: u64, piece: &mut [u8]) {
        let (headers, payload) = piece.split_at_mut(layout.payload);
        headers.copy_from_slice(&frame[..layout.payload]);
        payload.copy_from_slice(&frame[self.payload(layout)]);
        if layout.segments > 1 {
            self.patch_network(layout, piece);
            self.patch_transport(layout, piece);
            self.patch_vnet(layout, piece);
        }
        if self.is_corrupted {
            complete_checksum(piece);
            let place = where_to_damage(layout, piece.len());
            let bit = random % (8 * place.len() as u64);
            piece[place.start + (bit / 8) as usize] ^= 1 << (bit % 8);
        }
    }

    fn patch_network(&self, layout: &Layout, piece: &mut [u8]) {
        let packet = &mut piece[VNET_BYTES..];
        let bytes = packet.len();
        if layout.destination.is_ipv6() {
            put(packet, 4, (bytes - IPV6_BYTES) as u16);
            return;
        }
        put(packet, 2, bytes as u16);
        // The kernel numbers the segments of an aggregate from the number of the first.
        let id = get(packet, 4).wrapping_add(self.first as u16);
        put(packet, 4, id);
        put(packet, 10, 0);
        let header_bytes = usize::from(packet[0] & 15) * 4;
        let sum = !checksum(0, &packet[..header_bytes]);
        put(packet, 10, sum);
    }

    fn patch_transport(&self, layout: &Layout, piece: &mut [u8]) {
        let tcp = &mut piece[layout.transport..];
        let sequence = u32::from_be_bytes([tcp[4], tcp[5], tcp[6], tcp[7]]);
        let sequence = sequence.wrapping_add(self.first * layout.segment_bytes as u32);
        tcp[4..8].copy_from_slice(&sequence.to_be_bytes());
        if self.end < layout.segments {
            tcp[TCP_FLAGS] &= !(FIN | PSH);
        }
        if self.first > 0 {
            tcp[TCP_FLAGS] &= !CWR;
        }
        // The pseudo header counts the bytes of the transport.
        let [old, new] = [layout.frame_bytes - layout.transport, tcp.len()].map(|bytes| bytes as u16);
        let sum = checksum_replace(get(tcp, TCP_CHECKSUM_OFFSET), old, new);
        put(tcp, TCP_CHECKSUM_OFFSET, sum);
    }

    fn patch_vnet(&self, layout: &Layout, piece: &mut [u8]) {
        let Some(header) = piece.first_chunk_mut() else { return };
        let mut vnet = VnetHeader::read(header);
        vnet.header_bytes = (layout.payload - VNET_BYTES) as u16;
        if self.first > 0 {
            vnet.gso_type &= !GSO_ECN;
        }
        if self.end - self.first == 1 {
            (vnet.gso_type, vnet.segment_bytes) = (GSO_NONE, 0);
        }
        *header = vnet.bytes();
    }
}

/// Does what the kernel left to the device, so that damage that follows shows.
fn complete_checksum(piece: &mut [u8]) {
    let Some(header) = piece.first_chunk_mut() else { return };
    let vnet = VnetHeader::read(header);
    *header = VnetHeader::default().bytes();
    let packet = &mut piece[VNET_BYTES..];
    let start = usize::from(vnet.checksum_start);
    let place = start + usize::from(vnet.checksum_offset);
    if vnet.flags & NEEDS_CHECKSUM == 0 || place + 2 > packet.len() {
        return;
    }
    let sum = !checksum(0, &packet[start..]);
    // UDP takes 0 for a packet without a checksum; both stand for the same number.
    put(packet, place, if sum == 0 { u16::MAX } else { sum });
}

/// The payload; of a bare TCP header its sequence and acknowledgement, so that nothing but the checksum can tell.
fn where_to_damage(layout: &Layout, piece_bytes: usize) -> std::ops::Range<usize> {
    if layout.payload < piece_bytes {
        return layout.payload..piece_bytes;
    }
    if layout.transport_protocol == TCP && layout.transport + 12 <= piece_bytes {
        return layout.transport + 4..layout.transport + 12;
    }
    piece_bytes - 1..piece_bytes
}

fn get(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

fn put(bytes: &mut [u8], at: usize, number: u16) {
    bytes[at..at + 2].copy_from_slice(&number.to_be_bytes());
}

#[cfg(test)]
mod tests {
    use super::super::frame::{GSO_TCPV4, GSO_TCPV6, TCP_CHECKSUM_OFFSET};
    use super::*;
    use proptest::prelude::*;

    const SEQUENCE: u32 = 0xffff_f000;
    const IP_ID: u16 = 0xfffe;

    /// An aggregate as a kernel would hand it over, with PSH, FIN and CWR set and `options` bytes of TCP options.
    fn aggregate(is_v4: bool, options: usize, segment_bytes: usize, payload_bytes: usize) -> Vec<u8> {
        let tcp_bytes = 20 + options + payload_bytes;
        let mut ip = if is_v4 {
            let mut ip = vec![0x45, 0, 0, 0, 0, 0, 0x40, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 9, 8, 7];
            put(&mut ip, 2, (20 + tcp_bytes) as u16);
            put(&mut ip, 4, IP_ID);
            ip
        } else {
            let mut ip = vec![0x60, 1, 2, 3, 0, 0, 6, 64];
            put(&mut ip, 4, tcp_bytes as u16);
            ip.extend((0..32).map(|i| 0xf0 + i % 16));
            ip
        };
        if is_v4 {
            let sum = independent_sum(&[&ip]);
            put(&mut ip, 10, !sum);
        }
        let mut tcp = vec![0; 20 + options];
        put(&mut tcp, 0, 1000);
        put(&mut tcp, 2, 2000);
        tcp[4..8].copy_from_slice(&SEQUENCE.to_be_bytes());
        tcp[12] = ((20 + options) / 4 * 16) as u8;
        tcp[13] = 0x10 | FIN | PSH | CWR;
        tcp[20..].fill(1);
        let sum = independent_sum(&[&pseudo(&ip, tcp_bytes)]);
        put(&mut tcp, TCP_CHECKSUM_OFFSET, sum);
        let vnet = VnetHeader {
            flags: NEEDS_CHECKSUM,
            gso_type: GSO_ECN | if is_v4 { GSO_TCPV4 } else { GSO_TCPV6 },
            header_bytes: (ip.len() + tcp.len()) as u16,
            segment_bytes: segment_bytes as u16,
            checksum_start: ip.len() as u16,
            checksum_offset: 16,
        };
        let payload = (0..payload_bytes).map(|i| (i * 7 + i / 251) as u8);
        vnet.bytes().into_iter().chain(ip).chain(tcp).chain(payload).collect()
    }

    /// Written apart from `frame::checksum`: long division instead of folding.
    fn independent_sum(parts: &[&[u8]]) -> u16 {
        let whole: Vec<u8> = parts.concat();
        let word = |i: usize| u64::from(whole[i]) * 256 + whole.get(i + 1).map_or(0, |byte| u64::from(*byte));
        let sum: u64 = (0..whole.len()).step_by(2).map(word).sum();
        if sum > 0 && sum.is_multiple_of(65_535) { 65_535 } else { (sum % 65_535) as u16 }
    }

    fn pseudo(ip: &[u8], tcp_bytes: usize) -> Vec<u8> {
        let addresses = if ip[0] >> 4 == 4 { &ip[12..20] } else { &ip[8..40] };
        [addresses, &[0, 0, 0, 6, 0, 0], &(tcp_bytes as u16).to_be_bytes()].concat()
    }

    /// What goes on the wire: whole packets with their checksums, as the kernel's segmentation makes them.
    fn segmented(frame: &[u8]) -> Vec<Vec<u8>> {
        let vnet = VnetHeader::read(frame.first_chunk().unwrap());
        let packet = &frame[VNET_BYTES..];
        let ip_bytes = if packet[0] >> 4 == 4 { 20 } else { 40 };
        let head = ip_bytes + usize::from(packet[ip_bytes + 12] >> 4) * 4;
        let chunk = if vnet.gso_type == GSO_NONE { usize::MAX } else { vnet.segment_bytes.into() };
        let chunks: Vec<_> = packet[head..].chunks(chunk).collect();
        let segment = |(i, payload): (usize, &&[u8])| {
            let mut whole = [&packet[..head], *payload].concat();
            let (ip, tcp) = whole.split_at_mut(ip_bytes);
            if ip_bytes == 20 {
                put(ip, 2, (20 + tcp.len()) as u16);
                put(ip, 4, get(ip, 4).wrapping_add(i as u16));
                put(ip, 10, 0);
                let sum = !independent_sum(&[ip]);
                put(ip, 10, sum);
            } else {
                put(ip, 4, tcp.len() as u16);
            }
            let sequence = u32::from_be_bytes(tcp[4..8].try_into().unwrap());
            tcp[4..8].copy_from_slice(&sequence.wrapping_add((i * chunk.min(1 << 20)) as u32).to_be_bytes());
            tcp[13] &= if i + 1 < chunks.len() { !(FIN | PSH) } else { 255 };
            tcp[13] &= if i > 0 { !CWR } else { 255 };
            // The sum that stands there is checked too: it must be that of the pseudo header.
            assert_eq!(
                get(tcp, 16) % 65_535,
                independent_sum(&[&pseudo(&packet[..ip_bytes], packet.len() - ip_bytes)]) % 65_535
            );
            put(tcp, 16, 0);
            let sum = !independent_sum(&[&pseudo(ip, tcp.len()), tcp]);
            put(tcp, 16, sum);
            whole
        };
        chunks.iter().enumerate().map(segment).collect()
    }

    fn cut_all(frame: &[u8], fate: &Fate) -> Vec<(Piece, Vec<u8>)> {
        let layout = Layout::of(frame).unwrap();
        let mut all = Vec::new();
        pieces(layout.segments, fate, |piece| {
            let mut bytes = vec![0; piece.frame_bytes(&layout)];
            piece.cut(frame, &layout, 12_345, &mut bytes);
            all.push((piece, bytes));
        });
        all
    }

    fn chosen(segments: u32, seed: u64) -> Vec<u32> {
        let mut random = crate::random::Random::new(seed);
        (0..segments).filter(|_| random.draw().is_multiple_of(4)).collect()
    }

    /// Sums the transport with its pseudo header; right if the result is all ones.
    fn is_sum_right(packet: &[u8]) -> bool {
        let ip_bytes = if packet[0] >> 4 == 4 { 20 } else { 40 };
        independent_sum(&[&pseudo(packet, packet.len() - ip_bytes), &packet[ip_bytes..]]) == 65_535
    }

    proptest! {
        #[test]
        fn segmenting_the_pieces_gives_the_surviving_segments_of_the_original(
            is_v4: bool, options in 0..=10_usize, segment_bytes in 1..9000_usize, payload_bytes in 1..60_000_usize,
            lost_seed: u64, duplicated_seed: u64,
        ) {
            let segment_bytes = segment_bytes.max(payload_bytes / 60);
            let frame = aggregate(is_v4, options * 4, segment_bytes, payload_bytes);
            let segments = Layout::of(&frame).unwrap().segments;
            let fate = Fate { lost: chosen(segments, lost_seed), duplicated: chosen(segments, duplicated_seed), ..Fate::default() };
            let whole = segmented(&frame);
            prop_assert_eq!(whole.len(), segments as usize);
            let times = |i: u32| if fate.lost.contains(&i) { 0 } else { 1 + usize::from(fate.duplicated.contains(&i)) };
            let expected: Vec<_> = (0..segments).flat_map(|i| vec![whole[i as usize].clone(); times(i)]).collect();
            let found: Vec<_> = cut_all(&frame, &fate).iter().flat_map(|(_, piece)| segmented(piece)).collect();
            prop_assert!(found.iter().all(|packet| is_sum_right(packet)));
            prop_assert_eq!(found, expected);
        }

        #[test]
        fn a_corrupted_segment_differs_in_one_bit_that_its_checksum_shows(
            is_v4: bool, segment_bytes in 500..9000_usize, payload_bytes in 1..60_000_usize, corrupted_seed: u64,
        ) {
            let frame = aggregate(is_v4, 12, segment_bytes, payload_bytes);
            let segments = Layout::of(&frame).unwrap().segments;
            let fate = Fate { corrupted: chosen(segments, corrupted_seed), ..Fate::default() };
            let whole = segmented(&frame);
            for (piece, bytes) in cut_all(&frame, &fate) {
                prop_assert_eq!(piece.is_corrupted, fate.corrupted.contains(&piece.first));
                if piece.is_corrupted {
                    let intact = &whole[piece.first as usize];
                    let differing = intact.iter().zip(&bytes[VNET_BYTES..]).map(|(a, b)| (a ^ b).count_ones()).sum::<u32>();
                    prop_assert_eq!((differing, intact.len()), (1, bytes.len() - VNET_BYTES));
                    prop_assert_eq!(&bytes[..VNET_BYTES], &[0; VNET_BYTES]);
                    prop_assert!(!is_sum_right(&bytes[VNET_BYTES..]));
                }
            }
        }
    }

    #[test]
    fn an_aggregate_counts_the_headers_and_framing_of_each_segment() {
        let layout = Layout::of(&aggregate(true, 12, 1448, 3 * 1448 + 10)).unwrap();
        assert_eq!(layout.size().segments, 4);
        assert_eq!(layout.size().wire_bytes, 3 * (1500 + 38) + 10 + 52 + 38);
    }

    #[test]
    fn a_frame_without_losses_stays_one_piece_and_one_without_survivors_none() {
        let mut all = Vec::new();
        pieces(9, &Fate::default(), |piece| all.push(piece));
        assert_eq!(all, [Piece { first: 0, end: 9, is_corrupted: false }]);
        let fate = Fate { lost: (0..9).collect(), duplicated: vec![3], corrupted: vec![4], is_down: false };
        pieces(9, &fate, |piece| panic!("{piece:?}"));
    }

    #[test]
    fn a_bare_acknowledgement_is_damaged_where_only_the_checksum_tells() {
        let mut frame = aggregate(false, 0, 1, 1);
        frame.truncate(frame.len() - 1);
        frame[..VNET_BYTES].copy_from_slice(&VnetHeader::default().bytes());
        let fate = Fate { corrupted: vec![0], ..Fate::default() };
        let [(_, piece)] = &cut_all(&frame, &fate)[..] else { panic!("one piece expected") };
        let at = piece.iter().zip(&frame).position(|(a, b)| a != b).unwrap();
        assert!((VNET_BYTES + 44..VNET_BYTES + 52).contains(&at), "{at}");
    }
}
