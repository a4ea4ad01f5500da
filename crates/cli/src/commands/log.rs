//! `thalweg log`: what an endpoint of this host has done, job by job, as its ledger keeps it.
//!
//! Invariant: what is printed is bounded, and what was left out is said.

mod events;

use crate::exit::{Result, usage};
use crate::output::{self, counted, shown};
use daemon::Paths;
use daemon::past::{Job, Past, RecordedFailure, Role};
use model::Exit;
use model::name::Escaped;
use model::progress::Counts;
use model::quantity::ByteCount;
use model::quantity::parse_span;
use serde_json::{Value, json};
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

const VERSION: u32 = 1;
/// What the ledger gives at once.
const ROWS_MAX: usize = 10_000;

/// Show the jobs that an endpoint on this host has served: when, what, how they ended
///
/// One line for each run, most recent first: time, the job's id, state, source and destination, and what the run delivered
/// and failed to deliver. The same copy given again, and a retry, is another run of the same job; the last 1,000 of each job
/// are kept. With an ID, or its first digits, everything recorded about that job: its runs, and which files failed in the
/// latest one. Works while the endpoint runs. Jobs are deleted 90 days after their last change.
#[derive(clap::Args, Debug)]
#[command(args_conflicts_with_subcommands = true)]
#[command(after_help = "Examples:\n\
\x20   thalweg log --since 1d\n\
\x20   thalweg log 9ef1d6c0\n\
\x20   thalweg log --json --since 7d | jq 'select(.state == \"failed\")'")]
pub struct Args {
    #[command(subcommand)]
    events: Option<events::Action>,
    /// A job, by its id or the first digits of its id
    id: Option<String>,
    /// Only runs with something recorded in this time, such as 12h, 7d or 2w
    #[arg(long, value_name = "TIME", value_parser = parse_span, conflicts_with = "id", env = "THALWEG_SINCE")]
    since: Option<Duration>,
    /// Maximum number of lines: runs, or failures of one job; up to 10,000
    #[arg(long, value_name = "N", default_value = "100", env = "THALWEG_LINES")]
    lines: usize,
    /// One JSON object for each run or failure (docs/json.md)
    #[arg(long, env = "THALWEG_JSON")]
    json: bool,
    /// The endpoint's state directory [default: $XDG_STATE_HOME/thalweg]
    #[arg(long, value_name = "DIR", env = "THALWEG_STATE_DIR")]
    state_dir: Option<PathBuf>,
}

pub fn run(args: Args) -> Result<Exit> {
    if let Some(action) = args.events {
        return events::run(action);
    }
    if !(1..=ROWS_MAX).contains(&args.lines) {
        return Err(usage(format!("--lines {}: from 1 to 10,000", args.lines), "--since shortens the time"));
    }
    let past = Past::open(&Paths::from_env()?.with_state(args.state_dir.clone()).state)?;
    match &args.id {
        Some(id) => past.find(id)?.iter().try_for_each(|job| one(&args, &past, job))?,
        None => list(&args, &past)?,
    }
    Ok(Exit::Done)
}

fn list(args: &Args, past: &Past) -> Result<()> {
    let since = args.since.and_then(|time| SystemTime::now().checked_sub(time));
    // One more than is shown tells whether there is more.
    let mut jobs = past.runs(since, (args.lines + 1).min(ROWS_MAX))?;
    let has_more = jobs.len() > args.lines;
    jobs.truncate(args.lines);
    for job in &jobs {
        let text = if args.json { job_json(job).to_string() } else { line(job) };
        if !output::line(&text) {
            return Ok(());
        }
    }
    if has_more {
        let shown = counted(jobs.len() as u64, "run is", "runs are");
        output::note(&format!("only the latest {shown} shown; --lines N shows more"));
    }
    if jobs.is_empty() && !args.json {
        output::note("no job is known from that time");
    }
    Ok(())
}

fn one(args: &Args, past: &Past, job: &Job) -> Result<()> {
    let (failures, earlier) = (past.failures(job, 0, args.lines)?, past.earlier_runs(job, args.lines)?);
    if !args.json {
        output::text(&text_of_one(job, &failures, &earlier));
        return Ok(());
    }
    let runs = std::iter::once(job).chain(&earlier).map(job_json);
    let lines = runs.chain(failures.iter().map(|failure| failure_json(job, failure)));
    for line in lines {
        if !output::line(&line.to_string()) {
            break;
        }
    }
    Ok(())
}

