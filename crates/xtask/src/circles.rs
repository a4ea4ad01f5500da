//! Circles of files: those of one crate that use each other, directly or by way of others. Whoever wants to understand one
//! of them has to read them all.
//!
//! A ratchet: each crate has the number of its files that are in circles, and the number only falls. Tests do not count, nor does
//! what a file only passes on from its own modules (`pub use`).

use std::collections::{BTreeMap, BTreeSet};

use crate::outline;
use crate::scan::{is_word, line_at, occurrences};
use crate::workspace::{Rust, Violation, Workspace};

/// A crate's folder, and how many of its files are in circles. Crates without circles have no row.
const FILES_IN_CIRCLES: &[(&str, usize)] = &[("conformance", 15), ("trial", 22)];

/// A module's path below its crate; the crate itself has none.
type Module = Vec<String>;

/// The number of files in circles of each crate is the one in the table.
pub fn files(workspace: &Workspace) -> Vec<Violation> {
    let mut crates: BTreeMap<&str, BTreeMap<Module, &Rust>> = BTreeMap::new();
    for (file, rust) in workspace.rust_files().filter(|(file, _)| file.is_source()) {
        let mut parts = file.path.splitn(4, '/').skip(1);
        if let (Some(name), _, Some(below)) = (parts.next(), parts.next(), parts.next()) {
            crates.entry(name).or_default().insert(module_of(below), rust);
        }
    }
    let mut violations = Vec::new();
    for (name, modules) in &crates {
        let found = in_circles(modules);
        let allowed = FILES_IN_CIRCLES.iter().find(|(row, _)| row == name).map_or(0, |(_, files)| *files);
        if found.len() != allowed {
            let names: Vec<_> = found.iter().map(|module| module.join("::")).collect();
            let what = if found.len() > allowed { "move what they share" } else { "lower the number in circles.rs" };
            let message = format!("{} files in circles, not {allowed}: {what} ({})", found.len(), names.join(", "));
            violations.push(Violation::new(&format!("crates/{name}/src"), 0, message));
        }
    }
    violations
}

/// The modules that can be reached from themselves.
fn in_circles(modules: &BTreeMap<Module, &Rust>) -> Vec<Module> {
    let used: BTreeMap<&Module, BTreeSet<Module>> =
        modules.iter().map(|(module, rust)| (module, used_by(module, rust, modules))).collect();
    let reaches_itself = |module: &&Module| {
        let mut seen = BTreeSet::new();
        let mut open: Vec<&Module> = used[*module].iter().collect();
        while let Some(next) = open.pop() {
            if seen.insert(next) {
                open.extend(&used[next]);
            }
        }
        seen.contains(*module)
    };
    modules.keys().filter(reaches_itself).cloned().collect()
}

/// The other modules with files of their own that a file names.
fn used_by(module: &Module, rust: &Rust, modules: &BTreeMap<Module, &Rust>) -> BTreeSet<Module> {
    let lines: Vec<&str> = rust.code.lines().collect();
    let passes_on = |line: usize| lines.get(line - 1).is_some_and(|text| text.trim_start().starts_with("pub"));
    let mut used = BTreeSet::new();
    for (line, path) in outline::imports(&rust.code).into_iter().chain(paths(&rust.code)) {
        let target = resolve(module, &path, modules).filter(|target| target != module && modules.contains_key(target));
        let Some(target) = target.filter(|_| !rust.tests.contains(line)) else { continue };
        let is_child = target.len() > module.len() && target.starts_with(module);
        if !(is_child && passes_on(line)) {
            used.insert(target);
        }
    }
    used
}

/// Paths of at least two names outside of imports, with their lines.
fn paths(code: &str) -> Vec<(usize, String)> {
    let bytes = code.as_bytes();
    let imports: Vec<_> =
        occurrences(code, "use").map(|at| at..at + code[at..].find(';').unwrap_or(code.len() - at)).collect();
    let is_part = |at: usize| bytes.get(at).is_some_and(|byte| is_word(*byte) || *byte == b':');
    let mut found = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        let end = (at..).find(|at| !is_part(*at)).unwrap_or(bytes.len());
        let is_imported = || imports.iter().any(|range| range.contains(&at));
        if code[at..end].contains("::") && !is_imported() {
            found.push((line_at(code, at), code[at..end].to_owned()));
        }
        at = end.max(at) + 1;
    }
    found
}

/// The module with a file of its own that a path, read in `module`, leads to.
fn resolve(module: &Module, path: &str, modules: &BTreeMap<Module, &Rust>) -> Option<Module> {
    let mut names = path.split("::").peekable();
    let mut at = match *names.peek()? {
        "crate" => Module::new(),
        "self" | "super" => module.clone(),
        name => {
            let child = [&module[..], &[name.to_owned()]].concat();
            return modules.contains_key(&child).then(|| deepest(child, names.skip(1), modules));
        }
    };
    while let Some(name) = names.next_if(|name| ["crate", "self", "super"].contains(name)) {
        if name == "super" {
            at.pop();
        }
    }
    Some(deepest(at, names, modules))
}

fn deepest<'a>(mut at: Module, names: impl Iterator<Item = &'a str>, modules: &BTreeMap<Module, &Rust>) -> Module {
    for name in names {
        at.push(name.to_owned());
        if !modules.contains_key(&at) {
            at.pop();
            break;
        }
    }
    at
}

/// `a/b.rs` and `a/b/mod.rs` are `a::b`.
fn module_of(below: &str) -> Module {
    let mut names: Module = below.trim_end_matches(".rs").split('/').map(str::to_owned).collect();
    if names.last().is_some_and(|name| ["lib", "main", "mod"].contains(&name.as_str())) {
        names.pop();
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workspace::Tracked;

    fn found(files: &[(&str, &str)]) -> Vec<String> {
        let files = files.iter().map(|(path, text)| Tracked::new(format!("crates/x/src/{path}"), *text)).collect();
        let workspace = Workspace { files, ..Workspace::default() };
        super::files(&workspace).into_iter().map(|violation| violation.message).collect()
    }

    #[test]
    fn files_that_use_each_other_are_found_whichever_way_they_say_so() {
        for uses in ["use crate::b::f;", "use super::b::f;", "fn g() { crate::b::f() }", "use crate::{b::f, c};"] {
            let circle = found(&[("a.rs", uses), ("b.rs", "use crate::c;"), ("c.rs", "use crate::a;")]);
            assert_eq!(circle.len(), 1, "{uses}");
            assert!(
                circle[0].starts_with("3 files in circles, not 0") && circle[0].ends_with("(a, b, c)"),
                "{circle:?}"
            );
        }
        let nested = found(&[("a/mod.rs", "mod b; fn f() { b::g() }"), ("a/b.rs", "use super::f;")]);
        assert!(nested[0].ends_with("(a, a::b)"), "{nested:?}");
    }

    #[test]
    fn what_is_passed_on_or_used_by_tests_makes_no_circle() {
        assert!(found(&[("a/mod.rs", "mod b;\npub use b::f;\npub struct S;"), ("a/b.rs", "use super::S;")]).is_empty());
        let test = "#[cfg(test)]\nmod tests { use crate::b; }";
        assert!(found(&[("a.rs", test), ("b.rs", "use crate::a;")]).is_empty());
        assert!(found(&[("a.rs", "use std::b;"), ("b.rs", "use crate::a;")]).is_empty());
    }
}
