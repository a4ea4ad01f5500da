//! `thalweg check`: whether two trees hold the same. Both sides read their own files; only digests travel.
//!
//! Not here: the comparison itself (`transfer::trees`), which endpoints make as well.

use crate::args::ssh::SshArgs;
use crate::args::values;
use crate::exit::{Result, error};
use crate::output::list::{self, Lines};
use crate::output::{self, counted, duration};
use crate::place::{Asking, Failures, Place, Places, unasked};
use crate::selection::SelectionArgs;
use crate::transfer::{Request, orders};
use ::transfer::trees::{self, Met, Tree};
use model::Exit;
use model::files::{FileKind, SumAlgorithm};
use model::name::Escaped;
use model::options::Compare;
use model::order::Kind;
use model::quantity::{ByteCount, Rate};
use serde_json::json;
use std::ffi::OsString;
use std::time::Instant;

/// Compare two files or trees, wherever they are: names, sizes and digests
///
/// A and B are compared with each other, whatever their names, with or without a trailing slash. Both sides read and
/// digest their own files at the same time; what is not selected is not compared. Prints a line for each path that is missing in B, extra in B, or differs.
/// The exit code is 0 if there are no such lines, 1 if there are, 23 if something could not be read.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:\n\
\x20   thalweg check data lab:backup/data\n\
\x20   thalweg check --one-way --size-only data lab:archive\n\
\x20   thalweg check --exclude '*.tmp' data lab:backup/data")]
pub struct Args {
    /// The expected content
    #[arg(value_name = "A")]
    first: OsString,
    /// The files to check
    #[arg(value_name = "B")]
    second: OsString,
    /// Accept files that only B has
    #[arg(long, env = "THALWEG_ONE_WAY")]
    one_way: bool,
    /// Compare only names and sizes: no content is read
    #[arg(long, env = "THALWEG_SIZE_ONLY")]
    size_only: bool,
    /// The digest that is compared
    #[arg(
        long,
        value_name = "crc64nvme|blake3|sha256|md5|adler32",
        default_value = "crc64nvme",
        env = "THALWEG_DIGEST"
    )]
    digest: SumAlgorithm,
    /// Between two endpoints: have one of them compare, print the job's id and end; `thalweg job watch ID` comes back to it
    #[arg(long, conflicts_with = "one_way", env = "THALWEG_DETACH")]
    detach: bool,
    /// Print only differences and failures
    #[arg(short, long, env = "THALWEG_QUIET")]
    quiet: bool,
    /// One JSON object for each difference, and one summary
    #[arg(long, env = "THALWEG_JSON")]
    json: bool,
    #[command(flatten)]
    ssh: SshArgs,
    #[command(flatten)]
    selection: SelectionArgs,
}

pub fn run(args: Args) -> Result<Exit> {
    if args.detach {
        return detach(&args);
    }
    let started = Instant::now();
    let places = Places::new(&args.ssh)?;
    let sides = [places.open(&args.first)?, places.open(&args.second)?];
    let digest = (!args.size_only).then_some(args.digest);
    let chosen = args.selection.chosen()?;
    let mut comparison = Comparison::new(&args, &sides);
    let asking = [0, 1].map(|side| Asking(&sides[side], &places.interrupt));
    let trees = [0, 1].map(|side| Tree { at: &asking[side], path: &sides[side].path });
    let compared = trees::compare(trees, digest, chosen.behind(b""), &mut |met| comparison.note(met));
    comparison.lines.flush();
    let stopped = compared.map_err(|e| unasked(e, &places.interrupt));
    let seconds = started.elapsed().as_secs_f64();
    let ended = stopped.and_then(|()| comparison.verdict());
    comparison.tell(&args, seconds, &ended);
    ended
}

/// Has one of the two endpoints compare.
fn detach(args: &Args) -> Result<Exit> {
    let location = |text: &OsString| values::location(text);
    let mut request = Request::plain(vec![location(&args.first)?], location(&args.second)?);
    request.ssh = Places::new(&args.ssh)?.ssh;
    request.spec.choice = args.selection.choice()?;
    request.spec.options.digest = args.digest.in_chunks().ok_or_else(|| {
        let text = format!("--detach compares crc64nvme or blake3, and {} was asked for", args.digest);
        error(Exit::Usage, text, "choose one of the two, or omit --detach")
    })?;
    if args.size_only {
        request.spec.options.compare = Compare::Size;
    }
    orders::detach(&request, Kind::Check, args.json)
}

