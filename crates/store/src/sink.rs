//! Writing storage: stage out of sight, then publish.

use crate::prune::Prune;
use crate::source::{Source, SourceFile};
use crate::{BlockWriter, Engines, Error, Result, SinkFacts};
use model::fidelity::Warning;
use model::{Digest, Entry, Extent, ExtentSet, Failure, FailureKind, JobId, Name, ObjectId, Timestamp};
use std::any::Any;
use std::sync::Arc;

/// Nothing is known of a file's time: of a mirror's, or of a source's that leaves times to be told late.
pub const UNKNOWN_TIME: Timestamp = Timestamp { seconds: i64::MIN, nanoseconds: 0 };

/// What a sink warns of whose store does not compare content with its checksum: no digest vouches for what stands there, and whoever
/// tells the result knows it by this text.
pub const UNVERIFIED: &str =
    "not verified at the destination: the store does not compare content with its checksum (thalweg check does)";

/// Names of staging directories start so; the user id follows. No sink takes such a name, and scans skip them.
pub const STAGING_PREFIX: &[u8] = b".thalweg-staging-";

/// What stands at an entry's final name.
#[derive(Debug)]
pub enum Decision {
    /// Nothing: publish must not replace anything.
    Absent,
    /// An older or different object, to be replaced in one step.
    Replace { size_bytes: u64, there: There },
    /// Size and modification time are equal: nothing to do.
    Same,
}

/// What is known of an object that stands at a final name.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct There {
    pub is_file: bool,
    pub modified: Timestamp,
}

/// Whether publishing may replace an object at the final name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PublishRule {
    NoReplace,
    Replace,
}

/// When a file gets another name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LinkRule {
    /// A name that is not there is made.
    pub may_make: bool,
    /// What has the name is replaced.
    pub may_replace: bool,
    /// The file may have another time than its source: only sizes were compared.
    pub ignores_time: bool,
    /// Everything is looked at, and nothing done.
    pub is_rehearsal: bool,
}

/// What came of another name for a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Linked {
    /// It was made; something else had it before.
    Made { has_replaced: bool },
    /// It is one already.
    There,
    /// The rule forbids it.
    Kept,
    /// The file is not there as it was described.
    NoFile,
}

/// How a sink makes things durable; chosen once per job from the file system and what the user asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Durability {
    /// Memory-backed storage, or the user does not want to wait: publishing is immediate.
    None,
    /// Each file by itself.
    File,
    /// A group of staged files shares one durability point.
    Group,
}

/// Where a small object lies complete in staging, not yet visible. What it says means something only to the sink that made it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Staged {
    lane: u64,
    number: u64,
    rule: PublishRule,
}

impl Staged {
    /// The object that a lane of the sink staged under a number; `rule` is what it was created with.
    pub const fn new(lane: u64, number: u64, rule: PublishRule) -> Staged {
        Staged { lane, number, rule }
    }

    pub fn lane(&self) -> u64 {
        self.lane
    }

    pub fn number(&self) -> u64 {
        self.number
    }

    pub fn rule(&self) -> PublishRule {
        self.rule
    }
}

/// A small object that is to get its final name.
#[derive(Clone, Copy, Debug)]
pub struct ToPublish<'a> {
    pub entry: &'a Entry,
    pub staged: Staged,
}

/// One journal for each writer of an object.
pub type Journals = Vec<Vec<u8>>;

/// What slices staged together of one object.
pub struct Parts {
    pub content: Arc<dyn SourceFile>,
    /// Of everybody who wrote to it, or may still do so.
    pub journals: Journals,
}

/// A destination: content is staged out of sight, then published under its final name in one step.
///
/// Invariants:
/// - A final name never shows partial content.
/// - A small object that was staged is published or discarded, once.
/// - A `sync_group` that fails condemns its whole group: nothing of it is published.
///
/// Call order: `fence`, `enter`; of each directory `make_directory`, parents before children; of each object `decide`, and if it is
/// wanted `SinkLane::create` or `begin`, then `sync_group`, `publish` and `sync_names` as far as it has to be durable; at the end
/// `finish_directory`, children before parents, `sync_names` and `close`, which may be called again.
///
/// Not here: when to publish (`mover::receiver::commit`).
pub trait Sink: Send + Sync {
    fn facts(&self) -> Result<SinkFacts>;

