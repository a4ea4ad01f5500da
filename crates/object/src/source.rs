//! Keys of a bucket as a source: a tree of the directories that their slashes make.
//!
//! Invariants: objects come in the order of their keys, a directory before what is in it, and each once; a key that is no path is
//! told as a failure of that object. Directories alone are remembered.

use crate::ahead::AHEAD_MAX;
use crate::bucket::Bucket;
use crate::calls::{Listed, Object};
use crate::failure::Why;
use crate::key::{self, KEY_BYTES_MAX};
use crate::known::Known;
use crate::metadata;
use crate::publish::PROBE_PREFIX;
use crate::reading::ObjectFile;
use crate::upload::PART_BYTES;
use model::{Entry, Extent, Failure, FailureKind, Generation, Kind, Name, ObjectId, Selection, Timestamp};
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use store::{
    Directories, DirectoryKey, End, Found, Late, Result, Source, SourceFacts, SourceFile, SourceLane, SourceObject,
    UNKNOWN_TIME,
};

/// The longest target of a symbolic link.
const TARGET_BYTES_MAX: usize = 4096;
/// Versions that are remembered from when they were listed.
const LOOKED_MAX: usize = 4096;
/// Shorter files are read whole.
const LOOKED_BYTES_MIN: u64 = 64 << 10;
const USUAL_FILE: u32 = 0o644;
const USUAL_DIRECTORY: u32 = 0o755;

/// What the user named.
pub enum Base {
    /// Everything below a prefix, which is empty or ends in a slash.
    Contents(String),
    /// The same with a directory of this name above it.
    Directory(Name, String),
    Object(Name, String),
}

pub struct ObjectSource {
    bucket: Arc<Bucket>,
    bases: Vec<Base>,
    selection: Arc<Selection>,
    /// As parts of keys; lanes look keys up in it too.
    directories: Arc<Directories>,
    /// Nothing is read of what is listed: nothing is asked beyond the listing, and directories need not be found again.
    is_looked_at_alone: bool,
    /// What is known of files that are not read whole.
    looked: Arc<Looked>,
    /// Of files up to this length the time may be told when they are read.
    timeless_bytes_max: AtomicU64,
}

impl ObjectSource {
    pub fn new(bucket: Arc<Bucket>, bases: Vec<Base>, selection: Arc<Selection>) -> ObjectSource {
        let (directories, looked, timeless_bytes_max) = Default::default();
        ObjectSource { bucket, bases, selection, directories, is_looked_at_alone: false, looked, timeless_bytes_max }
    }

    /// What stands below a prefix, to be compared with something else.
    pub fn mirror(bucket: Arc<Bucket>, prefix: String) -> ObjectSource {
        let mut source = ObjectSource::new(bucket, vec![Base::Contents(prefix)], Arc::default());
        source.is_looked_at_alone = true;
        source
    }

    /// What is known of what was listed, asked for where it has to be.
    fn look_at(&self, listed: &[Listed]) -> Vec<crate::failure::Result<Option<Object>>> {
        let bytes_max = self.timeless_bytes_max.load(Relaxed);
        let is_read = |listed: &Listed| !listed.key.ends_with('/') && listed.size_bytes <= bytes_max;
        let may_wait = |listed: &Listed| self.is_looked_at_alone || (bytes_max > 0 && is_read(listed));
        let at_hand = |listed: &Listed| {
            self.bucket.at_hand(listed).or_else(|| {
                let Listed { size_bytes, etag, stored, .. } = listed.clone();
                let unknown = Object { size_bytes, etag, stored, modified: Some(UNKNOWN_TIME), ..Object::default() };
                may_wait(listed).then_some(unknown)
            })
        };
        let at_hand: Vec<_> = listed.iter().map(at_hand).collect();
        let missing: Vec<_> = listed.iter().zip(&at_hand).filter(|(_, known)| known.is_none()).collect();
        let mut asked = self.bucket.in_parallel(&missing, |(listed, _)| self.bucket.ask(&listed.key)).into_iter();
        let known = |known: Option<Object>| match known {
            Some(known) => Ok(Some(known)),
            None => asked.next().expect("each was asked for"),
        };
        at_hand.into_iter().map(known).collect()
    }

    /// What is read in extents finds connections that are open.
    fn warm(&self, extents: usize) {
        if extents > 1 && !self.is_looked_at_alone {
            self.bucket.warm(extents.min(AHEAD_MAX));
        }
    }

