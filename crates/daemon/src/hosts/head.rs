//! The head of an endpoint as a host of it asks it, by messages over a session.
//!
//! `head/` below the state directory holds what is known of the head, and the id of the token that was redeemed last.
//!
//! Not here: what becomes of the answers (`member`), what the head knows (`book`).

use super::member::{Head, Heard, PATIENCE};
use crate::clients::Vouched;
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
use std::net::ToSocketAddrs;
use std::path::Path;
use std::time::{Instant, SystemTime};
use wire::Message;
use wire::hosts::DRAINING;
use wire::message::{Attend, ClientRecord, Standing};

const DIRECTORY: &str = "head";
const NAME: &str = "head";
const REDEEMED: &str = "redeemed";
const TOKEN_ID_BYTES_MAX: u64 = 64;

/// What is known of the head.
pub(crate) struct Joined {
    head: Endpoint,
    identity: Identity,
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

/// A session with the head, opened again whenever it has ended.
pub(crate) struct Attendant {
    joined: Joined,
    addresses: Vec<Vec<u8>>,
    desk: Option<Desk>,
}

impl Attendant {
    pub fn new(joined: Joined, addresses: &[String]) -> Attendant {
        let addresses = addresses.iter().map(|address| address.clone().into_bytes()).collect();
        Attendant { joined, addresses, desk: None }
    }

    fn ask(&mut self, jobs: u32, pins: &[Pin]) -> Result<Standing> {
        if !self.desk.as_ref().is_some_and(Desk::is_open) {
            self.desk = Some(Desk::open(&self.joined.head, &self.joined.identity)?);
        }
        let desk = self.desk.as_ref().expect("opened above");
        let asked = Instant::now();
        let attend = |number| {
            let pins = pins.iter().map(|pin| pin.0.to_vec()).collect();
            Message::from(Attend { number, addresses: self.addresses.clone(), jobs, pins })
        };
        let answers = desk.request(attend, &|| asked.elapsed() >= PATIENCE)?;
        let standing = answers.into_iter().find_map(|answer| match answer {
            Message::Standing(standing) => Some(standing),
            _ => None,
        });
        standing.ok_or_else(|| Error::new(Exit::Temporary, "an empty answer"))
    }
}

impl Head for Attendant {
    fn attend(&mut self, jobs: u32, pins: &[Pin]) -> Result<Heard> {
        let standing = self.ask(jobs, pins).inspect_err(|_| self.desk = None)?;
        let clients = standing.clients.iter().filter_map(vouched).collect();
        Ok(Heard { is_draining: standing.state == DRAINING, clients, hosts: None })
    }
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
        manages_by: None,
    };
    Some((pin, Vouched { enrolment, rights }))
}
