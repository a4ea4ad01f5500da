//! The NFQUEUE back end: the kernel keeps the packets, this thread says when each goes on.
//!
//! Owns: one queue of the packet filter per path, and the order in which its packets are given up. Only the first bytes of a
//! packet are copied here; an aggregate of up to 64 KiB stays one packet (the queue's GSO flag), so that one small message
//! stands for it. Verdicts go back in batches: one message accepts everything up to a packet.
//!
//! Invariants: a dropped packet is dropped when it is the oldest of its queue, because finding one in the middle is a walk
//! through the kernel's list; only reordering pays for that walk.
//!
//! Not here: the rules that lead packets into queues (`lab`), the models (`schedule`), threads (`worker`). A lost segment
//! takes its whole aggregate along (event loss); where that matters, the TUN back end cuts aggregates apart.
//! Aggregates of UDP do not tell their segment size, and count as packets of the MTU.

mod message;

use std::collections::BTreeSet;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;

use rustix::net::SendFlags;

use super::channel::{Channel, Size};
use super::lateness::Lateness;
use super::schedule::{Outcome, Schedule};
use super::worker::{Engine, now_ns};
use crate::impairment::FRAMING_BYTES;
use crate::sys::mmsg::Batch;

/// Packets read with one call, and verdicts sent with one.
const BATCH_PACKETS: usize = 64;
/// Calls between two looks at the commands.
const BATCHES_PER_TURN: usize = 16;
/// Headers up to the end of TCP's options, with the attributes around them.
const MESSAGE_BYTES: usize = 320;

/// One group of paths; path `i` is fed by queue `first_queue + i`.
pub struct Nfqueue {
    socket: OwnedFd,
    /// What the kernel counts per queue.
    statistics: File,
    received: Batch<BATCH_PACKETS, MESSAGE_BYTES>,
    verdicts: Vec<u8>,
    schedule: Schedule<u32>,
    orders: Vec<Order>,
    first_queue: u16,
    mtu_bytes: u32,
}

impl Nfqueue {
    /// Binds the queues in the calling thread's network namespace.
    pub fn bind(first_queue: u16, schedule: Schedule<u32>, path_count: u16, mtu_bytes: u32) -> io::Result<Nfqueue> {
        let socket = message::open_socket()?;
        for queue in first_queue..first_queue + path_count {
            message::bind_queue(&socket, queue)?;
        }
        let statistics = File::open("/proc/thread-self/net/netfilter/nfnetlink_queue")?;
        let orders = (0..path_count).map(|_| Order::default()).collect();
        let (received, verdicts) = (Batch::default(), Vec::new());
        Ok(Nfqueue { socket, statistics, received, verdicts, schedule, orders, first_queue, mtu_bytes })
    }

    /// Returns whether more may be waiting.
    fn take_in(&mut self) -> io::Result<bool> {
        let received = match self.received.receive(self.socket.as_fd()) {
            Ok(received) => received,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return Ok(true),
            Err(error) => return Err(error),
        };
        let now_ns = now_ns();
        for index in 0..received {
            let Some(packet) = message::read_packet(self.received.datagram(index)) else { continue };
            let path = usize::from(packet.queue.wrapping_sub(self.first_queue));
            let Some(order) = self.orders.get_mut(path) else { continue };
            order.arrived(packet.id);
            let size = size_of(packet.head, packet.ip_bytes, self.mtu_bytes);
            let fate = self.schedule.draw(path, size).unwrap_or_default();
            let is_lost = !fate.lost.is_empty();
            if is_lost && !fate.is_down {
                self.schedule.count_lost(path, size.segments);
            }
            self.schedule.arrive(path, now_ns, size, is_lost, packet.id);
        }
        Ok(received == BATCH_PACKETS)
    }

