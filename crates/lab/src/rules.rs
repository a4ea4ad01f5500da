//! The packet filter's rules that lead packets into queues.
//!
//! Owns: one rule for each pair of ports of each path, in the core's namespace, where they go with it. The rules are written
//! by `iptables` in its legacy form: kernels without modules tend to have that and not the target's newer form.

use std::process::{Command, Stdio};

use crate::error::{Error, Kind, Result};
use crate::iproute::feed;
use crate::topology::Path;

/// Restores rules of one family; preferred names first.
const TOOLS: [[&str; 2]; 2] =
    [["iptables-legacy-restore", "iptables-restore"], ["ip6tables-legacy-restore", "ip6tables-restore"]];

/// To be called from a thread in the core's namespace. Path `i` goes to queue `i`.
pub fn install(paths: &[Path]) -> Result<()> {
    let rules = text(paths);
    for names in TOOLS {
        let tool = tool(names)?;
        feed(Command::new(tool).args(["-w", "10"]), &rules, "write packet filter rules with", tool)?;
    }
    Ok(())
}

fn tool([legacy, other]: [&'static str; 2]) -> Result<&'static str> {
    let is_there = |name: &&str| {
        Command::new(name)
            .arg("--version")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()
            .is_ok()
    };
    [legacy, other].into_iter().find(is_there).ok_or_else(|| {
        Error::new(Kind::Missing, "find", legacy, "it is not installed").hint("install the package iptables")
    })
}

fn text(paths: &[Path]) -> String {
    let mut text = String::from("*mangle\n");
    for (queue, path) in paths.iter().enumerate() {
        for from in &path.from_ports {
            for to in &path.to_ports {
                text += &format!("-A FORWARD -i p{from} -o p{to} -j NFQUEUE --queue-num {queue}\n");
            }
        }
    }
    text + "COMMIT\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_pair_of_ports_of_a_path_feeds_its_queue() {
        let path = |from_ports: &[usize], to_ports: &[usize]| Path {
            channels: vec![],
            from_ports: from_ports.to_vec(),
            to_ports: to_ports.to_vec(),
        };
        let text = text(&[path(&[0, 1], &[2]), path(&[2], &[0])]);
        assert_eq!(
            text,
            "*mangle\n-A FORWARD -i p0 -o p2 -j NFQUEUE --queue-num 0\n-A FORWARD -i p1 -o p2 -j NFQUEUE --queue-num 0\n\
             -A FORWARD -i p2 -o p0 -j NFQUEUE --queue-num 1\nCOMMIT\n"
        );
    }
}
