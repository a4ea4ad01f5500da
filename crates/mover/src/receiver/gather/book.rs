//! Who brings what, where several holders have the same objects: the receiver's book, as a value without threads or I/O.
//!
//! The first holder is the *lead*. It says what there is and, by digests, what is in it; what the others bring counts only if it has
//! the digest that the lead told. Holders that prove take large objects from the front, the lead from the back, so that it reads
//! each byte about once: what it sends itself needs no proof. In a *list* the lead is a catalogue: it tells digests and has no content,
//! so every holder proves what it brings, and what nobody has is not waited for.
//!
//! Invariants:
//! - A chunk or small file is asked of one holder at a time, and accepted from nobody else but the lead.
//! - Nothing is asked of a holder that proves before the lead told its digest.
//! - A holder takes part in an object only if it has it with the same size and time.
//!
//! Not here: who is asked for what next (`choice`), the chunks of one object (`spans`), what is known of a holder (`seats`), messages
//! (`gather`).

mod choice;
mod missing;

use super::seats::{BAD_CHUNKS_MAX, FILE_COST_BYTES, LEAD, Offer, Seat, Tally};
use super::spans::{Judged, Spans};
use model::{Digest, Extent, Timestamp, mutant};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};

/// Settled objects that are remembered, in case a holder describes them later than the lead.
const PASSED_MAX: usize = 4 << 20;
/// Small files in a queue, before those that are over are taken out of it.
const QUEUED_MIN: usize = 8192;

/// An object of the lead's that is wanted.
pub struct Wanted {
    pub id: u64,
    pub key: u64,
    pub size_bytes: u64,
    pub modified: Timestamp,
    pub is_large: bool,
    /// What an earlier attempt left of a large one.
    pub kept: Vec<(Extent, Digest)>,
}

/// What is to be said or done.
#[derive(Debug, PartialEq)]
pub enum Action {
    /// Ask the lead for digests of whole objects, or of a window of one.
    AskWhole(Vec<u64>),
    AskWindow(u64, Extent),
    /// Ask a holder for objects and parts of objects, by its numbers: for the first time, or again.
    Want {
        holder: usize,
        is_again: bool,
        whole: Vec<u64>,
        parts: Vec<(u64, Extent)>,
    },
    /// Nobody has these objects, or only other content under their names.
    Unobtainable(Vec<Missing>),
    /// Tell a holder that objects are over: those that it brought, and others.
    Settled {
        holder: usize,
        brought: Vec<u64>,
        others: Vec<u64>,
    },
    /// What was left of an earlier attempt is the lead's.
    Adopt(u64, Vec<(Extent, Digest)>),
    /// It is not.
    StartOver(u64),
    /// The lead's bytes are not what most others have.
    Outvoted(String),
    Drop(usize, String),
}

/// What cannot be had, and whether a holder had other content for it.
#[derive(Debug, PartialEq)]
pub struct Missing {
    pub id: u64,
    pub is_other_content: bool,
}

struct Object {
    key: u64,
    size_bytes: u64,
    modified: Timestamp,
    /// Its number at each holder that has it, the lead included.
    numbers: BTreeMap<usize, u64>,
    /// Who was asked for it before.
    opened: BTreeSet<usize>,
    brought_by: Option<usize>,
    work: Work,
    /// Other content than the lead's, and whose.
    votes: Vec<(u64, usize, Digest)>,
}

enum Work {
    Small { of: Option<usize>, told: Option<Digest>, is_asked: bool, is_untellable: bool, refused: BTreeSet<usize> },
    Large(Box<Spans>),
}

pub struct Book {
    chunk_bytes: u64,
    ignores_times: bool,
    /// The lead is a catalogue, and has no content.
    is_of_list: bool,
    /// Since when nothing is asked of anybody although something is missing.
    stuck_since_us: Option<u64>,
    pub seats: Vec<Seat>,
    objects: BTreeMap<u64, Object>,
    keys: HashMap<u64, u64>,
    passed: HashSet<u64>,
    is_listed: bool,
    /// Small files that only the lead has, and those that others have too.
    unshared: VecDeque<u64>,
    shared: VecDeque<u64>,
    /// Large objects of which an earlier attempt left something.
    kept: BTreeSet<u64>,
    /// Objects whose digests were asked of the lead.
    asking: HashSet<u64>,
    left_bytes: u64,
    now_us: u64,
    actions: Vec<Action>,
    /// What each holder described and need not bring, to be told to it together.
    unused: Vec<Vec<u64>>,
}

