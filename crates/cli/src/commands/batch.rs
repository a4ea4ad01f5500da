//! `thalweg batch`: hands many jobs in at the hub, all or none.

use super::submit::read;
use crate::exit::Result;
use crate::output::{self, counted};
use crate::service::{HubArgs, Service};
use model::Exit;
use serde_json::json;
use std::path::PathBuf;

/// Hand many jobs in to the hub, all or none, and print their ids in order
///
/// FILE has one job a line, in JSON, with the keys of a job file. Jobs may name themselves with `name`, and others of the batch
/// that they come after with `after`.
#[derive(clap::Args, Debug)]
#[command(after_help = "Example:\n\
\x20   thalweg batch jobs.jsonl\n\
with lines such as\n\
\x20   {\"source\": \"siteA:run7/\", \"destination\": \"siteB:run7/\", \"name\": \"data\"}\n\
\x20   {\"source\": \"siteA:done7\", \"destination\": \"siteB:done7\", \"after\": [\"data\"]}")]
pub struct Args {
    /// The jobs; `-` reads them from standard input
    #[arg(value_name = "FILE|-")]
    file: PathBuf,
    /// Idempotency key: the same batch with the same key is not handed in twice, even after its jobs have ended
    #[arg(long, value_name = "KEY")]
    key: Option<String>,
    /// One JSON object for each job
    #[arg(long, env = "THALWEG_JSON")]
    json: bool,
    #[command(flatten)]
    hub: HubArgs,
}

pub fn run(args: Args) -> Result<Exit> {
    let text = read(&args.file)?;
    let taken = Service::new(&args.hub)?.post("/jobs:batch", &text, args.key.as_deref())?;
    let jobs = taken.as_array().map_or(&[][..], Vec::as_slice);
    for job in jobs {
        let id = output::shown(job["id"].as_str().unwrap_or_default());
        let is_new = job["is_new"] == true;
        output::line(&match args.json {
            true => json!({"v": 1, "event": "job", "id": id, "is_new": is_new}).to_string(),
            false => id,
        });
    }
    if !args.json {
        let known = jobs.iter().filter(|job| job["is_new"] != true).count();
        let note = if known > 0 { format!("; {known} of them were there already") } else { String::new() };
        output::note(&format!("submitted {}{note}", counted(jobs.len() as u64, "job", "jobs")));
    }
    Ok(Exit::Done)
}
