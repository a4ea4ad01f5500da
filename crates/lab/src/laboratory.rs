//! A running laboratory: hosts joined by emulated links, for as long as the value lives.
//!
//! Owns: the order of building and the removal of everything on drop; the timeline; changes while it runs.
//!
//! Invariants: what a laboratory creates is on record before it is created, so that one that lost its holder to a kill is
//! removed when the next is made, or by `remove_all`. Nothing half-built stays: an error removes what there was.

use std::ffi::OsStr;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::process::Command;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::backend::{Choice, choose};
use crate::error::{Error, Kind, Result};
use crate::lease::{self, Lease};
use crate::network::{self, CORE};
use crate::quota;
use crate::rules;
use crate::scenario::{Backend, Change, Impairment, Scenario};
use crate::shaping;
use crate::sys::awake::Awake;
use crate::topology::{Host, Topology};
use emulator::channel::Channel;
use emulator::nfqueue::Nfqueue;
use emulator::schedule::Schedule;
use emulator::tun::{Route, Tun};
use emulator::worker::Workers;
use emulator::{Emulator, Snapshot};

/// How often the achieved rate is sampled.
const SAMPLE_EVERY: Duration = Duration::from_secs(1);

pub struct Lab {
    lease: Lease,
    scenario: Scenario,
    topology: Topology,
    /// None: nothing is emulated.
    choice: Option<Choice>,
    links: Option<Arc<Links>>,
    monitor: Option<JoinHandle<()>>,
    /// Keeps processors from falling asleep between packets.
    _awake: Option<Awake>,
    pub started: Instant,
}

/// What the timeline, `set` and the holder share.
struct Links {
    scenario: Scenario,
    emulator: Box<dyn Emulator>,
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    /// What holds outside the events of the timeline, by link.
    base: Vec<[Impairment; 2]>,
    applied: Vec<[Impairment; 2]>,
    peak_bytes_per_second: Vec<f64>,
    peak_cpu_share: f64,
    /// The largest receive buffer that the hosts allow their sockets.
    receive_bytes_max: u64,
    is_stopping: bool,
}

impl Lab {
    /// Removes what killed runs left behind, then builds.
    pub fn up(scenario: Scenario) -> Result<Lab> {
        scenario.check(memory_available_bytes())?;
        check_privilege()?;
        let topology = Topology::of(&scenario);
        let choice = if topology.is_plain { None } else { Some(choose(&scenario)?) };
        let lock = lease::lock()?;
        lease::remove_leftovers();
        let lease = Lease::take()?;
        // From here on dropping the laboratory removes whatever part of it exists.
        let started = Instant::now();
        let (_awake, links, monitor) = (Awake::hold().ok(), None, None);
        let mut lab = Lab { lease, scenario, topology, choice, links, monitor, _awake, started };
        let built = lab.build();
        // Before an error drops the laboratory, which takes the lock itself.
        drop(lock);
        built.map(|()| lab)
    }

    /// The largest window that a socket of a host offers: the kernel keeps half of a receive buffer for its own bookkeeping.
    pub fn receive_window_bytes_max(&self) -> u64 {
        let set = self.links.as_ref().map(|links| links.state().receive_bytes_max);
        set.unwrap_or_else(|| network::receive_bytes_max(&self.scenario)) / 2
    }

    pub fn scenario(&self) -> &Scenario {
        &self.scenario
    }

    pub fn topology(&self) -> &Topology {
        &self.topology
    }

    pub fn lease(&self) -> &Lease {
        &self.lease
    }

    pub fn choice(&self) -> Option<&Choice> {
        self.choice.as_ref()
    }

    /// The host of that name, or the first of the site of that name.
    pub fn host(&self, name: &str) -> Result<&Host> {
        self.topology.host(name, &self.scenario).ok_or_else(|| {
            let known: Vec<_> = self.topology.hosts.iter().map(|host| host.name.as_str()).collect();
            Error::new(Kind::Refused, "find host", name, format!("there are {}", known.join(", ")))
        })
    }

    /// Of the host's first interface.
    pub fn address_v4(&self, host: &str) -> Result<Ipv4Addr> {
        Ok(self.host(host)?.interfaces[0].v4)
    }

    pub fn address_v6(&self, host: &str) -> Result<Ipv6Addr> {
        Ok(self.host(host)?.interfaces[0].v6)
    }

    pub fn namespace(&self, host: &str) -> Result<String> {
        Ok(self.lease.namespace(&self.host(host)?.name))
    }

