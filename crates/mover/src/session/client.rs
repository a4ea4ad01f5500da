//! The asking side: opens a session, runs jobs on it, keeps as many lanes as the path needs.
//!
//! The first data streams are dialled together with the control stream and the listing is described without waiting
//! for an answer, so that the first payload leaves three round trips after the start (docs/protocol.md section 5).

use super::Session;
use super::answers::Answers;
use super::asking::{Asker, Tuning};
use super::connector::Connector;
use super::control::{ControlOutcome, ControlPort, control_options, run_control};
use super::error::ConnectError;
use super::lanes::Lanes;
use super::pacing::Pacing;
use super::replies::Replies;
use super::roster::{Roster, Who};
use super::running::{Job, NO_BUFFER, Running};
use super::ways;
pub use crate::job::Guide;
use crate::job::{Ending, Observer};
use crate::job_options::{self, options_to_wire};
use crate::limits::{ANSWER_TIMEOUT, CONTROL_SILENCE};
use crate::memory::Memory;
use crate::progress::{Progress, processors};
use crate::receiver::{Asked, Gather, ReceiveJob, ReceiveSpec};
use crate::report::Report;
use crate::sender::SendJob;
use model::options::{Buffer, Wait};
use model::{JobId, Name, Pin, SessionId, TransferOptions};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};
use store::spool::Spool;
use store::{Order, Sink, Source};
use wire::handshake::{Direction, EXPORTER_LABEL, VERSION_MAX, VERSION_MIN, check_welcome, feature};
use wire::message::{self, Hello, Open, Welcome};
use wire::{CloseCode, FrameReader, Message, Refusal};

/// Under whom what several holders bring is kept in staging: all that is left of an earlier attempt is compared before it counts.
pub(crate) const SEVERAL: Pin = Pin(*b"thalweg: several holders, proved");
/// Data streams dialled before the round trip time is known.
const EARLY_STREAMS: u32 = 2;
/// How often a running job looks after its lanes.
const SUPERVISION_INTERVAL: Duration = Duration::from_millis(50);
/// For the threads of a job that did not come to its end to let its staging go.
const LEAVING_PATIENCE: Duration = Duration::from_secs(1);

pub struct ClientOptions {
    pub connector: Arc<dyn Connector>,
    /// Enrols this client's key; empty once it is known there.
    pub credential: Vec<u8>,
    pub tuning: Tuning,
    pub memory: Memory,
}

/// Asked again and again while an answer is waited for: true ends that.
pub type Interrupt<'a> = &'a dyn Fn() -> bool;

pub struct PushSpec {
    pub id: JobId,
    /// Relative to the endpoint's root.
    pub path: Vec<u8>,
    /// One file or link: the path may be its new name.
    pub is_single: bool,
    pub options: TransferOptions,
}

pub struct PullSpec {
    pub id: JobId,
    /// Relative to the endpoint's root.
    pub paths: Vec<Vec<u8>>,
    pub options: TransferOptions,
    pub rename_to: Option<Name>,
    /// The sink takes chunks in order only.
    pub is_sequential: bool,
}

pub struct Client {
    pub(super) shared: Arc<Shared>,
    control: Option<std::thread::JoinHandle<()>>,
    next_job: AtomicU32,
    /// Where its jobs are listed, at an endpoint.
    roster: OnceLock<(Arc<Roster>, Who)>,
    /// Under whom what is received is kept in staging.
    sender: Pin,
    /// Where content waits on this host.
    buffer: OnceLock<(Arc<Spool>, Buffer)>,
}

