//! Named sets at this host: what is kept of them (`kept`), how one is published (`publish`) and found at its holders (`find`).
//!
//! Invariants:
//! - A note counts only with a signature of the key that is known for its name, and never after one with a higher serial.
//! - A page of a catalogue counts only if it has the digest by which it was asked for.
//!
//! Not here: what notes and catalogues look like (`model::set`), and how content is fetched (`transfer`).

mod find;
mod kept;
mod publish;

pub use find::{Finder, Latest};
pub use kept::{Kept, Trust};
pub use publish::{Publication, Published, close, offer, publish, recall};
