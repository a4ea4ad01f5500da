//! What is known of a running transfer: counts, and where its lanes' time went.
//!
//! Plain values; the live counters belong to `mover`, the judgement to `plan`, the rendering to the program.

use std::time::Duration;

/// A stage a lane can be in: the first five are the sender's, the next six the receiver's, the next two either's, the
/// last the sender's.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, PartialOrd, Ord)]
#[repr(usize)]
pub enum Stage {
    /// Sender: no work to claim: the listing or the receiver's answer to it is awaited.
    Scan = 0,
    /// Sender: opening and reading the source.
    Read = 1,
    /// Sender: encryption.
    Seal = 2,
    /// Sender: inside a socket send.
    Send = 3,
    /// Sender: everything is sent, or all that may be, and the receiver has not confirmed it.
    Credit = 4,
    /// Receiver: inside a socket receive.
    Receive = 5,
    /// Receiver: decryption.
    Open = 6,
    /// Receiver: creating staging files.
    Create = 7,
    /// Receiver: writing blocks.
    Write = 8,
    /// Receiver: making durable.
    Sync = 9,
    /// Receiver: renaming to the final name.
    Publish = 10,
    /// Either: waiting for memory permits.
    Memory = 11,
    /// Either: computing digests. Of very small files a sender's digests count as reading.
    Digest = 12,
    /// Sender: waiting because a rate was set.
    Limit = 13,
}

pub const STAGES: usize = 14;

impl Stage {
    pub const ALL: [Stage; STAGES] = [
        Stage::Scan,
        Stage::Read,
        Stage::Seal,
        Stage::Send,
        Stage::Credit,
        Stage::Receive,
        Stage::Open,
        Stage::Create,
        Stage::Write,
        Stage::Sync,
        Stage::Publish,
        Stage::Memory,
        Stage::Digest,
        Stage::Limit,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Stage::Scan => "scan",
            Stage::Read => "read",
            Stage::Seal => "seal",
            Stage::Send => "send",
            Stage::Credit => "credit",
            Stage::Receive => "receive",
            Stage::Open => "open",
            Stage::Create => "create",
            Stage::Write => "write",
            Stage::Sync => "sync",
            Stage::Publish => "publish",
            Stage::Memory => "memory",
            Stage::Digest => "digest",
            Stage::Limit => "limit",
        }
    }
}

/// Of what arrived of growing files, how long it took since it was seen at the source: the median, and what 99 of 100 stay below.
/// And of what has not arrived, the oldest.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Lag {
    pub p50: Option<Duration>,
    pub p99: Option<Duration>,
    pub oldest: Option<Duration>,
}

/// How far a destination is behind a source that is followed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Behind {
    /// Written and not acknowledged.
    pub bytes: u64,
    /// That grow.
    pub files: u64,
    pub lag: Lag,
    /// It is further behind than the user wants to hear nothing of.
    pub is_alarmed: bool,
    /// What ends the following has come: nothing more is written.
    pub is_over: bool,
}

/// How the lanes of a sender came to their end, by the acknowledgements of the other side's kernel.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Tail {
    /// From when a lane first had nothing to send, with nothing left to claim, to the acknowledgement of the last byte.
    pub whole: Duration,
    /// For how long at the end exactly one lane had something to send or unacknowledged; nothing where no other sent any.
    pub alone: Option<Duration>,
}

/// Time that the lanes of one side spent in each stage, and how much of it they were on a processor.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct LaneTimes {
    /// Lanes that ran.
    pub lanes: u32,
    /// Processors of that host.
    pub processors: u32,
    pub stage_ns: [u64; STAGES],
    /// Processor time of the lanes.
    pub cpu_ns: u64,
    /// How long the lanes could have run and had no processor; 0 where the kernel does not tell.
    pub cpu_wait_ns: u64,
    /// Of the one thread that commits groups, beside the lanes: making data durable, and giving final names.
    pub commit_sync_ns: u64,
    pub commit_publish_ns: u64,
    pub fill: Fill,
}

