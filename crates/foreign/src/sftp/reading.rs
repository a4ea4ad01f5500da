//! Reading open files: many requests under way, and the bytes handed out in order.
//!
//! Invariant: an answer that is shorter than was asked for is asked on from where it ends, until the server says that the file does.

use super::calls::Limits;
use super::server::Server;
use super::session::{Fault, Result, Session, Ticket};
use crate::tree::{Faulty, generation};
use model::{Extent, Generation};
use std::any::Any;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use store::SourceFile;

/// Requests of one reader under way: 16 MiB where a server takes 255 KiB.
const AHEAD_MAX: usize = 64;

/// An open handle; closed when it is dropped.
pub struct Handle {
    pub session: Arc<Session>,
    pub limits: Limits,
    bytes: Vec<u8>,
}

impl Handle {
    pub fn new(session: Arc<Session>, limits: Limits, bytes: Vec<u8>) -> Handle {
        Handle { session, limits, bytes }
    }

    fn open(server: &Server, path: &[u8]) -> Result<Handle> {
        let (session, limits) = server.session()?;
        let handle = session.open_to_read(path).handle()?;
        Ok(Handle::new(session, limits, handle))
    }

    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Reads `extent`, and hands every block to `each` in order until it says false. Returns how many bytes there were.
    pub fn read(&self, extent: Extent, each: &mut dyn FnMut(&[u8]) -> bool) -> Result<u64> {
        let block = self.limits.read_bytes;
        let (mut asked, mut came) = (extent.start, extent.start);
        let mut waiting: VecDeque<(usize, Ticket)> = VecDeque::new();
        loop {
            while waiting.len() < AHEAD_MAX && asked < extent.end {
                let count = (extent.end - asked).min(block as u64) as usize;
                waiting.push_back((count, self.session.read(&self.bytes, asked, count)));
                asked += count as u64;
            }
            let Some((count, ticket)) = waiting.pop_front() else { return Ok(came - extent.start) };
            let (mut left, mut ticket) = (count, ticket);
            loop {
                let Some(bytes) = ticket.data(left)? else { return Ok(came - extent.start) };
                came += bytes.len() as u64;
                left -= bytes.len();
                if !each(&bytes) {
                    return Ok(came - extent.start);
                }
                if left == 0 {
                    break;
                }
                ticket = self.session.read(&self.bytes, came, left);
            }
        }
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        let _ = self.session.close(&self.bytes);
    }
}

/// An open file. Where its conversation is lost it is opened again: whoever reads compares generations afterwards.
pub struct SftpFile {
    server: Arc<Server>,
    handle: Mutex<Arc<Handle>>,
    path: Vec<u8>,
}

impl SftpFile {
    pub fn open(server: &Arc<Server>, path: Vec<u8>) -> store::Result<SftpFile> {
        let handle = Handle::open(server, &path).map_err(|fault| fault.on("open file", &path))?;
        Ok(SftpFile { server: server.clone(), handle: Mutex::new(Arc::new(handle)), path })
    }

    pub fn read_each(&self, extent: Extent, each: &mut dyn FnMut(&[u8]) -> bool) -> store::Result<u64> {
        let mut came = extent.start;
        loop {
            let handle = self.handle();
            let read = handle.read(Extent { start: came, ..extent }, &mut |bytes| {
                came += bytes.len() as u64;
                each(bytes)
            });
            match read {
                Ok(_) => return Ok(came - extent.start),
                Err(Fault::Lost(_)) if self.is_open_again(&handle) => {}
                Err(fault) => return Err(fault.on("read file", &self.path)),
            }
        }
    }

    fn handle(&self) -> Arc<Handle> {
        self.handle.lock().unwrap().clone()
    }

    /// Opens the file in a new conversation, unless another reader did.
    fn is_open_again(&self, lost: &Arc<Handle>) -> bool {
        let mut handle = self.handle.lock().unwrap();
        if Arc::ptr_eq(&handle, lost) {
            let Ok(again) = Handle::open(&self.server, &self.path) else { return false };
            *handle = Arc::new(again);
        }
        true
    }
}

impl SourceFile for SftpFile {
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> store::Result<usize> {
        let mut filled = 0;
        let end = offset.saturating_add(buffer.len() as u64);
        self.read_each(Extent { start: offset, end }, &mut |bytes| {
            buffer[filled..filled + bytes.len()].copy_from_slice(bytes);
            filled += bytes.len();
            true
        })?;
        Ok(filled)
    }

    fn generation(&self) -> store::Result<Generation> {
        let look = |handle: &Handle| handle.session.fstat(handle.bytes()).attributes();
        let handle = self.handle();
        let there = match look(&handle) {
            Err(Fault::Lost(_)) if self.is_open_again(&handle) => look(&self.handle()),
            there => there,
        };
        let there = there.map_err(|fault| fault.on("look at", &self.path))?;
        Ok(generation(&self.server.name, &self.path, &there))
    }

    fn native(&self) -> Option<&dyn Any> {
        Some(self)
    }
}
