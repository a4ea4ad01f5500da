//! What a laboratory did, and whether to believe figures taken in it.
//!
//! Invariant: a run in which the emulator was late or was itself the limit is void, and says so.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::laboratory::Lab;
use crate::probe::RoundTrips;
use crate::scenario::quantity::{show_duration, show_probability, show_queue, show_rate};
use crate::scenario::{End, HostSettings, Impairment, Link, Scenario};
use emulator::Snapshot;
use emulator::channel::Counts;

/// Later than this at the 99.9th percentile on paths up to 16 ms, congestion control may react to the emulator
/// (`lateness_max_us` has the longer ones).
pub const LATENESS_P999_MAX_US: f64 = 1000.0;
/// Fewer releases than this say nothing about a 99.9th percentile: then it is the greatest that they have.
const LATENESS_SAMPLES_MIN: u64 = 1000;
/// Of fewer, one that is late by chance is too many.
const LATENESS_FEW_MIN: u64 = 100;
/// Of what the busiest link carried. One that carried less had no content, only words about it.
const CONTENT_SHARE_MIN: f64 = 0.01;
/// Of one processor: a thread that is busier delays packets whatever its priority.
const CPU_SHARE_MAX: f64 = 0.95;

/// Everything is since the laboratory's start.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Record {
    pub name: String,
    pub token: String,
    pub holder_pid: u32,
    pub seed: u64,
    pub backend: String,
    pub backend_reason: String,
    pub host_settings: String,
    pub congestion_control: String,
    pub mtu_bytes: u32,
    pub seconds: f64,
    pub machine: Machine,
    pub hosts: Vec<HostRecord>,
    pub links: Vec<DirectionRecord>,
    pub round_trips: Vec<RoundTrips>,
    pub lateness: LatenessRecord,
    /// Packets lost because the emulator did not keep up.
    pub overruns: u64,
    pub emulator_cpu_seconds: f64,
    /// Of one processor, on average.
    pub emulator_cpu_share: f64,
    /// Of one processor, of the busiest thread in its busiest second.
    pub emulator_cpu_share_max: f64,
    /// Why figures of this run must not be used; empty: they may.
    pub void: Vec<String>,
}

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Machine {
    pub kernel: String,
    pub processors: usize,
    pub processor: String,
}

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct HostRecord {
    pub name: String,
    pub namespace: String,
    pub addresses: Vec<String>,
    /// Of one processor, where it has a quota.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub processor_percent: Option<u32>,
    /// What it may send, and receive, where it has a rate of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bits_per_second: Option<u64>,
}

/// One direction of a link.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct DirectionRecord {
    pub link: String,
    pub from: String,
    pub to: String,
    /// As it is now, in words.
    pub settings: String,
    pub counts: Counts,
    /// Of the wire, in the best second.
    pub bits_per_second_max: f64,
}

/// How late packets were released; all zero with the netem back end, which does not say.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct LatenessRecord {
    pub samples: u64,
    pub mean_us: f64,
    pub p50_us: f64,
    pub p99_us: f64,
    pub p999_us: f64,
    pub max_us: f64,
    /// (upper edge in nanoseconds, count)
    pub buckets: Vec<(u64, u64)>,
}

