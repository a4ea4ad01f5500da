//! Scripts for latency hosts: forwarding, the limiter towards the link, the emulator away from it, and timelines.

use std::fmt::Write as _;
use std::time::Duration;

use crate::scenario::{End, FRAMING_BYTES, Impairment, Scenario};

use super::addresses::{access_links, core_address, lan_address, site_prefix, wan_address};
use super::netem::{FASTEST_BITS_PER_SECOND, OVERHEAD_BYTES, arguments, limit_packets};
use super::{RESTORE, SAVING_FUNCTIONS, preamble};

/// A limiter may send this much at once: a shorter time costs timers, a longer one shows as bursts.
const BURST_US: u64 = 100;
const BURST_PACKETS_MIN: u64 = 2;
/// What one line of a script may ask of a queue.
const QUEUE_BYTES_MAX: u64 = u32::MAX as u64;

/// Of a timeline that repeats for ever: as far as its script goes.
const TIMELINE_MAX: Duration = Duration::from_secs(3600);
const TIMELINE_STEPS_MAX: usize = 1000;

/// Of the latency host beside `ends[end]`.
pub(super) fn name(scenario: &Scenario, link: usize, end: usize) -> String {
    let link = &scenario.links[link];
    format!("latency-{}-{}", link.name, scenario.end_name(link.ends[end]))
}

pub(super) fn set_up(scenario: &Scenario, link: usize, end: usize) -> String {
    let link_name = &scenario.links[link].name;
    let beside = scenario.end_name(scenario.links[link].ends[end]);
    let mut script = preamble(scenario, &format!("the latency host of link {link_name} beside {beside}"));
    script += INTERFACES;
    script += SAVING_FUNCTIONS;
    let mtu = scenario.mtu_bytes;
    let (lan, wan) = (lan_address(scenario, link, end), wan_address(link, end));
    // Writing to a text cannot fail, here and below.
    let _ = write!(
        script,
        r#"
set_sysctl net.ipv4.ip_forward 1
set_sysctl net.ipv4.conf.all.rp_filter 0
set_sysctl net.core.netdev_max_backlog 250000
set_mtu "$IF_LAN" {mtu}
set_mtu "$IF_WAN" {mtu}
ip address replace {lan} dev "$IF_LAN"
ip address replace {wan}/30 dev "$IF_WAN"
"#
    );
    for (network, gateway, interface) in routes(scenario, link, end) {
        let _ = writeln!(script, "ip route replace {network} via {gateway} dev \"${interface}\"");
    }
    script += OFFLOADS;
    script += &functions(scenario, link, end);
    if is_ever_limited(scenario, link, end) {
        script += MAKE_LIMITER;
    }
    script.push('\n');
    let directions = scenario.links[link].directions;
    for line in commands(scenario, &directions, link, end) {
        let _ = writeln!(script, "{line}");
    }
    script
}

pub(super) fn undo(scenario: &Scenario, link: usize, end: usize) -> String {
    let mut script = preamble(scenario, &format!("undoes {}.sh", name(scenario, link, end)));
    script += INTERFACES;
    script += "\ntc qdisc del dev \"$IF_LAN\" root 2> /dev/null || true\n\
               tc qdisc del dev \"$IF_WAN\" root 2> /dev/null || true\n";
    for (network, _, interface) in routes(scenario, link, end) {
        let _ = writeln!(script, "ip route del {network} dev \"${interface}\" 2> /dev/null || true");
    }
    let (lan, wan) = (lan_address(scenario, link, end), wan_address(link, end));
    let _ = writeln!(script, "ip address del {lan} dev \"$IF_LAN\" 2> /dev/null || true");
    let _ = writeln!(script, "ip address del {wan}/30 dev \"$IF_WAN\" 2> /dev/null || true");
    script += "for interface in \"$IF_LAN\" \"$IF_WAN\"; do\n    \
               ethtool -K \"$interface\" gro on gso on tso on 2> /dev/null || true\ndone\n";
    script + RESTORE
}

/// What changes when, as lines that wait for their time.
pub(super) fn timeline(scenario: &Scenario, link: usize, end: usize) -> String {
    let name = name(scenario, link, end);
    let described = &scenario.links[link];
    let mut script = preamble(scenario, &format!("the timeline on {name}; run {name}.sh before"));
    script += "# Seconds since 1970 at which it begins: give the same to both latency hosts of the link.\n\
               START=${START:-$(date +%s)}\n";
    script += INTERFACES;
    script += &functions(scenario, link, end);
    script += WAIT;
    let mut now = described.directions;
    let mut moment = Duration::ZERO;
    let mut steps = 0;
    loop {
        let next = described.at(described.directions, moment);
        let before = commands(scenario, &now, link, end);
        let mut lines = commands(scenario, &next, link, end);
        lines.retain(|line| !before.contains(line));
        if !lines.is_empty() {
            let _ = writeln!(script, "\nat {}\n{}", moment.as_secs_f64(), lines.join("\n"));
            steps += 1;
        }
        now = next;
        match described.next_change(moment).filter(|next| *next <= TIMELINE_MAX && steps < TIMELINE_STEPS_MAX) {
            Some(next) => moment = next,
            None if described.next_change(moment).is_some() => {
                let _ = writeln!(script, "\n# The timeline goes on; this script ends here.");
                return script;
            }
            None => return script,
        }
    }
}

