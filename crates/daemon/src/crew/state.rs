//! What is known of a job on several hosts while it runs: who has what, who failed, what was lost.
//!
//! Invariant: a slice is lost from when it is taken away until one that was told of it has succeeded.

use super::journal::{self, Journal};
use super::slice::{STALL, Task};
use super::work::Work;
use crate::endpoints::Endpoint;
use crate::error::{Error, Result};
use crate::hand_in::{OrderNews, Told, status_of};
use cluster::{Board, Bundle, Commit, Epoch, Page, Weight};
use model::name::Escaped;
use model::options::{Buffer, INSTEAD_OF_MAX, Slice};
use model::order::{Role, Status};
use model::selection::Listed;
use model::{Exit, Extent, JobId, Location, Pin};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use transfer::HostShare;

/// Slices that a host has at once, at either end: while one begins or ends, the other moves data.
const LANES: usize = 2;
/// Half of what an endpoint carries out at once for one client, so that another job has a place.
const LANES_MAX: usize = 8;
/// Pauses of a host that lost a slice: the first, which doubles, and how many in a row it has.
const PAUSE_FIRST_MS: u64 = 2_000;
pub const FAILURES_MAX: u32 = 5;

/// What is worth less says nothing of a host's rate.
const RATED_MIN: u64 = 1 << 20;
/// Of a file in ranges, within the storage, at least.
const COPIED_PER_SECOND: u64 = 50 << 20;

pub struct Host {
    pub endpoint: Endpoint,
    pub share: HostShare,
    pub role: Role,
    /// It finishes what it has.
    pub is_leaving: bool,
    /// Threads that serve it.
    pub lanes: usize,
    /// Bytes that it is worth in a millisecond, by its last slice.
    pub rate: u64,
    /// The cost of the largest slice that it has brought.
    pub largest: u64,
    pub failures: u32,
    pub not_before_ms: u64,
    /// The receiver with which it could not do its part at all, if there was one.
    hopeless_with: Option<usize>,
    /// Why nothing is given to it any more.
    pub out: Option<Error>,
}

impl Host {
    pub fn new(endpoint: Endpoint, is_fetched_from: bool) -> Host {
        Host {
            share: HostShare { name: endpoint.name.clone(), ..HostShare::default() },
            endpoint,
            role: if is_fetched_from { Role::Fetches } else { Role::Sends },
            is_leaving: false,
            lanes: 0,
            rate: 0,
            largest: 0,
            failures: 0,
            not_before_ms: 0,
            hopeless_with: None,
            out: None,
        }
    }

    /// Whether it is given something.
    pub fn takes(&self) -> bool {
        self.out.is_none() && !self.is_leaving
    }
}

/// A host that receives.
pub struct Receiver {
    pub endpoint: Endpoint,
    /// Slices that are on their way to it.
    pub tasks: usize,
    is_leaving: bool,
    failures: u32,
    not_before_ms: u64,
}

impl Receiver {
    pub fn new(endpoint: Endpoint) -> Receiver {
        Receiver { endpoint, tasks: 0, is_leaving: false, failures: 0, not_before_ms: 0 }
    }
}

/// What a slice is of.
pub enum Part {
    Page(Page<Arc<Bundle>>),
    /// Nothing: it takes over from as many of those that were lost as it can be told of.
    Nothing,
    /// Everything, once more.
    All,
}

pub struct State {
    pub board: Board<Arc<Bundle>>,
    pub journal: Journal,
    pub hosts: Vec<Host>,
    pub receivers: Vec<Receiver>,
    /// Those that are open, and what they have shown: each of at most so many bytes; without a number, of everything once more.
    running: BTreeMap<JobId, (Option<u64>, OrderNews)>,
    slices: BTreeMap<Epoch, JobId>,
    pub lost: Vec<JobId>,
    /// All that were lost, and whose marks lie at the destination.
    pub voided: BTreeSet<JobId>,
    pub listed: Weight,
    /// Hosts know ranges of files.
    pub has_ranges: bool,
    /// Of files in ranges: what was listed, and what hosts have brought.
    pub ranged_bytes: u64,
    brought_bytes: u64,
    /// Of slices that are done: what they were of, whoever had delivered it.
    reached_bytes: u64,
    pub is_listed: bool,
    pub failed: Option<Error>,
}

