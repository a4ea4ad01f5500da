//! `thalweg bench diff`: what changed from one bundle to another.

use crate::commands::bench::report::read;
use crate::exit::{Result, usage};
use crate::output::line;
use bench::diff::{Change, Diff, Pair, TOLERANCE_DEFAULT, Verdict, diff};
use bench::tool::Class;
use model::Exit;
use model::name::Escaped;
use std::path::PathBuf;

/// Compare two bundles: what became faster, slower or dearer, and whether it is more than chance
///
/// Medians of rate and of processor time per GB are compared where condition, set and tool agree. A change counts if it
/// is beyond the tolerance, both sides have three runs or more, and the intervals of the medians do not overlap. Only
/// this program can regress: a rival or a ceiling that changed says that the machine did.
#[derive(clap::Args, Debug)]
#[command(after_help = "Exit codes: 0 nothing regressed, 25 something did, 2 a bundle is missing or damaged.\n\n\
Example:\n\
\x20   thalweg bench diff results/released results/today")]
pub struct Args {
    /// The earlier bundle
    before: PathBuf,
    /// The later bundle
    after: PathBuf,
    /// Changes up to this many percent are not flagged
    #[arg(long, value_name = "PERCENT", default_value_t = TOLERANCE_DEFAULT * 100.0, env = "THALWEG_TOLERANCE")]
    tolerance: f64,
    /// One JSON document on standard output
    #[arg(long, env = "THALWEG_JSON")]
    json: bool,
}

pub fn run(args: Args) -> Result<Exit> {
    if !(0.0..=1000.0).contains(&args.tolerance) {
        return Err(usage(format!("--tolerance {} is no percentage", args.tolerance), "give a number such as 5"));
    }
    let found = diff(&read(&args.before)?, &read(&args.after)?, args.tolerance / 100.0);
    if args.json {
        line(&serde_json::to_string(&found).expect("plain values with string keys serialise"));
    } else {
        lines(&found).iter().all(|text| line(&Escaped(text.as_bytes()).to_string()));
    }
    Ok(if found.regressions > 0 { Exit::LimitCrossed } else { Exit::Done })
}

fn lines(found: &Diff) -> Vec<String> {
    let mut lines = Vec::new();
    for difference in &found.machine {
        let (what, before, after) = (difference.what, &difference.before, &difference.after);
        lines.push(format!("machines differ: {what}: {before:?} before, {after:?} after"));
    }
    let changed: Vec<&Pair> = found.pairs.iter().filter(|pair| pair.is_changed()).collect();
    let width = changed.iter().map(|pair| name(pair).chars().count()).max().unwrap_or(0);
    for pair in &changed {
        let mut parts = Vec::new();
        for (change, unit, of) in [
            (pair.gbit_per_second, "Gbit/s", pair.class != Class::Reference || pair.files_per_second.before < 1e3),
            (pair.files_per_second, "files/s", pair.files_per_second.before >= 1e3),
            (pair.cpu_seconds_per_gb, "CPU s/GB", true),
        ] {
            if of && change.verdict != Verdict::Same {
                parts.push(shown_change(&change, unit));
            }
        }
        let of = name(pair);
        lines.push(format!("{of:width$}  {}{}", parts.join("; "), role(pair)));
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
        ("only before", &found.only_before),
        ("only after", &found.only_after),
        ("not compared, the set differs", &found.different_work),
    ] {
        lines.extend(names.iter().map(|name| format!("{what}: {name}")));
    }
    lines.push(format!(
        "{} compared, {} beyond {} %, {} regressed",
        found.pairs.len(),
        changed.len(),
        (found.tolerance * 1e4).round() / 100.0,
        found.regressions
    ));
    lines
}

fn name(pair: &Pair) -> String {
    let parts = [pair.condition.as_str(), &pair.set, &pair.tool];
    parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(", ")
}

fn shown_change(change: &Change, unit: &str) -> String {
    let verdict = match change.verdict {
        Verdict::Same => "",
        Verdict::Better => ", better",
        Verdict::Worse => ", WORSE",
        Verdict::Overlapping => ", not significant: the intervals overlap",
        Verdict::FewRuns => ", too few runs to tell",
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
