//! The bed of one network trial: a laboratory with client and server, and what injectors do to it.
//!
//! Owns: the packet filter's rules and their counters, the client's hosts file, and the sockets that are killed.
//! Everything is inside the laboratory's namespaces and goes with them.

use super::profile::{Profile, Target, Toward, changed};
use crate::outside::ground::{self, CLIENT, CORE, ENDPOINT, Endpoint, PORT, SERVER};
use crate::outside::process::Running;
use crate::outside::relay::{Manner, Onward, Relay};
use anyhow::{Context, Result};
use emulator::channel::Counts;
use lab::Lab;
use lab::scenario::{Backend, Change, Impairment};
use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

const MTU_BYTES: u32 = 1500;
const LINK: &str = "wan";
const RELAY_PORT: u16 = 7750;
/// The client's address after a change; the laboratory gives out low ones.
const OTHER_ADDRESS_LAST: u8 = 77;

pub struct Bed<'a> {
    pub lab: Lab,
    pub profile: &'a Profile,
    pub program: &'a Path,
    pub dir: PathBuf,
    pub server: Option<Running>,
    other: Option<Running>,
    relay: Option<Relay>,
    base: [Impairment; 2],
    /// Sockets killed, and events that need no counter of their own.
    pub events: u64,
    /// Of the client's interface, while it is down.
    routes: String,
}

/// A connection as the client's kernel has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Connection {
    pub port: u16,
    pub sent_bytes: u64,
    pub received_bytes: u64,
}

/// The connections of a client that sends: only its control stream is answered with more than a handshake.
#[derive(Clone, Debug)]
pub struct Connections {
    pub control: u16,
    /// The busiest first.
    pub data: Vec<u16>,
}