pub(super) struct Shared {
    pub(super) asker: Arc<Asker>,
    pub(super) session: Arc<Session>,
    /// What the control stream's records are sealed with; the lanes' handshakes have the same choice.
    cipher: String,
    pub(super) answers: Answers,
    pub(super) replies: Replies,
    pub(super) state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
pub(super) struct State {
    /// The session is over, and why.
    pub(super) ended: Option<Ending>,
    pub(super) refused: Option<Refusal>,
}

impl Client {
    /// Reaches the endpoint and says hello. The answer is waited for when it is needed.
    pub fn connect(options: ClientOptions) -> Result<Client, ConnectError> {
        let early: Vec<_> = (0..options.tuning.streams.unwrap_or(EARLY_STREAMS).min(EARLY_STREAMS))
            .map(|stream| {
                let connector = options.connector.clone();
                let place = stream as usize % connector.paths().len();
                let dial = move || Some((place, connector.connect(&connector.paths()[place]).ok()?));
                std::thread::Builder::new().name("dial".into()).spawn(dial)
            })
            // Without threads there are no early connections; the lanes dial then.
            .filter_map(Result::ok)
            .collect();
        let connection = options.connector.connect(&options.connector.paths()[0]).map_err(ConnectError::Net)?;
        let ends = (connection.local_addr(), connection.peer_addr());
        let id = SessionId(net::random_bytes());
        let (peer, cipher) = (connection.peer_pin(), connection.cipher_note());
        let exporter = connection.export(EXPORTER_LABEL, &id.0);
        let lost = |e: std::io::Error| ConnectError::Lost(e.to_string());
        let (control, stream) = connection.into_control(control_options()).map_err(lost)?;
        let hello = Hello {
            version_min: VERSION_MIN,
            version_max: VERSION_MAX,
            features: feature::ALL,
            session: id.0.to_vec(),
            agent: super::AGENT.into(),
            credential: options.credential.clone(),
            processors: processors(),
        };
        let _ = control.send(message::encode(hello));
        let aborter = stream.aborter();
        let session = Session::new(id, peer, control, exporter);
        let ClientOptions { connector, tuning, memory, .. } = options;
        session.is_congestion_chosen.store(connector.congestion().is_some(), Relaxed);
        let asker = Asker::new(connector, tuning, memory, session.clone(), ends);
        if asker.takes_more_paths() && asker.tuning.paths.is_explicit() {
            ways::ask(&asker);
        }
        let shared = Arc::new(Shared {
            asker: Arc::new(asker),
            session,
            cipher,
            answers: Answers::default(),
            replies: Replies::default(),
            state: Mutex::default(),
            changed: Condvar::new(),
        });
        shared.session.watch_control(aborter);
        let for_thread = shared.clone();
        let run = move || for_thread.run(stream);
        let control = std::thread::Builder::new().name("control".into()).spawn(run).map_err(lost)?;
        let mut held = shared.asker.early.lock().unwrap();
        held.extend(early.into_iter().filter_map(|dialled| dialled.join().ok().flatten()));
        drop(held);
        let sender = shared.session.peer;
        Ok(Client {
            shared,
            control: Some(control),
            next_job: AtomicU32::new(1),
            roster: OnceLock::new(),
            sender,
            buffer: OnceLock::new(),
        })
    }

    /// Keeps what is received under another identity than the key of the session: that of whoever has a new key each time, and
    /// is known by other means.
    pub fn receiving_from(mut self, sender: Pin) -> Client {
        self.sender = sender;
        self
    }

    /// Lists the jobs that begin from here on among those of this endpoint, in the name of `who`.
    pub fn list_in(&self, roster: Arc<Roster>, who: Who) {
        let _ = self.roster.set((roster, who));
    }

    /// Lets the content of its jobs wait on this host: before the network what they send, before storage what they receive.
    pub fn buffer_in(&self, spool: Arc<Spool>, how: Buffer) {
        let _ = self.buffer.set((spool, how));
    }

    /// The key of the endpoint.
    pub fn peer(&self) -> Pin {
        self.shared.session.peer
    }

    /// The shortest so far; zero where it is not known, as through a connection of ssh.
    pub fn round_trip(&self) -> Duration {
        Duration::from_micros(self.shared.session.rtt_us())
    }

    /// The endpoint's answer to the hello.
    pub fn welcome(&self) -> Result<Welcome, ConnectError> {
        let deadline = Instant::now() + ANSWER_TIMEOUT;
        let mut state = self.shared.state.lock().unwrap();
        loop {
            if let Some(refusal) = &state.refused {
                return Err(ConnectError::Refused(refusal.clone()));
            }
            if let Some(welcome) = self.shared.asker.welcome.get() {
                return Ok(welcome.clone());
            }
            if let Some(ending) = &state.ended {
                return Err(ConnectError::Lost(ending.to_string()));
            }
            let Some(left) = deadline.checked_duration_since(Instant::now()) else {
                return Err(ConnectError::Lost("no answer to the greeting".into()));
            };
            state = self.shared.changed.wait_timeout(state, left).unwrap().0;
        }
    }

