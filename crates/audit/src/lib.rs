//! What a host does for transfers and what it costs them: findings, each with what, why, the command that mends it, and
//! whether that can be done from here.
//!
//! `host` is where facts are read: files below a root (`/`, or a captured tree) and questions to the kernel. `checks`
//! turns facts into findings, `path` holds the formulas they cite, `profile` compares with published sets of settings,
//! `apply` carries out what is safe.
//! Invariants: nothing is changed outside `apply`; a fact that cannot be read gives no finding, or one that says so; a
//! change is a value written to a sysctl, which holds until the next start and can be put back by writing the old one.
//! Not here: printing, the connection to an endpoint (the program's).

mod here;
pub mod host;
pub mod path;
pub mod finding;
pub mod checks;
pub mod profile;
pub mod apply;

pub use finding::{Area, Change, Finding, Level, Mend};
pub use here::Here;
pub use host::{Calls, Host, Kernel};
pub use path::Path;

/// What the audit is asked.
#[derive(Clone, Debug, Default)]
pub struct Question<'a> {
    /// What the host is to fill.
    pub path: Path,
    /// The directories that are read from or written to.
    pub roots: Vec<std::path::PathBuf>,
    /// What is known of the other side.
    pub peer: Option<checks::peer::Peer>,
    pub profile: Option<&'a profile::Profile>,
}

/// Asks everything. The order is that of the areas, and within one from the most to the least telling.
pub fn audit(host: &Host, question: &Question<'_>) -> Vec<Finding> {
    let mut findings = checks::sockets::findings(host, &question.path);
    findings.extend(checks::congestion::findings(host, &question.path));
    findings.extend(checks::interfaces::findings(host, &question.path));
    findings.extend(question.peer.iter().flat_map(|peer| checks::peer::findings(host, peer, &question.path)));
    findings.extend(checks::machine::findings(host));
    findings.extend(checks::storage::findings(host, &question.roots));
    if let Some(profile) = question.profile {
        findings.extend(profile::findings(host, profile));
    }
    findings.sort_by_key(|finding| finding.area);
    findings
}
