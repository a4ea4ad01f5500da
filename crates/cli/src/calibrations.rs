//! Calibrations, plans and what came of them, as files in the user's state directory.
//!
//! Invariants: a file is replaced whole or not at all; what a record of the past says that cannot be read is counted, never
//! guessed. Not here: what they mean (`plan::calibration`), measuring (`commands::calibrate`).

use crate::exit::{self, Result, error, usage};
use crate::output::shown;
use daemon::Paths;
use model::{Exit, Location};
use plan::calibration::{Calibration, Circumstances, DataSet};
use rustix::io::ReadWriteFlags;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::io::{IoSliceMut, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Entries of a data set that are looked at; more of them change no plan.
const ENTRIES_MAX: usize = 500_000;
/// Of the record of the past, what is read: the last of it.
const HISTORY_BYTES_MAX: u64 = 16 << 20;

pub fn directory() -> Result<PathBuf> {
    Ok(Paths::from_env()?.state.join("calibrations"))
}

/// The file of an endpoint's or directory's calibration.
pub fn file(of: &str) -> Result<PathBuf> {
    let too_long = || usage(format!("{} is too long a name for a calibration", shown(of)), "calibrate a shorter path");
    Ok(directory()?.join(file_name(of).ok_or_else(too_long)?))
}

/// Nothing where the name is too long for a file.
fn file_name(of: &str) -> Option<String> {
    const NAME_BYTES_MAX: usize = 200;
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"-_".contains(&b);
    let name: String =
        of.bytes().map(|b| if plain(b) { char::from(b).to_string() } else { format!("%{b:02X}") }).collect();
    (name.len() <= NAME_BYTES_MAX).then(|| format!("{name}.json"))
}

/// The calibration of that name, if there is one.
fn find(of: &str) -> Result<Option<Calibration>> {
    let Some(name) = file_name(of) else { return Ok(None) };
    let file = directory()?.join(name);
    match fs::read_to_string(&file) {
        Ok(text) => own(of, &text).map(Some).map_err(|why| {
            let hint = format!("`thalweg calibrate {}` measures again and replaces it", shown(of));
            error(Exit::Failed, format!("{}: {why}", shown(&file)), hint)
        }),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(exit::of_file("read", &file, &e)),
    }
}

/// The calibration in a file of that name. One of something else was put there by hand.
fn own(of: &str, text: &str) -> std::result::Result<Calibration, String> {
    let read = Calibration::parse(text).map_err(|e| e.to_string())?;
    if read.of == of {
        return Ok(read);
    }
    Err(format!("it is the calibration of {}, not of {}", shown(&read.of), shown(of)))
}

/// When the calibration of that name was taken, in seconds since 1970.
pub fn taken(of: &str) -> Option<u64> {
    find(of).ok().flatten().map(|calibration| calibration.circumstances.taken)
}

/// By what an endpoint's directory is called: NAME for its root, else NAME:DIR.
pub fn name_at(name: &str, path: &[u8]) -> String {
    let all = names_at(name, path);
    all.into_iter().next().expect("the endpoint's own name")
}

/// That of a directory, and those of all above it.
fn names_at(name: &str, path: &[u8]) -> Vec<String> {
    let parts: Vec<_> = path.split(|b| *b == b'/').filter(|part| !matches!(*part, b"" | b".")).collect();
    let below = |count: usize| format!("{name}:{}", shown(OsStr::from_bytes(&parts[..count].join(&b'/'))));
    (1..=parts.len()).rev().map(below).chain([name.to_owned()]).collect()
}

/// The calibration of a copy's destination: of the directory or the nearest one above it, or of the whole endpoint. Other kinds of
/// storage, and endpoints without a name, have none.
pub fn of_destination(destination: &Location) -> Result<Option<Calibration>> {
    names_of(destination)?.iter().find_map(|name| find(name).transpose()).transpose()
}

/// What may be calibrated that a destination lies in, the nearest first.
pub fn names_of(destination: &Location) -> Result<Vec<String>> {
    Ok(match destination {
        Location::Named { name, path } => names_at(name, path),
        Location::Local(path) => {
            let path = PathBuf::from(OsStr::from_bytes(path));
            let absolute = std::path::absolute(&path).map_err(|e| exit::of_file("find", &path, &e))?;
            let there = absolute.ancestors().find_map(|at| fs::canonicalize(at).ok()).unwrap_or_default();
            there.ancestors().map(shown).collect()
        }
        _ => Vec::new(),
    })
}

/// Leaves out what was measured of another device than the source's, and says so.
pub fn compare_source(calibration: &mut Calibration, source: &Location) -> Option<String> {
    let read_from = calibration.source.clone()?;
    let device = |path: &Path| fs::metadata(path).ok().map(|found| found.dev());
    let path = Path::new(OsStr::from_bytes(source.path()));
    let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
    let own = device(path).filter(|_| matches!(source, Location::Local(_)));
    if own.is_some() && own == device(Path::new(&read_from)) {
        return None;
    }
    calibration.forget_reads();
    Some(format!("reading was measured on {}, which is different storage: it is ignored", shown(&read_from)))
}

pub fn keep(calibration: &Calibration) -> Result<PathBuf> {
    let file = file(&calibration.of)?;
    let text = serde_json::to_string_pretty(calibration).expect("plain values have a JSON form") + "\n";
    replace(&file, text).map_err(|e| exit::of_written("write calibration", &file, &e))?;
    Ok(file)
}

/// This host, now.
pub fn circumstances(profile: &str) -> Circumstances {
    let kernel = |name: &str| {
        let text = fs::read_to_string(format!("/proc/sys/kernel/{name}")).unwrap_or_default();
        text.trim().to_owned()
    };
    Circumstances {
        host: kernel("hostname"),
        kernel: kernel("osrelease"),
        processors: std::thread::available_parallelism().map_or(1, |n| n.get() as u32),
        program: env!("CARGO_PKG_VERSION").to_owned(),
        taken: now(),
        profile: profile.to_owned(),
    }
}

pub fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// The sizes of the files below a path, and whether that was all of them. Once `is_stopped`, no more are looked at.
pub fn data_set(root: &Path, is_stopped: &dyn Fn() -> bool) -> Result<(DataSet, bool)> {
    let found = fs::symlink_metadata(root).map_err(|e| exit::of_file("look at", root, &e))?;
    let (mut sizes, mut left, mut looked) = (Vec::new(), Vec::new(), 0);
    if found.is_dir() || fs::metadata(root).is_ok_and(|found| found.is_dir()) {
        left.push(root.to_owned());
    } else {
        sizes.push(found.len());
    }
    while let Some(dir) = left.pop() {
        // What cannot be read cannot be copied either, and the copy will say so.
        for entry in fs::read_dir(&dir).into_iter().flatten().flatten() {
            looked += 1;
            if looked > ENTRIES_MAX || is_stopped() {
                return Ok((DataSet::of(sizes.into_iter()), false));
            }
            let Ok(found) = entry.metadata() else { continue };
            if found.is_dir() {
                left.push(entry.path());
            } else if found.is_file() {
                sizes.push(found.len());
            }
        }
    }
    Ok((DataSet::of(sizes.into_iter()), true))
}

/// Some of the content below a path: from the middle of files, as they come, a little of each.
pub fn sample(root: &Path) -> Vec<u8> {
    const FILES_MAX: usize = 64;
    const BYTES_MAX: u64 = 4 << 20;
    /// One request, where they are as large as usual.
    const EACH_MAX: u64 = 128 << 10;
    /// As many as storage that answers late has requests of at once.
    const READERS: usize = 16;
    /// A copy waits for it, and for 4 MiB to be compressed, 60 ms: from slow storage there is less.
    const TIME_MAX: Duration = Duration::from_millis(50);
    let began = Instant::now();
    let (mut parts, mut sum) = (Vec::new(), 0);
    each_file(root, &mut |path, bytes| {
        let length = bytes.min(EACH_MAX);
        parts.push((path, (bytes - length) / 2, length));
        sum += length;
        parts.len() < FILES_MAX && sum < BYTES_MAX && began.elapsed() <= TIME_MAX
    });
    let (next, began) = (AtomicUsize::new(0), Instant::now());
    let read = || {
        let mut content = Vec::new();
        while let Some((path, start, length)) = parts.get(next.fetch_add(1, Relaxed))
            && (content.is_empty() || began.elapsed() <= TIME_MAX)
        {
            let mut part = vec![0; *length as usize];
            let count = fs::File::open(path).and_then(|file| file.read_at(&mut part, *start)).unwrap_or_default();
            content.extend_from_slice(&part[..count]);
        }
        content
    };
    std::thread::scope(|scope| {
        let spawn = |_| std::thread::Builder::new().name("sample".to_owned()).spawn_scoped(scope, read).ok();
        let readers: Vec<_> = (1..READERS.min(parts.len())).filter_map(spawn).collect();
        let mut content = read();
        content.extend(readers.into_iter().flat_map(|reader| reader.join().unwrap_or_default()));
        content
    })
}

/// Whether most of what is below a path lies in the page cache, by a look at the middle of some files.
pub fn is_cached(root: &Path) -> bool {
    const FILES_MAX: usize = 16;
    let (mut seen, mut cached) = (0, 0);
    each_file(root, &mut |path, bytes| {
        let mut byte = [0];
        let look = |file: fs::File| {
            Ok(rustix::io::preadv2(&file, &mut [IoSliceMut::new(&mut byte)], bytes / 2, ReadWriteFlags::NOWAIT)?)
        };
        seen += 1;
        cached += usize::from(fs::File::open(path).and_then(look).is_ok_and(|count| count > 0));
        seen < FILES_MAX
    });
    cached * 2 > seen
}

/// Files below a path that are not empty, with their sizes, as they come, as long as `look` wants more of them.
fn each_file(root: &Path, look: &mut dyn FnMut(PathBuf, u64) -> bool) {
    let root = if root.as_os_str().is_empty() { Path::new(".") } else { root };
    let mut left = vec![root.to_owned()];
    while let Some(path) = left.pop() {
        let Ok(found) = fs::metadata(&path) else { continue };
        if found.is_dir() {
            let room = ENTRIES_MAX - left.len().min(ENTRIES_MAX);
            let below = fs::read_dir(&path).into_iter().flatten().flatten().take(room);
            left.extend(below.filter(|entry| entry.file_type().is_ok_and(|kind| !kind.is_symlink())).map(|e| e.path()));
        } else if found.is_file() && found.len() > 0 && !look(path, found.len()) {
            return;
        }
    }
}

/// Streams that a copy to or from an endpoint came to, for the next one.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
struct Known {
    pub streams: u32,
    /// Seconds since 1970.
    pub time: u64,
}

/// So many endpoints are remembered, the latest.
const KNOWN_MAX: usize = 1_000;
const KNOWN_SECONDS: u64 = 14 * 86_400;

fn all_known() -> Result<(PathBuf, BTreeMap<String, Known>)> {
    // No calibration has a name with two dots.
    let file = directory()?.join("known.map.json");
    // What cannot be read is not known.
    let known = fs::read(&file).ok().and_then(|text| serde_json::from_slice(&text).ok()).unwrap_or_default();
    Ok((file, known))
}

/// What was learned of an endpoint in the last two weeks.
pub fn known_streams(name: &str) -> Option<u32> {
    let found = all_known().ok()?.1.get(name).copied()?;
    let is_good = (1..=64).contains(&found.streams) && now().saturating_sub(found.time) < KNOWN_SECONDS;
    is_good.then_some(found.streams)
}

pub fn remember(name: &str, streams: u32) -> Result<()> {
    let (file, mut known) = all_known()?;
    known.insert(name.to_owned(), Known { streams, time: now() });
    while known.len() > KNOWN_MAX {
        let oldest = known.iter().min_by_key(|(_, known)| known.time).map(|(name, _)| name.clone());
        oldest.and_then(|name| known.remove(&name));
    }
    let text = serde_json::to_string(&known).expect("plain values have a JSON form") + "\n";
    replace(&file, text).map_err(|e| exit::of_written("remember the streams of", &file, &e))
}

/// Replaces a file of the state directory whole, also while others do: copies that end together remember one endpoint.
pub fn replace(file: &Path, text: String) -> std::io::Result<()> {
    let random = u64::from_ne_bytes(net::random_bytes());
    let beside = file.with_extension(format!("{random:016x}.new"));
    file.parent().map_or(Ok(()), fs::create_dir_all)?;
    let replaced = fs::write(&beside, text).and_then(|()| fs::rename(&beside, file));
    if replaced.is_err() {
        let _ = fs::remove_file(&beside);
    }
    replaced
}

/// A plan that a copy was made by, and what it reached.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Outcome {
    pub v: u32,
    /// Seconds since 1970.
    pub time: u64,
    pub of: String,
    pub streams: u32,
    pub p5: f64,
    pub p50: f64,
    pub p95: f64,
    pub measured: f64,
    pub bytes: u64,
    pub files: u64,
    pub seconds: f64,
}

