//! `trial queue`: the hub's queue among executors that are simulated, by seed.
//!
//! A seed draws jobs, people, endpoints that go away and come back, messages that are lost or overtake each other, crashes of the hub
//! between any two of its actions, and clocks that jump. `world` plays them, `site` is an executor as `daemon::orders` behaves, `recurring` has the schedules. What
//! is held against them is written apart from the queue: at most one executor is at work on a job, what is done is not done again,
//! each change of state is legal, a slot of a schedule has its turn once and none is forgotten, an attempt's number only grows, and in the end, when faults have ended, every job has too.
//!
//! What it cannot do: the threads and the database of the hub (`crates/hub`), which have tests of their own.

mod recurring;
mod site;
mod world;

use crate::record::{Outcome, Tally};
use anyhow::Result;
use std::time::Instant;
use world::World;

#[derive(clap::Args)]
pub struct Arguments {
    /// How many seeds
    #[arg(long, default_value_t = 1000)]
    seeds: u64,
    /// The first of them
    #[arg(long, default_value_t = 1)]
    first: u64,
    /// Tells each step
    #[arg(long)]
    verbose: bool,
}

pub fn run(arguments: &Arguments) -> Result<Tally> {
    let mut tally = Tally::new(&format!("trial queue --first {} --seeds {}", arguments.first, arguments.seeds));
    let started = Instant::now();
    let (mut jobs, mut orders) = (0, 0);
    for seed in arguments.first..arguments.first + arguments.seeds {
        let mut world = World::new(seed, arguments.verbose);
        let outcome = match world.run() {
            Ok(()) => Outcome::Survived,
            Err(why) => Outcome::Violated(why),
        };
        jobs += world.jobs();
        orders += world.orders_begun;
        let replay = format!("trial queue --first {seed} --seeds 1 --verbose");
        for (class, faults) in world.fired() {
            tally.count(class, faults, &outcome, &replay);
        }
    }
    tally.figures.insert("jobs".to_owned(), jobs.to_string());
    tally.figures.insert("orders begun".to_owned(), orders.to_string());
    tally.seconds = started.elapsed().as_secs_f64();
    Ok(tally)
}
