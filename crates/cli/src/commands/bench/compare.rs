//! `thalweg bench compare`: the same work with this program and with others.

use crate::commands::generate::of_bench;
use crate::commands::lab::Wanted;
use crate::exit::{Result, error};
use crate::interrupt::Interrupt;
use crate::output::{line, note};
use bench::compare::{self, ROUNDS_DEFAULT, Way};
use bench::diff::{EARLIER, named};
use bench::sample::Sample;
use bench::statistics::Key;
use bench::tool::{self, Class, RIVALS, Variant};
use bench::{dataset, report};
use daemon::trust::open_file;
use model::Exit;
use std::path::PathBuf;
use std::time::Duration;

/// Move the same sets with this program and with others, and report medians, spreads and ratios
///
/// Two hosts are two network namespaces on this machine, which needs root; without it only local copies race. Tools
/// that are not installed are skipped and named. Everything a run creates is removed.
#[derive(clap::Args, Debug)]
#[command(after_help = "Example:\n\
\x20   thalweg bench compare --set tiny --rival rsync --rounds 5 --out results/today\n\
\x20   thalweg bench compare --rival all --tool fdt.toml --lab continent --out results/far")]
pub struct Args {
    /// What to move, as for `thalweg gen`; may be given several times [default: large, small, tiny]
    #[arg(long = "set", value_name = "SPEC", env = "THALWEG_SET")]
    sets: Vec<String>,
    /// Rivals: globus-url-copy, rsync (daemon), rsync-ssh, scp, rclone, xrdcp, lftp, tar, cp, or all; may be given
    /// several times [default: globus-url-copy, rsync, cp]
    #[arg(long = "rival", value_name = "TOOL", env = "THALWEG_RIVAL")]
    rivals: Vec<String>,
    /// Also race the tool described by this file (see docs/measuring.md); may be given several times
    #[arg(long = "tool", value_name = "FILE", env = "THALWEG_TOOL")]
    tools: Vec<PathBuf>,
    /// Race against the server of a store: s3 (versitygw), dav (xrootd), sftp (sshd) or gsiftp (globus-gridftp-server); --rival names those that know it [default: all]
    #[arg(long, value_name = "STORE", conflicts_with = "image", env = "THALWEG_STORE")]
    store: Option<String>,
    /// With --store: put, fetch, or both, one after the other
    #[arg(long, value_name = "WAY", default_value = "put", requires = "store", env = "THALWEG_WAY")]
    way: WhichWay,
    /// Only list the known rivals, what each protects and whether it is installed
    #[arg(long, env = "THALWEG_LIST")]
    list: bool,
    /// Resume the interrupted race with the same --out; completed runs are not repeated
    #[arg(long, requires = "out", env = "THALWEG_RESUME")]
    resume: bool,
    /// Race without rivals
    #[arg(long, conflicts_with_all = ["rivals", "store"], env = "THALWEG_NO_RIVALS")]
    no_rivals: bool,
    /// The network between the two hosts: a preset or file of `thalweg lab` [default: direct]
    #[arg(long, value_name = "PRESET|FILE", env = "THALWEG_LAB")]
    lab: Option<std::ffi::OsString>,
    /// Changes to its links, such as --lab-set wan.rtt=50ms
    #[arg(long, value_name = "LINK.KEY=VALUE", requires = "lab", env = "THALWEG_LAB_SET")]
    lab_set: Vec<String>,
    /// Our program [default: this one]
    #[arg(long, value_name = "FILE", env = "THALWEG_PROGRAM")]
    program: Option<PathBuf>,
    /// Also race this earlier build of ours, called `earlier`, round by round; `bench diff` needs this to detect small
    /// losses
    #[arg(long, value_name = "FILE", env = "THALWEG_EARLIER")]
    earlier: Option<PathBuf>,
    /// Argument added to our `cp`, such as --cp-arg=--streams=4
    #[arg(long, value_name = "ARG", allow_hyphen_values = true, env = "THALWEG_CP_ARG")]
    cp_arg: Vec<String>,
    /// Argument added to our `serve`
    #[arg(long, value_name = "ARG", allow_hyphen_values = true, env = "THALWEG_SERVE_ARG")]
    serve_arg: Vec<String>,
    /// Counted rounds; one more is run and discarded
    #[arg(long, value_name = "N", default_value_t = ROUNDS_DEFAULT, env = "THALWEG_ROUNDS")]
    rounds: u32,
    /// Seconds after which a run is abandoned
    #[arg(long, value_name = "SECONDS", default_value_t = 120, env = "THALWEG_LIMIT")]
    limit: u64,
    /// Do not measure the network and the file system alone
    #[arg(long, env = "THALWEG_NO_CEILINGS")]
    no_ceilings: bool,
    /// Write report and raw samples to this directory
    #[arg(long, value_name = "DIR", env = "THALWEG_OUT")]
    out: Option<PathBuf>,
    /// Where to put data sets and deliveries [default: a tmpfs]
    #[arg(long, value_name = "DIR", env = "THALWEG_WORK_DIR")]
    work_dir: Option<PathBuf>,
    /// Deliver every run to a new file system of this kind (ext4, xfs or btrfs), made in an image file: creating files where
    /// others were deleted lately is several times slower on ext4, which makes runs incomparable
    #[arg(long, value_name = "KIND", env = "THALWEG_IMAGE")]
    image: Option<String>,
    /// Where the image lies: on the storage that is to be measured
    #[arg(long, value_name = "DIR", default_value = "/var/tmp", env = "THALWEG_IMAGE_DIR")]
    image_dir: PathBuf,
    /// Seed of the generated bytes
    #[arg(long, value_name = "N", default_value_t = dataset::SEED_DEFAULT, env = "THALWEG_SEED")]
    seed: u64,
}

