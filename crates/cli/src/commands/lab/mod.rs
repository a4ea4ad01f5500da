//! `thalweg lab`: wide-area networks and slow storage on one machine.
//!
//! Owns: reading the command line of the laboratory and showing what it says. One that is `up` is held by a process of its own
//! (`hold`); `run` holds its own.

mod hold;
mod inspect;
mod run;
mod scenario;
mod storage;
mod validate;

pub use scenario::Wanted;

use crate::exit::{Error, Result};
use lab::Kind;
use model::Exit;
use std::time::Duration;

/// Wide-area networks and slow storage on one machine
///
/// A laboratory is a set of hosts (network namespaces) joined by links with the delay, rate, queue and loss that you
/// specify. Nothing outside it changes. docs/lab.md says how exact it is.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:\n\
\x20   thalweg lab run continent -- ping -c 5 b\n\
\x20   thalweg lab up continent; thalweg lab exec b -- iperf3 -s -D; thalweg lab exec a -- iperf3 -c b\n\
\x20   thalweg lab set wan loss=0.01% rate=1Gbit; thalweg lab status; thalweg lab down")]
pub struct Args {
    #[command(subcommand)]
    part: Part,
}

#[derive(clap::Subcommand, Debug)]
enum Part {
    Presets(scenario::Presets),
    Up(hold::Up),
    Run(run::Args),
    Exec(inspect::Exec),
    Status(inspect::Status),
    Set(inspect::Set),
    Validate(validate::Args),
    Down(hold::Down),
    Draw(scenario::Draw),
    Emit(scenario::Emit),
    Storage(storage::Args),
    #[command(hide = true)]
    Hold(hold::Hold),
}

pub fn run(args: Args) -> Result<Exit> {
    match args.part {
        Part::Presets(args) => scenario::presets(&args),
        Part::Up(args) => hold::up(&args),
        Part::Run(args) => run::run(&args),
        Part::Exec(args) => inspect::exec(&args),
        Part::Status(args) => inspect::status(&args),
        Part::Set(args) => inspect::set(&args),
        Part::Validate(args) => validate::run(&args),
        Part::Down(args) => hold::down(&args),
        Part::Draw(args) => scenario::draw(&args),
        Part::Emit(args) => scenario::emit(&args),
        Part::Storage(args) => storage::run(&args),
        Part::Hold(args) => hold::hold(&args),
    }
}

/// An error of the laboratory with what to do about it.
fn of_lab(error: lab::Error) -> Error {
    let exit = if error.kind == Kind::Refused { Exit::Usage } else { Exit::Failed };
    let hint = error.hint.clone().unwrap_or_else(|| {
        match error.kind {
            Kind::Denied => "run it as root",
            Kind::Missing => "install what is named",
            Kind::Refused => "docs/lab.md lists what is possible",
            Kind::Failed => "`thalweg lab down --all` removes what may be left; then try again",
        }
        .into()
    });
    crate::exit::error(exit, error.to_string(), hint)
}

/// Reads `300us`, `5ms`, `2s`.
fn time(text: &str) -> Result<Duration, String> {
    ::lab::scenario::quantity::parse_duration(text).map_err(|error| error.to_string())
}
