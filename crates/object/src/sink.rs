//! A prefix of a bucket as a destination.
//!
//! What stands there is learnt directory by directory, from listings, and looked at singly only where a name is taken; what was seen
//! is the condition on which it is replaced. Directories are what keys have in common; one that the job makes gets a marker too, with its time.
//!
//! Invariants: a rehearsal sends nothing but looks; nothing is removed that was not listed here.

use crate::bucket::Bucket;
use crate::calls::{Condition, Object};
use crate::failure::Failure;
use crate::key::{KEY_BYTES_MAX, of_name};
use crate::lane::{Held, ObjectSinkLane};
use crate::listing::{Child, Children};
use crate::metadata;
use crate::reading::ObjectFile;
use crate::upload::ObjectUpload;
use crate::width::in_parallel;
use model::{Entry, FailureKind, Fidelity, Kind, Name, ObjectId};
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex};
use store::{
    Abilities, Decision, Error, Fate, LinkRule, Linked, Order, Prune, PublishRule, Result, Sink, SinkFacts, SinkLane,
    SourceFile, Staged, StagedFile, There, ToPublish,
};

/// Pages of a directory's listing; in a larger one names are looked at one by one.
const PAGES_MAX: usize = 16;

pub struct ObjectSink {
    job: Arc<Job>,
}

/// What the lanes and uploads of one sink have in common.
pub struct Job {
    pub bucket: Arc<Bucket>,
    pub held: Held,
    is_rehearsal: bool,
    keeps: Fidelity,
    directories: Mutex<HashMap<ObjectId, Arc<Directory>>>,
    /// What stands at a key whose object is wanted.
    decided: Mutex<HashMap<String, Condition>>,
    /// Numbers of keys that this job wrote: what was listed of them is out of date.
    written: Mutex<HashSet<u64>>,
}

struct Directory {
    /// Empty, or with a slash behind it.
    prefix: String,
    path: Vec<u8>,
    state: Mutex<DirectoryState>,
}

#[derive(Default)]
struct DirectoryState {
    /// What was there when it was first looked at; within, nothing where that was too much.
    listed: Option<Option<Arc<Children>>>,
}

impl Directory {
    fn new(prefix: String, path: Vec<u8>) -> Arc<Directory> {
        Arc::new(Directory { prefix, path, state: Mutex::default() })
    }

    /// Nothing was there when it was first looked at.
    fn is_new(&self) -> bool {
        let state = self.state.lock().unwrap();
        matches!(&state.listed, Some(Some(children)) if children.names.is_empty() && children.marker.is_none())
    }

    fn children(&self, bucket: &Bucket) -> Result<Option<Arc<Children>>> {
        let mut state = self.state.lock().unwrap();
        if let Some(listed) = &state.listed {
            return Ok(listed.clone());
        }
        let listed = bucket.children(&self.prefix, PAGES_MAX).map_err(|failure| failure.on("list", &self.prefix))?;
        let listed = listed.map(Arc::new);
        state.listed = Some(listed.clone());
        Ok(listed)
    }
}

fn fault(kind: FailureKind, operation: &'static str, entry: &Entry, why: &str) -> Error {
    Error::of_kind(kind, operation, entry.name.as_bytes(), why)
}

impl Job {
    fn directory(&self, id: ObjectId) -> Result<Arc<Directory>> {
        let found = self.directories.lock().unwrap().get(&id).cloned();
        found.ok_or_else(|| Error::of_kind(FailureKind::NotFound, "open directory", b"", "its directory is not there"))
    }

    pub fn may_write(&self) -> Result<()> {
        match self.is_rehearsal {
            true => Err(Error::of_kind(FailureKind::ReadOnly, "write", b"", "a dry run writes nothing")),
            false => Ok(()),
        }
    }

    pub fn key(&self, entry: &Entry) -> Result<String> {
        let above = self.directory(entry.parent)?;
        let key = format!("{}{}", above.prefix, of_name(entry.name.as_bytes()));
        // A directory's key has a slash behind it.
        match key.len() < KEY_BYTES_MAX {
            true => Ok(key),
            false => {
                Err(fault(FailureKind::NameRefused, "name file", entry, "its key would be longer than 1,024 bytes"))
            }
        }
    }

