//! Reproducible data sets, written as fast as the storage takes them.
//!
//! Invariants:
//! - The same specification, scale, content, seed and directory size give the same paths and bytes on any machine.
//! - Unless content that compresses was asked for, it does not, and no two blocks of a set are equal.
//! - Nothing is written when the file system lacks the bytes or the inodes, and no existing file is replaced.
//!
//! Not here: growing files and special files; those belong to the tests that need them.

mod spec;
mod preset;
mod scale;
mod object;
mod plan;
mod tree;
mod write;
mod space;

pub use content::Content;
pub(crate) use content::Stream;
pub use object::Object;
pub use plan::{Directory, Group, Layout, Plan, Sizes, Totals};
pub use scale::Scale;
pub(crate) use space::Free;

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Instant;

use crate::error::{Error, Result};
use crate::manifest::Manifest;

/// Files of one directory unless the caller says otherwise.
pub const PER_DIR_DEFAULT: u64 = 1_000;
pub const SEED_DEFAULT: u64 = 1;

/// Reads what the files of a set hold, as a user writes it.
pub fn read_content(text: &str) -> Result<Content> {
    let advice = "give random, zero, or a ratio from 1:1 to 20:1 such as 2:1";
    Content::parse(text).ok_or_else(|| Error::usage(format!("content {text:?}"), advice))
}

#[derive(Clone, Debug)]
pub struct Options {
    /// A name of `preset`, `NxSIZE` (`50000x1KiB`), or several separated by commas; see `spec`.
    pub spec: String,
    /// Every part this many times.
    pub repeat: u64,
    /// Then this share of it.
    pub scale: Scale,
    pub content: Content,
    pub root: PathBuf,
    pub per_dir: u64,
    pub seed: u64,
    /// 0: one thread for each core.
    pub threads: usize,
    /// Where to write the digests of the set; must not exist.
    pub manifest: Option<PathBuf>,
    /// Only count.
    pub is_dry_run: bool,
}

impl Options {
    pub fn new(spec: impl Into<String>, root: impl Into<PathBuf>) -> Options {
        Options {
            spec: spec.into(),
            repeat: 1,
            scale: Scale::WHOLE,
            content: Content::Random,
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
    /// By name, in order.
    pub sets: Vec<(String, Totals)>,
    /// Free bytes of the file system before anything was written.
    pub free_bytes: u64,
    /// Zero in a dry run.
    pub seconds: f64,
}

/// Writes a data set, or only counts it.
pub fn run(options: &Options, progress: &mut dyn FnMut(&str)) -> Result<Outcome> {
    let plan = Plan::parse_scaled(&options.spec, options.per_dir, options.seed, options.repeat, options.scale)?;
    let (totals, sets) = (plan.totals(), plan.sets());
    let free = Free::at(&options.root)?;
    if options.is_dry_run {
        return Ok(Outcome { totals, sets, free_bytes: free.bytes, seconds: 0.0 });
    }
    free.check(&totals, &options.root)?;
    let started = Instant::now();
    let threads = if options.threads > 0 { options.threads } else { cores() };
    let (root, content, with_digests) = (&options.root, options.content, options.manifest.is_some());
    let job = write::Job { plan: &plan, root, content, threads, with_digests };
    match &options.manifest {
        Some(path) => write_listed(&job, path, progress)?,
        None => _ = job.run(progress)?,
    }
    Ok(Outcome { totals, sets, free_bytes: free.bytes, seconds: started.elapsed().as_secs_f64() })
}

/// Makes sure of the manifest's place before the long work, and leaves none behind that lists what was not written.
fn write_listed(job: &write::Job, path: &Path, progress: &mut dyn FnMut(&str)) -> Result<()> {
    let mut file = File::create_new(path).map_err(Error::io("write", path))?;
    let written = job.run(progress).and_then(|entries| {
        let text = Manifest::new(entries).render();
        file.write_all(text.as_bytes()).map_err(Error::io("write", path))
    });
    if written.is_err() {
        let _ = std::fs::remove_file(path);
    }
    written
}

pub(crate) fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Kind;
    use crate::manifest::What;

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
            assert!(matches!(entry.what, What::File { .. }));
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

    /// Races of different versions are compared: the digest of the list of a set must stay what it was in version 0.1.0.
    #[test]
    fn a_set_keeps_its_bytes_over_versions() {
        let (dir, _) = generate("37x1KiB,3x70000", 1, 2);
        let mut crc = content::Crc64::default();
        crc.update(&std::fs::read(dir.path().join("manifest")).unwrap());
        assert_eq!(format!("{:016x}", crc.finish()), "4eea458c9edf750f");
    }

    #[test]
    fn an_existing_manifest_is_not_replaced_and_nothing_is_written() {
        let (dir, _) = generate("3x10", 1, 1);
        let options =
            Options { manifest: Some(dir.path().join("manifest")), ..Options::new("3x10", dir.path().join("b")) };
        assert!(run(&options, &mut |_| ()).is_err());
        assert!(!dir.path().join("b").exists());
    }

    #[test]
    fn the_long_tailed_set_has_links_holes_and_empty_files_and_is_listed_whole() {
        let (dir, listed) = generate("longtail@1/40", 3, 2);
        let root = dir.path().join("set");
        let totals = Plan::parse("longtail@1/40", 10, 3).unwrap().totals();
        let links = listed.entries.iter().filter(|entry| matches!(entry.what, What::Link { .. })).count() as u64;
        assert_eq!((totals.files + totals.links, totals.links), (listed.entries.len() as u64, links));
        assert!(listed.entries.iter().any(|entry| matches!(entry.what, What::File { bytes: 0, .. })));
        let paths = listed.entries.iter().map(|entry| root.join(tree::os(entry.path.clone())));
        let holes = paths.filter(|path| {
            use std::os::unix::fs::MetadataExt;
            let found = path.symlink_metadata().unwrap();
            found.len() >= 8 << 20 && found.blocks() * 512 <= found.len() / 2
        });
        assert_eq!(holes.count(), 1);
        let lost = listed.entries.iter().find(|entry| matches!(entry.what, What::Link { .. })).unwrap();
        std::fs::remove_file(root.join(tree::os(lost.path.clone()))).unwrap();
        assert_eq!(listed.differences(&Manifest::of_tree(&root, 2).unwrap()).len(), 1);
    }

    #[test]
    fn directories_are_as_many_as_counted() {
        fn count(dir: &Path) -> u64 {
            let below = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap());
            below.filter(|entry| entry.file_type().unwrap().is_dir()).map(|entry| 1 + count(&entry.path())).sum()
        }
        for spec in ["longtail@1/40", "mixed@2^-8,30x1", "bulk:1KiB..4KiB@2^-15", "streaming:1TiB@2^-30,5x1"] {
            let (dir, _) = generate(spec, 1, 2);
            let counted = Plan::parse(spec, 10, 1).unwrap().totals().directories;
            assert_eq!(count(&dir.path().join("set")), counted, "{spec}");
        }
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
