//! `thalweg mkdir`: directories made.

use crate::args::ssh::SshArgs;
use crate::exit::Result;
use crate::output;
use crate::output::list;
use crate::place::{Failures, Places};
use model::Exit;
use model::files::Question;
use serde_json::json;
use std::ffi::OsString;

/// Make directories, here or at an endpoint
#[derive(clap::Args, Debug)]
#[command(after_help = "Example:\n\
\x20   thalweg mkdir -p lab:results/2026/run7")]
pub struct Args {
    /// What to make: PATH, NAME:PATH or tw://ADDR:PORT/PATH
    #[arg(required = true, value_name = "LOC")]
    locations: Vec<OsString>,
    /// Also make missing parent directories; an existing directory is not an error
    #[arg(short, long, env = "THALWEG_PARENTS")]
    parents: bool,
    /// A JSON object that says what was done
    #[arg(long, env = "THALWEG_JSON")]
    json: bool,
    #[command(flatten)]
    ssh: SshArgs,
}

pub fn run(args: Args) -> Result<Exit> {
    let places = Places::new(&args.ssh)?;
    let mut failures = Failures::default();
    let mut made = 0;
    let asked = places.open_all(&args.locations)?.iter().try_for_each(|place| {
        let question = Question::Make { paths: place.paths(), with_parents: args.parents };
        let answer = place.ask(&question, &places.interrupt, &mut |record| {
            failures.note(place, &record);
            true
        })?;
        made += answer.tally.directories;
        answer.finished().map(drop)
    });
    let ended = asked.and_then(|()| failures.conclude(Exit::Done, "made"));
    if args.json {
        let code = ended.as_ref().map_or_else(|e| e.exit, |exit| *exit) as i32;
        output::line(&list::done(json!({"directories": made, "failed": failures.count, "code": code})).to_string());
    }
    ended
}
