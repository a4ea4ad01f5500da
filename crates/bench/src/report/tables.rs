//! The tables of a report as text cells, for any form of page.

use model::quantity::ByteCount;

use super::figures::Figures;
use crate::compare::record::Report;
use crate::statistics::{Column, Ratio, Spread, Summary};
use crate::tool::Class;

/// One table of tools, of one condition; of one set, or of all sets where they are many.
pub struct Section<'a> {
    pub title: String,
    pub summaries: Vec<&'a Summary>,
    pub ratios: Vec<&'a Ratio>,
    pub has_sets: bool,
}

/// More sets than this share one table per condition.
const SETS_APART_MAX: usize = 6;

pub fn sections<'a>(report: &Report, figures: &'a Figures) -> Vec<Section<'a>> {
    let raced = || figures.summaries.iter().filter(|summary| summary.class != Class::Reference);
    let mut sections = Vec::new();
    for condition in in_order(raced().map(|summary| summary.condition.as_str())) {
        let sets = in_order(raced().filter(|s| s.condition == condition).map(|s| s.set.as_str()));
        let section = |title: String, set: Option<&str>| Section {
            title,
            summaries: raced().filter(|s| s.condition == condition && set.is_none_or(|set| s.set == set)).collect(),
            ratios: figures
                .ratios
                .iter()
                .filter(|ratio| ratio.condition == condition && set.is_none_or(|set| ratio.set == set))
                .collect(),
            has_sets: set.is_none(),
        };
        if sets.len() > SETS_APART_MAX {
            let title = if condition.is_empty() { format!("{} sets", sets.len()) } else { condition.to_owned() };
            sections.push(section(title, None));
            continue;
        }
        for set in sets {
            let of_condition = if condition.is_empty() { String::new() } else { format!(", {condition}") };
            sections.push(section(format!("{}{of_condition}", set_title(report, set)), Some(set)));
        }
    }
    sections
}

fn set_title(report: &Report, set: &str) -> String {
    match report.sets.iter().find(|record| record.name == set) {
        Some(record) => {
            format!("{set}: {} files, {}", thousands(record.files as f64), ByteCount(record.bytes))
        }
        None => set.to_owned(),
    }
}

/// Header cells and, for each tool, a row of cells.
pub fn of_tools(section: &Section) -> (Vec<&'static str>, Vec<Vec<String>>) {
    let has_network = section.summaries.iter().any(|summary| summary.sent_per_byte_median.is_some());
    let mut header = vec![
        "tool",
        "n",
        "seconds",
        "Gbit/s",
        "mean ± deviation",
        "files/s",
        "CPU s client + server",
        "CPU s/GB",
        "CPU us/file",
        "peak MiB client, server",
    ];
    if section.has_sets {
        header.insert(0, "set");
    }
    if has_network {
        header.extend(["first content after s", "sent / content", "segments sent again"]);
    }
    let row = |summary: &&Summary| {
        let mut cells = tool_cells(summary);
        if section.has_sets {
            cells.insert(0, summary.set.clone());
        }
        if has_network {
            let shown = |value: Option<f64>, digits: usize| value.map_or_else(String::new, |v| format!("{v:.digits$}"));
            cells.push(shown(summary.first_byte_seconds_median, 3));
            cells.push(shown(summary.sent_per_byte_median, 3));
            cells.push(shown(summary.retransmitted_segments_median, 0));
        }
        cells
    };
    (header, section.summaries.iter().map(row).collect())
}

fn tool_cells(summary: &Summary) -> Vec<String> {
    let mebibytes = |bytes: u64| (bytes >> 20).to_string();
    let server_cpu = summary.server_cpu_seconds_median.map(|cpu| format!(" + {cpu:.2}")).unwrap_or_default();
    let server_rss = summary.server_rss_bytes_max.map(|rss| format!(", {}", mebibytes(rss))).unwrap_or_default();
    let rate = &summary.gbit_per_second;
    vec![
        summary.tool.clone(),
        summary.seconds.n.to_string(),
        spread(&summary.seconds),
        format!("{:.2}", summary.gbit_per_second_median),
        format!("{:.2} ± {:.2}", rate.mean, rate.standard_deviation),
        thousands(summary.files_per_second_median),
        format!("{:.2}{server_cpu}", summary.client_cpu_seconds_median),
        format!("{:.2}", summary.cpu_seconds_per_gb_median),
        format!("{:.1}", summary.cpu_us_per_file_median),
        format!("{}{server_rss}", mebibytes(summary.client_rss_bytes_max)),
    ]
}

