//! One direction of a link: when a packet that enters leaves again, if it does.
//!
//! Owns: the state of the wire (until when it is busy), of the delay line and of the random processes, and the counts.
//!
//! Invariants:
//! - Without reordering, packets leave in the order in which they entered.
//! - The bytes that wait for the wire never exceed the queue limit; a packet that does not fit is dropped whole.
//! - Lost packets take no room on the wire, as in netem: loss stands before the queue.
//!
//! Pure: time comes in as nanoseconds of one clock. Not here: where packets are kept, and clocks (`nfqueue`, `tun`).

use std::time::Duration;

use super::error_process::ErrorProcess;
use super::random::Random;
use crate::impairment::Impairment;

/// The memory of correlated jitter: what a packet met says little about what one 10 ms later meets.
const JITTER_MEMORY_NS: f64 = 10e6;

/// What a packet is to the wire.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Size {
    /// With framing, and for an aggregate with the headers of each of its segments.
    pub wire_bytes: u64,
    pub segments: u32,
}

/// What the random processes do to the segments of one packet, by place in it, each list ascending.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Fate {
    pub lost: Vec<u32>,
    pub duplicated: Vec<u32>,
    pub corrupted: Vec<u32>,
    /// Lost because the link is down, which has a count of its own.
    pub is_down: bool,
}

/// What happened on a channel since it was made.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, serde::Serialize, serde::Deserialize)]
pub struct Counts {
    /// That entered, whatever became of them.
    pub packets: u64,
    pub segments: u64,
    pub wire_bytes: u64,
    /// That were not dropped, counted when they left.
    pub wire_bytes_delivered: u64,
    /// Segments that the loss process named.
    pub lost_asked: u64,
    /// Segments dropped for that: where aggregates are dropped whole, more than were named.
    pub lost_made: u64,
    pub duplicated: u64,
    pub corrupted: u64,
    /// Packets that found the queue full.
    pub queue_drops: u64,
    /// Packets that entered while the link was down.
    pub down_drops: u64,
    pub queue_bytes_max: u64,
}

#[derive(Debug)]
pub struct Channel {
    impairment: Impairment,
    queue_bytes_max: u64,
    /// Until when the wire is busy, in picoseconds: at 100 Gbit/s a byte takes 80.
    busy_until_ps: u64,
    left_last_ns: u64,
    losses: ErrorProcess,
    duplicates: ErrorProcess,
    corruptions: ErrorProcess,
    jitter: Random,
    jitter_deviation: f64,
    jitter_at_ns: u64,
    pub counts: Counts,
}

impl Channel {
    /// `name` keeps the random processes of channels apart; `round_trip` is what a queue in products refers to.
    pub fn new(impairment: Impairment, round_trip: Duration, seed: u64, name: &str) -> Channel {
        let process = |purpose, probability, burst| {
            ErrorProcess::new(Random::named(seed, &format!("{name}/{purpose}")), probability, burst)
        };
        Channel {
            queue_bytes_max: impairment.queue_bytes(round_trip),
            busy_until_ps: 0,
            left_last_ns: 0,
            losses: process("loss", impairment.loss, impairment.loss_burst_segments),
            duplicates: process("duplicate", impairment.duplicate, 1.0),
            corruptions: process("corrupt", impairment.corrupt, 1.0),
            jitter: Random::named(seed, &format!("{name}/jitter")),
            jitter_deviation: 0.0,
            jitter_at_ns: 0,
            counts: Counts::default(),
            impairment,
        }
    }

    /// From now on. What is under way keeps its time, and so does what waits for the wire: it goes on taking up its bytes
    /// of the queue, and what enters after it leaves after it.
    pub fn set(&mut self, now_ns: u64, impairment: Impairment, round_trip: Duration) {
        let backlog = self.backlog_bytes(now_ns);
        self.impairment = impairment;
        self.queue_bytes_max = impairment.queue_bytes(round_trip);
        self.busy_until_ps = now_ns * 1000 + self.wire_ps(backlog);
        self.losses.set(impairment.loss, impairment.loss_burst_segments);
        self.duplicates.set(impairment.duplicate, 1.0);
        self.corruptions.set(impairment.corrupt, 1.0);
    }

