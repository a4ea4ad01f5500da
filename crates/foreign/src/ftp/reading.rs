//! Content of files, from an offset on.
//!
//! Invariants: what ends before the server says that it does is cut, and an error; a transfer that is broken off early is waited for, so
//! that its conversation can be used again.

use super::fault::{Fault, Result};
use super::fetching::{Fetched, Wanted, fetch};
use super::server::{Lease, Server, Spare};
use super::session::command;
use crate::tree::{Faulty, generation, path_of};
use model::{Extent, Generation, ObjectId};
use std::any::Any;
use std::collections::HashMap;
use std::io::Read;
use std::net::TcpStream;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;
use store::{Directories, SourceFile, SourceLane, SourceObject};

const BLOCK_BYTES: usize = 128 << 10;
/// How often a file that breaks off is gone on with, where it stopped.
const CONTINUED_MAX: u32 = 4;
/// For a transfer that was broken off to be given up by the server.
const GIVING_UP: Duration = Duration::from_secs(20);

/// A file on its way here.
struct Download {
    lease: Lease,
    data: Option<TcpStream>,
    path: Vec<u8>,
    at: u64,
}

impl Download {
    fn begin(server: &Arc<Server>, path: &[u8], at: u64) -> Result<Download> {
        let mut lease = server.lease()?;
        let restart = (at > 0).then(|| command("REST", at.to_string().as_bytes()));
        let commands: Vec<_> = restart.into_iter().chain([command("RETR", path)]).collect();
        let data = Some(lease.begin(&commands)?);
        Ok(Download { lease, data, path: path.to_vec(), at })
    }

    /// At least one byte; none at the end of the file.
    fn read(&mut self, block: &mut [u8]) -> Result<usize> {
        let Some(data) = &mut self.data else { return Ok(0) };
        match data.read(block) {
            Ok(0) => {
                self.data = None;
                if !model::mutant::is_on("ftp-cut-is-end") {
                    self.lease.ended()?;
                }
                Ok(0)
            }
            Ok(count) => {
                self.at += count as u64;
                self.lease.stir();
                Ok(count)
            }
            Err(e) => Err(self.lease.line.lose(&format!("the data connection was lost: {e}"))),
        }
    }
}

impl Drop for Download {
    fn drop(&mut self) {
        if self.data.take().is_some() && !self.lease.line.is_lost {
            let _ = self.lease.line.reply(GIVING_UP);
        }
    }
}

/// Where a reader stands in a file, with the transfer that goes on from there, unless somebody needed its conversation meanwhile.
#[derive(Default)]
pub struct Position(Arc<Kept>);

#[derive(Default)]
struct Kept(Mutex<Option<Download>>);

impl Kept {
    fn take(&self) -> Option<Download> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

impl Spare for Kept {
    fn give_up(&self) {
        drop(self.take());
    }
}

impl Position {
    /// Keeps what is not at its end for whoever reads on from there. A reader that has nothing more to read must not hold up others.
    fn keep(&self, server: &Server, download: Download) {
        if download.data.is_none() {
            return;
        }
        *self.0.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(download);
        let kept: Weak<Kept> = Arc::downgrade(&self.0);
        server.offer(kept);
    }
}

/// An open file, by its path.
pub struct FtpFile {
    server: Arc<Server>,
    path: Vec<u8>,
    size_bytes: u64,
}

impl FtpFile {
    pub fn open(server: &Arc<Server>, path: Vec<u8>) -> store::Result<FtpFile> {
        let failed = |fault: Fault| fault.on("open file", &path);
        let there = server.with(|session| session.look_all(&[&path]).remove(0)).map_err(failed)?;
        if !there.is_file() {
            let why = "it is no file";
            return Err(store::Error::of_kind(model::FailureKind::InTheWay, "open file", &path[..], why));
        }
        Ok(FtpFile { server: server.clone(), size_bytes: there.size_bytes.unwrap_or(0), path })
    }

    /// One that ends where the server says.
    pub fn unbounded(server: &Arc<Server>, path: Vec<u8>) -> FtpFile {
        FtpFile { server: server.clone(), size_bytes: u64::MAX, path }
    }

