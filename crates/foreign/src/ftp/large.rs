//! Large files on their way: staged beside their target, with a journal by which a later attempt goes on.
//!
//! A plain server takes a file from its start to its end, and goes on behind what it has; a GridFTP server takes any part from any thread
//! (`extended`).
//!
//! Invariants:
//! - What the journal at the server says is there was confirmed by the server before.
//! - Two attempts of this process never share staging.

use super::extended::{CHANNELS, Stripes};
use super::fault::{Fault, Result as Answer};
use super::reading::{FtpFile, Position, read_all};
use super::sending::{Sent, broken, end, settle};
use super::server::{Ftp, Lease, Server};
use super::session::command;
use super::sums::Sums;
use crate::tree::{Attributes, Faulty, Job, Remote, absent};
use model::{Entry, Extent, FailureKind};
use std::io::Write;
use std::net::TcpStream;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::thread::Builder;
use store::{Error, PublishRule, Result, StagedFile};

/// A longer journal is none of ours.
const JOURNAL_BYTES_MAX: u64 = 256 << 20;
/// Files whose checksums are compared beside the transfer: each has a control connection of its own.
const COMPARING_MAX: usize = 4;

pub struct FtpLarge {
    job: Arc<Job<Ftp>>,
    stem: String,
    path: Vec<u8>,
    journal_path: Vec<u8>,
    state: Mutex<State>,
    /// Writers share it; whoever ends it is alone.
    stripes: RwLock<Option<Stripes>>,
    size_bytes: u64,
    /// Of that, what was verified.
    sealed_bytes: AtomicU64,
    /// No more of it is read back: what was announced, and what was written and found beyond that.
    length: AtomicU64,
    sums: Mutex<Summed>,
}

#[derive(Default)]
struct Summed {
    /// Adler-32 of what was sent, by where it begins: neighbours are one.
    sums: Sums,
    /// What comes of comparing it with the server's, once all was sent; whoever publishes hears it.
    compared: Option<Receiver<Answer<()>>>,
}

#[derive(Default)]
struct State {
    upload: Option<Upload>,
    /// Something of it lies at the server.
    is_there: bool,
    /// An earlier attempt left something: nothing may cut it.
    is_continued: bool,
    is_begun: bool,
    journal: Vec<u8>,
    /// The journal at the server says the same.
    is_kept: bool,
    reading: Position,
    is_over: bool,
}

struct Upload {
    lease: Lease,
    data: TcpStream,
    at: u64,
}

impl FtpLarge {
    pub fn begin(job: Arc<Job<Ftp>>, entry: &Entry, stem: &str) -> Result<(FtpLarge, Vec<u8>)> {
        let stem = job.hold(stem);
        let opened = Self::open(&job, entry, &stem);
        opened.inspect_err(|_| job.server.attempts().release(&stem))
    }

    fn open(job: &Arc<Job<Ftp>>, entry: &Entry, stem: &str) -> Result<(FtpLarge, Vec<u8>)> {
        let path = job.staged_path(entry, stem)?;
        let journal_path = job.journal_path(entry, stem)?;
        let failed = |fault: Fault| fault.on("open staging", &path);
        let paths = [path.clone(), journal_path.clone()];
        let mut found = job.server.look_all(&paths).into_iter().map(|found| absent(found).map_err(failed));
        let (data, journal) = (found.next().transpose()?.flatten(), found.next().transpose()?.flatten());
        let mut kept = Vec::new();
        let journal_bytes = journal.and_then(|journal| journal.size_bytes).unwrap_or(0);
        if data.is_some() && (1..=JOURNAL_BYTES_MAX).contains(&journal_bytes) {
            read_all(&job.server.0, &journal_path, journal_bytes, &mut |bytes| kept.extend_from_slice(bytes))?;
        }
        let state = State {
            is_there: data.is_some() || journal.is_some(),
            is_continued: !kept.is_empty(),
            journal: kept.clone(),
            is_kept: true,
            ..State::default()
        };
        let (job, stem) = (job.clone(), stem.to_owned());
        Ok((
            FtpLarge {
                job,
                stem,
                path,
                journal_path,
                state: Mutex::new(state),
                stripes: RwLock::default(),
                size_bytes: entry.size_bytes(),
                sealed_bytes: AtomicU64::new(0),
                length: AtomicU64::new(entry.size_bytes()),
                sums: Mutex::default(),
            },
            kept,
        ))
    }

