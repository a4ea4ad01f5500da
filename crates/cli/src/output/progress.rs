//! What is shown while a transfer runs: bars on a terminal, a line now and then elsewhere, events for programs.
//!
//! One thread for each attempt looks at the counters; the data path never waits for it.

use crate::output::json::Events;
use crate::output::{counted, duration, grouped};
use crate::transfer::Direction;
use clap::ValueEnum;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use model::progress::{Bottleneck, Counts, LaneTimes, StreamFacts};
use model::quantity::{ByteCount, Rate};
use mover::{Progress, Snapshot};
use plan::{Amounts, Observed};
use std::collections::VecDeque;
use std::io::IsTerminal;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How progress is shown to a person.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Mode {
    /// Bars on a terminal, otherwise a line every 30 s
    Auto,
    /// Bars
    Bar,
    /// A line every 30 s
    Plain,
    /// Nothing
    None,
}

impl Mode {
    /// What `auto` amounts to here.
    pub fn resolved(self, is_json: bool, is_quiet: bool) -> Mode {
        let is_dumb = std::env::var_os("TERM").is_none_or(|term| term == "dumb");
        match self {
            Mode::Auto if is_json || is_quiet => Mode::None,
            Mode::Auto if std::io::stderr().is_terminal() && !is_dumb => Mode::Bar,
            Mode::Auto => Mode::Plain,
            chosen => chosen,
        }
    }
}

const BAR_INTERVAL: Duration = Duration::from_millis(200);
const EVENT_INTERVAL: Duration = Duration::from_secs(1);
const LINE_INTERVAL: Duration = Duration::from_secs(30);
/// The present rate is that of the last few seconds: shorter jumps, longer lags.
const WINDOW: Duration = Duration::from_secs(4);

/// A moment of a transfer, with what can be concluded from the moments before.
pub struct Sample {
    pub counts: Counts,
    pub is_listing_complete: bool,
    pub seconds: f64,
    pub streams: u32,
    pub rate_now: Rate,
    pub rate_average: Rate,
    pub files_per_second: f64,
    pub seconds_left: Option<f64>,
    /// Of the last few seconds.
    pub bottleneck: Bottleneck,
}

/// The bar that stands on the terminal, so that others can write above it.
static BAR: Mutex<Option<ProgressBar>> = Mutex::new(None);

/// Lines of talk that leave a bar on the terminal whole.
pub fn beside_bar(lines: &[String]) {
    let write = || lines.iter().for_each(|line| super::note(line));
    match &*BAR.lock().unwrap() {
        Some(bar) => bar.suspend(write),
        None => write(),
    }
}

/// Shows a transfer until it is dropped.
pub struct Display {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Display {
    pub fn start(progress: Arc<Progress>, direction: Direction, mode: Mode, events: Option<Arc<Events>>) -> Display {
        let (stop, stopped) = channel();
        let tick = match (mode, &events) {
            (Mode::Bar, _) => BAR_INTERVAL,
            (_, Some(_)) => EVENT_INTERVAL,
            (Mode::Plain, None) => LINE_INTERVAL,
            (_, None) => return Display { stop: None, thread: None },
        };
        let mut shown =
            Shown { mode, events, bar: (mode == Mode::Bar).then(bar), last_event: None, last_line: Instant::now() };
        *BAR.lock().unwrap() = shown.bar.clone();
        let run = move || {
            let mut history = History::new(direction);
            while let Err(RecvTimeoutError::Timeout) = stopped.recv_timeout(tick) {
                let sample = history.sample(progress.snapshot());
                shown.show(&sample);
            }
            *BAR.lock().unwrap() = None;
            if let Some(bar) = shown.bar {
                bar.finish_and_clear();
            }
        };
        let thread = std::thread::Builder::new().name("display".into()).spawn(run).ok();
        Display { stop: Some(stop), thread }
    }
}

impl Drop for Display {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// What limited a whole attempt, or the part between two snapshots.
pub fn bottleneck(from: Option<&Snapshot>, to: &Snapshot, direction: Direction) -> Bottleneck {
    let none = LaneTimes::default();
    let (here, there, facts) = match from {
        Some(from) => (since(&from.here, &to.here), since(&from.there, &to.there), facts_since(from, to)),
        None => (to.here.clone(), to.there.clone(), to.stream_facts),
    };
    let (sender, receiver) = match direction {
        Direction::Push => (&here, &there),
        Direction::Pull => (&there, &here),
        Direction::Local => (&here, if there.lanes > 0 { &there } else { &none }),
    };
    let is_local = direction == Direction::Local;
    plan::bottleneck(&Observed { sender, receiver, facts: &facts, is_local, amounts: amounts_since(from, to) })
}

fn amounts_since(from: Option<&Snapshot>, to: &Snapshot) -> Amounts {
    let (files, bytes, elapsed) = match from {
        Some(from) => (from.counts.files_done, moved(&from.counts), from.elapsed),
        None => (0, 0, Duration::ZERO),
    };
    Amounts {
        files: to.counts.files_done.saturating_sub(files),
        bytes: moved(&to.counts).saturating_sub(bytes),
        seconds: to.elapsed.saturating_sub(elapsed).as_secs_f64(),
    }
}

fn since(from: &LaneTimes, to: &LaneTimes) -> LaneTimes {
    let mut times = to.clone();
    times.cpu_ns = to.cpu_ns.saturating_sub(from.cpu_ns);
    times.cpu_wait_ns = to.cpu_wait_ns.saturating_sub(from.cpu_wait_ns);
    times.commit_sync_ns = to.commit_sync_ns.saturating_sub(from.commit_sync_ns);
    times.commit_publish_ns = to.commit_publish_ns.saturating_sub(from.commit_publish_ns);
    for (ns, before) in times.stage_ns.iter_mut().zip(from.stage_ns) {
        *ns = ns.saturating_sub(before);
    }
    times
}

fn facts_since(from: &Snapshot, to: &Snapshot) -> StreamFacts {
    let (from, to) = (&from.stream_facts, &to.stream_facts);
    StreamFacts {
        retransmits: to.retransmits.saturating_sub(from.retransmits),
        busy_us: to.busy_us.saturating_sub(from.busy_us),
        receive_window_limited_us: to.receive_window_limited_us.saturating_sub(from.receive_window_limited_us),
        send_buffer_limited_us: to.send_buffer_limited_us.saturating_sub(from.send_buffer_limited_us),
        ..*to
    }
}

/// The snapshots of the last few seconds.
pub struct History {
    direction: Direction,
    snapshots: VecDeque<Snapshot>,
}

impl History {
    pub fn new(direction: Direction) -> History {
        History { direction, snapshots: VecDeque::new() }
    }

