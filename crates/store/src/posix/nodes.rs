//! Objects without content of their own: symbolic links, FIFOs, sockets, devices, and other names of files.
//!
//! Invariants:
//! - Each is made in private staging, gets owner, mode and time there, and appears by one rename. One that differs in any of
//!   them is made anew; nothing of what is visible is changed.
//! - Another name is given to the very file that was looked at: what stands at its first name later does not matter.

use super::apart::{free_name, is_apart};
use super::shared::{Lane, times_of};
use super::sink::PosixSink;
use crate::sink::{LinkRule, Linked, PublishRule};
use crate::{Error, Result};
use model::{Entry, FailureKind, Kind, Node};
use os::fs::{chmodat, chownat, linkat, mknodat, symlinkat, unlinkat, utimensat};
use rustix::fs::{AtFlags, FileType, Gid, Mode, Stat, Uid, statat};
use rustix::io::Errno;
use std::ffi::{CStr, CString};
use std::os::fd::AsFd;

impl PosixSink {
    /// A symbolic link as described stands at the entry's name.
    pub(crate) fn is_link_there(&self, entry: &Entry) -> Result<bool> {
        let Kind::Symlink(target) = &entry.kind else { panic!("a link is {:?}", entry.kind) };
        if self.link_at(entry)?.is_none_or(|there| there[..] != target[..]) {
            return Ok(false);
        }
        Ok(!self.shared.keeper.fidelity.has_attributes()
            || self.status_at(entry)?.is_some_and(|s| self.has_kept(&s, entry)))
    }

    /// A FIFO, socket or device as described stands at the entry's name.
    pub(crate) fn is_special_there(&self, entry: &Entry) -> Result<bool> {
        let Kind::Node(node) = entry.kind else { panic!("a special file is {:?}", entry.kind) };
        let (kind, number) = kind_of(node);
        let is_such = |status: &Stat| {
            FileType::from_raw_mode(status.st_mode) == kind && (number == 0 || status.st_rdev == number)
        };
        Ok(self.status_at(entry)?.is_some_and(|status| is_such(&status) && self.has_kept(&status, entry)))
    }

    fn has_kept(&self, status: &Stat, entry: &Entry) -> bool {
        let shared = &self.shared;
        !shared.keeper.fidelity.has_attributes()
            || shared.keeper.is_as_described(status, entry) && shared.has_time(status, entry)
    }

    fn status_at(&self, entry: &Entry) -> Result<Option<Stat>> {
        if self.shared.tree.is_fresh(entry.parent.0) {
            return Ok(None);
        }
        let directory = self.shared.open_directory(entry)?;
        match statat(&directory, entry.name.as_c_str(), AtFlags::SYMLINK_NOFOLLOW) {
            Ok(status) => Ok(Some(status)),
            Err(Errno::NOENT) => Ok(None),
            Err(e) => Err(self.error("look at", entry, e)),
        }
    }

    pub(super) fn make_link(&self, entry: &Entry, rule: PublishRule) -> Result<bool> {
        let Kind::Symlink(target) = &entry.kind else { panic!("make_symlink of {:?}", entry.kind) };
        let fail = |e: Errno| self.error("make symbolic link", entry, e);
        if self.is_link_there(entry)? {
            // An attempt that was cut off may have left a name that is not durable yet.
            self.shared.changed(entry.parent);
            return Ok(false);
        }
        let target = CString::new(&target[..]).map_err(|_| fail(Errno::INVAL))?;
        self.appear(entry, rule, &|lane, name| {
            symlinkat(&target, &lane.directory.directory, name).map_err(fail)?;
            self.keep_at(lane, name, entry);
            Ok(true)
        })
    }

