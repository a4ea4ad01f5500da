//! Directories of a server as a source.
//!
//! Invariants: siblings come in the order of their names, a directory before what is in it; a directory that cannot be listed is
//! told as a failure. Directories alone are remembered.

use crate::ahead::{Ahead, Wanted};
use crate::listing::{DEPTH_MAX, Stat, hidden};
use crate::path;
use crate::reading::DavFile;
use crate::site::Site;
use model::{Entry, Extent, Failure, FailureKind, Generation, Kind, Name, ObjectId, Selection};
use std::collections::VecDeque;
use std::sync::Arc;
use store::{Directories, DirectoryKey, End, Found, Result, Source, SourceFile, SourceLane, SourceObject};

/// Names of directories that are within each other.
pub const NAMES_MAX: usize = 2_000_000;

/// What the user named.
pub enum Base {
    /// Everything in a directory.
    Contents(Vec<u8>),
    /// A file, or a directory with its name.
    Named(Name, Vec<u8>),
}

#[derive(Clone)]
struct Directory {
    /// At the server.
    path: Vec<u8>,
    /// In reports; with a slash at its end, or empty.
    shown: Vec<u8>,
}

pub struct DavSource {
    site: Arc<Site>,
    bases: Vec<Base>,
    selection: Arc<Selection>,
    directories: Arc<Directories>,
}

impl DavSource {
    pub fn new(site: Arc<Site>, bases: Vec<Base>, selection: Arc<Selection>) -> DavSource {
        DavSource { site, bases, selection, directories: Arc::default() }
    }
}

struct Scan<'a> {
    source: &'a DavSource,
    emit: &'a mut dyn FnMut(Found) -> bool,
    /// The directories that the scan is in.
    levels: Vec<Level>,
    id: u64,
    /// Names of the directories that the scan is in.
    held: usize,
    is_over: bool,
}

/// A directory that the scan is in.
struct Level {
    directory: Directory,
    /// By which its objects know it; given when it is told of.
    key: Option<(ObjectId, DirectoryKey)>,
    /// What it is itself, until then.
    own: Option<(Name, Stat)>,
}

impl Scan<'_> {
    fn emit(&mut self, found: Found) {
        self.is_over = self.is_over || !(self.emit)(found);
    }

    fn failed(&mut self, path: &[u8], error: &store::Error) {
        self.emit(Found::Failed(Failure { path: path.to_vec(), kind: error.kind, message: error.message() }));
    }

    /// Tells of every directory on the way that was not yet told of, and returns the last one's numbers.
    fn arrive(&mut self) -> Result<(ObjectId, DirectoryKey)> {
        let mut above = (ObjectId::ROOT, DirectoryKey(0));
        for at in 0..self.levels.len() {
            above = match (self.levels[at].key, self.levels[at].own.take()) {
                (Some(key), _) => key,
                (None, own) => {
                    let (name, stat) = own.expect("what is not told of has a name");
                    let below = self.source.directories.enter(Some(above.1), name.as_bytes())?;
                    let key = (self.tell(above, name, &stat), below);
                    self.levels[at].key = Some(key);
                    key
                }
            };
        }
        Ok(above)
    }

    fn tell(&mut self, (parent, directory): (ObjectId, DirectoryKey), name: Name, stat: &Stat) -> ObjectId {
        self.id += 1;
        let (kind, mode) = if stat.is_directory { (Kind::Directory, 0o755) } else { (Kind::File, 0o644) };
        let generation = stat.generation(&self.source.site);
        let entry = Entry { id: ObjectId(self.id), parent, name, kind, mode, generation, attributes: None };
        self.emit(Found::Object(SourceObject { entry, directory, end: End::Known }));
        ObjectId(self.id)
    }

    /// Goes through a directory that is given, or what is named in it.
    fn base(&mut self, directory: Directory, named: Option<(Name, Stat)>) -> Result<()> {
        let key = Some((ObjectId::ROOT, self.source.directories.enter(None, &directory.path)?));
        self.levels = vec![Level { directory, key, own: None }];
        match named {
            Some((name, stat)) => self.object(name, &stat),
            None => self.contents(),
        }
    }

    /// Emits an object that is taken, and then what is in it.
    fn object(&mut self, name: Name, stat: &Stat) -> Result<()> {
        let above = &self.levels.last().expect("a scan is in a directory").directory;
        let shown = [&above.shown[..], name.as_bytes()].concat();
        if stat.is_hidden {
            self.failed(&shown, &hidden());
            return Ok(());
        }
        let file = (!stat.is_directory).then_some((stat.size_bytes, stat.modified));
        let selection = self.source.selection.clone();
        let is_taken = selection.takes(&shown, stat.is_directory, file);
        let is_open = stat.is_directory && selection.may_hold(&shown);
        if self.is_over || !(is_taken || is_open) {
            return Ok(());
        }
        if !stat.is_directory {
            let above = self.arrive()?;
            self.tell(above, name, stat);
            return Ok(());
        }
        let directory =
            Directory { path: path::below(&above.path, name.as_bytes()), shown: [&shown[..], b"/"].concat() };
        self.levels.push(Level { directory, key: None, own: Some((name, stat.clone())) });
        if is_taken {
            self.arrive()?;
        }
        if !self.is_over {
            self.contents()?;
        }
        self.levels.pop();
        Ok(())
    }

    fn contents(&mut self) -> Result<()> {
        let directory = self.levels.last().expect("a scan is in a directory").directory.clone();
        let listed = match self.source.site.list(&directory.path) {
            _ if self.levels.len() > DEPTH_MAX + 1 => {
                let why = "directories are nested more than 256 deep";
                Err(store::Error::of_kind(FailureKind::Other, "list", b"", why))
            }
            Ok(listed) if self.held + listed.len() > NAMES_MAX => {
                let why = "directories within each other have more than 2,000,000 names";
                Err(store::Error::of_kind(FailureKind::Other, "list", b"", why))
            }
            listed => listed.map_err(|failure| failure.on("list", b"")),
        };
        let listed = match listed {
            Ok(listed) => listed,
            Err(error) => {
                self.failed(directory.shown.strip_suffix(b"/").unwrap_or(b""), &error);
                return Ok(());
            }
        };
        self.held += listed.len();
        for (name, stat) in &listed {
            if let Ok(name) = Name::new(name) {
                self.object(name, stat)?;
            }
        }
        self.held -= listed.len();
        Ok(())
    }
}

