//! When a file that is followed is told, when it is complete, and when all of them are.
//!
//! Invariant: a file ends only as it was seen at two looks.

use super::super::list::age_of;
use super::super::writers::{self, Writers};
use super::*;
use rustix::fs::{Mode, OFlags, openat};

/// A close is told, but not the end of a mapping; nothing tells that a lock is given back.
const ASK_INTERVAL: Duration = Duration::from_secs(1);
const ASK_INTERVAL_OF_LOCKS: Duration = Duration::from_millis(250);

impl PosixWatch {
    /// Whether a file is not told yet.
    pub(super) fn is_to_wait(&mut self, place: &(u64, Name), status: &Stat) -> bool {
        let is_rule = matches!(self.rules.until, Until::Rename(_));
        let is_young = is_rule
            && self.growing.len() >= GROWING_MAX
            && self.rules.until.is_unfinished(place.1.as_bytes()) != Some(true)
            && age_of(status) < UNNAMED_QUIET;
        let since = if is_young { *self.young.entry(place.clone()).or_insert_with(Instant::now) } else { self.began };
        let is_to_wait = is_young && since.elapsed() < UNNAMED_QUIET;
        if !is_to_wait {
            self.young.remove(place);
        }
        is_to_wait
    }

    /// Whether a file that is seen for the first time is still being written, by its rule; `age` is the time since its last change.
    pub(super) fn grows_when_found(&self, directory: BorrowedFd<'_>, key: u64, name: &Name, age: Duration) -> bool {
        match self.rules.until {
            Until::Quiet(quiet) => age < quiet,
            Until::Rename(_) => self.rules.until.is_unfinished(name.as_bytes()) == Some(true) || age < UNNAMED_QUIET,
            Until::Marker(_) => !self.is_marked(key, name),
            Until::Never => true,
            Until::Close | Until::Lock => {
                age < TICKS
                    || match self.writers_of(directory, name) {
                        Writers::None => false,
                        Writers::Some => true,
                        Writers::Unknown => age < UNNAMED_QUIET,
                    }
            }
        }
    }

    /// The files in a directory and below it.
    pub(super) fn below(&self, key: u64) -> Vec<ObjectId> {
        let is_below = |mut at: u64| {
            while at != key {
                match self.tree.place(at) {
                    Some((above, _)) => at = above,
                    None => return false,
                }
            }
            true
        };
        self.files.iter().filter(|(_, file)| is_below(file.key)).map(|(number, _)| ObjectId(*number)).collect()
    }

    /// Whether what marks a file of this name as complete is there.
    pub(super) fn is_marked(&self, key: u64, name: &Name) -> bool {
        let Some((marker, is_beside)) = self.rules.until.marker_of(name.as_bytes()) else { return false };
        let Ok(marker) = Name::new(&marker) else { return false };
        let mut at = key;
        loop {
            if self.is_there(at, &marker) {
                return true;
            }
            match self.tree.place(at) {
                Some((above, _)) if !is_beside && self.directories.get(&above).is_some_and(|d| d.only.is_none()) => {
                    at = above;
                }
                _ => return false,
            }
        }
    }

    /// What is listed was looked at; of a directory in which one name is watched all others are looked for.
    fn is_there(&self, key: u64, marker: &Name) -> bool {
        match self.directories.get(&key) {
            Some(directory) if directory.only.is_none() => self.places.get(&(key, marker.clone())).is_some(),
            _ => {
                let directory = self.tree.open(key);
                directory.is_ok_and(|d| statat(&d, marker.as_c_str(), AtFlags::SYMLINK_NOFOLLOW).is_ok())
            }
        }
    }

    pub(super) fn look_for_the_end(&mut self) {
        let is_due = self.rules.ends.iter().any(|end| match end {
            FollowEnd::Marker(_) => false,
            FollowEnd::Idle(idle) => self.changed.elapsed() >= *idle,
            FollowEnd::For(time) => self.began.elapsed() >= *time,
        });
        if is_due {
            self.end();
        }
    }

