//! Facts into findings, a file for each area.

pub mod sockets;
pub mod congestion;
pub mod interfaces;
pub mod routing;
pub mod peer;
pub mod machine;
pub mod storage;
