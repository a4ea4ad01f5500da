//! A model of a transfer as a graph: what each device carries, which host pays for it in processor time, and which settings
//! (knobs) change that.
//!
//! Owns the model's written form (`docs/planner.md`) and its checks. Invariants of a `Graph` that `parse` returned: it has no
//! loop; every edge lies on a way from `Src` to `Dst`; every name refers to something; no capacity is zero or undefined at
//! every setting. Not here: what to choose (`solve`).

mod problem;
mod law;
mod parts;
mod written;
mod ways;

pub use law::Law;
pub use parts::{Change, Count, DESTINATION, Edge, Graph, Host, Knob, Node, SOURCE};
pub use problem::Problem;

impl Graph {
    /// Reads a model, and refuses one that says nothing useful.
    pub fn parse(text: &str) -> Result<Graph, Problem> {
        let graph = written::read(text)?;
        written::check_units(&graph)?;
        ways::check(&graph)?;
        Ok(graph)
    }
}

#[cfg(test)]
mod tests;
