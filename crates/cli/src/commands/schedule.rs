//! `thalweg schedule`: jobs of the hub that begin again and again.

use super::submit::read_job;
use crate::exit::Result;
use crate::output::{self, shown};
use crate::service::jobs::text;
use crate::service::{HubArgs, Service};
use clap::Subcommand;
use hub::{ScheduleFile, Times};
use model::Exit;
use serde_json::{Value, json};
use std::path::PathBuf;

/// Have the hub begin a job again and again, at times of day on days of the week
#[derive(clap::Args, Debug)]
pub struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Subcommand, Debug)]
enum Action {
    /// Begin a job at each of these times
    ///
    /// A time that passes while the hub is away is made up for once when it is back. While the job that began last is still open,
    /// a time passes without another. When the clocks change, a skipped time counts at the moment of the change, and a repeated
    /// one once.
    #[command(after_help = "Example:\n\
\x20   thalweg schedule add nightly --at 02:30 --days mon,tue,wed,thu,fri --zone Europe/Berlin job.toml")]
    Add(Add),
    /// List the schedules, when each begins its next job, and what came of the last
    #[command(after_help = "Example:\n\x20   thalweg schedule ls")]
    Ls(List),
    /// Begin no more jobs until it is resumed
    #[command(after_help = "Example:\n\x20   thalweg schedule pause nightly")]
    Pause(One),
    /// Resume a paused schedule, from its next time on
    #[command(after_help = "Example:\n\x20   thalweg schedule resume nightly")]
    Resume(One),
    /// Begin its job now, in addition to its times, and print its id
    #[command(after_help = "Example:\n\x20   thalweg schedule run nightly")]
    Run(One),
    /// Remove a schedule; jobs that it began go on
    #[command(after_help = "Example:\n\x20   thalweg schedule rm nightly")]
    Rm(One),
}

#[derive(clap::Args, Debug)]
struct Add {
    /// What it is called
    #[arg(value_name = "NAME")]
    name: String,
    /// A time of day, or `*:MM` for each hour; may be given several times
    #[arg(long, value_name = "HH:MM", required = true, value_delimiter = ',', env = "THALWEG_AT")]
    at: Vec<String>,
    /// Days of the week, such as mon,fri [default: every day]
    #[arg(long, value_name = "DAYS", value_delimiter = ',', env = "THALWEG_DAYS")]
    days: Vec<String>,
    /// The time zone, such as Europe/Berlin [default: UTC]
    #[arg(long, value_name = "ZONE", env = "THALWEG_ZONE")]
    zone: Option<String>,
    /// The job file; `-` reads it from standard input
    #[arg(value_name = "JOB|-")]
    file: PathBuf,
    /// A JSON object
    #[arg(long, env = "THALWEG_JSON")]
    json: bool,
    #[command(flatten)]
    hub: HubArgs,
}

#[derive(clap::Args, Debug)]
struct List {
    /// One JSON object for each schedule
    #[arg(long, env = "THALWEG_JSON")]
    json: bool,
    #[command(flatten)]
    hub: HubArgs,
}

#[derive(clap::Args, Debug)]
struct One {
    /// The schedule
    #[arg(value_name = "NAME")]
    name: String,
    /// A JSON object
    #[arg(long, env = "THALWEG_JSON")]
    json: bool,
    #[command(flatten)]
    hub: HubArgs,
}

pub fn run(args: Args) -> Result<Exit> {
    match args.action {
        Action::Add(add) => {
            let Add { name, at, days, zone, file, json, hub } = add;
            let file = ScheduleFile { name, times: Times { at, days, zone }, job: read_job(&file)? };
            let body = serde_json::to_string(&file).unwrap_or_default();
            let added = Service::new(&hub)?.post("/schedules", &body, None)?;
            output::line(&if json { versioned(&added) } else { line(&added) });
        }
        Action::Ls(list) => {
            let all = Service::new(&list.hub)?.get("/schedules")?;
            for one in all.as_array().into_iter().flatten() {
                output::line(&if list.json { versioned(one) } else { line(one) });
            }
        }
        Action::Pause(one) => steer(&one, "pause")?,
        Action::Resume(one) => steer(&one, "resume")?,
        Action::Run(one) => {
            let begun = Service::new(&one.hub)?.post(&format!("{}/run", target(&one)), "", None)?;
            let id = text(&begun, "last_job");
            output::line(&match one.json {
                true => json!({"v": 1, "event": "job", "id": id, "is_new": true}).to_string(),
                false => format!("submitted as job {id}"),
            });
        }
        Action::Rm(one) => {
            Service::new(&one.hub)?.delete(&target(&one))?;
            if one.json {
                output::line(&json!({"v": 1, "name": one.name}).to_string());
            }
        }
    }
    Ok(Exit::Done)
}

fn steer(one: &One, verb: &str) -> Result<()> {
    let steered = Service::new(&one.hub)?.post(&format!("{}/{verb}", target(one)), "", None)?;
    if one.json {
        output::line(&versioned(&steered));
    }
    Ok(())
}

/// What is no name of a schedule is escaped, and found to be none by the hub.
fn target(one: &One) -> String {
    let mut target = "/schedules/".to_owned();
    for byte in one.name.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' => target.push(char::from(byte)),
            _ => target.push_str(&format!("%{byte:02X}")),
        }
    }
    target
}

fn versioned(schedule: &Value) -> String {
    let mut value = schedule.clone();
    value["v"] = json!(1);
    value.to_string()
}

/// Name, times, next time or state, source, destination, what came of the last.
fn line(schedule: &Value) -> String {
    let words = |key: &str| {
        let list = schedule["times"][key].as_array().map_or(&[][..], Vec::as_slice);
        list.iter().filter_map(Value::as_str).map(shown).collect::<Vec<_>>().join(",")
    };
    let (at, days, zone) = (words("at"), words("days"), text(&schedule["times"], "zone"));
    let zone = if zone.is_empty() { "UTC" } else { &zone };
    let days = if days.is_empty() { "every day" } else { &days };
    let next = match (schedule["is_paused"] == true, schedule["next"].as_str()) {
        (true, _) => "paused".to_owned(),
        (_, Some(next)) => format!("next {}", shown(next)),
        _ => "never".to_owned(),
    };
    let last = match (text(schedule, "last_job"), text(schedule, "text")) {
        (_, said) if !said.is_empty() => format!("\t{} {said}", text(schedule, "last")),
        (job, _) if !job.is_empty() => format!("\tlast job {job}"),
        _ => String::new(),
    };
    let (from, to) = (crate::service::jobs::sources(schedule), text(&schedule["job"], "destination"));
    format!("{}\t{at} {days} {zone}\t{next}\t{from}\t{to}{last}", text(schedule, "name"))
}
