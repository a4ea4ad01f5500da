//! A job's rate: one budget for all its lanes, kept at the sender.
//!
//! A piece that is to leave is given the time at which the bytes before it have passed at the rate; its lane waits until
//! then. So the average is the rate however many lanes there are and however late they wake, and nothing leaves in bursts
//! longer than `CATCH_UP`. Control messages have a stream of their own and do not wait. Several may limit the
//! rate; the smallest limit holds.
//!
//! Not here: which rate holds when (`model::pace`).

use crate::job::End;
use crate::stream::{Breaker, Parts, Stream};
use model::pace::Timetable;
use os::sync::{Condvar, Mutex};
use os::time::Instant;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// What was not used of the budget is made up for as far as this: a lane that wakes late loses nothing, and a pause does not
/// end in a long burst.
const CATCH_UP: Duration = Duration::from_millis(250);
/// How often a lane that waits for its turn looks whether it is still needed.
const TURN_INTERVAL: Duration = Duration::from_millis(200);
/// Pieces take a hundredth of a second, but are no shorter than what a record is worth and no longer than a block.
const PIECES_PER_SECOND: u64 = 100;
const PIECE_BYTES_MIN: u64 = 4 << 10;
const PIECE_BYTES_MAX: u64 = 128 << 10;

/// When the next bytes may leave, as a value: time comes in, counted from any moment.
#[derive(Default, Debug)]
struct Bucket {
    due: Duration,
}

impl Bucket {
    /// Takes `bytes` out of the budget; returns when they may leave.
    fn take(&mut self, bytes: u64, bytes_per_second: u64, now: Duration) -> Duration {
        let at = self.due.max(now.saturating_sub(CATCH_UP));
        self.due = at + Duration::from_secs_f64(bytes as f64 / bytes_per_second.max(1) as f64);
        at
    }

    /// What was not used before another rate was set is not made up for; what was taken ahead is not forgiven, and passes at
    /// the new rate.
    fn change(&mut self, before: u64, after: u64, now: Duration) {
        self.due = now + scaled(self.due.saturating_sub(now), before, after);
    }
}

/// How long that lasts at the one rate which lasts so long at the other.
fn scaled(wait: Duration, before: u64, after: u64) -> Duration {
    if before == 0 || after == 0 { Duration::ZERO } else { wait.mul_f64(before as f64 / after as f64) }
}

/// Who may limit a rate.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(usize)]
pub enum By {
    /// The user of this side.
    User = 0,
    /// The other side, by message 70.
    Peer = 1,
    /// The endpoint that this side is, over all its jobs.
    Endpoint = 2,
}

/// The limits that this side sets to a sender elsewhere, and what it was told last.
#[derive(Default)]
pub(crate) struct RateLimits {
    pub rates: [Option<u64>; 3],
    pub payload_bytes_max: u64,
    /// Lanes that are to work; 0 for all.
    pub streams: u32,
    pub told: Option<wire::message::Pace>,
}

/// The rate of one job.
pub struct Pace {
    /// Bytes a second; 0 is no limit, which costs a lane one load.
    rate: AtomicU64,
    /// By whom; 0 is none.
    limits: [AtomicU64; 3],
    bucket: Mutex<Bucket>,
    changed: Condvar,
    began: Instant,
}

impl Default for Pace {
    fn default() -> Pace {
        let (bucket, changed) = (Mutex::default(), Condvar::default());
        Pace { rate: AtomicU64::new(0), limits: Default::default(), bucket, changed, began: Instant::now() }
    }
}

impl Pace {
    pub fn set(&self, by: By, bytes_per_second: Option<u64>) {
        let mut bucket = self.bucket.lock().unwrap();
        self.limits[by as usize].store(bytes_per_second.unwrap_or(0), Relaxed);
        let limits = self.limits.iter().map(|limit| limit.load(Relaxed)).filter(|rate| *rate > 0);
        let rate = if model::mutant::is_on("last-pace-wins") { bytes_per_second } else { limits.min() }.unwrap_or(0);
        let before = self.rate.swap(rate, Relaxed);
        if before != rate {
            bucket.change(before, rate, self.began.elapsed());
            self.changed.notify_all();
        }
    }

