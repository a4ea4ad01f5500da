//! The answering side: authenticates, opens what its host allows, and lends its threads to the lanes.
//!
//! Before a peer is authenticated it may hold one thread, one frame of at most 4 KiB and ten seconds.

use super::room::{Guest, Rooms, Seat};
use super::{
    ControlOutcome, ControlPort, Job, NO_BLAKE3, NO_COMPRESSION, Running, Session, congestion, control_options,
    join_proof, run_control, watch_stream,
};
use crate::files::{How, NotReached};
use crate::job::{Ending, Observer, options_from_wire};
use crate::limits::{JOIN_TIMEOUT, LANE_END_PATIENCE, NO_PROGRESS_TIMEOUT};
use crate::memory::Memory;
use crate::progress::{Progress, processors};
use crate::receiver::{self, Asked, ReceiveJob, ReceiveSpec};
use crate::sender::{self, SendJob};
use model::files::{Question, Tally};
use model::options::Compression;
use model::{DigestAlgorithm, JobId, Name, Pin, SessionId, TransferOptions};
use net::{Connection, DataStream};
use std::collections::{HashMap, HashSet};
use std::ops::ControlFlow;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Condvar, Mutex, Weak};
use std::time::{Duration, Instant};
use store::posix::target::Target;
use store::{Sink, Source};
use wire::frame::{FrameHeader, HEADER_BYTES};
use wire::handshake::{Direction, EXPORTER_LABEL, Join, feature, negotiate};
use wire::limits::{HELLO_BODY_BYTES_MAX, JOBS_MAX, OPEN_PATHS_MAX, PATH_BYTES_MAX, STREAMS_MAX};
use wire::message::{self, Accept, Hello, Open, Reject, Welcome};
use wire::{CloseCode, FrameReader, FrameType, Message, Refusal};

/// From accept to the end of the first frame.
const FIRST_FRAME_TIMEOUT: Duration = Duration::from_secs(10);

/// What an authenticated peer is and may.
#[derive(Clone, Debug)]
pub struct Grant {
    pub pin: Pin,
    /// What the endpoint calls this client, for logs.
    pub name: String,
    /// Whose share it lives from, with all other keys of that account: the ticket that enrolled it.
    pub account: String,
    pub may_write: bool,
}

/// What an endpoint tells of itself.
#[derive(Clone, Debug)]
pub struct HostFacts {
    pub name: String,
    pub is_read_only: bool,
}

/// A job that the host lets happen.
pub enum Opened {
    Receive {
        sink: Arc<dyn Sink>,
        rename_to: Option<Name>,
        observer: Option<Arc<dyn Observer>>,
        file_system: String,
        /// What the client may send, where somebody else decided that.
        asked: Option<Asked>,
    },
    Send {
        source: Arc<dyn Source>,
        is_single: bool,
        observer: Option<Arc<dyn Observer>>,
    },
}

/// Whoever serves: knows its clients and its root.
pub trait Host: Send + Sync {
    fn facts(&self) -> HostFacts;

    /// Who the peer is; a credential enrols its key.
    fn authorise(&self, peer: Pin, credential: &[u8]) -> Result<Grant, Refusal>;

    /// Opens the destination (client sends) or the sources (server sends) below the root.
    fn open(
        &self,
        grant: &Grant,
        job: JobId,
        direction: Direction,
        open: &Open,
        options: &TransferOptions,
    ) -> Result<Opened, Refusal>;

    /// Whether the peer, or one of its jobs, may go on: asked every few seconds, so that rights that end while a job runs
    /// end the job too (F028, F029). What is verified is kept. A host that cannot tell at this moment says `Internal`, and is
    /// believed a few times (`review`).
    fn may_go_on(&self, grant: &Grant, job: Option<(Direction, &[Vec<u8>])>) -> Result<(), Refusal> {
        let _ = (grant, job);
        Ok(())
    }

    /// Finds what a path leads to, for a question about files. Asked for every path, so that rights that have ended end
    /// the answer.
    fn reach(&self, grant: &Grant, path: &[u8], how: How) -> Result<Target, NotReached> {
        let _ = (grant, path, how);
        Err(NotReached::Refused(Refusal::new(CloseCode::Forbidden, "questions about files are not answered here")))
    }

    /// A question about files was answered.
    fn answered(&self, grant: &Grant, question: &Question, answered: &Result<Tally, Refusal>) {
        let _ = (grant, question, answered);
    }

