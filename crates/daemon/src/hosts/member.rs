//! A host that is one of several: it says every few seconds that it is there, and asks who clients are. Whom it asks is a `Head`: another
//! host (`head`), or a coordinator that all of them share (`shared`).
//!
//! Invariants:
//! - What a client may is what the head's newest answer says. One that the head does not know is unknown here from that answer on, and
//!   all are when the head refuses this host.
//! - An answer counts for `KEPT` while the head is silent. Nobody waits for a head that is known to be silent.
//!
//! Not here: who is let in (`clients`), how the head is asked.

use crate::clients::{Refused, Surety, Vouched};
use crate::enrolment::Enrolment;
use crate::error::{Error, Result};
use crate::host::rights::Rights;
use model::{Exit, Pin};
use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};
use tracing::{info, warn};
use wire::limits::CLIENTS_ASKED_MAX;
use wire::message::HostRecord;
use wire::{CloseCode, Refusal};

const INTERVAL: Duration = Duration::from_secs(5);
/// For an answer of the head, and for a client who waits for one.
pub(super) const PATIENCE: Duration = Duration::from_secs(5);
/// What the head said holds for so long while it is silent, and is asked for again for so long after it was last used.
const KEPT: Duration = Duration::from_secs(600);

/// Whom a host asks.
pub(crate) trait Head: Send {
    /// Says that this host is there with so many jobs; hears what becomes of it, and what these clients may.
    ///
    /// # Errors
    /// `Authentication` or `Refused` where this is no host any more.
    fn attend(&mut self, jobs: u32, pins: &[Pin]) -> Result<Heard>;
}

pub(crate) struct Heard {
    pub is_draining: bool,
    /// Of those asked about, the ones that may something.
    pub clients: Vec<(Pin, Vouched)>,
    /// All hosts, where this one tells clients of them itself.
    pub hosts: Option<Vec<HostRecord>>,
}

/// Lets a newcomer in for all hosts.
pub(crate) type Enroller = dyn Fn(Pin, &[u8], String) -> Refused<(Enrolment, Rights)> + Send + Sync;

pub(crate) struct Membership {
    enroller: Option<Box<Enroller>>,
    jobs: Box<dyn Fn() -> usize + Send + Sync>,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    clients: HashMap<Pin, Known>,
    /// Asked about, and not answered.
    wanted: BTreeSet<Pin>,
    /// The head did not answer when it was last asked.
    is_silent: bool,
    /// It said that this is none of its hosts any more.
    is_removed: bool,
    is_draining: bool,
    hosts: Option<Vec<HostRecord>>,
    /// How often the hosts were asked for, and up to which time the head was asked since.
    hosts_asked: u64,
    hosts_told: u64,
}

struct Known {
    vouched: Vouched,
    confirmed: Instant,
    used: Instant,
}

impl Membership {
    /// A thread that lasts as long as what is returned. `jobs` is how many this host has.
    pub fn start(
        head: Box<dyn Head>,
        enroller: Option<Box<Enroller>>,
        jobs: Box<dyn Fn() -> usize + Send + Sync>,
    ) -> Result<Arc<Membership>> {
        let (state, changed) = Default::default();
        let membership = Arc::new(Membership { enroller, jobs, state, changed });
        let weak = Arc::downgrade(&membership);
        let spawned = std::thread::Builder::new().name("attend".into()).spawn(move || attend(&weak, head));
        spawned.map_err(|e| Error::new(Exit::Failed, format!("start a thread: {e}")))?;
        Ok(membership)
    }

