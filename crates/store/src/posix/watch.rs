//! Following a tree: what is there, what comes, how far files have grown and when they are complete.
//!
//! Invariants:
//! - The truth is what a look finds; events only say where to look. Everything is listed again after lost events, and from time to
//!   time.
//! - A file is complete when its rule says so, and its size and times have been the same at two looks, `TICKS` apart.
//! - A file is known by its inode: a new name is the same file, and another inode under its name is another one.
//!
//! Not here: reading, and whether what was read is what the file holds in the end.

mod ends;
mod moves;
mod places;
mod unhinted;

use super::facts::STAGING_PREFIX;
use super::hints::{Hint, Hints};
use super::list::{self, age_of, date_of, generation_of, inode_of, read_directory};
use super::tree::Tree;
use super::writers::Writers;
use crate::source::{DirectoryKey, End, Event, Restart, SourceObject, Watch};
use crate::{Error, Result};
use model::fidelity::Warnings;
use model::follow::{Follow, FollowEnd, Until};
use model::{Entry, Failure, Fidelity, Generation, Name, ObjectId, Timestamp};
use os::time::Instant;
use places::Places;
use rustix::fs::{AtFlags, FileType, Stat, statat};
use rustix::io::Errno;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::hash::{BuildHasher, RandomState};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Two stores within one tick of a file system's clock leave the same times behind; this is more than two ticks.
const TICKS: Duration = Duration::from_millis(25);
/// A file of a finished name that nobody renamed to it is taken for complete after this long without a change.
const UNNAMED_QUIET: Duration = Duration::from_secs(2);
/// Where so many grow already, one of a finished name waits until it is complete or has grown for as long as that takes: all that
/// grow are open at both ends.
const GROWING_MAX: usize = 4096;
/// How often the ends of files are looked for; none comes sooner than `TICKS` after the last change.
const END_INTERVAL: Duration = Duration::from_millis(10);
/// And so much less often for each file that grows.
const END_INTERVAL_PER_FILE: Duration = Duration::from_micros(50);
/// How often everything is listed, with hints and without.
const LIST_INTERVAL: Duration = Duration::from_secs(60);
const LIST_INTERVAL_BLIND: Duration = Duration::from_secs(10);
/// Where directories that were found get their keys from; those that the user named have theirs.
const FIRST_KEY: u64 = 1;

pub struct PosixWatch {
    tree: Arc<Tree>,
    rules: Follow,
    fidelity: Fidelity,
    hints: Hints,
    directories: BTreeMap<u64, Directory>,
    /// There may be very many that rest: in boxes, they take what they need.
    files: BTreeMap<u64, Box<File>>,
    /// Those of them that grow, and perhaps some that do not any more.
    growing: BTreeSet<u64>,
    places: Places,
    inodes: HashMap<(u64, u64), u64>,
    /// Files that are not where they were, and since when: a rename is told by two events, which may come apart.
    absent: BTreeMap<u64, Instant>,
    /// Files that wait to be told, and since when.
    young: BTreeMap<(u64, Name), Instant>,
    /// Not yet told, or looked at.
    to_list: BTreeSet<u64>,
    to_look: BTreeSet<(u64, Name)>,
    next_number: u64,
    /// What ends the job, kept for the end, and whether it has come.
    stop: Option<SourceObject>,
    ending: Ending,
    began: Instant,
    changed: Instant,
    listed: Instant,
    looked: Instant,
    ends_looked_for: Instant,
    /// What was last said of files that can still end.
    may_end: bool,
    missed: Mutex<Warnings>,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Debug)]
enum Ending {
    No,
    /// Everything is listed a last time.
    Listing,
    /// What can still end does.
    Waiting,
    Over,
}

struct Directory {
    number: u64,
    inode: u64,
    /// What is looked at in it, where that is not everything.
    only: Option<Name>,
    /// Its time when it was listed last.
    dated: Option<Timestamp>,
    /// What ends the job may lie in it.
    is_top: bool,
}

struct File {
    key: u64,
    name: Name,
    generation: Generation,
    /// When it was seen to change last.
    changed: Instant,
    is_growing: bool,
    /// It had an unfinished name.
    was_renamed: bool,
    /// How often it went on after it was complete.
    reopened: u32,
    /// What the kernel last said of its writers, and when; and whether something has happened since that may have changed that.
    writers: Writers,
    asked: Instant,
    may_be_free: bool,
}

