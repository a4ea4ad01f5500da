//! Files are read in the order in which they are written, errors name the line, and writing is the inverse of reading.

use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::scenario::{Change, QueueLimit};

const WHOLE: &str = r#"name = "two-sites"
seed = 18446744073709551615
mtu = 1500
host-settings = "stock"
congestion-control = "bbr"
backend = "tun"

[site.z]
hosts = 3
[site.a]
cpu = "150%"
host-rate = "50Mbit"
[link.wan]
between = ["z", "a"]
rtt = "74ms"
rate = "10Gbit"
queue = "0.5bdp"
loss = 1e-4
loss-burst = 10
jitter = "2ms"
reorder = true
duplicate = "0.1%"
corrupt = "0.001%"
forward = { rate = "1Gbit/s", delay = "30ms" }
timeline = [
    { at = "20s", for = "30s", down = true },
    { at = "10s", direction = "backward", rate = "unlimited" },
    { at = "5s", every = "10s", for = "1s", loss = "5%", rtt = "100ms" },
]
[link.spare]
between = ["a", "z"]
"#;

#[test]
fn every_key_is_read_and_order_is_kept() {
    let scenario = Scenario::from_toml(WHOLE).unwrap();
    let names: Vec<&str> = scenario.sites.iter().map(|site| site.name.as_str()).collect();
    assert_eq!((scenario.name.as_str(), scenario.seed, scenario.mtu_bytes), ("two-sites", u64::MAX, 1500));
    assert_eq!((names, scenario.sites[0].hosts, scenario.sites[1].hosts), (vec!["z", "a"], 3, 1));
    let own = |site: &Site| (site.processor_percent, site.host_bits_per_second);
    assert_eq!((own(&scenario.sites[0]), own(&scenario.sites[1])), ((None, None), (Some(150), Some(50_000_000))));
    assert_eq!((scenario.host_settings, scenario.backend), (HostSettings::Stock, Some(Backend::Tun)));
    let wan = &scenario.links[0];
    assert_eq!((wan.name.as_str(), wan.ends), ("wan", [End::Site(0), End::Site(1)]));
    let [forward, backward] = wan.directions;
    assert_eq!(forward.delay, Duration::from_millis(30));
    assert_eq!(forward.bits_per_second, Some(1_000_000_000));
    let expected = Impairment {
        delay: Duration::from_millis(37),
        bits_per_second: Some(10_000_000_000),
        queue: QueueLimit::BandwidthDelayProducts(0.5),
        loss: 0.0001,
        loss_burst_segments: 10.0,
        jitter: Duration::from_millis(2),
        reorder: true,
        duplicate: 0.001,
        corrupt: 0.00001,
        down: false,
    };
    assert_eq!(backward, expected);
    assert_eq!(wan.timeline[0].change, Change { down: Some(true), ..Change::default() });
    assert_eq!(wan.timeline[1].direction, Some(1));
    assert_eq!(wan.timeline[1].change.bits_per_second, Some(None));
    assert_eq!(wan.timeline[2].every, Some(Duration::from_secs(10)));
    assert_eq!(wan.timeline[2].change.delay, Some(Duration::from_millis(50)));
    assert_eq!(scenario.links[1].directions, [Impairment::default(); 2]);
    assert_eq!(Scenario::from_toml(&scenario.to_toml()), Ok(scenario));
}

#[test]
fn what_is_left_out_has_its_default() {
    let scenario = Scenario::from_toml("[site.a]\n[site.b]\n[link.wan]\nbetween = [\"a\", \"core\"]").unwrap();
    assert_eq!((scenario.name.as_str(), scenario.seed, scenario.mtu_bytes), ("", 1, 9000));
    assert_eq!((scenario.congestion_control.as_str(), scenario.backend), ("cubic", None));
    assert_eq!(scenario.links[0].ends[1], End::Core);
}

