//! What tuning costs where nothing happens: copies over a cable with their streams tuned, and as many fixed, in turn.
//!
//! Nothing is tried where processors are the limit, as they are here: what is left is watching. A fixed number of
//! streams is what turns tuning off.

use std::fs;
use std::path::Path;

use plan::Log;
use serde_json::json;

use super::super::context::Context;
use super::super::judge::{Check, Verdict, median, shown};
use super::stand::{Job, OVERHEAD_SECONDS, Raw, Stand, Used};
use crate::error::{Error, Kind, Result};
use crate::statistics::Interval;
use crate::sweep::Condition;

/// Of one copy: more than a hundred times what the kernel's clock of processor time resolves.
const MIB: u64 = 4096;
/// What one copy takes with two processors.
const COPY_SECONDS: f64 = 1.0;
/// The pairs of one machine with two processors differed by 4 % (standard deviation): 21 of them tell the median to 2 %, and some 300
/// would tell whether it is below 1 %.
const PAIRS_OF_ROUND: u32 = 7;
const PERCENT_MAX: f64 = 1.0;

pub fn seconds_of_round() -> f64 {
    2.0 * f64::from(PAIRS_OF_ROUND) * (COPY_SECONDS + OVERHEAD_SECONDS)
}

/// A tuned copy, and one with a fixed number of streams.
struct Pair {
    tuned: Used,
    fixed: Used,
}

pub fn run(context: &mut Context, rounds: u32, raw: &mut Raw) -> Result<()> {
    let mut pairs = Vec::new();
    let ended = measure(context, rounds, raw, &mut pairs);
    // What was measured is judged, whatever ended the rest.
    context.check(check("processor time", &pairs, |used| used.cpu_seconds));
    context.check(check("time", &pairs, |used| used.seconds));
    ended
}

fn measure(context: &mut Context, rounds: u32, raw: &mut Raw, pairs: &mut Vec<Pair>) -> Result<()> {
    let cable = Condition { bits_per_second: None, rtt_us: 0, has_stock_hosts: true, ..Condition::default() };
    let stand = Stand::up(context, &cable)?;
    let log = context.dir.join("quiet.log");
    // It warms memory too, and does not count.
    stand.whole(MIB, &Job { log: Some(log.clone()), ..Job::default() })?;
    let streams = streams_in_the_end(&log)?;
    context.note(format!("quiet copies had {streams} streams in the end; the fixed ones have as many"));
    for pair in 1..=rounds.saturating_mul(PAIRS_OF_ROUND) {
        let mut copy = |streams: Option<u32>| -> Result<Used> {
            let used = stand.whole(MIB, &Job { streams, ..Job::default() })?;
            raw.add(&json!({"part": "quiet", "pair": pair, "streams": streams, "seconds": used.seconds,
                "cpu_seconds": used.cpu_seconds}))?;
            Ok(used)
        };
        // They take turns in being first.
        let (tuned, fixed) = match pair % 2 {
            0 => (copy(None)?, copy(Some(streams))?),
            _ => {
                let fixed = copy(Some(streams))?;
                (copy(None)?, fixed)
            }
        };
        pairs.push(Pair { tuned, fixed });
        (context.progress())(&format!("quiet copies, tuned and fixed: pair {pair}"));
    }
    Ok(())
}

/// Of the log of a tuned copy.
fn streams_in_the_end(path: &Path) -> Result<u32> {
    let text = fs::read_to_string(path).map_err(Error::io("read", path))?;
    let log: Option<Log> = text.lines().next().and_then(|line| serde_json::from_str(line).ok());
    let log = log.ok_or_else(|| Error::new(Kind::Failed, "read", path.display(), "it is no log of tuning"))?;
    Ok(log.changes.last().map_or(log.streams, |change| change.to))
}

/// By the interval in which the median of the pairs is: where the limit is inside it, they do not tell.
fn check(what: &str, pairs: &[Pair], of: fn(&Used) -> f64) -> Check {
    let added: Vec<f64> = pairs.iter().map(|pair| 100.0 * (of(&pair.tuned) / of(&pair.fixed) - 1.0)).collect();
    let found = median(added.iter().copied()).zip(Interval::of_median(added));
    let is_open = found.is_some_and(|(_, Interval { low, high, .. })| low <= PERCENT_MAX && high > PERCENT_MAX);
    let told = found.map(|(median, Interval { low, high, .. })| {
        let is_met = high <= PERCENT_MAX;
        let [median, low, high] = [median, low, high].map(shown);
        (format!("{median} ({low} to {high})"), is_met)
    });
    let claim = format!("{what} that tuning adds to a quiet copy, percent");
    let check = Check::of(claim, format!("<= {}", shown(PERCENT_MAX)), told);
    if is_open { Check { verdict: Verdict::Void, ..check } } else { check }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Pairs of which the tuned copy took so many percent more processor time.
    fn pairs(percent: &[f64]) -> Vec<Pair> {
        let used = |percent: f64| Used { seconds: 3.0, cpu_seconds: 5.0 + percent / 20.0 };
        percent.iter().map(|percent| Pair { tuned: used(*percent), fixed: used(0.0) }).collect()
    }

    #[test]
    fn a_verdict_takes_pairs_that_are_all_on_one_side_of_one_percent() {
        let of = |percent: &[f64]| check("processor time", &pairs(percent), |used| used.cpu_seconds);
        let verdicts = [&[0.5, 0.25, -3.0][..], &[2.0, 2.0, 9.0]].map(|percent| of(percent).verdict);
        assert_eq!(verdicts, [Verdict::Pass, Verdict::Fail]);
        let open = of(&[0.5, 0.25, 30.0]);
        assert_eq!((open.verdict, open.measured.as_str()), (Verdict::Void, "0.500 (0.250 to 30.0)"));
        assert_eq!([&[2.0, 2.0, -9.0][..], &[]].map(|percent| of(percent).verdict), [Verdict::Void; 2]);
        assert_eq!(check("time", &pairs(&[5.0]), |used| used.seconds).measured, "0.00 (0.00 to 0.00)");
    }

    #[test]
    fn the_number_in_the_end_is_that_of_the_last_change() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        let log = Log { v: 1, streams: 2, most: 64, ..Log::default() };
        let change = |from, to| plan::Change { at_us: 1, from, to, why: String::new() };
        for (changes, streams) in [(Vec::new(), 2), (vec![change(2, 4), change(4, 3)], 3)] {
            let log = Log { changes, ..log.clone() };
            fs::write(&path, serde_json::to_string(&log).unwrap() + "\n").unwrap();
            assert_eq!(streams_in_the_end(&path).unwrap(), streams);
        }
        fs::write(&path, "").unwrap();
        assert!(streams_in_the_end(&path).unwrap_err().chain().contains("no log of tuning"));
    }
}
