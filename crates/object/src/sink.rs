//! A prefix of a bucket as a destination.
//!
//! What stands there is learnt directory by directory, from listings, and looked at singly only where a name is taken; what was seen
//! is the condition on which it is replaced. Directories are what keys have in common; one that the job makes gets a marker too, with its time.
//!
//! Invariants: a rehearsal sends nothing but looks; nothing is removed that was not listed here.

use crate::bucket::Bucket;
use crate::calls::{Condition, Object};
use crate::compared::Compared;
use crate::failure::{Failure, Why};
use crate::job::{Directory, Job};
use crate::key::{KEY_BYTES_MAX, of_name};
use crate::lane::{ObjectSinkLane, Waiting};
use crate::listing::Child;
use crate::reading::ObjectFile;
use crate::removal::Pruning;
use crate::source::ObjectSource;
use crate::upload::ObjectUpload;
use crate::upload_log::UploadLogs;
use crate::width::Rooms;
use model::fidelity::Warning;
use model::{Entry, FailureKind, Kind, Name, ObjectId, TransferOptions};
use std::collections::HashMap;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};
use store::{
    Abilities, Decision, Error, Fate, LinkRule, Linked, Order, Prune, PublishRule, Result, Sink, SinkFacts, SinkLane,
    Source, SourceFile, Staged, StagedFile, ToPublish,
};

pub struct ObjectSink {
    job: Arc<Job>,
    waiting: Arc<Waiting>,
}

impl ObjectSink {
    /// A destination at a prefix, which is empty or ends in a slash.
    pub fn new(
        bucket: Arc<Bucket>,
        prefix: String,
        options: &TransferOptions,
        is_rehearsal: bool,
        logs: Option<UploadLogs>,
    ) -> ObjectSink {
        let root = Directory::new(prefix, Vec::new());
        let directories = Mutex::new(HashMap::from([(ObjectId::ROOT, root)]));
        let rooms = Rooms::new(bucket.permits.clone());
        let job = Job {
            bucket,
            is_rehearsal,
            keeps: options.fidelity,
            chunk_bytes: options.chunk_bytes,
            rooms,
            logs,
            is_swept: AtomicBool::new(false),
            directories,
            listed: Mutex::default(),
            decided: Mutex::default(),
            compared: Compared::default(),
            written: Mutex::default(),
            uncopied: Mutex::default(),
            warnings: Mutex::default(),
        };
        let job = Arc::new(job);
        ObjectSink { waiting: Arc::new(Waiting::new(job.clone())), job }
    }

    /// Puts down one name with all below it to be removed; false when something of it stays.
    fn prune_one(&self, key: String, child: &Child, path: &[u8], pruning: &mut Pruning, prune: &mut Prune<'_>) -> bool {
        let bucket = &self.job.bucket;
        let mut is_gone = true;
        if child.is_directory && key.len() >= KEY_BYTES_MAX {
            let message = "the store lists keys that are longer than keys can be".to_owned();
            (prune.failed)(model::Failure { path: path.to_vec(), kind: FailureKind::Other, message });
            pruning.keep(path);
            return false;
        }
        if child.is_directory {
            let fate = (prune.fate)(path, true);
            if fate == Fate::Spare {
                pruning.keep(path);
                return false;
            }
            let below = format!("{key}/");
            let children = match bucket.children(&below, usize::MAX) {
                Ok(children) => children.unwrap_or_default(),
                Err(failure) => {
                    let error = failure.on("remove", "");
                    (prune.failed)(model::Failure { path: path.to_vec(), kind: error.kind, message: error.message() });
                    pruning.keep(path);
                    return false;
                }
            };
            is_gone &= children.odd.is_empty();
            for (name, child) in &children.names {
                let key = format!("{below}{}", of_name(name));
                is_gone &= self.prune_one(key, child, &[path, b"/", name].concat(), pruning, prune);
            }
            is_gone &= fate == Fate::Remove && (prune.goes_on)();
            if is_gone {
                pruning.directory(bucket, children.marker.map(|_| below), path.to_vec(), prune);
            }
        }
        if child.object.is_some() {
            if (prune.fate)(path, false) != Fate::Remove || !(prune.goes_on)() {
                pruning.keep(path);
                return false;
            }
            pruning.object(bucket, key, path.to_vec(), prune);
        }
        is_gone
    }
}

