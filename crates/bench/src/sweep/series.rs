//! The rate of a run over time, from the counters of the sending host's interfaces: what left the host, whatever a tool
//! says about itself.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use lab::Lab;

use crate::counters::Counters;
use crate::error::{Error, Result};
use crate::sample::Sample;
use crate::tool::Host;

/// What shows a run of seconds without the bursts of single round trips.
pub const INTERVAL: Duration = Duration::from_millis(250);
const DIR: &str = "series";

/// Seconds since the start of the count, and Gbit/s over the interval before.
pub type Series = Vec<(f64, f64)>;

/// A thread that reads them at an interval.
pub struct Counter {
    is_over: Arc<AtomicBool>,
    thread: JoinHandle<Series>,
}

impl Counter {
    /// None without a laboratory or an interval.
    pub fn start(lab: Option<&Lab>, interval: Option<Duration>) -> Result<Option<Counter>> {
        let Some((lab, interval)) = lab.zip(interval) else { return Ok(None) };
        let counters = Counters::open(lab, Host::Client)?;
        let is_over = Arc::new(AtomicBool::new(false));
        let flag = Arc::clone(&is_over);
        let thread = thread::spawn(move || counted(&counters, &flag, interval));
        Ok(Some(Counter { is_over, thread }))
    }

    pub fn finish(self) -> Series {
        self.is_over.store(true, Relaxed);
        self.thread.join().unwrap_or_default()
    }
}

fn counted(counters: &Counters, is_over: &AtomicBool, interval: Duration) -> Series {
    let start = Instant::now();
    let (mut last_at, mut last) = (start, counters.sent_bytes());
    let mut series = Vec::new();
    while !is_over.load(Relaxed) {
        thread::sleep(interval);
        let (now, bytes) = (Instant::now(), counters.sent_bytes());
        let gbit_per_second = bytes.saturating_sub(last) as f64 * 8.0 / 1e9 / (now - last_at).as_secs_f64();
        series.push(((now - start).as_secs_f64(), gbit_per_second));
        (last_at, last) = (now, bytes);
    }
    series
}

/// From the first interval with content to the last.
pub fn trimmed(series: &Series) -> Series {
    let peak = series.iter().map(|point| point.1).fold(0.0, f64::max);
    let has_content = |point: &(f64, f64)| point.1 > peak / 100.0;
    let first = series.iter().position(has_content).unwrap_or(0);
    let last = series.iter().rposition(has_content).map_or(0, |last| last + 1);
    let start = first.checked_sub(1).map_or(0.0, |before| series[before].0);
    series.get(first..last).unwrap_or_default().iter().map(|(at, rate)| (at - start, *rate)).collect()
}

pub fn path(dir: &Path, condition: &str, set: &str, tool: &str, round: u32) -> PathBuf {
    let plain = |c: char| if c.is_ascii_alphanumeric() || matches!(c, '=' | '.' | '-') { c } else { '_' };
    let name: String = format!("{condition}-{set}-{tool}-{round}").chars().map(plain).collect();
    dir.join(DIR).join(format!("{name}.csv"))
}

pub fn write(dir: &Path, condition: &str, sample: &Sample, series: &Series) -> Result<()> {
    let path = path(dir, condition, &sample.set, &sample.tool, sample.round);
    let parent = dir.join(DIR);
    fs::create_dir_all(&parent).map_err(Error::io("create", &parent))?;
    let lines: String = trimmed(series).iter().map(|(at, rate)| format!("{at:.3},{rate:.6}\n")).collect();
    fs::write(&path, format!("seconds,gbit_per_second\n{lines}")).map_err(Error::io("write", &path))
}

/// What `write` wrote; empty where there is none.
pub fn read(path: &Path) -> Series {
    let text = fs::read_to_string(path).unwrap_or_default();
    let point = |line: &str| {
        let (at, rate) = line.split_once(',')?;
        Some((at.parse().ok()?, rate.parse().ok()?))
    };
    text.lines().filter_map(point).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_series_begins_with_its_content_and_survives_the_file() {
        let dir = tempfile::tempdir().unwrap();
        let series = vec![(0.25, 0.0), (0.5, 0.001), (0.75, 1.0), (1.0, 0.0), (1.25, 0.5), (1.5, 0.0)];
        let sample = crate::reference::empty_sample("a (b), c", 1);
        write(dir.path(), "rate=1Gbit rtt=1ms", &sample, &series).unwrap();
        let file = path(dir.path(), "rate=1Gbit rtt=1ms", &sample.set, "a (b), c", 1);
        assert_eq!(read(&file), [(0.25, 1.0), (0.5, 0.0), (0.75, 0.5)]);
        assert!(read(Path::new("nowhere")).is_empty());
    }
}
