//! `thalweg gen`: reproducible data sets.
//!
//! Not here: what the sets are (`bench::dataset`).

use crate::exit::{Error, Result, error};
use crate::output::{counted, duration, grouped, line, note, shown};
use bench::dataset::{Content, Options, Outcome, PER_DIR_DEFAULT, SEED_DEFAULT, Scale, Totals, run as generate};
use model::Exit;
use model::quantity::{ByteCount, Rate};
use serde::Serialize;
use std::path::PathBuf;

/// Generate a data set to try things on
///
/// SPEC is NxSIZE (50000x1KiB), the name of a set, or several of them with commas between; each then gets a folder of its
/// own. The same SPEC, scale, content and seed give the same bytes everywhere. Files that exist are never replaced.
#[derive(clap::Args, Debug)]
#[command(after_help = "Sets:\n\
\x20   large         4 files of 1 GiB\n\
\x20   medium        8 files of 8 MiB to 1 GiB, each size twice the one before\n\
\x20   small         2,500 files of 8 KiB to 4 MiB, in ten sizes\n\
\x20   tiny          50,000 files of 1 KiB\n\
\x20   mixed         21,002 files of 1 KiB to 256 MiB, 1.2 GiB\n\
\x20   lognormal     12,000 files, 3 GB, sizes spread as on real file systems\n\
\x20   longtail      the same in a deep tree with odd names, links, holes and empty files\n\
\x20   bulk          31 sets of 1 KiB to 1 TiB: 1,048,576 files, or 1 TiB where that is less\n\
\x20   streaming     19 sets of 4 MiB to 1 TiB, 1 TiB each\n\
\x20   s1-1mb, s1-10mb, s1-100mb      10,000, 1,000 and 100 files, 10 GB each\n\
\x20   s4-large, s4-medium, s4-small  one file each of 2 to 8 GiB, 8 MiB to 1 GiB, 8 KiB to 4 MiB\n\
A sweep's sets are chosen by name, size or range: bulk:1024x1GiB, bulk:1GiB, bulk:1KiB..1MiB.\n\
NAME*N is N times as many files, NAME@SCALE a share of the set: s4-small*100, bulk:1GiB@2^-10.\n\n\
Examples:\n\
\x20   thalweg gen mixed data/\n\
\x20   thalweg gen 50000x1KiB,4x256MiB data/ --manifest data.manifest\n\
\x20   thalweg gen bulk data/ --scale 2^-10 --dry-run")]
pub struct Args {
    /// What to generate
    spec: String,
    /// Where; it is made if it is missing
    dir: PathBuf,
    /// Only this share, such as 2^-10, 1/1000 or 0.25: fewer files, and smaller ones where a single file is left
    #[arg(long, value_name = "SHARE", default_value = "1", env = "THALWEG_SCALE")]
    scale: String,
    /// Every set N times, in one folder
    #[arg(long, value_name = "N", default_value_t = 1, env = "THALWEG_REPEAT")]
    repeat: u64,
    /// What the files hold: bytes that do not compress, zeros, or bytes that compress by a ratio such as 2:1
    #[arg(long, value_name = "random|zero|RATIO", default_value = "random", env = "THALWEG_CONTENT")]
    content: String,
    /// Another seed gives other bytes
    #[arg(long, value_name = "N", default_value_t = SEED_DEFAULT, env = "THALWEG_SEED")]
    seed: u64,
    /// Files in one directory
    #[arg(long, value_name = "N", default_value_t = PER_DIR_DEFAULT, env = "THALWEG_PER_DIR")]
    per_dir: u64,
    /// Also write the digests, for `thalweg sum -c`; the file must not exist
    #[arg(long, value_name = "FILE", env = "THALWEG_MANIFEST")]
    manifest: Option<PathBuf>,
    /// Only say how much each set would be
    #[arg(long, env = "THALWEG_DRY_RUN")]
    dry_run: bool,
    /// One JSON object for each set and one for all, on standard output
    #[arg(long, env = "THALWEG_JSON")]
    json: bool,
}

