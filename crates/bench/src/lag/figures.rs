//! From what was written and seen to figures: percentiles of lag, wrong bytes, what travelled twice.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use serde::Serialize;

use super::appender::Written;
use super::watch::Sight;
use crate::process::Finished;

/// Of a round trip, and what may be added to it.
const P50_EXTRA: Duration = Duration::from_millis(15);
const P99_EXTRA: Duration = Duration::from_millis(100);
/// Of the rate of a copy of finished files, and the size of files from which on it is expected.
const BULK_SHARE: f64 = 0.97;

/// What lag is held against.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Goals {
    pub p50_ms: f64,
    pub p99_ms: f64,
    pub streaming_over_bulk: f64,
}

impl Goals {
    pub fn of(rtt: Duration) -> Goals {
        let [p50_ms, p99_ms] = [rtt / 2 + P50_EXTRA, rtt + P99_EXTRA].map(milliseconds);
        Goals { p50_ms, p99_ms, streaming_over_bulk: BULK_SHARE }
    }
}

pub fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

/// What was seen of one run, before it is made into figures.
pub struct Run {
    pub began: Instant,
    pub log: Vec<Written>,
    pub late_max: Duration,
    pub sight: Sight,
    pub ended: Instant,
    /// Processor time of the client, and how long that was, while files were written.
    pub cpu_seconds: f64,
    pub written_seconds: f64,
}

/// One tool in one round.
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
pub struct Sample {
    pub tool: String,
    pub round: u32,
    pub writes: usize,
    /// Writes that were never seen; they count as seen when the run ended.
    pub unseen: usize,
    pub lag_p50_ms: f64,
    pub lag_p99_ms: f64,
    pub lag_max_ms: f64,
    /// By which the appender was behind its own pace at worst.
    pub appender_late_ms: f64,
    pub written_bytes: u64,
    /// What left the sending host's interface, headers included, and how much more that is than what was written.
    pub sent_bytes: u64,
    pub sent_again_bytes: u64,
    /// Seen while files grew, and in the end.
    pub wrong_bytes_seen: u64,
    pub wrong_bytes_in_the_end: u64,
    pub shrinks: u64,
    pub exit: Option<i32>,
    /// From the first write until all of every file was seen under its last name.
    pub complete_seconds: Option<f64>,
    pub bulk_seconds: Option<f64>,
    pub streaming_over_bulk: Option<f64>,
    /// Of one core, while files were written.
    pub client_cpu_share: f64,
    pub client_rss_bytes_max: u64,
    pub server_rss_bytes_max: u64,
    /// Why the run says more about the emulator than about the tool.
    pub void: Vec<String>,
    /// What the client said, where it did not end well.
    pub note: String,
}

impl Sample {
    pub fn of(tool: &str, round: u32, run: &Run, finished: &Finished) -> Sample {
        let raw = Raw::of(tool, round, run);
        let mut lags: Vec<f64> = raw.rows.iter().map(|row| row.lag_ms).collect();
        lags.sort_by(f64::total_cmp);
        let at = |hundredths: usize| lags[(lags.len() * hundredths).div_ceil(100).clamp(1, lags.len().max(1)) - 1];
        let is_empty = lags.is_empty();
        let of = |hundredths| if is_empty { 0.0 } else { at(hundredths) };
        let first = run.log.first().map_or(run.began, |written| written.at);
        let exit = finished.status.and_then(|status| status.code());
        let said = |text: &str| text.trim().lines().last().unwrap_or_default().chars().take(200).collect();
        Sample {
            tool: tool.to_owned(),
            round,
            writes: raw.rows.len(),
            unseen: raw.rows.iter().filter(|row| !row.is_seen).count(),
            lag_p50_ms: of(50),
            lag_p99_ms: of(99),
            lag_max_ms: of(100),
            appender_late_ms: milliseconds(run.late_max),
            wrong_bytes_seen: run.sight.wrong_bytes,
            shrinks: run.sight.shrinks,
            exit,
            complete_seconds: run.sight.complete.map(|at| at.duration_since(first).as_secs_f64()),
            client_cpu_share: if run.written_seconds > 0.0 { run.cpu_seconds / run.written_seconds } else { 0.0 },
            client_rss_bytes_max: finished.rss_bytes_max,
            server_rss_bytes_max: finished.server_rss_bytes_max,
            note: if exit == Some(0) { String::new() } else { said(&finished.stderr) },
            ..Sample::default()
        }
    }

