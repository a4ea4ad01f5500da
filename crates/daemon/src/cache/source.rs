//! A set as a cache serves it: listed from its catalogue, read from what the cache holds, waiting for what it does not hold yet.
//!
//! Invariant: nothing is read that was not compared with the catalogue.

use super::hold::{Content, Hold, OfSet};
use model::name::{join, relative_path};
use model::set::Catalogue;
use model::{Extent, FailureKind, Generation, Selection};
use std::any::Any;
use std::collections::BTreeSet;
use std::sync::Arc;
use store::{Found, Source, SourceFile, SourceLane, SourceObject};
use transfer::{Listed, part};

/// How far ahead of what is asked for in order the cache asks: files, and bytes.
const AHEAD_FILES_MAX: usize = 512;
const AHEAD_BYTES_MAX: u64 = 32 << 20;

pub struct CachedSet {
    hold: Arc<Hold>,
    set: OfSet,
    /// What of it is asked for, and the number in the set of each of its files.
    listed: Listed,
    numbers: Numbers,
}

/// The number in the set of each file that is asked for, where that is not all of them.
type Numbers = Option<Arc<[usize]>>;

fn number_at(numbers: &Numbers, place: usize) -> Option<usize> {
    numbers.as_ref().map_or(Some(place), |numbers| numbers.get(place).copied())
}

impl CachedSet {
    pub fn new(hold: Arc<Hold>, set: OfSet, selection: &Selection) -> CachedSet {
        let all = &set.0.catalogue;
        if selection.is_everything() {
            return CachedSet { hold, listed: Listed(all.clone()), numbers: None, set };
        }
        let takes = |number: &usize| {
            let file = &all.files()[*number];
            selection.takes(&file.path, false, Some((file.size_bytes, file.modified)))
        };
        let numbers: Vec<usize> = match &selection.listed {
            Some(listed) => below(all, &listed.paths).into_iter().filter(takes).collect(),
            None => (0..all.files().len()).filter(takes).collect(),
        };
        let listed = Listed(Arc::new(part(all, numbers.iter().copied())));
        CachedSet { hold, set, listed, numbers: Some(numbers.into()) }
    }
}

/// The files that a list names, and those that lie in what it names.
pub fn below(all: &Catalogue, paths: &[Vec<u8>]) -> BTreeSet<usize> {
    let files = all.files();
    let mut numbers = BTreeSet::new();
    for path in paths {
        let Ok(names) = relative_path(path) else { continue };
        if names.is_empty() {
            return (0..files.len()).collect();
        }
        let path = join(&names);
        numbers.extend(all.find(&path));
        let inside = [&path[..], b"/"].concat();
        let first = files.partition_point(|file| file.path[..] < inside[..]);
        let count = files[first..].partition_point(|file| file.path.starts_with(&inside));
        numbers.extend(first..first + count);
    }
    numbers
}

impl Source for CachedSet {
    fn scan(&self, emit: &mut dyn FnMut(Found) -> bool) -> store::Result<()> {
        self.listed.scan(emit)
    }

    fn lane(&self) -> Box<dyn SourceLane> {
        let (hold, set, numbers) = (self.hold.clone(), self.set.clone(), self.numbers.clone());
        Box::new(CacheLane { hold, set, numbers })
    }

    fn path(&self, object: &SourceObject) -> Vec<u8> {
        self.listed.path(object)
    }

    fn look_again(&self, object: &SourceObject) -> store::Result<SourceObject> {
        Ok(object.clone())
    }
}

struct CacheLane {
    hold: Arc<Hold>,
    set: OfSet,
    numbers: Numbers,
}

impl CacheLane {
    /// The number in the set of what was listed.
    fn number(&self, object: &SourceObject) -> store::Result<usize> {
        let is_there = |number: &usize| *number < self.set.0.catalogue.files().len();
        let number = number_at(&self.numbers, object.directory.0 as usize).filter(is_there);
        let name = object.entry.name.as_bytes();
        number.ok_or_else(|| store::Error::of_kind(FailureKind::NotFound, "read", name, "it is not in the set"))
    }

