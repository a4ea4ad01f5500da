//! Opening jobs at an endpoint: a job's description is checked, an older attempt gives way, the host opens, the job starts.
//!
//! Invariants:
//! - Storage may hang while a job is opened, so each has a thread of its own: the control stream goes on, and with it the other
//!   jobs of the session. What the client says of the job meanwhile waits (`openings`).
//! - A job whose session has ended by the time it is open ends at once.
//! - Of two attempts at one job by one client the newer one goes on, whichever is opened first.

use super::attempts::{Attempt, Opening};
use super::control::ControlPort;
use super::host::{Grant, Opened};

use super::roster::Who;
use super::running::{Job, NO_BLAKE3, NO_COMPRESSION, Running};
use super::seats::Seat;
use super::server::Server;
use super::{Session, congestion};
use crate::job::Ending;
use crate::job_options::options_from_wire;
use crate::limits::LANE_END_PATIENCE;
use crate::progress::Progress;
use crate::receiver::{ReceiveJob, ReceiveSpec};
use crate::sender::SendJob;
use model::options::Compression;
use model::{DigestAlgorithm, JobId, Pin, TransferOptions};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};
use wire::handshake::{Direction, feature};
use wire::limits::{OPEN_PATHS_MAX, PATH_BYTES_MAX};
use wire::message::{self, Accept, Open, Reject};
use wire::{CloseCode, Refusal};

/// Why the older of two runs of one command ends.
pub const TAKEN_OVER: &str = "a newer run of the same command took over";
/// How long a newer attempt waits for the older one to let its staging go.
const TAKE_OVER_PATIENCE: Duration = Duration::from_secs(5);

/// A job's place among those that are being opened. Released on drop, also if the thread panics; the client is then told.
struct Place<'a> {
    session: &'a Session,
    number: u32,
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.session.openings.forget(self.number);
        self.session.note_rest();
        if std::thread::panicking() {
            let refusal = Refusal::new(CloseCode::Internal, "a thread of the endpoint failed; this is a bug");
            let running = self.session.jobs.lock().unwrap_or_else(PoisonError::into_inner).get(&self.number).cloned();
            match running {
                Some(running) => running.job.stop(Ending::Cancelled { by_peer: false, refusal }),
                None => _ = self.session.control.send(message::encode(reject(self.number, refusal))),
            }
        }
    }
}

impl Server {
    /// Has a job opened, or tells the client why not.
    pub(super) fn open_job(self: &Arc<Server>, session: &Arc<Session>, grant: &Grant, open: Open) {
        let number = open.job;
        let begun = self.check_open(session, &open).and_then(|checked| {
            session.openings.begin(&session.jobs.lock().unwrap(), number)?;
            let (server, of_thread, grant) = (self.clone(), session.clone(), grant.clone());
            let run = move || server.run_open(&of_thread, &grant, open, checked);
            let spawned = std::thread::Builder::new().name("open".into()).spawn(run);
            spawned.map(drop).map_err(|e| {
                session.openings.forget(number);
                Refusal::new(CloseCode::Internal, &format!("the endpoint could not start a thread: {e}"))
            })
        });
        if let Err(refusal) = begun {
            let _ = session.control.send(message::encode(reject(number, refusal)));
            session.openings.note_refused(&session.jobs.lock().unwrap(), number);
        }
    }

    /// Opens a job on the calling thread, for as long as its storage takes.
    fn run_open(
        self: &Arc<Server>,
        session: &Arc<Session>,
        grant: &Grant,
        open: Open,
        (id, direction, mut options): (JobId, Direction, TransferOptions),
    ) {
        let number = open.job;
        let place = Place { session, number };
        let started = session.guest().and_then(|guest| {
            let seat = self.seat_job(guest, &options)?;
            // Until it is known as the newest attempt, another one must not look for older ones.
            let is_over = || session.openings.ended().is_some();
            let ended = || Refusal::new(CloseCode::Cancelled, "its session is over");
            let _opening = Opening::begin(&self.attempts, (grant.party(), id), &is_over).ok_or_else(ended)?;
            self.take_over(grant.party(), id, session)?;
            let opened = self.host.open(grant, id, direction, &open, &options)?;
            options.class = Some(self.host.class(grant, &options));
            self.start_job(session, grant, open, id, direction, options, opened, seat)
        });
        let caught_up = match started {
            Ok((accept, running)) => {
                let _ = session.control.send(message::encode(accept));
                session.openings.catch_up(number, &running)
            }
            Err(refusal) => {
                let _ = session.control.send(message::encode(reject(number, refusal)));
                // Streams that wait for it are let go from here on: by then the client is to know why.
                session.remove_job(number);
                Ok(())
            }
        };
        if let Err(refusal) = caught_up {
            session.close(refusal.code, &refusal.text);
        }
        drop(place);
    }

    /// Ends an older attempt at the same job by the same client: its connection may be dead without this side knowing,
    /// and its staging is what the new attempt continues. What a dead client still asks for is no newer attempt, however late
    /// it is read.
    fn take_over(&self, party: Pin, id: JobId, session: &Session) -> Result<(), Refusal> {
        let mut receiving = self.attempts.receiving.lock().unwrap();
        let Some(other) = receiving.get(&(party, id)) else { return Ok(()) };
        if session.arrived.get().is_some_and(|arrived| *arrived < other.arrived) {
            return Err(Refusal::new(CloseCode::Cancelled, TAKEN_OVER));
        }
        let Some(older) = receiving.remove(&(party, id)) else { return Ok(()) };
        drop(receiving);
        if let Some(running) = older.running.upgrade() {
            running.job.cancel(CloseCode::Cancelled, TAKEN_OVER);
            running.watch.abort();
        }
        let deadline = Instant::now() + TAKE_OVER_PATIENCE;
        while older.presence.strong_count() > 0 && Instant::now() < deadline {
            std::thread::park_timeout(Duration::from_millis(2));
        }
        Ok(())
    }

