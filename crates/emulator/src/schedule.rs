//! The packets under way: which leaves next, by which path, and when.
//!
//! Owns: the channels of one group of paths and a queue of packets per path and stage. A path crosses one channel, or two
//! in a star (up from its site to the core, down to the other); a channel of a star serves several paths.
//!
//! Invariants: packets meet a shared channel in the order of their times, also when they are released late; packets of one
//! path leave in order unless a channel of it reorders.
//!
//! Pure: `P` is whatever the back end needs to release a packet. Not here: clocks, sockets.

use std::collections::VecDeque;
use std::time::Duration;

use super::channel::{Channel, Fate, Size};
use super::lateness::Lateness;
use crate::impairment::Impairment;

/// At most this many stages: up to the core and down from it.
const STAGES_MAX: usize = 2;

#[derive(Debug)]
pub struct Schedule<P> {
    pub channels: Vec<Channel>,
    paths: Vec<Path<P>>,
    pub lateness: Lateness,
}

#[derive(Debug)]
struct Path<P> {
    /// Indices into the schedule's channels, one per stage.
    channels: Vec<usize>,
    waiting: [VecDeque<Waiting<P>>; STAGES_MAX],
}

#[derive(Debug)]
struct Waiting<P> {
    at_ns: u64,
    size: Size,
    /// Dropped, but kept in its place: the kernel gives up packets cheaply only in order.
    is_dropped: bool,
    packet: P,
}

/// What becomes of a packet whose time has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    Deliver,
    Drop,
}

impl<P> Schedule<P> {
    /// `paths[i]` lists the channels that path `i` crosses, one or two.
    pub fn new(channels: Vec<Channel>, paths: Vec<Vec<usize>>) -> Schedule<P> {
        assert!(paths.iter().all(|path| (1..=STAGES_MAX).contains(&path.len())), "a path has one or two channels");
        let path = |channels| Path { channels, waiting: Default::default() };
        Schedule { channels, paths: paths.into_iter().map(path).collect(), lateness: Lateness::default() }
    }

    pub fn set(&mut self, channel: usize, now_ns: u64, impairment: Impairment, round_trip: Duration) {
        self.channels[channel].set(now_ns, impairment, round_trip);
    }

    /// What the path does to the segments of a packet; to be drawn once for each packet, before `arrive`.
    pub fn draw(&mut self, path: usize, size: Size) -> Option<Fate> {
        let mut fate: Option<Fate> = None;
        for &channel in &self.paths[path].channels {
            let Some(drawn) = self.channels[channel].draw(size) else { continue };
            match &mut fate {
                None => fate = Some(drawn),
                Some(fate) => fate.join(drawn),
            }
        }
        fate
    }

    /// Counts segments dropped for the loss process.
    pub fn count_lost(&mut self, path: usize, segments: u32) {
        let channel = self.paths[path].channels[0];
        self.channels[channel].counts.lost_made += u64::from(segments);
    }

    /// Takes a packet that entered the path at `now_ns`. A dropped one only holds its place.
    pub fn arrive(&mut self, path: usize, now_ns: u64, size: Size, is_dropped: bool, packet: P) {
        self.enter(path, 0, now_ns, size, is_dropped, packet);
    }

    /// When something happens next.
    pub fn next_ns(&self) -> Option<u64> {
        self.paths.iter().flat_map(|path| &path.waiting).filter_map(|queue| queue.front()).map(|w| w.at_ns).min()
    }

    /// Gives out at most `count_max` packets whose time has come, path by path, each in order.
    pub fn release(&mut self, now_ns: u64, count_max: usize, mut give: impl FnMut(usize, P, Outcome)) {
        while let Some((path, at_ns)) = self.earliest_to_advance(now_ns) {
            if let Some(waiting) = self.paths[path].waiting[0].pop_front() {
                self.count_delivered(path, 0, &waiting);
                self.enter(path, 1, at_ns, waiting.size, waiting.is_dropped, waiting.packet);
            }
        }
        let mut left = count_max;
        for index in 0..self.paths.len() {
            let last = self.paths[index].channels.len() - 1;
            while left > 0 && self.paths[index].waiting[last].front().is_some_and(|head| head.at_ns <= now_ns) {
                let Some(waiting) = self.paths[index].waiting[last].pop_front() else { break };
                self.count_delivered(index, last, &waiting);
                self.lateness.add(now_ns - waiting.at_ns);
                left -= 1;
                give(index, waiting.packet, if waiting.is_dropped { Outcome::Drop } else { Outcome::Deliver });
            }
        }
    }

    fn count_delivered(&mut self, path: usize, stage: usize, waiting: &Waiting<P>) {
        if !waiting.is_dropped {
            let channel = self.paths[path].channels[stage];
            self.channels[channel].counts.wire_bytes_delivered += waiting.size.wire_bytes;
        }
    }

