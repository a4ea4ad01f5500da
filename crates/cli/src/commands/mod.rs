//! One file for each command.

pub mod serve;
pub mod endpoint;
pub mod ticket;
pub mod cp;
pub mod sync;
pub mod filter;
pub mod sum;
#[cfg(feature = "bench")]
pub mod generate;
#[cfg(feature = "bench")]
pub mod demo;
#[cfg(feature = "bench")]
pub mod bench;
#[cfg(feature = "lab")]
pub mod lab;

use crate::args::Command;
use crate::exit::Result;
use model::Exit;

pub fn run(command: Command) -> Result<Exit> {
    match command {
        Command::Serve(args) => serve::run(args),
        Command::Endpoint(args) => endpoint::run(args),
        Command::Ticket(args) => ticket::run(args),
        Command::Cp(args) => cp::run(*args),
        Command::Sync(args) => sync::run(*args),
        Command::Filter(args) => filter::run(args),
        Command::Sum(args) => sum::run(args),
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
