//! `thalweg lab`: wide-area networks and slow storage on one machine.
//!
//! Owns: reading the command line of the laboratory and showing what it says. One that is `up` is held by a process of its own
//! (`hold`); `run` holds its own.

mod error;
mod hold;
mod inspect;
mod run;
mod scenario;
mod storage;
mod validate;

#[cfg(feature = "bench")]
pub use scenario::Wanted;

use crate::exit::Result;
use model::Exit;

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
