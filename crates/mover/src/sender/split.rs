//! Which lane sends what next: the sender's book of objects, as a value without threads or I/O.
//!
//! An object goes Described → Wanted → Sending → Settled. Large objects are sent chunk by chunk, small ones in runs of
//! one directory. A lane keeps an object or a directory until it is done, then takes the largest object no one has,
//! then a directory no one is in; it joins another lane's object, or takes half of another's run, only when nothing else
//! is left (two writers of one inode or directory fight for its lock). The less is left in all, the fewer small files it
//! takes at once; chunks stay as long as the protocol has them.
//!
//! Invariants:
//! - Every object described is settled exactly once; what a dead lane had in flight goes back to Wanted.
//! - Entries and bytes in flight never exceed the credit.
//! - Memory is bounded by the entries' credit.
//! - What a receiver says of a run costs what is open of it, and a run of what was never described is refused.

mod chunks;
mod files;
mod growing;

use super::allowance::Allowance;
use super::large::{InFlight, Large};
pub use super::states::Ids;
use super::states::{State, States, note_step};
use super::work::{Batch, Claim, Run, Work, claim_bytes};
use crate::limits::{CLAIM_BYTES, CLAIM_FILES, IN_FLIGHT_BYTES, RUNS_LOOKED_AT};
use crate::stream::Unit;
use model::{Extent, Kind, mutant};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;
use store::{DirectoryKey, SourceObject};
use wire::credit::{ByteCredit, EntryCredit};
use wire::limits::{ENTRIES_OPEN_MAX, PACKED_FILE_BYTES_MAX};
use wire::listing::REPLACEMENT_FIRST;
use wire::message::{ExtentRecord, Run as IdRun};
use wire::{CloseCode, Refusal};

const UNSETTLED: [State; 4] = [State::Described, State::Wanted, State::Sending, State::Buffered];

struct Held {
    batch: Arc<Batch>,
    states: States,
    open: usize,
}

#[derive(Default)]
struct Lane {
    directory: Option<DirectoryKey>,
    large: Option<u64>,
    /// What this lane claimed and what may not be settled yet: (first id of the batch, range).
    claimed: Vec<(u64, Range<usize>)>,
}

pub struct Split {
    chunk_bytes: u64,
    /// What a lane takes of small files at once.
    claim_bytes: u64,
    batches: BTreeMap<u64, Held>,
    runs: VecDeque<Run>,
    large: HashMap<u64, Large>,
    /// Large objects with gaps, the largest first.
    claimable: BTreeSet<(Reverse<u64>, u64)>,
    /// Objects that grow and have something to be read, the one that waited longest first.
    growing: VecDeque<u64>,
    /// How much there is of objects that grow and that were not wanted yet.
    available: HashMap<u64, u64>,
    lanes: HashMap<u32, Lane>,
    entries: EntryCredit,
    bytes: ByteCredit,
    allowance: Allowance,
    open: u64,
    /// Of those, the ones that the receiver has not asked for nor settled.
    unanswered: u64,
    is_listing_complete: bool,
    /// Ids from here on were not described yet; of those that replace others likewise.
    end: u64,
    end_of_replacements: u64,
}

impl Split {
    pub fn new(chunk_bytes: u64, entries: u64, in_flight_bytes: u64) -> Split {
        let mut split = Split {
            chunk_bytes,
            claim_bytes: CLAIM_BYTES,
            batches: BTreeMap::new(),
            runs: VecDeque::new(),
            large: HashMap::new(),
            claimable: BTreeSet::new(),
            growing: VecDeque::new(),
            available: HashMap::new(),
            lanes: HashMap::new(),
            entries: EntryCredit::default(),
            bytes: ByteCredit::default(),
            allowance: Allowance::default(),
            open: 0,
            unanswered: 0,
            is_listing_complete: false,
            end: 1,
            end_of_replacements: REPLACEMENT_FIRST,
        };
        split.grant(entries, in_flight_bytes);
        split
    }

    /// A receiver may grant what it likes; no more is used than this side has room for.
    pub fn grant(&mut self, entries: u64, in_flight_bytes: u64) {
        self.entries.grant(entries);
        self.bytes.grant(in_flight_bytes.min(IN_FLIGHT_BYTES));
    }

