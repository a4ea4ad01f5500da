//! The program of an earlier commit, which `packaging/earlier-commit` names, so that tests can prove that the two understand each
//! other. There is no release yet; from the first one on it is that of the release before.
//!
//! Sources without a history (an archive) have no earlier commit: then there is nothing to build, and that is said.
//! Its sources are taken out of the history to `target/previous/source`; nothing is written to the repository's own
//! `.git`, except by a fetch where a shallow clone lacks the commit. The build shares the target directory, and with it
//! everything that is compiled of packages from outside; the program is kept as `target/previous/thalweg`, beside the
//! name of its commit and its features, and made again only when those change.
//! Invariant: it is built before the product, whose file in the target directory it takes for a moment.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};

use crate::workspace::Workspace;

/// What it has beside what a build has without being asked: a day of a facility begins with the earlier hub.
const FEATURES: &str = "hub";

/// The first line that is no comment is the commit's full name.
const FILE: &str = "packaging/earlier-commit";

/// Where the program is kept.
pub fn program(workspace: &Workspace) -> PathBuf {
    folder(workspace).join("thalweg")
}

pub const NO_HISTORY: &str = "these sources have no git history, so no earlier commit is at hand";

/// Whether these sources come with a history. An archive of them does not.
pub fn has_history(workspace: &Workspace) -> bool {
    workspace.root.join(".git").exists()
}

/// Builds it, and prints where it is.
pub fn run() -> Result<bool> {
    let workspace = Workspace::read()?;
    if !has_history(&workspace) {
        println!("nothing built: {NO_HISTORY}");
        return Ok(true);
    }
    let note = build(&workspace, |arguments| {
        let ran = Command::new("cargo").args(arguments).current_dir(&workspace.root).status().context("run cargo")?;
        Ok((ran.success(), "what the compiler says is above".to_owned()))
    })?;
    println!("{}: {note}", program(&workspace).display());
    Ok(true)
}

/// Builds it with `cargo`, which says whether it succeeded and what it said. Returns what is to be told.
pub fn build(workspace: &Workspace, cargo: impl FnOnce(&[String]) -> Result<(bool, String)>) -> Result<String> {
    let commit = commit(workspace.text(FILE).with_context(|| format!("{FILE} is missing"))?)?;
    let (folder, program) = (folder(workspace), program(workspace));
    let (short, kept, what) = (&commit[..7], folder.join("commit"), made_of(&commit));
    if program.is_file() && fs::read_to_string(&kept).is_ok_and(|text| text == what) {
        return Ok(format!("{short}, kept"));
    }
    let source = folder.join("source");
    for stale in [&program, &kept] {
        remove(fs::remove_file(stale), stale)?;
    }
    remove(fs::remove_dir_all(&source), &source)?;
    fs::create_dir_all(&source).with_context(|| format!("make {}", source.display()))?;
    has_commit(&workspace.root, &commit)?;
    extract(&workspace.root, &commit, &source)?;
    let (is_success, log) = cargo(&arguments(workspace, &source)?)?;
    if !is_success {
        let lines: Vec<&str> = log.lines().collect();
        let last = &lines[lines.len().saturating_sub(40)..];
        bail!("the program of the earlier commit ({short}) does not build:\n{}", last.join("\n"));
    }
    let built = workspace.target.join("release/thalweg");
    fs::copy(&built, &program).with_context(|| format!("keep {}", built.display()))?;
    fs::write(&kept, what).with_context(|| format!("write {}", kept.display()))?;
    Ok(format!("{short}, built"))
}

/// What is written down of a program that is kept.
fn made_of(commit: &str) -> String {
    format!("{commit} with {FEATURES}\n")
}

fn folder(workspace: &Workspace) -> PathBuf {
    workspace.target.join("previous")
}

fn commit(text: &str) -> Result<String> {
    let line = text.lines().map(str::trim).find(|line| !line.is_empty() && !line.starts_with('#'));
    let commit = line.with_context(|| format!("{FILE} names no commit"))?;
    let is_name = commit.len() == 40 && commit.bytes().all(|b| b.is_ascii_hexdigit());
    ensure!(is_name, "{FILE} names {commit:?}, and the full name of a commit has 40 hexadecimal digits");
    Ok(commit.to_owned())
}

/// Packages from outside as the product has them, in features and profile, so that they are there already; and this
/// workspace's own crates without optimization: what it says counts, not how fast.
fn arguments(workspace: &Workspace, source: &Path) -> Result<Vec<String>> {
    let members = fs::read_dir(source.join("crates")).into_iter().flatten().flatten();
    let members = members.filter_map(|entry| entry.file_name().into_string().ok());
    let members = members.map(|name| if name == "cli" { "thalweg".to_owned() } else { name });
    let own: String =
        members.map(|name| format!("[profile.release.package.{name}]\nopt-level = 0\ncodegen-units = 16\n")).collect();
    let mut arguments: Vec<String> =
        ["build", "--release", "--locked", "-p", "thalweg", "--features", FEATURES, "--manifest-path"]
            .map(str::to_owned)
            .into();
    arguments.push(source.join("Cargo.toml").display().to_string());
    arguments.extend(["--target-dir".to_owned(), workspace.target.display().to_string()]);
    let manifest = workspace.text("Cargo.toml").context("Cargo.toml is missing")?;
    for (name, text) in [("present.toml", release_profile(manifest)), ("own.toml", own)] {
        let path = folder(workspace).join(name);
        fs::write(&path, text).with_context(|| format!("write {}", path.display()))?;
        arguments.extend(["--config".to_owned(), path.display().to_string()]);
    }
    Ok(arguments)
}

