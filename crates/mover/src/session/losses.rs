//! Looks after the losses of a job's sending streams: where the path itself loses and nobody has chosen their congestion control, they
//! use BBR.
//!
//! Not here: when that is tried and kept (`plan::LossWatch`), what a client may ask for (`congestion`).

use super::lossy_paths;
use super::watch::StreamWatch;
use crate::sender::{Said, SendJob};
use model::Class;
use net::socket;
use plan::{Finding, LossWatch, Sent};
use std::net::IpAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Goes by what the path delivers, and not by single losses.
const BBR: &str = "bbr";
/// How often is looked at most.
pub(super) const INTERVAL: Duration = Duration::from_millis(40);

/// Looks after the congestion control of a sender's streams, as long as they are on one path.
pub(super) struct Follower {
    began: Instant,
    /// Of the other side.
    address: Option<IpAddr>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    looked: Option<Instant>,
    /// What streams have of themselves.
    own: String,
    losses: LossWatch,
    /// What later jobs were told of it.
    noted: Finding,
    /// The streams that work have begun anew since the others rest.
    is_restarted: bool,
}

impl Follower {
    /// For a job that sends, as long as nobody chose a congestion control or asked it to be modest.
    pub fn of(job: &SendJob, address: Option<IpAddr>) -> Option<Follower> {
        let is_free = job.options.congestion.is_none() && job.options.class != Some(Class::Low);
        is_free.then(|| Follower { began: Instant::now(), address, state: Mutex::default() })
    }

    /// Looks at what was lost lately, and has streams changed where it is time for that.
    pub fn step(&self, watch: &StreamWatch, job: &SendJob) {
        let now = Instant::now();
        let mut state = self.state();
        if state.looked.is_some_and(|looked| now.saturating_duration_since(looked) < INTERVAL) {
            return;
        }
        state.looked = Some(now);
        if state.own.is_empty() {
            state.own.clone_from(&job.progress.congestion.lock().unwrap());
            if state.own.is_empty() || state.own.starts_with(BBR) {
                return;
            }
            let State { own, losses, .. } = &mut *state;
            if let Some(path) = self.address.and_then(lossy_paths::known) {
                losses.begin_as_known(path, &|| socket::check_change(own, BBR));
            }
        }
        if state.own.starts_with(BBR) {
            return;
        }
        let at_us = self.now_us();
        let State { own, losses, is_restarted, noted, .. } = &mut *state;
        // Lanes on several paths are told apart by what they carry: none of them may rest.
        if watch.has_several_ways() {
            *losses = LossWatch::default();
        } else {
            losses.step(&sent(watch, job, at_us), &|| socket::check_change(own, BBR));
            let finding = losses.finding();
            if let Some(address) = self.address.filter(|_| std::mem::replace(noted, finding) != finding) {
                lossy_paths::note(address, finding);
            }
        }
        // All have it: what stands in the sockets of those that are to rest would take long without.
        let has_bbr = losses.streams() > 0;
        let was_restarted = *is_restarted;
        let has_changed = watch.use_congestion(has_bbr.then_some(BBR));
        let do_others_rest = losses.do_others_rest();
        *is_restarted &= do_others_rest && !has_changed;
        if do_others_rest && !has_changed && !*is_restarted {
            *is_restarted = watch.restart_congestion(BBR, losses.streams() as usize);
        }
        if has_changed || !was_restarted && *is_restarted {
            losses.has_changed(at_us);
        }
        *job.progress.congestion.lock().unwrap() = if has_bbr { BBR } else { own.as_str() }.to_owned();
        job.limit_working(Said::ForLosses, if do_others_rest { losses.streams() } else { 0 });
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now_us(&self) -> u64 {
        self.began.elapsed().as_micros() as u64
    }

    /// Losses may be a reason for more streams: they are not where they are congestion, or where BBR sees to them.
    pub fn do_losses_hold_back(&self) -> bool {
        let state = self.state();
        let is_seen_to = state.losses.streams() > 0 || state.losses.are_losses_congestion(self.now_us());
        !is_seen_to && !state.own.starts_with(BBR)
    }

    /// BBR is being tried: what is measured meanwhile is its doing.
    pub fn is_trying(&self) -> bool {
        self.state().losses.is_trying()
    }

    /// What was done and why, when anything was.
    pub fn note(&self) -> Option<String> {
        self.state().losses.note()
    }
}

fn sent(watch: &StreamWatch, job: &SendJob, at_us: u64) -> Sent {
    let (facts, flow) = watch.sample(None);
    Sent {
        at_us,
        streams: flow.streams_open,
        bytes: flow.moved_bytes,
        segments: flow.segments_sent,
        segments_again: facts.retransmits,
        rtt_us_min: facts.rtt_us_min,
        rtt_us: flow.rtt_us,
        rtt_var_us: flow.rtt_var_us,
        busy_us: facts.busy_us,
        window_limited_us: facts.receive_window_limited_us.saturating_add(facts.send_buffer_limited_us),
        // How much a pipe still has is not known.
        left_bytes: if job.is_sequential() { None } else { job.progress.snapshot().left_bytes() },
    }
}
