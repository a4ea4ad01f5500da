//! Directories and files of a server as a source.
//!
//! Invariants: objects come in the order of their names, a directory before what is in it; no link is followed below what the user
//! named. With rules, a directory is told of when something in it is taken, or itself.

use super::listing::{NAMES_MAX, WIDTH, join};
use super::packet::Attributes;
use super::reading::{Handle, SftpFile, generation};
use super::server::Server;
use super::session::Fault;
use model::{Entry, Extent, Failure, FailureKind, Generation, Kind, Name, ObjectId, Selection};
use std::collections::HashMap;
use std::sync::Arc;
use store::{Directories, DirectoryKey, End, Found, Result, Source, SourceFile, SourceLane, SourceObject};

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

pub struct SftpSource {
    server: Arc<Server>,
    bases: Vec<Base>,
    selection: Arc<Selection>,
    directories: Arc<Directories>,
}

impl SftpSource {
    pub fn new(server: Arc<Server>, bases: Vec<Base>, selection: Arc<Selection>) -> SftpSource {
        SftpSource { server, bases, selection, directories: Arc::default() }
    }

    fn found(&self, object: &SourceObject) -> Vec<u8> {
        path_of(&self.directories, object)
    }
}

fn path_of(directories: &Directories, object: &SourceObject) -> Vec<u8> {
    join(&directories.path(object.directory), object.entry.name.as_bytes())
}

struct Scan<'a> {
    source: &'a SftpSource,
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

