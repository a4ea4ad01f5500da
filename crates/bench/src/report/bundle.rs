//! A bundle read back from its folder.
//!
//! Figures come from `samples.csv` alone; `summary.json` adds what was measured where, and may be missing.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use serde_json::Value;

use super::csv;
use crate::compare::record::{Report, SetRecord};
use crate::error::{Error, Result};
use crate::plot::{Plot, is_drawn_here};
use crate::sample::Sample;

/// A larger file is not part of a bundle.
const FILE_BYTES_MAX: u64 = 256 << 20;
/// Drawings of others that are shown in the page.
const DRAWINGS_MAX: usize = 64;
const DRAWING_BYTES_MAX: u64 = 2 << 20;

/// Reads a bundle of this or an earlier version.
///
/// # Errors
/// A usage error names the file, the line where there is one, and what is wrong with it.
pub fn read(dir: &Path) -> Result<Report> {
    let path = dir.join("samples.csv");
    if !path.is_file() {
        return Err(Error::usage(dir.display(), "this is no bundle: it holds no `samples.csv`"));
    }
    let samples = csv::read(&text(&path)?, &path)?;
    let path = dir.join("summary.json");
    let mut report = if path.exists() { described(&path)? } else { Report::default() };
    add_missing_sets(&mut report, &samples);
    report.samples = samples;
    Ok(report)
}

/// All of the report but its samples, which are in the table.
fn described(path: &Path) -> Result<Report> {
    let damaged = |e: serde_json::Error| Error::usage(path.display(), e.to_string());
    let mut document: Value = serde_json::from_str(&text(path)?).map_err(damaged)?;
    match document.as_object_mut() {
        Some(fields) => _ = fields.remove("samples"),
        None => return Err(Error::usage(path.display(), "it is not an object")),
    }
    serde_json::from_value(document).map_err(damaged)
}

/// Sets that only the samples know.
fn add_missing_sets(report: &mut Report, samples: &[Sample]) {
    let mut known: BTreeSet<String> = report.sets.iter().map(|set| set.name.clone()).collect();
    for sample in samples.iter().filter(|sample| sample.class != crate::tool::Class::Reference) {
        if known.insert(sample.set.clone()) {
            let Sample { set, files, bytes, .. } = sample;
            report.sets.push(SetRecord { name: set.clone(), files: *files, directories: 0, bytes: *bytes });
        }
    }
}

fn text(path: &Path) -> Result<String> {
    let length = fs::metadata(path).map_err(Error::io("read", path))?.len();
    if length > FILE_BYTES_MAX {
        return Err(Error::usage(path.display(), format!("{length} bytes are too many for a bundle")));
    }
    let bytes = fs::read(path).map_err(Error::io("read", path))?;
    String::from_utf8(bytes).map_err(|_| Error::usage(path.display(), "it is not text"))
}

/// SVG files that others put in the folder's `plots`: name and text, by name. What this program has drawn and is none
/// of these plots is another report's, or an earlier state of this one, whatever it is called.
pub fn other_drawings(dir: &Path, drawn: &[Plot]) -> Vec<(String, String)> {
    let listing = fs::read_dir(dir.join("plots")).into_iter().flatten().flatten();
    let mut found = Vec::new();
    for entry in listing {
        let path = entry.path();
        let Some(stem) = path.file_stem().and_then(|stem| stem.to_str()) else { continue };
        let is_svg = path.extension().is_some_and(|kind| kind == "svg");
        let is_small = entry.metadata().is_ok_and(|metadata| metadata.len() <= DRAWING_BYTES_MAX);
        if !is_svg || !is_small || stem.ends_with(".gnuplot") || drawn.iter().any(|plot| plot.name == stem) {
            continue;
        }
        if let Some(text) = fs::read_to_string(&path).ok().filter(|text| !is_drawn_here(text)) {
            found.push((stem.to_owned(), text));
        }
    }
    found.sort();
    found.truncate(DRAWINGS_MAX);
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plot::{Axis, Scale, Unit};

    #[test]
    fn drawings_that_were_added_are_shown_and_those_of_another_report_are_not() {
        let dir = tempfile::tempdir().unwrap();
        let axis = |label| Axis::new(label, Scale::Linear, Unit::Number);
        let [earlier, drawn] = ["over-rounds-1", "over-rounds"].map(|name| Plot {
            name: name.into(),
            title: "Rounds".into(),
            note: String::new(),
            x: axis("round"),
            y: axis("s"),
            series: Vec::new(),
        });
        for plot in [&earlier, &drawn] {
            plot.write(&dir.path().join("plots")).unwrap();
        }
        fs::write(dir.path().join("plots/added.svg"), "<svg/>").unwrap();
        assert_eq!(other_drawings(dir.path(), &[drawn]), [("added".to_owned(), "<svg/>".to_owned())]);
    }
}
