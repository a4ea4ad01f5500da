//! What is held of a small file until it is published.

use super::attributes::Attributes;
use store::Error;

/// A sealed file: its bytes, until they lie at the server.
pub struct Small {
    pub path: Vec<u8>,
    pub mode: u32,
    pub attributes: Attributes,
    pub bytes: Vec<u8>,
    pub size_bytes: u64,
    pub wants_sync: bool,
    pub is_sent: bool,
    pub is_synced: bool,
    pub failure: Option<Error>,
}
