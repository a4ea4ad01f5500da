//! `trial locals`: users of the same host who prepare what the program reads and writes, and variables that it inherits.
//!
//! A trial is one trap of one user for a command of another, root and nobody in turn. It survived when the trap caught
//! nothing: what it aims at is unchanged, no program of the attacker ran, nothing was removed, and the command said why it
//! refused or did what it was to do. Needs root, who can act as both.
//!
//! Not here: who may write to the tree that is copied (`paths`), and peers (`hostile`).

mod traps;

use crate::job::{GroundArgs, PATIENCE, program};
use crate::process::{Ended, Process};
use crate::record::{Outcome, Tally};
use anyhow::{Context, Result, bail};
use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::{PermissionsExt, lchown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;
use traps::TRAPS;

/// Who sets the traps, and who runs into them: root, and a user without rights.
const ATTACKER: u32 = 4711;
const VICTIMS: [(u32, &str); 2] = [(0, "root"), (65_534, "nobody")];
const PRECIOUS: &str = "nobody but its owner changes this\n";

#[derive(clap::Args, Clone, Debug)]
pub struct Args {
    #[command(flatten)]
    ground: GroundArgs,
    /// Trials of each trap for each victim
    #[arg(long, value_name = "N", default_value_t = 3)]
    rounds: u64,
    /// Only the trap of this name
    #[arg(long, value_name = "NAME")]
    only: Option<String>,
}

pub fn run(args: &Args) -> Result<Tally> {
    let started = Instant::now();
    if !rustix::process::geteuid().is_root() {
        bail!("only root can act as two users: run it as root");
    }
    let program = program(args.ground.program.as_deref())?;
    let chosen: Vec<_> = TRAPS.iter().filter(|trap| args.only.as_ref().is_none_or(|only| only == trap.name)).collect();
    if chosen.is_empty() {
        let names: Vec<_> = TRAPS.iter().map(|trap| trap.name).collect();
        bail!("no trap has this name; there are: {}", names.join(", "));
    }
    let mut tally = Tally::new("trial locals --rounds 200");
    for (trap, (victim, called)) in chosen.iter().flat_map(|trap| VICTIMS.map(|victim| (trap, victim))) {
        for _ in 0..args.rounds {
            let scene = Scene::new(&program, victim)?;
            let outcome = match (trap.spring)(&scene).and_then(|()| scene.check()) {
                Ok(()) => Outcome::Survived,
                Err(why) => Outcome::Violated(format!("{why:#}")),
            };
            let replay = format!("trial locals --rounds 1 --only '{}'", trap.name);
            tally.count(&format!("local: {}, {called}", trap.name), trap.faults, &outcome, &replay);
        }
    }
    tally.seconds = started.elapsed().as_secs_f64();
    Ok(tally)
}

/// A directory for one trial: a home of the victim's, a place of the attacker's, and what the trap aims at.
pub struct Scene {
    program: PathBuf,
    dir: tempfile::TempDir,
    victim: u32,
}

impl Scene {
    fn new(program: &Path, victim: u32) -> Result<Scene> {
        let dir = tempfile::Builder::new().prefix("thalweg-locals-").tempdir().context("make a directory")?;
        // Of root's, and open for both to enter.
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755))?;
        // Where the victim can start it, whatever directory it was built in.
        let copy = dir.path().join("thalweg");
        fs::copy(program, &copy).context("copy the program")?;
        let scene = Scene { program: copy, dir, victim };
        for (name, owner) in [("home", victim), ("home/tree", victim), ("theirs", ATTACKER)] {
            scene.directory(name, owner, 0o755)?;
        }
        scene.file("home/precious", victim, 0o600, PRECIOUS)?;
        scene.file("home/tree/leaf", victim, 0o644, "a leaf")?;
        scene.file("home/source", victim, 0o644, &"x".repeat(700 << 10))?;
        Ok(scene)
    }

    pub fn at(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub fn directory(&self, name: &str, owner: u32, mode: u32) -> Result<()> {
        fs::create_dir_all(self.at(name))?;
        self.give(name, owner, mode)
    }

    pub fn file(&self, name: &str, owner: u32, mode: u32, text: &str) -> Result<()> {
        fs::write(self.at(name), text)?;
        self.give(name, owner, mode)
    }

    pub fn link(&self, name: &str, target: &str) -> Result<()> {
        std::os::unix::fs::symlink(self.at(target), self.at(name))?;
        Ok(lchown(self.at(name), Some(ATTACKER), Some(ATTACKER))?)
    }

    pub fn give(&self, name: &str, owner: u32, mode: u32) -> Result<()> {
        fs::set_permissions(self.at(name), fs::Permissions::from_mode(mode))?;
        Ok(lchown(self.at(name), Some(owner), Some(owner))?)
    }

    /// The victim's program in the victim's home. Variables come on top.
    pub fn run(&self, words: &[&str], variables: &[(&str, &OsStr)]) -> Result<Ended> {
        let mut command = Command::new(&self.program);
        command.args(words);
        self.finish(command, variables)
    }

    /// The same, after a line of shell that knows the number of the process to come as `$$`.
    pub fn run_after(&self, line: &str, words: &[&str], variables: &[(&str, &OsStr)]) -> Result<Ended> {
        let mut command = Command::new("/bin/sh");
        command.arg("-c").arg(format!("{line}; exec \"$0\" \"$@\"")).arg(&self.program).args(words);
        self.finish(command, variables)
    }

    fn finish(&self, mut command: Command, variables: &[(&str, &OsStr)]) -> Result<Ended> {
        let home = self.at("home");
        command.env_clear().env("PATH", "/usr/bin:/bin").env("HOME", &home).current_dir(&home);
        command.envs(variables.iter().copied()).uid(self.victim).gid(self.victim);
        let process = Process::start(command, self.dir.path(), "command", None)?;
        process.wait(PATIENCE)?.context("hang: the command did not end")
    }

    /// What no trap may have reached.
    fn check(&self) -> Result<()> {
        let precious = fs::read_to_string(self.at("home/precious")).unwrap_or_else(|e| format!("({e})"));
        if precious != PRECIOUS {
            bail!("I5: a link was followed: the victim's file now holds {:?}", precious.get(..60).unwrap_or(&precious));
        }
        if self.at("home/ran").exists() {
            bail!("a program of the attacker's choice ran as the victim");
        }
        if !self.at("home/tree/leaf").exists() {
            bail!("I18: something was removed that nobody asked to remove");
        }
        Ok(())
    }
}
