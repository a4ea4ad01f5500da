//! The words of Thalweg as types: ids, entries, extents, digests, sizes, locations, outcomes.
//!
//! Pure values. No I/O, no clock, no threads; everything here can be tested with literals.

pub mod id;
pub mod name;
pub mod entry;
pub mod fidelity;
pub mod extent;
pub mod class;
mod crc64;
pub mod adler32;
pub mod digest;
pub mod quantity;
mod glob;
pub mod filter;
pub mod follow;
pub mod selection;
pub mod location;
pub mod options;
pub mod spec;
pub mod order;
pub mod warrant;
pub mod pace;
pub mod paths;
pub mod outcome;
pub mod change;
pub mod manifest;
pub mod files;
pub mod sum_list;
pub mod set;
pub mod progress;
pub mod synthetic;
pub mod mutant;

pub use change::Change;
pub use class::Class;
pub use crc64::Crc64;
pub use digest::{ChunkHasher, Digest, DigestAlgorithm};
pub use entry::{End, Entry, Generation, Kind, Node, Timestamp, VersionToken};
pub use extent::{Extent, ExtentSet};
pub use fidelity::{Attributes, Fidelity};
pub use id::{JobId, ObjectId, Pin, SessionId};
pub use location::Location;
pub use name::Name;
pub use options::TransferOptions;
pub use outcome::{Exit, Failure, FailureKind};
pub use paths::PathWish;
pub use selection::{Choice, Selection};
pub use spec::TransferSpec;
pub use warrant::Warrant;