    /// Where an object leads to, if it is a symbolic link.
    fn target(&self, key: &str, known: &Object) -> Result<Option<Box<[u8]>>> {
        if !is_link(known) {
            return Ok(None);
        }
        let target = self.bucket.link_target(key, known)?;
        Ok((!target.is_empty()).then(|| target.into()))
    }
}

/// What is known of versions that were listed, by their numbers: they are opened without being asked for again.
#[derive(Default)]
struct Looked(Mutex<HashMap<u64, Object>>);

impl Looked {
    fn note(&self, generation: &Generation, object: &Object) {
        let mut known = self.0.lock().unwrap();
        if known.len() < LOOKED_MAX {
            known.insert(generation.version.object(), object.clone());
        }
    }

    fn find(&self, object: &SourceObject) -> Option<Object> {
        self.0.lock().unwrap().get(&object.entry.generation.version.object()).cloned()
    }
}

/// Whether an object is what a symbolic link is kept as.
pub fn is_link(known: &Object) -> bool {
    let is_target = (1..=TARGET_BYTES_MAX as u64).contains(&known.size_bytes);
    is_target && known.mode.is_some_and(metadata::is_link)
}

fn key_of(directories: &Directories, object: &SourceObject) -> String {
    let prefix = directories.path(object.directory);
    format!("{}{}", String::from_utf8_lossy(&prefix), key::of_name(object.entry.name.as_bytes()))
}

/// The names of what is listed. Each directory of it is kept with its path: what is longer than keys can be has none.
fn names_of(key: &str) -> std::result::Result<Vec<Name>, String> {
    match key.len() > KEY_BYTES_MAX {
        true => Err(format!("it is longer than {KEY_BYTES_MAX} bytes")),
        false => key::to_names(key),
    }
}

/// One scan: the directories that are open, outermost first, and the numbers given so far.
struct Scan<'a> {
    source: &'a ObjectSource,
    emit: &'a mut dyn FnMut(Found) -> bool,
    open: Vec<Level>,
    id: u64,
    is_over: bool,
}

struct Level {
    part: String,
    id: ObjectId,
    key: DirectoryKey,
    /// What stands before a name in a report.
    path: Vec<u8>,
}

