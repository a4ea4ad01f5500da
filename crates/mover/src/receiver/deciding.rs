//! What becomes of one file or link: it is left, amended, compared first, or wanted.
//!
//! Not here: the rules by which that is decided (`policy`), and batches (`decide`).

use super::answer::Answer;
use super::decide::{Decide, Decided};
use super::delta::Delta;
use super::large::Large;
use super::needs;
use super::policy::{self, Step};
use crate::progress::count;
use model::change::cause;
use model::options::Compare;
use model::{Change, End, Entry, Kind};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use store::{Decision, PublishRule};
use wire::listing::REPLACEMENT_FIRST;

impl Decide<'_> {
    /// Decides about a file or link of which it is known what stands at its name.
    pub(super) fn decided(
        &mut self,
        entry: &Entry,
        end: End,
        found: Decision,
        answer: &mut Answer,
    ) -> store::Result<Decided> {
        let options = &self.job.options;
        let replaced_bytes = match &found {
            Decision::Replace { size_bytes, .. } => *size_bytes,
            Decision::Absent | Decision::Same => 0,
        };
        let step = policy::step(options, entry, end != End::Known, &found);
        match self.job.replayed.get().map_or(step, |here| step.without_sender(here.contains(&entry.id.0))) {
            Step::Skip => {
                self.amend(entry, &found, answer);
                match found {
                    Decision::Same => self.job.list_found(entry),
                    Decision::Absent | Decision::Replace { .. } => self.job.sink.leave(entry),
                }
                answer.outcome.skipped.push((entry.id.0, entry.size_bytes()));
            }
            Step::Compare => return Ok(Decided::Asked(found)),
            Step::Publish(rule) => {
                let rule = self.rule_of(entry, rule);
                let causes = policy::causes(entry, &found);
                return self.publish(entry, end, (rule, replaced_bytes), causes, answer);
            }
        }
        Ok(Decided::Settled)
    }

    /// What is described again may have been published by this job before, in a directory that it made and that is not looked at.
    pub(super) fn rule_of(&self, entry: &Entry, rule: PublishRule) -> PublishRule {
        let job = self.job;
        let may_replace = !job.options.no_clobber && job.options.compare != Compare::Exists;
        let may_be_ours = job.is_followed.load(Relaxed) || may_replace && job.sink.is_fresh(entry.parent);
        if entry.id.0 >= REPLACEMENT_FIRST && may_be_ours { PublishRule::Replace } else { rule }
    }

    /// Gives a file that has its content what else its source has. What cannot be done is no failure of the file.
    pub(super) fn amend(&mut self, entry: &Entry, found: &Decision, answer: &mut Answer) {
        let job = self.job;
        if !policy::is_amended(&job.options, entry, found) {
            return;
        }
        match job.sink.amend(entry) {
            Ok(0) => {}
            Ok(causes) => self.change(entry, cause::KEPT | causes, answer),
            Err(e) => self.warnings.note(&e.message(), &|| job.sink.path(entry)),
        }
    }

    /// Notes a change for whoever asked to see it.
    pub(super) fn change(&self, entry: &Entry, causes: u32, answer: &mut Answer) {
        if self.job.options.tells_changes {
            let (path, subject) = (self.job.sink.path(entry), policy::subject(&entry.kind));
            answer.changes.push(Change { path, subject, causes });
        }
    }

    /// A file or link that is to be published; wants its content if it has any.
    pub(super) fn publish(
        &mut self,
        entry: &Entry,
        end: End,
        (rule, replaced_bytes): (PublishRule, u64),
        causes: u32,
        answer: &mut Answer,
    ) -> store::Result<Decided> {
        let job = self.job;
        let (id, size) = (entry.id.0, entry.size_bytes());
        let made = match entry.kind {
            Kind::Symlink(_) => Some(job.sink.make_symlink(entry, rule)?),
            Kind::Node(_) => Some(job.sink.make_node(entry, rule)?),
            _ => None,
        };
        if let Some(is_made) = made {
            match is_made {
                true => {
                    self.change(entry, causes, answer);
                    answer.links.push(id);
                }
                false => answer.outcome.skipped.push((id, 0)),
            }
            return Ok(Decided::Settled);
        }
        self.change(entry, causes, answer);
        // How much of a file is holes is not known before it is written.
        let mut room_bytes = if job.options.fidelity.sparse { 0 } else { size.saturating_sub(replaced_bytes) };
        if job.options.is_dry_run {
            self.room.want(room_bytes, rule);
            count(&job.progress.counters.bytes_done, size);
            answer.links.push(id);
            return Ok(Decided::Settled);
        }
        if end != End::Known || size > job.options.chunk_bytes {
            needs::check_parts(&job.options, &job.facts, size)?;
            let large = Large::new(job, entry, rule, end)?;
            if large.is_part_there() {
                large.end_part()?;
                answer.outcome.skipped.push((id, size));
                return Ok(Decided::Settled);
            }
            // Whoever opened it first has reserved room for all of it.
            let taken_bytes = if large.range().is_some() { size } else { large.taken_bytes() };
            room_bytes = room_bytes.saturating_sub(taken_bytes);
            self.room.want(room_bytes, rule);
            self.probe_if_large(size.saturating_sub(large.spared_bytes));
            if let Some(delta) = Delta::start(job, entry, (rule, room_bytes), &large, replaced_bytes) {
                return Ok(Decided::Differs(Box::new(delta)));
            }
            self.want_large(entry, large, answer);
        } else {
            self.room.want(room_bytes, rule);
            self.probe_if_large(size);
            answer.wanted.push(id);
        }
        Ok(Decided::Wanted(rule, room_bytes))
    }

    /// Wants what is missing of an object that travels in chunks.
    pub(super) fn want_large(&self, entry: &Entry, large: Arc<Large>, answer: &mut Answer) {
        let id = entry.id.0;
        if self.job.place.get().is_some() {
            return answer.large.push((id, large));
        }
        // Without its sender, that word is in the buffer or nowhere.
        if large.is_held_whole() && self.job.replayed.get().is_none() {
            self.resumed_whole(entry, &large);
        }
        match large.claim(u64::MAX) {
            Some(extents) => answer.extents.extend(super::tell::wanted_extents(id, &extents)),
            None => answer.wanted.push(id),
        }
        answer.large.push((id, large));
    }

    /// Everything of it was verified by an earlier attempt. Its last chunk is asked for again, because only the sender
    /// can say that the source is still the one that was listed; with it comes what storage has in one part with it.
    fn resumed_whole(&self, entry: &Entry, large: &Large) {
        let chunk_bytes = self.job.options.chunk_bytes;
        let mut start = (entry.size_bytes() - 1) / chunk_bytes * chunk_bytes;
        if let Ok(Some(file)) = large.staging(self.job, entry) {
            start = file.again_from(start);
        }
        large.forget(start);
        self.job.progress.counters.bytes_resumed.fetch_sub(entry.size_bytes() - start, Relaxed);
    }

    fn probe_if_large(&mut self, size: u64) {
        if size >= super::large::PROBED_FILE_BYTES {
            self.job.probe_storage();
        }
    }
}
