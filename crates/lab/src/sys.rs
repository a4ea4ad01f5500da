//! The system calls that no safe library offers.
//!
//! Owns: the unsafe code of the laboratory, behind functions that are safe to call. That of the emulator is its own.

pub mod awake;
pub mod namespace;
pub mod realtime;
pub mod tcp;