    pub fn with_ends(self, (written_bytes, sent_bytes, wrong_bytes_in_the_end): (u64, u64, u64)) -> Sample {
        let sent_again_bytes = sent_bytes.saturating_sub(written_bytes);
        Sample { written_bytes, sent_bytes, sent_again_bytes, wrong_bytes_in_the_end, ..self }
    }

    pub fn with_bulk(self, bulk_seconds: Option<f64>) -> Sample {
        let streaming_over_bulk = bulk_seconds.zip(self.complete_seconds).map(|(bulk, streaming)| bulk / streaming);
        Sample { bulk_seconds, streaming_over_bulk, ..self }
    }

    pub fn with_void(self, void: Vec<String>) -> Sample {
        Sample { void, ..self }
    }

    /// One line for people.
    pub fn shown(&self) -> String {
        let unseen = if self.unseen > 0 {
            format!(", {} of {} writes never seen", self.unseen, self.writes)
        } else {
            String::new()
        };
        let exit = self.exit.map_or("killed".to_owned(), |code| format!("exit code {code}"));
        let bulk = self.streaming_over_bulk.map_or(String::new(), |share| format!(", {share:.3} of a copy's rate"));
        let void = if self.void.is_empty() { String::new() } else { format!(", VOID: {}", self.void.join("; ")) };
        format!(
            "{}: lag {:.1} ms median, {:.1} ms p99, {:.0} ms at most{unseen}; {} wrong bytes in the end; {:.2} times the bytes \
             sent; {:.1} % of a core{bulk}; {exit}{void}",
            self.tool,
            self.lag_p50_ms,
            self.lag_p99_ms,
            self.lag_max_ms,
            self.wrong_bytes_in_the_end,
            self.sent_bytes as f64 / self.written_bytes.max(1) as f64,
            self.client_cpu_share * 100.0,
        )
    }
}

/// Every write of one run.
#[derive(Debug)]
pub struct Raw {
    pub tool: String,
    pub round: u32,
    pub rows: Vec<Row>,
}

#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Row {
    pub file: u32,
    pub end: u64,
    pub written_seconds: f64,
    pub lag_ms: f64,
    pub is_seen: bool,
}

impl Raw {
    pub fn of(tool: &str, round: u32, run: &Run) -> Raw {
        let mut seen: HashMap<u32, Vec<(u64, Instant)>> = HashMap::new();
        for one in &run.sight.log {
            seen.entry(one.file).or_default().push((one.end, one.at));
        }
        let row = |written: &Written| {
            let of_file = seen.get(&written.file).map_or(&[][..], Vec::as_slice);
            // Lengths grow.
            let at = of_file.partition_point(|(end, _)| *end < written.end);
            let found = of_file.get(at).map(|(_, at)| *at);
            Row {
                file: written.file,
                end: written.end,
                written_seconds: written.at.duration_since(run.began).as_secs_f64(),
                lag_ms: milliseconds(found.unwrap_or(run.ended).saturating_duration_since(written.at)),
                is_seen: found.is_some(),
            }
        };
        Raw { tool: tool.to_owned(), round, rows: run.log.iter().map(row).collect() }
    }
}

#[cfg(test)]
mod tests {
    use super::super::watch;
    use super::*;

    #[test]
    fn a_write_is_seen_with_the_first_length_that_holds_all_of_it() {
        let began = Instant::now();
        let at = |ms| began + Duration::from_millis(ms);
        let written = |end, ms| Written { file: 0, end, at: at(ms) };
        let seen = |end, ms| watch::Seen { file: 0, end, at: at(ms) };
        let sight = watch::Sight { log: vec![seen(5, 20), seen(20, 50), seen(25, 60)], ..watch::Sight::default() };
        let log = vec![written(10, 10), written(20, 30), written(30, 40)];
        let run =
            Run { began, log, late_max: Duration::ZERO, sight, ended: at(100), cpu_seconds: 0.0, written_seconds: 0.0 };
        let raw = Raw::of("x", 1, &run);
        let lags: Vec<_> = raw.rows.iter().map(|row| (row.lag_ms.round(), row.is_seen)).collect();
        assert_eq!(lags, [(40.0, true), (20.0, true), (60.0, false)]);
    }

    #[test]
    fn goals_grow_with_the_distance() {
        let goals = Goals::of(Duration::from_millis(74));
        assert_eq!((goals.p50_ms, goals.p99_ms), (52.0, 174.0));
    }
}