    fn failed(&self, fault: &Fault) -> Error {
        fault.on("write file", &self.path)
    }

    /// Begins to send behind an offset.
    fn start(&self, state: &mut State, at: u64) -> Answer<()> {
        if at == 0 && state.is_continued {
            return Err(Fault::Lost("what an earlier attempt left would be cut".into()));
        }
        state.reading = Position::default();
        let mut lease = self.job.server.0.lease()?;
        let restart = (at > 0).then(|| command("REST", at.to_string().as_bytes()));
        let commands: Vec<_> = restart.into_iter().chain([command("STOR", &self.path)]).collect();
        state.is_there = true;
        let data = lease.begin(&commands)?;
        state.upload = Some(Upload { lease, data, at });
        Ok(())
    }

    /// The server has all that was sent.
    fn finish(&self, state: &mut State) -> Result<()> {
        let stripes = self.stripes.write().unwrap_or_else(PoisonError::into_inner).take();
        stripes.map_or(Ok(()), Stripes::end).map_err(|fault| self.failed(&fault))?;
        let Some(Upload { mut lease, data, .. }) = state.upload.take() else { return Ok(()) };
        end(&mut lease, data).map_err(|fault| self.failed(&fault))
    }

    fn settled(&self) -> Result<std::sync::MutexGuard<'_, State>> {
        let mut state = self.state.lock().unwrap();
        self.finish(&mut state)?;
        Ok(state)
    }

    fn store(&self, path: &[u8], bytes: &[u8]) -> Answer<()> {
        let mut lease = self.job.server.0.lease()?;
        let mut data = lease.begin(&[command("STOR", path)])?;
        match data.write_all(bytes) {
            Ok(()) => end(&mut lease, data),
            Err(e) => Err(broken(&mut lease, data, &e)),
        }
    }

    fn keep_journal(&self, state: &mut State) -> Result<()> {
        if state.is_kept {
            return Ok(());
        }
        self.store(&self.journal_path, &state.journal).map_err(|fault| self.failed(&fault))?;
        state.is_kept = true;
        Ok(())
    }

    fn remove(&self, state: &mut State) {
        state.upload = None;
        *self.stripes.write().unwrap_or_else(PoisonError::into_inner) = None;
        state.reading = Position::default();
        if std::mem::take(&mut state.is_there) {
            let _ = self.job.server.remove_all(&[self.path.clone(), self.journal_path.clone()]);
        }
        self.end(state);
    }

    /// Nothing of it is used any more: another attempt may have its name.
    fn end(&self, state: &mut State) {
        if !std::mem::replace(&mut state.is_over, true) {
            self.job.server.attempts().release(&self.stem);
        }
    }

    fn write(&self, state: &mut State, offset: u64, bytes: &[u8]) -> Answer<()> {
        if state.upload.as_ref().is_some_and(|upload| upload.at != offset) {
            let Some(Upload { mut lease, data, .. }) = state.upload.take() else { return Ok(()) };
            end(&mut lease, data)?;
        }
        if state.upload.is_none() {
            self.start(state, offset)?;
        }
        let upload = state.upload.as_mut().expect("it was begun");
        if let Err(e) = upload.data.write_all(bytes) {
            let Some(Upload { mut lease, data, .. }) = state.upload.take() else { return Ok(()) };
            return Err(broken(&mut lease, data, &e));
        }
        upload.at += bytes.len() as u64;
        upload.lease.stir();
        Ok(())
    }

    /// Has the server's checksum compared on a thread of its own.
    fn compare(&self) -> Result<()> {
        if !self.job.server.0.can.checksums {
            return Ok(());
        }
        let Some(comparing) = Comparing::begin(&self.job.server.0) else { return Ok(()) };
        drop(self.settled()?);
        let mut summed = self.sums.lock().unwrap();
        let Some(adler) = summed.sums.of_all(self.size_bytes) else { return Ok(()) };
        let (tell, compared) = channel();
        let (path, size_bytes) = (self.path.clone(), self.size_bytes);
        let compare = move || {
            let attributes = Attributes::default();
            let sent = Sent { path: &path, size_bytes, adler: Some(adler), attributes: &attributes };
            let server = &comparing.0;
            let settled = server.lease().and_then(|mut lease| settle(server, &mut lease, &[sent]).remove(0));
            let _ = tell.send(settled);
        };
        // Without a thread it is compared when it is published.
        summed.compared = Builder::new().name("ftp".to_owned()).spawn(compare).is_ok().then_some(compared);
        Ok(())
    }

    /// Writes a block to whatever data connection is free.
    fn write_anywhere(&self, offset: u64, bytes: &[u8]) -> Answer<()> {
        loop {
            let stripes = self.stripes.read().unwrap_or_else(PoisonError::into_inner);
            if let Some(stripes) = &*stripes {
                return stripes.write(offset, bytes).inspect(|()| self.job.server.0.stir());
            }
            drop(stripes);
            let mut state = self.state.lock().unwrap();
            let mut stripes = self.stripes.write().unwrap_or_else(PoisonError::into_inner);
            if stripes.is_none() {
                state.reading = Position::default();
                let lease = self.job.server.0.lease_extended(CHANNELS)?;
                let is_continued =
                    std::mem::replace(&mut state.is_there, true) && (state.is_continued || state.is_begun);
                *stripes = Some(Stripes::begin(lease, &self.path, is_continued)?);
                state.is_begun = true;
            }
        }
    }
}