/// Network, gateway and the variable of the interface.
fn routes(scenario: &Scenario, link: usize, end: usize) -> Vec<(String, String, &'static str)> {
    let far = wan_address(link, 1 - end);
    let network = |site, link| format!("{}.0/24", site_prefix(link, site));
    match (scenario.links[link].ends[end], scenario.links[link].ends[1 - end]) {
        (_, End::Site(other)) if !scenario.links[link].ends.contains(&End::Core) => {
            vec![(network(other, link), far, "IF_WAN")]
        }
        (End::Site(own), _) => {
            let others = access_links(scenario).into_iter().filter(|(site, _)| *site != own);
            others.map(|(site, access)| (network(site, access), far.clone(), "IF_WAN")).collect()
        }
        (End::Core, _) => {
            let all = access_links(scenario).into_iter();
            all.map(|(site, access)| match access == link {
                true => (network(site, access), far.clone(), "IF_WAN"),
                false => (network(site, access), core_address(access), "IF_LAN"),
            })
            .collect()
        }
    }
}

/// What makes the two directions so, as far as this host has a part in them: it limits the one that leaves over the
/// link and delays the one that arrives.
fn commands(scenario: &Scenario, directions: &[Impairment; 2], link: usize, end: usize) -> Vec<String> {
    let round_trip = round_trip(scenario, directions, link);
    let (leaving, arriving) = (&directions[end], &directions[1 - end]);
    let mut commands = Vec::new();
    if is_ever_limited(scenario, link, end) {
        let rate = leaving.bits_per_second.unwrap_or(FASTEST_BITS_PER_SECOND);
        let packet = u64::from(scenario.mtu_bytes) + FRAMING_BYTES;
        let burst = (rate / 8 * BURST_US / 1_000_000).max(BURST_PACKETS_MIN * packet);
        let queue = leaving.queue_bytes(round_trip).clamp(packet, QUEUE_BYTES_MAX);
        commands.push(format!("limit {rate}bit {burst} {queue}"));
    }
    let limit = limit_packets(arriving, round_trip, scenario.mtu_bytes);
    commands.push(format!("emulate {}", arguments(arriving, None, limit).join(" ")));
    commands
}

fn functions(scenario: &Scenario, link: usize, end: usize) -> String {
    let seed = scenario.seed.wrapping_add((2 * link + 1 - end) as u64);
    let mut text = EMULATE.replace("SEED", &seed.to_string());
    if is_ever_limited(scenario, link, end) {
        text += &LIMIT.replace("OVERHEAD", &OVERHEAD_BYTES.to_string());
    }
    text
}

fn is_ever_limited(scenario: &Scenario, link: usize, end: usize) -> bool {
    let link = &scenario.links[link];
    let changes = link.timeline.iter().map(|event| link.changed_by(event)[end]);
    std::iter::once(link.directions[end]).chain(changes).any(|direction| direction.bits_per_second.is_some())
}

/// The longest round trip over the link while it is so.
fn round_trip(scenario: &Scenario, directions: &[Impairment; 2], link: usize) -> Duration {
    let beyond = scenario.round_trip_over(link) - scenario.links[link].round_trip();
    beyond + directions.iter().map(|direction| direction.delay).sum::<Duration>()
}

const INTERFACES: &str = "\
# The interface towards the hosts of the site, or towards the switch of the core.
IF_LAN=${IF_LAN:-eth1}
# The interface towards the other latency host of the link.
IF_WAN=${IF_WAN:-eth2}
";

const OFFLOADS: &str = r#"
# Whole aggregates would be delayed, dropped and counted as one packet.
for interface in "$IF_LAN" "$IF_WAN"; do
    ethtool -K "$interface" gro off gso off tso off || echo "$interface: offloads stay as they are" >&2
done
"#;

const EMULATE: &str = r#"
# An iproute2 before 6.6 takes no seed: drops then differ from run to run.
seed=()
help=$(tc qdisc add dev lo root netem help 2>&1 || true)
case "$help" in *seed*) seed=(seed SEED) ;; esac

# Delays and loses what arrives over the link.
emulate() {
    tc qdisc replace dev "$IF_LAN" root handle 1: "$@" "${seed[@]}"
}
"#;

const LIMIT: &str = r#"
# Limits what leaves over the link: rate, bytes sent at once, bytes that may wait.
limit() {
    tc class replace dev "$IF_WAN" parent 1: classid 1:1 htb rate "$1" ceil "$1" burst "$2" cburst "$2" \
        quantum 60000 overhead OVERHEAD linklayer ethernet
    tc qdisc replace dev "$IF_WAN" parent 1:1 handle 10: bfifo limit "$3"
}
"#;

const MAKE_LIMITER: &str = r#"
tc qdisc del dev "$IF_WAN" root 2> /dev/null || true
tc qdisc add dev "$IF_WAN" root handle 1: htb default 1
"#;

const WAIT: &str = r#"
at() {
    local left
    left=$(awk -v start="$START" -v moment="$1" -v now="$(date +%s.%N)" \
        'BEGIN { left = start + moment - now; printf "%.3f", (left > 0 ? left : 0) }')
    sleep "$left"
}
"#;
