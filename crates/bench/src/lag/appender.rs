//! Writes files as an instrument does: so many bytes a second, in writes of one size, to several files in turn.
//!
//! Invariant: what stands in the log was handed to the kernel by the time beside it, and not long before.
//!
//! Not here: who carries it, and when it is seen at the other end (`watch`).

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use content::{Content, Stream, UNIT_BYTES};

use crate::error::{Error, Result};

/// A pause is cut short so that a wish to stop is seen.
const SLEEP_MAX: Duration = Duration::from_millis(50);
/// Files in one directory of those that rest.
const IDLE_PER_DIRECTORY: u64 = 1000;

/// What is written.
#[derive(Clone, PartialEq, Debug, serde::Serialize)]
pub struct Pace {
    pub files: u32,
    /// Of all files together.
    pub bytes_per_second: u64,
    pub write_bytes: u32,
    pub seconds: f64,
    pub seed: u64,
}

impl Pace {
    /// Of each file, in the end.
    pub fn file_bytes(&self) -> u64 {
        self.writes() / u64::from(self.files) * u64::from(self.write_bytes)
    }

    /// A whole number for each file.
    pub fn writes(&self) -> u64 {
        let files = u64::from(self.files);
        let writes = self.bytes_per_second as f64 * self.seconds / f64::from(self.write_bytes);
        (writes as u64 / files).max(1) * files
    }

    pub fn bytes(&self) -> u64 {
        self.file_bytes() * u64::from(self.files)
    }

    /// When a write is due, from the first one on.
    fn due(&self, write: u64) -> Duration {
        let seconds = write as f64 * f64::from(self.write_bytes) / self.bytes_per_second as f64;
        Duration::from_secs_f64(seconds)
    }
}

/// A write: of a file, up to where, and when it was made.
#[derive(Clone, Copy, Debug)]
pub struct Written {
    pub file: u32,
    pub end: u64,
    pub at: Instant,
}

/// The content of a file, at any offset.
pub struct Expected {
    stream: Stream,
    unit: Vec<u8>,
}

impl Expected {
    pub fn of(seed: u64, file: u32) -> Expected {
        Expected { stream: Stream::of_file(Content::Random, seed, 0, file.into()), unit: Vec::new() }
    }

    pub fn fill(&mut self, offset: u64, buffer: &mut [u8]) {
        let start = offset / UNIT_BYTES as u64 * UNIT_BYTES as u64;
        let ahead = (offset - start) as usize;
        if ahead == 0 {
            return self.stream.fill(offset, buffer);
        }
        self.unit.resize(ahead + buffer.len(), 0);
        self.stream.fill(start, &mut self.unit);
        buffer.copy_from_slice(&self.unit[ahead..]);
    }
}

pub fn path_of(dir: &Path, file: u32, suffix: &str) -> PathBuf {
    dir.join(format!("run-{file}.dat{suffix}"))
}

/// Makes files that nobody writes to.
pub fn idle(dir: &Path, count: u64) -> Result<()> {
    for number in 0..count {
        let below = dir.join(format!("idle-{}", number / IDLE_PER_DIRECTORY));
        if number % IDLE_PER_DIRECTORY == 0 {
            fs::create_dir_all(&below).map_err(Error::io("create", &below))?;
        }
        let path = below.join(format!("file-{number}"));
        fs::write(&path, [number as u8]).map_err(Error::io("write", &path))?;
    }
    Ok(())
}

/// Writes everything at its pace and returns what was written when, and by how much it came late at worst: where that is much,
/// the machine did not keep up with the pace. Names end in `suffix`.
pub fn run(dir: &Path, suffix: &str, pace: &Pace, stop: &AtomicBool) -> Result<(Vec<Written>, Duration)> {
    let path = |file| path_of(dir, file, suffix);
    let open =
        |file| OpenOptions::new().append(true).create(true).open(path(file)).map_err(Error::io("open", path(file)));
    let mut files: Vec<File> = (0..pace.files).map(open).collect::<Result<_>>()?;
    let mut contents: Vec<Expected> = (0..pace.files).map(|file| Expected::of(pace.seed, file)).collect();
    let mut ends = vec![0_u64; files.len()];
    let mut log = Vec::with_capacity(pace.writes() as usize);
    let mut block = vec![0; pace.write_bytes as usize];
    let (began, mut late_max) = (Instant::now(), Duration::ZERO);
    for write in 0..pace.writes() {
        let (file, due) = ((write % u64::from(pace.files)) as usize, pace.due(write));
        contents[file].fill(ends[file], &mut block);
        while let Some(pause) = due.checked_sub(began.elapsed()).filter(|pause| !pause.is_zero()) {
            if stop.load(Relaxed) {
                return Err(Error::cancelled("write", "growing files"));
            }
            thread::sleep(pause.min(SLEEP_MAX));
        }
        late_max = late_max.max(began.elapsed().saturating_sub(due));
        files[file].write_all(&block).map_err(Error::io("write", path(file as u32)))?;
        ends[file] += block.len() as u64;
        log.push(Written { file: file as u32, end: ends[file], at: Instant::now() });
    }
    Ok((log, late_max))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pace() -> Pace {
        Pace { files: 3, bytes_per_second: 30_000, write_bytes: 1000, seconds: 0.35, seed: 7 }
    }

    #[test]
    fn what_is_written_is_what_is_expected_at_any_offset_and_every_write_is_logged() {
        let dir = tempfile::tempdir().unwrap();
        let (log, _) = run(dir.path(), ".tmp", &pace(), &AtomicBool::new(false)).unwrap();
        assert_eq!((log.len(), pace().file_bytes(), pace().bytes()), (9, 3000, 9000));
        for file in 0..3 {
            let bytes = fs::read(path_of(dir.path(), file, ".tmp")).unwrap();
            let mut expected = Expected::of(7, file);
            for offset in [0, 1, 999, 2500] {
                let mut wanted = vec![0; bytes.len() - offset];
                expected.fill(offset as u64, &mut wanted);
                assert!(wanted == bytes[offset..], "file {file} from {offset}");
            }
            assert_eq!(log.iter().rfind(|written| written.file == file).unwrap().end, 3000);
        }
        assert!(log.windows(2).all(|pair| pair[0].at <= pair[1].at));
        assert!(log[8].at - log[0].at >= Duration::from_millis(260), "it came before its time");
    }
}
