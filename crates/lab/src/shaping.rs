//! Holds hosts to rates of their own with the kernel's token buckets (TBF): no packet passes through a process.
//!
//! What a host sends waits at its own interfaces, as before a card of that rate; what it receives waits at the other
//! ends of its cables, as in a switch.
//!
//! Invariant: all of it is inside the namespaces, and goes with them.
//!
//! Not here: links, which the emulator holds to their rates, and how much a bucket takes (`scenario`).

use std::process::Command;

use crate::error::Result;
use crate::iproute::feed;
use crate::lease::Lease;
use crate::network::CORE;
use crate::scenario::Scenario;
use crate::topology::Topology;

/// To be called when the interfaces exist.
pub fn install(lease: &Lease, scenario: &Scenario, topology: &Topology) -> Result<()> {
    let mut at_core = String::new();
    for (host, interface) in topology.ports() {
        let Some(rate) = scenario.sites[host.site].host_bits_per_second else { continue };
        set(&lease.namespace(&host.name), &line(scenario, &interface.name, rate))?;
        at_core += &line(scenario, &interface.port_name(), rate);
    }
    if at_core.is_empty() { Ok(()) } else { set(&lease.namespace(CORE), &at_core) }
}

fn set(namespace: &str, lines: &str) -> Result<()> {
    let mut command = Command::new("tc");
    command.args(["-n", namespace, "-batch", "-"]);
    let set = feed(&mut command, lines, "run tc in", namespace);
    set.map_err(|error| if error.hint.is_some() { error } else { error.hint("a host-rate takes the module sch_tbf") })
}

fn line(scenario: &Scenario, interface: &str, bits_per_second: u64) -> String {
    let [burst, limit] = scenario.bucket_bytes(bits_per_second);
    format!("qdisc add dev {interface} root tbf rate {bits_per_second}bit burst {burst} limit {limit}\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_holds_packets_of_any_size_and_a_queue_what_the_path_does() {
        let of = |preset: &str, rate| line(&Scenario::preset(preset).unwrap(), "eth0", rate);
        let slow = "qdisc add dev eth0 root tbf rate 8000bit burst 18076 limit 149148\n";
        assert_eq!(of("direct", 8_000), slow, "two packets, and 128 KiB");
        let fast = "qdisc add dev eth0 root tbf rate 1000000000bit burst 125000 limit 9375000\n";
        assert_eq!(of("continent", 1_000_000_000), fast, "a millisecond, and 74 of them");
    }
}
