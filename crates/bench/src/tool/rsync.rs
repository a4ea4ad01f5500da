//! rsync to an rsync daemon.
//!
//! Settings: `-W` sends whole files without looking for differences, `--inplace` spares it the temporary name. Clear
//! text; it digests each file in transit (xxh128 where both ends have it).

use std::path::Path;
use std::process::Command;

use super::{Bed, Class, Guards, Set, Tool, folder_name, version_of, with_slash};
use crate::error::{Error, Result};
use crate::process::Ready;

const PORT: u16 = 8730;
const MODULE: &str = "delivered";

pub struct Rsync;

impl Tool for Rsync {
    fn name(&self) -> &str {
        "rsync"
    }

    fn class(&self) -> Class {
        Class::Network
    }

    fn protection(&self) -> &str {
        "clear text, digest of each file in transit (xxh128)"
    }

    fn guards(&self) -> Guards {
        Guards { is_encrypted: false, is_digested: true }
    }

    fn steps(&self) -> Vec<&str> {
        vec!["install rsync on both hosts", "write the daemon's configuration", "start the daemon"]
    }

    fn version(&self) -> Result<String> {
        version_of(Path::new("rsync"), "--version", "rsync")
    }

    fn server(&self, bed: &Bed) -> Result<Option<(Command, Ready)>> {
        let configuration = bed.workspace.join("rsyncd.conf");
        let log = bed.workspace.join("rsyncd.log");
        let text = format!(
            "use chroot = no\nuid = 0\ngid = 0\nreverse lookup = no\nlog file = {}\n[{MODULE}]\npath = {}\nread only = no\n",
            log.display(),
            bed.delivered.display(),
        );
        std::fs::write(&configuration, text).map_err(Error::io("write", &configuration))?;
        let mut command = Command::new("rsync");
        command.args(["--daemon", "--no-detach", "--address", &bed.server_address(), "--port", &PORT.to_string()]);
        command.arg("--config").arg(configuration);
        Ok(Some((command, Ready::Listens(PORT))))
    }

    fn client(&self, bed: &Bed, set: &Set, delivery: &Path) -> Command {
        let mut command = Command::new("rsync");
        command.args(["-a", "-W", "--inplace"]).arg(with_slash(&set.source));
        command.arg(self.location(bed, delivery));
        command
    }
}

impl Rsync {
    /// A delivery, as the daemon's clients name it.
    pub fn location(&self, bed: &Bed, delivery: &Path) -> String {
        format!("rsync://{}:{PORT}/{MODULE}/{}/", bed.server_address(), folder_name(delivery))
    }
}
