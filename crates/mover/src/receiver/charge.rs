//! What a listing makes its receiver hold, charged to the job's account before it is held.
//!
//! A batch is charged as a whole when it comes: one part stays until its objects are settled, the other until the job ends.
//! A job whose account is used up ends at once, and is told whose account it is: it would never get on.
//!
//! What is charged are estimates from above, measured against what a process takes (docs/operating.md).

use super::ReceiveJob;
use super::events::Event;
use super::hold::Told;
use super::large::Large;
use crate::memory::{Memory, Permit};
use model::{End, Entry, Kind, ObjectId, mutant};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use wire::limits::NAME_BYTES_MAX;
use wire::listing::{Described, REPLACEMENT_FIRST};
use wire::message::{DigestRecord, FailureRecord, Names, Seal};

/// One piece of memory from the allocator: what it takes beside its bytes.
const PIECE_BYTES: usize = 24;
/// A described object on its way: its entry, its state, and its place in a batch.
const OPEN_BYTES: usize = 2 * size_of::<Entry>() + 64;
/// Its staging, its journal and its first chunks, where it travels in chunks; further ones are charged as they come.
const LARGE_BYTES: usize = 1024;
/// As what an object that grows is to be published, once it is sealed.
const SEALED_BYTES: usize = size_of::<Entry>() + NAME_BYTES_MAX;
/// A directory until the end: its entry in a list that grows, its id in two tables, its place in the tree.
const DIRECTORY_BYTES: usize = size_of::<Entry>() + 192;
/// A name or a number in a table that grows.
const TABLED_BYTES: usize = 48;
/// A name in the census of what is not to be removed: its hash, and that of a directory twice.
const CENSUS_BYTES: usize = 40;

impl ReceiveJob {
    /// The account that the job is charged to; before it starts. One of its own for whoever names none.
    pub fn charge_to(&self, memory: Memory) {
        let _ = self.memory.set(memory);
    }

    pub(super) fn memory(&self) -> &Memory {
        self.memory.get_or_init(Memory::default)
    }

    /// Takes a batch that was described. What it takes goes with it until the last of its objects is settled.
    pub(super) fn take_described(&self, described: Vec<Described>) {
        let (mut open, mut kept) = (0, 0);
        for described in &described {
            let (open_bytes, kept_bytes) = self.bytes_of(described);
            open += open_bytes;
            kept += kept_bytes;
        }
        if let Some(mut charge) = self.charge(open + kept, "descriptions, names and attributes") {
            self.keep(charge.split(kept));
            self.decider.push(Event::Described(described, Arc::new(charge)));
        }
    }

    /// Takes digests that were asked for.
    pub(super) fn take_digests(&self, digests: Vec<DigestRecord>) {
        let bytes = |record: &DigestRecord| size_of::<DigestRecord>() + PIECE_BYTES + record.digest.len();
        if let Some(charge) = self.charge(digests.iter().map(bytes).sum(), "digests") {
            self.decider.push(Event::Digests(digests, charge));
        }
    }

    /// Takes what the sender gave up, in its turn: it may be given up before its description was looked at.
    pub(super) fn take_failure(&self, record: FailureRecord) {
        let bytes = size_of::<FailureRecord>() + 2 * PIECE_BYTES + record.path.len() + record.text.len();
        if let Some(charge) = self.charge(bytes, "failures") {
            self.failures_waiting.fetch_add(1, Relaxed);
            self.decider.push(Event::Failed(record, charge));
        }
    }

    /// Takes the word that an object is complete.
    pub(super) fn take_sealed(&self, seal: Seal) {
        if let Some(charge) = self.charge(size_of::<Seal>() + PIECE_BYTES + seal.name.len(), "seals") {
            self.decider.push(Event::Sealed(seal, charge));
        }
    }

    /// Takes names of users and groups, which stay to the end.
    pub(super) fn take_owners(&self, names: Names) {
        let records = names.users.iter().chain(&names.groups);
        let bytes = records.map(|record| 2 * (record.name.len() + PIECE_BYTES) + TABLED_BYTES).sum();
        if let Some(charge) = self.charge(bytes, "names of users and groups") {
            self.keep(charge);
            self.decider.push(Event::Names(names));
        }
    }

