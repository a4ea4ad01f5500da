//! The ground that trials on the real program stand on, and the bed of one trial.
//!
//! The ground holds a source tree that all trials read; a bed holds a destination with older versions of some of it, an
//! endpoint behind a relay, homes for both programs, and a tree beside the root that nothing may touch.
//!
//! Invariants: everything lies on a disk, because on memory the steps for durability are left out. Programs end with this
//! process, and the ground is removed after it, also when it is killed.

use crate::calls::Areas;
use crate::check::{self, Tree};
use crate::instrument::{self, Instrument};
use crate::process::{Ended, Process, Tracing};
use crate::relay::Relay;
use crate::tree;
use anyhow::{Context, Result, bail};
use rustix::process::Signal;
use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// Whatever takes longer is a hang (reliability contract: a hang is not survived).
pub const PATIENCE: Duration = Duration::from_secs(30);
/// Where hostile peers may write, beside the destination.
pub const ATTACKED: &str = "attacked";
const TMPFS_MAGIC: i64 = 0x0102_1994;

#[derive(clap::Args, Clone, Debug)]
pub struct GroundArgs {
    /// The program to try [default: thalweg beside this one]
    #[arg(long, value_name = "FILE")]
    pub program: Option<PathBuf>,
    /// A directory on a disk to work in [default: the one for temporary files, or that of the program]
    #[arg(long, value_name = "DIR")]
    pub work: Option<PathBuf>,
}

pub struct Ground {
    pub program: PathBuf,
    pub dir: PathBuf,
    pub source: PathBuf,
    /// What the source holds.
    pub new: Tree,
    /// The option `--chunk-size` of every copy.
    pub chunk_size: &'static str,
    beds: AtomicU64,
    janitor: Child,
}

impl Ground {
    /// Makes the ground with a source that `fill` makes.
    pub fn new(args: &GroundArgs, chunk_size: &'static str, fill: fn(&Path) -> Result<()>) -> Result<Ground> {
        // Modes in the trees are what this mask leaves.
        rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o022));
        let program = program(args.program.as_deref())?;
        let above = workplace(args.work.as_deref(), &program)?;
        let dir = tempfile::Builder::new().prefix("thalweg-trial-").tempdir_in(&above);
        // The janitor removes it, not this process, which may be killed.
        let dir = dir.with_context(|| format!("make a directory in {}", above.display()))?.keep();
        let janitor = janitor(&dir)?;
        let source = dir.join("served").join("tree");
        fs::create_dir_all(&source).context("make the source")?;
        fill(&source)?;
        let new = check::tree(&source).context("read the source")?;
        Ok(Ground { program, dir, source, new, chunk_size, beds: AtomicU64::new(0), janitor })
    }

    /// Files and links of the source.
    pub fn objects(&self) -> u64 {
        self.new.values().filter(|object| object.kind != check::Kind::Directory).count() as u64
    }

    pub fn bytes(&self) -> u64 {
        let bytes = |object: &check::Object| match object.kind {
            check::Kind::File { bytes, .. } => bytes,
            _ => 0,
        };
        self.new.values().map(bytes).sum()
    }
}

impl Drop for Ground {
    fn drop(&mut self) {
        drop(self.janitor.stdin.take());
        let _ = self.janitor.wait();
    }
}

/// A program that removes the directory when this process has ended.
fn janitor(dir: &Path) -> Result<Child> {
    let script = "cat >/dev/null; chmod -R u+rwX -- \"$1\"; rm -rf -- \"$1\" || { sleep 1; rm -rf -- \"$1\"; }";
    let mut command = Command::new("/bin/sh");
    command.args(["-c", script, "janitor"]).arg(dir).stdin(Stdio::piped()).process_group(0);
    command.spawn().context("start the shell that cleans up")
}

pub fn program(named: Option<&Path>) -> Result<PathBuf> {
    let beside =
        || Ok::<_, anyhow::Error>(std::env::current_exe().context("find this program")?.with_file_name("thalweg"));
    let program = named.map_or_else(beside, |path| Ok(std::path::absolute(path)?))?;
    if !program.is_file() {
        bail!("{} is not there; `cargo build --release` builds it, or name it with --program", program.display());
    }
    Ok(program)
}

fn workplace(named: Option<&Path>, program: &Path) -> Result<PathBuf> {
    let is_memory = |dir: &Path| rustix::fs::statfs(dir).is_ok_and(|facts| facts.f_type == TMPFS_MAGIC);
    if let Some(dir) = named {
        if is_memory(dir) {
            bail!("{} is memory, where nothing is made durable; name a directory on a disk", dir.display());
        }
        return Ok(std::path::absolute(dir)?);
    }
    let beside = program.parent().unwrap_or(Path::new("/")).to_owned();
    let found = [std::env::temp_dir(), beside].into_iter().find(|dir| !is_memory(dir));
    found.context("no directory on a disk is known: name one with --work")
}

/// Whose buffer a copy goes through.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Buffer {
    Endpoint,
    Client,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Direction {
    /// The client sends, the endpoint receives.
    Push,
    /// The client receives.
    Pull,
}

