//! A link that changes under copies: how soon a tuned copy has what the best of the fixed numbers of streams has there.
//!
//! The best one is that with the highest rate from `SETTLED_SECONDS` after a change to the next, median of the rounds.

use std::ops::Range;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use lab::Lab;
use lab::scenario::Change;
use serde_json::json;

use super::super::context::Context;
use super::super::judge::{Check, median, shown};
use super::curve::Curve;
use super::stand::{Job, Raw, Stand, seconds_of, wait_until};
use crate::error::Result;
use crate::plot::{Axis, Kind, Plot, Point, Scale, Series, Unit};
use crate::sweep::Condition;

const FIXED: [u32; 5] = [1, 2, 4, 8, 16];
/// Of the best fixed number's rate, which a tuned copy has to have, and within which time.
const SHARE: f64 = 0.95;
const WITHIN_SECONDS: f64 = 10.0;
/// Until then a fixed number may be regaining its windows.
const SETTLED_SECONDS: f64 = 5.0;

/// What the link is for a time.
struct Phase {
    shown: &'static str,
    seconds: f64,
    /// Of the rate.
    thirds: u64,
    rtt_ms: u64,
}

/// The first one is the start of every copy. Later ones leave time to see what there is after `WITHIN_SECONDS`.
static PHASES: [Phase; 3] = [
    Phase { shown: "start", seconds: 3.0, thirds: 3, rtt_ms: 20 },
    Phase { shown: "a third of the rate", seconds: 12.0, thirds: 1, rtt_ms: 20 },
    Phase { shown: "the whole rate again, 60 ms instead of 20", seconds: 12.0, thirds: 3, rtt_ms: 60 },
];

impl Phase {
    fn bits_per_second(&self, whole: u64) -> u64 {
        whole * self.thirds / 3
    }

    fn set(&self, lab: &Lab, whole: u64) -> Result<()> {
        let (delay, bits_per_second) = (Duration::from_millis(self.rtt_ms) / 2, self.bits_per_second(whole));
        let change = Change { delay: Some(delay), bits_per_second: Some(Some(bits_per_second)), ..Change::default() };
        Ok(lab.set(&lab.scenario().links[0].name, &[(None, change)])?)
    }
}

/// Of the clock.
fn span(phase: usize) -> Range<f64> {
    let start: f64 = PHASES[..phase].iter().map(|phase| phase.seconds).sum();
    start..start + PHASES[phase].seconds
}

fn seconds_of_run() -> f64 {
    span(PHASES.len() - 1).end
}

pub fn seconds_of_round() -> f64 {
    (1 + FIXED.len()) as f64 * seconds_of(seconds_of_run())
}

/// A copy over the link.
struct Run {
    round: u32,
    /// None: tuned.
    streams: Option<u32>,
    curve: Curve,
    late: Vec<String>,
}

fn name(streams: Option<u32>) -> String {
    match streams {
        None => "tuned".into(),
        Some(1) => "1 stream".into(),
        Some(streams) => format!("{streams} streams"),
    }
}

pub fn run(context: &mut Context, bits_per_second: u64, rounds: u32, raw: &mut Raw) -> Result<()> {
    let mut runs = Vec::new();
    let ended = measure(context, bits_per_second, rounds, raw, &mut runs);
    // What was measured is judged, whatever ended the rest.
    checks(&runs).into_iter().for_each(|check| context.check(check));
    draw(context, &runs, bits_per_second);
    ended
}

fn measure(context: &mut Context, whole: u64, rounds: u32, raw: &mut Raw, runs: &mut Vec<Run>) -> Result<()> {
    let [first, ..] = &PHASES;
    let rtt_us = first.rtt_ms * 1000;
    let condition = Condition { bits_per_second: Some(first.bits_per_second(whole)), rtt_us, ..Condition::default() };
    let mut stand = Stand::up(context, &condition)?;
    let cancel = context.cancel();
    for round in 1..=rounds {
        let mut settings: Vec<Option<u32>> = std::iter::once(None).chain(FIXED.map(Some)).collect();
        // Another one begins each round.
        settings.rotate_left(round as usize % (1 + FIXED.len()));
        for streams in settings {
            let log = streams.is_none().then(|| context.dir.join(format!("change-{round}.log")));
            first.set(&stand.lab, whole)?;
            let job = Job { streams, log, ..Job::default() };
            let ran = stand.run(&[job], seconds_of_run(), |lab, clock| changes(lab, clock, whole, cancel))?;
            let name = name(streams);
            for copied in ran.copies {
                raw.add(&json!({"part": "change", "round": round, "streams": streams, "course": copied.curve,
                    "void": ran.late, "done": copied.done}))?;
                let late = ran.late.iter().map(|reason| format!("{name}, round {round}: {reason}")).collect();
                runs.push(Run { round, streams, curve: copied.curve, late });
            }
            (context.progress())(&format!("a link that changes, round {round}: {name}"));
        }
    }
    Ok(())
}

