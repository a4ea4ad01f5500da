//! What verdicts make of findings, and that gates notice an emulator that is wrong. The latter need root.

use super::bench::Bench;
use super::disturbance::Disturbance;
use super::suite::reasons_to_void;
use super::*;
use crate::error::Result;
use crate::scenario::{QueueLimit, Scenario};
use std::time::Duration;

fn gate(id: &str, verdict: Verdict) -> Gate {
    Gate {
        id: id.into(),
        title: String::new(),
        backend: String::new(),
        measured: "p99.9 2000 us".into(),
        expected: String::new(),
        tolerance: String::new(),
        verdict,
        details: Vec::new(),
        seconds: 0.0,
        foreign_share: 0.0,
        stalled_us: 0.0,
    }
}

fn report(gates: Vec<Gate>) -> Report {
    Report {
        scenario: "continent".into(),
        depth: Depth::Quick,
        machine: Machine::this(),
        seed: 1,
        backend: "tun".into(),
        backend_reason: String::new(),
        recommendations: Vec::new(),
        void: reasons_to_void(&gates),
        gates,
        seconds: 0.0,
    }
}

#[test]
fn a_failure_on_a_busy_machine_is_void_and_one_at_rest_is_a_failure() {
    let by = |foreign_share, stalled_us| Disturbance { foreign_share, stalled_us };
    let judged = |verdict, disturbed| super::suite::judged("V2", verdict, disturbed);
    assert_eq!(judged(Verdict::Fail, by(0.02, 900.0)), Verdict::Fail);
    assert!(matches!(judged(Verdict::Fail, by(0.5, 0.0)), Verdict::Void(reason) if reason.contains("programs")));
    assert!(matches!(judged(Verdict::Fail, by(0.0, 3000.0)), Verdict::Void(reason) if reason.contains("stood still")));
    assert_eq!(judged(Verdict::Pass, by(0.5, 3000.0)), Verdict::Pass);
    // What is lost does not depend on it.
    assert_eq!(super::suite::judged("V7", Verdict::Fail, by(0.0, 3000.0)), Verdict::Fail);
}

#[test]
fn a_report_holds_only_without_failures_and_void_counts_unless_allowed() {
    let not_here = Verdict::NotApplicable("no netem".into());
    assert!(report(vec![gate("V1", Verdict::Pass), gate("V9", not_here)]).holds(false));
    assert!(!report(vec![gate("V1", Verdict::Fail)]).holds(true));
    let void = report(vec![gate("V3", Verdict::Void("busy".into()))]);
    assert!(void.holds(true) && !void.holds(false));
}

#[test]
fn a_report_whose_lateness_gate_failed_is_void() {
    assert_eq!(report(vec![gate("V2", Verdict::Pass)]).void, Vec::<String>::new());
    assert_eq!(report(vec![gate("V2", Verdict::Fail)]).void, ["releases were late: p99.9 2000 us"]);
}

#[test]
fn a_report_survives_the_way_through_json() {
    let report = report(vec![gate("V1", Verdict::Void("busy".into())), gate("V2", Verdict::Pass)]);
    let text = serde_json::to_string(&report).unwrap();
    assert!(text.contains(r#""verdict":"void","reason":"busy""#), "{text}");
    assert_eq!(serde_json::from_str::<Report>(&text).unwrap(), report);
}

/// What a gate finds in laboratories that a fault makes other than it expects.
fn found_with(run: fn(&mut Bench) -> Result<Finding>, fault: fn(&mut Scenario)) -> Option<Verdict> {
    if !needs::root() {
        return None;
    }
    let mut bench = Bench::new(&Scenario::preset("interstate").unwrap(), Depth::Quick);
    bench.fault = Some(fault);
    Some(run(&mut bench).unwrap().verdict)
}

#[test]
fn a_delay_that_is_wrong_by_a_millisecond_is_noticed() {
    let found = found_with(delay::round_trip, |scenario| {
        scenario.links[0].directions[0].delay += Duration::from_millis(1);
    });
    assert!(matches!(found, None | Some(Verdict::Fail)), "{found:?}");
}

#[test]
fn a_rate_that_is_wrong_by_five_percent_is_noticed() {
    let found = found_with(rate::goodput, |scenario| {
        scenario.links[0].directions[0].bits_per_second = Some(950_000_000);
    });
    assert!(matches!(found, None | Some(Verdict::Fail)), "{found:?}");
}

#[test]
fn a_queue_that_holds_one_packet_too_many_is_noticed() {
    let found = found_with(queue::limit, |scenario| {
        let QueueLimit::Bytes(bytes) = scenario.links[0].directions[0].queue else { return };
        scenario.links[0].directions[0].queue = QueueLimit::Bytes(bytes + 1066);
    });
    assert!(matches!(found, None | Some(Verdict::Fail)), "{found:?}");
}

#[test]
fn losses_that_are_too_many_or_come_in_rows_are_noticed() {
    let more = found_with(loss::process, |scenario| scenario.links[0].directions[0].loss *= 1.2);
    assert!(matches!(more, None | Some(Verdict::Fail)), "{more:?}");
    let rows = found_with(loss::process, |scenario| {
        let burst = &mut scenario.links[0].directions[0].loss_burst_segments;
        *burst = burst.max(2.0);
    });
    assert!(matches!(rows, None | Some(Verdict::Fail)), "{rows:?}");
}
