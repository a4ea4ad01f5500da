//! scp of OpenSSH.
//!
//! Settings: the fastest cipher. It speaks SFTP, its default since OpenSSH 9; the older protocol (`-O`) needs one more round
//! trip for each file and gains nothing for large ones.

use std::path::Path;
use std::process::Command;

use super::sshd::{PROTECTION, STEPS, Sshd};
use super::{Bed, Class, Guards, Set, Tool};
use crate::error::Result;
use crate::process::Ready;

const SSHD: Sshd = Sshd { name: "scp", port: 2202 };

pub struct Scp;

impl Tool for Scp {
    fn name(&self) -> &str {
        SSHD.name
    }

    fn class(&self) -> Class {
        Class::Network
    }

    fn protection(&self) -> &str {
        PROTECTION
    }

    fn guards(&self) -> Guards {
        Guards { is_encrypted: true, is_digested: false }
    }

    fn steps(&self) -> Vec<&str> {
        STEPS.to_vec()
    }

    fn version(&self) -> Result<String> {
        Sshd::version()
    }

    fn server(&self, bed: &Bed) -> Result<Option<(Command, Ready)>> {
        SSHD.server(bed).map(Some)
    }

    fn client(&self, bed: &Bed, set: &Set, delivery: &Path) -> Command {
        let mut command = Command::new("scp");
        command.args(["-r", "-q", "-F"]).arg(SSHD.client_configuration(bed));
        // The dot stands for the content of the directory.
        command.arg(set.source.join(".")).arg(format!("{}:{}/", bed.server_address(), delivery.display()));
        command
    }
}
