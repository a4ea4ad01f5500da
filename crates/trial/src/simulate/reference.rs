//! The specification, in its shortest form: which objects there are in which versions, and what was promised of them.
//!
//! It hears every message of a job as it leaves its sender, and judges states of the destination: what a reader sees
//! now, and what a power loss may leave. It shares no code with what it judges but the message types.

use super::disk::Content;
use super::image::{Found, Image};
use mover::CloseCode;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;
use wire::Message;
use wire::message::Run;

/// Kinds of an entry in a listing.
const DIRECTORY: u32 = 1;
const OTHER_NAME: u32 = 9;
/// Where the job's objects go, below the served root.
pub const DESTINATION: &[u8] = b"to";

/// An object that may stand at a destination path.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Version {
    File {
        bytes: Vec<u8>,
        modified: (i64, i64),
        /// Where the job keeps it.
        kept: Option<Kept>,
    },
    Link(Vec<u8>),
    /// Its type, and the device's number.
    Special(u32, u64),
    Directory,
}

/// What of a file is kept besides content and time.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Kept {
    pub mode: u32,
    pub owner: (u32, u32),
    pub attributes: BTreeMap<Vec<u8>, Vec<u8>>,
}

/// What a job does beside copying.
#[derive(Clone, Default, Debug)]
pub struct Goal {
    /// What the source does not have is removed.
    pub deletes: bool,
    /// Where what is replaced or removed goes, below the destination.
    pub backup: Option<Vec<u8>>,
    /// The wait for names covers what was set of files that were there: the file system has a journal.
    pub has_journal: bool,
}

#[derive(Clone, Default, Debug)]
struct Object {
    /// What stood at the destination before the first attempt.
    before: Option<Version>,
    /// What the source had, oldest first.
    source: Vec<Version>,
}

#[derive(Default)]
struct State {
    objects: BTreeMap<Vec<u8>, Object>,
    /// Of the running attempt: where each id goes.
    paths: BTreeMap<u64, Vec<u8>>,
    settled: BTreeSet<u64>,
    skipped: Vec<Vec<u8>>,
    directories: Vec<Vec<u8>>,
    other_names: Vec<Vec<u8>>,
    /// The sender said, in any attempt, that everything is settled.
    may_delete: bool,
    goal: Goal,
    /// Paths of which the receiver said that they are published and durable, in any attempt.
    promised: BTreeSet<Vec<u8>>,
    /// Those of them that it made, or found in the first attempt: what a later one finds may have got its attributes by an
    /// attempt that died before they were durable, which nothing tells without a journal.
    made: BTreeSet<Vec<u8>>,
    /// A call on attributes failed, or the sync of those of a file that was there, which is a warning: until the clean attempt
    /// they may be anything.
    is_excused: bool,
    attempts: u32,
    /// What the receiver said of objects that failed, in this attempt.
    failures: Vec<String>,
    broken: Option<String>,
}

#[derive(Default)]
pub struct Reference {
    state: Mutex<State>,
}

impl Reference {
    /// The source has a new version of the object at `path` (relative to the source).
    /// What is not content stays as it was.
    pub fn source_has(&self, path: &[u8], mut version: Version) {
        let mut state = self.state.lock().unwrap();
        let object = state.objects.entry(path.to_vec()).or_default();
        if let (Version::File { kept, .. }, Some(Version::File { kept: before, .. })) =
            (&mut version, object.source.last())
        {
            kept.clone_from(before);
        }
        object.source.push(version);
    }

    /// What of the newest version is kept besides content.
    pub fn source_keeps(&self, path: &[u8], beside: Kept) {
        let mut state = self.state.lock().unwrap();
        let newest = state.objects.get_mut(path).and_then(|object| object.source.last_mut());
        if let Some(Version::File { kept, .. }) = newest {
            *kept = Some(beside);
        }
    }

    /// Attributes may be missing from now on, or are all to be there in the end.
    pub fn excuse_attributes(&self, is_excused: bool) {
        self.state.lock().unwrap().is_excused = is_excused;
    }

