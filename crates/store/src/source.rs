//! Reading storage.

use crate::Result;
use model::fidelity::Warning;
use model::{Entry, Failure, Generation};
use std::os::fd::BorrowedFd;
use std::sync::Arc;

/// A directory of a source, by the number the source gave it. Only that source can read it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct DirectoryKey(pub u64);

/// An entry and where its source keeps it.
#[derive(Clone, Debug)]
pub struct SourceObject {
    pub entry: Entry,
    /// The directory the entry lies in, at the source.
    pub directory: DirectoryKey,
    /// The size is not known until the end is read (pipes); `entry.generation.size_bytes` is 0.
    pub is_open_ended: bool,
}

/// What a file takes on its storage, and whether that is less than it is long.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Footing {
    pub allocated_bytes: u64,
    pub has_holes: bool,
}

/// What a scan comes upon.
#[derive(Debug)]
pub enum Found {
    Object(SourceObject),
    /// Could not be listed, or is of a kind that is not copied.
    Failed(Failure),
}

pub trait Source: Send + Sync {
    /// Lists everything, parents before children, with ids counting from 1. Stops when `emit` returns false.
    ///
    /// # Errors
    /// Only what makes the listing as a whole worthless; objects that fail are found as `Failed`.
    fn scan(&self, emit: &mut dyn FnMut(Found) -> bool) -> Result<()>;

    /// One lane's own handle.
    fn lane(&self) -> Box<dyn SourceLane>;

    /// Path of an object below `directory`, relative to the destination of the job; for reports.
    fn path(&self, object: &SourceObject) -> Vec<u8>;

    /// Looks at the object again: its entry with the generation of now.
    fn look_again(&self, object: &SourceObject) -> Result<SourceObject>;

    /// What a file takes where it lies; `None` where that is not known.
    fn footing(&self, object: &SourceObject) -> Option<Footing> {
        let _ = object;
        None
    }

    /// What could not be read of objects beside their content since the last call.
    fn take_warnings(&self) -> Vec<Warning> {
        Vec::new()
    }

    /// Objects must be read once, in order, by one lane (pipes).
    fn is_sequential(&self) -> bool {
        false
    }
}

pub trait SourceLane: Send {
    /// Opens the object, reads it into `buffer` until the buffer is full or the file ends, and tells how much was read
    /// and the generation seen *after* the read. One open, no allocation.
    fn read_whole(&mut self, object: &SourceObject, buffer: &mut [u8]) -> Result<(usize, Generation)>;

    fn open(&mut self, object: &SourceObject) -> Result<Arc<dyn SourceFile>>;
}

/// An open object, shared by the lanes that read it.
pub trait SourceFile: Send + Sync {
    /// Reads until `buffer` is full or the object ends; returns how much was read.
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<usize>;

    fn generation(&self) -> Result<Generation>;

    /// Of an object whose end was not known: everything was read.
    fn is_at_end(&self) -> bool {
        false
    }

    /// The descriptor for storage engines, where the object has one that reads by offset.
    fn descriptor(&self) -> Option<BorrowedFd<'_>>;
}
