//! Questions about what a server holds, and names made, changed and taken away.
//!
//! Invariant: a directory is removed only after it was seen to be empty, because servers remove one with all that is in it.

use crate::failure::{Failure, Why};
use crate::listing::{DEPTH_MAX, Stat, hidden, untouchable};
use crate::path;
use crate::reading::DavFile;
use crate::site::Site;
use crate::source::NAMES_MAX;
use model::FailureKind;
use model::files::{FileKind, FileStatus, Tally, Version};
use std::any::Any;
use std::sync::Arc;
use store::{EachFailure, Error, Opener, Result, Shelf, Slots, SourceFile, Stopped, Visit};

use web::{WIDTH, in_parallel};

/// Removals that are under way before one who stops is heard.
const AT_ONCE: usize = 256;

pub struct DavShelf {
    site: Arc<Site>,
    path: Vec<u8>,
    /// The root of what may be reached: it stays.
    is_root: bool,
}

struct Item {
    /// At the server, and as it is told.
    at: Vec<u8>,
    path: Vec<u8>,
    stat: Stat,
    depth: u32,
    is_last: bool,
}

enum Step {
    Object(Item),
    Left(Vec<u8>),
}

impl DavShelf {
    pub fn new(site: Arc<Site>, path: Vec<u8>, is_root: bool) -> DavShelf {
        DavShelf { site, path, is_root }
    }

    /// Tells versions apart by the same numbers as a file that is open.
    fn status(&self, stat: &Stat) -> FileStatus {
        FileStatus {
            kind: if stat.is_directory { FileKind::Directory } else { FileKind::File },
            mode: if stat.is_directory { 0o755 } else { 0o644 },
            size_bytes: stat.size_bytes,
            allocated_bytes: stat.size_bytes,
            owner: 0,
            group: 0,
            links: 1,
            // Of directories nothing but the time is known, which two of them may share.
            inode: if stat.is_directory { 0 } else { stat.generation(&self.site).version.object() },
            device: self.site.storage,
            modified: stat.time(),
            changed: stat.time(),
        }
    }

    fn steps(&self, item: &Item) -> Result<Vec<Step>> {
        if item.depth as usize > DEPTH_MAX {
            let why = "directories are nested more than 256 deep";
            return Err(Error::of_kind(FailureKind::Other, "list", b"", why));
        }
        let listed = self.site.list(&item.at).map_err(|failure| failure.on("list", b""))?;
        let slash: &[u8] = if item.path.is_empty() { b"" } else { b"/" };
        let count = listed.len();
        let below = listed.into_iter().enumerate().rev().map(|(number, (name, stat))| {
            let path = [&item.path, slash, &name].concat();
            Step::Object(Item {
                at: path::below(&item.at, &name),
                path,
                stat,
                depth: item.depth + 1,
                is_last: number + 1 == count,
            })
        });
        Ok(below.collect())
    }

    fn changeable(&self) -> Result<()> {
        match self.is_root || self.path.len() <= 1 {
            true => Err(Error::root_stays()),
            false => Ok(()),
        }
    }

    /// Removes what is in a directory, and then the directory. False when something of it stays.
    fn empty(&self, at: &[u8], below: &[u8], is_stopped: Stopped<'_>, told: &mut Told<'_, '_>) -> bool {
        let children = match self.site.list_all(at) {
            Ok(children) => children,
            Err(failure) => return told.failed(below, failure.on("list", b"")),
        };
        let slash: &[u8] = if below.is_empty() { b"" } else { b"/" };
        let place = |name: &[u8]| (path::below(at, name), [below, slash, name].concat());
        let mut is_gone = true;
        let is_removable = |(name, stat): &(Vec<u8>, Stat)| match untouchable(stat, below) {
            Some(failure) => {
                is_gone = told.failed(&place(name).1, failure.on("remove", b""));
                false
            }
            None => true,
        };
        let children: Vec<_> = children.into_iter().filter(is_removable).collect();
        let (directories, files): (Vec<_>, Vec<_>) = children.into_iter().partition(|(_, stat)| stat.is_directory);
        for some in files.chunks(AT_ONCE) {
            if is_stopped() {
                return false;
            }
            let removed = in_parallel(WIDTH, some, |(name, _)| self.site.delete(&place(name).0));
            for ((name, stat), removed) in some.iter().zip(removed) {
                match removed {
                    Ok(true) => told.tally.count(&self.status(stat)),
                    // Somebody else was faster.
                    Ok(false) => {}
                    Err(failure) => is_gone = told.failed(&place(name).1, failure.on("remove", b"")),
                }
            }
        }
        for (name, _) in directories {
            let (at, below) = place(&name);
            is_gone &= !is_stopped() && self.empty(&at, &below, is_stopped, told);
        }
        if !is_gone || is_stopped() {
            return false;
        }
        match self.site.remove_one(at, true) {
            Ok(true) => told.tally.count(&self.status(&Stat { is_directory: true, ..Stat::default() })),
            Ok(false) => {}
            Err(failure) => return told.failed(below, failure.on("remove", b"")),
        }
        true
    }
}

/// What a removal came to.
struct Told<'a, 'b> {
    tally: Tally,
    each_failure: &'a mut (dyn FnMut(&[u8], Error) + 'b),
}

impl Told<'_, '_> {
    fn failed(&mut self, path: &[u8], error: Error) -> bool {
        (self.each_failure)(path, error);
        self.tally.failed += 1;
        false
    }
}

impl Shelf for DavShelf {
    fn look(&self) -> Result<FileStatus> {
        let stat = self.site.stat(&self.path).map_err(|failure| failure.on("look at", b""))?;
        Ok(self.status(&stat))
    }