    pub(super) fn make_special(&self, entry: &Entry, rule: PublishRule) -> Result<bool> {
        let Kind::Node(node) = entry.kind else { panic!("make_node of {:?}", entry.kind) };
        if self.is_special_there(entry)? {
            self.shared.changed(entry.parent);
            return Ok(false);
        }
        let (kind, number) = kind_of(node);
        let fail = |e: Errno| match (node, e) {
            (Node::CharacterDevice(_) | Node::BlockDevice(_), Errno::PERM | Errno::ACCESS) => {
                let why = "a device was not created: only root, or an endpoint started with --super, may create one";
                Error::of_kind(FailureKind::Special, "skip", crate::Sink::path(self, entry), why)
            }
            (_, e) => self.error("make special file", entry, e),
        };
        self.appear(entry, rule, &|lane, name| {
            let below = &lane.directory.directory;
            mknodat(below, name, kind, Mode::from_raw_mode(0o600), number).map_err(fail)?;
            self.keep_at(lane, name, entry);
            Ok(true)
        })
    }

    /// Gives the file at one name of the destination another.
    pub(super) fn link_to(&self, first: &Entry, entry: &Entry, rule: LinkRule) -> Result<Linked> {
        let file = self.status_at_any(first)?.filter(|status| self.is_file_of(status, first, rule));
        if file.is_none() && !rule.is_rehearsal {
            return Ok(Linked::NoFile);
        }
        let there = self.status_at_any(entry)?;
        let publish_rule = match &there {
            Some(there) if file.as_ref().is_some_and(|file| is_same(there, file)) => {
                self.shared.changed(entry.parent);
                return Ok(Linked::There);
            }
            Some(there) if FileType::from_raw_mode(there.st_mode).is_dir() => {
                let why = "there is a directory where a file is to be written";
                return Err(Error::of_kind(FailureKind::InTheWay, "replace", crate::Sink::path(self, entry), why));
            }
            Some(_) if rule.may_replace => PublishRule::Replace,
            None if rule.may_make => PublishRule::NoReplace,
            _ => return Ok(Linked::Kept),
        };
        let made = Linked::Made { has_replaced: there.is_some() };
        // A rehearsal knows files that would be there.
        let Some(file) = file.filter(|_| !rule.is_rehearsal) else { return Ok(made) };
        let from = self.shared.open_directory(first)?;
        let is_made = self.appear(entry, publish_rule, &|lane, name| {
            let below = &lane.directory.directory;
            linkat(&from, first.name.as_c_str(), below, name, AtFlags::empty())
                .map_err(|e| self.error("link", entry, e))?;
            let staged = statat(below, name, AtFlags::SYMLINK_NOFOLLOW);
            Ok(staged.is_ok_and(|staged| is_same(&staged, &file)))
        })?;
        Ok(if is_made { made } else { Linked::NoFile })
    }

    /// The file that was described stands there.
    fn is_file_of(&self, status: &Stat, first: &Entry, rule: LinkRule) -> bool {
        FileType::from_raw_mode(status.st_mode) == FileType::RegularFile
            && status.st_size as u64 == first.generation.size_bytes
            && (rule.ignores_time || self.shared.has_time(status, first))
    }

    /// As `status_at`, also in directories that this job has made: it has made names in them.
    fn status_at_any(&self, entry: &Entry) -> Result<Option<Stat>> {
        let directory = match self.shared.tree.open(entry.parent.0) {
            Ok(directory) => directory,
            Err(_) => return Ok(None),
        };
        match statat(&directory, entry.name.as_c_str(), AtFlags::SYMLINK_NOFOLLOW) {
            Ok(status) => Ok(Some(status)),
            Err(Errno::NOENT) => Ok(None),
            Err(e) => Err(self.error("look at", entry, e)),
        }
    }