    /// How long a job may stand still before it is given up, while the endpoint answers; 15 minutes by default.
    pub fn set_no_progress_timeout(&self, timeout: Duration) {
        self.shared.session.set_no_progress_timeout(timeout);
    }

    /// Whether the endpoint has a feature, a bit of `wire::handshake::feature`.
    pub fn knows(&self, feature: u64) -> Result<bool, ConnectError> {
        Ok(self.welcome()?.features & feature != 0)
    }

    /// How many abilities of this program the endpoint does not have.
    pub fn features_lacking(&self) -> Result<u32, ConnectError> {
        Ok((feature::ALL & !self.welcome()?.features).count_ones())
    }

    /// Sends `source` to the endpoint and waits for the end.
    pub fn push(
        &self,
        spec: PushSpec,
        source: Arc<dyn Source>,
        progress: Arc<Progress>,
        observer: Option<Arc<dyn Observer>>,
        guide: &dyn Guide,
    ) -> Report {
        let number = self.next_job.fetch_add(1, Relaxed);
        let is_sequential = source.facts().order != Order::Any;
        let port = Arc::new(ControlPort(self.shared.session.control.clone()));
        let job = SendJob::new(number, spec.options.clone(), source, port, progress.clone(), observer);
        job.charge_to(self.shared.asker.memory.clone());
        if let Some((spool, how)) = self.buffer.get() {
            job.read_ahead_in(spool.clone(), *how);
        }
        let running = self.shared.session.add_job(number, Job::Send(job.clone()));
        self.enlist(spec.id, &running, number);
        Pacing::new(&spec.options).update(&self.shared.session, number, &running, guide.pace(&spec.options).as_deref());
        let open = Open {
            job: number,
            job_id: spec.id.0.to_vec(),
            direction: Direction::ClientSends as u32,
            paths: vec![spec.path],
            options: Some(options_to_wire(&job_options::for_receiver(&spec.options))),
            is_single: spec.is_single,
            is_sequential,
        };
        self.open(&running, open);
        job.start();
        self.supervise(number, running, &spec.options, is_sequential, &progress, guide)
    }

    /// Receives from the endpoint into `sink` and waits for the end.
    ///
    /// # Errors
    /// When the destination cannot be used.
    pub fn pull(
        &self,
        spec: PullSpec,
        sink: Arc<dyn Sink>,
        progress: Arc<Progress>,
        observer: Option<Arc<dyn Observer>>,
        guide: &dyn Guide,
    ) -> store::Result<Report> {
        self.pull_among(spec, sink, progress, observer, guide, None)
    }

