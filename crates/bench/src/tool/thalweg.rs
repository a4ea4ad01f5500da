//! Our own program, as a user would call it.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::{Bed, Class, Guards, Host, Set, Tool, folder_name, version_of, with_slash};
use crate::error::{Error, Kind, Result};
use crate::process::Ready;

const PORT: u16 = 7740;
const ENDPOINT: &str = "far";

/// A build or setting of the program. Several of them race each other like tools.
#[derive(Clone, Debug)]
pub struct Variant {
    pub label: String,
    pub program: PathBuf,
    /// Added to `serve`.
    pub serve_args: Vec<OsString>,
    /// Added to `cp`.
    pub cp_args: Vec<OsString>,
}

impl Variant {
    pub fn new(program: impl Into<PathBuf>) -> Variant {
        Variant { label: "thalweg".into(), program: program.into(), serve_args: Vec::new(), cp_args: Vec::new() }
    }
}

pub struct Thalweg {
    variant: Variant,
    name: String,
    port: u16,
    class: Class,
}

impl Thalweg {
    /// `index` keeps the ports of variants apart.
    pub fn new(variant: &Variant, index: usize, class: Class) -> Thalweg {
        let name = if class == Class::Local { format!("{} (local)", variant.label) } else { variant.label.clone() };
        Thalweg { variant: variant.clone(), name, port: PORT + index as u16, class }
    }

    /// With a home of its own, so that no run sees the user's configuration or another run's endpoints.
    fn command(&self, bed: &Bed, role: &str, verb: &[&str]) -> Command {
        let home = self.home(bed, role);
        let mut command = Command::new(&self.variant.program);
        // What the user has set for copies of their own is no part of a measurement.
        command.args(verb).env("HOME", &home).env("THALWEG_CONFIG", "/dev/null");
        for name in ["CONFIG_HOME", "STATE_HOME", "CACHE_HOME", "DATA_HOME", "RUNTIME_DIR"] {
            command.env(format!("XDG_{name}"), home.join(name.to_ascii_lowercase()));
        }
        command
    }

    fn home(&self, bed: &Bed, role: &str) -> PathBuf {
        bed.workspace.join(format!("{}-{role}", self.variant.label))
    }

    /// Each copy finds out anew whether its path loses: the one before may have had another path to the same address.
    fn forget_lossy_paths(&self, bed: &Bed) {
        let _ = std::fs::remove_file(self.home(bed, "client").join("state_home/thalweg/calibrations/lossy.paths.json"));
    }

    fn ticket(&self, bed: &Bed) -> PathBuf {
        self.home(bed, "server").join("ticket")
    }
}

impl Thalweg {
    /// Carries what grows in the source until STOP is there, so that it can be read at the other end as it comes.
    pub fn follow(&self, bed: &Bed, set: &Set, delivery: &Path) -> Command {
        let mut command = self.command(bed, "client", &["follow", "--json", "--until", "rename", "--show", "prefix"]);
        command.args(["--end", "marker:STOP"]).args(&self.variant.cp_args).arg(with_slash(&set.source));
        command.arg(format!("{ENDPOINT}:{}/", folder_name(delivery)));
        command
    }
}

#[cfg(feature = "fuse")]
impl Thalweg {
    /// Measures the way to the endpoint, and the source.
    pub fn calibrate(&self, bed: &Bed, set: &Set) -> Command {
        let mut command = self.command(bed, "client", &["calibrate", ENDPOINT, "--despite-load", "--json", "--source"]);
        command.arg(&set.source);
        command
    }

    /// What a plan for the set says.
    pub fn plan(&self, bed: &Bed, set: &Set) -> Command {
        let mut command = self.command(bed, "client", &["plan", "--json"]);
        command.arg(with_slash(&set.source)).arg(format!("{ENDPOINT}:delivery/"));
        command
    }
}

impl Tool for Thalweg {
    fn name(&self) -> &str {
        &self.name
    }

    fn class(&self) -> Class {
        self.class
    }

    fn is_ours(&self) -> bool {
        true
    }

    fn protection(&self) -> &str {
        match self.class {
            Class::Local => "digests (CRC-64/NVME) checked before publication",
            _ => "TLS 1.3 both ways authenticated, digests (CRC-64/NVME) checked before publication",
        }
    }

