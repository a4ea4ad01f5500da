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
                        left_to_other: None,
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

    /// The same for what a hub before this one, or the connection of then, may have left unsaid.
    pub(crate) fn revoke_left(&mut self) -> Result<()> {
        let mut known = Vec::new();
        for job in self.crews.all_left() {
            known.extend(self.store.job(job)?.map(|stored| stored.job));
        }
        self.revoke_parts(&known);
        Ok(())
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
        let work = self.queue.get(job).map(|job| job.work).unwrap_or_default();
        let is_small = work.is_small() == Some(true);
        // Several hosts would not find what it has staged.
        let has_one_begun = work.files_listed > 0 && !self.crews.was_divided(job);
        // Nor would they go on with large files after each window.
        let is_for_one = is_small || has_one_begun || facts.windows.is_some();
        Ok(Box::new(Attempt { job, attempt, kind, role, peer, spec, is_for_one, is_alone: false }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Channels;
    use crate::job_file::JobFile;
    use crate::rows::NewJob;
    use crate::scene::{start, state};
    use crate::store::{Group, Store};
    use daemon::Endpoint;
    use daemon::endpoints::Replace;
    use queue::Work;
    use std::path::Path;

    /// A job that a hub before this one has left so.
    fn with_job(dir: &Path, status: Status, work: Work) -> JobId {
        let body = r#"{"source":"a:x/","destination":"b:y"}"#.to_owned();
        let wish = JobFile::from_json(&body).unwrap().wish("unix:0").unwrap();
        let mut job = Job::new(JobId([1; 16]), 1, wish.facts.clone(), vec![]);
        (job.status, job.role, job.attempt) = (status, (!status.is_end()).then_some(Role::Sends), 1);
        (job.work, job.code) = (work, status.is_end().then_some(Exit::Cancelled as i32));
        let id = job.id;
        let new = vec![NewJob { id, seq: 1, wish, body, labels: vec![] }];
        let mut store = Store::open(dir).unwrap();
        store.commit(&Group { new, changes: vec![job], ..Group::default() }).unwrap();
        id
    }

    #[test]
    fn what_one_host_has_begun_is_for_one_and_what_several_have_begun_is_not() {
        let dir = state();
        let work = Work { files_listed: 5000, bytes_listed: 1 << 40, is_listed: true, ..Work::default() };
        let job = with_job(dir.path(), Status::Running, work);
        let hub = start(dir.path(), Channels::default());
        let is_for_one = || hub.look(move |owner| owner.attempt(job, 2, Role::Sends).unwrap().is_for_one).unwrap();
        assert!(is_for_one());
        daemon::crew::note_attempt(dir.path(), job, 1).unwrap();
        assert!(!is_for_one());
        hub.stop();
    }

    #[test]
    fn parts_of_a_job_that_was_cancelled_are_taken_back_by_another_hub_as_well() {
        let dir = state();
        let job = with_job(dir.path(), Status::Cancelled, Work::default());
        daemon::crew::note_attempt(dir.path(), job, 1).unwrap();
        let left = dir.path().join("crews").join(job.to_string()).join("slices.json");
        std::fs::write(left, format!(r#"["{}"]"#, JobId([9; 16]))).unwrap();
        // Somebody takes what is sent to `a`, and says nothing.
        let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let book = daemon::EndpointBook::new(dir.path().join("endpoints"));
        let addresses = vec![silent.local_addr().unwrap().to_string()];
        let known = Endpoint { addresses, ..book.get("a").unwrap() };
        book.add(&known, Replace::Always).unwrap();
        let hub = start(dir.path(), Channels::default());
        let errand = Errand::RevokeParts { job, parts: Vec::new() };
        assert!(hub.look(move |owner| owner.courier("a").has(&errand)).unwrap());
        hub.stop();
    }
}
