//! Directories of a server as a source.
//!
//! Invariants: siblings come in the order of their names, a directory before what is in it; a directory that cannot be listed is
//! told as a failure. Directories alone are remembered.

use crate::listing::Stat;
use crate::path;
use crate::reading::DavFile;
use crate::site::Site;
use model::{Entry, Extent, Failure, FailureKind, Generation, Kind, Name, ObjectId, Selection};
use std::sync::Arc;
use store::{Directories, DirectoryKey, End, Found, Result, Source, SourceFile, SourceLane, SourceObject};

pub const DEPTH_MAX: usize = 256;
/// Names of directories that are within each other.
pub const NAMES_MAX: usize = 2_000_000;

/// What the user named.
pub enum Base {
    /// Everything in a directory.
    Contents(Vec<u8>),
    /// A file, or a directory with its name.
    Named(Name, Vec<u8>),
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
    id: u64,
    /// Names of the directories that the scan is in.
    held: usize,
    is_over: bool,
}

impl Scan<'_> {
    fn emit(&mut self, found: Found) {
        self.is_over = self.is_over || !(self.emit)(found);
    }

    fn failed(&mut self, path: &[u8], error: &store::Error) {
        self.emit(Found::Failed(Failure { path: path.to_vec(), kind: error.kind, message: error.message() }));
    }

    /// Emits an object, and then what is in it. `shown` is what reports call the directory `above`.
    fn object(
        &mut self,
        name: Name,
        stat: &Stat,
        parent: ObjectId,
        above: (DirectoryKey, &[u8]),
        depth: usize,
    ) -> Result<()> {
        let shown = [above.1, name.as_bytes()].concat();
        let file = (!stat.is_directory).then_some((stat.size_bytes, stat.modified));
        if self.is_over || !self.source.selection.takes(&shown, stat.is_directory, file) {
            return Ok(());
        }
        self.id += 1;
        let id = ObjectId(self.id);
        let (kind, mode) = if stat.is_directory { (Kind::Directory, 0o755) } else { (Kind::File, 0o644) };
        let generation = stat.generation(&self.source.site);
        let below = name.clone();
        let entry = Entry { id, parent, name, kind, mode, generation, attributes: None };
        self.emit(Found::Object(SourceObject { entry, directory: above.0, end: End::Known }));
        if stat.is_directory && !self.is_over {
            let key = self.source.directories.enter(Some(above.0), below.as_bytes())?;
            self.contents(key, id, depth + 1)?;
        }
        Ok(())
    }

    fn contents(&mut self, key: DirectoryKey, id: ObjectId, depth: usize) -> Result<()> {
        let directories = &self.source.directories;
        let (path, shown) = (directories.path(key), directories.shown(key));
        let path = path.strip_suffix(b"/").filter(|path| !path.is_empty()).unwrap_or(&path);
        let listed = match self.source.site.list(path) {
            _ if depth > DEPTH_MAX => {
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
                self.failed(shown.strip_suffix(b"/").unwrap_or(b""), &error);
                return Ok(());
            }
        };
        self.held += listed.len();
        for (name, stat) in &listed {
            if let Ok(name) = Name::new(name) {
                self.object(name, stat, id, (key, &shown), depth)?;
            }
        }
        self.held -= listed.len();
        Ok(())
    }
}

impl Source for DavSource {
    fn scan(&self, emit: &mut dyn FnMut(Found) -> bool) -> Result<()> {
        let mut scan = Scan { source: self, emit, id: 0, held: 0, is_over: false };
        for base in &self.bases {
            match base {
                Base::Contents(path) => scan.contents(self.directories.enter(None, path)?, ObjectId::ROOT, 0)?,
                Base::Named(name, path) => {
                    let stat = self.site.stat(path).map_err(|failure| failure.on("open source", path))?;
                    let key = self.directories.enter(None, &path[..path.len() - name.as_bytes().len()])?;
                    scan.object(name.clone(), &stat, ObjectId::ROOT, (key, b""), 0)?;
                }
            }
            if scan.is_over {
                break;
            }
        }
        Ok(())
    }

    fn lane(&self) -> Box<dyn SourceLane> {
        Box::new(DavLane { site: self.site.clone(), directories: self.directories.clone() })
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
}

impl SourceLane for DavLane {
    fn read_whole(&mut self, object: &SourceObject, buffer: &mut [u8]) -> Result<(usize, Generation)> {
        let file = DavFile::open(&self.site, &path_of(&self.directories, object))?;
        let (mut filled, mut block) = (0, vec![0; buffer.len().clamp(1, 128 << 10)]);
        let whole = Extent { start: 0, end: buffer.len() as u64 };
        file.extent(whole, &mut block, &mut |bytes| {
            buffer[filled..filled + bytes.len()].copy_from_slice(bytes);
            filled += bytes.len();
            true
        })?;
        Ok((filled, file.generation()?))
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
