//! Looks from the far side how much of each growing file can be seen there, when that was, and whether it is right.
//!
//! Invariants:
//! - A length counts from the moment before it was asked for: what is seen is there, and lag never looks shorter than it was.
//! - Every byte that became visible is compared once, when it did, and all of them again at the end.
//!
//! Not here: what was written (`appender`).

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use super::appender::{Expected, path_of};

/// Between two looks at all files; lag is known this exactly.
const LOOK_INTERVAL: Duration = Duration::from_millis(1);
const BLOCK_BYTES: u64 = 256 << 10;

/// So much of a file was seen at a time.
#[derive(Clone, Copy, Debug)]
pub struct Seen {
    pub file: u32,
    pub end: u64,
    pub at: Instant,
}

#[derive(Debug, Default)]
pub struct Sight {
    /// Each time more was seen than ever before.
    pub log: Vec<Seen>,
    /// Bytes that were seen while files grew and are not the source's.
    pub wrong_bytes: u64,
    /// How often less was seen of a file than before.
    pub shrinks: u64,
    /// When all of every file was seen, under its last name.
    pub complete: Option<Instant>,
}

struct Watched {
    names: Vec<PathBuf>,
    expected: Expected,
    /// The most that was seen, what was seen last, and how far it was compared.
    most: u64,
    last: u64,
    compared: u64,
    is_complete: bool,
}

/// Watches until all files are complete, or until `stop`. Of each file the first suffix under which something is counts; the
/// last one is that of the complete file.
pub fn run(dir: &Path, suffixes: &[&str], (files, file_bytes, seed): (u32, u64, u64), stop: &AtomicBool) -> Sight {
    let watched = |file| Watched {
        names: suffixes.iter().map(|suffix| path_of(dir, file, suffix)).collect(),
        expected: Expected::of(seed, file),
        most: 0,
        last: 0,
        compared: 0,
        is_complete: false,
    };
    let mut all: Vec<Watched> = (0..files).map(watched).collect();
    let mut sight = Sight::default();
    let mut block = Vec::new();
    while !stop.load(Relaxed) {
        let began = Instant::now();
        for (file, one) in all.iter_mut().enumerate() {
            one.look(file as u32, file_bytes, &mut sight);
        }
        if sight.complete.is_none() && all.iter().all(|one| one.is_complete) {
            sight.complete = Some(Instant::now());
        }
        all.iter_mut().for_each(|one| one.compare(&mut block, &mut sight));
        if sight.complete.is_some() {
            break;
        }
        thread::sleep(LOOK_INTERVAL.saturating_sub(began.elapsed()));
    }
    sight
}

impl Watched {
    fn look(&mut self, file: u32, file_bytes: u64, sight: &mut Sight) {
        if self.is_complete {
            return;
        }
        let at = Instant::now();
        let found =
            self.names.iter().enumerate().find_map(|(index, name)| Some((index, fs::metadata(name).ok()?.len())));
        let Some((index, length)) = found else { return };
        sight.shrinks += u64::from(length < self.last);
        self.last = length;
        self.is_complete = index + 1 == self.names.len() && length >= file_bytes;
        if length > self.most {
            self.most = length;
            sight.log.push(Seen { file, end: length, at });
        }
    }

    /// A step for each look, so that long files do not keep the others waiting.
    fn compare(&mut self, block: &mut Vec<u8>, sight: &mut Sight) {
        let count = (self.last.saturating_sub(self.compared)).min(BLOCK_BYTES);
        if count == 0 {
            return;
        }
        let Some(file) = self.names.iter().find_map(|name| File::open(name).ok()) else { return };
        block.resize(count as usize, 0);
        let Ok(read) = file.read_at(block, self.compared) else { return };
        sight.wrong_bytes += differing(&mut self.expected, self.compared, &block[..read]);
        self.compared += read as u64;
    }
}

fn differing(expected: &mut Expected, offset: u64, bytes: &[u8]) -> u64 {
    let mut wanted = vec![0; bytes.len()];
    expected.fill(offset, &mut wanted);
    if wanted == bytes {
        return 0;
    }
    wanted.iter().zip(bytes).filter(|(wanted, byte)| wanted != byte).count() as u64
}

/// Bytes of a file that are missing, too many or wrong in the end, under any of its names.
pub fn wrong_in_the_end(dir: &Path, suffixes: &[&str], file: u32, (file_bytes, seed): (u64, u64)) -> u64 {
    let found = suffixes.iter().rev().find_map(|suffix| File::open(path_of(dir, file, suffix)).ok());
    let Some(found) = found else { return file_bytes };
    let length = found.metadata().map_or(0, |status| status.len());
    let mut expected = Expected::of(seed, file);
    let (mut wrong, mut at) = (length.abs_diff(file_bytes), 0);
    let mut block = vec![0; BLOCK_BYTES as usize];
    while at < length.min(file_bytes) {
        let wanted = (length.min(file_bytes) - at).min(BLOCK_BYTES) as usize;
        match found.read_at(&mut block[..wanted], at) {
            Ok(read) if read > 0 => {
                wrong += differing(&mut expected, at, &block[..read]);
                at += read as u64;
            }
            _ => return wrong + length.min(file_bytes) - at,
        }
    }
    wrong
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::OpenOptions;

    fn content(count: usize) -> Vec<u8> {
        let mut bytes = vec![0; count];
        Expected::of(7, 0).fill(0, &mut bytes);
        bytes
    }

    #[test]
    fn lengths_are_noted_as_they_grow_and_wrong_bytes_and_shrinking_are_counted() {
        let dir = tempfile::tempdir().unwrap();
        let path = path_of(dir.path(), 0, ".tmp");
        let stop = AtomicBool::new(false);
        let sight = thread::scope(|scope| {
            let watcher = scope.spawn(|| run(dir.path(), &[".tmp", ""], (1, 3000, 7), &stop));
            let wait = || thread::sleep(Duration::from_millis(30));
            let mut bytes = content(3000);
            bytes[10] ^= 1;
            fs::write(&path, &bytes[..1000]).unwrap();
            wait();
            OpenOptions::new().write(true).open(&path).unwrap().set_len(500).unwrap();
            wait();
            fs::write(&path, &bytes).unwrap();
            wait();
            fs::rename(&path, path_of(dir.path(), 0, "")).unwrap();
            watcher.join().unwrap()
        });
        assert!(sight.complete.is_some());
        assert_eq!((sight.wrong_bytes, sight.shrinks >= 1), (1, true));
        assert_eq!(sight.log.last().map(|seen| seen.end), Some(3000));
    }

    #[test]
    fn what_is_missing_too_much_or_wrong_in_the_end_is_counted() {
        let dir = tempfile::tempdir().unwrap();
        let wrong = |bytes: &[u8]| {
            fs::write(path_of(dir.path(), 0, ""), bytes).unwrap();
            wrong_in_the_end(dir.path(), &[".tmp", ""], 0, (3000, 7))
        };
        let good = content(3500);
        assert_eq!((wrong(&good[..3000]), wrong(&good), wrong(&good[..2990])), (0, 500, 10));
        let mut bad = good[..3000].to_vec();
        bad[5] ^= 255;
        assert_eq!(wrong(&bad), 1);
        fs::remove_file(path_of(dir.path(), 0, "")).unwrap();
        assert_eq!(wrong_in_the_end(dir.path(), &[""], 0, (3000, 7)), 3000);
    }
}
