//! `thalweg sum`: lists of files with their digests, written and verified, here or at an endpoint.
//!
//! `make` lists, `verify` checks. The paths are those that `cp` would give the files at its destination, so that `sum SRC`
//! and `cp --manifest` list the same, and `sum -c` verifies a copy. Lines come in the order of names.

mod make;
mod verify;

use crate::args::ssh::SshArgs;
use crate::exit::{Result, usage};
use crate::place::Places;
use crate::selection::SelectionArgs;
use model::Exit;
use model::files::SumAlgorithm;
use std::ffi::OsString;
use std::path::PathBuf;

/// List files with their digests, or verify such a list, here or at an endpoint
///
/// crc64nvme and blake3 make a manifest: digest, size and path. sha256, md5 and adler32 make a list in the format of
/// sha256sum and md5sum, and blake3 with --format list in that of b3sum. The host that has the files reads them; only
/// digests are sent.
///
/// `sum SRC` lists the same paths as `cp --manifest FILE SRC DST`: with `dir/` they are relative to dir, with `dir`
/// they begin with its name. Links and special files are not listed. `sum -c` prints a line for each file that is
/// missing or differs; its exit code is 0 if all match the list, 1 if one differs, 23 if some could not be read.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:\n\
\x20   thalweg sum data/ > data.manifest\n\
\x20   thalweg sum -c data.manifest copy/\n\
\x20   thalweg sum --digest sha256 lab:data/ > SHA256SUMS\n\
\x20   thalweg sum data/ | thalweg sum -c - lab:copy/")]
pub struct Args {
    /// Files and directories; with -c the directory to which the paths in the list are relative [default: .]
    #[arg(value_name = "LOC")]
    locations: Vec<OsString>,
    /// Verify the files named in this manifest or list; `-` reads it from standard input
    #[arg(short, long, value_name = "FILE|-", env = "THALWEG_CHECK")]
    check: Option<PathBuf>,
    /// The digest [default: crc64nvme; with -c the one used in the list, sha256 for 64 digits]
    #[arg(long, alias = "algo", value_name = "crc64nvme|blake3|sha256|md5|adler32", env = "THALWEG_DIGEST")]
    digest: Option<SumAlgorithm>,
    /// The format of lines; auto makes a manifest if the digest has one
    #[arg(
        long,
        value_name = "auto|manifest|list",
        default_value = "auto",
        hide_possible_values = true,
        env = "THALWEG_FORMAT"
    )]
    format: Format,
    /// End lines of lists with a NUL byte and escape nothing
    #[arg(short = 'z', long, env = "THALWEG_ZERO")]
    zero: bool,
    /// One JSON object for each file; with -c for each that does not match, and one summary
    #[arg(long, env = "THALWEG_JSON")]
    json: bool,
    /// Print only mismatches and failures
    #[arg(short, long, env = "THALWEG_QUIET")]
    quiet: bool,
    #[command(flatten)]
    ssh: SshArgs,
    #[command(flatten)]
    selection: SelectionArgs,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
enum Format {
    Auto,
    Manifest,
    List,
}

pub fn run(args: Args) -> Result<Exit> {
    let places = Places::new(&args.ssh)?;
    let chosen = args.selection.chosen()?;
    if args.check.is_some() && !chosen.is_everything {
        return Err(usage("a list is verified whole", "omit the selection, or give -c a list of fewer files"));
    }
    match (&args.check, &args.locations[..]) {
        (Some(file), []) => verify::verify(&args, &places, file, places.open(".".as_ref())?),
        (Some(file), [directory]) => verify::verify(&args, &places, file, places.open(directory)?),
        (Some(_), _) => Err(usage("a list is verified in one directory", "give -c FILE and at most one directory")),
        (None, []) => Err(usage("nothing to list", "name files or directories, or -c FILE to verify a list")),
        (None, locations) => make::make(&args, &places, &chosen, locations),
    }
}
