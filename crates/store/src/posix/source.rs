//! Directory trees and files as a source.
//!
//! Invariants: opening goes through the tree of directories that were listed, one name at a time; a file is read
//! through a descriptor whose generation is checked after the read, so that a change is noticed (I8).

use super::beneath::{self, Bounds};
use super::blocks::ExtentReader;
use super::choose::Chooser;
use super::list::{self, Pending, Visitor, Walk};
use super::owners::{self, Sort};
use super::tree::Tree;
use super::watch::PosixWatch;
use super::within;
use crate::source::{
    DirectoryKey, End, Footing, Found, Holes, Piece, SIZE_UNTRUE, Source, SourceFile, SourceLane, SourceObject, Watch,
};
use crate::{Engines, Error, Result};
use model::fidelity::{Warning, Warnings};
use model::follow::Follow;
use model::{Entry, Extent, Failure, FailureKind, Fidelity, Generation, Kind, Name, ObjectId, Selection};
use rustix::fs::{AtFlags, fstat, statat};
use std::any::Any;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

/// Keys of the directories that the user named, apart from those found by listing.
const BASE: u64 = 1 << 63;

/// One source argument, already opened.
enum Base {
    /// Its contents, without itself (`dir/`).
    Contents { key: u64 },
    /// The object `name` in the directory `key`.
    Object { key: u64, name: Name },
}

pub struct PosixSource {
    tree: Arc<Tree>,
    bases: Vec<Base>,
    selection: Arc<Selection>,
    fidelity: Fidelity,
    missed: Mutex<Warnings>,
    /// Entries come in the order of keys.
    is_sorted: AtomicBool,
    /// Nothing is read of what is listed: directories need not be found again.
    is_looked_at_alone: bool,
}

impl PosixSource {
    pub fn new() -> PosixSource {
        PosixSource {
            tree: Arc::new(Tree::default()),
            bases: Vec::new(),
            selection: Arc::default(),
            fidelity: Fidelity::default(),
            missed: Mutex::default(),
            is_sorted: AtomicBool::new(false),
            is_looked_at_alone: false,
        }
    }

    /// What stands in a directory, in the order of keys, to be compared with something else.
    pub(super) fn mirror(directory: Arc<OwnedFd>, bounds: Bounds) -> PosixSource {
        let mut mirror = PosixSource::new();
        mirror.keep_within(bounds);
        mirror.tree.insert_base(BASE, directory, b"");
        mirror.bases.push(Base::Contents { key: BASE });
        PosixSource { is_sorted: AtomicBool::new(true), is_looked_at_alone: true, ..mirror }
    }

    /// What is out of these bounds is left out from here on, with a word on it. Before anything is added.
    pub fn keep_within(&mut self, bounds: impl Into<Bounds>) {
        Arc::get_mut(&mut self.tree).expect("a source that nobody uses yet").bounds = bounds.into();
    }

    /// What of the tree is listed.
    pub fn select(&mut self, selection: Arc<Selection>) {
        self.selection = selection;
    }

    /// What is read of each object besides content.
    pub fn keep(&mut self, fidelity: Fidelity) {
        self.fidelity = fidelity;
    }

    /// Adds a path of the user's own. A trailing slash means the contents of the directory (rsync's rule).
    pub fn add_local(&mut self, path: &[u8]) -> Result<()> {
        use std::os::unix::ffi::OsStrExt;
        let as_path = Path::new(std::ffi::OsStr::from_bytes(path));
        let fail = |e: io::Error| Error::new("open source", path, e);
        let names_contents =
            path.ends_with(b"/") || path.ends_with(b"/.") || path == b"." || as_path.file_name().is_none();
        if names_contents {
            return self.add_contents(beneath::open_directory(as_path).map_err(fail)?).map_err(fail);
        }
        let name = as_path.file_name().map(|n| n.as_bytes()).unwrap_or_default();
        let name = Name::new(name).map_err(|e| fail(io::Error::other(e)))?;
        let parent = as_path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
        self.add_object(beneath::open_directory(parent).map_err(fail)?, name).map_err(fail)
    }

