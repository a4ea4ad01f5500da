//! How slow a storage is, and how.

use std::time::Duration;

/// How slow, and how.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StorageProfile {
    /// From a read's request to its data.
    pub read_latency: Duration,
    /// From a write's request to its acknowledgement; syncs and preallocation take as long.
    pub write_latency: Duration,
    /// For everything that changes a name: create, remove, rename, link.
    pub create_latency: Duration,
    /// Of reads and writes together; None is unlimited.
    pub bytes_per_second: Option<u64>,
    /// Lets the kernel cache data and read ahead, so that not every read becomes an operation.
    pub page_cache: bool,
    /// Names that differ only in the case of ASCII letters are one, as on storage that other systems use too.
    pub folds_case: bool,
    /// Several mounts of one directory at a time, as hosts see storage that they share: nothing is cached of names and
    /// attributes, and locks hold within one mount, as with Lustre's `localflock` or NFS with `local_lock`.
    pub is_shared: bool,
}
