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

/// Lanes that could have run and had no processor for this share of their time are contended, when together with the
/// time they had one it comes to `DEMANDING`: a lane that only wakes late now and then is not.
const CONTENDED: f64 = 0.15;
const DEMANDING: f64 = 0.7;

/// Contended lanes that waited for a processor this many times as long as they had one are starved by something else.
const STOLEN: f64 = 1.5;

/// A digest that takes this share of the work is what a side limited by processors is limited by.
const DIGESTING: f64 = 0.4;

/// Digest and encryption never wait for anything but a processor. When they took this many times the processor time
/// that the lanes had in all, others were using the processors.
const STARVED: f64 = 1.25;

/// Waiting for a rate for less than this share of the lanes' time says nothing.
const LIMITED_MIN: f64 = 0.05;

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
    /// Share of the lanes' time that they could have run and had no processor.
    pub cpu_wait: f64,
    /// What the thread that commits groups did, as shares of the time that the lanes ran.
    commit_sync: f64,
    commit_publish: f64,
    pub lanes: f64,
    /// Of the host; 0 when they were not told.
    pub processors: f64,
}

impl Side {
    pub fn new(role: Role, times: &LaneTimes) -> Side {
        Side::from_stages(role, times.stage_ns.map(|ns| ns as f64), times)
    }

    /// `times` tells everything but the stages.
    fn from_stages(role: Role, stage_ns: [f64; STAGES], times: &LaneTimes) -> Side {
        let total_ns: f64 = stage_ns.iter().sum();
        let of_total = |ns: f64| if total_ns > 0.0 { ns / total_ns } else { 0.0 };
        let lanes = f64::from(times.lanes.max(1));
        Side {
            role,
            total_ns,
            shares: stage_ns.map(of_total),
            cpu: of_total(times.cpu_ns as f64).min(1.0),
            cpu_wait: of_total(times.cpu_wait_ns as f64).min(1.0),
            commit_sync: of_total(times.commit_sync_ns as f64) * lanes,
            commit_publish: of_total(times.commit_publish_ns as f64) * lanes,
            lanes,
            processors: f64::from(times.processors),
        }
    }

    /// One set of lanes seen by two clocks. While the sender's clock stands in `Send` or a stage of the destination,
    /// the receiver's tells which it was; what the receiver's counts at other times is not used.
    pub fn local(sender: &LaneTimes, receiver: &LaneTimes) -> Side {
        const DESTINATION: [Stage; 5] = [Stage::Create, Stage::Write, Stage::Sync, Stage::Publish, Stage::Digest];
        let of = |times: &LaneTimes, stage: Stage| times.stage_ns[stage as usize] as f64;
        let mut stage_ns = [0.0; STAGES];
        for stage in [Stage::Scan, Stage::Read, Stage::Seal, Stage::Credit, Stage::Memory, Stage::Digest, Stage::Limit]
        {
            stage_ns[stage as usize] = of(sender, stage);
        }
        // The sender's clock tells its own digests apart from what it hands over.
        let handed_ns: f64 =
            of(sender, Stage::Send) + DESTINATION[..4].iter().map(|stage| of(sender, *stage)).sum::<f64>();
        let told_ns: f64 = DESTINATION.map(|stage| of(receiver, stage)).iter().sum();
        let scale = if handed_ns > 0.0 && told_ns > handed_ns { handed_ns / told_ns } else { 1.0 };
        for stage in DESTINATION {
            stage_ns[stage as usize] += of(receiver, stage) * scale;
        }
        // What is left of it was checking; or writing, as far as is known, when the receiver's clock tells nothing.
        let rest = if told_ns > 0.0 { Stage::Open } else { Stage::Write };
        stage_ns[rest as usize] += (handed_ns - told_ns).max(0.0);
        // Both clocks note the time of the same threads.
        let times = LaneTimes {
            lanes: sender.lanes.max(receiver.lanes),
            processors: sender.processors.max(receiver.processors),
            cpu_ns: sender.cpu_ns.max(receiver.cpu_ns),
            cpu_wait_ns: sender.cpu_wait_ns.max(receiver.cpu_wait_ns),
            ..receiver.clone()
        };
        Side::from_stages(Role::Local, stage_ns, &times)
    }

