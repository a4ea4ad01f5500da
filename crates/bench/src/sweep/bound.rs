//! The time that a path leaves to a copy, which its time is held against.
//!
//! `bytes / rate of the link + ramp + 3 round trips`. The ramp is slow start: each stream begins with ten segments and
//! doubles what is under way in every round trip, until all streams together have a bandwidth-delay product under way,
//! or all was sent. In n round trips `streams x 10 segments x (2^n - 1)` leave; the link would have carried as much in
//! one of them, so the ramp is `RTT x (log2(1 + product / (streams x 10 segments)) - 1)`, as in `plan`. The three round
//! trips are for what comes before the first byte and after the last.
//!
//! What files, losses and processors cost is no part of it.

use lab::scenario::quantity::parse_duration;

use crate::ceiling::link_of_condition;

/// What a copy may take, in bounds.
pub const OF_BOUND_MAX: f64 = 1.10;
const ROUND_TRIPS: f64 = 3.0;
/// At the laboratory's MTU of 9000, with time stamps (RFC 6928 for the ten segments).
const FIRST_WINDOW_BYTES: f64 = 10.0 * 8948.0;
/// Of a copy that chooses itself: with so many it begins over distance at least.
const STREAMS_ASSUMED: f64 = 4.0;

/// For so many bytes, those of all clients, by the text of a condition; none where its link has no rate.
pub fn seconds(condition: &str, bytes: u64) -> Option<f64> {
    let word = |key: &str| condition.split(' ').find_map(|word| word.strip_prefix(key));
    let link = link_of_condition(condition)? as f64 / 8.0;
    let rtt = parse_duration(word("rtt=")?).ok()?.as_secs_f64();
    let number = |key: &str| word(key).and_then(|text| text.parse::<f64>().ok());
    let streams = number("streams=").unwrap_or(STREAMS_ASSUMED) * number("clients=").unwrap_or(1.0);
    let bytes = bytes as f64;
    let windows = (link * rtt).min(bytes) / (streams * FIRST_WINDOW_BYTES);
    let ramp = rtt * ((1.0 + windows).log2() - 1.0).max(0.0);
    Some(bytes / link + ramp + ROUND_TRIPS * rtt)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bound_is_the_links_time_the_ramp_and_three_round_trips() {
        let of = |condition: &str, bytes| seconds(condition, bytes).unwrap();
        let path = "rate=1Gbit rtt=74ms loss=0 cc=cubic streams=";
        // 4.000 + 0.236 + 0.222 s (docs/decisions/040).
        assert!((of(&format!("{path}6"), 500_000_000) - 4.458).abs() < 0.001);
        assert_eq!(of(&format!("{path}auto"), 500_000_000), of(&format!("{path}4 hosts=stock pairs"), 500_000_000));
        assert_eq!(of(&format!("{path}8"), 1 << 30), of(&format!("{path}2 clients=4"), 1 << 30));
        // What fits into the first windows has no ramp.
        assert!((of(&format!("{path}4"), 100_000) - 0.2228).abs() < 1e-6);
        assert_eq!(seconds("rate=unlimited rtt=74ms loss=0 cc=cubic streams=4", 1), None);
    }
}
