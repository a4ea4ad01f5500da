//! What is measured, and what that takes: settings, sizes of a sweep, files and space.

use std::path::PathBuf;
use std::time::Duration;

use model::quantity::{ByteCount, GIB, MIB, parse_bytes};
use serde::Serialize;

use crate::error::{Error, Result};

/// Of a ladder of rising concurrency.
pub(super) const LADDER_THREADS_MAX: usize = 64;
const KIB: u64 = 1 << 10;
/// Files that are neither few nor large are left until the end of a measurement: deleting many of them and creating others
/// near by makes ext4 many times slower.
pub(super) const FEW_FILES_MAX: u64 = 1_000;
pub const ROUNDS_DEFAULT: u32 = 3;
pub const VOLUME_BYTES_DEFAULT: u64 = GIB;
pub const FILES_MAX_DEFAULT: u64 = 10_000;
pub const METADATA_FILES_DEFAULT: u64 = 10_000;
pub const PUBLISH_BYTES_DEFAULT: u64 = KIB;
pub const GROUP_FILES_DEFAULT: u64 = 1_000;
/// Direct I/O works in pieces of this size, at least.
pub(super) const ALIGNMENT_BYTES: u64 = 4 << 10;
const BLOCK_BYTES_MAX: u64 = 64 * MIB;
const THREADS_MAX: usize = 256;
const DEPTH_MAX: usize = 128;

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Engine {
    /// `pread` and `pwrite`: one operation in flight for each thread.
    Plain,
    /// io_uring: `depth` operations in flight for each thread.
    Uring,
}

/// What a written file waits for inside the measured time.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Sync {
    Never,
    /// Each file is synced before it is closed.
    File,
    /// All is synced after the last write.
    End,
}

/// What the reads find in the page cache.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Cache {
    /// Just written: whatever the kernel kept.
    Warm,
    /// Each file was synced and given up (POSIX_FADV_DONTNEED).
    Dropped,
    /// As before, and the caches of the whole machine were emptied, names and inodes with them. Needs root.
    Machine,
}

#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Options {
    #[serde(skip)]
    pub dir: PathBuf,
    /// Of the files, one measurement for each.
    pub sizes: Vec<u64>,
    /// Written and read for each size, unless that would be more than `files_max` files; at least one file.
    pub volume_bytes: u64,
    pub files_max: u64,
    pub block_bytes: u64,
    pub threads: usize,
    pub depth: usize,
    pub engine: Engine,
    pub is_direct: bool,
    pub cache: Cache,
    pub sync: Sync,
    pub with_throughput: bool,
    pub with_metadata: bool,
    pub metadata_files: u64,
    /// Of the files that are created, written and renamed.
    pub publish_bytes: u64,
    /// Files that become durable together.
    pub group_files: u64,
    /// Counted rounds; one more is run and discarded.
    pub rounds: u32,
    /// After which one operation of one round is cut short.
    pub limit: Duration,
    pub target_bytes_per_second: Option<f64>,
    pub regenerate: String,
}

impl Options {
    pub fn new(dir: impl Into<PathBuf>) -> Options {
        Options {
            dir: dir.into(),
            sizes: vec![256 * MIB],
            volume_bytes: VOLUME_BYTES_DEFAULT,
            files_max: FILES_MAX_DEFAULT,
            block_bytes: 128 * KIB,
            threads: crate::dataset::cores(),
            depth: 1,
            engine: Engine::Plain,
            is_direct: false,
            cache: Cache::Dropped,
            sync: Sync::End,
            with_throughput: true,
            with_metadata: true,
            metadata_files: METADATA_FILES_DEFAULT,
            publish_bytes: PUBLISH_BYTES_DEFAULT,
            group_files: GROUP_FILES_DEFAULT,
            rounds: ROUNDS_DEFAULT,
            limit: Duration::from_secs(60),
            target_bytes_per_second: None,
            regenerate: String::new(),
        }
    }

