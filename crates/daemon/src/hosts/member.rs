//! A host that is one of several: it says every few seconds that it is there, and asks who clients are. Whom it asks is a `Head`: another
//! host (`head`), or a coordinator that all of them share (`shared`).
//!
//! Invariants:
//! - What a client may is what the head's newest answer says. One that the head does not know is unknown here from that answer on, and
//!   all are when the head refuses this host.
//! - Silence is no answer: who is not known here while the head is silent may be a client, and is told to try again.
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
use tracing::{debug, info, warn};
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
    /// Asked about, and not answered, whether or not somebody still waits for it.
    wanted: BTreeSet<Pin>,
    /// The head did not answer when it was last asked, or has been asked for too long.
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

impl State {
    /// Nobody waits for an answer that may come before the next round.
    fn is_calm(&self) -> bool {
        (self.wanted.is_empty() || self.is_silent) && self.hosts_told >= self.hosts_asked
    }
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
    ///
    /// # Errors
    /// Where this one is told of them, and was never told.
    pub fn hosts(&self) -> Refused<Option<Vec<HostRecord>>> {
        if self.enroller.is_none() {
            return Ok(None);
        }
        let mut state = self.lock();
        if !state.is_silent {
            state.hosts_asked += 1;
            let asked = state.hosts_asked;
            self.changed.notify_all();
            let waits = |state: &mut State| state.hosts_told < asked;
            let waited = self.changed.wait_timeout_while(state, PATIENCE, waits);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        state.hosts.clone().map(Some).ok_or_else(|| Refusal::new(CloseCode::Busy, SILENT))
    }

    /// Whom to ask about: those that somebody waits for and, in a round, those that were here lately.
    fn due(&self, is_round: bool) -> Vec<Pin> {
        let mut state = self.lock();
        let mut due: Vec<Pin> = state.wanted.iter().copied().collect();
        if is_round {
            let forgotten = |known: &Known| known.used.elapsed() > KEPT || known.confirmed.elapsed() > KEPT;
            state.clients.retain(|_, known| !forgotten(known));
            due.extend(state.clients.keys().filter(|pin| !state.wanted.contains(*pin)));
        }
        due
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
        let what = "whoever this host asks about its clients does not answer as it should";
        match state.is_silent && state.is_removed == is_removed {
            true => debug!(error = %e, is_removed, "{what}"),
            false => warn!(error = %e, is_removed, "{what}"),
        }
        (state.is_silent, state.is_removed) = (true, is_removed);
        if is_removed {
            // That is an answer, about all of them.
            state.wanted.clear();
            state.clients.clear();
        }
        self.changed.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Surety for Membership {
    fn vouch(&self, pin: Pin) -> Refused<Option<Vouched>> {
        let mut state = self.lock();
        if let Some(known) = state.clients.get_mut(&pin).filter(|known| known.confirmed.elapsed() <= KEPT) {
            known.used = Instant::now();
            return Ok(Some(known.vouched.clone()));
        }
        if state.is_removed {
            return Ok(None);
        }
        let silent = || Refusal::new(CloseCode::Internal, SILENT);
        if state.is_silent || state.wanted.len() >= CLIENTS_ASKED_MAX {
            return Err(silent());
        }
        state.wanted.insert(pin);
        self.changed.notify_all();
        // A round may be under way, which began without this one.
        let waits = |state: &mut State| state.wanted.contains(&pin) && !state.is_silent;
        let waited = self.changed.wait_timeout_while(state, 2 * PATIENCE, waits);
        let (mut state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        if !state.wanted.contains(&pin) {
            return Ok(state.clients.get(&pin).map(|known| known.vouched.clone()));
        }
        if !state.is_silent {
            warn!("whoever this host asks about its clients takes too long to answer");
            state.is_silent = true;
            self.changed.notify_all();
        }
        Err(silent())
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
    "this host cannot ask at this moment who its endpoint's clients are, and lets in only those seen here lately";

const GONE: &str = "this host does not belong to its endpoint any more; another host of it lets clients in";

/// Until nobody has the membership any more.
fn attend(membership: &Weak<Membership>, mut head: Box<dyn Head>) {
    let mut next = Instant::now();
    while let Some(this) = membership.upgrade() {
        let is_wanted = {
            let patience = next.saturating_duration_since(Instant::now()).min(Duration::from_millis(500));
            let waited = this.changed.wait_timeout_while(this.lock(), patience, |state| state.is_calm());
            !waited.unwrap_or_else(PoisonError::into_inner).0.is_calm()
        };
        // Between two rounds a newcomer costs one question, however many are known.
        let is_round = Instant::now() >= next;
        if is_round {
            next = Instant::now() + INTERVAL;
        } else if !is_wanted {
            continue;
        }
        let due = this.due(is_round);
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

#[cfg(test)]
mod tests {
    use super::*;
    use model::Class;

    const PIN: Pin = Pin([1; 32]);

    /// One whose head is this test.
    fn membership() -> Membership {
        let (state, changed) = Default::default();
        Membership { enroller: None, jobs: Box::new(|| 0), state, changed }
    }

    fn vouched(pin: Pin) -> (Pin, Vouched) {
        let enrolment = Enrolment {
            pin: pin.to_string(),
            name: "n".into(),
            enrolled: "2026-01-01T00:00:00Z".into(),
            may_write: true,
            ticket: None,
            credential: None,
            manages_by: None,
        };
        let rights = Rights {
            may_read: true,
            may_write: true,
            is_drop_box: false,
            reader: Some(pin),
            scope: Vec::new(),
            class_max: Class::High,
            may_manage: false,
        };
        (pin, Vouched { enrolment, rights })
    }

    fn heard(clients: Vec<(Pin, Vouched)>) -> Heard {
        Heard { is_draining: false, clients, hosts: None }
    }

    fn silent() -> Error {
        Error::new(Exit::Temporary, "nobody answers")
    }

    /// What becomes of a client who asks to be let in, and waits until `answer` has come.
    fn asked(membership: &Membership, answer: impl FnOnce()) -> Refused<Option<Vouched>> {
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| membership.vouch(PIN));
            while !membership.lock().wanted.contains(&PIN) {
                std::thread::park_timeout(Duration::from_millis(1));
            }
            answer();
            waiting.join().unwrap()
        })
    }

    #[test]
    fn silence_denies_nobody_and_an_answer_that_does_not_name_a_client_does() {
        let membership = membership();
        let refused = asked(&membership, || membership.fail(&silent())).unwrap_err();
        assert_eq!(refused.code, CloseCode::Internal);
        // Nobody waits, and it is asked about all the same.
        assert_eq!(membership.vouch(PIN).unwrap_err().code, CloseCode::Internal);
        assert_eq!(membership.due(false), [PIN]);
        membership.take(&[PIN], heard(vec![]));
        assert!(asked(&membership, || membership.take(&[PIN], heard(vec![]))).unwrap().is_none());
        assert!(asked(&membership, || membership.take(&[PIN], heard(vec![vouched(PIN)]))).unwrap().is_some());
        // Whom it knows it lets in while nobody answers, and nobody once it is no host any more.
        membership.fail(&silent());
        assert!(membership.vouch(PIN).unwrap().is_some());
        membership.fail(&Error::new(Exit::Authentication, "no host of this endpoint"));
        assert!(membership.vouch(PIN).unwrap().is_none());
    }

    #[test]
    fn one_for_whom_there_is_no_place_is_told_to_try_again() {
        let membership = membership();
        membership.lock().wanted = (1..=CLIENTS_ASKED_MAX as u8).map(|n| Pin([n; 32])).collect();
        assert_eq!(membership.vouch(Pin([255; 32])).unwrap_err().code, CloseCode::Internal);
    }

    #[test]
    fn a_newcomer_costs_one_question_however_many_are_known() {
        let membership = membership();
        let known: Vec<Pin> = (1..=200).map(|n| Pin([n; 32])).collect();
        membership.take(&known, heard(known.iter().map(|pin| vouched(*pin)).collect()));
        let newcomer = Pin([255; 32]);
        membership.lock().wanted.insert(newcomer);
        assert_eq!(membership.due(false), [newcomer]);
        let round = membership.due(true);
        assert_eq!((round.len(), round[0]), (201, newcomer));
    }

    #[test]
    fn a_host_that_was_never_told_of_the_others_does_not_say_that_there_are_none() {
        let enroller: Box<Enroller> = Box::new(|_, _, _| Err(Refusal::new(CloseCode::Busy, "")));
        let membership = Membership { enroller: Some(enroller), ..membership() };
        membership.fail(&silent());
        assert_eq!(membership.hosts().unwrap_err().code, CloseCode::Busy);
        membership.take(&[], Heard { hosts: Some(Vec::new()), ..heard(vec![]) });
        membership.fail(&silent());
        assert_eq!(membership.hosts().unwrap(), Some(Vec::new()));
    }
}
