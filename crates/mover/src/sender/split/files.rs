//! Small objects in the sender's book: runs of one directory, and which lane sends which.
//!
//! A lane prefers its own run, then one in its directory, then one in a directory that no other lane is in, then any free one,
//! and last half of another lane's.

use super::*;

impl Split {
    pub(super) fn add_small(&mut self, batch: Arc<Batch>, index: usize) {
        let directory = batch.objects[index].directory;
        match self.runs.back_mut() {
            Some(run)
                if Arc::ptr_eq(&run.batch, &batch)
                    && run.range.end == index
                    && run.owner.is_none()
                    && run.directory() == directory =>
            {
                run.range.end += 1;
            }
            _ => self.runs.push_back(Run { batch, range: index..index + 1, owner: None }),
        }
    }

    /// The run that suits a lane best: its own, one in its directory, one in a directory no other lane is in, any free
    /// one, and last half of another lane's.
    pub(super) fn choose_run(&mut self, lane: u32) -> Option<usize> {
        let here = self.lanes[&lane].directory;
        if let Some(own) = self.runs.iter().take(RUNS_LOOKED_AT).position(|run| run.owner == Some(lane)) {
            return Some(own);
        }
        let mut best: Option<(u8, usize)> = None;
        for (at, run) in self.runs.iter().enumerate().take(RUNS_LOOKED_AT).filter(|(_, run)| run.owner.is_none()) {
            let directory = Some(run.directory());
            let is_visited = self.lanes.iter().any(|(other, l)| *other != lane && l.directory == directory);
            let rank = match () {
                () if directory == here => 0,
                () if !is_visited => 1,
                () => 2,
            };
            if best.is_none_or(|(held, _)| rank < held) {
                best = Some((rank, at));
            }
        }
        match best {
            Some((_, at)) => Some(at),
            None => self.steal_run(),
        }
    }

    fn steal_run(&mut self) -> Option<usize> {
        let looked_at = self.runs.iter().take(RUNS_LOOKED_AT).enumerate();
        let (at, run) = looked_at.max_by_key(|(_, run)| run.range.len())?;
        let middle = run.range.start + run.range.len() / 2;
        if run.owner.is_none() || run.range.len() < 2 {
            return Some(at);
        }
        let half = Run { batch: run.batch.clone(), range: middle..run.range.end, owner: None };
        self.runs[at].range.end = middle;
        self.runs.push_front(half);
        Some(0)
    }

    /// `None` when nothing of the run is wanted any more: a receiver may settle what it was not sent.
    pub(super) fn claim_files(&mut self, lane: u32, at: usize) -> Option<Claim> {
        let run = &mut self.runs[at];
        let held = self.batches.get(&run.batch.first());
        let is_wanted = |index: usize| held.is_some_and(|held| held.states.get(index) == State::Wanted);
        while !run.range.is_empty() && !is_wanted(run.range.start) {
            run.range.start += 1;
        }
        if run.range.is_empty() {
            self.runs.remove(at);
            return None;
        }
        let mut bytes = 0;
        let mut end = run.range.start;
        while end < run.range.end && end - run.range.start < CLAIM_FILES && is_wanted(end) {
            let size = run.batch.objects[end].entry.size_bytes();
            let may_go = |bytes| self.bytes.may_send(bytes) && self.allowance.fits(bytes);
            if bytes > 0 && (bytes + size > self.claim_bytes || !may_go(bytes + size)) {
                break;
            }
            bytes += size;
            end += 1;
        }
        if !self.bytes.may_send(bytes) {
            return Some(Claim::NoCredit);
        }
        if !self.allowance.claim(bytes) {
            return Some(Claim::Spent);
        }
        let directory = run.directory();
        let (batch, range) = (run.batch.clone(), run.range.start..end);
        run.owner = Some(lane);
        run.range.start = end;
        if run.range.is_empty() {
            self.runs.remove(at);
        }
        self.bytes.sent(bytes);
        let first = batch.first();
        let held = self.batches.get_mut(&first).expect("its objects are open");
        range.clone().for_each(|index| _ = held.states.set(index, State::Sending));
        self.own_large(lane, None);
        self.lanes.get_mut(&lane).expect("entered by claim").directory = Some(directory);
        self.note_claimed(lane, first, range.clone());
        Some(Claim::Work(Work::Files { batch, range }))
    }

    pub(super) fn note_claimed(&mut self, lane: u32, first: u64, range: Range<usize>) {
        let batches = &self.batches;
        let state = self.lanes.entry(lane).or_default();
        if state.claimed.len() >= 64 {
            let is_open =
                |held: &Held, range: &Range<usize>| held.states.first_of(&[State::Sending], range.clone()).is_some();
            state.claimed.retain(|(first, range)| batches.get(first).is_some_and(|held| is_open(held, range)));
        }
        state.claimed.push((first, range));
    }

    /// `is_asked` when the receiver has not got it, whatever it said of it before.
    pub(super) fn take_back_small(&mut self, id: u64, is_asked: bool) {
        let Some((held, index)) = self.find(id) else { return };
        let state = held.states.get(index);
        if state != State::Sending && !(is_asked && state == State::Buffered) {
            return;
        }
        // An object too long for a pack travels in chunks also when it is one chunk long.
        if let Some(large) = self.large.get(&id) {
            let is_one_chunk = large.next_start.is_none() && large.size_bytes <= self.chunk_bytes;
            if is_one_chunk && (is_asked || large.in_flight.contains_key(&0)) {
                self.take_back_extent(id, Extent::new(0, large.size_bytes));
            }
            return;
        }
        let batch = held.batch.clone();
        if state == State::Sending {
            self.bytes.acknowledged(batch.objects[index].entry.size_bytes());
        }
        self.set(id, State::Wanted);
        self.add_small(batch, index);
    }
}
