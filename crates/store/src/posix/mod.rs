//! POSIX file systems: trees that are read, written and asked about, below descriptors.
//!
//! In reading order:
//! - `beneath`, `tree`: keep reading and writing below their roots
//! - `source`: reads, with `list` and `ordered`
//! - `watch`: follows, with `hints`
//! - `sink`: writes, with `lane` for small files and `large` for large ones; `shut` opens directories for it
//! - `view`: shows what has arrived of a file that grows
//! - `parts`: has several slices write one file
//! - `staging`: where what arrives waits, with `sweep`, `slices`, `fence` and `host`
//! - `apart`, `inherit`: make up for staging that is not in the directory itself
//! - `blocks`: chooses the engines (`engine`) for both
//! - `attributes`: reads what is said of objects beside content; `keep` applies it
//! - `nodes`: makes what has no content
//! - `owners`: users and groups
//! - `sparse`: leaves holes
//! - `target`: the `Shelf`, what is asked of files beside copying them, with `walk`, `survey` and `change`
//! - `here`: how a user's own path leads to one

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
mod shut;
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
