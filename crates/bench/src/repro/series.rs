//! Items made one after the other, after the laboratory was held against its gates.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use lab::validate::{Depth, validate};

use super::context::Context;
use super::{Item, Options, Outcome, index};
use crate::error::{Error, Kind, Result};
use crate::sweep::Condition;
use crate::workspace::{MEMORY_DIR, remove_leftovers};

/// What one item gets without a budget.
const ITEM_BUDGET: Duration = Duration::from_secs(600);
/// Of a budget, what checking the laboratory may take with the rest of the overhead.
const OVERHEAD_SHARE: f64 = 0.03;
/// Those of the quick gates that say whether delay and rate are what they are set to.
const GATES: [&str; 3] = ["V1", "V2", "V3"];

/// Runs the items one after the other, each into a folder of `Options::out` named after it, and keeps the index current.
pub fn run(
    items: &[&'static Item],
    options: &Options,
    cancel: &AtomicBool,
    progress: &mut dyn FnMut(&str),
) -> Result<Outcome> {
    if let Some(item) = items.iter().find(|item| item.run.is_none()) {
        let cause = format!("it {}", item.needs.shown());
        return Err(Error::new(Kind::Usage, "reproduce", item.id, cause));
    }
    std::fs::create_dir_all(&options.out).map_err(Error::io("create", &options.out))?;
    let started = Instant::now();
    let is_measured = items.iter().any(|item| !item.is_computed());
    if is_measured {
        remove_leftovers(options.work_dir.as_deref().unwrap_or(Path::new(MEMORY_DIR)), progress);
    }
    // By the rate at which it was held against its gates.
    let mut doubts_at: BTreeMap<u64, Vec<String>> = BTreeMap::new();
    let mut outcome = Outcome { done: Vec::new(), is_cancelled: false };
    for (index, item) in items.iter().enumerate() {
        let share = share(options.budget, started.elapsed(), &items[index..]);
        progress(&format!("{}: {} ({:.0} s)", item.id, item.title, share.as_secs_f64()));
        let rate = options.bits_per_second.unwrap_or(item.gates_bits_per_second);
        if !(options.is_unchecked || item.is_computed() || doubts_at.contains_key(&rate)) {
            doubts_at.insert(rate, doubts(options, rate, progress)?);
        }
        let doubts = doubts_at.get(&rate).filter(|_| !item.is_computed()).cloned().unwrap_or_default();
        let mut context = Context::new(item, options, share, cancel, progress, doubts);
        let ended = item.run.map_or(Ok(()), |run| run(&mut context));
        let done = context.finish(ended.as_ref().err())?;
        for check in &done.checks {
            progress(&format!("{}: {}", item.id, check.shown()));
        }
        outcome.done.push(done);
        index::write(&outcome.done, options)?;
        match ended {
            Err(error) if error.kind == Kind::Cancelled => {
                outcome.is_cancelled = true;
                break;
            }
            // Without the right to make hosts nothing else will run either.
            Err(error) if error.kind == Kind::Denied => return Err(error),
            Err(error) => progress(&format!("{}: {}", item.id, error.chain())),
            Ok(()) => {}
        }
    }
    Ok(outcome)
}

/// The part of what is left of the budget that belongs to the first of the items.
fn share(budget: Option<Duration>, elapsed: Duration, items: &[&Item]) -> Duration {
    let Some(budget) = budget else { return ITEM_BUDGET };
    let left = budget.saturating_sub(elapsed).mul_f64(1.0 - OVERHEAD_SHARE);
    let weights: f64 = items.iter().map(|item| item.weight).sum();
    left.mul_f64(items.first().map_or(0.0, |item| item.weight) / weights.max(1e-9)).max(Duration::from_secs(1))
}

/// Holds the laboratory against its gates at a rate of its link: what does not pass makes verdicts on rates and times void.
fn doubts(options: &Options, bits_per_second: u64, progress: &mut dyn FnMut(&str)) -> Result<Vec<String>> {
    let condition = Condition { bits_per_second: Some(bits_per_second), ..Condition::default() };
    let gates = GATES.map(str::to_owned);
    let mbit = bits_per_second / 1_000_000;
    progress(&format!("the laboratory is held against its gates at {mbit} Mbit/s"));
    let report = validate(&condition.scenario(options.seed)?, Depth::Quick, &gates, &mut |_| ())?;
    let path = options.out.join(format!("laboratory-{mbit}Mbit.json"));
    let text = serde_json::to_string_pretty(&report).expect("plain values serialise") + "\n";
    std::fs::write(&path, text).map_err(Error::io("write", &path))?;
    let is_doubt = |gate: &&lab::validate::Gate| !matches!(gate.verdict, lab::validate::Verdict::Pass);
    Ok(report
        .gates
        .iter()
        .filter(is_doubt)
        .map(|gate| format!("gate {} {}: {}", gate.id, gate.title, gate.measured))
        .collect())
}

#[cfg(test)]
mod tests {
    use super::super::ITEMS;
    use super::*;

    #[test]
    fn the_chain_is_judged_at_the_rate_at_which_it_runs() {
        let of = |id: &str| super::super::find(id).unwrap().gates_bits_per_second;
        assert_eq!((of("facility"), of("s0-f8")), (500_000_000, 1_000_000_000));
    }

    #[test]
    fn the_budget_is_divided_by_weight_and_what_an_item_saves_goes_to_the_others() {
        let items: Vec<&Item> = ITEMS.iter().filter(|item| item.run.is_some()).collect();
        let whole = Duration::from_secs(3600);
        let of_all: f64 =
            items.iter().map(|item| item.weight / items.iter().map(|item| item.weight).sum::<f64>()).sum();
        assert!((of_all - 1.0).abs() < 1e-9);
        let last = &items[items.len() - 1..];
        let left = share(Some(whole), Duration::from_secs(3000), last).as_secs_f64();
        assert!((left - 600.0 * (1.0 - OVERHEAD_SHARE)).abs() < 1e-6);
        assert_eq!(share(Some(whole), whole * 2, last), Duration::from_secs(1));
        assert_eq!(share(None, whole, last), ITEM_BUDGET);
    }
}
