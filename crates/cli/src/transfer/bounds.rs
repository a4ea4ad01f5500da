//! Where a run stops by itself, in order: what was verified is kept, and the same command goes on.
//!
//! Not here: how much may be sent (`mover`), which only a sender knows to the byte.

use super::Run;
use crate::exit::{Error, error};
use crate::output::duration;
use model::pace::Timetable;
use model::quantity::ByteCount;
use model::{Exit, TransferOptions};
use mover::limits::{BLOCK_BYTES, NO_PROGRESS_TIMEOUT};
use std::time::{Duration, Instant};

#[derive(Clone, Debug, Default)]
pub struct Bounds {
    pub duration_max: Option<Duration>,
    /// How long an attempt may stand still.
    pub no_progress: Option<Duration>,
    pub is_fail_fast: bool,
}

impl Bounds {
    /// When a run that began at `started` has to stop.
    pub fn deadline(&self, started: Instant) -> Option<Instant> {
        self.duration_max.and_then(|max| started.checked_add(max))
    }

    /// How long an attempt may stand still. At a low rate a block takes its time: that is no standstill.
    pub fn no_progress(&self, options: &TransferOptions) -> Option<Duration> {
        let slowest = options.pace.as_deref().and_then(Timetable::rate_min);
        let blocks = slowest.map_or(Duration::ZERO, |rate| Duration::from_secs(4 * BLOCK_BYTES as u64 / rate.max(1)));
        match self.no_progress {
            Some(asked) => Some(asked.max(blocks)),
            None => (blocks > NO_PROGRESS_TIMEOUT).then_some(blocks),
        }
    }
}

impl Run<'_> {
    /// The time that was allowed is over.
    pub(super) fn out_of_time(&self) -> Option<Error> {
        let max = self.request.bounds.duration_max?;
        (self.started.elapsed() >= max).then(|| {
            let message = format!("stopped at --max-duration {}", duration(max.as_secs_f64()));
            self.stopped_at(Exit::DurationLimit, message)
        })
    }

    /// Why there is no further attempt.
    pub(super) fn out_of_bounds(&self) -> Option<Error> {
        let is_spent = self.request.options.payload_bytes_max.is_some_and(|max| self.sums.sent_bytes >= max);
        self.out_of_time().or_else(|| is_spent.then(|| self.sent_enough()))
    }

    /// As much was sent as was allowed.
    pub(super) fn sent_enough(&self) -> Error {
        let max = ByteCount(self.request.options.payload_bytes_max.unwrap_or(0));
        self.stopped_at(Exit::TransferLimit, format!("stopped at --max-transfer {max}"))
    }

    /// A file failed where none may.
    pub(super) fn failed_fast(&self, exit: Exit) -> Error {
        let hint =
            "put right what is listed, or give --keep-going to deliver the rest; what is there already is skipped";
        error(exit, "stopped at the first failure (--fail-fast)", hint)
    }

    fn stopped_at(&self, exit: Exit, message: String) -> Error {
        if self.attempt.route.has_pipe(self.request) {
            return error(exit, message, "a pipe cannot be continued: nothing was published");
        }
        // It may run on another host than the one on which the command was given.
        error(exit, format!("{message}; what was verified is kept"), "the same command goes on where this one stopped")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn a_low_rate_is_no_standstill() {
        let bounds = Bounds { no_progress: Some(Duration::from_secs(10)), ..Bounds::default() };
        let mut options = TransferOptions::default();
        assert_eq!(bounds.no_progress(&options), Some(Duration::from_secs(10)));
        assert_eq!(Bounds::default().no_progress(&options), None);
        options.pace = Some(Arc::new(Timetable::parse("08:00,1K 12:00,off").unwrap()));
        assert_eq!(bounds.no_progress(&options), Some(Duration::from_secs(512)));
        assert_eq!(Bounds::default().no_progress(&options), None);
    }

    #[test]
    fn a_deadline_counts_from_the_start_of_the_command() {
        let started = Instant::now();
        assert_eq!(Bounds::default().deadline(started), None);
        let bounds = Bounds { duration_max: Some(Duration::from_secs(3)), ..Bounds::default() };
        assert_eq!(bounds.deadline(started), Some(started + Duration::from_secs(3)));
    }
}
