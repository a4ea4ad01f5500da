//! `thalweg serve --stdio`: the remote side of a copy over ssh, started by thalweg itself on another host.
//!
//! Standard input and output belong to the connection from the first byte to the last; a person who tries it sees a line
//! that says what it waits for, and the end of their input ends it.

use crate::commands::cp;
use crate::exit::{self, Result};
use crate::transfer::third_party;
use model::Exit;
use ssh::{Asked, accept};
use std::fs::File;
use std::os::fd::AsFd;

/// Serves whoever is on the other side of the two pipes. Called on the process's only thread.
pub fn run() -> Result<Exit> {
    // One that was deployed is run through a descriptor, and would be listed under its number.
    let _ = rustix::thread::set_name(c"thalweg");
    let failed = |e: std::io::Error| exit::of_file("use", "standard input and output", &e);
    let input = File::from(std::io::stdin().as_fd().try_clone_to_owned().map_err(failed)?);
    let output = File::from(std::io::stdout().as_fd().try_clone_to_owned().map_err(failed)?);
    match accept(input, output)? {
        Some(Asked::Serve(serving)) => serving.run().map(|()| Exit::Done),
        Some(Asked::Copy(copying)) => third_party::send(*copying, cp::read_elsewhere, cp::run_elsewhere),
        None => Ok(Exit::Done),
    }
}
