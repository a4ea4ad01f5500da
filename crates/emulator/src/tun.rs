//! The TUN back end: every packet passes through this process, which may cut, copy and damage it.
//!
//! Owns: the ports, and which of them share a thread. Aggregates of up to 64 KiB pass whole; where the link hits a
//! segment of one it is cut, so that losses, duplicates and damage are exact per segment.
//!
//! Not here: addresses of the hosts' interfaces, the models (`schedule`), threads (`worker`).

mod frame;
mod group;
mod memory;
mod port;
mod surgery;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::io;
use std::time::Duration;

use super::channel::Channel;
use super::worker::Workers;
use super::{Emulator, Snapshot};
use crate::impairment::Impairment;
use crate::sys::tun::Device;
use group::Group;
pub use group::Route;
use port::Port;

/// The running back end.
pub struct Tun {
    workers: Workers,
}

impl Tun {
    /// `paths` lists the channels that each path crosses. Ports that no route joins have threads of their own.
    pub fn start(
        devices: Vec<Device>,
        routes: Vec<Route>,
        channels: Vec<Channel>,
        paths: Vec<Vec<usize>>,
    ) -> io::Result<Tun> {
        let group_of_port = join_ports(devices.len(), &routes, &paths);
        let mut workers = Workers::new(channels.len());
        let mut devices: Vec<_> = devices.into_iter().map(Some).collect();
        let mut channels: Vec<_> = channels.into_iter().map(Some).collect();
        for group in 0..devices.len() {
            let mut ports = Numbered::default();
            let (mut own_paths, mut own_channels) = (Numbered::default(), Numbered::default());
            let of_group = routes.iter().filter(|route| group_of_port[route.from_port] == group);
            let routes: Vec<_> = of_group
                .map(|route| Route {
                    from_port: ports.number(route.from_port),
                    to_port: ports.number(route.to_port),
                    path: route.path.map(|path| own_paths.number(path)),
                    to_addresses: route.to_addresses.clone(),
                })
                .collect();
            if routes.is_empty() {
                continue;
            }
            let renumber = |path: &usize| paths[*path].iter().map(|channel| own_channels.number(*channel)).collect();
            let paths = own_paths.order.iter().map(renumber).collect();
            let taken = |channel: &usize| channels[*channel].take().expect("groups share no channel");
            let own_devices = ports.order.iter().filter_map(|port| devices[*port].take()).map(Port::new).collect();
            let engine = Group::new(own_devices, &routes, own_channels.order.iter().map(taken).collect(), paths);
            workers.start(engine, own_channels.order)?;
        }
        Ok(Tun { workers })
    }
}

impl Emulator for Tun {
    fn set(&self, channel: usize, impairment: Impairment, round_trip: Duration) {
        self.workers.set(channel, impairment, round_trip);
    }

    fn snapshot(&self) -> Snapshot {
        self.workers.snapshot()
    }
}

/// Numbers of a group for numbers of the laboratory.
#[derive(Default)]
struct Numbered {
    order: Vec<usize>,
    numbers: HashMap<usize, usize>,
}

impl Numbered {
    fn number(&mut self, of_laboratory: usize) -> usize {
        let next = self.order.len();
        let number = *self.numbers.entry(of_laboratory).or_insert(next);
        if number == next {
            self.order.push(of_laboratory);
        }
        number
    }
}

/// For each port the lowest of those that routes, or channels that both use, join it to, itself included.
fn join_ports(count: usize, routes: &[Route], paths: &[Vec<usize>]) -> Vec<usize> {
    let mut groups: Vec<usize> = (0..count).collect();
    let mut join = |a: usize, b: usize| {
        let [a, b] = [groups[a], groups[b]];
        groups.iter_mut().filter(|group| **group == a.max(b)).for_each(|group| *group = a.min(b));
    };
    let mut user_of_channel = HashMap::new();
    for route in routes {
        join(route.from_port, route.to_port);
        for channel in route.path.iter().flat_map(|path| &paths[*path]) {
            join(route.from_port, *user_of_channel.entry(*channel).or_insert(route.from_port));
        }
    }
    groups
}
