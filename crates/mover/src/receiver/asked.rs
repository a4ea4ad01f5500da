//! What a sender was asked for, held where it arrives.
//!
//! An honest sender chooses (`store::posix::choose`); a receiver that asked for something by name looks at each description
//! again, by the same rules, before anything is made of it. One object that was not asked for ends the job.
//!
//! Invariants:
//! - At the top of the job only the last names of the paths that were asked for are taken. A path that means the contents of
//!   a directory has no such name: then any is taken, because only the sender knows what is in it.
//! - Rules, bounds and lists hold here too. A directory that is only on the way to what may be taken comes with something.
//! - Nothing of a batch is looked at further before all of it was checked.
//! - Of a directory its name is kept and what it lies in, never its path: what a sender describes takes no more memory
//!   than is charged for it (`charge`).
//!
//! Memory: nothing without a selection; with one the name of each directory. Not here: kinds and attributes that nobody
//! asked for (`wire::listing`), bounds of what changed while it was read (`decide`).

use model::filter::Word;
use model::name::{Escaped, relative_path};
use model::selection::Node;
use model::synthetic::Generated;
use model::{End, Entry, Kind, Name, ObjectId, Selection, mutant};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use store::synthetic::is_generated;
use wire::listing::{Described, REPLACEMENT_FIRST};
use wire::{CloseCode, Refusal};

/// Characters of a path in a refusal: its reason has to fit behind it.
const PATH_SHOWN_CHARS_MAX: usize = 600;
/// Directories within one another that paths are made of: a path is as long, for as long as it is looked at.
const DEPTH_MAX: u16 = 4096;

#[derive(Debug)]
pub struct Asked {
    top: Top,
    selection: Arc<Selection>,
    /// Directories by their ids, where paths decide.
    places: HashMap<u64, Place>,
    /// A directory that is only on the way: what comes next lies in it.
    way: Option<(u64, Vec<u8>)>,
}

/// What may stand at the top of the job.
#[derive(Debug)]
enum Top {
    Anything,
    Names(HashSet<Name>),
    Generated(Generated),
}

#[derive(Debug)]
struct Place {
    parent: u64,
    /// Nothing at the top.
    name: Option<Name>,
    depth: u16,
    /// Whatever no rule matches below it is taken.
    is_whole: bool,
}

/// How an object stands to a list of paths.
enum Listing {
    Outside,
    OnTheWay,
    Within,
}

impl Asked {
    /// `paths` as they were sent, and what of them is to be left out there.
    pub fn of(paths: &[Vec<u8>], selection: Arc<Selection>) -> Asked {
        let is_whole = !selection.filter.leaves_rest();
        let top = Place { parent: ObjectId::ROOT.0, name: None, depth: 0, is_whole };
        let places = HashMap::from([(ObjectId::ROOT.0, top)]);
        Asked { top: Top::of(paths), selection, places, way: None }
    }

    /// Checks a batch before anything is made of it.
    ///
    /// # Errors
    /// Names the first object that was not asked for.
    pub fn check(&mut self, batch: &[Described]) -> Result<(), Refusal> {
        if mutant::is_on("take-what-was-not-asked") {
            return Ok(());
        }
        batch.iter().try_for_each(|described| match described {
            // Nobody asked for a file without an end.
            Described::Entry { entry, end: End::ReadOnce | End::Growing, .. } => Err(unasked(self.path_of(entry))),
            Described::Entry { entry, .. } => self.entry(entry),
            // Nothing is made of it, and nothing is found below it.
            Described::BadName { .. } => Ok(()),
        })
    }

    /// Checks that nothing is owed when the listing ends.
    ///
    /// # Errors
    /// Names a directory that came for nothing.
    pub fn end(&mut self) -> Result<(), Refusal> {
        self.way.take().map_or(Ok(()), |(_, path)| Err(unasked(path)))
    }

    /// Something is kept of each directory.
    pub(super) fn keeps_places(&self) -> bool {
        matches!(self.top, Top::Generated(_)) || !self.selection.is_everything()
    }

    fn entry(&mut self, entry: &Entry) -> Result<(), Refusal> {
        let is_at_top = entry.parent == ObjectId::ROOT;
        match &self.top {
            Top::Names(names) if is_at_top && !names.contains(&entry.name) => Err(unasked(self.path_of(entry))),
            Top::Generated(spec) => {
                let spec = *spec;
                self.generated(&spec, entry)
            }
            _ if self.selection.is_everything() || mutant::is_on("filters-hold-at-the-sender-only") => Ok(()),
            _ => self.selected(entry),
        }
    }