impl Scan<'_> {
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
        let generation = generation(&self.source.server, path, attributes);
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
                let failed = |fault: Fault| fault.on("open source", &path);
                let (session, _) = self.source.server.session().map_err(failed)?;
                let attributes = session.lstat(&path).attributes().map_err(failed)?;
                let target = match attributes.is_link() {
                    true => session.link_target(&path).map_err(failed)?,
                    false => Vec::new(),
                };
                self.child(&mut levels, name.clone(), attributes, target)
            }
        }
    }

    fn below(&mut self, levels: &mut Vec<Level>, is_base: bool) -> Result<()> {
        let level = levels.last().expect("a scan is in a directory");
        let (path, shown) = (level.path.clone(), level.shown.clone());
        let list = || self.source.server.session().and_then(|(session, _)| session.children(&path, true));
        let listed = match list() {
            Err(Fault::Lost(_)) => list(),
            listed => listed,
        };
        let children = match listed {
            Ok(children) => children,
            Err(fault) if is_base || matches!(fault, Fault::Lost(_)) => return Err(fault.on("list", &path)),
            Err(fault) => {
                let error = fault.on("list", b"");
                self.failed(shown.strip_suffix(b"/").unwrap_or(&shown), error.kind, error.message());
                return Ok(());
            }
        };
        let count = children.found.len();
        self.held += count;
        if self.held > NAMES_MAX {
            let fault = Fault::Malformed("it lists more than 2,000,000 names in directories within each other");
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
                let why = "skip: it is a special file, which SFTP cannot copy".to_owned();
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

impl Source for SftpSource {
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
        let (server, directories) = (self.server.clone(), self.directories.clone());
        Box::new(SftpLane { server, directories, ahead: HashMap::new() })
    }

    fn path(&self, object: &SourceObject) -> Vec<u8> {
        [&self.directories.shown(object.directory), object.entry.name.as_bytes()].concat()
    }

    fn look_again(&self, object: &SourceObject) -> Result<SourceObject> {
        let path = self.found(object);
        let look = |(session, _): (Arc<super::session::Session>, _)| session.lstat(&path).attributes();
        let found = self.server.session().and_then(look).map_err(|fault| fault.on("look at", &path))?;
        let mut again = object.clone();
        again.entry.generation = generation(&self.server, &path, &found);
        if !found.is_link() {
            again.entry.mode = found.mode.unwrap_or(0) & 0o7777;
        }
        Ok(again)
    }
}

type Fetched = super::session::Result<(Vec<u8>, Generation)>;

struct SftpLane {
    server: Arc<Server>,
    directories: Arc<Directories>,
    /// Small objects that were fetched before they were asked for.
    ahead: HashMap<ObjectId, Fetched>,
}

impl SftpLane {
    /// Reads small files whole: all are opened at once, then all are read.
    fn fetch(&self, objects: &[SourceObject], bytes_max: &dyn Fn(&SourceObject) -> usize) -> Vec<Fetched> {
        let (session, limits) = match self.server.session() {
            Ok(session) => session,
            Err(fault) => return objects.iter().map(|_| Err(fault.clone())).collect(),
        };
        let paths: Vec<_> = objects.iter().map(|object| path_of(&self.directories, object)).collect();
        let opening: Vec<_> = paths.iter().map(|path| session.open_to_read(path)).collect();
        let opened = opening.into_iter().map(|ticket| ticket.handle());
        let asked: Vec<super::session::Result<_>> = opened
            .zip(objects)
            .map(|(handle, object)| {
                let handle = Handle::new(session.clone(), limits, handle?);
                let first = session.read(handle.bytes(), 0, bytes_max(object).clamp(1, limits.read_bytes));
                // Sent behind the read, it tells what the file was after it; a longer file is looked at again.
                let after = session.fstat(handle.bytes());
                Ok((handle, first, after))
            })
            .collect();
        let come = asked.into_iter().zip(objects).zip(&paths);
        come.map(|((asked, object), path)| {
            let (handle, first, after) = asked?;
            let wanted = bytes_max(object);
            let mut bytes = first.data(wanted.clamp(1, limits.read_bytes))?.unwrap_or_default();
            bytes.truncate(wanted);
            let mut there = after.attributes()?;
            let is_whole = there.size_bytes == Some(bytes.len() as u64);
            if !bytes.is_empty() && bytes.len() < wanted && !is_whole {
                let rest = Extent { start: bytes.len() as u64, end: wanted as u64 };
                handle.read(rest, &mut |more| {
                    bytes.extend_from_slice(more);
                    true
                })?;
                there = session.fstat(handle.bytes()).attributes()?;
            }
            Ok((bytes, generation(&self.server, path, &there)))
        })
        .collect()
    }
}

impl SourceLane for SftpLane {
    fn read_whole(&mut self, object: &SourceObject, buffer: &mut [u8]) -> Result<(usize, Generation)> {
        let (room, ahead) = (buffer.len(), self.ahead.remove(&object.entry.id));
        let fetch = || self.fetch(std::slice::from_ref(object), &|_| room).remove(0);
        let fetched = match ahead.unwrap_or_else(fetch) {
            Err(Fault::Lost(_)) => fetch(),
            fetched => fetched,
        };
        let (bytes, generation) =
            fetched.map_err(|fault| fault.on("read file", &path_of(&self.directories, object)))?;
        let count = bytes.len().min(buffer.len());
        buffer[..count].copy_from_slice(&bytes[..count]);
        Ok((count, generation))
    }

    fn open(&mut self, object: &SourceObject) -> Result<Arc<dyn SourceFile>> {
        Ok(Arc::new(SftpFile::open(&self.server, path_of(&self.directories, object))?))
    }

    fn ahead(&mut self, next: &[SourceObject]) {
        self.ahead.clear();
        for some in next.chunks(WIDTH) {
            let fetched = self.fetch(some, &|object| object.entry.size_bytes() as usize);
            self.ahead.extend(some.iter().map(|object| object.entry.id).zip(fetched));
        }
    }

    fn read_extent(
        &mut self,
        file: &dyn SourceFile,
        extent: Extent,
        block: &mut [u8],
        each: &mut dyn FnMut(&[u8]) -> bool,
    ) -> Result<u64> {
        match file.native().and_then(|native| native.downcast_ref::<SftpFile>()) {
            Some(file) => file.read_each(extent, each),
            None => store::read_by_blocks(file, extent, block, each),
        }
    }
}
