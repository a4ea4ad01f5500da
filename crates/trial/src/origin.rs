//! Of which commit, programs and processor a count is.
//!
//! Invariant: what cannot be found out is left empty, and never guessed. Not here: what was counted.

use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use std::process::Command;

#[derive(Clone, Default, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Origin {
    /// The commit of this program's tree when the trials ran; `+` where that tree held more.
    pub commit: String,
    pub date: String,
    /// SHA-256 of the program under trial, where the command runs one, and of this program.
    pub product_sha256: String,
    pub trial_sha256: String,
    pub processor: String,
    pub processor_flags: String,
    pub kernel: String,
}

impl Origin {
    pub fn now() -> Origin {
        let this = std::env::current_exe().ok();
        Origin {
            commit: commit(),
            date: said("date", &["-u", "+%Y-%m-%d"]),
            product_sha256: this.as_deref().map_or(String::new(), |this| sha256(&product(this))),
            trial_sha256: this.as_deref().map_or(String::new(), sha256),
            processor: of_processor("model name"),
            processor_flags: of_processor("flags"),
            kernel: said("uname", &["-r"]),
        }
    }
}

fn commit() -> String {
    let tree = env!("CARGO_MANIFEST_DIR");
    let head = said("git", &["-C", tree, "rev-parse", "--short=12", "HEAD"]);
    let is_changed = !said("git", &["-C", tree, "status", "--porcelain", "--untracked-files=no"]).is_empty();
    if head.is_empty() || !is_changed { head } else { head + "+" }
}

/// The program that the command line names, or the one beside this one (`job::Ground`).
fn product(this: &Path) -> PathBuf {
    let words: Vec<String> = std::env::args().collect();
    let behind = words.iter().position(|word| word == "--program").and_then(|at| words.get(at + 1));
    let joined = words.iter().find_map(|word| word.strip_prefix("--program="));
    let named = joined.or(behind.map(String::as_str));
    named.map_or_else(|| this.with_file_name("thalweg"), PathBuf::from)
}

fn sha256(file: &Path) -> String {
    let said = said("sha256sum", &["--", &file.to_string_lossy()]);
    said.split_whitespace().next().unwrap_or_default().to_owned()
}

fn of_processor(key: &str) -> String {
    let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let line = text.lines().find(|line| line.split(':').next().is_some_and(|name| name.trim() == key));
    line.and_then(|line| line.split_once(':')).map_or(String::new(), |(_, value)| value.trim().to_owned())
}

/// The first line of what a program prints; empty where it is not there or fails.
fn said(program: &str, arguments: &[&str]) -> String {
    let Ok(output) = Command::new(program).args(arguments).output() else { return String::new() };
    let text = String::from_utf8_lossy(&output.stdout);
    if output.status.success() { text.lines().next().unwrap_or_default().to_owned() } else { String::new() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_program_has_a_digest_and_one_that_is_not_there_has_none() {
        assert_eq!(Origin::now().trial_sha256.len(), 64);
        assert_eq!(sha256(Path::new("/nowhere/at-all")), "");
    }
}
