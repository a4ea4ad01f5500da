//! The thread that lists the source of a sending job.

use super::{SendJob, follow, scan};
use std::sync::Arc;

impl SendJob {
    /// Starts the listing on a thread of its own.
    pub fn start(self: &Arc<SendJob>) {
        let listing = if self.options.follow.is_some() { follow::run } else { scan::run };
        crate::job::spawn(self, "scan", listing, SendJob::cancel);
    }
}
