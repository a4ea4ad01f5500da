//! Which thread works on which part of which file, and where the files lie.
//!
//! Invariants:
//! - With at least as many files as threads every file belongs to one thread, in directories that no other thread uses.
//! - With fewer files the threads share them: each has one range of one file, cut at whole blocks.
//! - Everything is opened relative to its directory's descriptor.

use std::fs;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};

use super::options::{FEW_FILES_MAX, Step};
use crate::error::{Error, Result};

/// One range of one file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Piece {
    pub file: u64,
    pub start: u64,
    pub end: u64,
}

#[derive(Debug)]
pub(super) struct Layout {
    root: PathBuf,
    pub step: Step,
    threads: u64,
    block_bytes: u64,
}

impl Layout {
    pub fn new(root: PathBuf, step: Step, threads: usize, block_bytes: u64) -> Layout {
        Layout { root, step, threads: threads as u64, block_bytes }
    }

    pub fn root(&self) -> &Path {
        &self.root
    }

    pub fn threads(&self) -> usize {
        self.threads as usize
    }

    pub fn is_shared(&self) -> bool {
        self.step.files < self.threads
    }

    /// What a thread does, in order.
    pub fn pieces(&self, thread: usize) -> Box<dyn Iterator<Item = Piece> + '_> {
        let thread = thread as u64;
        let bytes = self.step.file_bytes;
        if !self.is_shared() {
            let files = (thread..self.step.files).step_by(self.threads as usize);
            return Box::new(files.map(move |file| Piece { file, start: 0, end: bytes }));
        }
        let (file, part) = (thread % self.step.files, thread / self.step.files);
        let parts = (self.threads - file).div_ceil(self.step.files);
        let blocks = bytes.div_ceil(self.block_bytes);
        let cut = |part: u64| (blocks * part / parts * self.block_bytes).min(bytes);
        let piece = Piece { file, start: cut(part), end: cut(part + 1) };
        Box::new((piece.start < piece.end).then_some(piece).into_iter())
    }

    /// Makes the directories, and the files where threads share them, outside the measured time.
    pub fn prepare(&self) -> Result<()> {
        let mut last = None;
        let by_owner = (0..self.threads).flat_map(|owner| (owner..self.step.files).step_by(self.threads as usize));
        for file in by_owner {
            let dir = self.dir(file);
            if last.as_ref() != Some(&dir) {
                fs::create_dir_all(&dir).map_err(Error::io("create", &dir))?;
                last = Some(dir.clone());
            }
            if self.is_shared() {
                let path = dir.join(name(file));
                let made = fs::File::create_new(&path).map_err(Error::io("create", &path))?;
                made.set_len(self.step.file_bytes).map_err(Error::io("extend", &path))?;
            }
        }
        Ok(())
    }

    pub fn dir(&self, file: u64) -> PathBuf {
        let (owner, place) = (file % self.threads, file / self.threads);
        self.root.join(format!("t{owner}")).join(format!("d{}", place / FEW_FILES_MAX))
    }

    pub fn path(&self, file: u64) -> PathBuf {
        self.dir(file).join(name(file))
    }
}

pub(super) fn name(file: u64) -> String {
    format!("f{file}")
}

/// One thread's open directory: neighbours in the order of work mostly share it.
#[derive(Debug, Default)]
pub(super) struct OpenDir {
    opened: Option<(PathBuf, OwnedFd)>,
}

impl OpenDir {
    pub fn at(&mut self, dir: PathBuf) -> Result<&OwnedFd> {
        if self.opened.as_ref().is_none_or(|(opened, _)| *opened != dir) {
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
            let fd = rustix::fs::open(&dir, flags, Mode::empty()).map_err(Error::io("open", &dir))?;
            self.opened = Some((dir, fd));
        }
        Ok(&self.opened.as_ref().expect("opened above").1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout(files: u64, file_bytes: u64, threads: usize) -> Layout {
        let step = Step { file_bytes, files, bytes: files * file_bytes };
        Layout::new(PathBuf::from("/r"), step, threads, 10)
    }

    #[test]
    fn every_byte_of_every_file_belongs_to_one_thread() {
        for (files, file_bytes, threads) in [(7, 25, 3), (1, 95, 4), (3, 101, 8), (2, 5, 7), (4, 10, 4)] {
            let layout = layout(files, file_bytes, threads);
            let mut pieces: Vec<Piece> = (0..threads).flat_map(|thread| layout.pieces(thread)).collect();
            pieces.sort_by_key(|piece| (piece.file, piece.start));
            for file in 0..files {
                let mut end = 0;
                for piece in pieces.iter().filter(|piece| piece.file == file) {
                    assert_eq!(piece.start, end, "{files} {file_bytes} {threads}");
                    end = piece.end;
                }
                assert_eq!(end, file_bytes);
            }
        }
    }

    #[test]
    fn threads_with_whole_files_share_no_directory() {
        let layout = layout(5_000, 1, 2);
        let dirs: Vec<std::collections::BTreeSet<PathBuf>> =
            (0..2).map(|thread| layout.pieces(thread).map(|piece| layout.dir(piece.file)).collect()).collect();
        assert!(dirs[0].is_disjoint(&dirs[1]) && dirs[0].len() == 3, "{dirs:?}");
    }
}
