//! Every check can fail: for each there is a store with one bug that fails it.

use conformance::memory::{Flaw, MemoryStand, Order, Rules};
use conformance::{Verdict, checks, judge};
use std::collections::HashSet;

/// The rules under which the check of a flaw applies.
fn rules(flaw: Flaw) -> Rules {
    let order = if flaw == Flaw::TakesGaps { Order::Parts(1 << 12) } else { Order::Any };
    Rules { order, is_conditional: flaw == Flaw::IgnoresTheDecision, ..Rules::default() }
}

#[test]
fn each_flaw_is_caught_by_the_check_it_is_meant_for() {
    let missed: Vec<_> = Flaw::ALL
        .iter()
        .filter_map(|(flaw, name)| {
            let check = checks().find(|check| check.name == *name).expect("a flaw names a check");
            let verdict = judge(&MemoryStand::new(rules(*flaw), Some(*flaw)), check);
            (!matches!(verdict, Verdict::Failed(_))).then(|| format!("{flaw:?}: {name} came to {verdict:?}"))
        })
        .collect();
    assert!(missed.is_empty(), "{missed:#?}");
}

#[test]
fn each_check_has_a_flaw_that_it_catches() {
    let caught: HashSet<_> = Flaw::ALL.iter().map(|(_, check)| *check).collect();
    let unproved: Vec<_> = checks().map(|check| check.name).filter(|name| !caught.contains(name)).collect();
    // That a pipe is read once has a test of its own.
    assert_eq!(unproved, ["read-once-in-order"]);
}
