//! Carrying out what is safe: writing values to sysctls, with the old values kept for putting them back.
//!
//! Invariants: only changes that a finding holds and that can be made here; one setting is written once, and a profile's
//! value wins over a computed one; what was read before the write is returned, whatever comes of it.

use crate::finding::{Area, Change, Finding, Level};
use crate::here::Here;
use crate::host::Host;
use std::io;

/// A change that is about to be made.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Step {
    pub change: Change,
    pub before: String,
}

impl Step {
    pub fn command(&self) -> String {
        format!("sysctl -w {}='{}'", self.change.sysctl, self.change.value)
    }

    pub fn undo(&self) -> String {
        format!("sysctl -w {}='{}'", self.change.sysctl, self.before)
    }
}

/// What can be done for these findings from here.
pub fn steps(host: &Host, findings: &[Finding]) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    // Those of a profile come last and replace what was computed.
    let (named, computed): (Vec<_>, Vec<_>) = findings.iter().partition(|finding| finding.area == Area::Profile);
    for finding in computed.into_iter().chain(named) {
        let Some(mend) = &finding.mend else { continue };
        let may_do = mend.here == Here::Yes && matches!(finding.level, Level::Needed | Level::Optional);
        let (true, Some(change)) = (may_do, &mend.change) else { continue };
        let Some(before) = host.sysctl(&change.sysctl) else { continue };
        steps.retain(|step| step.change.sysctl != change.sysctl);
        if before != change.value {
            steps.push(Step { change: change.clone(), before });
        }
    }
    steps
}

/// Makes one change and reads it back.
pub fn carry_out(host: &Host, step: &Step) -> io::Result<()> {
    host.set_sysctl(&step.change.sysctl, &step.change.value)?;
    match host.sysctl(&step.change.sysctl) {
        Some(found) if found == step.change.value => Ok(()),
        found => Err(io::Error::other(format!("the kernel keeps {}", found.unwrap_or_default()))),
    }
}

/// Whether a setting is another one than before the step, also where it is not what was wanted.
pub fn has_changed(host: &Host, step: &Step) -> bool {
    host.sysctl(&step.change.sysctl).as_ref() != Some(&step.before)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::imitation::{Answers, files};

    #[test]
    fn steps_are_made_undone_and_a_profile_wins() {
        let answers = Answers::default();
        let dir =
            files(&[("proc/sys/net/ipv4/tcp_wmem", "4096\t16384\t4194304\n"), ("proc/sys/net/ipv4/tcp_sack", "0\n")]);
        let host = Host::imitated(dir.path(), &answers);
        let finding =
            |area, level, name: &str, value: &str| Finding::new(area, level, name, "").sysctl(&host, name, value);
        let findings = [
            finding(Area::Profile, Level::Optional, "net.ipv4.tcp_wmem", "4096 65536 1073741824"),
            finding(Area::Sockets, Level::Needed, "net.ipv4.tcp_wmem", "4096 16384 67108864"),
            finding(Area::Sockets, Level::Needed, "net.ipv4.tcp_sack", "1"),
            finding(Area::Sockets, Level::Needed, "net.core.rmem_max", "1"),
            finding(Area::Sockets, Level::Note, "net.ipv4.tcp_sack", "2"),
        ];
        std::fs::create_dir_all(dir.path().join("proc/sys/net/core")).unwrap();
        std::fs::write(dir.path().join("proc/sys/net/core/wmem_max"), "1").unwrap();
        std::fs::write(dir.path().join(".dockerenv"), "").unwrap();
        let shared = [finding(Area::Profile, Level::Optional, "net.core.wmem_max", "2")];
        assert_eq!(super::steps(&host, &shared), [], "a container does not change its host");
        let steps = steps(&host, &findings);
        let commands: Vec<_> = steps.iter().map(Step::command).collect();
        assert_eq!(
            commands,
            ["sysctl -w net.ipv4.tcp_sack='1'", "sysctl -w net.ipv4.tcp_wmem='4096 65536 1073741824'"]
        );
        steps.iter().for_each(|step| carry_out(&host, step).unwrap());
        assert_eq!(host.sysctl("net.ipv4.tcp_wmem").as_deref(), Some("4096 65536 1073741824"));
        assert_eq!(steps[1].undo(), "sysctl -w net.ipv4.tcp_wmem='4096 16384 4194304'");
        assert_eq!(super::steps(&host, &findings[..2]), [], "the profile's value holds");
    }

    #[test]
    fn a_value_that_the_kernel_keeps_otherwise_has_failed_and_can_be_undone() {
        let answers = Answers::default();
        let dir = files(&[("proc/sys/net/ipv4/tcp_sack", "0\n")]);
        let host = Host::imitated(dir.path(), &answers);
        // Read back, a value has no white space around it.
        let step = |value: &str| Step {
            change: Change { sysctl: "net.ipv4.tcp_sack".into(), value: value.into() },
            before: "0".into(),
        };
        for (value, is_changed) in [("0 ", false), ("1 ", true)] {
            let why = carry_out(&host, &step(value)).unwrap_err().to_string();
            assert_eq!(why, format!("the kernel keeps {}", value.trim()));
            assert_eq!(has_changed(&host, &step(value)), is_changed, "{value:?}");
        }
    }
}
