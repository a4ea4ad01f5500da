//! What it takes to set each tool up: a table of the report.

use std::fmt::Write as _;

use crate::compare::record::ToolRecord;

/// What has to be done before the first transfer.
pub fn section(tools: &[ToolRecord]) -> String {
    let with_steps: Vec<_> = tools.iter().filter(|tool| !tool.setup_steps.is_empty()).collect();
    if with_steps.is_empty() {
        return String::new();
    }
    let (header, rows) = cells(&with_steps);
    let mut text = format!("\n## Set-up\n\n{LEGEND}\n\n| {} |\n|{}\n", header.join(" | "), "---|".repeat(header.len()));
    for row in rows {
        let _ = writeln!(text, "| {} |", row.join(" | "));
    }
    text
}

pub const LEGEND: &str = "Seconds are those of the steps that this program did for the race: configuration, keys, \
                                 start of the server until it is ready.";

/// Header and rows of the tools that have steps.
pub fn cells(tools: &[&ToolRecord]) -> (Vec<&'static str>, Vec<Vec<String>>) {
    let row = |tool: &&ToolRecord| {
        let yes = |is_so| if is_so { "yes" } else { "no" }.to_owned();
        vec![
            tool.name.clone(),
            yes(tool.is_encrypted),
            yes(tool.is_digested),
            tool.setup_steps.len().to_string(),
            tool.setup_seconds.map_or("-".to_owned(), |seconds| format!("{seconds:.2}")),
            tool.setup_steps.join("; "),
        ]
    };
    let header = vec!["tool", "encrypted", "digest", "steps", "seconds", "which"];
    (header, tools.iter().filter(|tool| !tool.setup_steps.is_empty()).map(row).collect())
}