impl PosixWatch {
    /// Watches what these name: a directory by its key, or one name in it.
    pub fn new(tree: Arc<Tree>, tops: Vec<(u64, Option<Name>)>, rules: Follow, fidelity: Fidelity) -> PosixWatch {
        let now = Instant::now();
        let mut watch = PosixWatch {
            tree,
            rules,
            fidelity,
            hints: Hints::new(),
            directories: BTreeMap::new(),
            files: BTreeMap::new(),
            growing: BTreeSet::new(),
            places: Places::default(),
            inodes: HashMap::new(),
            absent: BTreeMap::new(),
            young: BTreeMap::new(),
            to_list: BTreeSet::new(),
            to_look: BTreeSet::new(),
            next_number: FIRST_KEY,
            stop: None,
            ending: Ending::No,
            began: now,
            changed: now,
            listed: now,
            looked: now,
            ends_looked_for: now,
            may_end: true,
            missed: Mutex::default(),
        };
        for (key, only) in tops {
            let is_top = only.is_none();
            watch.directories.insert(key, Directory { number: 0, inode: 0, only, dated: None, is_top });
            watch.open_watch(key);
            watch.to_list.insert(key);
        }
        watch
    }

    fn open_watch(&mut self, key: u64) {
        if let Ok(directory) = self.tree.open(key) {
            self.hints.add(key, directory.as_fd());
        }
    }

    /// Lists directories and looks at names until nothing new is found.
    fn look_at_all(&mut self, hear: &mut dyn FnMut(Event)) {
        // Another file may have got the name of one that waits.
        let places = &self.places;
        self.young.retain(|place, _| places.get(place).is_none());
        let waited = self.young.iter().filter(|(_, since)| since.elapsed() >= UNNAMED_QUIET);
        self.to_look.extend(waited.map(|(place, _)| place.clone()));
        let is_due = |(number, since): (&u64, &Instant)| (since.elapsed() >= TICKS).then_some(*number);
        let due: Vec<u64> = self.absent.iter().filter_map(is_due).collect();
        self.to_list.extend(due.iter().filter_map(|number| self.files.get(number)).map(|file| file.key));
        loop {
            if let Some(key) = self.to_list.pop_first() {
                self.list(key, hear);
            } else if let Some((key, name)) = self.to_look.pop_first() {
                match self.tree.open(key) {
                    Ok(_) if self.is_elsewhere(key, &name, &mut None) => {}
                    Ok(directory) => {
                        let status = statat(&directory, name.as_c_str(), AtFlags::SYMLINK_NOFOLLOW);
                        self.look(key, directory.as_fd(), (&name, status), hear);
                    }
                    Err(e) if Errno::from_io_error(&e) == Some(Errno::NOENT) => self.missing(key, &name),
                    Err(_) => {}
                }
            } else {
                break;
            }
        }
        // Under no other name did they appear again.
        for number in due.into_iter().filter(|number| self.absent.contains_key(number)).collect::<Vec<_>>() {
            self.forget(number);
            hear(Event::Gone { id: ObjectId(number) });
        }
    }

    fn list(&mut self, key: u64, hear: &mut dyn FnMut(Event)) {
        let Ok(directory) = self.tree.open(key) else { return };
        let only = self.directories.get(&key).and_then(|directory| directory.only.clone());
        if let Some(name) = only {
            let status = statat(&directory, name.as_c_str(), AtFlags::SYMLINK_NOFOLLOW);
            return self.look(key, directory.as_fd(), (&name, status), hear);
        }
        // Before it is read: what comes meanwhile is found the next time.
        self.directories.entry(key).and_modify(|at| at.dated = date_of(directory.as_fd()));
        // By a digest of each name. One that is taken for another is missed at the next listing.
        let hasher = RandomState::new();
        let is_known = self.places.names(key).next().is_some();
        let (mut there, mut has_moved) = (HashSet::new(), None);
        let listed = read_directory(directory.as_fd(), &mut |name, status| {
            if is_known {
                there.insert(hasher.hash_one(name));
            }
            if !self.is_elsewhere(key, name, &mut has_moved) {
                self.look(key, directory.as_fd(), (name, status), hear);
            }
            true
        });
        // One that was removed has no names any more.
        if let Err(e) = listed
            && Errno::from_io_error(&e) != Some(Errno::NOENT)
        {
            let error = Error::new("read directory", b"", e);
            let path = self.tree.path(key, b"");
            return hear(Event::Failed(Failure { path, kind: error.kind, message: error.message() }));
        }
        if is_known {
            let is_lost = |name: &&Name| !there.contains(&hasher.hash_one(name));
            let lost: Vec<Name> = self.places.names(key).filter(is_lost).cloned().collect();
            lost.iter().for_each(|name| self.missing(key, name));
        }
    }

