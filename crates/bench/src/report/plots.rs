//! The plots that follow from the samples alone.
//!
//! Each is drawn only where it has something to show: a curve over file size needs several sizes, one over a condition's
//! value several values. Points are medians, bars the least and the most.

use std::collections::BTreeMap;

use super::tables::in_order;
use crate::compare::record::Report;
use crate::plot::{Axis, Kind, PLATEAU_BYTES_MIN, Plot, Point, Reference, Scale, Series, Unit, normalised};
use crate::published;
use crate::sample::State;
use crate::statistics::{Spread, Summary, summarize_on};
use crate::tool::Class;

/// More curves than this can't be told apart: each condition has a plot of its own then.
const CURVES_MAX: usize = 8;
const PLOTS_MAX: usize = 40;
/// Sizes from which the plot in relative units is worth reading.
const NORMALISED_SIZES_MIN: usize = 5;

pub fn plots(report: &Report) -> Vec<Plot> {
    let summaries = summarize_on(&report.samples, report.environment.cores);
    let mut plots = Vec::new();
    for (class, suffix) in [(Class::Network, ""), (Class::Local, "-local")] {
        let of: Vec<&Summary> = summaries.iter().filter(|summary| summary.class == class).collect();
        plots.extend(over_file_size(&of, &summaries, suffix));
        plots.extend(over_conditions(&of, suffix));
    }
    plots.extend(over_rounds(report));
    plots.truncate(PLOTS_MAX);
    plots
}

fn over_file_size(summaries: &[&Summary], all: &[Summary], suffix: &str) -> Vec<Plot> {
    let conditions = in_order(summaries.iter().map(|summary| summary.condition.as_str()));
    let curves = in_order(summaries.iter().map(|summary| summary.tool.as_str())).len() * conditions.len();
    let groups: Vec<Vec<&str>> =
        if curves <= CURVES_MAX { vec![conditions] } else { conditions.into_iter().map(|one| vec![one]).collect() };
    let is_one = groups.len() <= 1;
    let mut plots = Vec::new();
    for (index, group) in groups.iter().enumerate() {
        let title = if is_one || group[0].is_empty() { String::new() } else { format!(", {}", group[0]) };
        let number = if is_one { String::new() } else { format!("-{}", index + 1) };
        let (suffix, has_names) = (format!("{suffix}{number}"), group.len() > 1);
        let curves = |value: fn(&Summary) -> Spread| size_curves(summaries, group, has_names, value);
        let rates = curves(|summary| summary.gbit_per_second);
        let sizes = rates.iter().map(|series| series.points.len()).max().unwrap_or(0);
        if sizes < 2 {
            continue;
        }
        let mut rate = Plot {
            name: format!("rate-over-size{suffix}"),
            title: format!("Rate over file size{title}"),
            note: "Medians; bars are the least and the most. File size is the mean of a set.".into(),
            x: Axis::new("file size", Scale::Log2, Unit::Bytes),
            y: Axis::new("Gbit/s", Scale::Linear, Unit::Number),
            series: rates,
        };
        let relative = relative(&rate, sizes);
        if let [condition] = group[..] {
            rate.series.extend(bounds(all, condition, &rate.series));
        }
        plots.push(rate);
        plots.extend(relative);
        plots.push(Plot {
            name: format!("files-over-size{suffix}"),
            title: format!("Files per second over file size{title}"),
            note: "Medians; bars are the least and the most. File size is the mean of a set.".into(),
            x: Axis::new("file size", Scale::Log2, Unit::Bytes),
            y: Axis::new("files/s", Scale::Log10, Unit::Number),
            series: curves(files_per_second),
        });
    }
    plots
}

fn size_curves(
    summaries: &[&Summary],
    conditions: &[&str],
    has_names: bool,
    value: fn(&Summary) -> Spread,
) -> Vec<Series> {
    let mut series = Vec::new();
    for &condition in conditions {
        let of: Vec<&&Summary> = summaries.iter().filter(|summary| summary.condition == condition).collect();
        for tool in in_order(of.iter().map(|summary| summary.tool.as_str())) {
            let mut points: Vec<Point> =
                of.iter().filter(|s| s.tool == tool).map(|s| point(s.file_bytes(), value(s))).collect();
            points.sort_by(|a, b| a.x.total_cmp(&b.x));
            let is_ours = of.iter().any(|summary| summary.tool == tool && summary.is_ours);
            let name = if has_names { format!("{tool}, {condition}") } else { tool.to_owned() };
            series.push(Series { name, kind: kind(is_ours), points });
        }
    }
    series
}

