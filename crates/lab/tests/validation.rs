//! The quick gates on this machine. Needs root.
//!
//! One test runs them all, one after the other: beside each other they would disturb each other.

use lab::Kind;
use lab::scenario::Scenario;
use lab::validate::{Depth, Progress, Verdict, validate};

/// A virtual machine stands still for a moment now and then; a wrong emulator is wrong most of the time. So a gate that did not
/// pass is judged again, and then has to pass as often as it did not, and once more.
const AGAIN: usize = 2;
/// Where the machine is disturbed each time, a gate cannot be judged here.
const TRIES: usize = 6;

#[test]
fn every_quick_gate_that_applies_passes_on_this_machine_at_once_or_twice_in_a_row() {
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
    for gate in &open {
        let mut verdicts = Vec::new();
        let passed = |verdicts: &[Verdict]| verdicts.iter().filter(|verdict| **verdict == Verdict::Pass).count();
        while verdicts.len() < TRIES && passed(&verdicts) < AGAIN {
            verdicts.push(judged(std::slice::from_ref(gate)).unwrap().gates[0].verdict.clone());
            assert!(verdicts.last() != Some(&Verdict::Fail), "{gate} did not pass again\n{}", shown.join("\n"));
        }
        let has_failed = report.gates.iter().any(|first| first.id == *gate && first.verdict == Verdict::Fail);
        assert!(!has_failed || passed(&verdicts) > 0, "{gate} failed and never passed\n{}", shown.join("\n"));
        if verdicts.len() == TRIES {
            println!("{gate} cannot be judged on this machine: {verdicts:?}");
        }
    }
}

#[test]
fn a_gate_that_does_not_exist_is_refused_by_name() {
    let scenario = Scenario::preset("continent").unwrap();
    let error = validate(&scenario, Depth::Quick, &["V77".into()], &mut |_| ()).unwrap_err();
    assert_eq!(error.kind, Kind::Refused);
    assert!(error.to_string().contains("V77") && error.to_string().contains("V11"), "{error}");
}
