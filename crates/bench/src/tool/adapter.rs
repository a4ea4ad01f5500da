//! A tool described by a file, for programs that have no file here. The format is described in `docs/measuring.md`.
//!
//! Invariants: an unknown key or placeholder is an error when the file is read, before anything runs. Commands are lists of
//! words; no shell reads them unless the file calls one.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use serde::Deserialize;

use super::{Bed, Class, Guards, Host, Set, Tool, folder_name};
use crate::error::{Error, Kind, Result};
use crate::process::{Gated, Ready};
use crate::workspace::remove_tree;

const SETUP_LIMIT: Duration = Duration::from_secs(60);
/// Known before a run begins.
const OF_RACE: [&str; 5] = ["delivered", "address", "port", "workspace", "dir"];
/// Known for a run only.
const OF_RUN: [&str; 3] = ["source", "delivery", "folder"];

#[derive(Deserialize, Clone, Debug)]
#[serde(deny_unknown_fields)]
pub struct Adapter {
    pub(super) name: String,
    /// How to get it, for those who do not have it.
    package: String,
    #[serde(default = "network")]
    class: Class,
    protection: String,
    #[serde(default)]
    encrypted: bool,
    #[serde(default)]
    digest: bool,
    pub(super) version: Vec<String>,
    #[serde(default)]
    pub(super) port: Option<u16>,
    #[serde(default)]
    pub(super) steps: Vec<String>,
    #[serde(default)]
    pub(super) setup: Vec<Setup>,
    #[serde(default)]
    pub(super) server: Option<ServerPart>,
    pub(super) client: ClientPart,
    /// Our own program against a store.
    #[serde(skip)]
    pub(super) is_ours: bool,
}

#[derive(Deserialize, Clone, Debug)]
#[serde(deny_unknown_fields)]
pub(super) struct Setup {
    at: Place,
    command: Vec<String>,
}

#[derive(Deserialize, Clone, Copy, Debug)]
#[serde(rename_all = "lowercase")]
enum Place {
    Client,
    Server,
}

#[derive(Deserialize, Clone, Debug)]
#[serde(deny_unknown_fields)]
pub(super) struct ServerPart {
    #[serde(default)]
    pub(super) version: Vec<String>,
    command: Vec<String>,
    #[serde(default)]
    environment: BTreeMap<String, String>,
    /// Instead of waiting until `port` is listened on.
    #[serde(default)]
    ready_file: Option<String>,
    /// It serves one transfer and may name its delivery.
    #[serde(default)]
    each_run: bool,
}

#[derive(Deserialize, Clone, Debug)]
#[serde(deny_unknown_fields)]
pub(super) struct ClientPart {
    pub(super) command: Vec<String>,
    /// For sets of files of 64 MiB and more.
    #[serde(default)]
    large: Option<Vec<String>>,
    /// The other way: from the server's `source` to the `delivery` on this host.
    #[serde(default)]
    pub(super) fetch: Option<Vec<String>>,
    #[serde(default)]
    fetch_large: Option<Vec<String>>,
    #[serde(default)]
    environment: BTreeMap<String, String>,
}

fn network() -> Class {
    Class::Network
}

impl Adapter {
    pub fn read(file: &Path) -> Result<Adapter> {
        let text = std::fs::read_to_string(file).map_err(|source| {
            let Error { subject, source, .. } = Error::io("read", file)(source);
            Error { kind: Kind::Usage, operation: "read", subject, source }
        })?;
        let wrong = |cause: String| Error::usage(file.display(), cause);
        let adapter: Adapter = toml::from_str(&text).map_err(|error| {
            let line = error.span().map_or(1, |span| text[..span.start].matches('\n').count() + 1);
            wrong(format!("line {line}: {}", error.message()))
        })?;
        adapter.check().map_err(wrong)?;
        Ok(adapter)
    }

