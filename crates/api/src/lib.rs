//! The hub's interface over HTTP, `/api/v1`: on a UNIX socket, for those whom the kernel names, and on a port with TLS.
//!
//! `connections` accepts, `certificate` proves who the hub is, `gate` lets a request in by what `table` says of it, `asking` and
//! `sessions` know who asks, `bodies` has room for what is sent, `requests` how long it took. `routes` and its neighbours answer, `problem` is how a refusal reads, `follow` the stream of events,
//! `samples` what is drawn, `console` the pages for browsers.
//! docs/hub.md lists the routes. tokio is here and nowhere else; the hub's blocking calls run on its threads for such.
//!
//! Invariants: what is answered comes from `hub::Hub`, which decides what somebody may see; a body, a head and the number of those
//! who ask at once are bounded; an error is `application/problem+json` with the program's exit code.
//!
//! Not here: jobs (`hub`), storage.

mod problem;
mod sessions;
mod failures;
mod paces;
mod requests;
mod streams;
mod bodies;
mod served;
mod asking;
mod table;
mod gate;
mod answering;
mod follow;
mod session;
mod tokens;
mod samples;
mod console;
mod routes;
mod rehearsals;
mod schedules;
mod terms;
mod certificate;
mod connections;
#[cfg(test)]
mod tests;

pub use certificate::Files;

use bodies::Bodies;
use failures::Failures;
use hub::{Error, Hub};
use model::{Exit, Pin};
use paces::Paces;
pub use requests::Requests;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use served::Served;
use sessions::Sessions;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use streams::Streams;
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;

/// Threads for calls that block.
const BLOCKING_MAX: usize = 64;

/// A port, and what the hub is called there.
#[derive(Clone, Debug)]
pub struct Network {
    pub address: SocketAddr,
    /// Names beside its addresses and `localhost`.
    pub names: Vec<String>,
    /// In place of the hub's own certificate.
    pub files: Option<Files>,
}

/// Where the hub can be reached.
#[derive(Clone, Debug)]
pub struct Reached {
    pub address: SocketAddr,
    /// Of the certificate's key.
    pub pin: Pin,
}

/// The interface of a running hub; it ends when this is dropped.
pub struct Api {
    socket: PathBuf,
    stop: watch::Sender<bool>,
    runtime: Option<tokio::runtime::Runtime>,
    pub reached: Option<Reached>,
    pub requests: Arc<Requests>,
}

impl Api {
    /// Listens on a socket, which nobody else can connect to, and on a port if there is to be one. A socket that an earlier hub
    /// left is replaced.
    pub fn start(hub: Hub, socket: &Path, network: Option<Network>) -> hub::Result<Api> {
        let failed = |what: String| {
            move |e: io::Error| {
                Error::new(Exit::Failed, format!("{what}: {}", e.to_string().split(" (os").next().unwrap_or("")))
            }
        };
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .max_blocking_threads(BLOCKING_MAX)
            .thread_name("api")
            .enable_all()
            .build()
            .map_err(failed("start the interface".to_owned()))?;
        // A descriptor for each of those who may ask at once. Where the host permits fewer, accepting pauses (`connections`).
        let limit = getrlimit(Resource::Nofile);
        let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
        let _inside = runtime.enter();
        let port = network.map(|network| Port::open(&hub, network)).transpose()?;
        let listening = failed(format!("listen on {}", socket.display()));
        let listener = connections::listen(socket)
            .map_err(|e| listening(e).hint("one hub of a user runs at a time: stop the other one"))?;
        let (stop, stopped) = watch::channel(false);
        let requests = Arc::new(Requests::default());
        let served = Served {
            streams: Streams::start(hub.clone()).map_err(failed("start a thread".to_owned()))?,
            hub,
            stopped: stopped.clone(),
            sessions: Arc::new(Sessions::default()),
            failures: Arc::new(Failures::default()),
            paces: Arc::new(Paces::default()),
            requests: requests.clone(),
            bodies: Arc::new(Bodies::default()),
            names: port.as_ref().map_or(Arc::new([]), |port| port.names.clone().into()),
            url: port.as_ref().map(|port| port.url().into()),
        };
        let router = routes::router(served);
        runtime.spawn(connections::serve_local(listener, router.clone(), stopped.clone()));
        let reached = port.as_ref().map(|port| Reached { address: port.address, pin: port.pin });
        if let Some(port) = port {
            let (renewed, tls) = watch::channel(port.tls);
            runtime.spawn(connections::serve_network(port.listener, tls, router, stopped));
            port.files.map(|files| runtime.spawn(certificate::renew(files, renewed)));
        }
        drop(_inside);
        Ok(Api { socket: socket.to_owned(), stop, runtime: Some(runtime), reached, requests })
    }
}

struct Port {
    listener: tokio::net::TcpListener,
    address: SocketAddr,
    tls: TlsAcceptor,
    files: Option<Files>,
    pin: Pin,
    /// The first is the one to tell others.
    names: Vec<String>,
}

impl Port {
    fn open(hub: &Hub, network: Network) -> hub::Result<Port> {
        let Network { address, mut names, files } = network;
        let failed = |e: io::Error| {
            Error::new(
                Exit::Failed,
                format!("listen on {address}: {}", e.to_string().split(" (os").next().unwrap_or("")),
            )
            .hint("name an address of this host, and a port that no other program has")
        };
        let listener = TcpListener::bind(address).map_err(failed)?;
        listener.set_nonblocking(true).map_err(failed)?;
        let listener = tokio::net::TcpListener::from_std(listener).map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        if names.is_empty() && !address.ip().is_loopback() {
            names.extend(std::fs::read_to_string("/proc/sys/kernel/hostname").map(|name| name.trim().to_owned()));
        }
        names.push("localhost".to_owned());
        let mut subjects = names.clone();
        if !address.ip().is_unspecified() {
            subjects.push(address.ip().to_string());
        }
        for loopback in ["127.0.0.1", "::1"] {
            if !subjects.iter().any(|name| name == loopback) {
                subjects.push(loopback.to_owned());
            }
        }
        let proof = certificate::proof(hub.state_dir(), &subjects, files.as_ref())?;
        Ok(Port { listener, address, tls: TlsAcceptor::from(proof.config), files, pin: proof.pin, names })
    }

    /// For a browser. On this host's loopback no certificate needs to be believed.
    fn url(&self) -> String {
        match self.address.ip() {
            ip if ip.is_loopback() => format!("http://{}", self.address),
            ip if ip.is_unspecified() || self.names.len() > 1 => {
                format!("https://{}:{}", self.names[0], self.address.port())
            }
            _ => format!("https://{}", self.address),
        }
    }
}

impl Drop for Api {
    fn drop(&mut self) {
        let _ = self.stop.send(true);
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_timeout(std::time::Duration::from_secs(2));
        }
        let _ = std::fs::remove_file(&self.socket);
    }
}