    fn look(
        &mut self,
        key: u64,
        directory: BorrowedFd<'_>,
        (name, status): (&Name, std::result::Result<Stat, Errno>),
        hear: &mut dyn FnMut(Event),
    ) {
        let is_left_out = |at: &Directory| at.only.as_ref().is_some_and(|only| only != name);
        if self.directories.get(&key).is_none_or(is_left_out) || name.as_bytes().starts_with(STAGING_PREFIX) {
            return;
        }
        let status = match status {
            Ok(status) => status,
            Err(Errno::NOENT | Errno::NOTDIR) => return self.missing(key, name),
            Err(_) => return,
        };
        match FileType::from_raw_mode(status.st_mode) {
            FileType::RegularFile => self.look_at_file(key, directory, (name, &status), hear),
            kind => {
                let known = self.places.get(&(key, name.clone()));
                let below = known.and_then(|number| self.directories.get(&number));
                let is_known = match below {
                    Some(below) => below.inode == status.st_ino,
                    None => known.is_some(),
                };
                if !is_known {
                    self.found_other(key, directory, (name, &status), kind.is_dir(), hear);
                }
            }
        }
    }

    /// A directory, a link, or what is not copied.
    fn found_other(
        &mut self,
        key: u64,
        directory: BorrowedFd<'_>,
        (name, status): (&Name, &Stat),
        is_directory: bool,
        hear: &mut dyn FnMut(Event),
    ) {
        if is_directory && self.tree.bounds.kept_out(directory, name, status.st_dev).is_some() {
            return;
        }
        let place = (key, name.clone());
        let number = self.places.get(&place).unwrap_or(self.next_number);
        self.next_number = self.next_number.max(number + 1);
        self.places.insert(place, number);
        self.changed = Instant::now();
        match self.entry(number, key, directory, (name, status)) {
            Ok(entry) => hear(Event::Found(SourceObject { entry, directory: DirectoryKey(key), end: End::Known })),
            Err(failure) => return hear(Event::Failed(failure)),
        }
        if is_directory {
            // One that was made again is not the one that is open.
            self.tree.forget(number);
            self.tree.insert(number, key, name.clone(), false);
            let inode = status.st_ino;
            let is_top = self.directories.get(&key).is_some_and(|above| above.only.is_some());
            self.directories.insert(number, Directory { number, inode, only: None, dated: None, is_top });
            self.open_watch(number);
            self.to_list.insert(number);
        }
    }

    fn look_at_file(
        &mut self,
        key: u64,
        directory: BorrowedFd<'_>,
        (name, status): (&Name, &Stat),
        hear: &mut dyn FnMut(Event),
    ) {
        let place = (key, name.clone());
        let inode = (status.st_dev, status.st_ino);
        let known = self.places.get(&place);
        let same = self.inodes.get(&inode).copied().filter(|number| self.files.contains_key(number));
        // Another name of it may be known as a file of its own.
        let is_own = |number: u64| self.files.get(&number).is_some_and(|file| inode_of(&file.generation) == inode);
        match (known, same) {
            (Some(number), _) if is_own(number) => self.look_again(number, directory, (status, None), hear),
            (_, Some(same)) if model::mutant::is_on("trust-the-inode") || self.is_moved(same) => {
                if let Some(other) = known.filter(|other| *other != same) {
                    self.forget(other);
                    hear(Event::Gone { id: ObjectId(other) });
                }
                self.moved(same, place, directory, status, hear);
            }
            (Some(number), _) => self.replaced(number, place, directory, status, hear),
            (None, _) => self.found_file(place, directory, status, hear),
        }
    }

    fn found_file(
        &mut self,
        place: (u64, Name),
        directory: BorrowedFd<'_>,
        status: &Stat,
        hear: &mut dyn FnMut(Event),
    ) {
        // What comes after the end is not waited for.
        if self.ending < Ending::Waiting && !self.is_to_wait(&place, status) {
            self.tell_file(place, directory, status, hear);
        }
    }

