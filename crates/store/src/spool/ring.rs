//! The ring: which segment is whose, where the next piece goes, what is free again.
//!
//! Invariants:
//! - A segment is handed on only when nothing in it is wanted and nobody writes to it; its epoch tells its uses apart, those by earlier
//!   processes too.
//! - The head of a piece is written before the next piece has its place, so that a scan finds what lies behind a torn one.
//! - The end of an owner is durable before anybody hears of it: what was delivered does not come back.
//! - Owners that hold less than half of their part find room, whatever others hold. Parts are by weight.

use super::format::{BEFORE_BYTES, HEAD_BYTES, Head, Kind, Owner, PIECE_BYTES, PieceHead, SegmentHead};
use super::parcel::{Filler, Parcel, Piece};
use super::place::{Made, Place, QUOTA_MIN, read_at};
use super::stalls::{Side, Stalls};
use crate::error::{Error, Result};
use model::quantity::ByteCount;
use model::{FailureKind, mutant};
use os::sync::{Condvar, Mutex};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// Of the segments, one in so many is left to owners that hold less than their part, newcomers among them.
const LEFT_TO_OTHERS: u32 = 10;
/// Of an owner of whom none was told.
const WEIGHT: u32 = 4;
/// Of an owner's part, one in so many segments is kept for it. The others are lent: what waits cannot be taken back.
const KEPT_PART: u64 = 2;
/// Written over the head of a segment, it makes it one that is free.
const NO_HEAD: [u8; 8] = [0; 8];

pub struct Spool {
    place: Place,
    state: Mutex<State>,
    freed: Condvar,
    syncs: AtomicU64,
    stalls: Stalls,
}

struct State {
    segments: Vec<Segment>,
    free: BTreeSet<u32>,
    next_epoch: u64,
    next_parcel: u64,
    owners: HashMap<Owner, Owned>,
    /// What an earlier process left, until it is taken up.
    found: HashMap<Owner, Vec<Parcel>>,
}

#[derive(Default)]
struct Segment {
    owner: Option<Owner>,
    file: Option<Arc<File>>,
    epoch: u64,
    /// Pieces in it that are wanted or being written, and those of them that are being written.
    live: u32,
    writing: u32,
    /// Where the next piece goes.
    at: u64,
    /// Its owner has come to its end.
    is_over: bool,
}

struct Owned {
    segments: u32,
    weight: u32,
    /// By kind, the segment that is being written.
    heads: [Option<u32>; 2],
}

impl Default for Owned {
    fn default() -> Owned {
        Owned { segments: 0, weight: WEIGHT, heads: [None; 2] }
    }
}

/// Room for a parcel, being filled. Dropped before it was committed, it is room again.
pub struct Room {
    spool: Arc<Spool>,
    parcel: Option<Parcel>,
    filler: Filler,
}

impl Spool {
    /// Opens the spool of a directory for this process alone, made if it is not there.
    ///
    /// # Errors
    /// When another process uses it, when it is not private, when there is no room for it, and when another size or another
    /// version is asked for than what is waiting in it was written with.
    pub fn open(path: &Path, quota_bytes: u64) -> Result<Arc<Spool>> {
        let (mut place, made) = Place::open(path)?;
        if quota_bytes < QUOTA_MIN {
            let why = format!("its size is {}, at least {} are needed", ByteCount(quota_bytes), ByteCount(QUOTA_MIN));
            return Err(place.refused(&why));
        }
        let mut state = match made {
            Some(_) => State::scan(&place)?,
            None => State::new(0),
        };
        if !place.is_of(quota_bytes) {
            if !state.found.is_empty() {
                let held = ByteCount(place.made.segment_bytes * u64::from(place.made.segments));
                let why = format!(
                    "it was made with the size {held}, and holds what is not delivered yet: start once more \
                    with that size and let it drain, or drop what it holds"
                );
                return Err(place.refused(&why));
            }
            place.make(quota_bytes)?;
            state = State::new(place.made.segments);
        }
        let (stalls, state) = (Stalls::found(&place), Mutex::new(state));
        Ok(Arc::new(Spool { place, state, freed: Condvar::new(), syncs: AtomicU64::new(0), stalls }))
    }

    /// Storage of one of its jobs stands still.
    pub fn note_stall(&self, side: Side) {
        self.stalls.note(&self.place, side);
    }

