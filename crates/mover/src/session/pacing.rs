//! Tells a job's sender how fast and how far it may go, as the user of this side set it: by a call where the sender is here,
//! by message 70 where it is there.
//!
//! Not here: keeping to it (`crate::pace`, `sender::allowance`).

use super::Session;
use super::running::{Job, Running};
use crate::pace::rate_now;
use model::TransferOptions;
use wire::message::{self, Pace};

pub struct Pacing<'a> {
    options: &'a TransferOptions,
    told: Option<Pace>,
}

impl<'a> Pacing<'a> {
    pub fn new(options: &'a TransferOptions) -> Pacing<'a> {
        Pacing { options, told: None }
    }

    /// Tells what holds at this moment, where it differs from what was told last.
    pub fn update(&mut self, session: &Session, number: u32, running: &Running) {
        if self.options.pace.is_none() && self.options.payload_bytes_max.is_none() {
            return;
        }
        let rate = rate_now(self.options.pace.as_deref());
        match &running.job {
            Job::Send(job) => job.pace.set(rate),
            Job::Receive(_) => {
                let bytes_per_second = rate.unwrap_or(0);
                // Nothing at all could not be told from no bound; the first unit of work goes anyway.
                let payload_bytes_max = self.options.payload_bytes_max.map_or(0, |max| max.max(1));
                let pace = Pace { job: number, bytes_per_second, payload_bytes_max };
                if self.told.replace(pace) != Some(pace) {
                    let _ = session.control.send(message::encode(pace));
                }
            }
        }
    }
}
