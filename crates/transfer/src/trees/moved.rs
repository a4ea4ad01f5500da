//! Removes from one tree what another one has, after a copy: what makes a copy a move.
//!
//! Invariant: an object leaves its source only after the destination, asked again, has the same content under its name, in a file
//! that is not the source itself, and only if it still is the version that was compared. Where the source and the destination turn out to
//! be one place, or it cannot be told whether they are, nothing leaves it.

use super::{Chosen, Tree, is_directory, join, sum_of, without_slashes};
use crate::error::{Error, Kind, Result, plain};
use model::files::{ALL_LEVELS, Doomed, FileKind, FileStatus, Found, Question, Record, Sum, SumAlgorithm, Tally};
use model::{DigestAlgorithm, FailureKind};

/// Paths in one question, well below what the protocol allows.
pub const PATHS_AT_ONCE: usize = 256;
/// Names of files that have several, kept until the listing has come past all of their names, as far as memory allows.
const LINKED_MAX: usize = 1 << 16;
/// Why an object stays whose destination is itself.
const REACHED_ITSELF: &str = "the destination is the same object, reached by another path";
const NOT_THE_SAME: &str = "the destination does not have the same content";

/// What was not removed.
pub struct Stayed<'a> {
    /// Below the source.
    pub path: &'a [u8],
    pub kind: FailureKind,
    pub why: &'a str,
    /// It could not be read.
    pub is_unread: bool,
}

/// A source whose copy lies at a destination.
pub struct Delivery<'a> {
    pub source: Tree<'a>,
    pub to: Tree<'a>,
    pub digest: DigestAlgorithm,
    pub chosen: Chosen<'a>,
    /// Called for what stays.
    pub tell: &'a mut dyn FnMut(Stayed<'_>),
    /// What was removed.
    pub moved: Tally,
    /// What is made at the source shows at the destination.
    pub is_one_place: bool,
}

/// What a directory is called that is made for a moment to see whether two paths lead to one place.
const SIGN_PREFIX: &str = ".thalweg-mv-";

