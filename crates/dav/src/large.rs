//! Large files on their way: one PUT from start to end, sent by the lane that has the bytes.
//!
//! Servers take no part of a file, so that nothing of a PUT that broke off can be gone on with: the file is sent again.
//!
//! Invariant: what was sent and is not published is removed, what servers were told to copy and gave up too.

use crate::failure::{Failure, Why};
use crate::job::{Complete, Job};
use crate::reading::DavFile;
use crate::third_party::Copied;
use model::{Entry, ExtentSet, FailureKind};
use simd_adler32::Adler32;
use std::sync::{Arc, Mutex};
use store::{Error, PublishRule, Result, SourceFile, StagedFile};
use web::Upload;

const SENT_IN_VAIN: &str = "the server did not take what was sent of it before: copy the file again";

pub struct DavLarge {
    job: Arc<Job>,
    entry: Entry,
    state: Mutex<State>,
}

struct State {
    staged: Vec<u8>,
    /// Where a copy between servers came to nothing.
    given_up: Vec<Vec<u8>>,
    upload: Option<Upload>,
    at: u64,
    adler: Adler32,
    /// Of what the servers copied.
    copied: Option<u32>,
    /// Something of it lies at the server.
    is_there: bool,
    /// All of it does.
    is_sent: bool,
    is_over: bool,
}

impl DavLarge {
    pub fn begin(job: Arc<Job>, entry: &Entry) -> Result<DavLarge> {
        job.may_write()?;
        job.path(entry)?;
        let state = State {
            staged: job.staged_path()?,
            given_up: Vec::new(),
            upload: None,
            at: 0,
            adler: Adler32::new(),
            copied: None,
            is_there: false,
            is_sent: false,
            is_over: false,
        };
        Ok(DavLarge { job, entry: entry.clone(), state: Mutex::new(state) })
    }

    fn refused(&self, why: &str) -> Error {
        Error::of_kind(FailureKind::WriteError, "write file", self.entry.name.as_bytes(), why)
    }

    fn failed(&self, failure: &Failure) -> Error {
        failure.on("write file", self.entry.name.as_bytes())
    }

    fn start(&self, state: &mut State) -> Result<()> {
        let length = Some(self.entry.size_bytes()).filter(|size| *size > 0);
        let headers = self.job.time(&self.entry)?;
        state.is_there = true;
        let begun = self.job.site.begin(&state.staged, &headers, length);
        state.upload = Some(begun.map_err(|failure| self.failed(&failure))?);
        Ok(())
    }

    /// Hears what the server says of what was sent.
    fn answer(&self, upload: Upload) -> Result<()> {
        let answered = upload.finish().map_err(|e| Failure::of_web(&e)).and_then(|response| match response.status {
            200 | 201 | 204 => Ok(()),
            _ => Err(self.job.site.refused(response, false)),
        });
        answered.map_err(|failure| self.failed(&failure))
    }

    /// All of it lies at the server.
    fn finish(&self, state: &mut State, size_bytes: u64) -> Result<()> {
        if state.is_sent {
            return Ok(());
        }
        if state.at != size_bytes {
            return Err(self.refused("a part of it is missing"));
        }
        match state.upload.take() {
            Some(upload) => self.answer(upload)?,
            None if size_bytes > 0 => return Err(self.refused(SENT_IN_VAIN)),
            None => {
                state.is_there = true;
                let headers = self.job.time(&self.entry)?;
                self.job.site.put(&state.staged, &headers, b"").map_err(|failure| self.failed(&failure))?;
            }
        }
        state.is_sent = true;
        Ok(())
    }

    fn remove(&self, state: &mut State) {
        let is_cut = state.upload.take().is_some();
        if !std::mem::replace(&mut state.is_over, true) && state.is_there {
            self.job.remove_staged_now(&state.staged, is_cut);
        }
        self.sweep(state);
    }

    /// What was given up may have appeared since.
    fn sweep(&self, state: &mut State) {
        state.given_up.drain(..).for_each(|path| self.job.remove_staged(&path));
    }
}

impl StagedFile for DavLarge {
    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        let mut state = self.state.lock().unwrap();
        if offset != state.at || state.is_sent || state.is_over {
            return Err(self.refused("a WebDAV server takes a file from its start to its end"));
        }
        if state.upload.is_none() {
            if state.at > 0 {
                return Err(self.refused(SENT_IN_VAIN));
            }
            self.start(&mut state)?;
        }
        let upload = state.upload.as_mut().expect("it was begun");
        if let Err(e) = upload.write(bytes) {
            // What the server said, if it said something, tells more than that.
            let failure = Failure::of_web(&e);
            let said = state.upload.take().map(|upload| self.answer(upload));
            return Err(match said {
                Some(Err(error)) if failure.why == Why::Unknown => error,
                _ => self.failed(&failure),
            });
        }
        state.at += bytes.len() as u64;
        state.adler.write(bytes);
        Ok(())
    }

    /// Has the two servers copy it, where the source is one too.
    fn share_from(&self, source: &dyn SourceFile) -> bool {
        let Some(source) = source.native().and_then(|native| native.downcast_ref::<DavFile>()) else { return false };
        let mut state = self.state.lock().unwrap();
        if state.at > 0 || state.is_over || source.size_bytes() != self.entry.size_bytes() {
            return false;
        }
        let (Ok(first), Ok(second)) = (self.job.staged_path(), self.job.staged_path()) else { return false };
        let copied = self.job.third_party.copy(source, &self.job.site, [first, second], &mut state.given_up);
        let Some(Copied { path, adler }) = copied else { return false };
        (state.at, state.is_there, state.is_sent) = (source.size_bytes(), true, true);
        (state.staged, state.copied) = (path, Some(adler));
        true
    }

    fn read_at(&self, _: u64, _: &mut [u8]) -> Result<usize> {
        Err(Error::of_kind(FailureKind::ReadError, "read back", b"", "nothing can be read of what is on its way"))
    }

    fn append_journal(&self, _: &[u8]) -> Result<()> {
        Ok(())
    }

    fn truncate_journal(&self, _: u64) -> Result<()> {
        Ok(())
    }

    fn settle(&self, size_bytes: u64) -> Result<()> {
        self.finish(&mut self.state.lock().unwrap(), size_bytes)
    }

    fn checkpoint(&self) -> Result<()> {
        Ok(())
    }

    fn confirmed(&self, _: &ExtentSet) -> ExtentSet {
        ExtentSet::default()
    }

    fn reread(&self, check: &mut dyn FnMut(&[u8])) -> Result<()> {
        let mut state = self.state.lock().unwrap();
        let size_bytes = state.at;
        self.finish(&mut state, size_bytes)?;
        self.job.reread(&state.staged, check)
    }

    fn publish(&self, entry: &Entry, rule: PublishRule) -> Result<()> {
        let mut state = self.state.lock().unwrap();
        if state.is_over {
            return Err(self.refused("it is not staged"));
        }
        self.finish(&mut state, entry.size_bytes())?;
        let adler = state.copied.unwrap_or_else(|| state.adler.finish());
        self.job.publish(&Complete { staged: &state.staged, entry, rule, adler })?;
        state.is_over = true;
        self.sweep(&mut state);
        Ok(())
    }

    fn discard(&self) {
        self.remove(&mut self.state.lock().unwrap());
    }
}

impl Drop for DavLarge {
    /// No later attempt can go on with what an earlier one sent.
    fn drop(&mut self) {
        self.discard();
    }
}
