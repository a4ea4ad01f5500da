//! Changing names: directories made, objects removed or given another name, each by one name from a descriptor.
//!
//! Invariants:
//! - No link is followed; a link is removed, never what it points to.
//!
//! `removal` goes through a tree that is removed; `links` knows files that lose one name after the other.

mod links;
mod removal;

use super::rename::to_free_name;
use super::target::{Target, status_of};
use super::wait::sync_names;
use crate::shelf::{EachFailure, Stopped};
use crate::{Error, Result};
use model::FailureKind;
use model::files::{Tally, Version};
use os::fs::{mkdirat, renameat_with, unlinkat};
use rustix::fs::{AtFlags, FileType, Mode, RenameFlags, Stat};
use rustix::io::Errno;
use std::os::fd::AsFd;

/// Makes a directory; true when it was not there, and its name is on disk then.
pub fn make(target: &Target, may_be_there: bool) -> Result<bool> {
    let failed = |e: Errno| Error::new("make directory", b"", e);
    let is_directory = || target.file_status().is_ok_and(|status| status.is_directory());
    let made = match &target.name {
        Some(name) => mkdirat(&target.directory, name.as_c_str(), Mode::from_raw_mode(0o777)),
        None => Err(Errno::EXIST),
    };
    match made {
        Ok(()) => sync_names(target.directory.as_fd()).map(|()| true).map_err(unsynced),
        Err(Errno::EXIST) if may_be_there && is_directory() => Ok(false),
        Err(e) => Err(failed(e)),
    }
}

/// Gives an object another name in one step; the names are on disk when this returns.
pub fn rename(from: &Target, to: &Target, may_replace: bool) -> Result<()> {
    let failed = |e: Errno| Error::new("rename", b"", e);
    let (old, new) = (from.changeable("rename")?, to.changeable("rename")?);
    let refused = |why| Err(Error::of_kind(FailureKind::NameRefused, "rename", b"", why));
    // The kernel does nothing then, and calls it done. Where names differ in case only, it has something to do.
    let is_one = |(a, b): (Stat, Stat)| {
        let is_linked = !FileType::from_raw_mode(a.st_mode).is_dir() && a.st_nlink > 1;
        (a.st_dev, a.st_ino) == (b.st_dev, b.st_ino) && (old == new || is_linked)
    };
    if from.status().ok().zip(to.status().ok()).is_some_and(is_one) {
        return refused("both names already belong to the same file");
    }
    let (at, place) = (from.directory.as_fd(), to.directory.as_fd());
    let renamed = match may_replace {
        true => renameat_with(at, old.as_c_str(), place, new.as_c_str(), RenameFlags::empty()),
        false => to_free_name((at, old.as_c_str()), (place, new.as_c_str())),
    };
    match renamed {
        Err(Errno::INVAL) => return refused("a directory cannot go into itself"),
        renamed => renamed.map_err(failed)?,
    }
    [&to.directory, &from.directory]
        .into_iter()
        .try_for_each(|directory| sync_names(directory.as_fd()))
        .map_err(unsynced)
}

fn unsynced(e: Errno) -> Error {
    Error::new("write directory", b"", e)
}

/// Removes one object that is no directory, or an empty directory; only if it still is of the version given.
pub fn remove_one(target: &Target, version: Option<&Version>, may_be_directory: bool) -> Result<Tally> {
    let name = target.changeable("remove")?;
    let failed = |e: Errno| Error::new("remove", b"", e);
    let status = target.status().map_err(failed)?;
    let found = status_of(target.directory.as_fd(), target.name.as_ref(), &status)?;
    if version.is_some_and(|version| *version != found.version() && !links::is_as_listed(&found, version)) {
        return Err(Error::other_version());
    }
    let flags = match found.is_directory() {
        true if !may_be_directory => {
            return Err(Error::of_kind(FailureKind::InTheWay, "remove", b"", "it is a directory; -r removes it whole"));
        }
        true => AtFlags::REMOVEDIR,
        false => AtFlags::empty(),
    };
    let held = version.and_then(|_| links::hold(target.directory.as_fd(), name, &found));
    unlinkat(&target.directory, name.as_c_str(), flags).map_err(failed)?;
    match held {
        Some(held) => links::note(&held, &found),
        None => links::forget(&found),
    }
    let mut tally = Tally::default();
    tally.count(&found);
    Ok(tally)
}

