//! The data streams of one job: to break them off, and to read what the kernel counted on them.

use model::progress::StreamFacts;
use net::Aborter;
use std::sync::Mutex;

#[derive(Default)]
pub struct StreamWatch {
    streams: Mutex<Vec<Watched>>,
}

struct Watched {
    aborter: Aborter,
    /// The last sample; it stays when the stream is gone.
    facts: StreamFacts,
}

impl StreamWatch {
    pub fn add(&self, aborter: Aborter) {
        self.streams.lock().unwrap().push(Watched { aborter, facts: StreamFacts::default() });
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
                stream.facts = StreamFacts {
                    streams: 1,
                    rtt_us_min: u64::from(info.rtt_us_min),
                    retransmits: u64::from(info.retransmitted_segments_total),
                    busy_us: info.busy_us,
                    receive_window_limited_us: info.rwnd_limited_us,
                    send_buffer_limited_us: info.sndbuf_limited_us,
                };
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