    /// The headers that keep what an entry says beside content.
    pub fn meta(&self, entry: &Entry) -> Vec<(String, String)> {
        let mut meta = vec![(metadata::MTIME.to_owned(), metadata::time_text(entry.generation.modified))];
        let mode = match entry.kind {
            Kind::Symlink(_) => Some(metadata::link_mode()),
            Kind::Directory => self.keeps.mode.then(|| metadata::directory_mode(entry.mode)),
            _ => self.keeps.mode.then(|| metadata::file_mode(entry.mode)),
        };
        meta.extend(mode.map(|mode| (metadata::MODE.to_owned(), mode)));
        meta
    }

    /// On what a key is written, which it is after that.
    pub fn condition(&self, key: &str, rule: PublishRule) -> Condition {
        self.written.lock().unwrap().insert(self.bucket.number(key, ""));
        let decided = self.decided.lock().unwrap().remove(key);
        match rule {
            PublishRule::NoReplace => Condition::Absent,
            PublishRule::Replace => decided.unwrap_or(Condition::Any),
        }
    }

    /// An error where a directory has the name of a file, as far as is known without asking.
    fn is_free(&self, entry: &Entry, key: &str) -> Result<()> {
        let above = self.directory(entry.parent)?;
        let is_made = self.written.lock().unwrap().contains(&self.bucket.number(&format!("{key}/"), ""));
        let listed = above.state.lock().unwrap().listed.clone().flatten();
        let child = listed.and_then(|listed| listed.names.get(entry.name.as_bytes()).cloned());
        match is_made || child.is_some_and(|child| child.is_directory && child.object.is_none()) {
            true => Err(fault(FailureKind::InTheWay, "publish", entry, "a directory stands where a file is to be")),
            false => Ok(()),
        }
    }

    pub fn publish(&self, entry: &Entry, key: &str, bytes: &[u8], rule: PublishRule) -> Result<()> {
        self.is_free(entry, key)?;
        let condition = self.condition(key, rule);
        let published = self.bucket.publish(key, bytes, &self.meta(entry), &condition);
        published.map_err(|failure| failure.on("publish", key))
    }

    /// What a listing says of a name; nothing where it has to be asked.
    fn child(&self, above: &Directory, name: &Name) -> Result<Option<Child>> {
        let key = format!("{}{}", above.prefix, of_name(name.as_bytes()));
        if self.written.lock().unwrap().contains(&self.bucket.number(&key, "")) {
            return Ok(None);
        }
        let children = above.children(&self.bucket)?;
        Ok(children.map(|children| children.names.get(name.as_bytes()).cloned().unwrap_or_default()))
    }

    /// What stands at the name of a file or link.
    fn there(&self, entry: &Entry) -> Result<Option<Object>> {
        let (above, key) = (self.directory(entry.parent)?, self.key(entry)?);
        let looked = |failure: Failure| failure.on("look at", &key);
        match self.child(&above, &entry.name)? {
            Some(Child { object: None, is_directory: false }) => return Ok(None),
            Some(Child { object: None, is_directory: true }) => {
                let why = "a directory stands where a file is to be";
                return Err(fault(FailureKind::InTheWay, "write file", entry, why));
            }
            Some(Child { object: Some(_), .. }) | None => {}
        }
        self.bucket.head(&key).map_err(looked)
    }

    fn decide(&self, entry: &Entry) -> Result<Decision> {
        let there = self.there(entry)?;
        let key = self.key(entry)?;
        let Some(there) = there else {
            self.decided.lock().unwrap().insert(key, Condition::Absent);
            return Ok(Decision::Absent);
        };
        let is_file = !there.mode.is_some_and(metadata::is_link);
        let modified = there.modified();
        if is_file && there.size_bytes == entry.size_bytes() && modified == entry.generation.modified {
            return Ok(Decision::Same);
        }
        self.decided.lock().unwrap().insert(key, Condition::Is(there.etag));
        Ok(Decision::Replace { size_bytes: there.size_bytes, there: There { is_file, modified } })
    }

    fn find_directory(&self, entry: &Entry) -> Result<Arc<Directory>> {
        let (above, key) = (self.directory(entry.parent)?, self.key(entry)?);
        let directory = Directory::new(format!("{key}/"), [&above.path, entry.name.as_bytes(), b"/"].concat());
        match self.child(&above, &entry.name)? {
            Some(Child { object: Some(_), .. }) => {
                let why = "a file stands where a directory is needed";
                return Err(fault(FailureKind::InTheWay, "make directory", entry, why));
            }
            Some(Child { object: None, is_directory: false }) => {
                directory.state.lock().unwrap().listed = Some(Some(Arc::default()));
            }
            Some(Child { object: None, is_directory: true }) => {}
            None => _ = directory.children(&self.bucket)?,
        }
        self.written.lock().unwrap().insert(self.bucket.number(&directory.prefix, ""));
        self.directories.lock().unwrap().insert(entry.id, directory.clone());
        Ok(directory)
    }

