//! How long a session's streams take until they are at their rate, and what of a run moved after that.
//!
//! A stream begins with ten segments and doubles what is under way in each round trip; over long paths that is seconds, in which a
//! run says nothing of the path. Where a run was looked at while it ran, what moved after a warm-up counts, and the rest of its time
//! is the ramp; elsewhere the doublings stand for it.

use super::level::{is_behind, level};
use super::written::{Calibration, Part, Run, Steady, bytes_of};

/// The first window of a stream: ten segments of 1448 bytes (RFC 6928).
const FIRST_WINDOW_BYTES: f64 = 14_480.0;
/// Round trips after which slow start is over: some 14 doublings, what the handshakes take, and a few until it has settled.
const WARM_UP_ROUND_TRIPS: f64 = 20.0;
/// Streams that left slow start early are still growing after it.
const WARM_UP_SECONDS_MIN: f64 = 2.0;
/// Below this round trip slow start is over within hundredths of a second, which no run notices.
pub const RTT_SECONDS_MIN: f64 = 2e-3;
/// After so many, rate and ramp agree within a hundredth.
const RAMP_ROUNDS: u32 = 5;
/// No file takes less: two runs may differ by chance.
const FILE_SECONDS_MIN: f64 = 1e-6;
/// Looks after the warm-up that a slope is taken from, 20 ms apart. In less time, files that waited for a segment and are told of together
/// make a rate that no link has.
const LOOKS_MIN: usize = 20;

/// How long a run over such a path says nothing of its rate.
pub fn warm_up_seconds(rtt_seconds: f64) -> f64 {
    if rtt_seconds < RTT_SECONDS_MIN { 0.0 } else { (WARM_UP_ROUND_TRIPS * rtt_seconds).max(WARM_UP_SECONDS_MIN) }
}

impl Steady {
    /// What moved between the warm-up and the last byte: of looks at what was done, in seconds and bytes, the slope of the straight line
    /// that is nearest to them. Nothing where the run was too short for it.
    pub fn of(looks: &[(f64, u64)], warm_up_seconds: f64) -> Option<Steady> {
        let begin = looks.iter().find(|(_, bytes)| *bytes > 0)?.0;
        let all = looks.last()?.1;
        let end = looks.iter().find(|(_, bytes)| *bytes == all)?.0;
        let is_steady = |look: &&(f64, u64)| look.0 >= begin + warm_up_seconds && look.0 <= end;
        let steady: Vec<(f64, f64)> = looks.iter().filter(is_steady).map(|(at, bytes)| (*at, *bytes as f64)).collect();
        let count = steady.len() as f64;
        if steady.len() < LOOKS_MIN {
            return None;
        }
        let (at, bytes) = steady.iter().fold((0.0, 0.0), |sum, look| (sum.0 + look.0 / count, sum.1 + look.1 / count));
        let (over, of) = steady
            .iter()
            .fold((0.0, 0.0), |sum, look| (sum.0 + (look.0 - at) * (look.1 - bytes), sum.1 + (look.0 - at).powi(2)));
        let seconds = steady[steady.len() - 1].0 - steady[0].0;
        let moved = over / of * seconds;
        (seconds > 0.0 && moved >= 1.0).then_some(Steady { bytes: moved as u64, seconds })
    }
}

impl Steady {
    /// What one run took longer than another for the files that it had more. Over a long path a short run is little but its session's start,
    /// which both have.
    pub fn between(few: &Run, many: &Run) -> Option<Steady> {
        let files = many.files.checked_sub(few.files).filter(|files| *files > 0)?;
        let seconds = (many.seconds - few.seconds).max(files as f64 * FILE_SECONDS_MIN);
        Some(Steady { bytes: files * many.file_bytes, seconds })
    }
}

impl Calibration {
    /// The seconds that all of a run would take at its steady rate: without the session's start and without the ramp.
    pub fn steady_seconds(&self, part: Part, run: &Run) -> f64 {
        if let Some(steady) = run.steady {
            return steady.seconds * bytes_of(run) / steady.bytes as f64;
        }
        if !self.has_start(part) {
            return run.seconds;
        }
        // A run that took hardly longer than its start keeps a quarter.
        let least = run.seconds / 4.0;
        let started = (run.seconds - self.start()).max(least);
        let (bytes, mut seconds) = (bytes_of(run), started);
        // The ramp leads to a rate that is known only without it.
        for _ in 0..RAMP_ROUNDS {
            let ramp = match part {
                Part::Network => self.ramp_seconds_least(run.streams, bytes / seconds, bytes),
                _ => self.ramp_seconds(run.streams, bytes / seconds, bytes),
            };
            seconds = (started - ramp).max(least);
        }
        seconds
    }

