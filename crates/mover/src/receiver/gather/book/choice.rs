//! Who is asked for what next: room, order, the end of a job, and what is taken from slow holders.
//!
//! Pure, as all of the book.

use super::super::seats::{FILE_COST_BYTES, LEAD, Seat};
use super::{Action, Book, Object, Work};
use crate::limits::NO_PROGRESS_TIMEOUT;
use model::Extent;
use std::collections::{BTreeMap, BTreeSet};

/// Small files asked for in one message.
const FILES_AT_ONCE: usize = 1000;
/// Large objects that are looked at for the next chunk.
const LOOKED_AT: usize = 64;
/// A holder that is asked and silent for this long, while others bring something, is given up.
const SILENCE_US: u64 = 10_000_000;
/// So long all of them may be silent where a catalogue leads.
const NO_PROGRESS_US: u64 = NO_PROGRESS_TIMEOUT.as_secs() * 1_000_000;
/// What a holder would need twice this much longer for than an idle one is taken from it.
const SLOWER: f64 = 2.0;

impl Book {
    /// Gives every holder that has room something to do.
    pub fn assign(&mut self) {
        self.ask_proofs();
        for holder in 0..self.seats.len() {
            self.give(holder);
        }
    }

    fn give(&mut self, holder: usize) {
        if holder == LEAD && self.is_of_list {
            return;
        }
        let mut wanted: BTreeMap<bool, Vec<(u64, Extent)>> = BTreeMap::new();
        let mut whole: BTreeMap<bool, Vec<u64>> = BTreeMap::new();
        let mut unknown = Vec::new();
        let seat = &self.seats[holder];
        let enough = seat.asked_bytes + seat.room(self.chunk_bytes);
        while self.seats[holder].asked_bytes < enough && self.may_take(holder) {
            if let Some((id, extent)) = self.next_chunk(holder) {
                self.seats[holder].asked_bytes += extent.length();
                let (theirs, is_again) = self.open(holder, id);
                let parts = wanted.entry(is_again).or_default();
                match parts.last_mut().filter(|(last, _)| *last == theirs) {
                    Some((_, last)) if last.end == extent.start => last.end = extent.end,
                    Some((_, last)) if last.start == extent.end => last.start = extent.start,
                    _ => parts.push((theirs, extent)),
                }
                continue;
            }
            let Some(id) = self.next_small(holder) else { break };
            let object = self.objects.get_mut(&id).expect("it is open");
            let Work::Small { of, told, is_asked, .. } = &mut object.work else { break };
            *of = Some(holder);
            let is_known = holder == LEAD || told.is_some();
            let is_to_be_asked = !is_known && !std::mem::replace(is_asked, !is_known);
            self.seats[holder].asked_bytes += object.size_bytes + FILE_COST_BYTES;
            self.seats[holder].small.insert(id);
            if is_known {
                let (theirs, is_again) = self.open(holder, id);
                whole.entry(is_again).or_default().push(theirs);
            } else if is_to_be_asked {
                unknown.push(id);
            }
        }
        self.ask_whole(unknown);
        // Parts of one object may be wanted once and then again: the first word comes first.
        for is_again in [false, true] {
            let (whole, parts) = (whole.remove(&is_again), wanted.remove(&is_again));
            self.want(holder, is_again, &whole.unwrap_or_default(), &parts.unwrap_or_default());
        }
    }

    fn open(&mut self, holder: usize, id: u64) -> (u64, bool) {
        let object = self.objects.get_mut(&id).expect("it is open");
        (object.numbers[&holder], !object.opened.insert(holder))
    }

    pub(super) fn want(&mut self, holder: usize, is_again: bool, whole: &[u64], parts: &[(u64, Extent)]) {
        for id in whole {
            match self.actions.last_mut() {
                // Proofs come one after the other: what they open is asked for together.
                Some(Action::Want { holder: of, is_again: again, whole, parts })
                    if (*of, *again) == (holder, is_again) && parts.is_empty() && whole.len() < FILES_AT_ONCE =>
                {
                    whole.push(*id);
                }
                _ => self.actions.push(Action::Want { holder, is_again, whole: vec![*id], parts: Vec::new() }),
            }
        }
        if !parts.is_empty() {
            self.actions.push(Action::Want { holder, is_again, whole: Vec::new(), parts: parts.to_vec() });
        }
    }

