//! Each thing that cannot be built is refused, in one line that names it.

use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::scenario::Change;

const PLENTY: u64 = 1 << 50;

fn continent() -> Scenario {
    Scenario::preset("continent").unwrap()
}

/// What is said about a scenario after one thing is made wrong.
fn refusal(break_it: impl FnOnce(&mut Scenario)) -> String {
    let mut scenario = continent();
    break_it(&mut scenario);
    let said = scenario.check(PLENTY).expect_err("must be refused").to_string();
    assert!(!said.contains('\n'), "{said}");
    said
}

#[test]
fn names_that_are_unsafe_or_ambiguous_are_refused() {
    for name in ["", "-a", "a b", "a;reboot", "a/b", "ü", "sixteen-letters-"] {
        assert!(refusal(|s| s.sites[0].name = name.into()).contains("letters, digits"), "{name}");
        assert!(refusal(|s| s.links[0].name = name.into()).contains("letters, digits"), "{name}");
        assert!(refusal(|s| s.name = name.repeat(3)).contains("letters, digits"), "{name}");
        if name != "-a" {
            assert!(refusal(|s| s.congestion_control = name.into()).contains("cubic"), "{name}");
        }
    }
    assert!(refusal(|s| s.sites[1].name = "a".into()).contains("site a: this name is in use"));
    assert!(refusal(|s| s.sites[1].name = "core".into()).contains("middle of a star"));
    assert!(refusal(|s| s.links.push(s.links[0].clone())).contains("link wan: this name is in use"));
}

#[test]
fn topologies_that_cannot_carry_a_packet_are_refused() {
    assert!(refusal(|s| s.links.clear()).contains("links"));
    assert!(refusal(|s| drop(s.sites.pop())).contains("sites"));
    assert!(refusal(|s| s.links[0].ends[1] = End::Site(0)).contains("itself"));
    assert!(refusal(|s| s.links[0].ends[1] = End::Site(7)).contains("does not exist"));
    assert!(refusal(|s| s.links[0].ends[1] = End::Core).contains("core: only one link"));
    let third = crate::scenario::Site { name: "c".into(), ..continent().sites.remove(0) };
    assert!(refusal(|s| s.sites.push(third.clone())).contains("site c: no link"));
    assert!(refusal(|s| s.sites[0].hosts = 0).contains("hosts"));
    assert!(refusal(|s| s.sites[0].hosts = 25).contains("1 to 24"));
    assert!(refusal(|s| s.sites[0].processor_percent = Some(0)).contains("site a: cpu 0%; use 1% to"));
    assert!(refusal(|s| s.sites[1].host_bits_per_second = Some(9)).contains("site b: host-rate 9bit; use 8kbit to"));
    let beside_tun = refusal(|s| (s.sites[0].host_bits_per_second, s.backend) = (Some(1_000_000), Some(Backend::Tun)));
    assert!(beside_tun.contains("site a: host-rate beside the back end tun; use auto"), "{beside_tun}");
    let beside = refusal(|s| {
        for (name, site) in [("x", 0), ("y", 1)] {
            s.links.push(Link { name: name.into(), ends: [End::Site(site), End::Core], ..s.links[0].clone() });
        }
    });
    assert!(beside.contains("link wan: joins two sites beside a star"), "{beside}");
    let chain = refusal(|s| {
        s.sites.push(third.clone());
        s.links.push(Link { name: "on".into(), ends: [End::Site(1), End::Site(2)], ..s.links[0].clone() });
    });
    assert!(chain.contains("link on: joins another pair of sites"), "{chain}");
    let confusing = refusal(|s| (s.sites[0].hosts, s.sites[1].name) = (2, "a2".into()));
    assert!(confusing.contains("a2 is a site"), "{confusing}");
    let twice = refusal(|s| {
        s.links.clear();
        for name in ["x", "y", "z"] {
            let end = if name == "z" { End::Site(1) } else { End::Site(0) };
            let link = Scenario::preset("lan").unwrap().links.remove(0);
            s.links.push(Link { name: name.into(), ends: [end, End::Core], ..link });
        }
    });
    assert!(twice.contains("site a: joins the core by more than one link"), "{twice}");
}

