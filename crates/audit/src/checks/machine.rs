//! The machine itself: processors and who shares them, clock, open files, memory.

use crate::finding::{Area, Finding, Level};
use crate::host::Host;
use model::quantity::ByteCount;
use std::collections::BTreeSet;

/// Stock limit; a server with many clients and a program with many files want more.
const DESCRIPTORS_MIN: u64 = 4096;
/// Less memory leaves the kernel no room for the windows of one fast path.
const MEMORY_AVAILABLE_BYTES_MIN: u64 = 256 << 20;
const STOLEN_SHARE: f64 = 0.01;
/// Tickets with a time limit are compared with this clock.
const CLOCK_ERROR_US_MAX: u64 = 1_000_000;

pub fn findings(host: &Host) -> Vec<Finding> {
    let mut findings = vec![surroundings(host)];
    let cipher = host.calls().map(|calls| Finding::new(Area::Machine, Level::Good, "encryption", calls.cipher()));
    findings.extend(cipher);
    findings.extend(processor_limit(host));
    findings.extend(governor(host));
    findings.extend(stolen(host));
    findings.extend(clock(host));
    findings.extend(descriptors(host));
    findings.extend(memory(host));
    findings
}

pub fn memory_bytes(host: &Host) -> Option<u64> {
    meminfo(host, "MemTotal")
}

fn meminfo(host: &Host, key: &str) -> Option<u64> {
    let text = host.read("proc/meminfo")?;
    let line = text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':'))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok().map(|kib| kib * 1024)
}

/// Whether the processor says that a hypervisor runs it, and whose machine it seems to be.
pub fn virtual_machine(host: &Host) -> Option<String> {
    let processors = host.read("proc/cpuinfo")?;
    let flags = processors.lines().find(|line| line.starts_with("flags") || line.starts_with("Features"))?;
    if !flags.split_whitespace().any(|flag| flag == "hypervisor") {
        return None;
    }
    let vendor = host.read("sys/class/dmi/id/sys_vendor").filter(|vendor| !vendor.is_empty());
    Some(vendor.unwrap_or_else(|| "vendor not told".into()))
}

fn surroundings(host: &Host) -> Finding {
    let machine = virtual_machine(host);
    let (found, cost) = match (host.container(), &machine) {
        (Some(container), _) => (
            format!("a container ({container})"),
            "buffers and congestion control can be set for its own network, if it has one and its settings are writable; \
             net.core.*, interfaces, governor and clock belong to the host",
        ),
        (None, Some(vendor)) => (
            format!("a virtual machine ({vendor})"),
            "everything the kernel offers can be set in here; governor, placement of processors, rings of the real \
             interface and the clock's source belong to its host",
        ),
        (None, None) => ("a machine of its own, as far as it shows".to_owned(), ""),
    };
    let level = if cost.is_empty() { Level::Good } else { Level::Note };
    Finding::new(Area::Machine, level, "surroundings", found).costs(cost)
}

/// The processors that a control group leaves, where it sets a limit.
fn processor_limit(host: &Host) -> Option<Finding> {
    let limit = host.read("sys/fs/cgroup/cpu.max")?;
    let (quota, period) = limit.split_once(' ')?;
    let processors = quota.parse::<f64>().ok()? / period.parse::<f64>().ok().filter(|period| *period > 0.0)?;
    let cost = "work beyond the quota waits for the next tenth of a second, and so do streams";
    let found = format!("{processors:.2} processors for this control group");
    Some(
        Finding::new(Area::Machine, Level::Note, "processor limit", found)
            .costs(cost)
            .by_hand("raise the container's processor limit"),
    )
}

fn governor(host: &Host) -> Option<Finding> {
    let is_processor = |name: &String| name.strip_prefix("cpu").is_some_and(|n| n.parse::<u32>().is_ok());
    let processors = host.names("sys/devices/system/cpu").into_iter().filter(is_processor);
    let governor = |name: String| host.read(&format!("sys/devices/system/cpu/{name}/cpufreq/scaling_governor"));
    let governors: BTreeSet<String> = processors.filter_map(governor).collect();
    if governors.is_empty() {
        return None;
    }
    let found = governors.iter().cloned().collect::<Vec<_>>().join(", ");
    let finding = Finding::new(Area::Machine, Level::Good, "CPU governor", found);
    if governors.iter().all(|name| name == "performance" || name == "schedutil") {
        return Some(finding);
    }
    let cost = "processors run slowly until they have been busy for a while; a stream's bursts are shorter than that";
    Some(Finding { level: Level::Optional, ..finding }.costs(cost).by_hand("cpupower frequency-set -g performance"))
}

/// Time that a hypervisor gave to others, since the start.
fn stolen(host: &Host) -> Option<Finding> {
    let text = host.read("proc/stat")?;
    let times: Vec<u64> = text.lines().next()?.split_whitespace().skip(1).map_while(|n| n.parse().ok()).collect();
    let (stolen, all) = (*times.get(7)?, times.iter().take(8).sum::<u64>());
    let share = stolen as f64 / all.max(1) as f64;
    if share < STOLEN_SHARE {
        return None;
    }
    let found = format!("{:.1} % of all time", share * 100.0);
    let cost = "other virtual machines on the same host used the processors while this one needed them";
    Some(
        Finding::new(Area::Machine, Level::Note, "stolen time", found)
            .costs(cost)
            .by_hand("ask for dedicated processors"),
    )
}

