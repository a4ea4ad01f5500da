//! One slice from its order to its end: handed in at a host, and looked at until it ended, or until that host counts as lost.
//!
//! Not here: what becomes of it then (`super`).

use super::peer::Peer;
use super::work::{Work, is_passing, thread};
use crate::endpoints::Endpoint;
use crate::error::{Error, Result};
use crate::hand_in::{Desk, HandIn, OrderNews, TAKES_NONE, Told, status_of};
use cluster::{Epoch, Weight};
use model::name::Escaped;
use model::options::INSTEAD_OF_MAX;
use model::order::{Kind, Reason, Role, Status, Steer};
use model::{Exit, JobId, TransferSpec};
use net::Identity;
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// How often a slice is looked at.
const LOOK: Duration = Duration::from_millis(200);
/// For a host that is told something.
const PATIENCE: Duration = Duration::from_secs(5);
/// For one that is told of many slices.
const REVOKING: Duration = Duration::from_secs(30);
/// A host that does not answer for so long is lost.
const LEASE: Duration = Duration::from_secs(15);
/// So is a slice in which nothing moves, though its host answers.
pub const STALL: Duration = Duration::from_secs(60);

pub struct Task {
    pub host: usize,
    pub receiver: usize,
    /// Nothing where one host does something alone (`alone`).
    pub epoch: Option<Epoch>,
    pub job: JobId,
    pub spec: TransferSpec,
    pub executor: Endpoint,
    pub peer: Endpoint,
    pub role: Role,
    pub weight: Weight,
    pub since_ms: u64,
    /// How long nothing may move.
    pub patience: Duration,
}

pub enum Outcome {
    Ended(Box<Told>),
    /// Whoever carries it out does not answer: nobody knows whether it goes on.
    Lost(String),
    /// Whoever carries it out answers, and cannot go on with the other side that it was given.
    Stuck(String),
    /// Its host cannot do it, or refuses.
    Refused(Error),
    /// The host carries out no jobs; the other one may.
    TakesNone,
    /// There is no room at the destination.
    Full(String),
    /// It was taken away meanwhile.
    Taken,
    Stopped,
}

/// What an order that is under way has shown.
struct Seen {
    heard: Instant,
    moved: Instant,
    marks: [u64; 7],
}

/// Carries slices out for somebody who may take them away meanwhile.
pub struct Carrier<'a> {
    pub work: &'a Work<'a>,
    pub still_holds: &'a dyn Fn() -> bool,
    pub show: &'a dyn Fn(&OrderNews),
}

impl Carrier<'_> {
    pub fn carry_out(&self, task: &Task) -> Outcome {
        let mut seen = Seen { heard: Instant::now(), moved: Instant::now(), marks: [0; 7] };
        let (mut desk, mut peer) = (None, Peer::default());
        match self.hand_in(task, &mut desk, &seen) {
            Ok(()) => {}
            Err(e) if e.message.contains(TAKES_NONE) => return Outcome::TakesNone,
            Err(_) if (self.work.stop)() => {
                // It may have arrived.
                if desk.is_some() {
                    end(self.work, task);
                }
                return Outcome::Stopped;
            }
            Err(e) if is_passing(&e) => return Outcome::Lost(e.message),
            Err(e) => return Outcome::Refused(e),
        }
        loop {
            let looked = self.look(task, &mut desk, &seen);
            if (self.work.stop)() {
                end(self.work, task);
                return Outcome::Stopped;
            }
            if !(self.still_holds)() {
                steer(self.work, task, Steer::Cancel);
                return Outcome::Taken;
            }
            match looked {
                Ok(told) => {
                    seen.note(&told.news);
                    (self.show)(&told.news);
                    let outcome = judge(&told, &seen, task.patience);
                    if let Some(outcome) = outcome.or_else(|| self.is_away(task, &mut peer, &seen)) {
                        if matches!(outcome, Outcome::Stuck(_)) {
                            // It would try for itself, as long as its warrant holds.
                            steer(self.work, task, Steer::Cancel);
                        }
                        return outcome;
                    }
                }
                Err(e) if is_passing(&e) => {
                    desk = None;
                    if seen.heard.elapsed() >= LEASE {
                        return Outcome::Lost(format!("no answer for {} s", LEASE.as_secs()));
                    }
                }
                Err(e) => return Outcome::Refused(e),
            }
            std::thread::park_timeout(LOOK);
        }
    }

    fn hand_in(&self, task: &Task, desk: &mut Option<Desk>, seen: &Seen) -> Result<()> {
        let Task { job, role, executor, peer, spec, .. } = task;
        let desk = desk.insert(Desk::open(executor, &self.work.identity)?);
        let (job, role, kind, warrant_id) = (*job, *role, Kind::Copy, warrant_id(*job));
        desk.hand_in(&HandIn { job, kind, role, executor, peer, spec, warrant_id }, &|| self.is_enough(seen))
    }

    fn look(&self, task: &Task, desk: &mut Option<Desk>, seen: &Seen) -> Result<Told> {
        if desk.is_none() {
            *desk = Some(Desk::open(&task.executor, &self.work.identity)?);
        }
        let desk = desk.as_ref().expect("opened above");
        desk.ask(task.job, &|| self.is_enough(seen))
    }

    fn is_away(&self, task: &Task, peer: &mut Peer, seen: &Seen) -> Option<Outcome> {
        let silence = peer.silence(seen.moved, || {
            let (endpoint, identity) = (task.peer.clone(), self.work.identity.clone());
            // One that refuses is there, also where it is too busy for one more session.
            move || Desk::open(&endpoint, &identity).map_or_else(|e| e.exit != Exit::Unreachable, |_| true)
        });
        let text = || format!("{} does not answer, and nothing has moved for {} s", task.peer.name, LEASE.as_secs());
        (silence >= LEASE).then(|| Outcome::Stuck(text()))
    }

    fn is_enough(&self, seen: &Seen) -> bool {
        (self.work.stop)() || seen.heard.elapsed() >= LEASE
    }
}

