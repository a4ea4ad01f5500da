//! The documents a reader needs first exist, and the map names every room.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use crate::scan::occurrences;
use crate::workspace::{Violation, Workspace};

const MAP: &str = "ARCHITECTURE.md";
const DOCUMENTS: &[&str] = &[MAP, "README.md", "CHANGELOG.md", "CONTRIBUTING.md", "LICENSE"];
const ENTRY: &str = ".ci/run";

pub fn are_present(workspace: &Workspace) -> Vec<Violation> {
    let absent = DOCUMENTS.iter().filter(|path| workspace.text(path).is_none_or(|text| text.trim().is_empty()));
    absent.map(|path| Violation::new(path, 0, "is missing or empty")).collect()
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
    use crate::workspace::{Package, Tracked};

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
