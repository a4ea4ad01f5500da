//! One measurement of a job that runs, in whole numbers: what `tuner` decides by, and what a log of its decisions holds.
//!
//! Invariant: a window that was written and read is the same one, so that decisions can be made again from a log.
//!
//! Not here: taking samples (`mover`), making windows of them (`adapt`).

use crate::side::{Role, Side};
use model::progress::{LaneTimes, Stage};
use model::quantity::Rate;
use serde::{Deserialize, Serialize};

/// A queue stands when packets wait longer than this share of the round trip and `QUEUE_US_MIN`, beyond what the round
/// trip varies unprovoked. Loss-based streams that fill a link keep its queue at 40 % of its product and more.
const QUEUE_SHARE_OF_RTT: u64 = 10;
const QUEUE_US_MIN: u64 = 1_000;
/// A queue is empty when packets wait no longer than this share of the round trip, or `EMPTY_US_MIN`. A job that began beside others has
/// no round trip without their queue to compare with: it sees what comes and goes of it, beside four streams 5 % and more.
const EMPTY_SHARE_OF_RTT: u64 = 40;
const EMPTY_US_MIN: u64 = 1_000;
/// Windows are the limit when they held the streams for this share of the time that these had something to send.
const WINDOWS_PERMILLE: u32 = 500;
/// A side limits when its lanes work for this share of their time, and storage does when that is where they do.
const WORKING: f64 = 0.5;
/// Lanes wait for the network when they spend at least this share of their time blocked in their sockets.
pub(crate) const WAITING: f64 = 0.5;
/// Lanes that wait this much for a rate are held by it.
const HELD_BACK: f64 = 0.3;

/// What must be left, in time at the measured rate: as long as it takes to settle and be of use.
pub(crate) const LEFT_US_MIN: u64 = 1_500_000;
pub(crate) const LEFT_ROUND_TRIPS: u64 = 20;
/// Measurements in which a trial may show its gain: a stream that left slow start early needs several.
pub(crate) const TRIAL_MEASUREMENTS: u32 = 3;
/// Trials of further paths, or of streams on several, without a gain, after which there are no more.
pub(crate) const FAILED_TRIALS_MAX: u32 = 2;

/// Which part neither starves nor blocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Limit {
    Network,
    /// Its storage.
    Source,
    Destination,
    Processors,
    /// One that was set.
    Rate,
    #[default]
    Unknown,
}

/// What happened between two moments.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Window {
    /// Its end, since the job began.
    pub at_us: u64,
    pub bytes_per_second: u64,
    pub rtt_us: u64,
    /// How long packets stood in a queue, on average.
    pub queue_us: u64,
    /// Segments were lost in the last seconds, by streams that yield to losses.
    pub is_lossy: bool,
    /// Share of the time in which windows held the streams.
    pub windows_permille: u32,
    pub limit: Limit,
    /// Mean size of the files that were settled; 0 when there were too few to tell.
    pub file_bytes: u64,
    /// What is left to send; nothing while the listing goes on.
    pub left_bytes: Option<u64>,
}

impl Window {
    pub fn queue_stands(&self) -> bool {
        self.queue_us > (self.rtt_us / QUEUE_SHARE_OF_RTT).max(QUEUE_US_MIN)
    }

    /// Not the opposite of one that stands: in between it is not known whose losses they are.
    /// While nothing arrives nothing is known of it.
    pub fn queue_is_empty(&self) -> bool {
        self.bytes_per_second > 0 && self.queue_us <= (self.rtt_us / EMPTY_SHARE_OF_RTT).max(EMPTY_US_MIN)
    }

    pub fn windows_limit(&self) -> bool {
        self.windows_permille >= WINDOWS_PERMILLE
    }
}

impl Limit {
    /// From where both sides' lanes were meanwhile.
    pub fn of(sender: &LaneTimes, receiver: &LaneTimes) -> Limit {
        let (sender, receiver) = (Side::new(Role::Sender, sender), Side::new(Role::Receiver, receiver));
        if !sender.is_told() || !receiver.is_told() {
            return Limit::Unknown;
        }
        if sender.limited() >= HELD_BACK {
            return Limit::Rate;
        }
        if sender.share(Stage::Send) >= WAITING && receiver.share(Stage::Receive) >= WAITING {
            return Limit::Network;
        }
        let (source, destination) = (of_side(&sender), of_side(&receiver));
        let found = if sender.busy() > receiver.busy() { source.or(destination) } else { destination.or(source) };
        found.unwrap_or_default()
    }

    /// Of lanes that read and write in one process.
    pub fn of_local(sender: &LaneTimes, receiver: &LaneTimes) -> Limit {
        let side = Side::local(sender, receiver);
        let is_held = side.is_told() && side.limited() >= HELD_BACK;
        if is_held { Limit::Rate } else { of_side(&side).unwrap_or_default() }
    }
}

/// What one side's lanes work at, if they do for long enough to limit.
fn of_side(side: &Side) -> Option<Limit> {
    let (stage, at_storage) = side.largest_at_storage();
    match () {
        () if side.busy() < WORKING => None,
        () if side.exhaustion() > 0.0 || side.is_limited_by_processors() => Some(Limit::Processors),
        () if at_storage < WORKING * side.busy() => None,
        () if stage == Stage::Read => Some(Limit::Source),
        () => Some(Limit::Destination),
    }
}

pub(crate) fn shown(bytes_per_second: f64) -> String {
    Rate { bytes_per_second }.to_string()
}
