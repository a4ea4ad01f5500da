//! SFTP version 3 over two pipes, or sockets, to whatever speaks it: the user's own `ssh -s HOST sftp`.
//!
//! `packet` reads and writes what travels, by a `pipe`; `session` numbers requests and hands each its answer, `calls` names them, and
//! `server` keeps the conversation up. `remote` is what `tree` makes a store of, with `listing`, `reading`, `source`, `small` and `large`; `open`
//! is the way in.
//!
//! Invariants:
//! - What the other side can make this one hold is bounded: packets, names of a directory, requests under way.
//! - A name from the other side is one component, checked when it is read.

mod packet;
mod pipe;
mod session;
mod calls;
mod server;
mod listing;
mod reading;
mod source;
mod small;
mod large;
mod remote;
mod open;

pub use crate::tree::Host;
pub use open::{SCHEME, Servers};
pub use pipe::Pipe;
pub use server::{Dial, Line};

/// What makes values of a server's bytes, for whoever tries it with any bytes.
pub mod said {
    pub use super::packet::{Input, Output, PACKET_BYTES_MAX, Reply, read};
    pub use super::session::{Extensions, greeted, read_packet};
    pub use crate::tree::Attributes;
}
