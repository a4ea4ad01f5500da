//! The netem back end: the kernel's own emulator on the core's ports.
//!
//! Owns: one queueing discipline per direction of a link, on the port that the direction leads to; it goes with the core's
//! namespace. Counts come from the discipline's statistics; the kernel measures no lateness, so none is claimed.
//!
//! Not here: stars and sites of several hosts, which share links between ports (`backend` says so).

use std::process::{Command, Stdio};
use std::time::Duration;

use emulator::channel::Counts;
use emulator::{Emulator, Snapshot};
use serde::Deserialize;

use crate::emit::netem_arguments;
use crate::error::{Error, Kind, Result};
use crate::network::inside;
use crate::scenario::{Impairment, Scenario};
use crate::topology::Topology;

pub struct Netem {
    namespace: String,
    /// Of the core, by channel.
    ports: Vec<String>,
    mtu_bytes: u32,
    seed: u64,
}

#[derive(Deserialize)]
struct Statistics {
    #[serde(default)]
    dev: String,
    #[serde(default)]
    bytes: u64,
    #[serde(default)]
    packets: u64,
    #[serde(default)]
    drops: u64,
}

impl Netem {
    pub fn start(namespace: &str, scenario: &Scenario, topology: &Topology) -> Result<Netem> {
        let mut ports = vec![String::new(); topology.channel_count(scenario)];
        for path in &topology.paths {
            let (Some(channel), Some(port)) = (path.channels.first(), path.to_ports.first()) else { continue };
            ports[*channel] = format!("p{port}");
        }
        let (mtu_bytes, seed) = (scenario.mtu_bytes, scenario.seed);
        let netem = Netem { namespace: namespace.to_owned(), ports, mtu_bytes, seed };
        for channel in 0..netem.ports.len() {
            let link = &scenario.links[channel / 2];
            netem.replace(channel, &link.directions[channel % 2], scenario.round_trip_over(channel / 2))?;
        }
        Ok(netem)
    }

    fn replace(&self, channel: usize, impairment: &Impairment, round_trip: Duration) -> Result<()> {
        let mut command = Command::new("tc");
        command.args(["qdisc", "replace", "dev", &self.ports[channel], "root"]);
        command.args(netem_arguments(impairment, round_trip, self.mtu_bytes, self.seed.wrapping_add(channel as u64)));
        self.tc(&mut command).map(drop)
    }

    fn tc(&self, command: &mut Command) -> Result<Vec<u8>> {
        command.stdin(Stdio::null());
        let output = inside(&self.namespace, || command.output())?;
        let output = output.map_err(|source| Error::io("start", "tc".as_ref(), source))?;
        if output.status.success() {
            return Ok(output.stdout);
        }
        Err(Error::new(Kind::Failed, "run", "tc", String::from_utf8_lossy(&output.stderr).trim().replace('\n', "; ")))
    }
}

impl Emulator for Netem {
    fn set(&self, channel: usize, impairment: Impairment, round_trip: Duration) {
        // The caller has checked the values; what the kernel still refuses leaves the link as it was.
        let _ = self.replace(channel, &impairment, round_trip);
    }

    fn snapshot(&self) -> Snapshot {
        let shown = self.tc(Command::new("tc").args(["-s", "-j", "qdisc", "show"]));
        let parsed = shown.map_err(|error| error.to_string()).and_then(|json| counts(&json, &self.ports));
        match parsed {
            Ok(counts) => Snapshot { counts, ..Snapshot::default() },
            Err(failure) => {
                let counts = vec![Counts::default(); self.ports.len()];
                Snapshot { counts, failure: Some(failure), ..Snapshot::default() }
            }
        }
    }
}

fn counts(json: &[u8], ports: &[String]) -> std::result::Result<Vec<Counts>, String> {
    let all: Vec<Statistics> = serde_json::from_slice(json).map_err(|error| format!("tc's statistics: {error}"))?;
    let of_port = |port: &String| {
        let own = all.iter().find(|statistics| statistics.dev == *port);
        own.map_or_else(Counts::default, |own| Counts {
            packets: own.packets + own.drops,
            wire_bytes: own.bytes,
            wire_bytes_delivered: own.bytes,
            // The kernel does not tell losses from a full queue.
            lost_made: own.drops,
            ..Counts::default()
        })
    };
    Ok(ports.iter().map(of_port).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_those_of_the_port_that_a_direction_leads_to() {
        let json = br#"[{"kind":"netem","dev":"p1","bytes":3000,"packets":2,"drops":1,"root":true},
                        {"kind":"noqueue","dev":"lo"}]"#;
        let found = counts(json, &["p1".into(), "p0".into()]).unwrap();
        assert_eq!((found[0].packets, found[0].wire_bytes_delivered, found[0].lost_made), (3, 3000, 1));
        assert_eq!(found[1], Counts::default());
        assert!(counts(b"not JSON", &[]).is_err());
    }
}