    fn ask_whole(&mut self, ids: Vec<u64>) {
        self.asking.extend(&ids);
        self.actions.extend(ids.chunks(FILES_AT_ONCE).map(|ids| Action::AskWhole(ids.to_vec())));
    }

    /// Near the end a slow holder takes nothing that the others would have done sooner. The fastest may always.
    fn may_take(&self, holder: usize) -> bool {
        let here = || self.seats.iter().filter(|seat| seat.is_here);
        let (seat, total) = (&self.seats[holder], here().map(|seat| seat.rate).sum::<f64>());
        let is_fastest = here().all(|other| other.rate <= seat.rate);
        if !self.is_listed || is_fastest || seat.rate == 0.0 || total == 0.0 {
            return true;
        }
        let next_bytes = if seat.large.is_empty() { FILE_COST_BYTES } else { self.chunk_bytes };
        seat.seconds_for(next_bytes) <= f64::max(1.0, SLOWER * self.left_bytes as f64 / total)
    }

    fn next_chunk(&mut self, holder: usize) -> Option<(u64, Extent)> {
        let large = &self.seats[holder].large;
        let ids: Vec<u64> = match holder {
            LEAD => large.iter().rev().take(LOOKED_AT).copied().collect(),
            _ => large.iter().take(LOOKED_AT).copied().collect(),
        };
        for id in ids {
            let Some(object) = self.objects.get_mut(&id) else { continue };
            let Work::Large(spans) = &mut object.work else { continue };
            let taken = if holder == LEAD { spans.take_last(LEAD) } else { spans.take_proved(holder) };
            if let Some(extent) = taken {
                if !spans.is_open() {
                    self.close(id);
                }
                return Some((id, extent));
            }
        }
        None
    }

    fn next_small(&mut self, holder: usize) -> Option<u64> {
        let has_it = |object: &&Object| object.numbers.contains_key(&holder);
        let is_free =
            |objects: &BTreeMap<u64, Object>, id: &u64| match objects.get(id).filter(has_it).map(|object| &object.work)
            {
                Some(Work::Small { of: None, is_untellable, refused, .. }) => {
                    holder == LEAD || !is_untellable && !refused.contains(&holder)
                }
                _ => false,
            };
        if holder != LEAD {
            let queue = &mut self.seats[holder].queue;
            return std::iter::from_fn(|| queue.pop_front()).find(|id| is_free(&self.objects, id));
        }
        // First what nobody else has; then from the other end than the others.
        while let Some(id) = self.unshared.pop_front() {
            if is_free(&self.objects, &id) && self.objects[&id].numbers.keys().all(|of| *of == LEAD) {
                return Some(id);
            }
        }
        std::iter::from_fn(|| self.shared.pop_back()).find(|id| is_free(&self.objects, id))
    }

    /// Asks the lead about what the others will be asked for next, and about what an earlier attempt left.
    fn ask_proofs(&mut self) {
        let mut ids: BTreeSet<u64> = self.kept.iter().take(LOOKED_AT).copied().collect();
        for seat in self.seats.iter().skip(1).filter(|seat| seat.is_here) {
            let wanted = 2 * (seat.room(self.chunk_bytes) + seat.asked_bytes);
            let mut free = 0;
            for id in seat.large.iter().take(LOOKED_AT) {
                if free >= wanted {
                    break;
                }
                let Some(Object { work: Work::Large(spans), .. }) = self.objects.get(id) else { continue };
                free += spans.free_bytes();
                if free < wanted {
                    ids.insert(*id);
                    free += spans.window_bytes();
                }
            }
        }
        for id in ids {
            let Some(Object { work: Work::Large(spans), .. }) = self.objects.get_mut(&id) else { continue };
            if let Some(window) = spans.ask_proof() {
                self.asking.insert(id);
                self.actions.push(Action::AskWindow(id, window));
            }
        }
    }

    /// Looks at the clock and at how much each holder has sent: measures rates, takes from the slow, gives up the silent.
    pub fn tick(&mut self, now_us: u64, moved_bytes: &[u64]) {
        self.now_us = now_us;
        for (seat, moved) in self.seats.iter_mut().zip(moved_bytes) {
            seat.look(now_us, *moved);
        }
        let last = |seat: &Seat| now_us.saturating_sub(seat.moved_at_us);
        let is_alive = |seat: &Seat| seat.is_here && seat.asked_bytes > 0 && last(seat) < SILENCE_US / 3;
        for holder in 0..self.seats.len() {
            let is_silent = self.seats[holder].is_here && last(&self.seats[holder]) >= SILENCE_US;
            if is_silent && self.seats.iter().any(is_alive) && !self.waits_for_lead(holder) {
                self.give_up(holder, SILENCE_US);
            }
        }
        self.end_standstill();
        self.look_for_missing();
        for holder in 0..self.seats.len() {
            if self.seats[holder].is_here && self.seats[holder].asked_bytes == 0 {
                self.take_from_slow(holder);
            }
        }
    }

