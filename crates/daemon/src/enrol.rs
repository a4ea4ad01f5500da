//! Redeeming a ticket: the endpoint learns this client's key, this client writes the endpoint down.

use crate::endpoints::{Endpoint, EndpointBook, Replace};
use crate::error::Error;
use crate::hosts::known;
use crate::ticket::Ticket;
use crate::time::rfc3339;
use mover::session::{Client, ConnectError, Tuning};
use net::Identity;
use std::time::{Duration, Instant, SystemTime};
use transfer::{ConnectOptions, Reach};
use wire::handshake::feature;
use wire::message::{AskHosts, HostRecord};
use zeroize::Zeroize;

const HOSTS_PATIENCE: Duration = Duration::from_secs(5);

/// What came of it.
#[derive(Clone, Debug)]
pub struct Enrolled {
    pub endpoint: Endpoint,
    /// The address that answered; it is the first of the endpoint's.
    pub address: String,
    /// What the endpoint calls itself.
    pub own_name: String,
    pub is_read_only: bool,
    /// Hosts that it has; none where it is one.
    pub hosts: usize,
}

/// Dials the ticket's addresses, waits until the endpoint has let this client in, and only then adds it as `name`.
pub fn enrol(
    ticket: &Ticket,
    name: &str,
    identity: &Identity,
    book: &EndpointBook,
    replace: Replace,
) -> Result<Enrolled, Error> {
    book.may_add(name, ticket.pin, replace)?;
    let options =
        ConnectOptions { tuning: Tuning { streams: Some(0), ..Tuning::default() }, ..ConnectOptions::default() };
    let credential = ticket.credential.to_vec();
    let mut reach = Reach { name, pin: ticket.pin, credential, identity, options: &options };
    let enrolled = reach.first(&ticket.addresses, |client| {
        let welcome = client.welcome()?;
        let hosts = hosts_at(&client)?;
        client.close();
        Ok((welcome, hosts))
    });
    reach.credential.zeroize();
    let ((welcome, hosts), address) = enrolled?;
    let mut addresses = ticket.addresses.clone();
    addresses.retain(|other| *other != address);
    addresses.insert(0, address.clone());
    let endpoint = Endpoint { name: name.to_owned(), addresses, pin: ticket.pin, added: rfc3339(SystemTime::now()) };
    book.add(&endpoint, replace)?;
    known::remember(book, &endpoint, &hosts)?;
    let own_name = model::name::Escaped(welcome.name.as_bytes()).to_string();
    Ok(Enrolled { endpoint, address, own_name, is_read_only: welcome.is_read_only, hosts: hosts.len() })
}

/// The hosts that the endpoint has; none where it does not answer in time.
fn hosts_at(client: &Client) -> Result<Vec<HostRecord>, ConnectError> {
    if !client.knows(feature::HOSTS)? {
        return Ok(Vec::new());
    }
    let asked = Instant::now();
    let answers = client.request(|number| AskHosts { number }.into(), &|| asked.elapsed() >= HOSTS_PATIENCE);
    Ok(answers.map_or_else(|_| Vec::new(), |(answers, _)| known::of(answers)))
}
