//! The loss study of S0: what loss costs under each congestion control, with one stream and with the automatic number, held
//! against the Mathis law.

use std::time::Duration;

use super::context::Context;
use super::judge::{Check, median, shown};
use super::paths::OURS;
use crate::error::Result;
use crate::plot::{Axis, Kind, Plot, Point, Scale, Series, Unit};
use crate::sweep::{Axes, CEILINGS, Figures};

const GBIT: u64 = 1_000_000_000;
/// One in 22,000, which the publication calls negligible.
const NEGLIGIBLE: f64 = 4.6e-5;
/// At an MTU of 9000, with time stamps.
const MSS_BYTES: f64 = 8948.0;

pub fn run(context: &mut Context) -> Result<()> {
    let losses = vec![0.0, 1e-5, NEGLIGIBLE, 1e-4, 1e-3];
    let axes = Axes {
        sizes: vec![64 << 20],
        rates: context.rate(GBIT),
        round_trips: [20, 148].map(Duration::from_millis).to_vec(),
        losses,
        congestion_controls: ["cubic", "reno", "bbr"].map(str::to_owned).to_vec(),
        streams: vec![None, Some(1), Some(8)],
        ..Axes::default()
    };
    let figures = context.sweep(None, 1.0, axes, |options| {
        options.rounds = context_rounds(options.rounds);
        options.ceiling_streams = vec![1];
    })?;
    let points = points(&figures);
    let ratios: Vec<f64> =
        points.iter().filter(|p| p.control == "reno" && p.mathis < 0.7 * p.link).map(|p| p.flow / p.mathis).collect();
    let median_ratio = median(ratios.iter().copied());
    context.check(Check::within("one Reno stream / Mathis law, where loss limits it", 0.5, 1.3, median_ratio));
    let auto = |rtt: &str, control: &str, loss: f64| {
        let of = |p: &&Found| p.streams == "auto" && p.rtt == rtt && p.control == control && p.loss == loss;
        points.iter().find(of).and_then(|p| p.ours)
    };
    for control in ["cubic", "reno", "bbr"] {
        for rtt in ["20ms", "148ms"] {
            let kept = auto(rtt, control, NEGLIGIBLE).zip(auto(rtt, control, 0.0)).map(|(lossy, clean)| lossy / clean);
            let claim = format!("is a loss of 1 in 22,000 negligible? {control}, {rtt}: rate with it / without");
            context.check(Check::at_least(claim, 0.95, kept));
        }
    }
    let shares: Vec<f64> = points
        .iter()
        .filter(|p| p.streams == "auto")
        .filter_map(|p| {
            let best = points
                .iter()
                .filter(|o| o.rtt == p.rtt && o.control == p.control && o.loss == p.loss)
                .filter_map(|o| o.ours);
            Some(p.ours? / best.fold(0.0, f64::max))
        })
        .collect();
    let worst = shares.iter().copied().reduce(f64::min);
    context.check(Check::at_least("automatic streams / best of 1, 8 and automatic, worst cell", 0.9, worst));
    let typical = median(shares).map_or("no counted run".into(), shown);
    context.check(Check::told("the same, median cell", "", typical));
    draw(context, &points);
    Ok(())
}

fn context_rounds(rounds: u32) -> u32 {
    rounds.min(2)
}

struct Found {
    rtt: String,
    control: String,
    loss: f64,
    streams: String,
    link: f64,
    /// One stream of ours, memory to memory.
    flow: f64,
    /// The law for one stream, in Gbit/s.
    mathis: f64,
    ours: Option<f64>,
}

fn points(figures: &Figures) -> Vec<Found> {
    let point = |condition: &&str| {
        let word = |key: &str| condition.split(' ').find_map(|word| word.strip_prefix(key)).map(str::to_owned);
        let (rtt, loss) = (word("rtt=")?, word("loss=")?);
        let loss = lab::scenario::quantity::parse_probability(&loss).ok()?;
        let link = lab::scenario::quantity::parse_rate(&word("rate=")?).ok()?? as f64 / 1e9;
        let seconds = lab::scenario::quantity::parse_duration(&rtt).ok()?.as_secs_f64();
        let mathis = if loss == 0.0 { f64::INFINITY } else { MSS_BYTES * 8.0 / seconds * (1.5 / loss).sqrt() / 1e9 };
        let flow = figures.find(condition, CEILINGS, "flow, 1 stream")?.gbit_per_second.median;
        let ours = figures.work().find(|row| row.condition == **condition && row.tool == OURS);
        let ours = ours.map(|row| row.gbit_per_second.median);
        Some(Found { rtt, control: word("cc=")?, loss, streams: word("streams=")?, link, flow, mathis, ours })
    };
    figures.conditions().iter().filter_map(point).collect()
}

fn draw(context: &mut Context, points: &[Found]) {
    for rtt in ["20ms", "148ms"] {
        let at: Vec<&Found> = points.iter().filter(|point| point.rtt == rtt && point.loss > 0.0).collect();
        let mut series = Vec::new();
        for control in ["cubic", "reno", "bbr"] {
            for streams in ["auto", "1"] {
                let of = at.iter().filter(|point| point.control == control && point.streams == streams);
                let points = of.filter_map(|point| Some(Point::at(point.loss, point.ours?))).collect();
                series.push(Series { name: format!("{control}, streams {streams}"), kind: Kind::Measured, points });
            }
        }
        let mut law: Vec<Point> = at.iter().map(|point| Point::at(point.loss, point.mathis.min(point.link))).collect();
        law.sort_by(|a, b| a.x.total_cmp(&b.x));
        law.dedup_by(|a, b| a.x == b.x);
        series.push(Series { name: "Mathis law, one stream".into(), kind: Kind::Bound, points: law });
        context.plot(Plot {
            name: format!("loss-{rtt}"),
            title: format!("Rate over loss at a round trip of {rtt}"),
            note: "Loss of segments in each direction, drawn separately; TLS and digests on.".into(),
            x: Axis::new("probability of loss", Scale::Log10, Unit::Number),
            y: Axis::new("Gbit/s", Scale::Log10, Unit::Number),
            series,
        });
    }
}
