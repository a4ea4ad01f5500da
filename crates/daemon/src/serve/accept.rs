//! Accepts connections, gives each a thread, and turns away whom the gate or the server does not want.

use crate::error::{Error, Result};
use crate::gate::Pass;
use crate::host::EndpointHost;
use crate::refusals::{self, RefusalLog};
use mover::session::Server;
use mover::shares::Holder;
use net::{Listener, Lobby, ServerTls, accept_tls};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tracing::{debug, error};
use wire::{CloseCode, Refusal};

/// Connections that have not said anything: they cost a descriptor each.
const SILENT_MAX: usize = 512;
const SILENT_PATIENCE: Duration = Duration::from_secs(10);
/// From the first byte to the end of the TLS handshake.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

pub struct Acceptor {
    shared: Arc<Shared>,
}

struct Shared {
    tls: ServerTls,
    server: Arc<Server>,
    host: Arc<EndpointHost>,
    refused: RefusalLog,
}

impl Acceptor {
    pub fn new(tls: ServerTls, server: Arc<Server>, host: Arc<EndpointHost>) -> Acceptor {
        Acceptor { shared: Arc::new(Shared { tls, server, host, refused: RefusalLog::default() }) }
    }

    /// Accepts until the listener is stopped.
    ///
    /// # Errors
    /// When the listener is broken for good.
    pub fn run(&self, listener: Listener) -> Result<()> {
        let mut lobby = Lobby::new(listener, SILENT_MAX, SILENT_PATIENCE);
        loop {
            match lobby.next_speaking() {
                Ok(Some((tcp, peer))) => self.welcome(tcp, peer),
                Ok(None) => return Ok(()),
                Err(e) => {
                    error!(error = %e, "no more connections can be accepted");
                    return Err(Error::from_net("serve", &e));
                }
            }
        }
    }

    fn welcome(&self, tcp: TcpStream, peer: SocketAddr) {
        let shared = self.shared.clone();
        let arrived = Instant::now();
        let pass = match shared.host.gate.enter(&tcp, peer) {
            Ok(pass) => pass,
            Err(full) => return shared.refused.note("full", peer, &full),
        };
        let spawned = std::thread::Builder::new()
            .name("connection".into())
            .spawn(move || shared.attend(tcp, peer, pass, arrived));
        if let Err(e) = spawned {
            self.shared.refused.note("no-thread", peer, &e);
        }
    }
}

impl Shared {
    /// Serves one connection until it ends.
    fn attend(&self, tcp: TcpStream, peer: SocketAddr, mut pass: Pass, arrived: Instant) {
        if matches!(tcp.peek(&mut [0]), Ok(0)) {
            // Somebody looked whether the port is open, as `doctor` and load balancers do.
            return tracing::debug!(%peer, "a connection ended before it said anything");
        }
        let connection = match accept_tls(tcp, &self.tls, Instant::now() + HANDSHAKE_TIMEOUT) {
            Ok(connection) => connection,
            Err(e) => return self.refused.note(refusals::of_handshake(&e.kind), peer, &e),
        };
        let pin = connection.peer_pin();
        let account = self.host.account(pin);
        if let Err(full) = self.host.gate.identified(&mut pass, pin, account.as_deref()) {
            self.refused.note("full", peer, &full);
            return Server::turn_away(connection, &Refusal::new(CloseCode::Busy, &format!("{full}; try again later")));
        }
        // Strangers are few; what those who are known hold is charged to them.
        let charged = account.map(|account| {
            let holder = Holder { client: account.into(), key: pin, name: pin.to_string().into() };
            self.server.seat_connection(&holder)
        });
        let _permit = match charged.transpose() {
            Ok(permit) => permit,
            Err(refusal) => {
                self.refused.note("full", peer, &refusal);
                return Server::turn_away(connection, &refusal);
            }
        };
        // Asked after the gate knows the key: whoever enrols it meanwhile admits this connection too.
        if let Some(account) = self.host.account(pin) {
            self.host.gate.admit(pin, &account);
        }
        match self.server.serve(connection, arrived) {
            Ok(()) => {}
            // A client that ends early leaves streams behind that it never used.
            Err(refusal) if refusal.code == CloseCode::NoProgress && self.host.clients.knows(pin) => {
                debug!(%peer, %pin, why = %refusal, "connection not used");
            }
            Err(refusal) => self.refused.note(refusals::of_session(refusal.code), peer, &refusal),
        }
    }
}
