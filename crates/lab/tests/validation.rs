//! The quick gates on this machine. Needs root.
//!
//! One test runs them all, one after the other: beside each other they would disturb each other.

use lab::Kind;
use lab::scenario::Scenario;
use lab::validate::{Depth, Progress, Verdict, validate};

/// A virtual machine stands still for a moment now and then; a wrong emulator is wrong every time.
const TRIES: usize = 3;

#[test]
fn no_quick_gate_fails_again_and_again_on_this_machine() {
    if !needs::root() {
        return;
    }
    let scenario = Scenario::preset("continent").unwrap();
    let (mut failing, mut shown, mut has_passed) = (Vec::new(), Vec::new(), false);
    for _ in 0..TRIES {
        let mut progress = |progress: Progress<'_>| {
            if let Progress::Finished(gate) = progress {
                shown.push(format!(
                    "{} {:?}: {} (expected {}; {})",
                    gate.id, gate.verdict, gate.measured, gate.expected, gate.tolerance
                ));
            }
        };
        let report = validate(&scenario, Depth::Quick, &failing, &mut progress).unwrap();
        has_passed |= report.gates.iter().any(|gate| gate.verdict == Verdict::Pass);
        let failed = report.gates.iter().filter(|gate| gate.verdict == Verdict::Fail);
        failing = failed.map(|gate| gate.id.to_string()).collect();
        if failing.is_empty() {
            break;
        }
    }
    assert!(failing.is_empty() && has_passed, "{failing:?}\n{}", shown.join("\n"));
}

#[test]
fn a_gate_that_does_not_exist_is_refused_by_name() {
    let scenario = Scenario::preset("continent").unwrap();
    let error = validate(&scenario, Depth::Quick, &["V77".into()], &mut |_| ()).unwrap_err();
    assert_eq!(error.kind, Kind::Refused);
    assert!(error.to_string().contains("V77") && error.to_string().contains("V11"), "{error}");
}
