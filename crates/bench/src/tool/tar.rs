//! tar to tar over one plain TCP connection, carried by socat.
//!
//! Settings: blocks of 1 MiB on both sides. Clear text, no digest, one stream. The client ends when the other side has said
//! that everything is extracted, so its time means the same as the others'.

use std::path::Path;
use std::process::Command;

use super::{Bed, Class, Guards, Set, Tool, folder_name, version_of};
use crate::error::{Error, Result};
use crate::process::Ready;

const PORT: u16 = 9321;
/// The first line names the folder. `read` takes no byte beyond it.
const RECEIVE: &str = "read -r folder && tar -x -b 2048 -C \"$DELIVERED/$folder\" -f - && echo extracted\n";
const SEND: &str =
    r#"{ echo "$3"; tar -c -b 2048 -C "$1" -f - .; } | socat -b 1048576 -t 3600 - "TCP:$2" | grep -q extracted"#;

pub struct Tar;

impl Tool for Tar {
    fn name(&self) -> &str {
        "tar"
    }

    fn class(&self) -> Class {
        Class::Network
    }

    fn protection(&self) -> &str {
        "clear text, no digest, no authentication"
    }

    fn guards(&self) -> Guards {
        Guards::default()
    }

    fn steps(&self) -> Vec<&str> {
        vec!["install socat on both hosts", "start socat with tar behind it"]
    }

    fn version(&self) -> Result<String> {
        let tar = version_of(Path::new("tar"), "--version", "tar")?;
        // Its first line names its author.
        version_of(Path::new("socat"), "-V", "socat")?;
        let said = super::output_of(Command::new("socat").arg("-V"))?;
        let socat = said.lines().find(|line| line.starts_with("socat version")).unwrap_or("socat");
        Ok(format!("{tar}, {}", socat.split(" on ").next().unwrap_or(socat)))
    }

    fn server(&self, bed: &Bed) -> Result<Option<(Command, Ready)>> {
        let script = bed.workspace.join("tar-receive.sh");
        std::fs::write(&script, RECEIVE).map_err(Error::io("write", &script))?;
        let mut command = Command::new("socat");
        command.env("DELIVERED", bed.delivered).args(["-b", "1048576"]);
        command.arg(format!("TCP-LISTEN:{PORT},bind={},fork,reuseaddr", bed.server_address()));
        command.arg(format!("EXEC:sh {}", script.display()));
        Ok(Some((command, Ready::Listens(PORT))))
    }

    fn client(&self, bed: &Bed, set: &Set, delivery: &Path) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", SEND, "sh"]).arg(&set.source);
        command.arg(format!("{}:{PORT}", bed.server_address())).arg(folder_name(delivery));
        command
    }
}