    /// Whether it did so lately, under an earlier process too.
    pub fn has_stalled(&self, side: Side, within: Duration) -> bool {
        self.stalls.is_noted(side, within)
    }

    pub fn path(&self) -> &[u8] {
        self.place.path()
    }

    /// What other processes asked for (`ask`), each once.
    pub fn take_requests(&self) -> Vec<String> {
        self.place.take_requests()
    }

    pub fn capacity_bytes(&self) -> u64 {
        self.place.made.segment_bytes * u64::from(self.place.made.segments)
    }

    pub fn segment_bytes(&self) -> u64 {
        self.place.made.segment_bytes
    }

    pub fn used_bytes(&self) -> u64 {
        let state = self.state.lock().unwrap();
        (state.segments.len() - state.free.len()) as u64 * self.segment_bytes()
    }

    /// Owners of whom somebody left something that nobody has taken up, the oldest first.
    pub fn found(&self) -> Vec<Owner> {
        let state = self.state.lock().unwrap();
        let age = |(owner, parcels): (&Owner, &Vec<Parcel>)| (parcels.first().map(Parcel::number), *owner);
        let mut found: Vec<_> = state.found.iter().map(age).collect();
        drop(state);
        found.sort_unstable();
        found.into_iter().map(|(_, owner)| owner).collect()
    }

    /// Takes up what an earlier process left of an owner, in the order in which it was written.
    pub fn take_found(&self, owner: Owner) -> Vec<Parcel> {
        self.state.lock().unwrap().found.remove(&owner).unwrap_or_default()
    }

    /// What its holder did not bring to an end, for whoever takes it up next.
    pub fn put_back(&self, owner: Owner, mut parcels: Vec<Parcel>) {
        parcels.sort_by_key(|parcel| parcel.id);
        let mut state = self.state.lock().unwrap();
        if state.owners.contains_key(&owner) && parcels.iter().any(|parcel| parcel.kind == Kind::Journal) {
            state.found.insert(owner, parcels);
        }
    }

    /// Says that an owner will come, and how much it counts beside others.
    pub fn expect(&self, owner: Owner, weight: u32) {
        self.state.lock().unwrap().owners.entry(owner).or_default().weight = weight.max(1);
    }

    /// Room for a parcel, if its owner may have it now.
    pub fn reserve(self: &Arc<Spool>, owner: Owner, kind: Kind, bytes: u64) -> Result<Option<Room>> {
        let mut state = self.state.lock().unwrap();
        self.reserve_in(&mut state, owner, kind, bytes)
    }

    /// The same, waiting for at most `patience`.
    pub fn reserve_within(
        self: &Arc<Spool>,
        owner: Owner,
        kind: Kind,
        bytes: u64,
        patience: Duration,
    ) -> Result<Option<Room>> {
        let mut state = self.state.lock().unwrap();
        if let Some(room) = self.reserve_in(&mut state, owner, kind, bytes)? {
            return Ok(Some(room));
        }
        let mut state = self.freed.wait_timeout(state, patience).unwrap().0;
        self.reserve_in(&mut state, owner, kind, bytes)
    }

    fn reserve_in(self: &Arc<Spool>, state: &mut State, owner: Owner, kind: Kind, bytes: u64) -> Result<Option<Room>> {
        let (segment_bytes, all) = (self.segment_bytes(), self.place.made.segments);
        let head = state.owners.get(&owner).and_then(|owned| owned.heads[kind as usize]);
        let here =
            head.map_or(0, |number| (segment_bytes - state.segments[number as usize].at).saturating_sub(PIECE_BYTES));
        let each = segment_bytes - HEAD_BYTES - PIECE_BYTES;
        let wanted = bytes.saturating_sub(here).div_ceil(each) as u32;
        if !state.may_take(owner, kind, wanted, all) && !mutant::is_on("grant-beyond-quota") {
            return Ok(None);
        }
        let id = state.next_parcel;
        state.next_parcel += 1;
        let mut parcel = Parcel { id, kind, bytes, pieces: Vec::new() };
        let mut left = bytes;
        while left > 0 {
            match self.place_piece(state, owner, &mut parcel, left) {
                Ok(placed) => left -= placed,
                Err(e) => {
                    self.let_go(state, &parcel, true, true);
                    return Err(e);
                }
            }
        }
        Ok(Some(Room { spool: self.clone(), parcel: Some(parcel), filler: Filler::new() }))
    }

