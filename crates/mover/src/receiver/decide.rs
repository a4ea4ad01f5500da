//! Answers the listing batch by batch: takes in what is described (`intake`), decides what becomes of it (`deciding`), says what is
//! wanted. One thread for each job, so that the control stream never waits for storage.
//!
//! Room at the destination is checked before anything is wanted, and again as the listing grows.

use super::ReceiveJob;
use super::answer::Answer;
use super::compare::{Candidate, Compared, Comparisons};
use super::delta::Delta;
use super::events::Event;
use super::gather::{Keys, Place, TICK, Wanted};
use super::large::Large;
use super::links::HardLinks;
use super::listed::{Expected, Listed};
use super::policy;
use super::queue::Item;
use super::room::Room;
use super::settle::Outcome;
use super::settling::Settling;
use crate::limits::CHECKPOINT_INTERVAL;
use crate::memory::Permit;
use model::change::cause;
use model::fidelity::Warnings;
use model::{End, Entry, FailureKind, Kind, Name};
use os::time::Instant;
use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering::{Relaxed, Release};
use std::time::Duration;
use store::{Decision, Durability, PublishRule};
use wire::listing::Described;
use wire::message::{DigestRecord, Names, runs_of};
use wire::{CloseCode, Message};

pub fn run(job: &Arc<ReceiveJob>) {
    let mut decide = Decide {
        job,
        directories: Vec::new(),
        top_names: HashSet::new(),
        room: Room::new(&job.facts),
        comparisons: Comparisons::default(),
        backlog: VecDeque::new(),
        links: HardLinks::default(),
        warnings: Warnings::default(),
        settling: Settling::default(),
        keys: job.place.get().map(Place::keys),
    };
    if let Some(wait) = job.older.get() {
        wait(&job.end);
    }
    job.open_sealed_list();
    let mut noted = Instant::now();
    while !job.end.is_set() {
        if job.is_followed.load(Relaxed) && noted.elapsed() >= CHECKPOINT_INTERVAL {
            if job.durability != Durability::Group {
                decide.note_frontiers();
            }
            noted = Instant::now();
        }
        if !job.is_full_of_deltas()
            && let Some(batch) = decide.backlog.pop_front()
        {
            decide.batch(batch.0, batch.1);
            continue;
        }
        if decide.backlog.is_empty() {
            job.decider.done();
        }
        let patience = decide.look_around();
        let Some(event) = job.decider.take(patience) else { continue };
        match event {
            Event::Described(batch, charge) if decide.is_beside() => decide.offer(batch, &charge),
            Event::Described(batch, charge) => decide.backlog.push_back((batch, charge)),
            Event::Digests(digests, _charge) => decide.compared(digests),
            Event::Names(names) => learn(job, &names),
            Event::Failed(record, _charge) => {
                job.source_failed(record);
                job.failures_waiting.fetch_sub(1, Release);
            }
            Event::Sealed(seal, _charge) => decide.sealed(&seal),
            Event::Covered(id) => decide.covered(id),
            Event::Granted(id) => decide.granted(id),
            // The control loop has looked at what was decided by then; what was described last is decided only now.
            Event::Finish if !job.table.lock().unwrap().is_empty() || decide.is_waiting() => {
                return job.cancel(CloseCode::WrongState, super::NOT_SETTLED);
            }
            Event::Finish => return decide.finish(),
        }
    }
}

pub(super) struct Decide<'a> {
    pub(super) job: &'a Arc<ReceiveJob>,
    /// Final mode and time are set when everything is in place.
    pub(super) directories: Vec<Entry>,
    /// Names at the top of the job: two sources may not become one object (F052).
    pub(super) top_names: HashSet<Name>,
    pub(super) room: Room,
    comparisons: Comparisons,
    /// Described, and not looked at while too many files take chunks over. Empty without `--delta`.
    backlog: VecDeque<(Vec<Described>, Arc<Permit>)>,
    pub(super) links: HardLinks,
    pub(super) warnings: Warnings,
    pub(super) settling: Settling,
    /// Where several holders have the same objects.
    keys: Option<Keys>,
}

/// What is decided of an object.
pub(super) enum Decided {
    Settled,
    /// Its content, with the rule to publish by and the room that it takes.
    Wanted(PublishRule, u64),
    /// Its digest, before it is known.
    Asked(Decision),
    /// What of its content is there already, before the rest is wanted.
    Differs(Box<Delta>),
}

