//! The tree as a source.

use super::tree::{Body, Object, ROOT, Tree};
use super::{Call, Flaw, Shared};
use model::{Entry, FailureKind, Generation, Kind, Name, ObjectId};
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use store::{DirectoryKey, End, Error, Found, Result, Source, SourceFile, SourceLane, SourceObject};

pub struct MemorySource {
    shared: Arc<Shared>,
    /// Paths of directories by number, with a slash behind each.
    paths: Mutex<HashMap<u64, Vec<u8>>>,
    scans: AtomicU64,
}

impl MemorySource {
    pub fn new(shared: Arc<Shared>) -> MemorySource {
        MemorySource { shared, paths: Mutex::default(), scans: AtomicU64::new(0) }
    }
}

fn not_found(operation: &'static str, name: &Name) -> Error {
    Error::of_kind(FailureKind::NotFound, operation, name.as_bytes(), "it is not there")
}

fn entry(shared: &Shared, (id, parent): (u64, u64), name: &Name, (number, object): (u64, &Object)) -> Entry {
    let kind = match &object.body {
        Body::Directory(_) => Kind::Directory,
        Body::File(_) => Kind::File,
        Body::Symlink(_) if shared.has(Flaw::FollowsLinks) => Kind::Symlink(b"followed".as_slice().into()),
        Body::Symlink(target) => Kind::Symlink(target.clone()),
        Body::Node(node) => Kind::Node(*node),
    };
    let generation = match shared.has(Flaw::KeepsGenerations) {
        true => Generation { size_bytes: object.size_bytes(), ..Generation::default() },
        false => object.generation(number),
    };
    let (id, parent) = (ObjectId(id), ObjectId(parent));
    Entry { id, parent, name: name.clone(), kind, mode: object.mode, generation, attributes: None }
}

/// A directory that waits to be listed: its number here and in the scan.
struct Pending {
    number: u64,
    id: u64,
    path: Vec<u8>,
}

impl MemorySource {
    fn names(&self, tree: &Tree, directory: u64, is_second: bool) -> Vec<(Name, u64)> {
        let mut names = tree.names(directory);
        if self.shared.has(Flaw::HidesEmptyFiles) {
            names.retain(|(_, number)| tree.object(*number).is_none_or(|o| o.is_directory() || o.size_bytes() > 0));
        }
        if self.shared.has(Flaw::ListsInAnotherOrder) && is_second {
            names.reverse();
        }
        names
    }
}

impl Source for MemorySource {
    fn scan(&self, emit: &mut dyn FnMut(Found) -> bool) -> Result<()> {
        self.shared.faults.meet(Call::Scan)?;
        let is_second = self.scans.fetch_add(1, SeqCst) > 0;
        let mut id = if self.shared.has(Flaw::CountsFromZero) { u64::MAX } else { 0 };
        let mut pending = vec![Pending { number: ROOT, id: 0, path: Vec::new() }];
        let mut late = Vec::new();
        while let Some(above) = pending.pop() {
            self.paths.lock().unwrap().insert(above.number, above.path.clone());
            // A copy: listeners may be slow, and may write.
            let state = self.shared.state();
            let names = self.names(&state.tree, above.number, is_second);
            let objects: Vec<_> =
                names.into_iter().filter_map(|(name, n)| Some((name, n, state.tree.object(n)?.clone()))).collect();
            drop(state);
            for (name, number, object) in objects {
                id = id.wrapping_add(1);
                if object.is_directory() {
                    let path = [&above.path, name.as_bytes(), b"/"].concat();
                    pending.push(Pending { number, id, path });
                }
                let entry = entry(&self.shared, (id, above.id), &name, (number, &object));
                let found = SourceObject { entry, directory: DirectoryKey(above.number), end: End::Known };
                if object.is_directory() && self.shared.has(Flaw::ListsChildrenFirst) {
                    late.push(found);
                } else if !emit(Found::Object(found)) && !self.shared.has(Flaw::GoesOnListing) {
                    return Ok(());
                }
            }
        }
        late.into_iter().all(|found| emit(Found::Object(found)));
        Ok(())
    }

    fn lane(&self) -> Box<dyn SourceLane> {
        Box::new(MemorySourceLane { shared: self.shared.clone() })
    }

    fn path(&self, object: &SourceObject) -> Vec<u8> {
        let paths = self.paths.lock().unwrap();
        let above = paths.get(&object.directory.0).map_or(&[][..], Vec::as_slice);
        [above, object.entry.name.as_bytes()].concat()
    }

