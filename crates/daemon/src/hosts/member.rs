//! A host that belongs to an endpoint which another host heads: it says every few seconds that it is there, and asks who clients are.
//!
//! `head/` below the state directory holds what is known of the head, and the id of the token that was redeemed last.
//!
//! Invariants:
//! - What a client may is what the head's newest answer says. One that the head does not know is unknown here from that answer on, and
//!   all are when the head refuses this host.
//! - An answer counts for `KEPT` while the head is silent. Nobody waits for a head that is known to be silent.
//!
//! Not here: who is let in (`clients`), what the head knows (`book`).

use crate::clients::{Surety, Vouched};
use crate::endpoints::{Endpoint, EndpointBook, Replace};
use crate::enrol::enrol;
use crate::enrolment::Enrolment;
use crate::error::{Error, Result};
use crate::hand_in::Desk;
use crate::host::rights::Rights;
use crate::issue::read_token;
use crate::limited::id_of_credential;
use crate::private_file::{self, Existing};
use crate::time::rfc3339;
use model::name::relative_path;
use model::{Class, Exit, Pin};
use net::Identity;
use std::collections::{BTreeSet, HashMap};
use std::net::ToSocketAddrs;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant, SystemTime};
use tracing::{info, warn};
use wire::Message;
use wire::hosts::DRAINING;
use wire::limits::CLIENTS_ASKED_MAX;
use wire::message::{Attend, ClientRecord, Standing};

const DIRECTORY: &str = "head";
const NAME: &str = "head";
const REDEEMED: &str = "redeemed";
const TOKEN_ID_BYTES_MAX: u64 = 64;
const INTERVAL: Duration = Duration::from_secs(5);
/// For an answer of the head, and for a client who waits for one.
const PATIENCE: Duration = Duration::from_secs(5);
/// What the head said holds for so long while it is silent, and is asked for again for so long after it was last used.
const KEPT: Duration = Duration::from_secs(600);

/// What is known of the head.
pub(crate) struct Joined {
    head: Endpoint,
    identity: Identity,
}

pub(crate) struct Membership {
    joined: Joined,
    addresses: Vec<Vec<u8>>,
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
    is_draining: bool,
}

struct Known {
    vouched: Vouched,
    confirmed: Instant,
    used: Instant,
}

pub fn is_member(state: &Path) -> bool {
    EndpointBook::new(state.join(DIRECTORY)).has(NAME)
}

impl Joined {
    /// What this state directory belongs to, having redeemed a token if that is wanted. Called before the process is confined.
    pub fn of(state: &Path, token: Option<&Path>, identity: &Identity) -> Result<Option<Joined>> {
        let book = EndpointBook::new(state.join(DIRECTORY));
        if let Some(path) = token {
            if super::HostBook::new(state).is_there() {
                return Err(Error::new(Exit::Usage, "this endpoint heads hosts of its own, and cannot join others")
                    .hint("use another --state-dir"));
            }
            let known = book.has(NAME).then(|| book.get(NAME)).transpose()?;
            let kept = state.join(DIRECTORY).join(REDEEMED);
            let redeemed = private_file::read(&kept, TOKEN_ID_BYTES_MAX, false)?;
            match (read_token(path)?, known) {
                (Some(ticket), Some(known)) if ticket.pin != known.pin => {
                    return Err(Error::new(Exit::Usage, "this state directory belongs to a host of another endpoint")
                        .hint("use another --state-dir"));
                }
                // A token is good once, and a service is started with it each time.
                (None, Some(_)) => {}
                (Some(ticket), Some(_)) if redeemed == Some(id_of_credential(&*ticket.credential).into_bytes()) => {}
                (Some(ticket), _) => {
                    enrol(&ticket, NAME, identity, &book, Replace::SameIdentity)?;
                    private_file::write(&kept, id_of_credential(&*ticket.credential).as_bytes(), Existing::Replace)
                        .map_err(|e| Error::of_file("write", &kept, e))?;
                }
                (None, None) => {
                    return Err(Error::new(Exit::Usage, format!("there is no token in {}", crate::error::shown(path)))
                        .hint("make one at the first host: `thalweg host invite NAME --token-file F`"));
                }
            }
        }
        if !book.has(NAME) {
            return Ok(None);
        }
        let mut head = book.get(NAME)?;
        // Names cannot be looked up once the process is confined.
        let numbers: Vec<_> = head.addresses.iter().flat_map(|address| address.to_socket_addrs()).flatten().collect();
        if !numbers.is_empty() {
            head.addresses = numbers.iter().map(ToString::to_string).collect();
        }
        Ok(Some(Joined { head, identity: identity.clone() }))
    }
}

