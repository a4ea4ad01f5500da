//! Running iproute2 and its like, and the places where it keeps things.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::error::{Error, Kind, Result};

/// Where iproute2 keeps the handles of named namespaces.
pub const NETNS_DIR: &str = "/run/netns";
/// Where iproute2 looks for the files to mount over `/etc` in a namespace.
pub const NETNS_ETC_DIR: &str = "/etc/netns";
/// Runs one `ip` with many commands, in a namespace if one is given.
pub fn batch(namespace: Option<&str>, lines: &str) -> Result<()> {
    let mut command = Command::new("ip");
    command.args(namespace.iter().flat_map(|namespace| ["-n", namespace])).args(["-batch", "-"]);
    feed(&mut command, lines, "run ip in", namespace.unwrap_or("this namespace"))
}

/// Runs a command that reads `input`.
pub fn feed(command: &mut Command, input: &str, operation: &'static str, subject: &str) -> Result<()> {
    let program = command.get_program().to_string_lossy().into_owned();
    let spawned = command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn();
    let mut child = spawned.map_err(|source| {
        let package = if program == "ip" || program == "tc" { "iproute2" } else { "iptables" };
        Error::io("start", Path::new(&program), source).hint(format!("install the package {package}"))
    })?;
    // A command that fails early does not read all of it, and then says why.
    let _ = child.stdin.take().map_or(Ok(()), |mut stdin| stdin.write_all(input.as_bytes()));
    let output = child.wait_with_output().map_err(|source| Error::io("wait for", Path::new(&program), source))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr).trim().replace('\n', "; ");
    Err(Error::new(Kind::Failed, operation, subject, format!("{program}: {said}")))
}