    /// Counts lanes' waits in `waited` as the work of the thread that commits, as far as it was working and the lanes
    /// waited for that: `upstream` at most. Returns for what share it did.
    pub fn charge_commit(&mut self, upstream: f64, waited: Stage) -> f64 {
        let committing = self.commit_sync + self.commit_publish;
        if committing <= 0.0 {
            return 0.0;
        }
        let charged = upstream.min(committing).min(self.share(waited)).max(0.0);
        self.shares[waited as usize] -= charged;
        self.shares[Stage::Sync as usize] += charged * self.commit_sync / committing;
        self.shares[Stage::Publish as usize] += charged * self.commit_publish / committing;
        charged
    }

    pub fn is_told(&self) -> bool {
        self.total_ns > 0.0
    }

    pub fn share(&self, stage: Stage) -> f64 {
        self.shares[stage as usize]
    }

    pub fn work(&self) -> impl Iterator<Item = (Stage, f64)> {
        let is_work = |stage: &Stage| {
            !matches!(stage, Stage::Scan | Stage::Send | Stage::Credit | Stage::Receive | Stage::Memory | Stage::Limit)
        };
        Stage::ALL.into_iter().filter(is_work).map(|stage| (stage, self.share(stage)))
    }

    /// Share of the time in which lanes that had something to send waited because a rate was set.
    pub fn limited(&self) -> f64 {
        let idle = self.share(Stage::Scan) + self.share(Stage::Credit) + self.share(Stage::Memory);
        match self.share(Stage::Limit) {
            limited if limited >= LIMITED_MIN => (limited / (1.0 - idle).max(limited)).min(1.0),
            _ => 0.0,
        }
    }

    /// Share of the time in which the lanes were doing something themselves.
    pub fn busy(&self) -> f64 {
        self.work().map(|(_, share)| share).sum()
    }

    pub fn largest_work(&self) -> (Stage, f64) {
        largest(self.work())
    }

    pub fn largest_at_storage(&self) -> (Stage, f64) {
        largest(self.work().filter(|(stage, _)| !matches!(stage, Stage::Seal | Stage::Open | Stage::Digest)))
    }

    /// Processor time as a share of what these lanes could have had.
    pub fn saturation(&self) -> f64 {
        let at_once = if self.processors > 0.0 { self.lanes.min(self.processors) } else { self.lanes };
        (self.cpu * self.lanes / at_once).min(1.0)
    }

    /// Share of the time in which the lanes wanted a processor, with or without getting one.
    pub fn demand(&self) -> f64 {
        (self.cpu + self.cpu_wait).min(1.0)
    }

    pub fn is_contended(&self) -> bool {
        self.cpu_wait >= CONTENDED && self.demand() >= DEMANDING
    }

    /// How far processors are used up by these lanes, or by others while the lanes want them; 0 if they are not.
    pub fn exhaustion(&self) -> f64 {
        match self.saturation() {
            used if used >= SATURATED => used,
            _ if self.is_contended() => self.demand(),
            _ => 0.0,
        }
    }

    /// Digest and encryption.
    pub fn computing(&self) -> f64 {
        self.share(Stage::Seal) + self.share(Stage::Open) + self.share(Stage::Digest)
    }

    /// Something else uses the processors that the lanes want.
    pub fn is_starved(&self) -> bool {
        let is_stolen = self.is_contended() && self.cpu_wait > STOLEN * self.cpu;
        let is_late = self.computing() >= 0.2 && self.computing() > STARVED * self.cpu;
        (is_stolen || is_late) && self.saturation() < SATURATED
    }

    /// Most of what the lanes worked at was digests.
    pub fn is_digesting(&self) -> bool {
        self.largest_work().0 == Stage::Digest && self.share(Stage::Digest) >= DIGESTING * self.busy()
    }

    pub fn is_limited_by_processors(&self) -> bool {
        self.exhaustion() > 0.0
            || self.cpu >= COMPUTING * self.busy()
            || self.is_starved()
            || 2.0 * self.computing() > self.busy()
    }
}

fn largest(stages: impl Iterator<Item = (Stage, f64)>) -> (Stage, f64) {
    stages.fold((Stage::Read, 0.0), |largest, next| if next.1 > largest.1 { next } else { largest })
}