/// Removes an object and everything below it.
pub fn remove_tree(target: &Target, is_stopped: Stopped<'_>, each_failure: EachFailure<'_>) -> Tally {
    let is_directory = target.file_status().map(|status| status.is_directory());
    if !matches!(is_directory, Ok(true)) {
        return remove_one(target, None, false).unwrap_or_else(|e| {
            each_failure(b"", e);
            Tally { failed: 1, ..Tally::default() }
        });
    }
    removal::remove_directory(target, is_stopped, each_failure)
}

#[cfg(test)]
mod tests {
    use super::removal::OPEN_MAX;
    use super::*;
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::path::Path;

    fn target(path: &Path) -> Target {
        Target::local(path.as_os_str().as_encoded_bytes(), false).unwrap()
    }

    fn remove(path: &Path) -> (Tally, Vec<String>) {
        let mut failures = Vec::new();
        let tally = remove_tree(&target(path), &|| false, &mut |path, e| {
            failures.push(format!("{} {e}", String::from_utf8_lossy(path)));
        });
        (tally, failures)
    }

    #[test]
    fn a_tree_goes_and_what_its_links_point_to_stays() {
        let dir = tempfile::tempdir().unwrap();
        let tree = dir.path().join("tree");
        fs::create_dir(dir.path().join("kept")).unwrap();
        fs::write(dir.path().join("kept/f"), b"x").unwrap();
        for i in 0..30 {
            let at = tree.join(format!("{}/{}", i % 3, i));
            fs::create_dir_all(&at).unwrap();
            for j in 0..300 {
                fs::write(at.join(format!("{j}")), b"").unwrap();
            }
            symlink(dir.path().join("kept"), at.join("link")).unwrap();
        }
        let (tally, failures) = remove(&tree);
        assert_eq!((tally.files, tally.directories, tally.failed), (30 * 301, 34, 0), "{failures:?}");
        assert!(!tree.exists() && dir.path().join("kept/f").exists());
        symlink("kept", dir.path().join("alone")).unwrap();
        assert_eq!(remove(&dir.path().join("alone")).0.files, 1);
        assert!(dir.path().join("kept/f").exists());
    }

    /// Directories on the way are closed and opened again, and each sibling comes after the depth below the one before.
    #[test]
    fn a_tree_deeper_than_what_is_kept_open_goes_with_its_side_branches() {
        let dir = tempfile::tempdir().unwrap();
        let tree = dir.path().join("t");
        let mut at = tree.clone();
        for _ in 0..5 * OPEN_MAX {
            fs::create_dir_all(at.join("a/deeper/than/this")).unwrap();
            fs::create_dir_all(at.join("z")).unwrap();
            fs::write(at.join("z/f"), b"").unwrap();
            at.push("m");
        }
        let (tally, failures) = remove(&tree);
        let levels = 5 * OPEN_MAX as u64;
        assert_eq!((tally.files, tally.directories, tally.failed), (levels, 6 * levels, 0), "{failures:?}");
        assert!(!tree.exists());
    }

