//! The bundle that a race leaves: `README.md`, `summary.md`, `summary.json`, `samples.csv`.
//!
//! Every figure in the tables can be computed again from `samples.csv`, which holds discarded and failed runs too.

mod csv;
mod markdown;
mod network;

use std::fs;
use std::path::Path;

use serde::Serialize;

use crate::compare::Report;
use crate::error::{Error, Result};
use crate::statistics::{Ratio, Summary, ratios, summarize};

/// Writes the bundle, replacing an earlier one in the same folder.
pub fn write(report: &Report, dir: &Path) -> Result<()> {
    fs::create_dir_all(dir).map_err(Error::io("create", dir))?;
    let figures = Figures::of(report);
    for (name, text) in [
        ("samples.csv", csv::samples(&report.samples)),
        ("summary.md", markdown::summary(report, &figures)),
        ("summary.json", json(report, &figures)),
        ("README.md", markdown::readme(report)),
    ] {
        let path = dir.join(name);
        fs::write(&path, text).map_err(Error::io("write", &path))?;
    }
    Ok(())
}

/// The tables as text, for a terminal.
pub fn summary_text(report: &Report) -> String {
    markdown::summary(report, &Figures::of(report))
}

#[derive(Clone, Debug, Serialize)]
struct Figures {
    summaries: Vec<Summary>,
    ratios: Vec<Ratio>,
}

impl Figures {
    fn of(report: &Report) -> Figures {
        Figures { summaries: summarize(&report.samples), ratios: ratios(&report.samples) }
    }
}

fn json(report: &Report, figures: &Figures) -> String {
    #[derive(Serialize)]
    struct Document<'a> {
        v: u32,
        #[serde(flatten)]
        figures: &'a Figures,
        #[serde(flatten)]
        report: &'a Report,
    }
    let document = Document { v: 1, figures, report };
    let mut text = serde_json::to_string_pretty(&document).expect("plain values with string keys serialise");
    text.push('\n');
    text
}