impl Sink for ObjectSink {
    fn facts(&self) -> Result<SinkFacts> {
        Ok(SinkFacts {
            file_system: "s3",
            is_memory_backed: false,
            cannot_sync: false,
            free_bytes: u64::MAX,
            free_inodes: None,
            order: Order::Any,
            part_rule: None,
            shares_on: None,
            confirms: true,
            can: Abilities { compare: true, prune: true, touch: true, ..Abilities::NONE },
        })
    }

    fn enter(&self, name: &Name) -> Result<()> {
        let mut directories = self.job.directories.lock().unwrap();
        let root = &directories[&ObjectId::ROOT];
        let root = Directory::new(format!("{}{}/", root.prefix, of_name(name.as_bytes())), root.path.clone());
        directories.insert(ObjectId::ROOT, root);
        Ok(())
    }

    fn make_directory(&self, entry: &Entry) -> Result<()> {
        let directory = self.job.find_directory(entry)?;
        if !directory.is_new() || self.job.is_rehearsal {
            return Ok(());
        }
        match self.job.mark(&directory, entry, &Condition::Absent) {
            // What came there meanwhile makes a directory of it too.
            Err(failure) if matches!(failure.why, Why::Condition | Why::Conflict) => Ok(()),
            marked => marked.map_err(|failure| failure.on("make directory", &directory.prefix)),
        }
    }

    fn look_directory(&self, entry: &Entry) -> Result<()> {
        self.job.find_directory(entry).map(drop)
    }

    fn is_fresh(&self, directory: ObjectId) -> bool {
        self.job.directory(directory).is_ok_and(|directory| directory.is_new())
    }

    fn open_published(&self, entry: &Entry) -> Result<Arc<dyn SourceFile>> {
        let key = self.job.key(entry)?;
        let file = ObjectFile::open(&self.job.bucket, &key)?;
        self.job.compared.note(key, &file.object.etag);
        Ok(Arc::new(file))
    }

    fn touch(&self, entry: &Entry) -> Result<()> {
        if self.job.is_rehearsal {
            return Ok(());
        }
        let key = self.job.key(entry)?;
        let failed = |failure: Failure| failure.on("set time", &key);
        let found = self.job.bucket.head_with_description(&key).map_err(failed)?;
        let missing = || Error::of_entry(FailureKind::NotFound, "set time", entry, "no such object");
        let (there, mut meta) = found.ok_or_else(missing)?;
        if self.job.compared.take(&key).is_some_and(|etag| etag != there.etag) {
            let why = "something else was written there while it was compared";
            return Err(Error::of_entry(FailureKind::InTheWay, "set time", entry, why));
        }
        let bucket = &self.job.bucket;
        if there.size_bytes > bucket.copy_bytes_max {
            let why = "it is kept with its old time: an object above 5 GiB gets another one only with its content";
            return Err(Error::of_entry(FailureKind::Other, "set time", entry, why));
        }
        let own = self.job.meta(entry);
        meta.retain(|(name, _)| own.iter().all(|(known, _)| known != name));
        meta.extend(own);
        bucket.copy((&bucket.name, &key, &there.etag), &key, Some(&meta), &Condition::Any).map_err(failed)
    }

    fn notes(&self) -> Vec<String> {
        self.job.bucket.notes()
    }

    fn take_warnings(&self) -> Vec<Warning> {
        self.job.warnings.lock().unwrap().take()
    }

    fn mirror(&self) -> Option<Arc<dyn Source>> {
        let prefix = self.job.directory(ObjectId::ROOT).ok()?.prefix.clone();
        Some(Arc::new(ObjectSource::mirror(self.job.bucket.clone(), prefix)))
    }