    pub fn job_is_to(&self, goal: Goal) {
        self.state.lock().unwrap().goal = goal;
    }

    pub fn destination_had(&self, path: &[u8], version: Version) {
        self.state.lock().unwrap().objects.entry(path.to_vec()).or_default().before = Some(version);
    }

    /// Ids are of one attempt; promises stay.
    pub fn next_attempt(&self) {
        let mut state = self.state.lock().unwrap();
        state.attempts += 1;
        state.paths.clear();
        state.settled.clear();
        state.skipped.clear();
        state.directories.clear();
        state.other_names.clear();
        state.failures.clear();
    }

    pub fn failures(&self) -> Vec<String> {
        self.state.lock().unwrap().failures.clone()
    }

    /// Whether the object at `path` was described in this attempt and is not settled yet.
    pub fn is_under_way(&self, path: &[u8]) -> bool {
        let state = self.state.lock().unwrap();
        // What is described again has a higher id.
        let newest = state.paths.iter().rev().find(|(_, described)| *described == path);
        newest.is_some_and(|(id, _)| !state.settled.contains(id))
    }

    /// The first promise or count that was broken by a message.
    pub fn broken(&self) -> Option<String> {
        self.state.lock().unwrap().broken.clone()
    }

    pub fn saw(&self, message: &Message) {
        let mut state = self.state.lock().unwrap();
        match message {
            Message::Entries(entries) => {
                for (id, record) in (entries.first..).zip(&entries.entries) {
                    let mut path = state.paths.get(&record.parent).cloned().unwrap_or_default();
                    if !path.is_empty() {
                        path.push(b'/');
                    }
                    path.extend_from_slice(&record.name);
                    match record.kind {
                        DIRECTORY => state.directories.push(path.clone()),
                        OTHER_NAME => state.other_names.push(path.clone()),
                        _ => {}
                    }
                    state.paths.insert(id, path);
                }
            }
            Message::Settled(settled) => {
                for id in ids(&settled.published) {
                    state.settle(id);
                    if let Some(path) = state.paths.get(&id).cloned() {
                        state.made.insert(path.clone());
                        state.promised.insert(path);
                    }
                }
                for id in ids(&settled.skipped) {
                    state.settle(id);
                    if let Some(path) = state.paths.get(&id).cloned() {
                        state.skipped.push(path);
                    }
                }
                for record in &settled.failed {
                    state.failures.push(record.text.clone());
                    state.settle(record.object);
                }
            }
            Message::Finished(finished) => {
                state.failures.extend(finished.failures.iter().map(|record| record.text.clone()));
                let skipped = std::mem::take(&mut state.skipped);
                if state.attempts == 1 {
                    state.made.extend(skipped.iter().cloned());
                }
                state.promised.extend(skipped);
                if finished.failures.is_empty() {
                    let directories = std::mem::take(&mut state.directories);
                    let other_names = std::mem::take(&mut state.other_names);
                    state.promised.extend(directories.into_iter().chain(other_names));
                }
            }
            Message::Finish(_) => state.may_delete = true,
            Message::Cancel(cancel) if cancel.code == CloseCode::Internal as u32 && cancel.text.contains("bug") => {
                state.broken.get_or_insert(format!("the program says of itself: {}", cancel.text));
            }
            _ => {}
        }
    }