    /// Gives a parcel its next piece, of at most `left` bytes. Returns how many.
    fn place_piece(&self, state: &mut State, owner: Owner, parcel: &mut Parcel, left: u64) -> Result<u64> {
        let segment_bytes = self.segment_bytes();
        let head = state.owners.get(&owner).and_then(|owned| owned.heads[parcel.kind as usize]);
        let number = match head {
            Some(number) if state.segments[number as usize].at + PIECE_BYTES < segment_bytes => number,
            _ => self.begin_segment(state, owner, parcel.kind)?,
        };
        let segment = &mut state.segments[number as usize];
        let bytes = left.min(segment_bytes - segment.at - PIECE_BYTES);
        let head = PieceHead {
            epoch: segment.epoch,
            at: segment.at,
            bytes,
            parcel: parcel.id,
            piece: parcel.pieces.len() as u32,
            is_last: left == bytes,
            kind: parcel.kind,
        };
        let file = segment.file.clone().expect("opened when it was begun");
        file.write_all_at(&head.encode(), head.at).map_err(|e| self.failed("write to the buffer", e))?;
        segment.at += bytes + PIECE_BYTES;
        segment.live += 1;
        segment.writing += 1;
        parcel.pieces.push(Piece { segment: number, file, head });
        Ok(bytes)
    }

    fn begin_segment(&self, state: &mut State, owner: Owner, kind: Kind) -> Result<u32> {
        let number = match state.free.pop_first() {
            Some(number) => number,
            None => {
                state.segments.push(Segment::default());
                state.segments.len() as u32 - 1
            }
        };
        let epoch = state.next_epoch;
        let begun = self.place.segment(number).and_then(|file| {
            let Made { id, segment_bytes, .. } = self.place.made;
            let head = SegmentHead { spool: id, number, segment_bytes, epoch, owner };
            file.write_all_at(&head.encode(), 0).map_err(|e| self.failed("write to the buffer", e))?;
            Ok(file)
        });
        let file = match begun {
            Ok(file) => Arc::new(file),
            Err(e) => {
                state.free.insert(number);
                return Err(e);
            }
        };
        state.next_epoch += 1;
        let segment = Segment { owner: Some(owner), file: Some(file), epoch, at: HEAD_BYTES, ..Segment::default() };
        state.segments[number as usize] = segment;
        let owned = state.owners.entry(owner).or_default();
        owned.segments += 1;
        let before = owned.heads[kind as usize].replace(number);
        if let Some(before) = before {
            self.free_if_done(state, before);
        }
        Ok(number)
    }

