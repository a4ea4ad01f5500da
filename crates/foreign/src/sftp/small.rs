//! Small files on their way: one under way in each lane, then held until a group of them is sent, all at once.
//!
//! Invariant: what was sent and is not published is removed.

use super::held::Small;
use super::job::Job;
use super::listing::WIDTH;
use super::packet::{Attributes, flags};
use super::reading::Handle;
use super::session::{Fault, Session};
use model::{Entry, Extent, FailureKind};
use std::sync::Arc;
use store::{Error, PublishRule, Result, SinkLane, Staged};

fn not_staged() -> Error {
    Error::of_kind(FailureKind::Other, "publish", b"", "it is not staged")
}

impl Job {
    /// Sends what is held of these numbers and was not sent; with `sync` it lies safely there afterwards. What fails singly is kept
    /// for whoever publishes it.
    ///
    /// # Errors
    /// When nothing can be sent any more.
    pub fn send_held(&self, session: &Session, numbers: &[u64], sync: bool) -> Result<()> {
        for some in numbers.chunks(WIDTH) {
            let mut group: Vec<_> =
                some.iter().filter_map(|number| Some((*number, self.held.take(*number)?))).collect();
            let sent = self.send_group(session, &mut group, sync);
            for (number, small) in group {
                self.put_back(number, small);
            }
            sent?;
        }
        Ok(())
    }

    fn send_group(&self, session: &Session, group: &mut [(u64, Small)], sync: bool) -> Result<()> {
        let limits = self.server.session().map_err(|fault| fault.on("write file", b""))?.1;
        let how = |small: &Small| match small.is_sent {
            true => flags::WRITE,
            false => flags::WRITE | flags::CREATE | flags::EXCLUSIVE,
        };
        let syncs = |small: &Small| (sync || small.wants_sync) && !small.is_synced && session.can.fsync;
        let mut wanted: Vec<&mut Small> = group
            .iter_mut()
            .map(|(_, small)| small)
            .filter(|small| small.failure.is_none() && (!small.is_sent || syncs(small)))
            .collect();
        let opening: Vec<_> = wanted
            .iter()
            .map(|small| {
                let attributes = Attributes { mode: Some(small.mode | 0o200), ..Attributes::default() };
                session.open(&small.path, how(small), &attributes)
            })
            .collect();
        let handles: Vec<_> = opening.into_iter().map(|ticket| ticket.handle()).collect();
        let mut asked = Vec::new();
        for (small, handle) in wanted.iter().zip(&handles) {
            let Ok(handle) = handle else {
                asked.push(Vec::new());
                continue;
            };
            let mut tickets = Vec::new();
            if !small.is_sent {
                let blocks = small.bytes.chunks(limits.write_bytes).enumerate();
                tickets
                    .extend(blocks.map(|(at, block)| session.write(handle, (at * limits.write_bytes) as u64, block)));
                tickets.push(session.fsetstat(handle, &small.attributes));
            }
            tickets.extend(syncs(small).then(|| session.fsync(handle)));
            tickets.push(session.close(handle));
            asked.push(tickets);
        }
        let mut lost = None;
        for ((small, handle), tickets) in wanted.iter_mut().zip(handles).zip(asked) {
            let done = handle.map(drop).and_then(|()| {
                let all: Vec<_> = tickets.into_iter().map(|ticket| ticket.done()).collect();
                all.into_iter().collect::<super::session::Result<()>>()
            });
            match done {
                Ok(()) => {
                    small.is_synced |= syncs(small);
                    small.is_sent = true;
                    small.bytes = Vec::new();
                }
                Err(fault) => {
                    small.failure = Some(self.write_failed(session, &fault, &small.path));
                    // It may be there in part.
                    let _ = session.remove(&small.path).done();
                    if matches!(fault, Fault::Lost(_)) {
                        lost = Some(fault.on("write file", b""));
                    }
                }
            }
        }
        lost.map_or(Ok(()), Err)
    }

