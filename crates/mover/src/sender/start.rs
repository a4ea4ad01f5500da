//! The threads of a sending job beside its lanes: listing the source, and reading it ahead.

use super::{SendJob, follow, read_ahead, scan};
use std::sync::Arc;

impl SendJob {
    /// Starts the listing on a thread of its own, and reading ahead where there is room for it.
    pub fn start(self: &Arc<SendJob>) {
        let listing = if self.options.follow.is_some() { follow::run } else { scan::run };
        crate::job::spawn(self, "scan", listing, SendJob::cancel);
        if self.ahead.get().is_some() {
            crate::job::spawn(self, "read", read_ahead::run, SendJob::cancel);
        }
    }
}