    pub fn rate(&self) -> Option<u64> {
        Some(self.rate.load(Relaxed)).filter(|rate| *rate > 0)
    }

    /// Waits until `bytes` may leave, or until nobody needs them any more.
    pub fn wait(&self, bytes: usize, is_over: &dyn Fn() -> bool) {
        if self.rate().is_none() {
            return;
        }
        let mut bucket = self.bucket.lock().unwrap();
        let Some(mut rate) = self.rate() else { return };
        let mut at = bucket.take(bytes as u64, rate, self.began.elapsed());
        while let Some(left) = at.checked_sub(self.began.elapsed())
            && !left.is_zero()
            && !is_over()
        {
            bucket = self.changed.wait_timeout(bucket, left.min(TURN_INTERVAL)).unwrap().0;
            let Some(now) = self.rate() else { return };
            if now != rate {
                let elapsed = self.began.elapsed();
                (at, rate) = (elapsed + scaled(at.saturating_sub(elapsed), rate, now), now);
            }
        }
    }
}

fn piece_bytes(rate: u64) -> usize {
    (rate / PIECES_PER_SECOND).clamp(PIECE_BYTES_MIN, PIECE_BYTES_MAX) as usize
}

/// A stream on which nothing leaves before its time.
pub struct Paced<'a, S> {
    inner: S,
    pace: &'a Pace,
    end: &'a End,
    paced_ns: u64,
}

impl<'a, S: Stream> Paced<'a, S> {
    pub fn new(inner: S, pace: &'a Pace, end: &'a End) -> Paced<'a, S> {
        Paced { inner, pace, end, paced_ns: 0 }
    }
}

impl<S: Stream> Stream for Paced<'_, S> {
    fn send(&mut self, parts: &[&[u8]]) -> io::Result<()> {
        if self.pace.rate().is_none() {
            return self.inner.send(parts);
        }
        let mut parts = Parts::new(parts);
        while !parts.is_empty() {
            let piece = parts.take(self.pace.rate().map_or(usize::MAX, piece_bytes));
            let before = Instant::now();
            let inner = &self.inner;
            self.pace.wait(piece.iter().map(|part| part.len()).sum(), &|| self.end.is_set() || inner.is_broken());
            self.paced_ns += before.elapsed().as_nanos() as u64;
            self.inner.send(&piece)?;
        }
        Ok(())
    }

    fn recv_exact(&mut self, buffer: &mut [u8]) -> io::Result<()> {
        self.inner.recv_exact(buffer)
    }

    fn close(&mut self) -> io::Result<()> {
        self.inner.close()
    }

    fn is_broken(&self) -> bool {
        self.inner.is_broken()
    }

    fn breaker(&self) -> Breaker {
        self.inner.breaker()
    }

    fn send_blocked_ns(&self) -> u64 {
        self.inner.send_blocked_ns()
    }

    fn recv_blocked_ns(&self) -> u64 {
        self.inner.recv_blocked_ns()
    }

    fn paced_ns(&self) -> u64 {
        self.paced_ns
    }
}