    pub(super) fn check(&self) -> Result<()> {
        let refuse = |subject: &str, cause: String| Err(Error::usage(subject, cause));
        if self.sizes.is_empty() || self.sizes.contains(&0) {
            return refuse("the file sizes", "there must be at least one, and none may be zero".into());
        }
        if !(1..=THREADS_MAX).contains(&self.threads) {
            return refuse("the threads", format!("must be 1 to {THREADS_MAX}"));
        }
        if !(1..=DEPTH_MAX).contains(&self.depth) {
            return refuse("the depth", format!("must be 1 to {DEPTH_MAX}"));
        }
        if self.engine == Engine::Plain && self.depth > 1 {
            let cause = "pread and pwrite have one operation in flight: raise the threads, or choose the engine uring";
            return refuse("the depth", cause.into());
        }
        if self.block_bytes == 0 || self.block_bytes > BLOCK_BYTES_MAX {
            return refuse("the block size", format!("must be 1 byte to {}", ByteCount(BLOCK_BYTES_MAX)));
        }
        let needs_alignment = self.is_direct || self.engine == Engine::Uring;
        if needs_alignment && !self.block_bytes.is_multiple_of(ALIGNMENT_BYTES) {
            return refuse("the block size", "must be a multiple of 4KiB for direct I/O and for io_uring".into());
        }
        if self.rounds == 0 || self.group_files == 0 || self.files_max == 0 {
            return refuse("the rounds, the files and the files of a group", "must be at least 1".into());
        }
        if self.with_metadata && self.metadata_files < self.threads as u64 {
            return refuse("the files of the metadata rates", "must be at least one for each thread".into());
        }
        if self.target_bytes_per_second.is_some() && !self.with_throughput {
            return refuse("the target", "needs the throughput to be measured".into());
        }
        Ok(())
    }

    /// Operations that may be in flight at once.
    pub fn concurrency(&self) -> u64 {
        (self.threads * self.depth) as u64
    }

    pub fn plan(&self) -> Plan {
        let volume = |&bytes: &u64| {
            let files = (self.volume_bytes / bytes).clamp(1, self.files_max);
            Step { file_bytes: bytes, files, bytes: files.saturating_mul(bytes) }
        };
        let steps: Vec<Step> = match self.with_throughput {
            true => self.sizes.iter().map(volume).collect(),
            false => Vec::new(),
        };
        let rounds = u64::from(self.rounds) + 1;
        let kept = steps.iter().filter(|step| step.is_kept()).map(|step| step.space_bytes().saturating_mul(rounds));
        let largest = steps.iter().filter(|step| !step.is_kept()).map(Step::space_bytes).max().unwrap_or(0);
        let publish = (blocks(self.publish_bytes) + DIRECTORY_ENTRY_BYTES) * 2 + 4 * DIRECTORY_ENTRY_BYTES;
        let metadata = if self.with_metadata { self.metadata_files.saturating_mul(publish) } else { 0 };
        let ladder = match self.target_bytes_per_second {
            // With many threads and long blocks, one block for each thread may be more.
            Some(_) => super::verdict::LADDER_BYTES_MAX.max(LADDER_THREADS_MAX as u64 * self.block_bytes),
            None => 0,
        };
        let space_bytes =
            kept.fold(largest.max(ladder), u64::saturating_add).saturating_add(metadata.saturating_mul(rounds));
        let metadata_files = if self.with_metadata { self.metadata_files } else { 0 };
        Plan { steps, rounds, metadata_files, space_bytes }
    }
}

/// Room of a file's entry, inode and share of the directory, rounded up.
const DIRECTORY_ENTRY_BYTES: u64 = 512;

