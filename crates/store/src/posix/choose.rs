//! Chooses what of a walk is told: filter rules, bounds and a list of paths, and of several sources with one name the
//! first.
//!
//! Invariants:
//! - What is left out is not looked at, not entered and not told of, and takes no id: ids count without a gap.
//! - A directory that is only on the way to what may be taken is told with the first object in it, or not at all.
//!
//! Memory: with a selection about 200 bytes for each directory, as for the walk itself; without one nothing.

use super::list::{Pending, Visitor};
use super::tree::Tree;
use crate::source::{Found, SourceObject};
use model::filter::Word;
use model::selection::Node;
use model::{Failure, FailureKind, Kind, Name, ObjectId, Selection};
use std::collections::{HashMap, HashSet};

pub struct Chooser<'a> {
    tree: &'a Tree,
    selection: &'a Selection,
    is_everything: bool,
    emit: &'a mut dyn FnMut(Found) -> bool,
    goes_on: bool,
    /// Names at the top, where several sources come together.
    top_names: Option<HashSet<Name>>,
    /// Directories by their number in the walk.
    places: HashMap<u64, Place<'a>>,
    /// What was decided of the object that comes next.
    next: Inclusion<'a>,
    next_id: u64,
}

#[derive(Clone, Copy)]
struct Inclusion<'a> {
    /// Whatever no rule matches below it is taken.
    is_whole: bool,
    /// It is told only with something in it.
    waits: bool,
    /// What is listed below it, where not everything is.
    listed: Option<&'a Node>,
}

struct Place<'a> {
    inclusion: Inclusion<'a>,
    parent: u64,
    id: ObjectId,
    /// Not told yet.
    waiting: Option<SourceObject>,
}

impl<'a> Chooser<'a> {
    pub fn new(
        tree: &'a Tree,
        selection: &'a Selection,
        is_merged: bool,
        emit: &'a mut dyn FnMut(Found) -> bool,
    ) -> Chooser<'a> {
        let is_everything = selection.is_everything();
        let mut chooser = Chooser {
            tree,
            selection,
            is_everything,
            emit,
            goes_on: true,
            top_names: is_merged.then(HashSet::new),
            places: HashMap::new(),
            next: Inclusion { is_whole: true, waits: false, listed: None },
            next_id: 1,
        };
        let listed = selection.listed.as_ref().map(|listed| &listed.root).filter(|root| !root.is_whole);
        let inclusion = Inclusion { is_whole: !selection.filter.leaves_rest(), waits: false, listed };
        let root = Place { inclusion, parent: 0, id: ObjectId::ROOT, waiting: None };
        chooser.places.insert(ObjectId::ROOT.0, root);
        chooser
    }

    /// The names that are looked at in a directory, where not all are.
    pub fn names(&self, at: ObjectId) -> Option<Vec<Name>> {
        let listed = self.places.get(&at.0)?.inclusion.listed?;
        Some(listed.below.keys().cloned().collect())
    }

    pub fn tell(&mut self, found: Found) -> bool {
        self.goes_on = self.goes_on && (self.emit)(found);
        self.goes_on
    }

    fn fail(&mut self, path: Vec<u8>, kind: FailureKind, message: &str) {
        self.tell(Found::Failed(Failure { path, kind, message: message.to_owned() }));
    }

    /// What becomes of a name in a directory; `None` where it is left out.
    fn inclusion_of(&mut self, at: &Pending, name: &Name, is_directory: bool) -> Option<Inclusion<'a>> {
        let above = self.places[&at.id.0].inclusion;
        let path = self.tree.path(at.key.0, name.as_bytes());
        let listed = match above.listed {
            Some(node) => {
                let node = node.below.get(name)?;
                if !node.is_whole && !is_directory {
                    let why = "the list names paths below it, but it is not a directory";
                    self.fail(path, FailureKind::NotFound, why);
                    return None;
                }
                Some(node).filter(|node| !node.is_whole)
            }
            None => None,
        };
        let word = self.selection.filter.word(&path, is_directory);
        let is_whole = above.is_whole || word == Word::Take;
        match word {
            Word::Leave => None,
            Word::None if !is_whole && !is_directory => None,
            _ => Some(Inclusion { is_whole, waits: listed.is_some() || !is_whole, listed }),
        }
    }

    /// The id under which a directory was told; tells it, and those above it, where that has not been done.
    fn id_of(&mut self, directory: u64) -> ObjectId {
        let mut waiting = Vec::new();
        let mut at = directory;
        while let Some(place) = self.places.get(&at).filter(|place| place.waiting.is_some()) {
            waiting.push(at);
            at = place.parent;
        }
        while let Some(number) = waiting.pop() {
            let parent = self.places[&self.places[&number].parent].id;
            let id = self.take_id();
            let place = self.places.get_mut(&number).expect("found above");
            place.id = id;
            if let Some(mut object) = place.waiting.take() {
                (object.entry.id, object.entry.parent) = (id, parent);
                self.tell(Found::Object(object));
            }
        }
        self.places[&directory].id
    }

    fn take_id(&mut self) -> ObjectId {
        self.next_id += 1;
        ObjectId(self.next_id - 1)
    }

    fn choose(&mut self, mut object: SourceObject) {
        if !self.selection.bounds.admit(&object.entry) {
            return;
        }
        if object.entry.kind == Kind::Directory {
            let (number, parent) = (object.entry.id.0, object.entry.parent.0);
            let place = Place { inclusion: self.next, parent, id: ObjectId::ROOT, waiting: Some(object) };
            self.places.insert(number, place);
            if !self.next.waits {
                self.id_of(number);
            }
            return;
        }
        object.entry.parent = self.id_of(object.entry.parent.0);
        object.entry.id = self.take_id();
        self.tell(Found::Object(object));
    }
}

impl Visitor for Chooser<'_> {
    fn takes(&mut self, at: &Pending, name: &Name, is_directory: bool) -> bool {
        if !self.is_everything {
            let Some(inclusion) = self.inclusion_of(at, name, is_directory) else { return false };
            self.next = inclusion;
        }
        if at.id == ObjectId::ROOT
            && let Some(top_names) = &mut self.top_names
            && !top_names.insert(name.clone())
        {
            let path = self.tree.path(at.key.0, name.as_bytes());
            self.fail(path, FailureKind::Duplicate, "two sources have this name at the destination");
            return false;
        }
        true
    }

    fn found(&mut self, found: Found) -> bool {
        match found {
            Found::Object(object) if !self.is_everything => self.choose(object),
            found => _ = self.tell(found),
        }
        self.goes_on
    }
}
