//! `thalweg bench`: measurements and races, run by the `bench` library. One file for each.

mod compare;
mod sweep;
mod repro;
mod values;
mod storage;
mod diff;
mod report;
mod net;
mod lag;
#[cfg(feature = "fuse")]
mod accuracy;
mod field;

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
    Sweep(Box<sweep::Args>),
    Repro(repro::Args),
    Storage(Box<storage::Args>),
    Diff(diff::Args),
    Report(report::Args),
    Net(Box<net::Args>),
    Lag(Box<lag::Args>),
    #[cfg(feature = "fuse")]
    #[command(name = "plan-accuracy")]
    PlanAccuracy(Box<accuracy::Args>),
    Field(Box<field::Args>),
}

pub fn run(args: Args) -> Result<Exit> {
    match args.part {
        Part::Compare(args) => compare::run(*args),
        Part::Sweep(args) => sweep::run(*args),
        Part::Repro(args) => repro::run(args),
        Part::Storage(args) => storage::run(*args),
        Part::Diff(args) => diff::run(args),
        Part::Report(args) => report::run(args),
        Part::Net(args) => net::run(*args),
        Part::Lag(args) => lag::run(*args),
        #[cfg(feature = "fuse")]
        Part::PlanAccuracy(args) => accuracy::run(*args),
        Part::Field(args) => field::run(*args),
    }
}
