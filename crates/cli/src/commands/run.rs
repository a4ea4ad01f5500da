//! `thalweg run`: carries out a job file here.

use super::{cp, submit};
use crate::args::values;
use crate::exit::{self, Result, usage};
use crate::output::{self, progress::Mode};
use hub::JobFile;
use model::Exit;
use model::order::Kind;
use std::path::PathBuf;

/// Carry out a job file on this host
///
/// The same file that `thalweg submit` hands in to a hub; here sources and destination may also be on this host. What only a hub
/// heeds (start and end times, windows, priority, jobs that come first) is ignored.
#[derive(clap::Args, Debug)]
#[command(after_help = "Example:\n\
\x20   thalweg run job.toml\n\
where job.toml has, for example,\n\
\x20   source = \"run7/\"\n\
\x20   destination = \"siteB:archive/run7/\"\n\
\x20   [options]\n\
\x20   digest = \"blake3\"")]
pub struct Args {
    /// The job file, in TOML, or in JSON if it begins with a brace; `-` reads it from standard input
    #[arg(value_name = "JOB|-")]
    file: PathBuf,
    /// A buffer on this host: reads slow sources ahead, or receives for slow storage (docs/buffers.md)
    #[arg(long, value_name = "DIR:SIZE", value_parser = values::buffer, env = "THALWEG_BUFFER")]
    buffer: Option<(PathBuf, u64)>,
    /// Newline-delimited JSON events on standard output (docs/json.md); the last one sums up
    #[arg(long, env = "THALWEG_JSON")]
    json: bool,
    /// How progress is shown on standard error
    #[arg(
        long,
        value_name = "auto|bar|plain|none",
        default_value = "auto",
        hide_possible_values = true,
        env = "THALWEG_PROGRESS"
    )]
    progress: Mode,
    /// Afterwards, say what was chosen automatically, and why
    #[arg(long, env = "THALWEG_EXPLAIN")]
    explain: bool,
    /// Only errors
    #[arg(short, long, env = "THALWEG_QUIET")]
    quiet: bool,
}

pub fn run(args: Args) -> Result<Exit> {
    let text = submit::read(&args.file)?;
    let is_json = text.trim_start().starts_with('{');
    let job = if is_json { JobFile::from_json(&text) } else { JobFile::from_toml(&text) };
    let (kind, spec) = job
        .and_then(|job| job.transfer())
        .map_err(|e| exit::Error { message: format!("{}: {}", output::shown(&args.file), e.message), ..e })?;
    let flags = [(args.json, "--json"), (args.explain, "--explain"), (args.quiet, "--quiet")];
    let flags = flags.into_iter().filter(|(is_set, _)| *is_set).map(|(_, flag)| flag.to_owned()).collect();
    let command = match kind {
        Kind::Copy if spec.options.follow.is_some() => "follow",
        Kind::Copy => "cp",
        Kind::Sync => "sync",
        Kind::Move | Kind::Check => {
            let text = format!("a job of the kind {kind} is not carried out by this command");
            let same = if kind == Kind::Move { "mv" } else { "check" };
            return Err(usage(text, format!("`thalweg {same}` does the same here; `thalweg submit` hands it in")));
        }
    };
    cp::run_spec(command, spec, flags, args.buffer, args.progress)
}