/// The sections of a manifest that say how a release is built.
fn release_profile(manifest: &str) -> String {
    let mut is_inside = false;
    let lines = manifest.lines().filter(|line| {
        if line.starts_with('[') {
            is_inside = line.starts_with("[profile.release]") || line.starts_with("[profile.release.");
        }
        is_inside
    });
    lines.map(|line| format!("{line}\n")).collect()
}

/// Makes sure that the history here holds the commit; a shallow clone is asked to fetch it.
fn has_commit(root: &Path, commit: &str) -> Result<()> {
    let is_there = || git(root, &["cat-file", "-e", &format!("{commit}^{{commit}}")]).is_ok();
    if is_there() {
        return Ok(());
    }
    let fetched = git(root, &["fetch", "--no-tags", "--depth=1", "origin", commit])
        .or_else(|_| git(root, &["fetch", "--no-tags", "--unshallow", "origin"]));
    ensure!(
        is_there(),
        "{FILE} names the commit {commit}, which is not in the history here{}\n\
         hint: this clone is shallow or of another branch: `git fetch --unshallow`, or clone the whole history",
        fetched.err().map_or(String::new(), |e| format!(" and cannot be fetched from origin: {e:#}"))
    );
    Ok(())
}

fn extract(root: &Path, commit: &str, to: &Path) -> Result<()> {
    let mut archive = Command::new("git");
    archive.args(["archive", "--format=tar", commit]).current_dir(root).stdout(Stdio::piped());
    let mut archive = archive.spawn().context("run git archive")?;
    let tar = archive.stdout.take().context("a pipe was asked for")?;
    let unpacked = Command::new("tar").args(["-x", "-C"]).arg(to).stdin(tar).status().context("run tar")?;
    let is_whole = archive.wait().context("wait for git archive")?.success();
    ensure!(unpacked.success() && is_whole, "the sources of {commit} could not be taken out of the history");
    Ok(())
}

fn git(root: &Path, arguments: &[&str]) -> Result<()> {
    let mut command = Command::new("git");
    // Never a question on the terminal.
    command.args(arguments).current_dir(root).env("GIT_TERMINAL_PROMPT", "0").stdin(Stdio::null());
    let ran = command.output().context("run git")?;
    ensure!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr).trim());
    Ok(())
}

fn remove(removed: std::io::Result<()>, path: &Path) -> Result<()> {
    match removed {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
            Err(e).with_context(|| format!("remove {}", path.display()))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_commit_is_named_in_full_below_comments() {
        let name = "0123456789abcdef0123456789abcdef01234567";
        assert_eq!(commit(&format!("# why\n\n{name}\n")).unwrap(), name);
        for wrong in ["", "# only\n", "main\n", "0123456\n"] {
            assert!(commit(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn a_program_that_was_kept_without_its_features_is_another() {
        let name = "0123456789abcdef0123456789abcdef01234567";
        assert_ne!(made_of(name), name);
        assert!(made_of(name).contains(FEATURES));
    }

    #[test]
    fn the_profile_of_a_release_is_taken_from_a_manifest_whole() {
        let manifest = "[workspace]\nmembers = []\n[profile.release]\nstrip = true\n[profile.release.package.\"*\"]\n\
            opt-level = 2\n[profile.dev]\nopt-level = 1\n";
        let expected = "[profile.release]\nstrip = true\n[profile.release.package.\"*\"]\nopt-level = 2\n";
        assert_eq!(release_profile(manifest), expected);
    }

    #[test]
    fn the_commit_is_in_the_history_or_the_clone_is_shallow() {
        let workspace = Workspace::read().unwrap();
        let commit = commit(workspace.text(FILE).unwrap()).unwrap();
        if !has_history(&workspace) {
            eprintln!("not looked for: {NO_HISTORY}");
            return;
        }
        let is_shallow = git(&workspace.root, &["rev-parse", "--verify", &format!("{commit}^{{commit}}")]).is_err();
        assert!(!is_shallow || workspace.root.join(".git/shallow").exists(), "{commit} is not in the history");
    }

    #[test]
    fn a_history_without_the_commit_is_refused_with_a_way_out() {
        let directory = std::env::temp_dir().join(format!("thalweg-previous-{}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        git(&directory, &["init", "-q"]).unwrap();
        let refused = has_commit(&directory, "0123456789abcdef0123456789abcdef01234567").unwrap_err();
        fs::remove_dir_all(&directory).unwrap();
        assert!(format!("{refused:#}").contains("hint: this clone is shallow"), "{refused:#}");
    }
}
