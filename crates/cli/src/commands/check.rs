//! `thalweg check`: whether two trees hold the same. Both sides read their own files; only digests travel.
//!
//! Both sides list in the same order, so that the lists are compared while they come: memory does not grow with the trees.

use crate::args::ssh::SshArgs;
use crate::exit::{Result, error};
use crate::output::list::{self, Lines};
use crate::output::{self, counted, duration};
use crate::place::{Failures, Place, Places};
use crate::selection::{Chosen, SelectionArgs};
use model::Exit;
use model::files::{ALL_LEVELS, FileKind, FileStatus, Found, Question, Record, Sum, SumAlgorithm};
use model::name::Escaped;
use model::quantity::{ByteCount, Rate};
use serde_json::json;
use std::cmp::Ordering;
use std::ffi::OsString;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::Instant;

/// Records that one side may be ahead of the other.
const AHEAD_MAX: usize = 4096;

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
    let started = Instant::now();
    let places = Places::new(&args.ssh)?;
    let sides = [places.open(&args.first)?, places.open(&args.second)?];
    let digest = (!args.size_only).then_some(args.digest);
    let question = |place: &Place| Question::List { paths: place.paths(), levels: ALL_LEVELS, digest };
    let chosen = args.selection.chosen()?;
    let mut comparison = Comparison::new(&args, &sides, &chosen);
    let asked = std::thread::scope(|scope| {
        let (mut threads, mut streams) = (Vec::new(), Vec::new());
        for place in &sides {
            let (sender, receiver) = sync_channel(AHEAD_MAX);
            let (places, question) = (&places, question(place));
            streams.push(receiver);
            let is_broken = comparison.is_broken.clone();
            threads.push(scope.spawn(move || {
                let answer = place.ask(&question, &places.interrupt, &mut |record| sender.send(record).is_ok());
                let answered = answer.and_then(|answer| answer.finished());
                // Said before the list ends, so that its end is not taken for that of the tree.
                is_broken.fetch_or(answered.is_err(), Relaxed);
                answered
            }));
        }
        let second = streams.pop().expect("one for each side");
        let first = streams.pop().expect("one for each side");
        comparison.run(first, second);
        threads.into_iter().map(|thread| thread.join().expect("asking does not panic")).collect::<Vec<_>>()
    });
    comparison.lines.flush();
    let mut stopped = Ok(());
    for answer in asked {
        stopped = stopped.and(answer.map(drop));
    }
    let seconds = started.elapsed().as_secs_f64();
    let ended = stopped.and_then(|()| comparison.verdict());
    comparison.tell(&args, seconds, &ended);
    ended
}

/// One side's list, as far as it was read.
struct Side {
    records: Receiver<Record>,
    next: Option<Record>,
    /// What could not be read: nothing is known of what is below it.
    unread: Option<Vec<u8>>,
}

struct Comparison<'a> {
    args: &'a Args,
    places: &'a [Place; 2],
    chosen: &'a Chosen,
    lines: Lines,
    failures: Failures,
    /// A list ended before its tree did.
    is_broken: Arc<AtomicBool>,
    equal: u64,
    bytes: u64,
    missing: u64,
    extra: u64,
    different: u64,
}

