//! What a server does with requests that change something, and names of what is staged there.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{SystemTime, UNIX_EPOCH};

/// What names of staged files begin with.
pub const STAGED_PREFIX: &str = ".thalweg-staging-dav-";
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Habits {
    /// Escapes in a `Destination` stand for something, as in every URL.
    pub decodes: bool,
    /// `Overwrite: F` is kept to.
    pub keeps: bool,
    /// `X-OC-Mtime` gives a file its time.
    pub takes_times: bool,
    /// What the server's clock is ahead of this host's, in seconds.
    pub ahead_seconds: i64,
}

/// A text that no other process and no other call gets.
pub fn mark() -> String {
    static NUMBERS: AtomicU64 = AtomicU64::new(0);
    let since = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos());
    format!("{since:x}-{:x}-{}", std::process::id(), NUMBERS.fetch_add(1, Relaxed))
}