impl Scan<'_> {
    fn emit(&mut self, found: Found) {
        self.is_over = self.is_over || !(self.emit)(found);
    }

    /// Begins at a prefix: what is found lies below it.
    fn begin(&mut self, prefix: &str) -> Result<()> {
        let key = self.source.directories.enter(None, prefix.as_bytes())?;
        self.open.push(Level { part: String::new(), id: ObjectId::ROOT, key, path: Vec::new() });
        Ok(())
    }

    fn here(&self) -> &Level {
        self.open.last().expect("a base is open")
    }

    fn object(&mut self, name: Name, kind: Kind, mode: u32, generation: Generation) -> ObjectId {
        self.id += 1;
        let (parent, directory) = (self.here().id, self.here().key);
        let entry = Entry { id: ObjectId(self.id), parent, name, kind, mode, generation, attributes: None };
        self.emit(Found::Object(SourceObject { entry, directory, end: End::Known }));
        ObjectId(self.id)
    }

    /// Opens the directories that `parts` lead through, below the base.
    fn descend(&mut self, parts: &[&str], known: Option<&Object>, stored: i64) -> Result<bool> {
        let same = self.open[1..].iter().zip(parts).take_while(|(level, part)| level.part == **part).count();
        self.open.truncate(1 + same);
        for (at, part) in parts.iter().enumerate().skip(same) {
            if self.is_over {
                return Ok(false);
            }
            let Ok(name) = key::to_name(part) else { return Ok(false) };
            // Only the last of them is the one that something is known of.
            let known = known.filter(|_| at + 1 == parts.len());
            let modified = known.map_or(Timestamp { seconds: stored, nanoseconds: 0 }, Object::modified);
            let mode = known.and_then(|known| known.mode).map_or(USUAL_DIRECTORY, |mode| mode & 0o7777);
            let above = self.here();
            let path = [&above.path[..], name.as_bytes(), b"/"].concat();
            let key = match self.source.is_looked_at_alone {
                true => above.key,
                false => self.source.directories.enter(Some(above.key), part.as_bytes())?,
            };
            let generation = Generation { modified, ..Generation::default() };
            let id = self.object(name, Kind::Directory, mode, generation);
            self.open.push(Level { part: (*part).to_owned(), id, key, path });
        }
        Ok(true)
    }

    fn base(&mut self, base: &Base) -> Result<()> {
        self.open.clear();
        match base {
            Base::Object(name, key) => {
                self.begin(&key[..key.len() - key::of_name(name.as_bytes()).len()])?;
                let found = self.source.bucket.head(key).map_err(|failure| failure.on("open source", key))?;
                match found {
                    Some(found) => self.file(name.clone(), key, &found),
                    None => self.failed(key, FailureKind::NotFound, "open file: no such object"),
                }
                Ok(())
            }
            Base::Contents(prefix) => {
                self.begin(prefix)?;
                self.below(prefix)
            }
            Base::Directory(name, prefix) => {
                self.begin(&prefix[..prefix.len() - key::of_name(name.as_bytes()).len() - 1])?;
                let marker = self.source.bucket.head(prefix).ok().flatten();
                let stored = marker.as_ref().map_or(0, |marker| marker.stored);
                self.descend(&[&key::of_name(name.as_bytes())], marker.as_ref(), stored)?;
                if self.is_over {
                    return Ok(());
                }
                // From here on it is the base.
                self.open.remove(0);
                self.below(prefix)
            }
        }
    }

    fn below(&mut self, prefix: &str) -> Result<()> {
        let bucket = self.source.bucket.clone();
        let mut refused = None;
        let listed = bucket.each_page(prefix, &mut |page| {
            let taken: Vec<Listed> = page.into_iter().filter(|listed| self.is_taken(prefix, listed)).collect();
            let extents = taken.iter().map(|listed| listed.size_bytes / PART_BYTES).sum::<u64>();
            self.source.warm(extents as usize);
            let known = self.source.look_at(&taken);
            for (listed, known) in taken.iter().zip(known) {
                if self.is_over || refused.is_some() {
                    return false;
                }
                match known {
                    Ok(Some(known)) => refused = self.listed(prefix, listed, &known).err(),
                    Ok(None) => self.failed(&listed.key, FailureKind::NotFound, "look at: it vanished"),
                    // Whoever may list and read a key may all the same not ask for its metadata.
                    Err(failure) if failure.why == Why::Forbidden => {
                        let Listed { size_bytes, etag, stored, .. } = listed.clone();
                        let known = Object { size_bytes, etag, stored, ..Object::default() };
                        refused = self.listed(prefix, listed, &known).err();
                    }
                    Err(failure) => {
                        let error = failure.on("look at", "");
                        self.failed(&listed.key, error.kind, &error.message());
                    }
                }
            }
            !self.is_over
        });
        listed.map_err(|failure| failure.on("list", prefix))?;
        refused.map_or(Ok(()), Err)
    }

    /// Whether the rules take a key, as far as its name and the listing tell. One that is no path is told, not left out.
    fn is_taken(&self, prefix: &str, listed: &Listed) -> bool {
        let rest = &listed.key[prefix.len()..];
        if rest.is_empty() {
            return false;
        }
        let is_directory = rest.ends_with('/');
        let Ok(names) = names_of(rest.strip_suffix('/').unwrap_or(rest)) else { return true };
        let selection = &self.source.selection;
        let path = [&self.open[0].path[..], &model::name::join(&names)].concat();
        let file = (!is_directory).then_some((listed.size_bytes, listed.stored));
        // The listing's time is not the file's own, which is looked at later.
        let is_taken = Selection { bounds: model::selection::Bounds::default(), ..Selection::clone(selection) };
        is_taken.takes(&path, is_directory, file)
    }

    fn listed(&mut self, prefix: &str, listed: &Listed, known: &Object) -> Result<()> {
        let rest = &listed.key[prefix.len()..];
        let whole = rest.strip_suffix('/').filter(|_| listed.size_bytes == 0).unwrap_or(rest);
        if let Err(why) = names_of(whole) {
            let why = format!("name file: this key is no path: {why}");
            self.failed(&listed.key, FailureKind::NameRefused, &why);
            return Ok(());
        }
        let parts: Vec<&str> = whole.split('/').collect();
        if whole.len() < rest.len() {
            return self.descend(&parts, Some(known), listed.stored).map(drop);
        }
        let (last, above) = parts.split_last().expect("a text has a part");
        if self.descend(above, None, listed.stored)?
            && let Ok(name) = key::to_name(last)
        {
            self.file(name, &listed.key, known);
        }
        Ok(())
    }

    fn file(&mut self, name: Name, key: &str, known: &Object) {
        let mut generation = self.source.bucket.generation(key, known);
        let mode = known.mode.map_or(USUAL_FILE, |mode| mode & 0o7777);
        if self.source.is_looked_at_alone {
            // Of a job that tries what the store can do, and removes it again.
            if name.as_bytes().starts_with(PROBE_PREFIX.as_bytes()) {
                return;
            }
            // Whether a link leads to the same place is not known without asking.
            if is_link(known) {
                generation.modified = UNKNOWN_TIME;
            }
            self.object(name, Kind::File, mode, generation);
            return;
        }
        match self.source.target(key, known) {
            Ok(Some(target)) => {
                generation.size_bytes = 0;
                self.object(name, Kind::Symlink(target), 0o777, generation);
                return;
            }
            Ok(None) => {}
            Err(error) => return self.failed(key, error.kind, &error.message()),
        }
        let (size, modified) = (known.size_bytes, known.modified().seconds);
        let bounds = &self.source.selection.bounds;
        let probe = Selection { bounds: *bounds, ..Selection::default() };
        if probe.takes(name.as_bytes(), false, Some((size, modified))) {
            if size > LOOKED_BYTES_MIN && known.modified != Some(UNKNOWN_TIME) {
                self.source.looked.note(&generation, known);
            }
            self.object(name, Kind::File, mode, generation);
        }
    }

    fn failed(&mut self, key: &str, kind: FailureKind, message: &str) {
        self.emit(Found::Failed(Failure { path: key.as_bytes().to_vec(), kind, message: message.to_owned() }));
    }
}