    /// A job of this host came to its end.
    fn ended(&self, grant: &Grant, job: JobId, direction: Direction, progress: &Progress, ending: &Ending);
}

pub struct Server {
    pub(super) host: Arc<dyn Host>,
    pub(super) memory: Memory,
    pub(super) rooms: Rooms,
    pub(super) sessions: Mutex<HashMap<SessionId, Arc<Session>>>,
    changed: Condvar,
    /// Jobs that receive, by who asked and what: a newer attempt takes over from one whose client is gone.
    receiving: Mutex<HashMap<(Pin, JobId), Attempt>>,
    /// Jobs between the end of their older attempt and the beginning of their new one.
    opening: Mutex<HashSet<(Pin, JobId)>>,
    opened: Condvar,
    no_progress_timeout: Mutex<Duration>,
}

struct Attempt {
    /// When the session came that it belongs to.
    arrived: Instant,
    running: Weak<Running>,
    presence: Weak<()>,
}

const TAKEN_OVER: &str = "a newer run of the same command took over";
/// How long a newer attempt waits for the older one to let its staging go.
const TAKE_OVER_PATIENCE: Duration = Duration::from_secs(5);

impl Server {
    pub fn new(host: Arc<dyn Host>, memory: Memory) -> Arc<Server> {
        Arc::new(Server {
            host,
            memory,
            rooms: Rooms::default(),
            sessions: Mutex::default(),
            changed: Condvar::new(),
            receiving: Mutex::default(),
            opening: Mutex::default(),
            opened: Condvar::new(),
            no_progress_timeout: Mutex::new(NO_PROGRESS_TIMEOUT),
        })
    }

    /// For sessions that open from here on: how long a job may stand still before it is given up.
    pub fn set_no_progress_timeout(&self, timeout: Duration) {
        *self.no_progress_timeout.lock().unwrap() = timeout;
    }

    /// Sessions that are open.
    pub fn sessions(&self) -> usize {
        self.sessions.lock().unwrap().len()
    }

    /// Waits until no session is open, at most for `patience`.
    pub fn wait_idle(&self, patience: Duration) -> bool {
        let deadline = Instant::now() + patience;
        let mut sessions = self.sessions.lock().unwrap();
        while !sessions.is_empty() {
            let Some(left) = deadline.checked_duration_since(Instant::now()) else { return false };
            sessions = self.changed.wait_timeout(sessions, left).unwrap().0;
        }
        true
    }

    /// Tells every client that this endpoint goes away, and ends their jobs.
    pub fn shut_down(&self) {
        let sessions: Vec<_> = self.sessions.lock().unwrap().values().cloned().collect();
        for session in sessions {
            session.close(CloseCode::Busy, "the endpoint is shutting down; the same command continues later");
        }
    }

    /// Serves one connection, accepted at `arrived`, on the calling thread until it ends. Returns why it was refused, for the
    /// log.
    pub fn serve(self: &Arc<Server>, connection: Connection, arrived: Instant) -> Result<(), Refusal> {
        let exporter_context = connection.peer_pin();
        let mut stream = connection.into_data();
        stream.set_deadline(Some(Instant::now() + FIRST_FRAME_TIMEOUT));
        let (frame_type, body) = first_frame(&mut stream)?;
        stream.set_deadline(None);
        match frame_type {
            FrameType::Join => self.join(stream, Join::decode(&body)?),
            FrameType::Message => match message::decode(&body)? {
                Some(Message::Hello(hello)) => self.open_session(stream, hello, exporter_context, arrived),
                _ => Err(Refusal::new(CloseCode::WrongState, "a session that does not begin with a hello")),
            },
            _ => Err(Refusal::new(CloseCode::WrongState, "a stream that does not begin with a hello or a join")),
        }
    }

