//! Questions about what a store holds: looking, listing, reading; and names made, changed and taken away.
//!
//! A `Shelf` is one object that a path led to. How paths lead to objects, and who may follow them, is not asked here: whoever
//! serves a store reaches its objects by its own rules, and hands them out as shelves.
//!
//! Invariants: no link is followed; a listing has the order of names on every store, so that two can be compared while they run.

use crate::source::SourceFile;
use crate::{Error, Result};
use model::files::{FileStatus, Tally, Version};
use std::any::Any;
use std::sync::{Arc, Condvar, Mutex};

/// What a path is to be reached for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum How {
    /// A path that ends in a slash can only mean a directory, and a link there is followed.
    Look,
    /// The name itself is to go, or to come in place of another.
    Take,
    /// A directory is to be made under this name; `with_parents` has made what was missing above it.
    Make { with_parents: bool },
}

/// An object that was named.
pub trait Shelf: Any + Send + Sync {
    /// What stands there; of a link, the link itself.
    fn look(&self) -> Result<FileStatus>;

    /// Lists the object and what is below it, down to `levels`, in the order of names: a directory before what is in it,
    /// siblings by the bytes of their names. `visit` returns false to stop.
    fn list(&self, levels: u32, slots: &Arc<Slots>, visit: &mut dyn FnMut(Surveyed) -> bool) {
        self.walk(levels, slots, &mut |found| Surveyed::of(found).is_none_or(&mut *visit));
    }

    /// As `list`, for whoever reads what is found, or counts what directories hold.
    fn walk(&self, levels: u32, slots: &Arc<Slots>, visit: &mut dyn FnMut(Visit<'_>) -> bool);

    /// Makes a directory; true when it was not there.
    fn make(&self, may_be_there: bool) -> Result<bool>;

    /// Gives the object another name in the same store, in one step; it is durable when this returns.
    fn rename(&self, to: &dyn Shelf, may_replace: bool) -> Result<()>;

    /// Removes one object that is no directory, or an empty directory; only if it still is of the version given.
    fn remove(&self, version: Option<&Version>, may_be_directory: bool) -> Result<Tally>;

    /// Removes the object and everything below it.
    fn remove_tree(&self, is_stopped: Stopped<'_>, each_failure: EachFailure<'_>) -> Tally;
}

/// An object, or why it or what is in it is not known. The path is relative to the one that was named, empty for itself.
pub struct Surveyed {
    pub path: Vec<u8>,
    pub is_last: bool,
    pub found: Result<FileStatus>,
}

impl Surveyed {
    /// What a walk came upon; nothing when it leaves a directory.
    pub fn of(found: Visit<'_>) -> Option<Surveyed> {
        match found {
            Visit::Object { path, status, is_last, .. } => {
                Some(Surveyed { path: path.to_vec(), is_last, found: Ok(status) })
            }
            Visit::Failed { path, error } => Some(Surveyed { path: path.to_vec(), is_last: false, found: Err(error) }),
            Visit::Left { .. } => None,
        }
    }
}

/// What a walk comes upon. Paths are as in `Surveyed`.
pub enum Visit<'a> {
    Object {
        path: &'a [u8],
        status: FileStatus,
        is_last: bool,
        /// Makes the means to open a file later.
        opener: &'a dyn Fn() -> Opener,
    },
    /// Everything below a directory was visited.
    Left {
        path: &'a [u8],
    },
    Failed {
        path: &'a [u8],
        error: Error,
    },
}

/// Opens a file that a walk came upon, in any thread. It keeps one of the walk's slots until it is dropped.
pub type Opener = Box<dyn FnOnce() -> Result<Arc<dyn SourceFile>> + Send>;

pub type Stopped<'a> = &'a (dyn Fn() -> bool + Sync);
/// Takes the path of what could not be removed, relative to the one that was named, and why.
pub type EachFailure<'a> = &'a mut dyn FnMut(&[u8], Error);

/// What a walk takes for itself at most.
pub(crate) const SLOTS_OF_A_WALK: usize = 65;

/// Directories that may be open at once, by a walk and by whoever reads what it found.
pub struct Slots {
    free: Mutex<usize>,
    changed: Condvar,
}

/// One of them; free again when it is dropped.
pub(crate) struct Slot(Arc<Slots>);

impl Slots {
    pub fn new(count: usize) -> Arc<Slots> {
        assert!(count > SLOTS_OF_A_WALK, "a walk or a survey takes so many for itself");
        Arc::new(Slots { free: Mutex::new(count), changed: Condvar::new() })
    }

    pub(crate) fn take(self: &Arc<Slots>) -> Slot {
        let mut free = self.free.lock().unwrap();
        while *free == 0 {
            free = self.changed.wait(free).unwrap();
        }
        *free -= 1;
        Slot(self.clone())
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        *self.0.free.lock().unwrap() += 1;
        self.0.changed.notify_one();
    }
}
