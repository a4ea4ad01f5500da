//! A destination into which its clients may put files and know nothing of what is there.
//!
//! Invariants:
//! - Nothing that stands there is replaced, removed, read or given other attributes, whatever the options of a job say.
//! - What comes under a name that is taken gets another one beside it, `NAME.~TAG~`, and its sender hears that it was
//!   delivered, as of any file. Only what has the very size and time that the sender described is passed over: it is most
//!   often the sender's own, from an earlier attempt.
//! - The tag is that of the job: an attempt that is made again finds what the one before put aside.
//!
//! Two senders of one name at the same moment may both find it free; then one file fails and is delivered by the next
//! attempt. Not here: who may do what (see `daemon`).

use crate::sink::{Decision, LinkRule, Linked, PublishRule, Sink, SinkLane, Staged, StagedFile};
use crate::source::SourceFile;
use crate::{Abilities, BlockWriter, Engines, Error, Result, SinkFacts};
use model::fidelity::Warning;
use model::name::NAME_BYTES_MAX;
use model::{Digest, Entry, Extent, ExtentSet, FailureKind, Kind, Name, ObjectId, mutant};
use std::any::Any;
use std::sync::Arc;

/// Objects of one name that one job may put aside.
const ASIDE_MAX: u32 = 64;

pub struct DropBox {
    inner: Arc<dyn Sink>,
    tag: Arc<str>,
}

impl DropBox {
    /// `tag` is letters and digits, the same for each attempt at a job.
    pub fn new(inner: Arc<dyn Sink>, tag: &str) -> DropBox {
        DropBox { inner, tag: tag.into() }
    }

    fn dropped(&self, (file, journal): (Arc<dyn StagedFile>, Vec<u8>)) -> (Arc<dyn StagedFile>, Vec<u8>) {
        (Arc::new(DropFile { file, inner: self.inner.clone(), tag: self.tag.clone() }), journal)
    }
}

/// The name in whose place another one is taken for the `number`th time, from 0.
pub fn aside(name: &Name, tag: &str, number: u32) -> Name {
    let tail = if number == 0 { format!(".~{tag}~") } else { format!(".~{tag}.{}~", number + 1) };
    let kept = name.as_bytes().len().min(NAME_BYTES_MAX - tail.len());
    Name::new(&[&name.as_bytes()[..kept], tail.as_bytes()].concat()).expect("a shortened name with letters behind it")
}

/// Its own name, then others beside it. What would make a set of the directory, and so say who may read there, is always aside.
fn each_name<'a>(name: &'a Name, tag: &'a str) -> impl Iterator<Item = Name> + 'a {
    let is_free = !name.as_bytes().eq_ignore_ascii_case(model::set::DIRECTORY.as_bytes());
    let own = (is_free || mutant::is_on("drop-box-makes-sets")).then(|| name.clone());
    own.into_iter().chain((0..ASIDE_MAX).map(move |number| aside(name, tag, number)))
}

fn under_each_name<'a>(entry: &'a Entry, tag: &'a str) -> impl Iterator<Item = Entry> + 'a {
    each_name(&entry.name, tag).map(|name| Entry { name, ..entry.clone() })
}

fn crowded(entry: &Entry) -> Error {
    let why = "this job has set aside as many objects of this name as it is allowed";
    Error::of_kind(FailureKind::InTheWay, "publish", entry.name.as_bytes(), why)
}

fn unseen<T>() -> Result<T> {
    let why = "senders may not see the contents of this destination";
    Err(Error::of_kind(FailureKind::Permission, "read", b"", why))
}

/// The entry under the first name that is free.
fn placed(inner: &dyn Sink, entry: &Entry, tag: &str) -> Result<Entry> {
    for one in under_each_name(entry, tag) {
        match inner.decide(&one) {
            Ok(Decision::Absent) => return Ok(one),
            Ok(_) => inner.leave(&one),
            Err(e) if e.kind == FailureKind::InTheWay => {}
            Err(e) => return Err(e),
        }
    }
    Err(crowded(entry))
}

/// Makes what has no content under the first name that is free, or passes over an equal one.
fn made(entry: &Entry, tag: &str, make: impl Fn(&Entry) -> Result<bool>) -> Result<bool> {
    for one in under_each_name(entry, tag) {
        match make(&one) {
            Err(e) if e.kind == FailureKind::InTheWay => {}
            made => return made,
        }
    }
    Err(crowded(entry))
}

