//! What the network saw of each tool, and what it takes to set each one up: tables of the report.

use std::fmt::Write as _;

use crate::compare::ToolRecord;
use crate::sample::{Sample, State};
use crate::statistics::Spread;
use crate::tool::Class;

/// Medians over the counted runs on a set; empty where no network was between the ends.
pub fn section(samples: &[Sample], set: &str) -> String {
    let counted = || samples.iter().filter(|sample| sample.set == set && sample.state == State::Counted);
    let mut tools: Vec<&str> = Vec::new();
    for sample in counted().filter(|sample| sample.network.is_some()) {
        if !tools.contains(&sample.tool.as_str()) {
            tools.push(&sample.tool);
        }
    }
    if tools.is_empty() {
        return String::new();
    }
    let mut text = String::from(
        "| tool | n | first content after s | sent MB | sent / content | segments sent again |\n|---|---|---|---|---|---|\n",
    );
    for tool in tools {
        let of_tool: Vec<_> = counted().filter(|of| of.tool == tool && of.class == Class::Network).collect();
        let uses: Vec<_> = of_tool.iter().filter_map(|sample| Some((sample.network?, sample.bytes.max(1)))).collect();
        let median = |values: Vec<f64>| Spread::of(values).map(|spread| spread.median);
        let first = median(uses.iter().filter_map(|(seen, _)| seen.first_byte_seconds).collect());
        let sent = median(uses.iter().map(|(seen, _)| seen.sent_bytes as f64 / 1e6).collect());
        let share = median(uses.iter().map(|(seen, bytes)| seen.sent_bytes as f64 / *bytes as f64).collect());
        let again = median(uses.iter().map(|(seen, _)| seen.retransmitted_segments as f64).collect());
        let (sent, share, again) = (sent.unwrap_or(0.0), share.unwrap_or(0.0), again.unwrap_or(0.0));
        let first = first.map_or("-".to_owned(), |seconds| format!("{seconds:.3}"));
        let n = uses.len();
        let _ = writeln!(text, "| {tool} | {n} | {first} | {sent:.1} | {share:.3} | {again:.0} |");
    }
    text.push('\n');
    text
}

/// What has to be done before the first transfer.
pub fn set_up(tools: &[ToolRecord]) -> String {
    let with_steps: Vec<_> = tools.iter().filter(|tool| !tool.setup_steps.is_empty()).collect();
    if with_steps.is_empty() {
        return String::new();
    }
    let mut text = String::from(
        "\n## Set-up\n\nSeconds are those of the steps that this program did for the race: configuration, keys, start of the \
         server until it is ready.\n\n| tool | encrypted | digest | steps | seconds | which |\n|---|---|---|---|---|---|\n",
    );
    for tool in with_steps {
        let yes = |is_so| if is_so { "yes" } else { "no" };
        let seconds = tool.setup_seconds.map_or("-".to_owned(), |seconds| format!("{seconds:.2}"));
        let (encrypted, digest) = (yes(tool.is_encrypted), yes(tool.is_digested));
        let (name, count, steps) = (&tool.name, tool.setup_steps.len(), tool.setup_steps.join("; "));
        let _ = writeln!(text, "| {name} | {encrypted} | {digest} | {count} | {seconds} | {steps} |");
    }
    text
}
