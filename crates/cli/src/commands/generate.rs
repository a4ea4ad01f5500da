//! `thalweg gen`: reproducible data sets.

use crate::exit::{Error, Result, error};
use crate::output::{counted, duration, note, shown};
use bench::dataset::{Options, PER_DIR_DEFAULT, SEED_DEFAULT, run as generate};
use model::Exit;
use model::quantity::{ByteCount, Rate};
use std::path::PathBuf;

/// Generate a data set to try things on
///
/// SPEC is large (4 files of 1 GiB), small (2,500 of 8 KiB to 4 MiB), tiny (50,000 of 1 KiB), mixed (21,002 of all
/// kinds, 1.1 GiB), NxSIZE, or several with commas between. The same SPEC and seed give the same bytes everywhere; they do
/// not compress. Files that exist are never replaced.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:\n\
\x20   thalweg gen mixed data/\n\
\x20   thalweg gen 50000x1KiB,4x256MiB data/ --manifest data.manifest")]
pub struct Args {
    /// What to generate
    spec: String,
    /// Where; it is made if it is missing
    dir: PathBuf,
    /// Another seed gives other bytes
    #[arg(long, value_name = "N", default_value_t = SEED_DEFAULT, env = "THALWEG_SEED")]
    seed: u64,
    /// Files in one directory
    #[arg(long, value_name = "N", default_value_t = PER_DIR_DEFAULT, env = "THALWEG_PER_DIR")]
    per_dir: u64,
    /// Also write the digests, for `thalweg sum -c`
    #[arg(long, value_name = "FILE", env = "THALWEG_MANIFEST")]
    manifest: Option<PathBuf>,
    /// Only say how much it would be
    #[arg(long, env = "THALWEG_DRY_RUN")]
    dry_run: bool,
}

pub fn run(args: Args) -> Result<Exit> {
    let options = Options {
        per_dir: args.per_dir,
        seed: args.seed,
        manifest: args.manifest,
        is_dry_run: args.dry_run,
        ..Options::new(args.spec, &args.dir)
    };
    let outcome = generate(&options, &mut |line| note(line)).map_err(|e| of_bench(&e))?;
    let totals = outcome.totals;
    let amount = format!(
        "{} in {}, {}",
        counted(totals.files, "file", "files"),
        counted(totals.directories, "directory", "directories"),
        ByteCount(totals.bytes)
    );
    if args.dry_run {
        let (needed, free) = (ByteCount(totals.space_bytes), ByteCount(outcome.free_bytes));
        note(&format!("would write {amount} to {} (takes {needed}, {free} free)", shown(&args.dir)));
    } else {
        let rate = Rate::over(totals.bytes, outcome.seconds).bytes_per_second as u64;
        let seconds = duration(outcome.seconds);
        note(&format!("wrote {amount} to {} in {seconds} ({}/s)", shown(&args.dir), ByteCount(rate)));
    }
    Ok(Exit::Done)
}

/// An error of the benchmarks as one of the program.
pub fn of_bench(e: &bench::error::Error) -> Error {
    use bench::error::Kind;
    let (exit, hint) = match e.kind {
        Kind::Usage => (Exit::Usage, "`thalweg gen --help` and `thalweg bench --help` show what is understood"),
        Kind::NoSpace => (Exit::NoSpace, "choose a smaller set, or a directory with more room"),
        Kind::Missing => (Exit::Failed, "install the program, or leave it out"),
        Kind::Denied => (Exit::Failed, "run it as root, or as a user who may do this"),
        Kind::Cancelled => (Exit::Interrupted, "start it again when you like"),
        Kind::Unreachable => (Exit::Unreachable, "check the address, and that something listens there"),
        Kind::Incompatible => (Exit::Version, "run the same version on both hosts"),
        Kind::Refused => (Exit::Refused, "ask for less, or later"),
        Kind::Failed => (Exit::Failed, "the reason is above"),
    };
    error(exit, model::name::Escaped(e.chain().as_bytes()).to_string(), hint)
}