    /// Adds a path below a served root; nothing outside it can be reached.
    pub fn add_beneath(&mut self, root: BorrowedFd<'_>, path: &[u8]) -> Result<()> {
        let fail = |e: io::Error| Error::new("open source", path, e);
        let names = model::name::relative_path(path).map_err(|e| {
            Error::of_kind(
                model::FailureKind::NameRefused,
                "open source",
                path,
                &format!("{e}; paths are relative to the root"),
            )
        })?;
        let names_contents = path.ends_with(b"/") || path.ends_with(b"/.") || names.is_empty();
        match names.split_last() {
            Some((last, parents)) if !names_contents => {
                let parent = self.tree.bounds.resolve_directory(root, parents).map_err(fail)?;
                self.add_object(parent, last.clone()).map_err(fail)
            }
            _ => self.add_contents(self.tree.bounds.resolve_directory(root, &names).map_err(fail)?).map_err(fail),
        }
    }

    /// Adds the object `name` in a directory that the caller has opened; nothing but that name is looked up in it.
    pub fn add_child(&mut self, directory: OwnedFd, name: Name) -> io::Result<()> {
        self.add_object(directory, name)
    }

    /// Adds the contents of a directory that the caller has opened.
    pub fn add_contents_of(&mut self, directory: OwnedFd) -> io::Result<()> {
        self.add_contents(directory)
    }

    fn add_contents(&mut self, directory: OwnedFd) -> io::Result<()> {
        let key = BASE | self.bases.len() as u64;
        self.tree.insert_base(key, Arc::new(directory), b"");
        self.bases.push(Base::Contents { key });
        Ok(())
    }

    fn add_object(&mut self, parent: OwnedFd, name: Name) -> io::Result<()> {
        statat(&parent, name.as_c_str(), AtFlags::SYMLINK_NOFOLLOW)?;
        let key = BASE | self.bases.len() as u64;
        self.tree.insert_base(key, Arc::new(parent), b"");
        self.bases.push(Base::Object { key, name });
        Ok(())
    }

    /// The one source is a file or link (not a directory): its destination may be a new name for it.
    pub fn is_single_object(&self) -> bool {
        let [Base::Object { key, name, .. }] = &self.bases[..] else { return false };
        let Ok(parent) = self.tree.open(*key) else { return false };
        statat(&parent, name.as_c_str(), AtFlags::SYMLINK_NOFOLLOW)
            .is_ok_and(|s| !rustix::fs::FileType::from_raw_mode(s.st_mode).is_dir())
    }

    fn look(&self, key: u64, name: &Name, id: ObjectId, parent: ObjectId) -> Result<Entry> {
        let path = || self.tree.path(key, name.as_bytes());
        let directory = self.tree.open(key).map_err(|e| Error::new("open directory", path(), e))?;
        let status = statat(&directory, name.as_c_str(), AtFlags::SYMLINK_NOFOLLOW)
            .map_err(|e| Error::new("look at", path(), e))?;
        let mut miss = |text: &str| self.missed.lock().unwrap().note(text, &path);
        list::entry_from((directory.as_fd(), name), (id, parent), &status, self.fidelity, &mut miss)
    }
}

impl Default for PosixSource {
    fn default() -> Self {
        PosixSource::new()
    }
}

