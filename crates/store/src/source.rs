//! Reading storage.

use crate::{Engines, Result, SourceFacts};
pub use model::End;
use model::fidelity::Warning;
use model::follow::Follow;
use model::{Entry, Extent, Failure, Generation, Name, ObjectId, Timestamp};
use std::any::Any;
use std::sync::Arc;
use std::time::Duration;

/// A directory of a source, by the number the source gave it. Only that source can read it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct DirectoryKey(pub u64);

/// An entry and where its source keeps it.
#[derive(Clone, Debug)]
pub struct SourceObject {
    pub entry: Entry,
    /// The directory the entry lies in, at the source.
    pub directory: DirectoryKey,
    pub end: End,
}

impl SourceObject {
    /// The size is not known before the end was read.
    pub fn is_open_ended(&self) -> bool {
        self.end == End::ReadOnce
    }

    pub fn is_growing(&self) -> bool {
        self.end == End::Growing
    }
}

/// What only reading told of a file that was listed without its time (`Source::leave_times`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Late {
    pub modified: Timestamp,
    pub mode: u32,
    /// It is a symbolic link, and its content the target.
    pub is_link: bool,
}

/// What a file takes on its storage, and whether that is less than it is long.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Footing {
    pub allocated_bytes: u64,
    pub has_holes: bool,
}

/// What is known of the holes of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Holes {
    None,
    /// It takes less than it is long, and where is not to be learnt.
    Somewhere,
    /// `SourceFile::piece` tells them.
    Told,
}

/// A part of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Piece {
    Data(Extent),
    Hole(Extent),
}

/// What a scan comes upon.
#[derive(Debug)]
pub enum Found {
    Object(SourceObject),
    /// Could not be listed, or is of a kind that is not copied.
    Failed(Failure),
}

/// What a watch comes upon. Objects have the numbers that the watch gave them, as their ids and as their parents' ids.
#[derive(Debug)]
pub enum Event {
    /// A growing file, or whatever is complete as it is. Parents come before children.
    Found(SourceObject),
    /// Something that says that others are complete; it is to arrive after them.
    Marker {
        object: SourceObject,
        covers: Vec<ObjectId>,
    },
    Failed(Failure),
    /// So much of a growing file can be read.
    Grown {
        id: ObjectId,
        available_bytes: u64,
    },
    /// A file is complete: what it is, and is called, now.
    Ended {
        id: ObjectId,
        entry: Entry,
    },
    /// A file that is complete has another name.
    Renamed {
        object: SourceObject,
        before: Name,
    },
    /// A file grows from now on as another object.
    Restarted {
        object: SourceObject,
        why: Restart,
    },
    /// A growing file was removed, or moved out of reach.
    Gone {
        id: ObjectId,
    },
    /// Nothing new is told any more. Growing files that can still end are.
    Over,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Restart {
    /// It went on after it was complete.
    Reopened,
    /// What was read of it is not its beginning any more.
    Truncated,
    /// Another file has its name.
    Replaced,
}

/// Tells what becomes of a source's objects while they are written.
pub trait Watch: Send {
    /// Waits until something happens, at most for `patience`, and tells it.
    ///
    /// # Errors
    /// Only what makes all further watching worthless.
    fn next(&mut self, patience: Duration, hear: &mut dyn FnMut(Event)) -> Result<()>;
}

/// A source: lists objects with a generation of each, and reads them by extent.
///
/// Invariant: the generation of an object can be learnt after it was read, so that a change meanwhile is seen.
///
/// Call order: `sort_by_key` and `leave_times`, then `scan` or `watch`; what these found is read through lanes, and looked at again.
///
/// Not here: which objects are wanted (`mover::receiver`), and digests (`mover::sender`).
pub trait Source: Send + Sync {
    fn facts(&self) -> SourceFacts {
        SourceFacts::default()
    }

    /// Lists everything, parents before children, with ids counting from 1. Stops when `emit` returns false.
    ///
    /// # Errors
    /// Only what makes the listing as a whole worthless; objects that fail are found as `Failed`.
    fn scan(&self, emit: &mut dyn FnMut(Found) -> bool) -> Result<()>;

    /// From here on a scan tells entries in the order of their keys (`keys`), and what is in a directory right behind it; false
    /// where it cannot.
    fn sort_by_key(&self) -> bool {
        false
    }

    /// From here on a scan may tell a file of up to so many bytes without what only a request for it would tell: with the time
    /// `UNKNOWN_TIME`. Its lanes tell it when they have read it (`SourceLane::late`), and `look_again_at_all` before that.
    fn leave_times(&self, bytes_max: u64) {
        let _ = bytes_max;
    }

