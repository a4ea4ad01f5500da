//! The documents a reader needs first exist, and the map names every room.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use crate::scan::occurrences;
use crate::workspace::{Tracked, Violation, Workspace};

const MAP: &str = "ARCHITECTURE.md";
const DOCUMENTS: &[&str] = &[MAP, "README.md", "CHANGELOG.md", "CONTRIBUTING.md", "LICENSE"];
const ENTRY: &str = ".ci/run";
/// What is at the root of the repository besides the documents.
const ROOT: &[&str] = &[
    ".cargo",
    ".ci",
    ".gitignore",
    "Cargo.lock",
    "Cargo.toml",
    "crates",
    "deny.toml",
    "docs",
    "fuzz",
    "packaging",
    "results",
    "rustfmt.toml",
];

pub fn are_present(workspace: &Workspace) -> Vec<Violation> {
    let absent = DOCUMENTS.iter().filter(|path| workspace.text(path).is_none_or(|text| text.trim().is_empty()));
    absent.map(|path| Violation::new(path, 0, "is missing or empty")).collect()
}

/// A page of `docs/` that another page sends its reader to exists: `docs/ssh.md`, or `(ssh.md)` inside the folder.
pub fn pages_exist(workspace: &Workspace) -> Vec<Violation> {
    let exists = |path: &str| workspace.files.iter().any(|file| file.path == path);
    let is_page = |file: &&Tracked| file.path.ends_with(".md") && !file.path.starts_with("results/");
    let mut violations = Vec::new();
    for file in workspace.files.iter().filter(is_page) {
        for (at, line) in file.text.as_deref().unwrap_or_default().lines().enumerate() {
            let missing = named_pages(line).into_iter().filter(|page| !exists(page));
            let message = |page: String| format!("sends its reader to {page}, which does not exist");
            violations.extend(missing.map(|page| Violation::new(&file.path, at + 1, message(page))));
        }
    }
    violations
}

/// Pages that a line names, as paths from the root.
fn named_pages(line: &str) -> Vec<String> {
    let is_of_path = |c: char| c.is_ascii_alphanumeric() || "-_./".contains(c);
    let mut pages = Vec::new();
    for (end, _) in line.match_indices(".md") {
        let start = line[..end].rfind(|c: char| !is_of_path(c)).map_or(0, |at| at + 1);
        let path = &line[start..end + ".md".len()];
        match (path.strip_prefix("docs/"), line[..start].ends_with("](")) {
            (Some(_), _) => pages.push(path.to_owned()),
            (None, true) if !path.contains('/') => pages.push(format!("docs/{path}")),
            _ => {}
        }
    }
    pages
}

/// A crate is named by its folder, which is also how the map writes it.
pub fn map_names_every_crate(workspace: &Workspace) -> Vec<Violation> {
    let Some(map) = workspace.text(MAP) else {
        return vec![Violation::new(MAP, 0, "is missing, so no crate is named")];
    };
    let folders = workspace.packages.iter().map(|package| package.folder.rsplit('/').next().unwrap_or_default());
    let unnamed = folders.filter(|folder| occurrences(map, folder).next().is_none());
    unnamed.map(|folder| Violation::new(MAP, 0, format!("does not name the crate {folder}"))).collect()
}

/// Files of a trial by hand end up at the root, and then in a commit.
pub fn root_has_only_what_it_should(workspace: &Workspace) -> Vec<Violation> {
    let mut others: Vec<&str> = workspace.files.iter().filter_map(|file| file.path.split('/').next()).collect();
    others.dedup();
    others.retain(|entry| !ROOT.contains(entry) && !DOCUMENTS.contains(entry));
    others.iter().map(|entry| Violation::new(entry, 0, "does not belong at the root of the repository")).collect()
}

pub fn entry_is_executable(workspace: &Workspace) -> Vec<Violation> {
    let mode = fs::metadata(workspace.root.join(ENTRY)).map(|metadata| metadata.permissions().mode());
    match mode {
        Ok(mode) if mode & 0o111 != 0 => Vec::new(),
        Ok(_) => vec![Violation::new(ENTRY, 0, "is not executable")],
        Err(error) => vec![Violation::new(ENTRY, 0, error.to_string())],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workspace::Package;

    #[test]
    fn a_page_that_does_not_exist_is_found_where_it_is_named() {
        let text = "see docs/a.md and [b](b.md)\n`docs/decisions/001-c.md`, `x.md`, README.md\n";
        let files = vec![Tracked::new("README.md", text), Tracked::new("docs/a.md", "a")];
        let found = pages_exist(&Workspace { files, ..Workspace::default() });
        let found: Vec<_> = found.iter().map(|violation| (violation.line, &violation.message[..])).collect();
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found[0].1.contains("docs/b.md") && found[1].1.contains("docs/decisions/001-c.md"), "{found:?}");
    }

    #[test]
    fn a_stray_file_at_the_root_is_found() {
        let files = ["README.md", "crates/a.rs", "a.log", "b/c"].map(|path| Tracked::new(path, "\n"));
        let found = root_has_only_what_it_should(&Workspace { files: files.into(), ..Workspace::default() });
        assert_eq!(found.iter().map(|violation| &violation.path[..]).collect::<Vec<_>>(), ["a.log", "b"]);
    }

    #[test]
    fn a_missing_document_and_an_unnamed_crate_are_found() {
        let package =
            |name: &str| Package { name: name.into(), folder: format!("crates/{name}"), ..Package::default() };
        let files = vec![Tracked::new(MAP, "`wire` and modelling"), Tracked::new("README.md", "\n")];
        let workspace = Workspace { files, packages: vec![package("wire"), package("model")], ..Workspace::default() };
        assert_eq!(are_present(&workspace).len(), DOCUMENTS.len() - 1);
        assert_eq!(map_names_every_crate(&workspace).len(), 1);
    }
}
