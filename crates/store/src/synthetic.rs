//! A source that makes its files and a sink that forgets what it is given: transfers without storage.
//!
//! Invariants: the same specification gives the same bytes everywhere, so that what arrives can be compared; a file
//! repeats one block of `BLOCK_BYTES`, each from a place of its own, so that content costs one copy and no computation.
//! Not here: content that does not repeat (data sets of the benchmarks); saying in reports that an end was synthetic.

use crate::prune::Prune;
use crate::sink::{Decision, LinkRule, Linked, PublishRule, Sink, SinkLane, Staged, StagedFile};
use crate::source::{DirectoryKey, End, Found, Source, SourceFile, SourceLane, SourceObject};
use crate::{Abilities, Error, Order, Result, SinkFacts};
use model::synthetic::Generated;
use model::{Entry, FailureKind, Generation, Kind, Name, ObjectId, Timestamp, VersionToken};
use std::sync::Arc;

/// What the sink calls its file system.
pub const NULL_FILE_SYSTEM: &str = "null";
/// Fits the second-level cache beside the blocks of a lane.
const BLOCK_BYTES: usize = 256 << 10;
/// Files of one directory; above it the source has several.
const FILES_PER_DIRECTORY: u64 = 1000;
/// What forgets its files still has to be told of them: a bound for the listing.
const FILES_MAX: u64 = 1 << 30;
/// Files of two numbers begin this far apart in the block: odd, so that all places are used.
const STRIDE_BYTES: u64 = 4099;
/// 2000-01-01: any time serves, as long as it is always the same.
const MODIFIED: Timestamp = Timestamp { seconds: 946_684_800, nanoseconds: 0 };

pub struct GeneratedSource {
    spec: Generated,
    block: Arc<[u8]>,
}

impl GeneratedSource {
    pub fn new(spec: Generated) -> GeneratedSource {
        GeneratedSource { spec, block: block() }
    }

    fn directories(&self) -> u64 {
        directories_of(&self.spec)
    }

    fn file(&self, id: u64, parent: ObjectId, number: u64) -> SourceObject {
        let generation = Generation {
            size_bytes: self.spec.file_bytes,
            modified: MODIFIED,
            version: VersionToken::new(Timestamp::default(), number, 0),
        };
        let (name, kind) = (file_name(number), Kind::File);
        object(Entry { id: ObjectId(id), parent, name, kind, mode: 0o644, generation, attributes: None })
    }
}

/// Bytes that neither repeat nor compress within the block: a xorshift generator (Marsaglia 2003) from a fixed seed.
fn block() -> Arc<[u8]> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut bytes = Vec::with_capacity(BLOCK_BYTES);
    while bytes.len() < BLOCK_BYTES {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend_from_slice(&state.to_le_bytes());
    }
    bytes.into()
}

fn object(entry: Entry) -> SourceObject {
    SourceObject { entry, directory: DirectoryKey(0), end: End::Known }
}

fn name(text: String) -> Name {
    Name::new(text.as_bytes()).expect("letters and digits make a name")
}

/// Directories of a generated source; none where its files lie at the top.
fn directories_of(spec: &Generated) -> u64 {
    if spec.files > FILES_PER_DIRECTORY { spec.files.div_ceil(FILES_PER_DIRECTORY) } else { 0 }
}

/// Whether the source that `spec` describes has this object in the directory `above`, which is empty for the top.
pub fn is_generated(spec: &Generated, above: &[u8], entry: &Entry) -> bool {
    let digits = entry.name.as_bytes().get(1..).and_then(|digits| std::str::from_utf8(digits).ok());
    let Some(number) = digits.and_then(|digits| digits.parse::<u64>().ok()) else { return false };
    let directories = directories_of(spec);
    match entry.kind {
        Kind::Directory => above.is_empty() && number < directories && entry.name == directory_name(number),
        Kind::File => {
            let is_there = match directories {
                0 => above.is_empty(),
                _ => above == directory_name(number / FILES_PER_DIRECTORY).as_bytes(),
            };
            let is_such = entry.name == file_name(number) && entry.size_bytes() == spec.file_bytes;
            is_there && is_such && number < spec.files
        }
        _ => false,
    }
}

fn directory_name(number: u64) -> Name {
    name(format!("d{number:06}"))
}

fn file_name(number: u64) -> Name {
    name(format!("f{number:09}"))
}