impl Delivery<'_> {
    /// Whether what is made at the source can be seen at the destination: mounts over a network make inodes up, and cut times short,
    /// so that an object cannot be told from its copy by what it looks like. Where nothing can be made there, that has to do.
    ///
    /// # Errors
    /// Where the destination does not say whether it sees it.
    fn leads_back(&self) -> Result<bool> {
        let name = format!("{SIGN_PREFIX}{:016x}", u64::from_ne_bytes(net::random_bytes::<8>()));
        let is_tree = is_directory(self.source)?;
        let beside = |path: &[u8]| {
            let path = without_slashes(path);
            let above = path.iter().rposition(|byte| *byte == b'/').map_or(&path[..0], |at| &path[..=at]);
            join(if is_tree { path } else { above }, name.as_bytes())
        };
        let (here, there) = (beside(self.source.path), beside(self.to.path));
        let mut is_made = true;
        let question = Question::Make { paths: vec![here.clone()], with_parents: false };
        let made = self.source.at.ask(&question, &mut |record| {
            is_made &= !matches!(record.found, Found::Failed { .. });
            true
        });
        if made.is_err() || !is_made {
            return Ok(false);
        }
        let (mut is_seen, mut unseen) = (false, None);
        let question = Question::List { paths: vec![there], levels: 0, digest: None };
        let looked = self.to.at.ask(&question, &mut |record| {
            match record.found {
                Found::Object { .. } => is_seen = true,
                Found::Failed { kind, text } if kind != FailureKind::NotFound => unseen = Some(text),
                _ => {}
            }
            true
        });
        let objects = vec![Doomed { path: here, version: None }];
        let question = Question::Remove { objects, is_recursive: false, may_be_directory: true };
        self.source.at.ask(&question, &mut |_| true)?;
        looked?;
        let untold = |text: String| {
            let text = format!("whether source and destination are one place cannot be told: {}", plain(&text));
            Error::new(Kind::Failed, "", text).advice("nothing was removed; give the same command again")
        };
        unseen.map_or(Ok(is_seen), |text| Err(untold(text)))
    }

    /// Goes through the source with its digests and removes what the destination has too; directories last, innermost first.
    pub fn remove(&mut self) -> Result<()> {
        self.is_one_place = !model::mutant::is_on("move-onto-itself") && self.leads_back()?;
        let algorithm = sum_of(self.digest);
        let question =
            Question::List { paths: vec![self.source.path.to_vec()], levels: ALL_LEVELS, digest: Some(algorithm) };
        let (mut batch, mut linked, mut directories): (Vec<Seen>, Vec<Seen>, Vec<Seen>) = Default::default();
        let mut outcome = Ok(());
        let at = self.source.at;
        at.ask(&question, &mut |record| {
            if let Found::Failed { kind, text } = &record.found {
                (self.tell)(Stayed { path: &record.path, kind: *kind, why: text, is_unread: true });
                return true;
            }
            if !self.chosen.takes(&record) {
                return true;
            }
            let Found::Object { status, sum } = record.found else { return true };
            let seen = Seen { path: record.path, status, sum };
            if seen.status.is_directory() {
                directories.push(seen);
                return true;
            }
            if seen.status.links > 1 {
                linked.push(seen);
                // One of these files that is being read by another name right now stays under that name, and is told.
                if linked.len() == LINKED_MAX {
                    outcome = self.settle_all(algorithm, std::mem::take(&mut linked));
                }
                return outcome.is_ok();
            }
            batch.push(seen);
            if batch.len() == PATHS_AT_ONCE {
                outcome = self.settle(algorithm, std::mem::take(&mut batch));
            }
            outcome.is_ok()
        })?;
        outcome?;
        self.settle(algorithm, batch)?;
        // Each name that goes changes the file, which may still have been read by another name before.
        self.settle_all(algorithm, linked)?;
        self.remove_directories(directories)
    }

    fn settle_all(&mut self, algorithm: SumAlgorithm, seen: Vec<Seen>) -> Result<()> {
        let mut rest = seen.into_iter();
        loop {
            let batch: Vec<Seen> = rest.by_ref().take(PATHS_AT_ONCE).collect();
            if batch.is_empty() {
                return Ok(());
            }
            self.settle(algorithm, batch)?;
        }
    }

    fn remove_directories(&mut self, mut directories: Vec<Seen>) -> Result<()> {
        while !directories.is_empty() {
            let rest = directories.len().saturating_sub(PATHS_AT_ONCE);
            let batch: Vec<Seen> = directories.drain(rest..).rev().collect();
            let is_there = self.delivered(None, &batch)?;
            let mut objects = Vec::new();
            for (seen, delivered) in batch.into_iter().zip(is_there) {
                match delivered {
                    Delivered::Same => objects.push(Doomed { path: self.source.below(&seen.path), version: None }),
                    Delivered::Itself => self.keep(&seen.path, REACHED_ITSELF),
                    // Why it is not there was told by the copy.
                    Delivered::Not => {}
                }
            }
            if objects.is_empty() {
                continue;
            }
            let question = Question::Remove { objects, is_recursive: false, may_be_directory: true };
            // One that is not empty holds what was told already.
            self.moved.directories += self.source.at.ask(&question, &mut |_| true)?.directories;
        }
        Ok(())
    }

    fn keep(&mut self, path: &[u8], why: &str) {
        (self.tell)(Stayed { path, kind: FailureKind::Other, why, is_unread: false });
    }

    /// What the destination has of each object of a batch.
    fn delivered(&self, digest: Option<SumAlgorithm>, batch: &[Seen]) -> Result<Vec<Delivered>> {
        let paths = batch.iter().map(|seen| self.to.below(&seen.path)).collect();
        let question = Question::List { paths, levels: 0, digest };
        let mut delivered = vec![Delivered::Not; batch.len()];
        self.to.at.ask(&question, &mut |record| {
            let which = record.asked as usize;
            if let (Some(slot), Some(seen)) = (delivered.get_mut(which), batch.get(which)) {
                *slot = match seen.delivered(&record.found) {
                    Delivered::Same if self.is_one_place => Delivered::Itself,
                    delivered => delivered,
                };
            }
            true
        })?;
        Ok(delivered)
    }

    /// Removes those of a batch that the destination has.
    fn settle(&mut self, algorithm: SumAlgorithm, batch: Vec<Seen>) -> Result<()> {
        if batch.is_empty() {
            return Ok(());
        }
        let is_there = self.delivered(Some(algorithm), &batch)?;
        let (mut doomed, mut paths, mut bytes) = (Vec::new(), Vec::new(), Vec::new());
        for (seen, delivered) in batch.into_iter().zip(is_there) {
            match delivered {
                Delivered::Same => {
                    bytes.push(if seen.status.kind == FileKind::File { seen.status.size_bytes } else { 0 });
                    let version = Some(seen.status.version());
                    doomed.push(Doomed { path: self.source.below(&seen.path), version });
                    paths.push(seen.path);
                }
                Delivered::Itself => self.keep(&seen.path, REACHED_ITSELF),
                Delivered::Not => self.keep(&seen.path, NOT_THE_SAME),
            }
        }
        if doomed.is_empty() {
            return Ok(());
        }
        let question = Question::Remove { objects: doomed, is_recursive: false, may_be_directory: false };
        let at = self.source.at;
        let removed = at.ask(&question, &mut |record: Record| {
            let which = record.asked as usize;
            if let (Found::Failed { kind, text }, Some(path)) = (&record.found, paths.get(which)) {
                bytes[which] = 0;
                (self.tell)(Stayed { path, kind: *kind, why: text, is_unread: false });
            }
            true
        })?;
        self.moved.files += removed.files;
        self.moved.bytes += bytes.iter().sum::<u64>();
        Ok(())
    }
}

