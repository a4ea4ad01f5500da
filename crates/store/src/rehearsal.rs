//! A sink that looks and decides, and changes nothing: the destination of a dry run.
//!
//! Invariant: no call here writes, makes, renames or removes anything, so that a dry run cannot, whatever asks it to. A
//! destination that does not exist is one in which nothing is there.

use crate::posix::PosixSink;
use crate::prune::Prune;
use crate::sink::{Decision, LinkRule, Linked, PublishRule, Sink, SinkLane, Staged, StagedFile};
use crate::source::{Source, SourceFile};
use crate::{Abilities, Error, Order, Result, SinkFacts};
use model::{Entry, Name, ObjectId};
use std::collections::HashMap;
use std::sync::{Arc, Mutex};

pub struct Rehearsal {
    there: Option<PosixSink>,
    /// Of a destination that does not exist: directories by number, with those above them and their names.
    missing: Mutex<HashMap<u64, (u64, Name)>>,
}

impl Rehearsal {
    /// `there` is the destination as far as it exists.
    pub fn new(there: Option<PosixSink>) -> Rehearsal {
        Rehearsal { there: there.map(PosixSink::only_looks), missing: Mutex::default() }
    }
}

fn refused<T>() -> Result<T> {
    Err(Error::rehearses())
}

impl Sink for Rehearsal {
    fn facts(&self) -> Result<SinkFacts> {
        match &self.there {
            Some(there) => there.facts(),
            None => Ok(SinkFacts {
                file_system: "unknown",
                is_memory_backed: false,
                cannot_sync: false,
                free_bytes: u64::MAX,
                free_inodes: None,
                order: Order::Any,
                part_rule: None,
                shares_on: None,
                confirms: false,
                can: Abilities::ALL,
            }),
        }
    }

    fn enter(&self, name: &Name) -> Result<()> {
        self.there.as_ref().map_or(Ok(()), |there| there.look_into(name))
    }

    fn make_directory(&self, entry: &Entry) -> Result<()> {
        self.look_directory(entry)
    }

    fn look_directory(&self, entry: &Entry) -> Result<()> {
        if let Some(there) = &self.there {
            return there.look_directory(entry);
        }
        self.missing.lock().unwrap().insert(entry.id.0, (entry.parent.0, entry.name.clone()));
        Ok(())
    }

    /// Only compares.
    fn make_symlink(&self, entry: &Entry, _: PublishRule) -> Result<bool> {
        self.there.as_ref().map_or(Ok(true), |there| there.is_link_there(entry).map(|is_there| !is_there))
    }

    fn make_node(&self, entry: &Entry, _: PublishRule) -> Result<bool> {
        self.there.as_ref().map_or(Ok(true), |there| there.is_special_there(entry).map(|is_there| !is_there))
    }

    fn make_hard_link(&self, first: &Entry, entry: &Entry, rule: LinkRule) -> Result<Linked> {
        let rule = LinkRule { is_rehearsal: true, ..rule };
        match &self.there {
            Some(there) => there.make_hard_link(first, entry, rule),
            None => Ok(if rule.may_make { Linked::Made { has_replaced: false } } else { Linked::Kept }),
        }
    }

    /// Would be done.
    fn touch(&self, _: &Entry) -> Result<()> {
        Ok(())
    }

    fn amend(&self, entry: &Entry) -> Result<u32> {
        self.differences(entry)
    }

    fn differences(&self, entry: &Entry) -> Result<u32> {
        self.there.as_ref().map_or(Ok(0), |there| there.differences(entry))
    }

    fn learn_owner(&self, is_group: bool, number: u32, name: &[u8]) {
        if let Some(there) = &self.there {
            there.learn_owner(is_group, number, name);
        }
    }

    fn decide(&self, entry: &Entry) -> Result<Decision> {
        self.there.as_ref().map_or(Ok(Decision::Absent), |there| there.decide(entry))
    }

    fn is_fresh(&self, directory: ObjectId) -> bool {
        self.there.as_ref().is_none_or(|there| there.is_fresh(directory))
    }

    fn open_published(&self, entry: &Entry) -> Result<Arc<dyn SourceFile>> {
        self.there.as_ref().map_or_else(refused, |there| there.open_published(entry))
    }

    fn mirror(&self) -> Option<Arc<dyn Source>> {
        self.there.as_ref().and_then(|there| there.mirror())
    }

    fn prune_paths(&self, next: &mut dyn FnMut() -> Option<(Vec<u8>, bool)>, prune: &mut Prune<'_>) {
        prune.is_rehearsal = true;
        if let Some(there) = &self.there {
            there.prune_paths(next, prune);
        }
    }

    fn prune(&self, prune: &mut Prune<'_>) {
        prune.is_rehearsal = true;
        if let Some(there) = &self.there {
            there.prune(prune);
        }
    }

    fn lane(&self, _: bool) -> Result<Box<dyn SinkLane>> {
        Ok(Box::new(NoLane))
    }

    fn begin(&self, _: &Entry, _: &str) -> Result<(Arc<dyn StagedFile>, Vec<u8>)> {
        refused()
    }

    fn has_journal(&self, _: &Entry, _: &str) -> bool {
        false
    }

    fn sync_group(&self, _: &mut dyn Iterator<Item = Staged>) -> Result<bool> {
        Ok(true)
    }

    fn publish(&self, _: &Entry, _: Staged) -> Result<()> {
        refused()
    }

    fn discard(&self, _: Staged) {}

    fn reread(&self, _: &Entry, _: Staged, _: &mut dyn FnMut(&[u8])) -> Result<()> {
        refused()
    }

    fn sync_names(&self) -> Result<()> {
        Ok(())
    }

    fn finish_directory(&self, _: &Entry) -> Result<()> {
        Ok(())
    }

    fn close(&self) {}

    fn path(&self, entry: &Entry) -> Vec<u8> {
        if let Some(there) = &self.there {
            return there.path(entry);
        }
        let missing = self.missing.lock().unwrap();
        let above = std::iter::successors(missing.get(&entry.parent.0), |(parent, _)| missing.get(parent));
        let mut names: Vec<_> = above.map(|(_, name)| name).collect();
        names.reverse();
        model::name::join(names.into_iter().chain([&entry.name]))
    }
}

/// Lanes are there before anybody knows that they get nothing to do.
struct NoLane;

impl SinkLane for NoLane {
    fn create(&mut self, _: &Entry, _: PublishRule) -> Result<()> {
        refused()
    }

    fn write(&mut self, _: &[u8]) -> Result<()> {
        refused()
    }

    fn seal(&mut self, _: &Entry, _: bool) -> Result<Staged> {
        refused()
    }

    fn abandon(&mut self) {}

    fn publish(&mut self, _: &Entry, _: Staged) -> Result<()> {
        refused()
    }
}
