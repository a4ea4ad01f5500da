//! `thalweg submit`: hands one job in at the hub.

use crate::exit::{self, Result, error};
use crate::output;
use crate::service::{HubArgs, Service};
use hub::JobFile;
use model::Exit;
use serde_json::json;
use std::io::Read;
use std::path::{Path, PathBuf};

/// Of a job file, or of a batch.
const FILE_BYTES_MAX: u64 = 8 << 20;

/// Hand in a job at the hub, and print its id
///
/// JOB is a job file in TOML, or in JSON if it begins with a brace. Submitting the same job while it is open finds it again.
#[derive(clap::Args, Debug)]
#[command(after_help = "Example:\n\
\x20   thalweg submit job.toml\n\
where job.toml is such as\n\
\x20   source = \"siteA:run7/\"\n\
\x20   destination = \"siteB:archive/run7/\"")]
pub struct Args {
    /// The job file; `-` reads it from standard input
    #[arg(value_name = "JOB|-")]
    file: PathBuf,
    /// The same key with the same job is the same job, also after it has ended
    #[arg(long, value_name = "KEY", env = "THALWEG_KEY")]
    key: Option<String>,
    /// A JSON object
    #[arg(long, env = "THALWEG_JSON")]
    json: bool,
    #[command(flatten)]
    hub: HubArgs,
}

pub fn run(args: Args) -> Result<Exit> {
    let job = read_job(&args.file)?;
    let body = serde_json::to_string(&job).unwrap_or_default();
    let taken = Service::new(&args.hub)?.post("/jobs", &body, args.key.as_deref())?;
    let (id, is_new) = (output::shown(taken["id"].as_str().unwrap_or_default()), taken["is_new"] == true);
    output::line(&match (args.json, is_new) {
        (true, _) => json!({"v": 1, "event": "job", "id": id, "is_new": is_new}).to_string(),
        (false, true) => format!("submitted as job {id}"),
        (false, false) => format!("this is already job {id}"),
    });
    Ok(Exit::Done)
}

pub fn read_job(file: &Path) -> Result<JobFile> {
    let text = read(file)?;
    let is_json = text.trim_start().starts_with('{');
    let job = if is_json { JobFile::from_json(&text) } else { JobFile::from_toml(&text) };
    job.map_err(|e| exit::Error { message: format!("{}: {}", output::shown(file), e.message), ..e })
}

/// A file that the user names, as text.
pub fn read(file: &Path) -> Result<String> {
    let mut bytes = Vec::new();
    let read = match file.as_os_str() == "-" {
        true => std::io::stdin().lock().take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes),
        false => std::fs::File::open(file).and_then(|opened| opened.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes)),
    };
    read.map_err(|e| exit::of_file("read", file, &e))?;
    let wrong =
        |why: &str| error(Exit::Usage, format!("{}: {why}", output::shown(file)), "docs/hub.md shows a job file");
    if bytes.len() as u64 > FILE_BYTES_MAX {
        return Err(wrong("larger than 8 MiB"));
    }
    String::from_utf8(bytes).map_err(|_| wrong("not UTF-8; write other bytes of paths as \\xff"))
}