    fn generated(&mut self, spec: &Generated, entry: &Entry) -> Result<(), Refusal> {
        // Its directories are all at the top.
        let name = |above: &Place| above.name.as_ref().map_or(Vec::new(), |name| name.as_bytes().to_vec());
        let above = self.places.get(&entry.parent.0).map(name);
        if !above.is_some_and(|above| is_generated(spec, &above, entry)) {
            return Err(unasked(self.path_of(entry)));
        }
        if entry.kind == Kind::Directory {
            self.keep(entry, 1, true);
        }
        Ok(())
    }

    fn keep(&mut self, entry: &Entry, depth: u16, is_whole: bool) {
        let (parent, name) = (entry.parent.0, Some(entry.name.clone()));
        self.places.insert(entry.id.0, Place { parent, name, depth, is_whole });
    }

    /// The same as `store::posix::choose` comes to.
    fn selected(&mut self, entry: &Entry) -> Result<(), Refusal> {
        let path = self.path_of(entry);
        let is_directory = entry.kind == Kind::Directory;
        // What is described again comes in between.
        let is_again = entry.id.0 >= REPLACEMENT_FIRST;
        if !is_again && let Some((_, way)) = self.way.take_if(|(id, _)| *id != entry.parent.0) {
            return Err(unasked(way));
        }
        let Some(above) = self.places.get(&entry.parent.0) else { return Err(unasked(path)) };
        let depth = above.depth + 1;
        if is_directory && depth > DEPTH_MAX {
            return Err(too_deep());
        }
        let listing = self.listing(&path);
        let word = self.selection.filter.word(&path, is_directory);
        let is_whole = above.is_whole || word == Word::Take;
        let is_left = match (word, &listing) {
            (Word::Leave, _) | (_, Listing::Outside) => true,
            (_, Listing::OnTheWay) if !is_directory => true,
            (Word::None, _) => !is_whole && !is_directory,
            (Word::Take, _) => false,
        };
        if is_left || !is_again && !self.selection.bounds.admit(entry) {
            return Err(unasked(path));
        }
        if !is_again {
            let is_on_the_way = is_directory && (!is_whole || matches!(listing, Listing::OnTheWay));
            self.way = is_on_the_way.then_some((entry.id.0, path));
        }
        if is_directory {
            self.keep(entry, depth, is_whole);
        }
        Ok(())
    }

    fn listing(&self, path: &[u8]) -> Listing {
        let Some(listed) = &self.selection.listed else { return Listing::Within };
        let mut at: &Node = &listed.root;
        for name in path.split(|byte| *byte == b'/') {
            if at.is_whole {
                return Listing::Within;
            }
            let below = Name::new(name).ok().and_then(|name| at.below.get(&name));
            let Some(below) = below else { return Listing::Outside };
            at = below;
        }
        if at.is_whole { Listing::Within } else { Listing::OnTheWay }
    }

    /// Below the top, as far as it is known.
    fn path_of(&self, entry: &Entry) -> Vec<u8> {
        let mut names = vec![entry.name.as_bytes()];
        let mut above = self.places.get(&entry.parent.0);
        while let Some(Place { parent, name: Some(name), .. }) = above {
            names.push(name.as_bytes());
            above = self.places.get(parent);
        }
        names.reverse();
        names.join(&b'/')
    }
}

impl Top {
    fn of(paths: &[Vec<u8>]) -> Top {
        if let [path] = paths
            && let Some(spec) = Generated::parse(path)
        {
            return spec.map_or_else(|_| Top::Names(HashSet::new()), Top::Generated);
        }
        let mut names = HashSet::new();
        for path in paths {
            if means_contents(path) {
                return Top::Anything;
            }
            // Of what is no name nothing can come.
            let last = path.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
            names.extend(Name::new(last).ok());
        }
        Top::Names(names)
    }
}

/// A path that can only mean what is in a directory (rsync's rule).
fn means_contents(path: &[u8]) -> bool {
    path.ends_with(b"/") || path.ends_with(b"/.") || relative_path(path).is_ok_and(|names| names.is_empty())
}

fn unasked(path: Vec<u8>) -> Refusal {
    let shown: String = Escaped(&path).to_string().chars().take(PATH_SHOWN_CHARS_MAX).collect();
    let text = format!("sent {shown}, which was not asked for; the job was ended, and nothing of it was written");
    Refusal::new(CloseCode::Limit, &text)
}

fn too_deep() -> Refusal {
    let what = format!("sent directories more than {DEPTH_MAX} levels deep, where rules and lists are not applied");
    Refusal::new(CloseCode::Limit, &format!("{what}: copy without them, or only a part of the tree"))
}

#[cfg(test)]
mod tests;
