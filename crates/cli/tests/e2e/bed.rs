//! A bed for one test: a root that is served, homes for endpoint and client, and processes that end with it.

use std::ffi::OsStr;
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// Whatever a test waits for comes much sooner, or never.
const PATIENCE: Duration = Duration::from_secs(60);

pub struct Bed {
    pub dir: tempfile::TempDir,
}

impl Bed {
    pub fn new() -> Bed {
        let dir = tempfile::Builder::new().prefix("thalweg-e2e-").tempdir().unwrap();
        for name in ["root", "client", "server"] {
            fs::create_dir(dir.path().join(name)).unwrap();
        }
        Bed { dir }
    }

    /// A bed with an endpoint that its client knows as `lab`.
    pub fn with_endpoint() -> (Bed, Server) {
        let bed = Bed::new();
        let server = bed.serve(&[]);
        bed.enrol();
        (bed, server)
    }

    pub fn path(&self, below: impl AsRef<Path>) -> PathBuf {
        self.dir.path().join(below)
    }

    /// A directory on another file system than the bed.
    pub fn elsewhere(&self) -> Option<tempfile::TempDir> {
        let other = tempfile::Builder::new().prefix("thalweg-e2e-").tempdir_in("/dev/shm").ok();
        let device = |path: &Path| path.metadata().unwrap().dev();
        let other = other.filter(|other| device(other.path()) != device(self.dir.path()));
        needs::met(other.is_some(), "/dev/shm is no file system of its own");
        other
    }

    pub fn write(&self, below: &str, content: &[u8]) -> PathBuf {
        let path = self.path(below);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, content).unwrap();
        path
    }

    /// The program with a home, in the directory of the bed.
    pub fn command(&self, home: &str, args: &[impl AsRef<OsStr>]) -> Command {
        let mut command = Command::new(program());
        for (name, _) in std::env::vars_os() {
            if name.as_encoded_bytes().starts_with(b"THALWEG_") && name != "THALWEG_MUTANT" {
                command.env_remove(name);
            }
        }
        let home = self.path(home);
        for name in ["CONFIG_HOME", "STATE_HOME", "CACHE_HOME", "DATA_HOME", "RUNTIME_DIR"] {
            command.env(format!("XDG_{name}"), home.join(name.to_ascii_lowercase()));
        }
        command.args(args).env("HOME", home).current_dir(self.dir.path()).stdin(Stdio::null());
        command
    }

    /// Runs the client to its end.
    pub fn run(&self, args: &[impl AsRef<OsStr>]) -> Ran {
        self.finish(self.command("client", args))
    }

    /// Runs a command to its end.
    pub fn finish(&self, mut command: Command) -> Ran {
        self.ran(command.output().unwrap())
    }

    /// Waits for a process and takes what it said.
    pub fn wait(&self, child: Child) -> Ran {
        self.ran(child.wait_with_output().unwrap())
    }

    fn ran(&self, output: Output) -> Ran {
        Ran {
            code: output.status.code(),
            stderr: self.anonymous(&String::from_utf8_lossy(&output.stderr)),
            stdout: output.stdout,
        }
    }

    /// Starts the client and leaves it running.
    pub fn start(&self, args: &[impl AsRef<OsStr>]) -> Child {
        let mut command = self.command("client", args);
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    }

    /// Serves `root` on a port of the kernel's choice.
    pub fn serve(&self, more: &[&str]) -> Server {
        self.serve_as("server", "127.0.0.1:0", more)
    }

    pub fn serve_as(&self, home: &str, listen: &str, more: &[&str]) -> Server {
        let mut command =
            self.command(home, &["serve", "--listen", listen, "--root", "root", "--ticket-file", "ticket"]);
        command.args(more);
        self.serve_with(command)
    }

    /// Waits until an endpoint is ready. Its log is checked when it ends.
    pub fn serve_with(&self, mut command: Command) -> Server {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut ready = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut ready).unwrap();
        let mut log = child.stderr.take().unwrap();
        let reader = std::thread::spawn(move || {
            let mut text = String::new();
            let _ = log.read_to_string(&mut text);
            text
        });
        let Some(address) = ready.strip_prefix("ready on ").and_then(|rest| rest.split(',').next()) else {
            let _ = child.wait();
            panic!("the endpoint did not start: {ready:?} {}", reader.join().unwrap());
        };
        Server { address: address.to_owned(), ready, child, log: Some(reader) }
    }

    pub fn enrol(&self) {
        let ran = self.run(&["endpoint", "add", "lab", "--ticket-file", "ticket", "--replace"]);
        assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    }

    /// Replaces what differs from run to run: the bed's directory, ports, identities.
    pub fn anonymous(&self, text: &str) -> String {
        let text = text.replace(&self.dir.path().display().to_string(), "[DIR]");
        let mut shown = String::with_capacity(text.len());
        let mut rest = &text[..];
        while let Some(at) = rest.find("127.0.0.1:") {
            let (before, after) = rest.split_at(at + "127.0.0.1:".len());
            shown.push_str(before);
            shown.push_str("[PORT]");
            rest = after.trim_start_matches(|c: char| c.is_ascii_digit());
        }
        shown.push_str(rest);
        let is_pin = |word: &str| word.len() == 64 && word.bytes().all(|b| b.is_ascii_hexdigit());
        let mut words: Vec<String> = Vec::new();
        for word in shown.split_inclusive(|c: char| !c.is_ascii_alphanumeric()) {
            let bare = word.trim_end_matches(|c: char| !c.is_ascii_alphanumeric());
            words.push(if is_pin(bare) { word.replace(bare, "[PIN]") } else { word.to_owned() });
        }
        words.concat()
    }
}

