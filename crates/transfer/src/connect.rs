//! Reaching an endpoint: its addresses one after the other, its identity checked, every failure explained.

use crate::error::{Error, Kind, Result};
use crate::paths::beginnings;
use model::Pin;
use mover::Memory;
use mover::session::{Client, ClientOptions, ConnectError, Connector, Direct, Tuning};
use net::{DialOptions, Identity};
use std::sync::Arc;

/// How to reach an endpoint; the defaults choose everything.
#[derive(Clone, Default)]
pub struct ConnectOptions {
    /// Congestion control by the kernel's name.
    pub congestion: Option<String>,
    pub tuning: Tuning,
    /// Shared by all sessions of the process.
    pub memory: Memory,
}

impl ConnectOptions {
    fn over(&self, connector: Arc<dyn Connector>, credential: Vec<u8>) -> ClientOptions {
        ClientOptions { connector, credential, tuning: self.tuning.clone(), memory: self.memory.clone() }
    }
}

/// Opens a session with the peer that a connector reaches, called `name`; `options.congestion` is the connector's matter.
pub fn connect_over(name: &str, connector: Arc<dyn Connector>, options: &ConnectOptions) -> Result<Client> {
    Client::connect(options.over(connector, Vec::new())).map_err(|e| Error::from_connect(name, &e))
}

/// An endpoint to be reached at one of several addresses.
pub struct Reach<'a> {
    pub name: &'a str,
    pub pin: Pin,
    /// Enrols this side's key; empty once it is known there.
    pub credential: Vec<u8>,
    pub identity: &'a Identity,
    pub options: &'a ConnectOptions,
}

impl Reach<'_> {
    /// Opens a session at the first address that answers. The answer to the greeting is not waited for: a refusal shows when the
    /// first job ends (`Error::from_refusal`), or in `Client::welcome`.
    pub fn connect(&self, addresses: &[String]) -> Result<Client> {
        self.first(addresses, Ok).map(|(client, _)| client)
    }

    /// Connects to the first address that answers and passes `check`; tells which it was.
    ///
    /// A wrong identity at one address does not end the search: private addresses of the endpoint's network may belong to
    /// someone else in this one. The most telling failure is reported.
    pub fn first<T>(
        &self,
        addresses: &[String],
        mut check: impl FnMut(Client) -> std::result::Result<T, ConnectError>,
    ) -> Result<(T, String)> {
        let mut dial = DialOptions::new(self.identity, self.pin).map_err(|e| Error::from_net(self.name, &e))?;
        dial.congestion = self.options.congestion.clone();
        let mut failure: Option<(u8, Error)> = None;
        let beginnings = beginnings(&self.options.tuning, addresses).map_err(|e| Error::request(e.text, e.advice))?;
        for paths in beginnings {
            let address = paths[0].remote.clone();
            let direct = Arc::new(Direct::over(paths, dial.clone()));
            let client = Client::connect(self.options.over(direct, self.credential.clone()));
            let error = match client.and_then(&mut check) {
                Ok(found) => return Ok((found, address)),
                Err(error) => error,
            };
            let rank = rank(&error);
            if failure.as_ref().is_none_or(|(known, _)| rank > *known) {
                failure = Some((rank, Error::from_connect(self.name, &error)));
            }
            if matches!(error, ConnectError::Refused(_)) {
                // The endpoint itself has answered; it would say the same at its other addresses.
                break;
            }
        }
        let nowhere = || Error::new(Kind::Unreachable, self.name, format!("{} has no address", self.name));
        Err(failure.map_or_else(nowhere, |(_, error)| error))
    }
}

/// How much a failure says about the endpoint, rather than about one address.
fn rank(error: &ConnectError) -> u8 {
    match error {
        ConnectError::Refused(_) => 4,
        ConnectError::Net(e) if matches!(e.kind, net::ErrorKind::IdentityChanged { .. }) => 3,
        ConnectError::Lost(_) => 2,
        ConnectError::Net(e) if !e.kind.is_transient() => 1,
        ConnectError::Net(_) => 0,
    }
}
