//! One large object that several slices write together, on whichever host: its data, and a journal for each that writes to it.
//!
//! ```text
//! .thalweg-staging-UID/ranges-STEM/
//!     data                       its content; `data-JOB` once the slice that gives it its name has taken it
//!     START-END-RANDOM.log       what one writer has brought of that part
//! ```
//!
//! Invariants:
//! - A directory has one data file in its life: it appears with it, by one rename, and is put aside when that is gone. So a
//!   journal speaks of the data beside it and of no other.
//! - Whoever writes makes a journal of its own before it opens the data, by a name in this directory. Whoever gives the data
//!   its name takes it first, under a name of its own, and looks at the journals then: it sees that of everybody who has opened the
//!   data before, and after that nobody opens it. What a journal without a last word means is for the caller: its writer may
//!   stand still and go on at any time, so that this data must not get a final name.
//! - Whoever takes the data away from somebody else makes that one's rename fail. So does whoever takes its slice over, for every
//!   object: it has made the mark before (`fence`), and who takes data looks for the mark afterwards.
//!
//! As in `fence`, this needs no clock, no lock and no word of a host.
//!
//! Not here: what journals say (`mover::receiver::parts`).

use super::large::{LargeFile, make_room};
use super::shared::Shared;
use super::slices::RANGES_PREFIX;
use super::source::PosixFile;
use super::staging::{Staging, TRIES_MAX, failed, open_staged, random};
use super::wait::sync_names;
use super::{beneath, facts, fence, list};
use crate::sink::{Journals, Parts};
use crate::{Error, Result};
use model::{Entry, Extent, FailureKind, JobId, Name};
use os::fs::{fsync, mkdirat, openat, renameat_with, unlinkat};
use rustix::fs::{AtFlags, Mode, OFlags, RenameFlags, fstat};
use rustix::io::Errno;
use std::ffi::{CStr, CString};
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

const DATA: &CStr = c"data";
/// Of all journals of an object together, and how many there may be: enough for some million chunks. What has more is sent again.
const JOURNALS_BYTES_MAX: u64 = 256 << 20;
const JOURNALS_MAX: usize = 1 << 16;

/// Opens a part. Returns the journals of those who wrote in it before.
pub(super) fn begin(shared: &Arc<Shared>, entry: &Entry, stem: &str, part: Extent) -> Result<(LargeFile, Journals)> {
    let (host, job) = place_of(shared, entry)?;
    let fail = |e: io::Error| Error::new("create file", shared.tree.path(entry.parent.0, entry.name.as_bytes()), e);
    for _ in 0..TRIES_MAX {
        let Some(directory) = open(&host, stem)? else {
            make(shared, &host, stem, entry).map_err(fail)?;
            continue;
        };
        let place = Arc::new(Staging::of_parts(Arc::new(directory), &host));
        let name = journal_name(part);
        let Some(journal) = make_journal(&place, &name).map_err(fail)? else { continue };
        let data = match open_staged(&place, DATA, OFlags::empty(), 1) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                let _ = unlinkat(&place.directory, &name, AtFlags::empty());
                give_back(&host, &place, stem).map_err(fail)?;
                continue;
            }
            opened => File::from(opened.map_err(fail)?),
        };
        fence::check(shared.staging_parent.as_fd(), job)?;
        if data.metadata().map_err(fail)?.len() != entry.size_bytes() {
            let why = "what is staged of it has another size; remove the staging directory and run the command again";
            return Err(Error::of_kind(FailureKind::Other, "create file", entry.name.as_bytes(), why));
        }
        let journals = journals(&place, &|other, its| other != &*name && its.start < part.end && part.start < its.end);
        let journals = journals.map_err(fail)?.unwrap_or_default();
        let at = (place, entry.parent);
        let file = LargeFile::of_parts(shared.clone(), at, (DATA.to_owned(), data), (name, journal), true);
        return Ok((file, journals));
    }
    Err(failed(Errno::BUSY))
}

/// Takes the data, under a name of this slice.
pub(super) fn take(shared: &Arc<Shared>, entry: &Entry, stem: &str) -> Result<Option<Parts>> {
    let (host, job) = place_of(shared, entry)?;
    let fail = |e: io::Error| Error::new("open file", shared.tree.path(entry.parent.0, entry.name.as_bytes()), e);
    for _ in 0..TRIES_MAX {
        let Some(directory) = open(&host, stem)? else { return Ok(None) };
        let Some(there) = data_name(&directory).map_err(fail)? else { return Ok(None) };
        let own = taken_name(job);
        let place = Arc::new(Staging::of_parts(Arc::new(directory), &host));
        if there != own && !rename(&place.directory, &there, &own).map_err(fail)? {
            continue;
        }
        // Whoever has taken this slice over by now may have looked for the data before it had this name.
        fence::check(shared.staging_parent.as_fd(), job)?;
        let content = match open_staged(&place, &own, OFlags::empty(), 1) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => continue,
            opened => opened.map_err(fail)?,
        };
        let content = Arc::new(PosixFile { file: content.into() });
        let journals = journals(&place, &|_, _| true).map_err(fail)?;
        return Ok(journals.map(|journals| Parts { content, journals }));
    }
    Ok(None)
}

