//! That a copy within one place does not lie in what it copies, nor what it copies in what it removes: within this host, whatever links
//! and mounts lead there, or within one server, bucket or endpoint.

use crate::error::{Error, Result};
use model::Location;
use model::name::Escaped;
use model::selection::Selection;
use std::cell::OnceCell;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};

/// Refuses to copy a directory into itself, or anything onto itself, and to remove from a directory (`deletes`) what lies in it as the
/// source. `is_single`: the source is one file.
pub fn check_apart(sources: &[Location], destination: &Location, is_single: bool, deletes: bool) -> Result<()> {
    let mounts = OnceCell::new();
    for source in sources {
        let pair = match (source, destination) {
            (Location::Local(from), Location::Local(to)) => Some(Pair::here(from, to, sources.len() > 1, &mounts)),
            (Location::Url { .. }, Location::Url { .. }) => Pair::there(source, destination, is_single)?,
            _ => None,
        };
        pair.map_or(Ok(()), |pair| pair.check(deletes))?;
    }
    Ok(())
}

/// The same at one endpoint or on one remote host, whatever it is called in the two, before anybody has looked at what is
/// there: by the text of the paths.
pub fn check_apart_there(sources: &[Location], destination: &Location, deletes: bool) -> Result<()> {
    sources.iter().filter_map(|source| Pair::unseen(source, destination)).try_for_each(|pair| pair.check(deletes))
}