    /// Charges what is remembered of an object that the source could not give. False when there is no room.
    pub(super) fn charge_failure(&self, record: &FailureRecord) -> bool {
        let is_remembered = self.census().is_some() && record.object == 0;
        !is_remembered || self.charge_to_the_end(CENSUS_BYTES, "names")
    }

    /// Charges what is remembered of an object that was taken back. Without room for it the job ends.
    pub(super) fn charge_taken_back(&self) {
        self.charge_to_the_end(TABLED_BYTES, "files that were taken back");
    }

    /// Charges what is remembered of an object that comes in many pieces: those that are held apart where it grows, or else the
    /// digests of all. False when there is no room: the job has ended then.
    pub(super) fn charge_pieces(&self, large: &Large) -> bool {
        match large.uncharged_bytes() {
            0 => true,
            bytes => self.charge(bytes, "pieces of large files").map(|charge| large.keep_charge(charge)).is_some(),
        }
    }

    /// Puts down in the buffer what was accepted of what the sender says, before anything of it can come. A buffer for whose
    /// messages no memory is left takes nothing in any more, and the job goes on without it.
    pub(super) fn put_down(&self, told: Option<Told>) {
        let (Some(hold), Some(told)) = (self.hold.get(), told) else { return };
        match self.memory().hold(told.bytes() + PIECE_BYTES, "messages on their way to the buffer") {
            Ok(charge) => hold.note(told, Some(charge)),
            Err(refusal) => hold.lose(&refusal.text),
        }
    }

    /// Charges what stays to the end. False when there is no room: the job has ended then.
    pub(super) fn charge_to_the_end(&self, bytes: usize, what: &str) -> bool {
        let charge = self.charge(bytes + PIECE_BYTES, what);
        charge.map(|charge| self.keep(charge)).is_some()
    }

    fn charge(&self, bytes: usize, what: &str) -> Option<Permit> {
        let bytes = if mutant::is_on("uncharged-directories") { 0 } else { bytes };
        let charged = self.memory().hold(bytes, what);
        charged.inspect_err(|refusal| self.cancel(refusal.code, &refusal.text)).ok()
    }

    /// What an object takes until it is settled, and until the job ends.
    fn bytes_of(&self, described: &Described) -> (usize, usize) {
        let (entry, end) = match described {
            Described::Entry { entry, end, .. } => (entry, *end),
            Described::BadName { name, .. } => return (OPEN_BYTES + name.len(), 0),
        };
        let name = entry.name.as_bytes().len() + PIECE_BYTES;
        let link = if let Kind::Symlink(link) = &entry.kind { link.len() + PIECE_BYTES } else { 0 };
        let xattrs = entry.attributes.as_ref().map_or(0, |attributes| {
            let pieces = attributes.xattrs.len() * (2 * PIECE_BYTES + 32);
            size_of_val(&**attributes) + PIECE_BYTES + pieces + attributes.bytes() as usize
        });
        let mut open = OPEN_BYTES + name + link + xattrs;
        let mut kept = 0;
        let is_large = end != End::Known || entry.size_bytes() > self.options.chunk_bytes;
        open += if is_large { LARGE_BYTES } else { 0 };
        open += if end == End::Growing { SEALED_BYTES } else { 0 };
        kept += match entry.kind {
            Kind::Directory => DIRECTORY_BYTES + 2 * name + xattrs,
            Kind::HardLink(_) => size_of::<Entry>() + name,
            // Its name, and its place once it is described again.
            _ if entry.attributes.as_ref().is_some_and(|attributes| attributes.is_shared()) => {
                size_of::<Entry>() + 2 * (name + TABLED_BYTES)
            }
            _ => 0,
        };
        if entry.parent == ObjectId::ROOT && entry.id.0 < REPLACEMENT_FIRST {
            kept += name + TABLED_BYTES;
        }
        if self.census().is_some() {
            kept += CENSUS_BYTES;
        }
        // Its place in the tree once more, to hold what its sender describes against rules and lists.
        let keeps_place = || self.asked.get().is_some_and(|asked| asked.lock().unwrap().keeps_places());
        if entry.kind == Kind::Directory && keeps_place() {
            kept += name + 2 * TABLED_BYTES;
        }
        (open, kept)
    }

    /// Holds a permit until the job ends.
    fn keep(&self, permit: Permit) {
        let mut kept = self.kept.lock().unwrap();
        match &mut *kept {
            Some(kept) => kept.absorb(permit),
            None => *kept = Some(permit),
        }
    }
}
