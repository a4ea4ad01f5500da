//! Facts in, choices and judgements out, each with its reason in words.
//!
//! Invariants: pure functions of their arguments; no I/O, no clock, no state but what `Adaptation` keeps for its caller;
//! no input makes them panic, since part of it comes from the peer.
//!
//! Where constants come from: what one core moves and what more lanes than cores cost was measured with the prototype
//! of the data path (two cores shared by both ends, TLS and digest on); how much of a socket buffer is payload was
//! measured on loopback and follows from the kernel's accounting; the laws of loss are those of Mathis et al. (1997)
//! and RFC 9438; the thresholds of the bottleneck's judgement are set by the table of cases in its tests. Every
//! constant says at its definition what it rests on.
//!
//! Not here: taking the measurements (`net`, `mover`), acting on a choice (`mover`), showing it (`cli`).

mod streams;
mod window;
mod tuner;
mod adapt;
mod congestion;
mod path_trial;
pub mod paths;
mod side;
mod bottleneck;
mod verdict;
mod time_left;
pub mod shares;
pub mod giving_way;
pub mod graph;
pub mod solve;
pub mod staging;
pub mod fit;
pub mod calibration;

pub use adapt::{Adaptation, Log, StreamSample};
pub use bottleneck::{Observed, bottleneck};
pub use congestion::{Finding, LossWatch, LossyPath, Sent};
pub use giving_way::GivingWay;
pub use path_trial::{PathStep, PathTrials};
pub use streams::{STREAMS_CHOSEN_MAX, StreamChoice, StreamInputs, stream_table, streams};
pub use time_left::time_left;
pub use tuner::Change;
pub use verdict::{Amounts, VERDICTS};
pub use window::{Limit, Window};

#[cfg(test)]
mod bottleneck_tests;
