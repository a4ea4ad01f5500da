//! A directory of a server as a destination.
//!
//! Invariants: a rehearsal sends nothing but looks; nothing is removed that was not listed here; no link is followed below the
//! destination but one that stands where a directory is needed, which is refused.

use super::attributes::Attributes;
use super::job::{Directory, Job, Stage, seconds};
use super::remote::{Asked, Child, Faulty, Remote, absent, join};
use super::small::SmallLane;
use model::change::cause;
use model::{Entry, FailureKind, Kind, Name, ObjectId, TransferOptions};
use std::cell::LazyCell;
use std::collections::HashMap;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex};
use store::{
    Alike, Decision, Error, Fate, Held, Prune, PublishRule, Result, Sink, SinkFacts, SinkLane, SourceFile, Staged,
    StagedFile, There, ToPublish,
};

pub struct TreeSink<R> {
    job: Arc<Job<R>>,
}

impl<R: Remote> TreeSink<R> {
    /// A destination at a directory that is there, unless this is a rehearsal.
    pub fn new(server: Arc<R>, path: Vec<u8>, options: &TransferOptions, is_rehearsal: bool) -> TreeSink<R> {
        let root = Directory { path, shown: Vec::new(), is_fresh: false };
        let job = Job {
            server,
            held: Held::default(),
            is_rehearsal,
            keeps_mode: options.fidelity.mode,
            chmod: options.chmod,
            directories: Mutex::new(HashMap::from([(ObjectId::ROOT, root)])),
            numbers: AtomicU64::new(0),
            newest: Mutex::default(),
        };
        TreeSink { job: Arc::new(job) }
    }

    fn look(&self, entry: &Entry) -> Result<Option<Attributes>> {
        let path = self.job.path(entry)?;
        self.job.server.find(&path).map_err(|fault| fault.on("look at", &path))
    }

    fn find_directory(&self, entry: &Entry, makes: bool) -> Result<()> {
        let above = self.job.directory(entry.parent)?;
        let path = self.job.path(entry)?;
        let server = &self.job.server;
        let failed = |fault: R::Fault| fault.on("make directory", &path);
        let mut there = if above.is_fresh { None } else { server.find(&path).map_err(failed)? };
        let is_fresh = there.is_none();
        if is_fresh && makes && !self.job.is_rehearsal {
            match server.make(&path) {
                Ok(()) => {}
                // Another job was faster.
                Err(why) => match server.find(&path).map_err(failed)? {
                    Some(found) => there = Some(found),
                    None => return Err(failed(why)),
                },
            }
        }
        if there.is_some_and(|there| !there.is_directory()) {
            let why = "a file or symbolic link stands where a directory is needed";
            return Err(Error::of_entry(FailureKind::InTheWay, "make directory", entry, why));
        }
        let shown = [&above.shown, entry.name.as_bytes(), b"/"].concat();
        let directory = Directory { path, shown, is_fresh: is_fresh && there.is_none() };
        self.job.directories.lock().unwrap().insert(entry.id, directory);
        Ok(())
    }

    fn decision(&self, entry: &Entry, there: Option<Attributes>) -> Result<Decision> {
        let Some(there) = there else { return Ok(Decision::Absent) };
        if there.is_directory() {
            return Err(Error::directory_there("replace", entry));
        }
        let (is_file, size_bytes) = (there.is_file(), there.size_bytes.unwrap_or(0));
        if is_file && size_bytes == entry.size_bytes() && there.modified == Some(seconds(entry)) {
            return Ok(Decision::Same);
        }
        Ok(Decision::Replace { size_bytes, there: There { is_file, modified: there.time() } })
    }

    /// Bits of a mode that are to be and are not there.
    fn mode_cause(&self, entry: &Entry) -> Result<u32> {
        let chmod = self.job.chmod.map(|(files, directories)| match entry.kind {
            Kind::Directory => directories,
            _ => files,
        });
        let wanted = chmod.or(self.job.keeps_mode.then_some(entry.mode));
        let missing = || Error::of_entry(FailureKind::NotFound, "look at", entry, "it is not there");
        let there = self.look(entry)?.ok_or_else(missing)?;
        let differs = wanted.is_some_and(|wanted| there.mode.is_some_and(|mode| mode & 0o7777 != wanted));
        Ok(if differs { cause::MODE } else { 0 })
    }

