//! The program: reads its arguments, runs one command, shows what came of it, exits with a code that says which class
//! of result it was.
//!
//! `args` is what can be asked, `settings` the defaults that the user keeps for it; `commands` has a file for each command;
//! `transfer` carries out a copy, whatever its ends; `service` is a client of the hub; `place` opens what is looked at or changed; `stores` are the kinds of storage there are, `coordinator` what hosts of an endpoint keep their records in;
//! `output` is everything a person or a program reads; `exit` and `interrupt` are the two ways to end.
//! Not here: the data path (`mover`), endpoints and identities (`daemon`), what limits a rate (`plan`).

mod args;
mod settings;
mod stores;
mod coordinator;
mod commands;
mod selection;
mod calibrations;
mod calibrating;
mod limits;
mod lossy_paths;
mod transfer;
#[cfg(feature = "hub")]
mod service;
mod place;
mod output;
mod interrupt;
mod notify;
mod logs;
mod exit;
mod fidelity;

use model::Exit;
use std::process::ExitCode;

fn main() -> ExitCode {
    daemon::take_descriptors();
    let ended = args::parse().and_then(|cli| {
        logs::start(&cli.command);
        commands::run(cli)
    });
    code(ended)
}

/// Shows the error, if there is one. What was to be read by others and is lost fails a command that succeeded otherwise.
fn code(ended: exit::Result<Exit>) -> ExitCode {
    let ended = match (ended, output::lost()) {
        (Ok(Exit::Done), Some(cause)) => {
            let hint = "the output is incomplete: make room where it goes, and give the command again";
            Err(exit::error(Exit::Failed, format!("write standard output: {}", exit::plain(cause)), hint))
        }
        (ended, _) => ended,
    };
    let exit = ended.unwrap_or_else(|error| {
        output::error(&error);
        // What failed has not succeeded, whatever its code says.
        if error.exit == Exit::Done { Exit::Failed } else { error.exit }
    });
    ExitCode::from(exit as i32 as u8)
}
