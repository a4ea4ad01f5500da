//! The point of durability: whatever was staged while the last wait ran becomes durable with the next, then visible.
//!
//! On a local file system with a journal one wait does both: it makes the contents of a group durable and the names of the
//! group before it. Names wait for their own only when nothing follows, and where each file or directory is synced alone.
//!
//! Invariants:
//! - Nothing is renamed to its final name before its content is durable, and nothing is settled before its name is.
//! - A failed sync names no file: the whole group is dropped and sent again, never synced a second time (F072).

use super::ReceiveJob;
use super::large::{Large, kind_of};
use super::listed::Listed;
use super::queue::Item;
use super::settle::{Outcome, Published};
use crate::limits::CHECKPOINT_INTERVAL;
use crate::progress::{CommitClock, count};
use model::mutant;
use model::options::Verify;
use model::progress::Stage;
use model::{ChunkHasher, Digest, Extent, FailureKind};
use os::time::Instant;
use std::sync::Arc;
use std::time::Duration;
use store::{Durability, Staged, ToPublish};
use wire::bounded;
use wire::message::{ExtentRecord, Resend};

pub fn run(job: &Arc<ReceiveJob>) {
    let mut last_checkpoint = Instant::now();
    // Visible, but its names may not be durable yet.
    let mut named = Outcome::default();
    let mut clock = job.progress.commit_clock();
    loop {
        let patience = if named.is_empty() { Duration::from_millis(500) } else { Duration::ZERO };
        let group = job.committer.take(patience);
        if job.end.is_set() {
            return discard(job, group);
        }
        if !group.is_empty() || !named.is_empty() {
            named = commit(job, group, named, &mut clock);
            clock.enter(None);
        }
        if last_checkpoint.elapsed() >= CHECKPOINT_INTERVAL {
            let large = job.table.lock().unwrap().large_objects();
            for object in large {
                if let Err(e) = object.checkpoint() {
                    ask_for_all(job, &object, &e);
                }
            }
            last_checkpoint = Instant::now();
        }
    }
}

fn discard(job: &ReceiveJob, group: Vec<Item>) {
    for item in group {
        if let Item::Small { staged, .. } = item {
            job.sink.discard(staged);
        }
    }
}

/// Makes a group durable and visible, and settles the one before it, `named`. Returns what is now visible.
fn commit(job: &Arc<ReceiveJob>, group: Vec<Item>, named: Outcome, clock: &mut CommitClock) -> Outcome {
    clock.enter(Some(Stage::Sync));
    let mut outcome = Outcome::default();
    if group.is_empty() {
        confirm(job, named);
        return outcome;
    }
    let mut small = group.iter().filter_map(|item| match item {
        Item::Small { staged, .. } => Some(*staged),
        Item::Large(_) | Item::Link(_) => None,
    });
    let synced = job.sink.sync_group(&mut small);
    let synced = if mutant::is_on("ignore-failed-sync") { Ok(synced.unwrap_or(false)) } else { synced };
    match &synced {
        Ok(_) if mutant::is_on("settle-names-unsynced") => job.settle(named),
        Ok(true) => job.settle(named),
        Ok(false) => confirm(job, named),
        // A second wait might succeed without having kept what the first one lost.
        Err(e) if !named.is_empty() => job.cancel(wire::CloseCode::Internal, &e.to_string()),
        Err(_) => {}
    }
    if let Err(e) = synced {
        for item in group {
            match item {
                Item::Small { listed, index, staged, .. } => {
                    job.sink.discard(staged);
                    job.ask_again(&listed, index, None, &e.to_string(), FailureKind::WriteError);
                }
                Item::Large(large) => dead_staging(job, &large, &e),
                Item::Link(id) => outcome.links.push(id),
            }
        }
        return outcome;
    }
    let (mut small, mut large) = (Vec::new(), Vec::new());
    for item in group {
        // The wait may have been long: the job may be over, and another attempt may be at work.
        if job.end.is_set() {
            discard(job, vec![item]);
            continue;
        }
        match item {
            Item::Link(id) => outcome.links.push(id),
            Item::Large(one) => large.push(one),
            Item::Small { listed, index, staged, digest, size_bytes } => {
                clock.enter(Some(Stage::Publish));
                let published = Published { listed, index, digest, size_bytes, is_chunked: false };
                if is_to_be_published(job, &published, staged) {
                    small.push((published, staged));
                }
            }
        }
    }
    clock.enter(Some(Stage::Publish));
    publish_small(job, small, &mut outcome);
    // Made durable separately: most of it is waiting for storage, while what is small may be held in memory until it has its name.
    for large in large.iter().take_while(|_| !job.end.is_set()) {
        clock.enter(Some(Stage::Sync));
        publish_large(job, large, true, &mut outcome);
    }
    outcome
}

