//! The runs of a calibration that are about storage: reading what is there, and the ways of using either side.

use super::{
    BYTES_MAX, BYTES_MIN, FILES, Prober, SLOW_TIMES, STORAGE_STREAMS, STORED_FILE_BYTES, generated, long_files,
};
use crate::exit::Result;
use model::Location;
use model::options::{Depths, Engine};
use model::quantity::ByteCount;
use plan::calibration::{EngineRun, Measured, Part, Run, bytes_of};
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Ways of using storage that are held against what a transfer chooses when it is told nothing, which is the first. The engine's own depth is 0.
const ENGINES: [(Engine, u32); 5] =
    [(Engine::Auto, 0), (Engine::Plain, 0), (Engine::Uring, 4), (Engine::Uring, 8), (Engine::Uring, 32)];
const READ_FILES_MAX: usize = 64;
/// Every stream has some of its own.
const READ_FILES_MIN: usize = 8;
/// Of files that are there, what is read.
const READ_BYTES_MAX: u64 = 1 << 30;
/// Less is over before it says anything of storage, where there is more.
const READ_BYTES_MIN: u64 = 256 << 20;
/// A file is read whole, and some ten times: where all are larger, reading is not measured. The quick profile has less time.
const READ_FILE_BYTES_MAX: u64 = 8 << 30;
const READ_FILE_BYTES_QUICK: u64 = 2 << 30;

impl Prober<'_> {
    pub(super) fn write_engines(&mut self) -> Result<()> {
        if self.is_mostly_warm_up() {
            let text = "over this round trip nothing was repeated, and no other storage engine was tried for write: \
                --profile standard does both";
            self.notes.push(text.to_owned());
            return Ok(());
        }
        self.each_engine(Part::Write, &mut |prober, streams, bytes| {
            let has_long_files = prober.runs_of(Part::Write).any(|run| run.file_bytes >= STORED_FILE_BYTES);
            let (files, file_bytes) =
                if has_long_files { long_files(FILES, bytes) } else { (FILES, (bytes / FILES).max(1)) };
            let to = prober.fresh();
            prober.transfer(vec![generated(files, file_bytes)], to, Some(streams), (files, file_bytes))
        })
    }

    pub(super) fn read(&mut self, source: &Path) -> Result<()> {
        let most = if self.profile.name == "quick" { READ_FILE_BYTES_QUICK } else { READ_FILE_BYTES_MAX };
        // Over a long path there is time for little.
        let enough = if self.is_mostly_warm_up() { READ_BYTES_MIN } else { READ_BYTES_MAX };
        let found = largest(source, most, enough);
        let mut files = &found[..];
        if files.is_empty() {
            let most = ByteCount(most);
            self.notes.push(format!(
                "read was not measured: the source holds none but larger files than {most}, or no files; --import read=FILE takes it from another tool"
            ));
            return Ok(());
        }
        let mut runs: Vec<Run> = Vec::new();
        for (streams, is_repetition) in self.order(&STORAGE_STREAMS, STORAGE_STREAMS[STORAGE_STREAMS.len() - 1]) {
            let longest = runs.iter().map(|run| run.seconds).fold(0.0, f64::max);
            let is_out_of_time = !runs.is_empty() && !self.has_time(Part::Read, longest);
            if is_out_of_time || is_repetition && self.has_no_time_for_repetitions(&runs) {
                self.note_omitted(Part::Read, is_repetition);
                break;
            }
            let run = self.read_once(files, streams)?;
            files = &files[..files_enough(files.len(), run.seconds / self.profile.run.as_secs_f64())];
            runs.push(run);
        }
        self.measured.push(Measured::new(Part::Read, runs));
        self.each_engine(Part::Read, &mut |prober, streams, _| prober.read_once(files, streams))
    }

    /// Reads files that are not in the cache to nowhere.
    fn read_once(&mut self, files: &[(PathBuf, u64)], streams: u32) -> Result<Run> {
        let null = Location::parse("null:".as_ref()).expect("a location");
        files.iter().for_each(|(path, _)| drop_from_cache(path));
        let sources = files.iter().map(|(path, _)| crate::args::values::location(path.as_os_str()));
        let (bytes, count) = (files.iter().map(|(_, bytes)| bytes).sum::<u64>(), files.len() as u64);
        self.transfer(sources.collect::<Result<_>>()?, null, Some(streams), (count, bytes / count))
    }

    /// Runs of a part at its best number of streams, with each way of using storage, as often as the profile repeats.
    fn each_engine(&mut self, part: Part, run: &mut dyn FnMut(&mut Self, u32, u64) -> Result<Run>) -> Result<()> {
        let rate = |run: &Run| bytes_of(run) / run.seconds;
        let Some(best) = self.runs_of(part).max_by(|a, b| rate(a).total_cmp(&rate(b))).copied() else { return Ok(()) };
        let places: Vec<u32> = (0..ENGINES.len() as u32).collect();
        let mut longest = best.seconds;
        // Ways of writing are tried after small files.
        let until = if part == Part::Write { Part::Metadata } else { part };
        // Without the usual one the others would be held against nothing. Plain calls may take all the time that is left.
        let mut order = self.order(&places, 0);
        let firsts = order.iter().take_while(|(_, is_repetition)| !is_repetition).count();
        order[..firsts].sort_by_key(|(place, _)| ENGINES[*place as usize].0 == Engine::Plain);
        for (place, is_repetition) in order {
            if !self.has_time(until, longest) || is_repetition && self.is_late() {
                let ways = part.word();
                self.notes.push(format!(
                    "{ways}: not every storage engine was tried as often as the others, because the time ran out"
                ));
                break;
            }
            let (engine, depth) = ENGINES[place as usize];
            self.storage = (engine, Depths { read: depth, write: depth });
            let warm_up = if part == Part::Write { self.warm_up() } else { 0.0 };
            let bytes = (rate(&best) * (self.profile.run.as_secs_f64() + warm_up)) as u64;
            let measured = run(self, best.streams, bytes.clamp(BYTES_MIN, BYTES_MAX));
            self.storage = (Engine::Auto, Depths::default());
            let run = measured?;
            longest = longest.max(run.seconds);
            self.engines.push(EngineRun { part, engine: engine.name().to_owned(), depth, run });
        }
        Ok(())
    }
}

