//! `thalweg plan`: what rate is possible, what limits it, what a change would bring; buffers; laws fitted to measurements.
//!
//! Calculations are `plan`'s; here stand arguments, files and what is shown.

pub mod values;
mod graph;
mod picture;
mod buffer;
mod fit;
pub mod prediction;
mod report;
pub mod replay;
pub mod follow;

use crate::exit::Result;
use model::Exit;

/// Say what rate is possible, what limits it, and what a change would bring
///
/// SRC and DST are those of a copy to an endpoint or directory that was calibrated (`thalweg calibrate`): the answer is an
/// interval, and the number of streams. --graph reads a model: hosts, settings (knobs), and edges with a capacity and a cost each (docs/planner.md). The answer is
/// the best rate, the cheapest settings that keep 98 % of it or reach --goal, what limits it, and what one more unit of each
/// limiting resource would add. Rates are written as 10Gbit or 1.2GB; a bare number is bytes a second, as in the model.
#[derive(clap::Args, Debug)]
#[command(
    args_conflicts_with_subcommands = true,
    arg_required_else_help = true,
    after_help = "Examples:\n\
\x20   thalweg plan data/ lab:data/\n\
\x20   thalweg plan --graph model.json\n\
\x20   thalweg plan --graph model.json --goal 10Gbit\n\
\x20   thalweg plan --graph model.json --what-if network=x2 --what-if disks=2.4GB\n\
\x20   thalweg plan buffer --capacity 4TB --in 10GB --out 4GB --volume 10TB\n\
\x20   thalweg plan fit F1 streams.csv"
)]
pub struct Args {
    #[command(subcommand)]
    part: Option<Part>,
    #[command(flatten)]
    graph: graph::ModelArgs,
}

#[derive(clap::Subcommand, Debug)]
enum Part {
    Buffer(buffer::Args),
    Fit(fit::Args),
    Report(report::Args),
    Replay(replay::Args),
}

pub fn run(args: Args) -> Result<Exit> {
    match args.part {
        Some(Part::Buffer(args)) => buffer::run(&args),
        Some(Part::Fit(args)) => fit::run(&args),
        Some(Part::Report(args)) => report::run(&args),
        Some(Part::Replay(args)) => replay::run(&args),
        None => graph::run(&args.graph),
    }
}
