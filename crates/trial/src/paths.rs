//! `trial paths`: a local user swaps directories, files and names for links while the storage calls run (F042-F045).
//!
//! For each call a swapper exchanges a real thing inside the root with a link to a tree outside, as fast as it can, and
//! the production call runs against it in a loop. A round counts only if an exchange began and ended while it ran. The
//! outside tree has to be as it was afterwards: names, content, modes, owners, times, links and extended attributes.
//!
//! Not here: what the calls are (`calls`), and attacks by a user who may write to the staging of another.

mod arena;
mod calls;
mod changing;
mod outside;

use crate::record::Tally;
use anyhow::{Context, Result, bail};
use arena::{Arena, Swapper};
use calls::{CALLS, Call};
use changing::CHANGING;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Rounds for each that shall fire: on a busy machine the swapper may not run while a call does.
const ROUNDS_FACTOR: u64 = 8;
/// A call that is over sooner than two exchanges is tried so long until one fell into it.
const FIRST_WITHIN: Duration = Duration::from_secs(60);

#[derive(clap::Args)]
pub struct Arguments {
    /// Rounds of each call in which a swap has to fall
    #[arg(long, default_value_t = 1000)]
    rounds: u64,
    /// One call only
    #[arg(long)]
    call: Option<String>,
    /// Where the trees are made; memory is fastest [default: shared memory, else the temporary directory]
    #[arg(long)]
    dir: Option<PathBuf>,
}

pub fn run(arguments: &Arguments) -> Result<Tally> {
    let mut tally = Tally::new(&format!("trial paths --rounds {}", arguments.rounds));
    let started = Instant::now();
    let chosen: Vec<&Call> = CALLS
        .iter()
        .chain(CHANGING)
        .filter(|call| arguments.call.as_ref().is_none_or(|name| name == call.name))
        .collect();
    if chosen.is_empty() {
        let known: Vec<_> = CALLS.iter().chain(CHANGING).map(|call| call.name).collect();
        bail!("no such call; known are {}", known.join(", "));
    }
    for call in chosen {
        attack(call, arguments, &mut tally).with_context(|| format!("attack {}", call.name))?;
    }
    tally.seconds = started.elapsed().as_secs_f64();
    Ok(tally)
}

fn attack(call: &Call, arguments: &Arguments, tally: &mut Tally) -> Result<()> {
    let memory = PathBuf::from("/dev/shm");
    let default = if memory.is_dir() { memory } else { std::env::temp_dir() };
    let place = tempfile::tempdir_in(arguments.dir.as_ref().unwrap_or(&default)).context("make a directory")?;
    let arena = Arena::make(place.path())?;
    let before = arena.outside()?;
    let started = Instant::now();
    let swapper = Swapper::start(&arena, call.pair)?;
    let (mut fired, mut rounds, mut broken) = (0, 0, Vec::new());
    let is_worth_it = |rounds, fired| match fired {
        0 => started.elapsed() < FIRST_WITHIN,
        _ => rounds < arguments.rounds * ROUNDS_FACTOR,
    };
    while fired < arguments.rounds && is_worth_it(rounds, fired) {
        let swaps = swapper.swaps();
        if let Err(why) = (call.round)(&arena, rounds) {
            broken.push(format!("round {rounds}: {why}"));
        }
        rounds += 1;
        // Of two exchanges that ended meanwhile the second also began meanwhile.
        fired += u64::from(swapper.swaps() >= swaps + 2 || arena.has_met.take());
    }
    let swaps = swapper.stop();
    let seconds = started.elapsed().as_secs_f64();
    broken.extend(outside::differences(&before, &arena.outside()?));
    let name = format!("path attack: {}", call.name);
    tally.plan(&name, call.faults);
    tally.allow(&name, &["any, nothing outside touched"]);
    let class = tally.classes.entry(name).or_default();
    class.violated = (broken.len() as u64).min(fired.max(1));
    class.survived = fired - class.violated.min(fired);
    class.inert = rounds - fired;
    let again = format!("trial paths --rounds {} --call {}", arguments.rounds, call.name);
    class.violations = broken.into_iter().take(8).map(|why| format!("{why}; again: {again}")).collect();
    let figure = format!("{rounds} rounds and {swaps} swaps in {seconds:.1} s");
    tally.figures.insert(format!("path attack: {}", call.name), figure);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_call_survives_a_few_rounds_and_fires() {
        let arguments = Arguments { rounds: 10, call: None, dir: None };
        let tally = run(&arguments).unwrap();
        assert_eq!(tally.violated(), 0, "{}", tally.text());
        assert_eq!(tally.unfired(), [""; 0], "{}", tally.text());
    }

    #[test]
    fn a_call_that_follows_links_is_caught() {
        let place = tempfile::tempdir().unwrap();
        let arena = Arena::make(place.path()).unwrap();
        let before = arena.outside().unwrap();
        let swapper = Swapper::start(&arena, arena::Pair::Directory).unwrap();
        // What a receiver that trusts paths does.
        for round in 0..100_000 {
            let path = arena.root.join("d").join(format!("trusting-{round}"));
            let _ = std::fs::write(&path, b"x");
            if arena.outside().unwrap().len() != before.len() {
                break;
            }
        }
        swapper.stop();
        assert!(!outside::differences(&before, &arena.outside().unwrap()).is_empty());
    }
}