#[test]
fn impossible_values_are_refused_with_the_direction_they_are_in() {
    let forward = |set: fn(&mut Impairment)| refusal(|s| set(&mut s.links[0].directions[0]));
    assert!(forward(|i| i.bits_per_second = Some(0)).contains("link wan forward: rate 0bit; use 8kbit to 1Tbit"));
    assert!(forward(|i| i.bits_per_second = Some(u64::MAX)).contains("rate"));
    assert!(forward(|i| i.delay = Duration::from_secs(11)).contains("delay 11s; use at most 10s"));
    assert!(forward(|i| i.jitter = Duration::from_secs(1)).contains("jitter 1s; use at most 10 delays, 370ms"));
    assert!(forward(|i| i.loss = f64::NAN).contains("loss"));
    assert!(forward(|i| i.corrupt = -0.1).contains("corrupt"));
    assert!(forward(|i| i.duplicate = 1.1).contains("duplicate"));
    assert!(forward(|i| i.loss_burst_segments = 0.5).contains("loss-burst"));
    assert!(forward(|i| i.queue = QueueLimit::Bytes(9037)).contains("9038"));
    assert!(forward(|i| i.queue = QueueLimit::BandwidthDelayProducts(f64::INFINITY)).contains("products"));
    assert!(refusal(|s| s.mtu_bytes = 100).contains("576 to 65521"));
}

#[test]
fn more_loss_than_bursts_of_that_length_can_make_is_refused() {
    let with = |loss, burst| {
        let mut scenario = continent();
        (scenario.links[0].directions[0].loss, scenario.links[0].directions[0].loss_burst_segments) = (loss, burst);
        scenario.check(PLENTY).map_err(|error| error.to_string())
    };
    for (loss, burst) in [(0.75, 3.0), (1.0, 3.0), (0.99, 1.0), (0.5, 1.5)] {
        assert_eq!(with(loss, burst), Ok(()), "{loss} {burst}");
    }
    let said = with(0.8, 3.0).unwrap_err();
    assert!(said.contains("link wan forward: loss 80% in bursts of 3 segments; use at most 75%"), "{said}");
    assert!(with(0.7, 1.5).is_err());
}

#[test]
fn timelines_must_make_sense() {
    let event = |set: fn(&mut Event)| {
        refusal(|s| {
            let change = Change { down: Some(true), ..Change::default() };
            let at = Duration::from_secs(5);
            let mut event = Event { at, lasts: Some(at), every: Some(at * 2), direction: None, change };
            set(&mut event);
            s.links[0].timeline.push(event);
        })
    };
    assert!(event(|e| e.every = Some(Duration::from_secs(1))).contains("event 1: `for` 5s is longer than `every` 1s"));
    assert!(event(|e| e.lasts = None).contains("`every` without `for`"));
    assert!(event(|e| e.lasts = Some(Duration::ZERO)).contains("too short"));
    assert!(event(|e| e.at = Duration::MAX).contains("at most"));
    assert!(event(|e| e.direction = Some(2)).contains("direction"));
    assert!(event(|e| e.change.bits_per_second = Some(Some(1))).contains("event 1 forward: rate 1bit"));
}

#[test]
fn what_does_not_fit_memory_says_how_much_it_needs() {
    // 10 Gbit/s for 37 ms is 46.25 MB; the queue of one product 92.5 MB; both twice, for two directions.
    assert_eq!(continent().in_flight_bytes_max(), 555_000_000);
    assert_eq!(continent().check(1_110_000_000), Ok(()));
    let error = continent().check(1_109_999_998).unwrap_err();
    assert_eq!(error.kind, Kind::Memory);
    assert!(error.to_string().contains("529 MiB") && error.to_string().contains("1.03 GiB"), "{error}");
    // What waits at a host and at the other end of its cable: 1 ms and 74 ms of 1 Gbit/s, twice.
    let mut held = continent();
    held.sites[0].host_bits_per_second = Some(1_000_000_000);
    assert_eq!(held.check(1_110_000_000 + 2 * 37_500_000), Ok(()));
    assert!(held.check(1_110_000_000 + 2 * 37_500_000 - 2).is_err());
    // A timeline may ask for more than the link does at first.
    let mut growing = continent();
    let change = Change { delay: Some(Duration::from_secs(1)), ..Change::default() };
    growing.links[0].timeline = vec![Event { at: Duration::ZERO, lasts: None, every: None, direction: None, change }];
    assert_eq!(growing.in_flight_bytes_max(), 15_000_000_000);
}

#[test]
fn copying_and_damage_need_tun_and_many_losses_recommend_it() {
    let mut scenario = continent();
    assert_eq!(scenario.needs(), Needs::default());
    scenario.links[0].directions[1].loss = 1e-4;
    let said = scenario.needs().recommendations;
    assert_eq!(
        said,
        ["link wan: 0.01% loss is 1.0 segments of a window of 10278; only the tun back end loses single segments"]
    );
    let change = Change { corrupt: Some(1e-5), ..Change::default() };
    let at = Duration::from_secs(1);
    scenario.links[0].timeline = vec![Event { at, lasts: None, every: None, direction: None, change }];
    assert_eq!(scenario.needs().tun.as_deref(), Some("link wan corrupts 0.001%"));
}

proptest! {
    #[test]
    fn no_scenario_makes_the_check_panic(scenario in crate::scenario::file::tests::any_scenario(), memory: u64) {
        let _ = (scenario.check(memory), scenario.needs());
    }
}
