//! The limits at which a run stops in order: what was verified is kept, and the same command continues.
//!
//! Not here: how much may be sent (`mover`), which only a sender knows to the byte.

use crate::error::{Error, Kind, PIPE_ADVICE};
use crate::run::Run;
use model::quantity::{ByteCount, duration};

impl Run {
    /// The time that was allowed is over.
    pub(crate) fn out_of_time(&self) -> Option<Error> {
        let max = self.control.duration_max()?;
        (self.started.elapsed() >= max).then(|| {
            let text = format!("stopped at --max-duration {}", duration(max.as_secs_f64()));
            self.stopped_at(Kind::DurationLimit, text)
        })
    }

    /// Why there is no further attempt.
    pub(crate) fn out_of_bounds(&self) -> Option<Error> {
        let is_spent = self.options.payload_bytes_max.is_some_and(|max| self.sums.sent_bytes >= max);
        self.out_of_time().or_else(|| is_spent.then(|| self.sent_enough()))
    }

    /// As much was sent as was allowed.
    pub(crate) fn sent_enough(&self) -> Error {
        let max = ByteCount(self.options.payload_bytes_max.unwrap_or(0));
        self.stopped_at(Kind::TransferLimit, format!("stopped at --max-transfer {max}"))
    }

    /// An object failed where none may.
    pub(crate) fn failed_fast(&self, kind: Kind) -> Error {
        let advice = "fix the problems listed, or give --keep-going to deliver the rest; files that are already there are skipped";
        Error::new(kind, "", "stopped at the first failure (--fail-fast)").advice(advice)
    }

    fn stopped_at(&self, kind: Kind, text: String) -> Error {
        if self.spec.has_pipe() {
            return Error::new(kind, "", text).advice(PIPE_ADVICE);
        }
        // It may run on another host than the one on which the command was given.
        let text = format!("{text}; what was verified is kept");
        Error::new(kind, "", text).advice("the same command continues where this one stopped")
    }
}