    /// Reads `extent`, by a transfer that stands where it begins, if there is one; leaves one that can be gone on with.
    pub fn read_each(
        &self,
        extent: Extent,
        position: &mut Position,
        block: &mut [u8],
        each: &mut dyn FnMut(&[u8]) -> bool,
    ) -> store::Result<u64> {
        let failed = |fault: Fault| fault.on("read file", &self.path);
        let (mut at, mut broken) = (extent.start, 0);
        // Not what was listed bounds it: a file that was replaced meanwhile is another one, as a whole.
        let end = extent.end;
        while at < end {
            let kept = position.0.take();
            let fits = kept.filter(|kept| kept.path == self.path && kept.at == at && !kept.lease.line.is_lost);
            let begun = fits.map_or_else(|| Download::begin(&self.server, &self.path, at), Ok);
            let step = begun.and_then(|mut download| {
                while at < end {
                    let wanted = block.len().min((end - at) as usize);
                    let count = download.read(&mut block[..wanted])?;
                    at += count as u64;
                    if count == 0 || !each(&block[..count]) {
                        return Ok((download, true));
                    }
                }
                // The server's word that this was all belongs to it.
                if at == self.size_bytes && download.read(&mut [0])? > 0 {
                    at += 1;
                }
                Ok((download, false))
            });
            match step {
                Ok((_, true)) => break,
                Ok((download, false)) => position.keep(&self.server, download),
                // Not one that had no turn: no transfer of it broke.
                Err(Fault::Lost(_)) if broken < CONTINUED_MAX => broken += 1,
                Err(fault) => return Err(failed(fault)),
            }
        }
        Ok(at.min(end.max(extent.start)) - extent.start)
    }
}

impl SourceFile for FtpFile {
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> store::Result<usize> {
        let mut filled = 0;
        let extent = Extent { start: offset, end: offset.saturating_add(buffer.len() as u64) };
        let mut block = vec![0; buffer.len().min(BLOCK_BYTES)];
        self.read_each(extent, &mut Position::default(), &mut block, &mut |bytes| {
            buffer[filled..filled + bytes.len()].copy_from_slice(bytes);
            filled += bytes.len();
            true
        })?;
        Ok(filled)
    }

    fn generation(&self) -> store::Result<Generation> {
        let there = self.server.with(|session| session.look_all(&[&self.path]).remove(0));
        match there {
            Ok(there) => Ok(generation(&self.server.name, &self.path, &there)),
            Err(fault) if fault.is_absent() => Ok(Generation::default()),
            Err(fault) => Err(fault.on("look at", &self.path)),
        }
    }

    fn native(&self) -> Option<&dyn Any> {
        Some(self)
    }
}

/// Reads a file from its start to its end. A server that sends more than so many bytes may go on for ever.
pub fn read_all(server: &Arc<Server>, path: &[u8], bytes_max: u64, each: &mut dyn FnMut(&[u8])) -> store::Result<()> {
    let failed = |fault: Fault| fault.on("read back", path);
    let mut download = Download::begin(server, path, 0).map_err(failed)?;
    let mut block = vec![0; BLOCK_BYTES];
    loop {
        let count = download.read(&mut block).map_err(failed)?;
        if download.at > bytes_max {
            let why = format!("the server sends more than the {bytes_max} bytes that lie there");
            return Err(failed(Fault::Differs(why)));
        }
        if count == 0 {
            return Ok(());
        }
        each(&block[..count]);
    }
}

pub struct FtpLane {
    server: Arc<Server>,
    directories: Arc<Directories>,
    /// Small objects that were fetched before they were asked for.
    ahead: HashMap<ObjectId, Fetched>,
    open: Position,
}

impl FtpLane {
    pub fn new(server: Arc<Server>, directories: Arc<Directories>) -> FtpLane {
        FtpLane { server, directories, ahead: HashMap::new(), open: Position::default() }
    }

    fn fetch(&mut self, objects: &[SourceObject], bytes_max: &dyn Fn(&SourceObject) -> usize) -> Vec<Fetched> {
        // What this lane holds may be what it would wait for.
        self.open = Position::default();
        let want = |object: &SourceObject| Wanted {
            path: path_of(&self.directories, object),
            bytes_max: bytes_max(object),
            fetched: None,
        };
        let mut all: Vec<Wanted> = objects.iter().map(want).collect();
        fetch(&self.server, &mut all);
        all.into_iter()
            .map(|one| one.fetched.unwrap_or_else(|| Err(Fault::Lost("it was not fetched".into()))))
            .collect()
    }
}

impl SourceLane for FtpLane {
    fn read_whole(&mut self, object: &SourceObject, buffer: &mut [u8]) -> store::Result<(usize, Generation)> {
        let room = buffer.len();
        let one = std::slice::from_ref(object);
        let fetched = match self.ahead.remove(&object.entry.id) {
            None | Some(Err(Fault::Lost(_) | Fault::Crowded(_))) => self.fetch(one, &|_| room).remove(0),
            Some(fetched) => fetched,
        };
        let fetched = match fetched {
            Err(Fault::Lost(_)) => self.fetch(one, &|_| room).remove(0),
            fetched => fetched,
        };
        let failed = |fault: Fault| fault.on("read file", &path_of(&self.directories, object));
        let (bytes, generation) = fetched.map_err(failed)?;
        let count = bytes.len().min(buffer.len());
        buffer[..count].copy_from_slice(&bytes[..count]);
        Ok((count, generation))
    }

    fn open(&mut self, object: &SourceObject) -> store::Result<Arc<dyn SourceFile>> {
        Ok(Arc::new(FtpFile::open(&self.server, path_of(&self.directories, object))?))
    }

    fn ahead(&mut self, next: &[SourceObject]) {
        self.ahead.clear();
        for some in next.chunks(self.server.group_files()) {
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
    ) -> store::Result<u64> {
        match file.native().and_then(|native| native.downcast_ref::<FtpFile>()) {
            Some(file) => file.read_each(extent, &mut self.open, block, each),
            None => store::read_by_blocks(file, extent, block, each),
        }
    }
}