/// Whether a small object whose content is durable is still wanted, and still what was written.
fn is_to_be_published(job: &Arc<ReceiveJob>, published: &Published, staged: Staged) -> bool {
    let (listed, index) = (&published.listed, published.index);
    if !job.table.lock().unwrap().begin_publishing(listed.expected(index).entry.id.0) {
        job.sink.discard(staged);
        return false;
    }
    survives_reread(job, listed, index, staged, published.digest)
}

/// Gives small objects their final names.
fn publish_small(job: &Arc<ReceiveJob>, small: Vec<(Published, Staged)>, outcome: &mut Outcome) {
    let mut group = Vec::with_capacity(small.len());
    for (published, staged) in &small {
        group.push(ToPublish { entry: &published.listed.expected(published.index).entry, staged: *staged });
    }
    let mut results: Vec<Option<store::Result<()>>> = small.iter().map(|_| None).collect();
    job.sink.publish_group(&group, &mut |place, result| {
        results[place] = Some(result);
        !job.end.is_set()
    });
    for ((published, staged), result) in small.into_iter().zip(results) {
        match result {
            Some(Ok(())) if mutant::is_on("acknowledge-before-sync") => {
                job.settle(Outcome { published: vec![published], ..Outcome::default() });
            }
            Some(Ok(())) => outcome.published.push(published),
            Some(Err(e)) => job.fail(&published.listed, published.index, e.kind, e.message()),
            // The job ended first, and another attempt may be at work.
            None => job.sink.discard(staged),
        }
    }
}

/// Makes names durable, and settles them.
pub fn confirm(job: &Arc<ReceiveJob>, named: Outcome) {
    if named.is_empty() {
        return;
    }
    match job.sink.sync_names() {
        Ok(()) => job.settle(named),
        // Names that storage did not confirm are not settled: the job ends, and its next attempt looks again.
        Err(e) => job.cancel(wire::CloseCode::Internal, &e.to_string()),
    }
}

/// Reads a small object back if that was asked for. False when it was dropped and asked for again.
pub fn survives_reread(
    job: &Arc<ReceiveJob>,
    listed: &Arc<Listed>,
    index: usize,
    staged: Staged,
    digest: Digest,
) -> bool {
    if job.options.verify != Verify::Reread || mutant::is_on("skip-reread") {
        return true;
    }
    let mut hasher = ChunkHasher::new(job.options.digest, 0);
    let read = job.sink.reread(&listed.expected(index).entry, staged, &mut |block| {
        count(&job.progress.worked, 1);
        hasher.update(block);
    });
    let why = match read {
        Ok(()) if hasher.finish(true) == digest => return true,
        Ok(()) => "storage returned other bytes than were written".to_owned(),
        Err(e) => e.message(),
    };
    job.sink.discard(staged);
    job.ask_again(listed, index, None, &why, FailureKind::DigestMismatch);
    false
}

/// A large object is complete: the committer publishes it, or its caller does.
pub fn complete(job: &Arc<ReceiveJob>, large: Arc<Large>) {
    if job.durability == Durability::Group {
        return job.committer.push(Item::Large(large), &job.end);
    }
    let mut outcome = Outcome::default();
    publish_large(job, &large, job.durability == Durability::File, &mut outcome);
    match job.durability {
        Durability::File if !mutant::is_on("settle-large-names-unsynced") => confirm(job, outcome),
        _ => job.settle(outcome),
    }
}

/// Publishes a complete large object.
pub fn publish_large(job: &Arc<ReceiveJob>, large: &Arc<Large>, sync: bool, outcome: &mut Outcome) {
    let (listed, index) = large.place().clone();
    if sync && !large.outlasts_checkpoint() {
        return;
    }
    if large.range().is_some() {
        match large.end_part() {
            Ok(()) => outcome.skipped.push((large.id, large.size_bytes)),
            Err(e) => dead_staging(job, large, &e),
        }
        return;
    }
    let Some((file, digest, size_bytes)) = large.take_complete(job.options.digest) else { return };
    if job.options.verify == Verify::Reread && !rereads(job, large, &*file, digest, size_bytes) {
        return;
    }
    let (mut entry, rule) = large.final_entry();
    entry.generation.size_bytes = size_bytes;
    let durable = file.settle(size_bytes).and_then(|()| if sync { file.make_durable(&entry) } else { Ok(()) });
    // Storage may stand still for long in a sync. What another attempt may be at work on by then gets no name, and stays for it.
    if job.end.is_set() {
        return;
    }
    let is_durable = durable.is_ok();
    if is_durable && !job.table.lock().unwrap().begin_publishing(large.id) {
        return file.discard();
    }
    match durable.and_then(|()| file.publish(&entry, rule)) {
        Ok(()) => outcome.published.push(Published { listed, index, digest, size_bytes, is_chunked: true }),
        // A name that was refused takes nothing from what is staged.
        Err(e)
            if is_durable
                && e.kind != FailureKind::WriteError
                && job.is_for_next_time(&entry, e.kind, &e.message()) => {}
        Err(e) if e.kind == FailureKind::Other || e.kind == FailureKind::WriteError => {
            file.discard();
            dead_staging(job, large, &e);
        }
        Err(e) => {
            file.discard();
            job.fail(&listed, index, e.kind, e.message());
        }
    }
}

