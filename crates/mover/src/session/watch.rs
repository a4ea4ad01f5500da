//! The data streams of one job: to break them off, and to read what the kernel counted on them.

use model::progress::StreamFacts;
use net::{Aborter, TcpInfo};
use std::sync::Mutex;

#[derive(Default)]
pub struct StreamWatch {
    streams: Mutex<Vec<Watched>>,
}

struct Watched {
    aborter: Aborter,
    /// The last sample; it stays when the stream is gone.
    facts: StreamFacts,
    moved_bytes: u64,
    /// Samples with data under way, and those in which all that the send buffer may hold was, with windows to spare.
    samples: u64,
    short_samples: u64,
}

/// What all streams together have moved, and how long packets take on those that are open.
#[derive(Clone, Copy, Debug, Default)]
pub struct Flow {
    pub streams_open: u32,
    /// Acknowledged by the other side's kernel, or received by this one's; records and handshakes included.
    pub moved_bytes: u64,
    /// Round trip as the sending or the receiving end has it, and its variation, 0 where the kernel keeps none: means
    /// over the streams.
    pub rtt_us: u64,
    pub rtt_var_us: u64,
}

impl Watched {
    fn sample(&mut self, info: &TcpInfo) {
        if info.unacked_segments > 0 {
            self.samples += 1;
            self.short_samples += u64::from(has_sent_all(info));
        }
        // The kernel counts a send buffer as the limit only if it ran empty within the same call that filled it.
        let short_us = info.busy_us.saturating_mul(self.short_samples) / self.samples.max(1);
        self.facts = StreamFacts {
            streams: 1,
            rtt_us_min: u64::from(info.rtt_us_min),
            retransmits: u64::from(info.retransmitted_segments_total),
            busy_us: info.busy_us,
            receive_window_limited_us: info.rwnd_limited_us,
            send_buffer_limited_us: info.sndbuf_limited_us.max(short_us),
        };
    }
}

/// Everything handed to the kernel is under way, and three quarters of neither window are used.
fn has_sent_all(info: &TcpInfo) -> bool {
    let unacked = u64::from(info.unacked_segments);
    let (window, under_way) = (u64::from(info.send_window_bytes), unacked * u64::from(info.mss_bytes));
    let has_room = unacked * 4 < u64::from(info.cwnd_segments) * 3 && (window == 0 || under_way * 4 < window * 3);
    info.not_sent_bytes == 0 && has_room
}

impl StreamWatch {
    pub fn add(&self, aborter: Aborter) {
        self.streams.lock().unwrap().push(Watched {
            aborter,
            facts: StreamFacts::default(),
            moved_bytes: 0,
            samples: 0,
            short_samples: 0,
        });
    }

    /// Streams that are still there.
    pub fn count(&self) -> usize {
        self.streams.lock().unwrap().iter().filter(|stream| stream.aborter.tcp_info().is_some()).count()
    }

    pub fn abort(&self) {
        self.streams.lock().unwrap().iter().for_each(|stream| stream.aborter.abort());
    }

    /// Sums over all streams, those that are gone by their last sample.
    pub fn facts(&self) -> StreamFacts {
        self.sample().0
    }

    /// The same, and what it amounts to at this moment.
    pub fn sample(&self) -> (StreamFacts, Flow) {
        let (mut sum, mut flow) = (StreamFacts::default(), Flow::default());
        for stream in self.streams.lock().unwrap().iter_mut() {
            if let Some(info) = stream.aborter.tcp_info() {
                flow.streams_open += 1;
                // A receiver sends nothing whose round trip tells of the queue; what arrives echoes its time stamps.
                let is_receiving = info.bytes_received > info.bytes_acked;
                flow.rtt_us += u64::from(if is_receiving { info.receive_rtt_us } else { info.rtt_us });
                flow.rtt_var_us += u64::from(if is_receiving { 0 } else { info.rtt_var_us });
                stream.moved_bytes = info.bytes_acked + info.bytes_received;
                stream.sample(&info);
            }
            flow.moved_bytes += stream.moved_bytes;
            let facts = &stream.facts;
            sum.streams += facts.streams;
            sum.retransmits += facts.retransmits;
            sum.busy_us += facts.busy_us;
            sum.receive_window_limited_us += facts.receive_window_limited_us;
            sum.send_buffer_limited_us += facts.send_buffer_limited_us;
            if facts.rtt_us_min > 0 && (sum.rtt_us_min == 0 || facts.rtt_us_min < sum.rtt_us_min) {
                sum.rtt_us_min = facts.rtt_us_min;
            }
        }
        let open = u64::from(flow.streams_open.max(1));
        (flow.rtt_us, flow.rtt_var_us) = (flow.rtt_us / open, flow.rtt_var_us / open);
        (sum, flow)
    }
}