    /// Has it fetched, and what is asked for next where files are asked for in order.
    fn want(&self, place: usize) {
        let is_expected = |place| number_at(&self.numbers, place).is_none_or(|at| self.hold.expects(&self.set, at));
        let is_in_order = place.checked_sub(1).is_none_or(is_expected);
        let is_ahead = is_expected(place) && is_expected(place + AHEAD_FILES_MAX / 2);
        let files = self.set.0.catalogue.files();
        let mut bytes = 0;
        let last = if is_in_order && !is_ahead { place + AHEAD_FILES_MAX } else { place };
        let next = (place..=last).map_while(|place| number_at(&self.numbers, place).filter(|at| *at < files.len()));
        let next = next.enumerate().take_while(|(at, number)| {
            bytes += if *at == 0 { 0 } else { files[*number].size_bytes };
            bytes <= AHEAD_BYTES_MAX
        });
        self.hold.want(&self.set, next.map(|(_, number)| number));
    }
}

impl SourceLane for CacheLane {
    fn read_whole(&mut self, object: &SourceObject, buffer: &mut [u8]) -> store::Result<(usize, Generation)> {
        let number = self.number(object)?;
        let size = object.entry.generation.size_bytes.min(buffer.len() as u64);
        let mut filled = 0;
        if size > 0 {
            self.want(object.directory.0 as usize);
            read(&self.hold, &self.set, number, Extent::new(0, size), &mut |content, extent| {
                while filled < extent.end {
                    let n = content.read_at(filled, &mut buffer[filled as usize..extent.end as usize])?;
                    if n == 0 {
                        return Ok(false);
                    }
                    filled += n as u64;
                }
                Ok(true)
            })?;
        }
        Ok((filled as usize, object.entry.generation))
    }

    fn open(&mut self, object: &SourceObject) -> store::Result<Arc<dyn SourceFile>> {
        let number = self.number(object)?;
        if object.entry.generation.size_bytes > 0 {
            self.want(object.directory.0 as usize);
        }
        let (hold, set) = (self.hold.clone(), self.set.clone());
        Ok(Arc::new(CacheFile { hold, set, number, generation: object.entry.generation }))
    }

    fn ahead(&mut self, next: &[SourceObject]) {
        let numbers = next.iter().filter_map(|object| self.number(object).ok());
        self.hold.want(&self.set, numbers.collect::<Vec<_>>().into_iter());
    }

    fn read_extent(
        &mut self,
        file: &dyn SourceFile,
        extent: Extent,
        block: &mut [u8],
        each: &mut dyn FnMut(&[u8]) -> bool,
    ) -> store::Result<u64> {
        let Some(file) = file.native().and_then(|any| any.downcast_ref::<CacheFile>()) else {
            return store::read_by_blocks(file, extent, block, each);
        };
        let mut at = extent.start;
        read(&file.hold, &file.set, file.number, extent, &mut |content, part| {
            while at < part.end {
                let wanted = (part.end - at).min(block.len() as u64) as usize;
                let n = content.read_at(at, &mut block[..wanted])?;
                at += n as u64;
                if n == 0 || !each(&block[..n]) {
                    return Ok(false);
                }
            }
            Ok(true)
        })?;
        Ok(at - extent.start)
    }
}

/// Goes through an extent chunk by chunk, each right as it is read; `each` says whether to go on.
fn read(
    hold: &Arc<Hold>,
    set: &OfSet,
    number: usize,
    extent: Extent,
    each: &mut dyn FnMut(&Content, Extent) -> store::Result<bool>,
) -> store::Result<()> {
    let chunk_bytes = set.0.catalogue.chunk_bytes;
    let mut at = extent.start;
    while at < extent.end {
        let chunk = at / chunk_bytes;
        let part = Extent::new(at, ((chunk + 1) * chunk_bytes).min(extent.end));
        if !each(&hold.content(set, number, chunk)?, part)? {
            return Ok(());
        }
        at = part.end;
    }
    Ok(())
}

struct CacheFile {
    hold: Arc<Hold>,
    set: OfSet,
    number: usize,
    generation: Generation,
}

impl SourceFile for CacheFile {
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> store::Result<usize> {
        let end = offset.saturating_add(buffer.len() as u64).min(self.generation.size_bytes);
        let mut filled = 0;
        read(&self.hold, &self.set, self.number, Extent::new(offset.min(end), end), &mut |content, part| {
            while offset + (filled as u64) < part.end {
                let n = content.read_at(offset + filled as u64, &mut buffer[filled..(part.end - offset) as usize])?;
                if n == 0 {
                    return Ok(false);
                }
                filled += n;
            }
            Ok(true)
        })?;
        Ok(filled)
    }

    fn generation(&self) -> store::Result<Generation> {
        Ok(self.generation)
    }

    fn native(&self) -> Option<&dyn Any> {
        Some(self)
    }
}
