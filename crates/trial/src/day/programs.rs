//! The program that a day begins with, and the one that every process becomes soon after.
//!
//! `THALWEG_PREVIOUS_BIN` names the first, as for the end-to-end tests; without it both are the program under trial, and the record says
//! so. Invariant: where it is named, the two are not the same.

use crate::outside::ground::thalweg;
use crate::outside::process::output_of;
use anyhow::{Context, Result, ensure};
use std::fs;
use std::path::{Path, PathBuf};

const PREVIOUS: &str = "THALWEG_PREVIOUS_BIN";

pub struct Program {
    pub path: PathBuf,
    sha256: String,
    version: String,
}

pub struct Programs {
    pub first: Program,
    pub last: Program,
    is_upgrade: bool,
}

impl Programs {
    /// `last` is the program under trial, `dir` a place for what the programs keep.
    pub fn find(last: &Path, previous: Option<PathBuf>, dir: &Path) -> Result<Programs> {
        let is_upgrade = previous.is_some();
        let first = previous.unwrap_or_else(|| last.to_owned());
        let first = first.canonicalize().with_context(|| format!("{PREVIOUS} names {}", first.display()))?;
        let (first, last) = (Program::look(&first, dir)?, Program::look(last, dir)?);
        if is_upgrade {
            ensure!(
                first.sha256 != last.sha256,
                "{PREVIOUS} names the program under trial itself: name an earlier one, or unset it"
            );
            let asked = output_of(thalweg(&first.path, dir, "home-looks", &["hub", "--help"]));
            asked.context(format!("{PREVIOUS} names a program without a hub: name a later one, or unset it"))?;
        }
        Ok(Programs { first, last, is_upgrade })
    }

    /// What `THALWEG_PREVIOUS_BIN` says.
    pub fn previous() -> Option<PathBuf> {
        std::env::var_os(PREVIOUS).map(PathBuf::from)
    }

    pub fn is_upgrade(&self) -> bool {
        self.is_upgrade
    }

    /// For the record: which they are, and whether one replaced the other.
    pub fn told(&self) -> [(&'static str, String); 3] {
        let upgrade = match self.is_upgrade {
            true => "from an earlier program to the one under trial",
            false => "none: old and new are the same program at two places (THALWEG_PREVIOUS_BIN names no earlier one)",
        };
        let shown = |program: &Program| format!("{}, SHA-256 {}", program.version, program.sha256);
        [
            ("program at first", shown(&self.first)),
            ("program in the end", shown(&self.last)),
            ("upgrade", upgrade.to_owned()),
        ]
    }
}

impl Program {
    fn look(path: &Path, dir: &Path) -> Result<Program> {
        let bytes = fs::read(path).with_context(|| format!("read {}", path.display()))?;
        let sha256 = net::sha256(&bytes).iter().map(|byte| format!("{byte:02x}")).collect();
        let said = output_of(thalweg(path, dir, "home-looks", &["--version"]))?;
        Ok(Program { path: path.to_owned(), sha256, version: said.lines().next().unwrap_or_default().to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn an_upgrade_to_the_same_program_is_refused_and_none_is_told() {
        let dir = tempfile::tempdir().unwrap();
        let script = |name: &str, text: &str| {
            let path = dir.path().join(name);
            fs::write(&path, format!("#!/bin/sh\n{text}\n")).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
            path
        };
        let [new, same] = ["new", "same"].map(|name| script(name, "echo thalweg 9"));
        let (old, hubless) = (script("old", "echo thalweg 8"), script("hubless", r#"[ "$1" = --version ]"#));
        let found = |previous| Programs::find(&new, previous, dir.path());
        let said = |previous| format!("{:#}", found(Some(previous)).err().unwrap());
        assert!(said(same).contains("itself") && said(hubless).contains("without a hub"));
        let told = found(Some(old)).unwrap().told().map(|(_, text)| text);
        assert!(told[0].starts_with("thalweg 8, SHA-256 ") && told[1].starts_with("thalweg 9, SHA-256 "));
        assert!(told[2].starts_with("from an earlier program"));
        assert!(found(None).unwrap().told()[2].1.starts_with("none: old and new are the same program"));
    }
}