/// What a finished process left.
pub struct Ran {
    pub code: Option<i32>,
    pub stdout: Vec<u8>,
    pub stderr: String,
}

impl Ran {
    #[track_caller]
    pub fn succeeded(self) -> Ran {
        assert_eq!(self.code, Some(0), "{}", self.stderr);
        self
    }

    /// The two lines of its error.
    pub fn error(&self) -> String {
        let lines = self.stderr.lines().filter(|line| line.starts_with("error: ") || line.starts_with("hint: "));
        lines.collect::<Vec<_>>().join("\n")
    }

    pub fn events(&self) -> Vec<serde_json::Value> {
        let text = String::from_utf8(self.stdout.clone()).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// The last event.
    pub fn done(&self) -> serde_json::Value {
        let event = self.events().pop().unwrap_or_else(|| panic!("no event; {}", self.stderr));
        assert_eq!(event["event"], "done");
        event
    }
}

/// A running endpoint; it is killed when the test ends.
pub struct Server {
    pub address: String,
    /// The line it printed when it was ready.
    pub ready: String,
    child: Child,
    log: Option<std::thread::JoinHandle<String>>,
}

impl Server {
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Ends it in order; returns its exit code and its log.
    pub fn stop(self) -> (Option<i32>, String) {
        self.stop_by(rustix::process::Signal::TERM)
    }

    pub fn stop_by(mut self, by: rustix::process::Signal) -> (Option<i32>, String) {
        signal(&self.child, by);
        let status = self.child.wait().unwrap();
        (status.code(), self.log.take().unwrap().join().unwrap())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A command as another program's last words, which runs it: `outer` comes before it, with all that surrounds it.
pub fn behind(outer: &[&str], command: &Command) -> Command {
    let mut whole = Command::new(outer[0]);
    whole.args(&outer[1..]).arg(command.get_program()).args(command.get_args()).stdin(Stdio::null());
    surround_as(command, &mut whole);
    whole
}

/// Gives `other` the environment and directory of `command`.
pub fn surround_as(command: &Command, other: &mut Command) {
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => other.env(name, value),
            None => other.env_remove(name),
        };
    }
    other.current_dir(command.get_current_dir().unwrap());
}

/// Ends a process when the test does. Those used here also end by themselves, should the test be killed.
pub struct Ends(pub Child);

impl Drop for Ends {
    fn drop(&mut self) {
        signal(&self.0, rustix::process::Signal::TERM);
        let _ = self.0.wait();
    }
}

/// Storage of the laboratory at `mount` in the bed.
pub fn slow_storage(bed: &Bed, mount: &str, profile: &[&str]) -> Ends {
    let backing = format!("{mount}-backing");
    for name in [&backing[..], mount] {
        fs::create_dir_all(bed.path(name)).unwrap();
    }
    let storage = bed.command("client", &[&["lab", "storage", &backing, mount], profile].concat());
    let mut child = behind(&["timeout", "300"], &storage).stdout(Stdio::piped()).spawn().unwrap();
    let mut ready = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut ready).unwrap();
    assert!(ready.starts_with("ready at "), "{ready:?}");
    Ends(child)
}

