//! Directories that a destination has already. Those that are shut to their own user are opened for as long as the job
//! fills them.
//!
//! Invariants:
//! - Only a directory of this user is opened, through a descriptor of it: what was looked at is what is changed.
//! - Nobody else may enter it meanwhile who may not in the end.
//! - One that this process can fill as it is, as root can, keeps its mode.
//!
//! Not here: the mode that a directory gets in the end (`sink`).

use super::shared::{GROUP_BIT, UNFINISHED, USABLE};
use super::sink::PosixSink;
use super::{facts, spelling};
use crate::sink::Sink;
use crate::{Error, Result};
use model::{Entry, FailureKind};
use os::fs::{chmodat, fchmod};
use rustix::fs::{Access, AtFlags, CWD, Mode, accessat, fstat};
use rustix::io::Errno;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

const WRITABLE: u32 = 0o200;

impl PosixSink {
    /// Finds the directory that stands at an entry's name fit to be filled, or makes it so. `first` is the mode that a
    /// new one would be made with.
    pub(super) fn open_existing(&self, parent: &OwnedFd, entry: &Entry, first: u32) -> Result<()> {
        let bounds = self.shared.tree.bounds;
        let (there, denied) = match bounds.open_child(parent.as_fd(), &entry.name) {
            Err(e) if e.raw_os_error() == Some(Errno::ACCESS.raw_os_error()) => {
                match bounds.find_child(parent.as_fd(), &entry.name) {
                    Ok(found) => (found, Some(e)),
                    Err(_) => return Err(self.no_directory(entry, e)),
                }
            }
            opened => (opened.map_err(|e| self.no_directory(entry, e))?, None),
        };
        let status = fstat(&there).map_err(|e| self.error("look at", entry, e))?;
        if self.is_another(parent, entry, &status) {
            let path = self.path(entry);
            return Err(Error::of_kind(FailureKind::InTheWay, "make directory", path, spelling::ANOTHER));
        }
        let is_ours = status.st_uid == rustix::process::geteuid().as_raw();
        let now = status.st_mode & 0o7777;
        let Some((mode, had)) = self.mode_while_filled(entry, first, &there, now).filter(|_| is_ours) else {
            return denied.map_or(Ok(()), |e| Err(self.no_directory(entry, e)));
        };
        if mode != now && set_mode(&there, mode).is_err() {
            // What cannot be written in it says so itself; there may be nothing to write.
            return denied.map_or(Ok(()), |e| Err(self.no_directory(entry, e)));
        }
        if denied.is_some()
            && let Err(e) = bounds.open_child(parent.as_fd(), &entry.name)
        {
            // Something else keeps this job out, such as the readers of a set.
            let _ = set_mode(&there, now);
            return Err(self.no_directory(entry, e));
        }
        self.shared.unfinished.lock().unwrap().insert(entry.id.0, had);
        Ok(())
    }

    /// The mode that a directory is to have while it is filled, and the one that it had before all attempts of this
    /// job; none where it is well as it is.
    fn mode_while_filled(&self, entry: &Entry, first: u32, there: &OwnedFd, now: u32) -> Option<(u32, u32)> {
        let (unfinished, finished) = (first & !facts::umask(), self.shared.mode_of(entry));
        // The group bit may come from the directory above.
        let (bits, group) = (now & !GROUP_BIT, now & GROUP_BIT);
        match () {
            // As a copy of a source that was shut has left it.
            () if bits & USABLE != USABLE && !can_be_filled(there) => Some((unfinished | group, now)),
            // An attempt that failed files in it has closed it all the same: its successor opens it again.
            () if bits == finished && bits & WRITABLE == 0 => Some((unfinished | group, now)),
            // An attempt that died has made it, or opened it.
            () if first & UNFINISHED != 0 && bits == unfinished => Some((now, finished | group)),
            () if bits & WRITABLE == 0 && !can_be_filled(there) => Some((now | WRITABLE, now)),
            () => None,
        }
    }
}

/// Whether this process may list a directory, enter it and write to it as it is.
fn can_be_filled(directory: &OwnedFd) -> bool {
    let access = Access::READ_OK | Access::WRITE_OK | Access::EXEC_OK;
    accessat(directory, c".", access, AtFlags::EACCESS).is_ok()
}