/// An object of the source, with what was read of it.
struct Seen {
    path: Vec<u8>,
    status: FileStatus,
    sum: Option<Sum>,
}

/// What the destination has of an object.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Delivered {
    Not,
    Same,
    /// The object itself: a mount, a shared file system or a link leads back to the source.
    Itself,
}

impl Seen {
    fn delivered(&self, found: &Found) -> Delivered {
        let Found::Object { status, sum } = found else { return Delivered::Not };
        let is_same = match (&self.status.kind, &status.kind) {
            (FileKind::File, FileKind::File) => {
                self.sum.is_some() && self.sum == *sum && self.status.size_bytes == status.size_bytes
            }
            (FileKind::Symlink(here), FileKind::Symlink(there)) => here == there,
            (FileKind::Directory, FileKind::Directory) => true,
            _ => false,
        };
        match is_same {
            true if self.is_itself(status) => Delivered::Itself,
            true => Delivered::Same,
            false => Delivered::Not,
        }
    }

    /// Two hosts give one file system different devices, but an inode and the time of its last change are the same on both, and no
    /// copy has both from its original.
    fn is_itself(&self, there: &FileStatus) -> bool {
        let identity = |status: &FileStatus| (status.inode, status.changed);
        let is_known = self.status.inode != 0 && !model::mutant::is_on("move-onto-itself");
        is_known && identity(&self.status) == identity(there)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trees::Answers;
    use model::Timestamp;
    use model::selection::Selection;
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};

    fn at(seconds: i64) -> Timestamp {
        Timestamp { seconds, nanoseconds: 7 }
    }

    fn status(kind: FileKind, inode: u64) -> FileStatus {
        FileStatus {
            kind,
            mode: 0o644,
            size_bytes: 3,
            allocated_bytes: 4096,
            owner: 0,
            group: 0,
            links: 1,
            inode,
            device: 1,
            modified: at(1),
            changed: at(2),
        }
    }

    /// A directory with one file, at either end of a move.
    struct End {
        inode: u64,
        /// What the first listing comes to; nothing where it is as any other.
        first: Option<fn() -> Result<Found>>,
        was_asked: AtomicBool,
        removed: Mutex<Vec<Vec<u8>>>,
    }

    impl End {
        fn new(inode: u64, first: Option<fn() -> Result<Found>>) -> End {
            End { inode, first, was_asked: AtomicBool::new(false), removed: Mutex::default() }
        }
    }

    impl Answers for End {
        fn ask(&self, question: &Question, each: &mut dyn FnMut(Record) -> bool) -> Result<Tally> {
            let mut tell = |path: &[u8], found| each(Record { asked: 0, path: path.to_vec(), is_last: true, found });
            let sum = Some(Sum::from(&DigestAlgorithm::Crc64Nvme.of_object(b"abc")));
            let directory = || Found::Object { status: status(FileKind::Directory, self.inode), sum: None };
            let file = || Found::Object { status: status(FileKind::File, self.inode + 1), sum: sum.clone() };
            match question {
                Question::List { .. } if self.first.is_some() && !self.was_asked.swap(true, Relaxed) => {
                    let found = self.first.expect("looked at above")()?;
                    tell(b"", found);
                }
                Question::List { levels: ALL_LEVELS, .. } => {
                    tell(b"", directory());
                    tell(b"f", file());
                }
                Question::List { digest: Some(_), .. } => _ = tell(b"", file()),
                Question::List { .. } => _ = tell(b"", directory()),
                Question::Remove { objects, .. } => {
                    self.removed.lock().unwrap().extend(objects.iter().map(|object| object.path.clone()));
                }
                _ => {}
            }
            Ok(Tally::default())
        }
    }

    #[test]
    fn nothing_is_removed_where_the_destination_does_not_say_whether_it_is_the_source() {
        type First = fn() -> Result<Found>;
        let firsts: [(First, bool); 3] = [
            (|| Err(Error::new(Kind::Temporary, "", "the connection was lost")), false),
            (|| Ok(Found::Failed { kind: FailureKind::ReadError, text: "no answer".to_owned() }), false),
            (|| Ok(Found::Failed { kind: FailureKind::NotFound, text: "not there".to_owned() }), true),
        ];
        let sign = [&b"s/"[..], SIGN_PREFIX.as_bytes()].concat();
        for (first, is_moved) in firsts {
            let (from, to) = (End::new(10, None), End::new(20, Some(first)));
            let selection = Selection::default();
            let mut delivery = Delivery {
                source: Tree { at: &from, path: b"s" },
                to: Tree { at: &to, path: b"d" },
                digest: DigestAlgorithm::Crc64Nvme,
                chosen: Chosen { selection: &selection, is_everything: true, prefix: b"" },
                tell: &mut |_| {},
                moved: Tally::default(),
                is_one_place: false,
            };
            assert_eq!(delivery.remove().is_ok(), is_moved);
            let removed = from.removed.into_inner().unwrap();
            let (signs, others): (Vec<_>, Vec<_>) = removed.into_iter().partition(|path| path.starts_with(&sign));
            assert_eq!(signs.len(), 1, "the sign does not stay");
            assert_eq!(others.len(), if is_moved { 2 } else { 0 }, "{others:?}");
        }
    }

