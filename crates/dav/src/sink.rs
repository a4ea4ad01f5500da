//! A directory of a server as a destination.
//!
//! Invariants: a rehearsal sends nothing but looks; nothing is removed that was not listed here; a directory is removed only after it
//! was seen to be empty, because servers remove one with all that is in it.

use crate::failure::Failure;
use crate::job::{Directory, Job};
use crate::large::DavLarge;
use crate::listing::{Stat, untouchable};
use crate::path;
use crate::reading::DavFile;
use crate::site::Site;
use crate::small::DavSinkLane;
use crate::third_party::ThirdParty;
use model::{Entry, FailureKind, Name, ObjectId};
use std::cell::LazyCell;
use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use store::{
    Abilities, Alike, Decision, Error, Fate, Held, Order, Prune, PublishRule, Result, Sink, SinkFacts, SinkLane,
    SourceFile, Staged, StagedFile, ToPublish,
};
use web::{WIDTH, in_parallel};

/// Files of a group that are published before one who stops is heard.
const AT_ONCE: usize = 256;

pub struct DavSink {
    job: Arc<Job>,
}

impl DavSink {
    /// A destination at a directory that is there, unless this is a rehearsal; `is_fresh` if it was made for this job.
    pub fn new(site: Arc<Site>, (path, is_fresh): (Vec<u8>, bool), is_rehearsal: bool) -> DavSink {
        let root = Directory::new(path, Vec::new(), is_fresh);
        let directories = Mutex::new(HashMap::from([(ObjectId::ROOT, root)]));
        DavSink {
            job: Arc::new(Job {
                site,
                held: Held::default(),
                is_rehearsal,
                third_party: ThirdParty::default(),
                directories,
            }),
        }
    }

    fn find_directory(&self, entry: &Entry, makes: bool) -> Result<()> {
        let above = self.job.directory(entry.parent)?;
        let path = self.job.path(entry)?;
        let there = self.job.there(&above, entry.name.as_bytes())?;
        if there.as_ref().is_some_and(|there| !there.is_directory) {
            let why = "a file stands where a directory is needed";
            return Err(Error::of_entry(FailureKind::InTheWay, "make directory", entry, why));
        }
        let mut is_fresh = there.is_none();
        if is_fresh && makes && !self.job.is_rehearsal {
            // Another job may have been faster.
            is_fresh = self.job.site.make_directory(&path).map_err(|failure| failure.on("make directory", &path))?;
            above.note(entry.name.as_bytes());
        }
        let shown = [&above.shown, entry.name.as_bytes(), b"/"].concat();
        self.job.directories.lock().unwrap().insert(entry.id, Directory::new(path, shown, is_fresh));
        Ok(())
    }

    /// Removes one name with all below it; false when something of it stays.
    fn prune_one(&self, at: &[u8], shown: &[u8], stat: &Stat, prune: &mut Prune<'_>) -> bool {
        let fate = (prune.fate)(shown, stat.is_directory);
        let failed = |prune: &mut Prune<'_>, failure: &Failure| {
            let error = failure.on("remove", b"");
            (prune.failed)(model::Failure { path: shown.to_vec(), kind: error.kind, message: error.message() });
            false
        };
        if fate == Fate::Spare || (!stat.is_directory && fate != Fate::Remove) {
            return false;
        }
        if let Some(failure) = untouchable(stat, shown) {
            return failed(prune, &failure);
        }
        let mut is_gone = fate == Fate::Remove;
        if stat.is_directory {
            let children = match self.job.site.list_all(at) {
                Ok(children) => children,
                Err(failure) => return failed(prune, &failure),
            };
            for (name, below) in &children {
                is_gone &= (prune.goes_on)()
                    && self.prune_one(&path::below(at, name), &[shown, b"/", &name[..]].concat(), below, prune);
            }
        }
        if !is_gone || !(prune.goes_on)() {
            return false;
        }
        let removed = match prune.is_rehearsal {
            true => Ok(true),
            false => self.job.site.remove_one(at, stat.is_directory),
        };
        match removed {
            Ok(true) => (prune.removed)(shown, stat.is_directory),
            // Somebody else was faster.
            Ok(false) => {}
            Err(failure) => return failed(prune, &failure),
        }
        true
    }
}

impl Sink for DavSink {
    fn facts(&self) -> Result<SinkFacts> {
        Ok(SinkFacts {
            file_system: "webdav",
            is_memory_backed: false,
            cannot_sync: false,
            free_bytes: u64::MAX,
            free_inodes: None,
            order: Order::EachObject,
            part_rule: None,
            shares_on: None,
            confirms: true,
            can: Abilities { compare: true, prune: true, reread: true, ..Abilities::NONE },
        })
    }

