//! What is held of a small file until it is published.

use model::Entry;

/// A sealed file: its bytes, until they lie at the server.
pub struct Small {
    pub entry: Entry,
    pub bytes: Vec<u8>,
    pub adler: u32,
    /// Where it lies at the server.
    pub sent: Option<Vec<u8>>,
}
