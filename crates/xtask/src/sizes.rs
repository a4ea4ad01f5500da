//! Sizes: the ratchet on functions, files and blobs, and the table of medians that a reviewer reads.
//!
//! Tests are not counted. A longer function or file needs a row with a reason and a cap; a row that is no longer needed is
//! itself a violation, so the tables only shrink.

use std::collections::BTreeMap;
use std::fmt::Write;

use crate::workspace::{Rust, Tracked, Violation, Workspace};

const FUNCTION_LINES_MAX: usize = 70;
const FILE_LINES_MAX: usize = 600;
const BLOB_BYTES_MAX: u64 = 1 << 20;

/// Something larger than the rule allows: where, how large it may be, and why it is better whole.
struct Exception {
    path: &'static str,
    /// Empty for a file.
    function: &'static str,
    lines_max: usize,
    reason: &'static str,
}

const LONG_FUNCTIONS: &[Exception] = &[];
const LONG_FILES: &[Exception] = &[];

pub fn functions(workspace: &Workspace) -> Vec<Violation> {
    let mut found = Vec::new();
    for (file, rust) in workspace.rust_files() {
        let counted = rust.functions.iter().filter(|function| !rust.tests.contains(function.line));
        found.extend(
            counted.map(|function| (file.path.as_str(), function.name.as_str(), function.line, function.lines)),
        );
    }
    ratchet(&found, FUNCTION_LINES_MAX, LONG_FUNCTIONS)
}

pub fn files(workspace: &Workspace) -> Vec<Violation> {
    let sizes = workspace.rust_files().map(|(file, rust)| (file.path.as_str(), "", 0, counted_lines(file, rust)));
    ratchet(&sizes.collect::<Vec<_>>(), FILE_LINES_MAX, LONG_FILES)
}

/// Large data does not belong in the history, published results excepted.
pub fn blobs(workspace: &Workspace) -> Vec<Violation> {
    let large = workspace.files.iter().filter(|file| file.bytes > BLOB_BYTES_MAX && !file.path.starts_with("results/"));
    large
        .map(|file| Violation::new(&file.path, 0, format!("{} bytes, more than {BLOB_BYTES_MAX}", file.bytes)))
        .collect()
}

/// Lines of files and functions of each crate, tests left out: count, median, ninth decile, largest.
pub fn report(workspace: &Workspace) -> String {
    let mut crates: BTreeMap<&str, (Vec<usize>, Vec<usize>)> = BTreeMap::new();
    let mut largest = ("", 0);
    for (file, rust) in workspace.rust_files().filter(|(file, _)| file.is_source()) {
        let lines = counted_lines(file, rust);
        if lines == 0 {
            continue;
        }
        let name = file.path.split('/').nth(1).unwrap_or_default();
        let functions = rust.functions.iter().filter(|function| !rust.tests.contains(function.line));
        let functions: Vec<usize> = functions.map(|function| function.lines).collect();
        for name in [name, "total"] {
            let sizes = crates.entry(name).or_default();
            sizes.0.push(lines);
            sizes.1.extend(&functions);
        }
        if lines > largest.1 {
            largest = (&file.path, lines);
        }
    }
    let total = crates.remove_entry("total");
    let mut text =
        format!("{:8} {:>7}  {:>24}  {:>24}\n", "crate", "lines", "files n/median/p90/max", "fns n/median/p90/max");
    for (name, (files, functions)) in crates.into_iter().chain(total) {
        let lines: usize = files.iter().sum();
        let row = writeln!(text, "{name:8} {lines:>7}  {:>24}  {:>24}", spread(files), spread(functions));
        row.expect("writing to a string cannot fail");
    }
    text.push_str(&format!("largest file: {} ({} lines)\n", largest.0, largest.1));
    text
}