fn clock(host: &Host) -> Option<Finding> {
    let clock = host.calls()?.clock()?;
    if clock.is_synchronised && clock.error_us_max < CLOCK_ERROR_US_MAX {
        let found = format!("synchronised, within {:.1} ms", clock.error_us_max as f64 / 1000.0);
        return Some(Finding::new(Area::Machine, Level::Good, "clock", found));
    }
    let cost =
        "file times of different hosts do not compare, and tickets expire early or late; transfers are not affected";
    let finding = Finding::new(Area::Machine, Level::Optional, "clock", "not known to be synchronised").costs(cost);
    Some(match host.container() {
        Some(_) => finding.by_hand("on the host: timedatectl set-ntp true"),
        None => finding.by_hand("timedatectl set-ntp true   (or start chronyd)"),
    })
}

fn descriptors(host: &Host) -> Option<Finding> {
    let (soft, hard) = host.calls()?.descriptors_max();
    let word = |limit: Option<u64>| limit.map_or("no limit".to_owned(), |limit| limit.to_string());
    let found = format!("{}, up to {}", word(soft), word(hard));
    let finding = Finding::new(Area::Machine, Level::Good, "open files", found);
    if hard.is_none_or(|limit| limit >= DESCRIPTORS_MIN) {
        return Some(finding);
    }
    let cost = "serve accepts a quarter as many connections, and refuses more";
    Some(
        Finding { level: Level::Optional, ..finding }
            .costs(cost)
            .by_hand("ulimit -Hn 65536, or LimitNOFILE= in the unit"),
    )
}

fn memory(host: &Host) -> Option<Finding> {
    let (total, available) = (memory_bytes(host)?, meminfo(host, "MemAvailable")?);
    let limit = host.number::<u64>("sys/fs/cgroup/memory.max");
    let limited = limit.map_or(String::new(), |bytes| format!(", {} for this control group", ByteCount(bytes)));
    let found = format!("{} of {} available{limited}", ByteCount(available), ByteCount(total));
    let finding = Finding::new(Area::Machine, Level::Good, "memory", found);
    if available.min(limit.unwrap_or(u64::MAX)) >= MEMORY_AVAILABLE_BYTES_MIN {
        return Some(finding);
    }
    let cost = "transfer buffers, socket buffers and the page cache compete, so transfers wait for storage more often";
    Some(
        Finding { level: Level::Optional, ..finding }
            .costs(cost)
            .by_hand("end programs that are not needed, or pass --memory 16MiB"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::imitation::{Answers, files};
    use net::clock::Clock;

    fn of(findings: &[Finding], subject: &str) -> Finding {
        findings.iter().find(|finding| finding.subject == subject).unwrap_or_else(|| panic!("{subject}")).clone()
    }

    #[test]
    fn a_virtual_machine_with_a_slow_governor_and_a_free_clock_is_seen() {
        let answers = Answers {
            clock: Clock { is_synchronised: false, error_us_max: 0 },
            descriptors: (Some(256), Some(1024)),
            ..Answers::default()
        };
        let dir = files(&[
            ("proc/cpuinfo", "processor: 0\nflags\t\t: fpu hypervisor aes\n"),
            ("sys/class/dmi/id/sys_vendor", "QEMU"),
            ("sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", "powersave"),
            ("sys/devices/system/cpu/cpufreq/boost", "1"),
            ("proc/stat", "cpu  700 0 100 100 0 0 0 100 0 0\ncpu0 1\n"),
            ("proc/meminfo", "MemTotal: 4000000 kB\nMemAvailable: 100000 kB\n"),
            ("sys/fs/cgroup/cpu.max", "150000 100000"),
        ]);
        let findings = findings(&Host::imitated(dir.path(), &answers));
        assert_eq!(of(&findings, "surroundings").found, "a virtual machine (QEMU)");
        assert_eq!(of(&findings, "CPU governor").level, Level::Optional);
        assert_eq!(of(&findings, "stolen time").found, "10.0 % of all time");
        assert_eq!(of(&findings, "clock").level, Level::Optional);
        assert_eq!(of(&findings, "open files").level, Level::Optional);
        assert_eq!(of(&findings, "memory").level, Level::Optional);
        assert_eq!(of(&findings, "processor limit").found, "1.50 processors for this control group");
    }

    #[test]
    fn a_container_is_known_by_its_marks() {
        let answers = Answers::default();
        for (mark, content, kind) in [
            (".dockerenv", "", "docker"),
            ("run/.containerenv", "", "podman"),
            ("run/systemd/container", "lxc", "lxc"),
            ("proc/1/cgroup", "0::/kubepods/besteffort", "kubepods"),
        ] {
            let dir = files(&[(mark, content)]);
            assert_eq!(Host::captured(dir.path(), &answers).container().as_deref(), Some(kind));
        }
        let dir = files(&[("proc/1/cgroup", "0::/init.scope")]);
        assert_eq!(Host::captured(dir.path(), &answers).container(), None);
    }
}
