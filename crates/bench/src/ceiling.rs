//! Whether a measured rate can be true: more than the link carries is an error of measurement, whoever measured it.
//!
//! Invariant: what is told void here counts nowhere. Not here: what binds below the link's rate (`roof`).

use lab::Lab;
use lab::scenario::quantity::parse_rate;
use lab::scenario::{End, Scenario};

use crate::sample::{Sample, State};

/// What the links allow between the first and the last site, Ethernet framing included; none: no limit.
pub fn link_bits_per_second(scenario: &Scenario) -> Option<u64> {
    let last = scenario.sites.len().saturating_sub(1);
    // Whatever way the path takes, it leaves the one site and enters the other.
    let at = |site: usize| -> Option<u64> {
        let links = scenario.links.iter().filter(|link| link.ends.contains(&End::Site(site)));
        links.map(|link| link.directions.iter().map(|way| way.bits_per_second).max_by_key(unlimited_last)?).sum()
    };
    [at(0), at(last)].into_iter().flatten().filter(|bits| *bits > 0).min()
}

fn unlimited_last(bits: &Option<u64>) -> u64 {
    bits.unwrap_or(u64::MAX)
}

/// What a condition of a sweep says of its link.
pub fn link_of_condition(condition: &str) -> Option<u64> {
    let rate = condition.split(' ').find_map(|part| part.strip_prefix("rate="))?;
    parse_rate(rate).ok().flatten()
}

/// Why this rate cannot be.
pub fn above(bits_per_second: f64, link_bits_per_second: Option<u64>) -> Option<String> {
    let link = link_bits_per_second? as f64;
    (bits_per_second > link).then(|| {
        let (rate, link) = (bits_per_second / 1e9, link / 1e9);
        format!("{rate:.3} Gbit/s are more than the {link:.3} Gbit/s of the link: an error of measurement")
    })
}

/// Makes a sample void whose content came faster than the link carries. What was compressed on its way counts as it was sent.
pub fn judge(sample: &mut Sample, lab: Option<&Lab>) {
    let link = lab.and_then(|lab| link_bits_per_second(lab.scenario()));
    judge_at(sample, link);
}

fn judge_at(sample: &mut Sample, link: Option<u64>) {
    let bytes = sample.network.map_or(sample.bytes, |network| network.sent_bytes.min(sample.bytes));
    if sample.state == State::Failed || sample.seconds <= 0.0 {
        return;
    }
    if let Some(reason) = above(bytes as f64 * 8.0 / sample.seconds, link) {
        sample.state = State::Void;
        sample.note = if sample.note.is_empty() { reason } else { format!("{reason}; {}", sample.note) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::NetworkUse;
    use crate::statistics::tests::sample;

    const GBIT: u64 = 1_000_000_000;

    #[test]
    fn content_that_came_faster_than_the_link_carries_is_void_with_the_reason() {
        // 1 GB in 6.5 s over 1 Gbit/s, as flows with a large receive queue have been counted.
        let mut fast = sample("flow", 1, 6.5);
        judge_at(&mut fast, Some(GBIT));
        assert_eq!(fast.state, State::Void);
        assert!(fast.note.starts_with("1.231 Gbit/s are more than the 1.000 Gbit/s of the link"), "{}", fast.note);
        for (seconds, link) in [(8.1, Some(GBIT)), (6.5, None)] {
            let mut sound = sample("flow", 1, seconds);
            judge_at(&mut sound, link);
            assert_eq!((sound.state, sound.note.as_str()), (State::Counted, ""));
        }
        // Compressed: less went over the link than arrived.
        let mut packed = sample("thalweg", 1, 4.0);
        packed.network = Some(NetworkUse { sent_bytes: 300_000_000, ..NetworkUse::default() });
        judge_at(&mut packed, Some(GBIT));
        assert_eq!(packed.state, State::Counted);
    }

    #[test]
    fn the_link_of_a_laboratory_and_of_a_condition_is_found() {
        let mut scenario = Scenario::preset("continent").unwrap();
        for (way, bits) in scenario.links[0].directions.iter_mut().zip([3 * GBIT, GBIT]) {
            way.bits_per_second = Some(bits);
        }
        assert_eq!(link_bits_per_second(&scenario), Some(3 * GBIT));
        scenario.links[0].directions[0].bits_per_second = None;
        assert_eq!(link_bits_per_second(&scenario), None);
        assert_eq!(link_of_condition("rate=2Gbit rtt=20ms loss=0"), Some(2 * GBIT));
        assert_eq!(link_of_condition("rate=unlimited rtt=0s"), None);
        assert_eq!(link_of_condition(""), None);
    }
}
