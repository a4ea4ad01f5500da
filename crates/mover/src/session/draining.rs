//! Brings what waits in an endpoint's buffer to its place when its session is gone: after a lost connection, a sender that left,
//! or a restart of the endpoint.
//!
//! Invariants:
//! - One attempt at a time works at what is left of a job, and a newer attempt by its sender waits for it.
//! - What several attempts at a job left is brought to its place in their order: the newer one has what replaces the older one's.
//! - Who sent it is asked for its rights again: what is not allowed any more is not delivered, and not thrown away.
//! - What storage does not take is tried again, as long as nobody drops it.
//!
//! Not here: carrying a job on from its messages and content (`crate::receiver::replay`).

use super::host::{Grant, Mandate, Opened};
use super::running::Job;
use super::server::Server;
use crate::job::Ending;
use crate::job_options::options_from_wire;
use crate::progress::Progress;
use crate::receiver::{Came, Deaf, Hold, Opening, ReceiveJob, ReceiveSpec, job_of, owner_of, replay, wait_until};
use crate::sender::SendJob;
use model::options::Buffer;
use model::{JobId, Pin, mutant};
use std::collections::HashSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant, SystemTime};
use store::spool::{Kind, Owner, Parcel, Spool};
use wire::frame::HEADER_BYTES;
use wire::handshake::Direction;
use wire::message::{self, Open};
use wire::{CloseCode, Message, Refusal};

/// Requests of people on this host.
pub const DRAIN: &str = "drain";
pub const DROP: &str = "drop";
const INTERVAL: Duration = Duration::from_millis(200);
const PRESENCE_INTERVAL: Duration = Duration::from_millis(2);
/// Wait after storage did not take something, doubled each time up to the second.
const RETRY_FIRST: Duration = Duration::from_secs(2);
const RETRY_MAX: Duration = Duration::from_secs(60);
/// Jobs that are carried on at once.
const AT_ONCE_MAX: usize = 8;

/// What a buffer holds of one attempt at a job, as whoever runs the endpoint sees it.
#[derive(Clone, Debug)]
pub struct Waiting {
    pub job: JobId,
    /// What the endpoint calls the client.
    pub client: String,
    /// Where it is to go, as the client named it.
    pub destination: Vec<u8>,
    pub bytes: u64,
    pub since: SystemTime,
}

/// What waits in the buffer of a directory, whose endpoint may be running; and the buffer's size.
pub fn waiting(directory: &Path) -> store::Result<(u64, Vec<Waiting>)> {
    let look = store::spool::look(directory)?;
    let waiting = |seen: store::spool::Seen| {
        let opening = Opening::decode(&seen.opening)?;
        Some(Waiting {
            job: job_of(seen.owner).1,
            client: opening.name,
            destination: opening.open.paths.into_iter().next().unwrap_or_default(),
            bytes: seen.bytes,
            since: seen.since,
        })
    };
    Ok((look.capacity_bytes, look.owners.into_iter().filter_map(waiting).collect()))
}

impl Server {
    /// Starts to bring to its place what waits in the buffer, now and later.
    pub fn start_draining(self: &Arc<Server>) -> std::io::Result<()> {
        let Some(spool) = self.host.buffer() else { return Ok(()) };
        let server = Arc::downgrade(self);
        let run = move || {
            while let Some(server) = server.upgrade().filter(|server| !server.drains.is_stopped.load(Relaxed)) {
                server.drain_what_waits(&spool);
                drop(server);
                std::thread::park_timeout(INTERVAL);
            }
        };
        std::thread::Builder::new().name("buffer".into()).spawn(run).map(drop)
    }

    /// Lets what a job receives wait in the buffer, where there is one. Returns its size.
    pub(super) fn let_wait(self: &Arc<Server>, grant: &Grant, open: &Open, id: JobId, job: &Arc<ReceiveJob>) -> u64 {
        let Some(spool) = self.host.buffer() else { return 0 };
        let key = (grant.party(), id);
        let server = Arc::downgrade(self);
        let found = spool.clone();
        job.begin_after(Box::new(move |end| {
            if let Some(server) = server.upgrade() {
                server.drains.awaited().insert(key);
            }
            wait_until(end, &|| server.upgrade().is_none_or(|server| !server.is_draining(&found, key)));
            if let Some(server) = server.upgrade() {
                server.drains.awaited().remove(&key);
            }
        }));
        if job.options.buffer == Buffer::Never || job.options.is_dry_run {
            return 0;
        }
        let warrant = grant.warrant.as_ref().map(|mandate| (mandate.issuer, mandate.warrant.clone()));
        let is_warranted = warrant.is_some();
        let (account, name, open) = (grant.account.clone(), grant.name.clone(), open.clone());
        let opening = Opening { pin: grant.pin, account, name, warrant, open };
        let owner = owner_of(grant.party(), id);
        spool.expect(owner, job.options.class.unwrap_or_default().weight());
        let hold = Hold::new(spool, owner, job.options.buffer);
        hold.begin(opening.encode());
        let bytes = hold.capacity_bytes();
        job.buffer_in(hold);
        if is_warranted {
            // It may expire before the rest is delivered: nobody is told to rely on that.
            job.forbid_buffered();
        }
        bytes
    }