impl<'a> Bed<'a> {
    /// Builds the laboratory and makes the client known to the server.
    pub fn make(
        profile: &'a Profile,
        program: &'a Path,
        dir: &Path,
        bits_per_second: u64,
        seed: u64,
    ) -> Result<Bed<'a>> {
        let base = profile.directions(bits_per_second)?;
        let lab = ground::laboratory(base, seed, Some(MTU_BYTES), profile.single_segments.then_some(Backend::Tun))?;
        let dir = dir.to_owned();
        fs::create_dir_all(dir.join("root")).context("create a root")?;
        let (server, other, relay) = (None, None, None);
        let mut bed = Bed { lab, profile, program, dir, server, other, relay, base, events: 0, routes: String::new() };
        bed.write_names(&profile.names)?;
        if let Some(held) = profile.relay {
            let pause = Duration::from_millis(held.hold_ms);
            let onward = Onward::To(SocketAddr::new(Ipv4Addr::LOCALHOST.into(), PORT));
            let manner = Manner::Hold { bytes: held.hold_bytes, pause };
            bed.relay = Some(Relay::start(&bed.lab.namespace(SERVER)?, RELAY_PORT, onward, manner)?);
        }
        bed.start_server()?;
        bed.endpoint("server").enrol("client", |command| ground::at(&bed.lab, CLIENT, command))?;
        Ok(bed)
    }

    fn endpoint(&self, home: &'static str) -> Endpoint<'_> {
        let advertise = if self.relay.is_some() { "far:7750" } else { "far:7740" };
        Endpoint { program: self.program, dir: &self.dir, home, root: Path::new("root"), advertise }
    }

    pub fn start_server(&mut self) -> Result<()> {
        let started = self.endpoint("server").start(|command| ground::at(&self.lab, SERVER, command))?;
        self.server = Some(started);
        Ok(())
    }

    /// An endpoint of another identity at the client's own host.
    pub fn start_other_endpoint(&mut self) -> Result<()> {
        let root = self.dir.join("elsewhere");
        fs::create_dir_all(&root).context("create a root")?;
        let endpoint = Endpoint { root: &root, ..self.endpoint("other") };
        let started = endpoint.start(|command| ground::at(&self.lab, CLIENT, command))?;
        self.other = Some(started);
        Ok(())
    }

    /// Starts the copy.
    pub fn start_client(&self, source: &Path, name: &str) -> Result<Running> {
        let chunk_bytes = super::run::CHUNK_BYTES.to_string();
        let words = ["cp", "--json", "--progress", "none", "--chunk-size", &chunk_bytes];
        let mut command = ground::thalweg(self.program, &self.dir, "client", &words);
        let has_streams = self.profile.arguments.iter().any(|word| word.starts_with("--streams"));
        if source.ends_with("large") && !has_streams {
            // Each stream may lose a chunk and what its socket held: of few, that is far less than the set (I10).
            command.arg("--streams=2");
        }
        let mut contents = source.as_os_str().to_owned();
        contents.push("/");
        command.args(&self.profile.arguments).arg(contents).arg(format!("{ENDPOINT}:in/"));
        Running::start(ground::at(&self.lab, CLIENT, &command)?, &self.dir, name)
    }

    /// Whether the endpoint of another identity was left alone.
    pub fn is_nothing_elsewhere(&self) -> bool {
        fs::read_dir(self.dir.join("elsewhere")).map_or(true, |mut listing| listing.next().is_none())
    }

    pub fn destination(&self) -> PathBuf {
        self.dir.join("root/in")
    }

    /// What the path did, from the client to the server and back.
    pub fn counts(&self) -> [Counts; 2] {
        let counts = self.lab.snapshot().map(|snapshot| snapshot.counts).unwrap_or_default();
        [0, 1].map(|index| counts.get(index).copied().unwrap_or_default())
    }

    pub fn relayed_bytes(&self) -> u64 {
        self.relay.as_ref().map_or(0, |relay| relay.counts.bytes.load(std::sync::atomic::Ordering::Relaxed))
    }

    /// Segments that the server's kernel received out of order.
    pub fn out_of_order(&self) -> Result<u64> {
        let text = self.lab.inside(SERVER, || fs::read_to_string("/proc/thread-self/net/netstat"))??;
        Ok(counter(&text, "TcpExt:", "TCPOFOQueue"))
    }

    pub fn set_link(&self, words: &[String]) -> Result<()> {
        let directions = changed(self.base, words)?;
        self.change_link(self.base, directions)
    }

    pub fn restore_link(&self) -> Result<()> {
        let now = self.lab.links_now().first().copied().unwrap_or(self.base);
        self.change_link(now, self.base)
    }

    pub fn slow_link(&self, divisor: u64) -> Result<()> {
        let slow = self.base.map(|direction| Impairment {
            bits_per_second: direction.bits_per_second.map(|rate| rate / divisor),
            ..direction
        });
        self.change_link(self.base, slow)
    }

    fn change_link(&self, from: [Impairment; 2], to: [Impairment; 2]) -> Result<()> {
        let changes: Vec<_> = (0..2).map(|index| (Some(index), Change::between(&from[index], &to[index]))).collect();
        Ok(self.lab.set(LINK, &changes)?)
    }

    pub fn connections(&self) -> Result<Connections> {
        let filter = format!("( dport = :{} )", self.dialled_port());
        let text = ground::run_at(&self.lab, CLIENT, &["ss", "-tniHO", "state", "established", &filter])?;
        let mut found: Vec<_> = text.lines().filter_map(connection).collect();
        found.sort_by_key(|connection| std::cmp::Reverse(connection.sent_bytes));
        let control = found.iter().max_by_key(|connection| connection.received_bytes).map_or(0, |found| found.port);
        let data = found.iter().map(|connection| connection.port).filter(|port| *port != control).collect();
        Ok(Connections { control, data })
    }

    fn dialled_port(&self) -> u16 {
        if self.relay.is_some() { RELAY_PORT } else { PORT }
    }

    /// Kills sockets at the client, which resets the connection at the server too.
    pub fn kill_sockets(&mut self, target: Target) -> Result<()> {
        let connections = self.connections()?;
        let filter = match target {
            Target::Stream => format!("( sport = :{} )", connections.data.first().copied().unwrap_or(0)),
            Target::Control => format!("( sport = :{} )", connections.control),
            // All at the same moment: one after the other they would be replaced meanwhile.
            _ => format!("( dport = :{} )", self.dialled_port()),
        };
        let killed = ground::run_at(&self.lab, CLIENT, &["ss", "-KtH", &filter])?;
        self.events += killed.lines().filter(|line| !line.trim().is_empty()).count() as u64;
        Ok(())
    }

    /// Lets packets vanish between the wire and the kernel of the host that they reach.
    pub fn drop_packets(&self, target: Target, toward: Toward) -> Result<()> {
        let connections = self.connections()?;
        for (host, own, peer) in [(SERVER, "--sport", "--dport"), (CLIENT, "--dport", "--sport")] {
            let is_meant = match toward {
                Toward::Both => true,
                Toward::Server => host == SERVER,
                Toward::Client => host == CLIENT,
            };
            if !is_meant {
                continue;
            }
            let port = self.dialled_port().to_string();
            let busiest = connections.data.first().copied().unwrap_or(0).to_string();
            let control = connections.control.to_string();
            let tcp = ["-p", "tcp", peer, &port];
            let matches: Vec<&str> = match target {
                Target::All => vec![],
                Target::Ipv6 => {
                    self.filter(host, "ip6tables", &["-t", "raw", "-A", "PREROUTING", "-j", "DROP"])?;
                    continue;
                }
                Target::Long => [&tcp[..], &["-m", "length", "--length", "1001:65535"]].concat(),
                Target::Stream => [&tcp[..], &[own, &busiest]].concat(),
                Target::Control => [&tcp[..], &[own, &control]].concat(),
                Target::AllButControl => [&tcp[..], &["!", own, &control]].concat(),
            };
            let words = [&["-t", "raw", "-A", "PREROUTING", "-i", "eth0"][..], &matches, &["-j", "DROP"]].concat();
            self.filter(host, "iptables", &words)?;
        }
        Ok(())
    }

    /// Lets a box answer for the server: whatever the client sends to it is reset.
    pub fn forge_resets(&self) -> Result<()> {
        let port = PORT.to_string();
        let established = ["-p", "tcp", "--dport", &port, "!", "--syn"];
        let reject = ["-j", "REJECT", "--reject-with", "tcp-reset"];
        self.filter(SERVER, "iptables", &[&["-A", "INPUT"][..], &established, &reject].concat())
    }

    /// Lets new connections after the first so many vanish.
    pub fn admit(&self, first: u32) -> Result<()> {
        let (port, burst) = (PORT.to_string(), first.to_string());
        let new = ["-t", "raw", "-A", "PREROUTING", "-p", "tcp", "--dport", &port, "--syn"];
        let limit = ["-m", "limit", "--limit", "1/hour", "--limit-burst", &burst, "-j", "RETURN"];
        self.filter(SERVER, "iptables", &[&new[..], &limit].concat())?;
        self.filter(SERVER, "iptables", &[&new[..], &["-j", "DROP"]].concat())
    }

    /// Once a connection was not admitted: it alone goes on being dropped. False: none was, so far.
    pub fn block_only_one(&mut self) -> Result<bool> {
        if self.filtered_packets()? == 0 {
            return Ok(false);
        }
        let filter = format!("( dport = :{PORT} )");
        let waiting = ground::run_at(&self.lab, CLIENT, &["ss", "-tnH", "state", "syn-sent", &filter])?;
        let Some(blocked) = waiting.lines().find_map(connection) else { return Ok(false) };
        let (port, own) = (PORT.to_string(), blocked.port.to_string());
        self.clear_filters()?;
        self.events += 1;
        let one = ["-t", "raw", "-A", "PREROUTING", "-p", "tcp", "--dport", &port, "--sport", &own, "-j", "DROP"];
        self.filter(SERVER, "iptables", &one)?;
        Ok(true)
    }

    /// A box in the middle that drops what belongs to no flow it knows, and forgets flows that rest.
    pub fn forget_idle_flows(&self, after_seconds: u32) -> Result<()> {
        let set = || {
            let conntrack = Path::new("/proc/sys/net/netfilter");
            fs::write(conntrack.join("nf_conntrack_tcp_loose"), "0")?;
            fs::write(conntrack.join("nf_conntrack_tcp_timeout_established"), after_seconds.to_string())
        };
        // The settings apply to flows that begin after the rule made the box look at flows at all.
        self.filter(CORE, "iptables", &["-A", "FORWARD", "-m", "conntrack", "--ctstate", "INVALID", "-j", "DROP"])?;
        lab::network::inside(&self.lab.lease().namespace(CORE), set)?.context("set the flow table's patience")
    }

    fn filter(&self, host: &str, tool: &str, words: &[&str]) -> Result<()> {
        let legacy = format!("{tool}-legacy");
        ground::run_at(&self.lab, host, &[&[legacy.as_str(), "-w", "10"], words].concat()).map(drop)
    }

    /// Packets that met a rule of a trial that drops or rejects.
    pub fn filtered_packets(&self) -> Result<u64> {
        let mut packets = 0;
        for (host, table) in [(SERVER, "raw"), (CLIENT, "raw"), (SERVER, "filter"), (CORE, "filter")] {
            for tool in ["iptables-legacy", "ip6tables-legacy"] {
                // A laboratory without a core has no rules there either.
                let listed = ground::run_at(&self.lab, host, &[tool, "-w", "10", "-t", table, "-nvxL"]);
                packets += listed.map_or(0, |text| hits(&text));
            }
        }
        Ok(packets)
    }

    pub fn clear_filters(&self) -> Result<()> {
        for (host, table) in [(SERVER, "raw"), (CLIENT, "raw"), (SERVER, "filter"), (CORE, "filter")] {
            for tool in ["iptables-legacy", "ip6tables-legacy"] {
                let _ = ground::run_at(&self.lab, host, &[tool, "-w", "10", "-t", table, "-F"]);
            }
        }
        Ok(())
    }

    /// Rewrites the client's hosts file in place: its processes see the same file.
    pub fn write_names(&self, lines: &[String]) -> Result<()> {
        let path = Path::new("/etc/netns").join(self.lab.namespace(CLIENT)?).join("hosts");
        let mut text = String::from("127.0.0.1 localhost\n::1 localhost\n");
        for line in lines {
            let line = line.replace("{v4}", &self.lab.address_v4(SERVER)?.to_string());
            let line = line.replace("{v6}", &self.lab.address_v6(SERVER)?.to_string());
            text += &format!("{}\n", line.replace("{client}", &self.lab.address_v4(CLIENT)?.to_string()));
        }
        fs::write(&path, text).with_context(|| format!("write {}", path.display()))
    }

    pub fn take_interface_down(&mut self) -> Result<()> {
        self.events += self.connections()?.data.len() as u64;
        self.routes = ground::run_at(&self.lab, CLIENT, &["ip", "-4", "route", "show", "dev", "eth0"])?;
        ground::run_at(&self.lab, CLIENT, &["ip", "link", "set", "eth0", "down"]).map(drop)
    }

    /// Brings the interface up with its routes, as whatever configures a host would.
    pub fn take_interface_up(&self) -> Result<()> {
        ground::run_at(&self.lab, CLIENT, &["ip", "link", "set", "eth0", "up"])?;
        self.set_routes(&self.routes)
    }

    /// As `ip route show dev eth0` printed them; gateways have to be reachable before routes lead over them.
    fn set_routes(&self, shown: &str) -> Result<()> {
        let (over_gateways, direct): (Vec<_>, Vec<_>) = shown.lines().partition(|route| route.contains(" via "));
        for route in direct.into_iter().chain(over_gateways) {
            let words: Vec<_> = ["ip", "route", "replace"].into_iter().chain(route.split_whitespace()).collect();
            ground::run_at(&self.lab, CLIENT, &[&words[..], &["dev", "eth0"]].concat())?;
        }
        Ok(())
    }

    /// Gives the client another address and takes the old one away.
    pub fn change_address(&mut self) -> Result<()> {
        self.events += self.connections()?.data.len() as u64;
        let port = &self.lab.host(CLIENT)?.interfaces[0];
        let [a, b, c, _] = port.v4.octets();
        let (old, new) = (port.v4.to_string(), Ipv4Addr::new(a, b, c, OTHER_ADDRESS_LAST).to_string());
        let routes = ground::run_at(&self.lab, CLIENT, &["ip", "-4", "route", "show", "dev", "eth0"])?;
        ground::run_at(&self.lab, CORE, &["ip", "route", "add", &format!("{new}/32"), "dev", &port.port_name()])?;
        ground::run_at(&self.lab, CLIENT, &["ip", "addr", "add", &format!("{new}/32"), "dev", "eth0"])?;
        self.set_routes(&routes.replace(&format!("src {old}"), &format!("src {new}")))?;
        ground::run_at(&self.lab, CLIENT, &["ip", "addr", "del", &format!("{old}/32"), "dev", "eth0"]).map(drop)
    }
}