/// What the network and the file system of this condition allow, as far as they were measured alone.
fn bounds(all: &[Summary], condition: &str, curves: &[Series]) -> Option<Series> {
    let ceilings = || all.iter().filter(|s| s.class == Class::Reference && s.condition == condition);
    let network = ceilings().filter(|s| s.tool.contains("iperf") || s.tool.contains("net"));
    let plateau = network.map(|summary| summary.gbit_per_second_median).fold(0.0, f64::max);
    let files_per_second =
        ceilings().filter(|s| s.tool.contains("create")).map(|s| s.files_per_second_median).fold(0.0, f64::max);
    if plateau <= 0.0 {
        return None;
    }
    let reference = Reference { plateau_gbit_per_second: plateau, files_per_second };
    let mut sizes: Vec<f64> = curves.iter().flat_map(|series| series.points.iter().map(|point| point.x)).collect();
    if files_per_second > 0.0 {
        sizes.push(reference.knee_bytes());
    }
    sizes.sort_by(f64::total_cmp);
    sizes.dedup();
    let roof = |size: f64| if files_per_second > 0.0 { reference.roof_gbit_per_second(size) } else { plateau };
    let points = sizes.into_iter().map(|size| Point::at(size, roof(size))).collect();
    Some(Series { name: "ceilings, measured alone".into(), kind: Kind::Bound, points })
}

/// Beside the published sweeps, each in units of its own limits.
fn relative(rate: &Plot, sizes: usize) -> Option<Plot> {
    if sizes < NORMALISED_SIZES_MIN {
        return None;
    }
    let mut series = rate.series.clone();
    series.extend(published::bulk_lab());
    let plot = normalised(&Plot { series, ..rate.clone() }, |series| {
        // A slow laboratory has its plateau at smaller files: the largest half of the sizes.
        let middle = series.points.get(series.points.len() / 2).map_or(PLATEAU_BYTES_MIN, |point| point.x);
        Reference::of_curve(&series.points, middle.min(PLATEAU_BYTES_MIN))
    });
    Some(plot)
}

/// The numbers in a condition such as `rtt=74ms cc=cubic`, by key; times in milliseconds.
fn numbers(condition: &str) -> BTreeMap<&str, (f64, Unit)> {
    let mut numbers = BTreeMap::new();
    for (key, value) in condition.split_whitespace().filter_map(|part| part.split_once('=')) {
        let end =
            value.find(|c: char| !(c.is_ascii_digit() || c == '.' || c == 'e' || c == '-')).unwrap_or(value.len());
        let Ok(number) = value[..end].parse::<f64>() else { continue };
        let found = match &value[end..] {
            "" | "%" => (number, Unit::Number),
            "us" => (number / 1e3, Unit::Milliseconds),
            "ms" => (number, Unit::Milliseconds),
            "s" => (number * 1e3, Unit::Milliseconds),
            _ => continue,
        };
        numbers.insert(key, found);
    }
    numbers
}

/// For every key of the conditions with three values or more: rate over that value, all else equal.
fn over_conditions(summaries: &[&Summary], suffix: &str) -> Vec<Plot> {
    const VALUES_MIN: usize = 3;
    let parsed: Vec<_> = summaries.iter().map(|summary| (*summary, numbers(&summary.condition))).collect();
    let keys = in_order(parsed.iter().flat_map(|(_, numbers)| numbers.keys().copied()));
    let mut plots = Vec::new();
    for key in keys {
        let mut curves: Vec<Series> = Vec::new();
        let mut unit = Unit::Number;
        for (summary, numbers) in &parsed {
            let Some(&(value, of)) = numbers.get(key) else { continue };
            let is_rest = |part: &&str| part.split_once('=').is_none_or(|(name, _)| name != key);
            let rest: Vec<&str> = summary.condition.split_whitespace().filter(is_rest).collect();
            let rest = if rest.is_empty() { String::new() } else { format!(", {}", rest.join(" ")) };
            let name = format!("{}, {}{rest}", summary.tool, summary.set);
            let point = point(value, summary.gbit_per_second);
            unit = of;
            match curves.iter_mut().find(|series| series.name == name) {
                Some(series) => series.points.push(point),
                None => curves.push(Series { name, kind: kind(summary.is_ours), points: vec![point] }),
            }
        }
        curves.retain(|series| series.points.len() >= VALUES_MIN);
        curves.iter_mut().for_each(|series| series.points.sort_by(|a, b| a.x.total_cmp(&b.x)));
        for (index, chunk) in curves.chunks(CURVES_MAX).enumerate() {
            let number = if curves.len() > CURVES_MAX { format!("-{}", index + 1) } else { String::new() };
            let has_zero = chunk.iter().flat_map(|series| &series.points).any(|point| point.x <= 0.0);
            let scale = if has_zero || unit == Unit::Milliseconds { Scale::Linear } else { Scale::Log10 };
            let plain: String = key.chars().filter(char::is_ascii_alphanumeric).collect();
            plots.push(Plot {
                name: format!("rate-over-{plain}{suffix}{number}"),
                title: format!("Rate over {key}"),
                note: "Medians; bars are the least and the most.".into(),
                x: Axis::new(key, scale, unit),
                y: Axis::new("Gbit/s", Scale::Linear, Unit::Number),
                series: chunk.to_vec(),
            });
        }
    }
    plots
}

