//! Questions about what a server holds.
//!
//! The protocol tells neither inodes nor links: a path's number stands for the first, and a version is its size and its time.

use super::attributes::{Attributes, number_of};
use super::remote::{Child, Faulty, NAMES_MAX, Remote, Rename, WIDTH, join};
use model::FailureKind;
use model::files::{FileKind, FileStatus, Tally, Version};
use std::any::Any;
use std::sync::Arc;
use store::{EachFailure, Error, Opener, Result, Shelf, Slots, Stopped, Visit};

pub struct TreeShelf<R> {
    server: Arc<R>,
    /// Without a slash at its end, but for the server's own root.
    path: Vec<u8>,
    /// Nothing but a directory is meant.
    is_directory: bool,
}

/// A step of a walk that is still to be done.
enum Step {
    Object { below: Vec<u8>, path: Vec<u8>, status: FileStatus, is_last: bool },
    Left(Vec<u8>),
    Failed(Vec<u8>, Error),
}

impl<R: Remote> TreeShelf<R> {
    pub fn new(server: Arc<R>, path: Vec<u8>, is_directory: bool) -> TreeShelf<R> {
        TreeShelf { server, path, is_directory }
    }

    fn find(&self) -> Result<FileStatus> {
        let failed_to = |fault: R::Fault| fault.on("look at", b"");
        let looked = if self.is_directory { self.server.look_behind(&self.path) } else { self.server.look(&self.path) };
        let found = looked.map_err(failed_to)?;
        if self.is_directory && !found.is_directory() {
            return Err(Error::of_kind(FailureKind::NotFound, "look at", b"", "it is no directory"));
        }
        let target = match found.is_link() {
            true => self.server.link_target(&self.path).map_err(failed_to)?,
            false => Vec::new(),
        };
        Ok(self.status(&self.path, &found, target))
    }

    fn status(&self, path: &[u8], found: &Attributes, target: Vec<u8>) -> FileStatus {
        let kind = match found.type_bits() {
            0o040_000 => FileKind::Directory,
            0o120_000 => FileKind::Symlink(target.into()),
            0o010_000 => FileKind::Fifo,
            0o140_000 => FileKind::Socket,
            0o020_000 => FileKind::CharacterDevice,
            0o060_000 => FileKind::BlockDevice,
            _ => FileKind::File,
        };
        let size_bytes = found.size_bytes.unwrap_or(0);
        let (owner, group) = found.owner.unwrap_or_default();
        FileStatus {
            kind,
            mode: found.mode.unwrap_or(0) & 0o7777,
            size_bytes,
            allocated_bytes: size_bytes,
            owner,
            group,
            links: 1,
            inode: number_of(self.server.name(), path),
            device: 0,
            modified: found.time(),
            changed: found.time(),
        }
    }

    /// The steps through a directory, the last one first.
    fn steps(&self, below: &[u8], path: &[u8]) -> Vec<Step> {
        let children = match self.server.children(path, true) {
            Ok(children) => children,
            Err(fault) => return vec![Step::Failed(below.to_vec(), fault.on("list", b""))],
        };
        let mut steps = Vec::new();
        let last = children.found.len().saturating_sub(1);
        for (at, Child { name, attributes, target }) in children.found.into_iter().enumerate() {
            let slash: &[u8] = if below.is_empty() { b"" } else { b"/" };
            let below = [below, slash, name.as_bytes()].concat();
            let path = join(path, name.as_bytes());
            let status = self.status(&path, &attributes, target);
            steps.push(Step::Object { below, path, status, is_last: at == last });
        }
        let odd = children.odd.iter().map(|why| Error::of_kind(FailureKind::NameRefused, "list", b"", why));
        steps.extend(odd.map(|error| Step::Failed(below.to_vec(), error)));
        steps.reverse();
        steps
    }

    fn opener(&self, path: &[u8]) -> Opener {
        let (server, path) = (self.server.clone(), path.to_vec());
        Box::new(move || server.open(path))
    }

    /// The server's own root stays.
    fn changeable(&self) -> Result<()> {
        match self.path == b"/" {
            true => Err(Error::root_stays()),
            false => Ok(()),
        }
    }

    /// Removes what is in a directory; what of it stays is told.
    fn empty(
        &self,
        (below, path): (&[u8], &[u8]),
        is_stopped: Stopped<'_>,
        each_failure: EachFailure<'_>,
        tally: &mut Tally,
    ) {
        let mut fail = |below: &[u8], error: Error, tally: &mut Tally| {
            each_failure(below, error);
            tally.failed += 1;
        };
        let children = match self.server.children(path, false) {
            Ok(children) => children,
            Err(fault) => return fail(below, fault.on("list", b""), tally),
        };
        for why in &children.odd {
            fail(below, Error::of_kind(FailureKind::NameRefused, "remove", b"", why), tally);
        }
        let place = |child: &Child| {
            let slash: &[u8] = if below.is_empty() { b"" } else { b"/" };
            ([below, slash, child.name.as_bytes()].concat(), join(path, child.name.as_bytes()))
        };
        let (directories, files): (Vec<_>, Vec<_>) =
            children.found.iter().partition(|child| child.attributes.is_directory());
        for some in files.chunks(WIDTH) {
            if is_stopped() {
                return;
            }
            let paths: Vec<_> = some.iter().map(|child| place(child).1).collect();
            for (child, removed) in some.iter().zip(self.server.remove_all(&paths)) {
                let (below, path) = place(child);
                match removed {
                    Ok(()) => tally.count(&self.status(&path, &child.attributes, Vec::new())),
                    Err(fault) => fail(&below, fault.on("remove", b""), tally),
                }
            }
        }
        for child in directories {
            let (below, path) = place(child);
            let before = tally.failed;
            self.empty((&below, &path), is_stopped, each_failure, tally);
            if is_stopped() {
                return;
            }
            if tally.failed > before {
                continue;
            }
            match self.server.remove_directory(&path) {
                Ok(()) => tally.count(&self.status(&path, &child.attributes, Vec::new())),
                Err(fault) => {
                    each_failure(&below, fault.on("remove", b""));
                    tally.failed += 1;
                }
            }
        }
    }
}

