//! What is measured: paths and storages, data sets, and for each of them the settings that are tried, all named before anything
//! runs.

use std::fmt;
use std::time::Duration;

use lab::scenario::Scenario;
use lab::storage::StorageProfile;
use serde::{Deserialize, Serialize};

use crate::error::Result;
use crate::sweep::Condition;

/// At most so many settings are tried in a cell, beside the plan, the defaults and the rule.
pub const SETTINGS_MAX: usize = 40;

/// Where a cell's storage is slow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Slow {
    Nowhere,
    Source,
    Destination,
}

/// A path and a storage.
#[derive(Clone, Copy, Debug)]
pub struct Cell {
    pub name: &'static str,
    mbit: u64,
    rtt_ms: u64,
    loss: f64,
    has_stock_hosts: bool,
    pub slow: Slow,
    latency_ms: u64,
    /// Of the slow storage; 0 for no limit.
    megabytes: u64,
}

const fn path(name: &'static str, mbit: u64, rtt_ms: u64, loss: f64) -> Cell {
    let (slow, latency_ms, megabytes, has_stock_hosts) = (Slow::Nowhere, 0, 0, false);
    Cell { name, mbit, rtt_ms, loss, has_stock_hosts, slow, latency_ms, megabytes }
}

const fn storage(name: &'static str, slow: Slow, latency_ms: u64, megabytes: u64, path: Cell) -> Cell {
    Cell { name, slow, latency_ms, megabytes, ..path }
}

pub const CELLS: [Cell; 14] = [
    path("campus", 2000, 1, 0.0),
    path("region", 1000, 10, 0.0),
    path("continent", 1000, 74, 0.0),
    path("thin", 200, 74, 0.0),
    path("ocean", 300, 200, 0.0),
    path("lossy-region", 500, 20, 1e-3),
    path("lossy-continent", 500, 74, 1e-4),
    Cell { has_stock_hosts: true, ..path("stock-hosts", 1000, 74, 0.0) },
    storage("latent-destination", Slow::Destination, 20, 0, path("", 2000, 1, 0.0)),
    storage("slow-destination", Slow::Destination, 5, 60, path("", 2000, 1, 0.0)),
    storage("latent-source", Slow::Source, 20, 0, path("", 2000, 1, 0.0)),
    storage("slow-source", Slow::Source, 5, 60, path("", 2000, 1, 0.0)),
    storage("slow-destination-far", Slow::Destination, 10, 60, path("", 1000, 74, 0.0)),
    storage("latent-source-far", Slow::Source, 10, 0, path("", 1000, 74, 0.0)),
];

/// Data sets: their names, and the size of a file; 0 is a mixture.
pub const SETS: [(&str, u64); 3] = [("large", 32 << 20), ("small", 32 << 10), ("mixed", 0)];
/// A run should last about this long at the nominal rate of its cell.
const RUN_SECONDS: u64 = 6;
/// Two cores do not move more, and small files are worth more time than bytes.
const NOMINAL_MAX: u64 = 100_000_000;
const SMALL_FILES_MAX: u64 = 6_000;

impl Cell {
    pub fn scenario(&self, seed: u64) -> Result<Scenario> {
        let condition = Condition {
            bits_per_second: Some(self.mbit * 1_000_000),
            rtt_us: self.rtt_ms * 1000,
            loss: self.loss,
            has_stock_hosts: self.has_stock_hosts,
            ..Condition::default()
        };
        condition.scenario(seed)
    }

    pub fn storage(&self) -> Option<StorageProfile> {
        let latency = Duration::from_millis(self.latency_ms);
        let profile = StorageProfile {
            read_latency: latency,
            write_latency: latency,
            bytes_per_second: Some(self.megabytes * 1_000_000).filter(|rate| *rate > 0),
            ..StorageProfile::default()
        };
        (self.slow != Slow::Nowhere).then_some(profile)
    }

    fn nominal(&self) -> u64 {
        let storage = if self.megabytes > 0 { self.megabytes * 1_000_000 } else { u64::MAX };
        (self.mbit * 125_000).min(storage).min(NOMINAL_MAX)
    }

    /// Where each operation takes long, files do: eight streams with four operations for each.
    fn small_files_max(&self) -> u64 {
        match self.latency_ms {
            0 => SMALL_FILES_MAX,
            latency_ms => (RUN_SECONDS * 1000 * 2 / latency_ms).min(SMALL_FILES_MAX),
        }
    }