    /// Lists everything and then what changes, by these rules. `None` where what grows cannot be told from what is complete.
    fn watch(&self, rules: &Follow) -> Result<Option<Box<dyn Watch>>> {
        let _ = rules;
        Ok(None)
    }

    /// One lane's own handle.
    fn lane(&self) -> Box<dyn SourceLane>;

    /// Path of an object below `directory`, relative to the destination of the job; for reports.
    fn path(&self, object: &SourceObject) -> Vec<u8>;

    /// Looks at the object again: its entry with the generation of now.
    fn look_again(&self, object: &SourceObject) -> Result<SourceObject>;

    /// The same of several, for sources that can ask about many at once.
    fn look_again_at_all(&self, objects: &[&SourceObject]) -> Vec<Result<SourceObject>> {
        objects.iter().map(|object| self.look_again(object)).collect()
    }

    /// What a file takes where it lies; `None` where that is not known.
    fn footing(&self, object: &SourceObject) -> Option<Footing> {
        let _ = object;
        None
    }

    /// What a user or group of this number is called where the objects come from; `None` where that is not known.
    fn owner_name(&self, is_group: bool, number: u32) -> Option<Box<[u8]>> {
        let _ = (is_group, number);
        None
    }

    /// What was found out and chosen on the way.
    fn notes(&self) -> Vec<String> {
        Vec::new()
    }

    /// What could not be read of objects beside their content since the last call.
    fn take_warnings(&self) -> Vec<Warning> {
        Vec::new()
    }
}

pub trait SourceLane: Send {
    /// Opens the object, reads it into `buffer` until the buffer is full or the file ends, and tells how much was read
    /// and the generation seen *after* the read. One open, no allocation.
    fn read_whole(&mut self, object: &SourceObject, buffer: &mut [u8]) -> Result<(usize, Generation)>;

    /// What reading the object whole told of it beyond its listing, once.
    fn late(&mut self, object: ObjectId) -> Option<Late> {
        let _ = object;
        None
    }

    fn open(&mut self, object: &SourceObject) -> Result<Arc<dyn SourceFile>>;

    /// Small objects that are read whole next, in this order: a hint for sources where each costs a round trip.
    fn ahead(&mut self, next: &[SourceObject]) {
        let _ = next;
    }

    /// The job that the lane serves, for engines that it may use. Before anything is read.
    fn serve(&mut self, engines: Engines) {
        let _ = engines;
    }

    /// Whether storage is asked for several blocks at once, so that it would stand still between two extents unless it is told
    /// of the second one.
    fn reads_ahead(&self) -> bool {
        false
    }

    /// What is read after the next extent, by the same open file: blocks of it are asked for as soon as there is room.
    fn expect(&mut self, file: Arc<dyn SourceFile>, extent: Extent) {
        let _ = (file, extent);
    }

    /// Reads `extent` and hands every block to `each` in order, in `block` or in memory of the lane's own. Returns how many
    /// bytes there were: fewer than the extent is long when the object ends before it, or when `each` said false.
    fn read_extent(
        &mut self,
        file: &dyn SourceFile,
        extent: Extent,
        block: &mut [u8],
        each: &mut dyn FnMut(&[u8]) -> bool,
    ) -> Result<u64> {
        crate::read_by_blocks(file, extent, block, each)
    }
}

/// Why an object that is listed with size 0 and has content is not copied as an empty one.
pub const SIZE_UNTRUE: &str =
    "its size is said to be 0, but it has content, as files of /proc do: `cat FILE | thalweg cp - DST` copies it";

/// An open object, shared by the lanes that read it.
pub trait SourceFile: Send + Sync {
    /// Reads until `buffer` is full or the object ends; returns how much was read.
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<usize>;

    fn generation(&self) -> Result<Generation>;

    /// Of an object whose end was not known: everything was read.
    fn is_at_end(&self) -> bool {
        false
    }

    fn holes(&self) -> Holes {
        Holes::None
    }

    /// What `extent` begins with; never nothing, and never beyond its end. What an object that became shorter does not have
    /// any more is data: reading tells that it ended.
    fn piece(&self, extent: Extent) -> Piece {
        Piece::Data(extent)
    }

    /// What the store itself knows the object by, for its own engines: it means nothing to anybody else. A wrapper passes on
    /// that of what it wraps, if the store may go past it.
    fn native(&self) -> Option<&dyn Any> {
        None
    }
}
