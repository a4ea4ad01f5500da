//! Words that must not stand in the tree: unfinished code, silenced warnings, empty names, traces of a machine.
//!
//! Patterns for code are literals, and literals are taken away before code is searched; patterns for text are put together
//! by `concat!`. That is how the lists do not find themselves.

use crate::scan::{bracket_end, identifier_after, line_at, occurrences};
use crate::workspace::{Tracked, Violation, Workspace};

/// In code, tests included.
const CODE: &[(&str, &str)] = &[
    ("todo!", "unfinished code"),
    ("unimplemented!", "unfinished code"),
    ("dbg!", "left from debugging"),
    ("#[ignore", "a test that does not run proves nothing"),
];

/// Lints that must not be allowed. `expect` with a reason stays possible, for a field that only keeps something alive.
const NEVER_ALLOWED: &[&str] = &["dead_code", "unused"];

/// In any text, comments included.
const TEXT: &[(&str, &str)] = &[
    (concat!("FIX", "ME"), "finish it, or open an issue and cite it"),
    (concat!("X", "XX"), "finish it, or open an issue and cite it"),
];

/// Directories of one machine. A match counts only where an absolute path can begin.
const MACHINE_PATHS: &[&str] =
    &[concat!("/wo", "rk/"), concat!("/fa", "rm/"), concat!("/tmp/", "brief"), concat!("/tmp/", "target-")];

/// The places packages come from are the user's configuration; only the lock file has to name one.
const REGISTRY_HOSTS: &[&str] = &[
    concat!("crates", ".io"),
    concat!("pypi", ".org"),
    concat!("files.python", "hosted.org"),
    concat!("npm", "js"),
    concat!("registry.", "yarnpkg.com"),
    concat!("proxy.", "golang.org"),
    concat!("deb.", "debian.org"),
    concat!("security.", "debian.org"),
    concat!("repo1.", "maven.org"),
    concat!("repo.", "maven.apache.org"),
    concat!("search.", "maven.org"),
    concat!("central.", "sonatype"),
    concat!("ruby", "gems.org"),
];
const LOCK_FILE: &str = "Cargo.lock";

/// Names that say nothing; `job_manager` is as empty as `manager`.
const EMPTY_NAMES: &[&str] =
    &["util", "utils", "helper", "helpers", "manager", "managers", "common", "misc", "miscellaneous"];

pub fn code(workspace: &Workspace) -> Vec<Violation> {
    let mut violations = Vec::new();
    for (file, rust) in workspace.rust_files() {
        let silenced = allowances(&rust.code)
            .filter(|(_, lints)| NEVER_ALLOWED.iter().any(|never| occurrences(lints, never).next().is_some()));
        // What test programs share is compiled into each of them, and each uses its part.
        let silenced = silenced.filter(|_| !file.path.contains("/tests/support/"));
        violations.extend(silenced.map(|(line, lints)| {
            Violation::new(&file.path, line, format!("allow{lints}: code without a caller is removed, not silenced"))
        }));
        for (pattern, reason) in CODE {
            let lines = occurrences(&rust.code, pattern).map(|at| line_at(&rust.code, at));
            violations.extend(lines.map(|line| Violation::new(&file.path, line, format!("{pattern}: {reason}"))));
        }
    }
    violations
}

/// Raw samples are recorded, not written, so results are exempt.
pub fn text(workspace: &Workspace) -> Vec<Violation> {
    let mut violations = Vec::new();
    for (file, text) in
        texts(workspace).filter(|(file, _)| file.path != LOCK_FILE && !file.path.starts_with("results/"))
    {
        for (pattern, reason) in TEXT {
            let lines = occurrences(text, pattern).map(|at| line_at(text, at));
            violations.extend(lines.map(|line| Violation::new(&file.path, line, format!("{pattern}: {reason}"))));
        }
    }
    violations
}

pub fn machine_paths(workspace: &Workspace) -> Vec<Violation> {
    let mut violations = Vec::new();
    for (file, text) in texts(workspace) {
        for pattern in MACHINE_PATHS {
            let starts = text.match_indices(pattern).map(|(at, _)| at).filter(|&at| begins_a_path(text, at));
            let message = format!("{pattern} is a path of one machine");
            violations.extend(starts.map(|at| Violation::new(&file.path, line_at(text, at), &message)));
        }
    }
    violations
}

pub fn registry_hosts(workspace: &Workspace) -> Vec<Violation> {
    let mut violations = Vec::new();
    for (file, text) in texts(workspace).filter(|(file, _)| file.path != LOCK_FILE) {
        for host in REGISTRY_HOSTS {
            let lines = occurrences(text, host).map(|at| line_at(text, at));
            let message = format!("{host} is a package registry");
            violations.extend(lines.map(|line| Violation::new(&file.path, line, &message)));
        }
    }
    violations
}

