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
    /// Samples with data under way, and those in which all that the send buffer may hold was, with windows to spare.
    samples: u64,
    short_samples: u64,
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
        let mut sum = StreamFacts::default();
        for stream in self.streams.lock().unwrap().iter_mut() {
            if let Some(info) = stream.aborter.tcp_info() {
                stream.sample(&info);
            }
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
        sum
    }
}
