//! The threads of a receiving job.

use super::drain::keep_durable;
use super::{ReceiveJob, commit, decide};
use std::sync::Arc;
use store::Durability;

impl ReceiveJob {
    /// Starts the threads that answer the listing and that commit groups, and grants the first credit.
    pub fn start(self: &Arc<ReceiveJob>) {
        if self.hold.get().is_some() {
            crate::job::spawn(self, "buffer", keep_durable, ReceiveJob::cancel);
        }
        crate::job::spawn(self, "decide", decide::run, ReceiveJob::cancel);
        if self.durability == Durability::Group {
            crate::job::spawn(self, "commit", commit::run, ReceiveJob::cancel);
        }
        self.grant(0);
    }
}