    fn tell_file(&mut self, place: (u64, Name), directory: BorrowedFd<'_>, status: &Stat, hear: &mut dyn FnMut(Event)) {
        let (key, name) = place.clone();
        let number = self.next_number;
        let entry = match self.entry(number, key, directory, (&name, status)) {
            Ok(entry) => entry,
            Err(failure) => return hear(Event::Failed(failure)),
        };
        self.next_number += 1;
        self.changed = Instant::now();
        self.places.insert(place, number);
        let is_top = self.directories.get(&key).is_some_and(|directory| directory.is_top);
        let object = SourceObject { entry, directory: DirectoryKey(key), end: End::Known };
        let ends = |end: &FollowEnd| matches!(end, FollowEnd::Marker(marker) if *marker == name);
        if is_top && self.rules.ends.iter().any(ends) {
            self.stop = Some(object);
            return self.end();
        }
        if self.rules.until.is_marker(name.as_bytes()) {
            let covers = self.below(key);
            return hear(Event::Marker { object, covers });
        }
        let age = age_of(status);
        let is_growing = self.grows_when_found(directory, key, &name, age);
        let now = Instant::now();
        let file = File {
            key,
            name,
            generation: object.entry.generation,
            changed: now.checked_sub(age).unwrap_or(now),
            is_growing,
            was_renamed: false,
            reopened: 0,
            writers: Writers::Some,
            asked: now,
            may_be_free: true,
        };
        self.inodes.insert((status.st_dev, status.st_ino), number);
        self.files.insert(number, Box::new(file));
        if is_growing {
            self.growing.insert(number);
        }
        let end = if is_growing { End::Growing } else { End::Known };
        hear(Event::Found(SourceObject { end, ..object }));
        if is_growing {
            hear(Event::Grown { id: ObjectId(number), available_bytes: status.st_size as u64 });
        }
    }

    /// Looks at a file that is known; `before` is the name that it had at the last look, if that was another one.
    fn look_again(
        &mut self,
        number: u64,
        directory: BorrowedFd<'_>,
        (status, before): (&Stat, Option<Name>),
        hear: &mut dyn FnMut(Event),
    ) {
        let Some(file) = self.files.get_mut(&number) else { return };
        self.absent.remove(&number);
        let (last, now) = (file.generation, generation_of(status));
        if last == now {
            return;
        }
        (file.generation, file.changed, file.writers) = (now, Instant::now(), Writers::Some);
        self.changed = Instant::now();
        self.growing.insert(number);
        let (key, name) = (file.key, file.name.clone());
        let is_dated = last.modified != now.modified && !model::mutant::is_on("trust-the-size");
        let is_content = last.size_bytes != now.size_bytes || is_dated;
        let restart = match file.is_growing {
            _ if now.size_bytes < last.size_bytes => Some(Restart::Truncated),
            false if is_content => Some(Restart::Reopened),
            _ => None,
        };
        file.reopened += u32::from(restart == Some(Restart::Reopened));
        file.is_growing |= is_content;
        let end = if file.is_growing { End::Growing } else { End::Known };
        if restart.is_some() || before.is_some() && end == End::Known {
            let Ok(entry) = self.entry(number, key, directory, (&name, status)) else { return };
            let object = SourceObject { entry, directory: DirectoryKey(key), end };
            hear(match (restart, before) {
                (Some(why), _) => Event::Restarted { object, why },
                (None, before) => Event::Renamed { object, before: before.unwrap_or(name) },
            });
        }
        if is_content {
            hear(Event::Grown { id: ObjectId(number), available_bytes: now.size_bytes });
        }
    }

    fn moved(
        &mut self,
        number: u64,
        (key, name): (u64, Name),
        directory: BorrowedFd<'_>,
        status: &Stat,
        hear: &mut dyn FnMut(Event),
    ) {
        let Some(file) = self.files.get(&number) else { return };
        // Into another directory: there it is another object.
        if file.key != key {
            self.forget(number);
            hear(Event::Gone { id: ObjectId(number) });
            return self.found_file((key, name), directory, status, hear);
        }
        let before = (file.key, file.name.clone());
        self.places.remove_if(&before, number);
        self.places.insert((key, name.clone()), number);
        let Some(file) = self.files.get_mut(&number) else { return };
        file.was_renamed |= self.rules.until.is_unfinished(file.name.as_bytes()) == Some(true);
        file.name = name;
        self.look_again(number, directory, (status, Some(before.1)), hear);
    }