impl Drop for ObjectSource {
    /// What reading told is kept for the next run.
    fn drop(&mut self) {
        self.bucket.known.iter().for_each(Known::flush);
    }
}

impl Source for ObjectSource {
    fn facts(&self) -> SourceFacts {
        SourceFacts { is_keyed: true, ..SourceFacts::default() }
    }

    fn sort_by_key(&self) -> bool {
        matches!(&self.bases[..], [Base::Contents(_)])
    }

    fn leave_times(&self, bytes_max: u64) {
        self.timeless_bytes_max.store(bytes_max, Relaxed);
    }

    fn scan(&self, emit: &mut dyn FnMut(Found) -> bool) -> Result<()> {
        let mut scan = Scan { source: self, emit, open: Vec::new(), id: 0, is_over: false };
        for base in &self.bases {
            scan.base(base)?;
            if scan.is_over {
                break;
            }
        }
        Ok(())
    }

    fn lane(&self) -> Box<dyn SourceLane> {
        let (bucket, directories, looked) = (self.bucket.clone(), self.directories.clone(), self.looked.clone());
        Box::new(ObjectLane { bucket, directories, looked, here: HashMap::new(), coming: None, late: None })
    }

    fn path(&self, object: &SourceObject) -> Vec<u8> {
        let shown = self.directories.shown(object.directory);
        [key::to_path(&String::from_utf8_lossy(&shown)), object.entry.name.as_bytes().to_vec()].concat()
    }

    fn notes(&self) -> Vec<String> {
        self.bucket.notes()
    }

    fn look_again(&self, object: &SourceObject) -> Result<SourceObject> {
        let key = key_of(&self.directories, object);
        let key = if object.entry.kind == Kind::Directory { format!("{key}/") } else { key };
        let mut again = object.clone();
        let found = match self.bucket.ask(&key) {
            // As it was listed.
            Err(failure) if failure.why == Why::Forbidden && again.entry.generation.modified == UNKNOWN_TIME => {
                again.entry.generation.modified = again.entry.generation.version.changed();
                return Ok(again);
            }
            found => found.map_err(|failure| failure.on("look at", &key))?,
        };
        match found {
            Some(found) if again.entry.kind == Kind::File => {
                again.entry.generation = self.bucket.generation(&key, &found);
                again.entry.mode = found.mode.map_or(USUAL_FILE, |mode| mode & 0o7777);
                if let Some(target) = self.target(&key, &found)? {
                    (again.entry.kind, again.entry.mode) = (Kind::Symlink(target), 0o777);
                    again.entry.generation.size_bytes = 0;
                }
            }
            None if again.entry.kind == Kind::File => {
                let why = "it is not there any more";
                return Err(store::Error::of_kind(FailureKind::NotFound, "look at", key.into_bytes(), why));
            }
            _ => {}
        }
        Ok(again)
    }

