//! `thalweg calibrate`: its arguments. The measuring is `calibrating`'s.

use crate::args::ssh::SshArgs;
use plan::calibration::Part;
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

/// Measure an endpoint or a directory, so that transfers can be planned
///
/// Real transfers measure each part alone: memory to memory within this host (engine), over the network (network), to the
/// storage there (write), many small files (metadata), files of several sizes, and with --source the storage here (read).
/// What is written lies in one directory, which is removed. The result is kept for `thalweg plan` and `cp --plan auto`.
///
/// --profile says how thoroughly: quick (about a minute), standard, full. While other programs use more than a tenth of
/// this host's processors, nothing is measured.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:\n\
\x20   thalweg calibrate lab\n\
\x20   thalweg calibrate lab --source /data --profile standard\n\
\x20   thalweg calibrate lab --import network=iperf3.json\n\
\x20   thalweg calibrate /scratch\n\n\
--profile quick, standard or full: measure for about 1, 8 or 50 minutes [default: quick]; any other name is a profile\n\
of the configuration file")]
pub struct Args {
    /// An endpoint that was added, NAME:DIR below its root, or a directory of this host
    #[arg(value_name = "NAME|PATH")]
    pub of: OsString,
    /// Also measure how fast files are read here
    #[arg(long, value_name = "DIR", env = "THALWEG_SOURCE")]
    pub source: Option<PathBuf>,
    /// Take a part from what dd, iozone -t, fio --output-format=json or iperf3 -J printed, instead of measuring it: read, write or
    /// network; may be given several times
    #[arg(long, value_name = "PART=FILE", value_parser = import, value_delimiter = ',', env = "THALWEG_IMPORT")]
    pub import: Vec<(Part, PathBuf)>,
    /// Measure although other programs are busy; the result says so
    #[arg(long, env = "THALWEG_DESPITE_LOAD")]
    pub despite_load: bool,
    /// Print the calibration, as it is kept
    #[arg(long, env = "THALWEG_JSON")]
    pub json: bool,
    #[command(flatten)]
    pub ssh: SshArgs,
}

/// How long a run is meant to take, how often it is repeated, and when no more repetitions begin.
#[derive(Clone, Copy)]
pub struct Profile {
    pub name: &'static str,
    pub run: Duration,
    pub repetitions: u32,
    pub budget: Duration,
}

pub const PROFILES: [Profile; 3] = [
    Profile { name: "quick", run: Duration::from_millis(600), repetitions: 2, budget: Duration::from_secs(45) },
    Profile { name: "standard", run: Duration::from_secs(4), repetitions: 3, budget: Duration::from_secs(480) },
    Profile { name: "full", run: Duration::from_secs(15), repetitions: 5, budget: Duration::from_secs(3000) },
];

fn import(text: &str) -> Result<(Part, PathBuf), String> {
    let wrong = || format!("{text:?} is not PART=FILE, such as write=fio.json; PART is read, write or network");
    let (part, file) = text.split_once('=').ok_or_else(wrong)?;
    Ok((Part::of_word(part).ok_or_else(wrong)?, file.into()))
}

/// Whether `--profile` means one of ours, and none of the configuration.
pub fn is_profile(name: &str) -> bool {
    PROFILES.iter().any(|profile| profile.name == name)
}