impl Decide<'_> {
    /// The job only brings content into another one.
    fn is_beside(&self) -> bool {
        self.job.place.get().is_some_and(|place| !place.is_lead())
    }

    fn offer(&mut self, batch: Vec<Described>, charge: &Arc<Permit>) {
        if let (Some(place), Some(keys)) = (self.job.place.get(), &mut self.keys) {
            let settled = place.offered(keys, batch, charge);
            self.job.count_settled(settled);
        }
    }

    /// Looks after the holders, where there are several. Returns how long the next event may be waited for.
    fn look_around(&mut self) -> Duration {
        let Some(place) = self.job.place.get() else { return Duration::from_millis(500) };
        if !place.is_lead() {
            if self.job.progress.is_listing_complete.load(Relaxed) && self.job.decider.is_idle() {
                place.gather.holder_listed(place.holder);
            }
            return Duration::from_millis(500);
        }
        let is_listed = self.job.progress.is_listing_complete.load(Relaxed);
        if is_listed && !self.is_waiting() && self.job.decider.is_idle() {
            place.gather.lead_listed();
        }
        place.gather.tick();
        TICK
    }

    fn is_waiting(&self) -> bool {
        !self.comparisons.is_empty() || !self.backlog.is_empty()
    }

    /// Decides a batch, or the beginning of one after which too many files take chunks over: the rest is one of its own.
    fn batch(&mut self, batch: Vec<Described>, charge: Arc<Permit>) {
        let first = match &batch[0] {
            Described::Entry { entry, .. } => entry.id.0,
            Described::BadName { id, .. } => id.0,
        };
        if let Some(keys) = &mut self.keys {
            batch.iter().for_each(|described| keys.note(described));
        }
        let mut answer = Answer { charge: Some(charge.clone()), ..Answer::default() };
        let mut directories = 0;
        let (mut candidates, mut deltas) = (Vec::new(), Vec::new());
        let mut batch = batch.into_iter();
        // Where files take chunks over, what becomes of one decides whether the next is looked at.
        let group_max = if self.job.compares_chunks() { 1 } else { batch.len() };
        let mut found = Vec::new();
        while batch.len() > 0 {
            let size = group_max.min(batch.len());
            let settled = batch.as_slice()[..size].iter().filter(|described| is_settled_by_being_described(described));
            directories += settled.count() as u64;
            let group: Vec<_> =
                batch.by_ref().take(size).map(|described| self.taken_in(described, &mut answer)).collect();
            if let Some(keys) = &self.keys {
                let key = |entry: &Entry| (entry.id.0, keys.of(entry.parent, &entry.name));
                answer.keys.extend(group.iter().flatten().map(|(entry, _)| key(entry)));
            }
            self.job.sink.decide_group(&mut group.iter().flatten().map(|(entry, _)| entry), &mut found);
            let mut found = found.drain(..);
            for entry in group {
                let index = answer.described;
                answer.described += 1;
                let Some((entry, end)) = entry else { continue };
                let found = found.next().unwrap_or_else(|| Err(undecided()));
                match found.and_then(|found| self.decided(&entry, end, found, &mut answer)) {
                    Ok(Decided::Settled) => {}
                    Ok(Decided::Wanted(rule, room_bytes)) => {
                        answer.objects.push((index as u32, Expected { entry, rule, room_bytes }));
                    }
                    Ok(Decided::Asked(found)) => {
                        let is_large = entry.size_bytes() > self.job.options.chunk_bytes;
                        let place = (self.job.compares_chunks() && is_large).then(|| self.job.delta_places.clone());
                        candidates.push(Candidate { index, entry, found, place });
                    }
                    Ok(Decided::Differs(delta)) => deltas.push(delta.placed(index)),
                    Err(e) => self.failed(&entry, e.kind, e.message(), &mut answer),
                }
            }
            if batch.len() > 0 && self.job.is_full_of_deltas() {
                self.backlog.push_front((batch.collect(), charge));
                break;
            }
        }
        self.check_room();
        if !candidates.is_empty() || !deltas.is_empty() {
            self.comparisons.ask(self.job, first, answer, directories, candidates);
            return deltas.into_iter().for_each(|delta| self.comparisons.ask_chunks(self.job, first, delta));
        }
        self.send(first, answer);
        // They are settled by being described, and leave room for others.
        self.job.count_settled(directories);
    }

    /// Takes the sender's digests in, and answers the batches that waited for them.
    fn compared(&mut self, digests: Vec<DigestRecord>) {
        let digests = match self.job.place.get() {
            Some(place) => place.gather.told(digests),
            None => digests,
        };
        for record in digests {
            if self.settled_window(&record) {
                continue;
            }
            let Some((first, compared)) = self.comparisons.take(self.job, &record) else {
                return self.job.cancel(CloseCode::WrongState, "a digest that was not asked for");
            };
            let mut answer = std::mem::take(self.comparisons.answer_of(first));
            let differs = match compared {
                Compared::Whole { candidate, is_same } => self.conclude(candidate, is_same, &mut answer),
                Compared::Chunks(delta) => {
                    let Delta { index, entry, rule, room_bytes, large, .. } = delta;
                    self.want_large(&entry, large, &mut answer);
                    answer.objects.push((index as u32, Expected { entry, rule, room_bytes }));
                    None
                }
                Compared::Asked => None,
            };
            *self.comparisons.answer_of(first) = answer;
            if let Some(delta) = differs {
                self.comparisons.ask_chunks(self.job, first, delta);
            }
            if let Some(complete) = self.comparisons.complete(first) {
                self.check_room();
                self.send(first, complete.answer);
                self.job.count_settled(complete.directories);
            }
        }
    }

    /// Decides what was compared whole; what differs may be compared chunk by chunk next.
    fn conclude(&mut self, candidate: Candidate, is_same: bool, answer: &mut Answer) -> Option<Delta> {
        let Candidate { index, entry, found, place: _place } = candidate;
        if is_same {
            answer.outcome.skipped.push((entry.id.0, entry.size_bytes()));
            self.job.list_found(&entry);
            let job = self.job;
            job.sink.leave(&entry);
            if let Decision::Replace { .. } = found
                && job.facts.can.touch
            {
                match job.sink.touch(&entry) {
                    Ok(()) => self.change(&entry, cause::KEPT | cause::TIME, answer),
                    Err(e) => self.warnings.note(&e.message(), &|| job.sink.path(&entry)),
                }
            }
            self.amend(&entry, &Decision::Same, answer);
            return None;
        }
        let causes = policy::causes(&entry, &found) | cause::CONTENT;
        match self.publish(&entry, End::Known, (PublishRule::Replace, entry.size_bytes()), causes, answer) {
            Ok(Decided::Wanted(rule, room_bytes)) => {
                answer.objects.push((index as u32, Expected { entry, rule, room_bytes }));
            }
            Ok(Decided::Differs(delta)) => return Some(delta.placed(index)),
            Ok(_) => {}
            Err(e) => self.failed(&entry, e.kind, e.message(), answer),
        }
        None
    }

    fn send(&mut self, first: u64, mut answer: Answer) {
        let job = self.job;
        self.room.tabled(&answer.objects);
        job.tell_changes(std::mem::take(&mut answer.changes));
        // Large objects need to know the batch they are part of; it is complete only now.
        // What was compared came later than its neighbours.
        answer.objects.sort_unstable_by_key(|(index, _)| *index);
        answer.objects.shrink_to_fit();
        let listed =
            Arc::new(Listed { first, described: answer.described, objects: answer.objects, _charge: answer.charge });
        for (id, large) in &answer.large {
            large.belongs_to(listed.clone(), (id - first) as usize);
        }
        if let Some(place) = job.place.get() {
            job.table.lock().unwrap().insert(listed.clone(), answer.large.clone());
            let (wanted, passed) = items(answer.keys, &listed, &answer.large);
            place.gather.listed(wanted, passed);
        } else {
            job.table.lock().unwrap().insert(listed, answer.large);
        }
        if job.place.get().is_none() && (!answer.wanted.is_empty() || !answer.extents.is_empty()) {
            let wants = super::tell::wants(job.number, runs_of(answer.wanted), &answer.extents);
            wants.into_iter().for_each(|want| job.port.send(Message::Want(want)));
        }
        match job.durability {
            Durability::Group => answer.links.into_iter().for_each(|id| job.committer.push(Item::Link(id), &job.end)),
            Durability::File => super::commit::confirm(job, Outcome { links: answer.links, ..Outcome::default() }),
            Durability::None => answer.outcome.links.extend(answer.links),
        }
        job.settle(answer.outcome);
    }

    /// Ends the job before it fills the destination.
    fn check_room(&mut self) {
        if let Some(lack) = self.room.lack(self.job) {
            self.job.cancel(CloseCode::NoSpace, &lack);
        }
    }
}

