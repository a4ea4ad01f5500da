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

/// Kind of an entry in a listing.
const DIRECTORY: u32 = 1;
/// Where the job's objects go, below the served root.
pub const DESTINATION: &[u8] = b"to";

/// An object that may stand at a destination path.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Version {
    File { bytes: Vec<u8>, modified: (i64, i64) },
    Link(Vec<u8>),
    Directory,
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
    /// Paths of which the receiver said that they are published and durable, in any attempt.
    promised: BTreeSet<Vec<u8>>,
    broken: Option<String>,
}

#[derive(Default)]
pub struct Reference {
    state: Mutex<State>,
}

impl Reference {
    /// The source has a new version of the object at `path` (relative to the source).
    pub fn source_has(&self, path: &[u8], version: Version) {
        self.state.lock().unwrap().objects.entry(path.to_vec()).or_default().source.push(version);
    }

    pub fn destination_had(&self, path: &[u8], version: Version) {
        self.state.lock().unwrap().objects.entry(path.to_vec()).or_default().before = Some(version);
    }

    /// Ids are of one attempt; promises stay.
    pub fn next_attempt(&self) {
        let mut state = self.state.lock().unwrap();
        state.paths.clear();
        state.settled.clear();
        state.skipped.clear();
        state.directories.clear();
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
                    if record.kind == DIRECTORY {
                        state.directories.push(path.clone());
                    }
                    state.paths.insert(id, path);
                }
            }
            Message::Settled(settled) => {
                for id in ids(&settled.published) {
                    state.settle(id);
                    if let Some(path) = state.paths.get(&id).cloned() {
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
                    state.settle(record.object);
                }
            }
            Message::Finished(finished) => {
                let skipped = std::mem::take(&mut state.skipped);
                state.promised.extend(skipped);
                if finished.failures.is_empty() {
                    let directories = std::mem::take(&mut state.directories);
                    state.promised.extend(directories);
                }
            }
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
            let object =
                state.objects.get(path).ok_or_else(|| format!("I1: {} is no object of the job", show(path)))?;
            if !object.before.iter().chain(&object.source).any(|version| version.is_found(found)) {
                return Err(format!("I1: {} is neither an old nor a new object: {}", show(path), brief(found)));
            }
        }
        for (path, object) in &state.objects {
            let found = image.get(&[&below[..], path].concat());
            if found.is_none() && object.before.is_some() {
                return Err(format!("I1: the old object {} is gone and no new one is there", show(path)));
            }
            if !is_durable || !state.promised.contains(path) {
                continue;
            }
            if !found.is_some_and(|found| object.source.iter().any(|version| version.is_kept(found))) {
                let what = found.map_or("absent".to_owned(), brief);
                return Err(format!("I2: {} was promised and is not kept: {what}", show(path)));
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
                && !found.is_some_and(|found| newest.is_kept(found))
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
    fn settle(&mut self, id: u64) {
        if !self.settled.insert(id) {
            self.broken.get_or_insert(format!("I3: object {id} was settled twice"));
        }
    }
}

impl Version {
    fn is_found(&self, found: &Found) -> bool {
        match (self, found) {
            (Version::File { bytes, .. }, Found::File(content)) => *bytes == content.bytes,
            (Version::Link(target), Found::Link(there)) => target == there,
            (Version::Directory, Found::Directory) => true,
            _ => false,
        }
    }

    /// As `is_found`, with the time that the source gave it: what was stored of it is complete.
    fn is_kept(&self, found: &Found) -> bool {
        self.is_found(found)
            && match (self, found) {
                (Version::File { modified, .. }, Found::File(content)) => *modified == content.modified,
                _ => true,
            }
    }
}

fn ids(runs: &[Run]) -> impl Iterator<Item = u64> + '_ {
    runs.iter().flat_map(|run| run.first..run.first + run.count)
}

fn show(path: &[u8]) -> String {
    model::name::Escaped(path).to_string()
}

fn brief(found: &Found) -> String {
    match found {
        Found::File(Content { bytes, modified, .. }) => {
            let zeros = bytes.iter().filter(|byte| **byte == 0).count();
            format!("a file of {} bytes ({zeros} of them zero), modified {}.{:09}", bytes.len(), modified.0, modified.1)
        }
        Found::Link(target) => format!("a link to {}", show(target)),
        Found::Directory => "a directory".to_owned(),
    }
}
