//! The queue itself: its jobs, and the few ways in which one changes.
//!
//! Invariant: a job is in a lane exactly while it is queued, and holds slots exactly while an executor may be at work on it.

use crate::book::{Book, Entry};
use crate::calendar::{self, Calendar, Now};
use crate::job::{Common, Job, State, Work};
use crate::pool::Pool;
use crate::schedule::Schedules;
use crate::share::Decayed;
use crate::slots::{Endpoint, Health, Pair};
use crate::status::{Reason, Status, may_follow};
use model::order::Role;
use model::{Class, JobId};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

#[derive(Clone, Debug)]
pub struct Limits {
    /// In eighths: of an endpoint, of a pair, and what the class high has of its own in both.
    pub of_endpoint: u32,
    pub of_pair: u32,
    pub of_high: u32,
    /// Open jobs, in all and of one owner.
    pub jobs_max: usize,
    pub of_owner_max: usize,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { of_endpoint: 32, of_pair: 16, of_high: 8, jobs_max: 1_000_000, of_owner_max: 100_000 }
    }
}

/// What the owner of the queue has to do, once what led to it is written down.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Action {
    /// Give the order of this attempt to the endpoint.
    HandIn { id: JobId, attempt: u32, role: Role, endpoint: Arc<str> },
    /// Give the order the rate that its job has now.
    SetRate { id: JobId, attempt: u32, endpoint: Arc<str> },
    /// Have the endpoint stop the order; what it verified is kept.
    Stop { id: JobId, attempt: u32, endpoint: Arc<str> },
    /// Have a waiting order tried at once, with a new warrant.
    Renew { id: JobId, attempt: u32, endpoint: Arc<str> },
    /// The end was taken note of.
    Forget { id: JobId, attempt: u32, endpoint: Arc<str> },
    /// Have the other endpoint let nobody in any more for this order, whatever its executor does.
    Revoke { id: JobId, attempt: u32, endpoint: Arc<str> },
    /// Ask the endpoint what it has of ours; `heard`, then `reached` or `unreached`, is the answer.
    Probe { endpoint: Arc<str> },
}

pub(crate) type Place = (Reverse<i8>, u64, JobId);
/// Class, share, pair.
pub(crate) type Lane = (Class, usize, usize);

pub struct Queue {
    pub(crate) limits: Limits,
    pub(crate) calendar: Box<dyn Calendar + Send>,
    pub(crate) jobs: Book,
    pub(crate) commons: Pool<Common>,
    pub(crate) states: Pool<State>,
    pub(crate) lanes: BTreeMap<Lane, BTreeSet<Place>>,
    pub(crate) shares: Vec<Share>,
    share_numbers: HashMap<(Arc<str>, Arc<str>), usize>,
    /// Numbers of forgotten shares, for others.
    free_shares: Vec<usize>,
    /// With more shares than this, `forget_shares` looks for some to forget.
    shares_max: usize,
    /// Open jobs of each owner, by project.
    pub(crate) of_owner: HashMap<Arc<str>, HashMap<Arc<str>, usize>>,
    pub(crate) classes: BTreeMap<Class, Decayed>,
    pub(crate) endpoints: Vec<Endpoint>,
    endpoint_numbers: HashMap<Arc<str>, usize>,
    pub(crate) pairs: Vec<Pair>,
    pair_numbers: HashMap<(usize, usize), usize>,
    /// Who comes after a job.
    pub(crate) dependents: HashMap<JobId, Vec<JobId>>,
    /// Who waits for a destination that a job writes to, which an executor has, or which is queued before them in their lane.
    pub(crate) behind: HashMap<JobId, Vec<JobId>>,
    /// Of the class high, for which a low one yielded.
    pub(crate) made_room: BTreeSet<JobId>,
    /// The jobs that an executor has.
    pub(crate) at_work: BTreeSet<JobId>,
    pub(crate) timers: BTreeSet<(u64, JobId)>,
    pub(crate) dates: BTreeSet<(i64, JobId)>,
    pub(crate) schedules: Schedules,
    pub(crate) changes: Vec<Job>,
    pub(crate) actions: Vec<Action>,
}

/// The jobs of one owner and project.
#[derive(Default)]
pub(crate) struct Share {
    pub charge: Decayed,
}

