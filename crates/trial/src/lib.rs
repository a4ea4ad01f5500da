//! What the trials share with the fuzz workspace: the bodies of its targets, and streams between two ends of one process.
//!
//! Not part of the product, like the rest of this crate.

pub mod loopback;
pub mod targets;
