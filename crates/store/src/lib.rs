//! Reaching storage: what can be read (`Source`), what can be written (`Sink`), and what is asked of files beside copying them
//! (`Shelf`).
//!
//! A source yields entries with a generation and reads them by extent. A sink stages what arrives where no one looks,
//! and makes it visible under its final name in one step, never before it is complete. A sink says what it can do
//! (`SinkFacts`). `open` leads from locations to all three. One module for each kind of storage that this crate has; `posix` is a
//! directory tree below one descriptor.
//!
//! Not here: streams, protocol, digests, and the decision when to publish (see `mover`).

mod error;
mod facts;
mod prune;
mod sink;
mod source;
mod engines;
mod shelf;
mod held;
mod directories;
mod diagnosis;
pub mod keys;
pub mod posix;
pub mod pipe;
pub mod synthetic;
mod drop_box;
mod rehearsal;
pub mod open;
pub mod spool;

pub use diagnosis::{Seen, Weight};
pub use directories::Directories;
pub use drop_box::{DropBox, aside};
pub use engines::{Account, BlockWriter, Engines, PLAIN_ENGINE, read_by_blocks};
pub use error::{Error, Result};
pub use facts::{Abilities, Order, PartRule, SinkFacts, SourceFacts};
pub use held::Held;
pub use open::{OpenError, Stores};
pub use posix::heap::{give_back as give_back_memory, return_large_blocks};
pub use posix::here::here;
pub use prune::{Alike, Fate, Prune, lower};
pub use rehearsal::Rehearsal;
pub use shelf::{EachFailure, How, Opener, Shelf, Slots, Stopped, Surveyed, Visit};
pub use sink::{
    Decision, Durability, Journals, Lines, LinkRule, Linked, Parts, PublishRule, STAGING_PREFIX, Sink, SinkLane,
    Staged, StagedFile, There, ToPublish, UNKNOWN_TIME, UNVERIFIED,
};
pub use source::{
    DirectoryKey, End, Event, Footing, Found, Holes, Late, Piece, Restart, SIZE_UNTRUE, Source, SourceFile, SourceLane,
    SourceObject, Watch,
};