    fn open_session(
        self: &Arc<Server>,
        mut stream: DataStream,
        hello: Hello,
        peer: Pin,
        arrived: Instant,
    ) -> Result<(), Refusal> {
        let greeted = self.greet(&hello, peer);
        let (id, grant, version, features) = match greeted {
            Ok(greeted) => greeted,
            Err(refusal) => {
                let close = message::Close { code: refusal.code as u32, text: refusal.text.clone() };
                let _ = stream.send(&[&message::encode(close)]);
                let _ = stream.close();
                return Err(refusal);
            }
        };
        let exporter = stream.export(EXPORTER_LABEL, &id.0);
        let internal = |e: std::io::Error| Refusal::new(CloseCode::Internal, &e.to_string());
        let (control, stream) = stream.into_control(control_options()).map_err(internal)?;
        let session = Session::new(id, peer, control, exporter);
        session.watch_control(stream.aborter());
        session.agree_on(features);
        session.set_no_progress_timeout(*self.no_progress_timeout.lock().unwrap());
        let _ = session.grant.set(grant.clone());
        let _ = session.arrived.set(arrived);
        let facts = self.host.facts();
        let welcome = Welcome {
            version,
            features,
            agent: super::AGENT.into(),
            name: facts.name,
            processors: processors(),
            streams_max: STREAMS_MAX,
            send_buffer_bytes_max: net::socket::granted_send_buffer_bytes_max().unwrap_or(0),
            is_read_only: facts.is_read_only || !grant.may_write,
        };
        if let Err(refusal) = self.enter(id, &session, &grant) {
            // Said where the client looks for it: as the answer to its hello. The loop is needed to say it.
            session.close(refusal.code, &refusal.text);
            stream.run(|_| ControlFlow::Continue(()));
            return Err(refusal);
        }
        let _ = session.control.send(message::encode(welcome));
        self.changed.notify_all();
        let mut reader = FrameReader::new();
        reader.authenticated();
        let entered = Entered { server: self, session: &session };
        let outcome = run_control(&session, stream, reader, &mut |message| self.begin(&session, &grant, message));
        drop(entered);
        let (ending, result) = match outcome {
            ControlOutcome::Closed(refusal) if refusal.code == CloseCode::Done => {
                (Ending::Lost("the client closed the session".into()), Ok(()))
            }
            ControlOutcome::Closed(refusal) => (Ending::Cancelled { by_peer: true, refusal }, Ok(())),
            ControlOutcome::Refused(refusal) => {
                (Ending::Cancelled { by_peer: false, refusal: refusal.clone() }, Err(refusal))
            }
            ControlOutcome::Lost(why) => (Ending::Lost(why), Ok(())),
        };
        session.end_jobs(&ending);
        result
    }

    /// What a client asks for: a job, or an answer.
    fn begin(self: &Arc<Server>, session: &Arc<Session>, grant: &Grant, message: Message) -> Result<(), Refusal> {
        match message {
            Message::Open(open) => self.open_job(session, grant, open),
            Message::Ask(ask) => self.ask(session, grant, ask),
            Message::Proceed(proceed) => session.asks.proceed(proceed),
            Message::Stop(stop) => session.asks.stop(stop.number),
            _ => return Err(Refusal::new(CloseCode::WrongState, "a message that only an endpoint sends")),
        }
        Ok(())
    }

    fn greet(&self, hello: &Hello, peer: Pin) -> Result<(SessionId, Grant, u32, u64), Refusal> {
        let (version, features) = negotiate(hello)?;
        let grant = self.host.authorise(peer, &hello.credential)?;
        let id = SessionId::from_slice(&hello.session)
            .ok_or_else(|| Refusal::new(CloseCode::Malformed, "a session id that is not 16 bytes long"))?;
        Ok((id, grant, version, features))
    }

    /// Takes a place among the open sessions.
    fn enter(self: &Arc<Server>, id: SessionId, session: &Arc<Session>, grant: &Grant) -> Result<(), Refusal> {
        let guest = self.seat(grant)?;
        session.control.charge_to(Arc::new(guest.memory.clone()));
        let _ = session.guest.set(guest);
        let mut sessions = self.sessions.lock().unwrap();
        if sessions.contains_key(&id) {
            return Err(Refusal::new(CloseCode::WrongState, "a session with this id is open"));
        }
        sessions.insert(id, session.clone());
        Ok(())
    }

    /// Opens a job, or tells the client why not.
    fn open_job(self: &Arc<Server>, session: &Arc<Session>, grant: &Grant, open: Open) {
        let number = open.job;
        let opened = self.check_open(session, &open).and_then(|(id, direction, options)| {
            let seat = self.seat_job(guest_of(session)?, &options)?;
            // Until it is known as the newest attempt, another one must not look for older ones.
            let _opening = Opening::begin(self, (grant.pin, id));
            self.take_over(grant.pin, id, session)?;
            let opened = self.host.open(grant, id, direction, &open, &options)?;
            self.start_job(session, grant, open, id, direction, options, opened, seat)
        });
        let answer = match opened {
            Ok(accept) => message::encode(accept),
            Err(refusal) => message::encode(Reject { job: number, code: refusal.code as u32, text: refusal.text }),
        };
        let _ = session.control.send(answer);
    }

