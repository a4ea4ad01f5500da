//! The other holders of what is pulled, while an attempt runs: a session with each, on a thread of its own.
//!
//! Invariants:
//! - No holder holds up the copy: whoever cannot be reached, fails or does not end in time is left behind.
//! - A holder that was lost is tried again as long as the copy runs; one that is refused or not to be trusted is not.
//!
//! Not here: who brings what (`mover::receiver::Gather`), and who leads (`route`).

use crate::connect::ConnectOptions;
use crate::control::Control;
use crate::error::{Error, Kind};
use crate::listed::Listed;
use crate::peer::{Peer, Use, Way};
use crate::route::Replica;
use model::files::{Found, Question};
use model::name::Escaped;
use model::set::Catalogue;
use model::synthetic::is_synthetic;
use model::{FailureKind, Fidelity};
use mover::receiver::{Gather, Tally};
use mover::session::{Client, PullSpec, Standby};
use mover::{CloseCode, Ending, Progress};
use net::Identity;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};
use store::synthetic::NullSink;

/// What a holder may take to end in order, once the copy is complete.
const END_PATIENCE: Duration = Duration::from_secs(3);
/// For a holder that is asked whether it has anything at all.
const LOOK_PATIENCE: Duration = Duration::from_secs(1);
const PAUSE_FIRST: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_secs(30);

/// How a session with a holder is opened.
pub type Connecting<'a> = Box<dyn Fn(&dyn Peer) -> ConnectOptions + 'a>;

/// The attempt that the others help.
pub struct Leading<'a> {
    pub identity: &'a Identity,
    pub memory_bytes: usize,
    pub control: &'a Arc<Control>,
    pub connect_options: Connecting<'a>,
}

pub struct Others {
    pub gather: Arc<Gather>,
    /// What the first one is called.
    lead: String,
    over: Arc<Over>,
    threads: Vec<(String, Option<JoinHandle<()>>)>,
}

/// Whether the copy is over, and since when.
#[derive(Default)]
struct Over {
    is_over: AtomicBool,
    since: Mutex<Option<Instant>>,
}

struct Holder {
    number: usize,
    peer: Arc<dyn Peer>,
    spec: PullSpec,
    identity: Identity,
    options: ConnectOptions,
    memory_bytes: usize,
    control: Arc<Control>,
    gather: Arc<Gather>,
    over: Arc<Over>,
    /// It is a catalogue that leads, not another holder.
    is_of_list: bool,
}

impl Others {
    /// Starts a thread for each; they wait for the lead's job, which `spec` is of.
    pub fn start(attempt: &Leading<'_>, lead: &str, replicas: &[Replica], spec: &PullSpec) -> Others {
        let paths = spec.paths.iter().cloned().chain(replicas.iter().map(|replica| replica.path.clone()));
        let gather = Gather::new(&spec.options, paths.collect());
        Others::bring(attempt, lead, replicas, spec, gather)
    }

    /// The same where a catalogue leads.
    pub fn of_list(attempt: &Leading<'_>, holders: &[Replica], spec: &PullSpec, catalogue: &Arc<Catalogue>) -> Others {
        let paths = holders.iter().map(|holder| holder.path.clone()).collect();
        let gather = Gather::of_list(&spec.options, paths, Arc::new(Listed(catalogue.clone())));
        Others::bring(attempt, "", holders, spec, gather)
    }

    fn bring(attempt: &Leading<'_>, lead: &str, replicas: &[Replica], spec: &PullSpec, gather: Arc<Gather>) -> Others {
        let over = Arc::<Over>::default();
        let mut threads = Vec::new();
        for (at, Replica { peer, path }) in replicas.iter().enumerate() {
            let mut options = spec.options.clone();
            // What is kept besides content, and what is removed, is the lead's matter.
            options.fidelity = Fidelity::default();
            (options.deletion, options.tells_changes, options.backup) = (None, false, None);
            if !peer.is_endpoint() {
                options.congestion = None;
            }
            let mut connect = (attempt.connect_options)(&**peer);
            connect.tuning.standby = Arc::<Standby>::default();
            let holder = Holder {
                number: at + 1,
                peer: peer.clone(),
                spec: PullSpec {
                    id: spec.id,
                    paths: vec![path.clone()],
                    options,
                    rename_to: None,
                    is_sequential: false,
                },
                identity: attempt.identity.clone(),
                options: connect,
                memory_bytes: attempt.memory_bytes,
                control: attempt.control.clone(),
                gather: gather.clone(),
                over: over.clone(),
                is_of_list: lead.is_empty(),
            };
            // One endpoint may have it in several directories.
            let is_same = |other: &&Replica| other.peer.name() == peer.name();
            let name = match lead != peer.name() && replicas.iter().filter(is_same).count() == 1 {
                true => peer.name().to_owned(),
                false => format!("{}:{}", peer.name(), Escaped(path)),
            };
            let thread = Builder::new().name("holder".into()).spawn(move || holder.run());
            if let Err(e) = &thread {
                gather.gone(at + 1, &format!("no thread for it: {e}"), true);
            }
            threads.push((name, thread.ok()));
        }
        Others { gather, lead: lead.to_owned(), over, threads }
    }

