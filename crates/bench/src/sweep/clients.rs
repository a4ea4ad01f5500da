//! Several client commands at once to one server, each delivering the whole set to a place of its own.

use std::path::PathBuf;
use std::thread;

use lab::Lab;

use crate::account::{Machine, own_cpu_seconds};
use crate::compare::run::{Lane, Race, failure};
use crate::error::{Error, Kind, Result};
use crate::process::{Finished, Gated, Server};
use crate::reference::empty_sample;
use crate::sample::{Sample, State, Usage};
use crate::tool::thalweg::bottleneck;
use crate::tool::{Class, Host, Set};

/// `deliveries` exist and are empty. One sample for all of them: from the common start to the end of the last.
pub fn run(race: &Race, lane: &Lane, set: &Set, deliveries: &[PathBuf], round: u32) -> Result<Sample> {
    let (files, bytes) = set.footprint();
    let count = deliveries.len() as u64;
    let ballast = race.workspace.ballast(files * count, bytes * count)?;
    let mut gated = Vec::new();
    for (index, delivery) in deliveries.iter().enumerate() {
        let outputs = race.workspace.path().join(format!("client-{index}"));
        std::fs::create_dir_all(&outputs).map_err(Error::io("create", &outputs))?;
        let client = lane.tool.client(race.bed, set, delivery);
        gated.push(Gated::prepare(&client, |gate| race.bed.at(Host::Client, Class::Network, gate), &outputs)?);
    }
    let giving = ballast.give()?;
    let server = lane.server.as_ref();
    let server_before = server.map_or(0.0, Server::cpu_seconds);
    let emulated = race.emulated(Class::Network);
    let (machine, own) = (Machine::read(), own_cpu_seconds());
    let (limit, cancel) = (race.options.limit, race.cancel);
    let finished: Result<Vec<Finished>> = thread::scope(|scope| {
        let run_one = |gated: Gated| scope.spawn(move || gated.run(limit, server, cancel));
        let running: Vec<_> = gated.into_iter().map(run_one).collect();
        let ended = running.into_iter().map(|thread| thread.join().expect("a run does not panic"));
        ended.collect()
    });
    drop(giving);
    let (finished, after, own) = (finished?, Machine::read(), own_cpu_seconds() - own);
    let failed = finished.iter().find_map(|finished| failure(finished, limit));
    let void = race.void(Class::Network, emulated);
    let client_seconds: f64 = finished.iter().map(|finished| finished.cpu_seconds).sum();
    let server_usage = server.map(|server| Usage {
        cpu_seconds: server.cpu_seconds() - server_before,
        rss_bytes_max: finished.iter().map(|finished| finished.server_rss_bytes_max).max().unwrap_or(0),
    });
    // Its end is the end of the run.
    let slowest = finished.iter().max_by(|a, b| a.seconds.total_cmp(&b.seconds));
    let used = client_seconds + server_usage.map_or(0.0, |usage| usage.cpu_seconds) + own;
    Ok(Sample {
        set: set.name.clone(),
        class: Class::Network,
        is_ours: lane.tool.is_ours(),
        state: match (&failed, &void, round) {
            (Some(_), ..) => State::Failed,
            (None, Some(_), _) => State::Void,
            (None, None, 0) => State::Discarded,
            (None, None, _) => State::Counted,
        },
        seconds: finished.iter().map(|finished| finished.seconds).fold(0.0, f64::max),
        bytes: set.bytes * count,
        files: set.files * count,
        client: Usage {
            cpu_seconds: client_seconds,
            rss_bytes_max: finished.iter().map(|finished| finished.rss_bytes_max).max().unwrap_or(0),
        },
        server: server_usage,
        foreign_cpu_seconds: (after.busy_seconds - machine.busy_seconds - used).max(0.0),
        steal_seconds: after.steal_seconds - machine.steal_seconds,
        bottleneck: slowest.filter(|_| lane.tool.is_ours()).and_then(|finished| bottleneck(&finished.stdout)),
        note: failed.or(void).unwrap_or_default(),
        ..empty_sample(lane.tool.name(), round)
    })
}

/// Bounds the buffers of all connections to come, at both hosts.
pub fn limit_windows(lab: &Lab, bytes: u64) -> Result<()> {
    for site in &lab.scenario().sites {
        let write = || {
            let settings = [("tcp_rmem", format!("4096 131072 {bytes}")), ("tcp_wmem", format!("4096 16384 {bytes}"))];
            settings.iter().try_for_each(|(name, value)| std::fs::write(format!("/proc/sys/net/ipv4/{name}"), value))
        };
        lab.inside(&site.name, write)?
            .map_err(|source| Error { kind: Kind::Failed, ..Error::io("limit the windows of", &site.name)(source) })?;
    }
    Ok(())
}