struct Comparison<'a> {
    args: &'a Args,
    places: &'a [Place; 2],
    lines: Lines,
    failures: Failures,
    equal: u64,
    bytes: u64,
    missing: u64,
    extra: u64,
    different: u64,
}

impl<'a> Comparison<'a> {
    fn new(args: &'a Args, places: &'a [Place; 2]) -> Comparison<'a> {
        Comparison {
            args,
            places,
            lines: Lines::new(),
            failures: Failures::default(),
            equal: 0,
            bytes: 0,
            missing: 0,
            extra: 0,
            different: 0,
        }
    }

    /// Takes note of what is met; false when nobody reads what is said of it.
    fn note(&mut self, met: Met<'_>) -> bool {
        match met {
            Met::Same(status) => {
                let is_file = status.kind == FileKind::File;
                self.equal += u64::from(!status.is_directory());
                self.bytes += if is_file { status.size_bytes } else { 0 };
                true
            }
            Met::Missing(path) => {
                self.missing += 1;
                self.say("missing", path, "")
            }
            Met::Extra(_) if self.args.one_way => true,
            Met::Extra(path) => {
                self.extra += 1;
                self.say("extra", path, "")
            }
            Met::Differs { path, why } => {
                self.different += 1;
                self.say("differs", path, why)
            }
            Met::Unread { side, record } => {
                let place = &self.places[side];
                self.failures.note(place, record);
                !self.args.json || self.lines.json(&list::record(&place.shown(&record.path), record))
            }
        }
    }

    fn say(&mut self, what: &'static str, path: &[u8], why: &str) -> bool {
        let shown = if path.is_empty() { ".".to_owned() } else { Escaped(path).to_string() };
        if self.args.json {
            return self.lines.json(&json!({"v": 1, "event": what, "path": shown, "why": why}));
        }
        let why = if why.is_empty() { String::new() } else { format!(" ({why})") };
        self.lines.text(&format!("{what}: {shown}{why}"))
    }

    fn verdict(&self) -> Result<Exit> {
        let counts = [(self.missing, "missing"), (self.extra, "extra"), (self.different, "different")];
        let found: Vec<_> = counts
            .iter()
            .filter(|(count, _)| *count > 0)
            .map(|(count, word)| format!("{} {word}", output::grouped(*count)))
            .collect();
        let unread = self.failures.conclude(Exit::Done, "read");
        if found.is_empty() {
            return unread;
        }
        let unread = unread.err().map_or(String::new(), |e| format!("; {}", e.message));
        let hint = "`thalweg cp A/ B` copies what is missing or different";
        Err(error(Exit::Failed, format!("the two differ: {}{unread}", found.join(", ")), hint))
    }

    fn tell(&mut self, args: &Args, seconds: f64, ended: &Result<Exit>) {
        let how = if args.size_only { "size" } else { args.digest.name() };
        if args.json {
            let code = ended.as_ref().map_or_else(|e| e.exit, |exit| *exit) as i32;
            let line = json!({"equal": self.equal, "missing": self.missing, "extra": self.extra,
                "different": self.different, "failed": self.failures.count, "bytes": self.bytes, "by": how,
                "seconds": (seconds * 1e6).round() / 1e6, "code": code});
            self.lines.json(&list::done(line));
            return self.lines.flush();
        }
        let is_compared = ended.as_ref().map_or_else(|e| matches!(e.exit, Exit::Failed | Exit::Partial), |_| true);
        if args.quiet || !is_compared {
            return;
        }
        let files = counted(self.equal, "file is", "files are");
        let bytes = ByteCount(self.bytes);
        let pace = match args.size_only {
            true => String::new(),
            false => {
                let rate = Rate::over(self.bytes, seconds).bytes_per_second as u64;
                format!(" ({}/s on each side)", ByteCount(rate))
            }
        };
        output::note(&format!("{files} the same, {bytes} by {how} in {}{pace}", duration(seconds)));
    }
}