#[test]
fn an_error_is_one_line_with_the_line_the_key_and_what_is_allowed() {
    let said = |from: &str, to: &str| {
        assert!(WHOLE.contains(from), "{from}");
        Scenario::from_toml(&WHOLE.replacen(from, to, 1)).expect_err(to).to_string()
    };
    assert_eq!(
        said("rate = \"10Gbit\"", "rate = \"10GB\""),
        "line 16, link.wan.rate: \"10GB\" is not a rate in bits per second such as 10Gbit, 500kbit or unlimited"
    );
    assert_eq!(
        said("jitter =", "jiter ="),
        "line 20, link.wan.jiter: unknown key; there are between, forward, backward, timeline, rtt, delay, rate, queue, \
         loss, loss-burst, jitter, reorder, duplicate, corrupt, down"
    );
    assert_eq!(said("hosts = 3", "host = 3"), "line 9, site.z.host: unknown key; there are hosts, cpu, host-rate");
    assert_eq!(
        said("\"150%\"", "\"1.5\""),
        "line 11, site.a.cpu: \"1.5\" is not a share of one processor such as 20% or 150%"
    );
    assert!(said("50Mbit", "50MB").starts_with("line 12, site.a.host-rate: \"50MB\" is not a rate"));
    assert_eq!(said("hosts = 3", "hosts = 300"), "line 9, site.z.hosts: \"300\" is not a number of hosts such as 2");
    assert!(said("seed =", "sead =").starts_with("line 2, sead: unknown key; there are name, seed"));
    assert!(said("mtu = 1500", "mtu = \"big\"").contains("a number of bytes such as 9000"));
    assert!(said("\"stock\"", "\"fast\"").contains("\"fast\" is not one of stock, tuned"));
    assert!(said("[\"z\", \"a\"]", "[\"z\", \"q\"]").contains("there is no site \"q\"; there are z, a, and core"));
    assert!(said("[\"z\", \"a\"]", "[\"z\"]").contains("has 1 names"));
    assert!(said("between = [\"z\", \"a\"]\n", "").contains("link.wan: needs `between`"));
    assert!(said("rtt = \"74ms\"", "rtt = \"74ms\"\ndelay = \"1ms\"").contains("rtt and delay say the same"));
    assert!(said("delay = \"30ms\" }", "rtt = \"30ms\" }").contains("give that direction a delay"));
    assert!(said("rate = \"unlimited\"", "rtt = \"1s\"").contains("line 27, link.wan.timeline.rtt"));
    assert!(said("at = \"20s\", ", "").contains("line 26, link.wan.timeline: needs `at`"));
    assert!(said(", down = true", "").contains("changes nothing"));
    assert!(said("reorder = true", "reorder = [1]").contains("is a array; it must be one value"));
    assert!(said("[site.z]", "[site.z").starts_with("line 8: "));
    assert!(said("loss-burst = 10", "loss-burst = nan").contains("segments lost in a row"));
    assert!(said("loss-burst = 10", "loss = 1").starts_with("line 19: "));
    assert!(said("[site.a]", "site = 3").lines().count() == 1);
}

#[test]
fn words_change_both_directions_or_one() {
    let ms = Duration::from_millis;
    let both = Change { delay: Some(ms(50)), loss: Some(0.0001), down: Some(true), ..Change::default() };
    let forward = Change { bits_per_second: Some(Some(1_000_000_000)), ..Change::default() };
    let backward = Change { delay: Some(ms(7)), ..Change::default() };
    let words = ["forward.rate=1Gbit", "rtt=100ms", "loss=0.01%", "backward.delay=7ms", "down=on"];
    assert_eq!(parse_changes(&words), Ok(vec![(None, both), (Some(0), forward), (Some(1), backward)]));

    let said = |word: &str| parse_changes(&[word]).unwrap_err().to_string();
    assert_eq!(said("rtt"), "\"rtt\": write it as PROPERTY=VALUE, such as rtt=100ms");
    assert!(said("rat=1Gbit").contains("there are rtt, delay, rate"));
    assert!(said("forward.rtt=1ms").contains("give that direction a delay"));
    assert!(said("sideways.rate=1Gbit").contains("forward and backward"));
    assert!(said("rate=fast").contains("\"fast\" is not a rate"));
    assert!(parse_changes(&["loss=1%", "loss=2%"]).unwrap_err().to_string().contains("twice"));
    assert!(parse_changes::<&str>(&[]).is_err());
}

#[test]
fn the_names_in_error_texts_are_those_of_the_table() {
    let all = Change::between(
        &Impairment::default(),
        &Impairment {
            delay: Duration::from_secs(1),
            bits_per_second: Some(1),
            queue: QueueLimit::Bytes(1),
            loss: 0.5,
            loss_burst_segments: 2.0,
            jitter: Duration::from_secs(1),
            reorder: true,
            duplicate: 0.5,
            corrupt: 0.5,
            down: true,
        },
    );
    let names: Vec<&str> = std::iter::once("rtt").chain(property::entries(&all).map(|(name, _)| name)).collect();
    assert_eq!(names.join(", "), NAMES);
}

proptest! {
    #[test]
    fn what_is_written_is_read_as_the_same(scenario in any_scenario()) {
        prop_assert_eq!(Scenario::from_toml(&scenario.to_toml()), Ok(scenario));
    }

    #[test]
    fn a_file_with_characters_changed_never_panics_and_errors_are_one_line(
        at in 0..WHOLE.len(), cut in 0..6usize, inserted in "\\PC{0,4}",
    ) {
        let text = format!("{}{inserted}{}", &WHOLE[..at], &WHOLE[(at + cut).min(WHOLE.len())..]);
        if let Err(error) = Scenario::from_toml(&text) {
            prop_assert_eq!(error.to_string().lines().count(), 1, "{}", error);
        }
    }
}