    /// Judges a state of the served root. `is_durable` says that promises must hold in it.
    pub fn check(&self, image: &Image, is_durable: bool) -> Result<(), String> {
        let state = self.state.lock().unwrap();
        let below = [DESTINATION, b"/"].concat();
        for (path, found) in image {
            if path == DESTINATION || path.starts_with(store::posix::facts::STAGING_PREFIX) {
                continue;
            }
            let Some(path) = path.strip_prefix(&below[..]) else {
                return Err(format!("I5: {} was made outside the destination", show(path)));
            };
            let (path, is_backup) = match state.backed_up(path) {
                Some(path) => (path, true),
                None => (path, false),
            };
            if is_backup && *found == Found::Directory {
                continue;
            }
            let object =
                state.objects.get(path).ok_or_else(|| format!("I1: {} is no object of the job", show(path)))?;
            if !object.has_version(found) {
                return Err(format!("I1: {} is neither an old nor a new object: {}", show(path), brief(found)));
            }
        }
        for (path, object) in &state.objects {
            let found = image.get(&[&below[..], path].concat());
            if found.is_none() && object.before.is_some() {
                state.check_gone(path, object, image)?;
            }
            if !is_durable || !state.promised.contains(path) {
                continue;
            }
            let has_all = !state.is_excused && (state.goal.has_journal || state.made.contains(path));
            if !found.is_some_and(|found| object.source.iter().any(|version| version.is_kept(found, has_all))) {
                let what = found.map_or("absent".to_owned(), brief);
                return Err(format!("I2: {} was promised and is not kept: {what}", show(path)));
            }
            // Of what a killed attempt replaced its successor sees only that it is done; and of several versions one is kept,
            // with a moment between the older one's end and the newer one's beginning.
            let is_replaced = object.was_replaced() && object.source.len() == 1 && state.made.contains(path);
            if is_replaced && state.lacks_backup(path, object, image) {
                return Err(format!("I2: {} was promised, and what it replaced is not kept", show(path)));
            }
        }
        Ok(())
    }

    /// Judges the state after an attempt that was finished, and that reported so many objects as failed: the others are the
    /// newest version of the source.
    pub fn check_delivered(&self, image: &Image, failed: u64) -> Result<(), String> {
        let state = self.state.lock().unwrap();
        let mut excused = failed;
        for (path, object) in &state.objects {
            let found = image.get(&[DESTINATION, b"/", path].concat());
            if let Some(newest) = object.source.last()
                && !found.is_some_and(|found| newest.is_kept(found, !state.is_excused))
            {
                if excused == 0 {
                    let what = found.map_or("absent".to_owned(), brief);
                    let why = format!("{failed} failed, and {} is not the source's: {what}", show(path));
                    return Err(format!("I7: success, {why}"));
                }
                excused -= 1;
            }
        }
        Ok(())
    }

    /// Judges the state after a clean attempt: everything is the newest version of the source, and nothing else is there.
    /// `was_clean` says that no attempt before it was cut off.
    pub fn check_end(&self, image: &Image, was_clean: bool) -> Result<(), String> {
        self.check_delivered(image, 0)?;
        let state = self.state.lock().unwrap();
        let is_there = |path: &Vec<u8>| image.contains_key(&[DESTINATION, b"/", path].concat());
        let extra = state.objects.iter().find(|(path, object)| object.source.is_empty() && is_there(path));
        if let (true, Some((path, _))) = (state.goal.deletes, extra) {
            return Err(format!("I7: success, and {} is still there", show(path)));
        }
        // What a dead attempt left of large files and links may be kept for a week, with the directory it lies in.
        let is_kept = |path: &[u8]| {
            let name = path.split(|byte| *byte == b'/').nth(2);
            name.is_none_or(|name| name.ends_with(b".data") || name.ends_with(b".log") || name.starts_with(b"link-"))
        };
        let in_staging = |path: &&Vec<u8>| path.starts_with(store::posix::facts::STAGING_PREFIX);
        match image.keys().filter(in_staging).find(|path| was_clean || !is_kept(path)) {
            Some(path) => Err(format!("I20: {} is left in staging", show(path))),
            None => Ok(()),
        }
    }
}