    /// The copy is over: gives the others time to end in order. Returns what came of each, and why the lead is not to be trusted.
    pub fn end(self) -> (Vec<(String, Tally)>, Option<Error>) {
        self.over.set();
        let deadline = Instant::now() + END_PATIENCE + Duration::from_secs(1);
        let is_running = |thread: &JoinHandle<()>| !thread.is_finished();
        while Instant::now() < deadline && self.threads.iter().filter_map(|(_, thread)| thread.as_ref()).any(is_running)
        {
            std::thread::sleep(Duration::from_millis(5));
        }
        let outvoted = self.gather.outvoted().map(|why| {
            let lead = Escaped(self.lead.as_bytes());
            let text = format!("{why}: {lead} differs from the others");
            Error::new(Kind::Integrity, lead.to_string(), text)
                .advice("find out which of them is right (`thalweg check A B`), and name that one first; what was delivered is the first one's")
        });
        let names = std::iter::once(self.lead).chain(self.threads.into_iter().map(|(name, _)| name));
        (names.zip(self.gather.tallies()).collect(), outvoted)
    }
}

impl Over {
    fn set(&self) {
        *self.since.lock().unwrap() = Some(Instant::now());
        self.is_over.store(true, Relaxed);
    }

    fn is_late(&self) -> bool {
        self.since.lock().unwrap().is_some_and(|since| since.elapsed() >= END_PATIENCE)
    }
}

impl Holder {
    fn is_over(&self) -> bool {
        self.over.is_over.load(Relaxed) || self.control.is_stopped()
    }

    fn run(self) {
        let mut pause = PAUSE_FIRST;
        while !self.is_over() {
            let started = Instant::now();
            let Err((why, is_for_good)) = self.once() else { return };
            if self.is_over() {
                return;
            }
            self.gather.gone(self.number, &why, is_for_good);
            if is_for_good {
                return;
            }
            pause = if started.elapsed() > PAUSE_MAX { PAUSE_FIRST } else { (2 * pause).min(PAUSE_MAX) };
            let until = Instant::now() + pause;
            while Instant::now() < until && !self.is_over() {
                std::thread::sleep(Duration::from_millis(20));
            }
        }
    }

    /// One session. An error says why it ended, and whether it is pointless to try again.
    fn once(&self) -> Result<(), (String, bool)> {
        let connected = self.peer.connect(&Use {
            way: Way::Pull,
            paths: &self.spec.paths,
            identity: &self.identity,
            options: &self.options,
            memory_bytes: self.memory_bytes,
            is_stopped: &|| self.is_over(),
        });
        let is_passing = |e: &Error| matches!(e.kind, Kind::Temporary | Kind::Unreachable);
        let client = connected.map_err(|e| (e.text.clone(), !is_passing(&e)))?;
        if let Some(why) = self.missing(&client) {
            // That holds though the copy may be over.
            self.gather.gone(self.number, &why, true);
            client.close();
            return Ok(());
        }
        while !self.gather.has_lead(Duration::from_millis(50)) {
            if self.is_over() {
                client.close();
                return Ok(());
            }
        }
        let PullSpec { id, paths, options, .. } = &self.spec;
        let (paths, options) = (paths.clone(), options.clone());
        let spec = PullSpec { id: *id, paths, options, rename_to: None, is_sequential: false };
        let guide = || self.control.is_stopped() || self.over.is_late();
        let among = Some((&self.gather, self.number));
        let pulled = client.pull_among(spec, Arc::new(NullSink), Progress::new(), None, &guide, among);
        client.close();
        match pulled.map(|report| report.ending) {
            Ok(Ending::Finished(_)) => Ok(()),
            Ok(Ending::Lost(why)) => Err((format!("the connection was lost: {}", Escaped(why.as_bytes())), false)),
            Ok(Ending::Cancelled { by_peer: true, refusal }) => {
                let refused = self.peer.refused(&refusal);
                Err((refused.text.clone(), !is_passing(&refused)))
            }
            // What this side ended the session for: by its book, or because the other one broke the protocol.
            Ok(Ending::Cancelled { refusal, .. }) => {
                let is_by_book = refusal.code == CloseCode::Cancelled;
                Err((refusal.text, !is_by_book || self.gather.is_dropped(self.number)))
            }
            Err(e) => Err((e.to_string(), true)),
        }
    }

    /// Why nothing is to be had there: a copy may be over before a holder is asked for anything. What comes otherwise than by
    /// a path that can be listed is not looked for.
    fn missing(&self, client: &Client) -> Option<String> {
        let path = &self.spec.paths[0];
        if self.is_of_list || is_synthetic(path) {
            return None;
        }
        let question = Question::List { paths: vec![path.clone()], levels: 0, digest: None };
        let asked = Instant::now();
        let is_enough = || self.control.is_stopped() || self.over.is_late() || asked.elapsed() >= LOOK_PATIENCE;
        let mut is_missing = false;
        // Whoever does not answer says it when the copy comes to it.
        let _ = client.ask(&question, &is_enough, &mut |record| {
            is_missing |= matches!(record.found, Found::Failed { kind: FailureKind::NotFound, .. });
            true
        });
        is_missing.then(|| format!("{}: no such file or directory", Escaped(path)))
    }
}