fn changes(lab: &Lab, clock: Instant, whole: u64, cancel: &AtomicBool) -> Result<()> {
    for (number, phase) in PHASES.iter().enumerate().skip(1) {
        wait_until(clock + Duration::from_secs_f64(span(number).start), cancel);
        phase.set(lab, whole)?;
    }
    Ok(())
}

/// What came of a change, in bytes a second.
struct Found {
    /// Of each fixed number.
    fixed: Vec<(u32, f64)>,
    tuned: Option<f64>,
    /// Until each tuned copy had what it should; all of the span for one that never had.
    seconds: Vec<f64>,
}

/// None unless every fixed number has a run: the best of some is not the best.
fn found(runs: &[Run], phase: usize) -> Option<Found> {
    let span = span(phase);
    let of = |streams: Option<u32>| runs.iter().filter(move |run| run.streams == streams);
    let settled = |run: &Run| run.curve.rate(span.start + SETTLED_SECONDS..span.end);
    let rate = |streams: Option<u32>| median(of(streams).filter_map(settled));
    let fixed: Vec<(u32, f64)> =
        FIXED.into_iter().map(|streams| Some((streams, rate(Some(streams))?))).collect::<Option<_>>()?;
    let wanted = SHARE * fixed.iter().map(|(_, rate)| *rate).fold(0.0, f64::max);
    // A course that ends too early says nothing.
    let whole = of(None).filter(|run| run.curve.rate(span.clone()).is_some());
    let until = |run: &Run| run.curve.seconds_until(span.clone(), wanted).unwrap_or(span.end - span.start);
    let seconds = whole.map(until).collect();
    Some(Found { tuned: rate(None), fixed, seconds })
}

fn checks(runs: &[Run]) -> Vec<Check> {
    let late: Vec<String> = runs.iter().flat_map(|run| run.late.iter().cloned()).collect();
    let mut checks = Vec::new();
    for (number, phase) in PHASES.iter().enumerate().skip(1) {
        let (about, found) = (phase.shown, found(runs, number));
        let seconds = found.as_ref().and_then(|found| median(found.seconds.iter().copied()));
        let claim = format!("{about}: seconds until a tuned copy has {SHARE} of the best fixed number of streams");
        checks.push(Check::at_most(claim, WITHIN_SECONDS, seconds).beside(&late));
        let Some(Found { fixed, tuned, seconds }) = found else { continue };
        let listed = |values: Vec<String>| values.join(", ");
        let fixed = fixed.iter().map(|(streams, rate)| (name(Some(*streams)), *rate));
        let rates = tuned.map(|rate| (name(None), rate)).into_iter().chain(fixed);
        let rates = listed(rates.map(|(name, rate)| format!("{name} {}", shown(rate * 8.0 / 1e6))).collect());
        checks.push(Check::told(format!("{about}: Mbit/s from {SETTLED_SECONDS} s on"), "", rates));
        let seconds = listed(seconds.into_iter().map(shown).collect());
        checks.push(Check::told(format!("{about}: the seconds of each round"), "", seconds));
    }
    checks
}

