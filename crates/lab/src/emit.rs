//! The same WAN on real machines: shell scripts for hosts and latency hosts, and what the kernel's emulator is told.
//!
//! Each link becomes a pair of latency hosts, one beside each end, that forward packets. A direction is limited on the
//! interface towards the link of the first and delayed on the interface away from the link of the second: a queue in
//! front of the bottleneck, then the distance, as on a real path. Limiting and delaying in one queueing discipline would
//! count the packets on the way against the queue.
//!
//! Invariants: a scenario must have passed `Scenario::check`, which lets through only names that are safe in scripts and
//! file names. Every script can be run again, and every change of a machine has an undo script.

mod files;
mod addresses;
mod host;
mod latency;
mod netem;
mod readme;

use crate::scenario::Scenario;

pub use netem::netem_arguments;

/// The beginning of every script, after which it saves in `STATE` what it changes.
fn preamble(scenario: &Scenario, purpose: &str) -> String {
    format!(
        "#!/bin/bash\n# Scenario {}: {purpose}\nset -euo pipefail\n\n\
         # What was there before, for the undo script.\nSTATE=${{STATE:-/var/lib/lab-{}}}\n",
        scenario.name, scenario.name
    )
}

/// Shell functions that change a setting and remember what it was the first time.
const SAVING_FUNCTIONS: &str = r#"
set_sysctl() {
    mkdir -p "$STATE/sysctl"
    [ -e "$STATE/sysctl/$1" ] || sysctl -n "$1" > "$STATE/sysctl/$1"
    sysctl -qw "$1=$2"
}

set_mtu() {
    mkdir -p "$STATE/mtu"
    [ -e "$STATE/mtu/$1" ] || cat "/sys/class/net/$1/mtu" > "$STATE/mtu/$1"
    ip link set dev "$1" mtu "$2" up
}
"#;

/// Puts back what those functions changed.
const RESTORE: &str = r#"
for file in "$STATE"/sysctl/*; do
    if [ -e "$file" ]; then sysctl -qw "$(basename "$file")=$(cat "$file")"; fi
done
for file in "$STATE"/mtu/*; do
    if [ -e "$file" ]; then ip link set dev "$(basename "$file")" mtu "$(cat "$file")"; fi
done
rm -rf "${STATE:?}/sysctl" "${STATE:?}/mtu"
"#;

#[cfg(test)]
mod tests;