    fn look_again_at_all(&self, objects: &[&SourceObject]) -> Vec<Result<SourceObject>> {
        self.bucket.in_parallel(objects, |object| self.look_again(object))
    }
}

/// What came of reading an object whole.
type Fetched = Result<(Vec<u8>, Object)>;

struct ObjectLane {
    bucket: Arc<Bucket>,
    directories: Arc<Directories>,
    looked: Arc<Looked>,
    /// Small objects that are fetched before they are asked for: those that came, and where the others come.
    here: HashMap<ObjectId, Fetched>,
    coming: Option<Receiver<(ObjectId, Fetched)>>,
    /// Of what was read last.
    late: Option<(ObjectId, Late)>,
}

impl ObjectLane {
    /// An object that was asked for ahead, or else now.
    fn fetched(&mut self, object: &SourceObject) -> Fetched {
        let id = object.entry.id;
        loop {
            if let Some(fetched) = self.here.remove(&id) {
                return fetched;
            }
            match self.coming.as_ref().and_then(|coming| coming.recv().ok()) {
                Some((id, fetched)) => self.here.insert(id, fetched),
                None => return fetch(&self.bucket, &key_of(&self.directories, object), object),
            };
        }
    }
}

fn fetch(bucket: &Bucket, key: &str, object: &SourceObject) -> Fetched {
    let (bytes, found) = bucket.read_whole(key, object.entry.size_bytes() as usize)?;
    if object.entry.generation.modified == UNKNOWN_TIME {
        bucket.learn(key, &found);
    }
    Ok((bytes, found))
}

impl Drop for ObjectLane {
    /// What it learnt, also where the process ends before its source does.
    fn drop(&mut self) {
        self.bucket.known.iter().for_each(Known::flush);
    }
}

impl SourceLane for ObjectLane {
    fn read_whole(&mut self, object: &SourceObject, buffer: &mut [u8]) -> Result<(usize, Generation)> {
        let (bytes, found) = self.fetched(object)?;
        let count = bytes.len().min(buffer.len());
        buffer[..count].copy_from_slice(&bytes[..count]);
        if object.entry.generation.modified == UNKNOWN_TIME {
            let mode = found.mode.map_or(USUAL_FILE, |mode| mode & 0o7777);
            let late = Late { modified: found.modified(), mode, is_link: is_link(&found) };
            self.late = Some((object.entry.id, late));
        }
        Ok((count, self.bucket.generation(&key_of(&self.directories, object), &found)))
    }

    fn late(&mut self, object: ObjectId) -> Option<Late> {
        self.late.take().filter(|(id, _)| *id == object).map(|(_, late)| late)
    }

    fn open(&mut self, object: &SourceObject) -> Result<Arc<dyn SourceFile>> {
        let key = key_of(&self.directories, object);
        Ok(Arc::new(match self.looked.find(object) {
            Some(known) => ObjectFile::known(&self.bucket, key, known),
            None => ObjectFile::open(&self.bucket, &key)?,
        }))
    }

    fn ahead(&mut self, next: &[SourceObject]) {
        self.here.clear();
        let (tell, coming) = channel();
        for object in next {
            let (bucket, tell) = (self.bucket.clone(), tell.clone());
            let (key, object) = (key_of(&self.directories, object), object.clone());
            self.bucket.crew.hand_in(move || drop(tell.send((object.entry.id, fetch(&bucket, &key, &object)))));
        }
        self.coming = Some(coming);
    }

    fn read_extent(
        &mut self,
        file: &dyn SourceFile,
        extent: Extent,
        block: &mut [u8],
        each: &mut dyn FnMut(&[u8]) -> bool,
    ) -> Result<u64> {
        match file.native().and_then(|native| native.downcast_ref::<ObjectFile>()) {
            Some(file) => file.extent(extent, block, each),
            None => store::read_by_blocks(file, extent, block, each),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_longer_than_a_target_or_empty_is_no_link() {
        let mode = metadata::mode(&metadata::link_mode());
        let of = |size_bytes: u64| is_link(&Object { size_bytes, mode, ..Object::default() });
        let longest = TARGET_BYTES_MAX as u64;
        assert_eq!([0, 1, longest, longest + 1, 50 << 30].map(of), [false, true, true, false, false]);
    }
}
