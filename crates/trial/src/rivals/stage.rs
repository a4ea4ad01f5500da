//! The stage of one trial of the comparison: two hosts, a source, a destination, one tool's server and client.
//!
//! Owns: the private mount of a small destination, and that server and client can be killed with all their processes at
//! once. Everything ends with the value, or with this process.

use super::tool::{self, Tool};
use crate::outside::ground::{self, CLIENT, SERVER};
use crate::outside::process::{Finished, Running, bound, contained, prefixed};
use crate::outside::relay::{Manner, Onward, Relay};
use crate::outside::tree::{self, Files, Seen};
use anyhow::{Context, Result};
use lab::Lab;
use lab::scenario::Impairment;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// A file of this many bytes takes a second.
pub const BYTES_PER_SECOND: u64 = 50_000_000;
const NOBODY: u32 = 65534;

pub struct Stage {
    pub tool: Tool,
    pub program: PathBuf,
    pub dir: PathBuf,
    pub source: PathBuf,
    pub destination: PathBuf,
    /// The server's.
    pub address: String,
    pub advertise: String,
    pub server_namespace: String,
    server: Option<Running>,
    relay: Option<Relay>,
    /// Holds the mount namespace in which the destination is small.
    holder: Option<Running>,
    lab: Lab,
}

impl Stage {
    pub fn make(tool: Tool, program: &Path, dir: &Path, source: &Path, seed: u64) -> Result<Stage> {
        let way = Impairment {
            delay: Duration::from_millis(1),
            bits_per_second: Some(BYTES_PER_SECOND * 8),
            ..Impairment::default()
        };
        let lab = ground::laboratory([way; 2], seed, None, None)?;
        let destination = dir.join("served/in");
        fs::create_dir_all(&destination).context("create a destination")?;
        // Servers that give up root have to reach it.
        fs::set_permissions(dir, fs::Permissions::from_mode(0o755))?;
        for path in [&dir.join("served"), &destination] {
            fs::set_permissions(path, fs::Permissions::from_mode(0o777))?;
        }
        let address = lab.address_v4(SERVER)?.to_string();
        Ok(Stage {
            tool,
            program: program.to_owned(),
            dir: dir.to_owned(),
            source: source.to_owned(),
            destination,
            advertise: format!("{address}:{}", ground::PORT),
            address,
            server_namespace: lab.namespace(SERVER)?,
            server: None,
            relay: None,
            holder: None,
            lab,
        })
    }

    /// Mounts a file system of so many bytes over the destination, for this trial's processes only.
    pub fn shrink(&mut self, bytes: u64) -> Result<()> {
        let mut command = Command::new("unshare");
        let script = r#"mount -t tmpfs -o "size=$1,mode=0777" trial "$2" && mkdir -m 0777 "$2/in" && echo ready && exec sleep infinity"#;
        let served = self.dir.join("served");
        command.args(["--mount", "sh", "-c", script, "sh", &bytes.to_string()]).arg(served);
        let holder = Running::start(bound(&command), &self.dir, "holder")?;
        self.holder = Some(holder.await_ready(|holder| holder.said().0.starts_with("ready"))?);
        Ok(())
    }

    /// The destination as this process can reach it.
    pub fn seen_destination(&self) -> PathBuf {
        match &self.holder {
            None => self.destination.clone(),
            Some(holder) => {
                let root = PathBuf::from(format!("/proc/{}/root", holder.pid()));
                root.join(self.destination.strip_prefix("/").unwrap_or(&self.destination))
            }
        }
    }

    fn wrap(&self, host: &str, command: &Command) -> Result<Command> {
        let command = ground::at(&self.lab, host, &contained(command))?;
        Ok(match &self.holder {
            None => command,
            Some(holder) => prefixed(&["nsenter", "-t", &holder.pid().to_string(), "--mount", "--"], &command),
        })
    }

