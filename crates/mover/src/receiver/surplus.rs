//! What stands at a destination and not at its source, as a comparison of both in the order of keys came upon it; told again in the
//! other direction, so that what is in a directory comes before it.
//!
//! Invariants: memory is bounded by `HELD_BYTES_MAX`, whatever there is: the rest lies in a file without a name; what could not be
//! put down, or not be listed, is a gap, and then nothing is removed.

use model::Failure;
use os::sync::Mutex;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Paths that are held before they go to the file.
const HELD_BYTES_MAX: usize = 4 << 20;
/// What is read of the file at once.
const READ_BYTES: u64 = 1 << 20;
/// Behind each path: its length, and whether it is a directory.
const TAIL_BYTES: usize = 5;
/// What could not be listed and is told.
const FAILURES_MAX: usize = 1000;

#[derive(Default)]
pub struct Surplus(Mutex<State>);

#[derive(Default)]
struct State {
    held: Vec<u8>,
    file: Option<File>,
    /// What the file holds, before what is held.
    filed_bytes: u64,
    failures: Vec<Failure>,
    has_gaps: bool,
    is_over: bool,
}

impl Surplus {
    pub fn add(&self, path: &[u8], is_directory: bool) {
        let mut state = self.0.lock().unwrap();
        state.held.extend_from_slice(path);
        state.held.extend_from_slice(&(path.len() as u32).to_le_bytes());
        state.held.push(is_directory.into());
        if state.held.len() >= HELD_BYTES_MAX && state.put_down().is_err() {
            state.held.clear();
            state.has_gaps = true;
        }
    }

    /// The job is over: nothing more is compared.
    pub fn end(&self) {
        let mut state = self.0.lock().unwrap();
        (state.has_gaps, state.is_over) = (true, true);
    }

    pub fn is_over(&self) -> bool {
        self.0.lock().unwrap().is_over
    }

    /// Something of either side is not known.
    pub fn note_gap(&self) {
        self.0.lock().unwrap().has_gaps = true;
    }

    /// The destination could not list something.
    pub fn not_listed(&self, failure: Failure) {
        let mut state = self.0.lock().unwrap();
        state.has_gaps = true;
        if state.failures.len() < FAILURES_MAX {
            state.failures.push(failure);
        }
    }

    pub fn has_gaps(&self) -> bool {
        self.0.lock().unwrap().has_gaps
    }

    /// What the destination has is not all known.
    pub fn is_blind(&self) -> bool {
        let state = self.0.lock().unwrap();
        state.is_over || !state.failures.is_empty()
    }

    pub fn take_failures(&self) -> Vec<Failure> {
        std::mem::take(&mut self.0.lock().unwrap().failures)
    }

    /// All of it, the last first. What cannot be read again ends it.
    pub fn backwards(&self) -> impl FnMut() -> Option<(Vec<u8>, bool)> + '_ {
        let state = self.0.lock().unwrap();
        let (mut held, mut left) = (state.held.clone(), state.filed_bytes);
        drop(state);
        move || {
            loop {
                if let Some(last) = take_last(&mut held) {
                    return Some(last);
                }
                let count = left.min(READ_BYTES);
                if count == 0 {
                    return None;
                }
                let mut block = vec![0; count as usize];
                let state = self.0.lock().unwrap();
                state.file.as_ref()?.read_exact_at(&mut block, left - count).ok()?;
                left -= count;
                block.extend_from_slice(&held);
                held = block;
            }
        }
    }
}

/// The last of some paths, if all of it is here.
fn take_last(held: &mut Vec<u8>) -> Option<(Vec<u8>, bool)> {
    let end = held.len().checked_sub(TAIL_BYTES)?;
    let length = u32::from_le_bytes(held[end..end + 4].try_into().expect("four bytes")) as usize;
    let start = end.checked_sub(length)?;
    let last = (held[start..end].to_vec(), held[end + 4] != 0);
    held.truncate(start);
    Some(last)
}

impl State {
    fn put_down(&mut self) -> io::Result<()> {
        if self.file.is_none() {
            self.file = Some(nameless()?);
        }
        let file = self.file.as_ref().expect("it was just made");
        file.write_all_at(&self.held, self.filed_bytes)?;
        self.filed_bytes += self.held.len() as u64;
        self.held.clear();
        Ok(())
    }
}

/// A file for this process alone, which goes with it.
fn nameless() -> io::Result<File> {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let name = format!(".thalweg-surplus-{}-{}", std::process::id(), NEXT.fetch_add(1, Relaxed));
    let path = std::env::temp_dir().join(name);
    let file = OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(&path)?;
    std::fs::remove_file(&path)?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_put_down_is_told_from_its_end_whatever_its_length() {
        let surplus = Surplus::default();
        let path = |number: u32| format!("{number:0width$}", width = 1 + number as usize % 300).into_bytes();
        for number in 0..60_000 {
            surplus.add(&path(number), number % 3 == 0);
        }
        assert!(surplus.0.lock().unwrap().filed_bytes > 0 && !surplus.has_gaps());
        // Twice: once to count, and once to remove.
        for _ in 0..2 {
            let mut next = surplus.backwards();
            for number in (0..60_000).rev() {
                assert_eq!(next(), Some((path(number), number % 3 == 0)));
            }
            assert_eq!(next(), None);
        }
    }
}
