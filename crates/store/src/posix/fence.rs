//! Slices of a job that several hosts work on: whoever takes one over takes its staging away, so that what comes late publishes
//! nothing.
//!
//! Invariants:
//! - A slice is marked as taken over before its staging is looked for, and looks for the mark after it made its staging: one
//!   of the two sees the other, whatever came first. It looks again for each directory and each large object (`shared`), so that
//!   one of two that go on at the same time gives up.
//! - What a slice stages has a name below its own directory. Once that is gone, making and renaming there fail with ENOENT, for
//!   however long a host has stood still, and what it still writes goes to files without names. What it has taken of an object
//!   that several slices write together goes back to where they begin (`parts`): its rename fails then too.
//! - A mark stays for as long as somebody may come back with the slice (`sweep`).
//!
//! This needs no clock and no lock that hosts would have to see of one another: only that the file system makes and removes names
//! in one step for all of them. Hosts that are to take over from one another run as one user.

use super::slices::{RANGES_PREFIX, slice_name, void_name};
use super::staging::{TRIES_MAX, failed, open_private, own_name};
use super::wait::sync_names;
use super::{beneath, host::HOST_PREFIX, list};
use crate::{Error, Result};
use model::{FailureKind, JobId, Name, mutant};
use os::fs::{mkdirat, unlinkat};
use rustix::fs::{AtFlags, FileType, Mode, statat};
use rustix::io::Errno;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// A slice holds lanes and files, and a lane files.
const LEVELS: u32 = 2;

/// Whether a slice may still be worked on.
pub(super) fn check(parent: BorrowedFd<'_>, job: JobId) -> Result<()> {
    // Opened anew: a host that kept the directory open may be told of names as they were.
    let shared = match beneath::open_child(parent, &own_name()) {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        opened => opened.map_err(|e| Error::new("open staging directory", b"", e))?,
    };
    match statat(&shared, void_name(job).as_c_str(), AtFlags::SYMLINK_NOFOLLOW) {
        Err(Errno::NOENT) => Ok(()),
        Err(e) => Err(failed(e)),
        Ok(_) if mutant::is_on("void-slice-goes-on") => Ok(()),
        Ok(_) => {
            Err(Error::of_kind(FailureKind::Other, "begin", b"", "another host has taken this part of the job over"))
        }
    }
}

/// Takes away what slices have of one object that several write together: its name in the directory for staging.
pub(super) type TakeObject<'a> = &'a dyn Fn(BorrowedFd<'_>, &Name, &[JobId]) -> Result<()>;

/// Ends what hosts, dead or only late, have under way of these slices.
pub(super) fn take_over(parent: &OwnedFd, slices: &[JobId], take_object: TakeObject<'_>) -> Result<()> {
    if slices.is_empty() {
        return Ok(());
    }
    let shared = (0..TRIES_MAX).find_map(|_| open_private(parent.as_fd(), &own_name()).transpose());
    let shared = shared.unwrap_or(Err(failed(Errno::BUSY)))?;
    for slice in slices {
        match mkdirat(&shared, void_name(*slice).as_c_str(), Mode::from_raw_mode(0o700)) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(e) => return Err(failed(e)),
        }
    }
    sync_names(shared.as_fd()).map_err(failed)?;
    let (mut hosts, mut objects) = (Vec::new(), Vec::new());
    list::read_directory(shared.as_fd(), &mut |name, _| {
        if name.as_bytes().starts_with(HOST_PREFIX) {
            hosts.push(name.clone());
        } else if name.as_bytes().starts_with(RANGES_PREFIX) {
            objects.push(name.clone());
        }
        true
    })
    .map_err(|e| Error::new("list staging directory", b"", e))?;
    for host in hosts {
        let host = match beneath::open_child(shared.as_fd(), &host) {
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => continue,
            opened => opened.map_err(|e| Error::new("open staging directory", host.as_bytes(), e))?,
        };
        for slice in slices {
            remove(host.as_fd(), &slice_name(*slice), LEVELS)?;
        }
    }
    // Of every object: what comes next may know the same file by another version, and so under another name.
    objects.iter().try_for_each(|object| take_object(shared.as_fd(), object, slices))
}

/// Removes the marks of slices with which nobody comes back any more, and staging if nothing else is in it.
pub fn forget(root: BorrowedFd<'_>, slices: &[JobId]) {
    let Ok(shared) = beneath::open_child(root, &own_name()) else { return };
    for slice in slices {
        let _ = unlinkat(&shared, void_name(*slice).as_c_str(), AtFlags::REMOVEDIR);
    }
    let _ = unlinkat(root, own_name().as_c_str(), AtFlags::REMOVEDIR);
}

