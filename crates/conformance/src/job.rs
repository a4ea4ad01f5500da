//! The only callers of the traits that more than one check needs: one attempt at a destination, and the listing of a source.
//!
//! Whoever changes the traits of `store` follows here, and seldom in the checks themselves.

use crate::check::{Fault, ensure};
use crate::stand::{Place, Stocked};
use model::{Entry, FailureKind, Generation, Kind, Name, ObjectId, Timestamp};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use store::{Found, PublishRule, Sink, SinkLane, Source, SourceFile, SourceObject, Staged, StagedFile};

/// What objects of the suite have as their time, unless a check says otherwise.
pub const MODIFIED: Timestamp = Timestamp { seconds: 1_234_567_890, nanoseconds: 123_456_789 };
pub const STEM: &str = "suite0stem";

/// More than any file of the suite has.
const CONTENT_BYTES_MAX: usize = 64 << 20;

/// An object as a listing shows it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Seen {
    Directory,
    File(Vec<u8>),
    /// With its target.
    Symlink(Vec<u8>),
    /// A special file.
    Node,
}

impl Seen {
    pub fn into_content(self) -> Option<Vec<u8>> {
        match self {
            Seen::File(content) => Some(content),
            _ => None,
        }
    }
}

/// Names that storage is apt to spoil.
pub fn hostile_names() -> Vec<Name> {
    let long = [b'x'; 255];
    let names: [&[u8]; 12] = [
        b"new\nline",
        b"\xff\xfe not UTF-8",
        b"-rf",
        b" ",
        b"trailing ",
        b"a\\b",
        b"*",
        b"~",
        b"...",
        b"\x1b[31m",
        b"%2e%2e",
        &long,
    ];
    names.into_iter().map(|bytes| Name::new(bytes).expect("a name, if not a nice one")).collect()
}

pub fn name(text: &str) -> Name {
    Name::new(text.as_bytes()).expect("checks use names")
}

/// Bytes that differ from file to file and from place to place.
pub fn content(seed: u64, length: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 24) as u8
    };
    (0..length).map(|_| next()).collect()
}

/// One attempt at a destination: a job, as the storage sees it.
pub struct Attempt {
    pub sink: Arc<dyn Sink>,
    next: AtomicU64,
}

impl Attempt {
    pub fn at(place: &dyn Place) -> Result<Attempt, Fault> {
        let sink =
            place.sink().ok_or_else(|| Fault::new("the place has no sink, though its stand does not lack one"))?;
        Ok(Attempt { sink, next: AtomicU64::new(0) })
    }

    fn entry(&self, parent: ObjectId, name: Name, kind: Kind, mode: u32, size_bytes: u64) -> Entry {
        let id = ObjectId(self.next.fetch_add(1, Relaxed) + 1);
        let generation = Generation { size_bytes, modified: MODIFIED, ..Generation::default() };
        Entry { id, parent, name, kind, mode, generation, attributes: None }
    }

    /// Describes a file.
    pub fn file(&self, parent: ObjectId, name: Name, size: usize) -> Entry {
        self.entry(parent, name, Kind::File, 0o644, size as u64)
    }

    /// Describes something without content.
    pub fn other(&self, name: Name, kind: Kind) -> Entry {
        self.entry(ObjectId::ROOT, name, kind, 0o644, 0)
    }

    /// Makes a directory.
    pub fn directory(&self, parent: ObjectId, name: Name) -> Result<Entry, Fault> {
        let entry = self.entry(parent, name, Kind::Directory, 0o755, 0);
        self.sink.make_directory(&entry)?;
        Ok(entry)
    }

    /// A lane whose objects anybody may publish.
    pub fn lane(&self) -> Result<Box<dyn SinkLane>, Fault> {
        Ok(self.sink.lane(false)?)
    }

    /// Publishes a small file by a lane of its own, right away.
    pub fn put(&self, entry: &Entry, content: &[u8], rule: PublishRule) -> Result<(), Fault> {
        Ok(self.try_put(entry, content, rule)?)
    }

    pub fn try_put(&self, entry: &Entry, content: &[u8], rule: PublishRule) -> store::Result<()> {
        let mut lane = self.sink.lane(true)?;
        let staged = stage(&mut *lane, entry, content, rule)?;
        lane.publish(entry, staged)?;
        self.sink.sync_names()
    }

    /// Opens staging for a large file that nobody has begun before.
    pub fn begin(&self, entry: &Entry) -> Result<Arc<dyn StagedFile>, Fault> {
        let (file, journal) = self.sink.begin(entry, STEM)?;
        ensure!(journal.is_empty(), "new staging came with a journal of {} bytes", journal.len());
        Ok(file)
    }

    /// Publishes a large file, written from its start to its end.
    pub fn put_large(&self, entry: &Entry, content: &[u8], rule: PublishRule) -> Result<(), Fault> {
        let file = self.begin(entry)?;
        file.write_at(0, content)?;
        Ok(file.publish(entry, rule)?)
    }

