//! `thalweg buffer`: what waits in an endpoint's buffer, on the endpoint's host.

use crate::exit::{Error, Result, error, usage};
use crate::output;
use daemon::Paths;
use model::Exit;
use model::name::Escaped;
use model::quantity::ByteCount;
use mover::session::{DRAIN, DROP, Waiting, waiting};
use serde_json::json;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

/// How long an endpoint may take to see a request.
const PATIENCE: Duration = Duration::from_secs(10);
const INTERVAL: Duration = Duration::from_millis(100);

/// List, deliver or drop what waits in an endpoint's buffer
///
/// For the user who runs the endpoint, on its host (docs/buffers.md). A running endpoint delivers waiting content automatically.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:\n\
\x20   thalweg buffer ls\n\
\x20   thalweg buffer drain\n\
\x20   thalweg buffer drop 9ef1d6c01cfd5334fa7a65dbd1440f4d")]
pub struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(clap::Subcommand, Debug)]
pub enum Action {
    /// One line for each job with content in the buffer: what it takes, for how long, the client and the destination
    #[command(after_help = "Example:\n\
\x20   thalweg buffer ls --json")]
    Ls {
        #[command(flatten)]
        place: Place,
        /// One JSON object for each job on standard output, and one for the buffer
        #[arg(long, env = "THALWEG_JSON")]
        json: bool,
    },
    /// Retry at once what the storage refused, and wait until the buffer is empty
    #[command(after_help = "Example:\n\
\x20   thalweg buffer drain")]
    Drain {
        #[command(flatten)]
        place: Place,
    },
    /// Throw away the waiting content of a job whose sender is gone
    #[command(after_help = "Example:\n\
\x20   thalweg buffer drop 9ef1d6c01cfd5334fa7a65dbd1440f4d")]
    Drop {
        #[command(flatten)]
        place: Place,
        /// As `thalweg buffer ls` shows it
        #[arg(value_name = "ID")]
        job: String,
    },
}

#[derive(clap::Args, Debug)]
pub struct Place {
    /// The endpoint's state directory [default: $XDG_STATE_HOME/thalweg]
    #[arg(long, value_name = "DIR", env = "THALWEG_STATE_DIR")]
    state_dir: Option<PathBuf>,
}

pub fn run(args: Args) -> Result<Exit> {
    match args.action {
        Action::Ls { place, json } => list(&place.find()?, json),
        Action::Drain { place } => drain(&place.find()?),
        Action::Drop { place, job } => drop_job(&place.find()?, &job),
    }
}

impl Place {
    fn find(self) -> Result<PathBuf> {
        let state = Paths::from_env()?.with_state(self.state_dir).state;
        daemon::buffer_of(&state)?.ok_or_else(|| {
            usage(
                "the endpoint of this state directory has no buffer",
                "name another one with --state-dir, or start it with `serve --buffer`",
            )
        })
    }
}

fn list(directory: &Path, json: bool) -> Result<Exit> {
    let (capacity, jobs) = look(directory)?;
    for job in &jobs {
        let seconds = age(job);
        let destination = Escaped(&job.destination).to_string();
        if json {
            output::line(
                &json!({"v": 1, "job": job.job.to_string(), "client": job.client, "destination": destination,
                    "bytes": job.bytes, "seconds": seconds})
                .to_string(),
            );
        } else {
            let (bytes, time) = (ByteCount(job.bytes), output::duration(seconds));
            output::line(&format!("{} {bytes} for {time}, from {}, to {destination}", job.job, job.client));
        }
    }
    let used: u64 = jobs.iter().map(|job| job.bytes).sum();
    match json {
        true => _ = output::line(&json!({"v": 1, "used_bytes": used, "capacity_bytes": capacity}).to_string()),
        false => output::note(&format!("{} of {} in use", ByteCount(used), ByteCount(capacity))),
    }
    Ok(Exit::Done)
}

fn drain(directory: &Path) -> Result<Exit> {
    let mut left = u64::MAX;
    loop {
        let (_, jobs) = look(directory)?;
        let bytes = jobs.iter().map(|job| job.bytes).sum();
        if jobs.is_empty() {
            return Ok(Exit::Done);
        }
        match left {
            u64::MAX => ask(directory, DRAIN)?,
            // It may end before the rest is delivered.
            _ => check_used(directory)?,
        }
        if bytes < left {
            output::note(&format!("{} left", ByteCount(bytes)));
            left = bytes;
        }
        std::thread::park_timeout(INTERVAL);
    }
}

fn drop_job(directory: &Path, id: &str) -> Result<Exit> {
    let holds = || look(directory).map(|(_, jobs)| jobs.iter().any(|job| job.job.to_string() == id));
    if !holds()? {
        return Err(error(Exit::Failed, format!("job {id} has nothing waiting"), "`thalweg buffer ls` lists the jobs"));
    }
    let request = format!("{DROP} {id}");
    ask(directory, &request)?;
    let deadline = Instant::now() + PATIENCE;
    while holds()? {
        if Instant::now() >= deadline {
            // What is told as not dropped is not dropped later.
            let (text, hint) = match store::spool::withdraw(directory, &request).map_err(|e| failed(&e))? {
                true => (
                    format!("the endpoint did not answer: nothing of {id} was dropped"),
                    "check its log, and give the command again when it responds",
                ),
                false => (
                    format!("the endpoint has not dropped {id} yet"),
                    "what a client is still sending only the client can stop; what is on its way to storage is dropped \
                     when storage answers",
                ),
            };
            return Err(error(Exit::Failed, text, hint));
        }
        std::thread::park_timeout(INTERVAL);
    }
    Ok(Exit::Done)
}

fn ask(directory: &Path, request: &str) -> Result<()> {
    check_used(directory)?;
    store::spool::ask(directory, request).map_err(|e| failed(&e))
}

/// Nobody else than an endpoint that runs delivers or drops anything.
fn check_used(directory: &Path) -> Result<()> {
    if store::spool::is_used(directory).map_err(|e| failed(&e))? {
        return Ok(());
    }
    let text = format!("no endpoint runs with the buffer {}", output::shown(directory));
    Err(error(Exit::Failed, text, "start it with this buffer (`serve --buffer`) and give the command again"))
}

fn look(directory: &Path) -> Result<(u64, Vec<Waiting>)> {
    waiting(directory).map_err(|e| failed(&e))
}

fn failed(e: &store::Error) -> Error {
    error(Exit::Failed, e.to_string(), "run this as the user that runs the endpoint, on its host")
}

fn age(job: &Waiting) -> f64 {
    SystemTime::now().duration_since(job.since).unwrap_or_default().as_secs_f64()
}
