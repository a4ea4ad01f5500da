//! What a job's streams amount to at one moment, for whoever decides how many of them there should be.
//!
//! Not here: the decision (`plan::adapt`).

use super::Session;
use super::running::{Job, Running};
use plan::StreamSample;

/// What is known of a job's streams on one path, or on all, at this moment. A receiver knows the sender's kernel counters from what it tells
/// every second; rate and round trip are those of its own sockets.
pub fn sample(session: &Session, running: &Running, way: Option<usize>, at_us: u64) -> StreamSample {
    let (facts_here, flow) = running.watch.sample(way);
    let is_sender = matches!(running.job, Job::Send(_));
    let progress = running.job.progress();
    let snapshot = progress.snapshot();
    let facts = if is_sender { facts_here } else { snapshot.stream_facts };
    let (sender, receiver) = if is_sender { (snapshot.here, snapshot.there) } else { (snapshot.there, snapshot.here) };
    let counts = &snapshot.counts;
    let gone_bytes = counts.bytes_sent + counts.bytes_resumed + counts.bytes_skipped;
    // BBR paces by what it measured and does not yield to single losses.
    let yields_to_loss = !progress.congestion.lock().unwrap().starts_with("bbr");
    StreamSample {
        at_us,
        is_local: false,
        streams: flow.streams_open.min(snapshot.streams),
        delivered_bytes: flow.moved_bytes,
        retransmits: facts.retransmits,
        yields_to_loss,
        busy_us: facts.busy_us,
        window_limited_us: facts.receive_window_limited_us.saturating_add(facts.send_buffer_limited_us),
        rtt_us_min: if facts.rtt_us_min > 0 { facts.rtt_us_min } else { session.rtt_us() },
        rtt_us: flow.rtt_us,
        rtt_var_us: flow.rtt_var_us,
        sender,
        receiver,
        files: counts.files_done,
        file_bytes: counts.bytes_done,
        left_bytes: snapshot.is_listing_complete.then(|| counts.bytes_listed.saturating_sub(gone_bytes)),
    }
}
