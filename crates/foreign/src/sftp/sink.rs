//! A directory of a server as a destination.
//!
//! Invariants: a rehearsal sends nothing but looks; nothing is removed that was not listed here; no link is followed below the
//! destination but one that stands where a directory is needed, which is refused.

use super::calls::absent;
use super::job::{Directory, Job, fault, seconds};
use super::large::SftpLarge;
use super::listing::{Child, WIDTH, join};
use super::packet::Attributes;
use super::reading::{SftpFile, modified};
use super::server::Server;
use super::session::{Fault, Session};
use super::small::SftpSinkLane;
use model::change::cause;
use model::{Entry, FailureKind, Kind, Name, ObjectId, TransferOptions};
use std::collections::HashMap;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex};
use store::{
    Abilities, Decision, Fate, Held, Order, Prune, PublishRule, Result, Sink, SinkFacts, SinkLane, SourceFile, Staged,
    StagedFile, There, ToPublish,
};

pub struct SftpSink {
    job: Arc<Job>,
}

impl SftpSink {
    /// A destination at a directory that is there, unless this is a rehearsal.
    pub fn new(server: Arc<Server>, path: Vec<u8>, options: &TransferOptions, is_rehearsal: bool) -> SftpSink {
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
        SftpSink { job: Arc::new(job) }
    }

    fn look(&self, entry: &Entry) -> Result<Option<Attributes>> {
        let path = self.job.path(entry)?;
        self.job.session("look at")?.look(&path).map_err(|fault| fault.on("look at", &path))
    }

    fn find_directory(&self, entry: &Entry, makes: bool) -> Result<()> {
        let above = self.job.directory(entry.parent)?;
        let path = self.job.path(entry)?;
        let session = self.job.session("make directory")?;
        let failed = |fault: Fault| fault.on("make directory", &path);
        let mut there = if above.is_fresh { None } else { session.look(&path).map_err(failed)? };
        let is_fresh = there.is_none();
        if is_fresh && makes && !self.job.is_rehearsal {
            match session.mkdir(&path).done() {
                Ok(()) => {}
                // Another job was faster.
                Err(why) => match session.look(&path).map_err(failed)? {
                    Some(found) => there = Some(found),
                    None => return Err(failed(why)),
                },
            }
        }
        if there.is_some_and(|there| !there.is_directory()) {
            let why = "a file or symbolic link stands where a directory is needed";
            return Err(fault(FailureKind::InTheWay, "make directory", entry, why));
        }
        let shown = [&above.shown, entry.name.as_bytes(), b"/"].concat();
        let directory = Directory { path, shown, is_fresh: is_fresh && there.is_none() };
        self.job.directories.lock().unwrap().insert(entry.id, directory);
        Ok(())
    }

    fn decision(&self, entry: &Entry, there: Option<Attributes>) -> Result<Decision> {
        let Some(there) = there else { return Ok(Decision::Absent) };
        if there.is_directory() {
            let why = "a directory stands where a file is to be";
            return Err(fault(FailureKind::InTheWay, "replace", entry, why));
        }
        let (is_file, size_bytes) = (there.is_file(), there.size_bytes.unwrap_or(0));
        if is_file && size_bytes == entry.size_bytes() && there.modified == Some(seconds(entry)) {
            return Ok(Decision::Same);
        }
        Ok(Decision::Replace { size_bytes, there: There { is_file, modified: modified(&there) } })
    }

    /// Bits of a mode that are to be and are not there.
    fn mode_cause(&self, entry: &Entry) -> Result<u32> {
        let chmod = self.job.chmod.map(|(files, directories)| match entry.kind {
            Kind::Directory => directories,
            _ => files,
        });
        let wanted = chmod.or(self.job.keeps_mode.then_some(entry.mode));
        let there =
            self.look(entry)?.ok_or_else(|| fault(FailureKind::NotFound, "look at", entry, "it is not there"))?;
        let differs = wanted.is_some_and(|wanted| there.mode.is_some_and(|mode| mode & 0o7777 != wanted));
        Ok(if differs { cause::MODE } else { 0 })
    }