impl Sink for DropBox {
    fn facts(&self) -> Result<SinkFacts> {
        let facts = self.inner.facts()?;
        // A name is taken when an object is published, and not before.
        let own = Abilities {
            compare: false,
            prune: false,
            amend: false,
            touch: false,
            hard_links: false,
            views: false,
            backup: false,
            ..facts.can
        };
        Ok(SinkFacts { can: own, ..facts })
    }

    fn interrupt(&self) {
        self.inner.interrupt();
    }

    fn probe(&self, engines: &Engines) {
        self.inner.probe(engines);
    }

    fn writer(&self, engines: &Engines) -> Option<Box<dyn BlockWriter>> {
        self.inner.writer(engines)
    }

    fn enter(&self, name: &Name) -> Result<()> {
        for one in each_name(name, &self.tag) {
            match self.inner.enter(&one) {
                Err(e) if is_taken(&e) => {}
                entered => return entered,
            }
        }
        Err(Error::of_kind(FailureKind::InTheWay, "make directory", name.as_bytes(), "its names are taken"))
    }

    fn make_directory(&self, entry: &Entry) -> Result<()> {
        for one in under_each_name(entry, &self.tag) {
            match self.inner.decide(&one) {
                Ok(Decision::Absent) => return self.inner.make_directory(&one),
                // One that is there is gone into as it is.
                Err(e) if e.kind == FailureKind::InTheWay => return self.inner.look_directory(&one),
                Ok(_) => {}
                Err(e) => return Err(e),
            }
        }
        Err(crowded(entry))
    }

    fn look_directory(&self, _: &Entry) -> Result<()> {
        unseen()
    }

    fn is_fresh(&self, directory: ObjectId) -> bool {
        self.inner.is_fresh(directory)
    }

    fn open_published(&self, _: &Entry) -> Result<Arc<dyn SourceFile>> {
        unseen()
    }

    fn make_symlink(&self, entry: &Entry, _: PublishRule) -> Result<bool> {
        made(entry, &self.tag, |one| self.inner.make_symlink(one, PublishRule::NoReplace))
    }

    fn make_node(&self, entry: &Entry, _: PublishRule) -> Result<bool> {
        made(entry, &self.tag, |one| self.inner.make_node(one, PublishRule::NoReplace))
    }

    fn make_hard_link(&self, _: &Entry, _: &Entry, _: LinkRule) -> Result<Linked> {
        unseen()
    }

    /// It keeps the attributes that it has, and its sender is not told which.
    fn amend(&self, _: &Entry) -> Result<u32> {
        Ok(0)
    }

    fn learn_owner(&self, is_group: bool, number: u32, name: &[u8]) {
        self.inner.learn_owner(is_group, number, name);
    }

    fn take_warnings(&self) -> Vec<Warning> {
        self.inner.take_warnings()
    }

    fn decide(&self, entry: &Entry) -> Result<Decision> {
        // Links are compared when they are made.
        if entry.kind != Kind::File {
            return Ok(Decision::Absent);
        }
        for one in under_each_name(entry, &self.tag) {
            match self.inner.decide(&one) {
                Ok(Decision::Replace { .. }) => self.inner.leave(&one),
                Err(e) if e.kind == FailureKind::InTheWay => {}
                decided => return decided,
            }
        }
        Err(crowded(entry))
    }

    fn lane(&self, is_published_at_once: bool) -> Result<Box<dyn SinkLane>> {
        let lane = self.inner.lane(is_published_at_once)?;
        Ok(Box::new(DropLane { lane, inner: self.inner.clone(), tag: self.tag.clone() }))
    }

    fn begin(&self, entry: &Entry, stem: &str) -> Result<(Arc<dyn StagedFile>, Vec<u8>)> {
        Ok(self.dropped(self.inner.begin(&placed(&*self.inner, entry, &self.tag)?, stem)?))
    }

    fn begin_sparse(&self, entry: &Entry, stem: &str) -> Result<(Arc<dyn StagedFile>, Vec<u8>)> {
        Ok(self.dropped(self.inner.begin_sparse(&placed(&*self.inner, entry, &self.tag)?, stem)?))
    }

    /// Nothing of it can be read before it has its name.
    fn begin_growing(&self, entry: &Entry, stem: &str, _: Option<&Name>) -> Result<(Arc<dyn StagedFile>, Vec<u8>)> {
        Ok(self.dropped(self.inner.begin_growing(entry, stem, None)?))
    }

