//! What a job's streams amount to at one moment, for whoever decides how many of them there should be.
//!
//! Not here: the decision (`plan::adapt`).

use super::Session;
use super::running::{Job, Running};
use model::mutant;
use plan::StreamSample;

/// What is known of a job's streams on one path, or on all, at this moment. A receiver knows the sender's kernel counters from what it tells
/// every second; rate and round trip are those of its own sockets.
pub fn sample(session: &Session, running: &Running, way: Option<usize>, at_us: u64) -> StreamSample {
    let way = way.filter(|_| !mutant::is_on("average-all-paths"));
    let (facts_here, flow) = running.watch.sample(way);
    let is_sender = matches!(running.job, Job::Send(_));
    let progress = running.job.progress();
    let snapshot = progress.snapshot();
    let facts = if is_sender { facts_here } else { snapshot.stream_facts };
    let left_bytes = snapshot.left_bytes();
    let (sender, receiver) = if is_sender { (snapshot.here, snapshot.there) } else { (snapshot.there, snapshot.here) };
    let counts = &snapshot.counts;
    // BBR paces by what it measured and does not yield to single losses.
    let yields_to_loss = match &running.losses {
        Some(follower) => follower.do_losses_hold_back(),
        None => !progress.congestion.lock().unwrap().starts_with("bbr"),
    };
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
        left_bytes,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Progress;
    use crate::job::Port;
    use crate::sender::SendJob;
    use conformance::memory::{Memory, Rules};
    use model::{SessionId, TransferOptions};
    use net::{ClientTls, Connection, ControlOptions, Identity, ServerTls, accept_tls, connect_tls};
    use std::net::{TcpListener, TcpStream};
    use std::sync::Arc;
    use std::time::{Duration, Instant};
    use wire::Message;

    /// Far more than any step takes; only a hang meets it.
    const PATIENCE: Duration = Duration::from_secs(30);
    /// Far more than a handshake, and less than a socket takes of which nobody reads.
    const BYTES: u64 = 32 << 10;

    struct Nobody;

    impl Port for Nobody {
        fn send(&self, _: Message) {}
    }

    /// Both ends of a connection.
    fn connected() -> (Connection, Connection) {
        let (client, server) = (Identity::generate().unwrap(), Identity::generate().unwrap());
        let (tls, soon) = (ClientTls::new(&client, server.pin()).unwrap(), Instant::now() + PATIENCE);
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (far, _) = listener.accept().unwrap();
        let server = ServerTls::new(&server).unwrap();
        let accepting = std::thread::spawn(move || accept_tls(far, &server, soon).unwrap());
        (connect_tls(near, &tls, soon).unwrap(), accepting.join().unwrap())
    }

    #[test]
    fn what_a_path_carries_is_its_own() {
        let (near, _far) = connected();
        let peer = near.peer_pin();
        let (control, _stream) = near.into_control(ControlOptions::default()).unwrap();
        let session = Session::new(SessionId([1; 16]), peer, control, [0; 32]);
        let (source, options) = (Memory::new(Rules::default()).source(), TransferOptions::default());
        let job = SendJob::new(1, options, source, Arc::new(Nobody), Progress::new(), None);
        let running = session.add_job(1, Job::Send(job));
        let (idle, busy) = (connected(), connected());
        let (idle_stream, mut busy_stream) = (idle.0.into_data(), busy.0.into_data());
        running.watch.add(idle_stream.aborter(), 0);
        running.watch.add(busy_stream.aborter(), 1);
        busy_stream.send(&[&vec![0u8; BYTES as usize]]).unwrap();
        let carried = |way| sample(&session, &running, way, 0).delivered_bytes;
        let deadline = Instant::now() + PATIENCE;
        while carried(Some(1)) < BYTES && Instant::now() < deadline {
            std::thread::park_timeout(Duration::from_millis(1));
        }
        let of = [Some(0), Some(1), None].map(carried);
        assert!(of[0] < BYTES && of[1] >= BYTES && of[2] > of[1], "{of:?}");
    }
}
