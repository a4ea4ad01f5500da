//! The program: reads its arguments, runs one command, shows what came of it, exits with a code that says which class
//! of result it was.
//!
//! `args` is what can be asked; `commands` has a file for each command; `transfer` carries out a copy, whatever its ends;
//! `output` is everything a person or a program reads; `exit` and `interrupt` are the two ways to end.
//! Not here: the data path (`mover`), endpoints and identities (`daemon`), what limits a rate (`plan`).

mod args;
mod commands;
mod selection;
mod transfer;
mod output;
mod interrupt;
mod logs;
mod exit;

use std::process::ExitCode;

fn main() -> ExitCode {
    let cli = args::parse();
    logs::start(&cli.command);
    let ended = commands::run(cli.command);
    exit::code(ended)
}
