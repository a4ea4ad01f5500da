//! Removing from a destination what its source does not have.
//!
//! Invariants:
//! - Only what lies in the directories that the caller names is looked at, and everything is reached one name at a time from
//!   the destination: a link is removed itself, and never followed.
//! - Staging, what is spared, and what is mounted, be it another file system or a part of the same, stay, with the directories
//!   above them.
//! - Where the file system took one spelling for another, nothing is removed (`spelling`).
//! - A rehearsal looks at the same objects in the same order, and removes none.

use super::beneath::is_mounted;
use super::facts::{STAGING_PREFIX, mount_of};
use super::list::read_directory;
use super::shared::Shared;
use crate::prune::{Fate, Prune};
use crate::{Error, Result};
use model::name::relative_path;
use model::{Failure, Name, ObjectId};
use os::fs::unlinkat;
use rustix::fs::{AtFlags, FileType, Stat, fstat, statat};
use rustix::io::Errno;
use std::collections::HashSet;
use std::io;
use std::os::fd::AsFd;

impl Shared {
    /// Goes through the directories. Ends early when the caller says so.
    pub fn prune(&self, prune: &mut Prune<'_>) {
        for directory in prune.directories {
            if self.tree.is_fresh(directory.0) || self.spellings.were_met_in(*directory) {
                continue;
            }
            let (kept, steps) = (HashSet::new(), Vec::new());
            let mut pruning = Pruning { shared: self, prune, kept, steps, is_named: false };
            if pruning.directory(directory.0, true) {
                while let Some(step) = pruning.steps.pop() {
                    if !pruning.step(step) {
                        return;
                    }
                }
            }
            if !(prune.goes_on)() {
                return;
            }
        }
    }
}

impl Shared {
    /// Removes what is named by its path, the content of a directory before it.
    pub fn prune_paths(&self, next: &mut dyn FnMut() -> Option<(Vec<u8>, bool)>, prune: &mut Prune<'_>) {
        let Ok(mount) = self.tree.open(ObjectId::ROOT.0).and_then(|root| Ok(mount_of(root.as_fd())?)) else { return };
        let (kept, steps) = (HashSet::new(), Vec::new());
        let mut pruning = Pruning { shared: self, prune, kept, steps, is_named: true };
        // The directories above what was removed last, by their numbers.
        let mut above: Vec<(Name, u64)> = Vec::new();
        while (pruning.prune.goes_on)()
            && let Some((path, is_directory)) = next()
        {
            let Ok(names) = relative_path(&path) else { continue };
            let Some((last, parents)) = names.split_last() else { continue };
            let same = above.iter().zip(parents).take_while(|((known, _), name)| known == *name).count();
            above.drain(same..).for_each(|(_, number)| self.forget(number));
            for name in &parents[same..] {
                let number = self.scratch_number();
                self.tree.insert(number, pruning.number_of(&above), name.clone(), false);
                above.push((name.clone(), number));
            }
            let parent = pruning.number_of(&above);
            if pruning.may_go(parent, last, is_directory, mount, &path) {
                pruning.remove(parent, last, is_directory);
            }
        }
        above.into_iter().for_each(|(_, number)| self.forget(number));
    }
}

enum Step {
    /// A directory that the source does not have.
    Enter { number: u64, parent: u64, name: Name },
    /// All that was in it has been looked at.
    Leave { number: u64, parent: u64, name: Name },
}

struct Pruning<'a, 'b> {
    shared: &'a Shared,
    prune: &'a mut Prune<'b>,
    /// Directories in which something stays.
    kept: HashSet<u64>,
    steps: Vec<Step>,
    /// What is removed was named by its path: a directory in which something stays was not looked through.
    is_named: bool,
}

impl Pruning<'_, '_> {
    fn step(&mut self, step: Step) -> bool {
        match step {
            Step::Enter { number, parent, name } => {
                self.steps.push(Step::Leave { number, parent, name });
                self.directory(number, false) || (self.prune.goes_on)()
            }
            Step::Leave { number, parent, name } => {
                if self.kept.remove(&number) {
                    self.kept.insert(parent);
                } else {
                    self.remove(parent, &name, true);
                    self.shared.forget(number);
                }
                (self.prune.goes_on)()
            }
        }
    }

