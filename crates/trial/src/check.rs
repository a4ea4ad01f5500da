//! The independent checker: reads storage directly, with a digest of its own, and compares it with what was to be.
//!
//! It shares no code with the programs it judges. A tree is read as names, kinds, contents, modes and times.
//! - `half_done` holds at every instant, also while a program runs: each name shows nothing, the old object or the new one.
//! - `complete` holds after a run that claims success: everything is the new object, what else was there is unchanged.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

pub const STAGING_PREFIX: &str = ".thalweg-staging-";

#[derive(Clone, PartialEq, Eq)]
pub struct Object {
    pub kind: Kind,
    /// Permission bits; a link has none of its own.
    pub mode: u32,
    /// Seconds and nanoseconds of the last change of the content; a link's are not compared.
    pub modified: (i64, i64),
}

#[derive(Clone, PartialEq, Eq)]
pub enum Kind {
    File { bytes: u64, digest: blake3::Hash },
    Link(PathBuf),
    Directory,
    Special,
}

pub type Tree = BTreeMap<PathBuf, Object>;

impl std::fmt::Debug for Object {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Object { kind, mode, modified: (seconds, nanoseconds) } = self;
        match kind {
            Kind::File { bytes, digest } => write!(f, "file of {bytes} bytes {:.8}", digest.to_hex())?,
            Kind::Link(target) => return write!(f, "link to {}", target.display()),
            Kind::Directory => write!(f, "directory")?,
            Kind::Special => write!(f, "special file")?,
        }
        write!(f, " mode {mode:o} time {seconds}.{nanoseconds:09}")
    }
}

/// What stands at a path; `None` when nothing does.
pub fn object(path: &Path) -> io::Result<Option<Object>> {
    let looked = match fs::symlink_metadata(path) {
        Err(e) if matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => return Ok(None),
        looked => looked?,
    };
    let of = |kind, status: &fs::Metadata| {
        Ok(Some(Object { kind, mode: status.mode() & 0o7777, modified: (status.mtime(), status.mtime_nsec()) }))
    };
    if looked.is_symlink() {
        return match fs::read_link(path) {
            Ok(target) => Ok(Some(Object { kind: Kind::Link(target), mode: 0, modified: (0, 0) })),
            // It was replaced between the two looks.
            Err(_) => object(path),
        };
    }
    if looked.is_dir() {
        return of(Kind::Directory, &looked);
    }
    if !looked.is_file() {
        return of(Kind::Special, &looked);
    }
    // One descriptor for status and content: a name may come to mean another object at any time.
    let mut file = match File::options().read(true).custom_flags(rustix::fs::OFlags::NOFOLLOW.bits() as i32).open(path)
    {
        Err(e) if e.raw_os_error() == Some(rustix::io::Errno::LOOP.raw_os_error()) => return object(path),
        opened => opened?,
    };
    let mut hasher = blake3::Hasher::new();
    let bytes = io::copy(&mut file, &mut hasher)?;
    let status = file.metadata()?;
    of(Kind::File { bytes, digest: hasher.finalize() }, &status)
}

/// Everything below a directory, by path relative to it. Staging is left out.
pub fn tree(root: &Path) -> io::Result<Tree> {
    let mut found = Tree::new();
    let mut pending = vec![root.to_owned()];
    while let Some(directory) = pending.pop() {
        let listing = match fs::read_dir(&directory) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => continue,
            listing => listing?,
        };
        for entry in listing {
            let entry = entry?;
            if is_staging(&entry.file_name()) {
                continue;
            }
            let path = entry.path();
            let Some(object) = object(&path)? else { continue };
            if object.kind == Kind::Directory {
                pending.push(path.clone());
            }
            let below = path.strip_prefix(root).expect("found below the root").to_owned();
            found.insert(below, object);
        }
    }
    Ok(found)
}

/// Names of our staging below a directory, at any depth: each staging directory and what is in it.
pub fn staged(root: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut pending = vec![(root.to_owned(), false)];
    while let Some((directory, is_inside)) = pending.pop() {
        for entry in fs::read_dir(&directory).into_iter().flatten().flatten() {
            let is_staged = is_inside || is_staging(&entry.file_name());
            if is_staged {
                found.push(entry.path());
            }
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                pending.push((entry.path(), is_staged));
            }
        }
    }
    found
}

