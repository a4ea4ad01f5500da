//! An instrument for trials of the real program: files that grow while either side of `thalweg follow` is killed, that are patched
//! at their front when they end, and then get their last names.
//!
//! What is held against the destination, at every moment: a last name holds what its file is in the end; an unfinished name, a
//! beginning of it; what a reader has seen of a file that it holds open stays, and the file never becomes shorter.
//!
//! Not here: who is killed, and when (`kill`).

use crate::check;
use anyhow::{Context, Result};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::Duration;

/// How its files are named while they grow, and what ends the command.
pub const SUFFIX: &str = ".inprogress";
pub const STOP: &str = "STOP";
/// What is shown of a file that was found under its last name, a moment after it got it.
const PARTIAL: &str = ".partial";
const FILES: u64 = 6;
const BYTES_MAX: u64 = 384 << 10;
const WRITE_BYTES: usize = 8 << 10;
const HEADER_BYTES: usize = 64;
const WRITE_INTERVAL: Duration = Duration::from_millis(20);

/// A file as it is written, and as it is once its front was patched.
struct Grown {
    written: Vec<u8>,
    last: Vec<u8>,
}

impl Grown {
    fn is_beginning(&self, seen: &[u8]) -> bool {
        self.written.starts_with(seen) || self.last.starts_with(seen)
    }
}

/// A file of the destination that is held open, and what was seen of it.
struct Reader {
    name: String,
    file: File,
    seen: Vec<u8>,
}

pub struct Instrument {
    pub dir: PathBuf,
    files: Arc<BTreeMap<String, Grown>>,
    readers: RefCell<Vec<Reader>>,
    is_over: Arc<AtomicBool>,
    writer: Option<JoinHandle<io::Result<()>>>,
}

impl Instrument {
    pub fn new(dir: PathBuf, seed: u64) -> Result<Instrument> {
        fs::create_dir(&dir).context("make a source that grows")?;
        let grown = |number: u64| {
            let mut random =
                blake3::Hasher::new().update(&seed.to_le_bytes()).update(&number.to_le_bytes()).finalize_xof();
            let mut size = [0; 4];
            random.fill(&mut size);
            let bytes =
                [1, WRITE_BYTES as u64, u64::from(u32::from_le_bytes(size)) % BYTES_MAX][number.min(2) as usize];
            let mut written = vec![0; bytes as usize];
            random.fill(&mut written);
            let mut last = written.clone();
            if number % 2 == 1 {
                last.iter_mut().take(HEADER_BYTES).for_each(|byte| *byte ^= 0x55);
            }
            (format!("run-{number}"), Grown { written, last })
        };
        let files = Arc::new((0..FILES).map(grown).collect());
        Ok(Instrument { dir, files, readers: RefCell::default(), is_over: Arc::default(), writer: None })
    }

    /// Begins to write; a second call changes nothing.
    pub fn start(&mut self) -> Result<()> {
        if self.writer.is_none() {
            let (dir, files, is_over) = (self.dir.clone(), self.files.clone(), self.is_over.clone());
            let write = move || write(&dir, &files, &is_over);
            self.writer = Some(std::thread::Builder::new().name("instrument".into()).spawn(write)?);
        }
        Ok(())
    }

    pub fn bytes(&self) -> u64 {
        self.files.values().map(|file| file.last.len() as u64).sum()
    }

    /// What must hold at every moment.
    ///
    /// # Errors
    /// Says what was broken.
    pub fn check_half_done(&self, destination: &Path) -> Result<(), String> {
        let mut readers = self.readers.borrow_mut();
        for Reader { name, file, seen } in &mut *readers {
            let now = whole(file).map_err(cannot)?;
            if !now.starts_with(seen) {
                let what = if now.len() < seen.len() { "became shorter" } else { "changed" };
                return Err(format!("prefix: {name} {what} under its reader, who had {} bytes", seen.len()));
            }
            *seen = now;
        }
        let listing = fs::read_dir(destination).map_err(cannot)?;
        for entry in listing {
            let name = entry.map_err(cannot)?.file_name().to_string_lossy().into_owned();
            if name == STOP || name.starts_with(check::STAGING_PREFIX) {
                continue;
            }
            let unfinished = [SUFFIX, PARTIAL].iter().find_map(|suffix| name.strip_suffix(suffix));
            let (of, is_unfinished) = (unfinished.unwrap_or(&name), unfinished.is_some());
            let Some(grown) = self.files.get(of) else { return Err(format!("I1: {name} appeared")) };
            // It may get its last name at this moment.
            let Ok(file) = File::open(destination.join(&name)) else { continue };
            let seen = whole(&file).map_err(cannot)?;
            if !is_unfinished && seen != grown.last {
                let (there, wanted) = (seen.len(), grown.last.len());
                return Err(format!("I1: {name} has {there} bytes that are not the {wanted} of the source"));
            }
            if is_unfinished && !grown.is_beginning(&seen) {
                return Err(format!("prefix: the {} bytes of {name} are not the source's", seen.len()));
            }
            let number = |file: &File| file.metadata().map(|status| status.ino()).map_err(cannot);
            let inode = number(&file)?;
            let mut known = readers.iter().map(|reader| number(&reader.file));
            if !known.any(|known| known == Ok(inode)) {
                readers.push(Reader { name, file, seen });
            }
        }
        Ok(())
    }