    /// The head with the earliest time among those that have another channel to cross.
    fn earliest_to_advance(&self, now_ns: u64) -> Option<(usize, u64)> {
        let two_stage = self.paths.iter().enumerate().filter(|(_, path)| path.channels.len() == STAGES_MAX);
        let heads = two_stage.filter_map(|(index, path)| Some((index, path.waiting[0].front()?.at_ns)));
        heads.filter(|(_, at_ns)| *at_ns <= now_ns).min_by_key(|(_, at_ns)| *at_ns)
    }

    fn enter(&mut self, path: usize, stage: usize, now_ns: u64, size: Size, is_dropped: bool, packet: P) {
        let path = &mut self.paths[path];
        let channel = &mut self.channels[path.channels[stage]];
        let passed = if is_dropped { None } else { channel.pass(now_ns, size) };
        let queue = &mut path.waiting[stage];
        let last_ns = queue.back().map_or(0, |back| back.at_ns);
        // A dropped packet leaves with its predecessor.
        let at_ns = passed.unwrap_or(last_ns.max(now_ns));
        let waiting = Waiting { at_ns, size, is_dropped: passed.is_none(), packet };
        if at_ns >= last_ns {
            queue.push_back(waiting);
        } else {
            let place = queue.partition_point(|other| other.at_ns <= at_ns);
            queue.insert(place, waiting);
        }
    }
}

impl Fate {
    fn join(&mut self, other: Fate) {
        self.is_down |= other.is_down;
        for (own, theirs) in [
            (&mut self.lost, other.lost),
            (&mut self.duplicated, other.duplicated),
            (&mut self.corrupted, other.corrupted),
        ] {
            own.extend(theirs);
            own.sort_unstable();
            own.dedup();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::impairment::QueueLimit;

    const MS: u64 = 1_000_000;
    const SIZE: Size = Size { wire_bytes: 12_500, segments: 2 };

    fn channel(delay_ms: u64, bits_per_second: Option<u64>, queue_bytes: u64) -> Channel {
        let delay = Duration::from_millis(delay_ms);
        let queue = QueueLimit::Bytes(queue_bytes);
        Channel::new(Impairment { delay, bits_per_second, queue, ..Impairment::default() }, Duration::ZERO, 1, "c")
    }

    fn released(schedule: &mut Schedule<u32>, now_ns: u64) -> Vec<(usize, u32, Outcome)> {
        let mut all = Vec::new();
        schedule.release(now_ns, usize::MAX, |path, packet, outcome| all.push((path, packet, outcome)));
        all
    }

    #[test]
    fn a_dropped_packet_keeps_its_place_in_the_order() {
        let mut schedule = Schedule::new(vec![channel(10, None, 0)], vec![vec![0]]);
        schedule.arrive(0, 0, SIZE, false, 1);
        schedule.arrive(0, 1, SIZE, true, 2);
        schedule.arrive(0, 2, SIZE, false, 3);
        assert_eq!(released(&mut schedule, 10 * MS - 1), []);
        assert_eq!(released(&mut schedule, 10 * MS), [(0, 1, Outcome::Deliver), (0, 2, Outcome::Drop)]);
        assert_eq!(schedule.next_ns(), Some(10 * MS + 2));
        assert_eq!(released(&mut schedule, 11 * MS), [(0, 3, Outcome::Deliver)]);
        assert_eq!(schedule.next_ns(), None);
    }

    #[test]
    fn the_branches_of_a_star_share_the_trunk_in_the_order_of_their_times() {
        // Up from two sites over 10 and 1 ms, down together over a wire that takes 1 ms a packet and holds two.
        let channels = vec![channel(10, None, 0), channel(1, None, 0), channel(5, Some(100_000_000), 25_000)];
        let mut schedule = Schedule::new(channels, vec![vec![0, 2], vec![1, 2]]);
        schedule.arrive(0, 0, SIZE, false, 1);
        for packet in 2..5 {
            schedule.arrive(1, 9 * MS + MS / 2, SIZE, false, packet);
        }
        // At 10 ms packet 1 takes the wire; at 10.5 ms one of the three others finds room, two do not.
        assert_eq!(released(&mut schedule, 16 * MS), [(0, 1, Outcome::Deliver)]);
        let rest = released(&mut schedule, 30 * MS);
        assert_eq!(rest, [(1, 2, Outcome::Deliver), (1, 3, Outcome::Drop), (1, 4, Outcome::Drop)]);
        assert_eq!(schedule.channels[2].counts.queue_drops, 2);
    }

    #[test]
    fn a_release_gives_out_no_more_than_it_is_asked_for() {
        let mut schedule = Schedule::new(vec![channel(0, None, 0)], vec![vec![0]]);
        (0..10).for_each(|packet| schedule.arrive(0, 0, SIZE, false, packet));
        let mut count = 0;
        schedule.release(MS, 4, |_, _, _| count += 1);
        assert_eq!((count, released(&mut schedule, MS).len()), (4, 6));
    }
}
