//! `thalweg du`: what directories hold, summed up where they are.

use crate::args::ssh::SshArgs;
use crate::exit::Result;
use crate::output::list::{self, Lines};
use crate::place::{Failures, Places};
use crate::selection::SelectionArgs;
use model::Exit;
use model::files::{ALL_LEVELS, Found, Question, Record, Tally};
use model::quantity::ByteCount;
use std::ffi::OsString;

/// Add up the sizes of directories, here or at an endpoint
///
/// Adds up file sizes, or with --allocated the storage they use. A file with several names counts once for each. The
/// endpoint adds up its own files and sends only the sums; where
/// files are selected, it sends the listing.
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
    #[arg(short, long = "max-depth", alias = "depth", value_name = "N", env = "THALWEG_MAX_DEPTH")]
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
    #[command(flatten)]
    selection: SelectionArgs,
}

pub fn run(args: Args) -> Result<Exit> {
    let places = Places::new(&args.ssh)?;
    let opened = places.open_all(&args.locations)?;
    let levels = if args.summarize { 0 } else { args.depth.unwrap_or(ALL_LEVELS) };
    let mut lines = Lines::new();
    let mut failures = Failures::default();
    let chosen = args.selection.chosen()?;
    for place in &opened {
        let prefix = chosen.prefix(place);
        let mut sums = Sums { levels, open: Vec::new() };
        let mut show = |record: Record| {
            let path = place.shown(&record.path);
            failures.note(place, &record);
            if args.json {
                return lines.json(&list::record(&path, &record));
            }
            let Found::Usage(tally) = &record.found else { return true };
            let bytes = if args.allocated { tally.allocated_bytes } else { tally.bytes };
            let shown = if args.bytes { bytes.to_string() } else { ByteCount(bytes).to_string() };
            lines.text(&format!("{shown}\t{path}"))
        };
        let answer = if chosen.is_everything {
            place.ask(&Question::Usage { paths: place.paths(), levels }, &places.interrupt, &mut show)?
        } else {
            let question = Question::List { paths: place.paths(), levels: ALL_LEVELS, digest: None };
            let answer = place.ask(&question, &places.interrupt, &mut |record| {
                let is_taken = chosen.takes_record(prefix, &record);
                sums.add(record, is_taken, &mut show)
            })?;
            sums.leave(b"", &mut show);
            answer
        };
        lines.flush();
        answer.finished()?;
    }
    failures.conclude(Exit::Done, "looked at")
}

/// Sums up a listing, whose order is that of a walk: what is in a directory comes right behind it.
struct Sums {
    levels: u32,
    /// The directories on the way, the outermost first.
    open: Vec<Open>,
}

struct Open {
    path: Vec<u8>,
    /// Otherwise it counts only with what is in it.
    is_taken: bool,
    tally: Tally,
}

impl Sums {
    /// Takes an object in, and shows the directories that end before it. False when nobody reads any more.
    fn add(&mut self, record: Record, is_taken: bool, show: &mut dyn FnMut(Record) -> bool) -> bool {
        let status = match &record.found {
            Found::Object { status, .. } => status,
            _ => {
                self.open.iter_mut().last().into_iter().for_each(|open| open.tally.failed += 1);
                return show(record);
            }
        };
        if !self.leave(&record.path, show) {
            return false;
        }
        if status.is_directory() {
            let tally = Tally { allocated_bytes: status.allocated_bytes, ..Tally::default() };
            self.open.push(Open { path: record.path, is_taken, tally });
            return true;
        }
        match self.open.last_mut() {
            _ if !is_taken => true,
            Some(open) => {
                open.tally.count(status);
                true
            }
            None => {
                let mut tally = Tally::default();
                tally.count(status);
                show(Record { found: Found::Usage(tally), ..record })
            }
        }
    }

    /// Shows the directories that do not hold `path`; all of them when it is empty, which is in none.
    fn leave(&mut self, path: &[u8], show: &mut dyn FnMut(Record) -> bool) -> bool {
        let holds = |directory: &[u8]| {
            !path.is_empty()
                && (directory.is_empty() || path.strip_prefix(directory).is_some_and(|rest| rest.starts_with(b"/")))
        };
        while let Some(Open { path: directory, is_taken, tally }) = self.open.pop_if(|open| !holds(&open.path)) {
            if !is_taken && tally.files + tally.directories + tally.failed == 0 {
                continue;
            }
            let depth = self.open.len() as u64;
            if let Some(above) = self.open.last_mut() {
                above.tally.add(&tally);
                above.tally.directories += 1;
            }
            let record = Record { asked: 0, path: directory, is_last: false, found: Found::Usage(tally) };
            if depth <= u64::from(self.levels) && !show(record) {
                return false;
            }
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::files::{FileKind, FileStatus};

    fn object(path: &str, kind: FileKind, size_bytes: u64) -> Record {
        let (modified, changed) = Default::default();
        let (mode, allocated_bytes, owner, group, links, inode, device) = Default::default();
        let status = FileStatus {
            kind,
            mode,
            size_bytes,
            allocated_bytes,
            owner,
            group,
            links,
            inode,
            device,
            modified,
            changed,
        };
        Record { asked: 0, path: path.into(), is_last: false, found: Found::Object { status, sum: None } }
    }

    #[test]
    fn a_listing_is_summed_up_from_the_inside_out_as_the_endpoint_does() {
        let (directory, file) =
            (|path| object(path, FileKind::Directory, 4096), |path, size| object(path, FileKind::File, size));
        let listing = [
            directory(""),
            directory("a"),
            directory("a/b"),
            file("a/b/x", 20),
            file("a/y", 10),
            directory("left"),
            directory("left/empty"),
            file("left/x", 500),
            directory("way"),
            file("way/r", 3),
            file("z", 30),
        ];
        let is_taken = |path: &[u8]| !path.starts_with(b"left") && path != b"way";
        for (levels, expected) in
            [(ALL_LEVELS, &["a/b 1 0 20", "a 2 1 30", "way 1 0 3", " 4 3 63"][..]), (0, &[" 4 3 63"])]
        {
            let mut shown = Vec::new();
            let mut show = |record: Record| {
                let Found::Usage(tally) = record.found else { panic!("only sums are shown") };
                let path = String::from_utf8(record.path).unwrap();
                shown.push(format!("{path} {} {} {}", tally.files, tally.directories, tally.bytes));
                true
            };
            let mut sums = Sums { levels, open: Vec::new() };
            let mut add = |record: &Record| sums.add(record.clone(), is_taken(&record.path), &mut show);
            assert!(listing.iter().all(&mut add) && sums.leave(b"", &mut show));
            assert_eq!(shown, expected);
        }
    }
}
