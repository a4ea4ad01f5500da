//! One run of the command: it cuts the source into bundles, hands them out as slices, takes them back, and has one host
//! go over everything in the end.
//!
//! Production code: `cluster::Board`. Around it this does what `daemon::crew` does (`next`, `settle`, `State::task`,
//! `commit` and `lose`, `Carrier`), without its threads and sockets: two slices for each sending host, the same
//! patience, and every slice told of all that were lost before it, until one that was told has succeeded.
//!
//! One thing more comes to the board than there: the late answer of a slice that was given up. It has to refuse that by
//! itself.
//!
//! Not here: hosts that get no more after five losses, ranges of files, and endpoints that are drained.

use super::etcd::Etcd;
use super::ground::Part;
use super::judge::{Judge, ORDER};
use super::mirror::{Mirror, fresh};
use super::slice::{Order, Slice, Status};
use crate::random::Random;
use cluster::{Board, Commit, Epoch, Page};
use model::JobId;
use model::options::INSTEAD_OF_MAX;
use std::collections::BTreeMap;
use std::sync::Arc;

const LANES: usize = 2;
const LEASE_MS: u64 = 15_000;
const STALL_MS: u64 = 60_000;
const PAUSE_FIRST_MS: u64 = 2_000;
const LOST_ONE_IN: u64 = 10;

/// What a command sees of the world while it does something.
pub struct Around<'a> {
    /// By the clock of its host.
    pub now_ms: u64,
    pub is_calm: bool,
    pub source: &'a [u64],
    /// Its host and another one reach each other.
    pub reaches: &'a dyn Fn(usize) -> bool,
    pub random: &'a mut Random,
    pub judge: &'a mut Judge,
    pub slices: &'a mut BTreeMap<JobId, Slice>,
    /// Orders on their way.
    pub post: &'a mut Vec<Order>,
    /// The journal in the files of its host: open slices.
    pub kept: &'a mut Vec<JobId>,
    pub etcd: &'a mut Etcd,
}

/// A slice that was handed out.
struct Out {
    order: Order,
    /// None of the one that goes over everything.
    epoch: Option<Epoch>,
    parts: Vec<usize>,
    /// The versions that the source had then.
    least: Vec<u64>,
    heard_ms: u64,
    moved_ms: u64,
    steps: u64,
    told: Option<Status>,
    is_lost: bool,
}

/// A sending host that lost something waits.
#[derive(Clone, Default)]
struct Pause {
    until_ms: u64,
    losses: u32,
}

pub struct Command {
    pub at: usize,
    /// Given when all faults had ended.
    pub is_last: bool,
    /// Whether everything was delivered.
    pub ended: Option<bool>,
    mirror: Option<Mirror>,
    board: Board<Arc<Part>>,
    out: BTreeMap<JobId, Out>,
    lost: Vec<JobId>,
    /// How often each bundle counted.
    counted: Vec<u32>,
    pauses: Vec<Pause>,
    receivers: usize,
    cost_max: u64,
    turn: usize,
}

impl Command {
    /// At a host, with what earlier commands left open.
    pub fn new(at: usize, parts: Vec<Part>, (senders, receivers): (usize, usize), left: Vec<JobId>) -> Command {
        let mut board = Board::default();
        let counted = vec![0; parts.len()];
        for part in parts {
            let weight = part.weight;
            board.add(Arc::new(part), weight);
        }
        board.complete();
        Command {
            at,
            is_last: false,
            ended: None,
            mirror: None,
            board,
            out: BTreeMap::new(),
            lost: left,
            counted,
            pauses: vec![Pause::default(); senders],
            receivers,
            cost_max: 0,
            turn: 0,
        }
    }

    /// Keeps its journal where other hosts see it too.
    pub fn with_mirror(mut self, mirror: Option<Mirror>) -> Command {
        self.mirror = mirror;
        self
    }

    /// Pages of what is worth so much, and of one bundle at least.
    pub fn with_pages(mut self, cost_max: u64) -> Command {
        self.cost_max = cost_max;
        self
    }

    pub fn step(&mut self, around: &mut Around<'_>) {
        if around.is_calm || around.random.one_in(3) {
            self.attend(around);
        }
        if self.ended.is_none() {
            self.look(around);
            self.settle(around);
        }
        match self.board.is_over() {
            _ if self.ended.is_some() => {}
            true => self.go_over_all(around),
            false => self.hand_out(around),
        }
    }

