//! One side of a transfer as the judgement sees it: the shares of its lanes' time.
//!
//! Shares are computed in floating point, since times come from the peer and their sum may overflow.

use model::progress::{LaneTimes, STAGES, Stage};

/// From this share of what its processors allow, a side counts as limited by them. The rest goes to the threads that
/// list, answer and commit, whose time is not in `cpu_ns`, and to waking up.
pub(crate) const SATURATED: f64 = 0.85;

/// A stage that works counts as computing when its lanes were on a processor for this share of it. Buffered writes come
/// to 0.9 and more; a disk that holds lanes up leaves less than one half.
const COMPUTING: f64 = 0.7;

/// Digest and encryption never wait for anything but a processor. When they took this many times the processor time
/// that the lanes had in all, others were using the processors.
const STARVED: f64 = 1.25;

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    Sender,
    Receiver,
    /// Both, in one process.
    Local,
}

impl Role {
    pub fn possessive(self) -> &'static str {
        match self {
            Role::Sender => "the sender's",
            Role::Receiver => "the receiver's",
            Role::Local => "this host's",
        }
    }
}

/// Where one side's lanes were.
pub(crate) struct Side {
    pub role: Role,
    pub total_ns: f64,
    /// Of the lanes' time.
    shares: [f64; STAGES],
    /// Share of the lanes' time that they were on a processor.
    pub cpu: f64,
    pub lanes: f64,
    /// Of the host; 0 when they were not told.
    pub processors: f64,
}

impl Side {
    pub fn new(role: Role, times: &LaneTimes) -> Side {
        Side::from_parts(role, times.stage_ns.map(|ns| ns as f64), times.cpu_ns as f64, times.lanes, times.processors)
    }

    pub fn from_parts(role: Role, stage_ns: [f64; STAGES], cpu_ns: f64, lanes: u32, processors: u32) -> Side {
        let total_ns: f64 = stage_ns.iter().sum();
        let of_total = |ns: f64| if total_ns > 0.0 { ns / total_ns } else { 0.0 };
        Side {
            role,
            total_ns,
            shares: stage_ns.map(of_total),
            cpu: of_total(cpu_ns).min(1.0),
            lanes: f64::from(lanes.max(1)),
            processors: f64::from(processors),
        }
    }

    /// One set of lanes seen by two clocks. While the sender's clock stands in `Send` or a stage of the destination,
    /// the receiver's tells which it was; what the receiver's counts at other times is not used.
    pub fn local(sender: &LaneTimes, receiver: &LaneTimes) -> Side {
        const DESTINATION: [Stage; 4] = [Stage::Create, Stage::Write, Stage::Sync, Stage::Publish];
        let of = |times: &LaneTimes, stage: Stage| times.stage_ns[stage as usize] as f64;
        let mut stage_ns = [0.0; STAGES];
        for stage in [Stage::Scan, Stage::Read, Stage::Seal, Stage::Credit, Stage::Memory] {
            stage_ns[stage as usize] = of(sender, stage);
        }
        let handed_ns: f64 = of(sender, Stage::Send) + DESTINATION.map(|stage| of(sender, stage)).iter().sum::<f64>();
        let told_ns: f64 = DESTINATION.map(|stage| of(receiver, stage)).iter().sum();
        let scale = if handed_ns > 0.0 && told_ns > handed_ns { handed_ns / told_ns } else { 1.0 };
        for stage in DESTINATION {
            stage_ns[stage as usize] = of(receiver, stage) * scale;
        }
        // What is left of it was checking; or writing, as far as is known, when the receiver's clock tells nothing.
        let rest = if told_ns > 0.0 { Stage::Open } else { Stage::Write };
        stage_ns[rest as usize] += (handed_ns - told_ns).max(0.0);
        // Both clocks note the time of the same threads.
        let cpu_ns = sender.cpu_ns.max(receiver.cpu_ns) as f64;
        let lanes = sender.lanes.max(receiver.lanes);
        Side::from_parts(Role::Local, stage_ns, cpu_ns, lanes, sender.processors.max(receiver.processors))
    }

    pub fn is_told(&self) -> bool {
        self.total_ns > 0.0
    }

    pub fn share(&self, stage: Stage) -> f64 {
        self.shares[stage as usize]
    }

    pub fn work(&self) -> impl Iterator<Item = (Stage, f64)> {
        let is_work = |stage: &Stage| {
            !matches!(stage, Stage::Scan | Stage::Send | Stage::Credit | Stage::Receive | Stage::Memory)
        };
        Stage::ALL.into_iter().filter(is_work).map(|stage| (stage, self.share(stage)))
    }

    /// Share of the time in which the lanes were doing something themselves.
    pub fn busy(&self) -> f64 {
        self.work().map(|(_, share)| share).sum()
    }

    pub fn largest_work(&self) -> (Stage, f64) {
        largest(self.work())
    }

    pub fn largest_at_storage(&self) -> (Stage, f64) {
        largest(self.work().filter(|(stage, _)| !matches!(stage, Stage::Seal | Stage::Open)))
    }

    /// Processor time as a share of what these lanes could have had.
    pub fn saturation(&self) -> f64 {
        let at_once = if self.processors > 0.0 { self.lanes.min(self.processors) } else { self.lanes };
        (self.cpu * self.lanes / at_once).min(1.0)
    }

    /// Digest and encryption.
    pub fn computing(&self) -> f64 {
        self.share(Stage::Seal) + self.share(Stage::Open)
    }

    pub fn is_starved(&self) -> bool {
        self.computing() >= 0.2 && self.computing() > STARVED * self.cpu && self.saturation() < SATURATED
    }

    pub fn is_limited_by_processors(&self) -> bool {
        self.saturation() >= SATURATED
            || self.cpu >= COMPUTING * self.busy()
            || self.is_starved()
            || 2.0 * self.computing() > self.busy()
    }
}

fn largest(stages: impl Iterator<Item = (Stage, f64)>) -> (Stage, f64) {
    stages.fold((Stage::Read, 0.0), |largest, next| if next.1 > largest.1 { next } else { largest })
}
