//! A receiving half whose messages and chunks come by hand, and a store in memory that differs where a test wants it to.

use super::lane::Writer;
use super::{ReceiveJob, ReceiveSpec, decide};
use crate::Progress;
use crate::job::{Ending, Port};
use conformance::memory::Memory;
use model::progress::Stage;
use model::{ChunkHasher, Entry, Extent, JobId, Name, ObjectId, Pin, TransferOptions};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;
use store::{
    BlockWriter, Decision, Engines, Prune, PublishRule, Result, Sink, SinkFacts, SinkLane, Staged, StagedFile,
};
use wire::Message;
use wire::data::{ChunkHeader, ChunkTrailer, Status};
use wire::message::{Entries, EntryRecord, Want};

/// Far more than anything takes that comes at all.
pub const PATIENCE: Duration = Duration::from_secs(60);

const FILE: u32 = 2;

pub struct Altered {
    pub inner: Arc<dyn Sink>,
    /// Free whenever it is asked for. The room of what is staged was taken from it before.
    pub free_bytes: u64,
    /// Large objects are written through these.
    pub writer: Option<fn() -> Box<dyn BlockWriter>>,
    /// Called before staging is dropped.
    pub discarding: Arc<dyn Fn() + Send + Sync>,
}

impl Altered {
    pub fn of(memory: &Memory) -> Altered {
        Altered { inner: memory.sink(), free_bytes: u64::MAX, writer: None, discarding: Arc::new(|| {}) }
    }
}

impl Sink for Altered {
    fn facts(&self) -> Result<SinkFacts> {
        Ok(SinkFacts { free_bytes: self.free_bytes, ..self.inner.facts()? })
    }
    fn writer(&self, _: &Engines) -> Option<Box<dyn BlockWriter>> {
        self.writer.map(|writer| writer())
    }
    fn enter(&self, name: &Name) -> Result<()> {
        self.inner.enter(name)
    }
    fn make_directory(&self, entry: &Entry) -> Result<()> {
        self.inner.make_directory(entry)
    }
    fn is_fresh(&self, directory: ObjectId) -> bool {
        self.inner.is_fresh(directory)
    }
    fn prune(&self, prune: &mut Prune<'_>) {
        self.inner.prune(prune);
    }
    fn make_symlink(&self, entry: &Entry, rule: PublishRule) -> Result<bool> {
        self.inner.make_symlink(entry, rule)
    }
    fn decide(&self, entry: &Entry) -> Result<Decision> {
        self.inner.decide(entry)
    }
    fn lane(&self, is_published_at_once: bool) -> Result<Box<dyn SinkLane>> {
        self.inner.lane(is_published_at_once)
    }
    fn begin(&self, entry: &Entry, stem: &str) -> Result<(Arc<dyn StagedFile>, Vec<u8>)> {
        let (inner, journal) = self.inner.begin(entry, stem)?;
        let (size_bytes, discarding) = (entry.size_bytes(), self.discarding.clone());
        Ok((Arc::new(AlteredFile { inner, size_bytes, discarding }), journal))
    }
    fn has_journal(&self, entry: &Entry, stem: &str) -> bool {
        self.inner.has_journal(entry, stem)
    }
    fn sync_group(&self, group: &mut dyn Iterator<Item = Staged>) -> Result<bool> {
        self.inner.sync_group(group)
    }
    fn publish(&self, entry: &Entry, staged: Staged) -> Result<()> {
        self.inner.publish(entry, staged)
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
        self.inner.finish_directory(entry)
    }
    fn close(&self) {
        self.inner.close();
    }
    fn path(&self, entry: &Entry) -> Vec<u8> {
        self.inner.path(entry)
    }
}

/// All of its room was reserved when it was begun.
struct AlteredFile {
    inner: Arc<dyn StagedFile>,
    size_bytes: u64,
    discarding: Arc<dyn Fn() + Send + Sync>,
}

