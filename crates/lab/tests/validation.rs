//! The quick gates on this machine. Needs root.
//!
//! One test runs them all, one after the other: beside each other they would disturb each other.

use lab::Kind;
use lab::scenario::Scenario;
use lab::validate::{Depth, Progress, Verdict, validate};
use std::collections::BTreeMap;

/// A virtual machine stands still for a moment now and then; a wrong emulator is wrong most of the time. So a gate that did not
/// pass is judged again, and then has to pass as often as it did not, and once more.
const AGAIN_MAX: usize = 8;

#[test]
fn every_quick_gate_that_applies_passes_on_this_machine_at_once_or_more_often_than_it_does_not() {
    if !needs::root() {
        return;
    }
    let scenario = Scenario::preset("continent").unwrap();
    let mut shown = Vec::new();
    let mut judged = |only: &[String]| {
        let mut progress = |progress: Progress<'_>| {
            if let Progress::Finished(gate) = progress {
                shown.push(format!(
                    "{} {:?}: {} (expected {}; {})",
                    gate.id, gate.verdict, gate.measured, gate.expected, gate.tolerance
                ));
            }
        };
        validate(&scenario, Depth::Quick, only, &mut progress)
    };
    let report = judged(&[]).unwrap();
    // What was tried and says nothing is no success either.
    let is_open = |verdict: &Verdict| matches!(verdict, Verdict::Fail | Verdict::Void(_));
    let ids = |of: &dyn Fn(&Verdict) -> bool| -> Vec<String> {
        report.gates.iter().filter(|gate| of(&gate.verdict)).map(|gate| gate.id.to_string()).collect()
    };
    let (passed, open) = (ids(&|verdict| *verdict == Verdict::Pass), ids(&is_open));
    assert!(passed.len() >= open.len(), "most gates did not pass: {open:?}\n{}", shown.join("\n"));
    // How often each has yet to pass.
    let mut owed: BTreeMap<String, usize> = open.into_iter().map(|id| (id, 2)).collect();
    for _ in 0..AGAIN_MAX {
        let still: Vec<String> = owed.iter().filter(|(_, owed)| **owed > 0).map(|(id, _)| id.clone()).collect();
        if still.is_empty() {
            return;
        }
        for gate in judged(&still).unwrap().gates {
            let owed = owed.entry(gate.id.to_string()).or_default();
            *owed = if gate.verdict == Verdict::Pass { owed.saturating_sub(1) } else { *owed + 1 };
        }
    }
    owed.retain(|_, owed| *owed > 0);
    assert!(owed.is_empty(), "{owed:?} did not pass more often than not\n{}", shown.join("\n"));
}

#[test]
fn a_gate_that_does_not_exist_is_refused_by_name() {
    let scenario = Scenario::preset("continent").unwrap();
    let error = validate(&scenario, Depth::Quick, &["V77".into()], &mut |_| ()).unwrap_err();
    assert_eq!(error.kind, Kind::Refused);
    assert!(error.to_string().contains("V77") && error.to_string().contains("V11"), "{error}");
}