impl Source for GeneratedSource {
    fn scan(&self, emit: &mut dyn FnMut(Found) -> bool) -> Result<()> {
        let directories = self.directories();
        let mut id = 0;
        let mut parent = ObjectId::ROOT;
        for number in 0..self.spec.files {
            if directories > 0 && number % FILES_PER_DIRECTORY == 0 {
                id += 1;
                parent = ObjectId(id);
                let generation = Generation { modified: MODIFIED, ..Generation::default() };
                let name = directory_name(number / FILES_PER_DIRECTORY);
                let (parent, kind) = (ObjectId::ROOT, Kind::Directory);
                let entry = Entry { id: ObjectId(id), parent, name, kind, mode: 0o755, generation, attributes: None };
                if !emit(Found::Object(object(entry))) {
                    return Ok(());
                }
            }
            id += 1;
            if !emit(Found::Object(self.file(id, parent, number))) {
                return Ok(());
            }
        }
        Ok(())
    }

    fn lane(&self) -> Box<dyn SourceLane> {
        Box::new(GeneratedLane { block: self.block.clone() })
    }

    fn path(&self, object: &SourceObject) -> Vec<u8> {
        let name = object.entry.name.as_bytes();
        let number = object.entry.generation.version.object();
        match (&object.entry.kind, self.directories()) {
            (Kind::File, 1..) => [format!("d{:06}/", number / FILES_PER_DIRECTORY).as_bytes(), name].concat(),
            _ => name.to_vec(),
        }
    }

    fn look_again(&self, object: &SourceObject) -> Result<SourceObject> {
        Ok(object.clone())
    }
}

struct GeneratedLane {
    block: Arc<[u8]>,
}

impl SourceLane for GeneratedLane {
    fn read_whole(&mut self, object: &SourceObject, buffer: &mut [u8]) -> Result<(usize, Generation)> {
        let generation = object.entry.generation;
        let read = fill(&self.block, &generation, 0, buffer);
        Ok((read, generation))
    }

    fn open(&mut self, object: &SourceObject) -> Result<Arc<dyn SourceFile>> {
        Ok(Arc::new(GeneratedFile { block: self.block.clone(), generation: object.entry.generation }))
    }
}

struct GeneratedFile {
    block: Arc<[u8]>,
    generation: Generation,
}

impl SourceFile for GeneratedFile {
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        Ok(fill(&self.block, &self.generation, offset, buffer))
    }

    fn generation(&self) -> Result<Generation> {
        Ok(self.generation)
    }
}

/// Copies the file's content from `offset` on; returns how much there was.
fn fill(block: &[u8], generation: &Generation, offset: u64, buffer: &mut [u8]) -> usize {
    let wanted = generation.size_bytes.saturating_sub(offset).min(buffer.len() as u64) as usize;
    let start = generation.version.object().wrapping_mul(STRIDE_BYTES).wrapping_add(offset);
    let mut at = (start % block.len() as u64) as usize;
    let mut rest = &mut buffer[..wanted];
    while !rest.is_empty() {
        let piece = rest.len().min(block.len() - at);
        let (now, later) = rest.split_at_mut(piece);
        now.copy_from_slice(&block[at..at + piece]);
        (rest, at) = (later, 0);
    }
    wanted
}

/// Accepts everything and keeps nothing.
pub struct NullSink;

const NOTHING_STAGED: Staged = Staged::new(0, 0, PublishRule::NoReplace);

fn nothing_kept(subject: &[u8]) -> Error {
    Error::of_kind(FailureKind::ReadError, "read back", subject, "null: keeps nothing, so nothing can be read back")
}

impl Sink for NullSink {
    fn facts(&self) -> Result<SinkFacts> {
        Ok(SinkFacts {
            file_system: NULL_FILE_SYSTEM,
            is_memory_backed: true,
            cannot_sync: false,
            free_bytes: i64::MAX as u64,
            free_inodes: Some(FILES_MAX),
            order: Order::Any,
            part_rule: None,
            shares_on: None,
            confirms: false,
            can: Abilities { reread: false, holes: false, views: false, growth: false, ..Abilities::ALL },
        })
    }

    fn enter(&self, _: &Name) -> Result<()> {
        Ok(())
    }

    fn make_directory(&self, _: &Entry) -> Result<()> {
        Ok(())
    }

    fn make_symlink(&self, _: &Entry, _: PublishRule) -> Result<bool> {
        Ok(true)
    }

    fn make_node(&self, _: &Entry, _: PublishRule) -> Result<bool> {
        Ok(true)
    }

    fn make_hard_link(&self, _: &Entry, _: &Entry, _: LinkRule) -> Result<Linked> {
        Ok(Linked::Made { has_replaced: false })
    }