pub fn signal(child: &Child, signal: rustix::process::Signal) {
    rustix::process::kill_process(rustix::process::Pid::from_child(child), signal).unwrap();
}

pub fn program() -> PathBuf {
    std::env::var_os("THALWEG_BIN").map_or_else(|| env!("CARGO_BIN_EXE_thalweg").into(), PathBuf::from)
}

/// Waits until `is_so`.
#[track_caller]
pub fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < deadline, "waited in vain for {what}");
        std::thread::park_timeout(Duration::from_millis(1));
    }
}

/// Length of the journals in the staging below a directory: they grow by 64 bytes with each verified chunk.
pub fn journal_bytes(root: &Path) -> u64 {
    staged(root)
        .iter()
        .filter(|(path, _)| path.extension().is_some_and(|kind| kind == "log"))
        .map(|(_, bytes)| bytes)
        .sum()
}

/// Files in the staging below a directory, and their length.
pub fn staged(root: &Path) -> Vec<(PathBuf, u64)> {
    let is_staging = |entry: &fs::DirEntry| entry.file_name().as_encoded_bytes().starts_with(b".thalweg-staging-");
    let listing = fs::read_dir(root).into_iter().flatten().flatten();
    let mut pending: Vec<PathBuf> = listing.filter(is_staging).map(|entry| entry.path()).collect();
    let mut files = Vec::new();
    while let Some(directory) = pending.pop() {
        for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
            match entry.metadata() {
                Ok(found) if found.is_dir() => pending.push(entry.path()),
                Ok(found) => files.push((entry.path(), found.len())),
                Err(_) => {}
            }
        }
    }
    files
}

/// Everything below a directory, in order: path, kind, mode, time, content.
pub fn contents(root: &Path) -> Vec<String> {
    let mut found = Vec::new();
    let mut pending = vec![root.to_owned()];
    while let Some(directory) = pending.pop() {
        for entry in fs::read_dir(&directory).unwrap() {
            let path = entry.unwrap().path();
            let metadata = path.symlink_metadata().unwrap();
            let below = path.strip_prefix(root).unwrap().to_owned();
            let what = if metadata.is_symlink() {
                format!("link to {:?}", fs::read_link(&path).unwrap())
            } else if metadata.is_dir() {
                pending.push(path.clone());
                format!("directory {:o}", metadata.mode() & 0o7777)
            } else {
                let bytes = fs::read(&path).unwrap();
                let digest = model::DigestAlgorithm::Blake3.of_object(&bytes);
                format!("file {:o} {} {digest}", metadata.mode() & 0o7777, bytes.len())
            };
            found.push(format!("{below:?} {what} {}.{:09}", metadata.mtime(), metadata.mtime_nsec()));
        }
    }
    found.sort();
    found
}

/// Bytes that do not repeat.
pub fn noise(bytes: usize, seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(2) + 1;
    let mut out = Vec::with_capacity(bytes + 8);
    while out.len() < bytes {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        out.extend_from_slice(&(state ^ (state >> 29)).to_le_bytes());
    }
    out.truncate(bytes);
    out
}

pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// A user who may do nothing in particular.
pub const NOBODY: u32 = 65534;

/// Makes a command run as `NOBODY`, with everything below `owned` theirs. Only root can.
pub fn as_nobody(command: &mut Command, owned: &[PathBuf]) {
    for path in owned {
        let mut pending = vec![path.clone()];
        while let Some(path) = pending.pop() {
            std::os::unix::fs::lchown(&path, Some(NOBODY), Some(NOBODY)).unwrap();
            if path.is_dir() && !path.is_symlink() {
                pending.extend(fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
            }
        }
    }
    command.uid(NOBODY).gid(NOBODY);
}