    /// Makes the marker of a directory.
    fn mark(&self, directory: &Directory, entry: &Entry) -> Result<()> {
        let put = self.bucket.put(&directory.prefix, b"", &self.meta(entry), &Condition::Any);
        put.map(drop).map_err(|failure| failure.on("make directory", &directory.prefix))
    }
}

impl ObjectSink {
    /// A destination at a prefix, which is empty or ends in a slash.
    pub fn new(bucket: Arc<Bucket>, prefix: String, keeps: Fidelity, is_rehearsal: bool) -> ObjectSink {
        let root = Directory::new(prefix, Vec::new());
        let directories = Mutex::new(HashMap::from([(ObjectId::ROOT, root)]));
        let job = Job {
            bucket,
            held: Held::default(),
            is_rehearsal,
            keeps,
            directories,
            decided: Mutex::default(),
            written: Mutex::default(),
        };
        ObjectSink { job: Arc::new(job) }
    }

    /// Removes one name with all below it; false when something of it stays.
    fn prune_one(&self, above: &str, name: &[u8], child: &Child, path: &[u8], prune: &mut Prune<'_>) -> bool {
        let failed = |prune: &mut Prune<'_>, failure: &Failure| {
            let error = failure.on("remove", "");
            (prune.failed)(model::Failure { path: path.to_vec(), kind: error.kind, message: error.message() });
            false
        };
        let key = format!("{above}{}", of_name(name));
        let mut is_gone = true;
        if child.is_directory {
            let fate = (prune.fate)(path, true);
            if fate == Fate::Spare {
                return false;
            }
            let below = format!("{key}/");
            let children = match self.job.bucket.children(&below, usize::MAX) {
                Ok(children) => children.unwrap_or_default(),
                Err(failure) => return failed(prune, &failure),
            };
            is_gone &= children.odd.is_empty();
            for (name, child) in &children.names {
                is_gone &= self.prune_one(&below, name, child, &[path, b"/", name].concat(), prune);
            }
            is_gone &= fate == Fate::Remove && (prune.goes_on)();
            if is_gone
                && children.marker.is_some()
                && !prune.is_rehearsal
                && let Err(failure) = self.job.bucket.delete(&below)
            {
                return failed(prune, &failure);
            }
            if is_gone {
                (prune.removed)(path, true);
            }
        }
        if child.object.is_some() {
            if (prune.fate)(path, false) != Fate::Remove || !(prune.goes_on)() {
                return false;
            }
            if !prune.is_rehearsal
                && let Err(failure) = self.job.bucket.delete(&key)
            {
                return failed(prune, &failure);
            }
            (prune.removed)(path, false);
        }
        is_gone
    }
}

