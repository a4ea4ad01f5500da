//! An executor, and the session that the hub has with it.
//!
//! What is asked may be answered in any order. When the session is cut, what was on its way to the executor arrives or is lost;
//! what was on its way back is lost.

use crate::random::Random;
use model::order::{Reason, Status};
use model::{Exit, JobId};
use std::collections::BTreeMap;

/// One attempt of one job.
pub type Attempt = (JobId, u32);

#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Stage {
    Running(u32),
    Waiting(Reason),
    Stopping,
    Ended(Exit),
}

#[derive(Clone, Copy, Debug)]
pub enum Request {
    HandIn(Attempt),
    Stop(Attempt),
    Renew(Attempt),
    Forget(Attempt),
    Look { as_of: u64 },
}

#[derive(Clone, Debug)]
pub enum Reply {
    Taken(Attempt),
    Refused(Attempt, Exit),
    TakesNone(Attempt),
    Census { as_of: u64, told: Vec<(Attempt, Stage)> },
}

#[derive(Default)]
pub struct Site {
    pub is_up: bool,
    pub takes_orders: bool,
    pub orders: BTreeMap<Attempt, Stage>,
    pub requests: Vec<Request>,
    pub replies: Vec<Reply>,
    /// Counts orders taken, as the hub's side of the session does.
    pub clock: u64,
}

impl Stage {
    pub fn is_active(self) -> bool {
        !matches!(self, Stage::Ended(_))
    }

    pub fn status(self) -> Status {
        match self {
            Stage::Running(_) => Status::Running,
            Stage::Waiting(_) => Status::Waiting,
            Stage::Stopping => Status::Stopping,
            Stage::Ended(_) => Status::Succeeded,
        }
    }
}

impl Site {
    /// Carries a request out. An order that begins is returned.
    pub fn serve(&mut self, request: Request, random: &mut Random, is_calm: bool) -> Option<Attempt> {
        match request {
            Request::HandIn(attempt) if !self.takes_orders => self.replies.push(Reply::TakesNone(attempt)),
            Request::HandIn(attempt) => {
                if !is_calm && !self.orders.contains_key(&attempt) && random.below(12) == 0 {
                    let exits = [Exit::Temporary, Exit::NoSpace, Exit::Usage, Exit::Unreachable];
                    self.replies.push(Reply::Refused(attempt, exits[random.below(4) as usize]));
                    return None;
                }
                let is_new = !self.orders.get(&attempt).is_some_and(|stage| stage.is_active());
                if is_new {
                    self.orders.insert(attempt, Stage::Running(random.below(6) as u32));
                }
                self.replies.push(Reply::Taken(attempt));
                return is_new.then_some(attempt);
            }
            Request::Stop(attempt) => {
                if let Some(stage) = self.orders.get_mut(&attempt).filter(|stage| stage.is_active()) {
                    *stage = if random.below(2) == 0 { Stage::Ended(Exit::Cancelled) } else { Stage::Stopping };
                }
            }
            Request::Renew(attempt) => {
                if let Some(stage @ Stage::Waiting(_)) = self.orders.get_mut(&attempt) {
                    *stage = Stage::Running(1);
                }
            }
            Request::Forget(attempt) => {
                if self.orders.get(&attempt).is_some_and(|stage| !stage.is_active()) {
                    self.orders.remove(&attempt);
                }
            }
            Request::Look { as_of } => {
                let told = self.orders.iter().map(|(attempt, stage)| (*attempt, *stage)).collect();
                self.replies.push(Reply::Census { as_of, told });
            }
        }
        None
    }

    /// What goes on there without a client.
    pub fn work(&mut self, random: &mut Random, is_calm: bool) {
        for stage in self.orders.values_mut() {
            if random.below(3) > 0 {
                continue;
            }
            *stage = match *stage {
                Stage::Running(0) if is_calm => Stage::Ended(Exit::Done),
                Stage::Running(0) => Stage::Ended(match random.below(10) {
                    0 => Exit::Partial,
                    1 => Exit::SourceFileNotFound,
                    2 => Exit::Temporary,
                    _ => Exit::Done,
                }),
                Stage::Running(_) if !is_calm && random.below(6) == 0 => {
                    let reasons = [Reason::Retry, Reason::Unreachable, Reason::Space, Reason::Credentials];
                    Stage::Waiting(reasons[random.below(4) as usize])
                }
                Stage::Running(left) => Stage::Running(left - 1),
                Stage::Waiting(Reason::Credentials) if !is_calm => Stage::Waiting(Reason::Credentials),
                Stage::Waiting(_) => Stage::Running(1),
                // It may come to its end before the word to stop does.
                Stage::Stopping if random.below(6) == 0 => Stage::Ended(Exit::Done),
                Stage::Stopping => Stage::Ended(Exit::Cancelled),
                ended => ended,
            };
        }
    }
}
