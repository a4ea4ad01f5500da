//! Builds the hosts of a laboratory: namespaces, cables, addresses, routes and settings.
//!
//! Invariants:
//! - Nothing outside the namespaces changes: no machine-wide setting, route or interface. The congestion control is chosen
//!   per route, which needs no machine-wide permission.
//! - No process in a namespace asks DNS: each has its own hosts, resolver and name-switch files.
//!
//! Everything is done through `ip` of iproute2, in batches, because its `exec` also mounts the resolver files. Not here: which
//! addresses (`topology`), removal (`lease`), packets (`emulator`).

use std::fs::{self, File};
use std::io;
use std::net::Ipv4Addr;
use std::os::fd::AsFd;
use std::path::Path;
use std::thread;

use rustix::thread::LinkNameSpaceType;

use crate::error::{Error, Kind, Result};
use crate::iproute::{NETNS_DIR, NETNS_ETC_DIR, batch};
use crate::lease::Lease;
use crate::scenario::{HostSettings, Scenario};
use crate::topology::{Host, Interface, Topology};
use crate::unprivileged::{lay_over_etc, outer_user};

/// The host in the middle, which forwards.
pub const CORE: &str = "core";
/// Of an interface that queues (TUN); a cable hands over at once.
const QUEUE_PACKETS: u32 = 20_000;
/// Room for what waits in both directions of the longest path, whatever its rate.
const TUNED_BUFFER_BYTES_MIN: u64 = 64 << 20;
const TUNED_BUFFER_BYTES_MAX: u64 = 1 << 30;
/// Four windows: one in flight, one in the bottleneck's queue, and as much again waiting at each end.
const TUNED_WINDOWS: f64 = 4.0;
/// What the kernel allows by default on machines of ordinary size, and distributions leave alone.
const STOCK_RECEIVE_BYTES: u64 = 6 << 20;
const STOCK_SEND_BYTES: u64 = 4 << 20;

/// Makes the namespaces of all hosts, with interfaces only if `has_cables`: the TUN back end brings its own.
pub fn build(lease: &Lease, scenario: &Scenario, topology: &Topology, has_cables: bool) -> Result<()> {
    check_congestion_control(&scenario.congestion_control)?;
    let has_core = has_cables && !topology.is_cable;
    let core = has_core.then_some(CORE);
    let names: Vec<_> = topology.hosts.iter().map(|host| host.name.as_str()).chain(core).collect();
    lease.record_hosts(names.iter().copied())?;
    let mut lines: String = names.iter().map(|name| format!("netns add {}\n", lease.namespace(name))).collect();
    if has_cables {
        lines += &cables(lease, scenario, topology);
    }
    batch(None, &lines)?;
    for name in &names {
        write_etc(lease, scenario, topology, name)?;
    }
    if has_core {
        configure_core(lease, topology)?;
    }
    if has_cables {
        topology.hosts.iter().try_for_each(|host| configure(lease, scenario, host, has_core))?;
    }
    Ok(())
}

/// Addresses, routes and settings of a host whose interfaces exist. Without a gateway, everything is on the cable.
pub fn configure(lease: &Lease, scenario: &Scenario, host: &Host, has_gateway: bool) -> Result<()> {
    let namespace = lease.namespace(&host.name);
    let mut settings = buffer_settings(scenario).to_vec();
    // A run must not start with what the previous one learnt about the path.
    settings.push(("net/ipv4/tcp_no_metrics_save", "1".into()));
    // With several interfaces an answer may come back by another one.
    settings.push(("net/ipv4/conf/all/rp_filter", "0".into()));
    if host.interfaces.len() > 1 {
        settings.push(("net/ipv4/conf/all/arp_filter", "1".into()));
    }
    inside(&namespace, || write_settings(&settings))??;
    let lines: String =
        host.interfaces.iter().map(|interface| interface_lines(scenario, interface, has_gateway)).collect();
    batch(Some(&namespace), &format!("link set lo up\n{lines}"))
}

/// Lets the sockets of all hosts be as large as this scenario needs.
pub fn set_buffers(lease: &Lease, scenario: &Scenario, topology: &Topology) -> Result<()> {
    let settings = buffer_settings(scenario);
    for host in &topology.hosts {
        inside(&lease.namespace(&host.name), || write_settings(&settings))??;
    }
    Ok(())
}

/// Lets hosts hand over no more at once than suits a link as it is now.
pub fn limit_aggregates(lease: &Lease, topology: &Topology, link: usize) -> Result<()> {
    for host in &topology.hosts {
        for interface in host.interfaces.iter().filter(|interface| interface.link == link) {
            let line = format!("link set {} gso_max_segs {}\n", interface.name, interface.aggregate_segments_max);
            batch(Some(&lease.namespace(&host.name)), &line)?;
        }
    }
    Ok(())
}

