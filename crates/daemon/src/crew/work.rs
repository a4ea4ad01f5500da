//! What several hosts are to do, and who hears how it goes; threads that do it.

use crate::endpoints::Endpoint;
use crate::error::Error;
use crate::hand_in::OrderNews;
use crate::hosts::{Shared, Site};
use cluster::Counts;
use model::{Exit, JobId, TransferSpec};
use net::Identity;
use std::path::Path;
use std::sync::Arc;

/// The hosts of both sides.
pub type Sites = (Option<Site>, Option<Site>);

pub struct Work<'a> {
    pub job: JobId,
    /// One directory with a slash behind it, at the first of the senders, and one at the first of the receivers.
    pub spec: &'a TransferSpec,
    pub senders: Vec<Endpoint>,
    pub receivers: Vec<Endpoint>,
    /// The receivers cannot be dialled by the senders: they fetch.
    pub do_fetch: bool,
    /// The hosts of both sides as their endpoints tell them at this moment, where they were not named: those that are new take part, and
    /// those that leave get no more.
    pub look: Arc<dyn Fn() -> Sites + Send + Sync>,
    pub identity: Identity,
    pub state: &'a Path,
    /// Where the command is given at one of several hosts that share a coordinator.
    pub common: Option<Common>,
    pub stop: &'a (dyn Fn() -> bool + Sync),
    /// Hears of each part before a host does.
    pub begun: &'a (dyn Fn(JobId) + Sync),
    /// Hears what a user should know.
    pub tell: &'a (dyn Fn(&str) + Sync),
    /// Sees how it stands, several times a second.
    pub show: &'a (dyn Fn(&OrderNews, Counts) + Sync),
}

/// What the other hosts of an endpoint have to know to go on with a job.
pub struct Common {
    pub shared: Shared,
    /// The same at all of them.
    pub job: JobId,
}

/// Worth another try, or another host.
pub fn is_passing(e: &Error) -> bool {
    matches!(e.exit, Exit::Temporary | Exit::Unreachable | Exit::Interrupted)
}

pub fn thread(name: &str) -> std::thread::Builder {
    std::thread::Builder::new().name(name.to_owned())
}
