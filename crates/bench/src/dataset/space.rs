//! What a file system has left, asked before anything is written.

use std::path::Path;

use super::plan::Totals;
use crate::error::{Error, Kind, Result};

/// What a file system has left.
pub(crate) struct Free {
    pub bytes: u64,
    /// Zero where the file system makes inodes as needed.
    inodes: u64,
    counts_inodes: bool,
}

impl Free {
    /// Looks at the nearest existing ancestor, because the root itself may not exist yet.
    pub fn at(root: &Path) -> Result<Free> {
        let mut path = root;
        loop {
            match rustix::fs::statvfs(if path.as_os_str().is_empty() { Path::new(".") } else { path }) {
                Ok(found) => {
                    let bytes = found.f_bavail.saturating_mul(found.f_frsize);
                    return Ok(Free { bytes, inodes: found.f_favail, counts_inodes: found.f_files > 0 });
                }
                Err(rustix::io::Errno::NOENT) if path.parent().is_some() => path = path.parent().expect("checked"),
                Err(errno) => return Err(Error::io("look up", path)(errno)),
            }
        }
    }

    pub fn check(&self, totals: &Totals, root: &Path) -> Result<()> {
        let refuse = |cause: String| Err(Error::new(Kind::NoSpace, "write a data set to", root.display(), cause));
        if totals.space_bytes > self.bytes {
            let (needed, free) =
                (model::quantity::ByteCount(totals.space_bytes), model::quantity::ByteCount(self.bytes));
            return refuse(format!("needs {needed}, {free} free"));
        }
        let inodes = totals.files + totals.links + totals.directories;
        if self.counts_inodes && inodes > self.inodes {
            return refuse(format!("needs {inodes} inodes, {} free", self.inodes));
        }
        Ok(())
    }
}