    /// Returns whether more may be due.
    fn let_go(&mut self) -> io::Result<bool> {
        let (orders, verdicts, first_queue) = (&mut self.orders, &mut self.verdicts, self.first_queue);
        let mut count = 0;
        verdicts.clear();
        self.schedule.release(now_ns(), BATCH_PACKETS, |path, id, outcome| {
            count += 1;
            orders[path].release(id, outcome, first_queue + path as u16, verdicts);
        });
        for (path, order) in orders.iter_mut().enumerate() {
            order.flush(first_queue + path as u16, verdicts);
        }
        if !verdicts.is_empty() {
            // The kernel works through the verdicts within the call, so it is not interrupted and there is always room.
            rustix::io::retry_on_intr(|| rustix::net::send(&self.socket, verdicts, SendFlags::empty()))?;
        }
        Ok(count == BATCH_PACKETS)
    }
}

impl Engine for Nfqueue {
    fn descriptors(&self) -> Vec<BorrowedFd<'_>> {
        vec![self.socket.as_fd()]
    }

    fn turn(&mut self) -> io::Result<()> {
        for _ in 0..BATCHES_PER_TURN {
            let is_more_waiting = self.take_in()?;
            let is_more_due = self.let_go()?;
            if !is_more_waiting && !is_more_due {
                break;
            }
        }
        Ok(())
    }

    fn next_ns(&self) -> Option<u64> {
        self.schedule.next_ns()
    }

    fn channels(&mut self) -> &mut [Channel] {
        &mut self.schedule.channels
    }

    fn lateness(&self) -> &Lateness {
        &self.schedule.lateness
    }

    fn overruns(&self) -> u64 {
        // The kernel gives about a page at a time.
        let (mut text, mut part) = (Vec::new(), [0; 4096]);
        while let Ok(length @ 1..) = self.statistics.read_at(&mut part, text.len() as u64) {
            text.extend_from_slice(&part[..length]);
        }
        let own = self.first_queue..self.first_queue + self.orders.len() as u16;
        message::dropped_by_queue(&text).filter(|(queue, _)| own.contains(queue)).map(|(_, drops)| drops).sum()
    }
}

/// Which packets of a queue the kernel still holds, as far as verdicts need to know.
///
/// Ids count up; a missing one was lost between the kernel and here, and is treated as given up.
#[derive(Debug)]
struct Order {
    next_arrival: u32,
    oldest: u32,
    /// Given up before `oldest`.
    early: BTreeSet<u32>,
    /// Everything up to here is to be accepted with the next message.
    accepted: Option<u32>,
}

impl Default for Order {
    fn default() -> Self {
        // The kernel counts from one.
        Order { next_arrival: 1, oldest: 1, early: BTreeSet::new(), accepted: None }
    }
}

impl Order {
    fn arrived(&mut self, id: u32) {
        // Bounded: a jump that large is no loss but another count.
        if id.wrapping_sub(self.next_arrival) < 1 << 20 {
            while self.next_arrival != id {
                self.give_up(self.next_arrival);
                self.next_arrival = self.next_arrival.wrapping_add(1);
            }
        } else {
            self.oldest = id;
            self.early.clear();
        }
        self.next_arrival = id.wrapping_add(1);
    }

    fn release(&mut self, id: u32, outcome: Outcome, queue: u16, verdicts: &mut Vec<u8>) {
        let is_oldest = id == self.oldest;
        if is_oldest && outcome == Outcome::Deliver {
            self.accepted = Some(id);
        } else {
            self.flush(queue, verdicts);
            message::write_verdict(verdicts, queue, id, outcome);
        }
        self.give_up(id);
    }

    fn flush(&mut self, queue: u16, verdicts: &mut Vec<u8>) {
        if let Some(id) = self.accepted.take() {
            message::write_verdict_up_to(verdicts, queue, id);
        }
    }

    fn give_up(&mut self, id: u32) {
        if id != self.oldest {
            self.early.insert(id);
            return;
        }
        self.oldest = self.oldest.wrapping_add(1);
        while self.early.remove(&self.oldest) {
            self.oldest = self.oldest.wrapping_add(1);
        }
    }
}