impl StagedFile for AlteredFile {
    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.inner.write_at(offset, bytes)
    }
    fn allocated_bytes(&self) -> u64 {
        self.size_bytes
    }
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        self.inner.read_at(offset, buffer)
    }
    fn append_journal(&self, bytes: &[u8]) -> Result<()> {
        self.inner.append_journal(bytes)
    }
    fn truncate_journal(&self, length: u64) -> Result<()> {
        self.inner.truncate_journal(length)
    }
    fn checkpoint(&self) -> Result<()> {
        self.inner.checkpoint()
    }
    fn reread(&self, check: &mut dyn FnMut(&[u8])) -> Result<()> {
        self.inner.reread(check)
    }
    fn publish(&self, entry: &Entry, rule: PublishRule) -> Result<()> {
        self.inner.publish(entry, rule)
    }
    fn discard(&self) {
        (self.discarding)();
        self.inner.discard();
    }
}

struct Told(Mutex<mpsc::Sender<Message>>);

impl Port for Told {
    fn send(&self, message: Message) {
        let _ = self.0.lock().unwrap().send(message);
    }
}

/// A job whose one thread decides.
pub struct Rig {
    pub job: Arc<ReceiveJob>,
    heard: mpsc::Receiver<Message>,
}

impl Rig {
    pub fn new(sink: Altered, options: TransferOptions) -> Rig {
        Rig::charged(sink, options, crate::Memory::default())
    }

    pub fn charged(sink: Altered, options: TransferOptions, account: crate::Memory) -> Rig {
        let (told, heard) = mpsc::channel();
        let spec = ReceiveSpec { number: 1, id: JobId([3; 16]), sender: Pin([7; 32]), options, rename_to: None };
        let port = Arc::new(Told(Mutex::new(told)));
        let job = ReceiveJob::new(spec, Arc::new(sink), port, Progress::new(), None).unwrap();
        job.charge_to(account);
        crate::job::spawn(&job, "decide", decide::run, ReceiveJob::cancel);
        Rig { job, heard }
    }

    /// What is made of the first message that is wanted.
    pub fn hear<T>(&self, mut wanted: impl FnMut(Message) -> Option<T>) -> T {
        loop {
            let message = self.heard.recv_timeout(PATIENCE).expect("something is said");
            if let Some(found) = wanted(message) {
                return found;
            }
        }
    }

    /// Describes a file; returns what is wanted of it, or why the job ended.
    pub fn describe(
        &self,
        id: u64,
        name: &str,
        size_bytes: u64,
        modified_seconds: i64,
    ) -> std::result::Result<Want, String> {
        let name = name.as_bytes().to_vec();
        let (kind, mode) = (FILE, 0o644);
        let entry = EntryRecord { name, kind, mode, size_bytes, modified_seconds, ..EntryRecord::default() };
        self.job.handle(Entries { job: 1, first: id, entries: vec![entry] }.into()).unwrap();
        self.hear(|message| match message {
            Message::Want(want) => Some(Ok(want)),
            Message::Cancel(cancel) => Some(Err(cancel.text)),
            _ => None,
        })
    }

    pub fn writer(&self) -> Writer<'_> {
        Writer::new(&self.job, self.job.progress.lane(Stage::Receive), Arc::new(|| {})).unwrap()
    }

    /// Brings the chunk at `start` of a file of this size; the last one seals it.
    pub fn bring(&self, writer: &mut Writer<'_>, id: u64, start: u64, size_bytes: u64) {
        let (algorithm, object) = (self.job.options.digest, ObjectId(id));
        let extent = Extent::new(start, size_bytes.min(start + self.job.options.chunk_bytes));
        let content = vec![b'x'; extent.length() as usize];
        let mut hasher = ChunkHasher::new(algorithm, start);
        hasher.update(&content);
        let digest = hasher.finish(extent == Extent::new(0, size_bytes));
        writer.start(&ChunkHeader { object, extent }).unwrap();
        writer.write_block(&content);
        let status = if extent.end == size_bytes { Status::GoodLast } else { Status::Good };
        let bound = digest.bind(object, extent);
        writer.end(&ChunkTrailer { status, object_bytes: size_bytes, bound }, digest).unwrap();
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        self.job.stop(Ending::Lost("over".into()));
    }
}
