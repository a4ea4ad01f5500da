//! The threads of a receiving job.

use super::{ReceiveJob, commit, decide};
use std::sync::Arc;
use store::Durability;

impl ReceiveJob {
    /// Starts the threads that answer the listing and that commit groups, and grants the first credit.
    pub fn start(self: &Arc<ReceiveJob>) {
        crate::job::spawn(self, "decide", decide::run, ReceiveJob::cancel);
        if self.durability == Durability::Group {
            crate::job::spawn(self, "commit", commit::run, ReceiveJob::cancel);
        }
        self.grant(0);
    }
}
