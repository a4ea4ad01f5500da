//! Which processors are near a network card: the nodes of this host's memory, as sysfs tells of them.
//!
//! A lane whose card hangs on another socket sends every block over the link between the sockets. Invariants: on a host with one node
//! nothing is done and nothing costs; a thread is never given processors that it did not have.
//!
//! Linux only. Not here: which lane uses which card (`mover`).

use crate::route;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::Path;
use std::sync::OnceLock;

/// As many as one call takes.
const PROCESSORS_MAX: usize = CpuSet::MAX_CPU;
const INTERFACES_MAX: usize = 1024;

/// By interface: the processors of the node that its card is attached to.
type Near = BTreeMap<String, Vec<usize>>;

static NEAR: OnceLock<Near> = OnceLock::new();

/// Reads what there is to know. A process that confines itself does so before.
pub fn remember() {
    NEAR.get_or_init(|| read(Path::new("/sys")));
}

/// Keeps the calling thread on the processors near the card of a local address, from here to its end. What is not known, or not
/// allowed, changes nothing.
pub fn stay_near(local: IpAddr) {
    let near = NEAR.get_or_init(|| read(Path::new("/sys")));
    if near.is_empty() {
        return;
    }
    let own = route::local_addresses().unwrap_or_default();
    let interface = own.into_iter().find(|own| own.ip == local.to_canonical()).map(|own| own.name);
    if let Some(processors) = interface.and_then(|name| near.get(&name)) {
        keep_to(processors);
    }
}

fn keep_to(processors: &[usize]) {
    let Ok(allowed) = sched_getaffinity(None) else { return };
    let mut wanted = CpuSet::new();
    processors.iter().filter(|processor| allowed.is_set(**processor)).for_each(|processor| wanted.set(*processor));
    if wanted.count() > 0 {
        let _ = sched_setaffinity(None, &wanted);
    }
}

/// Empty where there is one node alone, or none is told of.
fn read(sys: &Path) -> Near {
    let text = |path: &Path| std::fs::read_to_string(path).ok();
    let names = |folder: &str| {
        let listing = std::fs::read_dir(sys.join(folder)).into_iter().flatten().flatten().take(INTERFACES_MAX);
        listing.filter_map(|entry| entry.file_name().into_string().ok()).collect::<Vec<_>>()
    };
    let node = |name: String| {
        let number: u32 = name.strip_prefix("node")?.parse().ok()?;
        let list = text(&sys.join("devices/system/node").join(&name).join("cpulist"))?;
        Some((number, processors(&list)?)).filter(|(_, processors)| !processors.is_empty())
    };
    let nodes: BTreeMap<u32, Vec<usize>> = names("devices/system/node").into_iter().filter_map(node).collect();
    if nodes.len() < 2 {
        return Near::new();
    }
    let near = |name: String| {
        // -1 where the firmware does not tell.
        let number = text(&sys.join("class/net").join(&name).join("device/numa_node"))?.trim().parse::<u32>().ok()?;
        Some((name, nodes.get(&number)?.clone()))
    };
    names("class/net").into_iter().filter_map(near).collect()
}

/// A list such as `0-3,8,10-11`.
fn processors(list: &str) -> Option<Vec<usize>> {
    let mut found = Vec::new();
    for part in list.trim().split(',').filter(|part| !part.is_empty()) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (usize, usize) = (first.parse().ok()?, last.parse().ok()?);
        if first > last || last >= PROCESSORS_MAX {
            return None;
        }
        found.extend(first..=last);
    }
    Some(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sys(files: &[(&str, &str)]) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        for (path, content) in files {
            let path = dir.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, content).unwrap();
        }
        dir
    }

    #[test]
    fn each_card_has_the_processors_of_its_node() {
        let sys = sys(&[
            ("devices/system/node/node0/cpulist", "0-1,4\n"),
            ("devices/system/node/node1/cpulist", "2-3\n"),
            ("devices/system/node/possible", "0-1\n"),
            ("class/net/eth0/device/numa_node", "0\n"),
            ("class/net/eth1/device/numa_node", "1\n"),
            ("class/net/eth2/device/numa_node", "-1\n"),
            ("class/net/eth3/device/numa_node", "7\n"),
            ("class/net/lo/mtu", "65536\n"),
        ]);
        let near = read(sys.path());
        assert_eq!(near, Near::from([("eth0".into(), vec![0, 1, 4]), ("eth1".into(), vec![2, 3])]));
    }

    #[test]
    fn a_host_with_one_node_has_nothing_to_choose() {
        let one = sys(&[("devices/system/node/node0/cpulist", "0-7\n"), ("class/net/eth0/device/numa_node", "0\n")]);
        assert_eq!(read(one.path()), Near::new());
        // A node of memory alone has no processors.
        let memory =
            sys(&[("devices/system/node/node0/cpulist", "0-7\n"), ("devices/system/node/node1/cpulist", "\n")]);
        assert_eq!(read(memory.path()), Near::new());
        assert_eq!(read(Path::new("/nonexistent")), Near::new());
    }

    #[test]
    fn lists_that_make_no_sense_are_none() {
        assert_eq!(processors("0-3,8,10-11\n"), Some(vec![0, 1, 2, 3, 8, 10, 11]));
        assert_eq!(processors("\n"), Some(vec![]));
        for list in ["3-0", "a", "0-99999999999", "-1", "1-", "0-4000000000"] {
            assert_eq!(processors(list), None, "{list}");
        }
    }

    #[test]
    fn a_thread_keeps_to_processors_that_it_may_use() {
        std::thread::spawn(|| {
            let before = sched_getaffinity(None).unwrap();
            let first = (0..PROCESSORS_MAX).find(|processor| before.is_set(*processor)).unwrap();
            // None of these is allowed: nothing changes.
            keep_to(&[PROCESSORS_MAX - 1]);
            assert_eq!(sched_getaffinity(None).unwrap(), before);
            keep_to(&[first, PROCESSORS_MAX - 1]);
            assert_eq!(sched_getaffinity(None).unwrap().count(), 1);
        })
        .join()
        .unwrap();
        stay_near(IpAddr::from([127, 0, 0, 1]));
    }
}
