//! The thread's part of the TUN back end: the ports and paths of one group.
//!
//! Owns: the frames under way, from the port where they come in to the port where they go out.
//!
//! Invariants: a frame is read straight to where it waits, and nothing is allocated for it; memory is bounded by what the
//! links can hold. Whatever is lost because of this process, and not because of a link, counts as overrun.

use std::collections::HashMap;
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd};

use rustix::io::Errno;

use super::frame::{FRAME_BYTES_MAX, Layout};
use super::memory::{Cursor, Memory, Place, SLAB_BYTES};
use super::port::Port;
use super::surgery::pieces;
use crate::channel::{Channel, Fate, Size};
use crate::impairment::Impairment;
use crate::lateness::Lateness;
use crate::random::Random;
use crate::schedule::{Outcome, Schedule};
use crate::worker::{Engine, now_ns};

/// Where packets go that a host sends through `from_port` to one of the addresses.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Route {
    pub from_port: usize,
    pub to_port: usize,
    pub to_addresses: Vec<IpAddr>,
    /// None: handed on at once, as between hosts of one site.
    pub path: Option<usize>,
}

/// Frames taken from one port, and frames given out, before the others have their turn: one takes up to 40 us.
const BATCH_FRAMES: usize = 4;
/// How long a command may have to wait.
const TURN_NS_MAX: u64 = 1_000_000;
/// What a link without a rate is taken to carry at most, for the bound of memory.
const BITS_PER_SECOND_MAX: u64 = 40_000_000_000;
/// Memory beyond what the links hold, for slabs that few frames keep from being used again.
const SPARE_BYTES: u64 = 64 << 20;

pub struct Group {
    ports: Vec<Entrance>,
    schedule: Schedule<Frame>,
    /// The channels of each. What was made of packets is counted with the first.
    paths: Vec<Vec<usize>>,
    memory: Memory,
    slabs_max: usize,
    /// A copy of the frame that is being cut.
    whole: Vec<u8>,
    /// Chooses the wrong bit of a damaged segment. Which segments are damaged is drawn by the channels.
    bits: Random,
    overruns: u64,
}

struct Entrance {
    port: Port,
    ways: HashMap<IpAddr, Way>,
    cursor: Cursor,
    is_open: bool,
    dropped_before: u64,
}

#[derive(Clone, Copy)]
struct Way {
    to_port: usize,
    path: Option<usize>,
}

/// Where a frame came in and leads to.
#[derive(Clone, Copy)]
struct Arrival {
    from: usize,
    to_port: usize,
    path: usize,
    now_ns: u64,
}

/// A frame under way.
struct Frame {
    place: Place,
    to_port: usize,
}

impl Group {
    /// `paths` lists the channels that each path crosses; all indices are the group's own.
    pub fn new(ports: Vec<Port>, routes: &[Route], channels: Vec<Channel>, paths: Vec<Vec<usize>>) -> Group {
        let enter = |(index, port): (usize, Port)| {
            let own = routes.iter().filter(|route| route.from_port == index);
            let ways = own.flat_map(|route| {
                let way = Way { to_port: route.to_port, path: route.path };
                route.to_addresses.iter().map(move |address| (*address, way))
            });
            let (ways, dropped_before) = (ways.collect(), port.dropped());
            Entrance { port, ways, cursor: Cursor::default(), is_open: true, dropped_before }
        };
        let ports: Vec<_> = ports.into_iter().enumerate().map(enter).collect();
        Group {
            slabs_max: slabs_max(&channels, ports.len()),
            ports,
            schedule: Schedule::new(channels, paths.clone()),
            paths,
            memory: Memory::default(),
            whole: Vec::with_capacity(FRAME_BYTES_MAX),
            bits: Random::new(0),
            overruns: 0,
        }
    }

    /// Returns whether there were any.
    fn take_in(&mut self, from: usize) -> io::Result<bool> {
        for count in 0..BATCH_FRAMES {
            let Entrance { port, cursor, .. } = &mut self.ports[from];
            let mut discarded = [0; 64];
            let room = self.memory.room(cursor, self.slabs_max);
            let has_room = room.is_some();
            match port.read(room.unwrap_or(&mut discarded)) {
                Ok(bytes) if has_room => self.forward(from, bytes),
                Ok(_) => self.overruns += 1,
                Err(Errno::AGAIN) => return Ok(count > 0),
                // The host has gone, or removed its interface.
                Err(Errno::BADFD) => {
                    self.ports[from].is_open = false;
                    return Ok(count > 0);
                }
                Err(errno) => return Err(errno.into()),
            }
        }
        Ok(true)
    }