pub struct Bed<'a> {
    pub ground: &'a Ground,
    pub direction: Direction,
    pub dir: PathBuf,
    /// What the destination held before.
    pub old: Tree,
    pub relay: Relay,
    pub endpoint: Option<Process>,
    is_enrolled: bool,
    outside: Tree,
    /// Copies keep names, owners and attributes, and write through io_uring.
    pub is_whole: bool,
    /// Who has a buffer that everything goes through.
    pub buffer: Option<Buffer>,
    /// Whose files are followed, in place of a copy of the ground's source.
    pub instrument: Option<Instrument>,
    /// A copy that outlived its endpoint.
    pub client: Option<Process>,
    /// Numbers the outputs of programs.
    runs: u32,
}

impl<'a> Bed<'a> {
    /// `older` fills the destination.
    pub fn new(ground: &'a Ground, direction: Direction, older: fn(&Path) -> Result<()>) -> Result<Bed<'a>> {
        let number = ground.beds.fetch_add(1, Relaxed);
        let dir = ground.dir.join(format!("{number:06}"));
        for name in ["root/in", "outside/kept", "server", "client"] {
            fs::create_dir_all(dir.join(name)).context("make a bed")?;
        }
        older(&dir.join("root/in"))?;
        tree::fill_outside(&dir.join("outside"))?;
        fs::write(dir.join("root/beside"), "not part of the copy").context("make a bed")?;
        let old = check::tree(&dir.join("root/in")).context("read the destination")?;
        let outside = check::tree(&dir.join("outside")).context("read the tree beside")?;
        let relay = Relay::start()?;
        Ok(Bed {
            ground,
            direction,
            dir,
            old,
            relay,
            endpoint: None,
            is_enrolled: false,
            outside,
            is_whole: false,
            buffer: None,
            instrument: None,
            client: None,
            runs: 0,
        })
    }

    pub fn destination(&self) -> PathBuf {
        self.dir.join("root/in")
    }

    pub fn areas(&self) -> Areas {
        Areas {
            destination: self.dir.join("root"),
            source: self.instrument.as_ref().map_or(&self.ground.source, |grown| &grown.dir).clone(),
            states: vec![self.dir.join("server"), self.dir.join("client")],
        }
    }

    /// Starts the endpoint; false when it ended before it was ready.
    pub fn serve(&mut self, tracing: Option<Tracing>) -> Result<bool> {
        let root = match self.direction {
            Direction::Push => self.dir.join("root"),
            Direction::Pull => self.ground.dir.join("served"),
        };
        let mut command = self.command("server");
        command.args(["serve", "--listen", "127.0.0.1:0", "--ticket-file"]).arg(self.dir.join("server/ticket"));
        if self.is_whole && rustix::process::geteuid().is_root() {
            command.arg("--super");
        }
        if self.buffer == Some(Buffer::Endpoint) {
            command.args(["--buffer", "server/buffer:16MiB"]);
        }
        command.arg("--root").arg(root).arg("--advertise").arg(self.relay.address.to_string());
        self.runs += 1;
        let name = format!("serve-{}", self.runs);
        let process = Process::start(command, &self.dir, &name, tracing)?;
        let ready = process.first_line(PATIENCE);
        self.endpoint = Some(process);
        let address = ready.as_deref().and_then(|line| line.strip_prefix("ready on ")?.split(',').next()?.parse().ok());
        self.relay.lead_to(address);
        Ok(address.is_some())
    }

    /// Makes the endpoint known to the client, if it is not yet.
    ///
    /// # Errors
    /// Says what the program said.
    pub fn enrol(&mut self) -> Result<Result<(), String>> {
        if self.is_enrolled {
            return Ok(Ok(()));
        }
        let mut command = self.command("client");
        command.args(["endpoint", "add", "lab", "--replace", "--ticket-file"]).arg(self.dir.join("server/ticket"));
        self.runs += 1;
        let name = format!("add-{}", self.runs);
        let ended = Process::start(command, &self.dir, &name, None)?.wait(PATIENCE)?;
        let Some(ended) = ended else { return Ok(Err("hang: `endpoint add` did not end".to_owned())) };
        self.is_enrolled = ended.code == Some(0);
        Ok(if self.is_enrolled { Ok(()) } else { Err(ended.errors) })
    }

    /// Starts the copy, always the same one. With an instrument, it follows that, which begins to write with the first run.
    pub fn copy(&mut self, tracing: Option<Tracing>) -> Result<Process> {
        let mut command = self.command("client");
        command.arg(if self.instrument.is_some() { "follow" } else { "cp" });
        command.args(["--json", "--retries", "0", "--progress", "none", "--streams", "2"]);
        command.args(["--chunk-size", self.ground.chunk_size]);
        if self.is_whole {
            command.args(["-aHX", "--numeric-ids", "--engine", "uring"]);
        }
        match self.buffer {
            Some(Buffer::Endpoint) => _ = command.args(["--buffer", "always"]),
            Some(Buffer::Client) => _ = command.args(["--buffer", "client/buffer:16MiB"]),
            None => {}
        }
        match (&mut self.instrument, self.direction) {
            (Some(instrument), _) => {
                instrument.start()?;
                command.args(["--until", "rename", "--show", "prefix", "--end"]);
                command.arg(format!("marker:{}", instrument::STOP)).arg(slashed(&instrument.dir)).arg("lab:in/")
            }
            (None, Direction::Push) => command.arg(slashed(&self.ground.source)).arg("lab:in/"),
            (None, Direction::Pull) => command.arg("lab:tree/").arg(slashed(&self.destination())),
        };
        self.runs += 1;
        Process::start(command, &self.dir, &format!("cp-{}", self.runs), tracing)
    }

    /// The copy that is still there, or the same one again.
    pub fn goes_on(&mut self) -> Result<Process> {
        self.client.take().map_or_else(|| self.copy(None), Ok)
    }

    /// Asks the endpoint to end in order; `None` when it does not.
    pub fn stop(&mut self) -> Result<Option<Ended>> {
        let Some(process) = self.endpoint.take() else { return Ok(None) };
        self.relay.lead_to(None);
        process.signal(Signal::TERM);
        process.wait(PATIENCE)
    }

    /// Waits for the end of an endpoint that was killed.
    pub fn buried(&mut self) -> Result<Option<Ended>> {
        let Some(process) = self.endpoint.take() else { return Ok(None) };
        self.relay.lead_to(None);
        process.signal(Signal::KILL);
        process.wait(PATIENCE)
    }

    /// I1, and that nothing outside was touched (I5).
    ///
    /// # Errors
    /// Says what was broken.
    pub fn check_half_done(&self) -> Result<(), String> {
        if let Some(instrument) = &self.instrument {
            instrument.check_half_done(&self.destination())?;
            return self.check_outside();
        }
        check::half_done(&self.destination(), &self.old, &self.ground.new)?;
        self.check_outside()
    }

    /// I7 and I5.
    ///
    /// # Errors
    /// Says what was broken.
    pub fn check_complete(&self) -> Result<(), String> {
        if let Some(instrument) = &self.instrument {
            instrument.check_complete(&self.destination())?;
            return self.check_outside();
        }
        self.check_content()?;
        if self.is_whole { check::kept(&self.ground.source, &self.destination(), &self.ground.new) } else { Ok(()) }
    }

    /// As `check_complete`, whatever became of owners, attributes and names of one file.
    ///
    /// # Errors
    /// Says what was broken.
    pub fn check_content(&self) -> Result<(), String> {
        check::complete(&self.destination(), &self.old, &self.ground.new)?;
        check::unchanged(&self.ground.source, &self.ground.new)?;
        self.check_outside()
    }

    fn check_outside(&self) -> Result<(), String> {
        check::unchanged(&self.dir.join("outside"), &self.outside)?;
        let listing = fs::read_dir(self.dir.join("root")).map_err(|e| format!("the checker could not list: {e}"))?;
        let names = listing.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned());
        let known = ["in", "beside", ATTACKED];
        let is_known = |name: &String| known.contains(&name.as_str()) || name.starts_with(check::STAGING_PREFIX);
        match names.into_iter().find(|name| !is_known(name)) {
            Some(name) => Err(format!("I5: {name} appeared beside the destination")),
            None => Ok(()),
        }
    }

