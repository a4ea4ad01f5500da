//! A host that is simulated: one world for each seed, any number of hosts in it.
//!
//! Invariants:
//! - Threads of a world run one at a time; who runs next, and how long what takes, is drawn from the seed alone.
//! - A thread that belongs to no world meets the real host.
//! - A host that died changes nothing any more: its calls fail, and its threads end at their next step.
//!
//! Not here: networks and disks; those are given by whoever makes the world.

pub mod disk;
pub mod calls;
pub mod lock;
pub mod scheduler;
pub mod time;

pub use disk::{Call, Disk, Object, Verdict};
pub use scheduler::{Host, World};

/// Whether the calling thread belongs to a world.
pub fn is_simulated() -> bool {
    scheduler::current().is_some()
}

/// A number from the seed; `None` outside a world.
pub fn random() -> Option<u64> {
    scheduler::current().map(|context| context.world.random())
}

pub(crate) fn boot_id() -> Option<[u8; 16]> {
    scheduler::current().map(|context| context.host.boot_id())
}
