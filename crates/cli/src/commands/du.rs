//! `thalweg du`: what directories hold, summed up where they are.

use crate::args::ssh::SshArgs;
use crate::exit::Result;
use crate::output::list::{self, Lines};
use crate::place::{Failures, Places};
use model::Exit;
use model::files::{ALL_LEVELS, Found, Question};
use model::quantity::ByteCount;
use std::ffi::OsString;

/// Add up the sizes of directories, here or at an endpoint
///
/// Adds up file sizes, or with --allocated the storage they use. A file with several names counts once for each. The
/// endpoint adds up its own files and sends only the sums.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:\n\
\x20   thalweg du -s lab:results\n\
\x20   thalweg du -d 1 --bytes lab: | sort -n")]
pub struct Args {
    /// What to add up: PATH, NAME:PATH or tw://ADDR:PORT/PATH
    #[arg(value_name = "LOC", default_value = ".")]
    locations: Vec<OsString>,
    /// Only one line for each location
    #[arg(short, long, conflicts_with = "depth", env = "THALWEG_SUMMARIZE")]
    summarize: bool,
    /// Print lines for directories down to this many levels below each location [default: all]
    #[arg(short, long, value_name = "N", env = "THALWEG_DEPTH")]
    depth: Option<u32>,
    /// Storage used instead of file sizes
    #[arg(long, env = "THALWEG_ALLOCATED")]
    allocated: bool,
    /// Numbers of bytes, without units
    #[arg(short, long, env = "THALWEG_BYTES")]
    bytes: bool,
    /// One JSON object for each line, with counts of files and directories
    #[arg(long, env = "THALWEG_JSON")]
    json: bool,
    #[command(flatten)]
    ssh: SshArgs,
}

pub fn run(args: Args) -> Result<Exit> {
    let places = Places::new(&args.ssh)?;
    let opened = places.open_all(&args.locations)?;
    let levels = if args.summarize { 0 } else { args.depth.unwrap_or(ALL_LEVELS) };
    let mut lines = Lines::new();
    let mut failures = Failures::default();
    for place in &opened {
        let question = Question::Usage { paths: place.paths(), levels };
        let answer = place.ask(&question, &places.interrupt, &mut |record| {
            let path = place.shown(&record.path);
            failures.note(place, &record);
            if args.json {
                return lines.json(&list::record(&path, &record));
            }
            let Found::Usage(tally) = &record.found else { return true };
            let bytes = if args.allocated { tally.allocated_bytes } else { tally.bytes };
            let shown = if args.bytes { bytes.to_string() } else { ByteCount(bytes).to_string() };
            lines.text(&format!("{shown}\t{path}"))
        })?;
        lines.flush();
        answer.finished()?;
    }
    failures.conclude(Exit::Done, "looked at")
}
