//! The congestion control of a job's sending streams: what a client may ask of an endpoint, what is used, and another one where the path
//! itself loses segments and nobody has chosen.
//!
//! Invariants: a client chooses among what every process of the endpoint's host may select; what is told is what the kernel says.
//!
//! Not here: when another one is tried and kept (`plan::LossWatch`).

use super::running::{Job, Running};
use super::sample::left_bytes;
use crate::sender::{Said, SendJob};
use model::Class;
use net::{DataStream, socket};
use plan::{LossWatch, Sent};
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use wire::{CloseCode, Refusal};

/// Goes by what the path delivers, and not by single losses.
const BBR: &str = "bbr";
/// How often is looked at most.
pub(super) const INTERVAL: Duration = Duration::from_millis(40);

/// Looks after the congestion control of a sender's streams, each path by itself.
pub(super) struct Follower {
    began: Instant,
    ways: Mutex<Ways>,
}

#[derive(Default)]
struct Ways {
    looked: Option<Instant>,
    /// What streams have of themselves.
    own: String,
    losses: BTreeMap<usize, LossWatch>,
}

impl Running {
    /// Where the streams send, and nobody chose their congestion control.
    pub(super) fn look_at_losses(&self) {
        if let (Some(follower), Job::Send(job)) = (&self.congestion, &self.job)
            && !self.job.is_ended()
        {
            follower.step(self, job);
        }
    }
}

impl Follower {
    /// For a job that sends, as long as nobody chose a congestion control or asked it to be modest.
    pub fn of(job: &Job) -> Option<Follower> {
        let Job::Send(job) = job else { return None };
        let is_free = job.options.congestion.is_none() && job.options.class != Some(Class::Low);
        is_free.then(|| Follower { began: Instant::now(), ways: Mutex::default() })
    }

    /// Looks at what was lost lately, and has streams changed where it is time for that.
    fn step(&self, running: &Running, job: &SendJob) {
        let now = Instant::now();
        let mut ways = self.ways();
        if ways.looked.is_some_and(|looked| now.saturating_duration_since(looked) < INTERVAL) {
            return;
        }
        ways.looked = Some(now);
        if ways.own.is_empty() {
            ways.own.clone_from(&job.progress.congestion.lock().unwrap());
        }
        if ways.own.is_empty() || ways.own.starts_with(BBR) {
            return;
        }
        let at_us = now.saturating_duration_since(self.began).as_micros() as u64;
        let Ways { own, losses, .. } = &mut *ways;
        let open = running.watch.ways();
        if open.is_empty() {
            // Between two connections, or at the end: what was used last is told.
            return;
        }
        let mut streams = 0;
        for place in &open {
            let losses = losses.entry(*place).or_default();
            losses.step(&sent(running, *place, at_us), &|| socket::check_change(own, BBR));
            streams += losses.streams();
            if running.watch.use_congestion(*place, losses.streams() as usize, &job.lanes_with_memory(), BBR) {
                losses.has_changed(at_us);
            }
        }
        *job.progress.congestion.lock().unwrap() = if streams > 0 { BBR } else { own.as_str() }.to_owned();
        // Lanes on several paths are told apart by what they carry: none of them rests.
        job.limit_working(Said::ForLosses, if open.len() == 1 { streams } else { 0 });
    }

    fn ways(&self) -> MutexGuard<'_, Ways> {
        self.ways.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether losses on a path, or on one of all, may be a reason for more streams: they are not where they are congestion, or where BBR
    /// sees to them.
    pub fn do_losses_hold_back(&self, place: Option<usize>) -> bool {
        let now_us = self.began.elapsed().as_micros() as u64;
        let ways = self.ways();
        let of_way = ways.losses.iter().filter(|(way, _)| place.is_none_or(|place| place == **way));
        let is_seen_to = |losses: &LossWatch| losses.streams() > 0 || losses.are_losses_congestion(now_us);
        !ways.own.starts_with(BBR) && !of_way.map(|(_, losses)| losses).any(is_seen_to)
    }

    /// BBR is being tried: what is measured meanwhile is its doing.
    pub fn is_trying(&self) -> bool {
        self.ways().losses.values().any(LossWatch::is_trying)
    }

    /// What was done on a path and why, when anything was.
    pub fn note(&self, place: usize) -> Option<String> {
        self.ways().losses.get(&place)?.note()
    }
}

fn sent(running: &Running, place: usize, at_us: u64) -> Sent {
    let (facts, flow) = running.watch.sample(Some(place));
    let bbr = running.watch.facts_of_changed(place);
    Sent {
        at_us,
        streams: flow.streams_open,
        bytes: flow.moved_bytes,
        segments: flow.segments_sent,
        segments_again: facts.retransmits,
        rtt_us_min: facts.rtt_us_min,
        rtt_us: flow.rtt_us,
        rtt_var_us: flow.rtt_var_us,
        busy_us: bbr.busy_us,
        window_limited_us: bbr.receive_window_limited_us.saturating_add(bbr.send_buffer_limited_us),
        left_bytes: left_bytes(&running.job.progress().snapshot()),
    }
}

/// A name is refused when the job is opened, not when its first stream joins: then there is somebody to tell.
pub fn check(name: Option<&str>) -> Result<(), Refusal> {
    let Some(name) = name else { return Ok(()) };
    net::socket::check_congestion(name).map_err(|e| {
        let text = match &e.kind {
            net::ErrorKind::CongestionUnavailable { available, .. } => {
                format!("congestion control {name} cannot be used there: that host allows {available}")
            }
            _ => format!("congestion control {name} cannot be used there: {e}"),
        };
        Refusal::new(CloseCode::Forbidden, &text)
    })
}

/// Sets what the job asks for on a stream that has joined, and tells the receiver what is used.
pub fn use_asked(job: &SendJob, running: &Running, stream: &DataStream) {
    if let Some(name) = &job.options.congestion {
        // Allowed when the job was opened. Where it is not any more, what is told is what is used.
        let _ = net::socket::set_congestion(stream, name);
    }
    if note(running, stream) {
        // A short job is over before times are told in their turn.
        job.tell_times();
    }
}

/// Keeps what the kernel says of a stream that sends; true when it was not known before.
pub fn note(running: &Running, stream: &DataStream) -> bool {
    let Ok(name) = net::socket::congestion(stream) else { return false };
    if running.congestion.as_ref().is_some_and(|follower| !follower.do_losses_hold_back(None)) {
        // A stream that rests, beside one that has another one.
        return false;
    }
    let mut held = running.job.progress().congestion.lock().unwrap();
    let is_new = *held != name;
    *held = name;
    is_new
}

/// What the sender elsewhere was asked for.
pub fn asked(running: &Running) -> Option<String> {
    match &running.job {
        Job::Send(_) => None,
        Job::Receive(job) => job.options.congestion.clone(),
    }
}