impl State {
    pub fn new(journal: Journal, senders: Vec<Endpoint>, receivers: Vec<Endpoint>, do_fetch: bool) -> State {
        State {
            board: Board::default(),
            lost: journal.left(),
            voided: BTreeSet::new(),
            journal,
            hosts: senders.into_iter().map(|one| Host::new(one, do_fetch)).collect(),
            receivers: receivers.into_iter().map(Receiver::new).collect(),
            running: BTreeMap::new(),
            slices: BTreeMap::new(),
            listed: Weight::default(),
            has_ranges: false,
            ranged_bytes: 0,
            brought_bytes: 0,
            reached_bytes: 0,
            is_listed: false,
            failed: None,
        }
    }

    /// Slices that each host has at once.
    pub fn lanes(&self) -> usize {
        let senders = self.hosts.iter().filter(|host| host.takes()).count().max(1);
        (LANES * self.receivers.len()).div_ceil(senders).clamp(LANES, LANES_MAX)
    }

    /// An order for a host, written down as open.
    pub fn task(&mut self, work: &Work<'_>, host: usize, part: Part, now_ms: u64) -> Result<Task> {
        let mut spec = work.spec.clone();
        let is_all = matches!(part, Part::All);
        let page = if let Part::Page(page) = part { Some(page) } else { None };
        let range = page.as_ref().and_then(|page| range_of(&page.bundles));
        let paths = page.as_ref().map(|page| match (range, &page.bundles[..]) {
            (Some(_), [first, ..]) => first.paths.clone(),
            (_, bundles) => bundles.iter().flat_map(|bundle| bundle.paths.iter().cloned()).collect(),
        });
        let paths = paths.or_else(|| (!is_all).then(Vec::new));
        let listed = paths.map(Listed::new).transpose();
        spec.choice.listed = listed.map_err(|(path, _)| {
            let path = Escaped(&path).to_string();
            Error::new(Exit::Fatal, format!("{}: a path that leads elsewhere: {path}", self.hosts[host].share.name))
        })?;
        self.voided.extend(&self.lost);
        spec.options.slice = Some(Arc::new(Slice {
            instead_of: self.lost.iter().copied().take(INSTEAD_OF_MAX).collect(),
            run: (range.is_some() || is_all && self.has_ranges).then(|| self.journal.run()),
            range,
        }));
        // What waits in a buffer is brought to its place by nobody who could be told of a take-over.
        spec.options.buffer = Buffer::Never;
        let Host { endpoint, role, .. } = &self.hosts[host];
        let (sender, role) = (endpoint.clone(), *role);
        let number = self.receiver_for(host, page.is_none(), now_ms);
        let receiver = self.receivers[number].endpoint.clone();
        let at = |endpoint: &Endpoint, of: &Location| Location::Named {
            name: endpoint.name.clone(),
            path: of.path().to_vec(),
        };
        spec.sources = vec![at(&sender, &spec.sources[0])];
        spec.destination = at(&receiver, &spec.destination);
        let job = self.journal.begin()?;
        (work.begun)(job);
        let (executor, peer) = if role == Role::Sends { (sender, receiver) } else { (receiver, sender) };
        let (epoch, weight) = page.map_or((None, Weight::default()), |page| (Some(page.epoch), page.weight));
        // Where a host was lost, the last one copies what is there of ranges within its storage.
        let copying = Duration::from_secs(if is_all { self.ranged_bytes / COPIED_PER_SECOND } else { 0 });
        let patience = STALL + copying;
        if let Some(epoch) = epoch {
            self.slices.insert(epoch, job);
        }
        self.receivers[number].tasks += 1;
        Ok(Task { host, receiver: number, epoch, job, spec, executor, peer, role, weight, since_ms: now_ms, patience })
    }

