//! Questions about what a server holds. Nothing is changed here.

use crate::listing::Stat;
use crate::path;
use crate::reading::DavFile;
use crate::site::Site;
use crate::source::{DEPTH_MAX, NAMES_MAX};
use model::FailureKind;
use model::files::{FileKind, FileStatus, Tally, Version};
use std::sync::Arc;
use store::{EachFailure, Error, Opener, Result, Shelf, Slots, SourceFile, Stopped, Surveyed, Visit};

pub struct DavShelf {
    site: Arc<Site>,
    path: Vec<u8>,
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
    pub fn new(site: Arc<Site>, path: Vec<u8>) -> DavShelf {
        DavShelf { site, path }
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
            inode: stat.generation(&self.site).version.object(),
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

    fn unchanged<T>(&self, operation: &'static str) -> Result<T> {
        let why = "this build only reads from WebDAV servers";
        Err(Error::of_kind(FailureKind::ReadOnly, operation, b"", why))
    }
}

impl Shelf for DavShelf {
    fn look(&self) -> Result<FileStatus> {
        let stat = self.site.stat(&self.path).map_err(|failure| failure.on("look at", b""))?;
        Ok(self.status(&stat))
    }

    fn list(&self, levels: u32, slots: &Arc<Slots>, visit: &mut dyn FnMut(Surveyed) -> bool) {
        self.walk(levels, slots, &mut |found| match found {
            Visit::Object { path, status, is_last, .. } => {
                visit(Surveyed { path: path.to_vec(), is_last, found: Ok(status) })
            }
            Visit::Failed { path, error } => visit(Surveyed { path: path.to_vec(), is_last: false, found: Err(error) }),
            Visit::Left { .. } => true,
        });
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

    fn make(&self, _: bool) -> Result<bool> {
        self.unchanged("make directory")
    }

    fn rename(&self, _: &dyn Shelf, _: bool) -> Result<()> {
        self.unchanged("rename")
    }

    fn remove(&self, _: Option<&Version>, _: bool) -> Result<Tally> {
        self.unchanged("remove")
    }

    fn remove_tree(&self, _: Stopped<'_>, each_failure: EachFailure<'_>) -> Tally {
        let refused: Result<()> = self.unchanged("remove");
        if let Err(error) = refused {
            each_failure(b"", error);
        }
        Tally { failed: 1, ..Tally::default() }
    }
}