    /// Sends on its way the frame that stands in the room given out last.
    fn forward(&mut self, from: usize, bytes: usize) {
        let now_ns = now_ns();
        let frame = self.memory.written(&self.ports[from].cursor, bytes);
        // Packets to nobody here, as those that look for neighbours, end here as on any cable.
        let Some(layout) = Layout::of(frame) else { return };
        let Some(&way) = self.ports[from].ways.get(&layout.destination) else { return };
        let Some(path) = way.path else {
            self.overruns += self.ports[way.to_port].port.write(frame);
            return;
        };
        let arrival = Arrival { from, to_port: way.to_port, path, now_ns };
        let Some(fate) = self.schedule.draw(path, layout.size()) else {
            return self.admit(arrival, layout.size(), bytes);
        };
        self.whole.clear();
        self.whole.extend_from_slice(frame);
        self.cut(arrival, &layout, &fate);
    }

    /// Admits what the link leaves of the frame in `whole`.
    fn cut(&mut self, arrival: Arrival, layout: &Layout, fate: &Fate) {
        self.count(arrival.path, fate);
        let whole = std::mem::take(&mut self.whole);
        pieces(layout.segments, fate, |piece| {
            let bytes = piece.frame_bytes(layout);
            let Some(room) = self.memory.room(&mut self.ports[arrival.from].cursor, self.slabs_max) else {
                self.overruns += 1;
                return;
            };
            piece.cut(&whole, layout, self.bits.draw(), &mut room[..bytes]);
            self.admit(arrival, piece.size(layout), bytes);
        });
        self.whole = whole;
    }

    fn count(&mut self, path: usize, fate: &Fate) {
        if fate.is_down {
            return;
        }
        let arrived = |hit: &[u32]| hit.iter().filter(|segment| !fate.lost.contains(segment)).count() as u64;
        let counts = &mut self.schedule.channels[self.paths[path][0]].counts;
        counts.lost_made += fate.lost.len() as u64;
        counts.duplicated += arrived(&fate.duplicated);
        counts.corrupted += arrived(&fate.corrupted);
    }

    /// Keeps the frame of `bytes` that stands in the room given out last until its time, if the link takes it.
    fn admit(&mut self, arrival: Arrival, size: Size, bytes: usize) {
        let Arrival { from, to_port, path, now_ns } = arrival;
        // Otherwise it would hold its memory until its time, however much more is sent than the link takes.
        if self.schedule.channels[self.paths[path][0]].refuses(now_ns, size) {
            return;
        }
        let place = self.memory.keep(&mut self.ports[from].cursor, bytes);
        self.schedule.arrive(path, now_ns, size, false, Frame { place, to_port });
    }

    /// Returns whether there were any.
    fn let_go(&mut self) -> bool {
        let mut is_any = false;
        self.schedule.release(now_ns(), BATCH_FRAMES, |_, frame, outcome| {
            is_any = true;
            if outcome == Outcome::Deliver {
                self.overruns += self.ports[frame.to_port].port.write(self.memory.bytes(&frame.place));
            }
            self.memory.free(frame.place);
        });
        is_any
    }
}

impl Engine for Group {
    fn descriptors(&self) -> Vec<BorrowedFd<'_>> {
        let waited_for = self.ports.iter().filter(|entrance| entrance.is_open);
        waited_for.map(|entrance| entrance.port.as_fd()).collect()
    }

    fn turn(&mut self) -> io::Result<()> {
        let start_ns = now_ns();
        loop {
            let mut is_any = false;
            for from in 0..self.ports.len() {
                is_any |= self.ports[from].is_open && self.take_in(from)?;
            }
            is_any |= self.let_go();
            if !is_any || now_ns() >= start_ns + TURN_NS_MAX {
                return Ok(());
            }
        }
    }

    fn next_ns(&self) -> Option<u64> {
        self.schedule.next_ns()
    }

    fn channels(&mut self) -> &mut [Channel] {
        &mut self.schedule.channels
    }

    fn changed(&mut self) {
        self.slabs_max = slabs_max(&self.schedule.channels, self.ports.len());
    }

    fn lateness(&self) -> &Lateness {
        &self.schedule.lateness
    }

    fn overruns(&self) -> u64 {
        let dropped = |entrance: &Entrance| entrance.port.dropped().saturating_sub(entrance.dropped_before);
        self.overruns + self.ports.iter().map(dropped).sum::<u64>()
    }
}

/// Twice what waits at the links and is under way on them, as far as their settings go.
fn slabs_max(channels: &[Channel], ports: usize) -> usize {
    let rate = |channel: &Channel| channel.impairment().bits_per_second.unwrap_or(BITS_PER_SECOND_MAX);
    let held_bytes = |channel: &Channel| {
        let Impairment { delay, jitter, .. } = channel.impairment();
        let under_way = rate(channel) as f64 / 8.0 * (*delay + 4 * *jitter).as_secs_f64();
        let queue = channel.impairment().bits_per_second.map_or(0, |_| channel.queue_bytes_max());
        under_way as u64 + queue
    };
    let bytes = 2 * channels.iter().map(held_bytes).sum::<u64>() + SPARE_BYTES;
    bytes.div_ceil(SLAB_BYTES as u64) as usize + ports
}
