//! Large files on their way: staged beside their target, with a journal by which a later attempt goes on.
//!
//! Invariants:
//! - Writes are under way by the dozen; what one of them came to is known before anything is said to be safe, or published.
//! - Two attempts of this process never share staging. Another process that runs the same job at the same time writes the same
//!   bytes to the same places.

use super::packet::flags;
use super::reading::Handle;
use super::server::Server;
use super::session::{Fault, Ticket};
use crate::tree::{Attributes, Faulty, Job, absent};
use model::{Entry, Extent, FailureKind};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use store::{Error, PublishRule, Result, StagedFile};

/// Writes under way: 16 MiB where a server takes 255 KiB.
const BEHIND_MAX: usize = 64;
/// A longer journal is none of ours.
const JOURNAL_BYTES_MAX: u64 = 256 << 20;

pub struct SftpLarge {
    job: Arc<Job<Server>>,
    stem: String,
    path: Vec<u8>,
    journal_path: Vec<u8>,
    data: Handle,
    /// No more of it is read back: what was announced, and what was written and found beyond that.
    length: AtomicU64,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    under_way: VecDeque<Ticket>,
    failure: Option<Fault>,
    journal: Option<Handle>,
    journal_bytes: u64,
    is_durable: bool,
    is_over: bool,
}

impl SftpLarge {
    pub fn begin(job: Arc<Job<Server>>, entry: &Entry, stem: &str) -> Result<(SftpLarge, Vec<u8>)> {
        let stem = job.hold(stem);
        let opened = Self::open(&job, entry, &stem);
        opened.inspect_err(|_| job.server.attempts.release(&stem))
    }

    fn open(job: &Arc<Job<Server>>, entry: &Entry, stem: &str) -> Result<(SftpLarge, Vec<u8>)> {
        let path = job.staged_path(entry, stem)?;
        let journal_path = job.journal_path(entry, stem)?;
        let failed = |fault: Fault| fault.on("open staging", &path);
        let (session, limits) = job.server.session().map_err(failed)?;
        let both = flags::READ | flags::WRITE;
        let none = Attributes::default();
        let journal = absent(session.open(&journal_path, both, &none).handle()).map_err(failed)?;
        let found = match journal.is_some() {
            true => absent(session.open(&path, both, &none).handle()).map_err(failed)?,
            false => None,
        };
        let mut state = State::default();
        let mut kept = Vec::new();
        if let Some(journal) = journal {
            let journal = Handle::new(session.clone(), limits, journal);
            if found.is_some() {
                let all = Extent { start: 0, end: JOURNAL_BYTES_MAX };
                let read = journal.read(all, &mut |bytes| {
                    kept.extend_from_slice(bytes);
                    true
                });
                read.map_err(failed)?;
            } else {
                let empty = Attributes { size_bytes: Some(0), ..none };
                session.fsetstat(journal.bytes(), &empty).done().map_err(failed)?;
            }
            state.journal_bytes = kept.len() as u64;
            state.journal = Some(journal);
        }
        let data = match found {
            Some(data) => data,
            None => {
                let how = both | flags::CREATE | flags::TRUNCATE;
                let mode = Attributes { mode: Some(job.mode(entry) | 0o600), ..none };
                session.open(&path, how, &mode).handle().map_err(failed)?
            }
        };
        let data = Handle::new(session, limits, data);
        let (job, stem, length) = (job.clone(), stem.to_owned(), AtomicU64::new(entry.size_bytes()));
        Ok((SftpLarge { job, stem, path, journal_path, data, length, state: Mutex::new(state) }, kept))
    }

    /// Gives the data the size and the metadata of its entry.
    fn complete(&self, entry: &Entry) -> Result<()> {
        let attributes = Attributes { size_bytes: Some(entry.size_bytes()), ..self.job.attributes(entry) };
        let set = self.data.session.fsetstat(self.data.bytes(), &attributes).done();
        set.map(drop).map_err(|fault| self.failed(&fault))
    }

    fn failed(&self, fault: &Fault) -> Error {
        self.job.server.write_failed(&self.data.session, fault, &self.path)
    }

    /// Waits for the oldest writes until no more than `behind` are under way. What failed once fails for good.
    fn settle_to(&self, state: &mut State, behind: usize) -> Result<()> {
        while state.under_way.len() > behind {
            let Some(oldest) = state.under_way.pop_front() else { break };
            if let Err(fault) = oldest.done() {
                state.failure.get_or_insert(fault);
            }
        }
        state.failure.as_ref().map_or(Ok(()), |fault| Err(self.failed(fault)))
    }

