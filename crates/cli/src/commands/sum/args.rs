//! What `thalweg sum` can be asked.

use crate::args::ssh::SshArgs;
use crate::selection::SelectionArgs;
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
    pub locations: Vec<OsString>,
    /// Verify the files named in this manifest or list; `-` reads it from standard input
    #[arg(short, long, value_name = "FILE|-", env = "THALWEG_CHECK")]
    pub check: Option<PathBuf>,
    /// The digest [default: crc64nvme; with -c the one used in the list, sha256 for 64 digits]
    #[arg(long, alias = "algo", value_name = "crc64nvme|blake3|sha256|md5|adler32", env = "THALWEG_DIGEST")]
    pub digest: Option<SumAlgorithm>,
    /// The format of lines; auto makes a manifest if the digest has one
    #[arg(
        long,
        value_name = "auto|manifest|list",
        default_value = "auto",
        hide_possible_values = true,
        env = "THALWEG_FORMAT"
    )]
    pub format: Format,
    /// End lines of lists with a NUL byte and escape nothing
    #[arg(short = 'z', long, env = "THALWEG_ZERO")]
    pub zero: bool,
    /// One JSON object for each file; with -c for each that does not match, and one summary
    #[arg(long, env = "THALWEG_JSON")]
    pub json: bool,
    /// Print only mismatches and failures
    #[arg(short, long, env = "THALWEG_QUIET")]
    pub quiet: bool,
    #[command(flatten)]
    pub ssh: SshArgs,
    #[command(flatten)]
    pub selection: SelectionArgs,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub enum Format {
    Auto,
    Manifest,
    List,
}
