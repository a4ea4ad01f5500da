//! POSIX file systems: the only home of path work, and with `net` of `unsafe`.
//!
//! `list` and `source` read, `staging`, `large`, `lane` and `sink` write, `beneath` and `tree` keep both below their roots.

pub mod beneath;
mod tree;
mod list;
mod choose;
mod source;
mod staging;
mod large;
mod lane;
mod sink;
mod backup;
mod prune;
mod look;
pub mod facts;
pub mod engine;

pub use list::read_directory;
pub use sink::PosixSink;
pub use source::PosixSource;