    pub fn impairment(&self) -> &Impairment {
        &self.impairment
    }

    /// Draws what the link does to each segment, and counts the packet. None: nothing, the common case.
    pub fn draw(&mut self, size: Size) -> Option<Fate> {
        self.counts.packets += 1;
        self.counts.segments += u64::from(size.segments);
        self.counts.wire_bytes += size.wire_bytes;
        if self.impairment.down {
            self.counts.down_drops += 1;
            return Some(Fate { lost: (0..size.segments).collect(), is_down: true, ..Fate::default() });
        }
        let mut fate = Fate::default();
        self.losses.draw(size.segments, &mut fate.lost);
        self.duplicates.draw(size.segments, &mut fate.duplicated);
        self.corruptions.draw(size.segments, &mut fate.corrupted);
        self.counts.lost_asked += fate.lost.len() as u64;
        (fate != Fate::default()).then_some(fate)
    }

    /// When a packet that enters at `now_ns` leaves; none: the queue is full.
    pub fn pass(&mut self, now_ns: u64, size: Size) -> Option<u64> {
        if self.refuses(now_ns, size) {
            return None;
        }
        if self.impairment.bits_per_second.is_some() {
            let waiting_bytes = self.backlog_bytes(now_ns) + size.wire_bytes;
            self.counts.queue_bytes_max = self.counts.queue_bytes_max.max(waiting_bytes);
        }
        self.busy_until_ps = self.busy_until_ps.max(now_ns * 1000) + self.wire_ps(size.wire_bytes);
        let delay_ns = self.impairment.delay.as_nanos() as u64;
        let left_ns = (self.busy_until_ps / 1000 + delay_ns).saturating_add_signed(self.jitter_ns(now_ns, delay_ns));
        if self.impairment.reorder {
            return Some(left_ns);
        }
        self.left_last_ns = self.left_last_ns.max(left_ns);
        Some(self.left_last_ns)
    }

    /// Whether the queue is full for a packet that enters at `now_ns`; it is then counted as dropped.
    pub fn refuses(&mut self, now_ns: u64, size: Size) -> bool {
        let is_limited = self.impairment.bits_per_second.is_some();
        let is_full = is_limited && self.backlog_bytes(now_ns) + size.wire_bytes > self.queue_bytes_max;
        self.counts.queue_drops += u64::from(is_full);
        is_full
    }

    pub fn queue_bytes_max(&self) -> u64 {
        self.queue_bytes_max
    }

    fn backlog_bytes(&self, now_ns: u64) -> u64 {
        let Some(bits_per_second) = self.impairment.bits_per_second else { return 0 };
        let wait_ps = self.busy_until_ps.saturating_sub(now_ns * 1000);
        (u128::from(wait_ps) * u128::from(bits_per_second) / 8_000_000_000_000) as u64
    }

    fn wire_ps(&self, bytes: u64) -> u64 {
        let Some(bits_per_second) = self.impairment.bits_per_second else { return 0 };
        (u128::from(bytes) * 8_000_000_000_000 / u128::from(bits_per_second.max(1))) as u64
    }