    pub(super) fn check(&self) -> std::result::Result<(), String> {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        if self.name.is_empty() || !self.name.chars().all(is_plain) || self.name.starts_with('.') {
            return Err("name: letters, digits, '-', '_' and '.' only".into());
        }
        if self.class == Class::Reference {
            return Err("class: \"network\" or \"local\"".into());
        }
        let of_client = [&OF_RACE[..], &OF_RUN].concat();
        self.check_words("version", &self.version, &[])?;
        self.check_words("client.command", &self.client.command, &of_client)?;
        let ClientPart { large, fetch, fetch_large, .. } = &self.client;
        for (key, words) in [("large", large), ("fetch", fetch), ("fetch_large", fetch_large)] {
            words.as_ref().map_or(Ok(()), |words| self.check_words(&format!("client.{key}"), words, &of_client))?;
        }
        self.check_values("client.environment", self.client.environment.values(), &of_client)?;
        for setup in &self.setup {
            self.check_words("setup.command", &setup.command, &OF_RACE)?;
        }
        let Some(server) = &self.server else { return Ok(()) };
        if self.class == Class::Local {
            return Err("server: a tool of class \"local\" has none".into());
        }
        if self.port.is_none() && server.ready_file.is_none() {
            return Err("server: needs `port` at the top, or `ready_file`, to tell when it is ready".into());
        }
        let of_server = if server.each_run { &of_client } else { &OF_RACE[..] };
        self.check_words("server.command", &server.command, of_server)?;
        self.check_values("server.ready_file", server.ready_file.iter(), of_server)?;
        self.check_values("server.environment", server.environment.values(), of_server)
    }

    fn check_words(&self, key: &str, words: &[String], known: &[&str]) -> std::result::Result<(), String> {
        if words.first().is_none_or(String::is_empty) {
            return Err(format!("{key}: names no program"));
        }
        self.check_values(key, words.iter(), known)
    }

    fn check_values<'a>(
        &self,
        key: &str,
        values: impl Iterator<Item = &'a String>,
        known: &[&str],
    ) -> std::result::Result<(), String> {
        for value in values {
            fill(value, &|name| known.contains(&name).then(String::new)).map_err(|name| match known {
                [] => format!("{key}: {{{name}}} is not known there; no placeholder is"),
                known => format!("{key}: {{{name}}} is not known there; known are {{{}}}", known.join("}, {")),
            })?;
            if value.contains("{port}") && self.port.is_none() {
                return Err(format!("{key}: {{port}} needs `port` at the top"));
            }
        }
        Ok(())
    }

    fn filled(&self, bed: &Bed, run: Option<(&Set, &Path)>, text: &str) -> String {
        let value = |name: &str| {
            Some(match name {
                "delivered" => bed.delivered.display().to_string(),
                "address" => bed.server_address(),
                "port" => self.port?.to_string(),
                "workspace" => bed.workspace.display().to_string(),
                "dir" => self.dir(bed).display().to_string(),
                // What is below `delivered` has the same name at a server that is rooted there.
                "folder" => {
                    let (set, delivery) = run?;
                    folder_name(if set.source.starts_with(bed.delivered) { &set.source } else { delivery })
                }
                "source" => run?.0.source.display().to_string(),
                "delivery" => run?.1.display().to_string(),
                _ => return None,
            })
        };
        fill(text, &value).unwrap_or_else(|_| text.to_owned())
    }

    /// Private to the tool.
    fn dir(&self, bed: &Bed) -> PathBuf {
        bed.workspace.join(format!("{}-files", self.name))
    }

    fn command(
        &self,
        bed: &Bed,
        run: Option<(&Set, &Path)>,
        words: &[String],
        environment: &BTreeMap<String, String>,
    ) -> Command {
        let mut words = words.iter().map(|word| self.filled(bed, run, word));
        let mut command = Command::new(words.next().unwrap_or_default());
        command.args(words);
        for (name, value) in environment {
            command.env(name, self.filled(bed, run, value));
        }
        command
    }

    /// First line of what a program says of its version.
    fn version_of(&self, words: &[String]) -> Result<String> {
        let output = Command::new(&words[0]).args(&words[1..]).output().map_err(|source| {
            let is_missing = source.kind() == std::io::ErrorKind::NotFound;
            let kind = if is_missing { Kind::Missing } else { Kind::Failed };
            let cause =
                if is_missing { format!("not installed; get it: {}", self.package) } else { source.to_string() };
            Error::new(kind, "start", &words[0], cause)
        })?;
        let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
        // A command that finds its interpreter but not the program itself says so by failing.
        if !output.status.success() && said.to_ascii_lowercase().contains("unable to access") {
            let cause = format!("{}; get it: {}", said.trim(), self.package);
            return Err(Error::new(Kind::Missing, "start", &self.name, cause));
        }
        let first = said.lines().map(str::trim).find(|line| !line.is_empty());
        Ok(first.unwrap_or("unknown version").to_owned())
    }

    fn served(&self, bed: &Bed, run: Option<(&Set, &Path)>) -> Result<Option<(Command, Ready)>> {
        let Some(server) = self.server.as_ref().filter(|server| server.each_run == run.is_some()) else {
            return Ok(None);
        };
        let ready = match (&server.ready_file, self.port) {
            (Some(file), _) => {
                let path = PathBuf::from(self.filled(bed, run, file));
                // That of the last run would tell a lie.
                let _ = std::fs::remove_file(&path);
                Ready::Exists(path)
            }
            (None, Some(port)) => Ready::Listens(port),
            (None, None) => return Err(Error::usage(&self.name, "neither `port` nor `ready_file`")),
        };
        Ok(Some((self.command(bed, run, &server.command, &server.environment), ready)))
    }
}

