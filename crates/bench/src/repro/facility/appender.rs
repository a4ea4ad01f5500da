//! The instrument: files of all sizes, written one after the other at a pace, each renamed when it is complete.
//!
//! Invariant: a file has its last name only when all of it was handed to the kernel.

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use content::{Content, Stream, unit_interval};

use crate::error::{Error, Result};

const BYTES_MIN: u64 = 64 << 10;
const BYTES_MAX: u64 = 512 << 20;
/// A small run has a largest file of its own.
const LARGEST_SHARE: u64 = 8;
const WRITE_BYTES: u64 = 1 << 20;
pub const GROWING: &str = "inprogress";
/// The last name.
pub const STOP: &str = "STOP";

/// Sizes of all magnitudes, the smallest and the largest among them, that add up to the volume; in no order.
pub fn sizes(volume: u64, seed: u64) -> Vec<u64> {
    let largest = (volume / LARGEST_SHARE).clamp(BYTES_MIN, BYTES_MAX);
    let mut sizes = vec![BYTES_MIN, largest];
    let mut left = volume.saturating_sub(BYTES_MIN + largest);
    for number in 0_u64.. {
        if left == 0 {
            break;
        }
        let drawn = unit_interval(seed, 1, number) * (largest as f64 / BYTES_MIN as f64).ln();
        let size = ((BYTES_MIN as f64 * drawn.exp()) as u64).clamp(1, left);
        sizes.push(size);
        left -= size;
    }
    for last in (1..sizes.len()).rev() {
        sizes.swap(last, (unit_interval(seed, 2, last as u64) * (last + 1) as f64) as usize);
    }
    sizes
}

pub fn name_of(number: usize) -> String {
    format!("{number:04}.dat")
}

/// Writes everything, and says in `written` how far it is.
pub fn run(
    dir: &Path,
    sizes: &[u64],
    (bytes_per_second, seed): (f64, u64),
    written: &AtomicU64,
    stop: &AtomicBool,
) -> Result<()> {
    let began = Instant::now();
    let mut block = vec![0; WRITE_BYTES as usize];
    for (number, size) in sizes.iter().enumerate() {
        let path = dir.join(name_of(number));
        let growing = dir.join(format!("{}.{GROWING}", name_of(number)));
        let mut file = File::create(&growing).map_err(Error::io("create", &growing))?;
        let stream = Stream::of_file(Content::Random, seed, 0, number as u64);
        let mut at = 0;
        while at < *size {
            let part = &mut block[..(size - at).min(WRITE_BYTES) as usize];
            stream.fill(at, part);
            let due = Duration::from_secs_f64(written.load(Relaxed) as f64 / bytes_per_second);
            thread::sleep(due.saturating_sub(began.elapsed()));
            if stop.load(Relaxed) {
                return Err(Error::cancelled("write", "growing files"));
            }
            file.write_all(part).map_err(Error::io("write", &growing))?;
            at += part.len() as u64;
            written.fetch_add(part.len() as u64, Relaxed);
        }
        fs::rename(&growing, &path).map_err(Error::io("rename", &path))?;
    }
    let last = dir.join(STOP);
    fs::write(&last, b"").map_err(Error::io("write", &last))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_of_all_magnitudes_and_add_up() {
        for volume in [1 << 20, 64 << 20, 4_000_000_000] {
            let sizes = sizes(volume, 7);
            assert_eq!(sizes.iter().sum::<u64>(), volume);
            let (least, most) = (sizes.iter().min(), sizes.iter().max());
            assert!(*least.unwrap() <= BYTES_MIN && *most.unwrap() == (volume / 8).min(BYTES_MAX), "{sizes:?}");
        }
    }

    #[test]
    fn complete_files_alone_have_their_last_names() {
        let dir = tempfile::tempdir().unwrap();
        let (written, stop) = Default::default();
        run(dir.path(), &[10, 2 << 20], (1e12, 7), &written, &stop).unwrap();
        let mut names: Vec<_> = fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        assert_eq!(
            (names, written.into_inner()),
            (vec!["0000.dat".into(), "0001.dat".into(), STOP.into()], 10 + (2 << 20))
        );
    }
}