/// What waits in the buffer of one side; zeros where a job has none.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Fill {
    pub capacity_bytes: u64,
    pub waiting_bytes: u64,
}

impl LaneTimes {
    pub fn total_ns(&self) -> u64 {
        self.stage_ns.iter().fold(0, |sum, ns| sum.saturating_add(*ns))
    }

    pub fn share(&self, stage: Stage) -> f64 {
        match self.total_ns() {
            0 => 0.0,
            total => self.stage_ns[stage as usize] as f64 / total as f64,
        }
    }

    /// What came on top of an earlier moment's.
    pub fn since(&self, from: &LaneTimes) -> LaneTimes {
        let mut times = self.clone();
        times.cpu_ns = self.cpu_ns.saturating_sub(from.cpu_ns);
        times.cpu_wait_ns = self.cpu_wait_ns.saturating_sub(from.cpu_wait_ns);
        times.commit_sync_ns = self.commit_sync_ns.saturating_sub(from.commit_sync_ns);
        times.commit_publish_ns = self.commit_publish_ns.saturating_sub(from.commit_publish_ns);
        for (ns, before) in times.stage_ns.iter_mut().zip(from.stage_ns) {
            *ns = ns.saturating_sub(before);
        }
        times
    }

    pub fn add(&mut self, other: &LaneTimes) {
        self.lanes = self.lanes.saturating_add(other.lanes);
        self.processors = self.processors.max(other.processors);
        self.cpu_ns = self.cpu_ns.saturating_add(other.cpu_ns);
        self.cpu_wait_ns = self.cpu_wait_ns.saturating_add(other.cpu_wait_ns);
        self.commit_sync_ns = self.commit_sync_ns.saturating_add(other.commit_sync_ns);
        self.commit_publish_ns = self.commit_publish_ns.saturating_add(other.commit_publish_ns);
        for (sum, ns) in self.stage_ns.iter_mut().zip(other.stage_ns) {
            *sum = sum.saturating_add(ns);
        }
    }
}

/// Counts of a transfer at one moment. listed = done + skipped + failed + pending, at every moment (I6).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counts {
    /// Files and symbolic links found so far.
    pub files_listed: u64,
    pub bytes_listed: u64,
    pub files_done: u64,
    /// Bytes of the files done, plus verified chunks of those under way.
    pub bytes_done: u64,
    /// Already there, or a special file.
    pub files_skipped: u64,
    pub bytes_skipped: u64,
    pub files_failed: u64,
    pub directories: u64,
    /// Payload bytes put on the wire, resends included.
    pub bytes_sent: u64,
    /// Payload bytes that were verified in an earlier attempt and not sent again.
    pub bytes_resumed: u64,
    /// What compressed streams carried; 0 where none was.
    pub bytes_wire: u64,
}

/// What limited the rate.
#[derive(Clone, PartialEq, Debug)]
pub struct Bottleneck {
    /// A stage's name, or `network`, `buffers`, `cpu` (local copies), `cpu-sender`, `cpu-receiver`, `none`.
    pub stage: &'static str,
    /// Share of the lanes' time that it held, 0 to 1.
    pub share: f64,
    /// One sentence for a person.
    pub sentence: String,
    /// What would make it faster, and what would not; empty when there is nothing to say.
    pub advice: String,
    /// At most how many times as fast it would have been over a link twice as fast, 1 to 2; for copies over a network.
    pub link_gain: Option<f64>,
}

/// Kernel counters of the data streams, summed (TCP_INFO).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct StreamFacts {
    pub streams: u32,
    pub rtt_us_min: u64,
    pub retransmits: u64,
    pub busy_us: u64,
    /// Time limited by the receiver's window, and by the send buffer.
    pub receive_window_limited_us: u64,
    pub send_buffer_limited_us: u64,
}