    fn replaced(
        &mut self,
        number: u64,
        (key, name): (u64, Name),
        directory: BorrowedFd<'_>,
        status: &Stat,
        hear: &mut dyn FnMut(Event),
    ) {
        if !self.files.contains_key(&number) {
            // A marker that was written again, or what was no file before.
            return;
        }
        // However many grow: there are no more of them with one in the place of another.
        let is_told_now = self.ending < Ending::Waiting && self.files.get(&number).is_some_and(|file| file.is_growing);
        self.forget(number);
        let (next, mut is_told) = (self.next_number, false);
        let place = (key, name.clone());
        let mut tell = |event: Event| match event {
            // Under the number that its place has had.
            Event::Found(mut object) => {
                is_told = true;
                object.entry.id = ObjectId(number);
                hear(Event::Restarted { object, why: Restart::Replaced });
            }
            Event::Grown { available_bytes, .. } => hear(Event::Grown { id: ObjectId(number), available_bytes }),
            other => hear(other),
        };
        match is_told_now {
            true => self.tell_file(place, directory, status, &mut tell),
            false => self.found_file(place, directory, status, &mut tell),
        }
        if is_told_now && !is_told {
            hear(Event::Gone { id: ObjectId(number) });
        }
        if let Some(file) = self.files.remove(&next) {
            self.files.insert(number, file);
            self.growing.insert(number);
            self.places.insert((key, name), number);
            self.inodes.insert((status.st_dev, status.st_ino), number);
        }
    }

    fn forget(&mut self, number: u64) {
        let Some(file) = self.files.remove(&number) else { return };
        self.absent.remove(&number);
        let inode = inode_of(&file.generation);
        let place = (file.key, file.name);
        self.places.remove_if(&place, number);
        if self.inodes.get(&inode) == Some(&number) {
            self.inodes.remove(&inode);
        }
    }

    fn entry(
        &self,
        number: u64,
        key: u64,
        directory: BorrowedFd<'_>,
        (name, status): (&Name, &Stat),
    ) -> std::result::Result<Entry, Failure> {
        let parent = self.directories.get(&key).map_or(0, |directory| directory.number);
        let path = || self.tree.path(key, name.as_bytes());
        let mut miss = |text: &str| self.missed.lock().unwrap().note(text, &path);
        let ids = (ObjectId(number), ObjectId(parent));
        list::entry_from((directory, name), ids, status, self.fidelity, &mut miss).map_err(|e| Failure {
            path: path(),
            kind: e.kind,
            message: e.message(),
        })
    }

    /// Waits for something to look at.
    fn take_hints(&mut self, patience: Duration) {
        // No hint tells that nothing happens any more.
        let is_resting = self.absent.is_empty() && self.growing.is_empty() && self.young.is_empty();
        let patience = if is_resting { patience } else { patience.min(TICKS) };
        let (to_look, to_list, mut is_lost) = (&mut self.to_look, &mut self.to_list, false);
        let mut closed = Vec::new();
        self.hints.take(patience, &mut |hint| match hint {
            Hint::Name(key, name) => _ = to_look.insert((key, name)),
            Hint::Closed(key, name) => {
                closed.push((key, name.clone()));
                to_look.insert((key, name));
            }
            Hint::Directory(key) => _ = to_list.insert(key),
            Hint::Everything => is_lost = !model::mutant::is_on("ignore-overflow"),
        });
        for number in closed.iter().filter_map(|place| self.places.get(place)) {
            self.files.entry(number).and_modify(|file| file.may_be_free = true);
        }
        let interval = if self.hints.is_complete() { LIST_INTERVAL } else { LIST_INTERVAL_BLIND };
        self.look_unhinted();
        if is_lost || self.listed.elapsed() >= interval || self.ending == Ending::Listing {
            self.to_list.extend(self.directories.keys());
            self.listed = Instant::now();
        }
    }

    /// What ends the job has come: everything is listed once more.
    fn end(&mut self) {
        if self.ending == Ending::No {
            self.ending = Ending::Listing;
        }
    }
}

impl Watch for PosixWatch {
    fn next(&mut self, patience: Duration, hear: &mut dyn FnMut(Event)) -> Result<()> {
        if self.ending == Ending::Over {
            // Whoever goes on asking waits for something else.
            os::thread::sleep(patience);
            return Ok(());
        }
        if self.to_list.is_empty() && self.to_look.is_empty() {
            self.take_hints(patience);
        }
        self.look_at_all(hear);
        self.look_for_the_end();
        if self.ending == Ending::Listing && self.to_list.is_empty() && self.young.is_empty() {
            self.to_list.extend(self.directories.keys());
            self.look_at_all(hear);
            (self.ending, self.may_end) = (Ending::Waiting, true);
        }
        let interval = END_INTERVAL + END_INTERVAL_PER_FILE * self.growing.len().min(10_000) as u32;
        if self.ends_looked_for.elapsed() >= interval {
            self.may_end = self.tell_ends(hear);
            self.ends_looked_for = Instant::now();
        }
        if self.ending == Ending::Waiting && !self.may_end {
            self.ending = Ending::Over;
            if let Some(object) = self.stop.take() {
                hear(Event::Marker { object, covers: self.files.keys().copied().map(ObjectId).collect() });
            }
            hear(Event::Over);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
