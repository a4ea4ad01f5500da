//! `thalweg bench diff`: what changed from one bundle to another.

use crate::commands::bench::report::read;
use crate::exit::{Result, usage};
use crate::output::{line, shown};
use bench::diff::{Change, Diff, Pair, TOLERANCE_DEFAULT, Verdict, diff, diff_of_builds};
use bench::tool::Class;
use model::Exit;
use model::name::Escaped;
use std::path::PathBuf;

/// Compare two bundles, or the two builds of one: what became faster, slower or costlier, and whether it exceeds chance
///
/// Rate and processor time per GB are compared where condition, set and tool agree. With one bundle, from
/// `bench compare --earlier`, the build `earlier` is compared with the one that it raced, round by round, so that
/// effects of the machine on both cancel out. A change counts if it exceeds chance (5 %) and half the tolerance. If
/// neither that holds nor a loss as large as the tolerance is excluded, the comparison is inconclusive, and the loss it
/// would have detected is reported. Only this program can regress: if a rival or a ceiling changed, the machine did. If
/// more of its runs failed than before, it regressed; if only the first bundle has runs of it, that is inconclusive.
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Exit codes: 0 no loss as large as the tolerance, 25 something regressed, 26 inconclusive, 2 a bundle is \
missing or damaged.\n\n\
Examples:\n\
\x20   thalweg bench compare --earlier RELEASED --no-rivals --rounds 30 --no-ceilings --out gate && thalweg bench diff gate\n\
\x20   thalweg bench diff results/released results/today"
)]
pub struct Args {
    /// The earlier bundle, or the only one
    before: PathBuf,
    /// The later bundle
    after: Option<PathBuf>,
    /// The loss to be detected or excluded, in percent
    #[arg(long, value_name = "PERCENT", default_value_t = TOLERANCE_DEFAULT * 100.0, env = "THALWEG_TOLERANCE")]
    tolerance: f64,
    /// One JSON document on standard output
    #[arg(long, env = "THALWEG_JSON")]
    json: bool,
}

pub fn run(args: Args) -> Result<Exit> {
    if !(0.0..100.0).contains(&args.tolerance) {
        return Err(usage(
            format!("--tolerance {} is not a loss in percent", args.tolerance),
            "give a number such as 5",
        ));
    }
    let (before, tolerance) = (read(&args.before)?, args.tolerance / 100.0);
    let found = match &args.after {
        Some(after) => diff(&before, &read(after)?, tolerance),
        None => diff_of_builds(&before, tolerance).ok_or_else(|| {
            let message = format!("{} holds no race of two builds of ours", shown(&args.before));
            usage(message, "name a second bundle, or make one with `thalweg bench compare --earlier FILE`")
        })?,
    };
    if args.json {
        line(&serde_json::to_string(&found).expect("plain values with string keys serialise"));
    } else {
        lines(&found).iter().all(|text| line(&Escaped(text.as_bytes()).to_string()));
    }
    Ok(match () {
        () if found.regressions > 0 => Exit::LimitCrossed,
        () if found.inconclusive > 0 || found.pairs.is_empty() => Exit::Inconclusive,
        () => Exit::Done,
    })
}

fn lines(found: &Diff) -> Vec<String> {
    let mut lines = Vec::new();
    for difference in &found.machine {
        let (what, before, after) = (difference.what, &difference.before, &difference.after);
        lines.push(format!("machines differ: {what}: {before:?} before, {after:?} after"));
    }
    let changed: Vec<&Pair> = found.pairs.iter().filter(|pair| pair.is_changed(found.tolerance)).collect();
    let width = changed.iter().map(|pair| name(pair).chars().count()).max().unwrap_or(0);
    for pair in &changed {
        let mut parts = Vec::new();
        for (change, unit, of) in [
            (pair.gbit_per_second, "Gbit/s", pair.class != Class::Reference || pair.files_per_second.before < 1e3),
            (pair.files_per_second, "files/s", pair.files_per_second.before >= 1e3),
            (pair.cpu_seconds_per_gb, "CPU s/GB", true),
        ] {
            if of && change.is_shown(found.tolerance) {
                parts.push(shown_change(&change, unit));
            }
        }
        let of = name(pair);
        lines.push(format!("{of:width$}  {}{}", parts.join("; "), role(pair)));
    }
    let percent = |part: f64| format!("{:.1} %", part * 100.0);
    let asked = percent(found.tolerance);
    for pair in found.pairs.iter().filter(|pair| pair.is_ours && pair.class != Class::Reference) {
        let runs = pair.runs_before.min(pair.runs_after);
        let text = match pair.gbit_per_second.power {
            None => format!("n={runs} says nothing: at least 3 runs are needed"),
            Some(power) if power.detectable <= found.tolerance => {
                format!("n={runs} detects a loss of {}", percent(power.detectable))
            }
            Some(power) => {
                let (detectable, needed) = (percent(power.detectable), power.runs_needed);
                format!("n={runs} detects a loss of {detectable}; for {asked}, {needed} runs of each are needed")
            }
        };
        lines.push(format!("{}: {text}", name(pair)));
    }
    for cusp in &found.cusps {
        let of = [cusp.condition.as_str(), &cusp.set, &cusp.tool];
        let of: Vec<&str> = of.into_iter().filter(|part| !part.is_empty()).collect();
        let known = if cusp.was_there { " (before, too)" } else { "" };
        lines.push(format!(
            "cusp: {}: {:.0} % against both neighbouring sizes{known}",
            of.join(", "),
            cusp.relative * 100.0
        ));
    }
    for (what, names) in [
        ("FAILED more often", &found.failing),
        ("only before", &found.only_before),
        ("only after", &found.only_after),
        ("not compared, the set differs", &found.different_work),
    ] {
        lines.extend(names.iter().map(|name| format!("{what}: {name}")));
    }
    lines.push(format!(
        "{} compared, {} changed, {} regressed, {} inconclusive for a loss of {asked}",
        found.pairs.len(),
        changed.iter().filter(|pair| !pair.is_inconclusive()).count(),
        found.regressions,
        found.inconclusive
    ));
    lines
}

fn name(pair: &Pair) -> String {
    let parts = [pair.condition.as_str(), &pair.set, &pair.tool];
    parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(", ")
}

fn shown_change(change: &Change, unit: &str) -> String {
    let verdict = match change.verdict {
        Verdict::Same => ", the same",
        Verdict::Better => ", better",
        Verdict::Worse => ", WORSE",
        Verdict::Inconclusive => ", inconclusive",
    };
    let figure = |value: f64| if value >= 1000.0 { format!("{value:.0}") } else { format!("{value:.2}") };
    let (before, after, percent) = (figure(change.before), figure(change.after), change.relative * 100.0);
    format!("{before} -> {after} {unit} ({percent:+.1} %{verdict})")
}

/// Why a change of this one is no regression of ours.
fn role(pair: &Pair) -> &'static str {
    match (pair.class, pair.is_ours) {
        (Class::Reference, _) => " [ceiling: the machine changed]",
        (_, false) => " [rival]",
        _ => "",
    }
}
