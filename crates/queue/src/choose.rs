//! Which job is next: by class, then by who has had least, then by priority and age.
//!
//! Classes are served 16 to 4 to 1, owners and projects alike; what somebody leaves unused, others get. A lane is skipped while
//! its endpoints or its pair have no slot, so that no job that cannot run holds up one that can.

use crate::book::Entry;
use crate::calendar::Now;
use crate::job::Job;
use crate::queue::{Action, Lane, Limits, Place, Queue};
use crate::slots::{Health, PARKED_MAX};
use crate::status::{Reason, Status};
use model::order::Role;
use model::{Class, JobId};
use std::cmp::Reverse;

/// What the class and the share had, priority, age: the least is next.
type Rank = (f64, f64, Reverse<i8>, u64);

/// What is known of an endpoint.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EndpointState<'a> {
    pub name: &'a str,
    /// Nothing while nobody asked it.
    pub is_up: Option<bool>,
    /// Why it is away.
    pub text: &'a str,
    pub takes_orders: bool,
    /// Open jobs that need it.
    pub jobs: usize,
}

const WHOLE: u32 = 8;
const SMALL: u32 = 1;

impl Queue {
    pub(crate) fn choose_all(&mut self, now: Now) {
        while let Some((lane, id)) = self.choose(now) {
            match self.in_the_way(id) {
                Some(other) => self.wait_behind(now, id, other),
                None => self.begin(now, lane, id),
            }
        }
        self.make_room(now);
    }

    /// Why a queued job does not run yet.
    pub fn why(&self, id: JobId) -> Option<(Reason, String)> {
        let entry = self.jobs.get(&id).filter(|entry| entry.job.status == Status::Queued)?;
        let pair = &self.pairs[entry.pair];
        let (from, to) = (&self.endpoints[pair.from], &self.endpoints[pair.to]);
        if self.role_of(entry.pair, &entry.job).is_none() {
            let endpoint = if from.health == Health::Up { to } else { from };
            return Some(match endpoint.health {
                Health::Up => (Reason::Endpoint, format!("neither {} nor {} carries out jobs", from.name, to.name)),
                Health::Unknown => (Reason::Endpoint, format!("{} has not answered yet", endpoint.name)),
                _ => (Reason::Endpoint, format!("{} does not answer: {}", endpoint.name, endpoint.text)),
            });
        }
        if pair.parked >= PARKED_MAX {
            let text = format!("other jobs from {} to {} wait for something this one needs too", from.name, to.name);
            return Some((Reason::Slot, text));
        }
        let slots = self.slots_of(entry.share, entry.pair, &entry.job);
        let text = match self.full_endpoint(entry.pair, entry.job.facts.class, slots) {
            Some(name) => format!("{name} is already running as many jobs as it may at once"),
            None if !self.has_room(entry.pair, entry.job.facts.class, slots) => {
                format!("as many jobs run from {} to {} as may at once", from.name, to.name)
            }
            None => "others are before it".to_owned(),
        };
        Some((Reason::Slot, text))
    }

