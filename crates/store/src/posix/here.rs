//! Paths of this host, as the user of this process named them: nothing is out of reach but what the system forbids.

use super::beneath::open_directory;
use super::target::Target;
use super::wait::sync_names;
use crate::shelf::{How, Shelf};
use crate::{Error, Result};
use os::fs::syncfs;
use std::ffi::OsStr;
use std::fs;
use std::io::{self, ErrorKind};
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// What a path of the user's own leads to.
pub fn here(path: &[u8], how: How) -> Result<Box<dyn Shelf>> {
    Ok(Box::new(target(path, how)?))
}

fn target(path: &[u8], how: How) -> Result<Target> {
    let failed = |operation| move |e: std::io::Error| Error::new(operation, b"", e);
    let bare = without_slashes(path);
    match how {
        How::Look => {
            let target = Target::local(path, path.ends_with(b"/")).map_err(failed("open"))?;
            Ok(Target { hides_staging: true, ..target })
        }
        How::Take if bare.len() < path.len() => {
            Target::local(bare, false).and_then(Target::not_a_link).map_err(failed("open"))
        }
        How::Take => Target::local(bare, false).map_err(failed("open")),
        How::Make { with_parents } => {
            let parent = Path::new(OsStr::from_bytes(bare)).parent();
            if with_parents && let Some(parent) = parent.filter(|parent| !parent.as_os_str().is_empty()) {
                make_directories(parent, true).map_err(|(_, e)| failed("make directory")(e))?;
            }
            Target::local(bare, false).map_err(failed("make directory"))
        }
    }
}

/// A name with slashes behind it is the same name, for whoever does not want to look behind a link.
fn without_slashes(path: &[u8]) -> &[u8] {
    let end = path.iter().rposition(|byte| *byte != b'/').map_or(path.len().min(1), |at| at + 1);
    &path[..end]
}

/// Makes a directory and what is missing above it; returns what was made, or what could not be. The names of what it makes are
/// on disk when it returns, if that is asked for.
pub fn make_directories(path: &Path, is_durable: bool) -> std::result::Result<Vec<PathBuf>, (PathBuf, io::Error)> {
    let mut missing: Vec<_> = path.ancestors().take_while(|at| !at.as_os_str().is_empty() && !at.exists()).collect();
    let mut made = Vec::new();
    while let Some(directory) = missing.pop() {
        match fs::create_dir(directory) {
            Ok(()) => made.push(directory.to_owned()),
            Err(e) if e.kind() == ErrorKind::AlreadyExists && directory.is_dir() => continue,
            Err(e) => return Err((directory.to_owned(), e)),
        }
        if is_durable {
            sync_name(directory).map_err(|e| (directory.to_owned(), e))?;
        }
    }
    Ok(made)
}

/// Waits for the name of a directory that was made.
fn sync_name(directory: &Path) -> io::Result<()> {
    let above = directory.parent().filter(|above| !above.as_os_str().is_empty());
    match open_directory(above.unwrap_or(Path::new("."))) {
        // Whoever may make names in a directory need not be able to open it.
        Err(e) if e.kind() == ErrorKind::PermissionDenied => Ok(syncfs(open_directory(directory)?)?),
        above => Ok(sync_names(above?.as_fd())?),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slashes_behind_a_name_mean_nothing_and_the_root_stays_the_root() {
        let names = [&b"a/"[..], b"a//", b"a", b"/", b"//", b""];
        assert_eq!(names.map(without_slashes), [&b"a"[..], b"a", b"a", b"/", b"/", b""]);
        assert!(target(b"/", How::Take).unwrap().changeable("remove").is_err());
    }
}