/// One line of `ss -tniHO`.
fn connection(line: &str) -> Option<Connection> {
    let local = line.split_whitespace().find(|word| word.contains(':'))?;
    let port = local.rsplit(':').next()?.parse().ok()?;
    let of = |name: &str| line.split_whitespace().find_map(|word| word.strip_prefix(name)?.parse::<u64>().ok());
    let (sent_bytes, received_bytes) = (of("bytes_sent:").unwrap_or(0), of("bytes_received:").unwrap_or(0));
    Some(Connection { port, sent_bytes, received_bytes })
}

/// Packets counted by the rules of `iptables -nvxL` that drop or reject.
fn hits(listing: &str) -> u64 {
    let of_rule = |line: &str| {
        let mut words = line.split_whitespace();
        let packets = words.next()?.parse::<u64>().ok()?;
        let target = words.nth(1)?;
        (target == "DROP" || target == "REJECT").then_some(packets)
    };
    listing.lines().filter_map(of_rule).sum()
}

/// A value of /proc/net/netstat, where one line names what the next one counts.
fn counter(text: &str, table: &str, name: &str) -> u64 {
    let mut lines = text.lines().filter_map(|line| line.strip_prefix(table));
    let (names, values) = (lines.next().unwrap_or_default(), lines.next().unwrap_or_default());
    let mut pairs = names.split_whitespace().zip(values.split_whitespace());
    pairs.find(|(found, _)| *found == name).and_then(|(_, value)| value.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_tools_print_is_read() {
        let line =
            "0 0 10.101.1.1:43210 10.101.2.1:7740 cubic wscale:7,7 bytes_sent:1000 bytes_acked:900 bytes_received:24";
        assert_eq!(connection(line), Some(Connection { port: 43210, sent_bytes: 1000, received_bytes: 24 }));
        let listing = "Chain PREROUTING (policy ACCEPT 9 packets, 9 bytes)\n    pkts      bytes target prot opt in\n\
                       \u{20}      3      120 DROP       tcp  --  eth0\n       7      120 RETURN     tcp  --  eth0\n\
                       \u{20}      2      80 REJECT     tcp  --  eth0\n";
        assert_eq!(hits(listing), 5);
        assert_eq!(counter("TcpExt: A B\nTcpExt: 4 5\nIpExt: B\nIpExt: 6\n", "TcpExt:", "B"), 5);
    }
}
