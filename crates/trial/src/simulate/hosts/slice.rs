//! One slice of the job at the host that receives it, a step at a time: it begins, looks at a file, stages it,
//! publishes it, and ends.
//!
//! Production code: `PosixSink` with its fence, its staging and its lanes, called as `mover` calls them. Simulated: the
//! session, and what `mover` does between the calls: an object is read whole, in one moment, after the slice has begun.
//!
//! Invariant: a step is one call of the sink or a few, and nothing else happens at its host meanwhile.

use super::ground::{Ground, content};
use model::{Entry, JobId, ObjectId};
use std::collections::BTreeSet;
use store::posix::PosixSink;
use store::{Decision, PublishRule, Sink, SinkLane, Staged};

/// What a host is told of a slice.
#[derive(Clone)]
pub struct Order {
    pub job: JobId,
    pub sender: usize,
    pub receiver: usize,
    pub instead_of: Vec<JobId>,
    pub files: Vec<usize>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Status {
    Open,
    Succeeded,
    /// Files failed.
    Partial,
    Failed,
}

/// What the next step is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Op {
    Fence,
    Look,
    Stage,
    Publish,
    Close,
}

enum Stage {
    Closed,
    Open,
    Read(u64, PublishRule),
    Staged(Entry, Staged),
}

/// What a receiver has open.
pub struct Desk {
    sink: PosixSink,
    lane: Box<dyn SinkLane>,
    /// Directories that are there.
    made: BTreeSet<ObjectId>,
}

pub struct Slice {
    pub order: Order,
    pub status: Status,
    /// The host that sends is gone: the one that receives lets go of what it has, and begins again with the next
    /// session.
    pub is_cut: bool,
    pub is_cancelled: bool,
    /// It has done so much: whoever waits for it sees that it moves.
    pub steps: u64,
    /// Files that are settled.
    settled: usize,
    has_failed: bool,
    stage: Stage,
    desk: Option<Desk>,
}

impl Slice {
    pub fn new(order: Order) -> Slice {
        Slice {
            order,
            status: Status::Open,
            is_cut: false,
            is_cancelled: false,
            steps: 0,
            settled: 0,
            has_failed: false,
            stage: Stage::Closed,
            desk: None,
        }
    }

    pub fn is_to_close(&self) -> bool {
        self.is_cut || self.is_cancelled
    }

    pub fn next_op(&self) -> Op {
        match self.stage {
            _ if self.is_to_close() => Op::Close,
            Stage::Closed => Op::Fence,
            Stage::Open => Op::Look,
            Stage::Read(..) => Op::Stage,
            Stage::Staged(..) => Op::Publish,
        }
    }

    /// The next step. Returns the slices that it has taken over from: nothing appears of them any more.
    pub fn advance(&mut self, ground: &Ground, source: &[u64]) -> Vec<JobId> {
        self.steps += 1;
        if self.is_to_close() {
            self.close();
            if self.is_cancelled {
                self.status = Status::Failed;
            }
            self.is_cut = false;
            return Vec::new();
        }
        match std::mem::replace(&mut self.stage, Stage::Open) {
            Stage::Closed => return self.begin(ground),
            Stage::Open => self.look(ground, source),
            Stage::Read(version, rule) => self.stage(ground, version, rule),
            Stage::Staged(entry, staged) => self.publish(ground, &entry, staged),
        }
        Vec::new()
    }

    /// Its receiver dies. Whoever drops what it had open sees to it that storage stays as it is.
    pub fn die(&mut self) -> Option<Desk> {
        (self.stage, self.settled, self.has_failed, self.is_cut) = (Stage::Closed, 0, false, false);
        self.desk.take()
    }

    fn begin(&mut self, ground: &Ground) -> Vec<JobId> {
        let sink = ground.sink(self.order.receiver);
        let begun = sink.fence(self.order.job, &self.order.instead_of).and_then(|()| sink.lane(ground.is_at_once));
        match begun {
            Ok(lane) => {
                self.desk = Some(Desk { sink, lane, made: BTreeSet::new() });
                self.order.instead_of.clone()
            }
            Err(_) => {
                (self.stage, self.status) = (Stage::Closed, Status::Failed);
                Vec::new()
            }
        }
    }

    /// Looks at the next file and reads it; the end, where there is none.
    fn look(&mut self, ground: &Ground, source: &[u64]) {
        let Some(desk) = &mut self.desk else { return };
        let Some(file) = self.order.files.get(self.settled).copied() else {
            self.status = match (desk.sink.sync_names().is_ok(), self.has_failed) {
                (true, false) => Status::Succeeded,
                (true, true) => Status::Partial,
                (false, _) => Status::Failed,
            };
            return self.close();
        };
        let version = source[file];
        let made = match ground.directory_of(file) {
            Some(directory) if desk.made.insert(directory.id) => desk.sink.make_directory(&directory),
            _ => Ok(()),
        };
        match made.and_then(|()| desk.sink.decide(&ground.entry(file, version))) {
            Ok(Decision::Same) => self.settled += 1,
            Ok(Decision::Absent) => self.stage = Stage::Read(version, PublishRule::NoReplace),
            Ok(Decision::Replace { .. }) => self.stage = Stage::Read(version, PublishRule::Replace),
            Err(_) => self.fail(),
        }
    }

    fn stage(&mut self, ground: &Ground, version: u64, rule: PublishRule) {
        let Some(desk) = &mut self.desk else { return };
        let file = self.order.files[self.settled];
        let entry = ground.entry(file, version);
        let written = desk.lane.create(&entry, rule).and_then(|()| desk.lane.write(&content(file, version)));
        match written.and_then(|()| desk.lane.seal(&entry, false)) {
            Ok(staged) => self.stage = Stage::Staged(entry, staged),
            Err(_) => self.fail(),
        }
    }

    fn publish(&mut self, ground: &Ground, entry: &Entry, staged: Staged) {
        let Some(desk) = &mut self.desk else { return };
        let published = match ground.is_at_once {
            true => desk.lane.publish(entry, staged),
            false => {
                let synced = desk.sink.sync_group(&mut [staged].into_iter());
                let synced = synced.inspect_err(|_| desk.sink.discard(staged));
                synced.and_then(|_| desk.sink.publish(entry, staged))
            }
        };
        match published {
            Ok(()) => self.settled += 1,
            Err(_) => self.fail(),
        }
    }

    fn fail(&mut self) {
        self.has_failed = true;
        self.settled += 1;
    }

    /// Lets go of what its receiver has open, as a process does that goes on.
    fn close(&mut self) {
        let stage = std::mem::replace(&mut self.stage, Stage::Closed);
        (self.settled, self.has_failed) = (0, false);
        let Some(Desk { sink, lane, .. }) = self.desk.take() else { return };
        if let Stage::Staged(_, staged) = stage {
            sink.discard(staged);
        }
        drop(lane);
        sink.close();
    }
}
