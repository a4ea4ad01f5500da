//! WebDAV servers as storage: `davs://HOST:PORT/PATH`; and HTTPS servers to read single files from: `https://HOST/PATH`.
//!
//! `Sites` opens them for `store::open`. Below it a `Site` makes single requests, those for checksums one at a time (`checksums`,
//! `digests`), and `trial` finds out how it takes some of them;
//! `source` (with `ahead`), `shelf` and `sink` (with `job`, `small`, `large`) make of them what the traits of `store` ask for.
//!
//! Invariants:
//! - A bearer token goes to the host that was named and to no other, whatever a server answers.
//! - A listing names what stands directly below what was asked for, and nothing else.
//! - A file that was read whole has the Adler-32 that the server says, where it says one; and so has a file that was written, before it
//!   gets its name.
//! - A name appears by one MOVE of what lies complete at the server.
//!
//! Not here: HTTP (`web`).

mod failure;
mod path;
mod token;
mod habits;
mod digests;
mod site;
mod listing;
mod reading;
mod checksums;
mod ahead;
mod source;
mod changing;
mod trial;
mod job;
mod held;
mod small;
mod third_party;
mod large;
mod sink;
mod shelf;
mod open;

pub use open::Sites;
pub use site::SiteConfig;
pub use web::Stop;

/// What makes values of a server's bytes, for whoever tries it with any bytes.
pub mod said {
    pub use super::third_party::{MARKER_BYTES_MAX, Markers};
}