    /// Removes one name with all below it; false when something of it stays.
    fn prune_one(&self, session: &Session, path: &[u8], shown: &[u8], child: &Child, prune: &mut Prune<'_>) -> bool {
        let is_directory = child.attributes.is_directory();
        let fate = (prune.fate)(shown, is_directory);
        let failed = |prune: &mut Prune<'_>, fault: &Fault| {
            let error = fault.on("remove", b"");
            (prune.failed)(model::Failure { path: shown.to_vec(), kind: error.kind, message: error.message() });
            false
        };
        if fate == Fate::Spare || (!is_directory && fate != Fate::Remove) {
            return false;
        }
        let mut is_gone = fate == Fate::Remove;
        if is_directory {
            let children = match session.children(path, false) {
                Ok(children) => children,
                Err(fault) => return failed(prune, &fault),
            };
            is_gone &= children.odd.is_empty();
            for below in &children.found {
                let name = below.name.as_bytes();
                is_gone &= (prune.goes_on)()
                    && self.prune_one(session, &join(path, name), &[shown, b"/", name].concat(), below, prune);
            }
        }
        if !is_gone || !(prune.goes_on)() {
            return false;
        }
        if !prune.is_rehearsal {
            let removal = if is_directory { session.rmdir(path) } else { session.remove(path) };
            if let Err(fault) = removal.done() {
                return failed(prune, &fault);
            }
        }
        (prune.removed)(shown, is_directory);
        true
    }
}

impl Sink for SftpSink {
    fn facts(&self) -> Result<SinkFacts> {
        let session = self.job.session("look at")?;
        let room = session.room(&self.job.directory(ObjectId::ROOT)?.path);
        Ok(SinkFacts {
            file_system: "sftp",
            // Nothing can be made to last on a server that does not sync.
            is_memory_backed: !session.can.fsync,
            free_bytes: room.map_or(u64::MAX, |room| room.free_bytes),
            free_inodes: room.and_then(|room| room.free_inodes),
            order: Order::Any,
            part_rule: None,
            shares_on: None,
            confirms: false,
            can: Abilities { compare: true, prune: true, amend: true, touch: true, reread: true, ..Abilities::NONE },
        })
    }

