//! Files of a source that is followed, for a destination where nothing can grow: each is described once it is complete, and sent as
//! any other file.
//!
//! Invariants:
//! - Nothing is described before the receiver has said whether files can grow there.
//! - A file that goes on after it was complete waits again, and replaces what it was.
//! - A file that was removed before it was complete has failed, unless a file of that name is sent. One that never got its final
//!   name has not failed: it was not to be sent.
//!
//! Not here: what files are sent while they grow (`follow`), and when one is complete (`store`).

use super::{CLAIM_PATIENCE, SendJob};
use crate::job::Followed;
use model::{End, Entry, Failure, FailureKind, Kind, ObjectId};
use os::time::Instant;
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;
use store::{Event, Restart, SourceObject};

const NOTE: &str = "nothing can grow at the destination: files are sent once they are complete";

impl SendJob {
    /// The receiver takes the job, and files that grow only once they are complete, or at once.
    pub fn is_taken(&self, only_whole: bool) {
        let _ = self.takes_whole.set(only_whole);
        if only_whole && self.options.follow.is_some() {
            self.progress.note(NOTE.to_owned());
        }
        self.work.notify_all();
    }

    /// A file of a source that is followed, which was complete when it was described.
    pub(super) fn is_sent_whole(&self, object: &SourceObject) -> bool {
        let is_whole = self.options.follow.is_some() && self.takes_whole.get() == Some(&true);
        is_whole && object.entry.kind == Kind::File
    }

    /// Whether files that grow are sent only once they are complete; waits until that is known. Nothing where the job is over before.
    pub(super) fn takes_whole(&self) -> Option<bool> {
        let mut book = self.book.lock().unwrap();
        while !self.end.is_set() {
            match self.takes_whole.get() {
                Some(takes_whole) => return Some(*takes_whole),
                None => book = self.work.wait_timeout(book, CLAIM_PATIENCE).unwrap().0,
            }
        }
        None
    }
}

/// Where nothing can grow at the destination, files that are not complete.
pub struct Waiting {
    is_needed: bool,
    /// With how long they are, by the numbers that the watch gave them.
    files: BTreeMap<u64, (SourceObject, u64)>,
    /// What went a moment ago, in its order: it may come again under its name.
    gone: VecDeque<(Instant, Failure)>,
}

/// How long what went may come again, and how much of it may.
const GONE_WAITS: Duration = Duration::from_secs(5);
const GONE_MAX: usize = 1000;

impl Waiting {
    pub fn new(is_needed: bool) -> Waiting {
        Waiting { is_needed, files: BTreeMap::new(), gone: VecDeque::new() }
    }

    pub fn contains(&self, number: u64) -> bool {
        self.files.contains_key(&number)
    }

    /// How many there are, and their bytes.
    pub fn amount(&self) -> (u64, u64) {
        (self.files.len() as u64, self.files.values().map(|(_, bytes)| bytes).sum())
    }

    /// What is to be heard of an event, if anything.
    pub fn hear(&mut self, job: &SendJob, event: Event, is_sent: &dyn Fn(&SourceObject) -> bool) -> Option<Event> {
        if !self.is_needed {
            return Some(event);
        }
        let say = |event| job.observer.iter().for_each(|observer| observer.followed(&event));
        match event {
            Event::Found(object) if object.is_growing() => {
                self.files.insert(object.entry.id.0, (object, 0));
                None
            }
            Event::Restarted { object, why } if object.is_growing() => {
                let path = job.source.path(&object);
                match why {
                    Restart::Reopened => say(Followed::Reopened { path }),
                    // Nothing of it was sent.
                    Restart::Truncated | Restart::Replaced => {}
                }
                self.files.insert(object.entry.id.0, (object, 0));
                None
            }
            Event::Grown { id, available_bytes } => {
                self.files.get_mut(&id.0)?.1 = available_bytes;
                None
            }
            Event::Ended { id, entry } => {
                let (SourceObject { entry: first, directory, .. }, _) = self.files.remove(&id.0)?;
                let entry = Entry { id: first.id, parent: first.parent, ..entry };
                let object = SourceObject { entry, directory, end: End::Known };
                self.came(job, &object);
                Some(Event::Found(object))
            }
            Event::Gone { id: ObjectId(number) } if self.contains(number) => {
                let (object, _) = self.files.remove(&number)?;
                let path = job.source.path(&object);
                say(Followed::Vanished { path: path.clone() });
                let until = job.options.follow.as_ref().map(|rules| &rules.until);
                let is_unfinished = until.and_then(|until| until.is_unfinished(object.entry.name.as_bytes()));
                if is_unfinished != Some(true) && !is_sent(&object) {
                    let why = "it was removed before it was complete";
                    self.gone.push_back((Instant::now(), failure(job, &object, FailureKind::NotFound, why)));
                }
                None
            }
            event => {
                if let Event::Found(object) | Event::Restarted { object, .. } = &event {
                    // A file that was written may have been replaced by one that is complete.
                    self.files.remove(&object.entry.id.0);
                    self.came(job, object);
                }
                Some(event)
            }
        }
    }

    fn came(&mut self, job: &SendJob, object: &SourceObject) {
        if !self.gone.is_empty() {
            let path = job.source.path(object);
            self.gone.retain(|(_, failure)| failure.path != path);
        }
    }

    /// What went and did not come again.
    pub fn lost(&mut self) -> Option<Failure> {
        let (since, _) = self.gone.front()?;
        let is_due = since.elapsed() >= GONE_WAITS || self.gone.len() > GONE_MAX;
        is_due.then(|| self.gone.pop_front()).flatten().map(|(_, failure)| failure)
    }

    /// What does not come to its end any more.
    pub fn give_up(&mut self, job: &SendJob, why: &str) -> Vec<Failure> {
        let unfinished = std::mem::take(&mut self.files).into_values();
        let open = unfinished.map(|(object, _)| failure(job, &object, FailureKind::Changed, why));
        open.chain(std::mem::take(&mut self.gone).into_iter().map(|(_, failure)| failure)).collect()
    }
}

fn failure(job: &SendJob, object: &SourceObject, kind: FailureKind, why: &str) -> Failure {
    Failure { path: job.source.path(object), kind, message: why.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Progress;
    use crate::job::Port;
    use conformance::memory::{Memory, Rules};
    use model::{Generation, Name, TransferOptions};
    use std::sync::Arc;
    use store::DirectoryKey;
    use wire::Message;

    struct Nobody;

    impl Port for Nobody {
        fn send(&self, _: Message) {}
    }

    fn object(end: End) -> SourceObject {
        let entry = Entry {
            id: ObjectId(7),
            parent: ObjectId::ROOT,
            name: Name::new(b"f").unwrap(),
            kind: Kind::File,
            mode: 0o644,
            generation: Generation::default(),
            attributes: None,
        };
        SourceObject { entry, directory: DirectoryKey(0), end }
    }

    #[test]
    fn a_file_that_is_replaced_by_one_that_is_complete_does_not_wait_any_more() {
        let (source, options) = (Memory::new(Rules::default()).source(), TransferOptions::default());
        let job = SendJob::new(1, options, source, Arc::new(Nobody), Progress::new(), None);
        let mut waiting = Waiting::new(true);
        assert!(waiting.hear(&job, Event::Found(object(End::Growing)), &|_| false).is_none() && waiting.contains(7));
        let complete = Event::Restarted { object: object(End::Known), why: Restart::Replaced };
        assert!(waiting.hear(&job, complete, &|_| false).is_some());
        assert!(!waiting.contains(7) && waiting.give_up(&job, "it is over").is_empty());
    }
}