    fn prune_paths(&self, next: &mut dyn FnMut() -> Option<(Vec<u8>, bool)>, prune: &mut Prune<'_>) {
        prune.is_rehearsal |= self.job.is_rehearsal;
        let Ok(root) = self.job.directory(ObjectId::ROOT) else { return };
        let (bucket, mut pruning) = (&self.job.bucket, Pruning::default());
        while (prune.goes_on)()
            && let Some((path, is_directory)) = next()
        {
            let key = format!("{}{}", root.prefix, crate::key::of_path(&path));
            match ((prune.fate)(&path, is_directory), is_directory) {
                (Fate::Remove, true) => pruning.unseen_directory(bucket, format!("{key}/"), path, prune),
                (Fate::Remove, false) => pruning.object(bucket, key, path, prune),
                _ => pruning.keep(&path),
            }
        }
        pruning.flush(bucket, prune);
    }

    fn prune(&self, prune: &mut Prune<'_>) {
        prune.is_rehearsal |= self.job.is_rehearsal;
        let mut pruning = Pruning::default();
        for id in prune.directories {
            let Ok(directory) = self.job.directory(*id) else { continue };
            // As it is now: the job itself may have written to it since.
            let children = match self.job.bucket.children(&directory.prefix, usize::MAX) {
                Ok(children) => children.unwrap_or_default(),
                Err(failure) => {
                    let error = failure.on("list", "");
                    let path = directory.path.clone();
                    (prune.failed)(model::Failure { path, kind: error.kind, message: error.message() });
                    continue;
                }
            };
            for (name, child) in &children.names {
                if !(prune.goes_on)() {
                    break;
                }
                let is_listed = Name::new(name).is_ok_and(|name| (prune.is_listed)(*id, &name));
                if !is_listed {
                    let key = format!("{}{}", directory.prefix, of_name(name));
                    let path = [&directory.path[..], name].concat();
                    self.prune_one(key, child, &path, &mut pruning, prune);
                }
            }
        }
        pruning.flush(&self.job.bucket, prune);
    }

    fn make_symlink(&self, entry: &Entry, rule: PublishRule) -> Result<bool> {
        let Kind::Symlink(target) = &entry.kind else {
            return Err(Error::of_entry(FailureKind::Special, "make symbolic link", entry, "it is none"));
        };
        let (there, key) = (self.job.there(entry)?, self.job.key(entry)?);
        let is_link = there.as_ref().is_some_and(crate::source::is_link);
        if is_link && self.job.bucket.read_whole(&key, target.len())?.0 == target[..] {
            return Ok(false);
        }
        if let Some(there) = &there {
            if rule == PublishRule::NoReplace {
                let why = "something has that name";
                return Err(Error::of_entry(FailureKind::InTheWay, "make symbolic link", entry, why));
            }
            self.job.note_decided(key.clone(), Condition::Is(there.etag.clone()));
        }
        if !self.job.is_rehearsal {
            self.job.publish(entry, &key, target, rule)?;
        }
        Ok(true)
    }

    fn make_hard_link(&self, _: &Entry, entry: &Entry, _: LinkRule) -> Result<Linked> {
        Err(Error::of_entry(FailureKind::Other, "link", entry, "an object has one name"))
    }

    fn decide(&self, entry: &Entry) -> Result<Decision> {
        self.job.decide(entry)
    }

    fn decide_group(&self, group: &mut dyn Iterator<Item = &Entry>, found: &mut Vec<Result<Decision>>) {
        let entries: Vec<&Entry> = group.collect();
        let at_hand: Vec<_> = entries.iter().map(|entry| self.job.decide_at_hand(entry)).collect();
        let others: Vec<_> = entries.iter().zip(&at_hand).filter(|(_, known)| known.is_none()).collect();
        let mut asked = self.job.bucket.in_parallel(&others, |(entry, _)| self.job.decide(entry)).into_iter();
        found.extend(at_hand.into_iter().map(|known| match known {
            Some(decision) => Ok(decision),
            None => asked.next().expect("each was decided"),
        }));
    }

