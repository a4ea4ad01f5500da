//! Questions about what a bucket holds.
//!
//! A listing tells when the store took an object; a look at one tells the time that its writer gave it. Both tell the same version
//! by the same numbers. An object gets no other name here, because no store gives it one in one step.

use crate::bucket::Bucket;
use crate::calls::{Condition, Listed, Object};
use crate::failure::{Failure, Why};
use crate::key::KEY_BYTES_MAX;
use crate::walk::{self, of_file};
use model::FailureKind;
use model::files::{FileKind, FileStatus, Tally, Version};
use std::collections::HashSet;
use std::sync::Arc;
use store::{EachFailure, Error, Result, Shelf, Slots, Stopped, Surveyed, Visit};

pub struct ObjectShelf {
    bucket: Arc<Bucket>,
    /// Without a slash at its end; empty for the root.
    key: String,
    /// Nothing but a directory is meant.
    is_directory: bool,
    /// The root of what may be reached: it stays.
    is_root: bool,
}

impl ObjectShelf {
    pub fn new(bucket: Arc<Bucket>, key: String, is_directory: bool, is_root: bool) -> ObjectShelf {
        ObjectShelf { bucket, key, is_directory, is_root }
    }

    fn prefix(&self) -> String {
        if self.key.is_empty() { String::new() } else { format!("{}/", self.key) }
    }

    fn directory(&self, marker: Option<&Object>) -> FileStatus {
        walk::of_directory(&self.bucket, &self.key, marker)
    }

    /// What stands here: an object with what is known of it, or a directory.
    fn find(&self) -> Result<(FileStatus, Option<Object>)> {
        let looked = |failure: Failure| failure.on("look at", "");
        if self.key.is_empty() {
            return Ok((self.directory(None), None));
        }
        if !self.is_directory
            && let Some(object) = self.bucket.head(&self.key).map_err(looked)?
        {
            return Ok((self.file(&object)?, Some(object)));
        }
        // A root is there, whatever it has.
        if !self.is_root && !self.bucket.has_below(&self.prefix()).map_err(looked)? {
            return Err(Error::of_kind(FailureKind::NotFound, "look at", b"", "no such object"));
        }
        let marker = self.bucket.head(&self.prefix()).map_err(looked)?;
        Ok((self.directory(marker.as_ref()), None))
    }

    fn file(&self, object: &Object) -> Result<FileStatus> {
        let Object { size_bytes, stored, etag, .. } = object.clone();
        let listed = Listed { key: self.key.clone(), size_bytes, etag, stored };
        let mut found = of_file(&self.bucket, &self.key, &listed);
        found.modified = object.modified();
        found.mode = object.mode.map_or(found.mode, |mode| mode & 0o7777);
        if crate::source::is_link(object) {
            let target = self.bucket.link_target(&self.key, object)?;
            found.kind = FileKind::Symlink(target.into());
        }
        Ok(found)
    }

    /// `is_read`: files may be opened as they were told.
    fn go_through(&self, levels: u32, is_read: bool, visit: &mut dyn FnMut(Visit<'_>) -> bool) {
        let (first, object) = match self.find() {
            Ok(found) => found,
            Err(error) => {
                visit(Visit::Failed { path: b"", error });
                return;
            }
        };
        // What is read later is compared with what was told of it.
        let status = match first.kind {
            FileKind::File if is_read => FileStatus { modified: first.changed, ..first },
            _ => first,
        };
        let Object { size_bytes, etag, stored, .. } = object.unwrap_or_default();
        let listed = Listed { key: self.key.clone(), size_bytes, etag, stored };
        walk::through(&self.bucket, listed, status, levels, visit);
    }

    fn changeable(&self) -> Result<()> {
        match self.is_root || self.key.is_empty() {
            true => Err(Error::root_stays()),
            false => Ok(()),
        }
    }
}

/// The same version, whether it was listed or looked at.
fn is_version(found: &FileStatus, version: &Version) -> bool {
    (found.size_bytes, found.changed, found.inode) == (version.size_bytes, version.changed, version.inode)
}

impl Shelf for ObjectShelf {
    fn look(&self) -> Result<FileStatus> {
        self.find().map(|(status, _)| status)
    }

    /// Not by way of `walk`: what is only listed has the time that its writer gave it.
    fn list(&self, levels: u32, _: &Arc<Slots>, visit: &mut dyn FnMut(Surveyed) -> bool) {
        self.go_through(levels, false, &mut |found| Surveyed::of(found).is_none_or(&mut *visit));
    }

