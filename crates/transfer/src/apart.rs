//! That a copy within one place does not lie in what it copies, nor what it copies in what it removes: within this host, or within one
//! server or bucket.

use crate::error::{Error, Result};
use model::Location;
use model::name::Escaped;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Refuses to copy a directory into itself, or anything onto itself, and to remove from a directory (`deletes`) what lies in it as the
/// source. `is_single`: the source is one file.
pub fn check_apart(sources: &[Location], destination: &Location, is_single: bool, deletes: bool) -> Result<()> {
    for source in sources {
        let pair = match (source, destination) {
            (Location::Local(from), Location::Local(to)) => Some(Pair::here(from, to, sources.len() > 1)),
            (Location::Url { .. }, Location::Url { .. }) => Pair::there(source, destination, is_single)?,
            _ => None,
        };
        pair.map_or(Ok(()), |pair| pair.check(deletes))?;
    }
    Ok(())
}

/// A source and a destination in one place.
struct Pair {
    at: PathBuf,
    into: PathBuf,
    from_shown: String,
    to_shown: String,
    is_tree: bool,
    names_contents: bool,
    /// That it has in the destination, where it does not take the destination's.
    name: Option<OsString>,
}

impl Pair {
    fn here(from: &[u8], to: &[u8], is_one_of_many: bool) -> Pair {
        let (from_path, to_path) = (Path::new(OsStr::from_bytes(from)), Path::new(OsStr::from_bytes(to)));
        let is_directory = to.ends_with(b"/") || to_path.is_dir();
        let names_contents = from.ends_with(b"/") || from.ends_with(b"/.") || from == b".";
        let is_link = !names_contents && from_path.is_symlink();
        let is_tree = from_path.is_dir() && !is_link;
        let is_below = !names_contents && (is_directory || is_tree || is_one_of_many);
        Pair {
            at: if is_link { link_itself(from_path) } else { resolved(from_path) },
            into: resolved(to_path),
            from_shown: shown(from_path),
            to_shown: shown(to_path),
            is_tree,
            names_contents,
            name: from_path.file_name().filter(|_| is_below).map(OsStr::to_owned),
        }
    }

    /// Of one server or bucket: by the text of the paths, for links there are not known here.
    fn there(source: &Location, destination: &Location, is_single: bool) -> Result<Option<Pair>> {
        let [(from_host, from), (to_host, to)] = [source, destination].map(|location| host_and_path(location.path()));
        if source.scheme() != destination.scheme() || !from_host.eq_ignore_ascii_case(to_host) {
            return Ok(None);
        }
        let is_bucket = source.scheme().split('+').next() == Some("s3");
        for (location, path) in [(source, from), (destination, to)] {
            if !is_bucket && path.split(|byte| *byte == b'/').any(|part| matches!(part, b"." | b"..")) {
                let message = format!("{location} has \".\" or \"..\" in its path: both places are on one server");
                return Err(Error::request(message, "write both paths without them"));
            }
        }
        let (at, into) = (absolute(from), absolute(to));
        let names_contents = from.is_empty() || from.ends_with(b"/");
        // What something lies in is a directory.
        let is_directory = to.is_empty() || to.ends_with(b"/") || (at != into && at.starts_with(&into));
        let is_below = !names_contents && (is_directory || !is_single);
        Ok(Some(Pair {
            name: at.file_name().filter(|_| is_below).map(OsStr::to_owned),
            at,
            into,
            from_shown: source.to_string(),
            to_shown: destination.to_string(),
            is_tree: !is_single,
            names_contents,
        }))
    }

    fn check(&self, deletes: bool) -> Result<()> {
        let Pair { at, into, from_shown, to_shown, .. } = self;
        if self.is_tree && into.starts_with(at) && (into != at || !self.names_contents) {
            return Err(Error::request(
                format!("{to_shown} is inside {from_shown}, which is to be copied"),
                "choose a destination outside the source",
            ));
        }
        if deletes && self.is_tree && self.names_contents && at.starts_with(into) && at != into {
            return Err(Error::request(
                format!("{from_shown} is inside {to_shown}, and would be removed with what is not in it"),
                format!("remove the slash after {from_shown} to have it there under its own name"),
            ));
        }
        let lands = self.name.as_ref().map_or_else(|| into.clone(), |name| into.join(name));
        if lands == *at {
            let message = format!("{from_shown} and {to_shown} are the same");
            return Err(Error::request(message, "choose another destination"));
        }
        Ok(())
    }
}

