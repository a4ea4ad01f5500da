//! The faults of one simulated transfer, drawn from its seed, and their triggers on a disk.
//!
//! Each is put in at one point and counts how often it fired. Invariant: what comes after the job has ended is late, and is
//! counted apart.

use os::simulation::{Call, Verdict};
use rustix::io::Errno;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

/// Whether the job of an attempt is still under way: until the receiver has said that it is finished, or one side that
/// it gives up.
#[derive(Default, Debug)]
pub struct Course {
    is_over: AtomicBool,
}

impl Course {
    pub fn end(&self) {
        self.is_over.store(true, SeqCst);
    }

    pub fn is_over(&self) -> bool {
        self.is_over.load(SeqCst)
    }

    /// What a fault that fires now is worth.
    pub fn fired(&self) -> Fired {
        if self.is_over() { Fired::Late } else { Fired::InTime }
    }
}

/// Whether a fault came, and when.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Fired {
    #[default]
    No,
    /// After the job's end.
    Late,
    /// While the job was under way.
    InTime,
}

/// What a disk does wrong. Calls are counted from 1; reads apart from the others.
#[derive(Clone, Default, Debug)]
pub struct DiskFaults {
    /// The host stops before (`false`) or after (`true`) the call of this number.
    pub kill: Option<(u64, bool)>,
    /// The call of this number or the first of its kind after it fails so.
    pub error: Option<(u64, Kind, Errno)>,
    /// Every write is cut to this many bytes, every third is interrupted.
    pub short_bytes: Option<usize>,
    pub writes: u64,
    pub reads: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    Write,
    Sync,
    Rename,
    Open,
    MakeDirectory,
    HardLink,
    MakeNode,
    /// Owner, mode, time, extended attributes.
    Attribute,
    Unlink,
    Read,
}

impl Kind {
    fn of(call: &Call<'_>) -> Option<Kind> {
        Some(match call {
            Call::Write { .. } => Kind::Write,
            Call::Sync { .. } | Call::SyncData { .. } | Call::SyncAll { .. } => Kind::Sync,
            Call::Rename { .. } => Kind::Rename,
            Call::Open { flags, .. } if flags.contains(rustix::fs::OFlags::CREATE) => Kind::Open,
            Call::MakeDirectory { .. } => Kind::MakeDirectory,
            Call::HardLink { .. } => Kind::HardLink,
            Call::MakeNode { .. } => Kind::MakeNode,
            Call::Unlink { .. } => Kind::Unlink,
            Call::Owner { .. } | Call::Attribute { .. } | Call::Mode { .. } | Call::Times { .. } => Kind::Attribute,
            Call::Read { .. } => Kind::Read,
            _ => return None,
        })
    }
}

impl DiskFaults {
    pub fn kills_before(&mut self, call: u64) -> bool {
        self.kills(call, false)
    }

    pub fn kills_after(&mut self, call: u64) -> bool {
        self.kills(call, true)
    }

    fn kills(&mut self, call: u64, is_after: bool) -> bool {
        let is_now = self.kill == Some((call, is_after));
        if is_now {
            self.kill = None;
        }
        is_now
    }

    /// What becomes of a call, and whether a fault did that.
    pub fn verdict(&mut self, call: &Call<'_>, calls: u64) -> (Verdict, bool) {
        let kind = Kind::of(call);
        let number = match call {
            Call::Read { .. } => {
                self.reads += 1;
                self.reads
            }
            _ => calls,
        };
        if let Some((from, wanted, errno)) = self.error
            && number >= from
            && kind == Some(wanted)
        {
            self.error = None;
            return (Verdict::Fail(errno), true);
        }
        if let (Some(at_most), Call::Write { bytes, .. }) = (self.short_bytes, call) {
            self.writes += 1;
            if self.writes.is_multiple_of(3) {
                return (Verdict::Fail(Errno::INTR), true);
            }
            return (Verdict::Short(at_most.min(bytes.len()).max(1)), at_most < bytes.len());
        }
        (Verdict::Go, false)
    }
}