    fn walk(&self, levels: u32, _: &Arc<Slots>, visit: &mut dyn FnMut(Visit<'_>) -> bool) {
        self.go_through(levels, true, visit);
    }

    fn make(&self, may_be_there: bool) -> Result<bool> {
        let made = |failure: Failure| failure.on("make directory", "");
        let there = if self.key.is_empty() { None } else { self.bucket.head(&self.key).map_err(made)? };
        let is_there = self.key.is_empty() || self.bucket.has_below(&self.prefix()).map_err(made)?;
        match (there.is_some(), is_there) {
            (true, _) => Err(Error::of_kind(FailureKind::InTheWay, "make directory", b"", "something has that name")),
            (false, true) if may_be_there => Ok(false),
            (false, true) => Err(Error::of_kind(FailureKind::InTheWay, "make directory", b"", "it is there already")),
            (false, false) => {
                self.bucket.put(&self.prefix(), b"", &[], &Condition::Any).map_err(made)?;
                Ok(true)
            }
        }
    }

    fn rename(&self, _: &dyn Shelf, _: bool) -> Result<()> {
        let why = "an object store renames nothing in one step: copy, then remove";
        let crosses = std::io::Error::new(std::io::ErrorKind::CrossesDevices, why);
        Err(Error { kind: FailureKind::InTheWay, operation: "rename", subject: Vec::new(), source: crosses })
    }

    fn remove(&self, version: Option<&Version>, may_be_directory: bool) -> Result<Tally> {
        self.changeable()?;
        let found = self.look()?;
        if version.is_some_and(|version| !is_version(&found, version)) {
            return Err(Error::other_version());
        }
        let removed = |failure: Failure| failure.on("remove", "");
        let mut tally = Tally::default();
        tally.count(&found);
        if !found.is_directory() {
            self.bucket.delete(&self.key).map_err(removed)?;
            return Ok(tally);
        }
        if !may_be_directory {
            return Err(Error::of_kind(FailureKind::InTheWay, "remove", b"", "it is a directory"));
        }
        let children = self.bucket.children(&self.prefix(), usize::MAX).map_err(removed)?.unwrap_or_default();
        if !children.names.is_empty() || !children.odd.is_empty() {
            return Err(Error::of_kind(FailureKind::InTheWay, "remove", b"", "the directory is not empty"));
        }
        self.bucket.delete(&self.prefix()).map_err(removed)?;
        Ok(tally)
    }

    fn remove_tree(&self, is_stopped: Stopped<'_>, each_failure: EachFailure<'_>) -> Tally {
        let mut tally = Tally::default();
        let (first, object) = match self.changeable().and_then(|()| self.find()) {
            Ok(found) => found,
            Err(error) => {
                each_failure(b"", error);
                return Tally { failed: 1, ..tally };
            }
        };
        if is_stopped() {
            return tally;
        }
        if object.is_some() {
            match self.bucket.delete(&self.key) {
                Ok(()) => tally.count(&first),
                Err(failure) => {
                    each_failure(b"", failure.on("remove", ""));
                    tally.failed += 1;
                }
            }
            return tally;
        }
        let prefix = self.prefix();
        let mut directories: HashSet<u64> = HashSet::from([self.bucket.number(&prefix, "")]);
        let listed = self.bucket.each_page(&prefix, &mut |page| {
            let keys: Vec<&str> = page.iter().map(|listed| &listed.key[..]).collect();
            let removed = self.bucket.remove_keys(&keys, is_stopped);
            for (listed, removed) in page.iter().zip(removed) {
                let rest = &listed.key[prefix.len()..];
                match removed {
                    None => return false,
                    Some(Err(failure)) => {
                        each_failure(rest.as_bytes(), failure.on("remove", ""));
                        tally.failed += 1;
                    }
                    Some(Ok(())) => {
                        // What is longer than keys can be is not hashed once for each of its slashes.
                        for (slash, _) in rest.match_indices('/').take_while(|(slash, _)| *slash < KEY_BYTES_MAX) {
                            directories.insert(self.bucket.number(&listed.key[..=prefix.len() + slash], ""));
                        }
                        if !listed.key.ends_with('/') {
                            tally.count(&of_file(&self.bucket, &listed.key, listed));
                        }
                    }
                }
            }
            true
        });
        if let Err(failure) = listed {
            let kind = if failure.why == Why::NoBucket { FailureKind::NotFound } else { FailureKind::Other };
            each_failure(b"", Error::of_kind(kind, "list", b"", &failure.text));
            tally.failed += 1;
        }
        if tally.failed == 0 && !is_stopped() {
            tally.directories = directories.len() as u64;
        }
        tally
    }
}
