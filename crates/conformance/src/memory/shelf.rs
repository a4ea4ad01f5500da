//! Questions about the tree.

use super::source::MemoryFile;
use super::tree::{Body, Object, ROOT, Tree};
use super::{Flaw, Memory, Shared};
use model::files::{FileKind, FileStatus, Tally, Version};
use model::{FailureKind, Name, Node, Timestamp};
use std::any::Any;
use std::collections::BTreeMap;
use std::sync::Arc;
use store::{EachFailure, Error, How, Opener, Result, Shelf, Slots, SourceFile, Stopped, Surveyed, Visit};

/// An object by the directory that it is in and its name there; the root has none.
pub struct MemoryShelf {
    shared: Arc<Shared>,
    directory: u64,
    name: Option<Name>,
}

impl Memory {
    /// What a path from the root leads to. No link is followed.
    pub fn shelf(&self, path: &[u8], how: How) -> Result<Box<dyn Shelf>> {
        let refused = |e: model::name::NameError| Error::of_kind(FailureKind::NameRefused, "open", b"", &e.to_string());
        let names = model::name::relative_path(path).map_err(refused)?;
        let Some((last, above)) = names.split_last() else {
            return Ok(Box::new(MemoryShelf { shared: self.0.clone(), directory: ROOT, name: None }));
        };
        let mut state = self.0.state();
        let mut directory = ROOT;
        for name in above {
            directory = match state.tree.child(directory, name) {
                Some(below) if state.tree.object(below).is_some_and(Object::is_directory) => below,
                Some(_) => return Err(Error::of_kind(FailureKind::InTheWay, "open", b"", "a file stands on the way")),
                None if how == (How::Make { with_parents: true }) => make(&mut state.tree, directory, name),
                None => return Err(Error::of_kind(FailureKind::NotFound, "open", b"", "it is not there")),
            };
        }
        Ok(Box::new(MemoryShelf { shared: self.0.clone(), directory, name: Some(last.clone()) }))
    }
}

fn make(tree: &mut Tree, directory: u64, name: &Name) -> u64 {
    tree.insert(directory, name, Body::Directory(BTreeMap::new()), 0o755, Timestamp::default())
}

fn status(number: u64, object: &Object) -> FileStatus {
    let generation = object.generation(number);
    let kind = match &object.body {
        Body::Directory(_) => FileKind::Directory,
        Body::File(_) => FileKind::File,
        Body::Symlink(target) => FileKind::Symlink(target.clone()),
        Body::Node(Node::Fifo) => FileKind::Fifo,
        Body::Node(Node::Socket) => FileKind::Socket,
        Body::Node(Node::CharacterDevice(_)) => FileKind::CharacterDevice,
        Body::Node(Node::BlockDevice(_)) => FileKind::BlockDevice,
    };
    FileStatus {
        kind,
        mode: object.mode,
        size_bytes: generation.size_bytes,
        allocated_bytes: generation.size_bytes,
        owner: 0,
        group: 0,
        links: object.links,
        inode: number,
        device: 0,
        modified: generation.modified,
        changed: object.changed(),
    }
}

/// One object of a listing: where it is, and what it is called there.
struct Item {
    path: Vec<u8>,
    place: (u64, Name),
    status: FileStatus,
    is_last: bool,
}

/// A step of a walk that is still to be done.
enum Step {
    Object(Item),
    Left(Vec<u8>),
}

impl MemoryShelf {
    fn has(&self, flaw: Flaw) -> bool {
        self.shared.has(flaw)
    }

    fn number(&self, tree: &Tree) -> Result<u64> {
        let Some(name) = &self.name else { return Ok(self.directory) };
        let missing = || Error::of_kind(FailureKind::NotFound, "look at", b"", "it is not there");
        tree.child(self.directory, name).ok_or_else(missing)
    }

    /// The name, of what is not the root.
    fn changeable(&self) -> Result<&Name> {
        self.name.as_ref().ok_or_else(Error::root_stays)
    }

    /// The steps through a directory, the last one first.
    fn steps(&self, number: u64, path: &[u8]) -> Vec<Step> {
        let state = self.shared.state();
        let mut names = state.tree.names(number);
        if self.has(Flaw::ListsUnsorted) {
            names.reverse();
        }
        let last = names.len().saturating_sub(1);
        let steps = names.into_iter().enumerate().rev().filter_map(|(at, (name, below))| {
            let slash: &[u8] = if path.is_empty() { b"" } else { b"/" };
            let path = [path, slash, name.as_bytes()].concat();
            let status = status(below, state.tree.object(below)?);
            Some(Step::Object(Item { path, place: (number, name), status, is_last: at == last }))
        });
        steps.collect()
    }

    fn opener(&self, (directory, name): (u64, Name)) -> Opener {
        let shared = self.shared.clone();
        let name = if self.has(Flaw::ReadsOneOfAWalk) { Name::new(b"small").expect("a name") } else { name };
        Box::new(move || Ok(Arc::new(MemoryFile::at(&shared, directory, &name)?) as Arc<dyn SourceFile>))
    }

    /// Whether nothing may come to the name of another object.
    fn is_taken(&self, tree: &Tree, may_replace: bool) -> Result<()> {
        match self.number(tree) {
            Ok(_) if !may_replace && !self.has(Flaw::RenamesOver) => {
                Err(Error::of_kind(FailureKind::InTheWay, "rename", b"", "something has that name"))
            }
            Ok(number) if tree.object(number).is_some_and(Object::is_directory) => {
                Err(Error::of_kind(FailureKind::InTheWay, "rename", b"", "a directory has that name"))
            }
            _ => Ok(()),
        }
    }
}

