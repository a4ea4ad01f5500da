//! Large objects that slices of one run write together: a slice with a range brings that much of one and gives it no name; the
//! slice that ends the run takes what they brought, and goes on as from an earlier attempt.
//!
//! Invariants:
//! - A slice writes nothing outside its range, and says that the range is over (`end_part`) when every chunk of it is durable and no
//!   lane writes to it any more.
//! - What was written together gets a final name only when all who wrote to it have said so: somebody else may write to it later,
//!   also when it has its name. Otherwise what is held is copied into a file of this job's own, and counts as far as it has the
//!   recorded digests there.
//! - Whatever was brought, the sender of the last slice says that its source still is the version that was listed (`feeders`): all
//!   that was read before it is of that version.
//!
//! Not here: where it lies, and who sees whose journal (`store::posix::parts`).

use super::super::{ReceiveJob, resume};
use super::together::Together;
use super::{Large, State};
use crate::progress::count;
use ledger::extent_log::{self, Header, Replayed};
use model::{Digest, Entry, Extent, mutant};
use std::collections::BTreeMap;
use std::sync::Arc;
use store::{Parts, SourceFile, StagedFile};

impl Large {
    pub fn range(&self) -> Option<Extent> {
        self.together.as_ref().and_then(|together| together.range)
    }

    /// What of the object this job is to bring.
    pub fn wanted(&self) -> Extent {
        self.range().unwrap_or(Extent::new(0, self.size_bytes))
    }

    /// Whether this job may write there.
    pub fn takes(&self, extent: Extent) -> bool {
        self.range().is_none_or(|range| range.start <= extent.start && extent.end <= range.end)
    }

    /// What others brought of the object, for the slice that completes it.
    pub(super) fn take_parts(&self, job: &ReceiveJob, entry: &Entry) -> store::Result<Option<Parts>> {
        match &self.together {
            Some(Together { stem, range: None }) => job.sink.take_parts(entry, stem),
            _ => Ok(None),
        }
    }

    /// Staging for a range. What others have brought of it by their last word counts.
    pub(super) fn open_part(
        &self,
        job: &ReceiveJob,
        entry: &Entry,
        (stem, range): (&str, Extent),
        state: &mut State,
    ) -> store::Result<Arc<dyn StagedFile>> {
        let (file, journals) = job.sink.begin_part(entry, stem, range)?;
        let header = self.header_of_parts(job, entry);
        if let Ok((bytes, appender)) = extent_log::start(&header) {
            file.append_journal(&bytes).inspect_err(|_| file.discard())?;
            state.appender = Some(appender);
        }
        // The rest is not this job's.
        state.held.insert(Extent::new(0, range.start));
        state.held.insert(Extent::new(range.end, self.size_bytes));
        let replayed = journals.iter().filter_map(|journal| replayed(journal, &header));
        let is_trusted = |one: &Replayed| one.range.is_some() || mutant::is_on("trust-undurable-range");
        let over: Vec<_> = replayed.filter(is_trusted).collect();
        for (extent, digest) in self.chunks(&over) {
            if range.start <= extent.start && extent.end <= range.end && state.held.insert(extent) {
                state.digests.insert(extent.start, digest);
                state.resumed_bytes += extent.length();
            }
        }
        Ok(file)
    }

    /// The range is there whole: from here on it counts, and nothing is written to it in this job's name.
    pub fn end_part(&self) -> store::Result<()> {
        let mut state = self.object.state.lock().unwrap();
        let (Some(file), Some(mut appender)) = (state.file.take(), state.appender.take()) else { return Ok(()) };
        state.complete_bytes = Some(self.size_bytes);
        file.checkpoint()?;
        if let Ok(record) = appender.range(self.wanted()) {
            file.append_journal(&record)?;
            file.checkpoint()?;
        }
        Ok(())
    }

    pub fn is_part_there(&self) -> bool {
        self.range().is_some() && self.object.state.lock().unwrap().held.covers(self.size_bytes)
    }