    /// Lets what a job sends be read ahead, where there is a buffer.
    pub(super) fn let_read_ahead(&self, job: Arc<SendJob>) -> Arc<SendJob> {
        if let Some(spool) = self.host.buffer() {
            job.read_ahead_in(spool, job.options.buffer);
        }
        // A client says nothing of it, and has nothing followed.
        job.is_taken(false);
        job
    }

    /// Something of the job is, or will be, on its way to its place.
    fn is_draining(&self, spool: &Spool, key: (Pin, JobId)) -> bool {
        // What is behind one that is stuck waits for that one.
        let is_found = spool.found().into_iter().find(|owner| job_of(*owner) == key).is_some_and(|oldest| {
            let drains = self.drains.drains();
            drains.get(&oldest).is_none_or(|drain| drain.stuck.is_none())
        });
        is_found || self.drains.drains().iter().any(|(owner, drain)| job_of(*owner) == key && drain.is_running)
    }

    /// Where all of a job has come to its place, or waits in the buffer, what is left of older attempts at it is worth nothing. What
    /// waits of this one is not among it as long as its job is there.
    pub(super) fn forget_older(&self, key: (Pin, JobId), job: &Job, ending: &Ending) {
        let is_all_here = matches!(ending, Ending::Finished(_));
        let Some(spool) = self.host.buffer().filter(|_| is_all_here && matches!(job, Job::Receive(_))) else { return };
        for owner in spool.found().into_iter().filter(|owner| job_of(*owner) == key) {
            let _ = spool.end(owner);
            self.drains.drains().remove(&owner);
        }
    }

    /// Does what people asked for on this host: `drain` tries at once what storage did not take, `drop ID` throws away what
    /// waits of a job.
    fn heed(&self, spool: &Spool) {
        for request in spool.take_requests() {
            match request.split_once(' ') {
                Some((DROP, id)) => self.drop_waiting(spool, id),
                _ if request == DRAIN => self.drains.drains().values_mut().for_each(|drain| drain.stuck = None),
                _ => {}
            }
        }
    }

    fn drop_waiting(&self, spool: &Spool, id: &str) {
        let is_it = |owner: &Owner| job_of(*owner).1.to_string() == id;
        let found: Vec<_> = spool.found().into_iter().filter(is_it).collect();
        let mut drains = self.drains.drains();
        for (_, drain) in drains.iter_mut().filter(|(owner, drain)| is_it(owner) && drain.is_running) {
            drain.is_dropped = true;
            if let Some(job) = &drain.running {
                job.stop(Ending::Lost("it was dropped from the buffer".into()));
            }
        }
        found.iter().for_each(|owner| _ = drains.remove(owner));
        drop(drains);
        // Storage that does not confirm it may bring it back after a power loss, and it is dropped again.
        found.into_iter().for_each(|owner| _ = spool.end(owner));
    }

    fn drain_what_waits(self: &Arc<Server>, spool: &Arc<Spool>) {
        self.heed(spool);
        for owner in self.due(spool) {
            let (server, of_thread) = (self.clone(), spool.clone());
            let run = move || server.drain(&of_thread, owner);
            if std::thread::Builder::new().name("drain".into()).spawn(run).is_err() {
                self.drains.drains().entry(owner).or_default().is_running = false;
            }
        }
    }

    /// What is carried on now, marked as running. All of it is looked at under one lock: while an older attempt is on its way from one place
    /// to the other, a newer one would seem to be the oldest.
    fn due(&self, spool: &Spool) -> Vec<Owner> {
        let (mut older, mut due) = (HashSet::new(), Vec::new());
        let mut drains = self.drains.drains();
        for owner in spool.found() {
            let running = drains.iter().filter(|(_, drain)| drain.is_running).map(|(owner, _)| job_of(*owner));
            let running: Vec<_> = running.collect();
            let drain = drains.entry(owner).or_default();
            let is_due = drain.stuck.as_ref().is_none_or(|(_, at)| *at <= Instant::now());
            let is_next = older.insert(job_of(owner)) && !running.contains(&job_of(owner));
            if !is_next || !is_due || running.len() >= AT_ONCE_MAX || self.is_received(job_of(owner)) {
                continue;
            }
            if mutant::is_on("drain-only-with-sender") {
                continue;
            }
            drain.is_running = true;
            due.push(owner);
        }
        due
    }