    pub fn sample(&mut self, now: Snapshot) -> Sample {
        // The oldest one that is kept is the last that lies outside the window.
        while self.snapshots.get(1).is_some_and(|second| now.elapsed.saturating_sub(second.elapsed) >= WINDOW) {
            self.snapshots.pop_front();
        }
        let from = self.snapshots.front();
        let (bytes, files, elapsed) = match from {
            Some(from) => (moved(&from.counts), from.counts.files_done, from.elapsed),
            None => (0, 0, Duration::ZERO),
        };
        let seconds = now.elapsed.saturating_sub(elapsed).as_secs_f64();
        let rate_now = Rate::over(moved(&now.counts).saturating_sub(bytes), seconds);
        let files = now.counts.files_done.saturating_sub(files);
        let files_per_second = if seconds > 0.0 { files as f64 / seconds } else { 0.0 };
        let (rate, complete) = (rate_now.bytes_per_second, now.is_listing_complete);
        let estimated = Counts { bytes_done: reached(&now.counts), ..now.counts };
        let sample = Sample {
            counts: now.counts,
            is_listing_complete: complete,
            seconds: now.elapsed.as_secs_f64(),
            streams: now.streams,
            rate_now,
            rate_average: Rate::over(moved(&now.counts), now.elapsed.as_secs_f64()),
            files_per_second,
            seconds_left: plan::time_left(&estimated, complete, rate, files_per_second),
            bottleneck: bottleneck(from, &now, self.direction),
        };
        self.snapshots.push_back(now);
        sample
    }
}

/// Bytes that are at the destination or on their way: a large file is not over before its end, but it moves.
fn reached(counts: &Counts) -> u64 {
    let under_way = counts.bytes_sent.saturating_add(counts.bytes_resumed);
    counts.bytes_done.max(under_way.min(counts.bytes_listed.saturating_sub(counts.bytes_skipped)))
}

/// What was verified in an earlier run did not take part of this one's time.
fn moved(counts: &Counts) -> u64 {
    reached(counts).saturating_sub(counts.bytes_resumed)
}

struct Shown {
    mode: Mode,
    events: Option<Arc<Events>>,
    bar: Option<ProgressBar>,
    last_event: Option<Instant>,
    last_line: Instant,
}

impl Shown {
    fn show(&mut self, sample: &Sample) {
        // Ticks come a little early or late: an event that is nearly due is due.
        let is_due =
            |last: Option<Instant>| last.is_none_or(|last| last.elapsed() + BAR_INTERVAL / 2 >= EVENT_INTERVAL);
        if let Some(events) = &self.events
            && is_due(self.last_event)
        {
            self.last_event = Some(Instant::now());
            events.progress(sample);
        }
        if let Some(bar) = &self.bar {
            draw(bar, sample);
        }
        if self.mode == Mode::Plain && self.last_line.elapsed() + BAR_INTERVAL >= LINE_INTERVAL {
            self.last_line = Instant::now();
            super::note(&format!("{}: {}; {}", duration(sample.seconds), amounts(sample), pace(sample)));
        }
    }
}

fn bar() -> ProgressBar {
    let bar = ProgressBar::with_draw_target(Some(100), ProgressDrawTarget::stderr());
    let style = ProgressStyle::with_template("[{bar:24}] {msg}\n{prefix}").expect("a constant template");
    bar.set_style(style.progress_chars("=> "));
    bar
}

fn draw(bar: &ProgressBar, sample: &Sample) {
    let counts = &sample.counts;
    // A tree of empty files has a bar too.
    let over = counts.files_done + counts.files_skipped + counts.files_failed;
    let share = |part: u64, whole: u64| if whole == 0 { 1.0 } else { part as f64 / whole as f64 };
    let bytes = share(reached(counts) + counts.bytes_skipped, counts.bytes_listed);
    let percent = 100.0 * if counts.bytes_listed > 0 { bytes } else { share(over, counts.files_listed) };
    bar.set_position(if counts.files_listed == 0 { 0 } else { percent as u64 });
    bar.set_message(amounts(sample));
    bar.set_prefix(on_screen(&pace(sample)).join("\n"));
}

/// `812 of 1,310 files, 1.20 GiB of 1.93 GiB`.
pub fn amounts(sample: &Sample) -> String {
    let counts = &sample.counts;
    let plus = if sample.is_listing_complete { "" } else { "+" };
    let over = counts.files_done + counts.files_skipped;
    let mut text = format!(
        "{} of {}{plus} files, {} of {}{plus}",
        grouped(over),
        grouped(counts.files_listed),
        ByteCount(reached(counts) + counts.bytes_skipped),
        ByteCount(counts.bytes_listed)
    );
    if counts.files_failed > 0 {
        text.push_str(&format!(", {}", counted(counts.files_failed, "failure", "failures")));
    }
    text
}

/// `9.41 Gbit/s now, 8.80 Gbit/s on average, 12.0 s left; limited by ...`.
pub fn pace(sample: &Sample) -> String {
    let mut text = format!("{} now, {} on average", sample.rate_now, sample.rate_average);
    if sample.files_per_second >= 10.0 {
        text.push_str(&format!(", {} files/s", grouped(sample.files_per_second as u64)));
    }
    if let Some(left) = sample.seconds_left {
        text.push_str(&format!(", {} left", duration(left)));
    }
    if sample.bottleneck.stage != "none" {
        text.push_str(&format!("; {}", sample.bottleneck.sentence));
    }
    text
}

/// A pace for a screen: what limits it on a line of its own, without the figures in brackets, which would wrap.
pub fn on_screen(pace: &str) -> Vec<&str> {
    pace.splitn(2, "; ").map(|part| part.split(" (").next().unwrap_or(part)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn snapshot(seconds: u64, files: u64, bytes: u64) -> Snapshot {
        let progress = Progress::new();
        let counts = Counts {
            files_listed: 100,
            bytes_listed: 100_000_000,
            files_done: files,
            bytes_done: bytes,
            ..Counts::default()
        };
        Snapshot { counts, is_listing_complete: true, elapsed: Duration::from_secs(seconds), ..progress.snapshot() }
    }

    #[test]
    fn the_present_rate_is_that_of_the_last_seconds_and_the_average_that_of_all() {
        let mut history = History::new(Direction::Push);
        for second in 0..10 {
            history.sample(snapshot(second, second, second * 1_000_000));
        }
        for second in 10..15 {
            history.sample(snapshot(second, 10, 10_000_000 + (second - 9) * 5_000_000));
        }
        let sample = history.sample(snapshot(15, 10, 40_000_000));
        assert_eq!(sample.rate_now, Rate { bytes_per_second: 5_000_000.0 });
        assert!((sample.rate_average.bytes_per_second - 40_000_000.0 / 15.0).abs() < 1.0);
        assert_eq!(sample.files_per_second, 0.0);
        assert_eq!(sample.seconds_left.map(f64::round), Some(12.0));
        assert!(history.snapshots.len() <= 6);
    }

    #[test]
    fn a_large_file_moves_before_it_is_done() {
        let mut now = snapshot(1, 0, 0);
        now.counts = Counts { bytes_sent: 30_000_000, bytes_resumed: 20_000_000, ..now.counts };
        assert_eq!((reached(&now.counts), moved(&now.counts)), (50_000_000, 30_000_000));
        now.counts.bytes_sent = 200_000_000;
        assert_eq!(reached(&now.counts), 100_000_000, "what is sent twice arrives once");
    }

    #[test]
    fn what_a_person_reads_names_amounts_rates_and_time_left() {
        let mut history = History::new(Direction::Push);
        history.sample(snapshot(0, 0, 0));
        let mut sample = history.sample(snapshot(10, 50, 50_000_000));
        assert_eq!(amounts(&sample), "50 of 100 files, 47.7 MiB of 95.4 MiB");
        assert_eq!(on_screen("a; b: c (d; e)"), ["a", "b: c"]);
        assert_eq!(pace(&sample), "40.0 Mbit/s now, 40.0 Mbit/s on average, 10.0 s left");
        sample.is_listing_complete = false;
        sample.counts.files_failed = 1;
        assert_eq!(
            amounts(&sample),
            "50 of 100+ files, 47.7 MiB of 95.4+ MiB, 1 failure".replace("95.4+ MiB", "95.4 MiB+")
        );
    }
}
