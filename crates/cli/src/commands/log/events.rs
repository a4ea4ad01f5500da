//! `thalweg log merge` and `thalweg log rate`: event logs of several endpoints, read together.

use crate::exit::{Result, of_file};
use crate::output::{self, counted, shown};
use daemon::events::analysis::{EVENTS_MAX, Event, merged, rates, read};
use model::quantity::Rate;
use model::{Exit, Timestamp};
use serde_json::json;
use std::fs::File;
use std::io::BufReader;
use std::path::PathBuf;

#[derive(clap::Subcommand, Debug)]
pub enum Action {
    /// Put the event logs of several endpoints into one order
    ///
    /// An endpoint keeps its events in `events.jsonl` in its state directory. Clocks that cannot be right are corrected as little as
    /// possible, so that nothing happens before what caused it, and corrections are reported. Prints JSON lines.
    #[command(after_help = "Example:\n\x20   thalweg log merge siteA/events.jsonl siteB/events.jsonl")]
    Merge(Files),
    /// Show the rate of all jobs together over time, from event logs
    ///
    /// Each job counts from its start to its end with its mean rate; those that overlap are added up. A job that several logs
    /// tell of counts once.
    #[command(after_help = "Example:\n\x20   thalweg log rate siteB/events.jsonl")]
    Rate(Files),
}

#[derive(clap::Args, Debug)]
pub struct Files {
    /// Event logs
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,
    /// One JSON object for each line; `merge` always prints them
    #[arg(long, env = "THALWEG_JSON")]
    json: bool,
}

pub fn run(action: Action) -> Result<Exit> {
    match action {
        Action::Merge(files) => events(&files)?.iter().map(text_of).all(|line| output::line(&line)),
        Action::Rate(files) => rates(&events(&files)?).iter().all(|moment| {
            let rate = Rate { bytes_per_second: moment.bytes_per_second };
            let bytes_per_second = moment.bytes_per_second.round() as u64;
            output::line(&match files.json {
                true => {
                    json!({"v": 1, "ts": ts(moment.at_us), "bytes_per_second": bytes_per_second, "jobs": moment.jobs})
                        .to_string()
                }
                false => format!("{}\t{rate}\t{}", ts(moment.at_us), counted(moment.jobs.into(), "job", "jobs")),
            })
        }),
    };
    Ok(Exit::Done)
}

fn events(files: &Files) -> Result<Vec<Event>> {
    let mut events = Vec::new();
    for path in &files.files {
        let log = File::open(path).and_then(|file| read(BufReader::new(file), EVENTS_MAX - events.len()));
        let log = log.map_err(|e| of_file("read", path, &e))?;
        if log.left_out > 0 {
            let lines = counted(log.left_out, "line is no event", "lines are no events");
            output::note(&format!("{}: {lines}", shown(path)));
        }
        events.extend(log.events);
    }
    let (events, corrections) = merged(events);
    for (host, by_us) in corrections.iter().filter(|(_, by_us)| **by_us != 0) {
        let (seconds, way) = (by_us.unsigned_abs() as f64 / 1e6, if *by_us > 0 { "behind" } else { "ahead" });
        output::note(&format!(
            "the clock of {} is at least {seconds:.6} s {way}; its times are corrected by that",
            shown(host)
        ));
    }
    Ok(events)
}

fn text_of(event: &Event) -> String {
    let mut fields = event.fields.clone();
    fields["ts"] = ts(event.at_us).into();
    fields.to_string()
}

fn ts(at_us: i64) -> String {
    let (seconds, micros) = (at_us.div_euclid(1_000_000), at_us.rem_euclid(1_000_000));
    let whole = Timestamp { seconds, nanoseconds: 0 }.rfc3339();
    format!("{}.{micros:06}Z", whole.trim_end_matches('Z'))
}
