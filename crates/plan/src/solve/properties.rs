//! Relations that hold for every model, on random ones (G4): the linear program against reduction by hand, branch and bound
//! against trying everything, and what a better device may do.

use super::options::{options, rate_at, weight};
use super::*;
use crate::graph::{Change, Count, Edge, Host, Knob, Law, Node};
use proptest::prelude::*;

/// Layers in a row, each of some edges side by side.
fn layered(layers: &[Vec<f64>]) -> Graph {
    let mut nodes = vec![node("Src")];
    let mut edges = Vec::new();
    for (at, layer) in layers.iter().enumerate() {
        nodes.push(node(&if at + 1 == layers.len() { "Dst".to_owned() } else { format!("n{at}") }));
        for (beside, capacity) in layer.iter().enumerate() {
            edges.push(edge(&format!("e{at}.{beside}"), at, at + 1, Law::Constant { value: *capacity }));
        }
    }
    Graph { hosts: Vec::new(), knobs: Vec::new(), source: 0, destination: layers.len(), nodes, edges }
}

fn node(name: &str) -> Node {
    Node { name: name.to_owned(), gain: 1.0 }
}

fn edge(name: &str, from: usize, to: usize, law: Law) -> Edge {
    let name = name.to_owned();
    Edge { name, from, to, host: None, cpu_percent: 0.0, count: Count::Fixed(1), law: Some(law), law_knob: None }
}

fn layers() -> impl Strategy<Value = Vec<Vec<f64>>> {
    prop::collection::vec(prop::collection::vec(1e6..1e10f64, 1..6), 1..8)
}

/// A few disks with a knob each, a stage with a knob, a card whose number is a knob; a host that pays for it.
fn chosen() -> impl Strategy<Value = Graph> {
    let disk = (1e8..1e10f64, 0.0..20.0f64);
    (prop::collection::vec(disk, 1..4), 1e7..2e8f64, 0.0..0.2f64, 1e8..2e9f64, 1e7..5e8f64, 1.0..16.0f64).prop_map(
        |(disks, a, kappa, nic, theta, cores)| {
            let knob = |name: &str, max, weight| Knob { name: name.to_owned(), min: 1, max, weight };
            let mut knobs = vec![knob("k", 6, 1.0), knob("t", 4, 0.25), knob("x", 3, 2.0)];
            let mut edges = Vec::new();
            for (at, (beta, alpha)) in disks.iter().enumerate() {
                let name = format!("n{at}");
                let law = Law::F1 { beta: *beta, alpha: *alpha, knob: name.clone(), scale: 1.0 };
                let read = Law::F3 { a: 2.0 * a, b: 0.0, knob: name.clone(), scale: 1.0 };
                knobs.push(knob(&name, 5, 1.0));
                let own = knobs.len() - 1;
                edges.push(Edge { law_knob: Some(own), ..edge(&format!("disk{at}"), 0, 2 + at, law) });
                edges.push(Edge { law_knob: Some(own), ..edge(&format!("reader{at}"), 2 + at, 2 + disks.len(), read) });
            }
            let (first, second) = (2 + disks.len(), 3 + disks.len());
            let pool = Law::F2 { lambda: 3.0 * a, sigma: 0.01, kappa, knob: "k".into(), scale: 1.0 };
            let card = Law::F4 { nic, theta, knob: "t".into() };
            let of_host = |edge: Edge| Edge { host: Some(0), cpu_percent: 300.0, ..edge };
            edges.push(of_host(Edge { law_knob: Some(0), ..edge("pool", first, second, pool) }));
            let cards = Edge { law_knob: Some(1), count: Count::Knob(2), ..edge("cards", second, 1, card) };
            edges.push(of_host(cards));
            let mut nodes = vec![node("Src"), node("Dst")];
            nodes.extend((0..=disks.len() + 1).map(|at| node(&format!("v{at}"))));
            let hosts = vec![Host { name: "host".into(), cores, reserve: 0.0, threads: vec![(0, 1.5)] }];
            Graph { hosts, knobs, nodes, edges, source: 0, destination: 1 }
        },
    )
}