    fn walk(&self, levels: u32, _: &Arc<Slots>, visit: &mut dyn FnMut(Visit<'_>) -> bool) {
        let stat = match self.site.stat(&self.path) {
            Ok(stat) => stat,
            Err(failure) => {
                visit(Visit::Failed { path: b"", error: failure.on("look at", b"") });
                return;
            }
        };
        let mut steps =
            vec![Step::Object(Item { at: self.path.clone(), path: Vec::new(), stat, depth: 0, is_last: true })];
        while let Some(step) = steps.pop() {
            let goes_on = match step {
                Step::Left(path) => visit(Visit::Left { path: &path }),
                Step::Object(item) if item.stat.is_hidden => visit(Visit::Failed { path: &item.path, error: hidden() }),
                Step::Object(item) => {
                    let opener = &|| -> Opener {
                        let file = DavFile::new(self.site.clone(), item.at.clone(), item.stat.clone());
                        Box::new(move || Ok(Arc::new(file) as Arc<dyn SourceFile>))
                    };
                    let status = self.status(&item.stat);
                    let mut goes_on = visit(Visit::Object { path: &item.path, status, is_last: item.is_last, opener });
                    if item.stat.is_directory && goes_on {
                        steps.push(Step::Left(item.path.clone()));
                        if item.depth < levels {
                            match self.steps(&item) {
                                Ok(below) if steps.len() + below.len() <= NAMES_MAX => steps.extend(below),
                                Ok(_) => {
                                    let why = "directories within each other have more than 2,000,000 names";
                                    let error = Error::of_kind(FailureKind::Other, "list", b"", why);
                                    visit(Visit::Failed { path: &item.path, error });
                                    return;
                                }
                                Err(error) => goes_on = visit(Visit::Failed { path: &item.path, error }),
                            }
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
        let made = |failure: Failure| failure.on("make directory", b"");
        let taken = || Error::of_kind(FailureKind::InTheWay, "make directory", b"", "something has that name");
        match self.site.find(&self.path).map_err(made)? {
            Some(there) if there.is_directory && may_be_there => return Ok(false),
            Some(_) => return Err(taken()),
            None => {}
        }
        // Some servers make what is missing above it, which was not asked for.
        let slash = self.path.iter().rposition(|byte| *byte == b'/').unwrap_or(0);
        if slash > 0 && self.site.find(&self.path[..slash]).map_err(made)?.is_none() {
            let why = "the directory above it is not there";
            return Err(Error::of_kind(FailureKind::NotFound, "make directory", b"", why));
        }
        match self.site.make_directory(&self.path).map_err(made)? {
            is_new if is_new || may_be_there => Ok(is_new),
            _ => Err(taken()),
        }
    }

    fn rename(&self, to: &dyn Shelf, may_replace: bool) -> Result<()> {
        let to = (to as &dyn Any).downcast_ref::<DavShelf>().filter(|to| Arc::ptr_eq(&to.site, &self.site));
        let Some(to) = to else {
            let source = std::io::Error::from(std::io::ErrorKind::CrossesDevices);
            return Err(Error { kind: FailureKind::InTheWay, operation: "rename", subject: Vec::new(), source });
        };
        self.changeable()?;
        to.changeable()?;
        let renamed = |failure: Failure| failure.on("rename", b"");
        self.site.stat(&self.path).map_err(renamed)?;
        let in_the_way = |why| Err(Error::of_kind(FailureKind::InTheWay, "rename", b"", why));
        match self.site.find(&to.path).map_err(renamed)? {
            Some(there) if there.is_directory => return in_the_way("a directory has that name"),
            Some(_) if !may_replace => return in_the_way("something has that name"),
            _ => {}
        }
        let slash = to.path.iter().rposition(|byte| *byte == b'/').unwrap_or(0);
        let habits = self.site.habits(&to.path[..slash.max(1)]).map_err(renamed)?;
        match self.site.move_to(&self.path, &to.path, &habits, may_replace) {
            Ok(()) => Ok(()),
            Err(failure) => {
                let is_done = failure.may_be_done()
                    && self.site.find(&self.path).map_err(renamed)?.is_none()
                    && self.site.find(&to.path).map_err(renamed)?.is_some();
                match failure.why {
                    _ if is_done => Ok(()),
                    Why::Changed => in_the_way("something has that name"),
                    _ => Err(renamed(failure)),
                }
            }
        }
    }

    fn remove(&self, version: Option<&Version>, may_be_directory: bool) -> Result<Tally> {
        self.changeable()?;
        let found = self.look()?;
        if version.is_some_and(|version| *version != found.version()) {
            return Err(Error::other_version());
        }
        if found.is_directory() && !may_be_directory {
            return Err(Error::of_kind(FailureKind::InTheWay, "remove", b"", "it is a directory"));
        }
        let removed = self.site.remove_one(&self.path, found.is_directory());
        let mut tally = Tally::default();
        if removed.map_err(|failure| failure.on("remove", b""))? {
            tally.count(&found);
        }
        Ok(tally)
    }

    fn remove_tree(&self, is_stopped: Stopped<'_>, each_failure: EachFailure<'_>) -> Tally {
        let mut told = Told { tally: Tally::default(), each_failure };
        match self.changeable().and_then(|()| self.look()) {
            Err(error) => _ = told.failed(b"", error),
            Ok(_) if is_stopped() => {}
            Ok(found) if found.is_directory() => _ = self.empty(&self.path, b"", is_stopped, &mut told),
            Ok(found) => match self.site.delete(&self.path) {
                Ok(true) => told.tally.count(&found),
                Ok(false) => {}
                Err(failure) => _ = told.failed(b"", failure.on("remove", b"")),
            },
        }
        told.tally
    }
}
