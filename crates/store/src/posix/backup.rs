//! Keeping what is replaced or removed: below one directory of the destination, under its path.
//!
//! Invariants:
//! - The directories on the way are made and opened one name at a time from the destination, and no link is followed.
//! - What is to be replaced gets its second name before the new object takes the first: the final name is never free. Where
//!   the file system has no second names it is moved instead, and the name is free for that moment.
//! - After a wait for a directory on the way that failed nothing is kept any more, and so nothing replaced: a later wait that succeeds
//!   would not vouch for it. The next attempt looks again.
//! - An older object of the same name in the backup directory is replaced; a directory there is not.

use super::facts;
use super::shared::{Backup, Shared};
use super::tree::Tree;
use super::wait::sync_names;
use crate::{Error, Result};
use model::{Name, ObjectId, mutant};
use os::fs::{linkat, mkdirat, renameat_with, unlinkat};
use rustix::fs::{AtFlags, Mode, RenameFlags};
use rustix::io::Errno;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::Ordering::SeqCst;

impl Shared {
    /// Gives what stands at a name, if anything does, its place among the backups as well.
    pub fn keep_second(&self, directory: BorrowedFd<'_>, parent: ObjectId, name: &Name) -> Result<()> {
        let Some(backup) = &self.backup else { return Ok(()) };
        let fail = |e: io::Error| Error::new("keep in backup directory", self.tree.path(parent.0, name.as_bytes()), e);
        let number = self.backup_directory(backup, parent.0).map_err(fail)?;
        let place = self.tree.open(number).map_err(fail)?;
        match link(directory, name, &place) {
            Ok(()) => self.changed(ObjectId(number)),
            Err(Errno::NOENT) => {}
            Err(Errno::PERM | Errno::OPNOTSUPP | Errno::MLINK | Errno::NOSYS) => {
                rename(directory, name, &place).map_err(|e| fail(e.into()))?;
                self.changed(ObjectId(number));
            }
            Err(e) => return Err(fail(e.into())),
        }
        Ok(())
    }

    /// Moves what stands at a name to its place among the backups. False where there are none.
    pub fn keep_instead(&self, directory: BorrowedFd<'_>, parent: u64, name: &Name) -> io::Result<bool> {
        let Some(backup) = &self.backup else { return Ok(false) };
        let number = self.backup_directory(backup, parent)?;
        rename(directory, name, &*self.tree.open(number)?)?;
        self.changed(ObjectId(number));
        Ok(true)
    }

    /// The number of the directory where backups of this one go; makes what is missing of it.
    fn backup_directory(&self, backup: &Backup, directory: u64) -> io::Result<u64> {
        let mut directories = backup.directories.lock().unwrap();
        if backup.is_in_doubt.load(SeqCst) && !mutant::is_on("forget-doubt-of-backups") {
            return Err(io::Error::other("an earlier wait for the backup directory failed"));
        }
        let mut missing = Vec::new();
        let mut at = directory;
        let mut number = loop {
            if let Some(known) = directories.get(&at) {
                break *known;
            }
            match self.tree.place(at) {
                Some((parent, name)) => {
                    missing.push((at, name));
                    at = parent;
                }
                None => {
                    let mut number = at;
                    for name in &backup.names {
                        number = self.make_scratch(backup, number, name)?;
                    }
                    directories.insert(at, number);
                    break number;
                }
            }
        };
        for (at, name) in missing.into_iter().rev() {
            number = self.make_scratch(backup, number, &name)?;
            directories.insert(at, number);
        }
        Ok(number)
    }

