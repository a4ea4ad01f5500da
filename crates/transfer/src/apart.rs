//! That a copy within this host does not lie in what it copies, nor what it copies in what it removes.

use crate::error::{Error, Result};
use model::Location;
use model::name::Escaped;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Refuses to copy a directory into itself, or anything onto itself, and to remove from a directory (`deletes`) what lies in it as the
/// source.
pub fn check_apart(sources: &[Location], destination: &Location, deletes: bool) -> Result<()> {
    let Location::Local(to) = destination else { return Ok(()) };
    let to_path = Path::new(OsStr::from_bytes(to));
    let into = resolved(to_path);
    let is_directory = to.ends_with(b"/") || to_path.is_dir();
    for source in sources {
        let Location::Local(from) = source else { continue };
        let from_path = Path::new(OsStr::from_bytes(from));
        let names_contents = from.ends_with(b"/") || from.ends_with(b"/.") || from == b".";
        let is_link = !names_contents && from_path.is_symlink();
        let is_tree = from_path.is_dir() && !is_link;
        let at = if is_link { link_itself(from_path) } else { resolved(from_path) };
        if is_tree && into.starts_with(&at) && (into != at || !names_contents) {
            return Err(Error::request(
                format!("{} is inside {}, which is to be copied", shown(to_path), shown(from_path)),
                "choose a destination outside the source",
            ));
        }
        if deletes && is_tree && names_contents && at.starts_with(&into) && at != into {
            return Err(Error::request(
                format!(
                    "{} is inside {}, and would be removed with what is not in it",
                    shown(from_path),
                    shown(to_path)
                ),
                format!("remove the slash after {} to have it there under its own name", shown(from_path)),
            ));
        }
        let lands = match from_path.file_name() {
            Some(name) if !names_contents && (is_directory || is_tree || sources.len() > 1) => into.join(name),
            _ => into.clone(),
        };
        if lands == at {
            let message = format!("{} and {} are the same", shown(from_path), shown(to_path));
            return Err(Error::request(message, "choose another destination"));
        }
    }
    Ok(())
}

/// The path without links and dots, as far as it exists.
fn resolved(path: &Path) -> PathBuf {
    let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    for ancestor in absolute.ancestors() {
        if let Ok(there) = fs::canonicalize(ancestor) {
            return match absolute.strip_prefix(ancestor) {
                Ok(rest) if !rest.as_os_str().is_empty() => there.join(rest),
                _ => there,
            };
        }
    }
    absolute
}

/// Where a link stands, not where it points.
fn link_itself(path: &Path) -> PathBuf {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    resolved(parent).join(path.file_name().unwrap_or_default())
}

fn shown(path: &Path) -> String {
    Escaped(path.as_os_str().as_bytes()).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn local(path: &Path) -> Location {
        Location::Local(path.as_os_str().as_bytes().to_vec())
    }

    #[test]
    fn a_directory_is_not_copied_into_itself_and_nothing_onto_itself() {
        let dir = tempfile::tempdir().unwrap();
        let at = |path: &str| local(&dir.path().join(path));
        fs::create_dir_all(dir.path().join("a/b")).unwrap();
        fs::create_dir(dir.path().join("other")).unwrap();
        fs::write(dir.path().join("a/f"), b"x").unwrap();
        std::os::unix::fs::symlink("a", dir.path().join("link")).unwrap();
        for (from, to) in [
            ("a", "a"),
            ("a", "a/"),
            ("a", "a/b"),
            ("a", "a/new/deep"),
            ("a/", "a/b/"),
            ("a/", "a"),
            ("a", ""),
            ("a/f", "a"),
            ("a/f", "a/f"),
            ("a/f", "a/./f"),
            ("link/", "a/b"),
            ("a/", "link/b"),
        ] {
            assert!(check_apart(&[at(from)], &at(to), false).is_err(), "{from} to {to}");
        }
        for (from, to) in [("a", "other"), ("a/f", "a/g"), ("a/f", ""), ("a", "ab"), ("link", "a/"), ("a/b", "other/")]
        {
            assert!(check_apart(&[at(from)], &at(to), false).is_ok(), "{from} to {to}");
        }
        // What lies above its source would lose it.
        for (from, to, is_right) in
            [("a/b/", "a", false), ("a/", "", false), ("a/b", "other", true), ("other/", "a", true)]
        {
            assert_eq!(check_apart(&[at(from)], &at(to), true).is_ok(), is_right, "{from} to {to}");
            assert!(check_apart(&[at(from)], &at(to), false).is_ok(), "{from} to {to}");
        }
    }
}