fn blocks(bytes: u64) -> u64 {
    bytes.div_ceil(ALIGNMENT_BYTES).saturating_mul(ALIGNMENT_BYTES)
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Plan {
    pub steps: Vec<Step>,
    /// With the discarded one.
    pub rounds: u64,
    pub metadata_files: u64,
    /// Needed at most at one time.
    pub space_bytes: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct Step {
    pub file_bytes: u64,
    pub files: u64,
    pub bytes: u64,
}

impl Step {
    pub(super) fn is_kept(&self) -> bool {
        self.files > FEW_FILES_MAX
    }

    fn space_bytes(&self) -> u64 {
        self.files.saturating_mul(blocks(self.file_bytes).saturating_add(DIRECTORY_ENTRY_BYTES))
    }
}

/// Reads `small`, `medium`, `large`, `huge`, `all` or `FROM-TO` such as `1KiB-64MiB`, in steps of 2 or 4.
pub fn sweep_sizes(text: &str, factor: u64) -> Result<Vec<u64>> {
    const TIB: u64 = 1 << 40;
    let refuse = |cause: String| Err(Error::usage(format!("sweep {text:?}"), cause));
    if !matches!(factor, 2 | 4) {
        return refuse("the step must be 2 or 4".into());
    }
    let (first, last) = match text {
        "small" => (KIB, 512 * KIB),
        "medium" => (MIB, 512 * MIB),
        "large" => (GIB, 64 * GIB),
        "huge" => (128 * GIB, TIB),
        "all" => (KIB, TIB),
        _ => {
            let Some((first, last)) = text.split_once('-') else {
                return refuse("is not small, medium, large, huge or all, nor FROM-TO such as 1KiB-64MiB".into());
            };
            match (parse_bytes(first.trim()), parse_bytes(last.trim())) {
                (Ok(first), Ok(last)) => (first, last),
                (Err(cause), _) | (_, Err(cause)) => return refuse(cause),
            }
        }
    };
    if first == 0 || first > last {
        return refuse("must begin above zero and not end before it begins".into());
    }
    Ok(std::iter::successors(Some(first), |bytes| bytes.checked_mul(factor)).take_while(|b| *b <= last).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ranges_cover_the_31_published_sizes() {
        let all = sweep_sizes("all", 2).unwrap();
        assert_eq!((all.len(), all[0], all[30]), (31, 1 << 10, 1 << 40));
        let parts = ["small", "medium", "large", "huge"].map(|name| sweep_sizes(name, 2).unwrap()).concat();
        assert_eq!(parts, all);
        assert_eq!(sweep_sizes("1KiB-100K", 4).unwrap(), [1 << 10, 4 << 10, 16 << 10, 64 << 10]);
        for (wrong, factor) in [("tiny", 2), ("1KiB", 2), ("0-4", 2), ("8K-4K", 2), ("1K-9X", 2), ("all", 3)] {
            assert!(sweep_sizes(wrong, factor).is_err(), "{wrong}");
        }
    }

    #[test]
    fn volume_and_files_are_bounded_and_space_counts_what_is_kept() {
        let options = Options {
            sizes: vec![1 << 10, 1 << 20, 1 << 31],
            volume_bytes: 64 * MIB,
            files_max: 5_000,
            rounds: 2,
            with_metadata: false,
            ..Options::new("/")
        };
        let plan = options.plan();
        assert_eq!(plan.steps.iter().map(|step| step.files).collect::<Vec<_>>(), [5_000, 64, 1]);
        // 5,000 small files of each of three rounds stay; the one large file is the most that comes on top.
        assert_eq!(plan.space_bytes, 3 * 5_000 * (4_096 + 512) + (1 << 31) + 512);
    }

    #[test]
    fn settings_that_make_no_sense_are_refused() {
        let base = Options::new("/");
        for wrong in [
            Options { depth: 4, ..base.clone() },
            Options { block_bytes: 1_000, is_direct: true, ..base.clone() },
            Options { threads: 0, ..base.clone() },
            Options { sizes: vec![], ..base.clone() },
            Options { rounds: 0, ..base.clone() },
            Options { with_throughput: false, target_bytes_per_second: Some(1.0), ..base.clone() },
        ] {
            assert!(wrong.check().is_err(), "{wrong:?}");
        }
        assert!(base.check().is_ok());
    }
}
