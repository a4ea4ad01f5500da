//! The planner against worked examples: the four-disk host of the disk-to-disk study (G1), disks that are not alike, a network
//! behind compression, and two senders with three receivers (G5). Models of hosts are the files of `docs/models/`.

use super::*;
use crate::graph::Change;

const MODELS: [(&str, &str); 3] = [
    ("1 MB", include_str!("../../../../docs/models/s1-1mb.json")),
    ("10 MB", include_str!("../../../../docs/models/s1-10mb.json")),
    ("100 MB", include_str!("../../../../docs/models/s1-100mb.json")),
];

fn graph(text: &str) -> Graph {
    Graph::parse(text).unwrap_or_else(|e| panic!("{e}"))
}

fn fixed(text: &str, knobs: &[(&str, u32)]) -> Graph {
    let mut graph = graph(text);
    knobs.iter().for_each(|(knob, n)| graph.fix(knob, *n).unwrap());
    graph
}

fn gigabytes(rate: f64) -> f64 {
    rate / 1e9
}

/// Rates to the digits that the table prints.
fn assert_near(own: f64, table: f64) {
    assert!((own - table).abs() <= 0.0006, "{own} is not {table}");
}

#[test]
fn rates_by_streams_are_those_of_the_table() {
    let table = [
        [0.184, 0.368, 0.552, 0.736, 0.920, 1.104, 1.288, 1.410, 1.343],
        [0.300, 0.600, 0.900, 1.200, 1.500, 1.567, 1.484, 1.410, 1.343],
        [0.600, 1.200, 1.800, 1.763, 1.659, 1.567, 1.484, 1.410, 1.343],
    ];
    for ((_, text), row) in MODELS.iter().zip(table) {
        for (n, rate) in (1..).zip(row) {
            let graph = fixed(text, &[("n", n), ("nics", 2), ("t", 3)]);
            assert_near(gigabytes(best(&graph).unwrap()), rate);
        }
    }
}

#[test]
fn two_cards_and_8_6_3_streams_are_chosen_and_the_right_stage_is_named() {
    let expected = [(8, 1.4100, "disks"), (6, 1.5667, "disks"), (3, 1.8000, "application")];
    for ((name, text), (n, rate, bottleneck)) in MODELS.iter().zip(expected) {
        let solution = solve(&fixed(text, &[("t", 3)]), None).unwrap();
        assert_eq!(solution.settings, [n, 3, 2], "{name}");
        assert_near(gigabytes(solution.bytes_per_second), rate);
        assert_near(gigabytes(solution.best_bytes_per_second), rate);
        assert_eq!(solution.bottleneck.as_deref(), Some(bottleneck), "{name}");
        assert!(solution.is_proved);
        let third = best(&fixed(text, &[("t", 3), ("nics", 3)])).unwrap();
        assert_near(gigabytes(third), rate);
    }
}

#[test]
fn one_card_takes_the_fewest_streams_that_fill_it() {
    for ((name, text), (n, with_two)) in MODELS.iter().zip([(7, 0.368), (4, 0.600), (2, 1.200)]) {
        let solution = solve(&fixed(text, &[("nics", 1)]), None).unwrap();
        assert_eq!(solution.settings, [n, 3, 1], "{name}");
        assert_near(gigabytes(solution.bytes_per_second), 1.2);
        assert_eq!(solution.bottleneck.as_deref(), Some("network"), "{name}");
        // Two for each set of disks fill it only where files are large.
        assert_near(gigabytes(best(&fixed(text, &[("nics", 1), ("n", 2), ("t", 3)])).unwrap()), with_two);
    }
}

#[test]
fn gains_over_two_streams_in_all_are_8_and_4() {
    for ((_, text), gain) in MODELS[1..].iter().zip([8.0, 4.0]) {
        // Two streams in all: one edge of two applications instead of four with n each.
        let graph = fixed(text, &[("nics", 1), ("n", 1), ("t", 3)]);
        let per_stream = graph.edges[graph.edge_named("application").unwrap()].law.as_ref().unwrap().value(1);
        let two = best(&graph.with_capacity("application", Change::To(2.0 * per_stream)).unwrap()).unwrap();
        let chosen = solve(&fixed(text, &[("nics", 1)]), None).unwrap().bytes_per_second;
        assert!((chosen / two - gain).abs() < 1e-3, "{}", chosen / two);
    }
}

