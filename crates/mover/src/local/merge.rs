//! Source and destination compared in the order of keys: of the source only what differs is described, and what the destination alone
//! has is put down to be removed.
//!
//! Both sides are listed once, beside one another, so that memory grows neither with keys nor with files. Where the time of a file at
//! the destination is not known from its listing, the file is described, and decided on as any other. Where that of one at the source
//! is not, it is asked for only if something stands at its name, many at once; else it is described without it, and told when it is read.
//!
//! Invariants:
//! - A name that the source told of is never put down to be removed, whatever it is at the destination, and neither is what is
//!   below it there if it is no directory at the source.
//! - A side that comes out of order, or cannot be listed whole, ends the comparison: everything from there on is described, and
//!   nothing is removed.

use crate::progress::{Progress, count};
use crate::receiver::Surplus;
use model::options::Compare;
use model::{Failure, FailureKind, Kind, ObjectId, Timestamp, TransferOptions};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use store::{Footing, Found, Result, Sink, Source, SourceFacts, SourceLane, SourceObject, UNKNOWN_TIME, keys};
use wire::limits::PACKED_FILE_BYTES_MAX;

/// Entries of the destination that are handed over at once, and how many such batches may wait.
const BATCH: usize = 512;
const BATCHES_AHEAD: usize = 16;
/// Where nothing is to be removed: so many entries that the source does not have, and so many times what it has, are enough.
const FOREIGN_MAX: u64 = 100_000;
const FOREIGN_TIMES: u64 = 4;
/// Objects that wait for what some of them are asked for.
const WAITING_MAX: usize = 1000;

pub struct Merge {
    source: Arc<dyn Source>,
    mirror: Arc<dyn Source>,
    options: TransferOptions,
    progress: Arc<Progress>,
    /// A store's directories have no time of their own that others would set.
    is_store: bool,
    pub surplus: Arc<Surplus>,
}

/// Puts a comparison before the source where one is of use; then also what it finds that is to be removed.
pub fn before(
    source: Arc<dyn Source>,
    sink: &Arc<dyn Sink>,
    (options, is_renamed): (&TransferOptions, bool),
    progress: &Arc<Progress>,
) -> (Arc<dyn Source>, Option<Arc<Surplus>>) {
    match of(&source, sink, options, progress).filter(|_| !is_renamed) {
        Some(merge) => {
            let surplus = merge.surplus.clone();
            (Arc::new(merge), Some(surplus))
        }
        None => (source, None),
    }
}

/// Compares in the order of keys where one end is a store that lists so, and what is asked for can be decided by size and time.
fn of(
    source: &Arc<dyn Source>,
    sink: &Arc<dyn Sink>,
    options: &TransferOptions,
    progress: &Arc<Progress>,
) -> Option<Merge> {
    let is_plain = matches!(options.compare, Compare::Mtime | Compare::Size)
        && options.fidelity.is_none()
        && options.backup.is_none()
        && options.chmod.is_none()
        && options.follow.is_none()
        && options.view.is_none()
        && options.selection.bounds == Default::default()
        && options.selection.listed.is_none()
        && options.deletion.is_none_or(|deletion| deletion.is_at_root);
    if !is_plain {
        return None;
    }
    // Before the facts, for which some sinks ask a server.
    let mirror = sink.mirror()?;
    let is_store = sink.facts().ok()?.confirms;
    if !(is_store || source.facts().is_keyed) {
        return None;
    }
    if !source.sort_by_key() {
        return None;
    }
    // A store's sink has to know the time with which it sends an object.
    if !is_store {
        source.leave_times(PACKED_FILE_BYTES_MAX);
    }
    let (source, options, progress) = (source.clone(), options.clone(), progress.clone());
    Some(Merge { source, mirror, options, progress, is_store, surplus: Arc::default() })
}

/// An entry of the destination.
struct Standing {
    key: String,
    path: Vec<u8>,
    is_directory: bool,
    size_bytes: u64,
    modified: Timestamp,
}

/// Keys of entries as they come, a directory before what is in it.
#[derive(Default)]
struct Keys {
    /// The directories that are open, by their numbers, with the lengths of their keys and paths.
    open: Vec<(ObjectId, usize, usize)>,
    key: String,
    path: Vec<u8>,
}

