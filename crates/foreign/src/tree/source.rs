//! Directories and files of a server as a source.
//!
//! Invariants: objects come in the order of their names, a directory before what is in it; no link is followed below what the user
//! named. With rules, a directory is told of when something in it is taken, or itself.

use super::attributes::{Attributes, generation};
use super::remote::{Faulty, NAMES_MAX, Remote, join};
use model::{Entry, Failure, FailureKind, Kind, Name, ObjectId, Selection};
use std::sync::Arc;
use store::{Directories, DirectoryKey, End, Found, Result, Source, SourceLane, SourceObject};

/// Longer ones are not entered: a server could go on for ever.
const PATH_BYTES_MAX: usize = 8 << 10;
/// A file of more bytes is none.
const SIZE_BYTES_MAX: u64 = i64::MAX as u64;

/// What the user named.
pub enum Base {
    /// Everything in a directory.
    Contents(Vec<u8>),
    /// The directory itself, or a file or link: where it lies, and its name there.
    Object(Vec<u8>, Name),
}

pub struct TreeSource<R> {
    server: Arc<R>,
    bases: Vec<Base>,
    selection: Arc<Selection>,
    directories: Arc<Directories>,
}

impl<R: Remote> TreeSource<R> {
    pub fn new(server: Arc<R>, bases: Vec<Base>, selection: Arc<Selection>) -> TreeSource<R> {
        TreeSource { server, bases, selection, directories: Arc::default() }
    }

    fn found(&self, object: &SourceObject) -> Vec<u8> {
        path_of(&self.directories, object)
    }
}

pub fn path_of(directories: &Directories, object: &SourceObject) -> Vec<u8> {
    join(&directories.path(object.directory), object.entry.name.as_bytes())
}

struct Scan<'a, R> {
    source: &'a TreeSource<R>,
    emit: &'a mut dyn FnMut(Found) -> bool,
    id: u64,
    /// Names of the directories that the scan is in.
    held: usize,
    is_over: bool,
}

/// A directory that the scan is in.
struct Level {
    path: Vec<u8>,
    shown: Vec<u8>,
    /// By which its objects know it; given when it is told of.
    key: Option<(ObjectId, DirectoryKey)>,
    /// What it is itself, until then.
    own: Option<(Name, Attributes)>,
}

