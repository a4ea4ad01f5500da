//! Answers questions about files beside copying them: lists, sums, new directories, removals, new names.
//!
//! `answer` carries out a `model::files::Question` on whatever `Reach` lets it reach, the same for a path of this host and
//! for a client's; `digest` reads files on several processors; `sum` is one file's digest while it is read.
//!
//! Not here: who may reach what (`Reach` is the caller's), sessions (see `session`), and how answers are shown.

mod list;
mod sum;
pub mod digest;
mod reach;
mod answer;

pub use answer::answer;
pub use reach::{Here, NotReached, Reach};
pub use store::How;
