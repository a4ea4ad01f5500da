//! Whether the number of streams is tuned well while copies run: how soon a tuned copy has what the best fixed number
//! has after the link changed, how evenly two tuned copies share a link, and what tuning costs where nothing happens.
//!
//! Invariants: in every round each setting has its turn on the same link; every run is kept in `runs.jsonl` with its
//! course, and the decisions of tuned ones in `*.log`. Nothing is stored: copies go from memory to memory.
//!
//! Not here: the law by which streams are tuned (`plan`), how good plans are (`accuracy`), storage that changes, which
//! the laboratory does not have.

mod curve;
mod stand;
mod change;
mod pair;
mod overhead;

use std::time::Duration;

use super::context::Context;
use crate::error::Result;
use stand::Raw;

pub const BITS_PER_SECOND: u64 = 300_000_000;
const ROUNDS: u32 = 3;

pub fn run(context: &mut Context) -> Result<()> {
    let wanted = context.options.rounds.unwrap_or(ROUNDS);
    let rounds = fitting(wanted, context.budget());
    if rounds < wanted {
        let seconds = seconds_of_round();
        context.note(format!("{rounds} of {wanted} rounds: each takes about {seconds:.0} s of the budget"));
    }
    let bits_per_second = context.options.bits_per_second.unwrap_or(BITS_PER_SECOND);
    let mut raw = Raw::new(&context.dir)?;
    change::run(context, bits_per_second, rounds, &mut raw)?;
    pair::run(context, bits_per_second, rounds, &mut raw)?;
    overhead::run(context, rounds, &mut raw)
}

/// As many rounds as the budget has room for, one at least.
fn fitting(wanted: u32, budget: Option<Duration>) -> u32 {
    let room = budget.map_or(wanted, |budget| (budget.as_secs_f64() / seconds_of_round()) as u32);
    wanted.min(room).max(1)
}

fn seconds_of_round() -> f64 {
    change::seconds_of_round() + pair::seconds_of_round() + overhead::seconds_of_round()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_rounds_and_the_gates_take_at_most_twelve_minutes() {
        const GATES_SECONDS: f64 = 60.0;
        let seconds = 3.0 * seconds_of_round() + GATES_SECONDS;
        assert!(seconds <= 720.0, "{seconds}");
    }

    #[test]
    fn a_budget_takes_rounds_away_and_leaves_one() {
        let room = |rounds: f64| Some(Duration::from_secs_f64(rounds * seconds_of_round()));
        assert_eq!([None, room(5.5), room(2.5), room(0.5)].map(|budget| fitting(3, budget)), [3, 3, 2, 1]);
    }
}