    /// Sees to the journal at the coordinator. Whoever hears nothing of it goes on.
    fn attend(&mut self, around: &mut Around<'_>) {
        let Some(mirror) = &mut self.mirror else { return };
        let _ = mirror.attend(around.etcd, around.random);
        if mirror.has_other() {
            self.end(false, around);
        }
    }

    /// What another command of the job has begun is lost here: whoever is handed something is told of it.
    fn hear(&mut self, around: &mut Around<'_>) {
        let found = self.mirror.as_mut().map_or_else(Vec::new, Mirror::found);
        around.kept.extend(&found);
        self.lost.extend(found);
    }

    /// Asks for each slice, one that was given up included.
    fn look(&mut self, around: &mut Around<'_>) {
        for (job, out) in &mut self.out {
            let is_heard = around.is_calm || !around.random.one_in(LOST_ONE_IN);
            if !is_heard || out.told.is_some() || !(around.reaches)(out.order.sender) {
                continue;
            }
            let Some(slice) = around.slices.get(job) else { continue };
            out.heard_ms = around.now_ms;
            if out.steps != slice.steps {
                (out.steps, out.moved_ms) = (slice.steps, around.now_ms);
            }
            out.told = Some(slice.status).filter(|status| *status != Status::Open);
        }
    }

    fn settle(&mut self, around: &mut Around<'_>) {
        let told: Vec<_> = self.out.iter().filter_map(|(job, out)| Some((*job, out.told?))).collect();
        for (job, status) in told {
            // Between an answer and what follows from it another lane may take the slice away.
            if self.ended.is_none() && (around.is_calm || !around.random.one_in(3)) {
                self.take_in(job, status, around);
            }
        }
        let waiting = self.out.iter().filter(|(_, out)| out.told.is_none() && !out.is_lost);
        let open: Vec<_> = waiting.map(|(job, _)| *job).collect();
        for job in open {
            let out = &self.out[&job];
            let is_silent = around.now_ms - out.heard_ms >= LEASE_MS;
            let is_stuck = around.now_ms - out.moved_ms >= STALL_MS;
            let is_taken = out.epoch.is_some_and(|epoch| !self.board.holds(epoch));
            if !is_silent && (is_stuck || is_taken) {
                cancel(&out.order, around);
            }
            if is_silent || is_stuck || is_taken {
                self.lose(job, around);
            }
        }
    }

    /// A slice has ended.
    fn take_in(&mut self, job: JobId, status: Status, around: &mut Around<'_>) {
        let was_lost = self.out.get(&job).is_some_and(|out| out.is_lost);
        if status == Status::Failed {
            self.lose(job, around);
        }
        let Some(out) = self.out.remove(&job) else { return };
        match (out.epoch, status) {
            // Nobody waits for the answer of one that went over everything and was given up.
            (None, _) if was_lost => {}
            (None, Status::Failed) => self.end(false, around),
            (None, _) => {
                self.commit(&out, status, around);
                self.end(status == Status::Succeeded, around);
            }
            (Some(_), Status::Failed) => {}
            (Some(epoch), _) if self.counts(&out, epoch, around) => self.commit(&out, status, around),
            (Some(_), _) => {}
        }
    }

    /// Whether the board lets a slice count.
    fn counts(&mut self, out: &Out, epoch: Epoch, around: &mut Around<'_>) -> bool {
        let was_held = self.board.holds(epoch);
        let said = self.board.commit(epoch, around.now_ms);
        let job = out.order.job;
        if (said == Commit::Done) != was_held {
            around.judge.breaks(format!("I3: the board says {said:?} of {job}, which it holds: {was_held}"));
        }
        if said == Commit::Done && self.board.commit(epoch, around.now_ms) != Commit::Done {
            around.judge.breaks(format!("I3: whoever did not hear that {job} counts hears that it does not"));
        }
        said == Commit::Done
    }

    /// What follows from a slice that counts.
    fn commit(&mut self, out: &Out, status: Status, around: &mut Around<'_>) {
        let Order { job, sender, instead_of, files, .. } = &out.order;
        for part in &out.parts {
            self.counted[*part] += 1;
            if self.counted[*part] > 1 {
                around.judge.breaks(format!("I3: bundle {part} counts twice, now by {job}"));
            }
        }
        self.pauses[*sender] = Pause::default();
        let mut over = instead_of.clone();
        if status == Status::Succeeded {
            around.judge.counts(*job, files, &out.least);
            over.push(*job);
        } else {
            self.lost.push(*job);
        }
        self.lost.retain(|lost| !over.contains(lost));
        around.kept.retain(|kept| !over.contains(kept));
        if let Some(mirror) = &mut self.mirror {
            mirror.keep(around.kept);
        }
    }

