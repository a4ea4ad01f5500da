//! The answering side: authenticates, has opened what its host allows (`opening`), and lends its threads to the lanes.
//!
//! Before a peer is authenticated it may hold one thread, one frame of at most 4 KiB and ten seconds.

use super::arrivals::Arrivals;
use super::attempts::Attempts;
use super::control::{ControlOutcome, control_options, run_control};
use super::drains::Drains;
use super::host::{Grant, Host};
use super::running::{Job, Running, give_way, watch_stream};
use super::seats::Rooms;
use super::{Session, addresses, congestion, join_proof};
use crate::job::Ending;
use crate::limits::{JOIN_TIMEOUT, NO_PROGRESS_TIMEOUT};
use crate::memory::Memory;
use crate::progress::processors;
use crate::receiver;
use crate::sender;
use model::{Pin, SessionId};
use net::{Connection, DataStream};
use std::collections::{HashMap, VecDeque};
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};
use wire::frame::{FrameHeader, HEADER_BYTES};
use wire::handshake::{Direction, EXPORTER_LABEL, Join, negotiate};
use wire::limits::{ADDRESS_ASKS_MAX, HELLO_BODY_BYTES_MAX, STREAMS_MAX};
use wire::message::{self, AskAddresses, Hello, Welcome};
use wire::{CloseCode, FrameReader, FrameType, Message, Refusal};

/// From accept to the end of the first frame.
const FIRST_FRAME_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a connection that is turned away may take to say what it wanted.
const TURN_AWAY_PATIENCE: Duration = Duration::from_secs(1);
/// So many sessions that ended are remembered: a stream of one of them is late, and not a stranger's.
const ENDED_KEPT: usize = 1024;

pub struct Server {
    pub(super) host: Arc<dyn Host>,
    pub(super) memory: Memory,
    pub(super) rooms: Rooms,
    pub(super) sessions: Mutex<HashMap<SessionId, Arc<Session>>>,
    ended: Mutex<VecDeque<SessionId>>,
    changed: Condvar,
    pub(super) attempts: Attempts,
    no_progress_timeout: Mutex<Duration>,
    is_congestion_chosen: AtomicBool,
    pub(super) drains: Drains,
    pub(super) arrivals: Arc<Arrivals>,
}

impl Server {
    pub fn new(host: Arc<dyn Host>, memory: Memory) -> Arc<Server> {
        Arc::new(Server {
            host,
            memory,
            rooms: Rooms::default(),
            sessions: Mutex::default(),
            ended: Mutex::default(),
            changed: Condvar::new(),
            attempts: Attempts::default(),
            no_progress_timeout: Mutex::new(NO_PROGRESS_TIMEOUT),
            is_congestion_chosen: AtomicBool::new(false),
            drains: Drains::default(),
            arrivals: Arc::default(),
        })
    }

    /// For sessions that open from here on: how long a job may stand still before it is given up.
    pub fn set_no_progress_timeout(&self, timeout: Duration) {
        *self.no_progress_timeout.lock().unwrap() = timeout;
    }

