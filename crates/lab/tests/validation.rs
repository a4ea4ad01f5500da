//! The quick gates on this machine. Needs root; elsewhere there is nothing to say.
//!
//! One test runs them all, one after the other: beside each other they would disturb each other.

use lab::Kind;
use lab::scenario::Scenario;
use lab::validate::{Depth, Progress, Verdict, validate};

#[test]
fn no_quick_gate_fails_on_this_machine() {
    let scenario = Scenario::preset("continent").unwrap();
    let mut shown = Vec::new();
    let mut progress = |progress: Progress<'_>| {
        if let Progress::Finished(gate) = progress {
            shown.push(format!(
                "{} {:?}: {} (expected {}; {})",
                gate.id, gate.verdict, gate.measured, gate.expected, gate.tolerance
            ));
        }
    };
    let report = match validate(&scenario, Depth::Quick, &[], &mut progress) {
        Ok(report) => report,
        Err(error) if matches!(error.kind, Kind::Denied | Kind::Missing) => {
            eprintln!("nothing validated: {error}");
            return;
        }
        Err(error) => panic!("{error}"),
    };
    assert!(report.gates.iter().all(|gate| gate.verdict != Verdict::Fail), "{}", shown.join("\n"));
    assert!(report.gates.iter().any(|gate| gate.verdict == Verdict::Pass), "{}", shown.join("\n"));
    assert!(report.seconds < 60.0, "{}", report.seconds);
}

#[test]
fn a_gate_that_does_not_exist_is_refused_by_name() {
    let scenario = Scenario::preset("continent").unwrap();
    let error = validate(&scenario, Depth::Quick, &["V77".into()], &mut |_| ()).unwrap_err();
    assert_eq!(error.kind, Kind::Refused);
    assert!(error.to_string().contains("V77") && error.to_string().contains("V11"), "{error}");
}