    /// Content that may be sent in all; nothing is no bound.
    pub fn allow(&mut self, payload_bytes_max: Option<u64>) {
        self.allowance.set(payload_bytes_max);
    }

    /// As much was claimed as may be sent in all.
    pub fn is_spent(&self) -> bool {
        self.allowance.is_spent()
    }

    /// What was read ahead waits to be sent, and takes no credit meanwhile.
    pub fn waits(&mut self, bytes: u64) {
        self.bytes.waits(bytes);
    }

    /// Whether what waits may be sent.
    pub fn may_leave(&self, bytes: u64) -> bool {
        self.bytes.may_send(bytes)
    }

    /// What was read ahead is in the hands of a lane that sends it.
    pub fn leaves(&mut self, unit: &Unit, lane: u32) {
        let lane = if mutant::is_on("sent-by-nobody") { u32::MAX } else { lane };
        self.bytes.leaves(unit.payload_bytes());
        match unit {
            Unit::Pack { first, count, .. } => {
                if let Some((batch, held)) = self.batches.range(..=first.0).next_back() {
                    let (batch, start) = (*batch, (first.0 - batch) as usize);
                    let range = start..(start + count).min(held.states.len());
                    self.note_claimed(lane, batch, range);
                }
            }
            Unit::Chunk { object, extent } => {
                let large = self.large.get_mut(&object.0);
                if let Some(chunk) = large.and_then(|large| large.in_flight.get_mut(&extent.start)) {
                    chunk.lane = lane;
                }
            }
        }
    }

    /// What was claimed and is not sent is wanted again.
    pub fn give_back(&mut self, unit: &Unit) {
        match unit {
            Unit::Pack { first, count, .. } => {
                (first.0..first.0 + *count as u64).for_each(|id| self.take_back_small(id, false));
            }
            Unit::Chunk { object, extent } => {
                let is_there = |large: &Large| large.in_flight.contains_key(&extent.start);
                if self.large.get(&object.0).is_some_and(is_there) {
                    self.take_back_extent(object.0, *extent);
                }
            }
        }
    }

    /// Everything that was sent has been acknowledged, or given up.
    pub fn is_idle(&self) -> bool {
        self.bytes.in_flight() == 0
    }

    /// Entries that may be described now.
    pub fn describable(&self) -> u64 {
        self.entries.available().min(ENTRIES_OPEN_MAX.saturating_sub(self.open))
    }

    pub fn listing_complete(&mut self) {
        self.is_listing_complete = true;
    }

    /// Objects that were described and are not settled.
    pub fn open(&self) -> u64 {
        self.open
    }

    pub fn is_complete(&self) -> bool {
        self.is_listing_complete && self.open == 0
    }

    /// How much is left in all, and for how many lanes; nothing as long as that is not known.
    pub fn note_left(&mut self, left_bytes: Option<u64>, lanes: usize) {
        self.claim_bytes = left_bytes.map_or(CLAIM_BYTES, |left| claim_bytes(left, lanes));
    }

    /// About how much the next unit of a lane is, if anything is left to claim.
    pub fn next_bytes(&self, lane: u32) -> Option<u64> {
        let of_large = |id: u64| self.large[&id].size_bytes.min(self.chunk_bytes);
        let of_run = |run: &Run| {
            let files = run.range.len().min(CLAIM_FILES) as u64;
            (files * run.batch.objects[run.range.start].entry.size_bytes()).min(self.claim_bytes)
        };
        let shared = || self.claimable.first().map(|(_, id)| of_large(*id));
        self.next_large(lane).map(of_large).or_else(|| self.runs.front().map(of_run)).or_else(shared)
    }

    /// The large object that a lane goes on with: its own, or else the largest that no lane has.
    fn next_large(&self, lane: u32) -> Option<u64> {
        let own = self.lanes.get(&lane).and_then(|lane| lane.large);
        let mine = own.filter(|id| self.large.get(id).is_some_and(Large::is_claimable));
        let free = || {
            let free = self.claimable.iter().find(|(_, id)| self.large[id].owners == 0);
            free.map(|(_, id)| *id)
        };
        mine.or_else(free)
    }

