//! The system calls that no safe library offers.
//!
//! Owns: all unsafe code of the laboratory, behind functions that are safe to call.

pub mod mmsg;
pub mod namespace;
pub mod realtime;
pub mod tcp;
pub mod tun;
