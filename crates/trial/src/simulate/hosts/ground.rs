//! What is copied, and where to: a few files in a few directories, the bundles that they are cut into, and what each
//! version of one holds.
//!
//! Production code: `cluster::Cut`. The sizes by which it cuts are told and not written: a file holds its number and
//! its version. Not here: what is done with them (`slice`).

use crate::check;
use crate::random::Random;
use anyhow::{Context, Result};
use cluster::{Bundle, Cut, Weight};
use model::{Entry, Generation, Kind, Name, ObjectId, Timestamp};
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use store::posix::{PosixSink, beneath, host};

const FILES_MIN: u64 = 3;
const FILES_MORE: u64 = 6;
const DIRECTORIES: u64 = 3;
/// A bundle is full with 4 MiB.
const TOLD_BYTES: [u64; 4] = [0, 1 << 10, 3 << 20, 5 << 20];
/// Versions are farther apart than what any storage cuts off a time.
const APART_SECONDS: i64 = 10;
const FIRST_SECONDS: i64 = 1_000_000;
/// NFS, ext4 and tmpfs in statfs(2): hosts that do not see each other's locks, a journal, and memory.
const MAGICS: [i64; 3] = [0x6969, 0xef53, 0x0102_1994];
/// Numbers of directories begin here.
const DIRECTORY_FIRST: u64 = 1 << 20;

struct File {
    directory: Option<u64>,
    told_bytes: u64,
}

/// A bundle, and the files that lie in it.
pub struct Part {
    pub number: usize,
    pub files: Vec<usize>,
    pub weight: Weight,
}

pub struct Ground {
    path: PathBuf,
    root: Arc<OwnedFd>,
    to: Arc<OwnedFd>,
    files: Vec<File>,
    /// Which file system the hosts take theirs for.
    pub magic: i64,
    /// Each file gets its name as soon as it is complete, and not with a group.
    pub is_at_once: bool,
}

impl Ground {
    pub fn new(random: &mut Random, dir: &Path) -> Result<Ground> {
        let path = dir.join("root");
        let below = path.join("to");
        std::fs::create_dir_all(&below).with_context(|| format!("make {}", below.display()))?;
        let open = |path: &Path| -> Result<Arc<OwnedFd>> {
            let opened = beneath::open_directory(path).with_context(|| format!("open {}", path.display()))?;
            Ok(Arc::new(opened))
        };
        let (root, to) = (open(&path)?, open(&below)?);
        let count = FILES_MIN + random.below(FILES_MORE);
        let file = |random: &mut Random| File {
            directory: Some(random.below(DIRECTORIES + 1)).filter(|directory| *directory < DIRECTORIES),
            told_bytes: TOLD_BYTES[random.below(TOLD_BYTES.len() as u64) as usize],
        };
        let files = (0..count).map(|_| file(random)).collect();
        let magic = MAGICS[random.below(MAGICS.len() as u64) as usize];
        Ok(Ground { path, root, to, files, magic, is_at_once: random.one_in(2) })
    }

    pub fn file_count(&self) -> usize {
        self.files.len()
    }

    /// What a host receives into.
    pub fn sink(&self, number: usize) -> PosixSink {
        PosixSink::new(self.root.clone(), self.to.clone(), None).on_host(host::named(&number.to_string()))
    }

    /// The listing as it is cut.
    pub fn parts(&self) -> Vec<Part> {
        let (mut cut, mut bundles) = (Cut::default(), Vec::new());
        let mut emit = |bundle: Bundle| bundles.push(bundle);
        cut.take(b"", None, &mut emit);
        for place in (0..DIRECTORIES).map(Some).chain([None]) {
            if let Some(directory) = place {
                cut.take(format!("d{directory}").as_bytes(), None, &mut emit);
            }
            for file in (0..self.files.len()).filter(|file| self.files[*file].directory == place) {
                let weight = Weight { files: 1, bytes: self.files[file].told_bytes };
                cut.take(self.path_of(file).as_bytes(), Some(weight), &mut emit);
            }
        }
        cut.finish(&mut emit);
        let part = |(number, bundle): (usize, &Bundle)| {
            let files = (0..self.files.len()).filter(|file| is_in(self.path_of(*file).as_bytes(), bundle)).collect();
            Part { number, files, weight: bundle.weight }
        };
        bundles.iter().enumerate().map(part).collect()
    }

