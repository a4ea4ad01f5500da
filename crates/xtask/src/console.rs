//! `console`: the hub's console in Chromium, with a real hub and two endpoints (`crates/api/browser/trial.js`).
//!
//! Needs node, npm and Chromium, and says so where one is missing; the two packages that the trial uses come from the lock file that is
//! committed. Not here: building the console, because it is served as it is written.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

use crate::deb::run as run_command;
use crate::workspace::Workspace;

const FILES: &[&str] = &["package.json", "package-lock.json", ".npmrc", "house.js", "trial.js"];

/// Runs the trial on a program, the product's if none is named, and keeps pictures of the pages if a folder is.
pub fn run(program: Option<&str>, pictures: Option<&str>) -> Result<bool> {
    let workspace = Workspace::read()?;
    let program = program.map_or_else(|| workspace.target.join("release/thalweg"), PathBuf::from);
    ensure!(program.is_file(), "there is no {}: build it with `--features full`, or name one", program.display());
    let missing: Vec<_> = ["node", "npm", "chromium"].into_iter().filter(|name| find(name).is_none()).collect();
    if !missing.is_empty() {
        let text = format!("the console was not tried: no {} in PATH", missing.join(", "));
        ensure!(env::var_os("CI").is_none(), text);
        println!("{text}");
        return Ok(true);
    }
    let modules = install(&workspace)?;
    let mut trial = Command::new("node");
    trial.arg(modules.join("trial.js")).arg("--thalweg").arg(std::path::absolute(&program)?);
    trial.arg("--chromium").arg(find("chromium").context("chromium")?).arg("--modules").arg(&modules);
    if let Some(pictures) = pictures {
        trial.arg("--shots").arg(std::path::absolute(pictures)?);
    }
    Ok(trial.status().context("run node")?.success())
}

/// A folder with the trial and what it needs. The tree itself gets no `node_modules`.
fn install(workspace: &Workspace) -> Result<PathBuf> {
    let (from, to) = (workspace.root.join("crates/api/browser"), workspace.target.join("browser"));
    fs::create_dir_all(&to).with_context(|| format!("create {}", to.display()))?;
    let lock = |folder: &Path| fs::read(folder.join("package-lock.json")).ok();
    let is_installed = lock(&from) == lock(&to) && to.join("node_modules").is_dir();
    for name in FILES {
        fs::copy(from.join(name), to.join(name)).with_context(|| format!("copy {name}"))?;
    }
    if !is_installed {
        let mut npm = Command::new("npm");
        npm.args(["ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel", "error"]).current_dir(&to);
        if let Err(error) = run_command(&mut npm) {
            bail!("{error:#}; without a network the console cannot be tried");
        }
    }
    Ok(to)
}

fn find(name: &str) -> Option<PathBuf> {
    let search = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&search).map(|folder| folder.join(name)).find(|path| path.is_file())
}