    fn has_journal(&self, entry: &Entry, stem: &str) -> bool {
        placed(&*self.inner, entry, &self.tag).is_ok_and(|entry| self.inner.has_journal(&entry, stem))
    }

    fn drop_staged(&self, is_needless: &dyn Fn(&str, &[u8]) -> bool) {
        self.inner.drop_staged(is_needless);
    }

    fn sync_group(&self, group: &mut dyn Iterator<Item = Staged>) -> Result<bool> {
        self.inner.sync_group(group)
    }

    fn publish(&self, entry: &Entry, staged: Staged) -> Result<()> {
        let placed = placed(&*self.inner, entry, &self.tag).inspect_err(|_| self.inner.discard(staged))?;
        self.inner.publish(&placed, staged)
    }

    fn discard(&self, staged: Staged) {
        self.inner.discard(staged);
    }

    fn reread(&self, entry: &Entry, staged: Staged, check: &mut dyn FnMut(&[u8])) -> Result<()> {
        self.inner.reread(entry, staged, check)
    }

    fn sync_names(&self) -> Result<()> {
        self.inner.sync_names()
    }

    fn finish_directory(&self, entry: &Entry) -> Result<()> {
        if self.inner.is_fresh(entry.id) { self.inner.finish_directory(entry) } else { Ok(()) }
    }

    fn close(&self) {
        self.inner.close();
    }

    fn path(&self, entry: &Entry) -> Vec<u8> {
        self.inner.path(entry)
    }
}

fn is_taken(e: &Error) -> bool {
    use std::io::ErrorKind::{AlreadyExists, NotADirectory};
    matches!(e.source.kind(), AlreadyExists | NotADirectory) || e.kind == FailureKind::InTheWay
}

struct DropLane {
    lane: Box<dyn SinkLane>,
    inner: Arc<dyn Sink>,
    tag: Arc<str>,
}

impl SinkLane for DropLane {
    fn create(&mut self, entry: &Entry, _: PublishRule) -> Result<()> {
        // A store has to know by now which name it will have.
        self.lane.create(&placed(&*self.inner, entry, &self.tag)?, PublishRule::NoReplace)
    }

    fn write(&mut self, bytes: &[u8]) -> Result<()> {
        self.lane.write(bytes)
    }

    fn skip(&mut self, count: u64) -> Result<()> {
        self.lane.skip(count)
    }

    fn share_from(&mut self, source: &dyn SourceFile) -> bool {
        self.lane.share_from(source)
    }

    fn copy_from(&mut self, source: &dyn SourceFile, extent: Extent) -> u64 {
        self.lane.copy_from(source, extent)
    }

    fn seal(&mut self, entry: &Entry, sync: bool) -> Result<Staged> {
        self.lane.seal(entry, sync)
    }

    fn abandon(&mut self) {
        self.lane.abandon();
    }

    fn publish(&mut self, entry: &Entry, staged: Staged) -> Result<()> {
        let placed = placed(&*self.inner, entry, &self.tag).inspect_err(|_| self.inner.discard(staged))?;
        self.lane.publish(&placed, staged)
    }
}

struct DropFile {
    file: Arc<dyn StagedFile>,
    inner: Arc<dyn Sink>,
    tag: Arc<str>,
}

impl DropFile {
    fn placed(&self, entry: &Entry) -> Result<Entry> {
        Ok(Entry { generation: entry.generation, ..placed(&*self.inner, entry, &self.tag)? })
    }
}

