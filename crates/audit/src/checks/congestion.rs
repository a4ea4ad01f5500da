//! Congestion control, and how packets are spread on their way out.

use crate::finding::{Area, Finding, Level};
use crate::host::Host;
use crate::path::Path;
use std::time::Duration;

const CONTROL: &str = "net.ipv4.tcp_congestion_control";
const AVAILABLE: &str = "net.ipv4.tcp_available_congestion_control";
const ALLOWED: &str = "net.ipv4.tcp_allowed_congestion_control";
const PROBING: &str = "net.ipv4.tcp_mtu_probing";

/// Shorter paths lie within one site, where loss is rare and windows recover at once.
const RTT_LONG: Duration = Duration::from_millis(10);

pub fn findings(host: &Host, path: &Path) -> Vec<Finding> {
    let mut findings = Vec::new();
    findings.extend(control(host, path));
    findings.extend(probing(host));
    findings.extend(host.sysctl("net.core.default_qdisc").map(|found| {
        Finding::new(Area::Network, Level::Good, "net.core.default_qdisc", found)
            .costs("interfaces that come up get this queue discipline; those already up are listed separately")
    }));
    findings
}

fn control(host: &Host, path: &Path) -> Option<Finding> {
    let found = host.sysctl(CONTROL)?;
    let available = host.sysctl(AVAILABLE).unwrap_or_default();
    let shown = format!("{found} (available: {})", if available.is_empty() { &found } else { &available });
    let is_loss_based = matches!(found.as_str(), "cubic" | "reno" | "htcp" | "bic");
    if !is_loss_based || path.rtt < RTT_LONG {
        return Some(Finding::new(Area::Network, Level::Good, CONTROL, shown));
    }
    let allowed = host.sysctl(ALLOWED).unwrap_or_default();
    let has = |names: &str, wanted: &str| names.split(' ').any(|name| name == wanted);
    let is_loaded = has(&available, "bbr");
    if is_loaded && has(&allowed, "bbr") && has(&allowed, &found) {
        let finding = Finding::new(Area::Network, Level::Good, CONTROL, shown);
        return Some(
            finding.costs("where a path loses packets without being full, a copy uses BBR for one of its streams"),
        );
    }
    let cost = format!(
        "{found} takes every loss for congestion: where a long path loses packets without being full, a stream's rate \
         falls with RTT x sqrt(loss) (Mathis 1997). A copy uses BBR for one of its streams there, if the kernel has loaded it and every \
         process may select both; otherwise it opens more streams"
    );
    let load = if is_loaded { "" } else { "modprobe tcp_bbr; " };
    let mut names: Vec<_> = allowed.split(' ').filter(|name| !name.is_empty()).collect();
    names.extend(["bbr", found.as_str()].into_iter().filter(|name| !has(&allowed, name)));
    let mend = format!("{load}sysctl -w {ALLOWED}='{}'", names.join(" "));
    Some(Finding::new(Area::Network, Level::Optional, CONTROL, shown).costs(cost).by_hand(&mend))
}

fn probing(host: &Host) -> Option<Finding> {
    let found = host.sysctl(PROBING)?;
    if found != "0" {
        return Some(Finding::new(Area::Network, Level::Good, PROBING, found));
    }
    let cost = "where a router silently drops large packets, connections hang at their first full-size packet";
    Some(Finding::new(Area::Network, Level::Optional, PROBING, found).costs(cost).sysctl(host, PROBING, "1"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::imitation::{Answers, files};

    fn control_of(current: &str, available: &str, allowed: &str, rtt_ms: u64) -> Finding {
        let answers = Answers::default();
        let dir = files(&[
            ("proc/sys/net/ipv4/tcp_congestion_control", current),
            ("proc/sys/net/ipv4/tcp_available_congestion_control", available),
            ("proc/sys/net/ipv4/tcp_allowed_congestion_control", allowed),
        ]);
        let path = Path { rtt: Duration::from_millis(rtt_ms), ..Path::default() };
        findings(&Host::imitated(dir.path(), &answers), &path).remove(0)
    }

    #[test]
    fn loss_based_control_matters_over_distance_only() {
        assert_eq!(control_of("cubic", "reno cubic", "reno cubic", 1).level, Level::Good);
        assert_eq!(control_of("bbr", "reno cubic bbr", "reno bbr", 100).level, Level::Good);
        assert_eq!(control_of("cubic", "reno cubic bbr", "reno cubic bbr", 100).level, Level::Good);
        let command = |available, allowed| control_of("cubic", available, allowed, 100).mend.unwrap().command;
        let allow = "sysctl -w net.ipv4.tcp_allowed_congestion_control='reno cubic bbr'";
        assert_eq!(command("reno cubic bbr", "reno cubic"), allow);
        assert_eq!(command("reno cubic", "reno cubic"), format!("modprobe tcp_bbr; {allow}"));
        assert!(command("reno cubic bbr", "reno bbr").ends_with("='reno bbr cubic'"), "a stream has to come back");
    }
}
