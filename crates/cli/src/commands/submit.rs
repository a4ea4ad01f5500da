//! `thalweg submit`: hands one job in at the hub.

use crate::exit::{self, Result, error, usage};
use crate::output;
use crate::service::{HubArgs, Service, id_of};
use hub::JobFile;
use model::Exit;
use serde_json::json;
use std::io::Read;
use std::path::{Path, PathBuf};

/// Of a job file, or of a batch.
const FILE_BYTES_MAX: u64 = 8 << 20;

/// Hand a job in to the hub, and print its id
///
/// JOB is a job file in TOML, or in JSON if it begins with a brace. Submitting the same job while it is open finds it again.
/// With --dry-run its endpoints find out what it would do, and nothing is copied or removed; --rehearsed then hands it in.
#[derive(clap::Args, Debug)]
#[command(after_help = "Example:\n\
\x20   thalweg submit job.toml\n\
where job.toml has, for example,\n\
\x20   source = \"siteA:run7/\"\n\
\x20   destination = \"siteB:archive/run7/\"")]
pub struct Args {
    /// The job file; `-` reads it from standard input
    #[arg(value_name = "JOB|-", required_unless_present = "rehearsed")]
    file: Option<PathBuf>,
    /// Only say what the job would do, and estimate its duration from similar jobs
    #[arg(long, conflicts_with_all = ["key", "rehearsed"], env = "THALWEG_DRY_RUN")]
    dry_run: bool,
    /// Hand in the job that was rehearsed, within an hour of that
    #[arg(long, value_name = "ID", conflicts_with = "file", env = "THALWEG_REHEARSED")]
    rehearsed: Option<String>,
    /// Idempotency key: the same job with the same key is not handed in twice, even after it has ended
    #[arg(long, value_name = "KEY")]
    key: Option<String>,
    /// A JSON object
    #[arg(long, env = "THALWEG_JSON")]
    json: bool,
    #[command(flatten)]
    hub: HubArgs,
}

pub fn run(args: Args) -> Result<Exit> {
    let service = Service::new(&args.hub)?;
    let body = match &args.file {
        Some(file) => serde_json::to_string(&read_job(file)?).unwrap_or_default(),
        None => String::new(),
    };
    if args.dry_run {
        let begun = service.post("/rehearsals", &body, None)?;
        return service.rehearse(begun["id"].as_str().unwrap_or_default(), args.json);
    }
    let target = match &args.rehearsed {
        Some(id) => {
            let id = id_of(id).ok_or_else(|| {
                usage(
                    format!("{} is not the id of a rehearsal", output::shown(id)),
                    "`thalweg submit --dry-run JOB` prints it",
                )
            })?;
            format!("/rehearsals/{id}/submit")
        }
        None => "/jobs".to_owned(),
    };
    let taken = service.post(&target, &body, args.key.as_deref())?;
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