impl Membership {
    /// A thread that lasts as long as what is returned. `addresses` is where clients reach this host, `jobs` how many it has.
    pub fn start(
        joined: Joined,
        addresses: Vec<String>,
        jobs: Box<dyn Fn() -> usize + Send + Sync>,
    ) -> Result<Arc<Membership>> {
        let (state, changed) = Default::default();
        let addresses = addresses.into_iter().map(String::into_bytes).collect();
        let membership = Arc::new(Membership { joined, addresses, jobs, state, changed });
        let weak = Arc::downgrade(&membership);
        let spawned = std::thread::Builder::new().name("attend".into()).spawn(move || attend(&weak));
        spawned.map_err(|e| Error::new(Exit::Failed, format!("start a thread: {e}")))?;
        Ok(membership)
    }

    /// Whom to ask about: those that somebody waits for, and those that were here lately.
    fn due(&self) -> Vec<Pin> {
        let mut state = self.lock();
        let forgotten = |known: &Known| known.used.elapsed() > KEPT || known.confirmed.elapsed() > KEPT;
        state.clients.retain(|_, known| !forgotten(known));
        state.wanted.iter().chain(state.clients.keys()).copied().collect::<BTreeSet<_>>().into_iter().collect()
    }

    fn take(&self, asked: &[Pin], standing: Standing) {
        let mut state = self.lock();
        let told: HashMap<Pin, Vouched> = standing.clients.iter().filter_map(vouched).collect();
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
        let is_draining = standing.state == DRAINING;
        if is_draining != state.is_draining {
            info!(is_draining, "what the head wants of this host has changed");
        }
        (state.is_draining, state.is_silent) = (is_draining, false);
        self.changed.notify_all();
    }

    fn fail(&self, e: &Error) {
        let mut state = self.lock();
        let is_removed = matches!(e.exit, Exit::Authentication | Exit::Refused);
        if !state.is_silent {
            warn!(error = %e, is_removed, "the host that heads this one does not answer as it should");
        }
        state.is_silent = true;
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
}

/// Until nobody has the membership any more.
fn attend(membership: &Weak<Membership>) {
    let mut desk = None;
    let mut next = Instant::now();
    while let Some(this) = membership.upgrade() {
        let is_wanted = {
            let patience = next.saturating_duration_since(Instant::now()).min(Duration::from_millis(500));
            let calm = |state: &mut State| state.wanted.is_empty();
            let waited = this.changed.wait_timeout_while(this.lock(), patience, calm);
            !waited.unwrap_or_else(PoisonError::into_inner).0.wanted.is_empty()
        };
        if !is_wanted && Instant::now() < next {
            continue;
        }
        next = Instant::now() + INTERVAL;
        let due = this.due();
        // One question also where there is nobody to ask about: it says that this host is there.
        let pages = due.chunks(CLIENTS_ASKED_MAX).chain(due.is_empty().then_some(&[][..]));
        for page in pages {
            match ask(&this, &mut desk, page) {
                Ok(standing) => this.take(page, standing),
                Err(e) => {
                    desk = None;
                    this.fail(&e);
                    break;
                }
            }
        }
    }
}

fn ask(this: &Membership, desk: &mut Option<Desk>, pins: &[Pin]) -> Result<Standing> {
    if !desk.as_ref().is_some_and(Desk::is_open) {
        *desk = Some(Desk::open(&this.joined.head, &this.joined.identity)?);
    }
    let desk = desk.as_ref().expect("opened above");
    let asked = Instant::now();
    let attend = |number| {
        let pins = pins.iter().map(|pin| pin.0.to_vec()).collect();
        Message::from(Attend { number, addresses: this.addresses.clone(), jobs: (this.jobs)() as u32, pins })
    };
    let answers = desk.request(attend, &|| asked.elapsed() >= PATIENCE)?;
    let standing = answers.into_iter().find_map(|answer| match answer {
        Message::Standing(standing) => Some(standing),
        _ => None,
    });
    standing.ok_or_else(|| Error::new(Exit::Temporary, "an empty answer"))
}

/// A record that says what it should.
fn vouched(record: &ClientRecord) -> Option<(Pin, Vouched)> {
    let pin = Pin(record.pin[..].try_into().ok()?);
    let rights = Rights {
        may_read: record.may_read,
        may_write: record.may_write,
        is_drop_box: !record.may_read,
        reader: record.may_read.then_some(pin),
        scope: relative_path(&record.path).ok()?,
        class_max: Class::from_number(record.class_max)?,
        may_manage: false,
    };
    let enrolment = Enrolment {
        pin: pin.to_string(),
        name: record.name.clone(),
        enrolled: rfc3339(SystemTime::now()),
        may_write: record.may_write,
        ticket: Some(record.account.clone()),
        credential: None,
    };
    Some((pin, Vouched { enrolment, rights }))
}
