//! Relations that hold for every model, on random ones (G4): the linear program against reduction by hand, both searches against
//! trying everything, prices against what they promise, and what a better device may do.

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
    let (name, count, law) = (name.to_owned(), Count::Fixed(1), Some(law));
    Edge { name, from, to, host: None, cpu_percent: 0.0, count, law, law_knob: None, volume_bytes: None }
}

fn layers() -> impl Strategy<Value = Vec<Vec<f64>>> {
    prop::collection::vec(prop::collection::vec(1e6..1e10f64, 1..6), 1..8)
}

/// A few disks with a knob each, a stage with a knob, a card whose number is a knob; a host that pays for it.
fn chosen() -> impl Strategy<Value = Graph> {
    models(0.0..0.2, |_| [6, 4, 3, 5])
}

/// The same with so few values of each knob that all settings of a thousand models can be tried. The stage is slower with two workers as
/// often as it is faster.
fn small() -> impl Strategy<Value = Graph> {
    models(0.0..1.0, |disks| [2, 2, 2, if disks == 1 { 4 } else { 2 }])
}

/// `most` says for a number of disks how many values there are: of the stage, of the card and its number, and of each disk.
fn models(kappa: std::ops::Range<f64>, most: fn(usize) -> [u32; 4]) -> impl Strategy<Value = Graph> {
    let disk = (1e8..1e10f64, 0.0..20.0f64);
    (prop::collection::vec(disk, 1..4), 1e7..2e8f64, kappa, 1e8..2e9f64, 1e7..5e8f64, 1.0..16.0f64).prop_map(
        move |(disks, a, kappa, nic, theta, cores)| {
            let [of_pool, of_card, cards, of_disk] = most(disks.len());
            let knob = |name: &str, max, weight| Knob { name: name.to_owned(), min: 1, max, weight };
            let mut knobs = vec![knob("k", of_pool, 1.0), knob("t", of_card, 0.25), knob("x", cards, 2.0)];
            let mut edges = Vec::new();
            for (at, (beta, alpha)) in disks.iter().enumerate() {
                let name = format!("n{at}");
                let law = Law::F1 { beta: *beta, alpha: *alpha, knob: name.clone(), scale: 1.0 };
                let read = Law::F3 { a: 2.0 * a, b: 0.0, knob: name.clone(), scale: 1.0 };
                knobs.push(knob(&name, of_disk, 1.0));
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

/// The best rate of all settings, and the least weight that keeps enough of it.
fn tried(graph: &Graph) -> (f64, f64) {
    let tried = every_setting(graph);
    let best = tried.iter().map(|(_, rate)| *rate).fold(0.0, f64::max);
    let enough = tried.iter().filter(|(_, rate)| *rate >= best * SHARE_KEPT);
    (best, enough.map(|(settings, _)| weight(graph, settings)).fold(f64::INFINITY, f64::min))
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
    #![proptest_config(ProptestConfig { cases: 1000, ..ProptestConfig::default() })]

    #[test]
    fn leaving_values_out_changes_neither_the_best_rate_nor_the_least_weight(graph in small()) {
        let (best, least) = tried(&graph);
        let solution = solve(&graph, None).unwrap();
        prop_assert!(is_near(solution.best_bytes_per_second, best), "{} {best}", solution.best_bytes_per_second);
        prop_assert!(is_near(weight(&graph, &solution.settings), least), "{:?} {least}", solution.settings);
    }

    #[test]
    fn branch_and_bound_finds_what_trying_everything_finds(graph in small()) {
        let (best, least) = tried(&graph);
        let options = options(&graph).unwrap();
        let (fastest, is_best) = branch::fastest(&graph, &options).unwrap();
        let rate = rate_at(&graph, &fastest).unwrap();
        prop_assert!(is_best && (rate - best).abs() <= 2e-6 * best, "{rate} {best}");
        let (cheapest, is_cheapest) = branch::cheapest(&graph, &options, &fastest, best * SHARE_KEPT).unwrap();
        prop_assert!(is_cheapest && is_near(weight(&graph, &cheapest), least), "{cheapest:?} {least}");
    }

    /// The rate is concave in every limit, so that it lies below the line that a price is the slope of, on both sides.
    #[test]
    fn a_price_is_what_a_little_more_adds_and_a_little_less_takes(graph in chosen(), at in 0.8..1.2f64) {
        let settings: Vec<u32> = graph.knobs.iter().map(|knob| knob.max).collect();
        let limits = Limits::at(&graph, &settings);
        let flow = flow::solve(&graph, &limits).unwrap();
        let prices = flow.edge_prices.iter().chain(&flow.host_prices);
        let all = limits.edges.iter().chain(&limits.hosts);
        let explained: f64 = prices.zip(all).map(|(price, limit)| price * limit).sum();
        prop_assert!(is_near(explained, flow.rate), "{explained} {}", flow.rate);
        for place in 0..limits.edges.len() + limits.hosts.len() {
            let mut other = limits.clone();
            let (limit, price) = match place.checked_sub(limits.edges.len()) {
                None => (&mut other.edges[place], flow.edge_prices[place]),
                Some(host) => (&mut other.hosts[host], flow.host_prices[host]),
            };
            let more = *limit * (at - 1.0);
            *limit += more;
            let gained = flow::solve(&graph, &other).unwrap().rate - flow.rate;
            prop_assert!(gained <= price * more + 1e-6 * flow.rate, "{place}: {gained} for {more} at {price}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

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
        let shares: f64 = solve(&graph, None).unwrap().prices.iter().map(|price| price.share).sum();
        prop_assert!(is_near(shares, 1.0), "prices explain {shares} of the rate");
    }
}
