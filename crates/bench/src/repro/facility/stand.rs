//! Three sites and what runs at them: an instrument with slow storage and its endpoint, an archive with its endpoint and the server of a
//! store, and an office with the hub.
//!
//! Invariant: whatever was killed is started again with the state that it left.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use lab::Lab;
use lab::scenario::{Change, Scenario};
use serde_json::Value;

use super::super::context::Context;
use crate::error::{Error, Kind, Result};
use crate::process::{Ready, Server};
use crate::tool::version_of;
use crate::workspace::{Pauses, Workspace};

const INSTRUMENT: &str = "instrument";
const ARCHIVE: &str = "archive";
const OFFICE: &str = "office";
/// The link that is cut.
const CUT: &str = "to-archive";
const BUCKET: &str = "delivered";
const KEYS: [&str; 2] = ["facility", "facility-secret"];
const PORT: u16 = 7740;
const STORE: &str = "127.0.0.1:7750";
const STORE_PORT: u16 = 7750;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Role {
    Store,
    Archive,
    Instrument,
    Hub,
}

pub const ROLES: [Role; 4] = [Role::Store, Role::Archive, Role::Instrument, Role::Hub];

impl Role {
    pub fn name(self) -> &'static str {
        match self {
            Role::Store => "store",
            Role::Archive => ARCHIVE,
            Role::Instrument => INSTRUMENT,
            Role::Hub => "hub",
        }
    }
}

/// What the chain is made of.
pub struct Plan {
    pub bits_per_second: u64,
    pub rtt_ms: u64,
    /// The instrument's storage, as its endpoint sees it.
    pub storage_bytes_per_second: u64,
    /// Seconds, of seconds.
    pub stall: (u64, u64),
    pub buffer_bytes: u64,
}

pub struct Stand<'a> {
    pub lab: Lab,
    // Before the folder in which it is mounted.
    _storage: Option<Server>,
    /// When the instrument's storage began to move.
    pub mounted: Instant,
    workspace: Workspace,
    program: PathBuf,
    logs: PathBuf,
    cancel: &'a AtomicBool,
    plan: Plan,
    /// The program that serves the bucket.
    gateway: PathBuf,
    /// Which one it is, and its version.
    pub store: String,
    servers: Vec<(Role, Server)>,
    starts: u32,
}