    /// Looks through one directory: removes what is no directory, and notes those that are for later. `is_listed` says that
    /// the source has it. False when it cannot be read, or the caller wants no more.
    fn directory(&mut self, number: u64, is_listed: bool) -> bool {
        let looked = self.shared.tree.open(number).and_then(|directory| {
            let device = fstat(&directory)?.st_dev;
            // What is removed while the directory is read does not hide what is still in it.
            read_directory(directory.as_fd(), &mut |name, status| {
                if let Ok(status) = status
                    && !(is_listed && (self.prune.is_listed)(ObjectId(number), name))
                {
                    self.object(number, name, &status, device);
                }
                (self.prune.goes_on)()
            })
        });
        if let Err(e) = looked {
            self.kept.insert(number);
            let path = self.shared.tree.path(number, b"");
            let e = Error::new("look for what is to be removed", b"", e);
            (self.prune.failed)(Failure { path, kind: e.kind, message: e.message() });
            return false;
        }
        (self.prune.goes_on)()
    }

    fn object(&mut self, directory: u64, name: &Name, status: &Stat, device: u64) {
        let path = self.shared.tree.path(directory, name.as_bytes());
        let is_directory = FileType::from_raw_mode(status.st_mode).is_dir();
        let is_mount = || self.shared.tree.open(directory).is_ok_and(|at| is_mounted(at.as_fd(), name) == Some(true));
        let is_ours = name.as_bytes().starts_with(STAGING_PREFIX)
            || self.shared.backup.as_ref().is_some_and(|backup| backup.covers(&path))
            || is_directory && (status.st_dev != device || is_mount());
        let fate = if is_ours { Fate::Spare } else { (self.prune.fate)(&path, is_directory) };
        if fate == Fate::Spare {
            self.kept.insert(directory);
        } else if is_directory {
            let number = self.shared.scratch_number();
            if fate == Fate::Keep {
                self.kept.insert(number);
            }
            self.shared.tree.insert(number, directory, name.clone(), false);
            self.steps.push(Step::Enter { number, parent: directory, name: name.clone() });
        } else {
            self.remove(directory, name, false);
        }
    }

    fn number_of(&self, directories: &[(Name, u64)]) -> u64 {
        directories.last().map_or(ObjectId::ROOT.0, |(_, number)| *number)
    }

    /// Whether what has this name is ours to remove: on the mount of the destination. A directory in which something stays is not.
    fn may_go(&self, parent: u64, name: &Name, is_directory: bool, mount: (u64, u64), path: &[u8]) -> bool {
        let looked = self.shared.tree.open(parent).and_then(|above| {
            let status = statat(&above, name.as_c_str(), AtFlags::SYMLINK_NOFOLLOW)?;
            let is_mount = is_directory && is_mounted(above.as_fd(), name) == Some(true);
            let is_here = mount_of(above.as_fd())? == mount && status.st_dev == fstat(&above)?.st_dev && !is_mount;
            Ok(is_here && FileType::from_raw_mode(status.st_mode).is_dir() == is_directory)
        });
        looked.unwrap_or(false) && (self.prune.fate)(path, is_directory) == Fate::Remove
    }

    fn remove(&mut self, directory: u64, name: &Name, is_directory: bool) {
        let path = self.shared.tree.path(directory, name.as_bytes());
        let removed = if self.prune.is_rehearsal { Ok(()) } else { self.unlink(directory, name, is_directory) };
        match removed {
            Ok(()) => (self.prune.removed)(&path, is_directory),
            // Of what was named by its path: something in it stays.
            Err(e) if self.is_named && e.source.raw_os_error() == Some(Errno::NOTEMPTY.raw_os_error()) => {}
            Err(e) => {
                self.kept.insert(directory);
                (self.prune.failed)(Failure { path, kind: e.kind, message: e.message() });
            }
        }
    }