/// `found` holds path, name, line and length.
fn ratchet(found: &[(&str, &str, usize, usize)], lines_max: usize, exceptions: &[Exception]) -> Vec<Violation> {
    let mut violations = Vec::new();
    for &(path, name, line, lines) in found.iter().filter(|found| found.3 > lines_max) {
        let exception = exceptions.iter().find(|exception| exception.path == path && exception.function == name);
        let cap = exception.map_or(lines_max, |exception| exception.lines_max);
        if lines > cap {
            let subject = if name.is_empty() { "file" } else { name };
            violations.push(Violation::new(path, line, format!("{subject} has {lines} lines, more than {cap}")));
        }
    }
    for Exception { path, function, reason, .. } in exceptions {
        let is_needed = found.iter().any(|found| found.0 == *path && found.1 == *function && found.3 > lines_max);
        if !is_needed || reason.is_empty() {
            violations.push(Violation::new(path, 0, format!("the exception for {function} is stale or has no reason")));
        }
    }
    violations
}

fn counted_lines(file: &Tracked, rust: &Rust) -> usize {
    let lines = file.text.as_deref().unwrap_or_default().lines().count();
    (1..=lines).filter(|&line| !rust.tests.contains(line)).count()
}

fn spread(mut sizes: Vec<usize>) -> String {
    sizes.sort_unstable();
    let at =
        |share: usize| sizes.get((sizes.len() * share / 100).min(sizes.len().saturating_sub(1))).copied().unwrap_or(0);
    format!("{} / {} / {} / {}", sizes.len(), at(50), at(90), at(100))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with_file(path: &str, text: String) -> Workspace {
        Workspace { files: vec![Tracked::new(path, text)], ..Workspace::default() }
    }

    fn function(lines: usize) -> String {
        format!("fn f() {{{}}}\n", "\n".repeat(lines - 1))
    }

    #[test]
    fn a_function_over_the_limit_is_found_unless_it_is_a_test() {
        assert_eq!(functions(&with_file("crates/a/src/a.rs", function(70))), []);
        assert_eq!(functions(&with_file("crates/a/src/a.rs", function(71))).len(), 1);
        assert_eq!(functions(&with_file("crates/a/tests/a.rs", function(71))), []);
        let inside = format!("#[cfg(test)]\nmod tests {{\n{}}}\n", function(71));
        assert_eq!(functions(&with_file("crates/a/src/a.rs", inside)), []);
    }

    #[test]
    fn a_file_over_the_limit_is_found_without_counting_its_tests() {
        let lines = "// line\n".repeat(600);
        assert_eq!(files(&with_file("crates/a/src/a.rs", format!("{lines}#[cfg(test)]\nmod tests {{\n}}\n"))), []);
        assert_eq!(files(&with_file("crates/a/src/a.rs", format!("{lines}\n"))).len(), 1);
    }

    #[test]
    fn an_exception_caps_its_subject_and_must_be_needed() {
        let exceptions = [Exception { path: "a.rs", function: "f", lines_max: 90, reason: "one table" }];
        assert_eq!(ratchet(&[("a.rs", "f", 1, 90)], 70, &exceptions), []);
        assert_eq!(ratchet(&[("a.rs", "f", 1, 91)], 70, &exceptions).len(), 1);
        assert_eq!(ratchet(&[("a.rs", "f", 1, 70)], 70, &exceptions).len(), 1);
        assert_eq!(ratchet(&[], 70, &exceptions).len(), 1);
    }

    #[test]
    fn a_large_blob_is_found_outside_results() {
        let content = "x".repeat((1 << 20) + 1);
        assert_eq!(blobs(&with_file("docs/a.bin", content.clone())).len(), 1);
        assert_eq!(blobs(&with_file("results/a.csv", content)), []);
    }

    #[test]
    fn the_report_has_a_row_for_each_crate_and_a_total() {
        let report = report(&with_file("crates/a/src/a.rs", function(3)));
        let rows: Vec<_> = report.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
        assert_eq!(rows[1], "a 3 1 / 3 / 3 / 3 1 / 3 / 3 / 3");
        assert_eq!(rows[2], "total 3 1 / 3 / 3 / 3 1 / 3 / 3 / 3");
    }
}
