//! Where a tool runs: between which places, and at which of the hosts.

use lab::Lab;
use serde::{Deserialize, Serialize};

/// Tools race within a class only.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Class {
    /// Between two hosts.
    #[default]
    Network,
    /// Within one file system.
    Local,
    /// A ceiling of the machine; delivers nothing.
    Reference,
}

/// Clients are at the first site of the laboratory, servers at the last.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Host {
    Client,
    Server,
}

impl Host {
    pub(crate) fn name(self, lab: &Lab) -> &str {
        let sites = &lab.scenario().sites;
        match self {
            Host::Client => &sites[0].name,
            Host::Server => &sites[sites.len() - 1].name,
        }
    }
}