    fn enter(&self, name: &Name) -> Result<()> {
        let root = self.job.directory(ObjectId::ROOT)?;
        let path = path::below(&root.path, name.as_bytes());
        if !self.job.is_rehearsal {
            self.job.site.make_directories(&path).map_err(|failure| failure.on("make directory", &path))?;
        }
        let root = Directory::new(path, Vec::new(), false);
        self.job.directories.lock().unwrap().insert(ObjectId::ROOT, root);
        Ok(())
    }

    fn make_directory(&self, entry: &Entry) -> Result<()> {
        self.find_directory(entry, true)
    }

    fn look_directory(&self, entry: &Entry) -> Result<()> {
        self.find_directory(entry, false)
    }

    fn is_fresh(&self, directory: ObjectId) -> bool {
        self.job.directory(directory).is_ok_and(|directory| directory.is_fresh)
    }

    fn open_published(&self, entry: &Entry) -> Result<Arc<dyn SourceFile>> {
        Ok(Arc::new(DavFile::open(&self.job.site, &self.job.path(entry)?)?))
    }

    fn prune(&self, prune: &mut Prune<'_>) {
        prune.is_rehearsal |= self.job.is_rehearsal;
        for id in prune.directories {
            let Ok(directory) = self.job.directory(*id) else { continue };
            // As it is now: the job itself may have written to it since.
            let children = match self.job.site.list(&directory.path) {
                Err(failure) if failure.why == crate::failure::Why::Missing => continue,
                Ok(children) => children,
                Err(failure) => {
                    let error = failure.on("list", b"");
                    let path = directory.shown.clone();
                    (prune.failed)(model::Failure { path, kind: error.kind, message: error.message() });
                    continue;
                }
            };
            let alike = LazyCell::new(|| Alike::of(children.keys().map(Vec::as_slice)));
            for (name, stat) in &children {
                if !(prune.goes_on)() {
                    return;
                }
                let shown = [&directory.shown[..], name].concat();
                let stays = Name::new(name)
                    .is_ok_and(|name| (prune.is_listed)(*id, &name) || prune.keeps_alike(*id, &name, &shown, &alike));
                if !stays {
                    self.prune_one(&path::below(&directory.path, name), &shown, stat, prune);
                }
            }
        }
    }

    fn make_symlink(&self, entry: &Entry, _: PublishRule) -> Result<bool> {
        Err(Error::of_entry(FailureKind::Special, "skip", entry, "a WebDAV server has no symbolic links"))
    }

    fn notes(&self) -> Vec<String> {
        self.job.third_party.notes()
    }

    fn decide(&self, entry: &Entry) -> Result<Decision> {
        self.job.decide(entry)
    }

    fn lane(&self, _: bool) -> Result<Box<dyn SinkLane>> {
        Ok(Box::new(DavSinkLane::new(self.job.clone())))
    }

    fn begin(&self, entry: &Entry, _: &str) -> Result<(Arc<dyn StagedFile>, Vec<u8>)> {
        Ok((Arc::new(DavLarge::begin(self.job.clone(), entry)?), Vec::new()))
    }

    fn begin_growing(&self, entry: &Entry, _: &str, _: Option<&Name>) -> Result<(Arc<dyn StagedFile>, Vec<u8>)> {
        Err(Error::of_entry(FailureKind::Other, "write file", entry, "a file cannot grow at a WebDAV server"))
    }

    fn has_journal(&self, _: &Entry, _: &str) -> bool {
        false
    }

    /// What a server has confirmed is as safe as it makes it.
    fn sync_group(&self, _: &mut dyn Iterator<Item = Staged>) -> Result<bool> {
        Ok(true)
    }

    fn publish(&self, entry: &Entry, staged: Staged) -> Result<()> {
        self.job.publish_held(entry, staged)
    }

    fn publish_group(&self, group: &[ToPublish<'_>], published: &mut dyn FnMut(usize, Result<()>) -> bool) {
        for (number, some) in group.chunks(AT_ONCE).enumerate() {
            let results = in_parallel(WIDTH, some, |one| self.job.publish_held(one.entry, one.staged));
            let mut goes_on = true;
            for (at, result) in results.into_iter().enumerate() {
                goes_on &= published(number * AT_ONCE + at, result);
            }
            if !goes_on {
                return;
            }
        }
    }

    fn discard(&self, staged: Staged) {
        self.job.discard_held(staged.number());
    }

    fn reread(&self, _: &Entry, staged: Staged, check: &mut dyn FnMut(&[u8])) -> Result<()> {
        self.job.reread_held(staged.number(), check)
    }

    fn sync_names(&self) -> Result<()> {
        Ok(())
    }

    fn finish_directory(&self, _: &Entry) -> Result<()> {
        Ok(())
    }

    fn close(&self) {
        self.job.discard_all();
    }

    fn path(&self, entry: &Entry) -> Vec<u8> {
        let above = self.job.directory(entry.parent);
        [above.map_or(Vec::new(), |above| above.shown.clone()), entry.name.as_bytes().to_vec()].concat()
    }
}
