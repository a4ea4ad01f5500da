//! What there is to say to one endpoint, and which of its sessions has room for the next of it.
//!
//! Invariant: what needs saying once waits or is being said once, however often it is asked for.
//!
//! Not here: the sessions, and what comes of an errand (`super`).

use crate::order::{Attempt, order_id};
use model::{Class, JobId};
use std::collections::{HashSet, VecDeque};
use std::mem::{Discriminant, discriminant};

/// Errands that are run at once over one session: it has 4 requests open at most, and one of them looks or is somebody's
/// who asks.
const RUNNERS_OF_DESK: usize = 3;
/// An endpoint answers 8 requests of a client at once.
pub const DESKS: usize = 2;
pub const RUNNERS_MAX: usize = DESKS * RUNNERS_OF_DESK;

pub enum Errand {
    HandIn(Box<Attempt>),
    /// Has it tried at once, with a new warrant.
    Renew(Box<Attempt>),
    Stop {
        order: JobId,
    },
    /// Of an order that the endpoint was given and does not have: should it be on its way yet, it is refused.
    TakeBack {
        job: JobId,
        attempt: u32,
    },
    /// Of an order that another endpoint carries out here.
    Revoke {
        order: JobId,
    },
    /// Of an order that another endpoint has, which carries none out any more: nobody is let in here for it.
    Abandon {
        job: JobId,
        attempt: u32,
    },
    /// Of parts that several hosts had of a job that has ended: no host lets anybody in for them any more.
    RevokeParts {
        job: JobId,
        parts: Vec<JobId>,
    },
    Forget {
        order: JobId,
    },
    /// What may be changed of it.
    Change {
        order: JobId,
        rate: Option<String>,
        class: Option<Class>,
    },
    /// All that is known of an ended order.
    Report {
        order: JobId,
    },
}

#[derive(Default)]
pub struct Inbox {
    pub errands: VecDeque<Errand>,
    /// What waits or is being run, of what needs saying once.
    pub pending: HashSet<(Discriminant<Errand>, JobId)>,
    pub runners: usize,
    /// Errands that are being run, by desk.
    pub busy: [usize; DESKS],
    pub idle: usize,
    pub is_looking: bool,
    /// Look at once.
    pub is_wanted: bool,
}

impl Errand {
    /// What may be asked for again before it is done. Of two changes under way neither could be known to arrive last.
    pub fn key(&self) -> Option<(Discriminant<Errand>, JobId)> {
        match self {
            Errand::Stop { order }
            | Errand::Revoke { order }
            | Errand::Forget { order }
            | Errand::Report { order }
            | Errand::Change { order, .. } => Some((discriminant(self), *order)),
            Errand::TakeBack { job, attempt } | Errand::Abandon { job, attempt } => {
                Some((discriminant(self), order_id(*job, *attempt)))
            }
            Errand::RevokeParts { job, .. } => Some((discriminant(self), *job)),
            Errand::HandIn(_) | Errand::Renew(_) => None,
        }
    }
}

impl Inbox {
    /// Whether the errand is a new one.
    pub fn take_in(&mut self, errand: Errand) -> bool {
        let is_new = errand.key().is_none_or(|key| self.pending.insert(key));
        if is_new {
            self.errands.push_back(errand);
        }
        is_new
    }

    /// The next errand, and the desk that has room for it.
    pub fn hand_out(&mut self) -> Option<(Errand, usize)> {
        let desk = self.busy.iter().position(|busy| *busy < RUNNERS_OF_DESK)?;
        let errand = self.errands.pop_front()?;
        self.busy[desk] += 1;
        Some((errand, desk))
    }
}