impl Shelf for MemoryShelf {
    fn look(&self) -> Result<FileStatus> {
        let state = self.shared.state();
        let number = self.number(&state.tree)?;
        let mut found = status(number, state.tree.object(number).expect("a name leads to an object"));
        if self.has(Flaw::LooksWithoutTimes) {
            found.modified = Timestamp::default();
        }
        if self.has(Flaw::LooksBehindLinks) && matches!(found.kind, FileKind::Symlink(_)) {
            found.kind = FileKind::File;
        }
        Ok(found)
    }

    fn list(&self, levels: u32, slots: &Arc<Slots>, visit: &mut dyn FnMut(Surveyed) -> bool) {
        self.walk(levels, slots, &mut |found| {
            Surveyed::of(found).is_none_or(&mut *visit) || self.has(Flaw::GoesOnAnswering)
        });
    }

    fn walk(&self, levels: u32, _: &Arc<Slots>, visit: &mut dyn FnMut(Visit<'_>) -> bool) {
        let first = match self.look() {
            Ok(status) => status,
            Err(error) => {
                visit(Visit::Failed { path: b"", error });
                return;
            }
        };
        let place = (self.directory, self.name.clone().unwrap_or_else(|| Name::new(b"root").expect("a name")));
        let mut steps = vec![Step::Object(Item { path: Vec::new(), place, status: first, is_last: true })];
        while let Some(step) = steps.pop() {
            let goes_on = match step {
                Step::Left(path) => visit(Visit::Left { path: &path }),
                Step::Object(Item { path, place, status, is_last }) => {
                    let (number, is_directory) = (status.inode, status.is_directory());
                    let opener = &|| self.opener(place.clone());
                    let goes_on = visit(Visit::Object { path: &path, status, is_last, opener });
                    let depth = if path.is_empty() { 0 } else { 1 + path.iter().filter(|byte| **byte == b'/').count() };
                    if is_directory {
                        steps.push(Step::Left(path.clone()));
                        if (depth as u64) < u64::from(levels) {
                            steps.extend(self.steps(number, &path));
                        }
                    }
                    goes_on
                }
            };
            if !goes_on {
                return;
            }
        }
    }

    fn make(&self, may_be_there: bool) -> Result<bool> {
        let mut state = self.shared.state();
        match (self.number(&state.tree), &self.name) {
            (Ok(number), _) => {
                let is_directory = state.tree.object(number).is_some_and(Object::is_directory);
                match may_be_there && (is_directory || self.has(Flaw::MakesOverFiles)) {
                    true => Ok(false),
                    false => {
                        Err(Error::of_kind(FailureKind::InTheWay, "make directory", b"", "something has that name"))
                    }
                }
            }
            (Err(_), Some(name)) => {
                make(&mut state.tree, self.directory, name);
                Ok(true)
            }
            (Err(e), None) => Err(e),
        }
    }

    fn rename(&self, to: &dyn Shelf, may_replace: bool) -> Result<()> {
        let to = (to as &dyn Any).downcast_ref::<MemoryShelf>();
        let to = to.filter(|to| Arc::ptr_eq(&to.shared, &self.shared));
        let to = to.ok_or_else(|| Error::of_kind(FailureKind::InTheWay, "rename", b"", "that is in another store"))?;
        let (old, new) = (self.changeable()?, to.changeable()?);
        let mut state = self.shared.state();
        let number = self.number(&state.tree)?;
        to.is_taken(&state.tree, may_replace)?;
        state.tree.link(to.directory, new, number);
        state.tree.remove(self.directory, old);
        Ok(())
    }

    fn remove(&self, version: Option<&Version>, may_be_directory: bool) -> Result<Tally> {
        let name = match self.changeable() {
            Err(_) if self.has(Flaw::RemovesTheRoot) => return Ok(Tally::default()),
            name => name?,
        };
        let found = self.look()?;
        if version.is_some_and(|version| *version != found.version()) && !self.has(Flaw::RemovesOtherVersions) {
            return Err(Error::other_version());
        }
        let mut state = self.shared.state();
        if found.is_directory() && !self.has(Flaw::RemovesDirectories) {
            let is_empty = state.tree.names(found.inode).is_empty();
            if !may_be_directory || !is_empty {
                let why = "it is a directory, or not an empty one";
                return Err(Error::of_kind(FailureKind::InTheWay, "remove", b"", why));
            }
        }
        state.tree.remove(self.directory, name);
        let mut tally = Tally::default();
        tally.count(&found);
        Ok(tally)
    }

    fn remove_tree(&self, is_stopped: Stopped<'_>, each_failure: EachFailure<'_>) -> Tally {
        let mut tally = Tally::default();
        let name = match self.changeable().and_then(|name| self.look().map(|_| name)) {
            Ok(name) => name,
            Err(error) => {
                each_failure(b"", error);
                return Tally { failed: 1, ..tally };
            }
        };
        if is_stopped() {
            return tally;
        }
        self.walk(model::files::ALL_LEVELS, &Slots::new(80), &mut |visit| {
            if let Visit::Object { status, .. } = visit {
                tally.count(&status);
            }
            true
        });
        if !self.has(Flaw::LeavesTrees) {
            self.shared.state().tree.remove(self.directory, name);
        }
        tally
    }
}
