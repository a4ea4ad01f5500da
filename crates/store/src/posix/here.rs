//! Paths of this host, as the user of this process named them: nothing is out of reach but what the system forbids.

use super::target::Target;
use crate::shelf::{How, Shelf};
use crate::{Error, Result};
use std::ffi::OsStr;
use std::fs;
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

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
                make_missing(parent).map_err(failed("make directory"))?;
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

fn make_missing(directory: &Path) -> std::io::Result<()> {
    match fs::create_dir_all(directory) {
        Err(e) if e.kind() == ErrorKind::AlreadyExists && directory.is_dir() => Ok(()),
        made => made,
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