    /// The job is a slice of one that several hosts work on. When this returns, nothing more appears of the slices that it takes
    /// over, whichever host still works on them; and once another one has taken this slice over, nothing of it. Only before
    /// anything else.
    fn fence(&self, slice: JobId, instead_of: &[JobId]) -> Result<()> {
        let _ = (slice, instead_of);
        let why = "several hosts cannot work on one job at this kind of destination";
        Err(Error::of_kind(FailureKind::Other, "begin", b"", why))
    }

    /// Large objects are wanted: the sink may find out beside the transfer how to write them best.
    fn probe(&self, engines: &Engines) {
        let _ = engines;
    }

    /// A lane's writer of blocks, where that is better than `StagedFile::write_at`. May be asked again before each chunk.
    fn writer(&self, engines: &Engines) -> Option<Box<dyn BlockWriter>> {
        let _ = engines;
        None
    }

    /// Goes one directory down, making it if it is missing: what the job's entries go below from then on. Only before
    /// anything else.
    fn enter(&self, name: &Name) -> Result<()>;

    /// Makes the directory of this entry (or accepts one that is there) so that children can follow.
    fn make_directory(&self, entry: &Entry) -> Result<()>;

    /// As `make_directory`, but nothing is made: what is missing counts as fresh, so that nothing is looked for in it.
    fn look_directory(&self, entry: &Entry) -> Result<()> {
        self.make_directory(entry)
    }

    /// Whether a directory was made by this job, so that nothing of others' can be in it.
    fn is_fresh(&self, directory: ObjectId) -> bool {
        let _ = directory;
        false
    }

    /// Opens what stands at an entry's final name, to compare it.
    fn open_published(&self, entry: &Entry) -> Result<Arc<dyn SourceFile>> {
        let why = "this kind of destination cannot be read";
        Err(Error::of_kind(FailureKind::ReadError, "read", entry.name.as_bytes(), why))
    }

    /// Gives what stands at an entry's final name, which has its content, its time.
    fn touch(&self, entry: &Entry) -> Result<()> {
        let why = "this kind of destination cannot change a time";
        Err(Error::of_kind(FailureKind::Other, "set time", entry.name.as_bytes(), why))
    }

    /// What stands here, as a source that tells it in the order of keys, and of which nothing is read; none where this kind of
    /// destination is better asked name by name. A file whose time is not known without a request has the time `UNKNOWN_TIME`.
    fn mirror(&self) -> Option<Arc<dyn Source>> {
        None
    }

    /// Removes what `next` names: a path below the destination, and whether it is a directory; what is in a directory comes
    /// before it. A directory in which something stays, stays. `prune` says what of it may go, and hears of it. Only where
    /// there is a mirror.
    fn prune_paths(&self, next: &mut dyn FnMut() -> Option<(Vec<u8>, bool)>, prune: &mut Prune<'_>) {
        let _ = next;
        self.prune(prune);
    }

    /// Removes what the source does not have.
    fn prune(&self, prune: &mut Prune<'_>) {
        let message = "remove: this kind of destination cannot find what its source does not have".to_owned();
        (prune.failed)(Failure { path: Vec::new(), kind: FailureKind::Other, message });
    }

    /// Makes a symbolic link in one step. False when an equal one was there.
    fn make_symlink(&self, entry: &Entry, rule: PublishRule) -> Result<bool>;

    /// Makes a FIFO, socket or device in one step. False when an equal one was there.
    fn make_node(&self, entry: &Entry, rule: PublishRule) -> Result<bool> {
        let _ = rule;
        let why = "this kind of destination has no special files";
        Err(Error::of_kind(FailureKind::Special, "skip", entry.name.as_bytes(), why))
    }

    /// Gives the file that was published as `first` the name of `entry` as well.
    fn make_hard_link(&self, first: &Entry, entry: &Entry, rule: LinkRule) -> Result<Linked> {
        let _ = (first, rule);
        let why = "this kind of destination has no hard links";
        Err(Error::of_kind(FailureKind::Other, "link", entry.name.as_bytes(), why))
    }