impl Keys {
    /// Goes on to an entry; `key` and `path` are its own afterwards. How many directories are above it.
    fn enter(&mut self, object: &SourceObject) -> usize {
        let entry = &object.entry;
        while self.open.last().is_some_and(|(id, ..)| *id != entry.parent) {
            self.open.pop();
        }
        let depth = self.open.len();
        let (key_bytes, path_bytes) = self.open.last().map_or((0, 0), |(_, key, path)| (*key, *path));
        self.key.truncate(key_bytes);
        self.path.truncate(path_bytes);
        self.key.push_str(&keys::of_name(entry.name.as_bytes()));
        self.path.extend_from_slice(entry.name.as_bytes());
        if entry.kind == Kind::Directory {
            self.key.push('/');
            self.open.push((entry.id, self.key.len(), self.path.len() + 1));
            self.path.push(b'/');
        }
        depth
    }
}

fn standing(keys: &mut Keys, object: &SourceObject) -> Standing {
    keys.enter(object);
    let is_directory = object.entry.kind == Kind::Directory;
    let path = keys.path.strip_suffix(b"/").filter(|_| is_directory).unwrap_or(&keys.path).to_vec();
    Standing {
        key: keys.key.clone(),
        path,
        is_directory,
        size_bytes: match object.entry.kind {
            // Only files can be the same as files.
            Kind::File | Kind::Directory => object.entry.size_bytes(),
            _ => u64::MAX,
        },
        modified: object.entry.generation.modified,
    }
}

/// Hands over what stands at the destination.
fn reflect(mirror: &dyn Source, to: &SyncSender<Vec<Standing>>, surplus: &Surplus) {
    let (mut keys, mut batch, mut last) = (Keys::default(), Vec::new(), String::new());
    let listed = mirror.scan(&mut |found| {
        match found {
            Found::Object(object) => {
                let standing = standing(&mut keys, &object);
                if standing.key <= last {
                    let message = "list: what stands there does not come in order".to_owned();
                    surplus.not_listed(Failure { path: standing.path, kind: FailureKind::Other, message });
                    return false;
                }
                last.clone_from(&standing.key);
                batch.push(standing);
            }
            // What is no path, and staging, is nobody's to compare.
            Found::Failed(failure) if matches!(failure.kind, FailureKind::Special | FailureKind::NameRefused) => {}
            Found::Failed(failure) => surplus.not_listed(failure),
        }
        batch.len() < BATCH || to.send(std::mem::take(&mut batch)).is_ok()
    });
    if let Err(error) = listed {
        surplus.not_listed(Failure { path: Vec::new(), kind: error.kind, message: error.message() });
    }
    let _ = to.send(batch);
}

/// Whether a key comes behind a name and everything that lies below it as a directory.
fn is_past(key: &str, name: &str) -> bool {
    key.strip_prefix(name).map_or(key > name, |rest| rest.as_bytes().first() > Some(&b'/'))
}

/// An object of the source, with what stands at its name, that waits until it is known what is to be done.
struct Waiting {
    object: SourceObject,
    /// Directories above it.
    depth: usize,
    there: Option<Standing>,
    /// Its time has to be known.
    is_asked_for: bool,
}

/// A directory of the source that is open.
struct Open {
    /// Not described yet: nothing in it is, so far.
    waiting: Option<SourceObject>,
    /// Its number among what is described.
    number: ObjectId,
}

struct Merging<'a> {
    merge: &'a Merge,
    emit: &'a mut dyn FnMut(Found) -> bool,
    /// None when it has no more, or nothing is compared any more.
    there: Option<Receiver<Vec<Standing>>>,
    is_given_up: bool,
    ahead: VecDeque<Standing>,
    keys: Keys,
    waiting: Vec<Waiting>,
    open: Vec<Open>,
    number: u64,
    last: String,
    /// Files that the destination alone has so far: the source may still tell of a directory of that name.
    doomed: Vec<Standing>,
    /// Keys of what is no directory at the source: nothing below them is removed.
    shadows: Vec<String>,
    seen: u64,
    foreign: u64,
}

