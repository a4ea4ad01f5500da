//! `thalweg stage`: a copy between storages that this host reaches itself, such as a burst buffer and the file system behind it.

use super::cp;
use crate::args::values;
use crate::exit::{Result, usage};
use model::Exit;

/// Copy between storages of this host: a file system and a burst buffer, or an object store
///
/// As `cp`, with both ends on this host or at a store that it reaches itself; nothing has to run elsewhere. To have slow storage
/// staged while the network is busy, use a buffer instead (docs/buffers.md).
#[derive(clap::Args, Debug)]
// Those of `cp` have the same name, and a group each.
#[group(skip)]
#[command(
    override_usage = "thalweg stage [OPTIONS] <SRC>... <DST>",
    after_help = "Examples:\n\
\x20   thalweg stage /gpfs/run42/ /nvme/run42/\n\
\x20   thalweg stage /nvme/run42/ s3://archive/run42/"
)]
pub struct Args {
    #[command(flatten)]
    copy: cp::Args,
}

pub fn run(args: Args) -> Result<Exit> {
    for location in args.copy.locations() {
        let location = values::location(location)?;
        if location.is_remote() {
            return Err(usage(
                format!("{location} is at another host: stage copies between storages of this one"),
                "use cp",
            ));
        }
    }
    cp::run_with(
        &args.copy,
        &cp::More { command: "stage", deletion: None, backup: None, follow: None, view: None, sealed_list: None },
    )
}