    /// Nothing stands there that could be removed.
    fn prune(&self, _: &mut Prune<'_>) {}

    /// Directories alone are there to be looked at: they are as they were described.
    fn differences(&self, _: &Entry) -> Result<u32> {
        Ok(0)
    }

    fn decide(&self, _: &Entry) -> Result<Decision> {
        Ok(Decision::Absent)
    }

    fn lane(&self, _: bool) -> Result<Box<dyn SinkLane>> {
        Ok(Box::new(NullLane))
    }

    fn begin(&self, _: &Entry, _: &str) -> Result<(Arc<dyn StagedFile>, Vec<u8>)> {
        Ok((Arc::new(NullFile), Vec::new()))
    }

    fn has_journal(&self, _: &Entry, _: &str) -> bool {
        false
    }

    fn sync_group(&self, _: &mut dyn Iterator<Item = Staged>) -> Result<bool> {
        Ok(true)
    }

    fn publish(&self, _: &Entry, _: Staged) -> Result<()> {
        Ok(())
    }

    fn discard(&self, _: Staged) {}

    fn reread(&self, entry: &Entry, _: Staged, _: &mut dyn FnMut(&[u8])) -> Result<()> {
        Err(nothing_kept(entry.name.as_bytes()))
    }

    fn sync_names(&self) -> Result<()> {
        Ok(())
    }

    fn finish_directory(&self, _: &Entry) -> Result<()> {
        Ok(())
    }

    fn close(&self) {}

    fn path(&self, entry: &Entry) -> Vec<u8> {
        entry.name.as_bytes().to_vec()
    }
}

struct NullLane;

impl SinkLane for NullLane {
    fn create(&mut self, _: &Entry, _: PublishRule) -> Result<()> {
        Ok(())
    }

    fn write(&mut self, _: &[u8]) -> Result<()> {
        Ok(())
    }

    fn seal(&mut self, _: &Entry, _: bool) -> Result<Staged> {
        Ok(NOTHING_STAGED)
    }

    fn abandon(&mut self) {}

    fn publish(&mut self, _: &Entry, _: Staged) -> Result<()> {
        Ok(())
    }
}

struct NullFile;

impl StagedFile for NullFile {
    fn write_at(&self, _: u64, _: &[u8]) -> Result<()> {
        Ok(())
    }

    fn read_at(&self, _: u64, _: &mut [u8]) -> Result<usize> {
        Ok(0)
    }

    fn append_journal(&self, _: &[u8]) -> Result<()> {
        Ok(())
    }

    fn truncate_journal(&self, _: u64) -> Result<()> {
        Ok(())
    }

    fn checkpoint(&self) -> Result<()> {
        Ok(())
    }

    fn reread(&self, _: &mut dyn FnMut(&[u8])) -> Result<()> {
        Err(nothing_kept(b""))
    }

    fn publish(&self, _: &Entry, _: PublishRule) -> Result<()> {
        Ok(())
    }

    fn discard(&self) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    fn objects(spec: Generated) -> (GeneratedSource, Vec<SourceObject>) {
        let source = GeneratedSource::new(spec);
        let mut objects = Vec::new();
        let mut emit = |found| {
            let Found::Object(object) = found else { panic!("nothing fails") };
            objects.push(object);
            true
        };
        source.scan(&mut emit).unwrap();
        (source, objects)
    }

    #[test]
    fn files_are_listed_below_their_directories_with_ids_that_count() {
        let (source, found) = objects(Generated { files: 1001, file_bytes: 5 });
        assert_eq!(found.len(), 1003);
        assert!(found.iter().enumerate().all(|(at, object)| object.entry.id.0 == at as u64 + 1));
        assert_eq!(source.path(&found[1002]), b"d000001/f000001000");
        assert_eq!(found[1002].entry.parent, found[1001].entry.id);
        let (flat, found) = objects(Generated { files: 2, file_bytes: 5 });
        assert_eq!((found.len(), flat.path(&found[1])), (2, b"f000000001".to_vec()));
    }

    #[test]
    fn content_is_the_same_however_it_is_read_and_differs_between_files() {
        let bytes = BLOCK_BYTES as u64 * 2 + 77;
        let (source, found) = objects(Generated { files: 2, file_bytes: bytes });
        let mut lane = source.lane();
        let mut whole = vec![0; bytes as usize + 10];
        assert_eq!(lane.read_whole(&found[1], &mut whole).unwrap().0 as u64, bytes);
        let file = lane.open(&found[1]).unwrap();
        let mut tail = vec![0; 1000];
        assert_eq!(file.read_at(bytes - 500, &mut tail).unwrap(), 500);
        assert_eq!(tail[..500], whole[bytes as usize - 500..bytes as usize]);
        let mut other = vec![0; 1000];
        lane.read_whole(&found[0], &mut other).unwrap();
        assert_ne!(other, whole[..1000]);
    }
}