    fn guards(&self) -> Guards {
        Guards { is_encrypted: self.class == Class::Network, is_digested: true }
    }

    fn steps(&self) -> Vec<&str> {
        match self.class {
            Class::Local => Vec::new(),
            _ => vec!["install thalweg on both hosts", "start `thalweg serve`", "hand its ticket to the client"],
        }
    }

    fn version(&self) -> Result<String> {
        version_of(&self.variant.program, "--version", "thalweg (build it: cargo build --release)")
    }

    fn server(&self, bed: &Bed) -> Result<Option<(Command, Ready)>> {
        if self.class == Class::Local {
            return Ok(None);
        }
        let home = self.home(bed, "server");
        // A state directory of an earlier set would hold another ticket file.
        crate::workspace::remove_tree(&home)?;
        std::fs::create_dir_all(&home).map_err(Error::io("create", &home))?;
        let mut command = self.command(bed, "server", &["serve", "--listen"]);
        command.arg(format!("{}:{}", bed.server_address(), self.port));
        command.arg("--root").arg(bed.delivered).arg("--state-dir").arg(home.join("state"));
        command.arg("--ticket-file").arg(self.ticket(bed)).args(&self.variant.serve_args);
        Ok(Some((command, Ready::Exists(self.ticket(bed)))))
    }

    fn enrol(&self, bed: &Bed) -> Result<()> {
        if self.class == Class::Local {
            return Ok(());
        }
        crate::workspace::remove_tree(&self.home(bed, "client"))?;
        let mut command = self.command(bed, "client", &["endpoint", "add", ENDPOINT, "--ticket-file"]);
        command.arg(self.ticket(bed));
        let output =
            bed.at(Host::Client, self.class, &command)?.output().map_err(Error::io("start", &self.variant.program))?;
        if output.status.success() {
            return Ok(());
        }
        let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        Err(Error::new(Kind::Failed, "add endpoint with", self.variant.program.display(), said))
    }

    fn client(&self, bed: &Bed, set: &Set, delivery: &Path) -> Command {
        self.forget_lossy_paths(bed);
        let mut command = self.command(bed, "client", &["cp", "--json"]);
        command.args(&self.variant.cp_args);
        if set.is_synthetic() {
            let sink = if self.class == Class::Local { "null:".into() } else { format!("{ENDPOINT}:null:") };
            command.arg(&set.source).arg(sink);
            return command;
        }
        command.arg(with_slash(&set.source));
        match self.class {
            Class::Local => command.arg(with_slash(delivery)),
            _ => command.arg(format!("{ENDPOINT}:{}/", folder_name(delivery))),
        };
        command
    }

    fn reported_seconds(&self, stdout: &str) -> Option<f64> {
        done(stdout)?["seconds"].as_f64()
    }
}

/// The last event, if it is the end.
fn done(stdout: &str) -> Option<serde_json::Value> {
    let last = stdout.lines().rfind(|line| !line.trim().is_empty())?;
    let event: serde_json::Value = serde_json::from_str(last).ok()?;
    (event["event"] == "done").then_some(event)
}

/// What limited a copy, by what our program says of it at its end.
pub(crate) fn bottleneck(stdout: &str) -> Option<String> {
    done(stdout)?["bottleneck"]["stage"].as_str().map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_and_bottleneck_are_those_of_the_last_event_if_it_is_the_end() {
        let tool = Thalweg::new(&Variant::new("thalweg"), 0, Class::Network);
        let done = r#"{"v":1,"event":"done","seconds":1.5,"bottleneck":{"stage":"network"},"code":0}"#;
        assert_eq!(tool.reported_seconds(&format!("{{\"event\":\"progress\",\"seconds\":9}}\n{done}\n\n")), Some(1.5));
        assert_eq!(tool.reported_seconds("{\"event\":\"progress\",\"seconds\":9}\n"), None);
        assert_eq!(tool.reported_seconds("not json"), None);
        assert_eq!(bottleneck(done).as_deref(), Some("network"));
        assert_eq!(bottleneck(r#"{"event":"done","bottleneck":null}"#), None);
    }
}