/// Up to so many shares none is forgotten.
const SHARES_MIN: usize = 1024;

impl Queue {
    pub fn new(limits: Limits, calendar: Box<dyn Calendar + Send>) -> Queue {
        Queue {
            limits,
            calendar,
            jobs: Book::default(),
            commons: Pool::new(),
            states: Pool::new(),
            lanes: BTreeMap::new(),
            shares: Vec::new(),
            share_numbers: HashMap::new(),
            free_shares: Vec::new(),
            shares_max: SHARES_MIN,
            of_owner: HashMap::new(),
            classes: BTreeMap::new(),
            endpoints: Vec::new(),
            endpoint_numbers: HashMap::new(),
            pairs: Vec::new(),
            pair_numbers: HashMap::new(),
            dependents: HashMap::new(),
            behind: HashMap::new(),
            made_room: BTreeSet::new(),
            at_work: BTreeSet::new(),
            timers: BTreeSet::new(),
            dates: BTreeSet::new(),
            schedules: Schedules::default(),
            changes: Vec::new(),
            actions: Vec::new(),
        }
    }

    /// Each job as it stands after each of its changes, in order, and what is to be done.
    pub fn take(&mut self) -> (Vec<Job>, Vec<Action>) {
        let changes = std::mem::take(&mut self.changes);
        for job in &changes {
            match job.status.is_end() {
                true => self.drop_ended(job.id),
                false => self.share_state(job.id),
            }
        }
        (changes, std::mem::take(&mut self.actions))
    }

    /// Jobs that wait alike have one state.
    pub(crate) fn share_state(&mut self, id: JobId) {
        if let Some(entry) = self.jobs.get_mut(&id).filter(|entry| entry.job.role.is_none()) {
            self.states.share(&mut entry.job.state);
        }
    }

    pub fn get(&self, id: JobId) -> Option<&Job> {
        self.jobs.get(&id).map(|entry| &entry.job)
    }

    /// Open jobs of one owner.
    pub fn count_of(&self, owner: &str) -> usize {
        self.projects_of(owner).map(|(_, jobs)| jobs).sum()
    }

    /// The projects of one owner, each with its open jobs.
    pub fn projects_of(&self, owner: &str) -> impl Iterator<Item = (&str, usize)> {
        self.of_owner.get(owner).into_iter().flatten().map(|(project, jobs)| (&**project, *jobs))
    }

    /// Leaves an ended job to the records again, unless it is open now.
    pub fn let_go(&mut self, id: JobId) {
        self.drop_ended(id);
    }

