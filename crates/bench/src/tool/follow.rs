//! Programs that carry files while they are written: ours, and what people use in its place.
//!
//! Each is started beside a source in which files grow, and ends when a file `STOP` appears at its top and everything has
//! arrived. Settings, with their reasons, stand at each command. Tools that copy and end are run again and again, with a
//! second between two runs, as people write it down in their scripts.

use std::path::Path;
use std::process::Command;

use super::sshd::Sshd;
use super::{Bed, Set, Tool, Variant, rclone, rsync, thalweg, version_of, with_slash, xrootd};
use crate::error::{Error, Result};
use crate::process::Ready;

/// What ends a run.
pub const STOP: &str = "STOP";
/// Names that `Follower::named` knows, beside ours.
pub const RIVALS: [&str; 5] = ["rsync", "lsyncd", "tail", "rclone", "xrdcp"];

const TAIL_SSH: Sshd = Sshd { name: "tail", port: 2205 };
/// Runs a command again and again until STOP is there, then a last time, whose exit code counts.
const AGAIN: &str = r#"from=$1; shift; while [ ! -e "$from/STOP" ]; do "$@" || :; sleep 1; done; exec "$@""#;
/// Runs a daemon until STOP is there, and for as long as one of its rounds after that.
const DAEMON: &str = r#"from=$1; shift; "$@" & daemon=$!; while [ ! -e "$from/STOP" ]; do sleep 0.2; done; sleep 3; kill $daemon; wait $daemon; :"#;
/// One `tail` for each file, each through an ssh of its own, until STOP is there and two seconds have passed.
const TAIL: &str = r#"config=$1 host=$2 from=$3 to=$4 count=$5; sleep 1000000 & keeper=$!; i=0
while [ $i -lt $count ]; do n=run-$i.dat; i=$((i+1))
tail -c +1 -s 0.1 --pid=$keeper -F "$from/$n" 2>/dev/null | ssh -F "$config" "$host" "exec cat >> '$to/$n'" &
done
while [ ! -e "$from/STOP" ]; do sleep 0.2; done; sleep 2; kill $keeper; wait; :"#;

enum How {
    Ours(thalweg::Thalweg),
    Rsync,
    Lsyncd,
    Tail,
    Rclone,
    Xrdcp,
}

pub struct Follower {
    pub name: String,
    how: How,
    /// Whose server it sends to, where that is another tool's too.
    server: Option<Box<dyn Tool>>,
}

impl Follower {
    pub fn ours(variant: &Variant) -> Follower {
        let tool = thalweg::Thalweg::new(variant, 0, super::Class::Network);
        let server = thalweg::Thalweg::new(variant, 0, super::Class::Network);
        Follower { name: variant.label.clone(), how: How::Ours(tool), server: Some(Box::new(server)) }
    }

    pub fn named(name: &str) -> Result<Follower> {
        let (how, server): (How, Option<Box<dyn Tool>>) = match name {
            "rsync" => (How::Rsync, Some(Box::new(rsync::Rsync))),
            "lsyncd" => (How::Lsyncd, Some(Box::new(rsync::Rsync))),
            "tail" => (How::Tail, None),
            "rclone" => (How::Rclone, Some(Box::new(rclone::Rclone))),
            "xrdcp" => (How::Xrdcp, Some(Box::new(xrootd::Xrootd))),
            _ => return Err(Error::usage(format!("rival {name:?}"), format!("known are {}", RIVALS.join(", ")))),
        };
        Ok(Follower { name: name.to_owned(), how, server })
    }

    pub fn is_ours(&self) -> bool {
        matches!(self.how, How::Ours(_))
    }

    /// What the names of growing files end in: ours knows a complete file by its new name, the others know none.
    pub fn suffix(&self) -> &'static str {
        if self.is_ours() { ".inprogress" } else { "" }
    }

    pub fn version(&self) -> Result<String> {
        match &self.how {
            How::Lsyncd => version_of(Path::new("lsyncd"), "--version", "lsyncd"),
            How::Tail => Sshd::version(),
            _ => self.server.as_ref().map_or(Ok(String::new()), |server| server.version()),
        }
    }

    pub fn server(&self, bed: &Bed) -> Result<Option<(Command, Ready)>> {
        match &self.server {
            Some(server) => server.server(bed),
            None => TAIL_SSH.server(bed).map(Some),
        }
    }

    pub fn enrol(&self, bed: &Bed) -> Result<()> {
        self.server.as_ref().map_or(Ok(()), |server| server.enrol(bed))
    }

    /// The command that carries `set.source` to `delivery` until STOP is there.
    pub fn client(&self, bed: &Bed, set: &Set, delivery: &Path) -> Result<Command> {
        Ok(match &self.how {
            How::Ours(tool) => tool.follow(bed, set, delivery),
            How::Rsync => {
                let mut command = looping(set);
                // What was sent is not compared anew each time: it is digested at both ends once a file has grown.
                command.args(["rsync", "-a", "--append-verify"]).arg(with_slash(&set.source));
                command.arg(rsync::Rsync.location(bed, delivery));
                command
            }
            How::Lsyncd => self.lsyncd(bed, set, delivery)?,
            How::Tail => {
                let mut command = Command::new("sh");
                command.args(["-c", TAIL, "sh"]).arg(TAIL_SSH.client_configuration(bed)).arg(bed.server_address());
                command.arg(&set.source).arg(delivery).arg(set.files.to_string());
                command
            }
            How::Rclone => {
                let mut command = looping(set);
                command.args(["rclone", "copy"]);
                rclone::Rclone.connection(bed, &mut command);
                // A file that grew while it was read is an error unless rclone is told not to look.
                command.args(["--transfers", "16", "--local-no-check-updated", "--size-only"]).arg(&set.source);
                command.arg(format!(":sftp:{}", delivery.display()));
                command
            }
            How::Xrdcp => {
                let mut command = looping(set);
                let each =
                    r#"for f in "$1"/run-*; do xrdcp -f --nopbar "$f" "$2/${f##*/}" || bad=1; done; exit ${bad:-0}"#;
                command.args(["sh", "-c", each, "sh"]).arg(&set.source);
                command.arg(xrootd::Xrootd.location(bed, delivery));
                command
            }
        })
    }

    /// With the shortest delay that it takes: a second.
    fn lsyncd(&self, bed: &Bed, set: &Set, delivery: &Path) -> Result<Command> {
        let configuration = bed.workspace.join("lsyncd.lua");
        let text = format!(
            "settings {{ nodaemon = true, insist = true }}\nsync {{ default.rsync, source = {:?}, target = {:?}, delay = 1, \
             rsync = {{ archive = true, inplace = true }} }}\n",
            set.source.display().to_string(),
            rsync::Rsync.location(bed, delivery).to_string(),
        );
        std::fs::write(&configuration, text).map_err(Error::io("write", &configuration))?;
        let mut command = Command::new("sh");
        command.args(["-c", DAEMON, "sh"]).arg(&set.source).arg("lsyncd").arg(configuration);
        Ok(command)
    }

    /// The same files again, at once and complete: what a copy of finished files takes.
    pub fn bulk(&self, bed: &Bed, set: &Set, delivery: &Path) -> Option<Command> {
        match &self.how {
            How::Ours(tool) => Some(tool.client(bed, set, delivery)),
            _ => None,
        }
    }
}

fn looping(set: &Set) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", AGAIN, "sh"]).arg(&set.source);
    command
}