fn rereads(job: &Arc<ReceiveJob>, large: &Arc<Large>, file: &dyn store::StagedFile, digest: Digest, size: u64) -> bool {
    let chunk_bytes = job.options.chunk_bytes;
    let mut hasher = ChunkHasher::new(job.options.digest, 0);
    let mut chunks = Vec::new();
    let mut at = 0;
    let read = file.reread(&mut |mut block: &[u8]| {
        count(&job.progress.worked, 1);
        while !block.is_empty() && at < size {
            let end = (at / chunk_bytes + 1) * chunk_bytes;
            let part = block.len().min((end.min(size) - at) as usize);
            hasher.update(&block[..part]);
            at += part as u64;
            block = &block[part..];
            if at == end || at == size {
                let next = ChunkHasher::new(job.options.digest, at / chunk_bytes * chunk_bytes);
                chunks.push(std::mem::replace(&mut hasher, next).finish(size <= chunk_bytes));
            }
        }
    });
    if size == 0 {
        chunks.push(ChunkHasher::new(job.options.digest, 0).finish(true));
    }
    let is_equal = read.is_ok() && at == size && job.options.digest.combine(&chunks, chunk_bytes, size) == digest;
    if !is_equal {
        let why = store::Error::of_kind(FailureKind::DigestMismatch, "read back", b"", "storage returned other bytes");
        file.discard();
        dead_staging(job, large, read.as_ref().err().unwrap_or(&why));
    }
    is_equal
}

/// What is to be published cannot be trusted any more: all of it is to come again, into new staging. For the thread that publishes.
pub fn dead_staging(job: &Arc<ReceiveJob>, large: &Arc<Large>, e: &store::Error) {
    if let Some(hold) = job.hold.get().filter(|_| job.replayed.get().is_some()) {
        // It may be complete again at once, and is published no second time before the job is tried again.
        hold.refuse(large.id);
    }
    large.restart_complete();
    ask_for_all(job, large, e);
}

/// A chunk could not be written or recorded. What would fail again at once, for want of room or of a right, fails the
/// object.
pub fn chunk_failed(job: &Arc<ReceiveJob>, large: &Arc<Large>, file: &Arc<dyn store::StagedFile>, e: &store::Error) {
    match kind_of(e) {
        FailureKind::WriteError => restart(job, large, file, e),
        kind => {
            let (listed, index) = large.place().clone();
            job.fail(&listed, index, kind, e.message());
        }
    }
}

/// Staging could not be opened for a chunk: the chunk comes again, unless that would fail again at once.
pub fn unopened(job: &Arc<ReceiveJob>, large: &Arc<Large>, extent: Extent, e: &store::Error) {
    let (listed, index) = large.place().clone();
    match kind_of(e) {
        kind @ FailureKind::WriteError => {
            let extent = ExtentRecord { object: large.id, start: extent.start, end: extent.end };
            job.ask_again(&listed, index, Some(extent), &e.message(), kind);
        }
        kind => job.fail(&listed, index, kind, e.message()),
    }
}

/// The same for a lane, about the staging that it wrote to.
pub fn restart(job: &Arc<ReceiveJob>, large: &Arc<Large>, dead: &Arc<dyn store::StagedFile>, e: &store::Error) {
    if large.restart(dead) {
        ask_for_all(job, large, e);
    }
}

/// An object starts over: all of it is to come again.
pub fn ask_for_all(job: &Arc<ReceiveJob>, large: &Arc<Large>, e: &store::Error) {
    let (listed, index) = large.place().clone();
    if job.replayed.get().is_some() && !large.is_growing {
        // However often storage fails: it comes out of the buffer, where all of it stays, when the job is tried again.
        let again = Resend { job: job.number, why: bounded(&e.to_string()).to_owned(), ..Resend::default() };
        return job.port.send(again.into());
    }
    if large.is_open_ended || large.is_growing {
        // A pipe is read once: nothing of it can come again. What grows is followed again by the next attempt.
        return job.fail(&listed, index, kind_of(e), e.message());
    }
    job.table.lock().unwrap().expect_again(large.id);
    large.claim(u64::MAX);
    let wanted = large.wanted();
    let extent = ExtentRecord { object: large.id, start: wanted.start, end: wanted.end };
    job.ask_again(&listed, index, Some(extent), &e.to_string(), e.kind);
}
