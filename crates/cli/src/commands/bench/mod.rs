//! `thalweg bench`: measurements and races, run by the `bench` library. One file for each.

mod compare;
mod net;

use crate::exit::Result;
use model::Exit;

/// Measure this machine and race against other tools
#[derive(clap::Args, Debug)]
pub struct Args {
    #[command(subcommand)]
    part: Part,
}

#[derive(clap::Subcommand, Debug)]
enum Part {
    Compare(Box<compare::Args>),
    Net(Box<net::Args>),
}

pub fn run(args: Args) -> Result<Exit> {
    match args.part {
        Part::Compare(args) => compare::run(*args),
        Part::Net(args) => net::run(*args),
    }
}