#[test]
fn processors_limit_behind_the_other_stages_and_the_manual_best_is_no_better_in_the_model() {
    let solution = solve(&fixed(MODELS[2].1, &[("t", 3)]), None).unwrap();
    assert!((solution.host_percent[0] - 990.0).abs() < 0.1, "{:?}", solution.host_percent);
    let manual = [(16, 1.007), (8, 1.410), (4, 1.763)];
    for ((_, text), (n, rate)) in MODELS.iter().zip(manual) {
        assert_near(gigabytes(best(&fixed(text, &[("n", n), ("nics", 2), ("t", 3)])).unwrap()), rate);
    }
    let mut starved = fixed(MODELS[2].1, &[("t", 3), ("nics", 2), ("n", 3)]);
    for edge in ["disks", "channel", "application", "network"] {
        starved = starved.with_capacity(edge, Change::Times(100.0)).unwrap();
    }
    let solution = solve(&starved, None).unwrap();
    assert_near(gigabytes(solution.best_bytes_per_second), 1200.0 / 550.0);
    assert_eq!(solution.bottleneck.as_deref(), Some("sender"));
    // One percent of a core moves 1/550 GB/s.
    assert!((solution.prices[0].bytes_per_second_per_unit - 1e9 / 550.0).abs() < 1.0);
}

#[test]
fn one_disk_alone_has_its_own_optimum() {
    for ((_, text), (n, rate)) in MODELS.iter().zip([(8, 0.3525), (6, 0.3917), (3, 0.4500)]) {
        let mut graph = graph(text);
        graph.hosts[0].threads[0].1 = 1.0;
        for edge in &mut graph.edges {
            if edge.count == crate::graph::Count::Fixed(4) {
                edge.count = crate::graph::Count::Fixed(1);
            }
        }
        let graph = graph.with_capacity("network", Change::To(1e12)).unwrap();
        let solution = solve(&graph, None).unwrap();
        assert_eq!(solution.settings[0], n);
        assert_near(gigabytes(solution.bytes_per_second), rate);
    }
}

/// Two sets of disks of the same host, one with files of 1 MB and one with files of 100 MB: each has its own optimum, as above.
const UNEQUAL: &str = r#"{"v":1,"knobs":[{"name":"n1","min":1,"max":16},{"name":"n2","min":1,"max":16}],"edges":[
    {"name":"disk1","from":"Src","to":"a","capacity":{"form":"F1","beta":7.05e9,"alpha":12,"knob":"n1"}},
    {"name":"disk2","from":"Src","to":"b","capacity":{"form":"F1","beta":7.05e9,"alpha":12,"knob":"n2"}},
    {"name":"application1","from":"a","to":"Dst","capacity":{"form":"F3","a":0.046e9,"b":0,"knob":"n1"}},
    {"name":"application2","from":"b","to":"Dst","capacity":{"form":"F3","a":0.15e9,"b":0,"knob":"n2"}}]}"#;

#[test]
fn disks_that_are_not_alike_get_numbers_of_streams_of_their_own() {
    let solution = solve(&graph(UNEQUAL), None).unwrap();
    assert_eq!(solution.settings, [8, 3]);
    assert_near(gigabytes(solution.bytes_per_second), 0.8025);
    let alike = (1..=16).map(|n| best(&fixed(UNEQUAL, &[("n1", n), ("n2", n)])).unwrap()).fold(0.0, f64::max);
    assert!(alike < 0.9 * solution.bytes_per_second, "{alike}");
}

