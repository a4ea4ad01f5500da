//! `thalweg rm`: files and trees removed where they are.

use crate::args::ssh::SshArgs;
use crate::exit::Result;
use crate::output::{self, counted, list};
use crate::place::{Failures, Place, Places, in_questions};
use model::files::{Doomed, Found, Question, Tally};
use model::{Exit, FailureKind};
use serde_json::json;
use std::ffi::OsString;

/// Remove files, and with -r directories and their contents, here or at an endpoint
///
/// Does not ask for confirmation. The host that has the files removes them, with several threads. A link is removed,
/// not its target. The root of an endpoint, and the path of a limited ticket, cannot be removed.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:\n\
\x20   thalweg rm lab:results/run7.h5\n\
\x20   thalweg rm -r lab:scratch/old")]
pub struct Args {
    /// What to remove: PATH, NAME:PATH or tw://ADDR:PORT/PATH
    #[arg(required = true, value_name = "LOC")]
    locations: Vec<OsString>,
    /// Also directories, with everything below them
    #[arg(short, long)]
    recursive: bool,
    /// A missing file is not an error
    #[arg(short, long)]
    force: bool,
    /// Only errors
    #[arg(short, long, env = "THALWEG_QUIET")]
    quiet: bool,
    /// A JSON object that says what was done
    #[arg(long, env = "THALWEG_JSON")]
    json: bool,
    #[command(flatten)]
    ssh: SshArgs,
}

pub fn run(args: Args) -> Result<Exit> {
    let places = Places::new(&args.ssh)?;
    let mut failures = Failures::default();
    let mut total = Tally::default();
    let mut removed = Ok(());
    for group in by_side(places.open_all(&args.locations)?) {
        let objects = group.iter().map(|place| Doomed { path: place.path.clone(), version: None }).collect();
        let question = Question::Remove { objects, is_recursive: args.recursive, may_be_directory: false };
        let answer = group[0].ask(&question, &places.interrupt, &mut |record| {
            let is_missing = matches!(record.found, Found::Failed { kind: FailureKind::NotFound, .. });
            // `asked` was checked against the question.
            let place = &group[record.asked as usize];
            if !(args.force && is_missing && record.path.is_empty()) {
                failures.note(place, &record);
            }
            true
        });
        removed = answer.and_then(|answer| {
            total.add(&answer.tally);
            answer.finished().map(drop)
        });
        if removed.is_err() {
            break;
        }
    }
    let ended = removed.and_then(|()| failures.conclude(Exit::Done, "removed"));
    if args.json {
        let code = ended.as_ref().map_or_else(|e| e.exit, |exit| *exit) as i32;
        let line = json!({"files": total.files, "directories": total.directories, "failed": failures.count,
            "code": code});
        output::line(&list::done(line).to_string());
    } else if !args.quiet {
        let files = counted(total.files, "file", "files");
        output::note(&format!("removed {files}, {}", counted(total.directories, "directory", "directories")));
    }
    ended
}

/// Neighbours of one side together, in questions of bounded length; the order stays.
fn by_side(places: Vec<Place>) -> Vec<Vec<Place>> {
    let mut groups: Vec<Vec<Place>> = Vec::new();
    for place in places {
        match groups.last_mut() {
            Some(last) if last[0].side.is(&place.side) => last.push(place),
            _ => groups.push(vec![place]),
        }
    }
    groups.into_iter().flat_map(|group| in_questions(group, |place| place.path.len())).collect()
}