impl<R: Remote> Scan<'_, R> {
    fn emit(&mut self, found: Found) {
        self.is_over = self.is_over || !(self.emit)(found);
    }

    fn failed(&mut self, path: &[u8], kind: FailureKind, message: String) {
        self.emit(Found::Failed(Failure { path: path.to_vec(), kind, message }));
    }

    /// Tells of every directory on the way that was not yet told of, and returns the last one's numbers.
    fn arrive(&mut self, levels: &mut [Level]) -> Result<(ObjectId, DirectoryKey)> {
        let mut above = (ObjectId::ROOT, DirectoryKey(0));
        for level in levels {
            above = match level.key {
                Some(key) => key,
                None => {
                    let (name, attributes) = level.own.take().expect("what is not told of has a name");
                    let key = self.source.directories.enter(Some(above.1), name.as_bytes())?;
                    let id = self.object(above, &level.path, name, &attributes, Kind::Directory);
                    level.key = Some((id, key));
                    (id, key)
                }
            };
        }
        Ok(above)
    }

    fn object(
        &mut self,
        (parent, directory): (ObjectId, DirectoryKey),
        path: &[u8],
        name: Name,
        attributes: &Attributes,
        kind: Kind,
    ) -> ObjectId {
        self.id += 1;
        let generation = generation(self.source.server.name(), path, attributes);
        let mode = if matches!(kind, Kind::Symlink(_)) { 0o777 } else { attributes.mode.unwrap_or(0) & 0o7777 };
        let entry = Entry { id: ObjectId(self.id), parent, name, kind, mode, generation, attributes: None };
        self.emit(Found::Object(SourceObject { entry, directory, end: End::Known }));
        ObjectId(self.id)
    }

    fn base(&mut self, base: &Base) -> Result<()> {
        let directory = match base {
            Base::Contents(path) => path,
            Base::Object(above, _) => above,
        };
        let key = (ObjectId::ROOT, self.source.directories.enter(None, directory)?);
        let mut levels = vec![Level { path: directory.clone(), shown: Vec::new(), key: Some(key), own: None }];
        match base {
            Base::Contents(_) => self.below(&mut levels, true),
            Base::Object(above, name) => {
                let path = join(above, name.as_bytes());
                let failed = |fault: R::Fault| fault.on("open source", &path);
                let server = &self.source.server;
                let attributes = server.look(&path).map_err(failed)?;
                let target = match attributes.is_link() {
                    true => server.link_target(&path).map_err(failed)?,
                    false => Vec::new(),
                };
                self.child(&mut levels, name.clone(), attributes, target)
            }
        }
    }

    fn below(&mut self, levels: &mut Vec<Level>, is_base: bool) -> Result<()> {
        let level = levels.last().expect("a scan is in a directory");
        let (path, shown) = (level.path.clone(), level.shown.clone());
        let list = || self.source.server.children(&path, true);
        let listed = match list() {
            Err(fault) if fault.is_lost() => list(),
            listed => listed,
        };
        let children = match listed {
            Ok(children) => children,
            Err(fault) if is_base || fault.is_lost() => return Err(fault.on("list", &path)),
            Err(fault) => {
                let error = fault.on("list", b"");
                self.failed(shown.strip_suffix(b"/").unwrap_or(&shown), error.kind, error.message());
                return Ok(());
            }
        };
        let count = children.found.len();
        self.held += count;
        if self.held > NAMES_MAX {
            let fault = R::Fault::beyond("it lists more than 2,000,000 names in directories within each other");
            return Err(fault.on("list", &path));
        }
        for why in children.odd {
            self.failed(&shown, FailureKind::NameRefused, format!("list: {why}"));
        }
        for child in children.found {
            if self.is_over {
                return Ok(());
            }
            self.child(levels, child.name, child.attributes, child.target)?;
        }
        self.held -= count;
        Ok(())
    }

    fn child(&mut self, levels: &mut Vec<Level>, name: Name, found: Attributes, target: Vec<u8>) -> Result<()> {
        let level = levels.last().expect("a scan is in a directory");
        let path = join(&level.path, name.as_bytes());
        let shown = [&level.shown[..], name.as_bytes()].concat();
        let selection = self.source.selection.clone();
        let (size, seconds) = (found.size_bytes.unwrap_or(0), i64::from(found.modified.unwrap_or(0)));
        let is_directory = found.is_directory();
        let is_taken = selection.takes(&shown, is_directory, found.is_file().then_some((size, seconds)));
        if is_directory {
            if path.len() > PATH_BYTES_MAX {
                self.failed(&shown, FailureKind::NameRefused, "list: its path is longer than 8192 bytes".to_owned());
                return Ok(());
            }
            let shown = [&shown[..], b"/"].concat();
            levels.push(Level { path, shown: shown.clone(), key: None, own: Some((name, found)) });
            if is_taken {
                self.arrive(levels)?;
            }
            let is_open = !self.is_over && selection.may_hold(shown.strip_suffix(b"/").unwrap_or(&shown));
            let done = if is_open { self.below(levels, false) } else { Ok(()) };
            levels.pop();
            return done;
        }
        if !is_taken {
            return Ok(());
        }
        let kind = match found.is_link() {
            true => Kind::Symlink(target.into()),
            false if found.is_file() && size <= SIZE_BYTES_MAX => Kind::File,
            false if found.is_file() => {
                let why = format!("look at: the server says that it has {size} bytes, which no file has");
                self.failed(&shown, FailureKind::ReadError, why);
                return Ok(());
            }
            false => {
                let why = format!("skip: it is a special file, which {} cannot copy", R::PROTOCOL);
                self.failed(&shown, FailureKind::Special, why);
                return Ok(());
            }
        };
        let above = self.arrive(levels)?;
        if !self.is_over {
            self.object(above, &path, name, &found, kind);
        }
        Ok(())
    }
}

impl<R: Remote> Source for TreeSource<R> {
    fn scan(&self, emit: &mut dyn FnMut(Found) -> bool) -> Result<()> {
        let mut scan = Scan { source: self, emit, id: 0, held: 0, is_over: false };
        for base in &self.bases {
            scan.base(base)?;
            if scan.is_over {
                break;
            }
        }
        Ok(())
    }

    fn lane(&self) -> Box<dyn SourceLane> {
        self.server.lane(self.directories.clone())
    }

    fn path(&self, object: &SourceObject) -> Vec<u8> {
        [&self.directories.shown(object.directory), object.entry.name.as_bytes()].concat()
    }

    fn look_again(&self, object: &SourceObject) -> Result<SourceObject> {
        let path = self.found(object);
        let found = self.server.look(&path).map_err(|fault| fault.on("look at", &path))?;
        let mut again = object.clone();
        again.entry.generation = generation(self.server.name(), &path, &found);
        if !found.is_link() {
            again.entry.mode = found.mode.unwrap_or(0) & 0o7777;
        }
        Ok(again)
    }
}