impl Outcome {
    pub fn is_within(&self) -> bool {
        (self.p5..=self.p95).contains(&self.measured)
    }

    /// Of the measured rate, how far the predicted one is above it.
    pub fn error(&self) -> f64 {
        self.p50 / self.measured.max(1e-9) - 1.0
    }
}

fn history() -> Result<PathBuf> {
    Ok(directory()?.join("outcomes.jsonl"))
}

/// Adds a line to the record of the past.
pub fn record(outcome: &Outcome) -> Result<()> {
    let file = history()?;
    let line = serde_json::to_string(outcome).expect("plain values have a JSON form") + "\n";
    let append = || {
        fs::create_dir_all(directory().map_err(|e| std::io::Error::other(e.message))?)?;
        fs::OpenOptions::new().append(true).create(true).open(&file)?.write_all(line.as_bytes())
    };
    append().map_err(|e| exit::of_written("record what came of the plan", &file, &e))
}

/// What is recorded, the oldest first, and how many lines could not be read.
pub fn outcomes() -> Result<(Vec<Outcome>, usize)> {
    let file = history()?;
    let text = match fs::read(&file) {
        Ok(bytes) => {
            let from = bytes.len().saturating_sub(HISTORY_BYTES_MAX as usize);
            String::from_utf8_lossy(&bytes[from..]).into_owned()
        }
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => String::new(),
        Err(e) => return Err(exit::of_file("read", &file, &e)),
    };
    let lines: Vec<&str> = text.lines().collect();
    let read: Vec<Outcome> = lines.iter().filter_map(|line| serde_json::from_str(line).ok()).collect();
    let unread = lines.len() - read.len();
    Ok((read, unread))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_endpoints_directories_have_calibrations_of_their_own() {
        assert_eq!(names_at("lab", b"fast/a//b/"), ["lab:fast/a/b", "lab:fast/a", "lab:fast", "lab"]);
        assert_eq!((name_at("lab", b"/"), name_at("lab", b"./slow/")), ("lab".into(), "lab:slow".into()));
    }

    #[test]
    fn storage_that_cannot_be_calibrated_has_no_calibration() {
        for other in ["s3://bucket/x", "sftp://host/x", "tw://127.0.0.1:1/x", "null:", "-"] {
            let location = Location::parse(OsStr::new(other)).unwrap();
            assert!(of_destination(&location).unwrap().is_none(), "{other}");
        }
    }

    #[test]
    fn a_calibration_that_lies_under_the_name_of_another_endpoint_is_refused() {
        let text = r#"{"v":1,"of":"lab","source":null,"start_seconds":[],"measured":[],"sizes":[],"small_files":null,"notes":[],
            "circumstances":{"host":"h","kernel":"k","processors":1,"program":"0","taken":0,"profile":"quick"}}"#;
        assert!(own("lab", text).is_ok());
        assert_eq!(own("far", text).unwrap_err(), "it is the calibration of lab, not of far");
        assert!(own("lab", "{}").unwrap_err().contains("it is no calibration"));
    }

    #[test]
    fn no_calibration_has_the_name_of_another_file_that_is_kept() {
        let names = ["known", "known.map", "outcomes"].map(|of| file_name(of).unwrap());
        assert_eq!(names, ["known.json", "known%2Emap.json", "outcomes.json"]);
        assert_eq!(file_name(&"long/".repeat(50)), None);
    }

    #[test]
    fn a_file_that_several_replace_at_once_is_always_one_of_theirs() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("known.map.json");
        let texts = ["a", "b"].map(|text| text.repeat(64 << 10));
        let file = &file;
        replace(file, texts[0].clone()).unwrap();
        std::thread::scope(|scope| {
            for text in &texts {
                scope.spawn(move || (0..200).for_each(|_| replace(file, text.clone()).unwrap()));
            }
            (0..200).for_each(|_| assert!(texts.contains(&fs::read_to_string(file).unwrap())));
        });
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }
}