    /// Nothing that is wanted is left to claim.
    pub fn is_all_claimed(&self) -> bool {
        self.open > 0 && self.runs.is_empty() && self.claimable.is_empty()
    }

    /// Everything described was answered and no more may be described: whoever has no work now waits for the receiver to
    /// settle what it was sent.
    pub fn is_all_sent(&self) -> bool {
        self.unanswered == 0 && (self.is_listing_complete || self.describable() == 0)
    }

    /// Something described waits for the receiver's answer.
    pub fn is_answer_owed(&self) -> bool {
        self.unanswered > 0
    }

    /// All that was described is settled, or lies durable with the receiver.
    pub fn is_all_buffered(&self) -> bool {
        let is_all_sent = self.runs.is_empty() && self.claimable.is_empty() && self.growing.is_empty();
        self.is_listing_complete && self.unanswered == 0 && is_all_sent && self.bytes.in_flight() == 0
    }

    /// It is for the receiver to get on: with an answer, with what was sent, or because nothing is left to claim.
    pub fn is_receiver_next(&self) -> bool {
        self.is_answer_owed() || self.bytes.in_flight() > 0 || self.is_all_claimed()
    }

    /// Enters a batch that was described to the receiver. Directories and other names of files are settled by being
    /// described.
    pub fn describe(&mut self, batch: Arc<Batch>) {
        self.entries.take(batch.objects.len() as u64);
        let state = |o: &SourceObject| match o.entry.kind {
            Kind::Directory | Kind::HardLink(_) => State::Settled,
            _ => State::Described,
        };
        let states = States::new(batch.objects.iter().map(state));
        let open = batch.objects.iter().filter(|o| state(o) != State::Settled).count();
        self.open += open as u64;
        self.unanswered += open as u64;
        let end = batch.first() + batch.objects.len() as u64;
        match batch.first() < REPLACEMENT_FIRST {
            true => self.end = self.end.max(end),
            false => self.end_of_replacements = self.end_of_replacements.max(end),
        }
        if open > 0 {
            self.batches.insert(batch.first(), Held { batch, states, open });
        }
    }

    /// Enters the receiver's request for whole objects and for parts of objects. Returns how many bytes of those parts'
    /// objects the receiver already has.
    pub fn want(&mut self, runs: &[IdRun], extents: &[ExtentRecord]) -> Result<u64, Refusal> {
        self.check_runs(runs)?;
        // The first that is not to be had ends the session.
        for id in runs.iter().flat_map(IdRun::ids) {
            self.want_whole(id)?;
        }
        let mut parts: BTreeMap<u64, VecDeque<Extent>> = BTreeMap::new();
        // What grows may be settled here, because it was described again or has gone, before its answer comes.
        for record in extents.iter().filter(|record| !self.is_settled(record.object)) {
            let extent = self.check_extent(record)?;
            parts.entry(record.object).or_default().push_back(extent);
        }
        let mut held_bytes = 0;
        for (id, mut gaps) in parts {
            let (batch, index) = self.described(id)?;
            if batch.objects[index].is_growing() {
                let rest = gaps.pop_back().expect("it has an extent");
                if rest.end != i64::MAX as u64 {
                    return Err(Refusal::new(CloseCode::Malformed, "a part of what grows, without what follows"));
                }
                held_bytes += rest.start.saturating_sub(gaps.iter().map(Extent::length).sum());
                self.add_growing(id, batch, index, gaps, rest.start);
                continue;
            }
            let wanted: u64 = gaps.iter().map(Extent::length).sum();
            held_bytes += batch.objects[index].entry.size_bytes().saturating_sub(wanted);
            self.add_large(id, batch, index, gaps);
        }
        Ok(held_bytes)
    }

    fn find(&self, id: u64) -> Option<(&Held, usize)> {
        let (first, held) = self.batches.range(..=id).next_back()?;
        let index = usize::try_from(id - first).ok().filter(|i| *i < held.states.len())?;
        Some((held, index))
    }

    fn set(&mut self, id: u64, state: State) {
        let (first, held) = self.batches.range_mut(..=id).next_back().expect("found before");
        held.states.set((id - first) as usize, state);
    }

