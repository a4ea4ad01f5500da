//! How strong a compression pays, found out while a job runs: shared by its lanes.
//!
//! Whether the path, a processor at either end or storage is the limit is not asked. A rung of a ladder of methods is kept
//! while its neighbours are tried now and then for a fraction of a second: up when fewer bytes leave and the content is not
//! slower for it, down when the content is faster, or as fast with no more bytes. A neighbour that was no better is tried
//! ever more rarely.
//!
//! Not here: compressing (`codec`), and content that does not compress (`gate`), of which nothing is learned.

use super::codec::Method;
use model::options::Compression;
use os::sync::Mutex;
use os::time::Instant;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

const AUTO: &[Method] = &[Method::Raw, Method::Lz4, Method::Zstd(1), Method::Zstd(3), Method::Zstd(7)];
const ZSTD: &[Method] = &[Method::Zstd(1), Method::Zstd(3), Method::Zstd(7)];
const LZ4: &[Method] = &[Method::Lz4];
const NONE: &[Method] = &[Method::Raw];

/// Enough for the noise of sockets and schedulers, little against a transfer.
const WINDOW_NS: u64 = 100_000_000;
/// On a slow path a window lasts until so much has left.
const WINDOW_CONTENT_BYTES: u64 = 2 << 20;
/// Windows before a neighbour is tried, at first and after it was no better again and again.
const PATIENCE_MIN: u32 = 1;
const PATIENCE_MAX: u32 = 64;
/// A neighbour with which the content is slower than this is tried much more rarely from then on.
const MUCH_SLOWER: f64 = 0.9;
/// Changes of rate and of bytes below these are noise.
const RATE_NOISE: f64 = 0.02;
const RATIO_NOISE: f64 = 0.02;
/// Lanes that hardly wait for their sockets have no use for fewer bytes.
const WAITING_MIN: f64 = 0.05;
/// Lanes that wait for their sockets for this share of their time fill the path, and then less compression is tried this many
/// times more rarely.
const FULL: f64 = 0.5;
const FULL_PATIENCE: u32 = 4;

/// What left in a window of time.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Window {
    content_per_second: f64,
    /// Bytes on the wire for each byte of content.
    ratio: f64,
    /// Share of the lanes' time that they waited for their sockets.
    waiting: f64,
}

pub struct Choice {
    ladder: &'static [Method],
    rung: AtomicUsize,
    lanes: AtomicU64,
    climber: Mutex<Climber>,
    began: Instant,
    window_ns: AtomicU64,
    content_bytes: AtomicU64,
    wire_bytes: AtomicU64,
    waited_ns: AtomicU64,
    /// Of the content, what may become smaller.
    promising_bytes: AtomicU64,
}

/// What became of one parcel.
#[derive(Clone, Copy, Default)]
pub struct Parcel {
    pub content_bytes: u64,
    pub wire_bytes: u64,
    pub waited_ns: u64,
    pub is_promising: bool,
}

impl Choice {
    pub fn new(compression: Compression) -> Choice {
        let (ladder, rung) = match compression {
            Compression::None => (NONE, 0),
            Compression::Lz4 => (LZ4, 0),
            Compression::Zstd => (ZSTD, 1),
            Compression::Auto => (AUTO, 0),
        };
        Choice {
            ladder,
            rung: AtomicUsize::new(rung),
            lanes: AtomicU64::new(0),
            climber: Mutex::new(Climber::new(ladder.len(), rung)),
            began: Instant::now(),
            window_ns: AtomicU64::new(0),
            content_bytes: AtomicU64::new(0),
            wire_bytes: AtomicU64::new(0),
            waited_ns: AtomicU64::new(0),
            promising_bytes: AtomicU64::new(0),
        }
    }

    pub fn method(&self) -> Method {
        self.ladder[self.rung.load(Relaxed).min(self.ladder.len() - 1)]
    }

    pub fn enter_lane(&self) {
        self.lanes.fetch_add(1, Relaxed);
    }

