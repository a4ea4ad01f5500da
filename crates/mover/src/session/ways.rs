//! Finds paths to an endpoint: pairs of an address here and one that the endpoint told, as the kernel here would send between them.
//!
//! Invariants:
//! - What an endpoint tells is a hint of somebody who may lie: at most 16 addresses, on the port that it was reached by; none that
//!   means this host, a link or a group. Who answers there still has to prove the key of the session.
//! - A pair is a way only if packets from its address leave by the card of that address; otherwise it would be another way in
//!   disguise.
//!
//! Not here: which ways become paths (`plan::paths`), and their lanes (`lanes`).

use super::addresses::{UNKNOWN, bytes_of, ip_of};
use super::asking::Asker;
use super::connector::Path;
use model::PathWish;
use model::paths::PATHS_MAX;
use net::route::{self, LocalAddress, Route};
use plan::paths::{Way, choose};
use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::time::Instant;
use wire::limits::ADDRESSES_MAX;
use wire::message::{self, AddressRecord, Addresses, AskAddresses};

/// What was looked for, and what came of it.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Found {
    pub paths: Vec<Path>,
    /// Why others are none, for people.
    pub left_out: Vec<String>,
}

/// Asks the endpoint for its addresses. The answer is in `Asker::addresses`.
pub(super) fn ask(asker: &Asker) {
    let from = own_addresses().iter().map(|own| bytes_of(own.ip)).collect();
    let _ = asker.asked.set(Instant::now());
    let _ = asker.session.control.send(message::encode(AskAddresses { from }));
}

/// The paths beside the one of the control stream, as many as were asked for.
pub(super) fn find(asker: &Asker, told: &Addresses, is_sender: bool) -> Found {
    let lookup = |from: IpAddr, to: IpAddr| route::leaves_by(from, to).ok();
    let search = Search { ends: asker.ends, own: own_addresses(), told, is_sender, lookup: &lookup };
    search.find(&asker.tuning.paths)
}

/// Usable addresses of this host. A host without the kernel's tables has none.
fn own_addresses() -> Vec<LocalAddress> {
    let mut own = route::local_addresses().unwrap_or_default();
    own.truncate(ADDRESSES_MAX);
    own
}

/// This host has several cards that can be told apart; otherwise no second path is looked for automatically.
pub(super) fn has_several_cards() -> bool {
    own_addresses().iter().map(|own| own.card).collect::<BTreeSet<_>>().len() > 1
}

struct Search<'a> {
    /// Of the control stream.
    ends: (SocketAddr, SocketAddr),
    own: Vec<LocalAddress>,
    told: &'a Addresses,
    is_sender: bool,
    lookup: &'a dyn Fn(IpAddr, IpAddr) -> Option<Route>,
}

impl Search<'_> {
    /// For `auto`, those that may be tried one after the other.
    fn find(&self, wish: &PathWish) -> Found {
        let mut found = Found::default();
        let mut ways = Vec::new();
        let mut ends = Vec::new();
        for record in &self.told.addresses {
            let remote = match self.usable(record) {
                Ok(remote) => remote,
                Err(why) => {
                    found.left_out.push(why);
                    continue;
                }
            };
            for (at, own) in self.own.iter().enumerate() {
                match self.way(own, at, remote, record) {
                    Some(way) => {
                        ways.push(way);
                        ends.push((own, remote));
                    }
                    None if own.ip.is_ipv4() == remote.is_ipv4() => found.left_out.push(format!(
                        "no path from {} ({}) to {remote}: packets would not leave by that card (see `thalweg doctor`)",
                        own.ip, own.name
                    )),
                    None => {}
                }
            }
        }
        let (most, may_share) = if *wish == PathWish::Auto { (PATHS_MAX, false) } else { (wish.most(), true) };
        let chosen = choose(&ways, &[self.control()], most, may_share);
        for &at in &chosen {
            let (own, remote) = ends[at];
            let remote = SocketAddr::new(remote, self.ends.1.port()).to_string();
            let name = format!("{} ({}) to {remote}", own.ip, own.name);
            found.paths.push(Path { name, local: Some(own.ip), device: None, remote });
        }
        let count = 1 + found.paths.len();
        match wish {
            PathWish::Most(asked) if (*asked as usize) > count => {
                found.left_out.push(format!("{asked} paths were asked for, and there {}", are(count)));
            }
            PathWish::All if count == 1 => {
                found.left_out.push(format!("all paths were asked for, and there {}", are(1)))
            }
            // Where enough was found, what is no path needs no explanation.
            _ => found.left_out.truncate(if chosen.is_empty() { usize::MAX } else { 0 }),
        }
        found
    }

    /// Where the control stream runs.
    fn control(&self) -> Way {
        let (local, remote) = (self.ends.0.ip().to_canonical(), self.ends.1.ip().to_canonical());
        let here = self.own.iter().find(|own| own.ip == local).map_or(UNKNOWN, |own| own.card);
        let there = self.told.addresses.iter().find(|told| ip_of(&told.ip) == Some(remote));
        Way { here, there: there.map_or(UNKNOWN, |told| told.card), is_direct: true }
    }

    fn usable(&self, told: &AddressRecord) -> Result<IpAddr, String> {
        let Some(ip) = ip_of(&told.ip) else { return Err("the endpoint told an address that is none".to_owned()) };
        let left_out = |why: &str| Err(format!("the endpoint's address {ip} is left out: {why}"));
        let is_special = match ip {
            IpAddr::V4(v4) => v4.is_link_local() || v4.is_broadcast(),
            IpAddr::V6(v6) => v6.is_unicast_link_local() || v6.to_ipv4_mapped().is_some(),
        };
        if model::mutant::is_on("believe-any-address") {
            return Ok(ip);
        }
        if is_special || ip.is_loopback() || ip.is_unspecified() || ip.is_multicast() {
            return left_out("it has no meaning outside its own host or link");
        }
        if self.own.iter().any(|own| own.ip == ip) {
            return left_out("this host has it too");
        }
        Ok(ip)
    }

    fn way(&self, own: &LocalAddress, at: usize, remote: IpAddr, told: &AddressRecord) -> Option<Way> {
        if own.ip.is_ipv4() != remote.is_ipv4() {
            return None;
        }
        let route = (self.lookup)(own.ip, remote)?;
        if route.interface != own.interface {
            return None;
        }
        // What is fetched leaves by the card that the endpoint's routes say.
        let answers_by = told.answers_by.get(at).copied().filter(|card| !self.is_sender && *card != UNKNOWN);
        Some(Way { here: own.card, there: answers_by.unwrap_or(told.card), is_direct: route.is_direct })
    }
}

fn are(count: usize) -> String {
    if count == 1 { "is one".to_owned() } else { format!("are {count}") }
}

#[cfg(test)]
#[path = "ways_tests.rs"]
mod tests;
