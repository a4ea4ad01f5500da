//! How a large object comes to its staging: as new, or with what an earlier attempt left.

use super::super::{ReceiveJob, resume};
use super::together::Together;
use super::{Large, Object, State, kind_of};
use crate::progress::count;
use model::{Entry, Extent, FailureKind};
use std::sync::{Arc, OnceLock};
use store::{Parts, PublishRule, StagedFile};

impl Large {
    /// Looks for what an earlier attempt left; staging is otherwise opened when the first chunk comes.
    pub fn new(job: &ReceiveJob, entry: &Entry, rule: PublishRule, end: model::End) -> store::Result<Arc<Large>> {
        let is_growing = end == model::End::Growing;
        let path = job.sink.path(entry);
        let options = &job.options;
        let object = Arc::<Object>::default();
        let feeder = object.state.lock().unwrap().feeders.join();
        let large = Large {
            id: entry.id.0,
            // Where it ends is known when it is sealed.
            size_bytes: if is_growing { i64::MAX as u64 } else { entry.size_bytes() },
            is_open_ended: end == model::End::ReadOnce,
            is_growing,
            rule,
            spared_bytes: job.footing(entry).map_or(0, |footing| match footing.has_holes {
                true => entry.size_bytes().saturating_sub(footing.allocated_bytes),
                false => 0,
            }),
            chunk_bytes: options.chunk_bytes,
            stem: match end {
                model::End::Growing => {
                    resume::stem_of_growing(job.sender, &path, entry, options.digest, options.chunk_bytes)
                }
                // A stem with a suffix belongs to one attempt alone: if it is killed, the next one sweeps it.
                model::End::ReadOnce => resume::stem(job.sender, &path, entry, options.digest) + "-once",
                model::End::Known => resume::stem(job.sender, &path, entry, options.digest),
            },
            together: match (&options.slice, end) {
                (Some(slice), model::End::Known) => Together::of(slice, &path, entry, options),
                _ => None,
            },
            path,
            listed: OnceLock::new(),
            feeder,
            object,
        };
        let parts = large.take_parts(job, entry)?;
        let is_begun = || parts.is_some() || large.range().is_some() || job.sink.has_journal(entry, &large.stem);
        if !large.is_open_ended && is_begun() {
            match large.open(job, entry, parts.as_ref()) {
                // Its log could not be written: it is gone, and the object comes whole.
                Err(e) if kind_of(&e) == FailureKind::WriteError => {}
                Err(e) => return Err(e),
                Ok(_) => {}
            }
            count(&job.progress.counters.bytes_resumed, large.held_bytes());
        }
        Ok(Arc::new(large))
    }

    /// The staging of the object; `None` after it was discarded, or handed out to be published.
    pub fn file(&self, job: &ReceiveJob) -> store::Result<Option<Arc<dyn StagedFile>>> {
        self.open(job, self.entry(), None)
    }

    /// The same before the object has its place.
    pub fn staging(&self, job: &ReceiveJob, entry: &Entry) -> store::Result<Option<Arc<dyn StagedFile>>> {
        self.open(job, entry, None)
    }

    pub(super) fn open(
        &self,
        job: &ReceiveJob,
        entry: &Entry,
        parts: Option<&Parts>,
    ) -> store::Result<Option<Arc<dyn StagedFile>>> {
        let mut state = self.object.state.lock().unwrap();
        if state.is_over_for(self.feeder) || state.file.is_some() {
            return Ok(state.file.clone().filter(|_| state.feeders.is_there(self.feeder)));
        }
        let opened = self.open_staging(job, entry, parts, &mut state);
        let file = opened.inspect_err(|_| state.hold_nothing())?;
        state.file = Some(file.clone());
        Ok(Some(file))
    }

    fn open_staging(
        &self,
        job: &ReceiveJob,
        entry: &Entry,
        parts: Option<&Parts>,
        state: &mut State,
    ) -> store::Result<Arc<dyn StagedFile>> {
        let of_parts = match (&self.together, parts) {
            (Some(Together { stem, range: Some(range) }), _) => {
                Some(self.open_part(job, entry, (stem, *range), state)?)
            }
            (_, Some(parts)) => self.open_on_parts(job, entry, parts, state)?,
            _ => None,
        };
        of_parts.map_or_else(|| self.open_own(job, entry, state), Ok)
    }

    /// Staging that is this job's alone.
    pub(super) fn open_own(
        &self,
        job: &ReceiveJob,
        entry: &Entry,
        state: &mut State,
    ) -> store::Result<Arc<dyn StagedFile>> {
        let (file, journal) = match self.spared_bytes {
            _ if self.is_growing => {
                let view = job.options.view.as_ref().and_then(|view| view.name_of(&entry.name));
                job.sink.begin_growing(entry, &self.stem, view.as_ref())?
            }
            0 => job.sink.begin(entry, &self.stem)?,
            _ => job.sink.begin_sparse(entry, &self.stem)?,
        };
        // Asked before each chunk that is read back.
        let is_over = || {
            count(&job.progress.worked, 1);
            job.end.is_set()
        };
        let options = &job.options;
        if self.is_growing {
            let header = resume::header_of_growing(&self.path, entry, options.digest, options.chunk_bytes, job.id);
            let held = resume::open_growing(&*file, &journal, &header, &is_over);
            let (frontier, appender) = held.inspect_err(|_| file.discard())?;
            state.is_left = appender.is_none() && job.end.is_set();
            if !state.is_left {
                file.resume(frontier.end()).inspect_err(|_| file.discard())?;
            }
            state.held.insert(Extent::new(0, frontier.end()));
            state.resumed_bytes = frontier.end();
            (state.frontier, state.appender) = (Some(frontier), appender);
        } else if !self.is_open_ended {
            let header = resume::header(&self.path, entry, options.digest, options.chunk_bytes, job.id);
            let asked = (&header, entry.size_bytes());
            let held = resume::open(&*file, &journal, asked, &is_over).inspect_err(|_| file.discard())?;
            for (extent, digest) in held.chunks {
                state.hold(extent, digest);
            }
            state.is_left = held.appender.is_none() && job.end.is_set();
            state.appender = held.appender;
        }
        Ok(file)
    }
}
