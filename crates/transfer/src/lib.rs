//! A transfer from request to end, for programs: what `thalweg cp` does, without a terminal.
//!
//! ```text
//! TransferSpec (model) + Means ─► Transfer::start ─► observe, steer, cancel ─► wait ─► Ended
//! ```
//! `matrix` says what works with what, `route` decides which way bytes go, `peer` says what the other side is, `store::Stores` opens
//! what is on this host, `capability` refuses what the other side would pass over, `attempt` runs the mover once (`replicas` has other
//! holders help, `chunks` says how long chunks are), `run` tries again and sums up, `witness` keeps what
//! failed and what was delivered, `sample` says how it goes, `trees` compares and moves. docs/embedding.md shows it in use.
//!
//! Invariants:
//! - Nothing here prints, reads the environment or the command line, or asks for a home directory: all that comes in by `Means`.
//! - The same request has the same job id, and finds what an earlier run of it verified.
//!
//! Not here: endpoints' names and tickets (`daemon`), ssh, the queue of a service.

mod error;
pub mod matrix;
mod route;
mod peer;
mod paths;
mod connect;
mod job_id;
mod means;
mod watcher;
mod capability;
mod apart;
mod listed;
mod replicas;
mod chunks;
mod attempt;
mod witness;
mod sample;
mod control;
mod bounds;
mod run;
mod ended;
mod handle;
pub mod trees;

pub use apart::check_apart_there;
pub use connect::{ConnectOptions, Reach, connect_over};
pub use control::{Observed, Phase, Steering};
pub use ended::{Ended, HostShare};
pub use error::{Error, Kind, LEAVES_ROOT, MAY_ONLY_READ, MAY_ONLY_WRITE, NOTHING_ELSE, Result, plain, reason};
pub use handle::Transfer;
pub use job_id::job_id;
pub use listed::{Listed, part};
pub use means::Means;
pub use model::TransferSpec;
pub use peer::{NoPeers, Peer, Peers, Use, Way};
pub use route::Direction;
pub use run::pause_after;
pub use sample::{History, Legs, Sample, bottleneck, legs};
pub use watcher::{Unwatched, Watcher};
