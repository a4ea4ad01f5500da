//! What is shown while a transfer runs: bars on a terminal, a line now and then elsewhere, events for programs.
//!
//! One thread for each attempt looks at the counters; the data path never waits for it.

use crate::output::json::Events;
use crate::output::{counted, duration, grouped};
use clap::ValueEnum;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use model::progress::Behind;
use model::quantity::ByteCount;
use mover::Progress;
use std::io::IsTerminal;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use transfer::{Direction, History, Sample};

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
    let bytes = share(sample.reached_bytes() + counts.bytes_skipped, counts.bytes_listed);
    let percent = 100.0 * if counts.bytes_listed > 0 { bytes } else { share(over, counts.files_listed) };
    bar.set_position(if counts.files_listed == 0 { 0 } else { percent as u64 });
    bar.set_message(amounts(sample));
    bar.set_prefix(on_screen(&pace(sample)).join("\n"));
}

/// `812 of 1,310 files done, 1.20 GiB of 1.93 GiB`: a file that is under way counts with its bytes alone.
pub fn amounts(sample: &Sample) -> String {
    let counts = &sample.counts;
    let plus = if sample.is_listing_complete { "" } else { "+" };
    let over = counts.files_done + counts.files_skipped;
    let files = if counts.files_listed == 1 && sample.is_listing_complete { "file" } else { "files" };
    let mut text = format!(
        "{} of {}{plus} {files} done, {} of {}{plus}",
        grouped(over),
        grouped(counts.files_listed),
        ByteCount(sample.reached_bytes() + counts.bytes_skipped),
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
    if let Some(behind) = &sample.behind {
        text.push_str(&format!(", {}", behind_text(behind)));
    }
    if let Some(legs) = &sample.legs {
        text.push_str(&format!(", {legs}"));
    }
    if sample.bottleneck.stage != "none" {
        text.push_str(&format!("; {}", sample.bottleneck.sentence));
    }
    text
}

/// `12 KiB of 3 growing files behind, p99 40 ms`.
fn behind_text(behind: &Behind) -> String {
    let files = counted(behind.files, "growing file", "growing files");
    let lag = behind.lag.p99.map_or(String::new(), |p99| format!(", lag {} (p99)", duration(p99.as_secs_f64())));
    let alarm = if behind.is_alarmed { ", LAG ALARM" } else { "" };
    format!("{} of {files} behind{lag}{alarm}", ByteCount(behind.bytes))
}

/// A pace for a screen: what limits it on a line of its own, without the figures in brackets, which would wrap.
pub fn on_screen(pace: &str) -> Vec<&str> {
    pace.splitn(2, "; ").map(|part| part.split(" (").next().unwrap_or(part)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::progress::Counts;
    use mover::Snapshot;

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
    fn what_a_person_reads_names_amounts_rates_and_time_left() {
        let mut history = History::new(Direction::Push);
        history.sample(snapshot(0, 0, 0));
        let mut sample = history.sample(snapshot(10, 50, 50_000_000));
        assert_eq!(amounts(&sample), "50 of 100 files done, 47.7 MiB of 95.4 MiB");
        assert_eq!(on_screen("a; b: c (d; e)"), ["a", "b: c"]);
        assert_eq!(pace(&sample), "40.0 Mbit/s now, 40.0 Mbit/s on average, 10.0 s left");
        let one = Counts { files_listed: 1, files_done: 0, ..sample.counts };
        assert!(amounts(&Sample { counts: one, ..sample.clone() }).starts_with("0 of 1 file done, "));
        sample.is_listing_complete = false;
        sample.counts.files_failed = 1;
        assert_eq!(
            amounts(&sample),
            "50 of 100+ files done, 47.7 MiB of 95.4+ MiB, 1 failure".replace("95.4+ MiB", "95.4 MiB+")
        );
    }
}
