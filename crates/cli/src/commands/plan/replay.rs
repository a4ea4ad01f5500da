//! `thalweg plan replay`: makes the decisions of a copy about its streams again, from the log that `cp --tuning-log` wrote.
//!
//! A log is one JSON object a line: for each path of each copy what it began with, what was measured, and what was changed.

use super::values::{read_text, shown_rate};
use crate::exit::{self, Result, error, usage};
use crate::output::{line, shown};
use crate::transfer::Finished;
use model::Exit;
use model::name::Escaped;
use plan::{Change, Log};
use serde_json::json;
use std::path::{Path, PathBuf};

/// Make the decisions of a copy about its streams again, offline
///
/// The log of `cp --tuning-log FILE` holds what was measured. The rules of this program are applied to it: what they decide is
/// printed, and where that differs from what was decided then, the exit code is 1.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:\n\
\x20   thalweg cp --tuning-log tuning.log data/ lab:data/\n\
\x20   thalweg plan replay tuning.log")]
pub struct Args {
    /// What `cp --tuning-log` wrote
    #[arg(value_name = "LOG")]
    log: PathBuf,
    /// Print the answer as one JSON object
    #[arg(long, env = "THALWEG_JSON")]
    json: bool,
}

/// Writes the log of a copy, where one is asked for.
pub fn keep(file: Option<&Path>, finished: &mut Finished) {
    if let Some(Err(e)) = file.map(|file| write(file, finished)) {
        finished.add_error(e);
    }
}

fn write(file: &Path, finished: &Finished) -> Result<()> {
    let logs = finished.ended.report.iter().flat_map(|report| &report.tuning);
    let lines = logs.map(|log| serde_json::to_string(log).expect("plain values have a JSON form") + "\n");
    std::fs::write(file, lines.collect::<String>()).map_err(|e| exit::of_written("write tuning log", file, &e))
}

pub fn run(args: &Args) -> Result<Exit> {
    let text = read_text(&args.log)?;
    let read = |(number, text): (usize, &str)| {
        let wrong = |why: String| {
            let what = format!("{}:{number}: it is no log of tuning: {why}", shown(&args.log));
            usage(what, "`thalweg cp --tuning-log FILE` writes one")
        };
        let log: Log = serde_json::from_str(text).map_err(|e| wrong(e.to_string()))?;
        if log.v == 1 { Ok(log) } else { Err(wrong(format!("version {} is unknown", log.v))) }
    };
    let logs =
        (1..).zip(text.lines()).filter(|(_, text)| !text.trim().is_empty()).map(read).collect::<Result<Vec<_>>>()?;
    let replayed: Vec<Vec<Change>> = logs.iter().map(Log::replayed).collect();
    let differs = logs.iter().zip(&replayed).filter(|(log, replayed)| log.changes != **replayed).count();
    if args.json {
        let paths: Vec<_> =
            logs.iter().zip(&replayed).map(|(log, changes)| json!({"then": log.changes, "now": changes})).collect();
        line(&json!({"v": 1, "paths": paths, "differing": differs}).to_string());
    } else {
        logs.iter().zip(&replayed).for_each(|(log, replayed)| show(log, replayed));
    }
    match differs {
        0 => Ok(Exit::Done),
        _ => Err(error(
            Exit::Failed,
            format!("{differs} of {} paths are decided differently by this program", logs.len()),
            "the log was written by another version, or has been edited",
        )),
    }
}

fn show(log: &Log, replayed: &[Change]) {
    let seconds = log.windows.last().map_or(0.0, |window| window.at_us as f64 / 1e6);
    let rates = log.windows.iter().map(|window| window.bytes_per_second as f64);
    let mean = rates.sum::<f64>() / log.windows.len().max(1) as f64;
    line(&format!(
        "began with {}, {} measurements in {seconds:.1} s, {} on average",
        log.streams,
        log.windows.len(),
        shown_rate(mean)
    ));
    for Change { at_us, from, to, why } in replayed {
        line(&format!("{:8.1} s  {from} to {to}: {}", *at_us as f64 / 1e6, Escaped(why.as_bytes())));
    }
    if log.is_truncated {
        line("the copy went on for longer than is kept");
    }
}
