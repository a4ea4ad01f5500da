//! Standard input as a source and standard output as a sink: bytes in order, once.
//!
//! A pipe has no size until it ends and cannot be read or written again: such a job is not resumable, and a chunk
//! leaves the sink only after it was verified. Not here: directories, links, metadata; a pipe has none.

use crate::sink::{Decision, LinkRule, Linked, PublishRule, Sink, SinkLane, Staged, StagedFile};
use crate::source::{DirectoryKey, End, Found, Source, SourceFile, SourceLane, SourceObject};
use crate::{Abilities, Error, Order, Result, SinkFacts, SourceFacts};
use model::{Entry, FailureKind, Generation, Kind, Name, ObjectId};
use std::io::{Read, Write};
use std::sync::{Arc, Mutex};

/// What a pipe's object is called until its destination names it.
const PIPE_NAME: &[u8] = b"stdin";

/// A reader as a source of one object whose end is not known.
pub struct PipeSource {
    file: Arc<PipeFile>,
}

struct PipeFile {
    state: Mutex<PipeState>,
}

struct PipeState {
    reader: Box<dyn Read + Send>,
    offset: u64,
    /// A byte read ahead, to know of the end in time.
    ahead: Option<u8>,
    is_at_end: bool,
}

impl PipeState {
    /// Reads until `buffer` is full or the pipe ends.
    fn fill(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let mut filled = 0;
        if let (Some(byte), Some(first)) = (self.ahead, buffer.first_mut()) {
            *first = byte;
            self.ahead = None;
            filled = 1;
        }
        while filled < buffer.len() && !self.is_at_end {
            match self.reader.read(&mut buffer[filled..]) {
                Ok(0) => self.is_at_end = true,
                Ok(n) => filled += n,
                Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        Ok(filled)
    }
}

impl PipeSource {
    pub fn new(reader: Box<dyn Read + Send>) -> PipeSource {
        let state = PipeState { reader, offset: 0, ahead: None, is_at_end: false };
        PipeSource { file: Arc::new(PipeFile { state: Mutex::new(state) }) }
    }
}

impl Source for PipeSource {
    fn facts(&self) -> SourceFacts {
        SourceFacts { order: Order::All, ..SourceFacts::default() }
    }

    fn scan(&self, emit: &mut dyn FnMut(Found) -> bool) -> Result<()> {
        let name = Name::new(PIPE_NAME).expect("a constant name");
        let now = std::time::SystemTime::now().duration_since(std::time::SystemTime::UNIX_EPOCH).unwrap_or_default();
        let modified = model::Timestamp { seconds: now.as_secs() as i64, nanoseconds: now.subsec_nanos() };
        let generation = Generation { modified, ..Generation::default() };
        let (id, parent, kind) = (ObjectId(1), ObjectId::ROOT, Kind::File);
        let entry = Entry { id, parent, name, kind, mode: 0o666, generation, attributes: None };
        emit(Found::Object(SourceObject { entry, directory: DirectoryKey(0), end: End::ReadOnce }));
        Ok(())
    }

    fn lane(&self) -> Box<dyn SourceLane> {
        Box::new(PipeLane { file: self.file.clone() })
    }

    fn path(&self, _: &SourceObject) -> Vec<u8> {
        PIPE_NAME.to_vec()
    }

    fn look_again(&self, object: &SourceObject) -> Result<SourceObject> {
        Err(Error::of_kind(FailureKind::Changed, "read pipe again", self.path(object), "a pipe is read once"))
    }
}

struct PipeLane {
    file: Arc<PipeFile>,
}

impl SourceLane for PipeLane {
    fn read_whole(&mut self, _: &SourceObject, buffer: &mut [u8]) -> Result<(usize, Generation)> {
        Ok((self.file.read_at(0, buffer)?, Generation::default()))
    }

    fn open(&mut self, _: &SourceObject) -> Result<Arc<dyn SourceFile>> {
        Ok(self.file.clone())
    }
}

impl SourceFile for PipeFile {
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        let mut state = self.state.lock().unwrap();
        if state.offset != offset {
            return Err(Error::of_kind(FailureKind::ReadError, "read pipe again", b"", "a pipe is read once"));
        }
        let fail = |e| Error::new("read pipe", b"", e);
        let filled = state.fill(buffer).map_err(fail)?;
        let mut ahead = [0];
        if filled == buffer.len() && state.fill(&mut ahead).map_err(fail)? == 1 {
            state.ahead = Some(ahead[0]);
        }
        state.offset += filled as u64;
        Ok(filled)
    }

    fn is_at_end(&self) -> bool {
        let state = self.state.lock().unwrap();
        state.is_at_end && state.ahead.is_none()
    }

    fn generation(&self) -> Result<Generation> {
        Ok(Generation::default())
    }
}

/// A writer as a sink of one object.
pub struct PipeSink {
    output: Arc<PipeOutput>,
}

struct PipeOutput {
    state: Mutex<(Box<dyn Write + Send>, u64)>,
}

impl PipeSink {
    pub fn new(writer: Box<dyn Write + Send>) -> PipeSink {
        PipeSink { output: Arc::new(PipeOutput { state: Mutex::new((writer, 0)) }) }
    }
}

fn not_a_file(operation: &'static str, entry: &Entry) -> Error {
    let why = match entry.kind {
        Kind::Symlink(_) => "standard output takes a file, and links are not followed: name what it points to",
        _ => "standard output takes one file, not a tree",
    };
    Error::of_kind(FailureKind::InTheWay, operation, entry.name.as_bytes(), why)
}

impl Sink for PipeSink {
    fn facts(&self) -> Result<SinkFacts> {
        Ok(SinkFacts {
            file_system: "pipe",
            is_memory_backed: true,
            cannot_sync: false,
            free_bytes: u64::MAX,
            free_inodes: None,
            order: Order::All,
            part_rule: None,
            shares_on: None,
            confirms: false,
            // Nothing stands there before, and the one object has no other name.
            can: Abilities { compare: true, amend: true, touch: true, hard_links: true, ..Abilities::NONE },
        })
    }