impl Merging<'_> {
    fn removes(&self) -> bool {
        self.merge.options.deletion.is_some()
    }

    fn give_up(&mut self) {
        self.is_given_up = true;
        self.there = None;
        self.ahead.clear();
        if self.removes() {
            self.merge.surplus.note_gap();
        }
    }

    fn next(&mut self) -> Option<&Standing> {
        while self.ahead.is_empty() {
            match self.there.as_ref()?.recv() {
                Ok(batch) => self.ahead.extend(batch),
                Err(_) => self.there = None,
            }
        }
        self.ahead.front()
    }

    /// Passes over what the destination has before a key, and returns what it has there.
    fn advance(&mut self, key: &str) -> Option<Standing> {
        loop {
            let next = self.next()?;
            if next.key.as_str() > key {
                return None;
            }
            let standing = self.ahead.pop_front()?;
            if standing.key == key {
                return Some(standing);
            }
            self.pass(standing, Some(key));
        }
    }

    /// The destination has something that the source, which has come to `key` or its end, does not.
    fn pass(&mut self, standing: Standing, key: Option<&str>) {
        self.foreign += 1;
        if !self.removes() {
            if self.foreign > FOREIGN_MAX && self.foreign > FOREIGN_TIMES * self.seen {
                self.give_up();
            }
            return;
        }
        let is_below =
            |shadow: &String| standing.key.strip_prefix(shadow.as_str()).is_some_and(|rest| rest.starts_with('/'));
        if self.shadows.iter().any(is_below) {
            return;
        }
        match standing.is_directory || key.is_none_or(|key| is_past(key, &standing.key)) {
            true => self.merge.surplus.add(&standing.path, standing.is_directory),
            false => self.doomed.push(standing),
        }
    }

    /// The source has come to a key: what depended on what it has before that is settled.
    fn settle(&mut self, key: &str) {
        let surplus = &self.merge.surplus;
        self.doomed.retain(|doomed| {
            let is_directory = key.strip_prefix(&doomed.key).is_some_and(|rest| rest.starts_with('/'));
            let is_past = is_past(key, &doomed.key);
            if is_past {
                surplus.add(&doomed.path, false);
            }
            !is_directory && !is_past
        });
        self.shadows.retain(|shadow| !is_past(key, shadow));
    }

    fn take(&mut self, found: Found) -> bool {
        if self.merge.surplus.is_over() {
            return false;
        }
        let object = match found {
            Found::Object(object) => object,
            Found::Failed(failure) => {
                self.failed(&failure);
                return (self.emit)(Found::Failed(failure));
            }
        };
        let depth = self.keys.enter(&object);
        let key = std::mem::take(&mut self.keys.key);
        if key <= self.last {
            self.give_up();
        }
        let there = self.advance(&key);
        self.settle(&key);
        self.seen += 1;
        let is_directory = object.entry.kind == Kind::Directory;
        if !is_directory && self.removes() {
            self.shadows.push(key.clone());
        }
        self.last.clone_from(&key);
        self.keys.key = key;
        let is_timeless = object.entry.kind == Kind::File && object.entry.generation.modified == UNKNOWN_TIME;
        let is_blind = self.is_given_up || self.merge.surplus.is_blind();
        let is_asked_for = is_timeless && (there.is_some() || is_blind);
        let next = Waiting { object, depth, there, is_asked_for };
        if self.waiting.is_empty() && !is_asked_for {
            return self.decide(next);
        }
        self.waiting.push(next);
        self.waiting.len() < WAITING_MAX || self.decide_waiting()
    }

    /// Asks for what has to be known, and goes on with all that waited for it.
    fn decide_waiting(&mut self) -> bool {
        let waiting = std::mem::take(&mut self.waiting);
        let source = &self.merge.source;
        let asked: Vec<_> = waiting.iter().filter(|one| one.is_asked_for).map(|one| &one.object).collect();
        let mut told = source.look_again_at_all(&asked).into_iter();
        for mut one in waiting {
            let goes_on = match one.is_asked_for.then(|| told.next()).flatten() {
                Some(Ok(object)) => {
                    one.object = object;
                    self.decide(one)
                }
                Some(Err(error)) => {
                    self.merge.surplus.note_gap();
                    let (path, message) = (source.path(&one.object), error.message());
                    (self.emit)(Found::Failed(Failure { path, kind: error.kind, message }))
                }
                None => self.decide(one),
            };
            if !goes_on {
                return false;
            }
        }
        true
    }

    fn decide(&mut self, Waiting { mut object, depth, there, .. }: Waiting) -> bool {
        self.open.truncate(depth);
        let is_same = there.is_some_and(|there| self.is_same(&there, &object));
        if object.entry.kind == Kind::Directory {
            let waiting = Some(object);
            self.open.push(Open { waiting, number: ObjectId::ROOT });
            if is_same {
                count(&self.merge.progress.counters.directories, 1);
                return true;
            }
            return self.describe_above();
        }
        if is_same {
            let (counters, size_bytes) = (&self.merge.progress.counters, object.entry.size_bytes());
            [&counters.files_listed, &counters.files_skipped].into_iter().for_each(|counter| count(counter, 1));
            [&counters.bytes_listed, &counters.bytes_skipped].into_iter().for_each(|bytes| count(bytes, size_bytes));
            return true;
        }
        if !self.describe_above() {
            return false;
        }
        self.describe(&mut object);
        (self.emit)(Found::Object(object))
    }

    fn is_same(&self, there: &Standing, object: &SourceObject) -> bool {
        let entry = &object.entry;
        let is_same_time = there.modified == entry.generation.modified;
        match entry.kind {
            Kind::Directory => self.merge.is_store || is_same_time,
            Kind::File => {
                let is_enough = is_same_time || self.merge.options.compare == Compare::Size;
                is_enough && there.size_bytes == entry.size_bytes() && !object.is_open_ended()
            }
            _ => false,
        }
    }

    /// Gives an object the next number, and the number of what it is in.
    fn describe(&mut self, object: &mut SourceObject) {
        self.number += 1;
        let above = self.open.iter().rev().find(|open| open.waiting.is_none());
        (object.entry.id, object.entry.parent) =
            (ObjectId(self.number), above.map_or(ObjectId::ROOT, |open| open.number));
    }

    /// Describes the directories that are open and were not described so far.
    fn describe_above(&mut self) -> bool {
        for at in 0..self.open.len() {
            let Some(mut object) = self.open[at].waiting.take() else { continue };
            self.number += 1;
            let parent = at.checked_sub(1).map_or(ObjectId::ROOT, |above| self.open[above].number);
            (object.entry.id, object.entry.parent) = (ObjectId(self.number), parent);
            self.open[at].number = object.entry.id;
            if !(self.emit)(Found::Object(object)) {
                return false;
            }
        }
        true
    }

    /// What the source has and does not copy stays; of what it could not list nothing is known.
    fn failed(&mut self, failure: &Failure) {
        match failure.kind {
            FailureKind::Special => {
                let parts: Vec<_> = failure.path.split(|byte| *byte == b'/').map(keys::of_name).collect();
                let key = parts.join("/");
                let _ = self.advance(&key);
                self.doomed.retain(|doomed| doomed.key != key);
                self.shadows.push(key);
            }
            FailureKind::Duplicate => {}
            _ => self.merge.surplus.note_gap(),
        }
    }

    /// The source has no more.
    fn finish(&mut self) {
        while self.removes()
            && self.next().is_some()
            && let Some(standing) = self.ahead.pop_front()
        {
            self.pass(standing, None);
        }
        for doomed in std::mem::take(&mut self.doomed) {
            self.merge.surplus.add(&doomed.path, false);
        }
    }
}

