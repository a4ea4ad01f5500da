//! The hosts, and what lies between them: which is there, which stands still, and which two do not reach each other.
//!
//! Senders come first, then receivers; the coordinator of mode `etcd` has the number behind the last one, and is always
//! there as far as this file knows. All of it is simulated.

use crate::random::Random;
use std::collections::BTreeSet;
use std::ops::Range;

/// Hosts of each side.
const HOSTS_MIN: u64 = 2;
const HOSTS_MORE: u64 = 3;
const HOUR_MS: u64 = 3_600_000;

struct Host {
    is_up: bool,
    is_paused: bool,
    /// How far its clock is ahead.
    clock_ms: u64,
    /// Since it was started it has reached whoever knows who may come.
    knows_clients: bool,
}

pub struct Links {
    hosts: Vec<Host>,
    senders: usize,
    cuts: BTreeSet<(usize, usize)>,
}

impl Links {
    pub fn new(random: &mut Random) -> Links {
        let senders = (HOSTS_MIN + random.below(HOSTS_MORE)) as usize;
        let receivers = (HOSTS_MIN + random.below(HOSTS_MORE)) as usize;
        let are_apart = random.one_in(2);
        let host = || {
            let clock_ms = if are_apart { random.below(12) * HOUR_MS } else { 0 };
            Host { is_up: true, is_paused: false, clock_ms, knows_clients: true }
        };
        let hosts = std::iter::repeat_with(host).take(senders + receivers).collect();
        Links { hosts, senders, cuts: BTreeSet::new() }
    }

    pub fn count(&self) -> usize {
        self.hosts.len()
    }

    pub fn coordinator(&self) -> usize {
        self.hosts.len()
    }

    pub fn senders(&self) -> usize {
        self.senders
    }

    pub fn receivers(&self) -> Range<usize> {
        self.senders..self.hosts.len()
    }

    /// Both are there and reach each other; of one host: it is there.
    pub fn reach(&self, host: usize, other: usize) -> bool {
        let is_there = |number: usize| self.hosts.get(number).is_none_or(|host| host.is_up && !host.is_paused);
        is_there(host) && is_there(other) && !self.cuts.contains(&(host.min(other), host.max(other)))
    }

    pub fn is_up(&self, host: usize) -> bool {
        self.hosts[host].is_up
    }

    pub fn clock_ms(&self, host: usize) -> u64 {
        self.hosts[host].clock_ms
    }

    pub fn knows_clients(&self, host: usize) -> bool {
        self.hosts[host].knows_clients
    }

    /// Whoever reaches this one knows who may come.
    pub fn tell_clients(&mut self, knowing: usize) {
        for host in self.receivers() {
            if self.reach(host, knowing) {
                self.hosts[host].knows_clients = true;
            }
        }
    }

    pub fn pause(&mut self, host: usize, is_paused: bool) {
        self.hosts[host].is_paused = is_paused;
    }

    pub fn start(&mut self, host: usize) {
        self.hosts[host].is_up = true;
    }

    pub fn kill(&mut self, host: usize) {
        let Host { clock_ms, .. } = self.hosts[host];
        self.hosts[host] = Host { is_up: false, is_paused: false, clock_ms, knows_clients: false };
    }

    /// Two do not reach each other any more; false where it is one.
    pub fn cut(&mut self, host: usize, other: usize) -> bool {
        host != other && self.cuts.insert((host.min(other), host.max(other)))
    }

    /// One pair reaches each other again, if so many do not.
    pub fn heal(&mut self, number: usize) {
        if let Some(cut) = self.cuts.iter().nth(number).copied() {
            self.cuts.remove(&cut);
        }
    }

    pub fn calm(&mut self) {
        self.cuts.clear();
        for host in &mut self.hosts {
            (host.is_up, host.is_paused) = (true, false);
        }
    }
}