    /// The same with another rate of one part: bytes a second, or files a second for metadata. Storage that the network held back was not
    /// seen faster, and may be: with another network it keeps its share of it.
    pub fn with_rate(&self, part: Part, changed: impl Fn(f64) -> f64) -> Calibration {
        let follows = |of: Part| of == Part::Write && part == Part::Network && is_behind(self);
        let rate_at = |of: Part, run: &Run, rate: f64| match level(self, part, run.streams, bytes_of) {
            Some(network) if of != part => rate * (changed(network) / network.max(1.0)).max(1.0),
            _ => changed(rate),
        };
        let run_at = |of: Part, run: &Run| {
            let seconds = self.steady_seconds(of, run);
            let amount = if of == Part::Metadata { run.files as f64 } else { bytes_of(run) };
            let rate = rate_at(of, run, amount / seconds).max(1e-6);
            let steady = Steady { bytes: bytes_of(run) as u64, seconds: amount / rate };
            Run { seconds: run.seconds - seconds + steady.seconds, steady: Some(steady), ..*run }
        };
        let mut other = self.clone();
        for measured in other.measured.iter_mut().filter(|measured| measured.part == part || follows(measured.part)) {
            let of = measured.part;
            measured.runs.iter_mut().for_each(|run| *run = run_at(of, run));
        }
        other
    }

    /// What a transfer of so many bytes takes longer because its streams have to reach that rate first.
    pub fn ramp_seconds(&self, streams: u32, bytes_per_second: f64, bytes: f64) -> f64 {
        let least = self.ramp_seconds_least(streams, bytes_per_second, bytes);
        match (self.measured_ramp(streams), level(self, Part::Network, streams, bytes_of)) {
            // Below the network's rate the end of its ramp is not waited for.
            (Some(ramp), Some(network)) => {
                let share = ramp * (bytes_per_second / network).min(1.0);
                least.max(share.min(self.doublings_seconds(streams, bytes)))
            }
            _ => least,
        }
    }

    /// With streams that double until they have reached it.
    fn ramp_seconds_least(&self, streams: u32, bytes_per_second: f64, bytes: f64) -> f64 {
        self.doublings_seconds(streams, (bytes_per_second * self.rtt_seconds).min(bytes))
    }

    /// By the runs whose number of streams is nearest.
    fn measured_ramp(&self, streams: u32) -> Option<f64> {
        let ramp = |run: &Run| {
            run.steady.map(|_| (run.seconds - self.start() - self.steady_seconds(Part::Network, run)).max(0.0))
        };
        let runs = self.runs(Part::Network);
        let nearest = runs
            .iter()
            .filter(|run| run.steady.is_some())
            .map(|run| run.streams)
            .min_by_key(|n| n.abs_diff(streams))?;
        super::median(runs.iter().filter(|run| run.streams == nearest).filter_map(ramp).collect())
    }

    /// Round trips in which so many bytes leave, when each carries twice as many as the one before; but for one, in which they would have left
    /// anyway.
    fn doublings_seconds(&self, streams: u32, bytes: f64) -> f64 {
        let windows = bytes / (f64::from(streams.max(1)) * FIRST_WINDOW_BYTES);
        self.rtt_seconds * ((1.0 + windows).log2() - 1.0).max(0.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 200 MB/s after a ramp of two seconds that carries 50 MB, in files of 5 MB that are told of together.
    #[test]
    fn what_moves_after_the_warm_up_is_the_rate() {
        let done = |at: f64| {
            let bytes = if at < 2.0 { 12.5e6 * at * at } else { 50e6 + 200e6 * (at - 2.0) };
            ((bytes.min(250e6) / 5e6).floor() * 5e6) as u64
        };
        let looks: Vec<(f64, u64)> = (0..200).map(|look| f64::from(look) * 0.02).map(|at| (at, done(at))).collect();
        let steady = Steady::of(&looks, 1.5).unwrap();
        assert!((steady.bytes as f64 / steady.seconds / 200e6 - 1.0).abs() < 0.03, "{steady:?}");
        assert_eq!(Steady::of(&looks, 3.0), None, "it was over by then");
        assert_eq!(Steady::of(&[], 0.0), None);
        assert!(warm_up_seconds(0.074) >= 2.0 && warm_up_seconds(0.3) >= 6.0 && warm_up_seconds(1e-4) == 0.0);
    }
}
