//! Large models: that they are solved in bounded work, and what the answers are worth.

use super::*;
use crate::graph::{Count, Edge, Host, Knob, Law, Node};

fn node(name: String) -> Node {
    Node { name, gain: 1.0 }
}

struct Builder {
    graph: Graph,
}

impl Builder {
    fn new(nodes: &[String]) -> Builder {
        let nodes = ["Src".to_owned(), "Dst".to_owned()].iter().chain(nodes).cloned().map(node).collect();
        let host = Host { name: "host".into(), cores: 64.0, reserve: 0.0, threads: Vec::new() };
        let graph = Graph { hosts: vec![host], knobs: Vec::new(), nodes, edges: Vec::new(), source: 0, destination: 1 };
        Builder { graph }
    }

    fn knob(&mut self, name: String, max: u32, weight: f64) -> usize {
        self.graph.knobs.push(Knob { name, min: 1, max, weight });
        self.graph.knobs.len() - 1
    }

    fn edge(&mut self, name: String, (from, to): (usize, usize), law: Law, law_knob: Option<usize>) {
        let (count, law) = (Count::Fixed(1), Some(law));
        let (cpu_percent, volume_bytes) = (20.0, None);
        self.graph.edges.push(Edge { name, from, to, host: Some(0), cpu_percent, count, law, law_knob, volume_bytes });
    }
}

/// Disks that each want another number of readers, and cards with connections of their own.
fn disks_and_cards() -> Graph {
    let names: Vec<String> = (0..16).map(|at| format!("d{at}")).chain(["pool".to_owned()]).collect();
    let mut model = Builder::new(&names);
    let pool = 2 + 16;
    for at in 0..16 {
        let knob = model.knob(format!("n{at}"), 32, 1.0);
        let name = || format!("n{at}");
        let disk = Law::F1 { beta: 7e9 + 2e8 * at as f64, alpha: 12.0, knob: name(), scale: 1.0 };
        let read = Law::F3 { a: 4e7 + 3e6 * at as f64, b: 0.0, knob: name(), scale: 1.0 };
        model.edge(format!("disk{at}"), (0, 2 + at), disk, Some(knob));
        model.edge(format!("read{at}"), (2 + at, pool), read, Some(knob));
    }
    for at in 0..4 {
        let knob = model.knob(format!("t{at}"), 8, 0.25);
        let card = Law::F4 { nic: 1.25e9, theta: 0.4e9, knob: format!("t{at}") };
        model.edge(format!("card{at}"), (pool, 1), card, Some(knob));
    }
    model.graph
}

/// Every sender to every receiver, with a number of streams for each host.
fn cluster(hosts: usize) -> Graph {
    let sides = ["s", "r"].iter().flat_map(|side| (0..hosts).map(move |at| format!("{side}{at}")));
    let names: Vec<String> = sides.collect();
    let mut model = Builder::new(&names);
    for at in 0..hosts {
        for (side, ends) in [("s", (0, 2 + at)), ("r", (2 + hosts + at, 1))] {
            let knob = model.knob(format!("{side}{at}"), 16, 1.0);
            let (sigma, kappa) = (0.03, 0.004);
            let lambda = 2e8 + 1e6 * (at as f64);
            let storage = Law::F2 { lambda, sigma, kappa, knob: format!("{side}{at}"), scale: 1.0 };
            model.edge(format!("storage {side}{at}"), ends, storage, Some(knob));
        }
        for to in 0..hosts {
            let path = Law::Constant { value: 3e8 };
            model.edge(format!("path {at}.{to}"), (2 + at, 2 + hosts + to), path, None);
        }
    }
    model.graph
}

#[test]
fn sixteen_disks_and_four_cards_are_filled_with_little_more_than_they_need() {
    let graph = disks_and_cards();
    let solution = solve(&graph, None).unwrap();
    assert!((solution.best_bytes_per_second / 5e9 - 1.0).abs() < 1e-6, "{}", solution.best_bytes_per_second);
    assert!(solution.bytes_per_second >= SHARE_KEPT * 5e9 * (1.0 - 1e-9));
    // No reader carries more than 85 MB/s, so 4.9 GB/s take 58 at least.
    let readers: u32 = solution.settings[..16].iter().sum();
    assert!((58..=100).contains(&readers), "{readers}");
    assert_eq!(solution.settings[16..].iter().sum::<u32>(), 16);
}

