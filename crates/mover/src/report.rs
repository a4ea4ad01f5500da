//! What a finished or broken-off transfer amounts to.

use crate::job::Ending;
use crate::progress::{Progress, Snapshot};
use model::fidelity::Warning;
use model::progress::{Fill, LaneTimes, STAGES, Stage, StreamFacts};
use model::{Failure, TransferOptions};
use wire::message::Times;

/// The whole truth about one attempt.
#[derive(Clone, Debug)]
pub struct Report {
    pub snapshot: Snapshot,
    pub ending: Ending,
    pub options: TransferOptions,
    /// This side sent; otherwise it received.
    pub is_sender: bool,
    /// `memory`, `file`, `batch` or `never`, by the receiver's word; empty when the job did not finish.
    pub durable: String,
    /// Storage engine at the receiver, by its word.
    pub engine: String,
    /// Congestion control of the streams that sent, by the sender's word; empty when it told none.
    pub congestion: String,
    /// Streams that carried the job at most.
    pub streams: u32,
    /// Network paths, that of the control stream first.
    pub paths: Vec<PathReport>,
    pub notes: Vec<String>,
    /// What was decided while it ran, for each path whose number of streams follows it.
    pub tuning: Vec<plan::Log>,
    /// What could not be kept of objects that arrived all the same.
    pub warnings: Vec<Warning>,
    /// What became of objects that the source does not have.
    pub removal: Removal,
    pub removed: u64,
    pub extraneous: u64,
    /// What was moved without being read, within one host.
    pub unread: Unread,
    /// Kept failures; `snapshot.counts.files_failed` counts all.
    pub failures: Vec<Failure>,
}

impl Report {
    pub fn new(progress: &Progress, ending: Ending, options: TransferOptions, is_sender: bool) -> Report {
        let snapshot = progress.snapshot();
        let finished = if let Ending::Finished(finished) = &ending { Some(finished) } else { None };
        let removed = finished.map(|finished| (finished.deletion, finished.removed, finished.extraneous));
        let (removal, removed, extraneous) = removed.unwrap_or_default();
        let (durable, engine) = match &ending {
            Ending::Finished(finished) => (finished.durable.clone(), finished.engine.clone()),
            _ => (String::new(), String::new()),
        };
        Report {
            snapshot,
            ending,
            options,
            is_sender,
            durable,
            engine,
            congestion: progress.congestion.lock().unwrap().clone(),
            streams: 0,
            paths: Vec::new(),
            notes: progress.notes(),
            tuning: Vec::new(),
            warnings: progress.warnings(),
            removal: Removal::from_number(removal),
            removed,
            extraneous,
            unread: Unread::default(),
            failures: Vec::new(),
        }
    }
}

/// What became of one network path.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PathReport {
    pub name: String,
    /// Nothing where no stream was opened on it.
    pub local: Option<String>,
    pub remote: String,
    /// On data streams: content, what stands around it, and encryption.
    pub bytes: u64,
    /// At most.
    pub streams: u32,
    /// Why it was given up, or what failed on it last.
    pub failure: Option<String>,
}

/// How a removal ended; the numbers are part of the protocol.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(u32)]
pub enum Removal {
    #[default]
    NotAsked = 0,
    Done = 1,
    ListingNotWhole = 2,
    TooMany = 3,
}

impl Removal {
    pub fn from_number(number: u32) -> Removal {
        match number {
            1 => Removal::Done,
            2 => Removal::ListingNotWhole,
            3 => Removal::TooMany,
            _ => Removal::NotAsked,
        }
    }
}

/// What a copy within one host moved without reading it: no digest vouches for it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Unread {
    /// Files whose blocks are those of their source.
    pub shared_files: u64,
    pub shared_bytes: u64,
    /// Copied by the stores themselves, which compared it.
    pub store_bytes: u64,
    /// Copied by the kernel.
    pub kernel_bytes: u64,
    /// Holes, which are holes again. They do count in a digest.
    pub hole_bytes: u64,
}

/// `mark` is this side's (`Progress::mark`).
pub fn times_to_wire(job: u32, mark: u64, times: &LaneTimes, facts: &StreamFacts, congestion: &str) -> Times {
    Times {
        job,
        lanes: times.lanes,
        processors: times.processors,
        stage_ns: told_stages(&times.stage_ns),
        cpu_ns: times.cpu_ns,
        retransmits: facts.retransmits,
        busy_us: facts.busy_us,
        receive_window_limited_us: facts.receive_window_limited_us,
        send_buffer_limited_us: facts.send_buffer_limited_us,
        rtt_us_min: facts.rtt_us_min,
        cpu_wait_ns: times.cpu_wait_ns,
        commit_sync_ns: times.commit_sync_ns,
        commit_publish_ns: times.commit_publish_ns,
        congestion: congestion.to_owned(),
        buffer_bytes: times.fill.capacity_bytes,
        buffer_waiting_bytes: times.fill.waiting_bytes,
        headway: mark,
    }
}

/// The last stage is told only where there is something to tell: the others are what every version 1 has.
fn told_stages(stage_ns: &[u64; STAGES]) -> Vec<u64> {
    let is_limited = stage_ns[Stage::Limit as usize] > 0;
    stage_ns[..if is_limited { STAGES } else { Stage::Limit as usize }].to_vec()
}

/// Reads a peer's times; stages it does not name are zero, those unknown here are dropped.
pub fn times_from_wire(times: &Times) -> LaneTimes {
    let mut stage_ns = [0; STAGES];
    for (place, ns) in stage_ns.iter_mut().zip(&times.stage_ns) {
        *place = *ns;
    }
    LaneTimes {
        lanes: times.lanes,
        processors: times.processors,
        stage_ns,
        cpu_ns: times.cpu_ns,
        cpu_wait_ns: times.cpu_wait_ns,
        commit_sync_ns: times.commit_sync_ns,
        commit_publish_ns: times.commit_publish_ns,
        fill: Fill { capacity_bytes: times.buffer_bytes, waiting_bytes: times.buffer_waiting_bytes },
    }
}

pub fn facts_from_wire(times: &Times, streams: u32) -> StreamFacts {
    StreamFacts {
        streams,
        rtt_us_min: times.rtt_us_min,
        retransmits: times.retransmits,
        busy_us: times.busy_us,
        receive_window_limited_us: times.receive_window_limited_us,
        send_buffer_limited_us: times.send_buffer_limited_us,
    }
}

/// What is kept of the receiver's last word: its failures are counted by now.
pub fn kept(finished: wire::message::Finished) -> wire::message::Finished {
    let short = |text: String| wire::bounded(&text).to_owned();
    wire::message::Finished {
        durable: short(finished.durable),
        engine: short(finished.engine),
        failures: Vec::new(),
        ..finished
    }
}
