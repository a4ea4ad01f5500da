//! Files under paths at a server, as storage, whatever protocol the server speaks.
//!
//! `remote` says what a protocol has to do; `source`, `sink` (with `job` and `small`) and `shelf` make of it what `store` asks for, and
//! `diagnosis` is what `thalweg doctor` asks, and `open` is the way in.
//!
//! Invariants:
//! - What the other side can make this one hold is bounded: names of a directory, and how deep directories lie.
//! - Content is staged beside its target under a name that no scan shows, and gets its own by one rename.

mod attributes;
mod held;
mod remote;
mod source;
mod job;
mod small;
mod sink;
mod shelf;
mod diagnosis;
mod open;
mod host;

pub use attributes::{Attributes, generation};
pub use held::Small;
pub use host::Host;
pub use job::{Job, Stage};
pub use open::{Place, Places, lost, split};
pub use remote::{
    Asked, Attempts, Child, Children, DEPTH_MAX, Faulty, NAMES_MAX, ODD_MAX, Remote, Rename, WIDTH, absent, join, shown,
};
pub use source::path_of;
