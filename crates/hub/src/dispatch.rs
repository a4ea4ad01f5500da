//! The orders that are out, and the errands that go with them.

use crate::courier::{Courier, Errand, Word};
use crate::job_file::Wish;
use crate::order::{Attempt, order_id};
use crate::owner::{Order, Owner};
use crate::reader::Live;
use crate::{Error, Result};
use model::order::Role;
use model::{Exit, JobId};
use queue::{Action, Answer, Job, Status};
use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::time::Instant;
use tracing::{info, warn};

impl Owner {
    /// Which orders are out, as the changes leave it.
    pub(crate) fn note_orders(&mut self, changes: &[Job]) {
        for job in changes {
            let id = order_id(job.id, job.attempt);
            match job.executor() {
                Some(endpoint) => {
                    let order = Order {
                        job: job.id,
                        attempt: job.attempt,
                        endpoint: endpoint.clone(),
                        taken: None,
                        rate_due: None,
                        renewed: Some(Instant::now()),
                    };
                    self.orders.entry(id).or_insert(order);
                }
                None => _ = self.orders.remove(&id),
            }
            if job.status.is_end() || job.role.is_none() {
                self.live.lock().unwrap_or_else(PoisonError::into_inner).remove(&job.id);
            }
        }
        if !changes.is_empty() {
            self.count_open();
        }
    }

    pub(crate) fn count_open(&mut self) {
        let mut open: HashMap<&str, usize> = HashMap::new();
        for order in self.orders.values() {
            *open.entry(&order.endpoint).or_default() += 1;
        }
        for (name, courier) in &self.couriers {
            courier.open.store(open.get(name.as_str()).copied().unwrap_or(0), Ordering::Relaxed);
        }
    }

    pub(crate) fn courier(&mut self, endpoint: &str) -> Arc<Courier> {
        let make = || {
            let (book, identity) = (self.book.clone(), self.identity.clone());
            Courier::new(endpoint, book, identity, self.crews.clone(), self.words.clone())
        };
        let courier = self.couriers.entry(endpoint.to_owned()).or_insert_with(make).clone();
        let open = self.orders.values().filter(|order| *order.endpoint == *endpoint).count();
        courier.open.store(open, Ordering::Relaxed);
        courier
    }

    /// With what ended otherwise than well nobody goes on: hosts that the hub does not reach are let in nowhere any more.
    pub(crate) fn revoke_parts(&mut self, changes: &[Job]) {
        let is_over = |job: &&Job| job.status.is_end() && !matches!(job.status, Status::Succeeded | Status::Partial);
        for job in changes.iter().filter(is_over) {
            let parts = self.crews.left(job.id);
            for end in [&job.facts.from, &job.facts.to].into_iter().filter(|_| !parts.is_empty()) {
                self.courier(end).send(Errand::RevokeParts { job: job.id, parts: parts.clone() });
            }
        }
    }

    pub(crate) fn act(&mut self, action: Action) {
        match action {
            Action::Probe { endpoint } => self.courier(&endpoint).look(),
            Action::HandIn { id, attempt, role, endpoint } => self.hand_in(id, attempt, role, &endpoint),
            Action::SetRate { id, attempt, endpoint } => self.set_rate(id, attempt, &endpoint),
            Action::Stop { id, attempt, endpoint } => {
                self.courier(&endpoint).send(Errand::Stop { order: order_id(id, attempt) });
            }
            Action::Renew { id, attempt, endpoint } => {
                if let Some(role) = self.queue.get(id).and_then(|job| job.role) {
                    self.renew(id, attempt, role, &endpoint);
                }
            }
            Action::Revoke { id, attempt, endpoint } => {
                self.courier(&endpoint).send(Errand::Revoke { order: order_id(id, attempt) });
            }
            Action::Forget { id, attempt, endpoint } => {
                self.courier(&endpoint).send(Errand::Forget { order: order_id(id, attempt) });
            }
        }
    }

    /// What the endpoint does not hear now, because it is away or another rate is on its way, it is told later (`note`).
    pub(crate) fn set_rate(&mut self, id: JobId, attempt: u32, endpoint: &str) {
        let order = order_id(id, attempt);
        let file = self.store.job(id).ok().flatten().map(|stored| stored.file);
        let (Some(file), Some(known)) = (file, self.orders.get_mut(&order)) else { return };
        known.rate_due = None;
        let class = file.class.and_then(|class| class.parse().ok());
        let is_sent = self.courier(endpoint).send(Errand::Change { order, rate: file.rate, class });
        // The one that is on its way may tell the rate of before.
        if let Some(known) = self.orders.get_mut(&order).filter(|_| !is_sent) {
            known.rate_due = Some(Instant::now());
        }
    }

    fn hand_in(&mut self, id: JobId, attempt: u32, role: Role, endpoint: &str) {
        match self.attempt(id, attempt, role) {
            Ok(order) => {
                info!(job = %id, attempt, endpoint, role = role.word(), "order given");
                self.expect(id, format!("its order is on its way to {endpoint}"));
                let courier = self.courier(endpoint);
                courier.send(Errand::HandIn(order));
                courier.look();
            }
            Err(e) => {
                let (now, hint) = (self.now(), e.hint.unwrap_or_default());
                let answer = Answer::Refused { code: Exit::Fatal as i32, text: e.message, hint };
                self.hear(now, Word::Answered { job: id, attempt, answer });
            }
        }
    }

    /// Says why nothing is known yet of a job that runs.
    pub(crate) fn expect(&self, id: JobId, why: String) {
        let work = self.queue.get(id).map(|job| job.work).unwrap_or_default();
        let live = Live { work, bottleneck: why.into(), ..Live::default() };
        self.live.lock().unwrap_or_else(PoisonError::into_inner).entry(id).or_insert(live);
    }

    /// Has an order tried at once, with a new warrant.
    pub(crate) fn renew(&mut self, id: JobId, attempt: u32, role: Role, endpoint: &str) {
        match self.attempt(id, attempt, role) {
            Ok(order) => _ = self.courier(endpoint).send(Errand::Renew(order)),
            Err(e) => warn!(job = %id, error = %e.message, "an order gets no new warrant"),
        }
    }

    fn attempt(&self, job: JobId, attempt: u32, role: Role) -> Result<Box<Attempt>> {
        let stored = self.store.job(job)?.ok_or_else(|| Error::new(Exit::Fatal, "the job is not in the database"))?;
        let Wish { facts, spec, kind } = stored.wish;
        let peer = match role {
            Role::Sends => facts.to.to_string(),
            Role::Fetches => facts.from.to_string(),
        };
        // Several hosts would begin anew with large files after each window.
        let is_small = self.queue.get(job).is_some_and(|job| job.work.is_small() == Some(true));
        let is_for_one = is_small || facts.windows.is_some();
        Ok(Box::new(Attempt { job, attempt, kind, role, peer, spec, is_for_one, is_alone: false }))
    }
}