    /// Gives a staged object owner, mode and time.
    fn keep_at(&self, lane: &Lane, name: &CStr, entry: &Entry) {
        let keeper = &self.shared.keeper;
        let below = lane.directory.directory.as_fd();
        let path = || crate::Sink::path(self, entry);
        let failed = |what: &str, e: Errno| keeper.warn(&format!("{what}: {}", super::attributes::plain(e)), &path);
        let mut refused = |text: &str| keeper.warn(text, &path);
        let no_follow = AtFlags::SYMLINK_NOFOLLOW;
        let inherited = self.shared.inherited(entry.parent);
        if let Some(group) = inherited.group_instead(&lane.staging.inherited) {
            let set = chownat(below, name, None, Some(Gid::from_raw(group)), no_follow);
            set.unwrap_or_else(|e| failed("the group of its directory was not set", e));
        }
        let status = statat(below, name, no_follow);
        if let (Ok(status), Some(attributes)) = (&status, &entry.attributes) {
            let (uid, gid) = keeper.owner_of(attributes, status, &mut refused);
            if uid.is_some() || gid.is_some() {
                let set = chownat(below, name, uid.map(Uid::from_raw), gid.map(Gid::from_raw), no_follow);
                set.unwrap_or_else(|e| failed("owner or group could not be set", e));
            }
        }
        // A link has no mode of its own. In private staging nothing else can have taken the name.
        if let (Kind::Node(_), Ok(status)) = (&entry.kind, statat(below, name, no_follow)) {
            let mode = match self.shared.chmod_of(entry) {
                Some(mode) => mode,
                None if keeper.fidelity.mode => keeper.mode_of(entry, (status.st_uid, status.st_gid), &mut refused),
                None => inherited.mode_of_node(&lane.staging.inherited, entry.mode & 0o777),
            };
            let set = chmodat(below, name, Mode::from_raw_mode(mode), AtFlags::empty());
            set.unwrap_or_else(|e| failed("the mode could not be set", e));
        }
        let _ = utimensat(below, name, &times_of(entry.generation.modified), no_follow);
    }

    /// Has an object made in staging, and renames it to its final name. False when `make` says that it is not to have it.
    fn appear(&self, entry: &Entry, rule: PublishRule, make: Make<'_>) -> Result<bool> {
        let directory = self.shared.open_directory(entry)?;
        let mut staging = self.shared.staging_for(entry.parent, &directory)?;
        loop {
            let (lane, name) = (self.shared.link_lane(&staging)?, free_name("link"));
            let below = lane.directory.directory.as_fd();
            let appeared = match make(&lane, &name) {
                Ok(true) => self.shared.rename(below, &name, directory.as_fd(), entry, rule).map(|()| true),
                other => other,
            };
            match appeared {
                Ok(true) => self.shared.changed(entry.parent),
                _ => _ = unlinkat(below, &name, AtFlags::empty()),
            }
            let e = match appeared {
                Err(e) if is_apart(&e) => e,
                other => return other,
            };
            // Made again where it can be renamed from.
            let Some(nearer) = self.shared.nearer(&staging, entry.parent)? else { return Err(e) };
            staging = nearer;
        }
    }
}

/// Makes an object in a lane, under a name that nobody has.
type Make<'a> = &'a dyn Fn(&Lane, &CStr) -> Result<bool>;

fn is_same(a: &Stat, b: &Stat) -> bool {
    (a.st_dev, a.st_ino) == (b.st_dev, b.st_ino)
}