    /// The congestion control of the accepted connections was chosen by somebody: their streams keep it.
    pub fn keep_congestion(&self) {
        self.is_congestion_chosen.store(true, Relaxed);
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
        self.drains.stop();
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

    /// Says to the peer of a connection why it is not served.
    pub fn turn_away(connection: Connection, refusal: &Refusal) {
        let mut stream = connection.into_data();
        stream.set_deadline(Some(Instant::now() + TURN_AWAY_PATIENCE));
        let _ = stream.send(&[&message::encode(close_of(refusal))]);
        let _ = stream.close();
        // What the peer says first is taken, for otherwise its kernel would drop what it was told.
        let _ = stream.recv(&mut [0; 512]);
    }

    fn open_session(
        self: &Arc<Server>,
        mut stream: DataStream,
        mut hello: Hello,
        peer: Pin,
        arrived: Instant,
    ) -> Result<(), Refusal> {
        let greeted = self.greet(&hello, peer);
        hello.forget_credential();
        let (id, grant, version, features) = match greeted {
            Ok(greeted) => greeted,
            Err(refusal) => {
                let _ = stream.send(&[&message::encode(close_of(&refusal))]);
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
        session.is_congestion_chosen.store(self.is_congestion_chosen.load(Relaxed), Relaxed);
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
            Message::AskAddresses(asked) => self.tell_addresses(session, &asked)?,
            Message::Order(_)
            | Message::OrderSteer(_)
            | Message::OrderAsk(_)
            | Message::Revoke(_)
            | Message::AskHosts(_)
            | Message::Attend(_)
            | Message::AskTerms(_) => {
                self.request(session, grant, message);
            }
            _ => return Err(Refusal::new(CloseCode::WrongState, "a message that only an endpoint sends")),
        }
        Ok(())
    }

    /// Where this endpoint can be reached, for a client that looks for more paths.
    fn tell_addresses(&self, session: &Session, asked: &AskAddresses) -> Result<(), Refusal> {
        if session.address_asks.fetch_add(1, Relaxed) >= ADDRESS_ASKS_MAX {
            return Err(Refusal::new(CloseCode::Limit, "addresses are asked for again and again"));
        }
        let _ = session.control.send(message::encode(addresses::told(self.host.addresses(), asked)));
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

    /// Checks a data stream's claim to a session and runs its lane.
    fn join(self: &Arc<Server>, stream: DataStream, join: Join) -> Result<(), Refusal> {
        let deadline = Instant::now() + JOIN_TIMEOUT;
        let session = self.find_session(join.session, deadline)?;
        let proof = join_proof(&session.exporter, &join, &stream.export(EXPORTER_LABEL, &session.id.0));
        if !net::constant_time_eq(&proof, &join.proof) || stream.peer_pin() != session.peer {
            return Err(unknown());
        }
        let running = session.find_job(join.job, deadline)?;
        let memory = &session.guest()?.memory;
        if running.watch.count() >= STREAMS_MAX as usize {
            return Err(Refusal::new(CloseCode::Busy, "the job has as many streams as it may have"));
        }
        let way = running.watch.way_between(stream.local_addr().ip(), stream.peer_addr().ip());
        watch_stream(&running, stream.aborter(), way);
        if running.watch.has_several_ways() {
            net::numa::stay_near(stream.local_addr().ip());
        }
        give_way(&running.job, &stream.aborter());
        // If the job ends from here on, this stream is found and stopped; if it ended before, the stream is refused here.
        if running.job.is_ended() {
            return Err(late());
        }
        match (&running.job, join.direction) {
            (Job::Send(job), Direction::ServerSends) => {
                if way > 0 {
                    job.use_several_paths();
                }
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
    fn find_session(&self, id: SessionId, deadline: Instant) -> Result<Arc<Session>, Refusal> {
        let mut sessions = self.sessions.lock().unwrap();
        loop {
            if let Some(session) = sessions.get(&id) {
                return Ok(session.clone());
            }
            if self.ended.lock().unwrap().contains(&id) {
                return Err(late());
            }
            let left = deadline.checked_duration_since(Instant::now()).ok_or_else(unknown)?;
            sessions = self.changed.wait_timeout(sessions, left).unwrap().0;
        }
    }
}

/// A session's place among the open ones. It is given back also when its thread panics, and with it go the jobs.
struct Entered<'a> {
    server: &'a Server,
    session: &'a Arc<Session>,
}

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        let mut sessions = self.server.sessions.lock().unwrap();
        sessions.remove(&self.session.id);
        let mut ended = self.server.ended.lock().unwrap();
        ended.push_back(self.session.id);
        if ended.len() > ENDED_KEPT {
            ended.pop_front();
        }
        drop((ended, sessions));
        self.server.changed.notify_all();
        if std::thread::panicking() {
            self.session.end_jobs(&Ending::Lost("a thread of this program failed; this is a bug".into()));
        }
    }
}

impl Session {
    /// A job, waiting for the message that opens it.
    fn find_job(&self, number: u32, deadline: Instant) -> Result<Arc<Running>, Refusal> {
        let mut jobs = self.jobs.lock().unwrap();
        loop {
            if let Some(running) = jobs.get(&number) {
                return Ok(running.clone());
            }
            if self.openings.is_past(number) {
                return Err(late());
            }
            let left = deadline.checked_duration_since(Instant::now()).ok_or_else(unknown)?;
            jobs = self.changed.wait_timeout(jobs, left).unwrap().0;
        }
    }
}

fn unknown() -> Refusal {
    Refusal::new(CloseCode::Authentication, "a data stream that belongs to no session")
}

/// A client goes on dialling while its job ends.
fn late() -> Refusal {
    Refusal::new(CloseCode::NoProgress, "a data stream of a job that has ended")
}

fn close_of(refusal: &Refusal) -> message::Close {
    message::Close { code: refusal.code as u32, text: refusal.text.clone() }
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
