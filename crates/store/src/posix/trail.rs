//! The directories on the way to where a walk is, outermost first.
//!
//! Invariant: at most `OPEN_MAX` of them are open; the others are opened again by their names, from the nearest open one down,
//! without following a link.

use super::beneath::Bounds;
use crate::shelf::{Slot, Slots};
use model::Name;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

/// Directories that are kept open: the outermost and the innermost half as many each.
pub const OPEN_MAX: usize = 32;

/// An open directory; its slot is free again when it is closed.
pub struct OpenDirectory {
    fd: OwnedFd,
    _slot: Slot,
}

impl OpenDirectory {
    /// Waits for a slot.
    pub(super) fn new(fd: OwnedFd, slots: &Arc<Slots>) -> Arc<OpenDirectory> {
        Arc::new(OpenDirectory { fd, _slot: slots.take() })
    }
}

impl AsFd for OpenDirectory {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// The means to open a file by its name in a directory that stays open until then.
pub struct Trail {
    slots: Arc<Slots>,
    bounds: Bounds,
    steps: Vec<Step>,
}

struct Step {
    /// `None` while it is closed to save a descriptor.
    open: Option<Arc<OpenDirectory>>,
    /// How it is opened again from the one above; `None` for the target.
    name: Option<Name>,
}

impl Trail {
    pub fn new(slots: Arc<Slots>, bounds: Bounds) -> Trail {
        Trail { slots, bounds, steps: Vec::new() }
    }

    pub fn push(&mut self, open: Arc<OpenDirectory>, name: Option<Name>) {
        self.steps.push(Step { open: Some(open), name });
        if let Some(middle) = self.steps.len().checked_sub(OPEN_MAX / 2).filter(|at| *at >= OPEN_MAX / 2) {
            self.steps[middle].open = None;
        }
    }

    pub fn pop(&mut self) {
        self.steps.pop();
    }

    /// The innermost directory, opened again where it was closed.
    ///
    /// # Panics
    /// Without a directory, or after the target itself was taken away.
    pub fn innermost(&mut self) -> io::Result<Arc<OpenDirectory>> {
        let innermost = self.steps.len() - 1;
        if let Some(open) = &self.steps[innermost].open {
            return Ok(open.clone());
        }
        let nearest = self.steps.iter().rposition(|step| step.open.is_some()).expect("the target stays open");
        let mut at = self.steps[nearest].open.clone().expect("found above");
        for step in &self.steps[nearest + 1..] {
            let name = step.name.as_ref().expect("only the target has none");
            at = OpenDirectory::new(self.bounds.open_child(at.as_fd(), name)?, &self.slots);
        }
        self.steps[innermost].open = Some(at.clone());
        Ok(at)
    }
}
