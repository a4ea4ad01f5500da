//! Whether a graph leads from its source to its destination, everywhere and without a loop.

use super::parts::{DESTINATION, Graph, SOURCE};
use super::problem::Problem;

/// Refuses loops, edges on no way from source to destination, and graphs without any way.
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
    Ok(())
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
    let mut open: Vec<usize> = arriving.iter().map(Vec::len).collect();
    let mut ready: Vec<usize> = (0..open.len()).filter(|node| open[*node] == 0).collect();
    while let Some(node) = ready.pop() {
        for next in &leaving[node] {
            open[*next] -= 1;
            if open[*next] == 0 {
                ready.push(*next);
            }
        }
    }
    // What stays open lies on a loop or behind one: going back from it leads into the loop.
    let mut node = open.iter().position(|open| *open > 0)?;
    for _ in 0..open.len() {
        node = *arriving[node].iter().find(|before| open[**before] > 0)?;
    }
    Some(node)
}