    /// Whether the slice counts.
    pub fn commit(&mut self, task: &Task, told: &Told, now_ms: u64) -> bool {
        let has_moved = told.ended.as_ref().is_some_and(|ended| ended.bytes_sent > 0 || ended.files_done > 0);
        if let Some(epoch) = task.epoch.filter(|_| !has_moved) {
            self.board.was_there(epoch);
        }
        let is_done = task.epoch.is_none_or(|epoch| self.board.commit(epoch, now_ms) == Commit::Done);
        if !is_done {
            return false;
        }
        let host = &mut self.hosts[task.host];
        (host.failures, host.not_before_ms) = (0, 0);
        self.receivers[task.receiver].failures = 0;
        host.largest = host.largest.max(task.weight.cost());
        // A small one says how long it takes to begin.
        if host.rate == 0 || task.weight.cost() >= RATED_MIN {
            host.rate = task.weight.cost() / now_ms.saturating_sub(task.since_ms).max(1);
        }
        host.share.slices += 1;
        let is_range = task.spec.options.slice.as_ref().is_some_and(|slice| slice.range.is_some());
        if let Some(ended) = &told.ended {
            let bytes = match is_range {
                true if told.status() == Status::Succeeded => task.weight.bytes,
                true => 0,
                // What others brought of a file counts for them.
                false if task.epoch.is_none() => ended.bytes.saturating_sub(self.brought_bytes),
                false => ended.bytes,
            };
            self.brought_bytes += if is_range { bytes } else { 0 };
            let reached = if told.status() == Status::Succeeded { task.weight.bytes } else { bytes };
            self.reached_bytes = self.reached_bytes.saturating_add(reached.min(task.weight.bytes));
            // Whatever a host says of itself.
            host.share.files = host.share.files.saturating_add(ended.files_done);
            host.share.bytes = host.share.bytes.saturating_add(bytes);
            host.share.bytes_sent = host.share.bytes_sent.saturating_add(ended.bytes_sent);
            if bytes > 0 {
                host.share.bottleneck = Escaped(ended.bottleneck.as_bytes()).to_string();
            }
        }
        let mut over = task.spec.options.slice.as_ref().map_or(Vec::new(), |slice| slice.instead_of.clone());
        match told.status() {
            Status::Succeeded => over.push(task.job),
            // What it could not finish lies in its staging.
            _ => self.lost.push(task.job),
        }
        self.lost.retain(|job| !over.contains(job));
        self.journal.remove(&over);
        true
    }

    /// The receiver that has the least to do; hosts begin with different ones, and pass over one that failed a moment ago. Where all wait
    /// for one, one that did not fail is better.
    fn receiver_for(&self, host: usize, is_alone: bool, now_ms: u64) -> usize {
        let pause = |number: &usize| self.receivers[*number].not_before_ms.saturating_sub(now_ms);
        let (all, are_all_wanted) = (0..self.receivers.len(), self.are_all_receivers_wanted());
        let key = |number: &usize| {
            let one = &self.receivers[*number];
            let is_spared = one.is_leaving && !are_all_wanted;
            let failures = if is_alone { one.failures } else { 0 };
            (is_spared, pause(number), failures, one.tasks, (host + number) % self.receivers.len())
        };
        all.min_by_key(key).unwrap_or(0)
    }

    /// Whether something can be sent now.
    pub fn has_receiver(&self, now_ms: u64) -> bool {
        let are_all_wanted = self.are_all_receivers_wanted();
        let takes = |one: &Receiver| one.not_before_ms <= now_ms && (are_all_wanted || !one.is_leaving);
        self.receivers.iter().any(takes)
    }

    /// Those that leave too: there are no others, or nothing arrives at these.
    fn are_all_receivers_wanted(&self) -> bool {
        self.receivers.iter().all(|one| one.is_leaving || one.failures >= 2 * FAILURES_MAX)
    }

    /// The host that does something while the others wait; nothing while it is to pause, or nothing can be sent.
    ///
    /// # Errors
    /// When none is left.
    pub fn lone(&self, turn: usize, now_ms: u64) -> Result<Option<usize>> {
        let usable: Vec<_> = (0..self.hosts.len()).filter(|host| self.hosts[*host].out.is_none()).collect();
        let pause = |host: usize| self.hosts[host].not_before_ms.saturating_sub(now_ms);
        let host = usable.iter().copied().min_by_key(|host| {
            let one = &self.hosts[*host];
            (pause(*host), one.is_leaving, one.failures, (host + turn) % usable.len())
        });
        let host = host.ok_or_else(|| Error::new(Exit::Temporary, "no host is left that works on this job"))?;
        Ok(Some(host).filter(|host| pause(*host) == 0 && self.has_receiver(now_ms)))
    }

    /// What another command of the same job has begun meanwhile is lost here.
    pub fn hear(&mut self) {
        let found = self.journal.found();
        self.lost.extend(found);
    }