    pub fn leave_lane(&self) {
        self.lanes.fetch_sub(1, Relaxed);
    }

    /// Notes what became of a parcel; at the end of a window the calling lane judges for all.
    pub fn note(&self, parcel: Parcel) {
        if self.ladder.len() == 1 {
            return;
        }
        let content_bytes = self.content_bytes.fetch_add(parcel.content_bytes, Relaxed) + parcel.content_bytes;
        self.wire_bytes.fetch_add(parcel.wire_bytes, Relaxed);
        self.waited_ns.fetch_add(parcel.waited_ns, Relaxed);
        self.promising_bytes.fetch_add(if parcel.is_promising { parcel.content_bytes } else { 0 }, Relaxed);
        if content_bytes < WINDOW_CONTENT_BYTES {
            return;
        }
        let (start_ns, now_ns) = (self.window_ns.load(Relaxed), self.began.elapsed().as_nanos() as u64);
        let is_over = now_ns.saturating_sub(start_ns) >= WINDOW_NS;
        if is_over && self.window_ns.compare_exchange(start_ns, now_ns, Relaxed, Relaxed).is_ok() {
            self.judge(now_ns - start_ns);
        }
    }

    fn judge(&self, ns: u64) {
        let taken = |total: &AtomicU64| total.swap(0, Relaxed) as f64;
        let content = taken(&self.content_bytes).max(1.0);
        let (wire, waited) = (taken(&self.wire_bytes), taken(&self.waited_ns));
        let promising = taken(&self.promising_bytes);
        // Most of it could not become smaller whatever is done: it says nothing of the rungs.
        if promising < 0.5 * content {
            return;
        }
        let lanes = self.lanes.load(Relaxed).max(1) as f64;
        let window = Window {
            content_per_second: content * 1e9 / ns as f64,
            ratio: wire / content,
            waiting: waited / (lanes * ns as f64),
        };
        let rung = self.climber.lock().unwrap().step(window);
        self.rung.store(rung, Relaxed);
    }
}

/// Walks the ladder, as a value without a clock.
struct Climber {
    rung: usize,
    /// While a neighbour is tried: where from, and what it was like there.
    home: Option<(usize, Window)>,
    /// Of the rung that is kept.
    known: Option<Window>,
    /// Windows since it is kept, or since a neighbour was tried.
    rested: u32,
    patience: Vec<u32>,
    /// The first window has empty buffers to fill and a path to get to know.
    is_first: bool,
}

impl Climber {
    fn new(rungs: usize, rung: usize) -> Climber {
        let patience = vec![PATIENCE_MIN; rungs];
        Climber { rung, home: None, known: None, rested: 0, patience, is_first: true }
    }

    /// Takes in a window on the present rung; returns that of the next.
    fn step(&mut self, window: Window) -> usize {
        if std::mem::take(&mut self.is_first) {
            return self.rung;
        }
        match self.home.take() {
            Some((home, before)) => {
                let is_better = if self.rung > home {
                    window.ratio < before.ratio * (1.0 - RATIO_NOISE)
                        && window.content_per_second >= before.content_per_second * (1.0 - RATE_NOISE)
                } else {
                    window.content_per_second > before.content_per_second * (1.0 + RATE_NOISE)
                        || (window.ratio <= before.ratio * (1.0 + RATIO_NOISE)
                            && window.content_per_second >= before.content_per_second * (1.0 - RATE_NOISE))
                };
                if is_better {
                    // What was left was worse than this one.
                    self.patience[home] = (self.patience[home] * 2).min(PATIENCE_MAX);
                    self.patience[self.rung] = PATIENCE_MIN;
                    self.known = Some(window);
                } else {
                    let is_much = window.content_per_second < before.content_per_second * MUCH_SLOWER;
                    let times = if is_much { 4 } else { 2 };
                    self.patience[self.rung] = (self.patience[self.rung] * times).min(PATIENCE_MAX);
                    self.rung = home;
                    self.known = Some(before);
                }
                self.rested = 0;
            }
            None => {
                let known = self.known.map_or(window, |known| known.mean(window));
                self.known = Some(known);
                self.rested += 1;
                if let Some(neighbour) = self.neighbour(known.waiting) {
                    self.home = Some((self.rung, known));
                    self.rung = neighbour;
                }
            }
        }
        self.rung
    }