    fn enter(&self, name: &Name) -> Result<()> {
        let root = self.job.directory(ObjectId::ROOT)?;
        let path = join(&root.path, name.as_bytes());
        let session = self.job.session("make directory")?;
        let failed = |fault: Fault| fault.on("make directory", &path);
        if !self.job.is_rehearsal {
            make_directory(&session, &path).map_err(failed)?;
        }
        if absent(session.stat(&path).attributes()).map_err(failed)?.is_some_and(|there| !there.is_directory()) {
            let why = "a file stands where a directory is needed";
            return Err(store::Error::of_kind(FailureKind::InTheWay, "make directory", name.as_bytes(), why));
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
        Ok(Arc::new(SftpFile::open(&self.job.server, self.job.path(entry)?)?))
    }

    fn touch(&self, entry: &Entry) -> Result<()> {
        if self.job.is_rehearsal {
            return Ok(());
        }
        let path = self.job.path(entry)?;
        let time = Attributes { modified: Some(seconds(entry)), ..Attributes::default() };
        let set = self.job.session("set time")?.setstat(&path, &time).done();
        set.map_err(|fault| fault.on("set time", &path))
    }

    fn prune(&self, prune: &mut Prune<'_>) {
        prune.is_rehearsal |= self.job.is_rehearsal;
        for id in prune.directories {
            let Ok(directory) = self.job.directory(*id) else { continue };
            let listed = self.job.server.session().and_then(|(session, _)| {
                let children = absent(session.children(&directory.path, false))?.unwrap_or_default();
                Ok((session, children))
            });
            let (session, children) = match listed {
                Ok(listed) => listed,
                Err(fault) => {
                    let error = fault.on("list", b"");
                    let path = directory.shown.clone();
                    (prune.failed)(model::Failure { path, kind: error.kind, message: error.message() });
                    continue;
                }
            };
            for child in &children.found {
                if !(prune.goes_on)() {
                    return;
                }
                if !(prune.is_listed)(*id, &child.name) {
                    let name = child.name.as_bytes();
                    let shown = [&directory.shown[..], name].concat();
                    self.prune_one(&session, &join(&directory.path, name), &shown, child, prune);
                }
            }
        }
    }

    fn make_symlink(&self, entry: &Entry, rule: PublishRule) -> Result<bool> {
        let Kind::Symlink(target) = &entry.kind else {
            return Err(fault(FailureKind::Special, "make symbolic link", entry, "it is none"));
        };
        let path = self.job.path(entry)?;
        let session = self.job.session("make symbolic link")?;
        let failed = |fault: Fault| fault.on("make symbolic link", &path);
        let there = session.look(&path).map_err(failed)?;
        if there.is_some_and(|there| there.is_link()) && session.link_target(&path).map_err(failed)? == target[..] {
            return Ok(false);
        }
        if there.is_some() && rule == PublishRule::NoReplace {
            return Err(fault(FailureKind::InTheWay, "make symbolic link", entry, "something has that name"));
        }
        if self.job.is_rehearsal {
            return Ok(true);
        }
        if there.is_none() {
            session.symlink(target, &path).done().map_err(failed)?;
            return Ok(true);
        }
        let staged = self.job.staged_path(entry, &self.job.next_mark())?;
        session.symlink(target, &staged).done().map_err(failed)?;
        let published = self.job.publish(&session, &staged, entry, rule);
        if published.is_err() {
            let _ = session.remove(&staged).done();
        }
        published.map(|()| true)
    }

    fn amend(&self, entry: &Entry) -> Result<u32> {
        let causes = self.mode_cause(entry)?;
        if causes != 0 && !self.job.is_rehearsal {
            let path = self.job.path(entry)?;
            let mode = Attributes { modified: None, ..self.job.attributes(entry) };
            let set = self.job.session("set mode")?.setstat(&path, &mode).done();
            set.map_err(|fault| fault.on("set mode", &path))?;
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
        for some in entries.chunks(WIDTH) {
            let asked: Vec<_> = some
                .iter()
                .map(|entry| match self.is_fresh(entry.parent) {
                    true => Ok(None),
                    false => {
                        let path = self.job.path(entry)?;
                        Ok(Some(self.job.session("look at")?.lstat(&path)))
                    }
                })
                .collect();
            found.extend(asked.into_iter().zip(some).map(|(ticket, entry): (Result<_>, _)| {
                let there = ticket?.map(|ticket| absent(ticket.attributes())).transpose();
                let there = there.map_err(|fault| fault.on("look at", entry.name.as_bytes()))?;
                self.decision(entry, there.flatten())
            }));
        }
    }

    fn lane(&self, _: bool) -> Result<Box<dyn SinkLane>> {
        Ok(Box::new(SftpSinkLane::new(self.job.clone())))
    }

    fn begin(&self, entry: &Entry, stem: &str) -> Result<(Arc<dyn StagedFile>, Vec<u8>)> {
        let (file, journal) = SftpLarge::begin(self.job.clone(), entry, stem)?;
        Ok((Arc::new(file), journal))
    }

    fn has_journal(&self, entry: &Entry, stem: &str) -> bool {
        self.job.has_journal(entry, stem)
    }

    fn sync_group(&self, group: &mut dyn Iterator<Item = Staged>) -> Result<bool> {
        let numbers: Vec<_> = group.map(|staged| staged.number()).collect();
        let session = self.job.session("write file")?;
        self.job.send_held(&session, &numbers, true)?;
        Ok(false)
    }

    fn publish(&self, entry: &Entry, staged: Staged) -> Result<()> {
        self.job.publish_held(&[(entry, staged)]).remove(0)
    }

    fn publish_group(&self, group: &[ToPublish<'_>], published: &mut dyn FnMut(usize, Result<()>) -> bool) {
        for (number, some) in group.chunks(WIDTH).enumerate() {
            let some: Vec<_> = some.iter().map(|one| (one.entry, one.staged)).collect();
            let mut goes_on = true;
            for (at, result) in self.job.publish_held(&some).into_iter().enumerate() {
                goes_on &= published(number * WIDTH + at, result);
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

    /// No request syncs a name. One that syncs the newest file has a file system with a journal write its names down too.
    fn sync_names(&self) -> Result<()> {
        let Some(newest) = self.job.newest.lock().unwrap().take() else { return Ok(()) };
        let session = self.job.session("sync names")?;
        if !session.can.fsync {
            return Ok(());
        }
        match absent(session.open_to_read(&newest).handle()) {
            Ok(Some(handle)) => {
                let synced = session.fsync(&handle).done();
                let _ = session.close(&handle);
                synced.map_err(|fault| fault.on("sync names", &newest))
            }
            // Gone, or not for its own writer to read.
            Ok(None) | Err(Fault::Status { .. }) => Ok(()),
            Err(fault) => Err(fault.on("sync names", &newest)),
        }
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
        let set = self.job.session("set time")?.setstat(&path, &attributes).done();
        set.map_err(|fault| fault.on("set time", &path))
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
pub fn make_directory(session: &Session, path: &[u8]) -> super::session::Result<()> {
    match session.mkdir(path).done() {
        Ok(()) => Ok(()),
        Err(fault) => match absent(session.stat(path).attributes())? {
            Some(there) if there.is_directory() => Ok(()),
            _ => Err(fault),
        },
    }
}
