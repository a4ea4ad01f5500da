//! `thalweg cat`: files written to standard output, verified on the way.

use crate::args::ssh::SshArgs;
use crate::args::values;
use crate::exit::{Result, usage};
use crate::interrupt::Interrupt;
use crate::output;
use crate::transfer::{self, Request, Ssh};
use model::{Exit, Location};
use std::ffi::OsString;
use std::time::Instant;

/// Write files to standard output, one after the other, from here or from an endpoint
///
/// The same as `thalweg cp LOC -` for each. All output has been verified chunk by chunk; if the end of a file cannot be
/// verified, the command ends with an error.
#[derive(clap::Args, Debug)]
#[command(after_help = "Example:\n\
\x20   thalweg cat lab:logs/run7.log | tail")]
pub struct Args {
    /// What to write: PATH, NAME:PATH or tw://ADDR:PORT/PATH
    #[arg(required = true, value_name = "LOC")]
    locations: Vec<OsString>,
    #[command(flatten)]
    ssh: SshArgs,
}

pub fn run(args: Args) -> Result<Exit> {
    let locations: Vec<Location> =
        args.locations.iter().map(|location| values::location(location)).collect::<Result<_>>()?;
    if let Some(tree) = locations.iter().find(|location| location.path().ends_with(b"/")) {
        return Err(usage(format!("{tree} is a directory"), "name files; `thalweg ls` lists them"));
    }
    let interrupt = Interrupt::watch()?;
    for location in locations {
        let mut request = Request::plain(vec![location], Location::Pipe);
        request.ssh = Ssh { options: args.ssh.options(), is_allowed: args.ssh.is_allowed(), is_quiet: false };
        let finished = transfer::run(&request, Instant::now(), &interrupt, None)?;
        if output::nobody_reads() {
            // As `cat` ends when its reader has seen enough: that is no failure to talk about.
            return Ok(Exit::BrokenPipe);
        }
        output::human::failures(&finished.ended, output::human::FAILURES_SHOWN)
            .iter()
            .for_each(|line| output::note(line));
        if let Some(error) = finished.error {
            return Err(error);
        }
    }
    Ok(Exit::Done)
}
