//! Whether a graph leads from its source to its destination, everywhere and without a loop, and how its gains add up on the way.

use super::parts::{DESTINATION, Graph, SOURCE};
use super::problem::Problem;

/// What data may become on its way, as a factor and as its inverse: beyond it nothing can be calculated.
const GAIN_MAX: f64 = 1e6;

/// Refuses loops, edges on no way from source to destination, graphs without any way, and gains that lead nowhere.
pub fn check(graph: &Graph) -> Result<(), Problem> {
    let count = graph.nodes.len();
    let mut leaving: Vec<Vec<usize>> = vec![Vec::new(); count];
    let mut arriving: Vec<Vec<usize>> = vec![Vec::new(); count];
    for edge in &graph.edges {
        leaving[edge.from].push(edge.to);
        arriving[edge.to].push(edge.from);
    }
    if let Some(at) = on_a_loop(&leaving, &arriving) {
        let what = format!("the edges behind node {:?} lead back to it", graph.nodes[at].name);
        return Err(Problem::new(
            "the graph has a loop",
            what,
            "data moves from Src to Dst once: remove one of these edges",
        ));
    }
    if let Some(node) = (0..count).find(|node| leaving[*node].is_empty() && arriving[*node].is_empty()) {
        let what = "no edge begins or ends there";
        return Err(Problem::new(format!("node {:?}", graph.nodes[node].name), what, "remove it, or correct its name"));
    }
    let (from_source, to_destination) = (reached(&leaving, graph.source), reached(&arriving, graph.destination));
    for edge in &graph.edges {
        let what = match (from_source[edge.from], to_destination[edge.to]) {
            (false, _) => format!("nothing leads from {SOURCE} to its beginning {:?}", graph.nodes[edge.from].name),
            (_, false) => format!("nothing leads from its end {:?} to {DESTINATION}", graph.nodes[edge.to].name),
            _ => continue,
        };
        return Err(Problem::new(
            format!("edge {:?}", edge.name),
            what,
            "connect it, correct a node's name, or remove it",
        ));
    }
    check_gains(graph, &leaving, &arriving)
}

/// Refuses gains of the ends, which nothing flows through, and those that make too much or too little of data together.
fn check_gains(graph: &Graph, leaving: &[Vec<usize>], arriving: &[Vec<usize>]) -> Result<(), Problem> {
    let subject = |node: usize| format!("node {:?}", graph.nodes[node].name);
    if let Some(node) = [graph.source, graph.destination].into_iter().find(|node| graph.nodes[*node].gain != 1.0) {
        let what = format!("its gain is {:?}, and nothing flows through it", graph.nodes[node].gain);
        return Err(Problem::new(subject(node), what, "give the gain to a node between Src and Dst"));
    }
    // The least and the most that a byte of the source is behind each node, as logarithms.
    let mut behind = vec![(0.0f64, 0.0f64); graph.nodes.len()];
    for node in in_order(leaving, arriving) {
        let before = arriving[node].iter().map(|before| behind[*before]);
        let joined = before.reduce(|a, b| (a.0.min(b.0), a.1.max(b.1))).unwrap_or_default();
        let own = graph.nodes[node].gain.log10();
        behind[node] = (joined.0 + own, joined.1 + own);
        if behind[node].1.max(-behind[node].0) > GAIN_MAX.log10() + 1e-9 {
            let what = format!("on a way from {SOURCE} data becomes more than a million times as much, or as little");
            let cure = "a gain is bytes out for each byte in, such as 0.5: correct this one, or those before it";
            return Err(Problem::new(subject(node), what, cure));
        }
    }
    Ok(())
}

/// Every node behind all that lead to it; those on a loop and behind one are missing.
fn in_order(leaving: &[Vec<usize>], arriving: &[Vec<usize>]) -> Vec<usize> {
    let mut open: Vec<usize> = arriving.iter().map(Vec::len).collect();
    let mut order: Vec<usize> = (0..open.len()).filter(|node| open[*node] == 0).collect();
    let mut at = 0;
    while let Some(node) = order.get(at).copied() {
        for next in &leaving[node] {
            open[*next] -= 1;
            if open[*next] == 0 {
                order.push(*next);
            }
        }
        at += 1;
    }
    order
}

/// The nodes that can be reached, the first one included.
fn reached(next: &[Vec<usize>], first: usize) -> Vec<bool> {
    let mut is_reached = vec![false; next.len()];
    let mut left = vec![first];
    while let Some(node) = left.pop() {
        if !std::mem::replace(&mut is_reached[node], true) {
            left.extend(&next[node]);
        }
    }
    is_reached
}

/// A node that can be reached from itself.
fn on_a_loop(leaving: &[Vec<usize>], arriving: &[Vec<usize>]) -> Option<usize> {
    let mut is_open = vec![true; arriving.len()];
    in_order(leaving, arriving).into_iter().for_each(|node| is_open[node] = false);
    // What stays open lies on a loop or behind one: going back from it leads into the loop.
    let mut node = is_open.iter().position(|is_open| *is_open)?;
    for _ in 0..is_open.len() {
        node = *arriving[node].iter().find(|before| is_open[**before])?;
    }
    Some(node)
}
