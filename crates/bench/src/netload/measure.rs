//! One end's part of a run: all lanes flow while their counters are looked at, at the moments of the load.

use std::sync::RwLock;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use net::TcpInfo;
use serde::{Deserialize, Serialize};

use super::Load;
use super::lane::Lane;

/// How often a wait looks whether it should end.
const SLICE: Duration = Duration::from_millis(50);

/// What one end knows of one stream, since its start unless said otherwise. Travels as an array, to disturb little.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(from = "[u64; 14]", into = "[u64; 14]")]
pub struct Counters {
    /// Taken by the receiving program, or given to the kernel by the sending one.
    pub bytes: u64,
    /// Of the thread that moves the bytes.
    pub cpu_us: u64,
    /// From here on only the sender knows.
    pub retransmitted_segments: u64,
    pub retransmitted_bytes: u64,
    pub sent_segments: u64,
    pub sent_bytes: u64,
    pub busy_us: u64,
    pub rwnd_limited_us: u64,
    pub sndbuf_limited_us: u64,
    /// Of the moment, and so are all that follow.
    pub rtt_us: u64,
    pub rtt_us_min: u64,
    pub cwnd_segments: u64,
    pub mss_bytes: u64,
    pub delivery_bytes_per_second: u64,
}

/// All lanes of one end at one moment.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Sample {
    /// Of the moment.
    pub number: u32,
    /// By this end's clock.
    pub elapsed_us: u64,
    /// By lane.
    pub lanes: Vec<Counters>,
    /// Lanes whose connection ended before its time.
    pub broken: Vec<u32>,
}

/// Lets all lanes flow, hands a sample of each moment to `on_sample`, then waits for `is_over`, and cuts all lanes.
///
/// The clock starts when `begin`, called once all lanes may send, returns true. Ends early when it does not, when `is_over` is set, when `on_sample` returns false, or when nobody set `is_over` by `patience` after the
/// last moment.
pub fn measure(
    lanes: &[Lane],
    load: &Load,
    is_over: &AtomicBool,
    patience: Duration,
    begin: impl FnOnce() -> bool,
    mut on_sample: impl FnMut(Sample) -> bool,
) {
    let block_bytes = load.block_bytes as usize;
    let gate = RwLock::new(());
    thread::scope(|scope| {
        let cut = Cut { lanes, is_over };
        // A thousand senders that run at once would leave no time to start the next one.
        let closed = gate.write().expect("nobody panics while holding it");
        for lane in lanes {
            let pump = || {
                drop(gate.read());
                lane.pump(block_bytes, is_over);
            };
            if thread::Builder::new().name("netload".into()).spawn_scoped(scope, pump).is_err() {
                return;
            }
        }
        drop(closed);
        if !begin() {
            return;
        }
        let start = Instant::now();
        for (number, moment) in load.moments().into_iter().enumerate() {
            if !wait_until(start + moment.at, is_over) || !on_sample(sample(lanes, number as u32, start)) {
                return;
            }
        }
        wait_until(start + load.total() + patience, is_over);
        drop(cut);
    });
}

/// Wakes all threads when measuring ends, in whatever way.
struct Cut<'a> {
    lanes: &'a [Lane],
    is_over: &'a AtomicBool,
}

impl Drop for Cut<'_> {
    fn drop(&mut self) {
        self.is_over.store(true, Relaxed);
        self.lanes.iter().for_each(Lane::cut);
    }
}

fn sample(lanes: &[Lane], number: u32, start: Instant) -> Sample {
    // Clock and bytes at once; asking the kernel takes a system call for each lane, and other threads may run meanwhile.
    let elapsed_us = start.elapsed().as_micros() as u64;
    let bytes: Vec<u64> = lanes.iter().map(Lane::bytes).collect();
    let broken = lanes.iter().enumerate().filter(|(_, lane)| lane.is_broken()).map(|(index, _)| index as u32).collect();
    let counters = lanes.iter().zip(bytes).map(|(lane, bytes)| Counters { bytes, ..lane.counters() }).collect();
    Sample { number, elapsed_us, lanes: counters, broken }
}

/// False when it was over before that.
fn wait_until(moment: Instant, is_over: &AtomicBool) -> bool {
    loop {
        let left = moment.saturating_duration_since(Instant::now());
        if left.is_zero() || is_over.load(Relaxed) {
            return !is_over.load(Relaxed);
        }
        thread::sleep(left.min(SLICE));
    }
}

impl Counters {
    pub fn of(info: &TcpInfo) -> Counters {
        Counters {
            bytes: 0,
            cpu_us: 0,
            retransmitted_segments: info.retransmitted_segments_total.into(),
            retransmitted_bytes: info.bytes_retransmitted,
            sent_segments: info.segments_sent.into(),
            sent_bytes: info.bytes_sent,
            busy_us: info.busy_us,
            rwnd_limited_us: info.rwnd_limited_us,
            sndbuf_limited_us: info.sndbuf_limited_us,
            rtt_us: info.rtt_us.into(),
            rtt_us_min: info.rtt_us_min.into(),
            cwnd_segments: info.cwnd_segments.into(),
            mss_bytes: info.mss_bytes.into(),
            delivery_bytes_per_second: info.delivery_rate_bytes_per_second,
        }
    }

    /// What was added since `earlier`; what is of the moment stays.
    pub fn since(&self, earlier: &Counters) -> Counters {
        Counters {
            bytes: self.bytes.saturating_sub(earlier.bytes),
            cpu_us: self.cpu_us.saturating_sub(earlier.cpu_us),
            retransmitted_segments: self.retransmitted_segments.saturating_sub(earlier.retransmitted_segments),
            retransmitted_bytes: self.retransmitted_bytes.saturating_sub(earlier.retransmitted_bytes),
            sent_segments: self.sent_segments.saturating_sub(earlier.sent_segments),
            sent_bytes: self.sent_bytes.saturating_sub(earlier.sent_bytes),
            busy_us: self.busy_us.saturating_sub(earlier.busy_us),
            rwnd_limited_us: self.rwnd_limited_us.saturating_sub(earlier.rwnd_limited_us),
            sndbuf_limited_us: self.sndbuf_limited_us.saturating_sub(earlier.sndbuf_limited_us),
            ..*self
        }
    }
}

impl From<Counters> for [u64; 14] {
    fn from(c: Counters) -> [u64; 14] {
        [
            c.bytes,
            c.cpu_us,
            c.retransmitted_segments,
            c.retransmitted_bytes,
            c.sent_segments,
            c.sent_bytes,
            c.busy_us,
            c.rwnd_limited_us,
            c.sndbuf_limited_us,
            c.rtt_us,
            c.rtt_us_min,
            c.cwnd_segments,
            c.mss_bytes,
            c.delivery_bytes_per_second,
        ]
    }
}

impl From<[u64; 14]> for Counters {
    fn from(values: [u64; 14]) -> Counters {
        let [
            bytes,
            cpu_us,
            retransmitted_segments,
            retransmitted_bytes,
            sent_segments,
            sent_bytes,
            busy_us,
            rwnd_limited_us,
            sndbuf_limited_us,
            rtt_us,
            rtt_us_min,
            cwnd_segments,
            mss_bytes,
            delivery_bytes_per_second,
        ] = values;
        Counters {
            bytes,
            cpu_us,
            retransmitted_segments,
            retransmitted_bytes,
            sent_segments,
            sent_bytes,
            busy_us,
            rwnd_limited_us,
            sndbuf_limited_us,
            rtt_us,
            rtt_us_min,
            cwnd_segments,
            mss_bytes,
            delivery_bytes_per_second,
        }
    }
}