impl Record {
    pub fn of(lab: &Lab, round_trips: Vec<RoundTrips>) -> Record {
        let scenario = lab.scenario();
        let snapshot = lab.snapshot().unwrap_or_default();
        let seconds = lab.started.elapsed().as_secs_f64();
        let lateness = &snapshot.lateness;
        let us = |share| lateness.quantile_ns(share) as f64 / 1e3;
        let lateness = LatenessRecord {
            samples: lateness.samples,
            mean_us: lateness.sum_ns as f64 / 1e3 / lateness.samples.max(1) as f64,
            p50_us: us(0.5),
            p99_us: us(0.99),
            p999_us: us(0.999),
            max_us: lateness.max_ns as f64 / 1e3,
            buckets: lateness.buckets().collect(),
        };
        let nothing = match lab.topology().is_cable {
            true => "the hosts share a cable",
            false => "the links do nothing, and the kernel holds hosts to rates of their own",
        };
        let mut record = Record {
            name: scenario.name.clone(),
            token: lab.lease().token.clone(),
            holder_pid: lab.lease().pid(),
            seed: scenario.seed,
            backend: lab.choice().map_or("none", |choice| choice.backend.name()).into(),
            backend_reason: lab.choice().map_or(nothing, |choice| &choice.reason).into(),
            host_settings: if scenario.host_settings == HostSettings::Stock { "stock" } else { "tuned" }.into(),
            congestion_control: scenario.congestion_control.clone(),
            mtu_bytes: scenario.mtu_bytes,
            seconds,
            machine: Machine::this(),
            hosts: hosts(lab),
            links: directions(lab, &snapshot.counts),
            round_trips,
            lateness,
            overruns: snapshot.overruns,
            emulator_cpu_seconds: snapshot.cpu_seconds,
            emulator_cpu_share: snapshot.cpu_seconds / seconds.max(1e-9),
            emulator_cpu_share_max: lab.peak_cpu_share(),
            void: Vec::new(),
        };
        record.void = reasons_to_void(scenario, &Snapshot::default(), &snapshot);
        record.void.extend(record.more_reasons());
        record
    }

    fn more_reasons(&self) -> Vec<String> {
        let mut reasons = Vec::new();
        if self.emulator_cpu_share_max > CPU_SHARE_MAX {
            let percent = 100.0 * self.emulator_cpu_share_max;
            reasons.push(format!("the emulator used {percent:.0} % of a processor for a second: it was the limit"));
        }
        for probe in self.round_trips.iter().filter(|probe| !probe.is_as_expected()) {
            reasons.push(format!(
                "the round trip from {} to {} was {:.2} ms instead of {:.2}",
                probe.from,
                probe.to,
                probe.median_us / 1e3,
                probe.expected_us / 1e3
            ));
        }
        reasons
    }
}

impl Machine {
    pub fn this() -> Machine {
        let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let model =
            info.lines().find_map(|line| line.strip_prefix("model name")).and_then(|rest| rest.split(": ").nth(1));
        Machine {
            kernel: rustix::system::uname().release().to_string_lossy().into_owned(),
            processors: std::thread::available_parallelism().map_or(1, usize::from),
            processor: model.unwrap_or("unknown").trim().to_owned(),
        }
    }
}

fn hosts(lab: &Lab) -> Vec<HostRecord> {
    let host = |host: &crate::topology::Host| HostRecord {
        name: host.name.clone(),
        namespace: lab.lease().namespace(&host.name),
        addresses: host.interfaces.iter().map(|interface| interface.v4.to_string()).collect(),
        processor_percent: lab.scenario().sites[host.site].processor_percent,
        bits_per_second: lab.scenario().sites[host.site].host_bits_per_second,
    };
    lab.topology().hosts.iter().map(host).collect()
}

fn directions(lab: &Lab, counts: &[Counts]) -> Vec<DirectionRecord> {
    let (scenario, peaks) = (lab.scenario(), lab.peak_bytes_per_second());
    let mut directions = Vec::new();
    for (index, (link, now)) in scenario.links.iter().zip(lab.links_now()).enumerate() {
        for (direction, impairment) in now.iter().enumerate() {
            let channel = 2 * index + direction;
            directions.push(DirectionRecord {
                link: link.name.clone(),
                from: end_name(scenario, link.ends[direction]),
                to: end_name(scenario, link.ends[1 - direction]),
                settings: describe(impairment),
                counts: counts.get(channel).copied().unwrap_or_default(),
                bits_per_second_max: peaks.get(channel).copied().unwrap_or(0.0) * 8.0,
            });
        }
    }
    directions
}

fn end_name(scenario: &Scenario, end: End) -> String {
    match end {
        End::Site(site) => scenario.sites[site].name.clone(),
        End::Core => "core".into(),
    }
}

/// Half of the rise that HyStart takes for a queue: an eighth of the round trip, 16 ms at the most (`HYSTART_DELAY_THRESH` in
/// Linux' tcp_cubic.c); see docs/decisions/059.
pub fn lateness_max_us(round_trip: Duration) -> f64 {
    (round_trip.as_secs_f64() * 1e6 / 16.0).clamp(LATENESS_P999_MAX_US, 8.0 * LATENESS_P999_MAX_US)
}

