//! Transfers as commands: what was asked for on the command line carried out by the crate `transfer`, shown and told.
//!
//! `remote` reaches the other side, `sftp` one that has no Thalweg, `third_party` has two remote hosts copy, `orders` two endpoints,
//! `shown` shows a transfer while it runs, `presence` lets other processes see it.
//! Not here: how a transfer is carried out.

mod remote;
pub mod third_party;
pub mod orders;
mod shown;
pub mod presence;
#[cfg(feature = "foreign")]
pub mod sftp;

use crate::exit::{Error, Result};
use crate::interrupt::Interrupt;
use crate::output;
use crate::output::json::Events;
use crate::output::progress::Mode;
use ::transfer::{Direction, Ended, Kind, Means, Peers, Transfer};
use model::{Exit, Location, TransferSpec};
use orders::Ordered;
use remote::Reachable;
pub use remote::{Remote, Ssh, Use};
use shown::Shown;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;
use store::open::Pipes;

/// What the user asked for.
#[derive(Clone, Debug)]
pub struct Request {
    pub command: &'static str,
    pub spec: TransferSpec,
    pub manifest: Option<PathBuf>,
    pub progress: Mode,
    pub ssh: Ssh,
}

impl Request {
    /// With everything chosen by itself, and silent.
    pub fn plain(sources: Vec<Location>, destination: Location) -> Request {
        let spec = TransferSpec::new(sources, destination);
        Request { command: "cp", spec, manifest: None, progress: Mode::None, ssh: Ssh::default() }
    }
}

/// What came of a request.
pub struct Finished {
    pub ended: Ended,
    /// As the program tells it.
    pub error: Option<Error>,
    /// What was waited for at the destination, as far as it is known: `file`, `batch`, `never` or `memory`.
    pub durable: String,
}

impl Finished {
    /// A request that could not be begun.
    pub fn before_the_start(request: &Request, error: Error) -> Finished {
        let TransferSpec { sources, destination, .. } = &request.spec;
        let direction = match (sources.iter().any(Location::is_remote), destination.is_remote()) {
            (true, _) => Direction::Pull,
            (false, true) => Direction::Push,
            (false, false) => Direction::Local,
        };
        let ended = Ended::before_the_start(&request.spec, direction);
        Finished { ended, error: Some(error), durable: String::new() }
    }

    pub fn exit(&self) -> Exit {
        self.error.as_ref().map_or(Exit::Done, |error| error.exit)
    }

    /// Something beside the copy failed: the figures stay, and so does the exit code of what failed before.
    pub fn add_error(&mut self, error: Error) {
        match &mut self.error {
            Some(first) => first.message = format!("{}; {}", first.message, error.message),
            None => self.error = Some(error),
        }
    }
}

/// Runs the request to its end. An error means that nothing was tried.
pub fn run(
    request: &Request,
    started: Instant,
    interrupt: &Interrupt,
    events: Option<Arc<Events>>,
) -> Result<Finished> {
    if let Some(ordered) = Ordered::of(request)? {
        return ordered.run(request, started, interrupt, events);
    }
    let peers = Reachable::new(request.ssh.clone());
    run_to(Arc::new(peers), request, started, interrupt, events)
}

/// Runs a request whose other side is found otherwise than by its name here.
fn run_to(
    peers: Arc<dyn Peers>,
    request: &Request,
    started: Instant,
    interrupt: &Interrupt,
    events: Option<Arc<Events>>,
) -> Result<Finished> {
    let shown = Arc::new(Shown::new(request, events));
    let for_input = interrupt.clone();
    let pipes =
        Pipes { input: Box::new(move || Box::new(for_input.stdin())), output: Box::new(|| Box::new(output::Data)) };
    let means = Means {
        stores: crate::stores::all().with("-", Arc::new(pipes)),
        peers,
        watcher: shown.clone(),
        stop: interrupt.flag().clone(),
        manifest: request.manifest.clone(),
        started,
    };
    let mut ended = Transfer::start(request.spec.clone(), means)?.wait();
    shown.finish();
    let error = ended.error.take().map(|error| told(error, request, interrupt));
    let durable = ended.report.as_ref().map_or_else(String::new, |report| report.durable.clone());
    Ok(Finished { ended, error, durable })
}

/// What ended a transfer, with the signal that did.
fn told(error: ::transfer::Error, request: &Request, interrupt: &Interrupt) -> Error {
    match error.kind {
        Kind::Stopped if request.spec.has_pipe() => Error { exit: interrupt.exit(), ..error.into() },
        Kind::Stopped => stopped(interrupt),
        _ => error.into(),
    }
}

/// The user asked to stop, and can go on later.
pub fn stopped(interrupt: &Interrupt) -> Error {
    let hint = format!("to continue, give the same command again: {}", command_line());
    crate::exit::error(interrupt.exit(), "stopped; what was verified is kept", hint)
}

/// The command as the user gave it, quoted for a shell.
fn command_line() -> String {
    let is_plain = |b: &u8| b.is_ascii_alphanumeric() || b"-_./:=,@%+[]".contains(b);
    let quoted = std::env::args_os().map(|word| {
        let word = output::shown(word);
        if !word.is_empty() && word.bytes().all(|b| is_plain(&b)) {
            word
        } else {
            format!("'{}'", word.replace('\'', "'\\''"))
        }
    });
    quoted.collect::<Vec<_>>().join(" ")
}