fn kind_of(node: Node) -> (FileType, u64) {
    match node {
        Node::Fifo => (FileType::Fifo, 0),
        Node::Socket => (FileType::Socket, 0),
        Node::CharacterDevice(number) => (FileType::CharacterDevice, number),
        Node::BlockDevice(number) => (FileType::BlockDevice, number),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Sink;
    use crate::posix::beneath;
    use crate::posix::list::generation_of;
    use model::{Fidelity, Generation, Name, ObjectId, Timestamp};
    use std::os::unix::fs::{FileTypeExt, MetadataExt};
    use std::path::Path;
    use std::sync::Arc;

    fn sink(path: &Path) -> PosixSink {
        let fd = Arc::new(beneath::open_directory(path).unwrap());
        let fidelity = Fidelity { mode: true, hard_links: true, specials: true, ..Fidelity::default() };
        PosixSink::new(fd.clone(), fd, None).with_fidelity(fidelity, true)
    }

    fn entry(name: &str, kind: Kind, generation: Generation) -> Entry {
        let (id, parent, name) = (ObjectId(1), ObjectId::ROOT, Name::new(name.as_bytes()).unwrap());
        Entry { id, parent, name, kind, mode: 0o640, generation, attributes: None }
    }

    fn at(seconds: i64) -> Generation {
        Generation { modified: Timestamp { seconds, nanoseconds: 5 }, ..Generation::default() }
    }

    #[test]
    fn special_files_and_links_are_made_once_and_again_when_they_differ() {
        let dir = tempfile::tempdir().unwrap();
        let sink = sink(dir.path());
        let fifo = |seconds| entry("fifo", Kind::Node(Node::Fifo), at(seconds));
        for (seconds, is_made) in [(7, true), (7, false), (8, true), (8, false)] {
            assert_eq!(sink.make_node(&fifo(seconds), PublishRule::Replace).unwrap(), is_made);
            let made = dir.path().join("fifo").symlink_metadata().unwrap();
            assert!(made.file_type().is_fifo() && made.mode() & 0o7777 == 0o640);
            assert_eq!((made.mtime(), made.mtime_nsec()), (seconds, 5));
        }
        let socket = entry("fifo", Kind::Node(Node::Socket), at(8));
        assert!(sink.make_node(&socket, PublishRule::Replace).unwrap());
        assert!(dir.path().join("fifo").symlink_metadata().unwrap().file_type().is_socket());
        let link = |seconds| entry("link", Kind::Symlink((*b"to").into()), at(seconds));
        for (seconds, is_made) in [(7, true), (7, false), (9, true)] {
            assert_eq!(sink.make_symlink(&link(seconds), PublishRule::Replace).unwrap(), is_made);
        }
        sink.close();
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 2, "staging is gone");
    }

    #[test]
    fn another_name_is_given_to_the_file_that_was_described_and_to_no_other() {
        let dir = tempfile::tempdir().unwrap();
        let sink = sink(dir.path());
        std::fs::write(dir.path().join("first"), b"12345").unwrap();
        let status = rustix::fs::stat(dir.path().join("first")).unwrap();
        let first = entry("first", Kind::File, generation_of(&status));
        let other = entry("other", Kind::HardLink(first.id), Generation::default());
        let rule = LinkRule { may_make: true, may_replace: true, ignores_time: false, is_rehearsal: false };
        let link = |rule| sink.make_hard_link(&first, &other, rule).unwrap();
        assert_eq!(link(LinkRule { may_make: false, ..rule }), Linked::Kept);
        assert_eq!(link(LinkRule { is_rehearsal: true, ..rule }), Linked::Made { has_replaced: false });
        assert!(!dir.path().join("other").exists());
        assert_eq!(link(rule), Linked::Made { has_replaced: false });
        assert_eq!(link(rule), Linked::There);
        std::fs::remove_file(dir.path().join("other")).unwrap();
        std::fs::write(dir.path().join("other"), b"else").unwrap();
        assert_eq!(link(LinkRule { may_replace: false, ..rule }), Linked::Kept);
        assert_eq!(link(rule), Linked::Made { has_replaced: true });
        assert_eq!(std::fs::metadata(dir.path().join("other")).unwrap().nlink(), 2);
        // Another file, or a link, has the first name.
        std::fs::remove_file(dir.path().join("first")).unwrap();
        assert_eq!(link(rule), Linked::NoFile);
        std::os::unix::fs::symlink("other", dir.path().join("first")).unwrap();
        assert_eq!(link(rule), Linked::NoFile);
        std::fs::remove_file(dir.path().join("other")).unwrap();
        std::fs::create_dir(dir.path().join("other")).unwrap();
        std::fs::remove_file(dir.path().join("first")).unwrap();
        std::fs::write(dir.path().join("first"), b"123456").unwrap();
        assert_eq!(link(rule), Linked::NoFile);
        sink.close();
    }
}
