//! One file for each command.

pub mod serve;
pub mod endpoint;
pub mod ticket;
pub mod cp;
pub mod sum;
pub mod top;
pub mod doctor;
pub mod config;
pub mod completions;
pub mod man;
#[cfg(feature = "bench")]
pub mod generate;
#[cfg(feature = "bench")]
pub mod demo;
#[cfg(feature = "bench")]
pub mod bench;
#[cfg(feature = "lab")]
pub mod lab;

use crate::args::{Cli, Command};
use crate::exit::Result;
use model::Exit;

pub fn run(cli: Cli) -> Result<Exit> {
    match cli.command {
        Command::Serve(args) => serve::run(args),
        Command::Endpoint(args) => endpoint::run(args),
        Command::Ticket(args) => ticket::run(args),
        Command::Cp(args) => cp::run(*args),
        Command::Sum(args) => sum::run(args),
        Command::Top(args) => top::run(args),
        Command::Doctor(args) => doctor::run(args, cli.globals.profile.as_deref()),
        Command::Config(args) => config::run(args, &cli.globals),
        Command::Completions(args) => completions::run(args),
        Command::Man(args) => man::run(args),
        #[cfg(feature = "bench")]
        Command::Gen(args) => generate::run(args),
        #[cfg(feature = "bench")]
        Command::Demo(args) => demo::run(args),
        #[cfg(feature = "bench")]
        Command::Bench(args) => bench::run(args),
        #[cfg(feature = "lab")]
        Command::Lab(args) => lab::run(args),
    }
}
