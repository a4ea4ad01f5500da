//! What came of a transfer, all attempts together.

use crate::error::Error;
use crate::route::Direction;
use model::progress::Bottleneck;
use model::quantity::Rate;
use model::{Failure, Location, TransferOptions, TransferSpec};
use mover::receiver::Tally;
use mover::{PathReport, Report};

/// What one of several hosts has done of a job.
#[derive(Clone, Debug, Default)]
pub struct HostShare {
    pub name: String,
    pub files: u64,
    pub bytes: u64,
    pub bytes_sent: u64,
    /// Parts of the job that it carried out.
    pub slices: u64,
    /// Parts that it began, and that were taken away from it.
    pub lost: u64,
    /// What limited the last of them.
    pub bottleneck: String,
}

#[derive(Clone, Debug)]
pub struct Ended {
    pub direction: Direction,
    pub options: TransferOptions,
    pub destination: String,
    /// The ends without storage.
    pub synthetic: Vec<&'static str>,
    /// Of the last attempt that ran.
    pub report: Option<Report>,
    pub files_ok: u64,
    pub files_skipped: u64,
    pub files_failed: u64,
    /// Removed, or that would be.
    pub removed: u64,
    pub directories: u64,
    /// Of the files delivered.
    pub bytes: u64,
    /// Verified by an earlier run and not sent again.
    pub resumed_bytes: u64,
    /// Moved by all attempts, what was sent again included.
    pub sent_bytes: u64,
    /// What compressed streams carried of it.
    pub wire_bytes: Option<u64>,
    pub seconds: f64,
    pub first_byte_seconds: Option<f64>,
    /// Network paths of all attempts together.
    pub paths: Vec<PathReport>,
    /// What came of each of several holders, by name.
    pub sources: Vec<(String, Tally)>,
    /// What each of several sending hosts has done.
    pub hosts: Vec<HostShare>,
    pub bottleneck: Bottleneck,
    pub attempts: u32,
    /// What failed, as far as it is kept.
    pub failures: Vec<Failure>,
    /// Failures and special files that are not kept.
    pub failures_not_kept: u64,
    /// What ended the run, or sums up its failures; nothing where all was delivered.
    pub error: Option<Error>,
}

impl Ended {
    /// A transfer of which nothing was tried.
    pub fn before_the_start(spec: &TransferSpec, direction: Direction) -> Ended {
        let is_made = spec.sources.iter().any(Location::is_synthetic).then_some("source");
        let is_forgotten = spec.destination.is_synthetic().then_some("destination");
        Ended {
            direction,
            options: spec.options.clone(),
            destination: spec.destination.to_string(),
            synthetic: is_made.into_iter().chain(is_forgotten).collect(),
            report: None,
            files_ok: 0,
            files_skipped: 0,
            files_failed: 0,
            removed: 0,
            directories: 0,
            bytes: 0,
            resumed_bytes: 0,
            sent_bytes: 0,
            wire_bytes: None,
            seconds: 0.0,
            first_byte_seconds: None,
            paths: Vec::new(),
            sources: Vec::new(),
            hosts: Vec::new(),
            bottleneck: nothing_moved(),
            attempts: 0,
            failures: Vec::new(),
            failures_not_kept: 0,
            error: None,
        }
    }

    /// Something beside the transfer failed: the figures stay, and so does the kind of what failed before.
    pub fn add_error(&mut self, error: Error) {
        match &mut self.error {
            Some(first) => first.text = format!("{}; {}", first.text, error.text),
            None => self.error = Some(error),
        }
    }

    /// Bytes sent for each byte that compressed streams carried.
    pub fn compression_ratio(&self) -> Option<f64> {
        self.wire_bytes.map(|wire_bytes| self.sent_bytes as f64 / wire_bytes.max(1) as f64)
    }

    pub fn rate(&self) -> Rate {
        Rate::over(self.bytes.saturating_sub(self.resumed_bytes), self.seconds)
    }
}

pub(crate) fn nothing_moved() -> Bottleneck {
    Bottleneck { stage: "none", share: 0.0, sentence: "nothing moved".into(), advice: String::new(), link_gain: None }
}
