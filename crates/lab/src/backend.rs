//! Which back end emulates the links: what this host has, what the scenario asks, and why one was chosen.

use std::process::{Command, Stdio};
use std::thread;

use crate::error::{Error, Kind, Result};
use crate::rules;
use crate::scenario::{Backend, End, Scenario};
use emulator::nfqueue::Nfqueue;
use emulator::schedule::Schedule;
use emulator::sys::namespace::unshare_network;

/// In the order of preference.
pub const BACKENDS: [Backend; 3] = [Backend::Netem, Backend::Nfqueue, Backend::Tun];

/// A back end and the reason for it, in words for the user.
#[derive(Clone, PartialEq, Debug)]
pub struct Choice {
    pub backend: Backend,
    pub reason: String,
}

impl Backend {
    /// What this host lacks for it; tried in a namespace of its own that is gone afterwards.
    pub fn lacks(self) -> Option<String> {
        let tried = thread::Builder::new().spawn(move || {
            unshare_network().map_err(|error| format!("no network namespace can be made: {error}"))?;
            match self {
                Backend::Netem => try_netem(),
                Backend::Nfqueue => try_nfqueue(),
                Backend::Tun => {
                    emulator::sys::tun::create("tw-try").map(drop).map_err(|e| format!("/dev/net/tun: {e}"))
                }
            }
        });
        let result = tried
            .map_err(|error| error.to_string())
            .and_then(|thread| thread.join().unwrap_or_else(|_| Err("the trial failed".into())));
        result.err()
    }

    /// What the scenario asks that this back end cannot do.
    fn cannot(self, scenario: &Scenario) -> Option<String> {
        let reason = match self {
            Backend::Nfqueue => return scenario.needs().tun.map(|why| format!("does not see payloads, and {why}")),
            _ if scenario.sites.iter().any(|site| site.host_bits_per_second.is_some()) => {
                "takes the place of what holds hosts to rates of their own"
            }
            Backend::Netem if scenario.links.iter().any(|link| link.ends.contains(&End::Core)) => {
                "serves links between two sites here, and this is a star"
            }
            Backend::Netem if scenario.sites.iter().any(|site| site.hosts > 1) => {
                "shapes interfaces, and here several hosts of a site share a link"
            }
            _ => return None,
        };
        Some(reason.into())
    }
}

/// The back end that the scenario names, or the first that this host has and that can do what it asks.
pub fn choose(scenario: &Scenario) -> Result<Choice> {
    if let Some(backend) = scenario.backend {
        let refused = |kind, said: String| Error::new(kind, "use back end", backend.name(), said);
        if let Some(limit) = backend.cannot(scenario) {
            return Err(refused(Kind::Refused, format!("it {limit}")).hint("leave the back end to `auto`"));
        }
        if let Some(lack) = backend.lacks() {
            return Err(refused(Kind::Missing, lack).hint("leave the back end to `auto`"));
        }
        return Ok(Choice { backend, reason: "asked for".into() });
    }
    let mut passed_over = Vec::new();
    for backend in BACKENDS {
        match backend.cannot(scenario).or_else(|| backend.lacks()) {
            Some(why) => passed_over.push(format!("not {}: {why}", backend.name())),
            None if passed_over.is_empty() => return Ok(Choice { backend, reason: "the kernel's own".into() }),
            None => return Ok(Choice { backend, reason: passed_over.join("; ") }),
        }
    }
    Err(Error::new(Kind::Missing, "find", "a way to emulate links", passed_over.join("; "))
        .hint("install the package iptables, or load the module sch_netem or tun"))
}

fn try_netem() -> std::result::Result<(), String> {
    let mut command = Command::new("tc");
    command.args(["qdisc", "add", "dev", "lo", "root", "netem", "delay", "1ms"]).stdin(Stdio::null());
    match command.output() {
        Ok(output) if output.status.success() => Ok(()),
        Ok(_) => Err("this kernel is built without it (sch_netem)".into()),
        Err(error) => Err(format!("tc: {error}")),
    }
}

fn try_nfqueue() -> std::result::Result<(), String> {
    rules::install(&[]).map_err(|error| error.source.to_string())?;
    let nothing = Schedule::new(Vec::new(), Vec::new());
    Nfqueue::bind(0, nothing, 1, 1500).map(drop).map_err(|error| format!("this kernel has no packet queues: {error}"))
}