impl Tool for Adapter {
    fn name(&self) -> &str {
        &self.name
    }

    fn class(&self) -> Class {
        self.class
    }

    fn is_ours(&self) -> bool {
        self.is_ours
    }

    fn starts_ours(&self, program: &OsStr) -> bool {
        self.is_ours && program == self.client.command[0].as_str()
    }

    fn protection(&self) -> &str {
        &self.protection
    }

    fn guards(&self) -> Guards {
        Guards { is_encrypted: self.encrypted, is_digested: self.digest }
    }

    fn steps(&self) -> Vec<&str> {
        self.steps.iter().map(String::as_str).collect()
    }

    fn version(&self) -> Result<String> {
        let version = self.version_of(&self.version)?;
        match self.server.as_ref().map(|server| &server.version).filter(|words| !words.is_empty()) {
            Some(words) => Ok(format!("{version}, {}", self.version_of(words)?)),
            None => Ok(version),
        }
    }

    fn prepare(&self, bed: &Bed) -> Result<()> {
        let dir = self.dir(bed);
        remove_tree(&dir)?;
        std::fs::create_dir(&dir).map_err(Error::io("create", &dir))?;
        for setup in &self.setup {
            let host = match setup.at {
                Place::Client => Host::Client,
                Place::Server => Host::Server,
            };
            let command = self.command(bed, None, &setup.command, &BTreeMap::new());
            let gated = Gated::prepare(&command, |gate| bed.at(host, self.class, gate), bed.workspace)?;
            let finished = gated.run(SETUP_LIMIT, None, &AtomicBool::new(false))?;
            if !finished.status.is_some_and(|status| status.success()) {
                let said = [finished.stdout, finished.stderr].concat();
                return Err(Error::new(Kind::Failed, "set up with", setup.command.join(" "), said.trim()));
            }
        }
        Ok(())
    }

    fn server(&self, bed: &Bed) -> Result<Option<(Command, Ready)>> {
        self.served(bed, None)
    }

    fn server_of_run(&self, bed: &Bed, set: &Set, delivery: &Path) -> Result<Option<(Command, Ready)>> {
        self.served(bed, Some((set, delivery)))
    }

    fn client(&self, bed: &Bed, set: &Set, delivery: &Path) -> Command {
        let large = self.client.large.as_ref().filter(|_| set.has_large_files());
        let words = large.unwrap_or(&self.client.command);
        self.command(bed, Some((set, delivery)), words, &self.client.environment)
    }