    /// A command that runs `program` on a host, with that host's share of the processors.
    pub fn command(&self, host: &str, program: impl AsRef<OsStr>) -> Result<Command> {
        let mut command = self.lease.command(&self.host(host)?.name)?;
        command.arg(program);
        Ok(command)
    }

    /// The same command on a host: program, arguments, environment and directory are taken over; the standard streams are
    /// not, because a `Command` does not tell them.
    pub fn exec(&self, host: &str, inner: &Command) -> Result<Command> {
        let mut command = self.command(host, inner.get_program())?;
        command.args(inner.get_args());
        for (name, value) in inner.get_envs() {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        if let Some(dir) = inner.get_current_dir() {
            command.current_dir(dir);
        }
        Ok(command)
    }

    /// Moves the calling thread, and what it spawns from then on, to a host's network. There is no way back. A quota of
    /// the host does not hold for it, nor for `inside`.
    pub fn enter(&self, host: &str) -> Result<()> {
        network::enter(&self.namespace(host)?)
    }

    /// Runs `work` in a thread on a host's network.
    pub fn inside<T: Send>(&self, host: &str, work: impl FnOnce() -> T + Send) -> Result<T> {
        network::inside(&self.namespace(host)?, work)
    }

    /// Changes a link from now on; events of its timeline still take place.
    pub fn set(&self, link: &str, changes: &[(Option<usize>, Change)]) -> Result<()> {
        let names: Vec<_> = self.scenario.links.iter().map(|link| link.name.as_str()).collect();
        let Some(index) = names.iter().position(|name| *name == link) else {
            return Err(Error::new(Kind::Refused, "find link", link, format!("there are {}", names.join(", "))));
        };
        let Some(links) = &self.links else {
            let said = "nothing is emulated on it";
            let hint = "give a link a round trip, as in the preset `lan`";
            return Err(Error::new(Kind::Refused, "change link", link, said).hint(hint));
        };
        let mut changed = self.scenario.clone();
        for (link, base) in changed.links.iter_mut().zip(&links.state().base) {
            link.directions = *base;
        }
        for (direction, change) in changes {
            for (own, impairment) in changed.links[index].directions.iter_mut().enumerate() {
                if direction.is_none_or(|only| only == own) {
                    *impairment = impairment.with(change);
                }
            }
        }
        let is_larger = changed.in_flight_bytes_max() > self.scenario.in_flight_bytes_max();
        // What is under way already takes its share of the memory.
        changed.check(if is_larger { memory_available_bytes() } else { u64::MAX })?;
        let running = self.choice.as_ref().map(|choice| choice.backend);
        if running == Some(Backend::Nfqueue) && changed.needs().tun.is_some() {
            let said = "the running back end, nfqueue, can neither duplicate nor corrupt";
            return Err(Error::new(Kind::Refused, "change link", link, said).hint("start it with `--backend tun`"));
        }
        // Before the path grows; what it needed once may be in use when it shrinks.
        let receive_bytes_max = network::receive_bytes_max(&changed);
        if receive_bytes_max > links.state().receive_bytes_max {
            network::set_buffers(&self.lease, &changed, &self.topology)?;
            links.state().receive_bytes_max = receive_bytes_max;
        }
        links.state().base[index] = changed.links[index].directions;
        links.apply(self.started.elapsed());
        network::limit_aggregates(&self.lease, &Topology::of(&changed), index)
    }

    /// The directions of every link as they are now.
    pub fn links_now(&self) -> Vec<[Impairment; 2]> {
        match &self.links {
            Some(links) => links.state().applied.clone(),
            None => self.scenario.links.iter().map(|link| link.directions).collect(),
        }
    }

    /// None: nothing is emulated.
    pub fn snapshot(&self) -> Option<Snapshot> {
        self.links.as_ref().map(|links| links.emulator.snapshot())
    }

    /// The largest rate at which each channel delivered for a second, in bytes of the wire.
    pub fn peak_bytes_per_second(&self) -> Vec<f64> {
        self.links.as_ref().map(|links| links.state().peak_bytes_per_second.clone()).unwrap_or_default()
    }

    /// Of one processor, of the busiest thread of the emulator in its busiest second.
    pub fn peak_cpu_share(&self) -> f64 {
        self.links.as_ref().map_or(0.0, |links| links.state().peak_cpu_share)
    }

    fn build(&mut self) -> Result<()> {
        let has_cables = self.choice.as_ref().is_none_or(|choice| choice.backend != Backend::Tun);
        self.lease.write("scenario.toml", &self.scenario.to_toml())?;
        network::build(&self.lease, &self.scenario, &self.topology, has_cables)?;
        shaping::install(&self.lease, &self.scenario, &self.topology)?;
        self.hold_quotas()?;
        let Some(choice) = &self.choice else { return Ok(()) };
        let emulator: Box<dyn Emulator> = match choice.backend {
            Backend::Nfqueue => Box::new(self.start_nfqueue()?),
            Backend::Tun => Box::new(self.start_tun()?),
            Backend::Netem => {
                Box::new(crate::netem::Netem::start(&self.lease.namespace(CORE), &self.scenario, &self.topology)?)
            }
        };
        let base: Vec<_> = self.scenario.links.iter().map(|link| link.directions).collect();
        let peak_bytes_per_second = vec![0.0; self.topology.channel_count(&self.scenario)];
        let state = Mutex::new(State {
            applied: base.clone(),
            base,
            peak_bytes_per_second,
            peak_cpu_share: 0.0,
            receive_bytes_max: network::receive_bytes_max(&self.scenario),
            is_stopping: false,
        });
        let links = Arc::new(Links { scenario: self.scenario.clone(), emulator, state, changed: Condvar::new() });
        let (monitored, started) = (Arc::clone(&links), Instant::now());
        self.started = started;
        self.links = Some(links);
        self.monitor = Some(std::thread::spawn(move || monitored.monitor(started)));
        Ok(())
    }

    fn hold_quotas(&self) -> Result<()> {
        let percent = |host: &Host| self.scenario.sites[host.site].processor_percent;
        let held: Vec<_> = self.topology.hosts.iter().filter_map(|host| Some((host, percent(host)?))).collect();
        if held.is_empty() {
            return Ok(());
        }
        let place = quota::place()?;
        let group = |host: &Host| place.join(self.lease.namespace(&host.name));
        self.lease.record_groups(held.iter().map(|(host, _)| (host.name.as_str(), group(host))))?;
        held.iter().try_for_each(|(host, percent)| quota::hold(&group(host), *percent))
    }

    fn start_nfqueue(&self) -> Result<Workers> {
        let failed = |source| Error { kind: Kind::Failed, ..Error::io("bind", "packet queues".as_ref(), source) };
        let mut workers = Workers::new(self.topology.channel_count(&self.scenario));
        // Each group has queues of consecutive numbers, so the rules count through the groups.
        let ordered: Vec<_> =
            self.topology.groups.iter().flatten().map(|index| self.topology.paths[*index].clone()).collect();
        network::inside(&self.lease.namespace(CORE), || {
            let mut first_queue = 0;
            for group in &self.topology.groups {
                let (indices, channels, paths) = self.schedule_of(group);
                let count = paths.len() as u16;
                let schedule = Schedule::new(channels, paths);
                let engine = Nfqueue::bind(first_queue, schedule, count, self.scenario.mtu_bytes).map_err(failed)?;
                workers.start(engine, indices).map_err(failed)?;
                first_queue += count;
            }
            // Last: packets that meet a queue without a reader are lost.
            rules::install(&ordered)
        })??;
        Ok(workers)
    }

    fn start_tun(&self) -> Result<Tun> {
        let mut ports = Vec::new();
        for host in &self.topology.hosts {
            for interface in &host.interfaces {
                let name = interface.name.clone();
                let open = move || emulator::sys::tun::create(&name);
                let opened = network::inside(&self.lease.namespace(&host.name), open)?;
                ports.push(opened.map_err(|source| Error::io("open", "/dev/net/tun".as_ref(), source))?);
            }
            network::configure(&self.lease, &self.scenario, host, false)?;
        }
        let all: Vec<usize> = (0..self.topology.paths.len()).collect();
        let (_, channels, paths) = self.schedule_of(&all);
        Tun::start(ports, self.routes(), channels, paths)
            .map_err(|source| Error { kind: Kind::Failed, ..Error::io("start", "the emulator".as_ref(), source) })
    }

    /// The channels of some paths: their indices in the laboratory, themselves, and the paths in terms of them.
    fn schedule_of(&self, group: &[usize]) -> (Vec<usize>, Vec<Channel>, Vec<Vec<usize>>) {
        let mut indices: Vec<usize> =
            group.iter().flat_map(|path| self.topology.paths[*path].channels.clone()).collect();
        indices.sort_unstable();
        indices.dedup();
        let channel = |index: &usize| {
            let link = &self.scenario.links[index / 2];
            let name = format!("{}/{}", link.name, index % 2);
            let round_trip = self.scenario.round_trip_over(index / 2);
            Channel::new(link.directions[index % 2], round_trip, self.scenario.seed, &name)
        };
        let channels = indices.iter().map(channel).collect();
        let own = |index: &usize| indices.iter().position(|other| other == index).unwrap_or_default();
        let paths = group.iter().map(|path| self.topology.paths[*path].channels.iter().map(own).collect()).collect();
        (indices, channels, paths)
    }

    /// By the address that a packet is for, from every port of the same network.
    fn routes(&self) -> Vec<Route> {
        let ports: Vec<_> = self.topology.ports().map(|(_, interface)| interface).collect();
        let mut routes = Vec::new();
        for from in &ports {
            for to in ports.iter().filter(|to| to.network == from.network && to.port != from.port) {
                let joins = |path: &&crate::topology::Path| {
                    path.from_ports.contains(&from.port) && path.to_ports.contains(&to.port)
                };
                let path = self.topology.paths.iter().position(|path| joins(&path));
                let to_addresses = vec![to.v4.into(), to.v6.into()];
                routes.push(Route { from_port: from.port, to_port: to.port, to_addresses, path });
            }
        }
        routes
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        if let Some(links) = &self.links {
            links.state().is_stopping = true;
            links.changed.notify_all();
        }
        if let Some(monitor) = self.monitor.take() {
            let _ = monitor.join();
        }
        self.links = None;
        let _lock = lease::lock();
        self.lease.remove();
    }
}

impl Links {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes the links what they are at this moment.
    fn apply(&self, moment: Duration) {
        let mut state = self.state();
        for (index, link) in self.scenario.links.iter().enumerate() {
            let directions = link.at(state.base[index], moment);
            for (direction, impairment) in directions.into_iter().enumerate() {
                if state.applied[index][direction] != impairment {
                    // A queue in products refers to the round trip of the moment.
                    let rest = self.scenario.round_trip_over(index) - link.round_trip();
                    let round_trip = rest + directions.iter().map(|direction| direction.delay).sum::<Duration>();
                    self.emulator.set(2 * index + direction, impairment, round_trip);
                    state.applied[index][direction] = impairment;
                }
            }
        }
    }