/// What the packet is to the wire. An aggregate is cut as TCP would cut it for this link: its segments are full but the last.
fn size_of(head: &[u8], ip_bytes: u32, mtu_bytes: u32) -> Size {
    let header_bytes = header_bytes(head).min(mtu_bytes - 1);
    let payload_max = mtu_bytes - header_bytes;
    let segments = ip_bytes.saturating_sub(header_bytes).div_ceil(payload_max).max(1);
    let repeated = u64::from(segments - 1) * u64::from(header_bytes);
    Size { wire_bytes: u64::from(ip_bytes) + repeated + u64::from(segments) * FRAMING_BYTES, segments }
}

/// Of IP and, where it follows at once, TCP or UDP: what each segment repeats.
fn header_bytes(head: &[u8]) -> u32 {
    let byte = |at: usize| u32::from(head.get(at).copied().unwrap_or(0));
    let (ip_bytes, protocol) = match byte(0) >> 4 {
        4 => ((byte(0) & 15) * 4, byte(9)),
        _ => (40, byte(6)),
    };
    match protocol {
        6 => ip_bytes + (byte(ip_bytes as usize + 12) >> 4) * 4,
        17 => ip_bytes + 8,
        _ => ip_bytes,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tcp4(options_words: u8) -> Vec<u8> {
        let mut head = vec![0; 60];
        (head[0], head[9], head[32]) = (0x45, 6, (5 + options_words) << 4);
        head
    }

    #[test]
    fn an_aggregate_counts_the_headers_and_framing_of_every_segment() {
        // 20 IP + 32 TCP with timestamps: 8948 bytes of payload per segment at an MTU of 9000.
        let one = size_of(&tcp4(3), 9000, 9000);
        assert_eq!(one, Size { wire_bytes: 9038, segments: 1 });
        let seven = size_of(&tcp4(3), 52 + 7 * 8948, 9000);
        assert_eq!(seven, Size { wire_bytes: 7 * 9038, segments: 7 });
        assert_eq!(size_of(&tcp4(3), 52, 9000), Size { wire_bytes: 90, segments: 1 });
        assert_eq!(size_of(&[], 70_000, 9000).segments, 8);
    }

    #[test]
    fn packets_in_order_share_one_verdict_and_others_have_their_own() {
        let (mut order, mut verdicts) = (Order::default(), Vec::new());
        (1..=6).for_each(|id| order.arrived(id));
        order.release(1, Outcome::Deliver, 0, &mut verdicts);
        order.release(2, Outcome::Deliver, 0, &mut verdicts);
        assert_eq!((verdicts.len(), order.accepted), (0, Some(2)));
        order.release(3, Outcome::Drop, 0, &mut verdicts);
        assert_eq!((verdicts.len(), order.accepted), (64, None));
        // 5 overtakes 4: it alone, then 4, then the rest together.
        order.release(5, Outcome::Deliver, 0, &mut verdicts);
        assert_eq!((verdicts.len(), order.oldest), (96, 4));
        order.release(4, Outcome::Deliver, 0, &mut verdicts);
        order.release(6, Outcome::Deliver, 0, &mut verdicts);
        assert_eq!((order.accepted, order.oldest, order.early.len()), (Some(6), 7, 0));
    }

    #[test]
    fn a_packet_lost_on_the_way_here_does_not_hold_up_the_order() {
        let (mut order, mut verdicts) = (Order::default(), Vec::new());
        for id in [1, 4] {
            order.arrived(id);
        }
        order.release(1, Outcome::Deliver, 0, &mut verdicts);
        order.release(4, Outcome::Deliver, 0, &mut verdicts);
        assert_eq!((verdicts.len(), order.accepted, order.oldest), (0, Some(4), 5));
    }
}