    fn fetch(&self, bed: &Bed, set: &Set, delivery: &Path) -> Option<Command> {
        let large = self.client.fetch_large.as_ref().filter(|_| set.has_large_files());
        let words = large.or(self.client.fetch.as_ref())?;
        Some(self.command(bed, Some((set, delivery)), words, &self.client.environment))
    }
}

/// Replaces `{name}` by its value; an error is the name of an unknown one. Only small letters between braces are a name, so
/// that `${HOME}` and the like of a shell stay as they are.
fn fill(text: &str, value: &dyn Fn(&str) -> Option<String>) -> std::result::Result<String, String> {
    let mut filled = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('{') {
        let (before, after) = (&rest[..at], &rest[at + 1..]);
        filled.push_str(before);
        let name = after.split('}').next().unwrap_or_default();
        let is_name =
            name.len() < after.len() && !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_lowercase());
        if is_name && !before.ends_with('$') {
            filled.push_str(&value(name).ok_or_else(|| name.to_owned())?);
            rest = &after[name.len() + 1..];
        } else {
            filled.push('{');
            rest = after;
        }
    }
    Ok(filled + rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINIMAL: &str = "name = 'x'\npackage = 'p'\nprotection = 'none'\nversion = ['x', '-v']\n";

    fn read(more: &str) -> std::result::Result<Adapter, String> {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("x.toml");
        std::fs::write(&file, format!("{MINIMAL}{more}")).unwrap();
        Adapter::read(&file).map_err(|error| error.chain())
    }

    #[test]
    fn placeholders_are_filled_and_the_shells_own_braces_stay() {
        let value = |name: &str| (name == "port").then(|| "7".to_owned());
        assert_eq!(fill("a{port}b{port}", &value).unwrap(), "a7b7");
        assert_eq!(fill("${port} {PORT} {} { {port", &value).unwrap(), "${port} {PORT} {} { {port");
        assert_eq!(fill("{prot}", &value).unwrap_err(), "prot");
    }

    #[test]
    fn an_unknown_key_or_placeholder_is_refused_with_what_is_known() {
        let client = "[client]\ncommand = ['x', '{source}', '{delivery}']\n";
        read(client).unwrap();
        for (text, said) in [
            (format!("speed = 3\n{client}"), "speed"),
            ("[client]\ncommand = ['x', '{sorce}']\n".into(), "{sorce} is not known there; known are {delivered}, "),
            ("[client]\ncommand = []\n".into(), "client.command: names no program"),
            ("[client]\ncommand = ['x', '{port}']\n".into(), "{port} needs `port` at the top"),
            (
                format!("{client}[server]\ncommand = ['y', '{{delivery}}']\nready_file = 'z'\n"),
                "{delivery} is not known",
            ),
            (format!("{client}[server]\ncommand = ['y']\n"), "needs `port`"),
            (format!("class = 'local'\n{client}[server]\ncommand = ['y']\nready_file = 'z'\n"), "class \"local\""),
        ] {
            let error = read(&text).unwrap_err();
            assert!(error.contains(said), "{text}: {error}");
        }
    }

    #[test]
    fn a_server_of_one_run_may_name_its_delivery() {
        let text =
            "[client]\ncommand = ['x']\n[server]\ncommand = ['y', '{delivery}']\nready_file = 'z'\neach_run = true\n";
        assert!(read(text).is_ok());
    }

    #[test]
    fn the_examples_can_be_read() {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/fpsync.toml");
        let fpsync = Adapter::read(&file).unwrap();
        assert_eq!((fpsync.name(), fpsync.guards().is_digested), ("fpsync", true));
    }

    #[test]
    fn a_missing_program_is_named_with_the_way_to_get_it() {
        let text = "[client]\ncommand = ['x']\n".to_owned();
        let mut adapter = read(&text).unwrap();
        adapter.version = vec!["no-such-program-anywhere".into()];
        let error = adapter.version().unwrap_err();
        assert_eq!(error.kind, Kind::Missing);
        assert!(error.chain().contains("get it: p"), "{}", error.chain());
    }
}
