//! The head of an endpoint as a host of it asks it, by messages over a session.
//!
//! `head/` below the state directory holds what is known of the head, and the id of the token that was redeemed last.
//!
//! Invariant: that this is no host any more is said by whoever has the head's key, and by nobody who answers in its place.
//!
//! Not here: what becomes of the answers (`member`), what the head knows (`book`).

use super::member::{Head, Heard, PATIENCE};
use crate::clients::Vouched;
use crate::endpoints::{Endpoint, EndpointBook, Replace};
use crate::enrol::enrol;
use crate::enrolment::Enrolment;
use crate::error::{Error, Result};
use crate::host::rights::Rights;
use crate::issue::read_token;
use crate::limited::id_of_credential;
use crate::private_file::{self, Existing};
use crate::time::rfc3339;
use model::name::relative_path;
use model::{Class, Exit, Pin};
use mover::session::{AskError, Client, ConnectError, Tuning};
use net::Identity;
use std::net::ToSocketAddrs;
use std::path::Path;
use std::time::{Instant, SystemTime};
use transfer::ConnectOptions;
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
    client: Option<Client>,
}

impl Attendant {
    pub fn new(joined: Joined, addresses: &[String]) -> Attendant {
        let addresses = addresses.iter().map(|address| address.clone().into_bytes()).collect();
        Attendant { joined, addresses, client: None }
    }

    fn ask(&mut self, jobs: u32, pins: &[Pin]) -> Result<Standing> {
        let client = match self.client.take().filter(Client::is_open) {
            Some(client) => client,
            None => self.connect()?,
        };
        let asked = Instant::now();
        let attend = |number| {
            let pins = pins.iter().map(|pin| pin.0.to_vec()).collect();
            Message::from(Attend { number, addresses: self.addresses.clone(), jobs, pins })
        };
        let (answers, _) = client.request(attend, &|| asked.elapsed() >= PATIENCE).map_err(|e| of_ask(&e))?;
        let standing = answers.into_iter().find_map(|answer| match answer {
            Message::Standing(standing) => Some(standing),
            _ => None,
        });
        let standing = standing.ok_or_else(|| Error::new(Exit::Temporary, "an empty answer"))?;
        self.client = Some(client);
        Ok(standing)
    }

    fn connect(&self) -> Result<Client> {
        let options =
            ConnectOptions { tuning: Tuning { streams: Some(0), ..Tuning::default() }, ..ConnectOptions::default() };
        let client = crate::connect(&self.joined.head, &self.joined.identity, &options).map_err(passing)?;
        client.welcome().map_err(|e| of_connect(&e))?;
        Ok(client)
    }
}

impl Head for Attendant {
    fn attend(&mut self, jobs: u32, pins: &[Pin]) -> Result<Heard> {
        let standing = self.ask(jobs, pins)?;
        let clients = standing.clients.iter().filter_map(vouched).collect();
        Ok(Heard { is_draining: standing.state == DRAINING, clients, hosts: None })
    }
}

/// Nothing that the head has said: it is asked again.
fn passing(e: Error) -> Error {
    Error { exit: Exit::Temporary, ..e }
}

fn of_connect(e: &ConnectError) -> Error {
    let error = Error::from_connect(NAME, e);
    if matches!(e, ConnectError::Refused(_)) { error } else { passing(error) }
}

fn of_ask(e: &AskError) -> Error {
    match e {
        AskError::Connect(e) => of_connect(e),
        AskError::Refused(refusal) => Error::from_refusal(NAME, refusal),
        AskError::Lost(_) => Error::new(Exit::Temporary, format!("{NAME}: {e}")),
        AskError::Interrupted(_) => Error::new(Exit::Temporary, format!("{NAME} does not answer in time")),
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

#[cfg(test)]
mod tests {
    use super::*;
    use net::ErrorKind;
    use wire::{CloseCode, Refusal};

    #[test]
    fn only_what_the_head_itself_says_is_its_word() {
        let changed = ErrorKind::IdentityChanged { expected: Pin([1; 32]), found: Pin([2; 32]) };
        for kind in [changed, ErrorKind::HandshakeInvalid, ErrorKind::IdentityExposed { mode: 0o644 }] {
            let e = net::Error { kind, operation: "connect to", subject: "192.0.2.1:1".into(), source: None };
            let of_dialling = Error::from_net(NAME, &e);
            assert_ne!(of_dialling.exit, Exit::Temporary);
            let passing = [passing(of_dialling), of_connect(&ConnectError::Net(e))];
            assert_eq!(passing.map(|e| e.exit), [Exit::Temporary; 2]);
        }
        let refused = || Refusal::new(CloseCode::Authentication, "no host of this endpoint");
        let said = [of_connect(&ConnectError::Refused(refused())), of_ask(&AskError::Refused(refused()))];
        assert_eq!(said.map(|e| e.exit), [Exit::Authentication; 2]);
    }
}
