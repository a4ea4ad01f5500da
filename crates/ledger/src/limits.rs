//! Every bound of the ledger in one place.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Bounds that a caller may set; the defaults suit a daemon on a local file system.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Operations waiting for the writer. One group commit of so many one-row operations takes about 80 ms
    /// (measured: 100,000 rows in 1 s).
    pub queued_operations_max: usize,
    /// Bytes that those operations hold; the group being written may hold as many again.
    pub queued_bytes_max: usize,
    /// Longest wait of one call. An fsync beyond this is a stalled disk.
    pub wait_max: Duration,
    /// Longest wait for another process that writes the same file.
    pub busy_max: Duration,
    /// Largest the SQLite file may grow; beyond it changes are refused as on a full disk.
    pub file_bytes_max: u64,
    /// Failures kept as rows for each job; the rest is counted.
    pub failures_per_job_max: u64,
    /// Wall clock in milliseconds since 1970. For display, the order of lists, and sweeping.
    pub clock: fn() -> i64,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            queued_operations_max: 8192,
            queued_bytes_max: 16 << 20,
            wait_max: Duration::from_secs(60),
            busy_max: Duration::from_secs(10),
            file_bytes_max: 4 << 30,
            failures_per_job_max: 100_000,
            clock: unix_ms,
        }
    }
}

fn unix_ms() -> i64 {
    match SystemTime::now().duration_since(UNIX_EPOCH) {
        Ok(since) => i64::try_from(since.as_millis()).unwrap_or(i64::MAX),
        Err(_) => 0,
    }
}

/// Bytes of a source, destination or options text, and of a failure's path. Longer ones are refused or only counted.
pub(crate) const TEXT_BYTES_MAX: usize = 64 << 10;
/// Bytes of a peer's or identity's text: part of a key, so never shortened.
pub(crate) const PEER_BYTES_MAX: usize = 1 << 10;
/// Bytes of a failure's message; longer ones are shortened.
pub(crate) const MESSAGE_BYTES_MAX: usize = 1 << 10;
/// Rows that one query returns.
pub(crate) const ROWS_MAX: usize = 10_000;
/// Runs of a job that are kept: three years of one a day, six weeks of one an hour.
pub(crate) const RUNS_PER_JOB_MAX: u64 = 1000;
/// Jobs that one sweeping transaction deletes, so that others get their turn in between.
pub(crate) const SWEEP_JOBS_MAX: usize = 100;
/// Pages given back to the file system after a sweep, in one go (40 MiB).
pub(crate) const VACUUM_PAGES_MAX: u32 = 10_000;
/// Files up to this size are checked whole when they are opened. The check reads 150 MB/s from the page cache, so that a
/// command starts at most 15 ms later for it; larger files are not checked.
pub(crate) const CHECK_BYTES_MAX: u64 = 2 << 20;
/// Frames of 4 KiB that gather in the write-ahead log before they are copied into the file; SQLite's own default.
pub(crate) const LOG_FRAMES_MAX: i64 = 1000;
