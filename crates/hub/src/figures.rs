//! A count of the queue: how many jobs stand where, what came of those that ended, which endpoints answer.
//!
//! Invariant: of endpoints at most `ENDPOINTS_MAX` are named; everything else is counted by words of this program.
//!
//! Not here: how it is told (`metrics`).

use model::{Class, JobId};
use queue::{Queue, Reason, Status};
use std::collections::BTreeMap;
use std::time::Instant;

/// Further endpoints are counted, and not named.
const ENDPOINTS_MAX: usize = 500;
/// What ended since the hub started.
#[derive(Clone, Copy, Default)]
pub struct Ended {
    pub jobs: u64,
    pub files: u64,
    pub bytes: u64,
}

/// A count of the queue.
#[derive(Clone)]
pub struct Figures {
    pub at: Instant,
    /// Open ones.
    pub jobs: BTreeMap<(Status, Class), u64>,
    pub waiting: BTreeMap<Reason, u64>,
    /// The first that was handed in of those that are queued.
    pub oldest: BTreeMap<Class, (u64, JobId)>,
    pub ended: BTreeMap<Status, Ended>,
    /// Whether it answers, of those that were asked.
    pub endpoints: Vec<(String, bool)>,
    pub endpoints_unnamed: u64,
}

impl Figures {
    pub fn count(queue: &Queue, ended: &BTreeMap<Status, Ended>) -> Figures {
        let mut figures = Figures {
            at: Instant::now(),
            jobs: BTreeMap::new(),
            waiting: BTreeMap::new(),
            oldest: BTreeMap::new(),
            ended: ended.clone(),
            endpoints: Vec::new(),
            endpoints_unnamed: 0,
        };
        for job in queue.jobs().filter(|job| job.code.is_none()) {
            let class = job.facts.class;
            *figures.jobs.entry((job.status, class)).or_default() += 1;
            if job.status == Status::Waiting {
                *figures.waiting.entry(job.reason).or_default() += 1;
            }
            if job.status == Status::Queued {
                let oldest = figures.oldest.entry(class).or_insert((job.seq, job.id));
                *oldest = (*oldest).min((job.seq, job.id));
            }
        }
        for endpoint in queue.endpoints() {
            match endpoint.is_up {
                Some(_) if figures.endpoints.len() >= ENDPOINTS_MAX => figures.endpoints_unnamed += 1,
                Some(is_up) => figures.endpoints.push((endpoint.name.to_owned(), is_up)),
                None => {}
            }
        }
        figures
    }
}
