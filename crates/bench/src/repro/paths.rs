//! Rate over file size on paths of several lengths and under several congestion controls; the three sets of the Fermilab
//! study near and far.

use std::time::Duration;

use super::context::Context;
use super::judge::{Check, mean, median, shown};
use crate::error::Result;
use crate::plot::{Axis, Kind, PLATEAU_BYTES_MIN, Plot, Point, Reference, Scale, Series, Unit, normalised};
use crate::published;
use crate::sweep::{Axes, Figures, Row};
use crate::tool::SYNTHETIC_SOURCE;

const GBIT: u64 = 1_000_000_000;
pub const OURS: &str = "thalweg";
fn steady(options: &mut crate::sweep::Options) {
    options.with_starts = true;
    options.with_steady_runs = true;
    options.ceiling_streams = vec![8];
    // Long runs are many rounds in one.
    options.rounds = options.rounds.min(1);
}

/// 1 KiB to 64 MiB by fours.
fn sizes() -> Vec<u64> {
    (0..9).map(|step| 1024 << (2 * step)).collect()
}

/// S0 figure 8.
pub fn bulk(context: &mut Context) -> Result<()> {
    let latencies_ms = published::LATENCIES_MS;
    let axes = Axes {
        sizes: sizes(),
        rates: context.rate(GBIT),
        round_trips: latencies_ms.map(|ms| Duration::from_millis(2 * u64::from(ms))).to_vec(),
        ..Axes::default()
    };
    let figures = context.sweep(None, 1.0, axes, steady)?;
    let conditions = latencies_ms.map(|ms| condition_at(&figures, Duration::from_millis(2 * u64::from(ms)))).to_vec();
    let (mut plateaus, mut series) = (Vec::new(), Vec::new());
    // Files that are written cost more than files that are made and forgotten.
    let is_synthetic = |row: &Row| row.set.starts_with(SYNTHETIC_SOURCE);
    let files_per_second = |of: &Row| {
        let alike = figures.work().filter(|row| is_synthetic(row) == is_synthetic(of));
        alike.map(|row| row.files_per_second_median).fold(0.0, f64::max)
    };
    for (condition, latency_ms) in conditions.iter().zip(latencies_ms) {
        let rows: Vec<&Row> = figures.work().filter(|row| row.condition == *condition && row.tool == OURS).collect();
        let plateau = plateau(&rows);
        let start = figures.starts.get(condition).copied();
        plateaus.push(plateau);
        let eff = plateau.zip(start).map(|(plateau, start)| plateau / start);
        context.check(Check::at_least(format!("plateau / TCP of the same duration, {latency_ms} ms"), 0.97, eff));
        let roof = |row: &Row| start.map(|start| start.min(8.0 * row.file_bytes as f64 * files_per_second(row) / 1e9));
        let of_roof = rows.iter().filter_map(|row| Some((row.gbit_per_second.median / roof(row)?, &row.set)));
        let worst = of_roof.min_by(|a, b| a.0.total_cmp(&b.0));
        let said = worst.map(|(share, set)| (format!("{} at {set}", shown(share)), share >= 0.9));
        context.check(Check::of(format!("share of roof(size) at every size, {latency_ms} ms"), ">= 0.90", said));
        series.push(curve(format!("thalweg, {latency_ms} ms"), &rows));
    }
    for (far, latency_ms, zx) in [(1, 50, 0.905), (2, 100, 0.899)] {
        let near = plateaus.first().copied().flatten();
        let ratio = plateaus.get(far).copied().flatten().zip(near).map(|(far, near)| far / near);
        context.check(Check::at_least(format!("plateau at {latency_ms} ms / at 10 ms (published {zx})"), 0.95, ratio));
    }
    let note = "Latency is one way. Ours: seconds for each run, connection and slow start included.";
    draw(context, "bulk", "Rate over file size at three latencies", note, series, published::bulk_lab().to_vec());
    Ok(())
}