/// Nodes in a row, with so many equal edges between two of them.
fn row(nodes: usize, beside: usize) -> Builder {
    let names: Vec<String> = (0..nodes).map(|at| format!("v{at}")).collect();
    let mut model = Builder::new(&names);
    for at in 0..=nodes {
        let ends = (if at == 0 { 0 } else { at + 1 }, if at == nodes { 1 } else { at + 2 });
        for nth in 0..beside {
            model.edge(format!("e{at}.{nth}"), ends, Law::Constant { value: 1e9 }, None);
        }
    }
    model.graph.edges.iter_mut().for_each(|edge| edge.cpu_percent = 0.0);
    model
}

#[test]
fn where_nothing_is_left_to_choose_the_answer_is_proved_however_large_the_model_is() {
    let found = search::search(&row(900, 5).graph, None).unwrap();
    assert!(found.is_proved && found.best.is_empty() && found.chosen.is_empty());
    let mut fixed = cluster(20);
    fixed.knobs.iter_mut().for_each(|knob| knob.min = knob.max);
    let found = search::search(&fixed, None).unwrap();
    assert_eq!((found.is_proved, &found.best, &found.chosen[..]), (true, &found.chosen, &[16; 40][..]));
}

/// A flow for each of them would take too long: they are lowered by one.
#[test]
fn many_knobs_of_a_long_model_are_as_low_as_the_rate_allows() {
    let mut model = row(180, 1);
    for at in 0..20 {
        let name = format!("n{at}");
        let own = model.knob(name.clone(), 128, 1.0);
        let edge = &mut model.graph.edges[9 * at];
        (edge.law, edge.law_knob) = (Some(Law::F3 { a: 1.01e7, b: 0.0, knob: name, scale: 1.0 }), Some(own));
    }
    let solution = solve(&model.graph, None).unwrap();
    assert!((solution.best_bytes_per_second / 1e9 - 1.0).abs() < 1e-6, "{}", solution.best_bytes_per_second);
    // A hundred carry all of it, 98 as much as is kept.
    assert_eq!(solution.settings, [98; 20]);
}

/// Two knobs of 1,024 values that depend on each other: a program of all pairs would have a table of 17 GB.
#[test]
fn what_is_too_large_for_a_table_keeps_the_best_that_was_found_and_is_not_proved() {
    let mut model = Builder::new(&["pool".to_owned()]);
    let (number, workers) = (model.knob("n".into(), 1_024, 1.0), model.knob("m".into(), 1_024, 1.0));
    let device = Law::F3 { a: 1e6, b: 0.0, knob: "m".into(), scale: 1.0 };
    model.edge("devices".into(), (0, 2), device, Some(workers));
    model.graph.edges[0].count = Count::Knob(number);
    model.edge("network".into(), (2, 1), Law::Constant { value: 1e12 }, None);
    let solution = solve(&model.graph, None).unwrap();
    // The host's 64 cores carry 160 GB/s.
    assert!((solution.best_bytes_per_second / 160e9 - 1.0).abs() < 1e-6 && !solution.is_proved, "{solution:?}");
    assert!(solution.bytes_per_second >= SHARE_KEPT * 160e9 * (1.0 - 1e-9), "{solution:?}");
    assert!(solution.settings.iter().sum::<u32>() < 1_300, "{solution:?}");
}

#[test]
fn twenty_senders_and_twenty_receivers_are_solved() {
    let graph = cluster(20);
    let solution = solve(&graph, None).unwrap();
    let sum: f64 = (0..20)
        .map(|at| {
            let edge = &graph.edges[graph.edge_named(&format!("storage s{at}")).unwrap()];
            (1..=16).map(|n| edge.law.as_ref().unwrap().value(n)).fold(0.0, f64::max)
        })
        .sum();
    assert!((solution.best_bytes_per_second / sum - 1.0).abs() < 1e-4, "{} {sum}", solution.best_bytes_per_second);
    assert!(solution.bytes_per_second >= SHARE_KEPT * solution.best_bytes_per_second * (1.0 - 1e-9));
}