    /// Ends an older attempt at the same job by the same client: its connection may be dead without this side knowing,
    /// and its staging is what the new attempt continues. What a dead client still asks for is no newer attempt, however late
    /// it is read.
    fn take_over(&self, pin: Pin, id: JobId, session: &Session) -> Result<(), Refusal> {
        let mut receiving = self.receiving.lock().unwrap();
        let Some(other) = receiving.get(&(pin, id)) else { return Ok(()) };
        if session.arrived.get().is_some_and(|arrived| *arrived < other.arrived) {
            return Err(Refusal::new(CloseCode::Cancelled, TAKEN_OVER));
        }
        let Some(older) = receiving.remove(&(pin, id)) else { return Ok(()) };
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
        let jobs = session.jobs.lock().unwrap();
        if jobs.contains_key(&open.job) || jobs.len() >= JOBS_MAX {
            return Err(Refusal::new(CloseCode::Limit, "a job of this number is open, or too many are"));
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
    ) -> Result<Accept, Refusal> {
        let number = open.job;
        let memory = guest_of(session)?.memory.clone();
        let port = Arc::new(ControlPort(session.control.clone()));
        let progress = Progress::new();
        let mut accept = Accept { job: number, ..Accept::default() };
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
                job.start();
                Job::Receive(job)
            }
            Opened::Send { source, is_single, observer } => {
                accept.is_single = is_single;
                let job = SendJob::new(number, options, source, port, progress.clone(), observer);
                job.charge_to(memory);
                Job::Send(job)
            }
        };
        let running = session.add_job(number, job.clone());
        let _ = running.asked.set((direction, open.paths));
        match &job {
            Job::Receive(job) => self.note_attempt((grant.pin, id), session, &running, job),
            Job::Send(job) => job.start(),
        }
        let unwatched = job.clone();
        let (server, watched, grant) = (self.clone(), session.clone(), grant.clone());
        let watch = move || {
            let ending = job.wait_for_end();
            watched.remove_job(number);
            drop(seat);
            let streams = running.watch.clone();
            if !matches!(ending, Ending::Finished(_)) {
                streams.abort();
            }
            drop((job, running));
            server.host.ended(&grant, id, direction, &progress, &ending);
            // A client in order ends its streams now; whoever does not would keep lanes, and their memory, for ever.
            streams.wait_for_end(LANE_END_PATIENCE);
            streams.abort();
        };
        if let Err(e) = std::thread::Builder::new().name("job".into()).spawn(watch) {
            let refusal = Refusal::new(CloseCode::Internal, &format!("the endpoint could not start a thread: {e}"));
            session.remove_job(number);
            unwatched.stop(Ending::Cancelled { by_peer: false, refusal: refusal.clone() });
            return Err(refusal);
        }
        Ok(accept)
    }

    /// From here on this is the newest attempt at its job.
    fn note_attempt(&self, of: (Pin, JobId), session: &Session, running: &Arc<Running>, job: &ReceiveJob) {
        let arrived = session.arrived.get().copied().unwrap_or_else(Instant::now);
        let attempt = Attempt { arrived, running: Arc::downgrade(running), presence: job.presence() };
        let mut receiving = self.receiving.lock().unwrap();
        receiving.retain(|_, held| held.presence.strong_count() > 0);
        receiving.insert(of, attempt);
    }

    /// Checks a data stream's claim to a session and runs its lane.
    fn join(self: &Arc<Server>, stream: DataStream, join: Join) -> Result<(), Refusal> {
        let unknown = || Refusal::new(CloseCode::Authentication, "a data stream that belongs to no session");
        let deadline = Instant::now() + JOIN_TIMEOUT;
        let session = self.find_session(join.session, deadline).ok_or_else(unknown)?;
        let proof = join_proof(&session.exporter, &join, &stream.export(EXPORTER_LABEL, &session.id.0));
        if !net::constant_time_eq(&proof, &join.proof) || stream.peer_pin() != session.peer {
            return Err(unknown());
        }
        let running = session.find_job(join.job, deadline).ok_or_else(unknown)?;
        let memory = &guest_of(&session)?.memory;
        if running.watch.count() >= STREAMS_MAX as usize {
            return Err(Refusal::new(CloseCode::Busy, "the job has as many streams as it may have"));
        }
        watch_stream(&running, stream.aborter());
        // If the job ends from here on, this stream is found and stopped; if it ended before, the stream is refused here.
        if running.job.is_ended() {
            return Err(Refusal::new(CloseCode::NoProgress, "a data stream of a job that has ended"));
        }
        match (&running.job, join.direction) {
            (Job::Send(job), Direction::ServerSends) => {
                congestion::use_asked(job, &running, &stream);
                sender::run_lane(job, running.next_lane(), stream, memory);
            }
            (Job::Receive(job), Direction::ClientSends) => {
                let mut refused = |refusal: Refusal| session.close(refusal.code, &refusal.text);
                receiver::run_lane(job, stream, memory, &mut refused);
            }
            _ => return Err(Refusal::new(CloseCode::WrongState, "a data stream in the wrong direction")),
        }
        Ok(())
    }

    /// The session of a data stream; the control stream may still be on its way.
    fn find_session(&self, id: SessionId, deadline: Instant) -> Option<Arc<Session>> {
        let mut sessions = self.sessions.lock().unwrap();
        loop {
            if let Some(session) = sessions.get(&id) {
                return Some(session.clone());
            }
            let left = deadline.checked_duration_since(Instant::now())?;
            sessions = self.changed.wait_timeout(sessions, left).unwrap().0;
        }
    }
}

