//! What a person needs to know to build the scenario from the scripts.

use std::fmt::Write as _;

use crate::scenario::quantity::{show_duration, show_rate};
use crate::scenario::{End, FRAMING_BYTES, Scenario};

use super::addresses::{links_of, reached, site_prefix, variable};
use super::latency;

/// Headers of IPv4 and TCP with time stamps.
const HEADER_BYTES: u64 = 52;

pub(super) fn write(scenario: &Scenario) -> String {
    let mut text = format!("SCENARIO {} ON REAL MACHINES\n\n", scenario.name);
    text += "WIRING\n\n";
    for (index, link) in scenario.links.iter().enumerate() {
        let [from, to] = link.ends.map(|end| scenario.end_name(end));
        let [near, far] = [0, 1].map(|end| latency::name(scenario, index, end));
        // Writing to a text cannot fail, here and below.
        let _ = writeln!(text, "  {from} -- [{near}] ======== [{far}] -- {to}");
    }
    text += "\n  -- is a cable or a switch of the site, === a cable between two latency hosts.\n";
    if scenario.links.iter().any(|link| link.ends.contains(&End::Core)) {
        text += "  core is a switch that joins the latency hosts beside it.\n";
    }
    let _ = write!(text, "  Every interface and switch must take an MTU of {} bytes.\n\n", scenario.mtu_bytes);
    text += &steps(scenario);
    text += &checks(scenario);
    text += DIFFERENCES;
    text
}

fn steps(scenario: &Scenario) -> String {
    let mut text =
        String::from("STEPS (all as root)\n\n  1. On each latency host: IF_LAN=eth1 IF_WAN=eth2 bash NAME.sh\n");
    text += "     IF_LAN faces the site or the core, IF_WAN the other latency host. NAME is one of:\n";
    for link in 0..scenario.links.len() {
        let _ = writeln!(text, "       {}  {}", latency::name(scenario, link, 0), latency::name(scenario, link, 1));
    }
    text += "  2. On each host:\n";
    for (index, site) in scenario.sites.iter().enumerate() {
        let interfaces: Vec<String> = links_of(scenario, index)
            .enumerate()
            .map(|(place, link)| format!("IF_{}=eth{}", variable(&scenario.links[link].name), place + 1))
            .collect();
        let numbers = if site.hosts > 1 { format!("   (HOST=1 to {})", site.hosts) } else { String::new() };
        let _ = writeln!(text, "       HOST=1 {} bash host-{}.sh{numbers}", interfaces.join(" "), site.name);
    }
    if scenario.links.iter().any(|link| !link.timeline.is_empty()) {
        text += "  3. When the run begins, on both latency hosts of a link that has one, with the same START:\n\
                 \x20      START=SECONDS bash NAME-timeline.sh\n     SECONDS are those of `date +%s` at the beginning. The clocks must agree (NTP).\n";
    }
    text + "  To undo, on each machine with the same variables: bash NAME-undo.sh\n\n"
}

fn checks(scenario: &Scenario) -> String {
    let mut text = String::from("CHECK (from a host of the first site named in a line to one of the second)\n\n");
    for site in 0..scenario.sites.len() {
        for link in links_of(scenario, site) {
            for (other, other_link) in reached(scenario, site, link).into_iter().filter(|(other, _)| *other > site) {
                let names = [site, other].map(|site| scenario.sites[site].name.as_str());
                let address = format!("{}.1", site_prefix(other_link, other));
                let passed = if link == other_link { vec![link] } else { vec![link, other_link] };
                let round_trip = passed.iter().map(|link| scenario.links[*link].round_trip()).sum();
                let ways = passed.iter().flat_map(|link| &scenario.links[*link].directions);
                let has_jitter = ways.into_iter().any(|way| !way.jitter.is_zero());
                let tolerance = if has_jitter { " in the mean" } else { " and at most 1 ms more" };
                let way = if passed.len() > 1 { scenario.end_name(End::Core) } else { &scenario.links[link].name };
                let _ = writeln!(text, "  {} to {} over {way}:", names[0], names[1]);
                let _ = writeln!(
                    text,
                    "    {:44} a round trip of {}{tolerance}",
                    format!("ping -c 20 {address}"),
                    show_duration(round_trip)
                );
                for (flag, expected) in [("", rate(scenario, site, &passed)), (" -R", rate(scenario, other, &passed))] {
                    let Some(expected) = expected else { continue };
                    let _ = writeln!(
                        text,
                        "    {:44} at most {}/s, less where packets are lost",
                        format!("iperf3 -c {address} -t 30 -O 5{flag}"),
                        show_rate(Some(goodput(expected, scenario.mtu_bytes)))
                    );
                }
            }
        }
    }
    text.push('\n');
    text
}

/// The narrowest of the links passed, from one site to the other.
fn rate(scenario: &Scenario, from: usize, passed: &[usize]) -> Option<u64> {
    let of_link = |link: &usize| {
        let link = &scenario.links[*link];
        // From the site into its own link, and on to the end of the other.
        let leaves = link.ends[0] == End::Site(from) || (link.ends[0] == End::Core && link.ends[1] != End::Site(from));
        link.directions[usize::from(!leaves)].bits_per_second
    };
    passed.iter().filter_map(of_link).min()
}

/// Payload of full segments, in units that read well.
fn goodput(bits_per_second: u64, mtu_bytes: u32) -> u64 {
    let mtu = u64::from(mtu_bytes);
    let share = (mtu.saturating_sub(HEADER_BYTES)) as f64 / (mtu + FRAMING_BYTES) as f64;
    let goodput = bits_per_second as f64 * share;
    let unit = 10f64.powf(goodput.max(1.0).log10().floor() - 3.0).max(1.0);
    ((goodput / unit).floor() * unit) as u64
}

const DIFFERENCES: &str = "\
WHAT DIFFERS FROM THE LABORATORY ON ONE MACHINE

  - netem draws losses, copies and damage for each packet. The scripts turn off aggregation on the latency hosts, so that a
    packet is a segment; check that with ethtool -k, or loss comes in lumps.
  - Losses repeat with the seed only from iproute2 6.6 and Linux 6.7 on, and then for the same packets in the same order.
  - Jitter is drawn for each packet independently, from a normal distribution cut at zero.
  - The limiter may send 100 us of its rate, or two packets, at once. Its queue counts packets without the 24 bytes of
    preamble, gap and checksum, and holds at most 4 GiB.
  - The hosts have real interfaces with interrupts and DMA: CPU figures are higher than between network namespaces.
  - Latency hosts need a core for each direction at 10 Gbit/s and more. If one is the limit, ping shows it: under load and
    with an empty queue the round trip must not rise.
  - Rates and processor quotas of hosts (host-rate, cpu) are not set: they are those of the machines.
  - The script of a timeline that repeats for ever ends after an hour or a thousand changes.
";