    /// At least minus the delay: nothing arrives before it was sent.
    fn jitter_ns(&mut self, now_ns: u64, delay_ns: u64) -> i64 {
        let deviation_ns = self.impairment.jitter.as_nanos() as f64;
        if deviation_ns == 0.0 {
            return 0;
        }
        let memory = match self.impairment.reorder {
            true => 0.0,
            false => (-(now_ns.saturating_sub(self.jitter_at_ns) as f64) / JITTER_MEMORY_NS).exp(),
        };
        self.jitter_at_ns = now_ns;
        let fresh = self.jitter.normal();
        self.jitter_deviation = memory * self.jitter_deviation + (1.0 - memory * memory).sqrt() * fresh;
        ((self.jitter_deviation * deviation_ns) as i64).max(-(delay_ns as i64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::impairment::QueueLimit;
    use proptest::prelude::*;

    const PACKET: Size = Size { wire_bytes: 1250, segments: 1 };
    const MS: u64 = 1_000_000;

    fn channel(impairment: Impairment) -> Channel {
        Channel::new(impairment, Duration::from_millis(74), 1, "wan/0")
    }

    #[test]
    fn packets_leave_at_the_rate_of_the_wire_after_the_delay() {
        let rate = Some(1_000_000_000);
        let mut channel =
            channel(Impairment { delay: Duration::from_millis(37), bits_per_second: rate, ..Impairment::default() });
        let left: Vec<_> = (0..3).map(|_| channel.pass(MS, PACKET)).collect();
        assert_eq!(left, [10, 20, 30].map(|us| Some(38 * MS + us * 1000)));
        assert_eq!(channel.pass(100 * MS, PACKET), Some(137 * MS + 10_000));
    }

    #[test]
    fn the_queue_holds_exactly_its_limit() {
        let queue = QueueLimit::Bytes(10_000);
        let mut channel = channel(Impairment { bits_per_second: Some(1_000_000_000), queue, ..Impairment::default() });
        let passed = (0..20).filter(|_| channel.pass(0, PACKET).is_some()).count();
        assert_eq!((passed, channel.counts.queue_drops, channel.counts.queue_bytes_max), (8, 12, 10_000));
        // One packet later there is room for one.
        assert!(channel.pass(10_000, PACKET).is_some());
        assert!(channel.pass(10_000, PACKET).is_none());
    }

    #[test]
    fn a_new_rate_keeps_the_bytes_that_wait() {
        let slow = Impairment { bits_per_second: Some(1_000_000), ..Impairment::default() };
        let mut channel = channel(slow);
        for _ in 0..4 {
            channel.pass(0, PACKET);
        }
        channel.set(0, Impairment { bits_per_second: Some(1_000_000_000), ..slow }, Duration::ZERO);
        assert_eq!(channel.pass(0, PACKET), Some(40 * MS));
        assert_eq!(channel.counts.queue_bytes_max, 5 * 1250);
        assert_eq!(channel.pass(50 * MS, PACKET), Some(50 * MS + 10_000));
    }

    #[test]
    fn a_link_that_is_down_loses_everything_and_says_why() {
        let mut channel = channel(Impairment { down: true, ..Impairment::default() });
        assert_eq!(channel.draw(PACKET).unwrap().lost, [0]);
        assert_eq!((channel.counts.down_drops, channel.counts.lost_asked), (1, 0));
    }

    #[test]
    fn two_channels_of_one_seed_lose_the_same_segments_and_of_another_name_others() {
        let lossy = Impairment { loss: 0.05, ..Impairment::default() };
        let fates = |name| {
            let mut channel = Channel::new(lossy, Duration::ZERO, 9, name);
            (0..500).map(|_| channel.draw(Size { segments: 3, ..PACKET })).collect::<Vec<_>>()
        };
        assert_eq!(fates("wan/0"), fates("wan/0"));
        assert_ne!(fates("wan/0"), fates("wan/1"));
    }

    proptest! {
        #[test]
        fn without_reordering_order_is_kept_under_any_jitter(
            jitter_us in 0..50_000_u64, delay_us in 0..50_000_u64, gaps in prop::collection::vec(0..2_000_000_u64, 1..200),
        ) {
            let mut channel = channel(Impairment {
                delay: Duration::from_micros(delay_us),
                jitter: Duration::from_micros(jitter_us),
                bits_per_second: Some(10_000_000_000),
                ..Impairment::default()
            });
            let (mut now, mut last) = (0, 0);
            for gap in gaps {
                now += gap;
                if let Some(left) = channel.pass(now, PACKET) {
                    prop_assert!(left >= last && left > now);
                    last = left;
                }
            }
        }
    }
}
