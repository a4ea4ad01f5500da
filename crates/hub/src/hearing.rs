//! What endpoints say of our orders, and what the queue is told of it.
//!
//! Invariant: what an endpoint says of an order counts for the attempt that the order was given for, and for no other.

use crate::courier::{Census, Errand, Word};
use crate::order::{self, answer, failures, order_id, report};
use crate::owner::{Order, Owner};
use crate::reader::Live;
use crate::rows::Report;
use daemon::hand_in::Told;
use model::order::Role;
use model::{Exit, JobId};
use queue::{Answer, Health, Now, Status};
use std::collections::HashSet;
use std::sync::PoisonError;
use std::time::{Duration, Instant};
use tracing::warn;
use transfer::HostShare;

/// Attempts that a copy of the database may be behind.
const ATTEMPTS_AHEAD: u32 = 64;
/// An order that waits for credentials longer than this after its last warrant gets another: they hold for a day.
const RENEWED_MAX: Duration = Duration::from_secs(3600);
/// Before an endpoint is told a rate again that it did not take.
const RATE_PAUSE: Duration = Duration::from_secs(1);
/// An endpoint that does not take an order over is asked so often, while the other one carries out nothing.
const ABANDON_PAUSE: Duration = Duration::from_secs(5);

impl Owner {
    pub(crate) fn hear(&mut self, now: Now, word: Word) {
        self.note_arrival(&word);
        match word {
            Word::Taken { .. } | Word::RateUntold { .. } => {}
            Word::Answered { job, attempt, answer } => self.queue.heard(now, job, attempt, answer),
            Word::Unreached { endpoint, text } => {
                warn!(endpoint, text, "an endpoint does not answer");
                self.queue.unreached(now, &endpoint, &text);
            }
            Word::TakesNone { endpoint } => {
                self.queue.takes_no_orders(&endpoint);
                self.abandon(&endpoint);
                if self.unheard.remove(&endpoint) {
                    self.group.heard.push(endpoint);
                }
            }
            Word::News { endpoint, order, told } => self.note(now, &endpoint, order, &told),
            Word::Ended { order, told, hosts } => self.ended(now, order, &told, &hosts),
            Word::Census(census) => self.count(now, census),
        }
    }

    /// What of an order counts whatever becomes of the queue: it is no longer on its way, because its endpoint has it or did not take
    /// it; or its rate has to be told again.
    pub(crate) fn note_arrival(&mut self, word: &Word) {
        let (job, attempt, stamp) = match *word {
            Word::Taken { job, attempt, stamp } => (job, attempt, stamp),
            Word::Answered { job, attempt, .. } => (job, attempt, 0),
            Word::RateUntold { order } => {
                if let Some(order) = self.orders.get_mut(&order) {
                    order.rate_due = Some(Instant::now() + RATE_PAUSE);
                }
                return;
            }
            _ => return,
        };
        if let Some(order) = self.orders.get_mut(&order_id(job, attempt)) {
            order.taken = Some(stamp);
        }
    }

    /// Takes note of what an endpoint has of ours, and of what it has not.
    pub(crate) fn count(&mut self, now: Now, census: Census) {
        let Census { endpoint, as_of, told, is_whole } = census;
        if self.unheard.contains(&endpoint) {
            let unknown: HashSet<JobId> =
                told.iter().map(|(id, _)| *id).filter(|id| !self.orders.contains_key(id)).collect();
            self.adopt(now, &endpoint, &unknown);
            if is_whole {
                self.unheard.remove(&endpoint);
                self.group.heard.push(endpoint.clone());
            }
        }
        let mut seen = HashSet::with_capacity(told.len());
        for (id, told) in told {
            seen.insert(id);
            // How that one stands is not one host's to say.
            if !self.crews.has(id) {
                self.note(now, &endpoint, id, &told);
            }
        }
        if is_whole {
            let is_missing = |id: &JobId, order: &Order| {
                *order.endpoint == *endpoint && !seen.contains(id) && order.taken.is_some_and(|taken| taken <= as_of)
            };
            let missing: Vec<_> = self
                .orders
                .iter()
                .filter(|(id, order)| is_missing(id, order))
                .map(|(_, order)| (order.job, order.attempt))
                .collect();
            for (job, attempt) in missing {
                // An endpoint that is both ends would let it in no more, had it come meanwhile: it would wait for ever.
                let pin = |name: &str| self.book.get(name).ok().map(|known| known.pin);
                let is_both = self.queue.get(job).is_some_and(|job| pin(&job.facts.from) == pin(&job.facts.to));
                // It may be on its way yet: only what the endpoint takes no more is unknown there for good.
                if is_both || self.courier(&endpoint).send(Errand::TakeBack { job, attempt }) {
                    warn!(job = %job, attempt, endpoint, "the endpoint does not know the order");
                }
                if is_both {
                    self.queue.heard(now, job, attempt, Answer::Unknown);
                }
            }
        }
        if !self.unheard.contains(&endpoint) {
            self.queue.reached(&endpoint);
        }
    }