    /// The same, `among` several holders of the same: with its number, the lead's being the first. What others than the lead bring
    /// goes where the lead's job puts it; their own sink is not written to.
    ///
    /// # Errors
    /// When the destination cannot be used.
    pub fn pull_among(
        &self,
        spec: PullSpec,
        sink: Arc<dyn Sink>,
        progress: Arc<Progress>,
        observer: Option<Arc<dyn Observer>>,
        guide: &dyn Guide,
        among: Option<(&Arc<Gather>, usize)>,
    ) -> store::Result<Report> {
        let number = self.next_job.fetch_add(1, Relaxed);
        let port = Arc::new(ControlPort(self.shared.session.control.clone()));
        let receive = ReceiveSpec {
            number,
            id: spec.id,
            sender: if among.is_some() { SEVERAL } else { self.sender },
            options: spec.options.clone(),
            rename_to: spec.rename_to.clone(),
        };
        let job = ReceiveJob::new(receive, sink, port, progress.clone(), observer)?;
        let is_sequential = spec.is_sequential || job.facts.order != Order::Any;
        if let Some((gather, holder)) = among {
            job.take_place(gather, holder);
        }
        job.hold_to(Asked::of(&spec.paths, spec.options.selection_at_source()));
        job.charge_to(self.shared.asker.memory.clone());
        if let Some((spool, how)) =
            self.buffer.get().filter(|_| !spec.options.is_dry_run && !is_sequential && among.is_none())
        {
            job.wait_in(spool.clone(), *how);
        }
        job.owes_answer(true);
        let running = self.shared.session.add_job(number, Job::Receive(job.clone()));
        self.enlist(spec.id, &running, number);
        let open = Open {
            job: number,
            job_id: spec.id.0.to_vec(),
            direction: Direction::ServerSends as u32,
            paths: spec.paths,
            options: Some(options_to_wire(&job_options::for_sender(&spec.options))),
            is_single: false,
            is_sequential,
        };
        self.open(&running, open);
        // Before the first request for content: nothing leaves faster.
        Pacing::new(&spec.options).update(&self.shared.session, number, &running, guide.pace(&spec.options).as_deref());
        job.start();
        let presence = job.presence();
        drop(job);
        let report = self.supervise(number, running, &spec.options, is_sequential, &progress, guide);
        // The next attempt, or the end of the program, is not to meet its staging.
        if !matches!(report.ending, Ending::Finished(_)) {
            let deadline = Instant::now() + LEAVING_PATIENCE;
            while presence.strong_count() > 0 && Instant::now() < deadline {
                std::thread::sleep(Duration::from_millis(2));
            }
        }
        Ok(report)
    }

    fn enlist(&self, job: JobId, running: &Arc<Running>, number: u32) {
        if let Some((roster, who)) = self.roster.get() {
            self.shared.session.list_job(roster, Who { job, ..who.clone() }, running, number);
        }
    }

    /// Asks for a job. What no endpoint could take ends the job here, and not the session there.
    fn open(&self, running: &Running, open: Open) {
        let frame = message::encode(open);
        match message::fits(&frame) {
            Ok(()) => _ = self.shared.session.control.send(frame),
            Err(refusal) => {
                let advice = "use fewer sources, filter rules or listed paths in one command";
                let text = format!("the job does not fit into one message ({}); {advice}", refusal.text);
                running.job.cancel(CloseCode::Limit, &text);
            }
        }
    }

    /// Looks after a job until it ends: lanes, interruption, facts for the report.
    fn supervise(
        &self,
        number: u32,
        running: Arc<Running>,
        options: &TransferOptions,
        is_sequential: bool,
        progress: &Arc<Progress>,
        guide: &dyn Guide,
    ) -> Report {
        let mut lanes = Lanes::new(self.shared.asker.clone(), running.clone(), number, is_sequential);
        let mut pacing = Pacing::new(options);
        let ending = loop {
            if let Some(ending) = lanes.ending(SUPERVISION_INTERVAL) {
                break ending;
            }
            if guide.is_over() {
                running.job.cancel(CloseCode::Cancelled, "interrupted");
            }
            lanes.maintain();
            pacing.update(&self.shared.session, number, &running, guide.pace(options).as_deref());
            if let Job::Send(job) = &running.job {
                *job.progress.stream_facts.lock().unwrap() = running.watch.facts();
            }
            if let Some(ending) = &self.shared.state.lock().unwrap().ended {
                running.job.stop(ending.clone());
            }
            if lanes.is_control_silent() {
                let seconds = CONTROL_SILENCE.as_secs();
                let why = format!(
                    "nothing was heard on the control stream's path for {seconds} s while another carried data"
                );
                running.job.stop(Ending::Lost(why));
            }
        };
        if matches!(ending, Ending::Lost(_)) {
            lanes.note_standby();
        }
        if matches!(ending, Ending::Finished(_)) {
            lanes.wait(Duration::from_secs(2));
        }
        {
            let mut facts = progress.stream_facts.lock().unwrap();
            if matches!(running.job, Job::Send(_)) {
                *facts = running.watch.facts();
            }
            // A short job is over before its streams were looked at.
            facts.rtt_us_min = if facts.rtt_us_min > 0 { facts.rtt_us_min } else { self.shared.session.rtt_us() };
        }
        running.watch.abort();
        self.shared.session.remove_job(number);
        let is_sender = matches!(running.job, Job::Send(_));
        let mut report = Report::new(progress, ending, options.clone(), is_sender);
        report.streams = lanes.started_max;
        report.paths = lanes.reports();
        report.tuning = lanes.logs();
        let computed = [
            format!("cipher: {}", self.shared.cipher),
            format!("digest: {} by {}", options.digest, options.digest.implementation()),
        ];
        report.notes.splice(..0, lanes.notes().into_iter().chain(computed));
        report
    }

