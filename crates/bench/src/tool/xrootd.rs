//! xrdcp to an xrootd server.
//!
//! Settings: four files at once, the most that xrdcp allows; clear text, no digest, no authentication: the fastest it can do.
//! Large files get four streams each.

use std::path::Path;
use std::process::Command;

use super::{Bed, Class, Guards, Set, Tool, make_writable_dir, version_of};
use crate::error::{Error, Result};
use crate::process::Ready;

pub(super) const PORT: u16 = 1094;

pub struct Xrootd;

impl Tool for Xrootd {
    fn name(&self) -> &str {
        "xrdcp"
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
        vec!["install xrootd-client and xrootd-server", "write the server's configuration", "start xrootd"]
    }

    fn version(&self) -> Result<String> {
        let client = version_of(Path::new("xrdcp"), "--version", "xrootd-client")?;
        Ok(format!("{client}, xrootd {}", version_of(Path::new("xrootd"), "-v", "xrootd-server")?))
    }

    fn server(&self, bed: &Bed) -> Result<Option<(Command, Ready)>> {
        serve(bed.delivered, &bed.workspace.join("xrootd")).map(Some)
    }

    fn client(&self, bed: &Bed, set: &Set, delivery: &Path) -> Command {
        let mut command = Command::new("sh");
        // A directory would be made anew inside the delivery; its entries, of which a set has at most a thousand, go there.
        command.args(["-c", r#"from=$1 to=$2; shift 2; exec xrdcp "$@" "$from"/* "$to""#, "xrdcp"]).arg(&set.source);
        command.arg(self.location(bed, delivery));
        command.args(["--recursive", "--nopbar", "--parallel", "4"]);
        if set.has_large_files() {
            command.args(["--streams", "4"]);
        }
        command
    }
}

/// What serves a tree, in the foreground; its directory is made anew.
pub(super) fn serve(tree: &Path, dir: &Path) -> Result<(Command, Ready)> {
    make_writable_dir(dir)?;
    let (configuration, shown) = (dir.join("xrootd.cf"), dir.display());
    let text = format!(
        "xrd.port {PORT}\nxrd.network nodnr norpipa\nall.export {}\nall.adminpath {shown}\nall.pidpath {shown}\n",
        tree.display(),
    );
    std::fs::write(&configuration, text).map_err(Error::io("write", &configuration))?;
    let mut command = Command::new("xrootd");
    // It refuses to run as root; deliveries are writable for all.
    command.args(["-I", "v4", "-R", "nobody", "-c"]).arg(configuration);
    Ok((command, Ready::Listens(PORT)))
}

impl Xrootd {
    /// A delivery, as clients name it.
    pub fn location(&self, bed: &Bed, delivery: &Path) -> String {
        format!("root://{}:{PORT}/{}/", bed.server_address(), delivery.display())
    }
}