impl Book {
    pub fn new(chunk_bytes: u64, holders: usize, ignores_times: bool) -> Book {
        let seat = |holder| Seat { is_trusted: holder == LEAD, ..Seat::default() };
        Book {
            chunk_bytes,
            ignores_times,
            is_of_list: false,
            stuck_since_us: None,
            seats: (0..holders).map(seat).collect(),
            objects: BTreeMap::new(),
            keys: HashMap::new(),
            passed: HashSet::new(),
            is_listed: false,
            unshared: VecDeque::new(),
            shared: VecDeque::new(),
            kept: BTreeSet::new(),
            asking: HashSet::new(),
            left_bytes: 0,
            now_us: 0,
            actions: Vec::new(),
            unused: vec![Vec::new(); holders],
        }
    }

    /// Of a catalogue and those who have what it lists.
    pub fn of_list(chunk_bytes: u64, holders: usize) -> Book {
        Book { is_of_list: true, ..Book::new(chunk_bytes, holders, true) }
    }

    pub fn take_actions(&mut self) -> Vec<Action> {
        let mut actions = std::mem::take(&mut self.actions);
        for (holder, unused) in self.unused.iter_mut().enumerate().filter(|(_, unused)| !unused.is_empty()) {
            actions.push(Action::Settled { holder, brought: Vec::new(), others: std::mem::take(unused) });
        }
        actions
    }

    pub fn tallies(&self) -> Vec<Tally> {
        self.seats.iter().map(|seat| Tally { is_for_good: seat.is_dropped, ..seat.tally.clone() }).collect()
    }

    pub fn join(&mut self, holder: usize) {
        let seat = &mut self.seats[holder];
        seat.is_here = !seat.is_dropped;
        if seat.is_here {
            seat.tally.dropped = None;
            (seat.rate, seat.has_listed) = (0.0, false);
            (seat.moved_at_us, seat.stirred_at_us) = (self.now_us, self.now_us);
        }
    }

    /// A holder brings nothing more, or not before it joins again: what it was asked for is open to the others.
    pub fn gone(&mut self, holder: usize, why: &str, is_for_good: bool) {
        let seat = &mut self.seats[holder];
        if !seat.is_dropped {
            seat.tally.dropped = Some(why.to_owned());
        }
        seat.is_dropped |= is_for_good;
        if !std::mem::replace(&mut seat.is_here, false) {
            return;
        }
        let ids: Vec<u64> = seat.ids.drain().map(|(_, id)| id).collect();
        let small = std::mem::take(&mut seat.small);
        seat.end_waiting();
        seat.queue.clear();
        seat.large.clear();
        small.into_iter().for_each(|id| self.release(id, None));
        for id in ids {
            let Some(object) = self.objects.get_mut(&id) else { continue };
            object.numbers.remove(&holder);
            object.opened.remove(&holder);
            if let Work::Large(spans) = &mut object.work {
                spans.asked_of(holder).into_iter().for_each(|start| _ = spans.release(start));
                self.reopen(id);
            }
        }
        self.seats[holder].asked_bytes = 0;
    }

    /// What the lead has and this side wants.
    pub fn listed(&mut self, items: Vec<Wanted>) {
        for item in items {
            let Wanted { id, key, size_bytes, modified, is_large, kept } = item;
            let has_kept = !kept.is_empty();
            self.left_bytes += size_bytes - kept.iter().map(|(extent, _)| extent.length()).sum::<u64>();
            let work = match is_large {
                true => Work::Large(Box::new(Spans::new(size_bytes, self.chunk_bytes, kept))),
                false => {
                    self.unshared.push_back(id);
                    Work::Small {
                        of: None,
                        told: None,
                        is_asked: false,
                        is_untellable: false,
                        refused: BTreeSet::new(),
                    }
                }
            };
            if is_large {
                self.seats[LEAD].large.insert(id);
                if has_kept {
                    self.kept.insert(id);
                }
            }
            let numbers = BTreeMap::from([(LEAD, id)]);
            let (opened, brought_by, votes) = (BTreeSet::new(), None, Vec::new());
            self.objects.insert(id, Object { key, size_bytes, modified, numbers, opened, brought_by, work, votes });
            self.keys.insert(key, id);
            self.passed.remove(&key);
            for holder in 1..self.seats.len() {
                if let Some(offer) = self.seats[holder].take_waiting(key) {
                    self.matched(holder, id, offer);
                }
            }
        }
    }