    fn look_again(&self, object: &SourceObject) -> Result<SourceObject> {
        let state = self.shared.state();
        let number = state.tree.child(object.directory.0, &object.entry.name);
        let number = number.ok_or_else(|| not_found("look at", &object.entry.name))?;
        let there = state.tree.object(number).expect("a name leads to an object");
        let (id, parent) = (object.entry.id.0, object.entry.parent.0);
        let entry = entry(&self.shared, (id, parent), &object.entry.name, (number, there));
        Ok(SourceObject { entry, ..object.clone() })
    }
}

struct MemorySourceLane {
    shared: Arc<Shared>,
}

impl MemorySourceLane {
    fn find(&self, object: &SourceObject) -> Result<MemoryFile> {
        self.shared.faults.meet(Call::Open)?;
        let state = self.shared.state();
        let found = state.tree.child(object.directory.0, &object.entry.name);
        let found = found.or_else(|| self.shared.has(Flaw::OpensWhatIsGone).then_some(ROOT));
        let number = found.ok_or_else(|| not_found("open file", &object.entry.name))?;
        let there = state.tree.object(number).expect("a name leads to an object");
        let (content, name): (Arc<[u8]>, _) = match &there.body {
            Body::File(content) => (content.clone(), object.entry.name.clone()),
            _ if self.shared.has(Flaw::OpensWhatIsGone) => (Arc::from(*b""), object.entry.name.clone()),
            _ => {
                return Err(Error::of_kind(
                    FailureKind::InTheWay,
                    "open file",
                    object.entry.name.as_bytes(),
                    "no file",
                ));
            }
        };
        let generation = match self.shared.flaw {
            Some(Flaw::ForgetsGenerationOfOpenFiles) => Generation::default(),
            Some(Flaw::KeepsGenerations) => object.entry.generation,
            _ => there.generation(number),
        };
        let (shared, directory) = (self.shared.clone(), object.directory.0);
        Ok(MemoryFile { shared, content, generation, directory, name, cursor: AtomicU64::new(0) })
    }
}

impl SourceLane for MemorySourceLane {
    fn read_whole(&mut self, object: &SourceObject, buffer: &mut [u8]) -> Result<(usize, Generation)> {
        let file = self.find(object)?;
        let at = match self.shared.has(Flaw::ReadsWholeFromTheEnd) {
            true => (file.content.len() as u64).saturating_sub(buffer.len() as u64),
            false => 0,
        };
        Ok((file.read_at(at, buffer)?, file.generation))
    }

    fn open(&mut self, object: &SourceObject) -> Result<Arc<dyn SourceFile>> {
        Ok(Arc::new(self.find(object)?))
    }
}

/// An open file: the content it had when it was opened.
pub struct MemoryFile {
    shared: Arc<Shared>,
    content: Arc<[u8]>,
    generation: Generation,
    directory: u64,
    name: Name,
    cursor: AtomicU64,
}

impl MemoryFile {
    /// The file at a name, whatever it is.
    pub fn at(shared: &Arc<Shared>, directory: u64, name: &Name) -> Result<MemoryFile> {
        let entry = Entry {
            id: ObjectId(0),
            parent: ObjectId::ROOT,
            name: name.clone(),
            kind: Kind::File,
            mode: 0,
            generation: Generation::default(),
            attributes: None,
        };
        let object = SourceObject { entry, directory: DirectoryKey(directory), end: End::Known };
        MemorySourceLane { shared: shared.clone() }.find(&object)
    }

    /// What is at its name now.
    fn current(&self) -> Arc<[u8]> {
        let state = self.shared.state();
        let number = state.tree.child(self.directory, &self.name);
        match number.and_then(|number| state.tree.object(number)).map(|object| &object.body) {
            Some(Body::File(content)) => content.clone(),
            _ => self.content.clone(),
        }
    }
}

impl SourceFile for MemoryFile {
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        self.shared.faults.meet(Call::Read)?;
        let content = if self.shared.has(Flaw::ChangesOpenFiles) { self.current() } else { self.content.clone() };
        let start = match self.shared.has(Flaw::SharesItsCursor) {
            true => self.cursor.fetch_add(buffer.len() as u64, SeqCst),
            false => offset,
        };
        let end = content.len() as u64;
        let rest = &content[start.min(end) as usize..];
        let wanted = if self.shared.has(Flaw::ReadsHalf) { buffer.len().div_ceil(2) } else { buffer.len() };
        let read = rest.len().min(wanted);
        buffer[..read].copy_from_slice(&rest[..read]);
        Ok(if self.shared.has(Flaw::ReadsBeyondTheEnd) && start >= end { buffer.len() } else { read })
    }

    fn generation(&self) -> Result<Generation> {
        Ok(self.generation)
    }
}