/// Of the shortest path on which content went: one link, in a star with the shortest other one that had content too.
fn shortest_round_trip(scenario: &Scenario, before: &Snapshot, after: &Snapshot) -> Duration {
    let carried = |link: usize| -> u64 {
        let of = |at: &Snapshot| at.counts.iter().skip(2 * link).take(2).map(|counts| counts.wire_bytes).sum::<u64>();
        of(after).saturating_sub(of(before))
    };
    let most = (0..scenario.links.len()).map(carried).max().unwrap_or(0);
    let used: Vec<&Link> = scenario
        .links
        .iter()
        .enumerate()
        .filter(|(link, _)| carried(*link) as f64 >= CONTENT_SHARE_MIN * most as f64)
        .map(|(_, link)| link)
        .collect();
    let is_of_star = |link: &&&Link| link.ends.contains(&End::Core);
    let mut star: Vec<Duration> = used.iter().filter(is_of_star).map(|link| link.round_trip()).collect();
    star.sort_unstable();
    let direct = used.iter().filter(|link| !is_of_star(link)).map(|link| link.round_trip());
    let across = (!star.is_empty()).then(|| star.iter().take(2).sum::<Duration>());
    direct.chain(across).min().unwrap_or_default()
}

/// Why what happened between two states of an emulator says more about the emulator than about the links.
pub fn reasons_to_void(scenario: &Scenario, before: &Snapshot, after: &Snapshot) -> Vec<String> {
    let mut reasons: Vec<String> = after.failure.iter().cloned().collect();
    let late = after.lateness.since(&before.lateness);
    // One of a few may always be late: the next to it counts.
    let (share, percent) = match late.samples {
        0..LATENESS_SAMPLES_MIN => {
            let count = late.samples.max(2) as f64;
            ((count - 1.5) / count, 100.0 * (1.0 - 1.0 / count))
        }
        _ => (0.999, 99.9),
    };
    let max_ms = lateness_max_us(shortest_round_trip(scenario, before, after)) / 1e3;
    let late_ms = late.quantile_ns(share) as f64 / 1e6;
    if late.samples >= LATENESS_FEW_MIN && late_ms > max_ms {
        let at_most = format!("({max_ms:.1} ms at most)");
        reasons.push(format!("packets were late by {late_ms:.1} ms at the {percent:.1}th percentile {at_most}"));
    }
    let overruns = after.overruns.saturating_sub(before.overruns);
    if overruns > 0 {
        reasons.push(format!("{overruns} packets were lost because the emulator did not keep up"));
    }
    let busy = cpu_share(before, after);
    if busy > CPU_SHARE_MAX {
        reasons.push(format!("the emulator used {:.0} % of a processor: it was the limit", 100.0 * busy));
    }
    reasons
}

/// The same of what happened since `before` until now; nothing where no link is emulated.
pub fn reasons_since(lab: &Lab, before: Option<&Snapshot>) -> Vec<String> {
    let states = before.zip(lab.snapshot());
    states.map(|(before, after)| reasons_to_void(lab.scenario(), before, &after)).unwrap_or_default()
}

/// Of one processor, of the emulator's busiest thread between two states.
fn cpu_share(before: &Snapshot, after: &Snapshot) -> f64 {
    let seconds = after.at_ns.saturating_sub(before.at_ns) as f64 / 1e9;
    let then = before.cpu_seconds_by_thread.iter().copied().chain(std::iter::repeat(0.0));
    let busiest = after.cpu_seconds_by_thread.iter().zip(then).map(|(now, then)| now - then).fold(0.0, f64::max);
    if seconds > 0.0 { busiest / seconds } else { 0.0 }
}