    /// I20: nothing is left in staging below the root.
    ///
    /// # Errors
    /// Says what is.
    pub fn check_swept(&self) -> Result<(), String> {
        let left = check::staged(&self.dir.join("root"));
        let shown: Vec<_> = left.iter().map(|path| path.strip_prefix(&self.dir).unwrap_or(path).display()).collect();
        if shown.is_empty() { Ok(()) } else { Err(format!("I20: left: {shown:?}")) }
    }

    /// The program with a home of its own and none of the caller's settings.
    pub fn command(&self, home: &str) -> Command {
        let mut command = Command::new(&self.ground.program);
        for (name, _) in std::env::vars_os() {
            if name.as_encoded_bytes().starts_with(b"THALWEG_") {
                command.env_remove(name);
            }
        }
        let home = self.dir.join(home);
        for name in ["CONFIG_HOME", "STATE_HOME", "CACHE_HOME", "DATA_HOME", "RUNTIME_DIR"] {
            command.env(format!("XDG_{name}"), home.join(name.to_ascii_lowercase()));
        }
        command.env("HOME", home).current_dir(&self.dir);
        command
    }
}

impl Drop for Bed<'_> {
    fn drop(&mut self) {
        if let Some(endpoint) = self.endpoint.take() {
            endpoint.signal(Signal::KILL);
            let _ = endpoint.wait(PATIENCE);
        }
        // Whose thread writes below it.
        self.instrument = None;
        let _ = fs::remove_dir_all(&self.dir);
    }
}

fn slashed(path: &Path) -> PathBuf {
    // A trailing slash means the contents of a directory.
    path.join("")
}

/// Says which program's words show a mistake of the program itself.
///
/// # Errors
/// Quotes the line.
pub fn check_words(errors: &str) -> Result<(), String> {
    match errors.lines().find(|line| line.contains("panicked") || line.contains("this is a bug")) {
        Some(line) => Err(format!("panic: {line}")),
        None => Ok(()),
    }
}