fn is_staging(name: &std::ffi::OsStr) -> bool {
    name.as_bytes().starts_with(STAGING_PREFIX.as_bytes())
}

/// Owners, extended attributes and names of one file are those of the source.
///
/// # Errors
/// Says which are not.
pub fn kept(source: &Path, destination: &Path, new: &Tree) -> Result<(), String> {
    let failed = |e: io::Error| format!("the checker could not look: {e}");
    let mut inodes = BTreeMap::new();
    let is_root = rustix::process::geteuid().is_root();
    for path in new.iter().filter(|(_, object)| matches!(object.kind, Kind::File { .. })).map(|(path, _)| path) {
        let (from, to) = (source.join(path), destination.join(path));
        let (was, is) = (fs::metadata(&from).map_err(failed)?, fs::metadata(&to).map_err(failed)?);
        if is_root && (was.uid(), was.gid()) != (is.uid(), is.gid()) {
            return Err(format!("{} belongs to {}:{}", path.display(), is.uid(), is.gid()));
        }
        if attribute(&from) != attribute(&to) {
            return Err(format!("{} has another extended attribute", path.display()));
        }
        let first = *inodes.entry(was.ino()).or_insert(is.ino());
        if first != is.ino() {
            return Err(format!("{} is no name of the file that it was at the source", path.display()));
        }
    }
    Ok(())
}

fn attribute(path: &Path) -> Option<Vec<u8>> {
    let mut value = vec![0; 256];
    let length = rustix::fs::lgetxattr(path, "user.trial", &mut value[..]).ok()?;
    value.truncate(length);
    Some(value)
}

/// I1: each name shows nothing, exactly the old object, or exactly the new one; an old one never vanishes.
///
/// # Errors
/// Says which name broke it, and how.
pub fn half_done(destination: &Path, old: &Tree, new: &Tree) -> Result<(), String> {
    let failed = |e: io::Error| format!("the checker could not read {}: {e}", destination.display());
    for path in old.keys().chain(new.keys().filter(|path| !old.contains_key(*path))) {
        let there = object(&destination.join(path)).map_err(failed)?;
        let (was, is_to_be) = (old.get(path), new.get(path));
        let is_right = match &there {
            None => was.is_none(),
            Some(object) if object.kind == Kind::Directory => {
                [was, is_to_be].into_iter().flatten().any(|known| known.kind == Kind::Directory)
            }
            Some(object) => Some(object) == was || Some(object) == is_to_be,
        };
        if !is_right {
            let shown = |object: Option<&Object>| object.map_or("nothing".to_owned(), |o| format!("{o:?}"));
            let (there, was, is_to_be) = (shown(there.as_ref()), shown(was), shown(is_to_be));
            return Err(format!("I1: {} is {there}; it was {was} and is to be {is_to_be}", path.display()));
        }
    }
    let all = tree(destination).map_err(failed)?;
    match all.keys().find(|path| !old.contains_key(*path) && !new.contains_key(*path)) {
        Some(path) => Err(format!("I1: {} appeared, which nobody asked for", path.display())),
        None => Ok(()),
    }
}

/// I2 and I7: as many files and links as a program said are there and complete, whatever else it said.
///
/// # Errors
/// Says how many are missing.
pub fn acknowledged(destination: &Path, new: &Tree, said: u64) -> Result<(), String> {
    let mut there = 0;
    for (path, wanted) in new.iter().filter(|(_, wanted)| wanted.kind != Kind::Directory) {
        let found = object(&destination.join(path)).map_err(|e| format!("the checker could not read: {e}"))?;
        there += u64::from(found.as_ref() == Some(wanted));
    }
    match there < said {
        true => Err(format!("I2: {said} objects were reported as delivered or there, and {there} are")),
        false => Ok(()),
    }
}

/// I7: everything is the new object, and what the job did not name is as it was.
///
/// # Errors
/// Says which name broke it, and how.
pub fn complete(destination: &Path, old: &Tree, new: &Tree) -> Result<(), String> {
    let mut wanted = old.clone();
    wanted.extend(new.iter().map(|(path, object)| (path.clone(), object.clone())));
    same(destination, &wanted, &|path| old.contains_key(path) && !new.contains_key(path))
        .map_err(|e| format!("I7: {e}"))
}