/// Any scenario that a file can say: its links end at sites that exist.
pub(in crate::scenario) fn any_scenario() -> impl Strategy<Value = Scenario> {
    let sites = prop::collection::btree_set("[a-z0-9-]{1,8}", 1..6).prop_shuffled_names();
    let head = ("[a-z-]{0,9}", any::<u64>(), any::<u32>(), any::<bool>(), "\\PC{0,9}", 0..4usize);
    (head, sites, prop::collection::btree_set(".{0,5}", 0..5).prop_shuffled_names()).prop_flat_map(
        |((name, seed, mtu_bytes, is_stock, congestion_control, backend), sites, links)| {
            let count = sites.len();
            let sites: Vec<Site> = sites
                .into_iter()
                .filter(|name| name != CORE)
                .enumerate()
                .map(|(index, name)| Site {
                    name,
                    hosts: index as u8 * 7,
                    processor_percent: (index > 1).then_some(index as u32 * 30),
                    host_bits_per_second: (index > 2).then_some(index as u64 * 1_234_567),
                })
                .collect();
            let links: Vec<_> = links.into_iter().map(|name| any_link(name, sites.len().min(count))).collect();
            links.prop_map(move |links| Scenario {
                name: name.clone(),
                seed,
                mtu_bytes,
                host_settings: if is_stock { HostSettings::Stock } else { HostSettings::Tuned },
                congestion_control: congestion_control.clone(),
                backend: [None, Some(Backend::Netem), Some(Backend::Nfqueue), Some(Backend::Tun)][backend],
                sites: sites.clone(),
                links,
            })
        },
    )
}

trait Shuffled: Strategy<Value = std::collections::BTreeSet<String>> + Sized {
    /// Names out of their alphabetical order.
    fn prop_shuffled_names(self) -> impl Strategy<Value = Vec<String>> {
        self.prop_map(|names| names.into_iter().collect::<Vec<_>>()).prop_shuffle()
    }
}

impl<S: Strategy<Value = std::collections::BTreeSet<String>>> Shuffled for S {}

fn any_link(name: String, sites: usize) -> impl Strategy<Value = Link> {
    let end = (0..=sites).prop_map(move |site| if site == sites { End::Core } else { End::Site(site) });
    let directions = prop::array::uniform2(any_impairment());
    let events = prop::collection::vec(any_event(), 0..4);
    ([end.clone(), end], directions, events, any::<bool>()).prop_map(
        move |(ends, mut directions, timeline, is_symmetric)| {
            if is_symmetric {
                directions[1] = directions[0];
            }
            Link { name: name.clone(), ends, directions, timeline }
        },
    )
}

fn any_event() -> impl Strategy<Value = Event> {
    let time = || prop::option::of(any::<u64>().prop_map(Duration::from_nanos));
    let change = any_impairment().prop_map(|impairment| Change::between(&Impairment::default(), &impairment));
    let change = change.prop_filter("an event changes something", |change| *change != Change::default());
    (any::<u64>(), time(), time(), prop::option::of(0..2usize), change).prop_map(
        |(at, lasts, every, direction, change)| Event { at: Duration::from_nanos(at), lasts, every, direction, change },
    )
}

fn any_impairment() -> impl Strategy<Value = Impairment> {
    let probability = || prop_oneof![Just(0.0), 0.0..=1.0f64, (0..=1000u32).prop_map(|p| f64::from(p) / 1000.0)];
    let time = || prop_oneof![Just(Duration::ZERO), (0..20_000_000_000u64).prop_map(Duration::from_nanos)];
    let queue = prop_oneof![
        Just(QueueLimit::BandwidthDelayProducts(1.0)),
        any::<u64>().prop_map(QueueLimit::Bytes),
        (0.0..1e6f64).prop_map(QueueLimit::BandwidthDelayProducts),
    ];
    let first = (time(), any::<Option<u64>>(), queue, probability(), prop_oneof![Just(1.0), 1.0..1e9f64]);
    let second = (time(), any::<bool>(), probability(), probability(), any::<bool>());
    (first, second).prop_map(|((delay, bits_per_second, queue, loss, burst), second)| {
        let (jitter, reorder, duplicate, corrupt, down) = second;
        let loss_burst_segments = burst;
        Impairment {
            delay,
            bits_per_second,
            queue,
            loss,
            loss_burst_segments,
            jitter,
            reorder,
            duplicate,
            corrupt,
            down,
        }
    })
}