    /// Open jobs.
    pub fn len(&self) -> usize {
        self.jobs.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub fn jobs(&self) -> impl Iterator<Item = &Job> {
        self.jobs.entries().map(|entry| &entry.job)
    }

    /// How an endpoint is, and why it is away.
    pub fn health(&self, endpoint: &str) -> (Health, &str) {
        let found = self.endpoint_numbers.get(endpoint).map(|number| &self.endpoints[*number]);
        found.map_or((Health::Unknown, ""), |endpoint| (endpoint.health, &endpoint.text))
    }

    /// Takes a job into the books, whatever its state.
    pub(crate) fn enter(&mut self, mut job: Job) {
        self.commons.share(&mut job.facts.common);
        let facts = job.facts.common.clone();
        let share = self.share(&facts.owner, &facts.project);
        let (from, to) = (self.endpoint(&facts.from), self.endpoint(&facts.to));
        let pair = self.pair(from, to);
        for number in [from, to] {
            self.endpoints[number].jobs += 1;
        }
        let projects = self.of_owner.entry(facts.owner.clone()).or_default();
        *projects.entry(facts.project.clone()).or_default() += 1;
        let (id, is_open) = (job.id, !job.status.is_end());
        for other in job.after.iter().filter(|_| is_open) {
            // One that has ended does not end once more.
            if self.jobs.get(other).is_none_or(|entry| !entry.job.status.is_end()) {
                self.dependents.entry(*other).or_default().push(id);
            }
        }
        let entry = Entry { job, share, pair, slots: 0, parked: 0, charged: 0.0, since: 0, timer: None, date: None };
        self.jobs.insert(entry);
        if is_open {
            self.jobs.own_nature(&id);
        }
    }

    fn drop_ended(&mut self, id: JobId) {
        if self.get(id).is_none_or(|job| !job.status.is_end()) {
            return;
        }
        let Some(Entry { job, pair, .. }) = self.jobs.remove(&id) else { return };
        let Pair { from, to, .. } = self.pairs[pair];
        for number in [from, to] {
            self.endpoints[number].jobs -= 1;
        }
        let Some(projects) = self.of_owner.get_mut(&job.facts.owner) else { return };
        if let Some(jobs) = projects.get_mut(&job.facts.project) {
            *jobs -= 1;
            if *jobs == 0 {
                projects.remove(&job.facts.project);
            }
        }
        if projects.is_empty() {
            self.of_owner.remove(&job.facts.owner);
        }
    }

    /// The one place where a state changes.
    pub(crate) fn set(&mut self, now: Now, id: JobId, status: Status, reason: Reason, text: &str) {
        // Whoever has no order and is not queued is in nobody's way.
        if status != Status::Queued && self.get(id).is_some_and(|job| job.role.is_none()) {
            self.wake_behind(now, id, None);
        }
        let Some(entry) = self.jobs.get_mut(&id) else { return };
        let before = entry.job.status;
        debug_assert!(before == status || may_follow(before, status), "{before} to {status}");
        let lane = (entry.job.facts.class, entry.share, entry.pair);
        let place = (Reverse(entry.job.facts.priority), entry.job.seq, id);
        if before != status || entry.since == 0 {
            entry.since = now.ms;
        }
        entry.job.status = status;
        entry.job.reason = reason;
        entry.job.text = text.to_owned();
        entry.job.until = None;
        if !status.is_end() {
            entry.job.hint.clear();
        }
        let (old_timer, old_date) = (entry.timer.take(), entry.date.take());
        let date = calendar::date_of(&entry.job, &*self.calendar, now);
        entry.date = date;
        self.changes.push(entry.job.clone());
        old_timer.map(|at| self.timers.remove(&(at, id)));
        old_date.map(|at| self.dates.remove(&(at, id)));
        date.map(|at| self.dates.insert((at, id)));
        if status == Status::Queued {
            self.lanes.entry(lane).or_default().insert(place);
        } else {
            self.leave_lane(lane, place);
            self.made_room.remove(&id);
        }
        if !matches!(status, Status::Running | Status::Stopping) {
            self.hold(id, 0);
        }
        if status != Status::Waiting {
            self.park(id, 0);
        }
    }

    pub(crate) fn leave_lane(&mut self, lane: Lane, place: Place) {
        if let Some(places) = self.lanes.get_mut(&lane) {
            places.remove(&place);
            if places.is_empty() {
                self.lanes.remove(&lane);
            }
        }
    }

    /// Whether a job is otherwise than when changes were last taken.
    pub fn is_changed(&self, id: JobId) -> bool {
        self.changes.iter().any(|job| job.id == id)
    }

    /// Notes that something of a job is otherwise now.
    pub(crate) fn note_change(&mut self, id: JobId) {
        let job = self.get(id).cloned();
        self.changes.extend(job);
    }

    /// Waits, for a time if one is given.
    pub(crate) fn wait(&mut self, now: Now, id: JobId, reason: Reason, text: &str, pause_ms: Option<u64>) {
        self.set(now, id, Status::Waiting, reason, text);
        let Some(pause) = pause_ms else { return };
        let Some(entry) = self.jobs.get_mut(&id) else { return };
        let at = now.ms + pause;
        entry.timer = Some(at);
        entry.job.until = Some(now.unix_ms.saturating_add(pause as i64));
        self.timers.insert((at, id));
        self.note_until(id);
    }

    /// Looks anew at when the calendar concerns a job.
    pub(crate) fn set_date(&mut self, now: Now, id: JobId) {
        let Some(entry) = self.jobs.get_mut(&id) else { return };
        let date = calendar::date_of(&entry.job, &*self.calendar, now);
        let old = std::mem::replace(&mut entry.date, date);
        old.map(|at| self.dates.remove(&(at, id)));
        date.map(|at| self.dates.insert((at, id)));
    }

    /// The change that was noted last, if it is of this job; what is set there is set in the job.
    pub(crate) fn mark(&mut self, id: JobId, reason: Reason) {
        if let Some(entry) = self.jobs.get_mut(&id) {
            entry.job.reason = reason;
        }
        if let Some(last) = self.changes.iter_mut().rev().find(|job| job.id == id) {
            last.reason = reason;
        }
    }

    /// The change that was noted last is of this job: it gets what is known since.
    pub(crate) fn note_until(&mut self, id: JobId) {
        if let (Some(entry), Some(last)) = (self.jobs.get(&id), self.changes.last_mut())
            && last.id == id
        {
            last.until = entry.job.until;
        }
    }

    /// Takes so many eighths of slots in place of those that it has.
    pub(crate) fn hold(&mut self, id: JobId, slots: u32) {
        let Some(entry) = self.jobs.get_mut(&id) else { return };
        let is_high = entry.job.facts.class == Class::High;
        let before = std::mem::replace(&mut entry.slots, slots);
        let pair = &mut self.pairs[entry.pair];
        pair.used.replace(is_high, before, slots);
        // Once, where both ends are one endpoint.
        let ends = if pair.from == pair.to { &[pair.from][..] } else { &[pair.from, pair.to][..] };
        for number in ends {
            self.endpoints[*number].used.replace(is_high, before, slots);
        }
    }

    pub(crate) fn park(&mut self, id: JobId, parked: u32) {
        let Some(entry) = self.jobs.get_mut(&id) else { return };
        let before = std::mem::replace(&mut entry.parked, parked);
        let pair = &mut self.pairs[entry.pair];
        pair.parked = pair.parked - before + parked;
    }

    /// Brings what its owner is charged up to what the job has moved.
    pub(crate) fn charge(&mut self, now: Now, id: JobId) {
        let Some(entry) = self.jobs.get_mut(&id) else { return };
        let moved = if entry.job.facts.is_rehearsal { Work::default() } else { entry.job.work };
        let charge = moved.charge();
        // A count that fell is that of an executor that began anew: what was moved before stays charged.
        let more = (charge - std::mem::replace(&mut entry.charged, charge)).max(0.0);
        let class = entry.job.facts.class;
        self.shares[entry.share].charge.add(more, now.ms);
        self.classes.entry(class).or_default().add(more, now.ms);
    }

    pub(crate) fn endpoint(&mut self, name: &Arc<str>) -> usize {
        if let Some(number) = self.endpoint_numbers.get(name) {
            return *number;
        }
        self.endpoints.push(Endpoint::new(name.clone()));
        self.endpoint_numbers.insert(name.clone(), self.endpoints.len() - 1);
        self.endpoints.len() - 1
    }

    fn pair(&mut self, from: usize, to: usize) -> usize {
        let pairs = &mut self.pairs;
        *self.pair_numbers.entry((from, to)).or_insert_with(|| {
            pairs.push(Pair::new(from, to));
            pairs.len() - 1
        })
    }

    pub(crate) fn share(&mut self, owner: &Arc<str>, project: &Arc<str>) -> usize {
        let (shares, free) = (&mut self.shares, &mut self.free_shares);
        *self.share_numbers.entry((owner.clone(), project.clone())).or_insert_with(|| {
            free.pop().unwrap_or_else(|| {
                shares.push(Share::default());
                shares.len() - 1
            })
        })
    }

    /// Forgets projects that have no open jobs and hardly any charge left, at most half of what the smallest job costs:
    /// anybody can make up names of projects. It looks once there are twice as many as it left the last time, so that
    /// its cost is spread over them.
    pub(crate) fn forget_shares(&mut self, now: Now) {
        if self.share_numbers.len() <= self.shares_max {
            return;
        }
        let Queue { shares, share_numbers, free_shares, of_owner, pairs, .. } = self;
        let left_min = Work::default().charge() / 2.0;
        share_numbers.retain(|(owner, project), number| {
            let is_open = of_owner.get(owner).is_some_and(|projects| projects.contains_key(project));
            let is_kept = is_open || shares[*number].charge.at(now.ms) > left_min;
            if !is_kept {
                shares[*number] = Share::default();
                free_shares.push(*number);
            }
            is_kept
        });
        let kept: HashSet<usize> = share_numbers.values().copied().collect();
        pairs.iter_mut().for_each(|pair| pair.guesses.retain(|share, _| kept.contains(share)));
        self.shares_max = SHARES_MIN.max(2 * kept.len());
    }
}
