//! The emulator: holds every packet of a link for as long as the link would.
//!
//! Owns: the models (`channel`, `error_process`, `schedule`, pure), the back ends that apply them to real packets, and what all
//! back ends can do (`Emulator`).

pub mod channel;
pub mod impairment;
pub mod lateness;
pub mod nfqueue;
pub mod random;
pub mod schedule;
pub mod error_process;
pub mod sys;
pub mod tun;
pub mod worker;

use std::time::Duration;

use crate::impairment::Impairment;
use channel::Counts;
use lateness::Lateness;

/// A running back end; dropping it stops it. Channels have the index `2 x link + direction`.
pub trait Emulator: Send + Sync {
    /// `round_trip` is what a queue in bandwidth-delay products refers to.
    fn set(&self, channel: usize, impairment: Impairment, round_trip: Duration);

    fn snapshot(&self) -> Snapshot;
}

/// What an emulator did since its start.
#[derive(Clone, PartialEq, Debug, Default, serde::Serialize, serde::Deserialize)]
pub struct Snapshot {
    /// When, on the emulator's clock; 0 where no thread of its own was asked.
    #[serde(default)]
    pub at_ns: u64,
    pub counts: Vec<Counts>,
    pub lateness: Lateness,
    /// Packets lost because the emulator, not the link, was full.
    pub overruns: u64,
    /// Of the emulator's own threads, with what the kernel does on their behalf.
    pub cpu_seconds: f64,
    pub cpu_seconds_by_thread: Vec<f64>,
    /// Why it no longer runs, if it does not.
    pub failure: Option<String>,
}
