//! What the first command of the README compiles, held in proportion: `cargo build --timings` of the product from nothing.
//!
//! Seconds differ from machine to machine, so the whole is set against what the three libraries in C take on the same one
//! (docs/decisions/011-what-a-release-optimizes.md).

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

/// Compiled by the C compiler at a level of its own, whatever else changes.
const REFERENCES: [&str; 3] = ["aws-lc-sys", "libsqlite3-sys", "zstd-sys"];
/// 4.5 was measured on two cores.
const PROPORTION_MAX: f64 = 5.0;
const SLOWEST_SHOWN: usize = 8;

/// The arguments of cargo, which compiles into `folder`; what is there goes first.
pub fn arguments(folder: &Path) -> Result<Vec<String>> {
    if folder.exists() {
        fs::remove_dir_all(folder).with_context(|| format!("remove {}", folder.display()))?;
    }
    let words = ["build", "--release", "--locked", "-p", "thalweg", "--timings", "--target-dir"];
    Ok(words.iter().map(|word| (*word).to_owned()).chain([folder.display().to_string()]).collect())
}

/// What the report that cargo left says, and whether it is within bounds.
pub fn judge(folder: &Path) -> Result<(String, bool)> {
    let report = folder.join("cargo-timings/cargo-timing.html");
    let text = fs::read_to_string(&report).with_context(|| format!("read {}", report.display()))?;
    let units = units(&text)?;
    let sum = |chosen: &dyn Fn(&str) -> bool| -> f64 {
        units.iter().filter(|(name, _)| chosen(name)).map(|(_, seconds)| seconds).sum()
    };
    let (whole, references) = (sum(&|_| true), sum(&|name| REFERENCES.contains(&name)));
    ensure!(references > 0.0, "{} names none of {}", report.display(), REFERENCES.join(", "));
    let proportion = whole / references;
    let mut slowest = units;
    slowest.sort_by(|a, b| b.1.total_cmp(&a.1));
    let slowest: Vec<String> =
        slowest.iter().take(SLOWEST_SHOWN).map(|(name, seconds)| format!("{name} {seconds:.0}")).collect();
    let said = format!(
        "{whole:.0} s in all, {proportion:.2} times the libraries in C (at most {PROPORTION_MAX}); {}",
        slowest.join(", ")
    );
    Ok((said, proportion <= PROPORTION_MAX))
}

/// Each unit that was compiled, and for how many seconds, from the list that the report's page draws.
fn units(page: &str) -> Result<Vec<(String, f64)>> {
    let (_, rest) = page.split_once("UNIT_DATA = ").context("the report has no list of units")?;
    let (list, _) = rest.split_once("];").context("the report's list of units has no end")?;
    let list: Vec<Value> = serde_json::from_str(&format!("{list}]")).context("read the report's list of units")?;
    let unit = |value: &Value| Some((value["name"].as_str()?.to_owned(), value["duration"].as_f64()?));
    list.iter().map(|value| unit(value).context("a unit has no name or duration")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_of_a_report_is_read_and_held_against_the_libraries_in_c() {
        let folder = std::env::temp_dir().join(format!("thalweg-first-build-{}", std::process::id()));
        fs::create_dir_all(folder.join("cargo-timings")).unwrap();
        let report = folder.join("cargo-timings/cargo-timing.html");
        let page = |own: f64| {
            let unit = |name: &str, seconds: f64| format!("{{\"name\": \"{name}\", \"duration\": {seconds}}}");
            format!("<script>const UNIT_DATA = [{}, {}];\nconst", unit("zstd-sys", 10.0), unit("mover", own))
        };
        fs::write(&report, page(40.0)).unwrap();
        let (said, is_within) = judge(&folder).unwrap();
        assert!(is_within && said.starts_with("50 s in all, 5.00 times"), "{said}");
        fs::write(&report, page(40.1)).unwrap();
        assert!(!judge(&folder).unwrap().1);
        fs::write(&report, "nothing").unwrap();
        assert!(judge(&folder).is_err());
        fs::remove_dir_all(folder).unwrap();
    }
}
