//! The laboratory: hosts, links and storages that exist for one run and leave the machine as it was.
//!
//! Every part removes on drop what it made, and removes at its next start what a killed run left behind.

pub mod backend;
pub mod control;
pub mod draw;
pub mod emit;
pub mod error;
pub mod laboratory;
pub mod flow;
mod iproute;
pub mod lease;
mod netem;
pub mod network;
pub mod probe;
mod quota;
pub mod record;
mod rules;
pub mod scenario;
mod shaping;
#[cfg(feature = "fuse")]
pub mod storage;
mod sys;
pub mod topology;
pub mod unprivileged;
pub mod validate;

pub use error::{Error, Kind};
pub use laboratory::Lab;
pub use sys::namespace::unshare_mounts;