    /// A peer's runs name no more objects than may be open, and none that was not described.
    pub fn check_runs<'a>(&self, runs: impl IntoIterator<Item = &'a IdRun>) -> Result<(), Refusal> {
        let mut named = 0u64;
        for run in runs {
            named = named.saturating_add(run.count);
            let end = if run.first < REPLACEMENT_FIRST { self.end } else { self.end_of_replacements };
            if named > ENTRIES_OPEN_MAX || run.first.saturating_add(run.count) > end {
                return Err(Refusal::new(CloseCode::Limit, "runs of more objects than were described"));
            }
        }
        Ok(())
    }

    /// The first id of `ids` whose object is in one of these states. Whoever changes that state goes through a run in as many
    /// steps as there are such objects, however many it names.
    fn first_of(&self, states: &[State], ids: Range<u64>) -> Option<u64> {
        if ids.is_empty() {
            return None;
        }
        if mutant::is_on("walk-the-whole-run") {
            let is_in = |id: &u64| self.find(*id).is_some_and(|(held, index)| states.contains(&held.states.get(index)));
            return ids.inspect(|_| note_step()).find(is_in);
        }
        let before = self.batches.range(..ids.start).next_back();
        before.into_iter().chain(self.batches.range(ids.clone())).find_map(|(first, held)| {
            note_step();
            let range = ids.start.saturating_sub(*first) as usize..(ids.end - first) as usize;
            held.states.first_of(states, range).map(|index| first + index as u64)
        })
    }

    /// An object that was described and that the receiver has not answered.
    pub fn unanswered_object(&self, id: u64) -> Option<SourceObject> {
        let (held, index) = self.find(id).filter(|(held, index)| held.states.get(*index) == State::Described)?;
        Some(held.batch.objects[index].clone())
    }

    /// A described object, moved on to Wanted.
    fn described(&mut self, id: u64) -> Result<(Arc<Batch>, usize), Refusal> {
        let found = self.find(id).filter(|(held, index)| held.states.get(*index) == State::Described);
        let (held, index) = found.ok_or_else(|| {
            Refusal::new(CloseCode::WrongState, &format!("object {id} is wanted but was not described, or twice"))
        })?;
        let batch = held.batch.clone();
        self.set(id, State::Wanted);
        self.unanswered -= 1;
        Ok((batch, index))
    }

    fn want_whole(&mut self, id: u64) -> Result<(), Refusal> {
        if self.is_settled(id) {
            return Ok(());
        }
        let (batch, index) = self.described(id)?;
        let object = &batch.objects[index];
        if object.entry.kind != Kind::File {
            return Err(Refusal::new(CloseCode::WrongState, &format!("object {id} has no content to want")));
        }
        let size = object.entry.size_bytes();
        if object.is_growing() {
            self.add_growing(id, batch, index, VecDeque::new(), 0);
        } else if object.is_open_ended() {
            self.add_large(id, batch, index, VecDeque::new());
        } else if size > PACKED_FILE_BYTES_MAX.min(self.chunk_bytes) {
            self.add_large(id, batch, index, VecDeque::from([Extent::new(0, size)]));
        } else {
            self.add_small(batch, index);
        }
        Ok(())
    }

    /// The next unit of work for a lane.
    pub fn claim(&mut self, lane: u32) -> Claim {
        if self.is_complete() {
            return Claim::Complete;
        }
        if self.allowance.is_spent() {
            return Claim::Spent;
        }
        self.lanes.entry(lane).or_default();
        if let Some(claim) = self.claim_fragment(lane) {
            return claim;
        }
        if let Some(id) = self.next_large(lane) {
            return self.claim_chunk(lane, id);
        }
        while let Some(at) = self.choose_run(lane) {
            if let Some(claim) = self.claim_files(lane, at) {
                return claim;
            }
        }
        let shared = self.claimable.iter().min_by_key(|(_, id)| self.large[id].owners).map(|(_, id)| *id);
        // An open-ended object is read in order by the lane that has it.
        match shared.filter(|id| self.large[id].next_start.is_none()) {
            Some(id) => self.claim_chunk(lane, id),
            None => Claim::NoWork,
        }
    }

    /// Settles the first object of runs that is not settled yet, and returns it.
    pub fn settle_first(&mut self, ids: &mut Ids<'_>) -> Option<(u64, Arc<Batch>, usize)> {
        let id = ids.next(|ids| self.first_of(&UNSETTLED, ids))?;
        let (batch, index) = self.settle(id).expect("it is open");
        Some((id, batch, index))
    }

    /// The object needs no more work. Returns it unless it was settled before.
    pub fn settle(&mut self, id: u64) -> Option<(Arc<Batch>, usize)> {
        let (first, held) = self.batches.range_mut(..=id).next_back()?;
        let first = *first;
        let index = usize::try_from(id - first).ok().filter(|i| *i < held.states.len())?;
        let before = held.states.set(index, State::Settled);
        if before == State::Settled {
            return None;
        }
        self.unanswered -= u64::from(before == State::Described);
        let batch = held.batch.clone();
        held.open -= 1;
        if held.open == 0 {
            self.batches.remove(&first);
        }
        self.open -= 1;
        self.available.remove(&id);
        match self.large.remove(&id) {
            Some(large) => {
                self.claimable.remove(&(Reverse(large.size_bytes), id));
                self.bytes.acknowledged(large.in_flight.values().map(|chunk| chunk.length).sum());
            }
            None if before == State::Sending => self.bytes.acknowledged(batch.objects[index].entry.size_bytes()),
            // Wanted and in a run: that cannot be settled by the receiver before it was sent; a peer that says so
            // loses the file, and `claim_files` steps over it.
            None => {}
        }
        Some((batch, index))
    }

    /// What the receiver has in its buffer, durable: a lane that dies loses nothing of it.
    pub fn buffered(&mut self, runs: &[IdRun]) -> Result<(), Refusal> {
        self.check_runs(runs)?;
        let mut ids = Ids::of(runs);
        while let Some(id) = ids.next(|ids| self.first_of(&[State::Sending], ids)) {
            let (held, index) = self.find(id).expect("it is there");
            // A large object's chunks are acknowledged one by one.
            let bytes = if self.large.contains_key(&id) { 0 } else { held.batch.objects[index].entry.size_bytes() };
            self.bytes.acknowledged(bytes);
            self.set(id, State::Buffered);
        }
        Ok(())
    }

    /// The receiver asks for small objects and chunks again.
    pub fn resend(&mut self, runs: &[IdRun], extents: &[ExtentRecord]) -> Result<(), Refusal> {
        self.check_runs(runs)?;
        let mut ids = Ids::of(runs);
        let sent = [State::Sending, State::Buffered];
        let sent = if mutant::is_on("forget-taken-back") { &sent[..1] } else { &sent };
        while let Some(id) = ids.next(|ids| self.first_of(sent, ids)) {
            self.take_back_small(id, true);
        }
        for record in extents {
            // A settled object may have been asked for before the settling arrived there.
            if let Some(large) = self.large.get_mut(&record.object) {
                large.is_asked_again()?;
                let extent = self.check_extent(record)?;
                self.take_back_extent(record.object, extent);
            }
        }
        Ok(())
    }

    /// A lane is gone: what it had in flight is wanted again.
    pub fn lane_died(&mut self, lane: u32) {
        self.own_large(lane, None);
        for run in &mut self.runs {
            if run.owner == Some(lane) {
                run.owner = None;
            }
        }
        for (first, range) in self.lanes.remove(&lane).unwrap_or_default().claimed {
            for index in range {
                self.take_back_small(first + index as u64, false);
            }
        }
        let mut lost: Vec<(u64, Extent)> = self
            .large
            .iter()
            .flat_map(|(id, large)| {
                let of_lane = large.in_flight.iter().filter(|(_, chunk)| chunk.lane == lane);
                of_lane.map(|(start, chunk)| (*id, Extent::new(*start, start + chunk.length)))
            })
            .collect();
        // Each goes in front of what was put there before.
        if !mutant::is_on("drop-the-seal-of-a-duplicate") {
            lost.reverse();
        }
        for (id, extent) in lost {
            self.take_back_extent(id, extent);
        }
    }
}

#[cfg(test)]
mod tests;
