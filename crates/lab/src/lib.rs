//! The laboratory: hosts, links and storages that exist for one run and leave the machine as it was.
//!
//! Every part removes on drop what it made, and removes at its next start what a killed run left behind.

pub mod pair;
pub mod storage;