/// One of the files whose checksums are compared beside the transfer.
struct Comparing(Arc<Server>);

impl Comparing {
    fn begin(server: &Arc<Server>) -> Option<Comparing> {
        let before = server.comparing.fetch_add(1, Relaxed);
        let comparing = Comparing(server.clone());
        (before < COMPARING_MAX).then_some(comparing)
    }
}

impl Drop for Comparing {
    fn drop(&mut self) {
        self.0.comparing.fetch_sub(1, Relaxed);
    }
}

impl StagedFile for FtpLarge {
    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        let written = match self.job.server.0.can.grid {
            true => self.write_anywhere(offset, bytes),
            false => self.write(&mut self.state.lock().unwrap(), offset, bytes),
        };
        written.map_err(|fault| self.failed(&fault))?;
        self.length.fetch_max(offset + bytes.len() as u64, Relaxed);
        if self.job.server.0.can.checksums {
            let mut summed = self.sums.lock().unwrap();
            summed.sums.add(offset, bytes);
            summed.compared = None;
        }
        Ok(())
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        let mut state = self.settled()?;
        if !state.is_there {
            return Ok(0);
        }
        let file = FtpFile::unbounded(&self.job.server.0, self.path.clone());
        let mut filled = 0;
        let extent = Extent { start: offset, end: offset.saturating_add(buffer.len() as u64) };
        file.read_each(extent, &mut state.reading, &mut vec![0; 128 << 10], &mut |bytes| {
            buffer[filled..filled + bytes.len()].copy_from_slice(bytes);
            filled += bytes.len();
            true
        })?;
        self.length.fetch_max(offset + filled as u64, Relaxed);
        // What an earlier attempt sent is summed up as it lies there: whoever reads it compares it.
        if state.is_continued && self.job.server.0.can.checksums {
            self.sums.lock().unwrap().sums.add_found(offset, &buffer[..filled]);
        }
        Ok(filled)
    }

    /// FTP has no request that makes anything last.
    fn outlasts_its_host(&self) -> bool {
        false
    }

    fn append_journal(&self, bytes: &[u8]) -> Result<()> {
        let mut state = self.state.lock().unwrap();
        state.journal.extend_from_slice(bytes);
        state.is_kept = false;
        Ok(())
    }

    /// With the last of it the server begins to compute its checksum, while other files are sent.
    fn seal_extent(&self, extent: Extent, record: &[u8]) -> Result<()> {
        if !record.is_empty() {
            self.append_journal(record)?;
        }
        let sealed_bytes = self.sealed_bytes.fetch_add(extent.length(), Relaxed) + extent.length();
        match sealed_bytes == self.size_bytes && !extent.is_empty() {
            true => self.compare(),
            false => Ok(()),
        }
    }

    fn truncate_journal(&self, length: u64) -> Result<()> {
        let mut state = self.state.lock().unwrap();
        if length < state.journal.len() as u64 {
            state.journal.truncate(length as usize);
            state.is_kept = false;
        }
        Ok(())
    }

    fn settle(&self, _: u64) -> Result<()> {
        self.settled().map(drop)
    }

    fn checkpoint(&self) -> Result<()> {
        let mut state = self.settled()?;
        self.keep_journal(&mut state)
    }

    fn reread(&self, check: &mut dyn FnMut(&[u8])) -> Result<()> {
        let mut state = self.settled()?;
        state.reading = Position::default();
        match state.is_there {
            true => read_all(&self.job.server.0, &self.path, self.length.load(Relaxed), check),
            false => Ok(()),
        }
    }

    fn publish(&self, entry: &Entry, rule: PublishRule) -> Result<()> {
        let mut state = self.settled()?;
        if state.is_over {
            return Err(Error::of_kind(FailureKind::Other, "publish", &self.path[..], "it is not staged"));
        }
        state.reading = Position::default();
        if !state.is_there || entry.size_bytes() == 0 {
            self.store(&self.path, b"").map_err(|fault| self.failed(&fault))?;
            state.is_there = true;
        }
        let size_bytes = entry.size_bytes();
        let mut summed = self.sums.lock().unwrap();
        let compared = summed.compared.take().and_then(|compared| compared.recv().ok());
        compared.clone().unwrap_or(Ok(())).map_err(|fault| self.failed(&fault))?;
        let adler = summed.sums.of_all(size_bytes).filter(|_| compared.is_none());
        drop(summed);
        let attributes = self.job.attributes(entry);
        let sent = Sent { path: &self.path, size_bytes, adler, attributes: &attributes };
        let server = &self.job.server.0;
        let settled = server.lease().and_then(|mut lease| settle(server, &mut lease, &[sent]).remove(0));
        settled.map_err(|fault| self.failed(&fault))?;
        self.job.publish(&self.path, entry, rule)?;
        if !state.journal.is_empty() {
            let _ = self.job.server.remove(&self.journal_path);
        }
        self.end(&mut state);
        Ok(())
    }

    fn discard(&self) {
        let mut state = self.state.lock().unwrap();
        if !state.is_over {
            self.remove(&mut state);
        }
    }
}

impl Drop for FtpLarge {
    /// The attempt is over. What it has stays for the next one, if it left a journal.
    fn drop(&mut self) {
        let mut state = std::mem::take(self.state.get_mut().unwrap_or_else(std::sync::PoisonError::into_inner));
        if state.is_over {
            return;
        }
        let is_kept =
            !state.journal.is_empty() && self.finish(&mut state).and_then(|()| self.keep_journal(&mut state)).is_ok();
        if is_kept {
            self.end(&mut state);
        } else {
            self.remove(&mut state);
        }
    }
}