    /// What the lead has and this side does not want.
    pub fn passed(&mut self, keys: Vec<u64>) {
        for key in keys {
            self.over(key);
        }
    }

    fn over(&mut self, key: u64) {
        if self.passed.len() < PASSED_MAX {
            self.passed.insert(key);
        }
        for holder in 1..self.seats.len() {
            if let Some(offer) = self.seats[holder].take_waiting(key) {
                self.unused[holder].push(offer.theirs);
            }
        }
    }

    /// The lead has described everything: what others have besides is of no use.
    pub fn lead_listed(&mut self) {
        if std::mem::replace(&mut self.is_listed, true) {
            return;
        }
        for holder in 1..self.seats.len() {
            let others = self.seats[holder].end_waiting();
            self.unused[holder].extend(others);
        }
    }

    pub fn is_lead_listed(&self) -> bool {
        self.is_listed
    }

    /// A holder has described everything that it has.
    pub fn holder_listed(&mut self, holder: usize) {
        self.seats[holder].has_listed = true;
    }

    /// What a holder has.
    pub fn offered(&mut self, holder: usize, key: u64, offer: Offer) {
        let is_over = self.is_listed || self.passed.contains(&key) || !self.seats[holder].is_here;
        self.seats[holder].stirred_at_us = self.now_us;
        match self.keys.get(&key) {
            Some(id) => self.matched(holder, *id, offer),
            None if is_over => self.unused[holder].push(offer.theirs),
            None => {
                let before = self.seats[holder].wait(key, offer);
                self.unused[holder].extend(before.map(|before| before.theirs));
            }
        }
    }

    /// What of a holder's listing is not to be had from it.
    pub fn unused(&mut self, holder: usize, theirs: Vec<u64>) {
        self.unused[holder].extend(theirs);
    }

    fn matched(&mut self, holder: usize, id: u64, offer: Offer) {
        let object = self.objects.get_mut(&id).expect("it is open");
        let is_same_time = self.ignores_times || offer.modified == object.modified;
        if offer.size_bytes != object.size_bytes || !is_same_time {
            let tally = &mut self.seats[holder].tally;
            tally.differing += 1;
            let what = match offer.size_bytes != object.size_bytes {
                true => format!("{} bytes instead of {}", offer.size_bytes, object.size_bytes),
                false => "another modification time".to_owned(),
            };
            let name = model::name::Escaped(offer.name.as_bytes()).to_string();
            tally.difference.get_or_insert(format!("{name}: {what}"));
            return self.unused[holder].push(offer.theirs);
        }
        match &object.work {
            Work::Small { of: None, .. } => {
                if object.numbers.len() == 1 {
                    self.shared.push_back(id);
                }
                self.seats[holder].queue.push_back(id);
            }
            Work::Small { .. } => {}
            Work::Large(_) => _ = self.seats[holder].large.insert(id),
        }
        object.numbers.insert(holder, offer.theirs);
        self.seats[holder].ids.insert(offer.theirs, id);
    }

    /// A holder takes back what it offered: it changed there, or cannot be read. False for what it did not offer, or what is over.
    pub fn withdrawn(&mut self, holder: usize, theirs: u64) -> bool {
        let Some(id) = self.seats[holder].ids.remove(&theirs) else { return self.seats[holder].take_back(theirs) };
        let Some(object) = self.objects.get_mut(&id) else { return true };
        object.numbers.remove(&holder);
        self.seats[holder].large.remove(&id);
        match &mut object.work {
            Work::Large(spans) => {
                let freed = spans.asked_of(holder);
                let bytes = freed.iter().map(|start| spans.chunk(*start).length()).sum::<u64>();
                freed.into_iter().for_each(|start| _ = spans.release(start));
                self.reopen(id);
                self.relieve(holder, bytes);
            }
            Work::Small { of: Some(of), .. } if *of == holder => self.release(id, None),
            Work::Small { .. } => {}
        }
        true
    }

    /// The lead's number of what a holder sends, if it was asked for it, and the digest that it has to have.
    pub fn expected(&self, holder: usize, theirs: u64, extent: Extent) -> Option<(u64, Digest)> {
        let id = *self.seats[holder].ids.get(&theirs)?;
        let digest = match &self.objects.get(&id)?.work {
            Work::Small { of, told, .. } => told.filter(|_| *of == Some(holder)),
            Work::Large(spans) => spans.expected(holder, extent),
        };
        Some((id, digest?))
    }

