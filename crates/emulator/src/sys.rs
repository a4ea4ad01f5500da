//! The system calls that no safe library offers.
//!
//! Owns: all unsafe code of the emulator, behind functions that are safe to call.

pub(crate) mod mmsg;
pub mod namespace;
pub(crate) mod realtime;
pub mod tun;
