//! `thalweg tree`: a tree drawn with lines, streamed as it is listed.

use crate::args::ssh::SshArgs;
use crate::exit::Result;
use crate::output::list::{self, Lines, arrow};
use crate::output::{counted, shown};
use crate::place::{Failures, Places};
use model::Exit;
use model::files::{ALL_LEVELS, Found, Question};
use model::name::Escaped;
use model::quantity::ByteCount;
use std::ffi::OsString;

/// Draw directories as trees, here or at an endpoint
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:\n\
\x20   thalweg tree lab:results\n\
\x20   thalweg tree -L 2 lab:")]
pub struct Args {
    /// What to draw: PATH, NAME:PATH or tw://ADDR:PORT/PATH
    #[arg(value_name = "LOC", default_value = ".")]
    locations: Vec<OsString>,
    /// Levels to go down [default: all]
    #[arg(short = 'L', long, value_name = "N", env = "THALWEG_LEVELS")]
    levels: Option<u32>,
    /// Show the sizes of files before their names
    #[arg(short, long, env = "THALWEG_SIZES")]
    sizes: bool,
    /// One JSON object for each name, as `ls --json` writes them
    #[arg(long, env = "THALWEG_JSON")]
    json: bool,
    #[command(flatten)]
    ssh: SshArgs,
}

pub fn run(args: Args) -> Result<Exit> {
    let places = Places::new(&args.ssh)?;
    let opened = places.open_all(&args.locations)?;
    let mut lines = Lines::new();
    let mut failures = Failures::default();
    for (place, location) in opened.iter().zip(&args.locations) {
        let question = Question::List { paths: place.paths(), levels: args.levels.unwrap_or(ALL_LEVELS), digest: None };
        let mut drawing = Drawing::default();
        let answer = place.ask(&question, &places.interrupt, &mut |record| {
            let is_failure = failures.note(place, &record);
            if args.json {
                return lines.json(&list::record(&place.shown(&record.path), &record));
            }
            let Found::Object { status, .. } = &record.found else { return is_failure };
            if record.path.is_empty() {
                return lines.text(&format!("{}{}", shown(location), arrow(status)));
            }
            let branch = drawing.branch(&record.path, record.is_last);
            let size = match args.sizes && !status.is_directory() {
                true => format!("[{:>9}]  ", ByteCount(status.size_bytes).to_string()),
                false => String::new(),
            };
            let name = record.path.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
            lines.text(&format!("{branch}{size}{}{}", Escaped(name), arrow(status)))
        })?;
        let tally = answer.finished()?;
        if !args.json {
            let directories = tally.directories.saturating_sub(1);
            let (directories, files) =
                (counted(directories, "directory", "directories"), counted(tally.files, "file", "files"));
            lines.text(&format!("\n{directories}, {files}"));
        }
        lines.flush();
    }
    failures.conclude(Exit::Done, "listed")
}

/// Which of the directories on the way are the last in theirs: nothing is drawn below those.
#[derive(Default)]
struct Drawing {
    is_last: Vec<bool>,
}

impl Drawing {
    fn branch(&mut self, path: &[u8], is_last: bool) -> String {
        let depth = path.iter().filter(|byte| **byte == b'/').count();
        // A listing goes down one level at a time; what an endpoint says otherwise is drawn somehow.
        self.is_last.resize(depth, false);
        let mut text: String = self.is_last.iter().map(|is_last| if *is_last { "    " } else { "│   " }).collect();
        text.push_str(if is_last { "└── " } else { "├── " });
        self.is_last.push(is_last);
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn branches_end_where_nothing_follows() {
        let mut drawing = Drawing::default();
        let mut branch = |path: &[u8], is_last| drawing.branch(path, is_last);
        assert_eq!(branch(b"a", false), "├── ");
        assert_eq!(branch(b"a/x", true), "│   └── ");
        assert_eq!(branch(b"a/x/y", true), "│       └── ");
        assert_eq!(branch(b"b", true), "└── ");
        assert_eq!(branch(b"b/z", false), "    ├── ");
    }
}