pub fn of_ratios(section: &Section) -> (Vec<&'static str>, Vec<Vec<String>>) {
    let mut header = vec!["rate of ours / rival's", "pairs", "median", "interval of the median"];
    if section.has_sets {
        header.insert(0, "set");
    }
    let row = |ratio: &&Ratio| {
        let interval = &ratio.interval;
        let mut cells = vec![
            format!("{} / {}", ratio.ours, ratio.rival),
            ratio.speedup.n.to_string(),
            format!("{:.2}", ratio.speedup.median),
            format!("{:.2} - {:.2} ({:.0} %)", interval.low, interval.high, interval.confidence * 100.0),
        ];
        if section.has_sets {
            cells.insert(0, ratio.set.clone());
        }
        cells
    };
    (header, section.ratios.iter().map(row).collect())
}

/// Ceilings measured alone.
pub fn of_ceilings(figures: &Figures) -> (Vec<&'static str>, Vec<Vec<String>>) {
    let ceilings: Vec<&Summary> = figures.summaries.iter().filter(|s| s.class == Class::Reference).collect();
    let has_conditions = ceilings.iter().any(|summary| !summary.condition.is_empty());
    let mut header = vec!["what", "n", "seconds", "rate", "CPU s"];
    if has_conditions {
        header.insert(0, "condition");
    }
    let row = |summary: &&Summary| {
        let rate = if summary.files_per_second_median > 1_000.0 {
            format!("{} files/s", thousands(summary.files_per_second_median))
        } else {
            format!("{:.1} Gbit/s", summary.gbit_per_second_median)
        };
        let cpu = summary.client_cpu_seconds_median + summary.server_cpu_seconds_median.unwrap_or(0.0);
        let (tool, n) = (summary.tool.clone(), summary.seconds.n.to_string());
        let mut cells = vec![tool, n, spread(&summary.seconds), rate, format!("{cpu:.2}")];
        if has_conditions {
            cells.insert(0, summary.condition.clone());
        }
        cells
    };
    (header, ceilings.iter().map(row).collect())
}

/// Averages over several sets; no rows where there is nothing to average.
pub fn of_columns(figures: &Figures) -> (Vec<&'static str>, Vec<Vec<String>>) {
    const SETS_MIN: usize = 3;
    let columns = figures.columns.iter().filter(|column| column.gbit_per_second.n >= SETS_MIN);
    let row = |column: &Column| {
        let Spread { n, mean, standard_deviation, median, min, max, .. } = column.gbit_per_second;
        let condition = if column.condition.is_empty() { "-".to_owned() } else { column.condition.clone() };
        let range = format!("{min:.2} - {max:.2}");
        let (mean, median) = (format!("{mean:.2} ± {standard_deviation:.2}"), format!("{median:.2}"));
        vec![condition, column.tool.clone(), n.to_string(), mean, median, range]
    };
    (vec!["condition", "tool", "sets", "mean Gbit/s ± deviation", "median", "range"], columns.map(row).collect())
}

pub fn spread(seconds: &Spread) -> String {
    let Spread { median, quartile_1, quartile_3, min, max, .. } = seconds;
    format!("{median:.3} [{quartile_1:.3} - {quartile_3:.3}] ({min:.3} - {max:.3})")
}

/// A whole number with separators, for rates and counts.
pub fn thousands(value: f64) -> String {
    if value < 100.0 && value.fract() != 0.0 {
        return format!("{value:.2}");
    }
    let digits = format!("{value:.0}");
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index) % 3 == 0 {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Each once, where it first appears.
pub fn in_order<'a>(names: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let mut seen = std::collections::BTreeSet::new();
    names.filter(|name| seen.insert(*name)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_grouped_by_thousands() {
        assert_eq!(thousands(50_000.4), "50,000");
        assert_eq!(thousands(999.0), "999");
        assert_eq!(thousands(1_234_567.0), "1,234,567");
        assert_eq!(thousands(2.31), "2.31");
    }
}