fn draw(context: &mut Context, runs: &[Run], whole: u64) {
    let mut first: Vec<&Run> = runs.iter().filter(|run| run.round == 1).collect();
    first.sort_by_key(|run| run.streams);
    let of_run = |run: &&Run| Series {
        name: name(run.streams),
        kind: if run.streams.is_none() { Kind::Measured } else { Kind::Rival },
        points: run.curve.drawn(),
    };
    let of_phase = |(number, phase): (usize, &Phase)| {
        let mbit = phase.bits_per_second(whole) as f64 / 1e6;
        [span(number).start, span(number).end].map(|at| Point::at(at, mbit))
    };
    let link = PHASES.iter().enumerate().flat_map(of_phase).collect();
    let link = Series { name: "link".into(), kind: Kind::Bound, points: link };
    context.plot(Plot {
        name: "changes".into(),
        title: "Copies over a link that changes".into(),
        note: "Content that was sent, from one event of the command to the next; the first round.".into(),
        x: Axis::new("seconds", Scale::Linear, Unit::Number),
        y: Axis::new("Mbit/s", Scale::Linear, Unit::Number),
        series: first.iter().map(of_run).chain([link]).collect(),
    });
}

#[cfg(test)]
mod tests {
    use super::super::super::Verdict;
    use super::super::curve::HELD_SECONDS;
    use super::super::curve::tests::curve;
    use super::*;

    /// One that always has the same rate.
    fn steady(streams: Option<u32>, rate: f64) -> Run {
        Run { round: 1, streams, curve: curve(&[rate; 28]), late: Vec::new() }
    }

    /// Fixed numbers of which 16 has the highest rate, 9.
    fn all_fixed() -> Vec<Run> {
        FIXED.into_iter().map(|streams| steady(Some(streams), 5.0 + f64::from(streams) / 4.0)).collect()
    }

    /// Slow for some seconds after the first change.
    fn tuned(slow: usize) -> Run {
        let rates = [&[9.0; 3][..], &vec![1.0; slow], &vec![9.0; 25 - slow]].concat();
        Run { curve: curve(&rates), ..steady(None, 9.0) }
    }

    fn beside(tuned: Vec<Run>) -> Vec<Run> {
        all_fixed().into_iter().chain(tuned).collect()
    }

    #[test]
    fn a_tuned_copy_is_held_against_the_best_fixed_number_in_each_span() {
        let runs = beside(vec![tuned(3), tuned(13)]);
        let first = found(&runs, 1).unwrap();
        assert!((first.seconds[0] - 2.9).abs() < 1e-6 && first.seconds[1] == 12.0, "{:?}", first.seconds);
        assert_eq!((first.fixed[0], first.fixed[4]), ((1, 5.25), (16, 9.0)));
        let second = found(&runs, 2).unwrap();
        assert!(second.seconds[0] == 0.0 && (second.seconds[1] - 0.9).abs() < 1e-6, "{:?}", second.seconds);
        assert_eq!(second.tuned, Some(9.0));
    }

    #[test]
    fn what_takes_longer_than_ten_seconds_fails_and_what_was_not_compared_is_void() {
        let verdicts = |runs: Vec<Run>| checks(&runs).iter().map(|check| check.verdict).collect::<Vec<_>>();
        let (pass, fail, void, told) = (Verdict::Pass, Verdict::Fail, Verdict::Void, Verdict::Told);
        assert_eq!(verdicts(beside(vec![tuned(3)])), [pass, told, told, pass, told, told]);
        assert_eq!(verdicts(beside(vec![tuned(12)])), [fail, told, told, pass, told, told]);
        assert_eq!(verdicts(beside(vec![steady(None, 8.5)])), [fail, told, told, fail, told, told]);
        assert_eq!(verdicts(all_fixed()), [void, told, told, void, told, told]);
        let cut = Run { curve: curve(&[9.0; 20]), ..steady(None, 9.0) };
        assert_eq!(verdicts(beside(vec![cut])), [pass, told, told, void, told, told]);
        let mut some = beside(vec![tuned(3)]);
        some.remove(0);
        assert_eq!(verdicts(some), [void, void]);
    }

    #[test]
    fn there_is_time_to_see_what_is_there_after_ten_seconds() {
        assert!(PHASES[1..].iter().all(|phase| phase.seconds >= WITHIN_SECONDS + HELD_SECONDS));
        assert_eq!((span(1), span(2)), (3.0..15.0, 15.0..27.0));
        assert_eq!(PHASES.each_ref().map(|phase| phase.bits_per_second(300)), [300, 100, 300]);
    }
}