    /// Ends the attempt, with what it leaves for the next one.
    pub fn end(self) {
        self.sink.close();
    }

    /// Ends the attempt and tells what it left behind.
    pub fn close(self, place: &dyn Place) -> Result<(), Fault> {
        self.end();
        let left = place.left();
        ensure!(left.is_empty(), "it left {left:?}");
        Ok(())
    }
}

/// Writes a small file into staging.
pub fn stage(lane: &mut dyn SinkLane, entry: &Entry, content: &[u8], rule: PublishRule) -> store::Result<Staged> {
    lane.create(entry, rule)?;
    let half = content.len() / 2;
    lane.write(&content[..half])?;
    lane.write(&content[half..])?;
    lane.seal(entry, false)
}

/// What a source lists, in its order.
pub fn scan(source: &dyn Source) -> Result<Vec<SourceObject>, Fault> {
    let mut objects = Vec::new();
    let mut failed = None;
    source.scan(&mut |found| {
        match found {
            Found::Object(object) => objects.push(object),
            // What is no object of a tree, as staging is, may be told of.
            Found::Failed(failure) if failure.kind == FailureKind::Special => {}
            Found::Failed(failure) => failed = Some(failure),
        }
        failed.is_none()
    })?;
    match failed {
        Some(failure) => Err(Fault::new(format!("an object failed in the listing: {failure:?}"))),
        None => Ok(objects),
    }
}

/// Reads an open file from its start to its end, in blocks that are no power of two.
pub fn read_to_end(file: &dyn SourceFile) -> Result<Vec<u8>, Fault> {
    let (mut content, mut block) = (Vec::new(), vec![0; 40_009]);
    loop {
        let read = file.read_at(content.len() as u64, &mut block)?;
        content.extend_from_slice(&block[..read]);
        if read < block.len() {
            return Ok(content);
        }
        ensure!(content.len() < CONTENT_BYTES_MAX, "a read never comes to an end");
    }
}

/// Everything that a source has, by path.
pub fn listing(source: &dyn Source) -> Result<BTreeMap<Vec<u8>, Seen>, Fault> {
    let mut lane = source.lane();
    let mut all = BTreeMap::new();
    for object in scan(source)? {
        let seen = match &object.entry.kind {
            Kind::Directory => Seen::Directory,
            Kind::Symlink(target) => Seen::Symlink(target.to_vec()),
            Kind::Node(_) => Seen::Node,
            Kind::File | Kind::HardLink(_) => Seen::File(read_to_end(&*lane.open(&object)?)?),
        };
        let path = source.path(&object);
        ensure!(all.insert(path.clone(), seen).is_none(), "{} was listed twice", model::name::Escaped(&path));
    }
    Ok(all)
}

/// What is published, by path.
pub fn published(place: &dyn Place) -> Result<BTreeMap<Vec<u8>, Seen>, Fault> {
    let source =
        place.source().ok_or_else(|| Fault::new("the place has no source, though its stand does not lack one"))?;
    listing(&*source)
}

/// Publishes a small tree and hands out the source that has it.
pub fn stock(place: &(impl Place + ?Sized), with_links: bool) -> Result<Stocked, Fault> {
    let (Some(sink), Some(source)) = (place.sink(), place.source()) else {
        return Err(Fault::new("a place without a sink and a source stocks itself"));
    };
    let job = Attempt { sink, next: AtomicU64::new(0) };
    let mut objects = BTreeMap::new();
    let mut directories = vec![(ObjectId::ROOT, Vec::new())];
    for (above, text) in [(0, "d"), (1, "inner"), (0, "hollow")] {
        let (parent, mut path) = directories[above].clone();
        let made = job.directory(parent, name(text))?;
        path.extend_from_slice(text.as_bytes());
        objects.insert(path.clone(), Seen::Directory);
        path.push(b'/');
        directories.push((made.id, path));
    }
    let plain = [(0, "empty", 0), (0, "small", 1000), (0, "large", 300_001), (2, "leaf", 10), (1, "middle", 65_536)];
    let plain = plain.into_iter().map(|(at, text, size)| (at, name(text), size));
    let hostile = hostile_names().into_iter().filter(|name| place.can_say(name)).map(|name| (0, name, 3));
    for (seed, (at, name, size)) in plain.chain(hostile).enumerate() {
        let (parent, path) = &directories[at];
        let bytes = content(seed as u64, size);
        objects.insert([path, name.as_bytes()].concat(), Seen::File(bytes.clone()));
        job.put(&job.file(*parent, name, size), &bytes, PublishRule::NoReplace)?;
    }
    for (text, target) in [("link", "small"), ("astray", "../no/where")] {
        if with_links {
            let entry = job.other(name(text), Kind::Symlink(target.as_bytes().into()));
            job.sink.make_symlink(&entry, PublishRule::NoReplace)?;
            objects.insert(text.into(), Seen::Symlink(target.into()));
        }
    }
    job.sink.close();
    Ok(Stocked { source, objects })
}