/// Runs `work` in a thread that lives in the namespace. What it spawns lives there too.
pub fn inside<T: Send>(namespace: &str, work: impl FnOnce() -> T + Send) -> Result<T> {
    thread::scope(|scope| {
        let thread = scope.spawn(|| enter(namespace).map(|()| work()));
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// Moves the calling thread, and what it spawns from then on, to a namespace. There is no way back: use a thread made for
/// it. The resolver files are not part of it.
pub fn enter(namespace: &str) -> Result<()> {
    let path = Path::new(NETNS_DIR).join(namespace);
    let file = File::open(&path).map_err(|source| Error::io("open", &path, source))?;
    rustix::thread::move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network))
        .map_err(|errno| Error::io("enter", &path, errno.into()))
}

fn cables(lease: &Lease, scenario: &Scenario, topology: &Topology) -> String {
    let mtu = scenario.mtu_bytes;
    let cable = |a: (&str, &str), b: (&str, &str)| {
        let (a_namespace, b_namespace) = (lease.namespace(a.0), lease.namespace(b.0));
        format!(
            "link add name {} netns {a_namespace} mtu {mtu} type veth peer name {} netns {b_namespace} mtu {mtu}\n",
            a.1, b.1
        )
    };
    let ports: Vec<_> = topology.ports().collect();
    match &ports[..] {
        [a, b] if topology.is_cable => cable((&a.0.name, &a.1.name), (&b.0.name, &b.1.name)),
        _ => ports.iter().map(|(host, port)| cable((&host.name, &port.name), (CORE, &port.port_name()))).collect(),
    }
}

fn configure_core(lease: &Lease, topology: &Topology) -> Result<()> {
    let namespace = lease.namespace(CORE);
    let settings =
        [("net/ipv4/ip_forward", "1"), ("net/ipv6/conf/all/forwarding", "1"), ("net/ipv4/conf/all/rp_filter", "0")];
    inside(&namespace, || settings.iter().try_for_each(|(name, value)| write_setting(name, value)))??;
    let mut lines = String::from("link set lo up\n");
    for (_, port) in topology.ports() {
        let name = port.port_name();
        lines += &format!(
            "addr add {} peer {}/32 dev {name}\naddr add {}/128 dev {name} nodad\nlink set {name} up\n\
             route add {}/128 dev {name}\n",
            port.gateway_v4, port.v4, port.gateway_v6, port.v6
        );
    }
    batch(Some(&namespace), &lines)
}

fn interface_lines(scenario: &Scenario, port: &Interface, has_gateway: bool) -> String {
    let (name, mtu, cc, segments) =
        (&port.name, scenario.mtu_bytes, &scenario.congestion_control, port.aggregate_segments_max);
    let (v4, v6, gateway4, gateway6) = (port.v4, port.v6, port.gateway_v4, port.gateway_v6);
    let mut lines = format!(
        "link set {name} mtu {mtu} txqueuelen {QUEUE_PACKETS} gso_max_segs {segments} up\n\
         addr add {v4}/32 dev {name}\naddr add {v6}/128 dev {name} nodad\n"
    );
    if has_gateway {
        lines += &format!("route add {gateway4} dev {name} src {v4}\nroute add {gateway6} dev {name} src {v6}\n");
    }
    for (network, gateway, own) in [
        (port.network_v4(), gateway4.to_string(), v4.to_string()),
        (port.network_v6(), gateway6.to_string(), v6.to_string()),
    ] {
        let via = if has_gateway { format!("via {gateway}") } else { String::new() };
        lines += &format!("route add {network} {via} dev {name} src {own} congctl {cc}\n");
    }
    lines
}

fn buffer_settings(scenario: &Scenario) -> [(&'static str, String); 2] {
    [
        ("net/ipv4/tcp_rmem", format!("4096 131072 {}", receive_bytes_max(scenario))),
        ("net/ipv4/tcp_wmem", format!("4096 16384 {}", send_bytes_max(scenario))),
    ]
}

pub fn receive_bytes_max(scenario: &Scenario) -> u64 {
    match scenario.host_settings {
        HostSettings::Stock => STOCK_RECEIVE_BYTES,
        HostSettings::Tuned => tuned_bytes_max(scenario),
    }
}

fn send_bytes_max(scenario: &Scenario) -> u64 {
    match scenario.host_settings {
        HostSettings::Stock => STOCK_SEND_BYTES,
        HostSettings::Tuned => tuned_bytes_max(scenario),
    }
}

fn tuned_bytes_max(scenario: &Scenario) -> u64 {
    let [limited, unlimited] = scenario.window_bytes_max().map(|bytes| (TUNED_WINDOWS * bytes) as u64);
    // What a link without a limit carries is a guess: no more than the memory was checked for.
    let bytes = limited.max(unlimited.min(scenario.in_flight_bytes_max()));
    bytes.clamp(TUNED_BUFFER_BYTES_MIN, TUNED_BUFFER_BYTES_MAX)
}

fn check_congestion_control(wanted: &str) -> Result<()> {
    let path = "/proc/sys/net/ipv4/tcp_available_congestion_control";
    let available = fs::read_to_string(path).map_err(|source| Error::io("read", Path::new(path), source))?;
    if available.split_whitespace().any(|name| name == wanted) {
        return Ok(());
    }
    let said = format!("this kernel has {}", available.trim());
    Err(Error::new(Kind::Missing, "use congestion control", wanted, said)
        .hint("name one of those, or load the module tcp_NAME"))
}

fn write_etc(lease: &Lease, scenario: &Scenario, topology: &Topology, host: &str) -> Result<()> {
    let dir = Path::new(NETNS_ETC_DIR).join(lease.namespace(host));
    let own = topology.hosts.iter().find(|other| other.name == host).and_then(|own| own.interfaces.first());
    // Without root all hosts share one file.
    let own = own.filter(|_| outer_user().is_none()).map_or(Ipv4Addr::LOCALHOST, |interface| interface.v4);
    let machine = rustix::system::uname();
    // Some servers look up the name of their own host and hand out the address they find.
    let mut hosts = format!("127.0.0.1 localhost\n::1 localhost\n{own} {}\n", machine.nodename().to_string_lossy());
    for (address, names) in topology.names_v4(scenario) {
        hosts += &format!("{address} {}\n", names.join(" "));
    }
    let switch = ["passwd", "group", "shadow", "hosts", "networks", "services", "protocols"]
        .map(|table| format!("{table}: files\n"))
        .concat();
    let resolver = "nameserver 127.0.0.1\noptions timeout:1 attempts:1\n";
    let files = [("hosts", hosts), ("resolv.conf", resolver.to_owned()), ("nsswitch.conf", switch)];
    let place = if outer_user().is_some() { lease.dir.join("etc") } else { dir };
    let write = |(name, text): &(&str, String)| fs::write(place.join(name), text);
    fs::create_dir_all(&place)
        .and_then(|()| files.iter().try_for_each(write))
        .map_err(|source| Error::io("write", &place, source))?;
    // The first host's files cover those of `/etc`; the others write into the same ones.
    if outer_user().is_some() && topology.hosts.first().is_some_and(|first| first.name == host) {
        lay_over_etc(&files.map(|(name, _)| (name, place.join(name))))?;
    }
    Ok(())
}

fn write_settings(settings: &[(&'static str, String)]) -> Result<()> {
    settings.iter().try_for_each(|(name, value)| write_setting(name, value))
}

/// `/proc/sys/net` shows the namespace of the thread that opens it.
fn write_setting(name: &str, value: &str) -> Result<()> {
    let path = Path::new("/proc/sys").join(name);
    match fs::write(&path, value) {
        // Without IPv6 there is nothing to set.
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        written => written.map_err(|source| Error::io("write", &path, source)),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::scenario::{Change, Event};

    fn with_event(change: Change) -> u64 {
        let mut scenario = Scenario::preset("continent").unwrap();
        let at = Duration::from_secs(5);
        scenario.links[0].timeline = vec![Event { at, lasts: None, every: None, direction: None, change }];
        receive_bytes_max(&scenario)
    }

    #[test]
    fn sockets_are_as_large_as_the_worst_state_of_the_path_needs() {
        // Four times 10 Gbit/s for 74 ms.
        assert_eq!(with_event(Change::default()), 370_000_000);
        let longer = Change { delay: Some(Duration::from_millis(100)), ..Change::default() };
        assert_eq!(with_event(longer), 1_000_000_000);
        assert_eq!(with_event(Change { bits_per_second: Some(Some(1_000_000)), ..Change::default() }), 370_000_000);
        assert_eq!(receive_bytes_max(&Scenario::preset("direct").unwrap()), TUNED_BUFFER_BYTES_MIN);
    }

    #[test]
    fn a_path_without_a_limit_has_sockets_for_what_the_memory_was_checked_for() {
        let text = "[site.a]\n[site.b]\n[link.wan]\nbetween = ['a', 'b']\nrtt = '40ms'\n";
        let scenario = Scenario::from_toml(text).unwrap();
        // 40 Gbit/s for 20 ms each way, and as much in sockets.
        assert_eq!((receive_bytes_max(&scenario), scenario.in_flight_bytes_max()), (400_000_000, 400_000_000));
        let lifted = with_event(Change { bits_per_second: Some(None), ..Change::default() });
        assert!(lifted > 370_000_000 && lifted <= TUNED_BUFFER_BYTES_MAX, "{lifted}");
    }
}
