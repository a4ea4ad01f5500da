//! Reproducible data sets, written as fast as the storage takes them.
//!
//! Invariants:
//! - The same specification, seed and directory size give the same paths and bytes on any machine.
//! - Content does not compress, and no two blocks of a set are equal.
//! - Nothing is written when the file system lacks the bytes or the inodes, and no existing file is replaced.
//!
//! Not here: growing files, links, special names; those belong to the tests that need them.

mod content;
mod spec;
mod write;

pub(crate) use content::Content;
pub use spec::{Group, Plan, Sizes, Totals};

use std::path::{Path, PathBuf};
use std::time::Instant;

use crate::error::{Error, Kind, Result};
use crate::manifest::Manifest;

/// Files of one directory unless the caller says otherwise.
pub const PER_DIR_DEFAULT: u64 = 1_000;
pub const SEED_DEFAULT: u64 = 1;

#[derive(Clone, Debug)]
pub struct Options {
    /// `large`, `small`, `tiny`, `mixed`, `NxSIZE` (`50000x1KiB`), or several separated by commas.
    pub spec: String,
    pub root: PathBuf,
    pub per_dir: u64,
    pub seed: u64,
    /// 0: one thread for each core.
    pub threads: usize,
    /// Where to write the digests of the set.
    pub manifest: Option<PathBuf>,
    /// Only count.
    pub is_dry_run: bool,
}

impl Options {
    pub fn new(spec: impl Into<String>, root: impl Into<PathBuf>) -> Options {
        Options {
            spec: spec.into(),
            root: root.into(),
            per_dir: PER_DIR_DEFAULT,
            seed: SEED_DEFAULT,
            threads: 0,
            manifest: None,
            is_dry_run: false,
        }
    }
}

#[derive(Clone, Debug)]
pub struct Outcome {
    pub totals: Totals,
    /// Free bytes of the file system before anything was written.
    pub free_bytes: u64,
    /// Zero in a dry run.
    pub seconds: f64,
}

/// Writes a data set, or only counts it.
pub fn run(options: &Options, progress: &mut dyn FnMut(&str)) -> Result<Outcome> {
    let plan = Plan::parse(&options.spec, options.per_dir, options.seed)?;
    let totals = plan.totals();
    let free = Free::at(&options.root)?;
    if options.is_dry_run {
        return Ok(Outcome { totals, free_bytes: free.bytes, seconds: 0.0 });
    }
    free.check(&totals, &options.root)?;
    let started = Instant::now();
    let threads = if options.threads > 0 { options.threads } else { cores() };
    let job = write::Job { plan: &plan, root: &options.root, threads, with_digests: options.manifest.is_some() };
    let entries = job.run(progress)?;
    if let Some(path) = &options.manifest {
        std::fs::write(path, Manifest::new(entries).render()).map_err(Error::io("write", path))?;
    }
    Ok(Outcome { totals, free_bytes: free.bytes, seconds: started.elapsed().as_secs_f64() })
}

pub(crate) fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// What a file system has left.
pub(crate) struct Free {
    pub bytes: u64,
    /// Zero where the file system makes inodes as needed.
    inodes: u64,
    counts_inodes: bool,
}

impl Free {
    /// Looks at the nearest existing ancestor, because the root itself may not exist yet.
    pub fn at(root: &Path) -> Result<Free> {
        let mut path = root;
        loop {
            match rustix::fs::statvfs(if path.as_os_str().is_empty() { Path::new(".") } else { path }) {
                Ok(found) => {
                    let bytes = found.f_bavail.saturating_mul(found.f_frsize);
                    return Ok(Free { bytes, inodes: found.f_favail, counts_inodes: found.f_files > 0 });
                }
                Err(rustix::io::Errno::NOENT) if path.parent().is_some() => path = path.parent().expect("checked"),
                Err(errno) => return Err(Error::io("look up", path)(errno)),
            }
        }
    }

    fn check(&self, totals: &Totals, root: &Path) -> Result<()> {
        let refuse = |cause: String| Err(Error::new(Kind::NoSpace, "write a data set to", root.display(), cause));
        if totals.space_bytes > self.bytes {
            let (needed, free) =
                (model::quantity::ByteCount(totals.space_bytes), model::quantity::ByteCount(self.bytes));
            return refuse(format!("needs {needed}, {free} free"));
        }
        let inodes = totals.files + totals.directories;
        if self.counts_inodes && inodes > self.inodes {
            return refuse(format!("needs {inodes} inodes, {} free", self.inodes));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn generate(spec: &str, seed: u64, threads: usize) -> (tempfile::TempDir, Manifest) {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("set");
        let options = Options {
            threads,
            seed,
            manifest: Some(dir.path().join("manifest")),
            per_dir: 10,
            ..Options::new(spec, &root)
        };
        run(&options, &mut |_| ()).unwrap();
        let written = Manifest::parse(&std::fs::read_to_string(dir.path().join("manifest")).unwrap()).unwrap();
        assert_eq!(Manifest::of_tree(&root, 2).unwrap(), written);
        (dir, written)
    }

    #[test]
    fn the_same_seed_gives_the_same_set_whatever_the_thread_count() {
        let spec = "37x1KiB,3x70000";
        let (_one, first) = generate(spec, 5, 1);
        assert_eq!(first, generate(spec, 5, 4).1);
        assert_ne!(first, generate(spec, 6, 2).1);
    }

    #[test]
    fn no_two_blocks_of_a_set_are_equal() {
        let (dir, _) = generate("4x64KiB,20x4KiB", 1, 2);
        let mut blocks = std::collections::HashSet::new();
        for entry in Manifest::of_tree(&dir.path().join("set"), 1).unwrap().entries {
            let path = String::from_utf8(entry.path).unwrap();
            let bytes = std::fs::read(dir.path().join("set").join(path)).unwrap();
            for block in bytes.chunks(512) {
                assert!(blocks.insert(block.to_vec()));
            }
        }
        assert_eq!(blocks.len(), 4 * 128 + 20 * 8);
    }

    #[test]
    fn an_existing_file_is_not_replaced() {
        let (dir, _) = generate("3x10", 1, 1);
        let error = run(&Options::new("3x10", dir.path().join("set")), &mut |_| ()).unwrap_err();
        assert!(error.chain().contains("File exists"), "{}", error.chain());
    }

    #[test]
    fn a_set_larger_than_the_free_space_is_refused_before_anything_is_written() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("a/b");
        let error = run(&Options::new("1000000x1TiB", &root), &mut |_| ()).unwrap_err();
        assert_eq!(error.kind, Kind::NoSpace);
        assert!(!dir.path().join("a").exists());
        let dry = Options { is_dry_run: true, ..Options::new("1000000x1TiB", &root) };
        assert_eq!(run(&dry, &mut |_| ()).unwrap().totals.bytes, 1_000_000 << 40);
    }
}