    pub fn publish_held(&self, group: &[(&Entry, Staged)]) -> Vec<Result<()>> {
        let session = match self.session("publish") {
            Ok(session) => session,
            Err(_) => return group.iter().map(|_| self.session("publish").map(drop)).collect(),
        };
        let numbers: Vec<_> = group.iter().map(|(_, staged)| staged.number()).collect();
        // Whoever fails by it says so below.
        let _ = self.send_held(&session, &numbers, false);
        let taken: Vec<_> = numbers.iter().map(|number| self.held.take(*number)).collect();
        let mut results: Vec<Option<Result<()>>> = Vec::new();
        let mut renamed = Vec::new();
        for ((small, (entry, staged)), at) in taken.into_iter().zip(group).zip(0..) {
            results.push(match small {
                None => Some(Err(not_staged())),
                Some(Small { failure: Some(failure), .. }) => Some(Err(failure)),
                Some(small) => {
                    renamed.push((at, small.path, *entry, staged.rule()));
                    None
                }
            });
        }
        let asked: Vec<_> = renamed.iter().map(|(_, path, entry, rule)| (&path[..], *entry, *rule)).collect();
        for ((at, path, ..), result) in renamed.iter().zip(self.publish_group(&session, &asked)) {
            if result.is_err() {
                let _ = session.remove(path).done();
            }
            let at: usize = *at;
            results[at] = Some(result);
        }
        results.into_iter().map(|result| result.unwrap_or_else(|| Err(not_staged()))).collect()
    }

    pub fn discard_held(&self, number: u64) {
        if let Some(small) = self.held.take(number) {
            self.discard_small(&small);
        }
    }

    fn put_back(&self, number: u64, small: Small) {
        let bytes = small.bytes.len();
        self.held.put_back(number, small, bytes);
    }

    fn discard_small(&self, small: &Small) {
        if small.is_sent
            && let Ok(session) = self.session("remove")
        {
            let _ = session.remove(&small.path).done();
        }
    }

    pub fn discard_all(&self) {
        self.held.take_all().into_iter().for_each(|small| self.discard_small(&small));
    }

    pub fn reread_held(&self, number: u64, check: &mut dyn FnMut(&[u8])) -> Result<()> {
        let (session, limits) = self.server.session().map_err(|fault| fault.on("read back", b""))?;
        self.send_held(&session, &[number], false)?;
        let small = self.held.take(number).ok_or_else(not_staged)?;
        let path = small.path.clone();
        let failed = |fault: Fault| fault.on("read back", &path);
        let read = match &small.failure {
            Some(failure) => Err(Error::of_kind(failure.kind, "write file", &path[..], &failure.message())),
            None => session.open_to_read(&path).handle().map_err(failed).and_then(|handle| {
                let handle = Handle::new(session.clone(), limits, handle);
                let all = Extent { start: 0, end: u64::MAX };
                let read = handle.read(all, &mut |bytes| {
                    check(bytes);
                    true
                });
                read.map(drop).map_err(failed)
            }),
        };
        self.put_back(number, small);
        read
    }
}

pub struct SftpSinkLane {
    job: Arc<Job>,
    open: Option<(Vec<u8>, PublishRule)>,
}

impl SftpSinkLane {
    pub fn new(job: Arc<Job>) -> SftpSinkLane {
        SftpSinkLane { job, open: None }
    }
}

impl SinkLane for SftpSinkLane {
    fn create(&mut self, entry: &Entry, rule: PublishRule) -> Result<()> {
        self.job.may_write()?;
        self.job.path(entry)?;
        self.open = Some((Vec::new(), rule));
        Ok(())
    }

    fn write(&mut self, bytes: &[u8]) -> Result<()> {
        self.open.as_mut().expect("write follows create").0.extend_from_slice(bytes);
        Ok(())
    }

    fn seal(&mut self, entry: &Entry, sync: bool) -> Result<Staged> {
        let (bytes, rule) = self.open.take().expect("seal follows create");
        let small = Small {
            path: self.job.staged_path(entry, &self.job.next_mark())?,
            mode: self.job.mode(entry),
            attributes: self.job.attributes(entry),
            bytes,
            wants_sync: sync,
            is_sent: false,
            is_synced: false,
            failure: None,
        };
        let bytes = small.bytes.len();
        Ok(Staged::new(0, self.job.held.put(small, bytes), rule))
    }

    fn abandon(&mut self) {
        self.open = None;
    }

    fn publish(&mut self, entry: &Entry, staged: Staged) -> Result<()> {
        self.job.publish_held(&[(entry, staged)]).remove(0)
    }
}
