//! How much memory the packets of a laboratory take.

use std::time::Duration;

use model::quantity::ByteCount;

use crate::scenario::{End, Error, FRAMING_BYTES, Impairment, Kind, Link, Scenario, Site};

/// What a path without a limit is taken to carry: what forwarding alone reaches between two network namespaces.
pub(super) const UNLIMITED_BITS_PER_SECOND: u64 = 40_000_000_000;

/// Packets on the way are held once by the emulator and, until acknowledged or read, once more by the sockets.
const COPIES: f64 = 2.0;
/// The rest is for the programs under test and the page cache.
const MEMORY_SHARE: f64 = 0.5;
/// What may leave an interface at once that is held to a rate: of the rate, and in packets, of which the kernel drops
/// what is larger than a bucket.
const BURST: Duration = Duration::from_millis(1);
const BURST_PACKETS: u64 = 2;
/// What waits there: as much as the longest path holds, and no less than this.
const HOST_QUEUE_MIN: Duration = Duration::from_millis(20);
const HOST_QUEUE_BYTES_MIN: u64 = 128 << 10;

impl Scenario {
    /// Bytes held when every link is full, in the worst state that the timelines bring.
    pub fn in_flight_bytes_max(&self) -> u64 {
        // Each link has its worst state whatever the others do, except that round trips through the core count the
        // longest of the others, which is the same for all.
        let links = 0..self.links.len();
        let bytes: f64 = links.map(|link| self.link_bytes_max(link)).sum();
        (bytes * COPIES) as u64
    }

    /// Bytes that fill a path for a round trip, in the worst state that the timelines bring: over links with a limit,
    /// and over those without.
    pub fn window_bytes_max(&self) -> [f64; 2] {
        let mut most = [0.0_f64; 2];
        for (index, link) in self.links.iter().enumerate() {
            for directions in states(link) {
                let round_trip = self.round_trip_of(index, &directions).as_secs_f64();
                for rate in directions.map(|direction| direction.bits_per_second) {
                    let bytes = rate.unwrap_or(UNLIMITED_BITS_PER_SECOND) as f64 / 8.0 * round_trip;
                    let kind = usize::from(rate.is_none());
                    most[kind] = most[kind].max(bytes);
                }
            }
        }
        most
    }

    /// Of the token bucket that holds an interface to a rate: what may leave at once, and that with what waits.
    pub fn bucket_bytes(&self, bits_per_second: u64) -> [u64; 2] {
        let bytes = |time: Duration| (bits_per_second as f64 / 8.0 * time.as_secs_f64()) as u64;
        let burst = bytes(BURST).max(BURST_PACKETS * (u64::from(self.mtu_bytes) + FRAMING_BYTES));
        let queue = bytes(HOST_QUEUE_MIN.max(self.round_trip_max())).max(HOST_QUEUE_BYTES_MIN);
        [burst, (burst + queue).min(u64::from(u32::MAX))]
    }

    /// What waits where hosts are held to rates of their own: at both ends of each of their cables.
    fn host_queues_bytes_max(&self) -> u64 {
        let of = |(index, site): (usize, &Site)| {
            let [_, bytes] = self.bucket_bytes(site.host_bits_per_second?);
            let links = self.links.iter().filter(|link| link.ends.contains(&End::Site(index))).count();
            Some(2 * u64::from(site.hosts) * links as u64 * bytes)
        };
        self.sites.iter().enumerate().filter_map(of).sum()
    }

    pub(super) fn check_memory(&self, memory_available_bytes: u64) -> Result<(), Error> {
        let needed = self.in_flight_bytes_max() + (self.host_queues_bytes_max() as f64 * COPIES) as u64;
        let usable = (memory_available_bytes as f64 * MEMORY_SHARE) as u64;
        if needed <= usable {
            return Ok(());
        }
        let problem = format!(
            "rate times delay, queues and sockets hold {}, and this host has {} free, of which half may be used; \
             lower a rate, a delay or a queue",
            ByteCount(needed),
            ByteCount(memory_available_bytes)
        );
        Err(Error::new(Kind::Memory, "memory", problem))
    }

    fn link_bytes_max(&self, index: usize) -> f64 {
        let bytes = |directions: &[Impairment; 2]| -> f64 {
            let round_trip = self.round_trip_of(index, directions);
            directions.iter().map(|direction| direction_bytes(direction, direction.queue_bytes(round_trip))).sum()
        };
        states(&self.links[index]).map(|directions| bytes(&directions)).fold(0.0, f64::max)
    }

    /// The longest over a link while its directions are these.
    fn round_trip_of(&self, index: usize, directions: &[Impairment; 2]) -> Duration {
        let beyond = self.round_trip_over(index) - self.links[index].round_trip();
        beyond + directions.iter().map(|direction| direction.delay).sum::<Duration>()
    }
}

/// The directions as they are, and after each event separately.
fn states(link: &Link) -> impl Iterator<Item = [Impairment; 2]> {
    std::iter::once(link.directions).chain(link.timeline.iter().map(|event| link.changed_by(event)))
}

fn direction_bytes(direction: &Impairment, queue_bytes: u64) -> f64 {
    let rate = direction.bits_per_second.unwrap_or(UNLIMITED_BITS_PER_SECOND);
    let queue_bytes = if direction.bits_per_second.is_some() { queue_bytes } else { 0 };
    rate as f64 / 8.0 * direction.delay.as_secs_f64() + queue_bytes as f64
}
