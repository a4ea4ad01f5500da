//! From raw figures to medians, percentiles, the side that binds, the verdict and the doubts.

use serde::Serialize;

use super::device::Storage;
use super::latency::{Histogram, Percentiles};
use super::measured::{Call, Measured, Operation};
use super::options::{Cache, Engine, Options, Plan, Sync};
use super::verdict::{self, Binds, Ladders, Verdict};
use crate::environment::Environment;
use crate::roof::Ceilings;
use crate::statistics::Spread;

/// A share of reads that the kernel had without asking storage is noise below this.
const CACHED_SHARE_MAX: f64 = 0.05;
const SECONDS_MIN: f64 = 0.1;

#[derive(Clone, Debug, Serialize)]
pub struct Outcome {
    pub options: Options,
    pub plan: Plan,
    pub environment: Environment,
    pub storage: Storage,
    pub rows: Vec<Row>,
    /// Of the largest size; None unless both sides were measured.
    pub binds: Option<Binds>,
    pub verdict: Option<Verdict>,
    pub warnings: Vec<String>,
    /// Raw, the discarded round included.
    #[serde(skip)]
    pub all: Vec<Measured>,
}

/// One operation on files of one size: its counted rounds.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    pub operation: Operation,
    pub file_bytes: u64,
    pub files: u64,
    pub seconds: Spread,
    pub bytes_per_second: Spread,
    pub operations_per_second: Spread,
    pub files_per_second: Spread,
    pub cpu_seconds_per_gb: Option<f64>,
    pub cpu_us_per_file: f64,
    /// Of the bytes read, what storage was not asked for; None where the kernel does not say.
    pub cached_share: Option<f64>,
    pub calls: Vec<(Call, Percentiles)>,
}

impl Outcome {
    pub(super) fn of(
        options: &Options,
        plan: Plan,
        environment: Environment,
        storage: Storage,
        all: Vec<Measured>,
        ladders: Option<Ladders>,
    ) -> Outcome {
        let rows = rows(&all, &storage);
        let warnings = warnings(options, &environment, &storage, &rows, &all);
        let mut outcome = Outcome {
            options: options.clone(),
            plan,
            environment,
            storage,
            rows,
            binds: None,
            verdict: None,
            warnings,
            all,
        };
        let (read, write) = (outcome.rate(Operation::Read), outcome.rate(Operation::Write));
        outcome.binds = verdict::binds(read, write);
        outcome.verdict = options.target_bytes_per_second.zip(ladders).map(|(target, ladders)| {
            let judge = |operation, rate, ladder| {
                verdict::judge(operation, rate, options.block_bytes, options.concurrency(), target, ladder)
            };
            let sides = vec![judge(Operation::Read, read, ladders.read), judge(Operation::Write, write, ladders.write)];
            Verdict::of(target, sides)
        });
        outcome
    }

    /// Median of the largest size in bytes per second; zero if it was not measured.
    pub fn rate(&self, operation: Operation) -> f64 {
        let of_operation = self.rows.iter().filter(|row| row.operation == operation);
        of_operation.max_by_key(|row| row.file_bytes).map_or(0.0, |row| row.bytes_per_second.median)
    }

    /// What storage adds to the roof of a transfer; cores, stages and link come from elsewhere.
    pub fn ceilings(&self, is_durable: bool) -> Ceilings {
        let operation = if is_durable { Operation::PublishDurable } else { Operation::Publish };
        let publish = self.rows.iter().find(|row| row.operation == operation);
        let measured = |rate: f64| (rate > 0.0).then_some(rate);
        Ceilings {
            publish_files_per_second: publish.map(|row| row.files_per_second.median),
            read_bytes_per_second: measured(self.rate(Operation::Read)),
            write_bytes_per_second: measured(self.rate(Operation::Write)),
            ..Ceilings::default()
        }
    }

    /// What every figure of this outcome was measured with, in words.
    pub fn settings(&self) -> String {
        let options = &self.options;
        let threads = if options.threads == 1 { "1 thread".into() } else { format!("{} threads", options.threads) };
        let engine = match options.engine {
            Engine::Plain => "pread/pwrite".to_owned(),
            Engine::Uring => format!("io_uring with a depth of {}", options.depth),
        };
        let path = if options.is_direct { "past the page cache (O_DIRECT)" } else { "through the page cache" };
        let sync = match options.sync {
            Sync::Never => "nothing synced",
            Sync::File => "each file synced before its close, inside the time",
            Sync::End => "synced after the last write, inside the time",
        };
        let cache = match options.cache {
            Cache::Warm => "reads as the cache was left",
            Cache::Dropped => "cache of each file dropped before reading",
            Cache::Machine => "caches of the machine dropped before reading",
        };
        let block = model::quantity::ByteCount(options.block_bytes);
        format!("{threads}, {engine}, blocks of {block}, {path}; {sync}; {cache}")
    }
}

