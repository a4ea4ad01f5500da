//! The ground of a trial: two hosts of a laboratory, and the product's client and server on them.
//!
//! Owns: where the program is, homes and directories, how `serve` and `cp` are called, and the directories that killed
//! runs left behind. The laboratory removes its own namespaces, also those of killed runs.

use crate::outside::process::{Running, bound, output_of};
use anyhow::{Context, Result, bail};
use lab::Lab;
use lab::scenario::file::{CONGESTION_CONTROL_DEFAULT, MTU_BYTES_DEFAULT};
use lab::scenario::{Backend, End, HostSettings, Impairment, Link, Scenario, Site};
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// The client's host, the server's, and the one in the middle.
pub const CLIENT: &str = "a";
pub const SERVER: &str = "b";
pub const CORE: &str = "core";
/// What the client calls the endpoint, and where it listens.
pub const ENDPOINT: &str = "far";
pub const PORT: u16 = 7740;
const PREFIX: &str = "thalweg-trial-";

/// The program under trial: as named, or beside this one.
pub fn program(named: Option<&Path>) -> Result<PathBuf> {
    let beside = || {
        let own = std::env::current_exe().ok()?;
        Some(own.parent()?.join("thalweg"))
    };
    let Some(path) = named.map(Path::to_owned).or_else(beside).filter(|path| path.is_file()) else {
        bail!(
            "there is no program to try; build it with `cargo build --release -p thalweg`, or name one with --program"
        );
    };
    path.canonicalize().with_context(|| format!("find {}", path.display()))
}

/// A directory that the next run removes if this one is killed.
pub fn directory() -> Result<tempfile::TempDir> {
    remove_leftovers();
    let prefix = format!("{PREFIX}{}-", std::process::id());
    tempfile::Builder::new().prefix(&prefix).tempdir().context("create a directory for the trials")
}

fn remove_leftovers() {
    for entry in fs::read_dir(std::env::temp_dir()).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let owner = name.to_str().and_then(|name| name.strip_prefix(PREFIX)).and_then(|rest| rest.split('-').next());
        let is_alive = |pid: &str| Path::new("/proc").join(pid).exists();
        if owner.is_some_and(|pid| pid.parse::<u32>().is_ok() && !is_alive(pid)) {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

/// Two hosts and the path between them: forward leads from the client to the server.
pub fn laboratory(
    directions: [Impairment; 2],
    seed: u64,
    mtu_bytes: Option<u32>,
    backend: Option<Backend>,
) -> Result<Lab> {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let name = format!("trial-{}-{}", std::process::id(), NUMBER.fetch_add(1, Relaxed));
    let site = |name: &str| Site { name: name.into(), hosts: 1, processor_percent: None, host_bits_per_second: None };
    let ends = [End::Site(0), End::Site(1)];
    Ok(Lab::up(Scenario {
        name,
        seed,
        mtu_bytes: mtu_bytes.unwrap_or(MTU_BYTES_DEFAULT),
        host_settings: HostSettings::Stock,
        congestion_control: CONGESTION_CONTROL_DEFAULT.into(),
        backend,
        sites: vec![site(CLIENT), site(SERVER)],
        links: vec![Link { name: "wan".into(), ends, directions, timeline: Vec::new() }],
    })?)
}

/// A command on a host, bound to the calling thread.
pub fn at(lab: &Lab, host: &str, command: &Command) -> Result<Command> {
    Ok(lab.exec(host, &bound(command))?)
}

/// Runs a short command on a host.
pub fn run_at(lab: &Lab, host: &str, words: &[&str]) -> Result<String> {
    let mut command = Command::new("ip");
    command.args(["netns", "exec", &lab.lease().namespace(host)]).args(words);
    output_of(command)
}

/// The product's program with a home of its own below `dir`.
pub fn thalweg(program: &Path, dir: &Path, home: &str, words: &[impl AsRef<OsStr>]) -> Command {
    let mut command = Command::new(program);
    for (name, _) in std::env::vars_os() {
        if name.as_encoded_bytes().starts_with(b"THALWEG_") {
            command.env_remove(name);
        }
    }
    let home = dir.join(home);
    for name in ["CONFIG_HOME", "STATE_HOME", "CACHE_HOME", "DATA_HOME", "RUNTIME_DIR"] {
        command.env(format!("XDG_{name}"), home.join(name.to_ascii_lowercase()));
    }
    command.args(words).env("HOME", home).current_dir(dir);
    command
}

/// An endpoint of the product at a host, ready for clients.
pub struct Endpoint<'a> {
    pub program: &'a Path,
    /// Its home, ticket and output are below this.
    pub dir: &'a Path,
    pub home: &'a str,
    pub root: &'a Path,
    /// `HOST:PORT` that its ticket names.
    pub advertise: &'a str,
}

impl Endpoint<'_> {
    /// Starts it; `wrap` puts the command where it runs.
    pub fn start(&self, wrap: impl FnOnce(&Command) -> Result<Command>) -> Result<Running> {
        let mut command = thalweg(self.program, self.dir, self.home, &["serve", "--advertise", self.advertise]);
        command.arg("--listen").arg(format!("[::]:{PORT}")).arg("--root").arg(self.root);
        command.arg("--ticket-file").arg(self.dir.join(self.home).join("ticket"));
        fs::create_dir_all(self.dir.join(self.home)).context("create a home")?;
        let running = Running::start(wrap(&command)?, self.dir, self.home)?;
        running.await_ready(|running| running.said().0.starts_with("ready on "))
    }

    /// Makes a client known to it.
    pub fn enrol(&self, client: &str, wrap: impl FnOnce(&Command) -> Result<Command>) -> Result<()> {
        let ticket = self.dir.join(self.home).join("ticket");
        let mut command = thalweg(self.program, self.dir, client, &["endpoint", "add", ENDPOINT, "--replace"]);
        command.arg("--ticket-file").arg(ticket);
        output_of(wrap(&command)?).map(drop)
    }
}