    fn give_up(&mut self, holder: usize, silence_us: u64) {
        let why = format!("it sent nothing for {} s", silence_us / 1_000_000);
        self.gone(holder, &why, false);
        self.actions.push(Action::Drop(holder, why));
    }

    /// A catalogue is at its end whatever becomes of its holders: if nothing comes of any, nobody else ends the waiting. It ends the
    /// attempt as well: a holder that comes back at once would begin the waiting anew, and no retry would be counted.
    fn end_standstill(&mut self) {
        let busy: Vec<usize> = (LEAD + 1..self.seats.len()).filter(|holder| self.seats[*holder].is_busy()).collect();
        let is_still = |holder: &usize| self.now_us.saturating_sub(self.seats[*holder].stirred_at_us) >= NO_PROGRESS_US;
        if self.is_of_list && !busy.is_empty() && busy.iter().all(is_still) {
            busy.into_iter().for_each(|holder| self.give_up(holder, NO_PROGRESS_US));
            let why = format!("none of the holders sent anything for {} s", NO_PROGRESS_US / 1_000_000);
            self.actions.push(Action::Drop(LEAD, why));
        }
    }

    /// Whether nothing can come of a holder because the lead has not told what it is to be.
    fn waits_for_lead(&self, holder: usize) -> bool {
        let is_untold = |id: &u64| {
            let work = self.objects.get(id).map(|object| &object.work);
            matches!(work, Some(Work::Small { told: None, .. }))
        };
        let small = &self.seats[holder].small;
        let objects = small.iter().filter_map(|id| self.objects.get(id));
        let bytes: u64 = objects.map(|object| object.size_bytes + FILE_COST_BYTES).sum();
        !small.is_empty() && self.seats[holder].asked_bytes <= bytes && small.iter().all(is_untold)
    }

    /// Whoever has nothing to do takes a chunk, or half of the small files, that another one would need much longer for. The lead
    /// is not taken from: only it can say that what it sent was one version.
    fn take_from_slow(&mut self, idle: usize) {
        let chunk_bytes = self.chunk_bytes;
        let own = chunk_bytes as f64 / self.seats[idle].rate.max(1.0);
        let slow = (1..self.seats.len()).filter(|other| *other != idle && self.seats[*other].asked_bytes > 0);
        let by_time = |a: &usize, b: &usize| {
            let needs = |holder: usize| self.seats[holder].asked_bytes as f64 / self.seats[holder].rate.max(1.0);
            needs(*a).total_cmp(&needs(*b))
        };
        let Some(slow) = slow.max_by(by_time) else { return };
        let needs = self.seats[slow].asked_bytes as f64 / self.seats[slow].rate.max(1.0);
        if self.seats[idle].rate == 0.0 || needs < SLOWER * own + 1.0 {
            return;
        }
        let has_it = |id: &&u64| self.objects.get(id).is_some_and(|object| object.numbers.contains_key(&idle));
        let small: Vec<u64> = self.seats[slow].small.iter().rev().filter(has_it).copied().collect();
        if !small.is_empty() {
            small[..small.len().div_ceil(2)].iter().for_each(|id| self.release(*id, None));
            // Before the slow one takes them again.
            return self.give(idle);
        }
        let ids: Vec<u64> = self.seats[slow].ids.values().take(LOOKED_AT).copied().collect();
        for id in ids {
            let Some(object) = self.objects.get_mut(&id).filter(|object| object.numbers.contains_key(&idle)) else {
                continue;
            };
            let Work::Large(spans) = &mut object.work else { continue };
            if let Some(extent) = spans.hand_over(slow, idle, idle == LEAD) {
                self.relieve(slow, extent.length());
                self.seats[idle].asked_bytes += extent.length();
                let (theirs, is_again) = self.open(idle, id);
                return self.want(idle, is_again, &[], &[(theirs, extent)]);
            }
        }
    }
}
