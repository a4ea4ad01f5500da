//! SFTP version 3 as storage, over two pipes to whatever speaks it: the user's own `ssh -s HOST sftp`.
//!
//! `packet` reads and writes what travels, `session` numbers requests and hands each its answer, `calls` names them, and `server`
//! keeps the conversation up. `source`, `sink` (with `job`, `held`, `small`, `large`) and `shelf` make of them what `store` asks for;
//! `open` is the way in.
//!
//! Invariants:
//! - What the other side can make this one hold is bounded: packets, names of a directory, requests under way.
//! - A name from the other side is one component, checked when it is read.
//! - Content is staged beside its target under a name that no scan shows, and gets its own by one rename.

mod packet;
mod session;
mod calls;
mod server;
mod listing;
mod reading;
mod source;
mod job;
mod held;
mod small;
mod large;
mod sink;
mod shelf;
mod open;

pub use open::{SCHEME, Servers};
pub use server::{Dial, Host, Line};
