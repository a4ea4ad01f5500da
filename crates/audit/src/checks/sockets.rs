//! The kernel's limits and habits of TCP sockets: buffers, and what must be on for large windows.

use crate::finding::{Area, Finding, Level};
use crate::host::Host;
use crate::path::{Path, STREAMS_MAX, rate};
use model::quantity::ByteCount;

const PAGE_BYTES: u64 = 4096;

/// Must be 1, and why.
const SWITCHES: &[(&str, &str)] = &[
    ("net.ipv4.tcp_window_scaling", "without it a window is limited to 64 KiB, whatever the buffer sizes"),
    ("net.ipv4.tcp_sack", "without it one lost segment makes TCP resend the rest of the window"),
    (
        "net.ipv4.tcp_timestamps",
        "without it round trips are measured poorly, and at high rates old segments can be taken for new ones",
    ),
    ("net.ipv4.tcp_moderate_rcvbuf", "without it receive buffers do not grow beyond their first size"),
];

pub fn findings(host: &Host, path: &Path) -> Vec<Finding> {
    let memory_bytes = super::machine::memory_bytes(host);
    let mut findings: Vec<Finding> = ["net.ipv4.tcp_rmem", "net.ipv4.tcp_wmem"]
        .iter()
        .filter_map(|name| buffers(host, path, name, memory_bytes))
        .collect();
    findings.extend(["net.core.rmem_max", "net.core.wmem_max"].iter().filter_map(|name| fixed_buffers(host, name)));
    findings.extend(memory(host, path));
    findings.extend(SWITCHES.iter().filter_map(|(name, cost)| switch(host, name, cost)));
    findings.extend(idle(host));
    findings.extend(backlog(host));
    findings
}

/// The ceiling of autotuning: `window / RTT` is all that one stream carries.
fn buffers(host: &Host, path: &Path, name: &str, memory_bytes: Option<u64>) -> Option<Finding> {
    let found = host.sysctl(name)?;
    let (low, first, high) = {
        let mut numbers = found.split(' ').map_while(|number| number.parse::<u64>().ok());
        (numbers.next()?, numbers.next()?, numbers.next()?)
    };
    let streams = path.streams(high);
    let level = match streams {
        1 => Level::Good,
        n if n <= STREAMS_MAX => Level::Optional,
        _ => Level::Needed,
    };
    let finding = Finding::new(Area::Sockets, level, name, &found);
    if level == Level::Good {
        return Some(finding);
    }
    let stream = rate(path.stream_bits_per_second(high));
    let makes_up = match level {
        Level::Optional => format!("{streams} streams make up for it, at the price of memory and threads"),
        _ => format!("{streams} streams would be needed and {STREAMS_MAX} are opened at most"),
    };
    let cost = format!(
        "one stream carries at most {stream} over {:.0} ms (window / RTT, window = half of {}); {makes_up}",
        path.rtt.as_secs_f64() * 1000.0,
        ByteCount(high)
    );
    let wanted = path.buffer_bytes(memory_bytes);
    if wanted <= high {
        let why = format!("{cost}; more would be too much for this host's memory");
        return Some(Finding { level: Level::Note, ..finding }.costs(why));
    }
    Some(finding.costs(cost).sysctl(host, name, format!("{low} {first} {wanted}")))
}

/// The ceiling of sizes that a program sets by hand, as Thalweg never does.
fn fixed_buffers(host: &Host, name: &str) -> Option<Finding> {
    let found = host.sysctl(name)?;
    let note = Finding::new(Area::Sockets, Level::Good, name, found);
    Some(note.costs("it limits programs that set their own buffer sizes; Thalweg leaves them to the kernel"))
}

/// What all sockets together may hold before they are squeezed.
fn memory(host: &Host, path: &Path) -> Option<Finding> {
    let name = "net.ipv4.tcp_mem";
    let found = host.sysctl(name)?;
    let pressure_bytes = host.sysctl_number(name, 1)?.saturating_mul(PAGE_BYTES);
    // Both buffers of one full path.
    let wanted = path.bdp_bytes().saturating_mul(4);
    if pressure_bytes >= wanted {
        return Some(Finding::new(Area::Sockets, Level::Good, name, found));
    }
    let cost = format!(
        "above {} in all sockets together the kernel shrinks windows; this path alone can hold {}",
        ByteCount(pressure_bytes),
        ByteCount(wanted)
    );
    let pages = wanted.div_ceil(PAGE_BYTES);
    let value = format!("{} {pages} {}", pages / 4 * 3, pages * 2);
    let mut finding = Finding::new(Area::Sockets, Level::Optional, name, found).costs(cost).sysctl(host, name, value);
    if let Some(mend) = &mut finding.mend {
        // It is counted for the whole machine, and a wrong value can leave it without memory.
        (mend.is_shared, mend.change) = (true, None);
    }
    Some(finding)
}