/// What stands between a scheme and the first slash, and the rest.
fn host_and_path(rest: &[u8]) -> (&[u8], &[u8]) {
    rest.split_at(rest.iter().position(|byte| *byte == b'/').unwrap_or(rest.len()))
}

fn absolute(path: &[u8]) -> PathBuf {
    let names = path.split(|byte| *byte == b'/').filter(|name| !name.is_empty());
    [OsStr::new("/")].into_iter().chain(names.map(OsStr::from_bytes)).collect()
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
            assert!(check_apart(&[at(from)], &at(to), false, false).is_err(), "{from} to {to}");
        }
        for (from, to) in [("a", "other"), ("a/f", "a/g"), ("a/f", ""), ("a", "ab"), ("link", "a/"), ("a/b", "other/")]
        {
            assert!(check_apart(&[at(from)], &at(to), false, false).is_ok(), "{from} to {to}");
        }
        // What lies above its source would lose it.
        for (from, to, is_right) in
            [("a/b/", "a", false), ("a/", "", false), ("a/b", "other", true), ("other/", "a", true)]
        {
            assert_eq!(check_apart(&[at(from)], &at(to), false, true).is_ok(), is_right, "{from} to {to}");
            assert!(check_apart(&[at(from)], &at(to), false, false).is_ok(), "{from} to {to}");
        }
    }
    /// What is there is not looked at: the text of the paths is compared.
    #[test]
    fn within_one_server_or_bucket_it_is_the_same() {
        let url = |text: &str| Location::parse(OsStr::new(text)).unwrap();
        let check = |from: &str, to: &str, is_single, deletes| check_apart(&[url(from)], &url(to), is_single, deletes);
        for (from, to) in [
            ("sftp://h/a", "sftp://h/a"),
            ("sftp://h/a", "sftp://h/a/"),
            ("sftp://h/a", "sftp://h//a/b"),
            ("sftp://h/a/", "sftp://h/a/b/"),
            ("sftp://h/a/", "sftp://h/a"),
            ("sftp://h/a", "sftp://h/"),
            ("sftp://Far/a/", "sftp://far/a/new/deep"),
            ("gsiftp://h/a/../b/", "gsiftp://h/c"),
            ("gsiftp://h/b/", "gsiftp://h/./b/c"),
            ("s3://b", "s3://b/a/"),
            ("s3+near://b/a/", "s3+near://b/a/b/"),
        ] {
            assert!(check(from, to, false, false).is_err(), "{from} to {to}");
        }
        for (from, to) in [
            ("sftp://h/a", "sftp://h/ab"),
            ("sftp://h/a/b", "sftp://h/other/"),
            ("sftp://h/a", "sftp://g/a/b"),
            ("sftp://h/a", "gsiftp://h/a/b"),
            ("sftp://h/../a", "sftp://g/a"),
            ("s3://b/a", "s3+near://b/a"),
            ("s3://b/a..b/", "s3://b/a/"),
        ] {
            assert!(check(from, to, false, true).is_ok(), "{from} to {to}");
        }
        for (to, is_right) in [("a/f", false), ("a", false), ("a/", false), ("a/g", true), ("f", true), ("b/", true)] {
            let to = format!("sftp://h/{to}");
            assert_eq!(check("sftp://h/a/f", &to, true, false).is_ok(), is_right, "{to}");
        }
        // What lies above its source would lose it.
        for (from, to, is_right) in [("a/b/", "a", false), ("a/", "", false), ("a/b", "c", true), ("c/", "a", true)] {
            let (from, to) = (format!("davs://h/{from}"), format!("davs://h/{to}"));
            assert_eq!(check(&from, &to, false, true).is_ok(), is_right, "{from} to {to}");
            assert!(check(&from, &to, false, false).is_ok(), "{from} to {to}");
        }
    }
}