/// A tree is as it was.
///
/// # Errors
/// Says which name broke it, and how.
pub fn unchanged(root: &Path, before: &Tree) -> Result<(), String> {
    same(root, before, &|_| false).map_err(|e| format!("I5: {}: {e}", root.display()))
}

/// `is_left_alone` names what stood there before: of a directory among them only the kind is compared, because its time
/// changes with what is put into it.
fn same(root: &Path, wanted: &Tree, is_left_alone: &dyn Fn(&Path) -> bool) -> Result<(), String> {
    let found = tree(root).map_err(|e| format!("the checker could not read it: {e}"))?;
    for (path, wanted) in wanted {
        let is_same = match found.get(path) {
            Some(there) if there.kind == Kind::Directory && is_left_alone(path) => wanted.kind == Kind::Directory,
            there => there == Some(wanted),
        };
        if !is_same {
            let there = found.get(path).map_or("nothing".to_owned(), |object| format!("{object:?}"));
            return Err(format!("{} is {there}; wanted {wanted:?}", path.display()));
        }
    }
    match found.keys().find(|path| !wanted.contains_key(*path)) {
        Some(path) => Err(format!("{} is there and was not wanted", path.display())),
        None => Ok(()),
    }
}

/// The counts of the last event, when it is `done` and the sum is right (I6): (ok, skipped, failed).
///
/// # Errors
/// Says what is missing or does not add up.
pub fn done(output: &str, exit_code: i32, objects: u64) -> Result<(u64, u64, u64), String> {
    let last = output.lines().last().ok_or("I6: no event at all")?;
    let event: serde_json::Value = serde_json::from_str(last).map_err(|e| format!("I6: {e}: {last}"))?;
    if event["event"] != "done" || event["code"] != exit_code {
        return Err(format!("I6: the last event is not `done` with code {exit_code}: {last}"));
    }
    let count = |name: &str| event["files"][name].as_u64().ok_or_else(|| format!("I6: no files.{name}: {last}"));
    let (ok, skipped, failed) = (count("ok")?, count("skipped")?, count("failed")?);
    if exit_code == 0 && (failed > 0 || ok + skipped != objects) {
        return Err(format!("I6: {ok} ok, {skipped} skipped and {failed} failed are not {objects} objects"));
    }
    Ok((ok, skipped, failed))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_a_file_is_found_and_the_old_and_the_new_one_are_not() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a");
        let write = |text: &str| {
            fs::write(&path, text).unwrap();
            let time = std::time::SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(7);
            File::options().write(true).open(&path).unwrap().set_modified(time).unwrap();
            tree(dir.path()).unwrap()
        };
        let old = write("old");
        let new = write("new content");
        half_done(dir.path(), &old, &new).unwrap();
        complete(dir.path(), &old, &new).unwrap();
        write("new con");
        assert!(half_done(dir.path(), &old, &new).unwrap_err().starts_with("I1: a is file of 7 bytes"));
        write("old");
        half_done(dir.path(), &old, &new).unwrap();
        assert!(complete(dir.path(), &old, &new).is_err());
        acknowledged(dir.path(), &new, 0).unwrap();
        assert!(acknowledged(dir.path(), &new, 1).unwrap_err().starts_with("I2"));
        acknowledged(dir.path(), &old, 1).unwrap();
        fs::remove_file(&path).unwrap();
        assert!(half_done(dir.path(), &old, &new).is_err());
        half_done(dir.path(), &Tree::new(), &new).unwrap();
        fs::write(dir.path().join("stray"), "x").unwrap();
        assert!(half_done(dir.path(), &Tree::new(), &new).unwrap_err().contains("stray"));
    }

    #[test]
    fn counts_that_do_not_add_up_are_found() {
        let event = |ok, failed| {
            format!("{{\"event\":\"done\",\"files\":{{\"ok\":{ok},\"skipped\":1,\"failed\":{failed}}},\"code\":0}}\n")
        };
        assert_eq!(done(&event(2, 0), 0, 3), Ok((2, 1, 0)));
        assert!(done(&event(2, 0), 0, 4).is_err());
        assert!(done(&event(2, 1), 0, 4).is_err());
        assert!(done("{\"event\":\"progress\"}", 0, 4).is_err());
    }
}