impl State {
    /// The path of which this one is the place among the backups; empty for those above it.
    fn backed_up<'a>(&self, path: &'a [u8]) -> Option<&'a [u8]> {
        let backup = self.goal.backup.as_ref()?;
        let rest = path.strip_prefix(&backup[..])?;
        if rest.is_empty() { Some(rest) } else { rest.strip_prefix(b"/") }
    }

    fn lacks_backup(&self, path: &[u8], object: &Object, image: &Image) -> bool {
        let Some(backup) = &self.goal.backup else { return false };
        let there = image.get(&[DESTINATION, b"/", backup, b"/", path].concat());
        !there.is_some_and(|there| object.has_version(there))
    }

    /// An object that stood there before is gone.
    fn check_gone(&self, path: &[u8], object: &Object, image: &Image) -> Result<(), String> {
        if !(self.goal.deletes && object.source.is_empty()) {
            return Err(format!("I1: the old object {} is gone and no new one is there", show(path)));
        }
        if !self.may_delete {
            return Err(format!("I18: {} was removed before everything else was done", show(path)));
        }
        // A directory that is gone although storage still holds something in it is this disk's doing: its changes have no
        // order, which a journal keeps and every file system keeps so far.
        let above = path.iter().rposition(|byte| *byte == b'/').map_or(&b""[..], |at| &path[..at]);
        if !above.is_empty() && !image.contains_key(&[DESTINATION, b"/", above].concat()) {
            return Ok(());
        }
        let is_moved = object.before != Some(Version::Directory) && !self.goal.has_journal;
        if is_moved && self.lacks_backup(path, object, image) {
            return Err(format!("I18: {} was removed and is not among the backups", show(path)));
        }
        Ok(())
    }

    fn settle(&mut self, id: u64) {
        if !self.settled.insert(id) {
            self.broken.get_or_insert(format!("I3: object {id} was settled twice"));
        }
    }
}

impl Object {
    fn has_version(&self, found: &Found) -> bool {
        self.before.iter().chain(&self.source).any(|version| version.is_found(found))
    }

    /// What stood there before cannot have been taken for the source's.
    fn was_replaced(&self) -> bool {
        let time = |version: &Version| match version {
            Version::File { modified, .. } => *modified,
            _ => (0, 0),
        };
        match &self.before {
            Some(before @ Version::File { .. }) => self.source.iter().all(|version| time(version) != time(before)),
            _ => false,
        }
    }
}

impl Version {
    fn is_found(&self, found: &Found) -> bool {
        match (self, found) {
            (Version::File { bytes, .. }, Found::File(content)) => *bytes == content.bytes,
            (Version::Link(target), Found::Link(there)) => target == there,
            (Version::Special(kind, device), Found::Special(there, number)) => (kind, device) == (there, number),
            (Version::Directory, Found::Directory) => true,
            _ => false,
        }
    }

    /// As `is_found`, with the time and all else that the source gave it: what was stored of it is complete.
    /// `has_all`: also what a job keeps beside time.
    fn is_kept(&self, found: &Found, has_all: bool) -> bool {
        self.is_found(found)
            && match (self, found) {
                (Version::File { modified, kept, .. }, Found::File(content)) => {
                    *modified == content.modified && (!has_all || kept.as_ref().is_none_or(|kept| kept.is_of(content)))
                }
                _ => true,
            }
    }
}

fn ids(runs: &[Run]) -> impl Iterator<Item = u64> + '_ {
    runs.iter().flat_map(|run| run.first..run.first + run.count)
}

impl Kept {
    fn is_of(&self, content: &Content) -> bool {
        let there = (content.mode & 0o7777, content.owner, &content.attributes);
        (self.mode, self.owner, &self.attributes) == there
    }
}

fn show(path: &[u8]) -> String {
    model::name::Escaped(path).to_string()
}

fn brief(found: &Found) -> String {
    match found {
        Found::File(Content { bytes, modified, mode, owner, attributes }) => {
            let zeros = bytes.iter().filter(|byte| **byte == 0).count();
            let (length, kept) = (bytes.len(), attributes.len());
            let time = format!("modified {}.{:09}", modified.0, modified.1);
            format!("a file of {length} bytes ({zeros} of them zero), {time}, {mode:o} of {owner:?}, {kept} attributes")
        }
        Found::Link(target) => format!("a link to {}", show(target)),
        Found::Special(kind, device) => format!("a special file of type {kind:o}, number {device}"),
        Found::Directory => "a directory".to_owned(),
    }
}