/// Whether it listens or not: what it goes on with comes to nothing. One that hangs is not waited for.
pub fn steer(work: &Work<'_>, task: &Task, steer: Steer) {
    let (identity, executor, job) = (work.identity.clone(), task.executor.clone(), task.job);
    let (tell, told) = mpsc::channel();
    if thread("steer").spawn(move || _ = tell.send(say(&identity, &executor, job, steer))).is_ok() {
        let _ = told.recv_timeout(PATIENCE);
    }
}

/// Ends a slice that nobody is to take over for now. Where its host does not hear it, the other one lets nobody in for
/// it any more.
fn end(work: &Work<'_>, task: &Task) {
    if say(&work.identity, &task.executor, task.job, Steer::Cancel).is_err_and(|e| is_passing(&e)) {
        let asked = Instant::now();
        let patient = || asked.elapsed() >= PATIENCE;
        let _ = Desk::open(&task.peer, &work.identity).and_then(|desk| desk.revoke(warrant_id(task.job), &patient));
    }
}

/// Has hosts let nobody in any more for slices, of many for the newest: whoever has one of them may not hear that it is over.
pub fn revoke(slices: &[JobId], hosts: &[Endpoint], identity: &Identity) {
    for host in hosts {
        let Ok(desk) = Desk::open(host, identity) else { continue };
        let asked = Instant::now();
        let is_enough = || asked.elapsed() >= REVOKING;
        for slice in slices.iter().rev().take(INSTEAD_OF_MAX).take_while(|_| !is_enough()) {
            let _ = desk.revoke(warrant_id(*slice), &is_enough);
        }
    }
}

/// What the warrant of a slice is called: whoever knows the slice can take it back.
fn warrant_id(slice: JobId) -> [u8; 16] {
    let digest = net::sha256(&[&b"thalweg slice warrant 1"[..], &slice.0].concat());
    digest[..16].try_into().expect("half of a SHA-256 is 16 bytes long")
}

fn say(identity: &Identity, executor: &Endpoint, job: JobId, steer: Steer) -> Result<()> {
    let asked = Instant::now();
    let patient = || asked.elapsed() >= PATIENCE;
    Desk::open(executor, identity).and_then(|desk| desk.steer(job, steer, &patient))
}

impl Seen {
    fn note(&mut self, news: &OrderNews) {
        self.heard = Instant::now();
        let OrderNews { files_listed, files_done, files_skipped, files_failed, bytes_done, .. } = *news;
        // What of a large file is there, which no count says before all of it is; each try begins to count anew.
        let reached = news.bytes_reached.max(self.marks[6]);
        let is_listed = news.is_listing_complete.into();
        let marks = [files_listed, files_done, files_skipped, files_failed, bytes_done, is_listed, reached];
        // One that waits for its turn has not begun.
        if marks != self.marks || status_of(news) == Status::Queued {
            (self.marks, self.moved) = (marks, self.heard);
        }
    }
}

/// What an answer means for whoever waits for the slice.
fn judge(told: &Told, seen: &Seen, patience: Duration) -> Option<Outcome> {
    let news = &told.news;
    let text = || Escaped(news.text.as_bytes()).to_string();
    let reason = Reason::from_number(news.reason).unwrap_or(Reason::None);
    match told.status() {
        status if status.is_end() => Some(Outcome::Ended(Box::new(told.clone()))),
        // It would try for itself; another host need not wait for that.
        Status::Waiting if matches!(reason, Reason::Unreachable | Reason::Credentials) => Some(Outcome::Stuck(text())),
        Status::Waiting if reason == Reason::Space => Some(Outcome::Full(text())),
        // Its executor has enough to do.
        Status::Queued => None,
        _ if seen.moved.elapsed() >= patience => {
            Some(Outcome::Stuck(format!("nothing has moved for {} s", patience.as_secs())))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_large_file_that_grows_and_a_slice_that_waits_for_its_turn_are_not_stuck() {
        let long_ago = || Instant::now().checked_sub(2 * STALL).expect("a clock that began earlier");
        let mut seen = Seen { heard: long_ago(), moved: long_ago(), marks: [0; 7] };
        let mut is_stuck = |status: Status, bytes_reached: u64| {
            let news = OrderNews { status: status as u32, bytes_reached, ..OrderNews::default() };
            seen.moved = long_ago();
            seen.note(&news);
            let told = Told { news, ended: None, events: None };
            // What comes next counts from here on.
            assert!(status != Status::Queued || seen.moved.elapsed() < STALL);
            matches!(judge(&told, &seen, STALL), Some(Outcome::Stuck(_)))
        };
        assert!(is_stuck(Status::Running, 0) && !is_stuck(Status::Queued, 0));
        assert!(!is_stuck(Status::Running, 1) && !is_stuck(Status::Running, 2));
        // Another try that comes no further than the one before.
        assert!(is_stuck(Status::Running, 0) && is_stuck(Status::Running, 2) && !is_stuck(Status::Running, 3));
    }

    #[test]
    fn the_warrant_of_a_slice_is_known_to_whoever_knows_the_slice() {
        let (one, other) = (JobId([1; 16]), JobId([2; 16]));
        assert_eq!(warrant_id(one), warrant_id(one));
        assert!(warrant_id(one) != warrant_id(other) && warrant_id(one) != one.0);
    }
}
