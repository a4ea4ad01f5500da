//! A spool: a place on fast local storage where what belongs to slower storage may wait, as opaque parcels of an owner.
//!
//! A directory of segments, preallocated to the quota at start and written as a ring. A segment belongs to one owner at a time
//! and is free again when everything in it was released. What an owner keeps until its end (`Kind::Journal`) lies in other
//! segments than what comes and goes (`Kind::Content`).
//!
//! Invariants:
//! - Never more is held than the quota, segments that are only begun included.
//! - One process at a time uses a spool; what another spool, or an earlier use of a segment, left in it does not exist.
//! - After a crash there is what was committed and synced, whole; what was torn does not exist.
//! - An owner without a journal does not exist: what is left of it is free.
//!
//! Not here: what parcels mean, and when they are released (see `mover`).

mod format;
mod place;
mod parcel;
mod ring;
mod stalls;
mod look;

pub use format::{Kind, OWNER_BYTES, Owner};
pub use look::{Look, Seen, ask, is_used, look, withdraw};
pub use parcel::Parcel;
pub use place::segment_bytes;
pub use ring::{Room, Spool};
pub use stalls::Side;