    /// An endpoint that carries out nothing any more goes on with what it was given once it is started otherwise. Where
    /// the other one lets it in for that no more, the job is free.
    fn abandon(&mut self, endpoint: &str) {
        let now = Instant::now();
        let is_due = |order: &Order| order.left_to_other.is_none_or(|asked| now >= asked + ABANDON_PAUSE);
        let has_it = |order: &&Order| *order.endpoint == *endpoint && order.taken.is_some() && is_due(order);
        let left: Vec<_> = self.orders.values().filter(has_it).map(|order| (order.job, order.attempt)).collect();
        for (job, attempt) in left {
            let peer = self.queue.get(job).and_then(|job| job.peer().cloned());
            if let Some(peer) = peer.filter(|peer| self.queue.health(peer).0 == Health::Up) {
                self.courier(&peer).send(Errand::Abandon { job, attempt });
                self.orders.entry(order_id(job, attempt)).and_modify(|order| order.left_to_other = Some(now));
            }
        }
    }

    /// Orders that a later copy of the database than this one gave: each is the order of a later attempt of a job that is known here.
    fn adopt(&mut self, now: Now, endpoint: &str, unknown: &HashSet<JobId>) {
        if unknown.is_empty() {
            return;
        }
        let mut found = Vec::new();
        for job in self.queue.jobs() {
            let ends = [(Role::Sends, &job.facts.from), (Role::Fetches, &job.facts.to)];
            let Some((role, _)) = ends.into_iter().find(|(_, end)| ***end == *endpoint) else { continue };
            let mut later = (job.attempt + 1..=job.attempt.saturating_add(ATTEMPTS_AHEAD)).rev();
            let attempt = later.find(|attempt| unknown.contains(&order_id(job.id, *attempt)));
            found.extend(attempt.map(|attempt| (job.id, job.attempt, attempt, role)));
        }
        for (job, before, attempt, role) in found {
            self.orders.remove(&order_id(job, before));
            warn!(job = %job, attempt, endpoint, "an order that this copy of the database does not know goes on");
            self.queue.adopt(now, job, attempt, role);
            let order = Order {
                job,
                attempt,
                endpoint: endpoint.into(),
                taken: Some(0),
                rate_due: Some(Instant::now()),
                renewed: Some(Instant::now()),
                left_to_other: None,
            };
            self.orders.insert(order_id(job, attempt), order);
        }
    }

    /// An order that no job here has: its end was taken note of before, or the job was handed in after this copy of the database was made.
    fn end_unknown(&mut self, endpoint: &str, order: JobId, status: Status) {
        match status {
            // It may be of a job that could not be read back.
            _ if !self.knows_all => {}
            // A part of a job that several hosts carry out. What they leave is looked at afterwards.
            _ if self.crews.has_part(order) => {}
            _ if status.is_end() => _ = self.courier(endpoint).send(Errand::Forget { order }),
            Status::Stopping => {}
            _ => {
                warn!(order = %order, endpoint, "an order that no job of this hub has is stopped; what was verified is kept");
                self.courier(endpoint).send(Errand::Stop { order });
            }
        }
    }

    pub(crate) fn note(&mut self, now: Now, endpoint: &str, id: JobId, told: &Told) {
        let Some(order) = self.orders.get(&id).filter(|order| *order.endpoint == *endpoint) else {
            return self.end_unknown(endpoint, id, told.status());
        };
        let (job, attempt, by) = (order.job, order.attempt, order.endpoint.clone());
        let has_failures = told.ended.as_ref().is_some_and(|ended| ended.code != 0 || ended.files_failed > 0);
        match answer(told) {
            Answer::Ended(_) if has_failures => {
                self.courier(endpoint).send(Errand::Report { order: id });
            }
            Answer::Ended(_) => self.ended(now, id, told, &[]),
            answer => {
                if order.rate_due.is_some_and(|at| at <= Instant::now()) {
                    self.set_rate(job, attempt, endpoint);
                }
                if let (Answer::News(news), Some(order)) = (&answer, self.orders.get_mut(&id)) {
                    let waits = news.reason == model::order::Reason::Credentials;
                    if waits && order.renewed.is_none_or(|at| at.elapsed() >= RENEWED_MAX) {
                        order.renewed = Some(Instant::now());
                        if let Some(role) = self.queue.get(job).and_then(|job| job.role) {
                            self.renew(job, attempt, role, endpoint);
                        }
                    }
                    let live = Live {
                        work: news.work,
                        bytes_per_second: told.news.bytes_per_second,
                        bytes_reached: told.news.bytes_reached,
                        files_failed: told.news.files_failed,
                        files_skipped: told.news.files_skipped,
                        bottleneck: match told.status() {
                            Status::Queued => format!("waits for its turn at {endpoint}").into(),
                            _ => order::shown(&told.news.bottleneck).into(),
                        },
                        said: (!self.crews.has(id)).then(|| (by, Instant::now())),
                    };
                    self.live.lock().unwrap_or_else(PoisonError::into_inner).insert(job, live);
                }
                self.queue.heard(now, job, attempt, answer);
            }
        }
    }

    pub(crate) fn ended(&mut self, now: Now, id: JobId, told: &Told, hosts: &[HostShare]) {
        let Some(order) = self.orders.get(&id) else { return };
        let (job, attempt) = (order.job, order.attempt);
        let answer = answer(told);
        if let Answer::Ended(ended) = &answer
            && let Some(text) = report(told, hosts)
        {
            self.group.reports.push(Report { job, text: text.to_string(), failures: failures(told) });
            if ended.code == Exit::Done as i32 {
                self.crews.forget(job);
            }
        }
        self.queue.heard(now, job, attempt, answer);
    }
}

#[cfg(test)]
mod tests;