/// All settings, without leaving any out.
fn every_setting(graph: &Graph) -> Vec<(Vec<u32>, f64)> {
    let mut settings: Vec<Vec<u32>> = vec![Vec::new()];
    for knob in &graph.knobs {
        settings = settings
            .into_iter()
            .flat_map(|begun| (knob.min..=knob.max).map(move |n| [&begun[..], &[n]].concat()))
            .collect();
    }
    settings.into_iter().map(|settings| (settings.clone(), rate_at(graph, &settings).unwrap())).collect()
}

fn is_near(a: f64, b: f64) -> bool {
    (a - b).abs() <= 1e-6 * a.abs().max(b.abs())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, ..ProptestConfig::default() })]

    #[test]
    fn the_program_agrees_with_reduction(layers in layers()) {
        let graph = layered(&layers);
        let limits = Limits::at(&graph, &[]);
        let by_hand = layers.iter().map(|layer| layer.iter().sum::<f64>()).fold(f64::INFINITY, f64::min);
        let flow = flow::solve(&graph, &limits).unwrap();
        prop_assert!(is_near(flow.rate, by_hand), "{} {by_hand}", flow.rate);
        prop_assert!(is_near(flow::reduced(&graph, &limits.edges).unwrap(), by_hand));
        // Strong duality: what the prices explain is all of the rate.
        let explained: f64 = flow.edge_prices.iter().zip(&limits.edges).map(|(price, limit)| price * limit).sum();
        prop_assert!(is_near(explained, by_hand));
        prop_assert!(flow.edge_prices.iter().all(|price| *price >= 0.0));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn leaving_values_out_changes_neither_the_best_rate_nor_the_least_weight(graph in chosen()) {
        let tried = every_setting(&graph);
        let best = tried.iter().map(|(_, rate)| *rate).fold(0.0, f64::max);
        let enough = tried.iter().filter(|(_, rate)| *rate >= best * SHARE_KEPT);
        let least = enough.map(|(settings, _)| weight(&graph, settings)).fold(f64::INFINITY, f64::min);
        let solution = solve(&graph, None).unwrap();
        prop_assert!(is_near(solution.best_bytes_per_second, best), "{} {best}", solution.best_bytes_per_second);
        prop_assert!(is_near(weight(&graph, &solution.settings), least), "{:?} {least}", solution.settings);
    }

    #[test]
    fn branch_and_bound_finds_what_trying_everything_finds(graph in chosen()) {
        let tried = every_setting(&graph);
        let best = tried.iter().map(|(_, rate)| *rate).fold(0.0, f64::max);
        let enough = tried.iter().filter(|(_, rate)| *rate >= best * SHARE_KEPT);
        let least = enough.map(|(settings, _)| weight(&graph, settings)).fold(f64::INFINITY, f64::min);
        let options = options(&graph).unwrap();
        let (fastest, is_best) = branch::fastest(&graph, &options).unwrap();
        let rate = rate_at(&graph, &fastest).unwrap();
        prop_assert!(is_best && (rate - best).abs() <= 2e-6 * best, "{rate} {best}");
        let (cheapest, is_cheapest) = branch::cheapest(&graph, &options, &fastest, best * SHARE_KEPT).unwrap();
        prop_assert!(is_cheapest && is_near(weight(&graph, &cheapest), least), "{cheapest:?} {least}");
    }

    #[test]
    fn a_larger_capacity_never_costs_and_twice_of_everything_is_twice(graph in chosen(), at in 0usize..4, factor in 1.0..4.0f64) {
        let before = best(&graph).unwrap();
        let name = graph.edges[at % graph.edges.len()].name.clone();
        let after = best(&graph.with_capacity(&name, Change::Times(factor)).unwrap()).unwrap();
        prop_assert!(after >= before * (1.0 - 1e-9), "{after} {before}");
        let mut twice = graph.clone();
        for edge in &graph.edges {
            twice = twice.with_capacity(&edge.name, Change::Times(2.0)).unwrap();
        }
        twice.edges.iter_mut().for_each(|edge| edge.cpu_percent /= 2.0);
        prop_assert!(is_near(best(&twice).unwrap(), 2.0 * before));
        prop_assert!(solve(&graph, None).unwrap().prices.iter().all(|price| price.bytes_per_second_per_unit >= 0.0));
    }
}
