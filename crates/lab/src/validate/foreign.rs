//! What others take of the processors while a gate measures.
//!
//! Counted are all programs but this process, with children that ended, and what the host of a virtual machine took away.
//! The kernel's own threads are not: the packets under test keep them busy.

use std::fs;
use std::time::Instant;

/// Of the times in /proc, on every architecture that this runs on.
const TICKS_PER_SECOND: f64 = 100.0;
/// PF_KTHREAD of the kernel.
const KERNEL_THREAD: u64 = 0x0020_0000;

pub struct Usage {
    at: Instant,
    foreign_ticks: u64,
}

impl Usage {
    pub fn now() -> Usage {
        let own = std::process::id().to_string();
        let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
        let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
        let others = names.filter(|name| name.bytes().all(|byte| byte.is_ascii_digit()) && *name != own);
        let texts = others.filter_map(|name| fs::read_to_string(format!("/proc/{name}/stat")).ok());
        let programs: u64 = texts.filter_map(|text| ticks(&text)).sum();
        let machine = fs::read_to_string("/proc/stat").unwrap_or_default();
        Usage { at: Instant::now(), foreign_ticks: programs + stolen_ticks(&machine) }
    }

    /// Of one processor, on average.
    pub fn foreign_since(&self, earlier: &Usage) -> f64 {
        // A program that ended without anyone waiting for it takes its time with it.
        let ticks = self.foreign_ticks.saturating_sub(earlier.foreign_ticks);
        ticks as f64 / TICKS_PER_SECOND / (self.at - earlier.at).as_secs_f64().max(0.01)
    }
}

/// User and system time of a process and of its children that ended; none for a thread of the kernel.
fn ticks(stat: &str) -> Option<u64> {
    let after_name = &stat[stat.rfind(')')? + 1..];
    let field = |number: usize| after_name.split_whitespace().nth(number - 3)?.parse::<u64>().ok();
    (field(9)? & KERNEL_THREAD == 0).then_some(())?;
    (14..=17).map(field).sum()
}

fn stolen_ticks(stat: &str) -> u64 {
    stat.lines().next().and_then(|line| line.split_whitespace().nth(8)?.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_count_with_their_children_and_kernel_threads_do_not() {
        let program = "7 (a) b) S 1 7 7 0 -1 4194304 0 0 0 0 10 20 300 4000 20 0 1 0 5";
        assert_eq!(ticks(program), Some(4330));
        let kernel_thread = program.replace("4194304", "69238848");
        assert_eq!((ticks(&kernel_thread), ticks("garbage")), (None, None));
        assert_eq!(stolen_ticks("cpu  1 2 3 4 5 6 7 88 0 0\ncpu0 1"), 88);
    }
}