    /// Makes parcels survive a power loss.
    pub fn sync<'a>(&self, parcels: impl IntoIterator<Item = &'a Parcel>) -> Result<()> {
        let pieces = parcels.into_iter().flat_map(|parcel| &parcel.pieces);
        let files: BTreeMap<u32, &Arc<File>> = pieces.map(|piece| (piece.segment, &piece.file)).collect();
        let synced = files.values().try_for_each(|file| file.sync_data());
        self.syncs.fetch_add(1, Relaxed);
        synced.map_err(|e| self.failed("write to the buffer", e))
    }

    /// How often `sync` waited for storage.
    pub fn syncs(&self) -> u64 {
        self.syncs.load(Relaxed)
    }

    /// A parcel is not wanted any more.
    pub fn release(&self, parcel: &Parcel) {
        self.let_go(&mut self.state.lock().unwrap(), parcel, false, true);
    }

    /// The pieces of a parcel are written, or not wanted, or both.
    fn let_go(&self, state: &mut State, parcel: &Parcel, is_written: bool, is_unwanted: bool) {
        for piece in &parcel.pieces {
            let segment = &mut state.segments[piece.segment as usize];
            if segment.epoch == piece.head.epoch {
                segment.live -= u32::from(is_unwanted).min(segment.live);
                segment.writing -= u32::from(is_written).min(segment.writing);
                self.free_if_done(state, piece.segment);
            }
        }
    }

    /// All of an owner is not wanted any more. What is still being written is room again when its writer lets it go.
    ///
    /// # Errors
    /// When storage did not confirm it: after a power loss the owner may be there again.
    pub fn end(&self, owner: Owner) -> Result<()> {
        let over = self.close(owner);
        let mut files = over.iter().map(|(_, file)| file);
        let unmade = files.try_for_each(|file| file.write_all_at(&NO_HEAD, 0).and_then(|()| file.sync_data()));
        self.hand_on(&over);
        unmade.map_err(|e| self.failed("write to the buffer", e))
    }

    /// Takes its segments from an owner. As long as their heads are written over they count as being written: a parcel
    /// that is let go meanwhile makes none of them another owner's, whose head would be lost.
    fn close(&self, owner: Owner) -> Vec<(u32, Arc<File>)> {
        let mut state = self.state.lock().unwrap();
        state.found.remove(&owner);
        state.owners.remove(&owner);
        let mut over = Vec::new();
        for (number, segment) in state.segments.iter_mut().enumerate() {
            if segment.owner == Some(owner)
                && !segment.is_over
                && let Some(file) = &segment.file
            {
                over.push((number as u32, file.clone()));
                segment.is_over = true;
                segment.writing += 1;
            }
        }
        over
    }

    fn hand_on(&self, over: &[(u32, Arc<File>)]) {
        let mut state = self.state.lock().unwrap();
        for (number, _) in over {
            state.segments[*number as usize].writing -= 1;
            self.free_if_done(&mut state, *number);
        }
    }

    /// Makes a segment free in which nothing is wanted, unless it is the one that its owner writes next.
    fn free_if_done(&self, state: &mut State, number: u32) {
        let segment = &state.segments[number as usize];
        let Some(owner) = segment.owner else { return };
        if segment.writing > 0 || segment.live > 0 && !segment.is_over {
            return;
        }
        if let Some(owned) = state.owners.get_mut(&owner).filter(|_| !segment.is_over) {
            let [journal, content] = &mut owned.heads;
            if *journal == Some(number) {
                return;
            }
            // Content that is all released makes room although its segment was not full.
            *content = content.filter(|head| *head != number);
            owned.segments -= 1;
            if let Some(file) = &segment.file {
                // Without a sync: what comes back after a power loss is looked at once more and found delivered.
                let _ = file.write_all_at(&NO_HEAD, 0);
            }
        }
        state.segments[number as usize] = Segment::default();
        if number < self.place.made.segments {
            state.free.insert(number);
        }
        self.freed.notify_all();
    }

    fn failed(&self, operation: &'static str, e: std::io::Error) -> Error {
        Error::new(operation, self.place.path().to_vec(), e)
    }
}

impl Room {
    pub fn write(&mut self, block: &[u8]) -> Result<()> {
        let Some(parcel) = &self.parcel else { return Ok(()) };
        self.filler.write(parcel, block).map_err(|e| self.spool.failed("write to the buffer", e))
    }

    /// The parcel is complete: it survives a crash of the process, and after `sync` a power loss.
    pub fn commit(mut self) -> Result<Parcel> {
        let parcel = self.parcel.take().expect("taken once");
        if !self.filler.is_full(&parcel) {
            self.parcel = Some(parcel);
            let why = "less was written than there was room taken for";
            return Err(Error::of_kind(FailureKind::Other, "write to the buffer", self.spool.path().to_vec(), why));
        }
        self.spool.let_go(&mut self.spool.state.lock().unwrap(), &parcel, true, false);
        Ok(parcel)
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        if let Some(parcel) = &self.parcel {
            self.spool.let_go(&mut self.spool.state.lock().unwrap(), parcel, true, true);
        }
    }
}

impl State {
    fn new(segments: u32) -> State {
        State {
            segments: (0..segments).map(|_| Segment::default()).collect(),
            free: (0..segments).collect(),
            // Of segments that are free nobody knows under which epochs they were written.
            next_epoch: os::random().unwrap_or(2) >> 1,
            next_parcel: 1,
            owners: HashMap::new(),
            found: HashMap::new(),
        }
    }