fn switch(host: &Host, name: &str, cost: &str) -> Option<Finding> {
    let found = host.sysctl(name)?;
    if found != "0" {
        return Some(Finding::new(Area::Sockets, Level::Good, name, found));
    }
    Some(Finding::new(Area::Sockets, Level::Needed, name, found).costs(cost).sysctl(host, name, "1"))
}

fn idle(host: &Host) -> Option<Finding> {
    let name = "net.ipv4.tcp_slow_start_after_idle";
    let found = host.sysctl(name)?;
    if found == "0" {
        return Some(Finding::new(Area::Sockets, Level::Good, name, found));
    }
    let cost = "after a pause of a few round trips a stream goes back to slow start, which takes seconds on long paths";
    Some(Finding::new(Area::Sockets, Level::Optional, name, found).costs(cost).sysctl(host, name, "0"))
}

/// Packets that the kernel dropped because its own queue was full, by the counters of each processor.
fn backlog(host: &Host) -> Option<Finding> {
    let name = "net.core.netdev_max_backlog";
    let counters = host.read("proc/net/softnet_stat")?;
    let column = |line: &str| u64::from_str_radix(line.split_whitespace().nth(1)?, 16).ok();
    let dropped: u64 = counters.lines().filter_map(column).sum();
    let found = host.sysctl(name).unwrap_or_else(|| "not visible here".into());
    let subject = Finding::new(Area::Sockets, Level::Good, name, format!("{found}, {dropped} packets dropped"));
    if dropped == 0 {
        return Some(subject);
    }
    let cost = format!("{dropped} packets arrived and were dropped since the start because this queue was full");
    Some(Finding { level: Level::Optional, ..subject }.costs(cost).sysctl(host, name, "8192"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::here::Here;
    use crate::host::imitation::{Answers, files};
    use std::time::Duration;

    const STOCK: &[(&str, &str)] = &[
        ("proc/meminfo", "MemTotal:       65536000 kB\nMemAvailable:   60000000 kB\n"),
        ("proc/sys/net/ipv4/tcp_rmem", "4096 131072 6291456\n"),
        ("proc/sys/net/ipv4/tcp_wmem", "4096 16384 4194304\n"),
        ("proc/sys/net/core/rmem_max", "212992\n"),
        ("proc/sys/net/ipv4/tcp_mem", "769728 1026307 1539456\n"),
        ("proc/sys/net/ipv4/tcp_sack", "0\n"),
        ("proc/sys/net/ipv4/tcp_timestamps", "1\n"),
        ("proc/net/softnet_stat", "00000001 00000000 0\n00000002 0000000a 0\n"),
    ];

    fn path(gigabits: u64, rtt_ms: u64) -> Path {
        Path { bits_per_second: gigabits * 1_000_000_000, rtt: Duration::from_millis(rtt_ms), ..Path::default() }
    }

    fn found(gigabits: u64, rtt_ms: u64) -> Vec<Finding> {
        let answers = Answers::default();
        let dir = files(STOCK);
        findings(&Host::imitated(dir.path(), &answers), &path(gigabits, rtt_ms))
    }

    fn of<'a>(findings: &'a [Finding], name: &str) -> &'a Finding {
        findings.iter().find(|finding| finding.subject == name).unwrap()
    }

    #[test]
    fn stock_buffers_are_judged_by_the_path() {
        let short = found(1, 1);
        assert_eq!(of(&short, "net.ipv4.tcp_wmem").level, Level::Good);
        let long = found(10, 74);
        let finding = of(&long, "net.ipv4.tcp_wmem");
        assert_eq!(finding.level, Level::Optional);
        assert!(finding.cost.starts_with("one stream carries at most 227 Mbit/s over 74 ms"), "{}", finding.cost);
        let mend = finding.mend.as_ref().unwrap();
        assert_eq!(mend.command, "sysctl -w net.ipv4.tcp_wmem='4096 16384 268435456'");
        assert_eq!((mend.here, mend.is_shared), (Here::Yes, false));
        assert_eq!(of(&found(100, 150), "net.ipv4.tcp_wmem").level, Level::Needed);
    }

    #[test]
    fn what_must_be_on_is_needed_and_drops_are_counted() {
        let findings = found(10, 74);
        assert_eq!(of(&findings, "net.ipv4.tcp_sack").level, Level::Needed);
        assert_eq!(of(&findings, "net.ipv4.tcp_timestamps").level, Level::Good);
        let backlog = of(&findings, "net.core.netdev_max_backlog");
        assert!(backlog.cost.starts_with("10 packets"), "{}", backlog.cost);
        assert_eq!(backlog.mend.as_ref().unwrap().here, Here::HostOnly);
        assert_eq!(of(&findings, "net.ipv4.tcp_mem").level, Level::Good);
    }

    #[test]
    fn what_cannot_be_read_gives_no_finding() {
        let answers = Answers::default();
        let dir = files(&[]);
        assert_eq!(findings(&Host::imitated(dir.path(), &answers), &path(10, 74)), []);
    }
}
