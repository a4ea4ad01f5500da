//! The laboratories that gates measure in: two sites and one link, clean but for what the gate is about.

use std::time::Duration;

use crate::backend::choose;
use crate::error::Result;
use crate::flow::{Flow, Received};
use crate::laboratory::Lab;
use crate::scenario::{Backend, End, HostSettings, Impairment, Link, Scenario, Site};
use crate::validate::Depth;
use crate::validate::disturbance::{Disturbance, Watch};
use emulator::Snapshot;
use emulator::channel::Counts;
use emulator::lateness::Lateness;

/// Of what is touched before a flow.
const WARM_BYTES_MAX: u64 = 2 << 30;
/// Of a scenario that limits nothing.
const RATE_DEFAULT: u64 = 10_000_000_000;

pub struct Bench {
    given: Scenario,
    pub depth: Depth,
    /// Of the longest path over the first link.
    pub round_trip: Duration,
    /// In bits of the wire per second, of the first link's first direction.
    pub rate: u64,
    /// Makes the laboratories other than the gates expect, to see that they notice.
    #[cfg(test)]
    pub fault: Option<fn(&mut Scenario)>,
    /// What the gate that is running used so far.
    pub backends: Vec<String>,
    /// Under the load of the scenario's own rate: one gate measures it, others look at it too.
    pub loaded: Vec<Load>,
    /// While what the running gate looks at was measured in another's name.
    pub disturbed_earlier: Disturbance,
}

/// A flow and what the emulator did during its counted part.
#[derive(Clone, Debug, Default)]
pub struct Load {
    /// Of the link, in words.
    pub of: String,
    pub backend: String,
    pub received: Received,
    pub lateness: Lateness,
    /// Of the direction in which the data went.
    pub counts: Counts,
    pub cpu_seconds: f64,
    /// Packets that the emulator itself lost, because it was full.
    pub overruns: u64,
    pub disturbed: Disturbance,
}

impl Bench {
    pub fn new(given: &Scenario, depth: Depth) -> Bench {
        let first = given.links.first();
        let rate = first.and_then(|link| link.directions[0].bits_per_second).unwrap_or(RATE_DEFAULT);
        let round_trip = if given.links.is_empty() { Duration::ZERO } else { given.round_trip_over(0) };
        Bench {
            given: given.clone(),
            depth,
            round_trip,
            rate,
            #[cfg(test)]
            fault: None,
            backends: Vec::new(),
            loaded: Vec::new(),
            disturbed_earlier: Disturbance::default(),
        }
    }

    /// A scenario of sites `a` and `b`, with a queue of one bandwidth-delay product.
    pub fn scenario(&self, round_trip: Duration, rate: Option<u64>) -> Scenario {
        let direction = Impairment { delay: round_trip / 2, bits_per_second: rate, ..Impairment::default() };
        let ends = [End::Site(0), End::Site(1)];
        let site =
            |name: &str| Site { name: name.into(), hosts: 1, processor_percent: None, host_bits_per_second: None };
        Scenario {
            name: "validate".into(),
            host_settings: HostSettings::Tuned,
            congestion_control: "cubic".into(),
            sites: vec![site("a"), site("b")],
            links: vec![Link { name: "wan".into(), ends, directions: [direction; 2], timeline: Vec::new() }],
            ..self.given.clone()
        }
    }

    pub fn up(&mut self, scenario: Scenario) -> Result<Lab> {
        #[cfg(test)]
        let scenario = {
            let mut scenario = scenario;
            self.fault.inspect(|fault| fault(&mut scenario));
            scenario
        };
        let lab = Lab::up(scenario)?;
        let name = backend(&lab);
        if !self.backends.contains(&name) {
            self.backends.push(name);
        }
        Ok(lab)
    }

    pub fn clean(&mut self, round_trip: Duration, rate: Option<u64>) -> Result<Lab> {
        let scenario = self.scenario(round_trip, rate);
        self.up(scenario)
    }

    /// The same on the back end that loses single segments, if there is one and no other was asked for.
    pub fn per_segment(&self, scenario: Scenario) -> Scenario {
        let exact = Scenario { backend: Some(Backend::Tun), ..scenario.clone() };
        if self.given.backend.is_none() && choose(&exact).is_ok() { exact } else { scenario }
    }

    pub fn is_quick(&self) -> bool {
        self.depth == Depth::Quick
    }

