//! What a figure depends on besides the tools: the machine and the day.

use std::fs;
use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Environment {
    /// UTC, `2026-03-21 14:05`.
    pub started: String,
    pub cpu: String,
    pub cores: usize,
    pub memory_bytes: u64,
    pub kernel: String,
    pub is_virtual: bool,
    /// Size of the pages that a tmpfs of this kernel uses, as the kernel words it.
    pub shmem_huge_pages: String,
    /// On the link between the two hosts; empty without one.
    pub congestion_control: String,
    /// What lies between the two hosts; empty without them.
    pub network: String,
    pub file_system: String,
}

impl Environment {
    pub fn read() -> Environment {
        let cpuinfo = read("/proc/cpuinfo");
        let field = |name: &str| {
            let line = cpuinfo.lines().find(|line| line.split(':').next().is_some_and(|key| key.trim() == name))?;
            line.split_once(':').map(|(_, value)| value.trim().to_owned())
        };
        let cpu = ["model name", "cpu family", "model"].map(|name| field(name).unwrap_or_else(|| "?".into()));
        let total = read("/proc/meminfo").split_whitespace().nth(1).and_then(|kib| kib.parse::<u64>().ok());
        let shmem = read("/sys/kernel/mm/transparent_hugepage/shmem_enabled");
        let chosen = shmem.split(['[', ']']).nth(1).unwrap_or("unknown").to_owned();
        Environment {
            started: utc(SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())),
            cpu: format!("{} (family {}, model {})", cpu[0], cpu[1], cpu[2]),
            cores: crate::dataset::cores(),
            memory_bytes: total.unwrap_or(0) << 10,
            kernel: rustix::system::uname().release().to_string_lossy().into_owned(),
            is_virtual: cpuinfo.split_whitespace().any(|flag| flag == "hypervisor"),
            shmem_huge_pages: chosen,
            congestion_control: String::new(),
            network: String::new(),
            file_system: String::new(),
        }
    }
}

fn read(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

/// Civil date from days since 1970, after the era arithmetic that every proleptic Gregorian conversion uses.
fn utc(seconds: u64) -> String {
    let (days, rest) = (seconds / 86_400, seconds % 86_400);
    let shifted = days + 719_468;
    let (era, day_of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02} {:02}:{:02}", rest / 3_600, rest / 60 % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_become_the_civil_date() {
        assert_eq!(utc(0), "1970-01-01 00:00");
        assert_eq!(utc(951_782_399), "2000-02-28 23:59");
        assert_eq!(utc(951_782_400), "2000-02-29 00:00");
        assert_eq!(utc(1_774_101_900), "2026-03-21 14:05");
    }
}