impl<R: Remote> Shelf for TreeShelf<R> {
    fn look(&self) -> Result<FileStatus> {
        self.find()
    }

    fn walk(&self, levels: u32, _: &Arc<Slots>, visit: &mut dyn FnMut(Visit<'_>) -> bool) {
        let status = match self.find() {
            Ok(found) => found,
            Err(error) => {
                visit(Visit::Failed { path: b"", error });
                return;
            }
        };
        let mut steps = vec![Step::Object { below: Vec::new(), path: self.path.clone(), status, is_last: true }];
        while let Some(step) = steps.pop() {
            let goes_on = match step {
                Step::Left(below) => visit(Visit::Left { path: &below }),
                Step::Failed(below, error) => visit(Visit::Failed { path: &below, error }),
                Step::Object { below, path, status, is_last } => {
                    let is_directory = status.is_directory();
                    let opener = &|| self.opener(&path);
                    let goes_on = visit(Visit::Object { path: &below, status, is_last, opener });
                    let depth = match below.is_empty() {
                        true => 0,
                        false => 1 + below.iter().filter(|byte| **byte == b'/').count() as u64,
                    };
                    if is_directory && goes_on {
                        steps.push(Step::Left(below.clone()));
                        if depth < u64::from(levels) {
                            steps.extend(self.steps(&below, &path));
                            if steps.len() > NAMES_MAX {
                                let why = "the server lists more than 2,000,000 names in directories within each other";
                                let error = Error::of_kind(FailureKind::Other, "list", b"", why);
                                visit(Visit::Failed { path: &below, error });
                                return;
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
        let made = |fault: R::Fault| fault.on("make directory", b"");
        match self.server.make(&self.path) {
            Ok(()) => Ok(true),
            Err(fault) => match self.server.find(&self.path).map_err(made)? {
                Some(there) if there.is_directory() && may_be_there => Ok(false),
                Some(_) => Err(Error::of_kind(FailureKind::InTheWay, "make directory", b"", "something has that name")),
                None => Err(made(fault)),
            },
        }
    }

    fn rename(&self, to: &dyn Shelf, may_replace: bool) -> Result<()> {
        let to = (to as &dyn Any).downcast_ref::<TreeShelf<R>>().filter(|to| Arc::ptr_eq(&to.server, &self.server));
        let Some(to) = to else {
            let source = std::io::Error::from(std::io::ErrorKind::CrossesDevices);
            return Err(Error { kind: FailureKind::InTheWay, operation: "rename", subject: Vec::new(), source });
        };
        self.changeable()?;
        to.changeable()?;
        self.find()?;
        let renamed = |fault: R::Fault| fault.on("rename", b"");
        let in_the_way = |why| Err(Error::of_kind(FailureKind::InTheWay, "rename", b"", why));
        let is_over = match self.server.find(&to.path).map_err(renamed)? {
            Some(there) if there.is_directory() => return in_the_way("a directory has that name"),
            Some(_) if !may_replace => return in_the_way("something has that name"),
            Some(_) if !self.server.replaces().map_err(renamed)? => {
                return in_the_way("this server cannot replace a file in one step: remove it there first");
            }
            there => there.is_some(),
        };
        self.server.rename_all(&[Rename { from: &self.path, to: &to.path, is_over }]).remove(0).map_err(renamed)
    }

    fn remove(&self, version: Option<&Version>, may_be_directory: bool) -> Result<Tally> {
        self.changeable()?;
        let found = self.find()?;
        if version.is_some_and(|version| *version != found.version()) {
            return Err(Error::other_version());
        }
        let removed = |fault: R::Fault| fault.on("remove", b"");
        match (found.is_directory(), may_be_directory) {
            (true, false) => return Err(Error::of_kind(FailureKind::InTheWay, "remove", b"", "it is a directory")),
            (true, true) => self.server.remove_directory(&self.path).map_err(removed)?,
            (false, _) => self.server.remove(&self.path).map_err(removed)?,
        }
        let mut tally = Tally::default();
        tally.count(&found);
        Ok(tally)
    }

    fn remove_tree(&self, is_stopped: Stopped<'_>, each_failure: EachFailure<'_>) -> Tally {
        let mut tally = Tally::default();
        let found = match self.changeable().and_then(|()| self.find()) {
            Ok(found) => found,
            Err(error) => {
                each_failure(b"", error);
                return Tally { failed: 1, ..tally };
            }
        };
        if is_stopped() {
            return tally;
        }
        if found.is_directory() {
            self.empty((b"", &self.path), is_stopped, each_failure, &mut tally);
        }
        if is_stopped() || tally.failed > 0 {
            return tally;
        }
        let removal = match found.is_directory() {
            true => self.server.remove_directory(&self.path),
            false => self.server.remove(&self.path),
        };
        match removal {
            Ok(()) => tally.count(&found),
            Err(fault) => {
                each_failure(b"", fault.on("remove", b""));
                tally.failed += 1;
            }
        }
        tally
    }
}
