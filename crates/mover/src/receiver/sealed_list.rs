//! The list of what is complete at a destination, for programs there: a manifest to which lines are appended.
//!
//! ```text
//! # thalweg manifest 1 crc64nvme
//! ae8b14860a799888 9 dir/a
//! # closed files=1 bytes=56 crc64nvme=75a3c0d1b4f22c1e
//! ```
//! Invariants:
//! - A file has a line once it has its final name and is as durable as the job was asked to make it, and before the sender hears
//!   that it is settled. A list that cannot be written ends the attempt; the next one makes up for what is missing.
//! - A line that is there is whole and stays in its place. One of a file that was replaced becomes a comment once the new one
//!   has its line: at most one line in force names a file.
//! - The last line closes the list if the job came to its end and nothing was complete since. It has the number of lines in force,
//!   and length and digest of all that stands before it.
//!
//! Not here: the file (`store::Lines`), and what of a job is listed (`complete`).

use crate::digest::of_file;
use crate::limits::BLOCK_BYTES;
use model::manifest::{self, LINE_BYTES_MAX, Parser};
use model::{ChunkHasher, Digest, DigestAlgorithm, FailureKind, Timestamp, mutant};
use std::collections::HashMap;
use std::sync::Mutex;
use store::{Error, Lines, Result, SourceFile};

/// What was published so long before the list was last written has its line. Nothing takes longer from one to the other.
const MARGIN_SECONDS: i64 = 60;
/// What a line takes here.
pub const LINE_BYTES: usize = 2 * size_of::<(Path, Line)>();

/// A digest of a path: there may be very many.
type Path = [u8; 16];

/// A line in force.
#[derive(Clone, Copy)]
struct Line {
    at: u64,
    size_bytes: u64,
}

pub struct SealedList {
    algorithm: DigestAlgorithm,
    is_synced: bool,
    /// When it was last written before this job.
    changed: Timestamp,
    state: Mutex<State>,
}

struct State {
    lines: Box<dyn Lines>,
    end: u64,
    in_force: HashMap<Path, Line>,
}

fn key(path: &[u8]) -> Path {
    let digest = DigestAlgorithm::Blake3.of_object(path).to_bytes();
    digest[..16].try_into().expect("32 bytes")
}

fn refused(why: &str) -> Error {
    Error::of_kind(FailureKind::Other, "read list", b"", why)
}

impl SealedList {
    pub fn open(lines: Box<dyn Lines>, algorithm: DigestAlgorithm, is_synced: bool) -> Result<SealedList> {
        let changed = lines.changed()?;
        let mut state = State { lines, end: 0, in_force: HashMap::new() };
        state.load(algorithm)?;
        if state.end == 0 {
            state.append(manifest::first_line(algorithm).as_bytes(), is_synced)?;
        }
        Ok(SealedList { algorithm, is_synced, changed, state: Mutex::new(state) })
    }

    /// Files that have their names.
    pub fn published(&self, files: &mut dyn Iterator<Item = (&[u8], Digest, u64)>) -> Result<()> {
        self.state.lock().unwrap().add(files, self.is_synced)
    }

    /// A file that was there already, as its source has it. `may_add` is asked before a line more is held.
    pub fn found(
        &self,
        (path, size): (&[u8], u64),
        file: &dyn SourceFile,
        goes_on: &dyn Fn() -> bool,
        may_add: &dyn Fn() -> bool,
    ) -> Result<()> {
        let is_old = file.generation()?.version.changed().seconds + MARGIN_SECONDS < self.changed.seconds;
        let known = self.state.lock().unwrap().in_force.get(&key(path)).copied();
        if is_old && known.is_some_and(|line| line.size_bytes == size) {
            return Ok(());
        }
        let Some(digest) = of_file(file, size, self.algorithm, goes_on)? else { return Ok(()) };
        let mut state = self.state.lock().unwrap();
        let line = manifest::line(&digest, size, path);
        if let Some(known) = known {
            let mut there = vec![0; line.len()];
            if state.lines.read_at(known.at, &mut there)? == line.len() && there == line.as_bytes() {
                return Ok(());
            }
        }
        if !may_add() {
            return Ok(());
        }
        state.add(&mut std::iter::once((path, digest, size)), self.is_synced)
    }