    /// A slice is taken away from its host, which may go on with it.
    fn lose(&mut self, job: JobId, around: &mut Around<'_>) {
        let Some(out) = self.out.get_mut(&job) else { return };
        if std::mem::replace(&mut out.is_lost, true) {
            return;
        }
        let pause = &mut self.pauses[out.order.sender];
        pause.losses += 1;
        pause.until_ms = around.now_ms + (PAUSE_FIRST_MS << pause.losses.min(6));
        match out.epoch {
            Some(epoch) => self.lose_bundles(epoch),
            None => self.lost.push(job),
        }
    }

    fn lose_bundles(&mut self, epoch: Epoch) {
        if self.board.lose(epoch) {
            let of_epoch = self.out.iter().find(|(_, out)| out.epoch == Some(epoch));
            self.lost.extend(of_epoch.map(|(job, _)| *job));
        }
    }

    fn hand_out(&mut self, around: &mut Around<'_>) {
        self.hear(around);
        let claimants = self.pauses.len() * LANES;
        for sender in 0..self.pauses.len() {
            let busy = self.out.values().filter(|out| out.order.sender == sender && !out.is_lost).count();
            if busy >= LANES || self.pauses[sender].until_ms > around.now_ms || !self.has_number() {
                continue;
            }
            if let Some(late) = self.board.late(sender, around.now_ms) {
                self.lose_bundles(late);
            }
            let pages = (claimants, 0..self.cost_max);
            if let Some(page) = self.board.claim(sender, pages, around.now_ms, &mut |_| true) {
                self.hand(sender, Some(&page), around);
            }
        }
    }

    /// All bundles are done or put aside: one host does everything once more.
    fn go_over_all(&mut self, around: &mut Around<'_>) {
        let is_under_way = self.out.values().any(|out| out.epoch.is_none() && !out.is_lost);
        if !is_under_way && self.has_number() {
            self.hear(around);
            self.turn += 1;
            self.hand(self.turn % self.pauses.len(), None, around);
        }
    }

    fn has_number(&self) -> bool {
        self.mirror.as_ref().is_none_or(Mirror::is_ready)
    }

    /// Hands out a page, or everything; the journal has it before a host hears of it.
    fn hand(&mut self, sender: usize, page: Option<&Page<Arc<Part>>>, around: &mut Around<'_>) {
        debug_assert!(self.lost.len() <= INSTEAD_OF_MAX, "more than a slice can be told of");
        let listed = self.mirror.as_mut().map(|mirror| mirror.take().expect("one is ready"));
        let job = listed.unwrap_or_else(|| fresh(around.random));
        around.kept.push(job);
        let parts: &[Arc<Part>] = match page {
            Some(page) => &page.bundles,
            None => &[],
        };
        let files: Vec<usize> = match page {
            Some(_) => parts.iter().flat_map(|part| part.files.clone()).collect(),
            None => (0..around.source.len()).collect(),
        };
        let receiver = self.pauses.len() + around.random.below(self.receivers as u64) as usize;
        let order = Order { job, sender, receiver, instead_of: self.lost.clone(), files };
        match around.is_calm || !around.random.one_in(LOST_ONE_IN) {
            true if (around.reaches)(sender) => around.post.push(order.clone()),
            true => {}
            false => around.judge.fire(ORDER),
        }
        let out = Out {
            order,
            epoch: page.map(|page| page.epoch),
            parts: parts.iter().map(|part| part.number).collect(),
            least: around.source.to_vec(),
            heard_ms: around.now_ms,
            moved_ms: around.now_ms,
            steps: 0,
            told: None,
            is_lost: false,
        };
        self.out.insert(job, out);
    }

    /// The command ends. Where it fails, slices that it waits for are stopped, if that can be said.
    fn end(&mut self, is_done: bool, around: &mut Around<'_>) {
        self.ended = Some(is_done);
        match is_done {
            true => around.kept.clear(),
            false => self.out.values().filter(|out| !out.is_lost).for_each(|out| cancel(&out.order, around)),
        }
        if let Some(mirror) = &mut self.mirror {
            mirror.close(around.etcd, is_done);
        }
    }
}

fn cancel(order: &Order, around: &mut Around<'_>) {
    if (around.reaches)(order.sender)
        && let Some(slice) = around.slices.get_mut(&order.job)
    {
        slice.is_cancelled = true;
    }
}