    /// I2: what the command called sealed is there.
    ///
    /// # Errors
    /// Says what is not.
    pub fn check_sealed(&self, destination: &Path, output: &str) -> Result<(), String> {
        let events = output.lines().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
        for event in events.filter(|event| event["event"] == "sealed") {
            let path = event["path"].as_str().unwrap_or_default();
            let name = path.rsplit('/').next().unwrap_or_default();
            let wanted = self.files.get(name).ok_or_else(|| format!("I2: {path} was called sealed"))?;
            if fs::read(destination.join(name)).ok().as_ref() != Some(&wanted.last) {
                return Err(format!("I2: {name} was called sealed and is not there as it is at the source"));
            }
        }
        Ok(())
    }

    /// I7: all of it is there under its last names. Beside one there may be what was shown of it, if it got that name while the
    /// command was not running (docs/follow.md).
    ///
    /// # Errors
    /// Says what is not.
    pub fn check_complete(&self, destination: &Path) -> Result<(), String> {
        let differs =
            |(name, grown): &(&String, &Grown)| fs::read(destination.join(name)).ok().as_ref() != Some(&grown.last);
        if let Some((name, _)) = self.files.iter().find(differs) {
            return Err(format!("I7: {name} is not what it is at the source"));
        }
        let listing = fs::read_dir(destination).map_err(cannot)?.flatten();
        let names = listing.map(|entry| entry.file_name().to_string_lossy().into_owned());
        let is_left = |name: &String| {
            [SUFFIX, PARTIAL].iter().any(|end| name.ends_with(end)) || name.starts_with(check::STAGING_PREFIX)
        };
        let mut names: Vec<_> = names.filter(|name| !is_left(name)).collect();
        names.sort();
        let wanted: Vec<_> = std::iter::once(STOP).chain(self.files.keys().map(String::as_str)).collect();
        if names != wanted {
            return Err(format!("I7: {names:?} is there, and not {wanted:?}"));
        }
        Ok(())
    }
}

impl Drop for Instrument {
    fn drop(&mut self) {
        self.is_over.store(true, Relaxed);
        if let Some(writer) = self.writer.take() {
            let _ = writer.join();
        }
    }
}

/// All files in turn, a write to each; whatever is whole is patched and named.
fn write(dir: &Path, files: &BTreeMap<String, Grown>, is_over: &AtomicBool) -> io::Result<()> {
    let mut at = 0;
    while files.values().any(|grown| grown.written.len() > at) && !is_over.load(Relaxed) {
        for (name, grown) in files.iter().filter(|(_, grown)| grown.written.len() > at) {
            let path = dir.join(format!("{name}{SUFFIX}"));
            let mut file = File::options().append(true).create(true).open(&path)?;
            let end = grown.written.len().min(at + WRITE_BYTES);
            file.write_all(&grown.written[at..end])?;
            if end == grown.written.len() {
                let header = &grown.last[..HEADER_BYTES.min(end)];
                File::options().write(true).open(&path)?.write_all_at(header, 0)?;
                fs::rename(&path, dir.join(name))?;
            }
        }
        at += WRITE_BYTES;
        std::thread::sleep(WRITE_INTERVAL);
    }
    File::create(dir.join(STOP)).map(drop)
}

fn whole(file: &File) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; file.metadata()?.len() as usize];
    file.read_exact_at(&mut bytes, 0)?;
    Ok(bytes)
}

fn cannot(e: io::Error) -> String {
    format!("the checker could not read: {e}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_shrinks_changes_or_is_not_the_source_s_is_noticed() {
        let dir = tempfile::tempdir().unwrap();
        let instrument = Instrument::new(dir.path().join("grown"), 1).unwrap();
        let (there, name) = (dir.path().join("there"), "run-3");
        fs::create_dir(&there).unwrap();
        let (written, last) = (instrument.files[name].written.clone(), instrument.files[name].last.clone());
        assert!(written.len() > HEADER_BYTES && written != last);
        let unfinished = there.join(format!("{name}{SUFFIX}"));
        fs::write(&unfinished, &written[..50]).unwrap();
        instrument.check_half_done(&there).unwrap();
        let look = |bytes: &[u8]| {
            File::options().write(true).truncate(true).open(&unfinished).unwrap().write_all(bytes).unwrap();
            instrument.check_half_done(&there).unwrap_err()
        };
        assert!(look(&written[..49]).contains("shorter") && look(&last[..60]).contains("changed"));
        fs::remove_file(&unfinished).unwrap();
        instrument.readers.take();
        fs::write(there.join(name), &written).unwrap();
        assert!(instrument.check_half_done(&there).unwrap_err().contains("I1"));
        let sealed = format!("{{\"event\":\"sealed\",\"path\":\"/x/{name}\"}}");
        assert!(instrument.check_sealed(&there, &sealed).is_err() && instrument.check_complete(&there).is_err());
        fs::write(there.join(name), &last).unwrap();
        instrument.check_half_done(&there).unwrap();
        instrument.check_sealed(&there, &sealed).unwrap();
    }
}