    /// Files of which the rule says that they are complete, and those of which it still may.
    pub(super) fn tell_ends(&mut self, hear: &mut dyn FnMut(Event)) -> bool {
        let mut may_end = !self.absent.is_empty();
        let files = &self.files;
        self.growing.retain(|number| files.get(number).is_some_and(|file| file.is_growing));
        let rests = |number: &u64| !self.absent.contains_key(number);
        let resting: Vec<u64> = self.growing.iter().copied().filter(rests).collect();
        for number in resting {
            self.ask_for_writers(number);
            match self.verdict(&self.files[&number]) {
                Verdict::Ended => match self.end_of(number) {
                    Some(entry) => hear(Event::Ended { id: ObjectId(number), entry }),
                    None => may_end = true,
                },
                Verdict::Soon => may_end = true,
                Verdict::Open => {}
            }
        }
        may_end
    }

    /// Where the rule depends on them: once a file rests, and again when that may have changed.
    fn ask_for_writers(&mut self, number: u64) {
        let interval = match self.rules.until {
            Until::Close => ASK_INTERVAL,
            Until::Lock => ASK_INTERVAL_OF_LOCKS,
            _ => return,
        };
        let Some(file) = self.files.get(&number) else { return };
        // One that grows all the time is asked of when it is closed.
        let is_due = file.may_be_free || file.asked.max(file.changed).elapsed() >= interval;
        if file.changed.elapsed() < TICKS || !is_due {
            return;
        }
        let writers = match self.tree.open(file.key) {
            _ if model::mutant::is_on("seal-at-first-close") && file.may_be_free => Writers::None,
            Ok(directory) => self.writers_of(directory.as_fd(), &file.name),
            Err(_) => Writers::Unknown,
        };
        if let Some(file) = self.files.get_mut(&number) {
            (file.writers, file.asked, file.may_be_free) = (writers, Instant::now(), false);
        }
    }

    /// Who keeps a file from being complete, by the rule in force.
    pub(super) fn writers_of(&self, directory: BorrowedFd<'_>, name: &Name) -> Writers {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        match openat(directory, name.as_c_str(), flags, Mode::empty()) {
            Ok(file) if self.rules.until == Until::Lock => writers::locked_by(file),
            Ok(file) => writers::opened_by(file.as_fd()),
            Err(_) => Writers::Unknown,
        }
    }

    fn verdict(&self, file: &File) -> Verdict {
        let quiet = file.changed.elapsed();
        // A file that went on again and again is complete when it rests.
        let needed = match (&self.rules.until, file.reopened) {
            (_, 2..) => Some(Duration::from_secs(60)),
            (Until::Quiet(needed), _) => Some(*needed),
            (Until::Rename(_), _) if self.rules.until.is_unfinished(file.name.as_bytes()) == Some(true) => None,
            (Until::Rename(_), _) => Some(if file.was_renamed { TICKS } else { UNNAMED_QUIET }),
            (Until::Marker(_), _) => self.is_marked(file.key, &file.name).then_some(TICKS),
            (Until::Close | Until::Lock, _) => match file.writers {
                Writers::None => Some(TICKS),
                Writers::Some => None,
                Writers::Unknown => Some(UNNAMED_QUIET),
            },
            (Until::Never, _) => (self.ending >= Ending::Waiting).then_some(TICKS),
        };
        match needed.map(|needed| if self.ending >= Ending::Waiting { needed.min(UNNAMED_QUIET) } else { needed }) {
            Some(needed) if quiet >= needed.max(TICKS) => Verdict::Ended,
            Some(_) => Verdict::Soon,
            None => Verdict::Open,
        }
    }

    /// The entry of a complete file; `None` if it changed since it was looked at.
    fn end_of(&mut self, number: u64) -> Option<Entry> {
        let file = self.files.get(&number)?;
        let (key, name) = (file.key, file.name.clone());
        let directory = self.tree.open(key).ok()?;
        let status = statat(&directory, name.as_c_str(), AtFlags::SYMLINK_NOFOLLOW).ok();
        let Some(status) = status.filter(|status| generation_of(status) == file.generation) else {
            self.to_look.insert((key, name));
            return None;
        };
        let entry = self.entry(number, key, directory.as_fd(), (&name, &status)).ok()?;
        self.files.get_mut(&number)?.is_growing = false;
        Some(entry)
    }
}

enum Verdict {
    Ended,
    /// Unless it changes.
    Soon,
    Open,
}