/// S0 figure 5.
pub fn controls(context: &mut Context) -> Result<()> {
    let names = ["bbr", "cubic", "reno"];
    let axes = Axes {
        sizes: vec![4 << 10, 64 << 10, 1 << 20, 4 << 20, 16 << 20, 64 << 20],
        rates: context.rate(GBIT),
        round_trips: vec![Duration::from_millis(2 * u64::from(published::PRODUCTION_LATENCY_MS))],
        congestion_controls: names.map(str::to_owned).to_vec(),
        ..Axes::default()
    };
    let figures = context.sweep(None, 1.0, axes, steady)?;
    let (mut plateaus, mut series) = (Vec::new(), Vec::new());
    for name in names {
        let word = format!(" cc={name} ");
        let rows: Vec<&Row> = figures.work().filter(|row| row.condition.contains(&word) && row.tool == OURS).collect();
        plateaus.push(plateau(&rows));
        series.push(curve(format!("thalweg, {name}"), &rows));
    }
    let ratio = |index: usize| plateaus[index].zip(plateaus[1]).map(|(other, cubic)| other / cubic);
    context.check(Check::within("plateau under BBR / under CUBIC (published 1.002)", 0.97, 1.03, ratio(0)));
    let reno = ratio(2).map_or("no counted run".into(), shown);
    context.check(Check::told("plateau under Reno / under CUBIC", "published 0.749, on a shared path", reno));
    context.note("the published path was shared; here nothing else uses it, so losses are those of its own queue");
    let note = "One way 74 ms, as the published path. Ours without other traffic.";
    draw(
        context,
        "controls",
        "Rate over file size by congestion control",
        note,
        series,
        published::bulk_production_tls().to_vec(),
    );
    Ok(())
}

/// S4 table 4 and figure 8.
pub fn study(context: &mut Context) -> Result<()> {
    // Large, medium and small in the shape of the study, so that each takes seconds at this rate.
    let sets = ["2x256MiB", "1x256MiB,1x128MiB,1x64MiB,1x32MiB,1x16MiB,1x8MiB", SMALL];
    let axes = Axes {
        sets: sets.map(str::to_owned).to_vec(),
        rates: context.rate(GBIT),
        round_trips: [200, 36_000, 100_000].map(Duration::from_micros).to_vec(),
        ..Axes::default()
    };
    // The table and the figure are the same runs.
    context.adopt("s4-t4")?;
    let figures = context.sweep(None, 1.0, axes, |options| options.with_starts = true)?;
    let conditions = [200, 36_000, 100_000].map(|us| condition_at(&figures, Duration::from_micros(us))).to_vec();
    let rate = |condition: usize, set: usize| {
        let row = figures.find(conditions.get(condition)?, sets[set], OURS)?;
        Some(row.gbit_per_second.median)
    };
    let [large, _, small] = published::STUDY;
    let published_ratio = small.local_client / large.local_client;
    let ratio = rate(0, 2).zip(rate(0, 1)).map(|(small, medium)| small / medium);
    context.check(Check::at_least("small / medium, near", 0.5, ratio));
    let ratio = rate(0, 2).zip(rate(0, 0)).map(|(small, large)| small / large);
    let claim = format!("small / large, near (published {})", shown(published_ratio));
    context.check(Check::at_least(claim, 10.0 * published_ratio, ratio));
    for (set, name) in ["large", "medium", "small"].iter().enumerate() {
        for (far, rtt_ms) in [(1, 36), (2, 100)] {
            let fair = conditions.get(far).zip(conditions.first());
            let fair = fair.and_then(|(far, near)| Some(figures.starts.get(far)? / figures.starts.get(near)?));
            let kept = rate(far, set).zip(rate(0, set)).map(|(far, near)| far / near);
            let said = kept
                .zip(fair)
                .map(|(kept, fair)| format!("{} (TCP alone over the same time {})", shown(kept), shown(fair)));
            let published = published::STUDY[set];
            let expected = format!(
                "published for a control distance of 36 ms alone: {}",
                shown(published.remote_third_party / published.local_third_party)
            );
            let claim = format!("{name}: rate at {rtt_ms} ms / near");
            context.check(Check::told(claim, expected, said.unwrap_or("no counted run".into())));
        }
    }
    context.note(
        "control and data of a session share one path here, so the distance of the control cannot be varied alone: third-\
         party control (a client far from both ends) and a hosted service need transfers between two endpoints",
    );
    let series = study_series(&figures, &conditions, &sets);
    context.plot(Plot {
        name: "control-distance".into(),
        title: "Three sets near and far".into(),
        note: "Ours: control and data both at the distance. Published: only the control, at 0 and 36 ms.".into(),
        x: Axis::new("round trip", Scale::Linear, Unit::Milliseconds),
        y: Axis::new("rate / large set near", Scale::Linear, Unit::Number),
        series,
    });
    Ok(())
}