/// Every counted run in its order: drift and outliers show. Of races only, where rounds are few and sets are few.
fn over_rounds(report: &Report) -> Vec<Plot> {
    const SETS_MAX: usize = 6;
    let counted = || report.samples.iter().filter(|s| s.state == State::Counted && s.class != Class::Reference);
    let sets = in_order(counted().map(|sample| sample.set.as_str()));
    if sets.len() > SETS_MAX || in_order(counted().map(|sample| sample.condition.as_str())).len() > 1 {
        return Vec::new();
    }
    let mut plots = Vec::new();
    for set in sets {
        let of: Vec<_> = counted().filter(|sample| sample.set == set).collect();
        if of.iter().map(|sample| sample.round).max() < Some(3) {
            continue;
        }
        let series = in_order(of.iter().map(|sample| sample.tool.as_str())).into_iter().map(|tool| {
            let runs = of.iter().filter(|sample| sample.tool == tool);
            let points = runs.clone().map(|s| Point::at(f64::from(s.round), s.gbit_per_second())).collect();
            Series { name: tool.to_owned(), kind: kind(runs.clone().any(|s| s.is_ours)), points }
        });
        let plain: String = set.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect();
        plots.push(Plot {
            name: format!("runs-{plain}"),
            title: format!("{set}: every run"),
            note: "One mark for each counted run; tools alternated within a round.".into(),
            x: Axis::new("round", Scale::Linear, Unit::Number),
            y: Axis::new("Gbit/s", Scale::Linear, Unit::Number),
            series: series.collect(),
        });
    }
    plots
}

fn files_per_second(summary: &Summary) -> Spread {
    let per_gbit = 1e9 / 8.0 / summary.file_bytes().max(1.0);
    let Spread { n, min, quartile_1, median, quartile_3, max, mean, standard_deviation } = summary.gbit_per_second;
    let [min, quartile_1, median, quartile_3, max, mean, standard_deviation] =
        [min, quartile_1, median, quartile_3, max, mean, standard_deviation].map(|value| value * per_gbit);
    Spread { n, min, quartile_1, median, quartile_3, max, mean, standard_deviation }
}

fn point(x: f64, spread: Spread) -> Point {
    Point { x, y: spread.median, y_min: spread.min, y_max: spread.max }
}

fn kind(is_ours: bool) -> Kind {
    if is_ours { Kind::Measured } else { Kind::Rival }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::Sample;
    use crate::statistics::tests::sample;

    #[test]
    fn conditions_are_read_as_numbers_with_units() {
        let found = numbers("rtt=74ms cc=cubic loss=4.6e-5 streams=8 hosts=stock wait=2s");
        assert_eq!(found["rtt"], (74.0, Unit::Milliseconds));
        assert_eq!((found["loss"].0, found["streams"].0, found["wait"].0), (4.6e-5, 8.0, 2000.0));
        assert!(!found.contains_key("cc") && !found.contains_key("hosts"));
    }

    #[test]
    fn a_sweep_gives_a_curve_over_each_thing_that_varies() {
        let mut report = Report::default();
        for rtt in [0, 20, 100] {
            for power in 0..6 {
                let (files, bytes) = (1 << 10, 1_u64 << (20 + 2 * power));
                let (condition, set) = (format!("rtt={rtt}ms cc=cubic"), format!("{files}x{}", bytes >> 10));
                report.samples.push(Sample {
                    condition,
                    set,
                    files,
                    bytes,
                    ..sample("thalweg", 1, 1.0 + f64::from(rtt))
                });
            }
        }
        let names: Vec<String> = plots(&report).into_iter().map(|plot| plot.name).collect();
        assert_eq!(names, ["rate-over-size", "rate-over-size-normalised", "files-over-size", "rate-over-rtt"]);
    }

    #[test]
    fn a_race_shows_every_run() {
        let samples = (0..=3).flat_map(|round| [sample("thalweg", round, 1.0), sample("rsync", round, 2.0)]).collect();
        let report = Report { samples, ..Report::default() };
        let found = plots(&report);
        assert_eq!(found.iter().map(|plot| plot.name.as_str()).collect::<Vec<_>>(), ["runs-tiny"]);
        assert_eq!((found[0].series.len(), found[0].series[0].points.len()), (2, 3));
        assert!(plots(&Report::default()).is_empty());
    }
}