/// What of a batch is wanted, for several holders to bring, and the digests of the paths of the rest.
fn items(keys: Vec<(u64, u64)>, listed: &Listed, large: &[(u64, Arc<Large>)]) -> (Vec<Wanted>, Vec<u64>) {
    let large: HashMap<u64, &Arc<Large>> = large.iter().map(|(id, large)| (*id, large)).collect();
    let mut keys: HashMap<u64, u64> = keys.into_iter().collect();
    let item = |(_, Expected { entry, .. }): &(u32, Expected)| {
        let id = entry.id.0;
        let large = large.get(&id);
        Some(Wanted {
            id,
            key: keys.remove(&id)?,
            size_bytes: entry.size_bytes(),
            modified: entry.generation.modified,
            is_large: large.is_some(),
            kept: large.map(|large| large.set_aside()).unwrap_or_default(),
        })
    };
    let wanted = listed.objects.iter().filter_map(item).collect();
    (wanted, keys.into_values().collect())
}

fn is_settled_by_being_described(described: &Described) -> bool {
    matches!(described, Described::Entry { entry, .. } if matches!(entry.kind, Kind::Directory | Kind::HardLink(_)))
}

fn undecided() -> store::Error {
    store::Error::of_kind(FailureKind::Other, "look at", b"", "the destination did not say what stands there")
}

fn learn(job: &ReceiveJob, names: &Names) {
    for (is_group, records) in [(false, &names.users), (true, &names.groups)] {
        records.iter().for_each(|record| job.sink.learn_owner(is_group, record.id, &record.name));
    }
}