const SMALL: &str = "60x8KiB,60x16KiB,60x32KiB,60x64KiB,60x128KiB,60x256KiB,60x512KiB,60x1MiB,60x2MiB,60x4MiB";

fn study_series(figures: &Figures, conditions: &[String], sets: &[&str]) -> Vec<Series> {
    let rate = |condition: &str, set: &str| Some(figures.find(condition, set, OURS)?.gbit_per_second.median);
    let reference = conditions.first().and_then(|near| rate(near, sets[0])).unwrap_or(f64::NAN);
    let mut series = Vec::new();
    for (set, name) in sets.iter().zip(["large", "medium", "small"]) {
        let at = conditions.iter().zip([0.2, 36.0, 100.0]);
        let points = at.filter_map(|(condition, ms)| Some(Point::at(ms, rate(condition, set)? / reference))).collect();
        series.push(Series { name: format!("thalweg, {name}"), kind: Kind::Measured, points });
    }
    let large = published::STUDY[0].local_third_party;
    for study in published::STUDY {
        let rates = [(0.0, study.local_third_party), (36.0, study.remote_third_party)];
        let points = rates.map(|(ms, rate)| Point::at(ms, rate / large)).to_vec();
        series.push(Series { name: format!("GridFTP, {}", study.set), kind: Kind::Published, points });
    }
    series
}

/// The condition of that round trip; empty, which no sample has, where a budget left it out.
fn condition_at(figures: &Figures, round_trip: Duration) -> String {
    let word = format!(" rtt={} ", lab::scenario::quantity::show_duration(round_trip));
    let found = figures.conditions().into_iter().find(|condition| condition.contains(&word));
    found.map(str::to_owned).unwrap_or_default()
}

/// Of the sizes that make the published averages.
fn plateau(rows: &[&Row]) -> Option<f64> {
    let large = rows.iter().filter(|row| row.file_bytes as f64 >= PLATEAU_BYTES_MIN);
    mean(&large.map(|row| row.gbit_per_second.median).collect::<Vec<_>>())
}

fn curve(name: String, rows: &[&Row]) -> Series {
    let point = |row: &&Row| {
        let spread = row.gbit_per_second;
        Point { x: row.file_bytes as f64, y: spread.median, y_min: spread.min, y_max: spread.max }
    };
    Series { name, kind: Kind::Measured, points: rows.iter().map(point).collect() }
}

/// Absolute, and in units of each curve's own plateau and file rate, with the published points laid over.
fn draw(context: &mut Context, name: &str, title: &str, note: &str, mut series: Vec<Series>, others: Vec<Series>) {
    series.extend(others);
    let plot = Plot {
        name: name.into(),
        title: title.into(),
        note: note.into(),
        x: Axis::new("file size", Scale::Log2, Unit::Bytes),
        y: Axis::new("Gbit/s", Scale::Log10, Unit::Number),
        series,
    };
    let relative = normalised(&plot, |series| Reference::of_curve(&series.points, PLATEAU_BYTES_MIN));
    context.plot(plot);
    context.plot(relative);
}

/// The median rate of a tool over all sets of a condition.
pub fn rate_of(figures: &Figures, condition: &str, tool: &str) -> Option<f64> {
    let rows = figures.work().filter(|row| row.condition == condition && row.tool == tool);
    median(rows.map(|row| row.gbit_per_second.median))
}