    pub fn entry(&self, file: usize, version: u64) -> Entry {
        let parent = self.files[file].directory.map_or(ObjectId::ROOT, id_of);
        let size_bytes = content(file, version).len() as u64;
        let generation = Generation { size_bytes, modified: time_of(version), ..Generation::default() };
        let name = name(&format!("f{file}"));
        let id = ObjectId(1 + file as u64);
        Entry { id, parent, name, kind: Kind::File, mode: 0o600, generation, attributes: None }
    }

    /// The directory of a file, where it has one.
    pub fn directory_of(&self, file: usize) -> Option<Entry> {
        let directory = self.files[file].directory?;
        Some(Entry {
            id: id_of(directory),
            parent: ObjectId::ROOT,
            name: name(&format!("d{directory}")),
            kind: Kind::Directory,
            mode: 0o700,
            generation: Generation::default(),
            attributes: None,
        })
    }

    /// The version that has the name of a file in the end; none where nothing does, or no version of it.
    pub fn version_there(&self, file: usize) -> Option<u64> {
        let path = self.path.join("to").join(self.path_of(file));
        let bytes = std::fs::read(&path).ok()?;
        version_of(file, &bytes, std::fs::metadata(&path).ok()?.mtime())
    }

    /// A file that is left in staging.
    pub fn staged(&self) -> Option<PathBuf> {
        check::staged(&self.path).into_iter().find(|path| path.is_file())
    }

    fn path_of(&self, file: usize) -> String {
        match self.files[file].directory {
            Some(directory) => format!("d{directory}/f{file}"),
            None => format!("f{file}"),
        }
    }
}

/// Its number and its version.
pub fn content(file: usize, version: u64) -> Vec<u8> {
    [(file as u64).to_be_bytes(), version.to_be_bytes()].concat()
}

/// Which version of a file content with this time is; none where it is no version of it, or not all of one.
pub fn version_of(file: usize, bytes: &[u8], seconds: i64) -> Option<u64> {
    let version = u64::from_be_bytes(bytes.get(8..)?.try_into().ok()?);
    (bytes == content(file, version) && seconds == time_of(version).seconds).then_some(version)
}

fn time_of(version: u64) -> Timestamp {
    let seconds = FIRST_SECONDS.wrapping_add((version as i64).wrapping_mul(APART_SECONDS));
    Timestamp { seconds, nanoseconds: 0 }
}

fn id_of(directory: u64) -> ObjectId {
    ObjectId(DIRECTORY_FIRST + directory)
}

fn name(text: &str) -> Name {
    Name::new(text.as_bytes()).expect("a letter and digits are a name")
}

/// A bundle lists it, or the directory that it is in.
fn is_in(path: &[u8], bundle: &Bundle) -> bool {
    let after = |listed: &Vec<u8>| path.strip_prefix(&listed[..]);
    bundle.paths.iter().filter_map(after).any(|rest| rest.first().is_none_or(|byte| *byte == b'/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_says_which_version_of_which_file_it_is_and_half_of_it_is_none() {
        let (bytes, seconds) = (content(3, 7), time_of(7).seconds);
        assert_eq!(version_of(3, &bytes, seconds), Some(7));
        assert_eq!([version_of(2, &bytes, seconds), version_of(3, &bytes, seconds + 1)], [None, None]);
        assert_eq!([version_of(3, &bytes[..15], seconds), version_of(3, b"", seconds)], [None, None]);
    }

    #[test]
    fn every_file_is_in_one_part_and_some_grounds_have_several_parts() {
        let mut most = 0;
        for seed in 0..40 {
            let dir = tempfile::tempdir().unwrap();
            let ground = Ground::new(&mut Random::new(seed), dir.path()).unwrap();
            let parts = ground.parts();
            let mut files: Vec<usize> = parts.iter().flat_map(|part| part.files.clone()).collect();
            files.sort_unstable();
            assert!(files.iter().copied().eq(0..ground.file_count()), "seed {seed}: {files:?}");
            assert!(parts.iter().enumerate().all(|(number, part)| part.number == number));
            most = most.max(parts.len());
        }
        assert!(most >= 4, "{most} parts at most");
    }
}
