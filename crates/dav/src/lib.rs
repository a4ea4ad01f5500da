//! WebDAV and HTTPS servers as storage to read from: `davs://HOST:PORT/PATH`, and `https://HOST/PATH` for single files.
//!
//! `Sites` opens them for `store::open`. Below it a `Site` makes single requests; `source` and `shelf` make of them what the traits
//! of `store` ask for.
//!
//! Invariants:
//! - A bearer token goes to the host that was named and to no other, whatever a server answers.
//! - A listing names what stands directly below what was asked for, and nothing else.
//! - A file that was read whole has the Adler-32 that the server says, where it says one.
//!
//! Not here: HTTP (`web`), writing, and copies between two servers without this host.

mod failure;
mod path;
mod token;
mod site;
mod listing;
mod reading;
mod source;
mod shelf;
mod open;

pub use open::Sites;
