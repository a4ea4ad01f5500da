//! What is asked of a target, carried out.

use super::target::Target;
use super::{change, survey, walk};
use crate::shelf::{EachFailure, Shelf, Slots, Stopped, Surveyed, Visit};
use crate::{Error, Result};
use model::files::{FileStatus, Tally, Version};
use rustix::io::Errno;
use std::any::Any;
use std::sync::Arc;

impl Shelf for Target {
    fn look(&self) -> Result<FileStatus> {
        self.file_status()
    }

    fn list(&self, levels: u32, slots: &Arc<Slots>, visit: &mut dyn FnMut(Surveyed) -> bool) {
        survey::survey(self, levels, slots, visit);
    }

    fn walk(&self, levels: u32, slots: &Arc<Slots>, visit: &mut dyn FnMut(Visit<'_>) -> bool) {
        walk::walk(self, levels, slots, visit);
    }

    fn make(&self, may_be_there: bool) -> Result<bool> {
        change::make(self, may_be_there)
    }

    fn rename(&self, to: &dyn Shelf, may_replace: bool) -> Result<()> {
        match (to as &dyn Any).downcast_ref::<Target>() {
            Some(to) => change::rename(self, to, may_replace),
            None => Err(Error::new("rename", b"", Errno::XDEV)),
        }
    }

    fn remove(&self, version: Option<&Version>, may_be_directory: bool) -> Result<Tally> {
        change::remove_one(self, version, may_be_directory)
    }

    fn remove_tree(&self, is_stopped: Stopped<'_>, each_failure: EachFailure<'_>) -> Tally {
        change::remove_tree(self, is_stopped, each_failure)
    }
}