/// Of so many files, all of which took so many times what a run should, those that take about as long as it may.
fn files_enough(files: usize, times: f64) -> usize {
    let enough = (files as f64 * SLOW_TIMES / times).ceil() as usize;
    enough.max(READ_FILES_MIN).min(files)
}

/// Some of the largest files below a directory, none larger than `most`, and in all no more than `enough` where there are several.
fn largest(root: &Path, most: u64, enough: u64) -> Vec<(PathBuf, u64)> {
    const ENTRIES_MAX: usize = 100_000;
    let (mut files, mut left, mut looked) = (Vec::new(), vec![root.to_owned()], 0);
    while let Some(dir) = left.pop() {
        for entry in std::fs::read_dir(dir).into_iter().flatten().flatten().take(ENTRIES_MAX.saturating_sub(looked)) {
            looked += 1;
            let Ok(found) = entry.metadata() else { continue };
            if found.is_dir() {
                left.push(entry.path());
            } else if found.is_file() && found.len() > 0 && !entry.file_name().as_bytes().contains(&b'\n') {
                files.push((entry.path(), found.len()));
            }
        }
    }
    let are_all = files.iter().all(|(_, bytes)| *bytes <= most);
    files.retain(|(_, bytes)| *bytes <= most);
    files.sort_by_key(|(_, bytes)| std::cmp::Reverse(*bytes));
    // Of files that are too large for a run, the smallest is read where there is not enough beside it.
    let large = files.iter().take_while(|(_, bytes)| *bytes > READ_BYTES_MAX).count();
    let is_enough = files[large..].iter().map(|(_, bytes)| bytes).sum::<u64>() >= READ_BYTES_MIN;
    if large == 0 && !are_all && !is_enough {
        return Vec::new();
    }
    files.drain(..if is_enough { large } else { large.saturating_sub(1) });
    // The same name twice would be one file at the destination.
    let mut names = std::collections::BTreeSet::new();
    files.retain(|(path, _)| path.file_name().is_some_and(|name| names.insert(name.to_owned())));
    let mut sum = 0;
    let fits = |(_, bytes): &(PathBuf, u64)| {
        sum += bytes;
        sum == *bytes || sum <= enough
    };
    files.into_iter().take(READ_FILES_MAX).take_while(fits).collect()
}

fn drop_from_cache(path: &Path) {
    if let Ok(file) = File::open(path) {
        let _ = rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_files_that_are_read_slowly_fewer_are_read_again() {
        assert_eq!([files_enough(64, 1.0), files_enough(64, SLOW_TIMES), files_enough(3, 90.0)], [64, 64, 3]);
        assert_eq!([files_enough(64, SLOW_TIMES * 4.0), files_enough(64, 90.0 * SLOW_TIMES)], [16, 8]);
    }

    #[test]
    fn of_a_source_some_of_the_largest_files_are_read_that_say_something_and_take_no_hours() {
        const GIB: u64 = 1 << 30;
        let sizes_of = |made: &[u64], enough: u64| {
            let dir = tempfile::tempdir().unwrap();
            for (number, bytes) in made.iter().enumerate() {
                File::create(dir.path().join(number.to_string())).unwrap().set_len(*bytes).unwrap();
            }
            largest(dir.path(), 2 * GIB, enough).into_iter().map(|(_, bytes)| bytes).collect::<Vec<_>>()
        };
        let sizes = |made: &[u64]| sizes_of(made, READ_BYTES_MAX);
        assert_eq!(sizes(&[3 * GIB, GIB / 2, GIB / 4, 5]), [GIB / 2, GIB / 4, 5]);
        // A small file beside large ones says nothing.
        assert_eq!(sizes(&[2 * GIB, 3 * GIB / 2, 5]), [3 * GIB / 2]);
        assert_eq!(sizes(&[3 * GIB, 5]), [0; 0]);
        assert_eq!((sizes(&[7, 5]), sizes(&[])), (vec![7, 5], vec![]));
        let little = |made: &[u64]| sizes_of(made, READ_BYTES_MIN);
        assert_eq!((little(&[GIB / 8; 4]), little(&[GIB, GIB])), (vec![GIB / 8; 2], vec![GIB]));
    }
}