    /// The hosts, where this one is told of them: as they are now, or as they were when whoever tells them did not answer any more.
    pub fn hosts(&self) -> Option<Vec<HostRecord>> {
        self.enroller.as_ref()?;
        let mut state = self.lock();
        if !state.is_silent {
            state.hosts_asked += 1;
            let asked = state.hosts_asked;
            self.changed.notify_all();
            let waits = |state: &mut State| state.hosts_told < asked;
            let waited = self.changed.wait_timeout_while(state, PATIENCE, waits);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        Some(state.hosts.clone().unwrap_or_default())
    }

    /// Whom to ask about: those that somebody waits for, and those that were here lately.
    fn due(&self) -> Vec<Pin> {
        let mut state = self.lock();
        let forgotten = |known: &Known| known.used.elapsed() > KEPT || known.confirmed.elapsed() > KEPT;
        state.clients.retain(|_, known| !forgotten(known));
        state.wanted.iter().chain(state.clients.keys()).copied().collect::<BTreeSet<_>>().into_iter().collect()
    }

    fn take(&self, asked: &[Pin], heard: Heard) {
        let mut state = self.lock();
        let told: HashMap<Pin, Vouched> = heard.clients.into_iter().collect();
        for pin in asked {
            state.wanted.remove(pin);
            match told.get(pin) {
                None => _ = state.clients.remove(pin),
                Some(vouched) => {
                    let used = state.clients.get(pin).map_or_else(Instant::now, |known| known.used);
                    let known = Known { vouched: vouched.clone(), confirmed: Instant::now(), used };
                    state.clients.insert(*pin, known);
                }
            }
        }
        if heard.is_draining != state.is_draining {
            info!(is_draining = heard.is_draining, "what the head wants of this host has changed");
        }
        if state.is_silent {
            info!("the head answers again");
        }
        (state.is_draining, state.is_silent, state.is_removed) = (heard.is_draining, false, false);
        if heard.hosts.is_some() {
            state.hosts = heard.hosts;
        }
        self.changed.notify_all();
    }

    fn fail(&self, e: &Error) {
        let mut state = self.lock();
        let is_removed = matches!(e.exit, Exit::Authentication | Exit::Refused);
        if !state.is_silent {
            warn!(error = %e, is_removed, "whoever this host asks about its clients does not answer as it should");
        }
        (state.is_silent, state.is_removed) = (true, is_removed);
        state.wanted.clear();
        if is_removed {
            state.clients.clear();
        }
        self.changed.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Surety for Membership {
    fn vouch(&self, pin: Pin) -> Option<Vouched> {
        let mut state = self.lock();
        if let Some(known) = state.clients.get_mut(&pin).filter(|known| known.confirmed.elapsed() <= KEPT) {
            known.used = Instant::now();
            return Some(known.vouched.clone());
        }
        if state.is_silent || state.wanted.len() >= CLIENTS_ASKED_MAX {
            return None;
        }
        state.wanted.insert(pin);
        self.changed.notify_all();
        let waits = |state: &mut State| state.wanted.contains(&pin);
        let waited = self.changed.wait_timeout_while(state, PATIENCE, waits);
        let (mut state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        state.wanted.remove(&pin);
        state.clients.get(&pin).map(|known| known.vouched.clone())
    }

    fn knows(&self, pin: Pin) -> Option<Vouched> {
        self.lock().clients.get(&pin).map(|known| known.vouched.clone())
    }

    fn enrol(&self, pin: Pin, credential: &[u8], name: &dyn Fn() -> String) -> Option<Refused<(Enrolment, Rights)>> {
        let enroller = self.enroller.as_ref()?;
        let (is_silent, is_removed) = {
            let state = self.lock();
            (state.is_silent, state.is_removed)
        };
        if is_removed {
            return Some(Err(Refusal::new(CloseCode::Authentication, GONE)));
        }
        if is_silent {
            let known = self.knows(pin).map(|known| Ok((known.enrolment, known.rights)));
            return known.or_else(|| Some(Err(Refusal::new(CloseCode::Busy, SILENT))));
        }
        let enrolled = enroller(pin, credential, name());
        if let Ok((enrolment, rights)) = &enrolled {
            let vouched = Vouched { enrolment: enrolment.clone(), rights: rights.clone() };
            let known = Known { vouched, confirmed: Instant::now(), used: Instant::now() };
            self.lock().clients.insert(pin, known);
        }
        Some(enrolled)
    }
}

const SILENT: &str =
    "the hosts of this endpoint cannot reach what they keep their clients in; nobody new is let in until then";

const GONE: &str = "this host does not belong to its endpoint any more; another host of it lets clients in";

/// Until nobody has the membership any more.
fn attend(membership: &Weak<Membership>, mut head: Box<dyn Head>) {
    let mut next = Instant::now();
    while let Some(this) = membership.upgrade() {
        let is_wanted = {
            let patience = next.saturating_duration_since(Instant::now()).min(Duration::from_millis(500));
            let is_calm = |state: &State| state.wanted.is_empty() && state.hosts_told >= state.hosts_asked;
            let waited = this.changed.wait_timeout_while(this.lock(), patience, |state| is_calm(state));
            !is_calm(&waited.unwrap_or_else(PoisonError::into_inner).0)
        };
        if !is_wanted && Instant::now() < next {
            continue;
        }
        next = Instant::now() + INTERVAL;
        let due = this.due();
        let hosts_asked = this.lock().hosts_asked;
        // One question also where there is nobody to ask about: it says that this host is there.
        let pages = due.chunks(CLIENTS_ASKED_MAX).chain(due.is_empty().then_some(&[][..]));
        for page in pages {
            match head.attend((this.jobs)() as u32, page) {
                Ok(heard) => this.take(page, heard),
                Err(e) => {
                    this.fail(&e);
                    break;
                }
            }
        }
        this.lock().hosts_told = hosts_asked;
        this.changed.notify_all();
    }
}