fn text_of_one(job: &Job, failures: &[RecordedFailure], earlier: &[Job]) -> String {
    let counts = &job.counts;
    let settled = counts.files_done + counts.files_skipped + counts.files_failed;
    let mut lines = vec![
        format!("job          {}", job.key.id),
        format!("state        {}, {}", job.state, counted(job.attempts, "attempt", "attempts")),
        format!("source       {}", shown(&job.source)),
        format!("destination  {}", shown(&job.destination)),
        format!("client       {}", shown(&job.key.peer)),
        format!("options      {}", shown(&job.options)),
        format!("began        {}", time(job.created_unix_ms)),
        format!("last change  {}", time(job.updated_unix_ms)),
        format!(
            "files        {} delivered ({}), {} there before, {} failed, {} not reached",
            output::grouped(counts.files_done),
            ByteCount(counts.bytes_done),
            output::grouped(counts.files_skipped),
            output::grouped(counts.files_failed),
            output::grouped(counts.files_listed.saturating_sub(settled)),
        ),
    ];
    if let Some(ended) = job.finished_unix_ms {
        lines.insert(8, format!("ended        {}", time(ended)));
    }
    for RecordedFailure { failure, .. } in failures {
        let why = Escaped(failure.message.as_bytes());
        lines.push(format!("failed       {}: {}: {why}", Escaped(&failure.path), failure.kind.name()));
    }
    let left_out = (job.failures_listed + job.failures_unlisted).saturating_sub(failures.len() as u64);
    if left_out > 0 {
        lines.push(format!("             and {} more", output::grouped(left_out)));
    }
    lines.extend(earlier.iter().map(|run| {
        let time = time(run.updated_unix_ms);
        format!("before       {time}  {:<9}  {}", run.state.name(), delivered(&run.counts))
    }));
    lines.join("\n") + "\n"
}

/// `2026-11-22T13:31:00Z  9ef1d6c0  succeeded  client a -> lab:in  52 files, 1.20 GiB`
fn line(job: &Job) -> String {
    let (time, id) = (time(job.updated_unix_ms), job.key.id.to_string());
    format!(
        "{time}  {}  {:<9}  {} -> {}  {}",
        &id[..8],
        job.state.name(),
        shown(&job.source),
        shown(&job.destination),
        delivered(&job.counts)
    )
}

/// `52 files, 1.20 GiB, 3 there before`
fn delivered(counts: &Counts) -> String {
    let mut text = format!("{}, {}", counted(counts.files_done, "file", "files"), ByteCount(counts.bytes_done));
    for (count, what) in [(counts.files_skipped, "there before"), (counts.files_failed, "failed")] {
        if count > 0 {
            text.push_str(&format!(", {} {what}", output::grouped(count)));
        }
    }
    text
}

fn job_json(job: &Job) -> Value {
    let counts = &job.counts;
    let text = |text: &str| Escaped(text.as_bytes()).to_string();
    json!({
        "v": VERSION,
        "job": job.key.id.to_string(),
        "role": job.key.role.name(),
        "direction": match job.key.role { Role::Receiver => "in", Role::Sender => "out" },
        "client": text(&job.key.peer),
        "source": text(&job.source),
        "destination": text(&job.destination),
        "options": text(&job.options),
        "state": job.state.name(),
        "attempts": job.attempts,
        "began": time(job.created_unix_ms),
        "changed": time(job.updated_unix_ms),
        "ended": job.finished_unix_ms.map(time),
        "files": {"listed": counts.files_listed, "ok": counts.files_done, "skipped": counts.files_skipped,
            "failed": counts.files_failed},
        "bytes": counts.bytes_done,
        "sent_bytes": counts.bytes_sent,
        "resumed_bytes": counts.bytes_resumed,
        "failures_listed": job.failures_listed,
        "failures_left_out": job.failures_unlisted,
    })
}

fn failure_json(job: &Job, failure: &RecordedFailure) -> Value {
    let RecordedFailure { number, failure, at_unix_ms } = failure;
    json!({
        "v": VERSION,
        "job": job.key.id.to_string(),
        "failure": number,
        "path": Escaped(&failure.path).to_string(),
        "kind": failure.kind.name(),
        "message": Escaped(failure.message.as_bytes()).to_string(),
        "time": time(*at_unix_ms),
    })
}

fn time(unix_ms: i64) -> String {
    model::Timestamp { seconds: unix_ms.div_euclid(1000), nanoseconds: 0 }.rfc3339()
}