impl Sink for ObjectSink {
    fn facts(&self) -> Result<SinkFacts> {
        Ok(SinkFacts {
            file_system: "s3",
            is_memory_backed: false,
            free_bytes: u64::MAX,
            free_inodes: None,
            order: Order::Any,
            part_rule: None,
            shares_on: None,
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
        if directory.is_new() && !self.job.is_rehearsal {
            self.job.mark(&directory, entry)?;
        }
        Ok(())
    }

    fn look_directory(&self, entry: &Entry) -> Result<()> {
        self.job.find_directory(entry).map(drop)
    }

    fn is_fresh(&self, directory: ObjectId) -> bool {
        self.job.directory(directory).is_ok_and(|directory| directory.is_new())
    }

    fn open_published(&self, entry: &Entry) -> Result<Arc<dyn SourceFile>> {
        Ok(Arc::new(ObjectFile::open(&self.job.bucket, &self.job.key(entry)?)?))
    }

    fn touch(&self, entry: &Entry) -> Result<()> {
        if self.job.is_rehearsal {
            return Ok(());
        }
        let key = self.job.key(entry)?;
        let failed = |failure: Failure| failure.on("set time", &key);
        let there = self.job.bucket.head(&key).map_err(failed)?;
        let there = there.ok_or_else(|| fault(FailureKind::NotFound, "set time", entry, "no such object"))?;
        let meta = self.job.meta(entry);
        self.job.bucket.copy((&key, &there.etag), &key, Some(&meta), &Condition::Any).map_err(failed)
    }

    fn prune(&self, prune: &mut Prune<'_>) {
        prune.is_rehearsal |= self.job.is_rehearsal;
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
                    return;
                }
                let is_listed = Name::new(name).is_ok_and(|name| (prune.is_listed)(*id, &name));
                if !is_listed {
                    self.prune_one(&directory.prefix, name, child, &[&directory.path[..], name].concat(), prune);
                }
            }
        }
    }

    fn make_symlink(&self, entry: &Entry, rule: PublishRule) -> Result<bool> {
        let Kind::Symlink(target) = &entry.kind else {
            return Err(fault(FailureKind::Special, "make symbolic link", entry, "it is none"));
        };
        let (there, key) = (self.job.there(entry)?, self.job.key(entry)?);
        let is_link = there.as_ref().is_some_and(|there| there.mode.is_some_and(metadata::is_link));
        if is_link && self.job.bucket.read_whole(&key, target.len())?.0 == target[..] {
            return Ok(false);
        }
        if let Some(there) = &there {
            if rule == PublishRule::NoReplace {
                return Err(fault(FailureKind::InTheWay, "make symbolic link", entry, "something has that name"));
            }
            self.job.decided.lock().unwrap().insert(key.clone(), Condition::Is(there.etag.clone()));
        }
        if !self.job.is_rehearsal {
            self.job.publish(entry, &key, target, rule)?;
        }
        Ok(true)
    }

    fn make_hard_link(&self, _: &Entry, entry: &Entry, _: LinkRule) -> Result<Linked> {
        Err(fault(FailureKind::Other, "link", entry, "an object has one name"))
    }

    fn decide(&self, entry: &Entry) -> Result<Decision> {
        self.job.decide(entry)
    }

    fn decide_group(&self, group: &mut dyn Iterator<Item = &Entry>, found: &mut Vec<Result<Decision>>) {
        let entries: Vec<&Entry> = group.collect();
        found.extend(in_parallel(&entries, |entry| self.job.decide(entry)));
    }

    fn lane(&self, _: bool) -> Result<Box<dyn SinkLane>> {
        Ok(Box::new(ObjectSinkLane::new(self.job.clone())))
    }

    fn begin(&self, entry: &Entry, _: &str) -> Result<(Arc<dyn StagedFile>, Vec<u8>)> {
        self.job.may_write()?;
        let key = self.job.key(entry)?;
        Ok((Arc::new(ObjectUpload::begin(self.job.clone(), entry, key)), Vec::new()))
    }

    fn has_journal(&self, _: &Entry, _: &str) -> bool {
        false
    }

    /// What a store has confirmed is durable.
    fn sync_group(&self, _: &mut dyn Iterator<Item = Staged>) -> Result<bool> {
        Ok(true)
    }

    fn publish(&self, entry: &Entry, staged: Staged) -> Result<()> {
        self.job.publish_held(entry, staged)
    }

    fn publish_group(&self, group: &[ToPublish<'_>], published: &mut dyn FnMut(usize, Result<()>) -> bool) {
        // So many at once that one who stops is heard.
        const AT_ONCE: usize = 256;
        for (number, some) in group.chunks(AT_ONCE).enumerate() {
            let results = in_parallel(some, |one| self.job.publish_held(one.entry, one.staged));
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
        self.job.held.take(staged.number());
    }

    fn reread(&self, entry: &Entry, _: Staged, _: &mut dyn FnMut(&[u8])) -> Result<()> {
        Err(fault(FailureKind::ReadError, "read back", entry, "an object store keeps nothing before it is published"))
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
        let is_same = |there: Object| {
            there.modified == Some(entry.generation.modified)
                && there.mode.is_some_and(|mode| mode & 0o7777 == entry.mode)
        };
        if there.is_some_and(is_same) { Ok(()) } else { self.job.mark(&directory, entry) }
    }

    fn close(&self) {
        self.job.held.clear();
    }

    fn path(&self, entry: &Entry) -> Vec<u8> {
        let above = self.job.directory(entry.parent);
        [above.map_or(Vec::new(), |above| above.path.clone()), entry.name.as_bytes().to_vec()].concat()
    }
}
