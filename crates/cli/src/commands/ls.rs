//! `thalweg ls`: what lies at locations, in the order of names.

use crate::args::ssh::SshArgs;
use crate::exit::Result;
use crate::output::list::{self, Lines, arrow};
use crate::place::{Failures, Place, Places};
use crate::selection::SelectionArgs;
use model::Exit;
use model::files::{ALL_LEVELS, FileStatus, Found, Question, Record};
use model::name::Escaped;
use std::borrow::Cow;
use std::ffi::OsString;

/// List files and directories, here or at an endpoint
///
/// One name per line, sorted by bytes, directories with a trailing slash; names that begin with a dot are included.
/// With several locations every line begins with its location. A link is listed, not followed; `LINK/` lists the
/// directory that it points to. Control characters in names are shown as escapes; --print0 writes names as they are.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:\n\
\x20   thalweg ls lab:results/\n\
\x20   thalweg ls -lR lab:\n\
\x20   thalweg ls --print0 -R lab:data | xargs -0 -n1 echo")]
pub struct Args {
    /// What to list: PATH, NAME:PATH or tw://ADDR:PORT/PATH
    #[arg(value_name = "LOC", default_value = ".")]
    locations: Vec<OsString>,
    /// Also mode, owner, group, size and time
    #[arg(short, long, env = "THALWEG_LONG")]
    long: bool,
    /// Also everything below, with paths
    #[arg(short = 'R', long, env = "THALWEG_RECURSIVE")]
    recursive: bool,
    /// Directories themselves, not their contents
    #[arg(short, long, env = "THALWEG_DIRECTORY")]
    directory: bool,
    /// End every name with a NUL byte and write it as it is
    #[arg(short = '0', long, conflicts_with_all = ["long", "json"], env = "THALWEG_PRINT0")]
    print0: bool,
    /// One JSON object for each name
    #[arg(long, env = "THALWEG_JSON")]
    json: bool,
    /// Accepted for habit: names that begin with a dot are always listed
    #[arg(short, long, env = "THALWEG_ALL")]
    all: bool,
    #[command(flatten)]
    ssh: SshArgs,
    #[command(flatten)]
    selection: SelectionArgs,
}

pub fn run(args: Args) -> Result<Exit> {
    let places = Places::new(&args.ssh)?;
    let opened = places.open_all(&args.locations)?;
    let levels = match (args.directory, args.recursive) {
        (true, _) => 0,
        (false, true) => ALL_LEVELS,
        (false, false) => 1,
    };
    let chosen = args.selection.chosen()?;
    let mut lines = Lines::new();
    let mut failures = Failures::default();
    for place in &opened {
        let question = Question::List { paths: place.paths(), levels, digest: None };
        let prefix = chosen.prefix(place);
        let shown = Shown { args: &args, place, with_location: opened.len() > 1 };
        let answer = place.ask(&question, &places.interrupt, &mut |record| {
            failures.note(place, &record);
            !chosen.takes_record(prefix, &record) || shown.write(&mut lines, &record)
        })?;
        lines.flush();
        answer.finished()?;
    }
    failures.conclude(Exit::Done, "listed")
}

struct Shown<'a> {
    args: &'a Args,
    place: &'a Place,
    with_location: bool,
}

impl Shown<'_> {
    fn write(&self, lines: &mut Lines, record: &Record) -> bool {
        let Found::Object { status, .. } = &record.found else {
            return !self.args.json || lines.json(&list::record(&self.place.shown(&record.path), record));
        };
        // What was named is what it holds, if it holds anything.
        if record.path.is_empty() && status.is_directory() && !self.args.directory {
            return true;
        }
        if self.args.json {
            return lines.json(&list::record(&self.place.shown(&record.path), record));
        }
        let name = match self.with_location || record.path.is_empty() {
            true => Cow::Owned(self.place.location(&record.path)),
            false => Cow::Borrowed(&record.path[..]),
        };
        if self.args.print0 {
            return lines.bytes(&name) && lines.bytes(b"\0");
        }
        lines.line(|out| {
            if self.args.long {
                put_details(out, status);
            }
            Escaped(&name).put(out);
            if status.is_directory() && !name.ends_with(b"/") {
                out.push(b'/');
            }
            if self.args.long {
                out.extend_from_slice(arrow(status).as_bytes());
            }
        })
    }
}

/// What stands before the name in a long listing.
fn put_details(out: &mut Vec<u8>, status: &FileStatus) {
    list::put_mode(out, status);
    for (number, width) in [(status.owner.into(), 6), (status.group.into(), 6), (status.size_bytes, 15)] {
        out.push(b' ');
        list::put_right(out, number, width);
    }
    out.push(b' ');
    out.extend_from_slice(status.modified.rfc3339().as_bytes());
    out.push(b' ');
}