    fn make_scratch(&self, backup: &Backup, parent: u64, name: &Name) -> io::Result<u64> {
        let tree: &Tree = &self.tree;
        let above = tree.open(parent)?;
        match mkdirat(&above, name.as_c_str(), Mode::from_raw_mode(0o700)) {
            Ok(()) => self.changed(ObjectId(parent)),
            Err(Errno::EXIST) => drop(tree.bounds.open_child(above.as_fd(), name)?),
            Err(e) => return Err(e.into()),
        }
        // What is moved to a place whose directories are lost with the power would be lost with them. A journal keeps the
        // order.
        let keeps_order = facts::has_local_journal(above.as_fd()) || facts::is_memory_backed(above.as_fd());
        if !keeps_order && !mutant::is_on("forget-backup-directory") {
            sync_names(above.as_fd()).inspect_err(|_| backup.is_in_doubt.store(true, SeqCst))?;
        }
        let number = self.scratch_number();
        tree.insert(number, parent, name.clone(), false);
        Ok(number)
    }
}

fn link(from: BorrowedFd<'_>, name: &Name, to: &OwnedFd) -> std::result::Result<(), Errno> {
    match linkat(from, name.as_c_str(), to, name.as_c_str(), AtFlags::empty()) {
        Err(Errno::EXIST) => {
            unlinkat(to, name.as_c_str(), AtFlags::empty())?;
            linkat(from, name.as_c_str(), to, name.as_c_str(), AtFlags::empty())
        }
        linked => linked,
    }
}

fn rename(from: BorrowedFd<'_>, name: &Name, to: &OwnedFd) -> std::result::Result<(), Errno> {
    renameat_with(from, name.as_c_str(), to, name.as_c_str(), RenameFlags::empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::posix::{PosixSink, beneath};
    use crate::sink::{PublishRule, Sink};
    use model::{Entry, Generation, Kind, ObjectId};
    use std::sync::Arc;

    #[test]
    fn the_way_to_the_backups_and_what_is_in_them_is_covered() {
        let backup = Backup::new(model::name::relative_path(b"old/today").unwrap());
        for (path, covered) in [
            ("old", true),
            ("old/today", true),
            ("old/today/x", true),
            ("old/x", false),
            ("older", false),
            ("x", false),
        ] {
            assert_eq!(backup.covers(path.as_bytes()), covered, "{path}");
        }
    }

    #[test]
    fn after_a_wait_that_failed_nobody_vouches_for_a_backup_directory() {
        let dir = tempfile::tempdir().unwrap();
        let directory = Arc::new(beneath::open_directory(dir.path()).unwrap());
        let sink = PosixSink::new(directory.clone(), directory, None);
        let sink = sink.with_backup(Some(b"old"));
        let backup = sink.shared.backup.as_ref().unwrap();
        sink.shared.backup_directory(backup, ObjectId::ROOT.0).unwrap();
        backup.is_in_doubt.store(true, SeqCst);
        assert!(sink.shared.backup_directory(backup, ObjectId::ROOT.0).is_err());
    }

    #[test]
    fn what_was_staged_when_a_wait_failed_is_never_durable() {
        let dir = tempfile::tempdir().unwrap();
        let directory = Arc::new(beneath::open_directory(dir.path()).unwrap());
        let sink = PosixSink::new(directory.clone(), directory, None);
        let name = Name::new(b"f").unwrap();
        let generation = Generation { size_bytes: 1, ..Generation::default() };
        let (id, parent) = (ObjectId(1), ObjectId::ROOT);
        let entry = Entry { id, parent, name, kind: Kind::File, mode: 0o644, generation, attributes: None };
        let mut lane = sink.lane(false).unwrap();
        let mut stage = || {
            lane.create(&entry, PublishRule::NoReplace).unwrap();
            lane.write(b"x").unwrap();
            lane.seal(&entry, false).unwrap()
        };
        let before = stage();
        let number = before.lane() as usize;
        let of_lane = sink.shared.lanes.read().unwrap()[number].clone();
        of_lane.doubtful.store(before.number(), SeqCst);
        assert!(sink.shared.sync_contents(&mut [before].into_iter()).is_err());
        let after = stage();
        sink.shared.sync_contents(&mut [after].into_iter()).unwrap();
    }
}