    /// Removes one name with all below it; false when something of it stays.
    fn prune_one(&self, path: &[u8], shown: &[u8], child: &Child, prune: &mut Prune<'_>) -> bool {
        let is_directory = child.attributes.is_directory();
        let fate = (prune.fate)(shown, is_directory);
        let failed = |prune: &mut Prune<'_>, fault: &R::Fault| {
            let error = fault.on("remove", b"");
            (prune.failed)(model::Failure { path: shown.to_vec(), kind: error.kind, message: error.message() });
            false
        };
        if fate == Fate::Spare || (!is_directory && fate != Fate::Remove) {
            return false;
        }
        let mut is_gone = fate == Fate::Remove;
        if is_directory {
            let children = match self.job.server.children(path, false) {
                Ok(children) => children,
                Err(fault) => return failed(prune, &fault),
            };
            is_gone &= children.odd.is_empty();
            for below in &children.found {
                let name = below.name.as_bytes();
                is_gone &=
                    (prune.goes_on)() && self.prune_one(&join(path, name), &[shown, b"/", name].concat(), below, prune);
            }
        }
        if !is_gone || !(prune.goes_on)() {
            return false;
        }
        if !prune.is_rehearsal {
            let server = &self.job.server;
            if let Err(fault) = if is_directory { server.remove_directory(path) } else { server.remove(path) } {
                return failed(prune, &fault);
            }
        }
        (prune.removed)(shown, is_directory);
        true
    }
}

impl<R: Stage> Sink for TreeSink<R> {
    fn facts(&self) -> Result<SinkFacts> {
        self.job.server.facts(&self.job.directory(ObjectId::ROOT)?.path)
    }

    fn notes(&self) -> Vec<String> {
        self.job.server.notes()
    }

    fn enter(&self, name: &Name) -> Result<()> {
        let root = self.job.directory(ObjectId::ROOT)?;
        let path = join(&root.path, name.as_bytes());
        let failed = |fault: R::Fault| fault.on("make directory", &path);
        if !self.job.is_rehearsal {
            make_directory(&*self.job.server, &path).map_err(failed)?;
        }
        if absent(self.job.server.look_behind(&path)).map_err(failed)?.is_some_and(|there| !there.is_directory()) {
            let why = "a file stands where a directory is needed";
            return Err(Error::of_kind(FailureKind::InTheWay, "make directory", name.as_bytes(), why));
        }
        self.job.directories.lock().unwrap().insert(ObjectId::ROOT, Directory { path, ..root });
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
        self.job.server.open(self.job.path(entry)?)
    }

    fn touch(&self, entry: &Entry) -> Result<()> {
        if self.job.is_rehearsal {
            return Ok(());
        }
        let path = self.job.path(entry)?;
        let time = Attributes { modified: Some(seconds(entry)), ..Attributes::default() };
        self.job.server.set(&path, &time).map_err(|fault| fault.on("set time", &path))
    }

    fn prune(&self, prune: &mut Prune<'_>) {
        prune.is_rehearsal |= self.job.is_rehearsal;
        for id in prune.directories {
            let Ok(directory) = self.job.directory(*id) else { continue };
            let children = match absent(self.job.server.children(&directory.path, false)) {
                Ok(children) => children.unwrap_or_default(),
                Err(fault) => {
                    let error = fault.on("list", b"");
                    let path = directory.shown.clone();
                    (prune.failed)(model::Failure { path, kind: error.kind, message: error.message() });
                    continue;
                }
            };
            let alike = LazyCell::new(|| Alike::of(children.found.iter().map(|child| child.name.as_bytes())));
            for child in &children.found {
                if !(prune.goes_on)() {
                    return;
                }
                if (prune.is_listed)(*id, &child.name) {
                    continue;
                }
                let name = child.name.as_bytes();
                let shown = [&directory.shown[..], name].concat();
                if prune.keeps_alike(*id, &child.name, &shown, &alike) {
                    continue;
                }
                self.prune_one(&join(&directory.path, name), &shown, child, prune);
            }
        }
    }

    fn make_symlink(&self, entry: &Entry, rule: PublishRule) -> Result<bool> {
        let Kind::Symlink(target) = &entry.kind else {
            return Err(Error::of_entry(FailureKind::Special, "make symbolic link", entry, "it is none"));
        };
        let path = self.job.path(entry)?;
        let server = &self.job.server;
        let failed = |fault: R::Fault| fault.on("make symbolic link", &path);
        let there = server.find(&path).map_err(failed)?;
        if there.is_some_and(|there| there.is_link()) && server.link_target(&path).map_err(failed)? == target[..] {
            return Ok(false);
        }
        if there.is_some() && rule == PublishRule::NoReplace {
            return Err(Error::of_entry(FailureKind::InTheWay, "make symbolic link", entry, "something has that name"));
        }
        if self.job.is_rehearsal {
            return Ok(true);
        }
        if there.is_none() {
            server.make_link(target, &path).map_err(failed)?;
            return Ok(true);
        }
        let staged = self.job.staged_path(entry, &self.job.next_mark())?;
        server.make_link(target, &staged).map_err(failed)?;
        let published = self.job.publish(&staged, entry, rule);
        if published.is_err() {
            let _ = server.remove(&staged);
        }
        published.map(|()| true)
    }

