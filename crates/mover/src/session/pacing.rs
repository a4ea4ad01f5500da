//! Tells a job's sender how fast and how far it may go, as this side's user and this endpoint set it: by a call where the sender
//! is here, by message 70 where it is there.
//!
//! Not here: keeping to it (`crate::pace`, `sender::allowance`).

use super::Session;
use super::running::{Job, Running};
use crate::pace::{By, RateLimits, rate_now};
use model::TransferOptions;
use model::pace::Timetable;
use wire::message::{self, Pace};

impl Running {
    /// Limits the job's rate, and tells its sender where that changes anything.
    pub(super) fn limit_rate(&self, session: &Session, number: u32, by: By, rate: Option<u64>) {
        match &self.job {
            Job::Send(job) => job.pace.set(by, rate),
            Job::Receive(_) => self.tell(session, number, |limits| limits.rates[by as usize] = rate),
        }
    }

    /// Has so many of the job's lanes work; 0 lets all.
    pub(super) fn limit_streams(&self, session: &Session, number: u32, streams: u32) {
        match &self.job {
            Job::Send(job) => job.set_working(streams),
            Job::Receive(_) => self.tell(session, number, |limits| limits.streams = streams),
        }
    }

    fn tell(&self, session: &Session, number: u32, change: impl FnOnce(&mut RateLimits)) {
        let mut limits = self.limits.lock().unwrap();
        change(&mut limits);
        let bytes_per_second = limits.rates.iter().flatten().min().copied().unwrap_or(0);
        let RateLimits { payload_bytes_max, streams, .. } = *limits;
        let pace = Pace { job: number, bytes_per_second, payload_bytes_max, streams };
        let is_nothing = limits.told.is_none() && pace == Pace { job: number, ..Pace::default() };
        // Never waits: one thread tells the senders of many jobs. What found no room is told with the next limit.
        if !is_nothing && limits.told != Some(pace) && session.control.try_send(message::encode(pace)).is_ok() {
            limits.told = Some(pace);
        }
    }
}

pub struct Pacing<'a> {
    options: &'a TransferOptions,
    has_told: bool,
}

impl<'a> Pacing<'a> {
    pub fn new(options: &'a TransferOptions) -> Pacing<'a> {
        Pacing { options, has_told: false }
    }

    /// Tells what holds at this moment, where it differs from what was told last.
    pub fn update(&mut self, session: &Session, number: u32, running: &Running, pace: Option<&Timetable>) {
        if !self.has_told && pace.is_none() && self.options.payload_bytes_max.is_none() {
            return;
        }
        self.has_told = true;
        // Nothing at all could not be told from no bound; the first unit of work goes anyway.
        let payload_bytes_max = self.options.payload_bytes_max.map_or(0, |max| max.max(1));
        if matches!(running.job, Job::Receive(_)) {
            running.limits.lock().unwrap().payload_bytes_max = payload_bytes_max;
        }
        running.limit_rate(session, number, By::User, rate_now(pace));
    }
}