    /// The rung to try next, if it is time.
    fn neighbour(&self, waiting: f64) -> Option<usize> {
        let up = Some(self.rung + 1).filter(|up| *up < self.patience.len() && waiting >= WAITING_MIN);
        let down = self.rung.checked_sub(1);
        // A full path hardly wants more bytes: less is tried all the same, because a slow receiver looks like one, but later.
        let rarity = |rung: &usize| if *rung < self.rung && waiting >= FULL { FULL_PATIENCE } else { 1 };
        let due = |rung: &usize| self.rested >= self.patience[*rung] * rarity(rung);
        // Of two that are due the one that was tried in vain less often; lanes that wait look upwards first.
        up.into_iter().chain(down).filter(due).min_by_key(|rung| self.patience[*rung])
    }
}

impl Window {
    fn mean(self, other: Window) -> Window {
        Window {
            content_per_second: (self.content_per_second + other.content_per_second) / 2.0,
            ratio: (self.ratio + other.ratio) / 2.0,
            waiting: (self.waiting + other.waiting) / 2.0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a method costs a lane (seconds a byte of content) and what it leaves of the bytes.
    const MODEL: [(f64, f64); 5] = [(0.0, 1.0), (0.5e-9, 0.5), (2e-9, 0.48), (4e-9, 0.40), (12e-9, 0.38)];

    /// Lets a climber walk over a path: `link` and `lane` in seconds a byte. Returns the mean rate and the last rungs.
    fn walk(link: f64, lane: f64, windows: usize) -> (f64, Vec<usize>) {
        let mut climber = Climber::new(5, 0);
        let (mut rung, mut content, mut rungs) = (0, 0.0, Vec::new());
        for _ in 0..windows {
            let (cost, ratio) = MODEL[rung];
            let (working, sending) = (lane + cost, link * ratio);
            let rate = 1.0 / f64::max(working, sending);
            content += rate;
            let waiting = 1.0 - (working * rate).min(1.0);
            rung = climber.step(Window { content_per_second: rate, ratio, waiting });
            rungs.push(rung);
        }
        (content / windows as f64, rungs)
    }

    fn best(link: f64, lane: f64) -> f64 {
        MODEL.iter().map(|(cost, ratio)| 1.0 / f64::max(lane + cost, link * ratio)).fold(0.0, f64::max)
    }

    #[test]
    fn it_comes_close_to_the_best_rung_whatever_the_path_and_the_processors_are_like() {
        // From 10 Mbit/s to 100 Gbit/s, with lanes of 0.5 and of 4 GB/s.
        for link in [8e-7, 8e-8, 8e-9, 2e-9, 8e-10, 8e-11] {
            for lane in [2e-9, 0.25e-9] {
                let (mean, rungs) = walk(link, lane, 100);
                let share = mean / best(link, lane);
                assert!(share > 0.85, "link {link}, lane {lane}: {share}, {rungs:?}");
                let off = 1.0 / f64::max(lane, link);
                assert!(mean > 0.95 * off, "link {link}, lane {lane}: {} of off", mean / off);
            }
        }
    }

    #[test]
    fn where_nothing_waits_for_the_path_nothing_is_compressed() {
        let (_, rungs) = walk(1e-12, 1e-9, 50);
        let raw = rungs[10..].iter().filter(|rung| **rung == 0).count();
        assert_eq!(raw, 40, "{rungs:?}");
    }

    #[test]
    fn what_was_asked_for_by_name_stays_with_its_codec() {
        assert_eq!(Choice::new(Compression::Lz4).method(), Method::Lz4);
        assert_eq!(Choice::new(Compression::None).method(), Method::Raw);
        assert!(ZSTD.iter().all(|method| matches!(method, Method::Zstd(_))));
    }
}