impl<'a> Comparison<'a> {
    fn new(args: &'a Args, places: &'a [Place; 2], chosen: &'a Chosen) -> Comparison<'a> {
        Comparison {
            args,
            places,
            chosen,
            lines: Lines::new(),
            failures: Failures::default(),
            is_broken: Arc::default(),
            equal: 0,
            bytes: 0,
            missing: 0,
            extra: 0,
            different: 0,
        }
    }

    /// Compares until both lists end, or nobody reads what is found.
    fn run(&mut self, first: Receiver<Record>, second: Receiver<Record>) {
        let side = |records| Side { records, next: None, unread: None };
        let (mut first, mut second) = (side(first), side(second));
        loop {
            let both = self.advance(&mut first, 0) && self.advance(&mut second, 1);
            if !both {
                return;
            }
            let goes_on = match (&first.next, &second.next) {
                (None, None) => return,
                (Some(one), Some(two)) => match order(&one.path, &two.path) {
                    Ordering::Equal => self.compare(first.next.take(), second.next.take()),
                    Ordering::Less => self.only(first.next.take(), &second, "missing"),
                    Ordering::Greater => self.only(second.next.take(), &first, "extra"),
                },
                (Some(_), None) => self.only(first.next.take(), &second, "missing"),
                (None, Some(_)) => self.only(second.next.take(), &first, "extra"),
            };
            if !goes_on {
                return;
            }
        }
    }

    /// Reads a side's next object; failures are told on the way. False when what was named cannot be read at all.
    fn advance(&mut self, side: &mut Side, which: usize) -> bool {
        while side.next.is_none() {
            let Ok(record) = side.records.recv() else { return !self.is_broken.load(Relaxed) };
            if !self.failures.note(&self.places[which], &record) {
                // Both sides are compared from what was named on, whatever it is called.
                let is_taken = record.path.is_empty() || self.chosen.takes_record(b"", &record);
                side.next = Some(record).filter(|_| is_taken);
                continue;
            }
            if self.args.json {
                self.lines.json(&list::record(&self.places[which].shown(&record.path), &record));
            }
            if record.path.is_empty() {
                return false;
            }
            side.unread = Some(record.path);
        }
        true
    }

    /// An object of one side alone.
    fn only(&mut self, record: Option<Record>, other: &Side, what: &'static str) -> bool {
        let Some(record) = record else { return true };
        let is_unknown = |unread: &Vec<u8>| {
            record.path.strip_prefix(&unread[..]).is_some_and(|rest| rest.is_empty() || rest.starts_with(b"/"))
        };
        if other.unread.as_ref().is_some_and(is_unknown) {
            return true;
        }
        match what {
            "missing" => self.missing += 1,
            _ if self.args.one_way => return true,
            _ => self.extra += 1,
        }
        self.say(what, &record.path, "")
    }

    fn compare(&mut self, first: Option<Record>, second: Option<Record>) -> bool {
        let (Some(first), Some(second)) = (first, second) else { return true };
        let path = first.path;
        let (Found::Object { status: one, sum: one_sum }, Found::Object { status: two, sum: two_sum }) =
            (first.found, second.found)
        else {
            return true;
        };
        match difference((&one, one_sum.as_ref()), (&two, two_sum.as_ref())) {
            None => {
                let is_file = one.kind == FileKind::File;
                self.equal += u64::from(!one.is_directory());
                self.bytes += if is_file { one.size_bytes } else { 0 };
                true
            }
            Some(why) => {
                self.different += 1;
                self.say("differs", &path, &why)
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

/// The order in which both sides list: names by their bytes, what is in a directory right behind it.
fn order(one: &[u8], two: &[u8]) -> Ordering {
    let key = |byte: &u8| if *byte == b'/' { 0 } else { *byte };
    one.iter().map(key).cmp(two.iter().map(key))
}

fn difference(one: (&FileStatus, Option<&Sum>), two: (&FileStatus, Option<&Sum>)) -> Option<String> {
    let ((a, a_sum), (b, b_sum)) = (one, two);
    match (&a.kind, &b.kind) {
        (FileKind::File, FileKind::File) if a.size_bytes != b.size_bytes => {
            Some(format!("{} and {} bytes", a.size_bytes, b.size_bytes))
        }
        (FileKind::File, FileKind::File) => (a_sum != b_sum).then(|| "content".to_owned()),
        (FileKind::Symlink(here), FileKind::Symlink(there)) => {
            (here != there).then(|| format!("link to {} and {}", Escaped(here), Escaped(there)))
        }
        (here, there) => (here != there).then(|| format!("{} and {}", here.name(), there.name())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_in_a_directory_stands_right_behind_it() {
        let mut paths: Vec<&[u8]> = vec![b"a-b", b"a/y", b"", b"a", b"a\x01", b"a/x/z", b"a/x"];
        paths.sort_by(|one, two| order(one, two));
        let expected: [&[u8]; 7] = [b"", b"a", b"a/x", b"a/x/z", b"a/y", b"a\x01", b"a-b"];
        assert_eq!(paths, expected);
    }
}