impl StagedFile for DropFile {
    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.file.write_at(offset, bytes)
    }

    fn share_from(&self, source: &dyn SourceFile) -> bool {
        self.file.share_from(source)
    }

    fn copy_from(&self, source: &dyn SourceFile, extent: Extent) -> u64 {
        self.file.copy_from(source, extent)
    }

    fn clear(&self, extent: Extent) -> Result<()> {
        self.file.clear(extent)
    }

    fn native(&self) -> Option<&dyn Any> {
        self.file.native()
    }

    fn allocated_bytes(&self) -> u64 {
        self.file.allocated_bytes()
    }

    fn resume(&self, held_bytes: u64) -> Result<()> {
        self.file.resume(held_bytes)
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        self.file.read_at(offset, buffer)
    }

    fn kept(&self, recorded: &[(Extent, Digest)]) -> Option<Vec<bool>> {
        self.file.kept(recorded)
    }

    fn again_from(&self, start: u64) -> u64 {
        self.file.again_from(start)
    }

    fn append_journal(&self, bytes: &[u8]) -> Result<()> {
        self.file.append_journal(bytes)
    }

    fn truncate_journal(&self, length: u64) -> Result<()> {
        self.file.truncate_journal(length)
    }

    fn seal_extent(&self, extent: Extent, record: &[u8]) -> Result<()> {
        self.file.seal_extent(extent, record)
    }

    fn settle(&self, size_bytes: u64) -> Result<()> {
        self.file.settle(size_bytes)
    }

    fn checkpoint(&self) -> Result<()> {
        self.file.checkpoint()
    }

    fn confirmed(&self, held: &ExtentSet) -> ExtentSet {
        self.file.confirmed(held)
    }

    fn reread(&self, check: &mut dyn FnMut(&[u8])) -> Result<()> {
        self.file.reread(check)
    }

    fn outlasts_its_host(&self) -> bool {
        self.file.outlasts_its_host()
    }

    fn make_durable(&self, entry: &Entry) -> Result<()> {
        self.file.make_durable(&self.placed(entry)?)
    }

    fn publish(&self, entry: &Entry, _: PublishRule) -> Result<()> {
        self.file.publish(&self.placed(entry)?, PublishRule::NoReplace)
    }

    fn discard(&self) {
        self.file.discard();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::posix::{PosixSink, beneath};
    use model::{Generation, Timestamp};
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};

    fn entry(id: u64, name: &str, kind: Kind) -> Entry {
        let modified = Timestamp { seconds: 7, nanoseconds: 1 };
        let generation = Generation { size_bytes: 4, modified, ..Generation::default() };
        let name = Name::new(name.as_bytes()).unwrap();
        Entry { id: ObjectId(id), parent: ObjectId::ROOT, name, kind, mode: 0o700, generation, attributes: None }
    }

    fn send(sink: &dyn Sink, entry: &Entry, bytes: &[u8]) {
        let mut lane = sink.lane(true).unwrap();
        lane.create(entry, PublishRule::Replace).unwrap();
        lane.write(bytes).unwrap();
        let staged = lane.seal(entry, false).unwrap();
        lane.publish(entry, staged).unwrap();
    }

    #[test]
    fn nobody_who_sends_makes_a_set_of_a_directory_that_others_read() {
        let dir = tempfile::tempdir().unwrap();
        let root = Arc::new(beneath::open_directory(dir.path()).unwrap());
        let sink = DropBox::new(Arc::new(PosixSink::new(root.clone(), root, None)), "77");
        for (id, name) in [(1, ".thalweg-set"), (2, ".Thalweg-SET")] {
            sink.make_directory(&entry(id, name, Kind::Directory)).unwrap();
            assert!(!dir.path().join(name).exists() && dir.path().join(format!("{name}.~77~")).is_dir());
        }
    }

    #[test]
    fn what_is_there_stays_as_it_is_and_what_comes_gets_a_name_beside_it() {
        let dir = tempfile::tempdir().unwrap();
        let root = Arc::new(beneath::open_directory(dir.path()).unwrap());
        let sink = || DropBox::new(Arc::new(PosixSink::new(root.clone(), root.clone(), None)), "77");
        let at = |name: &str| dir.path().join(name);
        fs::write(at("f"), "others'").unwrap();
        symlink("others", at("l")).unwrap();
        fs::create_dir(at("d")).unwrap();
        fs::set_permissions(at("d"), fs::Permissions::from_mode(0o755)).unwrap();
        let file = entry(1, "f", Kind::File);
        assert!(matches!(sink().decide(&file), Ok(Decision::Absent)));
        send(&sink(), &file, b"mine");
        assert_eq!((fs::read(at("f")).unwrap(), fs::read(at("f.~77~")).unwrap()), (b"others'".into(), b"mine".into()));
        // The same again is what this job has put aside; another version is not.
        assert!(matches!(sink().decide(&file), Ok(Decision::Same)));
        let mut newer = file.clone();
        newer.generation.modified.seconds = 8;
        assert!(matches!(sink().decide(&newer), Ok(Decision::Absent)));
        send(&sink(), &newer, b"new!");
        assert_eq!(fs::read(at("f.~77.2~")).unwrap(), b"new!");
        // A file where a directory stands, a directory where a file stands, and a link.
        send(&sink(), &entry(2, "d", Kind::File), b"mine");
        assert_eq!(fs::read(at("d.~77~")).unwrap(), b"mine");
        let one = sink();
        one.make_directory(&entry(3, "f", Kind::Directory)).unwrap();
        one.finish_directory(&entry(3, "f", Kind::Directory)).unwrap();
        assert!(at("f.~77.3~").is_dir());
        let link = |to: &[u8]| entry(4, "l", Kind::Symlink(to.into()));
        assert!(!sink().make_symlink(&link(b"others"), PublishRule::Replace).unwrap());
        assert!(sink().make_symlink(&link(b"mine"), PublishRule::Replace).unwrap());
        assert_eq!(fs::read_link(at("l")).unwrap().to_str(), Some("others"));
        assert_eq!(fs::read_link(at("l.~77~")).unwrap().to_str(), Some("mine"));
        // A directory that is there is gone into, and keeps its mode and time.
        let before = fs::metadata(at("d")).unwrap();
        let one = sink();
        one.make_directory(&entry(5, "d", Kind::Directory)).unwrap();
        one.finish_directory(&entry(5, "d", Kind::Directory)).unwrap();
        let after = fs::metadata(at("d")).unwrap();
        assert_eq!(
            (before.permissions(), before.modified().unwrap()),
            (after.permissions(), after.modified().unwrap())
        );
        assert!(one.open_published(&file).is_err() && one.touch(&file).is_err() && one.amend(&file).unwrap() == 0);
    }

    #[test]
    fn what_grows_goes_on_from_where_an_attempt_left_it_and_is_put_beside_what_is_there() {
        let dir = tempfile::tempdir().unwrap();
        let root = Arc::new(beneath::open_directory(dir.path()).unwrap());
        let sink = || DropBox::new(Arc::new(PosixSink::new(root.clone(), root.clone(), None)), "77");
        fs::write(dir.path().join("f"), "others'").unwrap();
        let file = entry(1, "f", Kind::File);
        let (first, _) = sink().begin_growing(&file, "stem", None).unwrap();
        first.resume(0).unwrap();
        first.write_at(0, b"abcdefgh").unwrap();
        drop(first);
        // It is as long as what was written to it, not as what it was described with.
        let (again, _) = sink().begin_growing(&file, "stem", None).unwrap();
        let mut there = [0; 16];
        assert_eq!(again.read_at(0, &mut there).unwrap(), 8);
        assert!(again.allocated_bytes() > 0, "it takes room");
        again.resume(8).unwrap();
        again.write_at(8, b"ij").unwrap();
        let mut complete = file.clone();
        complete.generation.size_bytes = 10;
        again.publish(&complete, PublishRule::Replace).unwrap();
        assert_eq!(fs::read(dir.path().join("f.~77~")).unwrap(), b"abcdefghij");
        assert_eq!(fs::read(dir.path().join("f")).unwrap(), b"others'");
    }

    #[test]
    fn what_finds_every_name_taken_when_it_is_published_leaves_nothing_behind() {
        let dir = tempfile::tempdir().unwrap();
        let root = Arc::new(beneath::open_directory(dir.path()).unwrap());
        let sink = DropBox::new(Arc::new(PosixSink::new(root.clone(), root, None)), "77");
        let file = entry(1, "f", Kind::File);
        let mut lane = sink.lane(false).unwrap();
        lane.create(&file, PublishRule::Replace).unwrap();
        lane.write(b"mine").unwrap();
        let staged = lane.seal(&file, false).unwrap();
        each_name(&file.name, "77").for_each(|name| fs::write(dir.path().join(name.to_string()), "others'").unwrap());
        assert_eq!(sink.publish(&file, staged).unwrap_err().kind, FailureKind::InTheWay);
        drop(lane);
        sink.close();
        let mut left = fs::read_dir(dir.path()).unwrap().map(|found| found.unwrap().file_name());
        let is_staging = |name: std::ffi::OsString| name.as_encoded_bytes().starts_with(crate::sink::STAGING_PREFIX);
        assert!(!left.any(is_staging), "what was staged stayed");
    }

    #[test]
    fn names_beside_fit_however_long_they_are() {
        let long = Name::new(&[b'x'; 255]).unwrap();
        assert_eq!(aside(&long, "0123abcd", 62).as_bytes().len(), 255);
        assert_eq!(aside(&Name::new(b"f").unwrap(), "ab", 1).as_bytes(), b"f.~ab.2~");
    }
}