    fn unlink(&self, directory: u64, name: &Name, is_directory: bool) -> Result<()> {
        let fail = |e: io::Error| Error::new("remove", b"", e);
        let above = self.shared.tree.open(directory).map_err(fail)?;
        if is_directory || !self.shared.keep_instead(above.as_fd(), directory, name).map_err(fail)? {
            let flags = if is_directory { AtFlags::REMOVEDIR } else { AtFlags::empty() };
            match unlinkat(&above, name.as_c_str(), flags) {
                Ok(()) | Err(Errno::NOENT) => {}
                Err(e) => return Err(fail(e.into())),
            }
        }
        self.shared.changed(ObjectId(directory));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use crate::posix::{PosixSink, beneath};
    use crate::prune::{Fate, Prune};
    use crate::sink::Sink;
    use model::ObjectId;
    use std::os::unix::fs::symlink;
    use std::path::Path;
    use std::sync::Arc;

    /// Removes everything but what is called `keep`, and returns what was removed and what failed.
    fn prune(sink: &PosixSink, is_rehearsal: bool) -> (Vec<String>, usize) {
        let mut removed = Vec::new();
        let mut failures = 0;
        sink.prune(&mut Prune {
            directories: &[ObjectId::ROOT],
            is_listed: &|_, name| name.as_bytes() == b"listed",
            is_listed_alike: &|_, _| false,
            fate: &|path, _| if path.ends_with(b"keep") { Fate::Spare } else { Fate::Remove },
            is_rehearsal,
            removed: &mut |path, _| removed.push(String::from_utf8(path.to_vec()).unwrap()),
            failed: &mut |_| failures += 1,
            goes_on: &|| true,
        });
        removed.sort();
        (removed, failures)
    }

    fn place(root: &Path) -> PosixSink {
        std::fs::create_dir_all(root.join("d/e/f")).unwrap();
        std::fs::create_dir_all(root.join("holds/deep")).unwrap();
        std::fs::create_dir_all(root.join(".thalweg-staging-7")).unwrap();
        for file in ["listed", "gone", "d/e/x", "holds/deep/keep", "holds/y", ".thalweg-staging-7/z"] {
            std::fs::write(root.join(file), file).unwrap();
        }
        let fd = Arc::new(beneath::open_directory(root).unwrap());
        PosixSink::new(fd.clone(), fd, None)
    }

    #[test]
    fn what_is_not_listed_goes_and_what_is_spared_stays_with_what_is_above_it() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("root");
        let sink = place(&root);
        let expected = ["d", "d/e", "d/e/f", "d/e/x", "gone", "holds/y"].map(str::to_owned).to_vec();
        assert_eq!(prune(&sink, true), (expected.clone(), 0));
        assert!(root.join("d/e/x").exists());
        assert_eq!(prune(&sink, false), (expected, 0));
        assert!(!root.join("d").exists() && !root.join("gone").exists());
        assert!(root.join("listed").exists() && root.join("holds/deep/keep").exists());
        assert!(root.join(".thalweg-staging-7/z").exists());
    }

    #[test]
    fn links_are_removed_and_not_followed() {
        let dir = tempfile::tempdir().unwrap();
        let (root, outside) = (dir.path().join("root"), dir.path().join("outside"));
        std::fs::create_dir_all(&root).unwrap();
        std::fs::create_dir(&outside).unwrap();
        std::fs::write(outside.join("theirs"), b"x").unwrap();
        symlink("../outside", root.join("link")).unwrap();
        let fd = Arc::new(beneath::open_directory(&root).unwrap());
        let sink = PosixSink::new(fd.clone(), fd, None);
        assert_eq!(prune(&sink, false), (vec!["link".to_owned()], 0));
        assert!(outside.join("theirs").exists() && !root.join("link").is_symlink());
    }

    #[test]
    fn a_directory_swapped_for_a_link_while_it_is_looked_through_is_not_followed() {
        let dir = tempfile::tempdir().unwrap();
        let (root, outside) = (dir.path().join("root"), dir.path().join("outside"));
        std::fs::create_dir_all(root.join("d")).unwrap();
        std::fs::create_dir(&outside).unwrap();
        std::fs::write(outside.join("theirs"), b"x").unwrap();
        let fd = Arc::new(beneath::open_directory(&root).unwrap());
        let sink = PosixSink::new(fd.clone(), fd, None);
        let mut failures = 0;
        sink.prune(&mut Prune {
            directories: &[ObjectId::ROOT],
            is_listed: &|_, _| false,
            is_listed_alike: &|_, _| false,
            // Asked between looking at the directory and entering it.
            fate: &|path, _| {
                if path == b"d" {
                    std::fs::remove_dir(root.join("d")).unwrap();
                    symlink("../outside", root.join("d")).unwrap();
                }
                Fate::Remove
            },
            is_rehearsal: false,
            removed: &mut |_, _| {},
            failed: &mut |_| failures += 1,
            goes_on: &|| true,
        });
        assert!(failures > 0);
        assert!(outside.join("theirs").exists() && root.join("d").is_symlink());
    }

    #[test]
    fn with_a_backup_directory_nothing_is_lost() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("root");
        let sink = place(&root).with_backup(Some(b"old/1"));
        prune(&sink, false);
        for file in ["gone", "d/e/x", "holds/y"] {
            assert_eq!(std::fs::read_to_string(root.join("old/1").join(file)).unwrap(), file);
        }
        assert!(!root.join("d").exists());
        // The backups are not removed in their turn.
        assert_eq!(prune(&sink, false), (Vec::new(), 0));
    }
}