    /// Whether one slice more could be taken over, should all be lost. One that succeeds makes room; where none is under way, the job
    /// cannot go on.
    pub fn has_room(&mut self) -> bool {
        self.hear();
        let is_full = self.journal.is_full();
        if is_full && self.receivers.iter().all(|one| one.tasks == 0) {
            self.fail(journal::full(INSTEAD_OF_MAX));
        }
        !is_full
    }

    /// Those whose files a newcomer has to see, of one side: first the ones that did not fail lately.
    pub fn known(&self, is_receiver: bool) -> Vec<Endpoint> {
        let mut known: Vec<(u32, &Endpoint)> = match is_receiver {
            true => self.receivers.iter().map(|one| (one.failures, &one.endpoint)).collect(),
            false => {
                let hosts = self.hosts.iter().filter(|host| host.out.is_none());
                hosts.map(|host| (host.failures, &host.endpoint)).collect()
            }
        };
        known.sort_by_key(|(failures, _)| *failures);
        known.into_iter().map(|(_, endpoint)| endpoint.clone()).collect()
    }

    /// Those that leave get no more from here on, unless they are all there are; tells whose threads have to be started again.
    pub fn leave(&mut self, senders: Option<&[Pin]>, receivers: Option<&[Pin]>, tell: &dyn Fn(&str)) {
        if let Some(leaving) = receivers {
            let is_leaving = |receiver: &Receiver| leaving.contains(&receiver.endpoint.pin);
            self.receivers.iter_mut().for_each(|receiver| receiver.is_leaving = is_leaving(receiver));
        }
        let Some(leaving) = senders else { return };
        let is_alone = !self.hosts.iter().any(|host| host.out.is_none() && !leaving.contains(&host.endpoint.pin));
        for host in &mut self.hosts {
            let is_leaving = !is_alone && leaving.contains(&host.endpoint.pin);
            if is_leaving && !host.is_leaving {
                tell(&format!("{} is drained: it finishes what it has", host.share.name));
            }
            host.is_leaving = is_leaving;
        }
    }

    /// Notes that a slice could not go on with its receiver.
    pub fn blame_receiver(&mut self, task: &Task, why: &str, now_ms: u64, tell: &dyn Fn(&str)) {
        self.hosts[task.host].share.lost += 1;
        let receiver = &mut self.receivers[task.receiver];
        receiver.failures += 1;
        receiver.not_before_ms = now_ms + (PAUSE_FIRST_MS << receiver.failures.min(6));
        tell(&format!("{}: {why}; the part goes another way", receiver.endpoint.name));
        if self.receivers.iter().all(|receiver| receiver.failures >= 2 * FAILURES_MAX) {
            self.fail(
                Error::new(Exit::Temporary, format!("nothing arrives at the destination; the last: {why}"))
                    .hint("what is delivered stays; the same command goes on"),
            );
        }
    }

    /// Notes that a host has not done what it was told to. What another try does not mend, it is not asked for again.
    pub fn blame(&mut self, task: &Task, why: Error, now_ms: u64, tell: &dyn Fn(&str)) {
        let (receivers, host) = (self.receivers.len(), &mut self.hosts[task.host]);
        let name = &host.share.name;
        host.share.lost += 1;
        let is_hopeless =
            matches!(why.exit, Exit::Fatal | Exit::Refused | Exit::Usage | Exit::Authentication | Exit::Version);
        // Unless it may be for the receiver.
        let is_certain = receivers == 1 || host.hopeless_with.is_some_and(|other| other != task.receiver);
        if is_hopeless {
            host.hopeless_with = Some(task.receiver);
            let receiver = &mut self.receivers[task.receiver];
            receiver.failures += 1;
            receiver.not_before_ms = now_ms + (PAUSE_FIRST_MS << receiver.failures.min(6));
        }
        host.failures = if is_hopeless && is_certain { FAILURES_MAX } else { host.failures + 1 };
        host.not_before_ms = now_ms + (PAUSE_FIRST_MS << host.failures.min(6));
        let others = if task.epoch.is_some() { "; others take its part over" } else { "" };
        let message = format!("{name}: {}", why.message);
        tell(&format!("{message}{others}"));
        if host.failures >= FAILURES_MAX && host.out.is_none() {
            tell(&format!("{name} gets no more of this job"));
            host.out = Some(Error { message, ..why });
        }
        // Those that leave are all there are; whoever tells that they do may be the one that is out.
        if !self.hosts.iter().any(Host::takes) {
            self.hosts.iter_mut().for_each(|host| host.is_leaving = false);
        }
        if self.hosts.iter().all(|host| host.out.is_some()) {
            let last = self.hosts[task.host].out.clone().expect("it is out, as all are");
            let message = format!("no host is left that works on this job; the last: {}", last.message);
            let hint = last
                .hint
                .unwrap_or("what is delivered stays; once that is mended, the same command goes on".to_owned());
            self.fail(Error::new(last.exit, message).hint(hint));
        }
    }