    /// Lets the events of the timeline happen, and samples the rates.
    fn monitor(&self, started: Instant) {
        let (mut last, mut last_at) = (self.emulator.snapshot(), Instant::now());
        loop {
            let moment = started.elapsed();
            self.apply(moment);
            let next_event = self.scenario.links.iter().filter_map(|link| link.next_change(moment)).min();
            let wait = next_event.map_or(SAMPLE_EVERY, |next| next.saturating_sub(started.elapsed()).min(SAMPLE_EVERY));
            let state = self.state();
            let (mut state, _) = self
                .changed
                .wait_timeout_while(state, wait, |state| !state.is_stopping)
                .unwrap_or_else(PoisonError::into_inner);
            if state.is_stopping {
                return;
            }
            let seconds = last_at.elapsed().as_secs_f64();
            if seconds < SAMPLE_EVERY.as_secs_f64() {
                continue;
            }
            let now = self.emulator.snapshot();
            for (peak, (now, then)) in state.peak_bytes_per_second.iter_mut().zip(now.counts.iter().zip(&last.counts)) {
                let bytes = now.wire_bytes_delivered.saturating_sub(then.wire_bytes_delivered);
                *peak = peak.max(bytes as f64 / seconds);
            }
            for (now, then) in now.cpu_seconds_by_thread.iter().zip(&last.cpu_seconds_by_thread) {
                state.peak_cpu_share = state.peak_cpu_share.max((now - then) / seconds);
            }
            (last, last_at) = (now, Instant::now());
        }
    }
}

pub fn memory_available_bytes() -> u64 {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
    let kib = line.and_then(|line| line.trim().trim_end_matches("kB").trim().parse::<u64>().ok());
    kib.map_or(u64::MAX, |kib| kib << 10)
}

fn check_privilege() -> Result<()> {
    if rustix::process::geteuid().is_root() {
        return Ok(());
    }
    Err(Error::new(Kind::Denied, "make", "network namespaces", "this needs root").hint("run it as root"))
}
