//! `thalweg sync`: makes a destination like its source; a copy that may also remove.

use super::cp;
use crate::args::values;
use crate::exit::{Result, usage};
use model::options::Deletion;
use model::{Exit, Location};
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;

/// Make a destination like its source
///
/// As `cp`: files already there with the same size and time are skipped, the rest is sent, and `dir/` means the
/// contents of dir. With --delete, objects that the source does not have are removed from the destination, after
/// everything else, and only if the whole source could be listed. Objects excluded by filter rules stay. --dry-run
/// shows what would be done.
#[derive(clap::Args, Debug)]
// Those of `cp` have the same name, and a group each.
#[group(skip)]
#[command(
    override_usage = "thalweg sync [OPTIONS] <SRC> <DST>",
    after_help = "Examples:\n\
\x20   thalweg sync -n --delete data/ lab:data/          show what would be sent and removed\n\
\x20   thalweg sync --delete --max-delete 100 data/ lab:data/\n\
\x20   thalweg sync --delete --backup-dir old/monday data/ lab:data/\n\
\x20   thalweg sync --exclude '*.tmp' --checksum lab:data/ copy/"
)]
pub struct Args {
    #[command(flatten)]
    pub copy: cp::Args,
    #[command(flatten)]
    removal: RemovalArgs,
}

// What goes, and where to.
#[derive(clap::Args, Debug)]
#[command(next_help_heading = "Removal")]
struct RemovalArgs {
    /// Remove from DST what SRC does not have
    #[arg(long, alias = "delete-after")]
    delete: bool,
    /// Remove nothing if more objects than this would go (exit code 25)
    #[arg(long, value_name = "N", env = "THALWEG_MAX_DELETE")]
    max_delete: Option<u64>,
    /// Keep objects that are replaced or removed, under their paths below this directory of DST
    #[arg(long, value_name = "DIR", env = "THALWEG_BACKUP_DIR")]
    backup_dir: Option<OsString>,
}

pub fn run(args: Args) -> Result<Exit> {
    let [source] = args.copy.sources()? else {
        return Err(usage("sync takes one source and one destination", "give a command for each source"));
    };
    let is_at_root = names_contents(&values::location(source)?);
    let deletion = args.removal.delete.then_some(Deletion { is_at_root, removals_max: args.removal.max_delete });
    let backup = args.removal.backup_dir.as_ref().map(|path| path.as_bytes().to_vec());
    if let Some(path) = &backup {
        mover::job_options::check_backup(path)
            .map_err(|why| usage(why, "name it relative to the destination, such as old/monday"))?;
    }
    cp::run_with(
        &args.copy,
        &cp::More { command: "sync", deletion, backup, follow: None, view: None, sealed_list: None },
    )
}

/// The source is the contents of a directory, without doubt: the destination itself is to be like it.
fn names_contents(source: &Location) -> bool {
    let path = source.path();
    path.ends_with(b"/") || path.ends_with(b"/.") || path == b"." || source.is_remote() && path.is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_source_that_is_surely_contents_empties_the_root_of_the_destination() {
        for (source, expected) in
            [("d/", true), ("d/.", true), (".", true), ("lab:", true), ("lab:d/", true), ("d", false), ("./d:", false)]
        {
            assert_eq!(names_contents(&values::location(source.as_ref()).unwrap()), expected, "{source}");
        }
        assert!(!names_contents(&values::location("lab:d".as_ref()).unwrap()));
    }
}
