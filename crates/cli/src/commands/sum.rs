//! `thalweg sum`: lists of files with their digests, written and verified, here or at an endpoint.
//!
//! `make` lists, `verify` checks. The paths are those that `cp` would give the files at its destination, so that `sum SRC`
//! and `cp --manifest` list the same, and `sum -c` verifies a copy. Lines come in the order of names.

mod args;
mod make;
mod verify;

pub use args::Args;

use crate::exit::{Result, usage};
use crate::place::Places;
use model::Exit;

pub fn run(args: Args) -> Result<Exit> {
    let places = Places::new(&args.ssh)?;
    let chosen = args.selection.chosen()?;
    if args.check.is_some() && !chosen.is_everything {
        return Err(usage("-c verifies every file of a list", "omit the selection, or give -c a list of fewer files"));
    }
    match (&args.check, &args.locations[..]) {
        (Some(file), []) => verify::verify(&args, &places, file, places.open(".".as_ref())?),
        (Some(file), [directory]) => verify::verify(&args, &places, file, places.open(directory)?),
        (Some(_), _) => {
            Err(usage("-c verifies a list against one directory", "give -c FILE and at most one directory"))
        }
        (None, []) => Err(usage("nothing to list", "name files or directories, or -c FILE to verify a list")),
        (None, locations) => make::make(&args, &places, &chosen, locations),
    }
}
