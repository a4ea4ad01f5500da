//! Storage of one site that can be made full: a file system in memory that only the site's processes and whoever looks through them see.
//!
//! Invariant: it ends with this process, however that ends.

use crate::outside::process::{Running, bound, output_of, prefixed};
use anyhow::{Context, Result, bail};
use rustix::fs::statvfs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// What is there grows while its size is set to it.
const TRIES: u32 = 50;
const TRY_AGAIN: Duration = Duration::from_millis(20);
/// A size of nothing would be none.
const BYTES_MIN: u64 = 4096;

pub struct Narrow {
    /// Holds the mount namespace.
    holder: Running,
    root: PathBuf,
    bytes: u64,
}

impl Narrow {
    /// Mounts it over a directory that is there. What was mounted before is seen by its processes too, and nothing that is later.
    pub fn mount(dir: &Path, root: &Path, bytes: u64) -> Result<Narrow> {
        let mut command = Command::new("unshare");
        let script = r#"mount -t tmpfs -o "size=$1" trial "$2" && echo ready && exec sleep infinity"#;
        command.args(["--mount", "sh", "-c", script, "sh", &bytes.to_string()]).arg(root);
        let holder = Running::start(bound(&command), dir, "narrow")?;
        let holder = holder.await_ready(|holder| holder.said().0.starts_with("ready"))?;
        Ok(Narrow { holder, root: root.to_owned(), bytes })
    }

    /// As this process can reach it.
    pub fn seen(&self) -> PathBuf {
        let below = self.root.strip_prefix("/").unwrap_or(&self.root);
        PathBuf::from(format!("/proc/{}/root", self.holder.pid())).join(below)
    }

    /// The command where the storage is. It begins in no directory of its caller's.
    pub fn wrap(&self, command: &Command) -> Command {
        prefixed(&["nsenter", "-t", &self.holder.pid().to_string(), "--mount", "--"], command)
    }

    /// No more fits in than what is there; or as much as in the beginning.
    pub fn fill(&self, is_full: bool) -> Result<()> {
        let mut refused = None;
        for _ in 0..TRIES {
            let bytes = if is_full { self.used_bytes()?.max(BYTES_MIN) } else { self.bytes };
            let mut command = Command::new("mount");
            command.args(["-o", &format!("remount,size={bytes}")]).arg(&self.root);
            match output_of(self.wrap(&command)) {
                Ok(_) => return Ok(()),
                Err(error) => refused = Some(error),
            }
            std::thread::park_timeout(TRY_AGAIN);
        }
        match refused {
            Some(error) => Err(error).context("make storage full, or not"),
            None => bail!("storage was not tried"),
        }
    }

    fn used_bytes(&self) -> Result<u64> {
        let room = statvfs(self.seen()).context("look at storage")?;
        Ok(room.f_blocks.saturating_sub(room.f_bfree) * room.f_frsize)
    }
}
