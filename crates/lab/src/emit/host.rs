//! Scripts for the hosts of a site: addresses, routes, MTU and the limits of sockets.

use std::fmt::Write as _;

use crate::scenario::{HostSettings, Scenario};

use super::addresses::{GATEWAY, links_of, reached, site_prefix, variable};
use super::{RESTORE, SAVING_FUNCTIONS, preamble};

/// What distributions ship, to receive and to send.
const STOCK_BYTES: [u64; 2] = [6 << 20, 4 << 20];
/// Of the tuned limits: bandwidth-delay products, for what is in flight, what waits at the bottleneck and what waits to
/// be read, and the least and the largest.
const TUNED_PRODUCTS: f64 = 4.0;
const TUNED_BYTES_MIN: u64 = 64 << 20;
const TUNED_BYTES_MAX: u64 = 1 << 30;

pub(super) fn set_up(scenario: &Scenario, site: usize) -> String {
    let name = &scenario.sites[site].name;
    let mut script = preamble(scenario, &format!("a host of site {name}"));
    script += &variables(scenario, site);
    let [receive, send] = socket_bytes(scenario);
    script += SAVING_FUNCTIONS;
    let control = &scenario.congestion_control;
    // Writing to a text cannot fail, here and below.
    let _ = write!(
        script,
        "\nmodprobe -q tcp_{control} || true\n\
         set_sysctl net.ipv4.tcp_congestion_control {control}\n\
         set_sysctl net.ipv4.tcp_rmem \"4096 131072 {receive}\"\n\
         set_sysctl net.ipv4.tcp_wmem \"4096 16384 {send}\"\n\
         # A run must not start with what the previous one learnt about the path.\n\
         set_sysctl net.ipv4.tcp_no_metrics_save 1\n\
         # With several interfaces an answer may come back by another one.\n\
         set_sysctl net.ipv4.conf.all.rp_filter 0\n"
    );
    for link in links_of(scenario, site) {
        let interface = format!("$IF_{}", variable(&scenario.links[link].name));
        let prefix = site_prefix(link, site);
        let _ = write!(
            script,
            "\nset_mtu \"{interface}\" {}\nip address replace \"{prefix}.$HOST/24\" dev \"{interface}\"\n",
            scenario.mtu_bytes
        );
        for (other, other_link) in reached(scenario, site, link) {
            let far = site_prefix(other_link, other);
            let _ = writeln!(script, "ip route replace {far}.0/24 via {prefix}.{GATEWAY} dev \"{interface}\"");
        }
    }
    script
}

pub(super) fn undo(scenario: &Scenario, site: usize) -> String {
    let name = &scenario.sites[site].name;
    let mut script = preamble(scenario, &format!("undoes host-{name}.sh"));
    script += &variables(scenario, site);
    script.push('\n');
    for link in links_of(scenario, site) {
        let interface = format!("$IF_{}", variable(&scenario.links[link].name));
        for (other, other_link) in reached(scenario, site, link) {
            let far = site_prefix(other_link, other);
            let _ = writeln!(script, "ip route del {far}.0/24 dev \"{interface}\" 2> /dev/null || true");
        }
        let prefix = site_prefix(link, site);
        let _ = writeln!(script, "ip address del \"{prefix}.$HOST/24\" dev \"{interface}\" 2> /dev/null || true");
    }
    script + RESTORE
}

fn variables(scenario: &Scenario, site: usize) -> String {
    let hosts = scenario.sites[site].hosts;
    let mut text = format!("# Which host of the site this is, from 1 to {hosts}.\nHOST=${{HOST:-1}}\n");
    for (index, link) in links_of(scenario, site).enumerate() {
        let name = &scenario.links[link].name;
        let variable = variable(name);
        let _ = writeln!(text, "# The interface towards the latency host of link {name}.");
        let _ = writeln!(text, "IF_{variable}=${{IF_{variable}:-eth{}}}", index + 1);
    }
    text
}

fn socket_bytes(scenario: &Scenario) -> [u64; 2] {
    if scenario.host_settings == HostSettings::Stock {
        return STOCK_BYTES;
    }
    let rates = scenario.links.iter().flat_map(|link| &link.directions).filter_map(|way| way.bits_per_second);
    let bytes_per_second = rates.max().unwrap_or(0) as f64 / 8.0;
    let bytes = (TUNED_PRODUCTS * bytes_per_second * scenario.round_trip_max().as_secs_f64()) as u64;
    [bytes.clamp(TUNED_BYTES_MIN, TUNED_BYTES_MAX); 2]
}
