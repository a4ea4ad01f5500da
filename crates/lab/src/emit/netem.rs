//! What `tc` is told about the kernel's emulator and about the limiter in front of it.

use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::time::Duration;

use crate::scenario::quantity::show_duration;
use crate::scenario::{FRAMING_BYTES, Impairment};

/// What `tc` counts of the framing without being told: Ethernet's header. The rest is told to it as overhead.
pub(super) const OVERHEAD_BYTES: u64 = FRAMING_BYTES - 14;

/// What an unlimited direction is taken to carry, where a number of packets is needed.
const UNLIMITED_BITS_PER_SECOND: u64 = 40_000_000_000;

/// More than any interface: gives netem a rate, which makes it keep the order of packets, without limiting anything.
pub(super) const FASTEST_BITS_PER_SECOND: u64 = 1_000_000_000_000;

/// The default of `tc`, below which nothing is gained.
const LIMIT_PACKETS_MIN: u64 = 1000;
/// More packets than rate times delay fills, for segments smaller than the MTU.
const LIMIT_MARGIN: f64 = 1.5;

/// What follows `tc qdisc add dev X root` to make netem do everything of one direction in one queueing discipline.
///
/// The same words after `tc qdisc replace` change it: every property is named, so that none stays from before. Its
/// queue is a number of packets that includes those on the way; only for packets of the MTU is that the queue asked for.
/// The seed is left out where `tc` (before iproute2 6.6) does not take one.
pub fn netem_arguments(impairment: &Impairment, round_trip: Duration, mtu_bytes: u32, seed: u64) -> Vec<String> {
    let rate = impairment.bits_per_second;
    let mut arguments = arguments(impairment, rate, limit_packets(impairment, round_trip, mtu_bytes));
    if tc_takes_seed() {
        arguments.extend(["seed".into(), seed.to_string()]);
    }
    arguments
}

/// Without the seed. The rate is given apart: in scripts another hop limits.
pub(super) fn arguments(impairment: &Impairment, rate: Option<u64>, limit_packets: u64) -> Vec<String> {
    let mut words: Vec<String> = ["netem", "limit"].map(String::from).into();
    words.push(limit_packets.to_string());
    words.extend(["delay".into(), time(impairment.delay)]);
    let has_jitter = !impairment.jitter.is_zero();
    if has_jitter {
        words.extend([time(impairment.jitter), "distribution".into(), "normal".into()]);
    }
    words.push("loss".into());
    words.extend(loss(impairment));
    for (name, probability) in [("duplicate", impairment.duplicate), ("corrupt", impairment.corrupt)] {
        words.extend([name.into(), percent(probability)]);
    }
    // Without a rate, netem lets packets overtake each other whenever there is jitter.
    let in_order = (has_jitter && !impairment.reorder).then_some(FASTEST_BITS_PER_SECOND);
    words.extend(["rate".into(), format!("{}bit", rate.or(in_order).unwrap_or(0)), OVERHEAD_BYTES.to_string()]);
    words
}

/// Packets that may be on the way and in the queue.
pub(super) fn limit_packets(impairment: &Impairment, round_trip: Duration, mtu_bytes: u32) -> u64 {
    let rate = impairment.bits_per_second.unwrap_or(UNLIMITED_BITS_PER_SECOND) as f64;
    let delay = (impairment.delay + impairment.jitter).as_secs_f64();
    let on_the_way = (LIMIT_MARGIN * rate * delay / (8.0 * f64::from(mtu_bytes))).ceil() as u64;
    let waiting = match impairment.bits_per_second {
        Some(_) => impairment.queue_bytes(round_trip).div_ceil(u64::from(mtu_bytes) + FRAMING_BYTES),
        None => 0,
    };
    on_the_way.saturating_add(waiting).clamp(LIMIT_PACKETS_MIN, u32::MAX.into())
}

fn loss(impairment: &Impairment) -> Vec<String> {
    let (loss, burst) = (impairment.loss, impairment.loss_burst_segments);
    if impairment.down {
        return vec!["random".into(), percent(1.0)];
    }
    if loss == 0.0 || loss == 1.0 || burst <= 1.0 {
        return vec!["random".into(), percent(loss)];
    }
    // Two states, of which the bad one loses everything and lasts `burst` segments in the mean; the way into it is as
    // probable as makes the mean loss come out.
    let leave = 1.0 / burst;
    let enter = (leave * loss / (1.0 - loss)).min(1.0);
    vec!["gemodel".into(), percent(enter), percent(leave), percent(1.0), percent(0.0)]
}

fn time(duration: Duration) -> String {
    show_duration(duration)
}

/// Never with an exponent.
fn percent(probability: f64) -> String {
    format!("{}%", (probability * 1e12).round() / 1e10)
}

fn tc_takes_seed() -> bool {
    static TAKES_SEED: OnceLock<bool> = OnceLock::new();
    *TAKES_SEED.get_or_init(|| {
        let mut help = Command::new("tc");
        help.args(["qdisc", "add", "dev", "lo", "root", "netem", "help"]).stdin(Stdio::null());
        help.output().is_ok_and(|output| String::from_utf8_lossy(&output.stderr).contains("seed"))
    })
}
