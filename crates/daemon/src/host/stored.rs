//! Roots of an endpoint that lie at a store: what a client's path means there, and how it is opened.
//!
//! Invariants:
//! - A path is made of names that were checked one by one, below a root and what a ticket is limited to: what a store gets to see
//!   begins with both.
//! - Clients are told their own paths and what kind of trouble there is; what the store said, with its names, is in the log.
//! - The roots themselves are neither made nor removed by clients.

use super::rights::Rights;
use super::{EndpointHost, drop_box, forbidden, names_contents, names_of, refuse_synthetic, with_path};
use model::files::{FileKind, FileStatus, Tally, Version};
use model::name::{self, Name};
use model::{FailureKind, JobId, Location, TransferOptions};
use mover::files::{How, NotReached};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, mpsc};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use store::open::{OpenSink, OpenSource, Refused, Shape, SinkRequest};
use store::{DropBox, EachFailure, Error, OpenError, Shelf, Slots, Stopped, Stores, Surveyed, Visit};
use tracing::warn;
use wire::message::Open;
use wire::{CloseCode, Refusal};

/// For so long the start of an endpoint waits for its stores to say that they can be served, and a listing of its roots.
const PATIENCE: Duration = Duration::from_secs(5);

/// What an endpoint serves from stores: roots by their names, and what opens them.
#[derive(Clone, Default)]
pub struct StoredRoots {
    roots: BTreeMap<Name, Location>,
    stores: Stores,
    /// Who still waits for stores that did not answer in time, by their roots.
    silent: Arc<Mutex<BTreeMap<Name, JoinHandle<()>>>>,
}

impl std::fmt::Debug for StoredRoots {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_map().entries(self.roots.iter().map(|(name, at)| (name.to_string(), at.to_string()))).finish()
    }
}

/// A place at a store that a client named.
struct Asked {
    /// The root, or what the client's ticket is limited to.
    base: Location,
    below: Vec<Name>,
    /// The base is a root.
    is_whole: bool,
    /// Only a directory is meant.
    is_contents: bool,
}

fn below(location: &Location, names: &[Name]) -> Location {
    match location {
        Location::Url { scheme, rest } => {
            let mut rest = rest.strip_suffix(b"/").unwrap_or(rest).to_vec();
            for name in names {
                rest.push(b'/');
                rest.extend_from_slice(name.as_bytes());
            }
            Location::Url { scheme: scheme.clone(), rest }
        }
        other => other.clone(),
    }
}

fn as_directory(mut location: Location) -> Location {
    if let Location::Url { rest, .. } = &mut location {
        rest.push(b'/');
    }
    location
}

impl Asked {
    fn place(&self) -> Location {
        let place = below(&self.base, &self.below);
        let is_root = self.below.is_empty() && self.is_whole;
        if self.is_contents || is_root { as_directory(place) } else { place }
    }
}

impl StoredRoots {
    pub fn new(roots: BTreeMap<Name, Location>, stores: Stores) -> StoredRoots {
        StoredRoots { roots, stores, silent: Arc::default() }
    }

    pub fn is_empty(&self) -> bool {
        self.roots.is_empty()
    }

    /// Why one of them cannot be served, with its name. A store that cannot be reached or stands still at this moment may be there
    /// later: who uses it is told.
    pub fn check(&self) -> Result<(), (String, OpenError)> {
        for (name, found) in self.ask(|stores, place| stores.shelf_below(place, b"", How::Look).map(drop)) {
            match found {
                Err(e @ OpenError::Refused { why: Refused::Unreachable, .. }) => {
                    warn!(root = %name, error = %e, "a root cannot be reached");
                }
                Err(e) => return Err((name.to_string(), e)),
                Ok(()) => {}
            }
        }
        Ok(())
    }

    /// Asks for all roots at once. A store that does not answer in time is told as one that cannot be reached; until it answers it is
    /// not asked again, so that it holds no more threads the longer it stands still.
    fn ask<T: Send + 'static>(
        &self,
        ask: fn(&Stores, &Location) -> Result<T, OpenError>,
    ) -> BTreeMap<Name, Result<T, OpenError>> {
        let silent = |text: String| Err(OpenError::refused(Refused::Unreachable, text, "try again later"));
        let waits = |name: &Name| self.silent.lock().unwrap().get(name).is_some_and(|thread| !thread.is_finished());
        let (told, answers) = mpsc::channel();
        let (mut asked, mut found) = (BTreeMap::new(), BTreeMap::new());
        for (name, root) in self.roots.iter().filter(|(name, _)| !waits(name)) {
            let (stores, place) = (self.stores.clone(), as_directory(below(root, &[])));
            let (called, told) = (name.clone(), told.clone());
            // Nobody listens any more if it took too long.
            let look = move || drop(told.send((called, ask(&stores, &place))));
            match thread::Builder::new().name("look at a root".to_owned()).spawn(look) {
                Ok(thread) => _ = asked.insert(name.clone(), thread),
                Err(e) => _ = found.insert(name.clone(), silent(format!("no thread for the root {name}: {e}"))),
            }
        }
        drop(told);
        let deadline = Instant::now() + PATIENCE;
        while let Ok((name, answer)) = answers.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
            asked.remove(&name);
            found.insert(name, answer);
        }
        self.silent.lock().unwrap().append(&mut asked);
        for name in self.roots.keys() {
            let text = || silent(format!("the store of the root {name} does not answer"));
            found.entry(name.clone()).or_insert_with(text);
        }
        found
    }

    fn source(&self, asked: &[Asked], options: &TransferOptions) -> Result<OpenSource, OpenError> {
        let places: Vec<Location> = asked.iter().map(Asked::place).collect();
        self.stores.source(&places, options)
    }
}

