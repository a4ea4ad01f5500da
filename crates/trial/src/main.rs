//! Trials of the reliability contract: `cargo run --release -p trial -- COMMAND`.
//!
//! Each command makes one kind of fault, counts what fired, has an independent checker look afterwards, and exits with 1
//! when an invariant was broken. `docs/reliability.md` says what is promised; `trial report` fills its table.
//!
//! Not part of the product: nothing of it is linked into `thalweg`.

mod flips;
mod fuzz;
mod paths;
mod record;

use clap::{Parser, Subcommand};
use record::Tally;
use std::path::PathBuf;
use std::process::ExitCode;

#[derive(Parser)]
#[command(about = "Trials of Thalweg's reliability contract", disable_help_subcommand = true)]
struct Arguments {
    /// Folder that gets the counts as NAME.json
    #[arg(long, global = true)]
    out: Option<PathBuf>,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Swap directories and names for links while storage calls run (F042-F045)
    Paths(paths::Arguments),
    /// Flip single bits at six stages between the source's digest and the final name (F075)
    Flips(flips::Arguments),
    /// Fuzz what comes from peers, disks and people
    Fuzz(fuzz::Arguments),
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let (name, ran): (&str, anyhow::Result<Tally>) = match &arguments.command {
        Command::Paths(arguments) => ("paths", paths::run(arguments)),
        Command::Flips(arguments) => ("flips", flips::run(arguments)),
        Command::Fuzz(arguments) => ("fuzz", fuzz::run(arguments)),
    };
    finish(name, ran, arguments.out.as_deref())
}

/// Prints and keeps the counts; fails when an invariant was broken or no fault fired.
fn finish(name: &str, ran: anyhow::Result<Tally>, out: Option<&std::path::Path>) -> ExitCode {
    let written = ran.and_then(|tally| {
        print!("{}", tally.text());
        out.map_or(Ok(()), |dir| tally.write(dir, name))?;
        Ok(tally.violated() == 0 && tally.fired() > 0)
    });
    match written {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(e) => {
            eprintln!("trial: {e:#}");
            ExitCode::from(2)
        }
    }
}