    pub fn fail(&mut self, error: Error) {
        self.failed.get_or_insert(error);
    }

    /// Takes a slice away from its host, which may go on with it.
    pub fn lose(&mut self, epoch: Epoch) {
        if self.board.lose(epoch)
            && let Some(job) = self.slices.remove(&epoch)
        {
            self.lost.push(job);
        }
    }

    /// Nobody has begun it.
    pub fn give_back(&mut self, task: &Task) {
        if let Some(epoch) = task.epoch {
            self.board.give_back(epoch);
            self.slices.remove(&epoch);
        }
        self.lost.retain(|job| *job != task.job);
        self.journal.remove(&[task.job]);
    }

    /// What a slice has shown of itself.
    pub fn note(&mut self, task: &Task, news: &OrderNews) {
        self.running.insert(task.job, (task.epoch.map(|_| task.weight.bytes), news.clone()));
    }

    pub fn forget(&mut self, slice: JobId) {
        self.running.remove(&slice);
    }

    /// All hosts together.
    pub fn news(&self) -> OrderNews {
        let running = || self.running.values().map(|(_, news)| news);
        let sum = |of: fn(&OrderNews) -> u64| running().map(of).fold(0, u64::saturating_add);
        let done =
            |of: fn(&HostShare) -> u64| self.hosts.iter().map(|host| of(&host.share)).fold(0, u64::saturating_add);
        let mut bytes_listed = self.listed.bytes;
        let mut bytes_done = done(|share| share.bytes);
        let mut bytes_reached = self.reached_bytes.max(bytes_done);
        for (bytes_max, news) in self.running.values() {
            match bytes_max {
                Some(most) => {
                    bytes_done = bytes_done.saturating_add(news.bytes_done.min(*most));
                    bytes_reached = bytes_reached.saturating_add(news.bytes_reached.min(*most));
                }
                // It skips what others have delivered, and completes what they have brought of files.
                None => {
                    bytes_listed = bytes_listed.max(news.bytes_listed);
                    bytes_done = bytes_done.saturating_add(news.bytes_done.saturating_sub(self.brought_bytes));
                    bytes_reached = bytes_reached.max(news.bytes_reached);
                }
            }
        }
        // Those that have begun say how it goes.
        let waits = !self.running.is_empty() && running().all(|news| status_of(news) == Status::Queued);
        let status = if waits { Status::Queued } else { Status::Running };
        OrderNews {
            status: status as u32,
            files_listed: self.listed.files,
            bytes_listed,
            is_listing_complete: self.is_listed,
            files_done: done(|share| share.files).saturating_add(sum(|news| news.files_done)),
            bytes_done: bytes_done.min(bytes_listed),
            bytes_per_second: sum(|news| news.bytes_per_second),
            bytes_reached: bytes_reached.min(bytes_listed),
            bottleneck: self.pace(),
            ..OrderNews::default()
        }
    }

    /// What is waited for: what limits the part that moves most.
    fn pace(&self) -> String {
        let parts = self.running.len();
        match self.running.values().map(|(_, news)| news).max_by_key(|news| news.bytes_per_second) {
            Some(news) if !news.bottleneck.is_empty() => format!("{parts} parts, the fastest {}", news.bottleneck),
            Some(_) => format!("{parts} parts begin"),
            None if self.is_listed => "no part is under way".to_owned(),
            None => "the source is being listed".to_owned(),
        }
    }
}

/// Bundles that are ranges are those of one file, one after the other.
fn range_of(bundles: &[Arc<Bundle>]) -> Option<Extent> {
    let (first, last) = (bundles.first()?.range?, bundles.last()?.range?);
    Some(Extent::new(first.start, last.end))
}

#[cfg(test)]
mod tests;