    /// Gives a file that stands at an entry's final name, with its content, what its source has beside that. Returns what
    /// changed, as bits of `model::change::cause`.
    fn amend(&self, entry: &Entry) -> Result<u32> {
        let why = "this kind of destination cannot change what is already there";
        Err(Error::of_kind(FailureKind::Other, "set attributes", entry.name.as_bytes(), why))
    }

    /// What `amend` would change, and `finish_directory`.
    fn differences(&self, entry: &Entry) -> Result<u32> {
        let why = "this kind of destination cannot tell what differs besides content";
        Err(Error::of_kind(FailureKind::Other, "look at", entry.name.as_bytes(), why))
    }

    /// Learns what a user or group of the source is called there.
    fn learn_owner(&self, is_group: bool, number: u32, name: &[u8]) {
        let _ = (is_group, number, name);
    }

    /// What the store did without this host, and why, for whoever reads the result.
    fn notes(&self) -> Vec<String> {
        Vec::new()
    }

    /// What could not be kept of objects since the last call.
    fn take_warnings(&self) -> Vec<Warning> {
        Vec::new()
    }

    fn decide(&self, entry: &Entry) -> Result<Decision>;

    /// As `decide` of each entry of a group, in its order, for sinks that can ask about many at once.
    fn decide_group(&self, group: &mut dyn Iterator<Item = &Entry>, found: &mut Vec<Result<Decision>>) {
        found.extend(group.map(|entry| self.decide(entry)));
    }

    /// What was decided on stays as it is: nothing is written to this name.
    fn leave(&self, entry: &Entry) {
        let _ = entry;
    }

    /// One lane's own staging handle. `is_published_at_once` says that each object is published by the lane right after
    /// it is sealed, and by no one else: the sink may then stage it without a name.
    fn lane(&self, is_published_at_once: bool) -> Result<Box<dyn SinkLane>>;

    /// Opens staging for an object that arrives chunk by chunk, and returns the journal that an earlier attempt left
    /// under the same `stem` (letters, digits and hyphens, at most 64). Two attempts at once never share staging: the second
    /// gets fresh staging of its own and an empty journal.
    fn begin(&self, entry: &Entry, stem: &str) -> Result<(Arc<dyn StagedFile>, Vec<u8>)>;

    /// As `begin`, for an object of which not all will be written: no room is set aside for it.
    fn begin_sparse(&self, entry: &Entry, stem: &str) -> Result<(Arc<dyn StagedFile>, Vec<u8>)> {
        self.begin(entry, stem)
    }

    /// As `begin`, for an object that grows: its size is not known, and the staging has what an earlier attempt wrote. What has
    /// arrived of it can be read as `view`, in the directory of the entry: `StagedFile::resume` says from where on.
    fn begin_growing(&self, entry: &Entry, stem: &str, view: Option<&Name>) -> Result<(Arc<dyn StagedFile>, Vec<u8>)> {
        let _ = view;
        self.begin(entry, stem)
    }

    /// Opens a part of what slices of one run stage together, under `stem`, of an object: one file for all of them, and a journal
    /// for each call. Nobody gives it a name; what is written is what lies in `part`. Returns the journals of others that wrote
    /// in that part before.
    fn begin_part(&self, entry: &Entry, stem: &str, part: Extent) -> Result<(Arc<dyn StagedFile>, Journals)> {
        let _ = (stem, part);
        let why = "several hosts cannot write one file at this kind of destination";
        Err(Error::of_kind(FailureKind::Other, "begin", entry.name.as_bytes(), why))
    }

    /// Takes what slices staged together of an object, if they did: from now on no part of it is begun, and nobody who took it
    /// before gives it a name.
    fn take_parts(&self, entry: &Entry, stem: &str) -> Result<Option<Parts>> {
        let _ = (entry, stem);
        Ok(None)
    }

    /// Staging in the file that was taken. Only where nobody else writes to it any more, by the word of all its journals.
    fn begin_on_parts(&self, entry: &Entry, stem: &str) -> Result<Arc<dyn StagedFile>> {
        self.begin_part(entry, stem, Extent::new(0, entry.size_bytes())).map(|(file, _)| file)
    }

    /// Removes what slices staged together under stems that begin so: the job has come to its end.
    fn drop_parts(&self, stem_prefix: &str) {
        let _ = stem_prefix;
    }

