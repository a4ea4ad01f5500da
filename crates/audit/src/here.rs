//! Whether a change can be made from where the audit runs.

use std::fmt;

/// Whether a change can be made from where the audit runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Here {
    Yes,
    NeedsRoot,
    /// The kernel's settings are mounted read only, as in most containers.
    ReadOnly,
    /// It does not show in this network namespace: it belongs to the host.
    HostOnly,
    /// It could be set, and would change the whole host of the container that this runs in.
    WholeHost,
    /// It is nothing that this program changes.
    ByHand,
}

impl Here {
    pub fn word(self) -> &'static str {
        match self {
            Here::Yes => "yes",
            Here::NeedsRoot => "needs-root",
            Here::ReadOnly => "read-only",
            Here::HostOnly => "host-only",
            Here::WholeHost => "whole-host",
            Here::ByHand => "by-hand",
        }
    }
}

impl fmt::Display for Here {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Here::Yes => "can be done here",
            Here::NeedsRoot => "needs root",
            Here::ReadOnly => "not from here: settings are read-only in this container; set it on the host",
            Here::HostOnly => "not from here: it is not visible in this network namespace; set it on the host",
            Here::WholeHost => "not from here: it would change the container's whole host; set it there",
            Here::ByHand => "by hand",
        })
    }
}
