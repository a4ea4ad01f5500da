//! Gates on the queue: what it delays under Reno (V8) and how much it holds (Q1).

use std::time::Duration;

use super::Finding;
use super::bench::{Bench, Load, gbit, percent};
use super::datagrams::Burst;
use super::statistics::goodput_bits_per_second;
use crate::error::Result;
use crate::flow::Flow;
use crate::probe::round_trips;
use crate::scenario::{Backend, FRAMING_BYTES, QueueLimit};

const DELAY_PERCENT_MAX: f64 = 5.0;
const UTILISATION_MIN: f64 = 0.95;
/// Reno takes a minute to refill a longer or faster path after its first loss.
const RATE_MAX: u64 = 1_000_000_000;
const QUICK_RATE_MAX: u64 = 200_000_000;

/// How many datagrams of the burst fit into the queue.
const PLACES: u64 = 93;
const PAYLOAD_BYTES: u64 = 1000;
/// IPv4 and UDP.
const HEADER_BYTES: u64 = 28;
const SLOW_RATE: u64 = 1_000_000;

pub fn drop_tail(bench: &mut Bench) -> Result<Finding> {
    let rate = bench.rate.min(if bench.is_quick() { QUICK_RATE_MAX } else { RATE_MAX });
    let lab = bench.clean(bench.round_trip, Some(rate))?;
    let queue_bytes = lab.scenario().links[0].directions[0].queue_bytes(bench.round_trip);
    let mut probe = Ok(Default::default());
    let flow =
        Flow { congestion_control: Some("reno".into()), ..Flow::lasting(bench.seconds(3.0, 8.0), Duration::ZERO) };
    // From the first moment: slow start overruns the queue, whatever comes later.
    let pings = bench.seconds(8.0, 12.0).max(bench.ramp(bench.round_trip)).as_millis() as usize / 10;
    let load = {
        let observe = || probe = round_trips(&lab, "a", "b", pings, Duration::from_millis(10));
        let received = flow.run(&lab, "a", "b", observe)?;
        let counts = lab.snapshot().and_then(|snapshot| snapshot.counts.first().copied()).unwrap_or_default();
        Load { received, counts, ..Load::default() }
    };
    let probe = probe?;
    let delay_ms = probe.max_us / 1e3 - bench.round_trip.as_secs_f64() * 1e3;
    let expected_ms = queue_bytes as f64 * 8.0 / rate as f64 * 1e3;
    let wanted = goodput_bits_per_second(rate, load.received.mss_bytes());
    let utilisation = load.received.bits_per_second() / wanted;
    let deviation = percent(delay_ms, expected_ms);
    // Over a short path the queue is shorter than what wakes-ups of the hosts add.
    let own_ms = crate::probe::OWN_SHARE.as_secs_f64() * 1e3;
    let is_delay_good = deviation.abs() <= DELAY_PERCENT_MAX || (delay_ms - expected_ms).abs() <= own_ms;
    Ok(Finding::new(
        is_delay_good && utilisation >= UTILISATION_MIN,
        format!("delay {delay_ms:.2} ms ({deviation:+.1} %), utilisation {:.1} %", 100.0 * utilisation),
        format!("{expected_ms:.2} ms, 100 %"),
        format!("{DELAY_PERCENT_MAX} %; >= {:.0} %", 100.0 * UTILISATION_MIN),
    )
    .with(vec![format!(
        "{} and a queue of {queue_bytes} bytes, at most {} held; {} packets found it full; {} pings of {} answered; {}",
        gbit(rate as f64),
        load.counts.queue_bytes_max,
        load.counts.queue_drops,
        probe.received,
        probe.sent,
        load.line()
    )]))
}

/// Sends more at once than the queue holds over a wire so slow that hardly anything leaves meanwhile.
pub fn limit(bench: &mut Bench) -> Result<Finding> {
    let wire_bytes = PAYLOAD_BYTES + HEADER_BYTES + FRAMING_BYTES;
    let queue_bytes = PLACES * wire_bytes + 20;
    let mut scenario = bench.scenario(Duration::from_millis(2), Some(SLOW_RATE));
    for direction in &mut scenario.links[0].directions {
        direction.queue = QueueLimit::Bytes(queue_bytes);
    }
    let lab = bench.up(scenario)?;
    if lab.choice().is_some_and(|choice| choice.backend == Backend::Netem) {
        return Ok(Finding::not_applicable("the queue of netem counts packets, not bytes"));
    }
    // Neighbours are found, so that the burst does not wait for it.
    round_trips(&lab, "a", "b", 3, Duration::from_millis(10))?;
    let burst = Burst { count: 2 * PLACES as usize, bytes: PAYLOAD_BYTES as usize, per_second: None };
    let drain = Duration::from_secs_f64(queue_bytes as f64 * 8.0 / SLOW_RATE as f64);
    let arrivals = burst.send(&lab, "a", "b", drain)?;
    let counts = lab.snapshot().and_then(|snapshot| snapshot.counts.first().copied()).unwrap_or_default();
    let arrived = arrivals.arrived.iter().filter(|arrived| **arrived).count() as u64;
    let left_meanwhile = arrivals.sending.as_secs_f64() * SLOW_RATE as f64 / 8.0;
    let most = (queue_bytes as f64 + left_meanwhile) as u64 / wire_bytes;
    let is_tail = arrivals.arrived.iter().take(PLACES as usize).all(|arrived| *arrived);
    let held = counts.queue_bytes_max;
    let is_held_exactly = held <= queue_bytes && held + wire_bytes > queue_bytes;
    Ok(Finding::new(
        is_tail && (PLACES..=most).contains(&arrived) && is_held_exactly,
        format!("{arrived} of {} datagrams arrived, {held} bytes held", burst.count),
        format!("the first {PLACES}, at most {queue_bytes} bytes"),
        format!("exact ({} more may leave while the burst is sent); within one packet of the limit", most - PLACES),
    )
    .with(vec![format!(
        "burst sent in {:.2} ms, {} found the queue full",
        arrivals.sending.as_secs_f64() * 1e3,
        counts.queue_drops
    )]))
}