    /// Of that depth.
    pub fn seconds(&self, quick: f64, full: f64) -> Duration {
        Duration::from_secs_f64(if self.is_quick() { quick } else { full })
    }

    /// Until a flow over that path is steady: three seconds, or forty round trips where they take longer.
    pub fn ramp(&self, round_trip: Duration) -> Duration {
        Duration::from_secs(3).max(round_trip * 40)
    }
}

impl Load {
    /// Runs a flow from `a` to `b`.
    pub fn run(lab: &Lab, flow: &Flow) -> Result<Load> {
        warm_memory(lab.scenario().in_flight_bytes_max());
        let (mut before, watch) = (Snapshot::default(), Watch::start());
        let received = flow.run(lab, "a", "b", || before = lab.snapshot().unwrap_or_default())?;
        let after = lab.snapshot().unwrap_or_default();
        let counts = |snapshot: &Snapshot| snapshot.counts.first().copied().unwrap_or_default();
        let direction = &lab.links_now()[0][0];
        Ok(Load {
            of: format!("{}, {} streams", crate::record::describe(direction), flow.streams),
            backend: backend(lab),
            received,
            lateness: after.lateness.since(&before.lateness),
            counts: difference(counts(&after), counts(&before)),
            cpu_seconds: after.cpu_seconds - before.cpu_seconds,
            overruns: after.overruns.saturating_sub(before.overruns),
            disturbed: watch.end(),
        })
    }

    /// (p50, p99, p99.9) in microseconds.
    pub fn lateness_us(&self) -> (f64, f64, f64) {
        let us = |share| self.lateness.quantile_ns(share) as f64 / 1e3;
        (us(0.5), us(0.99), us(0.999))
    }

    pub fn cpu_seconds_per_gigabyte(&self) -> f64 {
        self.cpu_seconds / (self.received.bytes as f64 / 1e9).max(1e-9)
    }

    pub fn line(&self) -> String {
        let (p50, p99, p999) = self.lateness_us();
        let windows = &self.received.windows_bits_per_second;
        let (low, high) =
            (windows.iter().copied().fold(f64::MAX, f64::min), windows.iter().copied().fold(0.0, f64::max));
        let stream = self.received.streams.first().cloned().unwrap_or_default();
        format!(
            "{}: {} (half seconds {} to {}), MSS {}, min RTT {:.2} ms, {} retransmitted, {} found the queue full, {} the emulator, lateness p50 {p50:.0} \
             p99 {p99:.0} p99.9 {p999:.0} us, emulator {:.2} CPU s/GB",
            self.of,
            gbit(self.received.bits_per_second()),
            gbit(low),
            gbit(high),
            stream.mss_bytes,
            f64::from(stream.rtt_us_min) / 1e3,
            self.received.retransmitted_segments(),
            self.counts.queue_drops,
            self.overruns,
            self.cpu_seconds_per_gigabyte(),
        )
    }
}

/// Touches memory that the packets in flight will use, and frees it. A virtual machine may have given it back to its host,
/// and stands still for tens of milliseconds when it has to fetch it again.
fn warm_memory(bytes: u64) {
    const PAGE_BYTES: usize = 4096;
    let mut memory = vec![0_u8; bytes.min(WARM_BYTES_MAX) as usize];
    memory.iter_mut().step_by(PAGE_BYTES).for_each(|byte| *byte = 1);
    std::hint::black_box(&memory);
}

pub fn backend(lab: &Lab) -> String {
    lab.choice().map_or("none", |choice| choice.backend.name()).to_owned()
}

pub fn gbit(bits_per_second: f64) -> String {
    match bits_per_second {
        rate if rate < 1e9 => format!("{:.2} Mbit/s", rate / 1e6),
        rate => format!("{:.3} Gbit/s", rate / 1e9),
    }
}

pub fn percent(measured: f64, expected: f64) -> f64 {
    100.0 * (measured / expected - 1.0)
}

/// The largest queue is a state, not a count: it stays that of the whole run.
fn difference(now: Counts, then: Counts) -> Counts {
    Counts {
        packets: now.packets - then.packets,
        segments: now.segments - then.segments,
        wire_bytes: now.wire_bytes - then.wire_bytes,
        wire_bytes_delivered: now.wire_bytes_delivered - then.wire_bytes_delivered,
        lost_asked: now.lost_asked - then.lost_asked,
        lost_made: now.lost_made - then.lost_made,
        queue_drops: now.queue_drops - then.queue_drops,
        ..now
    }
}