    /// Opens the file of this name at the top of the destination, for lines to be appended, and makes it if it is missing. Another
    /// job that has it open is an error.
    fn open_lines(&self, name: &Name) -> Result<Box<dyn Lines>> {
        let why = "this kind of destination cannot keep a list of what is complete";
        Err(Error::of_kind(FailureKind::Other, "open list", name.as_bytes(), why))
    }

    /// True when `begin` would find a journal that an earlier attempt left.
    fn has_journal(&self, entry: &Entry, stem: &str) -> bool;

    /// Removes what attempts left of large objects, where none works on it: what `is_needless` says so of, by its stem and the
    /// beginning of its journal, and what has an empty journal.
    fn drop_staged(&self, is_needless: &dyn Fn(&str, &[u8]) -> bool) {
        let _ = is_needless;
    }

    /// Makes the contents of everything in `group` durable with one wait. An error condemns the whole group: the caller
    /// drops it and has it sent again. True when the wait covered all names published before it as well, so that they
    /// need no `sync_names`.
    fn sync_group(&self, group: &mut dyn Iterator<Item = Staged>) -> Result<bool>;

    /// Renames a staged object to its final name, from any thread.
    fn publish(&self, entry: &Entry, staged: Staged) -> Result<()>;

    /// As `publish` of each object of a group, for sinks that can have many under way. `published` hears of each once, by its
    /// place in the group; when it says false, no more are begun, and those under way are told too.
    fn publish_group(&self, group: &[ToPublish<'_>], published: &mut dyn FnMut(usize, Result<()>) -> bool) {
        for (place, one) in group.iter().enumerate() {
            if !published(place, self.publish(one.entry, one.staged)) {
                return;
            }
        }
    }

    /// Removes a staged object that will not be published.
    fn discard(&self, staged: Staged);

    /// Compares what storage returns for a staged object with what was written; `check` is fed blocks in order.
    fn reread(&self, entry: &Entry, staged: Staged, check: &mut dyn FnMut(&[u8])) -> Result<()>;

    /// Makes the names published since the last call durable.
    fn sync_names(&self) -> Result<()>;

    /// Gives a directory its final mode and time. Children before parents.
    fn finish_directory(&self, entry: &Entry) -> Result<()>;

    /// The job is over: whoever waits in here for others of it, or for room, comes back with an error. What is staged stays.
    fn interrupt(&self) {}

    /// Removes this job's empty staging.
    fn close(&self);

    /// Path of an entry below the destination; for reports.
    fn path(&self, entry: &Entry) -> Vec<u8>;
}

/// A file of lines beside what is delivered.
pub trait Lines: Send {
    /// When it was last written.
    fn changed(&self) -> Result<Timestamp>;

    /// Returns how much was read: 0 at the end.
    fn read_at(&self, at: u64, buffer: &mut [u8]) -> Result<usize>;

    /// Over what is there, and behind it.
    fn write_at(&self, at: u64, bytes: &[u8]) -> Result<()>;

    /// Drops what lies behind.
    fn cut(&self, at: u64) -> Result<()>;

    fn sync(&self) -> Result<()>;
}

pub trait SinkLane: Send {
    /// Starts an object that comes in order, block by block. One at a time; a second `create` abandons the first.
    fn create(&mut self, entry: &Entry, rule: PublishRule) -> Result<()>;

    fn write(&mut self, bytes: &[u8]) -> Result<()>;

    /// Goes over bytes that are in place already or that are to read as zeros.
    fn skip(&mut self, count: u64) -> Result<()> {
        let _ = count;
        let why = "this kind of destination takes every byte";
        Err(Error::of_kind(FailureKind::WriteError, "write file", b"", why))
    }

    /// Has the object under way, still empty, share all content of `source` instead of holding a copy. False where that cannot
    /// be. What came so is to be skipped.
    fn share_from(&mut self, source: &dyn SourceFile) -> bool {
        let _ = source;
        false
    }

    /// Has the storage copy `extent` of `source`, without a way through this process, to where the object under way has come to.
    /// Returns how much of it, from its start, to be skipped: the caller writes the rest.
    fn copy_from(&mut self, source: &dyn SourceFile, extent: Extent) -> u64 {
        let _ = (source, extent);
        0
    }

    /// Sets metadata and completes the object in staging.
    fn seal(&mut self, entry: &Entry, sync: bool) -> Result<Staged>;