impl Source for PosixSource {
    fn scan(&self, emit: &mut dyn FnMut(Found) -> bool) -> Result<()> {
        let (fidelity, missed) = (self.fidelity, &self.missed);
        let mut walk = Walk { tree: &self.tree, next_id: 1, pending: Vec::new(), fidelity, missed };
        let mut chooser = Chooser::new(&self.tree, &self.selection, self.bases.len() > 1, emit);
        for base in &self.bases {
            match base {
                Base::Contents { key } if self.is_sorted.load(Relaxed) => {
                    let base = Pending { key: DirectoryKey(*key), id: ObjectId::ROOT };
                    if !walk.in_order(base, self.is_looked_at_alone, &mut chooser) {
                        return Ok(());
                    }
                }
                Base::Contents { key } => {
                    walk.pending.push(Pending { key: DirectoryKey(*key), id: ObjectId::ROOT });
                }
                Base::Object { key, name } => {
                    let at = Pending { key: DirectoryKey(*key), id: ObjectId::ROOT };
                    let id = ObjectId(walk.next_id);
                    let entry = match self.look(*key, name, id, ObjectId::ROOT) {
                        Ok(entry) => entry,
                        // As it would be further down: the other sources, and later attempts, have nothing to do with it.
                        Err(e) if e.kind == FailureKind::Special => {
                            let path = self.tree.path(*key, name.as_bytes());
                            let failure = Failure { path, kind: e.kind, message: e.message() };
                            if !chooser.found(Found::Failed(failure)) {
                                return Ok(());
                            }
                            continue;
                        }
                        Err(e) => return Err(e),
                    };
                    if !chooser.takes(&at, name, entry.kind == Kind::Directory) {
                        continue;
                    }
                    walk.next_id += 1;
                    if entry.kind == Kind::Directory {
                        self.tree.insert(id.0, *key, name.clone(), false);
                        walk.pending.push(Pending { key: DirectoryKey(id.0), id });
                    }
                    if !chooser.found(Found::Object(SourceObject { entry, directory: at.key, end: End::Known })) {
                        return Ok(());
                    }
                }
            }
            while let Some(at) = walk.pending.pop() {
                let names = chooser.names(at.id);
                if !walk.list(&at, names.as_deref(), &mut chooser) {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    fn sort_by_key(&self) -> bool {
        let may = matches!(&self.bases[..], [Base::Contents { .. }]) && self.selection.listed.is_none();
        self.is_sorted.store(may, Relaxed);
        may
    }

    fn watch(&self, rules: &Follow) -> Result<Option<Box<dyn Watch>>> {
        if !self.selection.is_everything() {
            let why = "files that are followed cannot be selected";
            return Err(Error::of_kind(FailureKind::Other, "follow", b"", why));
        }
        let top = |base: &Base| match base {
            Base::Contents { key } => (*key, None),
            Base::Object { key, name } => (*key, Some(name.clone())),
        };
        let tops = self.bases.iter().map(top).collect();
        Ok(Some(Box::new(PosixWatch::new(self.tree.clone(), tops, rules.clone(), self.fidelity))))
    }

    fn lane(&self) -> Box<dyn SourceLane> {
        Box::new(PosixSourceLane { tree: self.tree.clone(), directory: None, reader: ExtentReader::default() })
    }

    fn path(&self, object: &SourceObject) -> Vec<u8> {
        self.tree.path(object.directory.0, object.entry.name.as_bytes())
    }

    fn footing(&self, object: &SourceObject) -> Option<Footing> {
        let directory = self.tree.open(object.directory.0).ok()?;
        let status = statat(&directory, object.entry.name.as_c_str(), AtFlags::SYMLINK_NOFOLLOW).ok()?;
        Some(within::footing_of(status.st_blocks as u64, status.st_size as u64))
    }

    fn owner_name(&self, is_group: bool, number: u32) -> Option<Box<[u8]>> {
        owners::name_of(if is_group { Sort::Group } else { Sort::User }, number)
    }

    fn take_warnings(&self) -> Vec<Warning> {
        self.missed.lock().unwrap().take()
    }

    fn look_again(&self, object: &SourceObject) -> Result<SourceObject> {
        let mut again = object.clone();
        again.entry = self.look(object.directory.0, &object.entry.name, object.entry.id, object.entry.parent)?;
        Ok(again)
    }
}

struct PosixSourceLane {
    tree: Arc<Tree>,
    /// The directory of the last object: the next one is most often in it too.
    directory: Option<(DirectoryKey, Arc<OwnedFd>)>,
    reader: ExtentReader,
}

impl PosixSourceLane {
    fn open_object(&mut self, object: &SourceObject) -> Result<OwnedFd> {
        let fail =
            |tree: &Tree, e| Error::new("open file", tree.path(object.directory.0, object.entry.name.as_bytes()), e);
        let directory = match &self.directory {
            Some((key, directory)) if *key == object.directory => directory,
            _ => {
                let opened = self.tree.open(object.directory.0).map_err(|e| fail(&self.tree, e))?;
                &self.directory.insert((object.directory, opened)).1
            }
        };
        self.tree.bounds.open_file(directory.as_fd(), &object.entry.name).map_err(|e| fail(&self.tree, e))
    }
}

impl SourceLane for PosixSourceLane {
    fn read_whole(&mut self, object: &SourceObject, buffer: &mut [u8]) -> Result<(usize, Generation)> {
        let file = self.open_object(object)?;
        let fail = |e: rustix::io::Errno| Error::new("read file", b"", e);
        let mut filled = 0;
        while filled < buffer.len() {
            match os::fs::read(&file, &mut buffer[filled..]) {
                Ok(0) => break,
                // The size is known: a read that returns all of it need not be followed by one that returns nothing,
                // because the generation is looked at afterwards.
                Ok(n) => filled += n,
                Err(rustix::io::Errno::INTR) => {}
                Err(e) => return Err(Error::at("read file", filled as u64, e)),
            }
        }
        let is_checked = buffer.is_empty() && !model::mutant::is_on("take-size-0-at-its-word");
        if is_checked && rustix::io::retry_on_intr(|| os::fs::read(&file, &mut [0])).map_err(fail)? > 0 {
            return Err(Error::of_kind(FailureKind::ReadError, "read file", b"", SIZE_UNTRUE));
        }
        let status = fstat(&file).map_err(fail)?;
        Ok((filled, list::generation_of(&status)))
    }

    fn open(&mut self, object: &SourceObject) -> Result<Arc<dyn SourceFile>> {
        let file = std::fs::File::from(self.open_object(object)?);
        let _ = rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::Sequential);
        Ok(Arc::new(PosixFile { file }))
    }

    fn serve(&mut self, engines: Engines) {
        self.reader.serve(engines);
    }

    fn reads_ahead(&self) -> bool {
        self.reader.has_queue()
    }

    fn expect(&mut self, file: Arc<dyn SourceFile>, extent: Extent) {
        self.reader.expect(file, extent);
    }

    fn read_extent(
        &mut self,
        file: &dyn SourceFile,
        extent: Extent,
        block: &mut [u8],
        each: &mut dyn FnMut(&[u8]) -> bool,
    ) -> Result<u64> {
        self.reader.read(file, extent, block, each)
    }
}

pub(super) struct PosixFile {
    pub file: std::fs::File,
}

impl SourceFile for PosixFile {
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        let mut filled = 0;
        while filled < buffer.len() {
            match os::fs::pread(&self.file, &mut buffer[filled..], offset + filled as u64) {
                Ok(0) => break,
                Ok(n) => filled += n,
                Err(rustix::io::Errno::INTR) => {}
                Err(e) => return Err(Error::at("read file", offset + filled as u64, e)),
            }
        }
        Ok(filled)
    }

    fn generation(&self) -> Result<Generation> {
        let status = fstat(&self.file).map_err(|e| Error::new("read file status", b"", e))?;
        Ok(list::generation_of(&status))
    }

    fn holes(&self) -> Holes {
        within::holes(self.file.as_fd())
    }

    fn piece(&self, extent: Extent) -> Piece {
        within::piece(self.file.as_fd(), extent)
    }

    fn native(&self) -> Option<&dyn Any> {
        Some(&self.file)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_of_the_kernel_is_not_read_as_an_empty_one() {
        let mut source = PosixSource::new();
        source.add_local(b"/proc/version").unwrap();
        let mut read = None;
        let scanned = source.scan(&mut |found| {
            let Found::Object(object) = found else { panic!("it is a file") };
            assert_eq!(object.entry.size_bytes(), 0);
            read = Some(source.lane().read_whole(&object, &mut []));
            true
        });
        scanned.unwrap();
        assert_eq!(read.unwrap().unwrap_err().kind, FailureKind::ReadError);
    }
}