fn set_mode(directory: &OwnedFd, mode: u32) -> std::result::Result<(), Errno> {
    let mode = Mode::from_raw_mode(mode);
    match fchmod(directory, mode) {
        // A descriptor that was opened without any right: the kernel has another name for what it stands for.
        Err(Errno::BADF) => {
            let name = format!("/proc/self/fd/{}", directory.as_raw_fd());
            chmodat(CWD, name, mode, AtFlags::empty())
        }
        set => set,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::posix::beneath;
    use crate::sink::Decision;
    use model::change::cause;
    use model::{Fidelity, Generation, Kind, Name, ObjectId};
    use os::fs::openat;
    use rustix::fs::OFlags;
    use std::fs::Permissions;
    use std::os::unix::fs::{PermissionsExt, chown};
    use std::path::{Path, PathBuf};
    use std::sync::Arc;

    /// A destination with a directory of this mode.
    fn with_shut(mode: u32) -> (tempfile::TempDir, PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let shut = dir.path().join("shut");
        std::fs::create_dir(&shut).unwrap();
        std::fs::set_permissions(&shut, Permissions::from_mode(mode)).unwrap();
        (dir, shut)
    }

    fn sink(dir: &tempfile::TempDir) -> PosixSink {
        let root = Arc::new(beneath::open_directory(dir.path()).unwrap());
        PosixSink::new(root.clone(), root, None)
    }

    fn entry(id: u64, parent: u64, name: &[u8], kind: Kind, mode: u32) -> Entry {
        let (id, parent, name) = (ObjectId(id), ObjectId(parent), Name::new(name).unwrap());
        Entry { id, parent, name, kind, mode, generation: Generation::default(), attributes: None }
    }

    fn directory(mode: u32) -> Entry {
        entry(1, 0, b"shut", Kind::Directory, mode)
    }

    /// The mode of a directory, which can be removed from then on.
    fn mode_of(shut: &Path) -> u32 {
        let mode = std::fs::metadata(shut).unwrap().permissions().mode() & 0o7777;
        std::fs::set_permissions(shut, Permissions::from_mode(0o700)).unwrap();
        mode
    }

    #[test]
    fn a_directory_of_ours_that_is_shut_is_filled_and_has_its_mode_in_the_end() {
        let fresh = |mode: u32| mode & !facts::umask();
        for (had, source, end) in [
            // Nobody uses it as it is.
            (0o000, 0o755, fresh(0o755)),
            (0o000, 0o000, 0o000),
            (0o600, 0o750, fresh(0o750)),
            (0o300, 0o300, 0o300),
            (0o500, 0o500, 0o500),
            // Its user wants it so.
            (0o555, 0o755, 0o555),
            (0o755, 0o555, 0o755),
        ] {
            let (dir, shut) = with_shut(had);
            needs::bound_by_permissions(|| {
                let (sink, file) = (sink(&dir), entry(2, 1, b"f", Kind::File, 0o644));
                sink.make_directory(&directory(source)).unwrap();
                assert!(matches!(sink.decide(&file), Ok(Decision::Absent)), "{had:o}");
                let opened = sink.shared.open_directory(&file).unwrap();
                let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
                openat(&opened, c"f", flags, Mode::RUSR).unwrap();
                sink.finish_directory(&directory(source)).unwrap();
            });
            assert_eq!(mode_of(&shut), end, "{had:o} {source:o}");
            assert!(shut.join("f").exists(), "{had:o} {source:o}");
        }
    }

    #[test]
    fn a_directory_that_root_can_fill_as_it_is_keeps_its_mode_all_the_while() {
        if !needs::root() {
            return;
        }
        for had in [0o000, 0o555] {
            let (dir, shut) = with_shut(had);
            let sink = sink(&dir);
            sink.make_directory(&directory(0o755)).unwrap();
            let meanwhile = std::fs::metadata(&shut).unwrap().permissions().mode() & 0o7777;
            sink.finish_directory(&directory(0o755)).unwrap();
            assert_eq!((meanwhile, mode_of(&shut)), (had, had));
        }
    }

    #[test]
    fn a_directory_of_somebody_else_that_is_shut_stays_so_and_the_side_is_said() {
        if !needs::root() {
            return;
        }
        let (dir, shut) = with_shut(0o700);
        chown(&shut, Some(1000), Some(1000)).unwrap();
        let refused = needs::bound_by_permissions(|| sink(&dir).make_directory(&directory(0o755)).unwrap_err());
        assert_eq!(refused.message(), "open directory at the destination: Permission denied");
        assert_eq!(mode_of(&shut), 0o700);
    }

    #[test]
    fn a_mode_that_is_kept_is_told_as_changed_where_it_differs_from_what_was_there() {
        for (had, source, is_told) in [(0o500, 0o500, false), (0o500, 0o750, true), (0o000, 0o750, true)] {
            let (dir, shut) = with_shut(had);
            let causes = needs::bound_by_permissions(|| {
                let sink = sink(&dir).with_fidelity(Fidelity { mode: true, ..Fidelity::default() }, true);
                sink.make_directory(&directory(source)).unwrap();
                let causes = sink.differences(&directory(source)).unwrap();
                sink.finish_directory(&directory(source)).unwrap();
                causes
            });
            assert_eq!(causes & cause::MODE != 0, is_told, "{had:o} {source:o}");
            assert_eq!(mode_of(&shut), source, "{had:o} {source:o}");
        }
    }
}