impl<'a> Stand<'a> {
    pub fn up(context: &Context<'a>, plan: Plan, bytes: u64) -> Result<Stand<'a>> {
        let (gateway, store) = gateway()?;
        let pauses = Pauses { memory: Duration::ZERO, quiet_max: Duration::ZERO };
        let workspace = Workspace::create(context.options.work_dir.as_deref(), pauses, &mut |_| ())?;
        // Source, bucket, parts that are put together, and what an independent reader fetches.
        workspace.check_space(3 * bytes + 2 * plan.buffer_bytes + (256 << 20))?;
        let logs = context.dir.join("logs");
        make(&logs)?;
        let lab = Lab::up(scenario(&plan, context.options.seed)?)?;
        let (program, cancel) = (context.options.program.clone(), context.cancel());
        let (servers, mounted) = (Vec::new(), Instant::now());
        let mut stand = Stand {
            lab,
            _storage: None,
            mounted,
            workspace,
            program,
            logs,
            cancel,
            plan,
            gateway,
            store,
            servers,
            starts: 0,
        };
        ["real", "shown", "bucket"].iter().try_for_each(|name| make(&stand.path(name)))?;
        let table = "[stores.lab]\nkind = \"s3\"\nendpoint = \"http://127.0.0.1:7750\"\nregion = \"us-east-1\"\n";
        let roots = format!("[roots]\nvault = \"s3+lab://{BUCKET}/\"\n");
        let config = stand.path("archive.toml");
        fs::write(&config, format!("{roots}{table}")).map_err(Error::io("write", &config))?;
        (stand._storage, stand.mounted) = (Some(stand.mount()?), Instant::now());
        for role in ROLES {
            stand.start(role)?;
            if role == Role::Store {
                stand.request("PUT", "", None)?;
            }
        }
        let office = stand.office()?;
        for name in [INSTRUMENT, ARCHIVE] {
            let ticket = stand.path(&format!("ticket-{name}")).display().to_string();
            office.thalweg(&["endpoint", "add", name, "--ticket-file", &ticket, "--hub"])?;
        }
        Ok(stand)
    }

    pub fn path(&self, below: &str) -> PathBuf {
        self.workspace.path().join(below)
    }

    /// Where the instrument writes; its endpoint sees the same below a slow view.
    pub fn instrument(&self) -> PathBuf {
        self.path("real")
    }

    /// The socket of the hub's interface.
    pub fn socket(&self) -> PathBuf {
        self.path("home-office/runtime_dir/thalweg/hub.sock")
    }

    fn mount(&self) -> Result<Server> {
        let (stall, period) = self.plan.stall;
        let mut command = Command::new(&self.program);
        command.args(["lab", "storage"]).arg(self.path("real")).arg(self.path("shown"));
        command.arg("--rate").arg(self.plan.storage_bytes_per_second.to_string());
        // It begins to move.
        command.arg("--stall").arg(format!("{stall}s/{period}s")).arg("--phase").arg(format!("{stall}s"));
        Server::start(&mut command, &Ready::Says("ready"), &self.logs.join("storage.log"), self.cancel)
    }

    fn site(&self, name: &str) -> Result<Site> {
        let config = if name == ARCHIVE { self.path("archive.toml") } else { "/dev/null".into() };
        Ok(Site {
            namespace: self.lab.namespace(name)?,
            program: self.program.clone(),
            dir: self.workspace.path().to_owned(),
            home: self.path(&format!("home-{name}")),
            config,
        })
    }

    /// Where the users of the hub are.
    pub fn office(&self) -> Result<Site> {
        self.site(OFFICE)
    }

    /// What the archive's host alone can put into the bucket, in bytes a second.
    pub fn store_alone(&self, bytes: u64) -> Result<f64> {
        let set = format!("gen:4x{}", bytes / 4);
        let archive = self.site(ARCHIVE)?;
        let said = archive.thalweg(&["cp", "--json", &set, &format!("s3+lab://{BUCKET}/probe/")])?;
        let done: Value = serde_json::from_str(said.lines().last().unwrap_or_default()).unwrap_or_default();
        archive.thalweg(&["rm", "-r", &format!("s3+lab://{BUCKET}/probe")])?;
        let seconds = done["seconds"].as_f64().filter(|seconds| *seconds > 0.0);
        seconds
            .map(|seconds| bytes as f64 / seconds)
            .ok_or_else(|| Error::new(Kind::Failed, "measure", "the store", said))
    }

    pub fn start(&mut self, role: Role) -> Result<()> {
        let buffer = |name: &str| format!("{}:{}", self.path(name).display(), self.plan.buffer_bytes);
        let ticket = self.path(&format!("ticket-{}", role.name()));
        let ticket_text = ticket.display().to_string();
        let serve = |host: &str, buffered: &str, more: &[&str]| -> Result<Command> {
            let address = self.lab.address_v4(host)?.to_string();
            let mut command = self.site(host)?.command(&self.program, &["serve", "--listen", "0.0.0.0:7740"]);
            command.args(["--advertise", &address, "--buffer", buffered, "--ticket-file", &ticket_text]).args(more);
            Ok(command)
        };
        // A ticket that is there says nothing of a second start.
        let is_up = if ticket.exists() { Ready::Listens(PORT) } else { Ready::Exists(ticket.clone()) };
        let (mut command, ready) = match role {
            Role::Store => (self.serve_store()?, Ready::Listens(STORE_PORT)),
            Role::Archive => (serve(ARCHIVE, &buffer("behind"), &[])?, is_up),
            Role::Instrument => (serve(INSTRUMENT, &buffer("ahead"), &["--root", "shown"])?, is_up),
            Role::Hub => (self.office()?.command(&self.program, &["hub", "--state-dir", "hub"]), Ready::Says("ready")),
        };
        self.starts += 1;
        let log = self.logs.join(format!("{}-{}.log", role.name(), self.starts));
        let server = Server::start(&mut command, &ready, &log, self.cancel);
        let server = server.map_err(|error| Error { subject: role.name().to_owned(), ..error })?;
        self.servers.push((role, server));
        Ok(())
    }

    fn serve_store(&self) -> Result<Command> {
        let bucket = self.path("bucket").display().to_string();
        let port = STORE_PORT.to_string();
        let args = if self.gateway.ends_with(VERSITY) {
            vec!["--access", KEYS[0], "--secret", KEYS[1], "--port", STORE, "--quiet", "posix", &bucket]
        } else {
            vec!["-H", "127.0.0.1", "-p", &port]
        };
        Ok(self.site(ARCHIVE)?.command(&self.gateway, &args))
    }

    /// `kill -9`.
    pub fn kill(&mut self, role: Role) {
        if let Some(at) = self.servers.iter().position(|(other, _)| *other == role) {
            self.servers.remove(at).1.kill();
        }
    }

    /// A store that forgets everything is not killed: it has nothing to come back with.
    pub fn may_kill(&self, role: Role) -> bool {
        role != Role::Store || self.gateway.ends_with(VERSITY)
    }

    /// The store stands still, or moves again.
    pub fn stall(&self, stands: bool) {
        for (_, server) in self.servers.iter().filter(|(role, _)| *role == Role::Store) {
            if stands { server.pause() } else { server.resume() }
        }
    }

    /// The path to the archive loses everything, or nothing.
    pub fn cut(&self, down: bool) -> Result<()> {
        Ok(self.lab.set(CUT, &[(None, Change { down: Some(down), ..Change::default() })])?)
    }

    /// Asks the store by a program that is not ours.
    pub fn request(&self, method: &str, what: &str, to: Option<&Path>) -> Result<String> {
        let user = KEYS.join(":");
        let url = format!("http://{STORE}/{BUCKET}{what}");
        // Without it curl says nothing of the body, which some servers want to be told.
        let unsigned = "x-amz-content-sha256: UNSIGNED-PAYLOAD";
        let signed = ["--aws-sigv4", "aws:amz:us-east-1:s3", "--user", &user, "--header", unsigned];
        let words = ["--silent", "--show-error", "--fail", "-X", method];
        let mut command = self.site(ARCHIVE)?.command(Path::new("curl"), &words);
        command.args(signed).arg(url);
        if let Some(path) = to {
            command.arg("--output").arg(path);
        }
        said(command, &format!("curl -X {method} {BUCKET}{what}"))
    }
}

/// A host of the laboratory, and whoever works there.
pub struct Site {
    namespace: String,
    program: PathBuf,
    dir: PathBuf,
    home: PathBuf,
    config: PathBuf,
}

impl Site {
    fn command(&self, program: &Path, args: &[&str]) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.namespace]).arg(program).args(args);
        command.current_dir(&self.dir).env("HOME", &self.home).env("THALWEG_CONFIG", &self.config);
        for name in ["CONFIG_HOME", "STATE_HOME", "CACHE_HOME", "DATA_HOME", "RUNTIME_DIR"] {
            command.env(format!("XDG_{name}"), self.home.join(name.to_ascii_lowercase()));
        }
        command.env("AWS_ACCESS_KEY_ID", KEYS[0]).env("AWS_SECRET_ACCESS_KEY", KEYS[1]);
        command.env("AWS_EC2_METADATA_DISABLED", "true").env_remove("AWS_CA_BUNDLE");
        command
    }

    pub fn thalweg(&self, args: &[&str]) -> Result<String> {
        said(self.command(&self.program, args), &format!("thalweg {}", args.join(" ")))
    }
}

