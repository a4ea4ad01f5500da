//! The programs that race: how each is found, started, asked to deliver a set, and what it protects.
//!
//! Every rival runs with the best settings known for it. They stand in its file, with the reason, and in the report.

pub(crate) mod ends;
mod known;
mod adapter;
mod copy;
pub mod follow;
mod globus;
mod lftp;
mod rclone;
mod rsync;
mod rsync_ssh;
mod scp;
pub(crate) mod sources;
mod sshd;
mod stores;
mod tar;
pub(crate) mod thalweg;
mod xrootd;

pub use ends::{Class, Host};
pub use known::{RIVALS, RIVALS_DEFAULT, adapter, ours, rival};
pub use stores::{STORES, at_store};
pub use thalweg::Variant;

use std::ffi::OsStr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use lab::Lab;

use crate::environment::Program;
use crate::error::{Error, Kind, Result};
use crate::process::Ready;

/// How the source of a set begins that our program makes up and the remote side discards: no storage is involved.
pub const SYNTHETIC_SOURCE: &str = "gen:";

/// The files of one race.
#[derive(Clone, Debug)]
pub struct Set {
    pub name: String,
    pub files: u64,
    pub bytes: u64,
    /// A directory, or a synthetic location such as `gen:1000x64MiB`, which only our program understands.
    pub source: PathBuf,
}

impl Set {
    pub fn is_synthetic(&self) -> bool {
        self.source.as_os_str().as_encoded_bytes().starts_with(SYNTHETIC_SOURCE.as_bytes())
    }

    /// Files and bytes that a delivery takes at its destination.
    pub(crate) fn footprint(&self) -> (u64, u64) {
        if self.is_synthetic() { (1, 0) } else { (self.files, self.bytes) }
    }

    /// Whether a file is long enough for several streams to be worth their set-up.
    fn has_large_files(&self) -> bool {
        const LARGE_FILE_BYTES_MIN: u64 = 64 << 20;
        self.bytes / self.files.max(1) >= LARGE_FILE_BYTES_MIN
    }
}

/// Where a race takes place.
pub struct Bed<'a> {
    /// Private to the run; configuration and logs go here.
    pub workspace: &'a Path,
    /// Parent of all deliveries, and the root of every server.
    pub delivered: &'a Path,
    pub lab: Option<&'a Lab>,
}

impl Bed<'_> {
    /// The command as it runs at a host of the laboratory; on this one where there is no laboratory or it is not needed.
    pub fn at(&self, host: Host, class: Class, command: &Command) -> Result<Command> {
        match (class, self.lab) {
            (Class::Local, _) | (_, None) => {
                let mut copy = Command::new(command.get_program());
                copy.args(command.get_args());
                for (name, value) in command.get_envs() {
                    match value {
                        Some(value) => copy.env(name, value),
                        None => copy.env_remove(name),
                    };
                }
                Ok(copy)
            }
            (_, Some(lab)) => Ok(lab.exec(host.name(lab), command)?),
        }
    }

    /// The address that servers listen on.
    pub fn server_address(&self) -> String {
        let address = self.lab.and_then(|lab| lab.address_v4(Host::Server.name(lab)).ok());
        address.map_or("127.0.0.1".into(), |address| address.to_string())
    }
}

/// What a transfer is guarded by, for those who compare like with like.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Guards {
    pub is_encrypted: bool,
    /// Content is checked by a digest of its own, beyond what encryption or TCP do.
    pub is_digested: bool,
}

