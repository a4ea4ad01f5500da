//! The processor study of S0: what a gigabyte costs both ends, by user and system time, beside rivals.

use std::time::Duration;

use super::context::Context;
use super::judge::{Check, median, shown};
use super::paths::OURS;
use crate::error::Result;
use crate::plot::{Axis, Kind, Plot, Point, Scale, Series, Unit};
use crate::sweep::Axes;

const RATE: u64 = 5_000_000_000;
/// A core second per gigabyte is an eighth of a core per Gbit/s.
const GBIT_PER_GB: f64 = 8.0;
const CORES_PER_GBIT_MAX: f64 = 0.15;

pub fn run(context: &mut Context) -> Result<()> {
    let rivals = context.rivals(&["globus-url-copy", "rsync"]);
    let axes = Axes {
        sets: vec!["4x256MiB".into(), "1000x1MiB".into()],
        rates: context.rate(RATE),
        round_trips: vec![Duration::from_micros(200)],
        ..Axes::default()
    };
    let figures = context.sweep(None, 1.0, axes, |options| {
        options.rivals = rivals.clone();
        options.ceiling_streams = vec![1];
        // Rates of gigabits, at which touching memory anew would be part of the cost.
        options.pauses = crate::workspace::Pauses { quiet_max: Duration::from_secs(3), ..Default::default() };
    })?;
    let row = |set: &str, tool: &str| figures.work().find(|row| row.set == set && row.tool == tool);
    for set in ["4x256MiB", "1000x1MiB"] {
        let cost = row(set, OURS).map(|row| row.cpu_seconds_per_gb_median);
        let per_gbit = cost.map(|cost| cost / GBIT_PER_GB);
        let claim = format!("cores per Gbit/s, both ends together, TLS and digests, {set} (published 0.12-0.24)");
        context.check(Check::at_most(claim, CORES_PER_GBIT_MAX, per_gbit));
        for rival in &rivals {
            let ratio =
                cost.zip(row(set, rival).map(|row| row.cpu_seconds_per_gb_median)).map(|(own, other)| own / other);
            let said = ratio.map_or("no counted run".into(), shown);
            context.check(Check::told(
                format!("CPU of ours / of {rival} (clear text), {set}"),
                "floor 1.1 for globus-url-copy",
                said,
            ));
        }
    }
    tell_split(context);
    let tools: Vec<&str> = std::iter::once(OURS).chain(rivals.iter().map(String::as_str)).collect();
    let series = tools.iter().map(|tool| {
        let rows = figures.work().filter(|row| row.tool == *tool);
        let points = rows.map(|row| Point::at(row.file_bytes as f64, row.cpu_seconds_per_gb_median)).collect();
        Series { name: (*tool).into(), kind: if *tool == OURS { Kind::Measured } else { Kind::Rival }, points }
    });
    context.plot(Plot {
        name: "processor-cost".into(),
        title: "Processor seconds per gigabyte, both ends".into(),
        note: "Ours with TLS and digests; rivals as their settings say.".into(),
        x: Axis::new("file size", Scale::Log2, Unit::Bytes),
        y: Axis::new("CPU s/GB", Scale::Linear, Unit::Number),
        series: series.collect(),
    });
    context.note(
        "by function only as far as user and system time show it; one core alone would need another machine setting",
    );
    Ok(())
}

/// The shares of user and system time, from the labels of the samples.
fn tell_split(context: &mut Context) {
    let own = context.samples.iter().filter(|sample| sample.tool == OURS && sample.set == "4x256MiB");
    let share = median(own.filter_map(|sample| system_share(&sample.note)));
    let said = share.map_or("no counted run".into(), |share| {
        format!("{:.0} % user, {:.0} % system", 100.0 * (1.0 - share), 100.0 * share)
    });
    context.check(Check::told("of our processor time, large files", "encryption and digests are user time", said));
}

/// Of `user 1.20 s, system 0.80 s` in a note.
pub fn system_share(note: &str) -> Option<f64> {
    let seconds = |word: &str| {
        let rest = &note[note.find(word)? + word.len()..];
        rest.split_whitespace().next()?.parse::<f64>().ok()
    };
    let (user, system) = (seconds("user ")?, seconds("system ")?);
    (user + system > 0.0).then(|| system / (user + system))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shares_of_user_and_system_time_are_read_from_the_label() {
        assert_eq!(system_share("CPU bound: 90 %; user 1.50 s, system 0.50 s"), Some(0.25));
        assert_eq!(system_share("user 0.00 s, system 0.00 s"), None);
        assert_eq!(system_share(""), None);
    }
}