    /// The staging of an object that others have written to before, with what they brought.
    pub(super) fn open_on_parts(
        &self,
        job: &ReceiveJob,
        entry: &Entry,
        parts: &Parts,
        state: &mut State,
    ) -> store::Result<Option<Arc<dyn StagedFile>>> {
        let Some(Together { stem, .. }) = &self.together else { return Ok(None) };
        let header = self.header_of_parts(job, entry);
        let replayed: Vec<_> = parts.journals.iter().map(|journal| replayed(journal, &header)).collect();
        let is_over = |one: &Option<Replayed>| one.as_ref().is_some_and(|one| one.range.is_some());
        let are_over = replayed.iter().all(is_over) || mutant::is_on("name-what-is-written-to");
        let replayed: Vec<_> = replayed.into_iter().flatten().collect();
        let chunks = self.chunks(&replayed);
        if are_over {
            // Another one may have taken it meanwhile.
            let Ok(file) = job.sink.begin_on_parts(entry, stem) else { return Ok(None) };
            // What others brought stays, also when that cannot be put down: the next attempt takes it again.
            let held = resume::start(&*file, &header, chunks)?;
            for (extent, digest) in held.chunks {
                state.hold(extent, digest);
            }
            state.appender = held.appender;
            return Ok(Some(file));
        }
        let file = self.open_own(job, entry, state)?;
        let copied = self.copy_chunks(job, (&*file, &*parts.content), (chunks, &header), state);
        copied.inspect_err(|_| file.discard())?;
        Ok(Some(file))
    }

    /// Brings chunks into a file of this job's own, and holds those that have the recorded digests there.
    fn copy_chunks(
        &self,
        job: &ReceiveJob,
        (file, content): (&dyn StagedFile, &dyn SourceFile),
        (chunks, header): (Vec<(Extent, Digest)>, &Header),
        state: &mut State,
    ) -> store::Result<()> {
        for (extent, digest) in chunks {
            if job.end.is_set() {
                break;
            }
            if state.held.contains(extent) || !copy(file, content, extent)? {
                continue;
            }
            count(&job.progress.worked, 1);
            if resume::digest_of(file, extent, header, self.size_bytes)? == Some(digest) {
                state.hold(extent, digest);
                if let Some(Ok(record)) = state.appender.as_mut().map(|appender| appender.extent(extent, &digest)) {
                    file.append_journal(&record)?;
                }
            }
        }
        Ok(())
    }

    /// Chunks of the object, none twice, and none that is told in two ways.
    fn chunks(&self, replayed: &[Replayed]) -> Vec<(Extent, Digest)> {
        let mut chunks: BTreeMap<u64, Option<(Extent, Digest)>> = BTreeMap::new();
        let end = |start: u64| self.size_bytes.min(start.saturating_add(self.chunk_bytes));
        for chunk in replayed.iter().flat_map(|one| &one.extents).filter(|(extent, _)| extent.end == end(extent.start))
        {
            let known = chunks.entry(chunk.0.start).or_insert(Some(*chunk));
            if *known != Some(*chunk) {
                *known = None;
            }
        }
        chunks.into_values().flatten().collect()
    }

    fn header_of_parts(&self, job: &ReceiveJob, entry: &Entry) -> Header {
        let options = &job.options;
        resume::header_of_parts(&self.path, entry, options.digest, options.chunk_bytes, job.id)
    }
}

impl State {
    pub(super) fn hold(&mut self, extent: Extent, digest: Digest) {
        if self.held.insert(extent) {
            self.digests.insert(extent.start, digest);
            self.resumed_bytes += extent.length();
        }
    }
}

fn replayed(journal: &[u8], header: &Header) -> Option<Replayed> {
    extent_log::replay(journal).ok().filter(|replayed| replayed.header.is_same_object(header))
}