/// Staging in the data that this slice has taken.
pub(super) fn begin_on_all(shared: &Arc<Shared>, entry: &Entry, stem: &str) -> Result<LargeFile> {
    let (host, job) = place_of(shared, entry)?;
    let fail = |e: io::Error| Error::new("create file", shared.tree.path(entry.parent.0, entry.name.as_bytes()), e);
    let directory = open(&host, stem)?.ok_or_else(|| failed(Errno::NOENT))?;
    let place = Arc::new(Staging::of_parts(Arc::new(directory), &host));
    let (name, own) = (journal_name(Extent::new(0, entry.size_bytes())), taken_name(job));
    let journal = make_journal(&place, &name).map_err(fail)?.ok_or_else(|| failed(Errno::NOENT))?;
    let data = open_staged(&place, &own, OFlags::empty(), 1).map_err(fail)?;
    fence::check(shared.staging_parent.as_fd(), job)?;
    Ok(LargeFile::of_parts(shared.clone(), (place, entry.parent), (own, data.into()), (name, journal), false))
}

/// Takes an object's data away from whichever of these slices has it. Should it have opened it too, its journal says that it may
/// still write.
pub(super) fn take_from(top: BorrowedFd<'_>, object: &Name, slices: &[JobId]) -> Result<()> {
    let Some(directory) = open_object(top, object)? else { return Ok(()) };
    let is_theirs =
        |there: &CString| there.as_c_str() != DATA && slices.iter().any(|slice| taken_name(*slice) == *there);
    let taken = data_name(&directory).and_then(|there| match there.filter(is_theirs) {
        Some(there) => rename(&directory, &there, DATA).map(drop),
        None => Ok(()),
    });
    match taken {
        // Nobody wants the object any more.
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
        taken => taken.map_err(|e| Error::new("rename in staging directory", RANGES_PREFIX, e)),
    }
}

/// Removes all objects whose stems begin so.
pub(super) fn drop_all(host: &Staging, stem_prefix: &str) {
    let prefix = [RANGES_PREFIX, stem_prefix.as_bytes()].concat();
    let mut found = Vec::new();
    let _ = list::read_directory(host.top().as_fd(), &mut |name, _| {
        if name.as_bytes().starts_with(&prefix) {
            found.push(name.clone());
        }
        true
    });
    for name in found {
        // Another slice of the same job may do it at the same time.
        let _ = fence::remove(host.top().as_fd(), &name, 0);
    }
}

fn place_of(shared: &Shared, entry: &Entry) -> Result<(Arc<Staging>, JobId)> {
    let directory = shared.open_directory(entry)?;
    let host = shared.staging_for(entry.parent, &directory)?;
    let why = "only slices write an object together";
    let job = shared.slice.get().ok_or_else(|| Error::of_kind(FailureKind::Other, "begin", b"", why))?;
    Ok((host, *job))
}

fn pool_name(stem: &str, suffix: &str) -> Name {
    assert!(stem.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-'), "a stem is letters and digits");
    Name::new(&[RANGES_PREFIX, stem.as_bytes(), suffix.as_bytes()].concat()).expect("letters and digits are a name")
}

fn taken_name(job: JobId) -> CString {
    CString::new(format!("data-{job}")).expect("no NUL")
}

fn journal_name(part: Extent) -> CString {
    CString::new(format!("{:016x}-{:016x}-{:016x}.log", part.start, part.end, random())).expect("no NUL")
}

fn part_of(name: &[u8]) -> Option<Extent> {
    let text = std::str::from_utf8(name.strip_suffix(b".log")?).ok()?;
    let mut numbers = text.split('-').map(|number| u64::from_str_radix(number, 16).ok());
    let (start, end) = (numbers.next()??, numbers.next()??);
    (start <= end).then(|| Extent::new(start, end))
}

fn open(host: &Staging, stem: &str) -> Result<Option<OwnedFd>> {
    open_object(host.top().as_fd(), &pool_name(stem, ""))
}

fn open_object(top: BorrowedFd<'_>, object: &Name) -> Result<Option<OwnedFd>> {
    match beneath::open_child(top, object) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(Error::new("open staging directory", RANGES_PREFIX, e)),
        Ok(directory) => {
            let status = fstat(&directory).map_err(failed)?;
            let is_own = status.st_uid == rustix::process::geteuid().as_raw() && status.st_mode & 0o077 == 0;
            let why = "it belongs to another user or others may enter it; remove it and run the command again";
            let refused = || Error::of_kind(FailureKind::Permission, "use staging directory", RANGES_PREFIX, why);
            if is_own { Ok(Some(directory)) } else { Err(refused()) }
        }
    }
}

