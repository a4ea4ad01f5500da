//! `thalweg follow`: sends files while they are written.

use super::cp;
use crate::args::values;
use crate::exit::Result;
use crate::output::note;
use model::follow::{Follow, FollowEnd, LagAlarm, Until, View};
use model::{Exit, Name};
use std::ffi::OsStr;
use std::os::fd::AsFd;
use std::path::Path;
use std::time::Duration;

/// Copy files while they are written, and files that come later
///
/// Files that are in SRC are copied, new ones are followed as they appear, and nothing is removed. The bytes of a file that
/// grows travel as they are written, and stay out of sight at the destination unless --show prefix is given. When the file is
/// complete, by the rule of --until, the source is read once more and compared with what arrived; only then does the file
/// appear, whole, under its final name. Runs until it is stopped, or until --end.
#[derive(clap::Args, Debug)]
// Those of `cp` have the same name, and a group each.
#[group(skip)]
#[command(
    override_usage = "thalweg follow [OPTIONS] <SRC>... <DST>",
    after_help = "Examples:\n\
\x20   thalweg follow run42/ lab:run42/                       files are complete once their writers have closed them\n\
\x20   thalweg follow --until rename daq/ lab:daq/            x.dat.inprogress is complete once it is x.dat\n\
\x20   thalweg follow --until rename --show prefix daq/ lab:daq/   readers there see x.dat.inprogress grow\n\
\x20   thalweg follow --until 'marker:{name}.done' --end marker:STOP daq/ lab:daq/"
)]
pub struct Args {
    #[command(flatten)]
    copy: cp::Args,
    #[command(flatten)]
    rules: RuleArgs,
}

// When a file is complete, and when the command is.
#[derive(clap::Args, Debug)]
#[command(next_help_heading = "Following")]
struct RuleArgs {
    /// When a file is complete: once nobody has it open for writing; once it is renamed from a name such as *.inprogress, *.tmp,
    /// *.part or *.partial (or GLOB); once a marker NAME is there, beside it or above, with {name} for the file's own name; once
    /// its writer holds no lock (fcntl) on it; after TIME without a change; or never, until the command ends [default: close,
    /// on network storage quiet:60s]
    #[arg(
        long,
        value_name = "close|rename[:GLOB]|marker:NAME|lock|quiet:TIME|never",
        value_parser = Until::parse,
        env = "THALWEG_UNTIL"
    )]
    until: Option<Until>,
    /// When the command ends: once a file NAME is at the top of SRC, after TIME without a change, or after TIME in all [default:
    /// when it is stopped]
    #[arg(long, value_name = "marker:NAME|idle:TIME|for:TIME", value_parser = FollowEnd::parse, env = "THALWEG_END")]
    end: Vec<FollowEnd>,
    /// What can be seen of a growing file at the destination: nothing until it is complete, or what has arrived so far, to be
    /// read under its unfinished name (--until rename) or as NAME.partial (docs/follow.md)
    #[arg(
        long,
        value_name = "staged|prefix",
        default_value = "staged",
        hide_possible_values = true,
        env = "THALWEG_SHOW"
    )]
    show: Show,
    /// List what is complete at the destination, in the file NAME at its top: a line with digest, size and path once a file is
    /// there and durable; the last line closes the list when the command ends. `thalweg sum -c` verifies it
    #[arg(long, value_name = "NAME", value_parser = list_name, env = "THALWEG_SEALED_LIST")]
    sealed_list: Option<Name>,
    /// Writers only append: when a file is complete, only its first and last chunk are read again to compare them, not all of it.
    /// What a writer changes in between goes unnoticed
    #[arg(long, env = "THALWEG_APPEND_ONLY")]
    append_only: bool,
    /// Warn when the destination is behind by this much, and when it has caught up
    #[arg(long, value_name = "TIME|SIZE", value_parser = LagAlarm::parse, env = "THALWEG_LAG_ALARM")]
    lag_alarm: Option<LagAlarm>,
}

#[derive(clap::ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
enum Show {
    Staged,
    Prefix,
}

impl RuleArgs {
    fn view(&self) -> Option<View> {
        (self.show == Show::Prefix).then(|| View::of(self.until.as_ref()))
    }
}

pub fn run(args: Args) -> Result<Exit> {
    let mut is_local = true;
    for source in args.copy.sources()? {
        is_local &= is_on_local_storage(values::location(source)?.path());
    }
    let view = args.rules.view();
    let until = args.rules.until.unwrap_or_else(|| match is_local {
        true => Until::Close,
        false => {
            note("network storage does not show when a writer is done: files count as complete after 60 s without a change (--until)");
            Until::Quiet(Duration::from_secs(60))
        }
    });
    let (is_append_only, alarm) = (args.rules.append_only, args.rules.lag_alarm);
    let follow = Some(Follow { is_append_only, alarm, ..Follow::new(until, args.rules.end) });
    let sealed_list = args.rules.sealed_list;
    cp::run_with(&args.copy, &cp::More { command: "follow", deletion: None, backup: None, follow, view, sealed_list })
}

/// Where all that write to a file are known to this host's kernel.
fn is_on_local_storage(path: &[u8]) -> bool {
    use std::os::unix::ffi::OsStrExt;
    let path = Path::new(OsStr::from_bytes(path));
    // A file is on its directory's file system. A missing source is reported later.
    let directory = if path.is_dir() {
        path
    } else {
        path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."))
    };
    store::posix::beneath::open_directory(directory)
        .map_or(true, |directory| store::posix::facts::has_locks_for_all(directory.as_fd()))
}

fn list_name(text: &str) -> std::result::Result<Name, String> {
    let name = Name::new(text.as_bytes()).ok().filter(|name| !name.as_bytes().starts_with(store::STAGING_PREFIX));
    name.ok_or_else(|| format!("{text:?} is not the name of a file: the list is at the top of the destination"))
}