/// The rate that a timetable has for this moment.
pub fn rate_now(timetable: Option<&Timetable>) -> Option<u64> {
    timetable.and_then(|table| table.rate_at(net::clock::local_minute_of_week()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BinaryHeap;
    use std::sync::Arc;

    /// Lanes that send pieces one after the other, each woken late by up to `late`; returns the bytes that left in `span`.
    fn sent(rate: u64, lanes: usize, late: Duration, span: Duration) -> u64 {
        let mut bucket = Bucket::default();
        bucket.change(0, rate, Duration::ZERO);
        let mut ready: BinaryHeap<_> = (0..lanes).map(|lane| std::cmp::Reverse((Duration::ZERO, lane))).collect();
        let (mut total, mut turn) = (0, 0u32);
        while let Some(std::cmp::Reverse((now, lane))) = ready.pop() {
            if now >= span {
                break;
            }
            let bytes = piece_bytes(rate) as u64;
            let at = bucket.take(bytes, rate, now);
            turn += 1;
            let left = if at > now { at + late * (turn % 4) / 4 } else { now };
            total += if left < span { bytes } else { 0 };
            ready.push(std::cmp::Reverse((left, lane)));
        }
        total
    }

    #[test]
    fn the_average_of_some_seconds_is_the_rate_with_any_number_of_lanes_that_wake_late() {
        let span = Duration::from_secs(5);
        for rate in [64 << 10, 512 << 10, 10_000_000, 125_000_000, 1_250_000_000] {
            for lanes in [1, 2, 8] {
                for late in [Duration::ZERO, Duration::from_millis(1), Duration::from_millis(8)] {
                    let asked = (rate * 5) as f64;
                    let got = sent(rate, lanes, late, span) as f64;
                    assert!((got / asked - 1.0).abs() < 0.03, "{rate} B/s, {lanes} lanes, {late:?}: {}", got / asked);
                }
            }
        }
    }

    #[test]
    fn a_pause_is_made_up_for_by_a_short_burst_only() {
        let rate = 1_000_000;
        let mut bucket = Bucket::default();
        bucket.change(0, rate, Duration::ZERO);
        let now = Duration::from_secs(60);
        let mut burst_bytes = 0;
        while bucket.take(10_000, rate, now) <= now {
            burst_bytes += 10_000;
        }
        assert_eq!(burst_bytes, 260_000);
    }

    #[test]
    fn a_lane_that_waits_goes_on_when_the_limit_is_lifted_or_nobody_needs_it() {
        let pace = Pace::default();
        pace.wait(usize::MAX, &|| panic!("nobody asks without a limit"));
        pace.set(By::User, Some(1 << 10));
        pace.wait(1 << 30, &|| false);
        // A million seconds from its turn.
        pace.wait(1, &|| true);
        let pace = Arc::new(pace);
        let waiting = pace.clone();
        let waiter = std::thread::spawn(move || waiting.wait(1, &|| false));
        pace.set(By::User, None);
        waiter.join().unwrap();
    }

    #[test]
    fn of_several_limits_the_smallest_holds_until_it_is_lifted() {
        let pace = Pace::default();
        pace.set(By::User, Some(5000));
        pace.set(By::Peer, Some(3000));
        pace.set(By::Endpoint, Some(4000));
        assert_eq!(pace.rate(), Some(3000));
        pace.set(By::Peer, None);
        assert_eq!(pace.rate(), Some(4000));
        pace.set(By::User, None);
        pace.set(By::Endpoint, None);
        assert_eq!(pace.rate(), None);
    }

    #[test]
    fn a_rate_that_changes_all_the_time_is_kept_on_average() {
        let (mut bucket, mut rate) = (Bucket::default(), 10_000_000u64);
        bucket.change(0, rate, Duration::ZERO);
        let (mut sent, mut now) = (0u64, Duration::ZERO);
        // Eight lanes wait at any time; every quarter of a second the rate is another one, 10 MB/s on average.
        for tick in 0..40 {
            let end = Duration::from_millis(250) * (tick + 1);
            while bucket.due < end + Duration::from_millis(80) {
                now = now.max(bucket.take(100_000, rate, now));
                sent += 100_000;
            }
            now = end;
            let after = if tick % 2 == 0 { 8_000_000 } else { 12_000_000 };
            bucket.change(rate, after, now);
            rate = after;
        }
        assert!((sent as f64 / 100e6 - 1.0).abs() < 0.03, "{sent}");
    }
}