/// A network of 1 GB/s between what packs and what unpacks, 9 GB/s each.
fn packed(gain: f64) -> Graph {
    let edge = |name: &str, from: &str, to: &str, value: f64| {
        format!(r#"{{"name":"{name}","from":"{from}","to":"{to}","capacity":{{"form":"const","value":{value}}}}}"#)
    };
    let edges =
        [edge("pack", "Src", "p", 9e9), edge("network", "p", "u", 1e9), edge("unpack", "u", "Dst", 9e9)].join(",");
    let inverse = 1.0 / gain;
    graph(&format!(
        r#"{{"v":1,"nodes":[{{"name":"p","gain":{gain}}},{{"name":"u","gain":{inverse}}}],"edges":[{edges}]}}"#
    ))
}

#[test]
fn a_network_behind_compression_to_a_half_counts_twice() {
    let cases = [(1.0, 1.0, 1.0), (0.5, 1.0, 2.0), (0.5, 2.0, 4.0), (0.5, 0.5, 1.0), (0.5, 9.0, 9.0), (2.0, 1.0, 0.5)];
    for (gain, times, rate) in cases {
        let changed = packed(gain).with_capacity("network", Change::Times(times)).unwrap();
        assert_near(gigabytes(best(&changed).unwrap()), rate);
        // The program, without the reduction that spares it.
        assert_near(gigabytes(flow::solve(&changed, &Limits::at(&changed, &[])).unwrap().rate), rate);
    }
    let price = solve(&packed(0.5), None).unwrap().prices.swap_remove(0);
    assert!(price.resource == "network" && (price.bytes_per_second_per_unit - 2.0).abs() < 1e-6, "{price:?}");
}

/// A core carries 1 MB/s, the path behind a stage of 1 PB/s half as much again.
const FAST_STAGE: &str = r#"{"v":1,"hosts":[{"name":"host","cores":1}],"edges":[
    {"name":"memory","from":"Src","to":"m","capacity":{"form":"const","value":1e15}},
    {"name":"path","from":"m","to":"Dst","host":"host","cpu":100000,"capacity":{"form":"const","value":1.5e6}}]}"#;

#[test]
fn a_stage_far_faster_than_the_others_hides_no_limit() {
    let solution = solve(&graph(FAST_STAGE), None).unwrap();
    assert!((solution.bytes_per_second / 1e6 - 1.0).abs() < 1e-6, "{solution:?}");
    assert_eq!(solution.bottleneck.as_deref(), Some("host"));
}

const CLUSTER: &str = include_str!("../../../../docs/models/cluster-2x3.json");

#[test]
fn a_cluster_is_limited_by_its_receivers_and_loses_one_with_its_card() {
    let graph = graph(CLUSTER);
    assert!((best(&graph).unwrap() - 3e9).abs() < 1.0);
    assert!((best(&graph.with_capacity("receiver3", Change::To(0.0)).unwrap()).unwrap() - 2e9).abs() < 1.0);
    let solution = solve(&graph, None).unwrap();
    assert!(solution.prices.iter().all(|price| price.resource.starts_with("receiver")));
    assert!((solution.prices.iter().map(|price| price.bytes_per_second_per_unit).sum::<f64>() - 3.0).abs() < 1e-6);
}

/// The cluster with so many bytes on each of its senders.
fn cluster_with(first: &str, second: &str) -> Graph {
    let with_volume = |text: String, (host, bytes): (&str, &str)| {
        text.replace(&format!(r#""to": "{host}","#), &format!(r#""to": "{host}", "volume": {bytes},"#))
    };
    graph(&[("s1", first), ("s2", second)].into_iter().fold(CLUSTER.to_owned(), with_volume))
}

#[test]
fn hosts_with_volumes_of_their_own_end_together() {
    let cluster = cluster_with("3e12", "1e12");
    let solution = solve(&cluster, None).unwrap();
    // The first host's card carries 3 phi <= 2 GB/s, so that two thirds of the job are done in 1000 s.
    let phi = solution.bytes_per_second / cluster.volume_bytes().unwrap() * 1000.0;
    assert!((phi - 2.0 / 3.0).abs() < 1e-6, "{phi}");
    for (edge, rate) in [("sender1", 2.0), ("sender2", 0.667), ("wan", 2.667)] {
        assert_near(gigabytes(solution.edge_rates[cluster.edge_named(edge).unwrap()]), rate);
    }
    assert_eq!(solution.bottleneck.as_deref(), Some("sender1"));
    assert_near(gigabytes(best(&cluster).unwrap()), 2.667);
    // With equal volumes the receivers limit, as they do a file system that both senders see.
    assert_near(gigabytes(best(&cluster_with("2e12", "2e12")).unwrap()), 3.0);
}

#[test]
fn where_hosts_have_volumes_the_rate_is_what_arrives_too() {
    // Packed to a half on the way, or to twice as much; and unpacked again.
    for (before, behind, rate) in [(0.5, 1.0, 1.333), (2.0, 1.0, 1.5), (0.5, 2.0, 2.667)] {
        let mut cluster = cluster_with("3e12", "1e12");
        for (name, gain) in [("wan in", before), ("wan out", behind)] {
            cluster.nodes.iter_mut().find(|node| node.name == name).unwrap().gain = gain;
        }
        assert_near(gigabytes(best(&cluster).unwrap()), rate);
    }
}
