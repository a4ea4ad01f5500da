//! What the kernel of a host counted: bytes that left it, segments that were sent again.
//!
//! Owns: open handles on the counters of a host's network namespace, so that reading them is one call and needs no process
//! there. Invariants: the same counters for every tool, none of whose words are needed. A counter that cannot be read counts
//! as zero; it never fails a run.
//!
//! Bytes are those of the frames as the host hands them to its interface. A host that leaves the cutting of segments to the
//! link counts the headers of such a bundle once.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use lab::Lab;

use crate::error::{Error, Result};
use crate::sample::NetworkUse;
use crate::tool::ends::Host;

/// What may leave the sending host before the content counts as under way: more than connecting and agreeing takes with any
/// tool, little enough to be over in a moment.
pub const FIRST_BYTES: u64 = 64 << 10;
/// Room for the counters of a host with some interfaces.
const TEXT_BYTES_MAX: usize = 16 << 10;

#[derive(Debug)]
pub struct Counters {
    devices: File,
    protocols: File,
}

impl Counters {
    pub fn open(lab: &Lab, host: Host) -> Result<Counters> {
        // The thread's own view: the process as a whole is in another namespace.
        let open = |path| File::open(path).map_err(Error::io("open", path));
        lab.inside(host.name(lab), || {
            Ok(Counters { devices: open("/proc/thread-self/net/dev")?, protocols: open("/proc/thread-self/net/snmp")? })
        })?
    }

    /// Through all interfaces but the loopback.
    pub fn sent_bytes(&self) -> u64 {
        sent_bytes(&text(&self.devices))
    }

    pub fn retransmitted_segments(&self) -> u64 {
        retransmitted_segments(&text(&self.protocols))
    }
}

/// The two hosts of a race.
#[derive(Clone, Debug)]
pub struct Hosts {
    client: Arc<Counters>,
    server: Arc<Counters>,
}

impl Hosts {
    pub fn open(lab: &Lab) -> Result<Hosts> {
        let of = |host| Counters::open(lab, host).map(Arc::new);
        Ok(Hosts { client: of(Host::Client)?, server: of(Host::Server)? })
    }

    /// Counts from here, the bytes at the host that the content leaves.
    pub fn begin(&self, sender: Host) -> Begun {
        Begun {
            sent_bytes: self.of(sender).sent_bytes(),
            retransmitted_segments: self.retransmitted_segments(),
            hosts: self.clone(),
            sender,
        }
    }

    fn of(&self, host: Host) -> &Counters {
        match host {
            Host::Client => &self.client,
            Host::Server => &self.server,
        }
    }

    fn retransmitted_segments(&self) -> u64 {
        self.client.retransmitted_segments() + self.server.retransmitted_segments()
    }
}

#[derive(Clone, Debug)]
pub struct Begun {
    hosts: Hosts,
    sender: Host,
    sent_bytes: u64,
    retransmitted_segments: u64,
}

impl Begun {
    pub fn has_content_left(&self) -> bool {
        self.sent_bytes_now() > FIRST_BYTES
    }

    pub fn end(&self, first_byte_seconds: Option<f64>) -> NetworkUse {
        NetworkUse {
            first_byte_seconds,
            sent_bytes: self.sent_bytes_now(),
            retransmitted_segments: self.hosts.retransmitted_segments().saturating_sub(self.retransmitted_segments),
        }
    }

    fn sent_bytes_now(&self) -> u64 {
        self.hosts.of(self.sender).sent_bytes().saturating_sub(self.sent_bytes)
    }
}

fn text(file: &File) -> String {
    let mut bytes = vec![0; TEXT_BYTES_MAX];
    let length = file.read_at(&mut bytes, 0).unwrap_or(0);
    bytes.truncate(length);
    String::from_utf8(bytes).unwrap_or_default()
}

fn sent_bytes(text: &str) -> u64 {
    const SENT: usize = 8;
    let lines = text.lines().filter_map(|line| line.split_once(':')).filter(|(name, _)| name.trim() != "lo");
    lines.filter_map(|(_, counts)| counts.split_whitespace().nth(SENT)?.parse::<u64>().ok()).sum()
}

/// A line of names is followed by one of values.
fn retransmitted_segments(text: &str) -> u64 {
    let mut lines = text.lines().filter_map(|line| line.strip_prefix("Tcp:"));
    let found = lines.next().zip(lines.next()).and_then(|(names, values)| {
        let column = names.split_whitespace().position(|name| name == "RetransSegs")?;
        values.split_whitespace().nth(column)?.parse().ok()
    });
    found.unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loopback_is_not_the_network() {
        let text = "Inter-|   Receive  |  Transmit\n face |bytes    packets\n    lo: 900 9 0 0 0 0 0 0 900 9 0 0 0 0 0 0\n  \
                    eth0:1200 12 0 0 0 0 0 0 3400 34 0 0 0 0 0 0\n";
        assert_eq!(sent_bytes(text), 3400);
        assert_eq!(sent_bytes(""), 0);
    }

    #[test]
    fn what_left_the_sending_host_is_counted() {
        let dir = tempfile::tempdir().unwrap();
        let devices = |bytes: u64| format!("  eth0: 0 0 0 0 0 0 0 0 {bytes} 1 0 0 0 0 0 0\n");
        let counters = |name: &str| {
            let path = dir.path().join(name);
            std::fs::write(&path, devices(1000)).unwrap();
            Arc::new(Counters { devices: File::open(&path).unwrap(), protocols: File::open(&path).unwrap() })
        };
        let hosts = Hosts { client: counters("client"), server: counters("server") };
        let begun = [Host::Client, Host::Server].map(|sender| hosts.begin(sender));
        std::fs::write(dir.path().join("server"), devices(1001 + FIRST_BYTES)).unwrap();
        assert_eq!(begun.each_ref().map(Begun::has_content_left), [false, true]);
        assert_eq!(begun.map(|begun| begun.end(None).sent_bytes), [0, 1 + FIRST_BYTES]);
    }

    #[test]
    fn a_counter_is_found_by_its_name() {
        let text = "Ip: A B\nIp: 1 2\nTcp: InSegs OutSegs RetransSegs InErrs\nTcp: 10 11 12 13\nUdp: X\nUdp: 4\n";
        assert_eq!(retransmitted_segments(text), 12);
        assert_eq!(retransmitted_segments("Tcp: A\n"), 0);
    }
}