impl Source for DavSource {
    fn scan(&self, emit: &mut dyn FnMut(Found) -> bool) -> Result<()> {
        let mut scan = Scan { source: self, emit, levels: Vec::new(), id: 0, held: 0, is_over: false };
        for base in &self.bases {
            match base {
                Base::Contents(path) => scan.base(Directory { path: path.clone(), shown: Vec::new() }, None)?,
                Base::Named(name, path) => {
                    let stat = self.site.stat(path).map_err(|failure| failure.on("open source", path))?;
                    let above = path[..path.len() - name.as_bytes().len()].to_vec();
                    scan.base(Directory { path: above, shown: Vec::new() }, Some((name.clone(), stat)))?;
                }
            }
            if scan.is_over {
                break;
            }
        }
        Ok(())
    }

    fn lane(&self) -> Box<dyn SourceLane> {
        let ahead = Ahead::begin(&self.site, VecDeque::new());
        Box::new(DavLane { site: self.site.clone(), directories: self.directories.clone(), ahead })
    }

    fn path(&self, object: &SourceObject) -> Vec<u8> {
        [&self.directories.shown(object.directory), object.entry.name.as_bytes()].concat()
    }

    fn look_again(&self, object: &SourceObject) -> Result<SourceObject> {
        let path = path_of(&self.directories, object);
        let stat = self.site.stat(&path).map_err(|failure| failure.on("look at", &path))?;
        let mut again = object.clone();
        again.entry.generation = stat.generation(&self.site);
        Ok(again)
    }
}

fn path_of(directories: &Directories, object: &SourceObject) -> Vec<u8> {
    path::below(&directories.path(object.directory), object.entry.name.as_bytes())
}

struct DavLane {
    site: Arc<Site>,
    directories: Arc<Directories>,
    ahead: Ahead,
}

impl DavLane {
    fn wanted(&self, object: &SourceObject) -> Wanted {
        let path = path_of(&self.directories, object);
        Wanted { id: object.entry.id, path, size_bytes: object.entry.size_bytes() }
    }
}

impl SourceLane for DavLane {
    fn read_whole(&mut self, object: &SourceObject, buffer: &mut [u8]) -> Result<(usize, Generation)> {
        let wanted = self.wanted(object);
        let (bytes, generation) = self.ahead.take(&self.site, &wanted, buffer.len() as u64)?;
        let count = bytes.len().min(buffer.len());
        buffer[..count].copy_from_slice(&bytes[..count]);
        Ok((count, generation))
    }

    fn ahead(&mut self, next: &[SourceObject]) {
        let next = next.iter().map(|object| self.wanted(object)).collect();
        self.ahead = Ahead::begin(&self.site, next);
    }

    fn open(&mut self, object: &SourceObject) -> Result<Arc<dyn SourceFile>> {
        Ok(Arc::new(DavFile::open(&self.site, &path_of(&self.directories, object))?))
    }

    fn read_extent(
        &mut self,
        file: &dyn SourceFile,
        extent: Extent,
        block: &mut [u8],
        each: &mut dyn FnMut(&[u8]) -> bool,
    ) -> Result<u64> {
        match file.native().and_then(|native| native.downcast_ref::<DavFile>()) {
            Some(file) => file.extent(extent, block, each),
            None => store::read_by_blocks(file, extent, block, each),
        }
    }
}