    /// Removes the object under way.
    fn abandon(&mut self);

    /// Renames what this lane staged last, without the search that `Sink::publish` needs.
    fn publish(&mut self, entry: &Entry, staged: Staged) -> Result<()>;
}

/// Staging of a large object; lanes write disjoint chunks of it at once.
pub trait StagedFile: Send + Sync {
    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()>;

    /// As `SinkLane::share_from`.
    fn share_from(&self, source: &dyn SourceFile) -> bool {
        let _ = source;
        false
    }

    /// As `SinkLane::copy_from`, to the same place.
    fn copy_from(&self, source: &dyn SourceFile, extent: Extent) -> u64 {
        let _ = (source, extent);
        0
    }

    /// Sees to it that an extent reads as zeros.
    fn clear(&self, extent: Extent) -> Result<()> {
        let _ = extent;
        let why = "this kind of destination takes every byte";
        Err(Error::of_kind(FailureKind::WriteError, "write file", b"", why))
    }

    /// As `SourceFile::native`.
    fn native(&self) -> Option<&dyn Any> {
        None
    }

    /// Room that it has on storage, reserved or written: it is not free any more. 0 where that is not known.
    fn allocated_bytes(&self) -> u64 {
        0
    }

    /// So much, from its start, of what an earlier attempt left counts. Once, before anything is written.
    fn resume(&self, held_bytes: u64) -> Result<()> {
        let _ = held_bytes;
        Ok(())
    }

    /// Reads what was staged; less than asked for where nothing was written yet.
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<usize>;

    /// Which of the chunks that an earlier attempt recorded are there, by the word of a storage that cannot be read back. Nothing
    /// where it can be, and is.
    fn kept(&self, recorded: &[(Extent, Digest)]) -> Option<Vec<bool>> {
        let _ = recorded;
        None
    }

    /// From where on bytes have to be written again, with all that is behind them, if those at `start` are: a storage that has them
    /// in parts takes each part whole.
    fn again_from(&self, start: u64) -> u64 {
        start
    }

    /// What a checkpoint vouched for outlasts a restart of the host that has it, or that host is this one, whose restarts are known.
    /// Where neither is so, all of it is read back.
    fn outlasts_its_host(&self) -> bool {
        true
    }

    /// Appends to the journal; the bytes mean nothing to the storage.
    fn append_journal(&self, bytes: &[u8]) -> Result<()>;

    /// Keeps the first `length` bytes of the journal.
    fn truncate_journal(&self, length: u64) -> Result<()>;

    /// The bytes of `extent` were verified and are not written again, unless all of the object is, or its end from `again_from` on: a
    /// store that sends an object in parts may send this one. `record` says so in the journal; it is empty where none is kept.
    fn seal_extent(&self, extent: Extent, record: &[u8]) -> Result<()> {
        let _ = extent;
        if record.is_empty() { Ok(()) } else { self.append_journal(record) }
    }

    /// All `size_bytes` of the object are sealed, and it is about to be published: a store that still sends parts of it waits
    /// for them. Nothing can be seen of it yet.
    fn settle(&self, size_bytes: u64) -> Result<()> {
        let _ = size_bytes;
        Ok(())
    }

    /// Makes the data written so far durable, then the journal.
    fn checkpoint(&self) -> Result<()>;

    /// Of what a checkpoint vouched for, what a later attempt finds: less where storage sends an object on in parts, or takes it
    /// in one go.
    fn confirmed(&self, held: &ExtentSet) -> ExtentSet {
        held.clone()
    }

    /// Reads back past the page cache where the file system allows it.
    fn reread(&self, check: &mut dyn FnMut(&[u8])) -> Result<()>;

    /// Waits until what is staged is durable with the size and metadata of `entry`, under no name yet. Staging that fails it is
    /// dead.
    fn make_durable(&self, entry: &Entry) -> Result<()> {
        let _ = entry;
        Ok(())
    }

    /// Sets size and metadata of `entry`, and renames to the final name. What was made durable before stays so.
    fn publish(&self, entry: &Entry, rule: PublishRule) -> Result<()>;

    /// Forgets everything staged: the source changed, or the staging is dead after a failed write or sync.
    fn discard(&self);
}