    fn enter(&self, name: &Name) -> Result<()> {
        let why = "standard output takes one file, not a tree";
        Err(Error::of_kind(FailureKind::InTheWay, "write directory", name.as_bytes(), why))
    }

    fn make_directory(&self, entry: &Entry) -> Result<()> {
        Err(not_a_file("write directory", entry))
    }

    fn make_symlink(&self, entry: &Entry, _: PublishRule) -> Result<bool> {
        Err(not_a_file("write symbolic link", entry))
    }

    fn make_hard_link(&self, _: &Entry, entry: &Entry, _: LinkRule) -> Result<Linked> {
        Err(not_a_file("write second file", entry))
    }

    fn decide(&self, entry: &Entry) -> Result<Decision> {
        if entry.id == ObjectId(1) { Ok(Decision::Absent) } else { Err(not_a_file("write second file", entry)) }
    }

    fn lane(&self, _: bool) -> Result<Box<dyn SinkLane>> {
        Ok(Box::new(PipeSinkLane { output: self.output.clone(), held: Vec::new() }))
    }

    fn begin(&self, _: &Entry, _: &str) -> Result<(Arc<dyn StagedFile>, Vec<u8>)> {
        Ok((self.output.clone(), Vec::new()))
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
        Err(not_a_file("read back", entry))
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

/// Small objects are held whole until they are sealed: nothing unverified is written.
struct PipeSinkLane {
    output: Arc<PipeOutput>,
    held: Vec<u8>,
}

impl SinkLane for PipeSinkLane {
    fn create(&mut self, _: &Entry, _: PublishRule) -> Result<()> {
        self.held.clear();
        Ok(())
    }

    fn write(&mut self, bytes: &[u8]) -> Result<()> {
        self.held.extend_from_slice(bytes);
        Ok(())
    }

    fn seal(&mut self, entry: &Entry, _: bool) -> Result<Staged> {
        self.output.write_at(0, &self.held)?;
        self.output.publish(entry, PublishRule::NoReplace)?;
        Ok(Staged::new(0, 0, PublishRule::NoReplace))
    }

    fn abandon(&mut self) {
        self.held.clear();
    }

    fn publish(&mut self, _: &Entry, _: Staged) -> Result<()> {
        Ok(())
    }
}

impl StagedFile for PipeOutput {
    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        let mut state = self.state.lock().unwrap();
        if state.1 != offset {
            let why = "bytes came out of order";
            return Err(Error::of_kind(FailureKind::WriteError, "write pipe", b"", why));
        }
        state.0.write_all(bytes).map_err(|e| Error::new("write pipe", b"", e))?;
        state.1 += bytes.len() as u64;
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
        Err(Error::of_kind(FailureKind::ReadError, "read back", b"", "a pipe cannot be read back"))
    }

    fn publish(&self, _: &Entry, _: PublishRule) -> Result<()> {
        self.state.lock().unwrap().0.flush().map_err(|e| Error::new("write pipe", b"", e))
    }

    fn discard(&self) {}
}
