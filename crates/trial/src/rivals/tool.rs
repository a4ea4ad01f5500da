//! The programs that are compared: how each one is started with its safest settings.
//!
//! Settings that make one faster at the price of safety are left out, whatever they cost. What is not settable, such as
//! a temporary name where a program knows none, shows in the table.

use super::stage::Stage;
use crate::outside::ground::{self, Endpoint};
use crate::outside::process::output_of;
use anyhow::{Context, Result};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Tool {
    Thalweg,
    Rsync,
    Globus,
    Xrootd,
    Copy,
}

pub const TOOLS: [Tool; 5] = [Tool::Thalweg, Tool::Rsync, Tool::Globus, Tool::Xrootd, Tool::Copy];

impl Tool {
    pub fn name(self) -> &'static str {
        match self {
            Tool::Thalweg => "thalweg",
            Tool::Rsync => "rsync",
            Tool::Globus => "globus-url-copy",
            Tool::Xrootd => "xrdcp",
            Tool::Copy => "cp",
        }
    }

    /// Debian's.
    pub fn packages(self) -> &'static str {
        match self {
            Tool::Thalweg => "build it: cargo build --release -p thalweg",
            Tool::Rsync => "rsync",
            Tool::Globus => "globus-gass-copy-progs and globus-gridftp-server-progs",
            Tool::Xrootd => "xrootd-client and xrootd-server",
            Tool::Copy => "coreutils",
        }
    }

    /// Of client and server, for the table.
    pub fn settings(self) -> &'static str {
        match self {
            Tool::Thalweg => "`cp`; `serve` (defaults)",
            Tool::Rsync => "`-a --fsync --delay-updates` to a daemon with `use chroot = yes`",
            Tool::Globus => {
                "`-r -cd -verify-checksum -checksum-alg MD5`; server `-sync-writes -restrict-paths`, anonymous, clear text"
            }
            Tool::Xrootd => {
                "`--recursive --force --posc --cksum adler32 --rm-bad-cksum`; server `xrootd.chksum adler32`, clear text"
            }
            Tool::Copy => "`-a`, on one host",
        }
    }

    pub fn has_server(self) -> bool {
        self != Tool::Copy
    }

    /// Its server runs as another user when root starts it.
    pub fn gives_up_root(self) -> bool {
        matches!(self, Tool::Globus | Tool::Xrootd)
    }

    /// What clients connect to.
    pub fn port(self) -> u16 {
        match self {
            Tool::Thalweg | Tool::Copy => ground::PORT,
            Tool::Rsync => 8730,
            Tool::Globus => 2811,
            Tool::Xrootd => 1094,
        }
    }

    /// The first line that it says of its version; an error if it is not installed.
    pub fn version(self, program: &Path) -> Result<String> {
        let said = |program: &Path, argument: &str| {
            let output = Command::new(program).arg(argument).output().context("not installed")?;
            let said = [output.stdout, output.stderr].concat();
            let text = String::from_utf8_lossy(&said).into_owned();
            Ok::<_, anyhow::Error>(text.lines().find(|line| !line.trim().is_empty()).unwrap_or_default().to_owned())
        };
        Ok(match self {
            Tool::Thalweg => said(program, "--version")?,
            Tool::Rsync => said(Path::new("rsync"), "--version")?,
            Tool::Globus => {
                let server = said(Path::new("globus-gridftp-server"), "-version")?;
                format!("{}, {server}", said(Path::new("globus-url-copy"), "-version")?)
            }
            Tool::Xrootd => {
                format!("xrdcp {}, xrootd {}", said(Path::new("xrdcp"), "--version")?, said(Path::new("xrootd"), "-v")?)
            }
            Tool::Copy => said(Path::new("cp"), "--version")?,
        })
    }

    /// The server in the foreground; none for one that needs none.
    pub fn server(self, stage: &Stage) -> Result<Option<Command>> {
        let (address, port) = (stage.address.as_str(), self.port().to_string());
        let destination = stage.destination.display().to_string();
        Ok(match self {
            Tool::Thalweg | Tool::Copy => None,
            Tool::Rsync => {
                let file = stage.dir.join("rsyncd.conf");
                let log = stage.dir.join("rsyncd.log");
                let text = format!(
                    "use chroot = yes\nuid = 0\ngid = 0\nreverse lookup = no\nlog file = {}\n[in]\npath = {destination}\n\
                     read only = no\n",
                    log.display()
                );
                fs::write(&file, text).context("write rsyncd.conf")?;
                let mut command = Command::new("rsync");
                command.args(["--daemon", "--no-detach", "--address", address, "--port", &port, "--config"]).arg(file);
                Some(command)
            }
            Tool::Globus => {
                let mut command = Command::new("globus-gridftp-server");
                command.args(["-aa", "-anonymous-user", "nobody", "-allow-disabled-login", "-home-dir", "/"]);
                command.args(["-control-interface", address, "-data-interface", address, "-p", &port]);
                command.args(["-sync-writes", "-restrict-paths", &format!("rw{destination}")]);
                Some(command)
            }
            Tool::Xrootd => {
                let dir = stage.dir.join("xrootd");
                fs::create_dir_all(&dir).context("create xrootd's directory")?;
                fs::set_permissions(&dir, fs::Permissions::from_mode(0o777))?;
                let (file, shown) = (dir.join("xrootd.cf"), dir.display());
                let text = format!(
                    "xrd.port {port}\nxrd.network nodnr norpipa\nall.export {destination}\nall.adminpath {shown}\n\
                     all.pidpath {shown}\nxrootd.chksum adler32\n"
                );
                fs::write(&file, text).context("write xrootd.cf")?;
                let mut command = Command::new("xrootd");
                command.args(["-I", "v4", "-R", "nobody", "-c"]).arg(file);
                Some(command)
            }
        })
    }

    /// The copy of everything below the source.
    pub fn client(self, stage: &Stage) -> Command {
        let (address, port) = (stage.address.as_str(), self.port());
        let (source, destination) = (stage.source.display(), stage.destination.display());
        match self {
            Tool::Thalweg => {
                let words = ["cp", "--json", "--progress", "none"];
                let mut command = ground::thalweg(&stage.program, &stage.dir, "client", &words);
                command.arg(format!("{source}/")).arg(format!("{}:in/", ground::ENDPOINT));
                command
            }
            Tool::Rsync => {
                let mut command = Command::new("rsync");
                command.args(["-a", "--fsync", "--delay-updates"]).arg(format!("{source}/"));
                command.arg(format!("rsync://{address}:{port}/in/"));
                command
            }
            Tool::Globus => {
                let mut command = Command::new("globus-url-copy");
                command.args(["-r", "-cd", "-verify-checksum", "-checksum-alg", "MD5"]);
                command.arg(format!("file://{source}/")).arg(format!("ftp://{address}:{port}{destination}/"));
                command
            }
            Tool::Xrootd => {
                let mut command = Command::new("sh");
                // A directory would be made anew inside the destination; its entries go there.
                command.args(["-c", r#"from=$1 to=$2; shift 2; exec xrdcp "$@" "$from"/* "$to""#, "xrdcp"]);
                command.arg(&stage.source).arg(format!("root://{address}:{port}/{destination}/"));
                command.args(["--recursive", "--force", "--nopbar", "--posc", "--cksum", "adler32", "--rm-bad-cksum"]);
                command
            }
            Tool::Copy => {
                let mut command = Command::new("cp");
                command.arg("-a").arg(stage.source.join(".")).arg(&stage.destination);
                command
            }
        }
    }
}

/// Our own endpoint on a stage: its root is the destination's parent.
pub fn endpoint(stage: &Stage) -> Endpoint<'_> {
    let root = stage.destination.parent().unwrap_or(&stage.destination);
    Endpoint { program: &stage.program, dir: &stage.dir, home: "server", root, advertise: &stage.advertise }
}

/// What a listing of listening sockets shows once a server is up.
pub fn is_listening(stage: &Stage, port: u16) -> bool {
    let mut command = Command::new("ip");
    command.args(["netns", "exec", &stage.server_namespace, "ss", "-ltnH", &format!("sport = :{port}")]);
    output_of(command).is_ok_and(|listed| !listed.trim().is_empty())
}
