//! One job on several hosts: what it is cut into, and who works on which piece; and what hosts ask of a database that outlives them.
//!
//! `cut` makes bundles of a listing, `board` hands them out and takes them back, `coordinator` is what an engine such as etcd has to do.
//! All are pure: paths, hosts and time come in as values.
//!
//! Invariants:
//! - A bundle counts as done once, by the word of whoever has it at that moment; whoever lost it can no longer end it.
//! - What kept being lost is put aside and not tried for ever.
//!
//! Not here: how a host is told what to do (`daemon::crew`), and that a late one cannot publish, for which storage stands
//! (`store::posix`).

pub mod coordinator;
mod board;
mod cut;

pub use board::{Board, Commit, Counts, Epoch, Page};
pub use cut::{Bundle, Cut, Weight};
