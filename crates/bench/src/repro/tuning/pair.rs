//! Two tuned copies at once on one link: how evenly they share it, when both begin at once and when one comes later.

use serde_json::json;

use super::super::context::Context;
use super::super::judge::{Check, median, shown};
use super::curve::{Curve, jain, shared_rates};
use super::stand::{Job, Ran, Raw, Stand, seconds_of};
use crate::error::Result;
use crate::plot::{Axis, Kind, Plot, Point, Scale, Series, Unit};
use crate::sweep::Condition;

const RTT_US: u64 = 20_000;
const FAIRNESS_MIN: f64 = 0.95;

struct Case {
    /// Of its plot.
    name: &'static str,
    shown: &'static str,
    later_seconds: f64,
    seconds: f64,
}

static CASES: [Case; 2] = [
    Case { name: "together", shown: "two tuned copies that begin at once", later_seconds: 0.0, seconds: 10.0 },
    Case { name: "later", shown: "two tuned copies, one 5 s later", later_seconds: 5.0, seconds: 15.0 },
];

pub fn seconds_of_round() -> f64 {
    CASES.iter().map(|case| seconds_of(case.seconds)).sum()
}

/// What came of the rounds of a case.
#[derive(Default)]
struct Found {
    indices: Vec<f64>,
    /// Mbit/s of both.
    rates: Vec<String>,
    late: Vec<String>,
    /// Of the first round.
    curves: Vec<Curve>,
}

pub fn run(context: &mut Context, bits_per_second: u64, rounds: u32, raw: &mut Raw) -> Result<()> {
    let condition = Condition { bits_per_second: Some(bits_per_second), rtt_us: RTT_US, ..Condition::default() };
    let mut stand = Stand::up(context, &condition)?;
    for case in &CASES {
        let mut found = Found::default();
        let ended = (1..=rounds).try_for_each(|round| {
            let ran = copy(context, &mut stand, case, round)?;
            found.add(case, round, ran, raw)
        });
        // What was measured is judged, whatever ended the rest.
        let Found { indices, rates, late, curves } = found;
        let claim = format!("{}: Jain's index of their rates in the time they share", case.shown);
        context.check(Check::at_least(claim, FAIRNESS_MIN, median(indices)).beside(&late));
        let claim = format!("{}: Mbit/s of both, round by round", case.shown);
        context.check(Check::told(claim, "", rates.join(", ")));
        draw(context, case, &curves, bits_per_second);
        ended?;
    }
    Ok(())
}

fn copy(context: &mut Context, stand: &mut Stand, case: &Case, round: u32) -> Result<Ran> {
    let log = |copy: u32| Some(context.dir.join(format!("{}-{round}-{copy}.log", case.name)));
    let one = Job { log: log(1), ..Job::default() };
    let other = Job { begins: case.later_seconds, log: log(2), ..Job::default() };
    let ran = stand.run(&[one, other], case.seconds, |_, _| Ok(()))?;
    (context.progress())(&format!("{}: round {round}", case.shown));
    Ok(ran)
}

impl Found {
    fn add(&mut self, case: &Case, round: u32, ran: Ran, raw: &mut Raw) -> Result<()> {
        let curves: Vec<&Curve> = ran.copies.iter().map(|copied| &copied.curve).collect();
        let done: Vec<_> = ran.copies.iter().map(|copied| &copied.done).collect();
        let rates = shared_rates(&curves);
        raw.add(&json!({"part": case.name, "round": round, "courses": curves, "shared_bytes_per_second": rates,
            "void": ran.late, "done": done}))?;
        if let Some(rates) = &rates {
            self.indices.extend(jain(rates));
            self.rates.push(rates.iter().map(|rate| shown(rate * 8.0 / 1e6)).collect::<Vec<_>>().join(" and "));
        }
        self.late.extend(ran.late.iter().map(|reason| format!("round {round}: {reason}")));
        if round == 1 {
            self.curves = ran.copies.into_iter().map(|copied| copied.curve).collect();
        }
        Ok(())
    }
}

fn draw(context: &mut Context, case: &Case, curves: &[Curve], bits_per_second: u64) {
    let of_copy = |(number, curve): (usize, &Curve)| Series {
        name: format!("copy {}", number + 1),
        kind: Kind::Measured,
        points: curve.drawn(),
    };
    let link = vec![Point::at(0.0, bits_per_second as f64 / 1e6)];
    let link = Series { name: "link".into(), kind: Kind::Bound, points: link };
    context.plot(Plot {
        name: case.name.into(),
        title: format!("{}{}", case.shown[..1].to_uppercase(), &case.shown[1..]),
        note: "Content that was sent, from one event of the command to the next; the first round.".into(),
        x: Axis::new("seconds", Scale::Linear, Unit::Number),
        y: Axis::new("Mbit/s", Scale::Linear, Unit::Number),
        series: curves.iter().enumerate().map(of_copy).chain([link]).collect(),
    });
}