/// What one direction does, such as `37ms 10Gbit queue 1bdp loss 0.01%`.
pub fn describe(impairment: &Impairment) -> String {
    let mut words = vec![show_duration(impairment.delay), show_rate(impairment.bits_per_second)];
    if impairment.bits_per_second.is_some() {
        words.push(format!("queue {}", show_queue(impairment.queue)));
    }
    if !impairment.jitter.is_zero() {
        let overtaking = if impairment.reorder { " reordering" } else { "" };
        words.push(format!("jitter {}{overtaking}", show_duration(impairment.jitter)));
    }
    let burst = impairment.loss_burst_segments;
    let in_bursts = if burst > 1.0 { format!(" in bursts of {burst}") } else { String::new() };
    for (name, probability, tail) in [
        ("loss", impairment.loss, in_bursts.as_str()),
        ("duplicate", impairment.duplicate, ""),
        ("corrupt", impairment.corrupt, ""),
    ] {
        if probability > 0.0 {
            words.push(format!("{name} {}{tail}", show_probability(probability)));
        }
    }
    if impairment.down {
        words.push("DOWN".into());
    }
    words.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of two threads, the second of which has used so much; `late_ms` of each release.
    fn state(seconds: u64, cpu_seconds: f64, late_ms: &[u64]) -> Snapshot {
        let cpu_seconds_by_thread = vec![0.5, cpu_seconds];
        let mut state = Snapshot { at_ns: seconds * 1_000_000_000, cpu_seconds_by_thread, ..Snapshot::default() };
        late_ms.iter().for_each(|ms| state.lateness.add(ms * 1_000_000));
        state
    }

    #[test]
    fn a_run_in_which_a_thread_of_the_emulator_was_busy_all_the_time_is_void() {
        let scenario = Scenario::preset("continent").unwrap();
        let before = state(10, 5.0, &[]);
        assert_eq!(reasons_to_void(&scenario, &before, &state(20, 14.4, &[])), Vec::<String>::new());
        let found = reasons_to_void(&scenario, &before, &state(20, 14.6, &[]));
        assert_eq!(found, ["the emulator used 96 % of a processor: it was the limit"]);
        // Without a clock nothing is said.
        assert!(reasons_to_void(&scenario, &state(0, 0.0, &[]), &state(0, 9.0, &[])).is_empty());
    }

    #[test]
    fn lateness_is_held_against_the_shortest_path_on_which_content_went() {
        let link = |site: &str, ms: u32| {
            let head = format!("[site.{site}]\n[link.to-{site}]\nbetween = [\"{site}\", \"core\"]\n");
            format!("{head}rtt = \"{ms}ms\"\nrate = \"1Gbit\"\n")
        };
        let star = Scenario::from_toml(&[link("a", 37), link("b", 37), link("office", 2)].concat()).unwrap();
        let max_us = |scenario: &Scenario, carried: &[u64]| {
            let both = carried.iter().flat_map(|bytes| [*bytes, 0]);
            let counts = both.map(|wire_bytes| Counts { wire_bytes, ..Counts::default() }).collect();
            let after = Snapshot { counts, ..Snapshot::default() };
            lateness_max_us(shortest_round_trip(scenario, &Snapshot::default(), &after))
        };
        assert_eq!(max_us(&star, &[1000, 1000, 9]), 4625.0, "a sixteenth of 74 ms");
        assert_eq!(max_us(&star, &[1000, 1000, 10]), 39_000.0 / 16.0, "the office has content");
        // Where nothing is known, every link counts.
        assert_eq!(max_us(&star, &[]), 39_000.0 / 16.0);
        assert_eq!(max_us(&Scenario::preset("continent").unwrap(), &[1000]), 4625.0);
    }

    #[test]
    fn a_run_of_few_packets_is_judged_by_the_greatest_quantile_that_they_have() {
        let scenario = Scenario::preset("continent").unwrap();
        let of = |count: usize, late: usize| {
            let late_ms: Vec<u64> = (0..count).map(|packet| if packet < late { 50 } else { 0 }).collect();
            reasons_to_void(&scenario, &Snapshot::default(), &state(10, 0.0, &late_ms))
        };
        assert!(of(99, 99).is_empty(), "they are too few");
        assert!(of(200, 1).is_empty(), "one may always be late");
        let found = of(200, 2);
        assert!(found.len() == 1 && found[0].contains("at the 99.5th percentile"), "{found:?}");
        assert!(of(3000, 2).is_empty());
        assert!(of(3000, 4)[0].contains("at the 99.9th percentile"));
    }
}