    /// Content of a large object came into staging. It counts if it is still there: all may have been started over since.
    pub fn brought(&mut self, holder: usize, id: u64, extent: Extent, is_there: bool) {
        if !is_there && !mutant::is_on("count-what-was-emptied") {
            return self.release(id, Some(extent));
        }
        let Some(object) = self.objects.get_mut(&id) else { return };
        object.brought_by = Some(holder);
        let Work::Large(spans) = &mut object.work else { return };
        let asked = spans.brought(extent);
        if !spans.is_open() {
            self.close(id);
        }
        if let Some(of) = asked {
            self.left_bytes = self.left_bytes.saturating_sub(extent.length());
            self.seats[holder].tally.bytes += extent.length();
            self.relieve(of, extent.length());
        }
    }

    /// A small file was staged.
    pub fn staged(&mut self, holder: usize, id: u64) {
        let Some(object) = self.objects.get_mut(&id) else { return };
        object.brought_by = Some(holder);
        let size_bytes = object.size_bytes;
        if let Work::Small { of: Some(of), .. } = object.work
            && self.seats[of].small.remove(&id)
        {
            self.relieve(of, size_bytes + FILE_COST_BYTES);
        }
        self.left_bytes = self.left_bytes.saturating_sub(size_bytes);
        // An empty file is something too.
        (self.seats[holder].moved_at_us, self.seats[holder].stirred_at_us) = (self.now_us, self.now_us);
        self.seats[holder].tally.bytes += size_bytes;
        self.seats[holder].tally.files += 1;
    }

    /// A small file broke off on its way from a holder: it has to come again, unless it was asked of another one meanwhile.
    pub fn broke_off(&mut self, holder: usize, id: u64) {
        if let Some(Object { work: Work::Small { of: Some(of), .. }, .. }) = self.objects.get(&id)
            && *of == holder
        {
            self.release(id, None);
        }
    }

    /// A holder brought other content than the lead told.
    pub fn bad(&mut self, holder: usize, id: u64, extent: Extent, digest: Digest) {
        self.seats[holder].tally.bad_chunks += 1;
        if let Some(object) = self.objects.get_mut(&id) {
            let agrees = |vote: &&(u64, usize, Digest)| vote.0 == extent.start && vote.1 != holder && vote.2 == digest;
            // A catalogue is not outvoted: it is signed.
            if !self.is_of_list && object.votes.iter().any(|vote| agrees(&vote)) {
                let text = "two holders have the same content of a file, and the first one has another";
                self.actions.push(Action::Outvoted(text.to_owned()));
            }
            object.votes.push((extent.start, holder, digest));
            match &mut object.work {
                Work::Small { refused, .. } => _ = refused.insert(holder),
                Work::Large(spans) => spans.refuse(extent.start, holder),
            }
            self.release(id, Some(extent));
        }
        if self.seats[holder].tally.bad_chunks >= BAD_CHUNKS_MAX && self.seats[holder].is_here {
            let whose = if self.is_of_list { "the catalogue's" } else { "the first holder's" };
            let why = format!("other content than {whose}, {BAD_CHUNKS_MAX} times");
            self.gone(holder, &why, true);
            self.actions.push(Action::Drop(holder, why));
        }
    }

    /// What came of an object, or of one chunk of it, is worth nothing: it has to come again.
    pub fn release(&mut self, id: u64, extent: Option<Extent>) {
        let Some(object) = self.objects.get_mut(&id) else { return };
        let size_bytes = object.size_bytes;
        match (&mut object.work, extent) {
            (Work::Large(spans), Some(extent)) => {
                let of = spans.release(extent.start);
                self.reopen(id);
                if let Some(of) = of {
                    self.relieve(of, extent.length());
                }
            }
            (Work::Large(spans), None) => {
                let freed = spans.start_over();
                self.reopen(id);
                freed.into_iter().for_each(|(of, bytes)| self.relieve(of, bytes));
            }
            (Work::Small { of, refused, .. }, _) => {
                let before = of.take();
                let others = object.numbers.keys().filter(|other| **other != LEAD && !refused.contains(other));
                let others: Vec<_> = others.copied().collect();
                match object.numbers.len() == 1 {
                    true => self.unshared.push_front(id),
                    false => self.shared.push_back(id),
                }
                others.into_iter().for_each(|other| self.seats[other].queue.push_front(id));
                if let Some(of) = before
                    && self.seats[of].small.remove(&id)
                {
                    self.relieve(of, size_bytes + FILE_COST_BYTES);
                }
            }
        }
    }

