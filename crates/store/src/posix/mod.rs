//! POSIX file systems: the only home of path work, and with `net` of `unsafe`.
//!
//! `list`, `ordered` and `source` read, `watch` with `hints` follows, `staging` with `sweep`, `slices`, `fence` and `host`, `large` with `view` and `parts`, `lane` and `sink` write, `blocks` chooses the engines for
//! both, `beneath` and `tree` keep both below their roots. `apart` and `inherit` make up for staging that is not in the directory itself. `attributes` reads and `keep` applies what is said of objects beside
//! content, `nodes` makes what has none, `owners` knows users and groups, `sparse` leaves holes. `target`, with
//! `walk`, `survey` and `change`, is the `Shelf`: what is asked of files beside copying them; `here` is how a user's own path leads
//! to one.

pub mod beneath;
pub mod closed;
mod tree;
mod list;
mod ordered;
mod choose;
mod source;
mod hints;
mod watch;
mod writers;
pub mod host;
mod slices;
mod staging;
mod inherit;
mod fence;
mod sweep;
mod large;
mod parts;
mod view;
mod lines;
mod lane;
mod shared;
mod apart;
mod sink;
mod wait;
mod rename;
mod backup;
mod keep;
mod nodes;
mod attributes;
mod sparse;
pub mod owners;
mod prune;
mod look;
mod within;
mod blocks;
mod content;
mod spelling;
mod ticks;
pub mod target;
pub mod here;
mod trail;
pub mod walk;
pub mod survey;
pub mod change;
mod shelf;
pub mod facts;
pub mod heap;
pub mod engine;

pub use fence::forget as forget_slices;
pub use list::{generation_of, read_directory};
pub use sink::PosixSink;
pub use source::PosixSource;
pub use tree::directories_max;
pub use wait::sync_names;
