//! Transfers as commands: what was asked for on the command line carried out by the crate `transfer`, shown and told.
//!
//! `request` is what was asked for, and what came of it; `remote` reaches the other side, `sftp` one that has no Thalweg, `third_party` has two remote hosts copy, `orders` two endpoints, `hosts` several hosts, `here` makes this host one of them,
//! `shown` shows a transfer while it runs, `presence` lets other processes see it.
//! Not here: how a transfer is carried out.

mod request;
mod remote;
mod here;
mod hosts;
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
use ::transfer::{Ended, Kind, Means, Observed, Peers, Transfer};
use hosts::Hosts;
use orders::Ordered;
pub use remote::Reachable;
pub use remote::{Remote, Ssh, Use};
pub use request::{Finished, HostNames, Request, stopped};
use shown::Shown;
use std::sync::Arc;
use std::time::{Duration, Instant};
use store::open::Pipes;

/// Runs the request to its end. An error means that nothing was tried.
pub fn run(
    request: &Request,
    started: Instant,
    interrupt: &Interrupt,
    events: Option<Arc<Events>>,
) -> Result<Finished> {
    if let Some(hosts) = Hosts::of(request)? {
        return hosts.run(request, started, interrupt, events);
    }
    if let Some(ordered) = Ordered::of(request)? {
        return ordered.run(request, started, interrupt, events);
    }
    let peers = Reachable::new(request.ssh.clone());
    crate::lossy_paths::recall();
    let finished = run_to(Arc::new(peers), request, started, interrupt, events);
    crate::lossy_paths::remember();
    finished
}

/// Runs a plain request to its end, and looks at it every few hundredths of a second.
pub fn run_observed(
    request: &Request,
    started: Instant,
    interrupt: &Interrupt,
    look: &mut dyn FnMut(&Observed),
) -> Result<Finished> {
    const LOOK_INTERVAL: Duration = Duration::from_millis(20);
    let peers = Arc::new(Reachable::new(request.ssh.clone()));
    let (transfer, shown) = start(peers, request, started, interrupt, None)?;
    while !transfer.wait_timeout(LOOK_INTERVAL) {
        look(&transfer.observe());
    }
    Ok(finished(transfer.wait(), &shown, request, interrupt))
}

/// Runs a request whose other side is found otherwise than by its name here.
fn run_to(
    peers: Arc<dyn Peers>,
    request: &Request,
    started: Instant,
    interrupt: &Interrupt,
    events: Option<Arc<Events>>,
) -> Result<Finished> {
    let (transfer, shown) = start(peers, request, started, interrupt, events)?;
    Ok(finished(transfer.wait(), &shown, request, interrupt))
}

fn start(
    peers: Arc<dyn Peers>,
    request: &Request,
    started: Instant,
    interrupt: &Interrupt,
    events: Option<Arc<Events>>,
) -> Result<(Transfer, Arc<Shown>)> {
    let shown = Arc::new(Shown::new(request, events));
    request.spec.memory_bytes.into_iter().for_each(crate::stores::grant);
    let for_input = interrupt.clone();
    let pipes =
        Pipes { input: Box::new(move || Box::new(for_input.stdin())), output: Box::new(|| Box::new(output::Data)) };
    let means = Means {
        stores: crate::stores::all().with("-", Arc::new(pipes)),
        peers,
        watcher: shown.clone(),
        stop: interrupt.flag().clone(),
        buffer: request.open_buffer()?,
        catalogue: request.catalogue.clone(),
        manifest: request.manifest.clone(),
        started,
    };
    Ok((Transfer::start(request.spec.clone(), means)?, shown))
}

fn finished(mut ended: Ended, shown: &Shown, request: &Request, interrupt: &Interrupt) -> Finished {
    shown.finish();
    let error = ended.error.take().map(|error| told(error, request, interrupt));
    let durable = ended.report.as_ref().map_or_else(String::new, |report| report.durable.clone());
    Finished { ended, error, durable }
}

/// What ended a transfer, with the signal that did.
fn told(error: ::transfer::Error, request: &Request, interrupt: &Interrupt) -> Error {
    match error.kind {
        Kind::Stopped if request.spec.has_pipe() => Error { exit: interrupt.exit(), ..error.into() },
        Kind::Stopped => stopped(interrupt),
        _ => error.into(),
    }
}
