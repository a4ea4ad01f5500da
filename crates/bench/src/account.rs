//! What the kernel's process accounts say: processor time, peak memory, descendants, listening ports.
//!
//! A process that is gone, or a line that is not as expected, counts as nothing; an account never fails a run.

use std::fs;

/// Kernel clock ticks per second in /proc, fixed by the interface on every Linux architecture that Rust supports.
const TICKS_PER_SECOND: f64 = 100.0;

/// The parts of /proc/PID/stat that count here.
#[derive(Clone, Copy, Debug)]
pub struct Stat {
    /// User and system time, of the process and of the children it has waited for.
    pub cpu_seconds: f64,
    pub start_time_ticks: u64,
}

impl Stat {
    pub fn read(pid: u32) -> Option<Stat> {
        Stat::parse(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
    }

    fn parse(text: &str) -> Option<Stat> {
        // The name in parentheses may hold anything; fields are counted from the state, which follows it.
        let fields: Vec<&str> = text[text.rfind(')')? + 1..].split_whitespace().collect();
        let ticks: Option<u64> = fields.get(11..15)?.iter().map(|field| field.parse::<u64>().ok()).sum();
        let start_time_ticks = fields.get(19)?.parse().ok()?;
        Some(Stat { cpu_seconds: ticks? as f64 / TICKS_PER_SECOND, start_time_ticks })
    }
}

/// Processor time by where it was spent.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Split {
    pub user_seconds: f64,
    pub system_seconds: f64,
}

impl Split {
    /// Of the processes that this one has started and waited for.
    pub fn of_children() -> Split {
        Split::parse(std::process::id(), 13)
    }

    /// Of a process, its living descendants, and the children that any of them waited for.
    pub fn of_tree(pid: u32) -> Split {
        tree(pid)
            .into_iter()
            .flat_map(|pid| [Split::parse(pid, 11), Split::parse(pid, 13)])
            .fold(Split::default(), Split::plus)
    }

    pub fn plus(self, other: Split) -> Split {
        let user_seconds = self.user_seconds + other.user_seconds;
        Split { user_seconds, system_seconds: self.system_seconds + other.system_seconds }
    }

    pub fn since(self, earlier: Split) -> Split {
        let user_seconds = self.user_seconds - earlier.user_seconds;
        Split { user_seconds, system_seconds: self.system_seconds - earlier.system_seconds }
    }

    /// `first` is the place of the user time, which the system time follows.
    fn parse(pid: u32, first: usize) -> Split {
        let text = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let fields: Vec<&str> = text.rfind(')').map_or("", |end| &text[end + 1..]).split_whitespace().collect();
        let seconds = |index: usize| {
            fields.get(index).and_then(|field| field.parse::<f64>().ok()).unwrap_or(0.0) / TICKS_PER_SECOND
        };
        Split { user_seconds: seconds(first), system_seconds: seconds(first + 1) }
    }
}

/// Busy and stolen time of the whole machine since its start.
#[derive(Clone, Copy, Debug, Default)]
pub struct Machine {
    pub busy_seconds: f64,
    pub steal_seconds: f64,
}

impl Machine {
    pub fn read() -> Machine {
        let text = fs::read_to_string("/proc/stat").unwrap_or_default();
        let fields: Vec<f64> = text.split_whitespace().skip(1).take(8).filter_map(|field| field.parse().ok()).collect();
        let at = |index: usize| fields.get(index).copied().unwrap_or(0.0) / TICKS_PER_SECOND;
        // user, nice, system, idle, iowait, irq, softirq, steal
        Machine { busy_seconds: at(0) + at(1) + at(2) + at(5) + at(6), steal_seconds: at(7) }
    }
}

/// A process and its living descendants.
pub fn tree(pid: u32) -> Vec<u32> {
    let mut pids = vec![pid];
    let mut next = 0;
    while let Some(&pid) = pids.get(next) {
        next += 1;
        let Ok(threads) = fs::read_dir(format!("/proc/{pid}/task")) else { continue };
        for thread in threads.flatten() {
            let text = fs::read_to_string(thread.path().join("children")).unwrap_or_default();
            pids.extend(text.split_whitespace().filter_map(|word| word.parse::<u32>().ok()));
        }
    }
    pids
}

/// The largest resident size that one process of the tree has had.
pub fn tree_peak_bytes(pid: u32) -> u64 {
    tree(pid).into_iter().map(peak_bytes).max().unwrap_or(0)
}

fn peak_bytes(pid: u32) -> u64 {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let kib = text.lines().find_map(|line| line.strip_prefix("VmHWM:")?.trim().strip_suffix("kB")?.trim().parse().ok());
    kib.unwrap_or(0_u64) << 10
}

/// Whether something listens on a TCP port. Looks into the process's own network namespace.
pub fn is_listening(pid: u32, port: u16) -> bool {
    const LISTEN: &str = "0A";
    let wanted = format!(":{port:04X}");
    ["tcp", "tcp6"].iter().any(|table| {
        let text = fs::read_to_string(format!("/proc/{pid}/net/{table}")).unwrap_or_default();
        text.lines().any(|line| {
            let mut fields = line.split_whitespace().skip(1);
            fields.next().is_some_and(|local| local.ends_with(&wanted)) && fields.nth(1) == Some(LISTEN)
        })
    })
}

/// Of this process's threads, without its children.
pub(crate) fn own_cpu_seconds() -> f64 {
    let usage = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    usage.tv_sec as f64 + usage.tv_nsec as f64 / 1e9
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_counted_after_the_last_parenthesis_of_the_name() {
        let stat = Stat::parse("7 (a) b) S 1 2 3 4 5 6 7 8 9 10 100 20 3 1 0 0 1 0 4711 0").unwrap();
        assert_eq!((stat.cpu_seconds, stat.start_time_ticks), (1.24, 4711));
        assert!(Stat::parse("7 (short) S 1").is_none());
    }
}
