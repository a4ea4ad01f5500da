//! Both ends in a laboratory: a server at one host, the client at another, for one run.

use std::net::SocketAddr;
use std::sync::atomic::AtomicBool;
use std::thread;
use std::time::Duration;

use lab::Lab;
use lab::record::reasons_to_void;
use net::Stopper;

use super::client::{Event, run};
use super::outcome::Outcome;
use super::server::{Limits, Server};
use super::{Load, PORT_DEFAULT};
use crate::ceiling;
use crate::error::Result;

/// Between which hosts of a laboratory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Hosts {
    pub client: String,
    pub server: String,
}

impl Hosts {
    /// The first site and the last.
    pub fn of(lab: &Lab) -> Hosts {
        let sites = &lab.scenario().sites;
        let name = |index: usize| sites.get(index).map(|site| site.name.clone()).unwrap_or_default();
        Hosts { client: name(0), server: name(sites.len().saturating_sub(1)) }
    }
}

/// Runs the load between two hosts. The outcome is void if the emulator did not keep up, or if more
/// arrived than the link carries.
pub fn run_in(
    lab: &Lab,
    hosts: &Hosts,
    load: &Load,
    stop: &AtomicBool,
    on_event: &mut (dyn FnMut(Event<'_>) + Send),
) -> Result<Outcome> {
    let address = SocketAddr::from((lab.address_v4(&hosts.server)?, PORT_DEFAULT)).to_string();
    // Its only client is this call.
    let limits = Limits { time_max: Duration::MAX, ..Limits::default() };
    let server = lab.inside(&hosts.server, || Server::bind(&address, limits))??;
    let before = lab.snapshot();
    let mut outcome = thread::scope(|scope| {
        let _stop = StopOnDrop(server.stopper());
        // Sockets belong to the network in which they were made; accepted ones to that of their listener.
        scope.spawn(|| server.serve(|_| ()));
        lab.inside(&hosts.client, || run(&address, load, stop, on_event))?
    })?;
    if let (Some(before), Some(after)) = (before, lab.snapshot()) {
        outcome.void = reasons_to_void(lab.scenario(), &before, &after);
    }
    let link = ceiling::link_bits_per_second(lab.scenario());
    let above = outcome.totals.iter().filter_map(|way| ceiling::above(way.bits_per_second, link));
    outcome.void.extend(above);
    Ok(outcome)
}

/// Ends the server, so that its thread can be waited for.
struct StopOnDrop(Stopper);

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.0.stop();
    }
}