    fn check_open(&self, session: &Session, open: &Open) -> Result<(JobId, Direction, TransferOptions), Refusal> {
        let malformed = |what: &str| Refusal::new(CloseCode::Malformed, what);
        let id = JobId::from_slice(&open.job_id).ok_or_else(|| malformed("a job id that is not 16 bytes long"))?;
        let direction = Direction::from_number(open.direction).ok_or_else(|| malformed("an unknown direction"))?;
        let options = open.options.as_ref().ok_or_else(|| malformed("a job without options"))?;
        let options = options_from_wire(options)?;
        if options.digest == DigestAlgorithm::Blake3 && session.features.load(Relaxed) & feature::BLAKE3 == 0 {
            return Err(Refusal::new(CloseCode::Version, NO_BLAKE3));
        }
        if !options.fidelity.is_none() && session.features.load(Relaxed) & feature::FIDELITY == 0 {
            return Err(Refusal::new(
                CloseCode::Version,
                "owners and attributes need a feature that this session lacks",
            ));
        }
        if options.compression != Compression::None && session.features.load(Relaxed) & feature::LIMITS == 0 {
            return Err(Refusal::new(CloseCode::Version, NO_COMPRESSION));
        }
        congestion::check(options.congestion.as_deref())?;
        if open.paths.is_empty()
            || open.paths.len() > OPEN_PATHS_MAX
            || open.paths.iter().any(|path| path.len() > PATH_BYTES_MAX)
            || (direction == Direction::ClientSends && open.paths.len() != 1)
        {
            return Err(malformed("too few or too many paths, or too long ones"));
        }
        Ok((id, direction, options))
    }

    #[allow(clippy::too_many_arguments)]
    fn start_job(
        self: &Arc<Server>,
        session: &Arc<Session>,
        grant: &Grant,
        open: Open,
        id: JobId,
        direction: Direction,
        options: TransferOptions,
        opened: Opened,
        seat: Seat,
    ) -> Result<(Accept, Arc<Running>), Refusal> {
        let number = open.job;
        let (memory, progress) = (session.guest()?.memory.clone(), Progress::new());
        let port = Arc::new(ControlPort(session.control.clone()));
        let mut accept = Accept { job: number, ..Accept::default() };
        let class = options.class.unwrap_or_default();
        let job = match opened {
            Opened::Receive { sink, rename_to, observer, file_system, asked } => {
                accept.file_system = file_system;
                let spec = ReceiveSpec { number, id, sender: grant.pin, options, rename_to };
                let job = ReceiveJob::new(spec, sink, port, progress.clone(), observer)
                    .map_err(|e| Refusal::new(CloseCode::Forbidden, &e.to_string()))?;
                if let Some(asked) = asked {
                    job.hold_to(asked);
                }
                job.charge_to(memory);
                (accept.takes_whole, accept.buffer_bytes) = (job.takes_whole(), self.let_wait(grant, &open, id, &job));
                job.start();
                Job::Receive(job)
            }
            Opened::Send { source, is_single, observer } => {
                accept.is_single = is_single;
                let job = SendJob::new(number, options, source, port, progress.clone(), observer);
                job.charge_to(memory);
                Job::Send(self.let_read_ahead(job))
            }
        };
        let running = session.add_job(number, job.clone());
        if let Some(roster) = self.host.roster() {
            session.list_job(roster, Who::of(grant, id, class), &running, number);
        }
        let started = running.clone();
        let _ = running.asked.set((direction, open.paths));
        match &job {
            Job::Receive(job) => self.note_attempt((grant.party(), id), session, &running, job),
            Job::Send(job) => job.start(),
        }
        let unwatched = job.clone();
        let (server, watched, grant) = (self.clone(), session.clone(), grant.clone());
        let watch = move || {
            let ending = job.wait_for_end();
            watched.remove_job(number);
            drop(seat);
            let streams = running.watch.clone();
            (!matches!(ending, Ending::Finished(_))).then(|| streams.abort());
            server.forget_older((grant.party(), id), &job, &ending);
            drop((job, running));
            server.host.ended(&grant, id, direction, &progress, &ending);
            // A client in order ends its streams now; whoever does not would keep lanes, and their memory, for ever.
            streams.wait_for_end(LANE_END_PATIENCE);
            streams.abort();
        };
        if let Err(e) = std::thread::Builder::new().name("job".into()).spawn(watch) {
            let refusal = Refusal::new(CloseCode::Internal, &format!("the endpoint could not start a thread: {e}"));
            unwatched.stop(Ending::Cancelled { by_peer: false, refusal: refusal.clone() });
            return Err(refusal);
        }
        Ok((accept, started))
    }

    /// From here on this is the newest attempt at its job.
    fn note_attempt(&self, of: (Pin, JobId), session: &Session, running: &Arc<Running>, job: &ReceiveJob) {
        let arrived = session.arrived.get().copied().unwrap_or_else(Instant::now);
        let attempt = Attempt { arrived, running: Arc::downgrade(running), presence: job.presence() };
        let mut receiving = self.attempts.receiving.lock().unwrap();
        receiving.retain(|_, held| held.presence.strong_count() > 0);
        receiving.insert(of, attempt);
    }
}

fn reject(job: u32, refusal: Refusal) -> Reject {
    Reject { job, code: refusal.code as u32, text: refusal.text }
}