fn rows(all: &[Measured], storage: &Storage) -> Vec<Row> {
    let mut keys: Vec<(Operation, u64)> = Vec::new();
    for measured in all {
        let key = (measured.operation, measured.file_bytes);
        if !keys.contains(&key) {
            keys.push(key);
        }
    }
    keys.into_iter().filter_map(|key| row(all, key, storage)).collect()
}

fn row(all: &[Measured], (operation, file_bytes): (Operation, u64), storage: &Storage) -> Option<Row> {
    let is_of_row = |m: &&Measured| m.operation == operation && m.file_bytes == file_bytes && m.round > 0;
    let counted: Vec<&Measured> = all.iter().filter(is_of_row).collect();
    let spread = |value: fn(&Measured) -> f64| Spread::of(counted.iter().map(|measured| value(measured)));
    let total = |value: fn(&Measured) -> f64| counted.iter().map(|measured| value(measured)).sum::<f64>();
    let (bytes, files, cpu) = (total(|m| m.bytes as f64), total(|m| m.files as f64), total(|m| m.cpu_seconds));
    let mut calls: Vec<(Call, Histogram)> = Vec::new();
    for (call, histogram) in counted.iter().flat_map(|measured| &measured.calls) {
        match calls.iter_mut().find(|(known, _)| known == call) {
            Some((_, merged)) => merged.merge(histogram),
            None => calls.push((*call, histogram.clone())),
        }
    }
    // The kernel counts what its block layer fetches: nothing of a network file system, of one in user space, of memory.
    let fetched: Option<u64> = counted.iter().map(|measured| measured.fetched_bytes).sum();
    let fetched = fetched.filter(|_| !storage.devices.is_empty());
    Some(Row {
        operation,
        file_bytes,
        files: counted.first()?.files,
        seconds: spread(|m| m.seconds)?,
        bytes_per_second: spread(Measured::bytes_per_second)?,
        operations_per_second: spread(Measured::operations_per_second)?,
        files_per_second: spread(Measured::files_per_second)?,
        cpu_seconds_per_gb: (bytes > 0.0).then(|| cpu * 1e9 / bytes),
        cpu_us_per_file: cpu * 1e6 / files.max(1.0),
        cached_share: fetched.filter(|_| bytes > 0.0).map(|fetched| (1.0 - fetched as f64 / bytes).max(0.0)),
        calls: calls.into_iter().map(|(call, histogram)| (call, histogram.percentiles())).collect(),
    })
}

fn warnings(
    options: &Options,
    environment: &Environment,
    storage: &Storage,
    rows: &[Row],
    all: &[Measured],
) -> Vec<String> {
    let mut warnings = Vec::new();
    let has = |operation| rows.iter().any(|row| row.operation == operation);
    if storage.is_memory {
        warnings.push(format!("{} is memory: these are not figures of a disk", storage.file_system));
    } else if storage.devices.is_empty() && has(Operation::Read) {
        warnings.push("no block device is known here: whether a cache answered the reads cannot be told".into());
    }
    if options.sync == Sync::Never && has(Operation::Write) && !storage.is_memory {
        let whose = if options.is_direct { "the cache of the device" } else { "the page cache" };
        warnings.push(format!("nothing was synced: writes may have ended in {whose}"));
    }
    for row in rows.iter().filter(|row| row.operation == Operation::Read) {
        if let Some(share) = row.cached_share.filter(|share| *share > CACHED_SHARE_MAX) {
            let size = model::quantity::ByteCount(row.file_bytes);
            warnings.push(format!("the page cache answered {:.0} % of the reads of {size} files", share * 100.0));
        }
    }
    if environment.is_virtual && !storage.is_memory && !storage.devices.is_empty() {
        warnings.push("this is a virtual machine: its host's cache may have answered in place of the disk".into());
    }
    for row in rows.iter().filter(|row| row.seconds.median < SECONDS_MIN && row.bytes_per_second.median > 0.0) {
        let size = model::quantity::ByteCount(row.file_bytes);
        let text = format!("{} of {size} files took {:.3} s only: raise the volume", row.operation, row.seconds.median);
        warnings.push(text);
    }
    let counted = || all.iter().filter(|measured| measured.round > 0);
    let disturbed = counted().filter(|measured| measured.is_disturbed()).count();
    if disturbed > 0 {
        warnings
            .push(format!("other programs used the machine during {disturbed} of {} measurements", counted().count()));
    }
    let cut = counted().filter(|measured| measured.is_cut).count();
    if cut > 0 {
        warnings.push(format!("{cut} measurements ended at the limit of {} s", options.limit.as_secs()));
    }
    warnings
}
