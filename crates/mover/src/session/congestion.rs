//! The congestion control of a job's sending streams: what a client may ask of an endpoint, and what is used.
//!
//! Invariant: a client chooses among what every process of the endpoint's host may select; what is told is what the kernel says.
//!
//! Not here: another one where the path itself loses segments and nobody has chosen (`losses`).

use super::running::{Job, Running};
use crate::sender::SendJob;
use net::DataStream;
use wire::{CloseCode, Refusal};

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
    if running.losses.as_ref().is_some_and(|follower| !follower.do_losses_hold_back()) {
        // One that joins beside others with BBR gets it as well.
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