impl EndpointHost {
    /// What a path means at a store.
    fn stored(&self, rights: &Rights, path: &[u8]) -> Result<Asked, Refusal> {
        refuse_synthetic(path)?;
        let asked = self.locate(rights, path)?;
        let names = names_of(path)?;
        let Some((root, rest)) = names.split_first() else {
            return Err(forbidden(path, "name one of the endpoint's roots, which `thalweg ls` shows"));
        };
        let found = self.stored.roots.get(root);
        let found = found.ok_or_else(|| Refusal::new(CloseCode::NotFound, &with_path(path, "no such root")))?;
        let limit = &rest[..rest.len() - asked.below.len().min(rest.len())];
        Ok(Asked {
            base: below(found, limit),
            below: rest[limit.len()..].to_vec(),
            is_whole: limit.is_empty(),
            is_contents: names_contents(path),
        })
    }

    pub(super) fn stored_source(
        &self,
        rights: &Rights,
        open: &Open,
        options: &TransferOptions,
    ) -> Result<OpenSource, Refusal> {
        let mut all = Vec::new();
        for path in &open.paths {
            let asked = self.stored(rights, path)?;
            if asked.is_whole && asked.below.is_empty() && !asked.is_contents {
                // What it is called at the store is not the client's to know.
                return Err(forbidden(path, "put a slash after the name of a root to mean its contents"));
            }
            all.push(asked);
        }
        let path = open.paths.first().map_or(&b""[..], |path| path);
        self.stored.source(&all, options).map_err(|e| refused(path, &e))
    }

    pub(super) fn open_stored(
        &self,
        rights: &Rights,
        job: JobId,
        open: &Open,
        options: &TransferOptions,
    ) -> Result<OpenSink, Refusal> {
        let [path] = &open.paths[..] else {
            return Err(Refusal::new(CloseCode::Malformed, "a job that does not name exactly one destination"));
        };
        let tag = rights.is_drop_box.then(|| drop_box::tag_of(job));
        let mut asked = self.stored(rights, path)?;
        super::check_depth(path, &asked.below)?;
        let is_single = open.is_single && !asked.is_contents && !asked.below.is_empty();
        asked.is_contents |= !is_single;
        // Whether the path is that of a directory is not looked at where the client may not know.
        let new_name = if tag.is_some() && is_single { asked.below.pop() } else { None };
        asked.is_contents |= new_name.is_some();
        let shape = if is_single && new_name.is_none() { Shape::Single } else { Shape::Tree };
        let rights = store::open::Rights::of(options);
        let request = SinkRequest { rights, shape, is_nameless: false, is_own: false, options };
        let opened = self.stored.stores.sink(&asked.place(), &request).map_err(|e| refused(path, &e))?;
        Ok(match tag {
            Some(tag) => OpenSink::new(Arc::new(DropBox::new(opened.sink, &tag)), new_name),
            None => opened,
        })
    }

    pub(super) fn stored_shelf(&self, rights: &Rights, path: &[u8], how: How) -> Result<Box<dyn Shelf>, NotReached> {
        if how == How::Look && names_of(path).map_err(NotReached::Refused)?.is_empty() && rights.scope.is_empty() {
            return Ok(Box::new(RootsShelf(self.stored.clone())));
        }
        let asked = self.stored(rights, path).map_err(NotReached::Refused)?;
        let mut below = name::join(&asked.below);
        if asked.is_contents && !below.is_empty() {
            below.push(b'/');
        }
        match self.stored.stores.shelf_below(&as_directory(asked.base), &below, how) {
            Ok(shelf) => Ok(shelf),
            Err(OpenError::Source { error, .. }) => Err(NotReached::Failed(error)),
            Err(e) => Err(NotReached::Refused(refused(path, &e))),
        }
    }
}