    fn leave(&self, entry: &Entry) {
        if let Ok(key) = self.job.key(entry) {
            self.job.decided.lock().unwrap().remove(&key);
        }
    }

    fn lane(&self, _: bool) -> Result<Box<dyn SinkLane>> {
        Ok(Box::new(ObjectSinkLane::new(self.waiting.clone())))
    }

    fn begin(&self, entry: &Entry, stem: &str) -> Result<(Arc<dyn StagedFile>, Vec<u8>)> {
        self.job.may_write()?;
        self.job.sweep();
        let upload = ObjectUpload::begin(self.job.clone(), entry, self.job.key(entry)?)?;
        let (upload, journal) = upload.go_on(stem)?;
        Ok((Arc::new(upload), journal))
    }

    fn begin_growing(&self, entry: &Entry, _: &str, _: Option<&Name>) -> Result<(Arc<dyn StagedFile>, Vec<u8>)> {
        Err(Error::of_entry(FailureKind::Other, "write file", entry, "an object cannot grow"))
    }

    fn has_journal(&self, entry: &Entry, stem: &str) -> bool {
        let begin = |key| ObjectUpload::begin(self.job.clone(), entry, key);
        !self.job.is_rehearsal && self.job.key(entry).and_then(begin).is_ok_and(|upload| upload.has_log(stem))
    }

    /// What a store has confirmed is durable.
    fn sync_group(&self, _: &mut dyn Iterator<Item = Staged>) -> Result<bool> {
        Ok(true)
    }

    fn publish(&self, entry: &Entry, staged: Staged) -> Result<()> {
        self.waiting.publish(entry, staged)
    }

    fn publish_group(&self, group: &[ToPublish<'_>], published: &mut dyn FnMut(usize, Result<()>) -> bool) {
        let (waiting, group) =
            (self.waiting.clone(), group.iter().map(|one| (one.entry.clone(), one.staged)).collect());
        let publish = move |(entry, staged): (Entry, Staged)| waiting.publish(&entry, staged);
        self.job.bucket.each_in_parallel(group, publish, published);
    }

    fn discard(&self, staged: Staged) {
        self.waiting.discard(staged);
    }

    fn reread(&self, entry: &Entry, _: Staged, _: &mut dyn FnMut(&[u8])) -> Result<()> {
        let why = "an object store keeps nothing before it is published";
        Err(Error::of_entry(FailureKind::ReadError, "read back", entry, why))
    }

    fn sync_names(&self) -> Result<()> {
        Ok(())
    }

    fn finish_directory(&self, entry: &Entry) -> Result<()> {
        if self.job.is_rehearsal {
            return Ok(());
        }
        // One that the job made has all this already.
        let directory = self.job.directory(entry.id)?;
        if directory.is_new() || !self.job.keeps.mode {
            return Ok(());
        }
        let there =
            self.job.bucket.head(&directory.prefix).map_err(|failure| failure.on("look at", &directory.prefix))?;
        let is_same = |there: &Object| {
            there.modified == Some(entry.generation.modified)
                && there.mode.is_some_and(|mode| mode & 0o7777 == entry.mode)
        };
        match there {
            Some(there) if there.size_bytes > 0 => {
                let why = "an object with content has the name of this directory";
                Err(Error::of_entry(FailureKind::InTheWay, "set time", entry, why))
            }
            Some(there) if is_same(&there) => Ok(()),
            _ => {
                let marked = self.job.mark(&directory, entry, &Condition::Any);
                marked.map_err(|failure| failure.on("make directory", &directory.prefix))
            }
        }
    }

    fn interrupt(&self) {
        self.job.rooms.end();
    }

    fn close(&self) {
        if let Some(known) = &self.job.bucket.known {
            known.flush();
        }
        self.waiting.discard_all();
    }

    fn path(&self, entry: &Entry) -> Vec<u8> {
        let above = self.job.directory(entry.parent);
        [above.map_or(Vec::new(), |above| above.path.clone()), entry.name.as_bytes().to_vec()].concat()
    }
}
