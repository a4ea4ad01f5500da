//! A model as a picture: nodes in columns from source to destination, edges with what they carry, those that limit in red.
//!
//! Invariant: names from a model are escaped before they stand in the picture.

use plan::graph::Graph;
use plan::solve::Solution;
use std::fmt::Write;

const COLUMN_WIDTH: usize = 210;
const ROW_HEIGHT: usize = 84;
const MARGIN: usize = 60;

pub fn svg(graph: &Graph, solution: &Solution) -> String {
    let columns = columns(graph);
    let mut rows = vec![0; columns.iter().max().map_or(1, |last| last + 1)];
    let mut row_of = Vec::new();
    for column in &columns {
        row_of.push(rows[*column]);
        rows[*column] += 1;
    }
    let highest = rows.iter().copied().max().unwrap_or(1);
    let place = |node: usize| {
        let (column, row) = (columns[node], row_of[node]);
        let offset = (highest - rows[column]) * ROW_HEIGHT / 2;
        (MARGIN + column * COLUMN_WIDTH, MARGIN + offset + row * ROW_HEIGHT)
    };
    let (width, height) = (2 * MARGIN + (rows.len() - 1) * COLUMN_WIDTH, 2 * MARGIN + (highest - 1) * ROW_HEIGHT);
    let mut text = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" font-family=\"sans-serif\" font-size=\"11\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
    );
    let mut beside = std::collections::HashMap::new();
    for (at, edge) in graph.edges.iter().enumerate() {
        let ((x1, y1), (x2, y2)) = (place(edge.from), place(edge.to));
        let nth: &mut usize = beside.entry((edge.from, edge.to)).or_default();
        // Edges between the same nodes bend away from each other.
        let bend = (*nth).div_ceil(2) as i64 * if (*nth).is_multiple_of(2) { 1 } else { -1 } * 56;
        *nth += 1;
        let (middle_x, middle_y) = (i64::midpoint(x1 as i64, x2 as i64), i64::midpoint(y1 as i64, y2 as i64));
        let is_limit = solution.prices.iter().any(|price| !price.is_host && price.resource == edge.name);
        let (colour, thick) = if is_limit { ("#c00", 4) } else { ("#667", 2) };
        let capacity = match solution.edge_capacities[at] {
            capacity if capacity.is_finite() => format!("{} of {}", short(solution.edge_rates[at]), short(capacity)),
            _ => short(solution.edge_rates[at]),
        };
        let _ = writeln!(
            text,
            "<path d=\"M{x1} {y1} Q{middle_x} {} {x2} {y2}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"{thick}\">\
             <title>{name}: {capacity}</title></path>\n\
             <text x=\"{middle_x}\" y=\"{}\" text-anchor=\"middle\" fill=\"{colour}\">{name}</text>\n\
             <text x=\"{middle_x}\" y=\"{}\" text-anchor=\"middle\" fill=\"{colour}\">{capacity}</text>",
            middle_y + 2 * bend,
            middle_y + bend - 8,
            middle_y + bend + 14,
            name = escaped(&edge.name),
        );
    }
    for (node, of) in graph.nodes.iter().enumerate() {
        let (x, y) = place(node);
        let _ = writeln!(
            text,
            "<circle cx=\"{x}\" cy=\"{y}\" r=\"7\" fill=\"#334\"/>\n\
             <text x=\"{x}\" y=\"{}\" text-anchor=\"middle\">{}</text>",
            y + 22,
            escaped(&of.name)
        );
    }
    text + "</svg>\n"
}

/// For every node the longest way to it.
fn columns(graph: &Graph) -> Vec<usize> {
    let mut columns = vec![0; graph.nodes.len()];
    for _ in 0..graph.nodes.len() {
        let mut is_done = true;
        for edge in &graph.edges {
            let least = columns[edge.from] + 1;
            is_done &= columns[edge.to] >= least;
            columns[edge.to] = columns[edge.to].max(least);
        }
        if is_done {
            break;
        }
    }
    columns
}

fn short(bytes_per_second: f64) -> String {
    match bytes_per_second {
        b if b >= 1e9 => format!("{:.2} GB/s", b / 1e9),
        b => format!("{:.0} MB/s", b / 1e6),
    }
}

fn escaped(name: &str) -> String {
    name.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_limits_is_marked_and_names_cannot_break_out() {
        let text = r#"{"v":1,"edges":[
            {"name":"a<b>","from":"Src","to":"x","capacity":{"form":"const","value":1e9}},
            {"name":"wide","from":"x","to":"Dst","capacity":{"form":"const","value":4e9}}]}"#;
        let graph = Graph::parse(text).unwrap();
        let picture = svg(&graph, &plan::solve::solve(&graph, None).unwrap());
        assert!(!picture.contains("a<b>") && picture.contains("a&lt;b&gt;: 1.00 GB/s of 1.00 GB/s"));
        let marked: Vec<_> = picture.lines().filter(|line| line.contains("#c00") && line.contains("<title>")).collect();
        assert_eq!(marked.len(), 1);
        assert!(marked[0].contains("a&lt;b&gt;"));
    }
}