impl Source for Merge {
    fn facts(&self) -> SourceFacts {
        self.source.facts()
    }

    fn scan(&self, emit: &mut dyn FnMut(Found) -> bool) -> Result<()> {
        let (to, there) = sync_channel(BATCHES_AHEAD);
        std::thread::scope(|scope| {
            let run = move || reflect(&*self.mirror, &to, &self.surplus);
            let spawned = std::thread::Builder::new().name("mirror".into()).spawn_scoped(scope, run);
            let mut merging = Merging {
                merge: self,
                emit,
                there: Some(there),
                is_given_up: false,
                ahead: VecDeque::new(),
                keys: Keys::default(),
                waiting: Vec::new(),
                open: Vec::new(),
                number: 0,
                last: String::new(),
                doomed: Vec::new(),
                shadows: Vec::new(),
                seen: 0,
                foreign: 0,
            };
            if spawned.is_err() {
                merging.give_up();
            }
            let mut is_whole = true;
            let scanned = self.source.scan(&mut |found| {
                is_whole = merging.take(found);
                is_whole
            });
            let is_whole = is_whole && scanned.is_ok() && merging.decide_waiting();
            match is_whole {
                true => merging.finish(),
                false => self.surplus.note_gap(),
            }
            scanned
        })
    }

    fn lane(&self) -> Box<dyn SourceLane> {
        self.source.lane()
    }

    fn path(&self, object: &SourceObject) -> Vec<u8> {
        self.source.path(object)
    }

    fn look_again(&self, object: &SourceObject) -> Result<SourceObject> {
        self.source.look_again(object)
    }

    fn footing(&self, object: &SourceObject) -> Option<Footing> {
        self.source.footing(object)
    }

    fn owner_name(&self, is_group: bool, number: u32) -> Option<Box<[u8]>> {
        self.source.owner_name(is_group, number)
    }

    fn notes(&self) -> Vec<String> {
        self.source.notes()
    }

    fn take_warnings(&self) -> Vec<model::fidelity::Warning> {
        self.source.take_warnings()
    }
}

#[cfg(test)]
mod tests;