    /// What is kept for other owners is left to them, and some room to those that hold less than their part, and to what describes
    /// content: without that, what is there could not be delivered.
    fn may_take(&self, owner: Owner, kind: Kind, wanted: u32, all: u32) -> bool {
        let own = self.owners.get(&owner);
        let (holds, weight) = own.map_or((0, WEIGHT), |owned| (owned.segments, owned.weight));
        let others = || self.owners.iter().filter(|(other, _)| **other != owner).map(|(_, owned)| owned);
        let weights = others().map(|owned| u64::from(owned.weight)).sum::<u64>() + u64::from(weight);
        let part = |weight: u32| u64::from(all) * u64::from(weight) / weights;
        let kept = |owned: &Owned| part(owned.weight).div_ceil(KEPT_PART).saturating_sub(u64::from(owned.segments));
        let is_alone = others().next().is_none();
        let is_small = !is_alone && u64::from(holds + wanted) <= part(weight);
        let left = if is_small || kind == Kind::Journal { 0 } else { u64::from((all / LEFT_TO_OTHERS).max(1)) };
        let is_kept_for_it = u64::from(holds + wanted) <= part(weight).div_ceil(KEPT_PART);
        let for_others = if is_kept_for_it { 0 } else { others().map(kept).sum::<u64>() };
        wanted == 0 || u64::from(wanted) + left.max(for_others) <= self.free.len() as u64
    }

    /// Reads what an earlier process left.
    fn scan(place: &Place) -> Result<State> {
        let made = place.made;
        let mut state = State::new(made.segments);
        let mut pieces: HashMap<(Owner, u64), Vec<Piece>> = HashMap::new();
        for number in 0..made.segments {
            let file = place.segment(number)?;
            let read = |e| Error::new("read the buffer", place.path().to_vec(), e);
            let head = match Head::decode(&read_at(&file, 0).map_err(read)?) {
                Head::Free => continue,
                Head::Version(version) => {
                    let why = format!("it was written by another version (format {version}): let that one drain it");
                    return Err(place.refused(&why));
                }
                Head::Used(head) => head,
            };
            state.next_epoch = state.next_epoch.max(head.epoch.saturating_add(1));
            // Of another spool, or of another place in this one: nothing of it can be trusted to be what it seems.
            if (head.spool, head.number, head.segment_bytes) != (made.id, number, made.segment_bytes) {
                continue;
            }
            let file = Arc::new(file);
            let mut at = HEAD_BYTES;
            while at + PIECE_BYTES < made.segment_bytes {
                let before = read_at::<BEFORE_BYTES>(&file, at).map_err(read)?;
                let Some(piece) = PieceHead::decode(&before, &head, at) else { break };
                state.next_parcel = state.next_parcel.max(piece.parcel.saturating_add(1));
                at += piece.bytes + PIECE_BYTES;
                let piece = Piece { segment: number, file: file.clone(), head: piece };
                if piece.is_complete().map_err(read)? {
                    pieces.entry((head.owner, piece.head.parcel)).or_default().push(piece);
                }
            }
            let segment =
                Segment { owner: Some(head.owner), file: Some(file), epoch: head.epoch, at, ..Segment::default() };
            state.segments[number as usize] = segment;
        }
        state.take_in(pieces).map_err(|e| Error::new("write to the buffer", place.path().to_vec(), e))?;
        Ok(state)
    }

    /// Keeps whole parcels of owners that have a journal, and frees the other segments.
    fn take_in(&mut self, pieces: HashMap<(Owner, u64), Vec<Piece>>) -> std::io::Result<()> {
        for ((owner, id), mut pieces) in pieces {
            pieces.sort_by_key(|piece| piece.head.piece);
            let is_whole = pieces
                .iter()
                .enumerate()
                .all(|(at, piece)| piece.head.piece as usize == at && piece.head.is_last == (at + 1 == pieces.len()));
            if is_whole {
                let bytes = pieces.iter().map(|piece| piece.head.bytes).sum();
                let kind = pieces[0].head.kind;
                self.found.entry(owner).or_default().push(Parcel { id, kind, bytes, pieces });
            }
        }
        self.found.retain(|_, parcels| parcels.iter().any(|parcel| parcel.kind == Kind::Journal));
        for parcels in self.found.values_mut() {
            parcels.sort_by_key(|parcel| parcel.id);
            let pieces = parcels.iter().flat_map(|parcel| &parcel.pieces);
            pieces.for_each(|piece| self.segments[piece.segment as usize].live += 1);
        }
        self.free.clear();
        for (number, segment) in self.segments.iter_mut().enumerate() {
            match segment.owner {
                Some(owner) if segment.live > 0 => self.owners.entry(owner).or_default().segments += 1,
                _ => {
                    // Else it might come back beside what its owner writes later.
                    if let Some(file) = &segment.file {
                        file.write_all_at(&NO_HEAD, 0).and_then(|()| file.sync_data())?;
                    }
                    *segment = Segment::default();
                    self.free.insert(number as u32);
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