pub fn run(args: Args) -> Result<Exit> {
    let options = Options {
        repeat: args.repeat,
        scale: Scale::parse(&args.scale).map_err(|e| of_bench(&e))?,
        content: Content::parse(&args.content).map_err(|e| of_bench(&e))?,
        per_dir: args.per_dir,
        seed: args.seed,
        manifest: args.manifest,
        is_dry_run: args.dry_run,
        ..Options::new(args.spec, &args.dir)
    };
    let outcome = generate(&options, &mut |text| note(text)).map_err(|e| of_bench(&e))?;
    if args.json {
        show_events(&outcome, args.dry_run);
    } else if args.dry_run {
        show_sets(&outcome.sets);
    }
    let totals = outcome.totals;
    let links = match totals.links {
        0 => String::new(),
        links => format!(" and {}", counted(links, "link", "links")),
    };
    let amount = format!(
        "{}{links} in {}, {}",
        counted(totals.files, "file", "files"),
        counted(totals.directories, "directory", "directories"),
        ByteCount(totals.bytes)
    );
    if args.dry_run {
        let (needed, free) = (ByteCount(totals.space_bytes), ByteCount(outcome.free_bytes));
        let verdict = if needed > free { ": not enough" } else { "" };
        note(&format!("would write {amount} to {} (takes {needed}, {free} free{verdict})", shown(&args.dir)));
    } else {
        let rate = Rate::over(totals.bytes, outcome.seconds).bytes_per_second as u64;
        let seconds = duration(outcome.seconds);
        note(&format!("wrote {amount} to {} in {seconds} ({}/s)", shown(&args.dir), ByteCount(rate)));
    }
    Ok(Exit::Done)
}

fn show_sets(sets: &[(String, Totals)]) {
    let width = sets.iter().map(|(name, _)| name.len()).max().unwrap_or(0).max("set".len());
    line(&format!(
        "{:<width$} {:>13} {:>7} {:>11} {:>10} {:>10}",
        "set", "files", "links", "directories", "size", "takes"
    ));
    for (name, totals) in sets {
        line(&format!(
            "{name:<width$} {:>13} {:>7} {:>11} {:>10} {:>10}",
            grouped(totals.files),
            grouped(totals.links),
            grouped(totals.directories),
            ByteCount(totals.bytes).to_string(),
            ByteCount(totals.space_bytes).to_string()
        ));
    }
}

#[derive(Serialize)]
struct Event<'a> {
    v: u32,
    event: &'a str,
    /// Of a set.
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<&'a str>,
    files: u64,
    links: u64,
    directories: u64,
    bytes: u64,
    space_bytes: u64,
    #[serde(flatten)]
    end: Option<End>,
}

/// What only the last event has.
#[derive(Serialize)]
struct End {
    free_bytes: u64,
    seconds: f64,
    is_dry_run: bool,
    code: i32,
}

fn show_events(outcome: &Outcome, is_dry_run: bool) {
    let show = |event, name, totals: &Totals, end| {
        let Totals { files, links, directories, bytes, space_bytes } = *totals;
        let event = Event { v: 1, event, name, files, links, directories, bytes, space_bytes, end };
        line(&serde_json::to_string(&event).expect("plain values have a JSON form"));
    };
    for (name, totals) in &outcome.sets {
        show("set", Some(name), totals, None);
    }
    let end = End { free_bytes: outcome.free_bytes, seconds: outcome.seconds, is_dry_run, code: Exit::Done as i32 };
    show("done", None, &outcome.totals, Some(end));
}

/// An error of the benchmarks as one of the program.
pub fn of_bench(e: &bench::error::Error) -> Error {
    use bench::error::Kind;
    let (exit, hint) = match e.kind {
        Kind::Usage => (Exit::Usage, "see `thalweg gen --help` and `thalweg bench --help`"),
        Kind::NoSpace => (Exit::NoSpace, "choose a smaller set, or a directory with more room"),
        Kind::Missing => (Exit::Failed, "install the program, or omit it"),
        Kind::Denied => (Exit::Failed, "run it as root, or as a user who may do this"),
        Kind::Cancelled => (Exit::Interrupted, "start it again when you like"),
        Kind::Unreachable => (Exit::Unreachable, "check the address, and that something listens there"),
        Kind::Incompatible => (Exit::Version, "run the same version on both hosts"),
        Kind::Refused => (Exit::Refused, "ask for less, or later"),
        Kind::Failed => (Exit::Failed, "the reason is above"),
    };
    error(exit, model::name::Escaped(e.chain().as_bytes()).to_string(), hint)
}
