//! `thalweg stat`: what is known of single objects.

use crate::args::ssh::SshArgs;
use crate::exit::Result;
use crate::output::grouped;
use crate::output::list::{self, Lines, arrow};
use crate::place::{Failures, Places};
use model::Exit;
use model::files::{FileStatus, Found, Question};
use model::quantity::ByteCount;
use std::ffi::OsString;

/// Show the status of files and directories, here or at an endpoint
///
/// Owner and group are numbers on the host that has the files. A link itself is shown; `LINK/` shows the directory that
/// it points to.
#[derive(clap::Args, Debug)]
#[command(after_help = "Example:\n\
\x20   thalweg stat lab:results/run7.h5")]
pub struct Args {
    /// What to look at: PATH, NAME:PATH or tw://ADDR:PORT/PATH
    #[arg(required = true, value_name = "LOC")]
    locations: Vec<OsString>,
    /// One JSON object for each location
    #[arg(long, env = "THALWEG_JSON")]
    json: bool,
    #[command(flatten)]
    ssh: SshArgs,
}

pub fn run(args: Args) -> Result<Exit> {
    let places = Places::new(&args.ssh)?;
    let mut lines = Lines::new();
    let mut failures = Failures::default();
    for place in places.open_all(&args.locations)? {
        let question = Question::List { paths: place.paths(), levels: 0, digest: None };
        let answer = place.ask(&question, &places.interrupt, &mut |record| {
            let path = place.shown(&record.path);
            failures.note(&place, &record);
            match &record.found {
                _ if args.json => lines.json(&list::record(&path, &record)),
                Found::Object { status, .. } => lines.text(&described(&path, status)),
                _ => true,
            }
        })?;
        lines.flush();
        answer.finished()?;
    }
    failures.conclude(Exit::Done, "looked at")
}

fn described(path: &str, status: &FileStatus) -> String {
    let moment = |time: &model::Timestamp| {
        let seconds = time.rfc3339();
        format!("{}.{:09}Z", seconds.trim_end_matches('Z'), time.nanoseconds)
    };
    format!(
        "    path: {path}{}\n    kind: {}\n    size: {} bytes ({}), {} allocated\n    mode: {:04o} ({})\n   \
         owner: {}\n   group: {}\n   links: {}\n   inode: {} on device {}\nmodified: {}\n changed: {}",
        arrow(status),
        status.kind.name(),
        grouped(status.size_bytes),
        ByteCount(status.size_bytes),
        grouped(status.allocated_bytes),
        status.mode,
        list::mode(status),
        status.owner,
        status.group,
        status.links,
        status.inode,
        status.device,
        moment(&status.modified),
        moment(&status.changed),
    )
}
