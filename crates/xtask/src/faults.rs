//! The list of faults, and the page of what reviews found, name what holds each, and what they name is there.
//!
//! Invariants: a row names tests as `crate::file::name`, without the modules inside a file, or commands as `trial NAME`; the
//! test is a function behind `#[test]`, and the command is one of the program of trials. Not here: what was counted.

use std::collections::BTreeSet;

use crate::workspace::{Tracked, Violation, Workspace};

const LIST: &str = "crates/trial/src/faults.toml";
const PAGE: &str = "docs/findings.md";
const MUSEUM: &str = "crates/trial/src/museum/list.rs";
const COMMANDS: &str = "crates/trial/src/main.rs";
/// Number, what happens, what is expected: what stands before what holds it.
const WORDS: usize = 3;

pub fn are_held_by_what_there_is(workspace: &Workspace) -> Vec<Violation> {
    let Some(list) = workspace.text(LIST) else { return vec![Violation::new(LIST, 0, "is missing")] };
    let tests: BTreeSet<String> = workspace.files.iter().flat_map(tests_of).collect();
    let commands = workspace.text(COMMANDS).unwrap_or_default();
    let mut violations = Vec::new();
    let mut words = 0;
    for (at, line) in list.lines().enumerate().filter(|(_, line)| !line.starts_with('#')) {
        if line.starts_with("  [") {
            words = 0;
        }
        for word in quoted(line) {
            words += 1;
            if words > WORDS && !is_there(word, &tests, commands) {
                let why = format!("names {word}, which is no test and no command of trials");
                violations.push(Violation::new(LIST, at + 1, why));
            }
        }
    }
    violations
}

/// On the page a test, a command and a deliberate bug stand between backquotes.
pub fn findings_are_held(workspace: &Workspace) -> Vec<Violation> {
    let Some(page) = workspace.text(PAGE) else { return vec![Violation::new(PAGE, 0, "is missing")] };
    let tests: BTreeSet<String> = workspace.files.iter().flat_map(tests_of).collect();
    let [commands, museum] = [COMMANDS, MUSEUM].map(|path| workspace.text(path).unwrap_or_default());
    let is_there = |word: &str| {
        let is_bug = word.contains('-')
            && word.bytes().all(|byte| byte == b'-' || byte.is_ascii_lowercase())
            && !word.starts_with('-');
        match word.contains("::") || word.starts_with("trial ") {
            true => is_there(word, &tests, commands),
            false => !is_bug || museum.contains(&format!("\"{word}\",")),
        }
    };
    let words =
        page.lines().enumerate().flat_map(|(at, line)| line.split('`').skip(1).step_by(2).map(move |word| (at, word)));
    let missing = words.filter(|(_, word)| !is_there(word));
    let why = |word| format!("names {word}, which is no test, no command of trials and no deliberate bug");
    missing.map(|(at, word)| Violation::new(PAGE, at + 1, why(word))).collect()
}

fn is_there(word: &str, tests: &BTreeSet<String>, commands: &str) -> bool {
    match word.strip_prefix("trial ") {
        Some(name) => commands.contains(&format!("(\"{name}\",")),
        None => tests.contains(word),
    }
}

/// What stands between quotation marks, none of which is escaped in the list.
fn quoted(line: &str) -> impl Iterator<Item = &str> {
    line.split('"').skip(1).step_by(2)
}

fn tests_of(file: &Tracked) -> Vec<String> {
    let Some(place) = place_of(&file.path) else { return Vec::new() };
    let mut lines = file.text.as_deref().unwrap_or_default().lines();
    let mut tests = Vec::new();
    while let Some(line) = lines.next() {
        if line.trim() == "#[test]" {
            // Another attribute may stand between.
            let name = lines.by_ref().find_map(|line| line.trim().strip_prefix("fn ")?.split('(').next());
            tests.extend(name.map(|name| format!("{place}::{name}")));
        }
    }
    tests
}

/// `crates/net/src/a/mod.rs` is `net::a`; what lies in `tests` is named alike.
fn place_of(path: &str) -> Option<String> {
    let mut parts: Vec<&str> = path.strip_prefix("crates/")?.strip_suffix(".rs")?.split('/').collect();
    if parts.len() < 3 || !matches!(parts[1], "src" | "tests") {
        return None;
    }
    parts.remove(1);
    if matches!(parts.last(), Some(&"mod" | &"lib" | &"main")) {
        parts.pop();
    }
    Some(parts.join("::"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(row: &str) -> usize {
        let source = "#[cfg(test)]\nmod tests {\n    #[test]\n    fn it_holds() {}\n}\n";
        let main = "Command::Kill(args) => (\"kill\", kill::run(args)),\n";
        let files = [(LIST, row), (COMMANDS, main), ("crates/net/src/a/mod.rs", source)];
        let files = files.map(|(path, content)| Tracked::new(path, content)).into();
        are_held_by_what_there_is(&Workspace { files, ..Workspace::default() }).len()
    }

    #[test]
    fn a_finding_that_nothing_holds_is_a_violation() {
        let source = "    #[test]\n    fn it_holds() {}\n";
        let main = "Command::Kill(args) => (\"kill\", kill::run(args)),\n";
        let museum = "    (\"take-twice\", \"two lanes\", Simulation(1)),\n";
        let found = |page: &str| {
            let files = [(PAGE, page), (COMMANDS, main), (MUSEUM, museum), ("crates/net/src/a.rs", source)];
            let files = files.map(|(path, content)| Tracked::new(path, content)).into();
            findings_are_held(&Workspace { files, ..Workspace::default() }).len()
        };
        assert_eq!(found("| H1 | `cp --json` | `net::a::it_holds`, `trial kill`, bug `take-twice` |"), 0);
        assert_eq!(found("| `net::a::it_held` |\n| `trial kills`, bugs `take-twice`, `take-thrice` |"), 3);
    }

    #[test]
    fn a_test_or_command_that_is_not_there_is_a_violation() {
        assert_eq!(found("wire = [\n  [\"F001\", \"x\", \"KEEP\"],\n]"), 0);
        assert_eq!(found("  [\"F001\", \"x\", \"KEEP\", \"net::a::it_holds\", \"trial kill\"],"), 0);
        assert_eq!(found("  [\"F001\", \"x\", \"KEEP\",\n    \"net::a::it_held\",\n    \"trial kills\",\n  ],"), 2);
    }
}