    /// Nothing more comes of this job.
    pub fn close(&self) -> Result<()> {
        let mut state = self.state.lock().unwrap();
        let mut hasher = ChunkHasher::new(self.algorithm, 0);
        state.read(&mut |block| hasher.update(block))?;
        let (files, end) = (state.in_force.len(), state.end);
        let digest = hasher.finish(true);
        let line = format!("# closed files={files} bytes={end} {}={digest}\n", self.algorithm);
        state.append(line.as_bytes(), self.is_synced)
    }
}

impl State {
    /// Reads what earlier jobs left, and drops what they left of a line.
    fn load(&mut self, algorithm: DigestAlgorithm) -> Result<()> {
        let (mut rest, mut at, mut parser) = (Vec::new(), 0, None);
        let mut twice = Vec::new();
        let mut failure = None;
        let in_force = &mut self.in_force;
        let mut take = |line: &[u8], at: u64| -> std::result::Result<(), String> {
            let Some(parser) = &mut parser else {
                let found = Parser::new(line).map_err(|e| e.to_string())?;
                if found.algorithm() != algorithm {
                    return Err(format!("its digests are {}, and those of the job {algorithm}", found.algorithm()));
                }
                parser = Some(found);
                return Ok(());
            };
            if let Some(entry) = parser.line(line).map_err(|e| e.to_string())? {
                let line = Line { at, size_bytes: entry.size_bytes };
                twice.extend(in_force.insert(key(&entry.path), line).map(|before| before.at));
            }
            Ok(())
        };
        read(&*self.lines, u64::MAX, &mut |block| {
            rest.extend_from_slice(block);
            let mut from = 0;
            while let Some(length) = rest[from..].iter().position(|byte| *byte == b'\n') {
                if failure.is_none() {
                    failure = take(&rest[from..from + length], at).err();
                }
                (from, at) = (from + length + 1, at + length as u64 + 1);
            }
            rest.drain(..from);
            if rest.len() > LINE_BYTES_MAX {
                failure.get_or_insert("a line is too long".to_owned());
                rest.clear();
            }
        })?;
        // A first line that was cut off is the beginning of one.
        let first = manifest::first_line(algorithm);
        if at == 0 && !first.as_bytes().starts_with(&rest) {
            failure = Some("it does not begin as one".to_owned());
        }
        if let Some(why) = failure {
            return Err(refused(&format!("what has this name is not a list that can be continued: {why}")));
        }
        if !rest.is_empty() {
            self.lines.cut(at)?;
        }
        self.end = at;
        twice.into_iter().try_for_each(|at| self.strike(at))
    }

    fn read(&self, take: &mut dyn FnMut(&[u8])) -> Result<()> {
        read(&*self.lines, self.end, take)
    }

    fn append(&mut self, text: &[u8], is_synced: bool) -> Result<()> {
        let written =
            self.lines.write_at(self.end, text).and_then(|()| if is_synced { self.lines.sync() } else { Ok(()) });
        if written.is_err() {
            // A reader finds whole lines alone.
            let _ = self.lines.cut(self.end);
        }
        written.map(|()| self.end += text.len() as u64)
    }

    fn add(&mut self, files: &mut dyn Iterator<Item = (&[u8], Digest, u64)>, is_synced: bool) -> Result<()> {
        let (mut text, mut added) = (String::new(), Vec::new());
        for (path, digest, size_bytes) in files {
            added.push((key(path), Line { at: self.end + text.len() as u64, size_bytes }));
            text.push_str(&manifest::line(&digest, size_bytes, path));
        }
        self.append(text.as_bytes(), is_synced)?;
        for (path, line) in added {
            if let Some(before) = self.in_force.insert(path, line) {
                self.strike(before.at)?;
            }
        }
        Ok(())
    }

    /// Makes a comment of a line.
    fn strike(&mut self, at: u64) -> Result<()> {
        if mutant::is_on("list-a-file-twice") { Ok(()) } else { self.lines.write_at(at, b"#") }
    }
}

/// Reads a list from its start, to its end or so far.
fn read(lines: &dyn Lines, end: u64, take: &mut dyn FnMut(&[u8])) -> Result<()> {
    let (mut block, mut at) = (vec![0; BLOCK_BYTES], 0);
    while at < end {
        let wanted = (end - at).min(BLOCK_BYTES as u64) as usize;
        match lines.read_at(at, &mut block[..wanted])? {
            0 => break,
            got => {
                take(&block[..got]);
                at += got as u64;
            }
        }
    }
    Ok(())
}
