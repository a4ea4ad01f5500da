//! The outline of one Rust file: its functions, the lines that are tests, and the paths it imports.
//!
//! Works on masked code (see `scan`), so text in comments and literals is never mistaken for code. A macro that makes
//! functions is counted as written, not as expanded.

use crate::scan::{ItemEnd, bracket_end, identifier_after, item_end, line_at, occurrences};

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Function {
    pub name: String,
    /// The line of the word `fn`, counted from one.
    pub line: usize,
    /// From the line of the word `fn` to that of the closing brace, both included.
    pub lines: usize,
}

/// What `#[cfg(test)]` covers in one file.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Tests {
    /// Line ranges, first and last included, counted from one.
    pub regions: Vec<(usize, usize)>,
    /// Modules that are tests and live in files of their own.
    pub modules: Vec<String>,
}

impl Tests {
    pub fn contains(&self, line: usize) -> bool {
        self.regions.iter().any(|&(first, last)| (first..=last).contains(&line))
    }
}

/// All functions with a body, in order; a nested function counts for itself and for the one around it.
pub fn functions(code: &str) -> Vec<Function> {
    let starts = occurrences(code, "fn").filter_map(|at| Some((at, identifier_after(code, at + 2)?)));
    let bodies = starts.filter_map(|(at, name)| match item_end(code, at) {
        ItemEnd::Body { end, .. } => Some((at, end, name)),
        ItemEnd::Semicolon { .. } => None,
    });
    bodies
        .map(|(at, end, name)| {
            let line = line_at(code, at);
            Function { name: name.to_owned(), line, lines: line_at(code, end - 1) - line + 1 }
        })
        .collect()
}

pub fn tests(code: &str) -> Tests {
    let mut tests = Tests::default();
    let last_line = line_at(code, code.len());
    for (at, _) in code.match_indices("#![cfg(") {
        if is_test_condition(&code[at + 2..bracket_end(code.as_bytes(), at + 2)]) {
            tests.regions.push((1, last_line));
        }
    }
    for (at, _) in code.match_indices("#[cfg(") {
        let attribute_end = bracket_end(code.as_bytes(), at + 1);
        if !is_test_condition(&code[at + 1..attribute_end]) {
            continue;
        }
        let item = after_attributes(code, attribute_end);
        let end = item_end(code, item);
        tests.regions.push((line_at(code, at), line_at(code, end.position().saturating_sub(1))));
        if let ItemEnd::Semicolon { end } = end
            && let Some(module) = occurrences(&code[item..end], "mod").next()
        {
            tests.modules.extend(identifier_after(code, item + module + 3).map(str::to_owned));
        }
    }
    tests
}

/// Every imported path, groups written out: `use std::{fs, io::{self, Read}}` gives three.
pub fn imports(code: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    for at in occurrences(code, "use") {
        let statement = code[at + 3..].split(';').next().unwrap_or_default();
        let mut paths = Vec::new();
        expand("", statement, &mut paths);
        found.extend(paths.into_iter().map(|path| (line_at(code, at), path)));
    }
    found
}

/// `#[cfg(test)]` and `#[cfg(all(test, ...))]`; a condition that merely allows tests does not make its item one.
fn is_test_condition(attribute: &str) -> bool {
    let condition: String = attribute.split_whitespace().collect();
    condition == "[cfg(test)]" || condition.starts_with("[cfg(all(test,")
}

fn after_attributes(code: &str, mut at: usize) -> usize {
    loop {
        at += code[at..].len() - code[at..].trim_start().len();
        if !code[at..].starts_with("#[") {
            return at;
        }
        at = bracket_end(code.as_bytes(), at + 1);
    }
}

fn expand(prefix: &str, tree: &str, paths: &mut Vec<String>) {
    let tree = tree.trim();
    match tree.split_once('{') {
        Some((head, group)) => {
            let prefix = format!("{prefix}{}", head.trim());
            let group = group.trim_end().strip_suffix('}').unwrap_or(group);
            split_group(group).for_each(|branch| expand(&prefix, branch, paths));
        }
        None => {
            let name = tree.split_whitespace().next().unwrap_or_default();
            let path = if name == "self" { prefix.trim_end_matches(':').to_owned() } else { format!("{prefix}{name}") };
            paths.push(path.trim_start_matches(':').to_owned());
        }
    }
}

/// Splits at the commas that are not inside a nested group.
fn split_group(group: &str) -> impl Iterator<Item = &str> {
    let mut depth = 0_usize;
    let branches = group.split(move |character| {
        match character {
            '{' => depth += 1,
            '}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        character == ',' && depth == 0
    });
    branches.filter(|branch| !branch.trim().is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scan::mask;

    #[test]
    fn functions_are_found_with_their_lengths() {
        let code =
            mask("trait T {\n fn a(&self);\n fn b(&self) {\n  // }\n  \"}\";\n }\n}\ntype F = fn(u8);\nfn c() {}\n");
        let found: Vec<_> = functions(&code).into_iter().map(|f| (f.name, f.line, f.lines)).collect();
        assert_eq!(found, [("b".to_owned(), 3, 4), ("c".to_owned(), 9, 1)]);
    }

    #[test]
    fn test_modules_are_regions_or_files() {
        let code = "fn a() {}\n#[cfg(test)]\n#[path]\nmod tests {\n fn b() {}\n}\nfn c() {}\n#[cfg(test)]\nmod pair;\n";
        let found = tests(code);
        assert_eq!(found, Tests { regions: vec![(2, 6), (8, 9)], modules: vec!["pair".to_owned()] });
        assert!(found.contains(5) && !found.contains(7));
    }

    #[test]
    fn code_that_tests_merely_share_is_not_a_test() {
        assert_eq!(tests("#[cfg(any(test, feature))]\nmod a {}\n#[cfg(not(test))]\nmod b {}\n"), Tests::default());
        assert_eq!(tests("#![cfg(test)]\nfn a() {}").regions, [(1, 2)]);
        assert_eq!(tests("#[cfg(all(test, unix))]\nfn a() {\n}").regions, [(1, 3)]);
    }

    #[test]
    fn imports_are_written_out() {
        let found: Vec<_> = imports("use a::b as c;\nuse std::{fs, io::{self, Read}, net as n};\n");
        let paths: Vec<_> = found.iter().map(|(line, path)| (*line, path.as_str())).collect();
        assert_eq!(paths, [(1, "a::b"), (2, "std::fs"), (2, "std::io"), (2, "std::io::Read"), (2, "std::net")]);
    }
}