/// Refuses a file of this host that is written while a source is copied in which it lies, unless it is left out.
pub fn check_outside(sources: &[Location], selection: &Selection, file: &Path) -> Result<()> {
    let place = resolved(file);
    for source in sources {
        let Location::Local(path) = source else { continue };
        let (at, is_followed) = (Path::new(OsStr::from_bytes(path)), path.ends_with(b"/"));
        let is_link = !is_followed && at.is_symlink();
        let root = if is_link { link_itself(at) } else { resolved(at) };
        let Ok(below) = place.strip_prefix(&root) else { continue };
        // Rules see the name of a directory that is named itself.
        let seen = match root.file_name().filter(|_| !is_followed) {
            Some(name) => Path::new(name).join(below),
            None => below.to_owned(),
        };
        if selection.takes(seen.as_os_str().as_bytes(), false, None) {
            let message = format!("{} is inside {}, and would be copied before it is complete", shown(file), shown(at));
            return Err(Error::request(message, "name a file outside the source"));
        }
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
    fn here(from: &[u8], to: &[u8], is_one_of_many: bool, mounts: &OnceCell<Vec<Mount>>) -> Pair {
        let (from_path, to_path) = (Path::new(OsStr::from_bytes(from)), Path::new(OsStr::from_bytes(to)));
        let is_directory = to.ends_with(b"/") || to_path.is_dir();
        let names_contents = from.ends_with(b"/") || from.ends_with(b"/.") || from == b".";
        let is_link = !names_contents && from_path.is_symlink();
        let is_tree = from_path.is_dir() && !is_link;
        let is_below = !names_contents && (is_directory || is_tree || is_one_of_many);
        let mut at = if is_link { link_itself(from_path) } else { resolved(from_path) };
        let mut into = resolved(to_path);
        if is_tree {
            let mounts = mounts.get_or_init(mounts_here);
            at = seen_below(mounts, &into, &at).unwrap_or(at);
            into = seen_below(mounts, &at, &into).unwrap_or(into);
        }
        Pair {
            at,
            into,
            from_shown: shown(from_path),
            to_shown: shown(to_path),
            is_tree,
            names_contents,
            name: from_path.file_name().filter(|_| is_below).map(OsStr::to_owned),
        }
    }

    /// Of one server or bucket: by the text of the paths, for links there are not known here.
    fn there(source: &Location, destination: &Location, is_single: bool) -> Result<Option<Pair>> {
        if server(source) != server(destination) {
            return Ok(None);
        }
        let [(_, from), (_, to)] = [source, destination].map(|location| host_and_path(location.path()));
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

    /// Where nobody has looked. What a link leads to is not known, nor whether the source is a directory: what is none has
    /// nothing in it either.
    fn unseen(source: &Location, destination: &Location) -> Option<Pair> {
        let [from, to] = [source, destination].map(Location::path);
        let climbs = |path: &[u8]| path.split(|byte| *byte == b'/').any(|part| part == b"..");
        if source.is_synthetic() || destination.is_synthetic() || climbs(from) || climbs(to) {
            return None;
        }
        let (at, into) = (without_dots(from), without_dots(to));
        let is_contents = |path: &[u8]| matches!(path, b"" | b".") || path.ends_with(b"/") || path.ends_with(b"/.");
        let names_contents = is_contents(from);
        let is_tree = names_contents || at != into || is_contents(to);
        Some(Pair {
            name: at.file_name().filter(|_| is_tree && !names_contents).map(OsStr::to_owned),
            at,
            into,
            from_shown: source.to_string(),
            to_shown: destination.to_string(),
            is_tree,
            names_contents,
        })
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

/// Who has a location, however that is written: without the port that is the scheme's own, and without the user, who sees the same files
/// as others as a rule. At an FTP server each may have a root of its own.
fn server(location: &Location) -> (&str, Vec<u8>) {
    let (host, _) = host_and_path(location.path());
    let (kind, port) = match location.scheme() {
        scheme @ ("sftp" | "sshftp") => (scheme, ":22"),
        "ftp" => ("ftp", ":21"),
        "gsiftp" => ("gsiftp", ":2811"),
        "dav" | "http" => ("dav", ":80"),
        "davs" | "https" => ("davs", ":443"),
        bucket => return (bucket, host.to_ascii_lowercase()),
    };
    let host = match kind {
        "ftp" => host,
        _ => host.rsplit(|byte| *byte == b'@').next().unwrap_or(host),
    };
    (kind, host.strip_suffix(port.as_bytes()).unwrap_or(host).to_ascii_lowercase())
}

/// What stands between a scheme and the first slash, and the rest.
fn host_and_path(rest: &[u8]) -> (&[u8], &[u8]) {
    rest.split_at(rest.iter().position(|byte| *byte == b'/').unwrap_or(rest.len()))
}

fn absolute(path: &[u8]) -> PathBuf {
    let names = path.split(|byte| *byte == b'/').filter(|name| !name.is_empty());
    [OsStr::new("/")].into_iter().chain(names.map(OsStr::from_bytes)).collect()
}

fn without_dots(path: &[u8]) -> PathBuf {
    Path::new(OsStr::from_bytes(path)).components().filter(|part| *part != Component::CurDir).collect()
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

/// Of a file system, what is mounted where.
struct Mount {
    /// `major:minor`.
    device: Vec<u8>,
    /// The path in the file system.
    root: PathBuf,
    point: PathBuf,
}

impl Mount {
    /// A line of `/proc/self/mountinfo`: two numbers, the device, what of it is mounted, where, and more.
    fn parse(line: &[u8]) -> Option<Mount> {
        let mut fields = line.split(|byte| *byte == b' ').skip(2);
        let device = fields.next()?.to_vec();
        Some(Mount { device, root: unescaped(fields.next()?), point: unescaped(fields.next()?) })
    }
}

/// Nothing where they cannot be read: paths are compared as they are then.
fn mounts_here() -> Vec<Mount> {
    let text = fs::read("/proc/self/mountinfo").unwrap_or_default();
    text.split(|byte| *byte == b'\n').filter_map(Mount::parse).collect()
}

/// A path as the kernel lists it: blanks, line feeds and backslashes are three octal digits.
fn unescaped(mut field: &[u8]) -> PathBuf {
    let mut path = Vec::with_capacity(field.len());
    while let [first, rest @ ..] = field {
        let (byte, rest) = match field {
            [b'\\', a @ b'0'..=b'3', b @ b'0'..=b'7', c @ b'0'..=b'7', rest @ ..] => {
                ((a - b'0') * 64 + (b - b'0') * 8 + (c - b'0'), rest)
            }
            _ => (*first, rest),
        };
        path.push(byte);
        field = rest;
    }
    PathBuf::from(OsStr::from_bytes(&path))
}

/// The file system of a path, and where in it that is.
fn place<'a>(mounts: &'a [Mount], path: &Path) -> Option<(&'a [u8], PathBuf)> {
    let over = mounts.iter().filter(|mount| path.starts_with(&mount.point));
    // Of two at one point the later covers the other.
    let mount = over.max_by_key(|mount| mount.point.components().count())?;
    Some((&mount.device[..], mount.root.join(path.strip_prefix(&mount.point).ok()?)))
}

/// How `inner` is reached below `outer`, or is it, by whatever mounts lead to the two. What a mount over a network calls its root may be
/// anything: it has to be the same object too.
fn seen_below(mounts: &[Mount], outer: &Path, inner: &Path) -> Option<PathBuf> {
    let (device, top) = place(mounts, outer)?;
    inner.ancestors().find_map(|above| {
        let (other, at) = place(mounts, above)?;
        let there = outer.join(at.strip_prefix(&top).ok()?);
        let is_there = other == device && is_same(above, &there);
        Some(there.join(inner.strip_prefix(above).ok()?)).filter(|_| is_there)
    })
}

fn is_same(one: &Path, two: &Path) -> bool {
    let identity = |path: &Path| path.symlink_metadata().ok().map(|found| (found.dev(), found.ino()));
    identity(one).is_some() && identity(one) == identity(two)
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
    use model::selection::Listed;

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

    /// Nobody asks an endpoint what is there: the text of the paths is compared, whatever it is called in the two.
    #[test]
    fn within_one_endpoint_or_remote_host_it_is_the_same() {
        let at = |text: &str| Location::parse(OsStr::new(text)).unwrap();
        let check = |from: &str, to: &str, deletes| check_apart_there(&[at(from)], &at(to), deletes);
        for (from, to) in [
            ("e:a", "e:a"),
            ("e:a", "other:a/"),
            ("e:a/", "e:a"),
            ("e:a/", "e:a/copy/"),
            ("e:a/", "tw://h:1/./a//copy"),
            ("e:a/.", "e:a/b"),
            ("e:a", "e:a/new/deep"),
            ("e:a/f", "e:a"),
            ("e:f", "e:"),
            ("e:", "e:copy"),
            ("h:/a/", "h:/a/b"),
        ] {
            assert!(check(from, to, false).is_err(), "{from} to {to}");
        }
        for (from, to) in [
            ("e:a", "e:ab"),
            ("e:a/f", "e:a/g"),
            ("e:a/b", "e:c/"),
            ("e:", "e:null:"),
            ("e:gen:1x1", "e:gen"),
            ("h:/a/", "h:a/b"),
            ("h:a/", "h:a/../b"),
        ] {
            assert!(check(from, to, true).is_ok(), "{from} to {to}");
        }
        for (from, to, is_right) in
            [("e:a/b/", "e:a/", false), ("e:a/", "e:", false), ("e:a/b", "e:c", true), ("e:c/", "e:a", true)]
        {
            assert_eq!(check(from, to, true).is_ok(), is_right, "{from} to {to}");
            assert!(check(from, to, false).is_ok(), "{from} to {to}");
        }
        let said = |from, to, deletes| check(from, to, deletes).unwrap_err().text;
        assert_eq!(said("e:a/", "e:a/copy", false), "e:a/copy is inside e:a/, which is to be copied");
        let removed = "e:a/b/ is inside e:a/, and would be removed with what is not in it";
        assert_eq!(said("e:a/b/", "e:a/", true), removed);
        assert_eq!(said("e:f", "e:f", false), "e:f and e:f are the same");
    }

    #[test]
    fn a_file_that_is_written_meanwhile_does_not_lie_in_what_is_copied() {
        let dir = tempfile::tempdir().unwrap();
        let at = |path: &str| dir.path().join(path);
        fs::create_dir_all(at("a/b")).unwrap();
        fs::write(at("a/f"), b"x").unwrap();
        std::os::unix::fs::symlink("a", at("link")).unwrap();
        let check = |source: &str, file: &str| check_outside(&[local(&at(source))], &Selection::default(), &at(file));
        for (source, file) in [("a", "a/m"), ("a/", "a/b/m"), ("a/f", "a/f"), ("link/", "a/m"), ("a", "link/b/m")] {
            let error = check(source, file).unwrap_err();
            assert!(error.kind == crate::error::Kind::Request && error.advice.is_some(), "{source} {file}");
        }
        for (source, file) in [("a", "am"), ("a/b", "a/m"), ("link", "a/m"), ("a/f", "a/m")] {
            assert!(check(source, file).is_ok(), "{source} {file}");
        }
        let listed = Listed::new(vec![b"b".to_vec()]).ok();
        let only_b = Selection { listed, ..Selection::default() };
        assert!(check_outside(&[local(&at("a/"))], &only_b, &at("a/m")).is_ok(), "it is left out");
        assert!(check_outside(&[local(&at("a/"))], &only_b, &at("a/b/m")).is_err());
    }

    /// A file of two names stands for a directory that is mounted in two places.
    #[test]
    fn what_another_mount_leads_to_is_found_where_it_lies() {
        let dir = tempfile::tempdir().unwrap();
        let at = |path: &str| dir.path().join(path);
        fs::create_dir_all(at("b/y")).unwrap();
        fs::create_dir(at("a")).unwrap();
        fs::write(at("a/c"), b"x").unwrap();
        fs::write(at("a/d"), b"x").unwrap();
        fs::write(at("b/y/d"), b"x").unwrap();
        fs::hard_link(at("a/c"), at("b/y/c")).unwrap();
        let mount = |device: &str, root: &str, point: &str| {
            let (device, root) = (device.into(), root.into());
            Mount { device, root, point: at(point) }
        };
        let mounts = [mount("8:1", "/", ""), mount("8:2", "/x/y", "a"), mount("8:2", "/x", "b")];
        assert_eq!(seen_below(&mounts, &at("b"), &at("a/c/new")), Some(at("b/y/c/new")));
        assert_eq!(seen_below(&mounts, &at("b/y"), &at("a/c")), Some(at("b/y/c")));
        assert_eq!(seen_below(&mounts, &at("b"), &at("a/d")), None, "another object");
        assert_eq!(seen_below(&mounts, &at("a/c"), &at("b")), None);
        let apart = [mount("8:2", "/x/y", "a"), mount("8:3", "/x", "b")];
        assert_eq!(seen_below(&apart, &at("b"), &at("a/c")), None, "another file system");
        let line = b"36 35 98:0 /of\\040it /mnt/a\\134b rw,noatime master:1 - ext3 /dev/root rw";
        let Mount { device, root, point } = Mount::parse(line).unwrap();
        assert_eq!((&device[..], root, point), (&b"98:0"[..], PathBuf::from("/of it"), PathBuf::from("/mnt/a\\b")));
        assert!(Mount::parse(b"").is_none());
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
            ("sftp://me@h/a", "sftp://h/a"),
            ("sftp://me@h:22/a", "sftp://you@h/a/b"),
            ("ftp://me@h:21/a", "ftp://me@H/a"),
            ("gsiftp://h/a", "gsiftp://h:2811/a"),
            ("sshftp://[::1]:22/a", "sshftp://me@[::1]/a"),
            ("davs://h:443/a", "davs://h/a"),
            ("https://h/a", "davs://h:443/a"),
            ("http://h:80/a", "dav://h/a"),
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
            ("sftp://h:2222/a", "sftp://h/a"),
            ("ftp://me@h/a", "ftp://you@h/a"),
            ("davs://h:80/a", "dav://h/a"),
            ("s3://b:443/a", "s3://b/a"),
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
