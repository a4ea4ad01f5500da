//! Redeeming a ticket: the endpoint learns this client's key, this client writes the endpoint down.

use crate::endpoints::{Endpoint, EndpointBook, Replace};
use crate::error::Result;
use crate::ticket::Ticket;
use crate::time::rfc3339;
use mover::session::Tuning;
use net::Identity;
use std::time::SystemTime;
use transfer::{ConnectOptions, Reach};

/// What came of it.
#[derive(Clone, Debug)]
pub struct Enrolled {
    pub endpoint: Endpoint,
    /// The address that answered; it is the first of the endpoint's.
    pub address: String,
    /// What the endpoint calls itself.
    pub own_name: String,
    pub is_read_only: bool,
}

/// Dials the ticket's addresses, waits until the endpoint has let this client in, and only then adds it as `name`.
pub fn enrol(
    ticket: &Ticket,
    name: &str,
    identity: &Identity,
    book: &EndpointBook,
    replace: Replace,
) -> Result<Enrolled> {
    book.may_add(name, ticket.pin, replace)?;
    let options =
        ConnectOptions { tuning: Tuning { streams: Some(0), ..Tuning::default() }, ..ConnectOptions::default() };
    let credential = ticket.credential.to_vec();
    let reach = Reach { name, pin: ticket.pin, credential, identity, options: &options };
    let (welcome, address) = reach.first(&ticket.addresses, |client| {
        let welcome = client.welcome()?;
        client.close();
        Ok(welcome)
    })?;
    let mut addresses = ticket.addresses.clone();
    addresses.retain(|other| *other != address);
    addresses.insert(0, address.clone());
    let endpoint = Endpoint { name: name.to_owned(), addresses, pin: ticket.pin, added: rfc3339(SystemTime::now()) };
    book.add(&endpoint, replace)?;
    let own_name = model::name::Escaped(welcome.name.as_bytes()).to_string();
    Ok(Enrolled { endpoint, address, own_name, is_read_only: welcome.is_read_only })
}