    /// Some of a large object may be asked for again, of whoever has it; nothing any more.
    fn reopen(&mut self, id: u64) {
        let Some(object) = self.objects.get(&id) else { return };
        object.numbers.keys().for_each(|holder| _ = self.seats[*holder].large.insert(id));
    }

    fn close(&mut self, id: u64) {
        self.seats.iter_mut().for_each(|seat| _ = seat.large.remove(&id));
    }

    fn relieve(&mut self, holder: usize, bytes: u64) {
        let seat = &mut self.seats[holder];
        seat.asked_bytes = seat.asked_bytes.saturating_sub(bytes);
    }

    /// Objects came to their end, whichever.
    pub fn settled(&mut self, ids: impl Iterator<Item = u64>) {
        let mut told: BTreeMap<usize, (Vec<u64>, Vec<u64>)> = BTreeMap::new();
        for id in ids {
            let Some(mut object) = self.objects.remove(&id) else { continue };
            self.keys.remove(&object.key);
            self.kept.remove(&id);
            self.close(id);
            match &mut object.work {
                Work::Large(spans) => {
                    spans.start_over().into_iter().for_each(|(of, bytes)| self.relieve(of, bytes));
                }
                Work::Small { of: Some(of), .. } if self.seats[*of].small.remove(&id) => {
                    self.relieve(*of, object.size_bytes + FILE_COST_BYTES);
                }
                Work::Small { .. } => {}
            }
            for (holder, theirs) in object.numbers.into_iter().filter(|(holder, _)| *holder != LEAD) {
                self.seats[holder].ids.remove(&theirs);
                let (brought, others) = told.entry(holder).or_default();
                if object.brought_by == Some(holder) { brought.push(theirs) } else { others.push(theirs) }
            }
            self.over(object.key);
        }
        for (holder, (brought, others)) in told {
            self.actions.push(Action::Settled { holder, brought, others });
        }
        self.forget_settled();
    }

    #[cfg(test)]
    pub fn queued(&self) -> usize {
        self.shared.len() + self.unshared.len() + self.seats.iter().map(|seat| seat.queue.len()).sum::<usize>()
    }

    /// Keeps the queues of small files in proportion to what is open.
    fn forget_settled(&mut self) {
        let open = &self.objects;
        let shared = [&mut self.shared, &mut self.unshared];
        let queues = self.seats.iter_mut().map(|seat| &mut seat.queue).chain(shared);
        for queue in queues.filter(|queue| queue.len() > QUEUED_MIN.max(2 * open.len())) {
            queue.retain(|id| open.contains_key(id));
        }
    }

    /// The path of an object, as a number.
    pub fn key(&self, id: u64) -> Option<u64> {
        self.objects.get(&id).map(|object| object.key)
    }

    /// Whether digests of this object were asked for here.
    pub fn is_asking(&self, id: u64) -> bool {
        self.asking.contains(&id)
    }

    /// The lead's word for what it was asked about.
    pub fn told(&mut self, id: u64, digests: &[Digest]) {
        self.asking.remove(&id);
        let Some(object) = self.objects.get_mut(&id) else { return };
        match &mut object.work {
            Work::Small { of, told, is_untellable, is_asked, .. } => {
                *is_asked = false;
                *told = digests.first().copied();
                *is_untellable = told.is_none();
                let Some(holder) = of.filter(|holder| *holder != LEAD) else { return };
                match (told.is_some(), object.numbers.get(&holder).copied()) {
                    (true, Some(theirs)) => {
                        self.seats[holder].moved_at_us = self.now_us;
                        let is_again = !object.opened.insert(holder);
                        self.want(holder, is_again, &[theirs], &[]);
                    }
                    _ => self.release(id, None),
                }
            }
            Work::Large(spans) => match spans.told(digests) {
                Judged::Told => {}
                Judged::Same(same) => {
                    if !spans.has_kept() {
                        self.kept.remove(&id);
                    }
                    self.actions.push(Action::Adopt(id, same));
                }
                // What is asked for meanwhile is released when the staging was emptied.
                Judged::Other => {
                    self.kept.remove(&id);
                    self.actions.push(Action::StartOver(id));
                }
            },
        }
    }
}
