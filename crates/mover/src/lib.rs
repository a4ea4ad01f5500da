//! The data path: a sender's lanes read, digest and send; a receiver's lanes receive, verify, write and commit.
//!
//! ```text
//! source ─► store::Source ─► sender::{scan ─► split ─► read ─► send} ════════════════════════╗
//!                                                                     wire frames, net streams ║
//! destination ◄─ store::Sink ◄─ receiver::{commit ◄─ lane ◄─ verify ◄─ decide, receive} ◄═════╝
//! ```
//! A lane is one thread with one data stream and a few recycled blocks; it does everything for a block while the block
//! is in its cache. Decisions travel on the control stream (`session`), in batches; no lane waits for one file.
//! `local` joins a sender's and a receiver's lane where one process reaches both storages. `files` answers what is asked of
//! files beside copying them.
//!
//! Not here: HTTP, terminals, who may do what (`daemon`), and how a rate is judged (`plan`).

pub mod limits;
pub mod memory;
pub mod shares;
pub mod progress;
mod stall;
pub mod job;
pub mod job_options;
mod block;
mod digest;
pub mod stream;
mod pace;
mod engines;
pub mod compression;
pub mod sender;
pub mod receiver;
pub mod session;
pub mod local;
pub mod files;
pub mod report;

pub use job::{Delivered, Ending, Followed, Observer};
pub use memory::Memory;
pub use progress::{Progress, Snapshot};
pub use report::{PathReport, Removal, Report};
pub use wire::handshake::feature;
pub use wire::{CloseCode, Refusal};