/// Removes a directory with what is in it, until it is gone: somebody may still make names there.
pub(super) fn remove(place: BorrowedFd<'_>, name: &Name, levels: u32) -> Result<()> {
    for _ in 0..if mutant::is_on("rmdir-once") { 1 } else { TRIES_MAX } {
        let directory = match beneath::open_child(place, name) {
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(()),
            opened => opened.map_err(|e| Error::new("open staging directory", name.as_bytes(), e))?,
        };
        let mut below = Ok(());
        let listed = list::read_directory(directory.as_fd(), &mut |name, status| {
            let is_directory = status.is_ok_and(|status| FileType::from_raw_mode(status.st_mode).is_dir());
            below = match is_directory && levels > 0 {
                true => remove(directory.as_fd(), name, levels - 1),
                false => match unlinkat(&directory, name.as_c_str(), AtFlags::empty()) {
                    Ok(()) | Err(Errno::NOENT) => Ok(()),
                    Err(e) => Err(failed(e)),
                },
            };
            below.is_ok()
        });
        below?;
        match listed {
            // Somebody else takes the same slice over.
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(()),
            listed => listed.map_err(|e| Error::new("list staging directory", name.as_bytes(), e))?,
        }
        match unlinkat(place, name.as_c_str(), AtFlags::REMOVEDIR) {
            Ok(()) | Err(Errno::NOENT) => return Ok(()),
            Err(Errno::NOTEMPTY | Errno::EXIST) => {}
            Err(e) => return Err(failed(e)),
        }
    }
    if mutant::is_on("rmdir-once") { Ok(()) } else { Err(failed(Errno::BUSY)) }
}

#[cfg(test)]
mod tests {
    use super::super::beneath::open_directory;
    use super::super::{PosixSink, host};
    use super::*;
    use crate::sink::{Sink, SinkLane};
    use crate::{PublishRule, posix::staging::tests::places};
    use model::{Entry, Generation, Kind, ObjectId, Timestamp};
    use std::path::Path;
    use std::sync::Arc;

    const OLD: JobId = JobId([1; 16]);
    const NEW: JobId = JobId([2; 16]);

    fn sink(root: &Path, host: &str) -> PosixSink {
        let root = Arc::new(open_directory(root).unwrap());
        PosixSink::new(root.clone(), root, None).on_host(host::named(host))
    }

    fn entry(content: &[u8]) -> Entry {
        let modified = Timestamp { seconds: 7, nanoseconds: 0 };
        Entry {
            id: ObjectId(1),
            parent: ObjectId::ROOT,
            name: Name::new(b"file").unwrap(),
            kind: Kind::File,
            mode: 0o644,
            generation: Generation { size_bytes: content.len() as u64, modified, ..Generation::default() },
            attributes: None,
        }
    }

    fn stage(lane: &mut dyn SinkLane, content: &[u8]) -> Result<crate::Staged> {
        stage_by(lane, content, PublishRule::Replace)
    }

    fn stage_by(lane: &mut dyn SinkLane, content: &[u8], rule: PublishRule) -> Result<crate::Staged> {
        lane.create(&entry(content), rule)?;
        lane.write(content)?;
        lane.seal(&entry(content), false)
    }

    /// On every file system that tests are run on, memory-backed ones included.
    #[test]
    fn what_a_late_host_has_staged_or_stages_is_published_by_nobody() {
        for root in [tempfile::tempdir().unwrap(), tempfile::tempdir_in("/dev/shm").unwrap()] {
            let (late, next) = (sink(root.path(), "late"), sink(root.path(), "next"));
            late.fence(OLD, &[]).unwrap();
            let mut lane = late.lane(true).unwrap();
            let staged = stage(&mut *lane, b"old").unwrap();
            // In memory, what replaces nothing is staged without a name elsewhere.
            let mut new = late.lane(true).unwrap();
            let unreplacing = stage_by(&mut *new, b"old", PublishRule::NoReplace).unwrap();
            next.fence(NEW, &[OLD]).unwrap();
            assert!(new.publish(&entry(b"old"), unreplacing).is_err());
            assert!(lane.publish(&entry(b"old"), staged).is_err());
            assert!(stage(&mut *lane, b"older").is_err(), "its staging is gone");
            assert!(late.lane(true).unwrap().create(&entry(b"x"), PublishRule::NoReplace).is_err());
            assert!(
                late.make_symlink(&Entry { kind: Kind::Symlink((*b"x").into()), ..entry(b"") }, PublishRule::Replace)
                    .is_err()
            );
            let mut lane = next.lane(true).unwrap();
            let staged = stage(&mut *lane, b"new").unwrap();
            lane.publish(&entry(b"new"), staged).unwrap();
            assert_eq!(std::fs::read(root.path().join("file")).unwrap(), b"new");
            // It comes back, as another process, with the same slice.
            let again = sink(root.path(), "late");
            assert!(again.fence(OLD, &[]).unwrap_err().to_string().contains("taken this part of the job over"));
            // A take-over that is repeated changes nothing.
            sink(root.path(), "third").fence(JobId([3; 16]), &[OLD]).unwrap();
        }
    }

