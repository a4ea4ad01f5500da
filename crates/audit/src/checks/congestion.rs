//! Congestion control, and how packets are spread on their way out.

use crate::finding::{Area, Finding, Level};
use crate::host::Host;
use crate::path::Path;
use std::time::Duration;

const CONTROL: &str = "net.ipv4.tcp_congestion_control";
const AVAILABLE: &str = "net.ipv4.tcp_available_congestion_control";
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
    let cost = format!(
        "{found} takes every loss for congestion: where a long path loses packets without being full, a stream's rate \
         falls with RTT x sqrt(loss) (Mathis 1997), and several streams are opened against it"
    );
    let finding = Finding::new(Area::Network, Level::Optional, CONTROL, shown).costs(cost);
    Some(if available.split(' ').any(|name| name == "bbr") {
        finding.by_hand("thalweg cp --cc bbr ...   (for one transfer; on a path with loss compare the two)")
    } else {
        finding.by_hand("modprobe tcp_bbr, then thalweg cp --cc bbr ...")
    })
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

    fn control_of(current: &str, available: &str, rtt_ms: u64) -> Finding {
        let answers = Answers::default();
        let dir = files(&[
            ("proc/sys/net/ipv4/tcp_congestion_control", current),
            ("proc/sys/net/ipv4/tcp_available_congestion_control", available),
        ]);
        let path = Path { rtt: Duration::from_millis(rtt_ms), ..Path::default() };
        findings(&Host::imitated(dir.path(), &answers), &path).remove(0)
    }

    #[test]
    fn loss_based_control_matters_over_distance_only() {
        assert_eq!(control_of("cubic", "reno cubic bbr", 1).level, Level::Good);
        assert_eq!(control_of("bbr", "reno cubic bbr", 100).level, Level::Good);
        let far = control_of("cubic", "reno cubic bbr", 100);
        assert!(far.mend.unwrap().command.starts_with("thalweg cp --cc bbr"));
        let lacking = control_of("cubic", "reno cubic", 100);
        assert!(lacking.mend.unwrap().command.starts_with("modprobe tcp_bbr"));
    }
}