/// What a command says that ends well.
fn said(mut command: Command, subject: &str) -> Result<String> {
    let output = command.output().map_err(Error::io("run", subject))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let why = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    Err(Error::new(Kind::Failed, "run", subject, why))
}

const VERSITY: &str = "versitygw";

/// The server of the bucket: a gateway over a directory, or where that is not installed one that keeps objects in memory.
fn gateway() -> Result<(PathBuf, String)> {
    let known = [(VERSITY, "--version"), ("moto_server", "--version")];
    let found = known.iter().find_map(|(name, flag)| {
        let version = version_of(Path::new(name), flag, name).ok()?;
        let shown = match version.to_ascii_lowercase() {
            // moto_server tells no version.
            text if text.starts_with("usage") => (*name).to_owned(),
            text if text.contains(name) => version,
            _ => format!("{name} {version}"),
        };
        Some((PathBuf::from(name), shown))
    });
    let cause = "neither versitygw nor moto_server is installed";
    found.ok_or_else(|| Error::new(Kind::Missing, "find", "a server of S3", cause))
}

fn scenario(plan: &Plan, seed: u64) -> Result<Scenario> {
    let mut text = String::new();
    let kbit = plan.bits_per_second / 1000;
    for site in [INSTRUMENT, ARCHIVE, OFFICE] {
        // Halves of a long path; the office is near the instrument.
        let rtt = if site == OFFICE { 2 } else { plan.rtt_ms / 2 };
        text.push_str(&format!("[site.{site}]\n[link.to-{site}]\nbetween = [\"{site}\", \"core\"]\n"));
        text.push_str(&format!("rtt = \"{rtt}ms\"\nrate = \"{kbit}kbit\"\nqueue = \"1bdp\"\n"));
    }
    let scenario = Scenario::from_toml(&text).map_err(|e| Error::usage("the laboratory", e.to_string()))?;
    Ok(Scenario { name: "facility".into(), seed, ..scenario })
}

fn make(path: &Path) -> Result<()> {
    fs::create_dir_all(path).map_err(Error::io("create", path))
}