#[derive(clap::ValueEnum, Clone, Copy, Debug)]
enum WhichWay {
    Put,
    Fetch,
    Both,
}

pub fn run(args: Args) -> Result<Exit> {
    // They name programs to run. A missing one is reported where it is read.
    for file in &args.tools {
        let _ = open_file("the description of a tool", file)?;
    }
    if args.list {
        return list(args.store.as_deref(), &args.tools);
    }
    let interrupt = Interrupt::watch()?;
    let program = match args.program {
        Some(program) => program,
        None => std::env::current_exe().map_err(|e| crate::exit::of_file("find", "this program", &e))?,
    };
    let variant = Variant {
        serve_args: args.serve_arg.into_iter().map(Into::into).collect(),
        cp_args: args.cp_arg.into_iter().map(Into::into).collect(),
        ..Variant::new(program)
    };
    let earlier = args.earlier.map(|program| Variant { label: EARLIER.into(), program, ..variant.clone() });
    let scenario = match &args.lab {
        Some(lab) => Some(Wanted::new(lab, args.lab_set).read()?),
        None => None,
    };
    let defaults = compare::Options::default();
    let rivals = match args.rivals {
        rivals if args.store.is_some() => rivals.into_iter().filter(|rival| rival != "all").collect(),
        rivals if rivals.is_empty() => defaults.rivals,
        rivals if rivals.iter().any(|rival| rival == "all") => RIVALS.map(str::to_owned).to_vec(),
        rivals => rivals,
    };
    let options = compare::Options {
        sets: if args.sets.is_empty() { defaults.sets } else { args.sets },
        variants: earlier.into_iter().chain([variant]).collect(),
        rivals: if args.no_rivals { Vec::new() } else { rivals },
        store: args.store,
        ways: match args.way {
            WhichWay::Put => vec![Way::Put],
            WhichWay::Fetch => vec![Way::Fetch],
            WhichWay::Both => vec![Way::Put, Way::Fetch],
        },
        adapters: args.tools,
        is_resumed: args.resume,
        rounds: args.rounds,
        limit: Duration::from_secs(args.limit),
        scenario,
        with_ceilings: !args.no_ceilings,
        out: args.out,
        work_dir: args.work_dir,
        image: args.image.map(|kind| bench::image::Options { kind, dir: args.image_dir }),
        pauses: defaults.pauses,
        seed: args.seed,
        // Where the program lies on this machine is nothing to a reader.
        regenerate: ["thalweg".into()].into_iter().chain(std::env::args().skip(1)).collect::<Vec<_>>().join(" "),
    };
    let raced = compare::run(&options, interrupt.flag(), &mut |text| note(text)).map_err(|e| of_bench(&e))?;
    line(report::summary_text(&raced).trim_end());
    judge(&raced.samples)
}

/// Wrong bytes of ours are a failure of ours, not a figure.
pub fn judge(samples: &[Sample]) -> Result<Exit> {
    match samples.iter().find(|sample| sample.is_ours && sample.is_wrong() && !sample.tool.starts_with(EARLIER)) {
        Some(sample) => {
            let message = format!("{}, round {}: {}", named(&Key::of(sample)), sample.round, sample.note);
            Err(error(Exit::Failed, message, "this is a bug: please report it with this output"))
        }
        None => Ok(Exit::Done),
    }
}

fn list(store: Option<&str>, files: &[PathBuf]) -> Result<Exit> {
    let known: Vec<_> = match store {
        Some(store) => tool::at_store(store, &[], &[]).map_err(|e| of_bench(&e))?.into_iter().map(Ok).collect(),
        None => RIVALS.iter().map(|name| tool::rival(name)).collect(),
    };
    for found in known.into_iter().chain(files.iter().map(|file| tool::adapter(file))) {
        let tool = found.map_err(|e| of_bench(&e))?;
        let place = if tool.class() == Class::Local { "local" } else { "network" };
        let version = tool.version().unwrap_or_else(|error| error.chain());
        line(&format!("{:<16} {place:<8} {}", tool.name(), tool.protection()));
        line(&format!("{:<25} {version}", ""));
    }
    Ok(Exit::Done)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_delivery_of_ours_fails_the_command_and_one_of_a_rival_or_a_run_that_failed_does_not() {
        let sample = |is_ours: bool, note: &str| -> Sample {
            serde_json::from_value(serde_json::json!({
                "set": "tiny", "class": "network", "tool": "t", "is_ours": is_ours, "round": 3, "state": "failed",
                "seconds": 1.0, "reported_seconds": null, "bytes": 1, "files": 1, "server": null, "network": null,
                "client": {"cpu_seconds": 0.0, "rss_bytes_max": 0}, "foreign_cpu_seconds": 0.0, "steal_seconds": 0.0,
                "note": note
            }))
            .unwrap()
        };
        let differs = "delivery differs: missing: f7";
        assert!(matches!(judge(&[sample(false, differs), sample(true, "killed at the limit")]), Ok(Exit::Done)));
        let failed = judge(&[sample(false, differs), sample(true, differs)]).unwrap_err();
        assert_eq!(failed.exit, Exit::Failed);
        assert!(failed.message.contains("tiny, t, round 3: delivery differs: missing: f7"), "{}", failed.message);
    }
}