/// The one attempt at a job that is being opened.
struct Opening<'a> {
    server: &'a Server,
    job: (Pin, JobId),
}

impl Opening<'_> {
    fn begin(server: &Server, job: (Pin, JobId)) -> Opening<'_> {
        let mut opening = server.opening.lock().unwrap();
        while !opening.insert(job) {
            opening = server.opened.wait(opening).unwrap();
        }
        Opening { server, job }
    }
}

impl Drop for Opening<'_> {
    fn drop(&mut self) {
        self.server.opening.lock().unwrap().remove(&self.job);
        self.server.opened.notify_all();
    }
}

/// A session's place among the open ones. It is given back also when its thread panics, and with it go the jobs.
struct Entered<'a> {
    server: &'a Server,
    session: &'a Arc<Session>,
}

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        self.server.sessions.lock().unwrap().remove(&self.session.id);
        self.server.changed.notify_all();
        if std::thread::panicking() {
            self.session.end_jobs(&Ending::Lost("a thread of this program failed; this is a bug".into()));
        }
    }
}

impl Session {
    /// A job, waiting for the message that opens it.
    fn find_job(&self, number: u32, deadline: Instant) -> Option<Arc<Running>> {
        let mut jobs = self.jobs.lock().unwrap();
        loop {
            if let Some(running) = jobs.get(&number) {
                return Some(running.clone());
            }
            let left = deadline.checked_duration_since(Instant::now())?;
            jobs = self.changed.wait_timeout(jobs, left).unwrap().0;
        }
    }
}

pub(super) fn guest_of(session: &Session) -> Result<&Guest, Refusal> {
    session.guest.get().ok_or_else(|| Refusal::new(CloseCode::WrongState, "a session that was not let in"))
}

fn first_frame(stream: &mut DataStream) -> Result<(FrameType, Vec<u8>), Refusal> {
    let lost = |e: std::io::Error| Refusal::new(CloseCode::NoProgress, &format!("no first frame: {e}"));
    let mut head = [0; HEADER_BYTES];
    stream.recv_exact(&mut head).map_err(lost)?;
    let header = FrameHeader::decode(&head)?;
    let known = header.known()?.filter(|t| matches!(t, FrameType::Message | FrameType::Join));
    let frame_type = known.ok_or_else(|| Refusal::new(CloseCode::WrongState, "a stream that begins with data"))?;
    if header.body_bytes as usize > HELLO_BODY_BYTES_MAX {
        return Err(Refusal::new(CloseCode::Limit, "a first frame that is too long"));
    }
    let mut body = vec![0; header.body_bytes as usize];
    stream.recv_exact(&mut body).map_err(lost)?;
    Ok((frame_type, body))
}