    /// Each endpoint that some job named: whether it answers, whether it carries out jobs, and how many open jobs need it.
    pub fn endpoints(&self) -> impl Iterator<Item = EndpointState<'_>> {
        self.endpoints.iter().map(|endpoint| EndpointState {
            name: &endpoint.name,
            is_up: match endpoint.health {
                Health::Unknown => None,
                health => Some(health == Health::Up),
            },
            text: &endpoint.text,
            takes_orders: endpoint.takes_orders,
            jobs: endpoint.jobs,
        })
    }

    fn choose(&self, now: Now) -> Option<(Lane, JobId)> {
        let charge =
            |class: Class| self.classes.get(&class).map_or(0.0, |sum| sum.at(now.ms)) / f64::from(class.weight());
        let mut best: Option<(Rank, Lane, JobId)> = None;
        for (lane, places) in &self.lanes {
            let (class, share, pair) = *lane;
            let Some((priority, seq, id)) = places.first().copied() else { continue };
            let Some(entry) = self.jobs.get(&id) else { continue };
            let slots = self.slots_of(share, pair, &entry.job);
            if model::mutant::is_on("queue-head-of-line") && !self.is_oldest(seq) {
                continue;
            }
            if !self.may_run(pair, &entry.job) || !self.has_room(pair, class, slots) || self.is_kept_for_another(*lane)
            {
                continue;
            }
            let rank = (charge(class), self.shares[share].charge.at(now.ms), priority, seq);
            if best.as_ref().is_none_or(|(other, ..)| rank.partial_cmp(other).is_some_and(std::cmp::Ordering::is_lt)) {
                best = Some((rank, *lane, id));
            }
        }
        best.map(|(_, lane, id)| (lane, id))
    }

    fn is_oldest(&self, seq: u64) -> bool {
        self.lanes.values().flatten().all(|place| place.1 >= seq)
    }

    /// queued -> running
    fn begin(&mut self, now: Now, lane: Lane, id: JobId) {
        let (_, share, pair) = lane;
        let Some(entry) = self.jobs.get_mut(&id) else { return };
        entry.job.attempt += 1;
        entry.job.has_begun = true;
        let job = entry.job.clone();
        let Some(role) = self.role_of(pair, &job) else { return };
        let slots = self.slots_of(share, pair, &job);
        if let Some(entry) = self.jobs.get_mut(&id) {
            entry.job.role = Some(role);
            entry.job.work.files_done = 0;
            entry.job.work.bytes_done = 0;
            entry.charged = 0.0;
        }
        self.at_work.insert(id);
        self.set(now, id, Status::Running, Reason::None, "");
        self.hold(id, slots);
        self.charge(now, id);
        self.pairs[pair].attempts.add(1.0, now.ms);
        let endpoint = job.at(role).clone();
        self.actions.push(Action::HandIn { id, attempt: job.attempt, role, endpoint });
    }

    /// Whether nothing but a slot can be missing.
    pub(crate) fn may_run(&self, pair: usize, job: &Job) -> bool {
        self.pairs[pair].parked < PARKED_MAX && self.role_of(pair, job).is_some()
    }

    /// Which end carries it out: the source's, unless that cannot.
    fn role_of(&self, pair: usize, job: &Job) -> Option<Role> {
        let pair = &self.pairs[pair];
        let is_unheard = [pair.from, pair.to].into_iter().any(|number| self.endpoints[number].is_unheard);
        // After a restart the first to answer is not the one to do everything.
        if self.endpoints[pair.from].health == Health::Unknown || is_unheard {
            return None;
        }
        let (from, to) = (self.endpoints[pair.from].is_usable(), self.endpoints[pair.to].is_usable());
        match (from, to) {
            // Files are followed where they are written; an endpoint that carries out nothing lets the other one say so.
            _ if job.facts.is_standing && self.endpoints[pair.from].health != Health::Up => None,
            (true, _) if job.facts.is_standing => Some(Role::Sends),
            (_, true) if job.is_switched => Some(Role::Fetches),
            (true, _) => Some(Role::Sends),
            (false, true) => Some(Role::Fetches),
            (false, false) => None,
        }
    }

    /// Eighths that a job takes; of one that is not known, as the last one of its owner between the same endpoints.
    pub(crate) fn slots_of(&self, share: usize, pair: usize, job: &Job) -> u32 {
        let is_small = job.work.is_small().or_else(|| self.pairs[pair].guesses.get(&share).copied());
        if job.facts.is_standing || is_small == Some(true) { SMALL } else { WHOLE }
    }

    pub(crate) fn has_room(&self, pair: usize, class: Class, slots: u32) -> bool {
        let Limits { of_pair, of_high, .. } = self.limits;
        let is_free = self.pairs[pair].used.has_room(class == Class::High, slots, of_pair, of_high);
        is_free && self.full_endpoint(pair, class, slots).is_none()
    }

    pub(crate) fn full_endpoint(&self, pair: usize, class: Class, slots: u32) -> Option<&str> {
        let Limits { of_endpoint, of_high, .. } = self.limits;
        let mut ends = [self.pairs[pair].from, self.pairs[pair].to].into_iter().map(|number| &self.endpoints[number]);
        let full = ends.find(|endpoint| !endpoint.used.has_room(class == Class::High, slots, of_endpoint, of_high));
        full.map(|endpoint| &*endpoint.name)
    }

    /// A job with an order that writes to the same place.
    fn in_the_way(&self, id: JobId) -> Option<JobId> {
        let job = &self.jobs.get(&id)?.job;
        if model::mutant::is_on("queue-overlapping-destinations") {
            return None;
        }
        self.at_work.iter().copied().find(|other| self.get(*other).is_some_and(|other| other.overlaps(job)))
    }

    /// queued -> waiting
    fn wait_behind(&mut self, now: Now, id: JobId, other: JobId) {
        self.wake_behind(now, id, Some(other));
        self.wait(now, id, Reason::Destination, "another job writes to the same destination", None);
        self.behind.entry(other).or_default().push(id);
    }

    /// Lets those go on that wait behind a job. Of a lane the first is queued; whom that one, or one `at_work`, is in the way of as
    /// well waits behind it and is not woken: of many, each would be once for each of the others.
    pub(crate) fn wake_behind(&mut self, now: Now, id: JobId, at_work: Option<JobId>) {
        let place = |id: JobId| {
            let Entry { job, share, pair, .. } =
                self.jobs.get(&id).filter(|entry| entry.job.waits_for_destination())?;
            Some(((job.facts.class, *share, *pair), (Reverse(job.facts.priority), job.seq, id)))
        };
        let waiting = self.behind.remove(&id).unwrap_or_default();
        let mut waiting: Vec<(Lane, Place)> = waiting.into_iter().filter_map(place).collect();
        waiting.sort_unstable();
        waiting.dedup();
        let mut first: Option<(Lane, JobId)> = None;
        for (lane, (.., id)) in waiting {
            let of_lane = first.filter(|(of, _)| *of == lane).map(|(_, first)| first);
            match at_work.into_iter().chain(of_lane).find(|other| self.overlap(*other, id)) {
                Some(other) => self.behind.entry(other).or_default().push(id),
                None => {
                    self.place(now, id);
                    let is_queued = self.get(id).is_some_and(|job| job.status == Status::Queued);
                    first = if is_queued { Some((lane, id)) } else { first };
                }
            }
        }
    }

    fn overlap(&self, one: JobId, other: JobId) -> bool {
        self.get(one).zip(self.get(other)).is_some_and(|(one, other)| one.overlaps(other))
    }
}