    /// What `thalweg gen` makes of a data set for this cell.
    pub fn spec(&self, set: &str, file_bytes: u64) -> String {
        let bytes = self.nominal() * RUN_SECONDS;
        match set {
            "mixed" => {
                let large = (bytes / 2 / (32 << 20)).max(1);
                format!("{large}x32MiB,{}x256KiB", (bytes / 2 / (256 << 10)).clamp(1, self.small_files_max() / 2))
            }
            "small" => format!("{}x32KiB", (bytes / file_bytes).clamp(1, self.small_files_max())),
            _ => format!("{}x32MiB", (bytes / file_bytes).max(2)),
        }
    }

    /// Every setting that is tried here: each number of streams, and with a few of them what else may be set.
    pub fn settings(&self) -> Vec<Setting> {
        const COMPRESSED: &[(&str, &[&str])] = &[("auto compress", &["--compress=auto"])];
        const ENGINES: &[(&str, &[&str])] = &[
            ("pread", &["--engine=pread"]),
            ("uring 4", &["--engine=uring", "--depth=4"]),
            ("uring 8", &["--engine=uring", "--depth=8"]),
            ("uring 32", &["--engine=uring", "--depth=32"]),
        ];
        let (streams, few, ways): (&[u32], _, _) = match self.slow {
            Slow::Nowhere => (&[1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64], [4, 8], COMPRESSED),
            _ => (&[1, 2, 4, 8, 16, 32], [4, 16], ENGINES),
        };
        let plain = streams.iter().map(|n| Setting::of(*n, "auto", &[]));
        let others = ways.iter().flat_map(|(way, flags)| few.map(|n| Setting::of(n, way, flags)));
        plain.chain(others).take(SETTINGS_MAX).collect()
    }
}

/// Flags of `cp`, by a name.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Setting {
    pub name: String,
    pub flags: Vec<String>,
}

impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

pub const PLAN: &str = "plan";
pub const DEFAULT: &str = "default";
pub const RULE: &str = "rule of Globus";

impl Setting {
    fn of(streams: u32, way: &str, flags: &[&str]) -> Setting {
        let flags = [format!("--streams={streams}")].into_iter().chain(flags.iter().map(|flag| (*flag).to_owned()));
        Setting { name: format!("{streams} streams, {way}"), flags: flags.collect() }
    }

    /// What is held against the search: the plan, what `cp` chooses, and the published rule of Globus, whose files at a time
    /// and streams for each are streams in all here.
    pub fn judged(files: u64, bytes: u64) -> [Setting; 3] {
        let mean = bytes / files.max(1);
        let streams = match mean {
            _ if files > 100 && mean < 50_000_000 => 2 * 2,
            _ if mean > 250_000_000 => 2 * 8,
            _ => 2 * 4,
        };
        let named = |name: &str, flags: Vec<String>| Setting { name: name.to_owned(), flags };
        [
            named(PLAN, vec!["--plan=auto".to_owned()]),
            named(DEFAULT, Vec::new()),
            named(RULE, vec![format!("--streams={streams}")]),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_are_of_twelve_kinds_at_least_and_name_at_most_forty_settings() {
        let mut names: Vec<_> = CELLS.iter().map(|cell| cell.name).collect();
        names.sort_unstable();
        names.dedup();
        assert!(names.len() == CELLS.len() && names.len() >= 12);
        for cell in CELLS {
            let mut settings: Vec<_> = cell.settings().into_iter().map(|setting| setting.name).collect();
            settings.sort();
            let count = settings.len();
            settings.dedup();
            assert!(settings.len() == count && (14..=SETTINGS_MAX).contains(&count), "{}: {count}", cell.name);
            assert!(cell.scenario(1).unwrap().check(8 << 30).is_ok(), "{}", cell.name);
            for (set, file_bytes) in SETS {
                let plan = crate::dataset::Plan::parse(&cell.spec(set, file_bytes), 1000, 1).unwrap();
                let bytes = plan.totals().bytes;
                assert!((1 << 20..1 << 30).contains(&bytes), "{} {set}: {bytes}", cell.name);
            }
        }
    }

    #[test]
    fn the_rule_is_the_published_one() {
        let rule = |files, bytes| Setting::judged(files, bytes)[2].flags[0].clone();
        assert_eq!(rule(1000, 1_000_000_000), "--streams=4");
        assert_eq!(rule(10, 10_000_000_000), "--streams=16");
        assert_eq!(rule(10, 1_000_000_000), "--streams=8");
    }
}
