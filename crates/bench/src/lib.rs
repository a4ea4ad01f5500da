//! Data sets, races against other tools, and the reports on them.
//!
//! Invariants:
//! - A time counts only after every delivered file was found equal to its source, by code that shares nothing with the
//!   product (`manifest`, crate `content`).
//! - Nothing is printed; progress goes to the caller's callback, results are values.
//! - Whatever a run makes (namespaces, directories in memory, processes) is gone when it returns.

pub mod dataset;
pub mod compare;
pub mod lag;
pub mod field;
pub mod sweep;
pub mod repro;
#[cfg(feature = "fuse")]
pub mod accuracy;
pub mod tool;
mod workspace;
pub mod image;
mod process;
mod account;
mod counters;
mod reference;
pub mod storage;
pub mod roof;
pub mod ceiling;
pub mod power;
pub mod manifest;
pub mod sample;
pub mod netload;
pub mod statistics;
pub mod environment;
pub mod plot;
pub mod published;
pub mod report;
pub mod diff;
pub mod error;
