//! One lane's reading of a server's files: small ones by the group, all requests of which are under way at once.

use super::reading::{Handle, SftpFile};
use super::server::Server;
use super::session::Fault;
use crate::tree::{Faulty, WIDTH, generation, path_of};
use model::{Extent, Generation, ObjectId};
use std::collections::HashMap;
use std::sync::Arc;
use store::{Directories, Result, SourceFile, SourceLane, SourceObject};

type Fetched = super::session::Result<(Vec<u8>, Generation)>;

pub struct SftpLane {
    server: Arc<Server>,
    directories: Arc<Directories>,
    /// Small objects that were fetched before they were asked for.
    ahead: HashMap<ObjectId, Fetched>,
}

impl SftpLane {
    pub fn new(server: Arc<Server>, directories: Arc<Directories>) -> SftpLane {
        SftpLane { server, directories, ahead: HashMap::new() }
    }

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
            Ok((bytes, generation(&self.server.name, path, &there)))
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