/// Brings an extent to the same place in a file of this job's own. False when it is not there whole.
fn copy(file: &dyn StagedFile, content: &dyn SourceFile, extent: Extent) -> store::Result<bool> {
    let mut at = extent.start + file.copy_from(content, extent);
    let mut block = vec![0; crate::limits::BLOCK_BYTES];
    while at < extent.end {
        let wanted = block.len().min((extent.end - at) as usize);
        let read = content.read_at(at, &mut block[..wanted])?;
        if read == 0 {
            return Ok(false);
        }
        file.write_at(at, &block[..read])?;
        at += read as u64;
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Progress;
    use crate::job::Port;
    use crate::receiver::ReceiveSpec;
    use model::options::{Fsync, Slice};
    use model::{
        ChunkHasher, DigestAlgorithm, FailureKind, Generation, JobId, Kind, Name, ObjectId, Pin, TransferOptions,
    };
    use std::path::Path;
    use store::PublishRule;
    use store::posix::{PosixSink, beneath};
    use wire::Message;

    const CHUNK: u64 = 64 << 10;

    struct Nobody;

    impl Port for Nobody {
        fn send(&self, _: Message) {}
    }

    /// Of one run: a slice that is to bring this range of a file, or the one that completes it.
    fn job_for(root: &Path, number: u8, range: Option<Extent>) -> Arc<ReceiveJob> {
        let directory = Arc::new(beneath::open_directory(root).unwrap());
        let sink = Arc::new(PosixSink::new(directory.clone(), directory, None));
        let slice = Some(Arc::new(Slice { instead_of: Vec::new(), run: Some(JobId([9; 16])), range }));
        let options = TransferOptions { chunk_bytes: CHUNK, fsync: Fsync::Never, slice, ..TransferOptions::default() };
        let spec = ReceiveSpec { number: 1, id: JobId([number; 16]), sender: Pin([7; 32]), options, rename_to: None };
        ReceiveJob::new(spec, sink, Arc::new(Nobody), Progress::new(), None).unwrap()
    }

    /// Of four chunks.
    fn object() -> Entry {
        Entry {
            id: ObjectId(1),
            parent: ObjectId::ROOT,
            name: Name::new(b"object").unwrap(),
            kind: Kind::File,
            mode: 0o644,
            generation: Generation { size_bytes: 4 * CHUNK, ..Generation::default() },
            attributes: None,
        }
    }

    /// In a slice that is to bring two of its chunks.
    fn slice(root: &Path, number: u8) -> Arc<Large> {
        let job = job_for(root, number, Some(Extent::new(0, 2 * CHUNK)));
        Large::new(&job, &object(), PublishRule::NoReplace, model::End::Known).unwrap()
    }

    /// Of which the first chunk can be read.
    struct Damaged;

    impl SourceFile for Damaged {
        fn read_at(&self, offset: u64, buffer: &mut [u8]) -> store::Result<usize> {
            if offset >= CHUNK {
                return Err(store::Error::of_kind(FailureKind::ReadError, "read file", b"", "it is damaged"));
            }
            buffer.fill(1);
            Ok(buffer.len())
        }

        fn generation(&self) -> store::Result<Generation> {
            Ok(Generation::default())
        }
    }

    #[test]
    fn of_a_range_with_no_last_word_nothing_counts_for_others() {
        let root = tempfile::tempdir().unwrap();
        let first = slice(root.path(), 1);
        let file = first.object.state.lock().unwrap().file.clone().unwrap();
        let content = vec![1u8; CHUNK as usize];
        let digest = DigestAlgorithm::Crc64Nvme.of_object(&content);
        for start in [0, CHUNK] {
            file.write_at(start, &content).unwrap();
            first.record(&file, Extent::new(start, start + CHUNK), digest, None, false).unwrap();
        }
        // It is in the journal, and may be lost with the power.
        assert_eq!(slice(root.path(), 2).held_bytes(), 0);
        first.end_part().unwrap();
        assert_eq!(slice(root.path(), 3).held_bytes(), 2 * CHUNK);
    }

    #[test]
    fn when_the_parts_of_others_cannot_be_copied_nothing_of_the_copy_is_held_and_it_is_dropped() {
        let root = tempfile::tempdir().unwrap();
        let (job, entry) = (job_for(root.path(), 1, None), object());
        let large = Large::new(&job, &entry, PublishRule::NoReplace, model::End::Known).unwrap();
        let (mut journal, mut appender) = extent_log::start(&large.header_of_parts(&job, &entry)).unwrap();
        let content = vec![1; CHUNK as usize];
        for start in [0, CHUNK] {
            let mut hasher = ChunkHasher::new(job.options.digest, start);
            hasher.update(&content);
            let record = appender.extent(Extent::new(start, start + CHUNK), &hasher.finish(false));
            journal.extend_from_slice(&record.unwrap());
        }
        // With no last word: its writer may go on.
        let parts = Parts { content: Arc::new(Damaged), journals: vec![journal] };
        assert!(large.open(&job, &entry, Some(&parts)).is_err());
        assert_eq!((large.staged().is_empty(), large.held_bytes()), (true, 0));
        assert!(!job.sink.has_journal(&entry, &large.stem));
        // What is opened after it is new.
        assert!(large.open(&job, &entry, None).is_ok_and(|file| file.is_some()) && large.staged().is_empty());
    }
}
