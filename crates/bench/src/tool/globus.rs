//! globus-url-copy and globus-gridftp-server.
//!
//! Settings: `-fast` keeps data channels open between files (MODE E). Large files: four streams for each of up to four
//! files at once. Others: sixteen files at once with pipelined commands (`-pp`); two or four at once were slower.
//! Clear text without digests: the fastest it can do.

use std::path::Path;
use std::process::Command;

use super::{Bed, Class, Guards, Set, Tool, version_of};
use crate::error::Result;
use crate::process::Ready;

const PORT: u16 = 2811;

pub struct Globus;

impl Tool for Globus {
    fn name(&self) -> &str {
        "globus-url-copy"
    }

    fn class(&self) -> Class {
        Class::Network
    }

    fn protection(&self) -> &str {
        "clear text, no digest"
    }

    fn guards(&self) -> Guards {
        Guards::default()
    }

    fn steps(&self) -> Vec<&str> {
        vec!["install globus-gass-copy-progs and globus-gridftp-server-progs", "start the server"]
    }

    fn version(&self) -> Result<String> {
        let client = version_of(Path::new("globus-url-copy"), "-version", "globus-gass-copy-progs")?;
        let server = version_of(Path::new("globus-gridftp-server"), "-version", "globus-gridftp-server-progs")?;
        Ok(format!("{client}, {server}"))
    }

    fn server(&self, bed: &Bed) -> Result<Option<(Command, Ready)>> {
        let address = bed.server_address();
        let mut command = Command::new("globus-gridftp-server");
        // The server does not let anyone in as root; deliveries are writable for all.
        command.args(["-aa", "-anonymous-user", "nobody", "-allow-disabled-login", "-home-dir", "/"]);
        command.args(["-control-interface", &address, "-data-interface", &address, "-p", &PORT.to_string()]);
        Ok(Some((command, Ready::Listens(PORT))))
    }

    fn client(&self, bed: &Bed, set: &Set, delivery: &Path) -> Command {
        let mut command = Command::new("globus-url-copy");
        command.args(["-r", "-cd", "-fast"]);
        match set.has_large_files() {
            true => command.args(["-p", "4", "-cc", &set.files.min(4).to_string()]),
            false => command.args(["-cc", "16", "-pp"]),
        };
        command.arg(format!("file://{}/", set.source.display()));
        command.arg(format!("ftp://{}:{PORT}{}/", bed.server_address(), delivery.display()));
        command
    }
}
