//! An ssh server for one run: own keys, own configuration, own list of known hosts, nothing of the user's or the machine's.
//!
//! Owns: the directory of its tool in the workspace, with everything ssh needs. Invariants: `~/.ssh`, `/etc/ssh` and agents
//! are neither read nor written; the host key is checked against the list made here, never taken on trust.
//!
//! The cipher is aes128-gcm, the fastest of OpenSSH on processors with instructions for it.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::{Bed, found_program, output_of};
use crate::error::{Error, Result};
use crate::process::Ready;
use crate::workspace::remove_tree;

pub const PROTECTION: &str = "encrypted and authenticated both ways (ssh, aes128-gcm)";
pub const STEPS: [&str; 5] = [
    "install openssh-client and openssh-server",
    "make a host key and a client key",
    "write the server's configuration with the client's key",
    "write the client's configuration and list of known hosts",
    "start sshd",
];
const PACKAGE: &str = "openssh-server";
const CIPHER: &str = "aes128-gcm@openssh.com";
/// sshd wants this directory, which exists only where the machine runs one itself: the server gets a `/run` of its own.
const PRIVATE_RUN: &str = r#"mount -t tmpfs -o mode=755 none /run && mkdir /run/sshd && exec "$@""#;

pub struct Sshd {
    pub name: &'static str,
    pub port: u16,
}

impl Sshd {
    fn dir(&self, bed: &Bed) -> PathBuf {
        bed.workspace.join(format!("{}-ssh", self.name))
    }

    /// For `ssh -F` and its relatives.
    pub fn client_configuration(&self, bed: &Bed) -> PathBuf {
        self.dir(bed).join("ssh_config")
    }

    pub fn client_key(&self, bed: &Bed) -> PathBuf {
        self.dir(bed).join("client")
    }

    pub fn known_hosts(&self, bed: &Bed) -> PathBuf {
        self.dir(bed).join("known_hosts")
    }

    /// What both ends call themselves; an error if one of them is missing.
    pub fn version() -> Result<String> {
        found_program("sshd", PACKAGE)?;
        super::version_of(Path::new("ssh"), "-V", "openssh-client")
    }

    /// Makes keys and configurations anew and returns the server's command.
    pub fn server(&self, bed: &Bed) -> Result<(Command, Ready)> {
        let dir = self.dir(bed);
        remove_tree(&dir)?;
        std::fs::create_dir(&dir).map_err(Error::io("create", &dir))?;
        for name in ["host", "client"] {
            let mut command = Command::new("ssh-keygen");
            command.args(["-q", "-t", "ed25519", "-N", "", "-C", "race", "-f"]).arg(dir.join(name));
            output_of(&mut command)?;
        }
        let public = dir.join("host.pub");
        let key = std::fs::read_to_string(&public).map_err(Error::io("read", &public))?;
        let address = bed.server_address();
        for (name, text) in [
            ("sshd_config", self.server_text(&dir, &address)),
            ("ssh_config", self.client_text(&dir)),
            ("known_hosts", format!("[{address}]:{} {key}", self.port)),
        ] {
            let path = dir.join(name);
            std::fs::write(&path, text).map_err(Error::io("write", &path))?;
        }
        let mut command = Command::new("unshare");
        command.args(["--mount", "--propagation", "private", "sh", "-c", PRIVATE_RUN, "sh"]);
        command.arg(found_program("sshd", PACKAGE)?).args(["-D", "-e", "-f"]).arg(dir.join("sshd_config"));
        Ok((command, Ready::Listens(self.port)))
    }

    fn server_text(&self, dir: &Path, address: &str) -> String {
        let (port, dir) = (self.port, dir.display());
        // The check of modes would refuse keys below a directory that all may write to, as a tmpfs is.
        format!(
            "ListenAddress {address}\nPort {port}\nHostKey {dir}/host\nAuthorizedKeysFile {dir}/client.pub\n\
             StrictModes no\nPermitRootLogin prohibit-password\nPasswordAuthentication no\n\
             KbdInteractiveAuthentication no\nUsePAM no\nUseDNS no\nPidFile none\nPrintMotd no\nPrintLastLog no\n\
             LogLevel ERROR\nMaxStartups 200\nMaxSessions 200\nCiphers {CIPHER}\nSubsystem sftp internal-sftp\n"
        )
    }

    fn client_text(&self, dir: &Path) -> String {
        let (port, dir) = (self.port, dir.display());
        format!(
            "Host *\n  User root\n  Port {port}\n  IdentityFile {dir}/client\n  IdentitiesOnly yes\n  IdentityAgent none\n  \
             UserKnownHostsFile {dir}/known_hosts\n  GlobalKnownHostsFile /dev/null\n  StrictHostKeyChecking yes\n  \
             BatchMode yes\n  Compression no\n  LogLevel ERROR\n  Ciphers {CIPHER}\n"
        )
    }
}