/// Makes the directory with its data, both durable; or another host does at the same moment.
fn make(shared: &Shared, host: &Staging, stem: &str, entry: &Entry) -> io::Result<()> {
    let (top, new) = (host.top(), pool_name(stem, &format!(".new-{:016x}", random())));
    mkdirat(top, new.as_c_str(), Mode::from_raw_mode(0o700))?;
    let made = beneath::open_child(top.as_fd(), &new).and_then(|directory| {
        let place = Staging::of_parts(Arc::new(directory), host);
        let data = File::from(open_staged(&place, DATA, OFlags::CREATE | OFlags::EXCL, 1)?);
        shared.give(data.as_fd(), &place, entry, 0o600);
        make_room(&data, entry.size_bytes(), !shared.keeper.fidelity.sparse)?;
        if !facts::is_memory_backed(top.as_fd()) {
            fsync(&data)?;
            sync_names(place.directory.as_fd())?;
        }
        let name = pool_name(stem, "");
        match renameat_with(top, new.as_c_str(), top, name.as_c_str(), RenameFlags::empty()) {
            Ok(()) if facts::is_memory_backed(top.as_fd()) => Ok(()),
            Ok(()) => Ok(sync_names(top.as_fd())?),
            // A directory takes the place of an empty one only.
            Err(e) => Err(e.into()),
        }
    });
    let is_there = |e: &io::Error| matches!(Errno::from_io_error(e), Some(Errno::NOTEMPTY | Errno::EXIST));
    made.or_else(|e| {
        let _ = fence::remove(top.as_fd(), &new, 0);
        if is_there(&e) { Ok(()) } else { Err(e) }
    })
}

/// `None` when the directory is gone.
fn make_journal(place: &Staging, name: &CStr) -> io::Result<Option<File>> {
    match open_staged(place, name, OFlags::CREATE | OFlags::EXCL | OFlags::APPEND, 1) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
        opened => Ok(Some(File::from(opened?))),
    }
}

/// The data is not where parts are begun: whoever took it has come to nothing, and the next one will see that a journal of
/// it is left; or it has its final name, and the directory has had its time.
fn give_back(host: &Staging, place: &Staging, stem: &str) -> io::Result<()> {
    match data_name(&place.directory)? {
        Some(there) => rename(&place.directory, &there, DATA).map(|_| ()),
        None => {
            let (top, name) = (host.top(), pool_name(stem, ""));
            let aside = pool_name(stem, &format!(".old-{:016x}", random()));
            match renameat_with(top, name.as_c_str(), top, aside.as_c_str(), RenameFlags::empty()) {
                Ok(()) | Err(Errno::NOENT) => Ok(()),
                Err(e) => Err(e.into()),
            }
        }
    }
}

/// What the data is called at this moment.
fn data_name(directory: &OwnedFd) -> io::Result<Option<CString>> {
    let mut found = None;
    list::read_directory(directory.as_fd(), &mut |name, _| {
        let bytes = name.as_bytes();
        let is_data = bytes == DATA.to_bytes() || bytes.starts_with(b"data-");
        if is_data {
            found = Some(name.as_c_str().to_owned());
        }
        !is_data
    })?;
    Ok(found)
}

/// False when it is not there any more.
fn rename(directory: &OwnedFd, from: &CStr, to: &CStr) -> io::Result<bool> {
    match renameat_with(directory, from, directory, to, RenameFlags::empty()) {
        Ok(()) => Ok(true),
        Err(Errno::NOENT) => Ok(false),
        Err(e) => Err(e.into()),
    }
}

/// `None` when there are more than can be held.
fn journals(place: &Staging, wanted: &dyn Fn(&CStr, Extent) -> bool) -> io::Result<Option<Vec<Vec<u8>>>> {
    let mut names = Vec::new();
    list::read_directory(place.directory.as_fd(), &mut |name, _| {
        if part_of(name.as_bytes()).is_some_and(|part| wanted(name.as_c_str(), part)) {
            names.push(name.clone());
        }
        names.len() <= JOURNALS_MAX
    })?;
    let (mut found, mut left) = (Vec::new(), JOURNALS_BYTES_MAX);
    for name in &names {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let journal = match openat(&place.directory, name.as_c_str(), flags, Mode::empty()) {
            Err(Errno::NOENT) => continue,
            opened => File::from(opened?),
        };
        let mut bytes = Vec::new();
        journal.take(left + 1).read_to_end(&mut bytes)?;
        let Some(rest) = left.checked_sub(bytes.len() as u64) else { return Ok(None) };
        left = rest;
        found.push(bytes);
    }
    Ok((names.len() <= JOURNALS_MAX).then_some(found))
}

#[cfg(test)]
mod tests;