    /// Large objects, and the moment between the first look for the mark and the first file.
    #[test]
    fn a_slice_that_is_taken_over_before_it_stages_makes_no_staging() {
        let root = tempfile::tempdir().unwrap();
        let (late, next) = (sink(root.path(), "late"), sink(root.path(), "next"));
        late.fence(OLD, &[]).unwrap();
        next.fence(NEW, &[OLD]).unwrap();
        assert!(late.begin(&entry(&[0; 1 << 20]), "stem").is_err());
        assert!(late.lane(false).unwrap().create(&entry(b"x"), PublishRule::Replace).is_err());
        late.close();
        let (shared, _) = places(root.path());
        let left: Vec<_> = std::fs::read_dir(shared).unwrap().map(|one| one.unwrap().file_name()).collect();
        assert_eq!(left, ["void-01010101010101010101010101010101"]);
    }

    #[test]
    fn a_large_object_of_a_slice_is_taken_away_and_one_of_another_is_not() {
        let root = tempfile::tempdir().unwrap();
        let (late, other, next) = (sink(root.path(), "late"), sink(root.path(), "late"), sink(root.path(), "next"));
        late.fence(OLD, &[]).unwrap();
        other.fence(JobId([9; 16]), &[]).unwrap();
        let (large, _) = late.begin(&entry(&[0; 100]), "stem").unwrap();
        let (kept, _) = other.begin(&entry(&[0; 100]), "stem").unwrap();
        next.fence(NEW, &[OLD]).unwrap();
        assert!(large.publish(&entry(&[0; 100]), PublishRule::Replace).is_err());
        kept.publish(&entry(&[0; 100]), PublishRule::Replace).unwrap();
    }

    #[test]
    fn a_slice_is_gone_when_it_is_taken_over_even_while_it_goes_on() {
        let root = tempfile::tempdir().unwrap();
        let late = sink(root.path(), "late");
        late.fence(OLD, &[]).unwrap();
        let (_, _) = late.begin(&entry(&[0; 100]), "first").unwrap();
        std::thread::scope(|scope| {
            let going =
                scope.spawn(|| (0..u64::MAX).find(|n| late.begin(&entry(&[0; 100]), &format!("stem{n}")).is_err()));
            // Others do so at the same time.
            let other = scope.spawn(|| {
                (0..20).for_each(|number| sink(root.path(), "other").fence(JobId([200 + number; 16]), &[OLD]).unwrap())
            });
            for number in 0..20 {
                let next = sink(root.path(), "next");
                next.fence(JobId([100 + number; 16]), &[OLD]).unwrap();
                let (shared, _) = places(root.path());
                assert!(!shared.join(host::named("late").to_string()).join(slice_name(OLD).to_string()).exists());
            }
            other.join().unwrap();
            assert!(going.join().unwrap().is_some());
        });
    }

    /// As a host does that has looked for the mark just before.
    #[test]
    fn a_directory_is_gone_when_it_was_removed_even_while_it_goes_on_filling() {
        for round in 0..20 {
            let root = tempfile::tempdir().unwrap();
            let place = open_directory(root.path()).unwrap();
            let name = Name::new(b"slice").unwrap();
            let directory = open_private(place.as_fd(), &name).unwrap().unwrap();
            let (begun, has_begun) = std::sync::mpsc::channel();
            std::thread::scope(|scope| {
                let maker = scope.spawn(move || {
                    let made = |n: u32| {
                        let name = Name::new(format!("{n}").as_bytes()).unwrap();
                        let is_made = mkdirat(&directory, name.as_c_str(), Mode::from_raw_mode(0o700)).is_ok();
                        let _ = begun.send(());
                        is_made
                    };
                    (0..1000).all(made)
                });
                has_begun.recv().unwrap();
                remove(place.as_fd(), &name, LEVELS).unwrap();
                assert!(!root.path().join("slice").exists(), "round {round}");
                maker.join().unwrap();
            });
        }
    }

    #[test]
    fn ended_slices_leave_nothing_and_cut_off_ones_are_found_by_their_own_host() {
        let root = tempfile::tempdir().unwrap();
        let first = sink(root.path(), "a");
        first.fence(OLD, &[]).unwrap();
        drop(first.begin(&entry(&[0; 100]), "stem").unwrap());
        first.close();
        drop(first);
        // Another transfer of the host sweeps meanwhile.
        let beside = sink(root.path(), "a");
        drop(beside.begin(&entry(&[0; 100]), "other"));
        let second = sink(root.path(), "a");
        second.fence(OLD, &[]).unwrap();
        assert!(second.has_journal(&entry(&[0; 100]), "stem"));
        sink(root.path(), "b").fence(NEW, &[OLD]).unwrap();
        assert!(!second.has_journal(&entry(&[0; 100]), "stem"));
    }
}