    fn drain(self: &Arc<Server>, spool: &Arc<Spool>, owner: Owner) {
        let parcels = spool.take_found(owner);
        let carried = catch_unwind(AssertUnwindSafe(|| self.carry_on(spool, owner, parcels.clone())));
        // A fault in one is no reason to leave it, and what waits for it, to the next start.
        let came = carried.unwrap_or_else(|_| {
            let running = self.drains.drains().get_mut(&owner).and_then(|drain| drain.running.take());
            if let Some(job) = running {
                job.stop(Ending::Lost("a thread of the endpoint failed".into()));
                let_go(job);
            }
            Err(Refusal::new(CloseCode::Internal, "a thread of the endpoint failed; this is a bug"))
        });
        let mut drains = self.drains.drains();
        let drain = drains.entry(owner).or_default();
        if came.is_err() && !drain.is_dropped && !spool.found().contains(&owner) {
            // Nobody took it up: it is as it was.
            spool.put_back(owner, parcels);
        }
        (drain.is_running, drain.running) = (false, None);
        match came {
            Ok(()) => _ = drains.remove(&owner),
            Err(_) if drain.is_dropped => {
                drains.remove(&owner);
                drop(drains);
                let _ = spool.end(owner);
            }
            Err(refusal) => {
                drain.tries += 1;
                let pause = (RETRY_FIRST * 2u32.saturating_pow(drain.tries.min(8) - 1)).min(RETRY_MAX);
                drain.stuck = Some((refusal.text, Instant::now() + pause));
            }
        }
    }

    /// Carries a job on from what is in the buffer.
    fn carry_on(self: &Arc<Server>, spool: &Arc<Spool>, owner: Owner, parcels: Vec<Parcel>) -> Result<(), Refusal> {
        let (_, id) = job_of(owner);
        let messages: Vec<Vec<u8>> = read_journal(&parcels);
        let Some(opening) = messages.first().and_then(|first| Opening::decode(first)) else {
            // Nobody can say what it was to become.
            let _ = spool.end(owner);
            return Ok(());
        };
        let is_left = |bytes: &Vec<u8>| matches!(decode(bytes), Some(Message::Finish(_)));
        if !parcels.iter().any(|parcel| parcel.kind == Kind::Content) && !messages[1..].iter().any(is_left) {
            // What is described and was never sent is the next attempt's.
            let _ = spool.end(owner);
            return Ok(());
        }
        let Opening { pin, account, name, warrant, open } = opening;
        let mut options = options_from_wire(open.options.as_ref().unwrap_or(&Default::default()))?;
        options.is_delta = false;
        let warrant = warrant.map(|(issuer, warrant)| Arc::new(Mandate { warrant, issuer }));
        let grant = Grant { pin, name, account, may_write: true, warrant };
        let opened = match self.host.open(&grant, id, Direction::ClientSends, &open, &options) {
            // Taken back, or past its time. Whoever gave it was told of nothing that is here, and has it sent again.
            Err(refusal) if grant.warrant.is_some() && refusal.code == CloseCode::Authentication => {
                let _ = spool.end(owner);
                return Ok(());
            }
            opened => opened?,
        };
        let Opened::Receive { sink, rename_to, observer, .. } = opened else {
            return Err(Refusal::new(CloseCode::Internal, "what was opened does not receive"));
        };
        let (progress, port) = (Progress::new(), Arc::new(Deaf::default()));
        let spec = ReceiveSpec { number: open.job, id, sender: pin, options, rename_to };
        let job = ReceiveJob::new(spec, sink, port.clone(), progress.clone(), observer)
            .map_err(|e| Refusal::new(CloseCode::Forbidden, &e.to_string()))?;
        job.charge_to(self.memory.clone());
        job.buffer_in(Hold::resumed(spool.clone(), owner, parcels));
        self.drains.drains().entry(owner).or_default().running = Some(job.clone());
        if self.drains.is_stopped.load(Relaxed) {
            job.stop(Ending::Lost("the endpoint is shutting down".into()));
        }
        let came = replay(&job, &messages[1..], &port).unwrap_or_else(|refusal| {
            job.cancel(refusal.code, &refusal.text);
            Came::Stuck
        });
        let ending = job.end.get().unwrap_or(Ending::Lost(String::new()));
        if came == Came::Through {
            job.end_hold();
        }
        self.drains.drains().entry(owner).or_default().running = None;
        let_go(job);
        // Told when nothing of it is there any more: a newer attempt, which waits for this one, has not ended.
        self.host.ended(&grant, id, Direction::ClientSends, &progress, &ending);
        match came {
            Came::Through => Ok(()),
            Came::Stuck => Err(Refusal::new(CloseCode::Internal, &ending.to_string())),
        }
    }

    /// An attempt by its sender is at work, and does not wait for this.
    fn is_received(&self, key: (Pin, JobId)) -> bool {
        self.attempts.is_there(key) && !self.drains.awaited().contains(&key)
    }
}

/// Waits until its staging is let go: whoever comes next would make one of its own and leave this one behind.
fn let_go(job: Arc<ReceiveJob>) {
    let presence = job.presence();
    drop(job);
    while presence.strong_count() > 0 {
        std::thread::park_timeout(PRESENCE_INTERVAL);
    }
}

fn decode(bytes: &[u8]) -> Option<Message> {
    message::decode(bytes.get(HEADER_BYTES..)?).ok()?
}

/// The messages of a journal, as far as they are whole and follow one another.
fn read_journal(parcels: &[Parcel]) -> Vec<Vec<u8>> {
    let journal = parcels.iter().filter(|parcel| parcel.kind == Kind::Journal);
    journal.map_while(|parcel| parcel.is_sound().ok().filter(|sound| *sound).and_then(|_| parcel.read().ok())).collect()
}

#[cfg(test)]
mod tests;