    /// A directory with so many names of files that have several.
    struct Linked {
        names: usize,
        inode: u64,
        removed: AtomicUsize,
        /// How many were removed before the last one had been listed.
        removed_in_time: AtomicUsize,
    }

    impl Answers for Linked {
        fn ask(&self, question: &Question, each: &mut dyn FnMut(Record) -> bool) -> Result<Tally> {
            let sum = Some(Sum::from(&DigestAlgorithm::Crc64Nvme.of_object(b"abc")));
            let mut tell = |asked: usize, path: String, found| {
                each(Record { asked: asked as u32, path: path.into_bytes(), is_last: true, found })
            };
            let status_of_file = || FileStatus { links: 2, ..status(FileKind::File, self.inode) };
            let file = || Found::Object { status: status_of_file(), sum: sum.clone() };
            match question {
                Question::List { levels: ALL_LEVELS, .. } => {
                    for number in 0..self.names {
                        assert!(tell(0, number.to_string(), file()));
                    }
                    self.removed_in_time.store(self.removed.load(Relaxed), Relaxed);
                }
                Question::List { paths, digest: Some(_), .. } => {
                    assert!(paths.len() <= PATHS_AT_ONCE);
                    (0..paths.len()).for_each(|asked| _ = tell(asked, String::new(), file()));
                }
                Question::List { paths, .. } if String::from_utf8_lossy(&paths[0]).contains(SIGN_PREFIX) => {
                    let text = "not there".to_owned();
                    tell(0, String::new(), Found::Failed { kind: FailureKind::NotFound, text });
                }
                Question::List { .. } => {
                    let status = status(FileKind::Directory, self.inode + 1);
                    tell(0, String::new(), Found::Object { status, sum: None });
                }
                Question::Remove { objects, .. } if objects[0].version.is_some() => {
                    assert!(objects.len() <= PATHS_AT_ONCE);
                    self.removed.fetch_add(objects.len(), Relaxed);
                }
                _ => {}
            }
            Ok(Tally::default())
        }
    }

    #[test]
    fn names_of_files_that_have_several_wait_for_the_end_of_the_listing_as_far_as_memory_allows() {
        for (names, in_time) in [(1000, 0), (LINKED_MAX + 1000, LINKED_MAX)] {
            let end = |inode| Linked {
                names,
                inode,
                removed: AtomicUsize::default(),
                removed_in_time: AtomicUsize::default(),
            };
            let (from, to) = (end(10), end(20));
            let selection = Selection::default();
            let mut delivery = Delivery {
                source: Tree { at: &from, path: b"s" },
                to: Tree { at: &to, path: b"d" },
                digest: DigestAlgorithm::Crc64Nvme,
                chosen: Chosen { selection: &selection, is_everything: true, prefix: b"" },
                tell: &mut |stayed: Stayed<'_>| assert_eq!(stayed.why, "", "it stayed"),
                moved: Tally::default(),
                is_one_place: false,
            };
            delivery.remove().unwrap();
            assert_eq!((from.removed_in_time.load(Relaxed), from.removed.load(Relaxed)), (in_time, names));
        }
    }

    #[test]
    fn an_object_is_not_its_own_copy_whatever_its_host_calls_the_device() {
        let here = status(FileKind::File, 12);
        let sum = Some(Sum::from(&model::DigestAlgorithm::Crc64Nvme.of_object(b"abc")));
        let seen = Seen { path: Vec::new(), status: here.clone(), sum: sum.clone() };
        let delivered = |status, sum: &Option<Sum>| seen.delivered(&Found::Object { status, sum: sum.clone() });
        assert_eq!(delivered(FileStatus { device: 2, ..here.clone() }, &sum), Delivered::Itself);
        assert_eq!(delivered(FileStatus { inode: 13, ..here.clone() }, &sum), Delivered::Same);
        assert_eq!(delivered(FileStatus { changed: at(3), ..here.clone() }, &sum), Delivered::Same);
        assert_eq!(delivered(here.clone(), &None), Delivered::Not);
        assert_eq!(delivered(FileStatus { size_bytes: 4, ..here }, &sum), Delivered::Not);
    }
}
