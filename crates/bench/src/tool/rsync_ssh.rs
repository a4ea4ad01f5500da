//! rsync over ssh, as most people use it.
//!
//! Settings: those of rsync to a daemon (`-W`, `--inplace`), no compression, the fastest cipher.

use std::path::Path;
use std::process::Command;

use super::sshd::{STEPS, Sshd};
use super::{Bed, Class, Guards, Set, Tool, version_of, with_slash};
use crate::error::Result;
use crate::process::Ready;

const SSHD: Sshd = Sshd { name: "rsync-ssh", port: 2201 };

pub struct RsyncSsh;

impl Tool for RsyncSsh {
    fn name(&self) -> &str {
        SSHD.name
    }

    fn class(&self) -> Class {
        Class::Network
    }

    fn protection(&self) -> &str {
        "encrypted and authenticated both ways (ssh, aes128-gcm), digest of each file in transit (xxh128)"
    }

    fn guards(&self) -> Guards {
        Guards { is_encrypted: true, is_digested: true }
    }

    fn steps(&self) -> Vec<&str> {
        [&["install rsync on both hosts"], &STEPS[..]].concat()
    }

    fn version(&self) -> Result<String> {
        let rsync = version_of(Path::new("rsync"), "--version", "rsync")?;
        Ok(format!("{rsync}, {}", Sshd::version()?))
    }

    fn server(&self, bed: &Bed) -> Result<Option<(Command, Ready)>> {
        SSHD.server(bed).map(Some)
    }

    fn client(&self, bed: &Bed, set: &Set, delivery: &Path) -> Command {
        let mut command = Command::new("rsync");
        command.args(["-a", "-W", "--inplace", "-e"]);
        command.arg(format!("ssh -F {}", SSHD.client_configuration(bed).display()));
        command.arg(with_slash(&set.source)).arg(format!("{}:{}/", bed.server_address(), delivery.display()));
        command
    }
}