/// No file, folder or inline module has an empty name.
pub fn module_names(workspace: &Workspace) -> Vec<Violation> {
    let mut violations = Vec::new();
    for (file, rust) in workspace.rust_files() {
        let parts = file.path.split('/').map(|part| part.trim_end_matches(".rs"));
        let named = parts.filter(|part| is_empty_name(part)).map(|part| (0, part));
        let modules = occurrences(&rust.code, "mod").filter_map(|at| Some((at, identifier_after(&rust.code, at + 3)?)));
        let declared = modules.filter(|(_, name)| is_empty_name(name));
        let declared = declared.map(|(at, name)| (line_at(&rust.code, at), name));
        let found = named.chain(declared);
        violations.extend(found.map(|(line, name)| Violation::new(&file.path, line, format!("{name} is no name"))));
    }
    violations
}

/// Each source file first says what it owns.
pub fn openings(workspace: &Workspace) -> Vec<Violation> {
    let sources = texts(workspace).filter(|(file, _)| file.rust.is_some() && file.is_source());
    let silent = sources.filter(|(_, text)| {
        let first = text.lines().next().unwrap_or_default();
        first.strip_prefix("//!").is_none_or(|words| words.trim().is_empty())
    });
    silent.map(|(file, _)| Violation::new(&file.path, 1, "must open with //! and what the file owns")).collect()
}

fn texts(workspace: &Workspace) -> impl Iterator<Item = (&Tracked, &str)> {
    workspace.files.iter().filter_map(|file| Some((file, file.text.as_deref()?)))
}

/// Each `allow(...)` with its line and what stands in its parentheses, these included.
fn allowances(code: &str) -> impl Iterator<Item = (usize, &str)> {
    let starts = occurrences(code, "allow(").map(|at| at + "allow".len());
    starts.map(|open| (line_at(code, open), &code[open..bracket_end(code.as_bytes(), open)]))
}

fn begins_a_path(text: &str, at: usize) -> bool {
    let before = text[..at].chars().next_back();
    before.is_none_or(|before| !before.is_alphanumeric() && !"_-.~}>)$*/".contains(before))
}

fn is_empty_name(name: &str) -> bool {
    let last = name.rsplit('_').next().unwrap_or(name);
    EMPTY_NAMES.contains(&last)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with_file(path: &str, text: &str) -> Workspace {
        Workspace { files: vec![Tracked::new(path, text)], ..Workspace::default() }
    }

    fn lines(violations: &[Violation]) -> Vec<usize> {
        violations.iter().map(|violation| violation.line).collect()
    }

    #[test]
    fn unfinished_and_silenced_code_is_found() {
        let found = |text| lines(&code(&with_file("crates/a/src/a.rs", text)));
        assert_eq!(found("fn f() { todo!() }\n#[ignore = \"\"]\n// dbg! \nlet s = \"dbg!\";\nmy_dbg!();"), [1, 2]);
        assert_eq!(found("#![allow(unused)]\n#[cfg_attr(x, allow(y, dead_code))]"), [1, 2]);
        assert_eq!(found("#[allow(unused_mut)]\n#[expect(dead_code, reason = \"held\")]"), [0; 0]);
    }

    #[test]
    fn marks_of_unfinished_work_are_found_as_whole_words() {
        let text = format!("# {}\ntemplate.{}\n({})", TEXT[0].0, "X".repeat(6), TEXT[1].0);
        assert_eq!(lines(&super::text(&with_file("docs/a.md", &text))), [1, 3]);
        assert_eq!(super::text(&with_file("results/a.csv", &text)), []);
    }

    #[test]
    fn machine_paths_are_found_only_where_a_path_begins() {
        for path in MACHINE_PATHS {
            let text = format!("cd {path}\n\"{path}x\"\nsome{path}\n{{root}}{path}\nhttps://host.example{path}");
            assert_eq!(lines(&machine_paths(&with_file("a.md", &text))), [1, 2]);
        }
    }

    #[test]
    fn registry_hosts_are_found_outside_the_lock_file() {
        for host in REGISTRY_HOSTS {
            let text = format!("see https://{host}/x");
            assert_eq!(registry_hosts(&with_file("README.md", &text)).len(), 1, "{host}");
            assert_eq!(registry_hosts(&with_file(LOCK_FILE, &text)), []);
        }
    }

    #[test]
    fn empty_names_are_found_in_paths_and_modules() {
        let found = |path, text| module_names(&with_file(path, text)).len();
        assert_eq!(found("crates/a/src/util.rs", ""), 1);
        assert_eq!(found("crates/a/tests/common/mod.rs", ""), 1);
        assert_eq!(found("crates/a/src/lib.rs", "mod job_manager;\npub mod misc {}\nmod commons;"), 2);
        assert_eq!(found("crates/a/src/common_prefix.rs", ""), 0);
    }

    #[test]
    fn a_source_file_without_an_opening_is_found() {
        let found = |path, text| openings(&with_file(path, text)).len();
        assert_eq!(found("crates/a/src/a.rs", "use a;\n//! Late."), 1);
        assert_eq!(found("crates/a/src/a.rs", "//!\n"), 1);
        assert_eq!(found("crates/a/src/a.rs", "//! Owns a."), 0);
        assert_eq!(found("crates/a/tests/a.rs", "use a;"), 0);
    }
}