pub trait Tool {
    fn name(&self) -> &str;
    fn class(&self) -> Class;
    fn is_ours(&self) -> bool {
        false
    }
    /// Whether a command of this tool starts our own program, and not a server that others have made.
    fn starts_ours(&self, _program: &OsStr) -> bool {
        self.is_ours()
    }
    /// Encryption and digests that the time includes.
    fn protection(&self) -> &str;
    fn guards(&self) -> Guards;
    /// What a person does before the first transfer, step by step.
    fn steps(&self) -> Vec<&str>;
    /// First line of what the program says about its version. An error of kind `Missing` tells how to get it.
    fn version(&self) -> Result<String>;
    /// The command of the server, in the foreground, if the tool has one; writes the configuration it needs.
    fn server(&self, _bed: &Bed) -> Result<Option<(Command, Ready)>> {
        Ok(None)
    }
    /// The same for a tool whose server takes part in one run only. It is started before the clock.
    fn server_of_run(&self, _bed: &Bed, _set: &Set, _delivery: &Path) -> Result<Option<(Command, Ready)>> {
        Ok(None)
    }
    /// What has to be run before the server starts, besides what `server` writes.
    fn prepare(&self, _bed: &Bed) -> Result<()> {
        Ok(())
    }
    /// Makes the client known to the started server.
    fn enrol(&self, _bed: &Bed) -> Result<()> {
        Ok(())
    }
    /// The command that delivers the content of `set.source` into the existing, empty `delivery`.
    fn client(&self, bed: &Bed, set: &Set, delivery: &Path) -> Command;
    /// The command that brings the content of `set.source`, which lies at the server, into the existing, empty `delivery` on
    /// the client's host; none of a tool that is raced one way.
    fn fetch(&self, _bed: &Bed, _set: &Set, _delivery: &Path) -> Option<Command> {
        None
    }
    /// The duration that the program itself reports.
    fn reported_seconds(&self, _stdout: &str) -> Option<f64> {
        None
    }
}

/// A program as the shell would find it, or where system programs are, which are not in everyone's path.
pub(crate) fn found_program(name: &str, package: &str) -> Result<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let system = ["/usr/sbin", "/sbin", "/usr/local/sbin"].map(PathBuf::from);
    let found = std::env::split_paths(&path).chain(system).map(|dir| dir.join(name)).find(|path| path.is_file());
    found.ok_or_else(|| Error::new(Kind::Missing, "start", name, format!("not installed; Debian package {package}")))
}

/// The file of a program as a command names it.
pub(crate) fn found(program: &std::ffi::OsStr) -> Option<PathBuf> {
    let path = Path::new(program);
    if path.components().count() > 1 {
        return Some(path.to_owned());
    }
    found_program(&path.to_string_lossy(), "").ok()
}

/// Of a program's file: figures of different builds are told apart by it.
pub(crate) fn digest(program: &Path) -> Result<String> {
    let read = found(program.as_os_str()).and_then(|path| Program::read(&path));
    let read = read.ok_or_else(|| Error::new(Kind::Missing, "read", program.display(), "there is no such program"))?;
    Ok(read.sha256)
}

/// What a short command says; an error with its words if it fails.
fn output_of(command: &mut Command) -> Result<String> {
    let output = command.output().map_err(Error::io("start", command.get_program()))?;
    let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    if output.status.success() {
        return Ok(said);
    }
    Err(Error::new(Kind::Failed, "run", command.get_program().display(), said.trim()))
}

/// For servers that give up root.
fn make_writable_dir(dir: &Path) -> Result<()> {
    crate::workspace::remove_tree(dir)?;
    std::fs::create_dir(dir).map_err(Error::io("create", dir))?;
    std::fs::set_permissions(dir, std::fs::Permissions::from_mode(0o777)).map_err(Error::io("open up", dir))
}

/// First line that a program prints when asked for its version; some print it to standard error.
pub fn version_of(program: &Path, argument: &str, package: &str) -> Result<String> {
    let output = Command::new(program).arg(argument).output().map_err(|source| {
        let is_missing = source.kind() == std::io::ErrorKind::NotFound;
        let kind = if is_missing { Kind::Missing } else { Kind::Failed };
        let cause = if is_missing { format!("not installed; Debian package {package}") } else { source.to_string() };
        Error::new(kind, "start", program.display(), cause)
    })?;
    let said = [output.stdout, output.stderr].concat();
    let first = String::from_utf8_lossy(&said).lines().map(str::trim).find(|line| !line.is_empty()).map(str::to_owned);
    Ok(first.unwrap_or_else(|| "unknown version".into()))
}

/// A directory in the form that copies its content, not itself.
pub(crate) fn with_slash(path: &Path) -> std::ffi::OsString {
    let mut text = path.as_os_str().to_owned();
    text.push("/");
    text
}

/// The last component of a delivery, by which servers rooted at `Bed::delivered` know it.
pub(crate) fn folder_name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}