    #[test]
    fn what_cannot_be_removed_is_told_once_and_the_rest_goes() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("t/shut")).unwrap();
        fs::write(dir.path().join("t/shut/f"), b"").unwrap();
        fs::write(dir.path().join("t/g"), b"").unwrap();
        fs::set_permissions(dir.path().join("t/shut"), fs::Permissions::from_mode(0o500)).unwrap();
        let (tally, failures) = needs::bound_by_permissions(|| remove(&dir.path().join("t")));
        fs::set_permissions(dir.path().join("t/shut"), fs::Permissions::from_mode(0o700)).unwrap();
        assert_eq!((tally.files, tally.directories, failures.len()), (1, 0, 1), "{failures:?}");
        assert!(failures[0].starts_with("shut/f remove"), "{failures:?}");
    }

    #[test]
    fn one_object_goes_only_if_it_is_what_it_was() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        fs::write(&path, b"one").unwrap();
        let version = target(&path).file_status().unwrap().version();
        fs::write(&path, b"other").unwrap();
        let refused = remove_one(&target(&path), Some(&version), false).unwrap_err();
        assert_eq!(refused.kind, FailureKind::Changed);
        let version = target(&path).file_status().unwrap().version();
        assert_eq!(remove_one(&target(&path), Some(&version), false).unwrap().files, 1);
        assert!(remove_one(&target(dir.path()), None, false).is_err());
        assert_eq!(remove_one(&target(dir.path()), None, true).unwrap().directories, 1);
    }

    #[test]
    fn all_names_of_a_file_go_by_the_version_that_was_listed_unless_it_is_written_to_in_between() {
        let dir = tempfile::tempdir().unwrap();
        let [a, b, c] = ["a", "b", "c"].map(|name| dir.path().join(name));
        fs::write(&a, b"one").unwrap();
        [&b, &c].into_iter().for_each(|other| fs::hard_link(&a, other).unwrap());
        let version = target(&a).file_status().unwrap().version();
        for path in [&a, &b] {
            assert_eq!(remove_one(&target(path), Some(&version), false).unwrap().files, 1);
        }
        // Of the same size, and with the old time: only the time of change tells, once the file system's clock has gone on.
        let (modified, before) = (fs::metadata(&c).unwrap().modified().unwrap(), target(&c).file_status().unwrap());
        while target(&c).file_status().unwrap().changed == before.changed {
            fs::write(&c, b"two").unwrap();
            fs::File::options().write(true).open(&c).unwrap().set_modified(modified).unwrap();
        }
        let refused = remove_one(&target(&c), Some(&version), false).unwrap_err();
        assert_eq!((refused.kind, fs::read(&c).unwrap()), (FailureKind::Changed, b"two".to_vec()));
    }

    #[test]
    fn a_directory_does_not_go_into_itself_however_it_is_asked() {
        let dir = tempfile::tempdir().unwrap();
        let tree = dir.path().join("tree");
        fs::create_dir(&tree).unwrap();
        for may_replace in [false, true] {
            let refused = rename(&target(&tree), &target(&tree.join("below")), may_replace).unwrap_err();
            assert!(refused.message().ends_with("a directory cannot go into itself"), "{refused}");
        }
        rename(&target(&tree), &target(&dir.path().join("free")), false).unwrap();
        assert!(dir.path().join("free").is_dir());
    }

    #[test]
    fn a_name_that_is_taken_is_replaced_only_when_that_is_said() {
        let dir = tempfile::tempdir().unwrap();
        let (a, b) = (dir.path().join("a"), dir.path().join("b"));
        fs::write(&a, b"a").unwrap();
        fs::write(&b, b"b").unwrap();
        assert_eq!(rename(&target(&a), &target(&b), false).unwrap_err().kind, FailureKind::InTheWay);
        rename(&target(&a), &target(&b), true).unwrap();
        assert_eq!(fs::read(&b).unwrap(), b"a");
        let link = dir.path().join("link");
        fs::hard_link(&b, &link).unwrap();
        for to in [&link, &b] {
            let refused = rename(&target(&b), &target(to), true).unwrap_err();
            assert!(refused.message().ends_with("both names already belong to the same file"), "{refused}");
        }
        assert!(b.exists() && link.exists());
        assert!(make(&target(&b), true).is_err());
        assert!(make(&target(&a), false).unwrap());
        assert!(make(&target(&a), false).is_err() && !make(&target(&a), true).unwrap());
    }
}