    /// Starts the server, if the tool has one, and makes the client known to it.
    pub fn start_server(&mut self) -> Result<()> {
        let tool = self.tool;
        if tool == Tool::Thalweg {
            let endpoint = tool::endpoint(self);
            let server = endpoint.start(|command| self.wrap(SERVER, command))?;
            endpoint.enrol("client", |command| self.wrap(CLIENT, command))?;
            self.server = Some(server);
        } else if let Some(command) = tool.server(self)? {
            let server = Running::start(self.wrap(SERVER, &command)?, &self.dir, "server")?;
            let stage = &*self;
            self.server = Some(server.await_ready(|_| tool::is_listening(stage, tool.port()))?);
        }
        Ok(())
    }

    /// Leads what the client sends through a relay that flips one bit.
    pub fn flip_on_the_way(&mut self, at: u64) -> Result<()> {
        let relay = Relay::start(&self.server_namespace, 0, Onward::Original, Manner::Flip { at })?;
        let (table, port) = ("iptables-legacy", relay.port.to_string());
        let rule = ["-w", "10", "-t", "nat", "-A", "PREROUTING", "-i", "eth0", "-p", "tcp", "--syn", "-j", "REDIRECT"];
        ground::run_at(&self.lab, SERVER, &[&[table][..], &rule, &["--to-ports", &port]].concat())?;
        self.relay = Some(relay);
        Ok(())
    }

    /// Bytes that have got on so far: across the network, or into the destination of a copy within one host.
    pub fn moved_bytes(&self) -> u64 {
        if self.tool.has_server() {
            let counts = self.lab.snapshot().map(|snapshot| snapshot.counts).unwrap_or_default();
            return counts.first().map_or(0, |counts| counts.wire_bytes_delivered);
        }
        tree::lengths(&self.seen_destination())
    }

    pub fn flips(&self) -> u64 {
        self.relay.as_ref().map_or(0, |relay| relay.counts.flips.load(std::sync::atomic::Ordering::Relaxed))
    }

    pub fn start_client(&self, name: &str) -> Result<Running> {
        Running::start(self.wrap(CLIENT, &self.tool.client(self))?, &self.dir, name)
    }

    pub fn kill_server(&mut self) {
        if let Some(mut server) = self.server.take() {
            server.kill_contained();
        }
    }

    /// The same command again, with a server that is up.
    pub fn run_again(&mut self, limit: Duration) -> Result<Option<Finished>> {
        self.kill_server();
        self.start_server()?;
        Ok(self.start_client("again")?.finish(Instant::now() + limit, || {}))
    }

    pub fn look(&self, new: &Files, old: &Files) -> Result<Seen> {
        tree::compare(&self.seen_destination(), new, old)
    }

    /// Puts older, shorter objects at every second name; returns them.
    pub fn put_old(&self, new: &Files, seed: u64) -> Result<Files> {
        let mut old = Files::new();
        for (index, (path, known)) in new.iter().enumerate() {
            let place = self.destination.join(path);
            fs::create_dir_all(place.parent().unwrap_or(&place)).context("create a directory")?;
            if index % 2 == 0 {
                let seed = seed.wrapping_add(1 + index as u64).wrapping_mul(77);
                old.insert(path.clone(), tree::write(&place, known.bytes / 2, seed)?);
            }
        }
        self.give_away(&self.destination)?;
        Ok(old)
    }

    /// Lets the user that the server becomes replace what stands below a directory.
    pub fn give_away(&self, root: &Path) -> Result<()> {
        let mut pending = vec![root.to_owned()];
        while let Some(path) = pending.pop() {
            if self.tool.gives_up_root() {
                std::os::unix::fs::lchown(&path, Some(NOBODY), Some(NOBODY))?;
            }
            if path.is_symlink() {
                continue;
            }
            fs::set_permissions(&path, fs::Permissions::from_mode(if path.is_dir() { 0o777 } else { 0o666 }))?;
            if path.is_dir() {
                pending.extend(fs::read_dir(&path)?.flatten().map(|entry| entry.path()));
            }
        }
        Ok(())
    }
}
