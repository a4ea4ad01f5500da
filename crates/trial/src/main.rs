//! Trials of the reliability contract: `cargo run --release -p trial -- COMMAND`.
//!
//! Each command makes one kind of fault, counts what fired, has an independent checker look afterwards, and exits with 1
//! when an invariant was broken. `docs/reliability.md` says what is promised; `trial report` fills its table.
//!
//! Not part of the product: nothing of it is linked into `thalweg`.

mod museum;
mod mutate;
mod flips;
mod fuzz;
mod paths;
mod record;
mod origin;
mod report;
mod simulate;
mod pool;
mod random;
mod sys;
mod calls;
mod process;
mod relay;
mod tree;
mod job;
mod instrument;
mod check;
mod kill;
mod large;
mod resent;
mod injections;
mod errno;
mod soak;
mod hostile;
mod sender;
mod crowd;
mod locals;
mod enrolments;
mod memory;
mod outside;
mod network;
mod rivals;
mod queue;
mod day;
mod crew;

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
    /// Production code between simulated hosts, by seed
    Simulate(simulate::Arguments),
    /// Power loss at every call to storage, every state that it may leave
    CrashStates(simulate::CrashArguments),
    /// Deliberate bugs, each of which something has to notice
    Museum(museum::Arguments),
    /// Machine-made mutants of commit and publish, against the simulation
    Mutate(mutate::Arguments),
    /// Fills docs/reliability.md from the counts of the other commands
    Report(report::Arguments),
    /// kill -9 of the real program at every durable call
    Kill(kill::Args),
    /// Every error of storage at every call, in the real program
    Errno(errno::Args),
    /// Copies all the time, and a fault now and then
    Soak(soak::Args),
    /// Peers that break the rules of the real endpoint (F001-F027)
    Hostile(hostile::Args),
    /// An endpoint that sends what nobody asked for, against the program that fetches
    Sender(sender::Args),
    /// Greedy clients beside honest ones: what is left for others, and what the endpoint holds (F013, F014, F016)
    Crowd(crowd::Args),
    /// Files, links and variables that users of the same host prepare for one another
    Locals(locals::Args),
    /// Clients that enrol while their ticket is revoked, expires, or the endpoint starts again (F028, F029)
    Enrolments(enrolments::Args),
    /// What the largest frame of each message makes the real endpoint hold (I12)
    Memory(memory::Args),
    /// Swap directories and names for links while storage calls run (F042-F045)
    Paths(paths::Arguments),
    /// Flip single bits at six stages between the source's digest and the final name (F075)
    Flips(flips::Arguments),
    /// Fuzz what comes from peers, disks and people
    Fuzz(fuzz::Arguments),
    /// The real program over networks that fail: the profiles of profiles.toml
    Network(network::Args),
    /// The same outside faults on rsync, globus-url-copy, xrdcp, cp and thalweg: what each one leaves behind
    Rivals(rivals::Args),
    /// The hub's queue among simulated executors, by seed
    Queue(queue::Arguments),
    /// A day of a facility in minutes: five users, a hub, two endpoints, faults and an upgrade
    Day(day::Args),
    /// Copies by several hosts, one of which is killed, stopped or cut off (F093, F109, F110)
    Crew(crew::Args),
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let out = arguments.out.as_deref();
    let (name, ran): (&str, anyhow::Result<Tally>) = match &arguments.command {
        Command::Simulate(arguments) if arguments.hosts => ("simulate-hosts", simulate::run(arguments)),
        Command::Simulate(arguments) => ("simulate", simulate::run(arguments)),
        Command::CrashStates(arguments) => ("crash-states", simulate::crash_states(arguments)),
        Command::Museum(arguments) => ("museum", museum::run(arguments)),
        Command::Mutate(arguments) => ("mutate", mutate::run(arguments)),
        Command::Report(arguments) => ("report", report::run(arguments)),
        Command::Kill(args) => ("kill", kill::run(args)),
        Command::Errno(args) => ("errno", errno::run(args)),
        Command::Soak(args) => ("soak", soak::run(args)),
        Command::Hostile(args) => ("hostile", hostile::run(args)),
        Command::Sender(args) => ("sender", sender::run(args)),
        Command::Crowd(args) => ("crowd", crowd::run(args)),
        Command::Locals(args) => ("locals", locals::run(args)),
        Command::Enrolments(args) => ("enrolments", enrolments::run(args)),
        Command::Memory(args) => ("memory", memory::run(args)),
        Command::Paths(arguments) => ("paths", paths::run(arguments)),
        Command::Flips(arguments) => ("flips", flips::run(arguments)),
        Command::Fuzz(arguments) => ("fuzz", fuzz::run(arguments)),
        Command::Network(arguments) => ("network", network::run(arguments, out)),
        Command::Rivals(arguments) => ("rivals", rivals::run(arguments, out)),
        Command::Queue(arguments) => ("queue", queue::run(arguments)),
        Command::Day(args) => ("day", day::run(args)),
        Command::Crew(args) => ("crew", crew::run(args, out)),
    };
    finish(name, ran, out)
}

/// Prints and keeps the counts; fails when an invariant was broken, or a fault that was planned did not fire.
fn finish(name: &str, ran: anyhow::Result<Tally>, out: Option<&std::path::Path>) -> ExitCode {
    let written = ran.and_then(|mut tally| {
        if !matches!(name, "report") {
            tally.command = as_called();
        }
        print!("{}", tally.text());
        if let Some(dir) = out.filter(|_| name != "report") {
            tally.origin = origin::Origin::now();
            tally.write(dir, name)?;
        }
        Ok(tally.is_success())
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

/// Where things lie, which is nothing of what is counted.
const PLACES: [&str; 5] = ["--out", "--program", "--work", "--work-dir", "--dir"];

/// The command line without the places of this machine: it makes the same counts again.
fn as_called() -> String {
    let mut words = vec!["trial".to_owned()];
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        match argument.split_once('=') {
            None if PLACES.contains(&&*argument) => _ = arguments.next(),
            Some((name, _)) if PLACES.contains(&name) => {}
            _ => words.push(argument),
        }
    }
    words.join(" ")
}