fn refused(path: &[u8], error: &OpenError) -> Refusal {
    warn!(path = %model::name::Escaped(path), %error, "a store cannot be used");
    let (code, why) = match error {
        OpenError::Source { error, .. } if error.kind == FailureKind::NotFound => {
            (CloseCode::NotFound, "no such file or directory")
        }
        OpenError::Source { error, .. } if error.kind == FailureKind::Permission => {
            (CloseCode::Forbidden, "the endpoint's keys for its store do not allow it")
        }
        OpenError::NoDirectory(_) => (CloseCode::Forbidden, "a file stands where a directory is needed"),
        OpenError::Refused { why: Refused::Unreachable, .. } => {
            (CloseCode::Internal, "the endpoint's store does not answer")
        }
        OpenError::Refused { why: Refused::Missing, .. } => (CloseCode::Internal, "the endpoint's bucket is not there"),
        OpenError::Refused { why: Refused::Keys | Refused::Untrusted, .. } => {
            (CloseCode::Internal, "the endpoint's store rejects its keys, or does not prove its identity")
        }
        OpenError::Refused { why: Refused::Unable, text, .. } => (CloseCode::Forbidden, &text[..]),
        _ => (CloseCode::Internal, "the endpoint cannot open this at its store"),
    };
    Refusal::new(code, &with_path(path, why))
}

/// What stands above the roots: a directory of them.
struct RootsShelf(StoredRoots);

fn directory() -> FileStatus {
    FileStatus {
        kind: FileKind::Directory,
        mode: 0o555,
        size_bytes: 0,
        allocated_bytes: 0,
        owner: 0,
        group: 0,
        links: 1,
        inode: 0,
        device: 0,
        modified: Default::default(),
        changed: Default::default(),
    }
}

fn stays() -> Error {
    Error::of_kind(FailureKind::NameRefused, "change", b"", "the roots of an endpoint are set in its configuration")
}

impl RootsShelf {
    /// Each root that is gone down to: its name, whether it is the last, and what is there.
    fn each(&self, mut work: impl FnMut(&[u8], bool, Result<Box<dyn Shelf>, OpenError>) -> bool) {
        let opened = self.0.ask(|stores, place| {
            let shelf = stores.shelf_below(place, b"", How::Look)?;
            // A store that was reached before may stand still by now.
            drop(shelf.look());
            Ok(shelf)
        });
        let count = opened.len();
        for (at, (name, shelf)) in opened.into_iter().enumerate() {
            if !work(name.as_bytes(), at + 1 == count, shelf) {
                return;
            }
        }
    }

    fn failed(e: &OpenError) -> Error {
        let refusal = refused(b"", e);
        Error::of_kind(FailureKind::Other, "open", b"", &refusal.text)
    }
}

fn joined(name: &[u8], path: &[u8]) -> Vec<u8> {
    if path.is_empty() { name.to_vec() } else { [name, b"/", path].concat() }
}

impl Shelf for RootsShelf {
    fn look(&self) -> store::Result<FileStatus> {
        Ok(directory())
    }

    fn list(&self, levels: u32, slots: &Arc<Slots>, visit: &mut dyn FnMut(Surveyed) -> bool) {
        if !visit(Surveyed { path: Vec::new(), is_last: true, found: Ok(directory()) }) || levels == 0 {
            return;
        }
        self.each(|name, is_last, shelf| match shelf {
            Err(e) => visit(Surveyed { path: name.to_vec(), is_last, found: Err(RootsShelf::failed(&e)) }),
            Ok(shelf) => {
                let mut goes_on = true;
                shelf.list(levels - 1, slots, &mut |found| {
                    let is_last = if found.path.is_empty() { is_last } else { found.is_last };
                    goes_on = visit(Surveyed { path: joined(name, &found.path), is_last, found: found.found });
                    goes_on
                });
                goes_on
            }
        });
    }

    fn walk(&self, levels: u32, slots: &Arc<Slots>, visit: &mut dyn FnMut(Visit<'_>) -> bool) {
        let none = || -> store::Opener { Box::new(|| Err(stays())) };
        let top = Visit::Object { path: b"", status: directory(), is_last: true, opener: &none };
        if !visit(top) {
            return;
        }
        let mut goes_on = true;
        if levels > 0 {
            self.each(|name, last, shelf| {
                match shelf {
                    Err(e) => goes_on = visit(Visit::Failed { path: name, error: RootsShelf::failed(&e) }),
                    Ok(shelf) => shelf.walk(levels - 1, slots, &mut |found| {
                        goes_on = match found {
                            Visit::Object { path, status, is_last, opener } => {
                                let is_last = if path.is_empty() { last } else { is_last };
                                visit(Visit::Object { path: &joined(name, path), status, is_last, opener })
                            }
                            Visit::Left { path } => visit(Visit::Left { path: &joined(name, path) }),
                            Visit::Failed { path, error } => visit(Visit::Failed { path: &joined(name, path), error }),
                        };
                        goes_on
                    }),
                }
                goes_on
            });
        }
        if goes_on {
            visit(Visit::Left { path: b"" });
        }
    }

    fn make(&self, _: bool) -> store::Result<bool> {
        Err(stays())
    }

    fn rename(&self, _: &dyn Shelf, _: bool) -> store::Result<()> {
        Err(stays())
    }

    fn remove(&self, _: Option<&Version>, _: bool) -> store::Result<Tally> {
        Err(stays())
    }

    fn remove_tree(&self, _: Stopped<'_>, each_failure: EachFailure<'_>) -> Tally {
        each_failure(b"", stays());
        Tally::default()
    }
}