    /// Ends the session in order.
    pub fn close(mut self) {
        self.shared.session.leave();
        if let Some(control) = self.control.take() {
            let _ = control.join();
        }
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.shared.session.control.abort();
    }
}

impl Shared {
    fn run(&self, stream: net::ControlStream) {
        let mut reader = FrameReader::new();
        reader.authenticated();
        let failed = "a thread of this program failed; this is a bug";
        let mut ongoing = Ongoing { shared: self, ending: Ending::Lost(failed.into()) };
        ongoing.ending = match run_control(&self.session, stream, reader, &mut |message| self.answer(message)) {
            ControlOutcome::Closed(refusal) => {
                self.state.lock().unwrap().refused.get_or_insert(refusal.clone());
                Ending::Cancelled { by_peer: true, refusal }
            }
            ControlOutcome::Refused(refusal) => Ending::Cancelled { by_peer: false, refusal },
            ControlOutcome::Lost(why) => Ending::Lost(why),
        };
    }

    /// What the endpoint says of the session and of opening jobs.
    fn answer(&self, message: Message) -> Result<(), Refusal> {
        let message = match message {
            Message::Records(batch) => return self.answers.records(batch),
            Message::Answered(answered) => return self.answers.answered(&answered),
            Message::OrderTaken(_)
            | Message::OrderNews(_)
            | Message::OrderEvents(_)
            | Message::OrderEnded(_)
            | Message::Hosts(_)
            | Message::Standing(_)
            | Message::Terms(_) => {
                return self.replies.take(message);
            }
            message => message,
        };
        match message {
            Message::Welcome(welcome) => {
                check_welcome(&welcome)?;
                let features = welcome.features;
                // Under the lock, so that whoever waits for it does not miss it.
                let held = self.state.lock().unwrap();
                if self.asker.welcome.set(welcome).is_err() {
                    return Err(Refusal::new(CloseCode::WrongState, "a second welcome"));
                }
                drop(held);
                self.session.agree_on(features);
            }
            Message::Addresses(addresses) => self.asker.take_addresses(addresses)?,
            // Nothing waits for the rest of it: what an accepted job brings tells the same.
            Message::Accept(accept) => {
                let running = self.session.jobs.lock().unwrap().get(&accept.job).cloned();
                match running.map(|running| running.job.clone()) {
                    Some(Job::Send(job)) => {
                        if job.options.wait == Wait::Buffered && accept.buffer_bytes == 0 {
                            job.cancel(CloseCode::Forbidden, NO_BUFFER);
                        }
                        job.is_taken(accept.takes_whole);
                    }
                    Some(Job::Receive(job)) => job.owes_answer(false),
                    None => {}
                }
            }
            Message::Reject(reject) => {
                let running = self.session.jobs.lock().unwrap().get(&reject.job).cloned();
                if let Some(running) = running {
                    let refusal = Refusal::new(CloseCode::from_number(reject.code), &reject.text);
                    running.job.stop(Ending::Cancelled { by_peer: true, refusal });
                }
            }
            _ => return Err(Refusal::new(CloseCode::WrongState, "a message that only a client sends")),
        }
        self.changed.notify_all();
        Ok(())
    }
}

/// A session until it is over. Whoever waits for something of it hears of its end, also when its thread panics.
struct Ongoing<'a> {
    shared: &'a Shared,
    ending: Ending,
}

impl Drop for Ongoing<'_> {
    fn drop(&mut self) {
        let Shared { session, answers, replies, state, changed, .. } = self.shared;
        state.lock().unwrap_or_else(PoisonError::into_inner).ended = Some(self.ending.clone());
        session.end_jobs(&self.ending);
        answers.close();
        replies.close();
        changed.notify_all();
    }
}