    fn settled(&self) -> Result<std::sync::MutexGuard<'_, State>> {
        let mut state = self.state.lock().unwrap();
        self.settle_to(&mut state, 0)?;
        Ok(state)
    }

    fn sync(&self, handle: &Handle) -> Result<()> {
        if !handle.session.can.fsync {
            return Ok(());
        }
        handle.session.fsync(handle.bytes()).done().map_err(|fault| self.failed(&fault))
    }

    fn journal<'a>(&self, state: &'a mut State) -> Result<&'a mut Handle> {
        if state.journal.is_none() {
            let how = flags::READ | flags::WRITE | flags::CREATE | flags::TRUNCATE;
            let mode = Attributes { mode: Some(0o600), ..Attributes::default() };
            let opened = self.data.session.open(&self.journal_path, how, &mode).handle();
            let opened = opened.map_err(|fault| self.failed(&fault))?;
            state.journal = Some(Handle::new(self.data.session.clone(), self.data.limits, opened));
        }
        Ok(state.journal.as_mut().expect("it was opened"))
    }

    /// Nothing of it is used any more: another attempt may have its name.
    fn end(&self, state: &mut State) {
        if !std::mem::replace(&mut state.is_over, true) {
            self.job.server.attempts.release(&self.stem);
        }
    }

    fn remove(&self, state: &mut State) {
        self.end(state);
        state.under_way.clear();
        // The conversation that it began in may be lost.
        let Ok((session, _)) = self.job.server.session() else { return };
        let data = session.remove(&self.path);
        if state.journal.take().is_some() {
            let _ = session.remove(&self.journal_path).done();
        }
        let _ = data.done();
    }
}

impl StagedFile for SftpLarge {
    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.length.fetch_max(offset + bytes.len() as u64, Relaxed);
        let step = self.data.limits.write_bytes;
        for (at, block) in bytes.chunks(step).enumerate() {
            let ticket = self.data.session.write(self.data.bytes(), offset + (at * step) as u64, block);
            let mut state = self.state.lock().unwrap();
            state.under_way.push_back(ticket);
            self.settle_to(&mut state, BEHIND_MAX)?;
        }
        Ok(())
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        drop(self.settled()?);
        let mut filled = 0;
        let extent = Extent { start: offset, end: offset.saturating_add(buffer.len() as u64) };
        let read = self.data.read(extent, &mut |bytes| {
            buffer[filled..filled + bytes.len()].copy_from_slice(bytes);
            filled += bytes.len();
            true
        });
        read.map_err(|fault| fault.on("read back", &self.path))?;
        self.length.fetch_max(offset + filled as u64, Relaxed);
        Ok(filled)
    }

    fn outlasts_its_host(&self) -> bool {
        self.data.session.can.fsync
    }

    fn append_journal(&self, bytes: &[u8]) -> Result<()> {
        let mut state = self.state.lock().unwrap();
        let mut offset = state.journal_bytes;
        let journal = self.journal(&mut state)?;
        let mut tickets = VecDeque::new();
        for block in bytes.chunks(journal.limits.write_bytes) {
            tickets.push_back(journal.session.write(journal.bytes(), offset, block));
            offset += block.len() as u64;
        }
        state.journal_bytes = offset;
        state.under_way.append(&mut tickets);
        self.settle_to(&mut state, BEHIND_MAX)
    }

    fn truncate_journal(&self, length: u64) -> Result<()> {
        let mut state = self.settled()?;
        let Some(journal) = &state.journal else { return Ok(()) };
        let cut = Attributes { size_bytes: Some(length), ..Attributes::default() };
        let done = journal.session.fsetstat(journal.bytes(), &cut).done();
        done.map_err(|fault| self.failed(&fault))?;
        state.journal_bytes = length;
        Ok(())
    }

    fn settle(&self, _: u64) -> Result<()> {
        self.settled().map(drop)
    }

    fn checkpoint(&self) -> Result<()> {
        let state = self.settled()?;
        self.sync(&self.data)?;
        state.journal.as_ref().map_or(Ok(()), |journal| self.sync(journal))
    }

    /// What the server returns, from its page cache or not: it does not let itself be told.
    fn reread(&self, check: &mut dyn FnMut(&[u8])) -> Result<()> {
        drop(self.settled()?);
        let read = self.data.read(Extent { start: 0, end: self.length.load(Relaxed) }, &mut |bytes| {
            check(bytes);
            true
        });
        read.map(drop).map_err(|fault| fault.on("read back", &self.path))
    }

    fn make_durable(&self, entry: &Entry) -> Result<()> {
        let mut state = self.settled()?;
        self.complete(entry)?;
        self.sync(&self.data)?;
        state.is_durable = true;
        Ok(())
    }

    fn publish(&self, entry: &Entry, rule: PublishRule) -> Result<()> {
        let mut state = self.settled()?;
        if state.is_over {
            return Err(Error::of_kind(FailureKind::Other, "publish", &self.path[..], "it is not staged"));
        }
        if !state.is_durable {
            self.complete(entry)?;
        }
        self.job.publish(&self.path, entry, rule)?;
        if state.journal.take().is_some() {
            let _ = self.data.session.remove(&self.journal_path).done();
        }
        self.end(&mut state);
        // Its name too.
        if state.is_durable { self.sync(&self.data) } else { Ok(()) }
    }

    fn discard(&self) {
        let mut state = self.state.lock().unwrap();
        if !state.is_over {
            self.remove(&mut state);
        }
    }
}

impl Drop for SftpLarge {
    /// The attempt is over. What it has stays for the next one, if it left a journal.
    fn drop(&mut self) {
        let mut state = std::mem::take(self.state.get_mut().unwrap_or_else(std::sync::PoisonError::into_inner));
        if !state.is_over && state.journal_bytes == 0 {
            self.remove(&mut state);
        }
        self.end(&mut state);
    }
}