    fn amend(&self, entry: &Entry) -> Result<u32> {
        let causes = self.mode_cause(entry)?;
        if causes != 0 && !self.job.is_rehearsal {
            let path = self.job.path(entry)?;
            let mode = Attributes { modified: None, ..self.job.attributes(entry) };
            self.job.server.set(&path, &mode).map_err(|fault| fault.on("set mode", &path))?;
        }
        Ok(causes)
    }

    fn differences(&self, entry: &Entry) -> Result<u32> {
        self.mode_cause(entry)
    }

    fn decide(&self, entry: &Entry) -> Result<Decision> {
        match self.is_fresh(entry.parent) {
            true => Ok(Decision::Absent),
            false => self.decision(entry, self.look(entry)?),
        }
    }

    fn decide_group(&self, group: &mut dyn Iterator<Item = &Entry>, found: &mut Vec<Result<Decision>>) {
        let entries: Vec<&Entry> = group.collect();
        for some in entries.chunks(self.job.server.group_files()) {
            let paths: Vec<Result<Option<Vec<u8>>>> = some
                .iter()
                .map(|entry| match self.is_fresh(entry.parent) {
                    true => Ok(None),
                    false => self.job.path(entry).map(Some),
                })
                .collect();
            let asked: Vec<_> = paths.iter().filter_map(|path| path.as_ref().ok()?.clone()).collect();
            let mut looks = self.job.server.look_all(&asked).into_iter();
            found.extend(paths.into_iter().zip(some).map(|(path, entry)| {
                let look = path?.map(|_| absent(looks.next().expect("each was asked for"))).transpose();
                let there = look.map_err(|fault| fault.on("look at", entry.name.as_bytes()))?;
                self.decision(entry, there.flatten())
            }));
        }
    }

    fn lane(&self, _: bool) -> Result<Box<dyn SinkLane>> {
        Ok(Box::new(SmallLane::new(self.job.clone())))
    }

    fn begin(&self, entry: &Entry, stem: &str) -> Result<(Arc<dyn StagedFile>, Vec<u8>)> {
        self.job.may_write()?;
        self.job.path(entry)?;
        R::begin(&self.job, entry, stem)
    }

    fn has_journal(&self, entry: &Entry, stem: &str) -> bool {
        self.job.has_journal(entry, stem)
    }

    fn sync_group(&self, group: &mut dyn Iterator<Item = Staged>) -> Result<bool> {
        let numbers: Vec<_> = group.map(|staged| staged.number()).collect();
        self.job.send_held(&numbers, true)?;
        Ok(false)
    }

    fn publish(&self, entry: &Entry, staged: Staged) -> Result<()> {
        self.job.publish_held(&[(entry, staged)]).remove(0)
    }

    fn publish_group(&self, group: &[ToPublish<'_>], published: &mut dyn FnMut(usize, Result<()>) -> bool) {
        let width = self.job.server.group_files();
        for (number, some) in group.chunks(width).enumerate() {
            let some: Vec<_> = some.iter().map(|one| (one.entry, one.staged)).collect();
            let mut goes_on = true;
            for (at, result) in self.job.publish_held(&some).into_iter().enumerate() {
                goes_on &= published(number * width + at, result);
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
        let newest = self.job.newest.lock().unwrap().take();
        newest.map_or(Ok(()), |newest| self.job.server.sync_names(&newest))
    }

    fn finish_directory(&self, entry: &Entry) -> Result<()> {
        if self.job.is_rehearsal {
            return Ok(());
        }
        let path = self.job.directory(entry.id)?.path;
        let mode = match self.job.chmod {
            Some((_, directories)) => Some(directories),
            None => self.job.keeps_mode.then_some(entry.mode),
        };
        let attributes = Attributes { mode, modified: Some(seconds(entry)), ..Attributes::default() };
        self.job.server.set(&path, &attributes).map_err(|fault| fault.on("set time", &path))
    }

    fn close(&self) {
        self.job.discard_all();
    }

    fn path(&self, entry: &Entry) -> Vec<u8> {
        let above = self.job.directory(entry.parent);
        [above.map_or(Vec::new(), |above| above.shown), entry.name.as_bytes().to_vec()].concat()
    }
}

/// Makes a directory, or accepts what is there.
pub fn make_directory<R: Remote>(server: &R, path: &[u8]) -> Asked<(), R> {
    match server.make(path) {
        Ok(()) => Ok(()),
        Err(fault) => match absent(server.look_behind(path))? {
            Some(there) if there.is_directory() => Ok(()),
            _ => Err(fault),
        },
    }
}
