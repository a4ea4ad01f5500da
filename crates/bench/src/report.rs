//! The bundle that a measurement leaves: `README.md`, `summary.md`, `summary.json`, `samples.csv`, `report.html`, `plots/`.
//!
//! Invariants:
//! - Every figure in tables and plots can be computed again from `samples.csv`, which holds discarded, void and failed
//!   runs too; `read` and `write` do exactly that.
//! - `report.html` needs nothing besides itself: no network, no script.

mod bundle;
mod csv;
mod figures;
mod html;
mod markdown;
mod set_up;
mod plots;
mod tables;
mod warnings;

pub use bundle::read;
pub use plots::plots;

use std::fs;
use std::path::Path;

use serde::Serialize;

use crate::compare::record::Report;
use crate::error::{Error, Result};
use crate::plot::Plot;
use figures::Figures;

/// Writes the bundle, replacing an earlier one in the same folder.
pub fn write(report: &Report, dir: &Path) -> Result<()> {
    write_with(report, Vec::new(), dir)
}

/// The same with plots of the caller's own before those that follow from the samples.
pub fn write_with(report: &Report, mut drawn: Vec<Plot>, dir: &Path) -> Result<()> {
    fs::create_dir_all(dir).map_err(Error::io("create", dir))?;
    let figures = Figures::of(report);
    drawn.extend(plots(report));
    for plot in &drawn {
        plot.write(&dir.join("plots"))?;
    }
    for (name, text) in [
        ("samples.csv", csv::write(&report.samples, report.environment.cores)?),
        ("summary.md", markdown::summary(report, &figures)),
        ("summary.json", json(report, &figures)),
        ("README.md", markdown::readme(report)),
        ("report.html", html::page(report, &figures, &drawn, &bundle::other_drawings(dir, &drawn))),
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
