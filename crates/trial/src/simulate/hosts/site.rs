//! What befalls the hosts: commands that are given and die, orders on their way, faults that come and go.
//!
//! All of it is simulated. Mode `head`: the command is given at one host, and its journal is in the files of that host;
//! a command that was killed goes on from there. Mode `etcd`: it is given at any host, and the journal is at the
//! coordinator too. An endpoint without a head is as in mode `head`: nothing of a copy differs. In both, a host that
//! was started lets nobody in before it has reached whoever knows the clients. Where etcd does not answer when the
//! command is given, the user tries later: what such a command begins is promised to its own host alone.
//!
//! Not here: steps of slices (`scene`).

use super::command::{Around, Command};
use super::etcd::Etcd;
use super::ground::Ground;
use super::judge::{ANSWER, CHANGE, CLOCKS, COMMAND, CUT, Judge, KILL, LEASE, ORDER, SILENCE, STOP};
use super::links::Links;
use super::mirror::Mirror;
use super::slice::{Desk, Op, Order, Slice, Status};
use crate::random::Random;
use model::JobId;
use std::collections::BTreeMap;

const COMMANDS_MAX: usize = 3;
/// How often hosts may be stopped or killed in the middle of a call.
const BREAKS_MAX: u64 = 4;

/// How the hosts of an endpoint are kept together.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Engine {
    Head,
    Etcd,
}

/// A step that is under way.
#[derive(Clone, Copy)]
pub struct AtWork {
    pub job: JobId,
    pub host: usize,
    pub op: Op,
}

pub struct Site {
    pub random: Random,
    pub now_ms: u64,
    pub is_calm: bool,
    pub is_told: bool,
    /// The host whose call this is dies: nothing that it still does comes about.
    pub is_dying: bool,
    /// A step, and another one while the first one's host stands still in the middle of a call.
    pub at_work: Vec<AtWork>,
    pub breaks_left: u64,
    pub links: Links,
    pub slices: BTreeMap<JobId, Slice>,
    /// The version of each file.
    pub source: Vec<u64>,
    pub judge: Judge,
    /// Commands that were given.
    pub given: u64,
    engine: Engine,
    post: Vec<Order>,
    commands: Vec<Command>,
    /// By host: its journal of the job.
    kept: Vec<Vec<JobId>>,
    etcd: Etcd,
    is_done: bool,
}

impl Site {
    pub fn new(mut random: Random, engine: Engine, files: usize, is_told: bool) -> Site {
        let links = Links::new(&mut random);
        let etcd = Etcd::new(random.next());
        let breaks_left = random.below(BREAKS_MAX + 1);
        let kept = vec![Vec::new(); links.count()];
        Site {
            random,
            now_ms: 0,
            is_calm: false,
            is_told,
            is_dying: false,
            at_work: Vec::new(),
            breaks_left,
            links,
            slices: BTreeMap::new(),
            source: vec![1; files],
            judge: Judge::new(files),
            given: 0,
            engine,
            post: Vec::new(),
            commands: Vec::new(),
            kept,
            etcd,
            is_done: false,
        }
    }

    pub fn say(&self, what: impl FnOnce() -> String) {
        if self.is_told {
            println!("{:>9} {}", self.now_ms, what());
        }
    }

    pub fn pass(&mut self, ms: u64) {
        self.now_ms += ms;
        self.etcd.pass_to(self.now_ms);
        match self.engine {
            Engine::Head => self.links.tell_clients(self.links.senders()),
            Engine::Etcd if self.etcd.is_up => self.links.tell_clients(self.links.coordinator()),
            Engine::Etcd => {}
        }
    }

    /// Slices of which a step can be done.
    pub fn able(&self) -> Vec<JobId> {
        let is_able = |slice: &&Slice| {
            let Order { sender, receiver, .. } = slice.order;
            let can_go = match slice.is_to_close() {
                true => self.links.reach(receiver, receiver),
                false => self.links.reach(sender, receiver) && self.links.knows_clients(receiver),
            };
            slice.status == Status::Open && can_go
        };
        self.slices.values().filter(is_able).map(|slice| slice.order.job).collect()
    }

    /// An order comes to its host. It may have been on its way for long, and come once more.
    pub fn deliver(&mut self) {
        if self.post.is_empty() {
            return;
        }
        let number = self.random.below(self.post.len() as u64) as usize;
        let order = self.post[number].clone();
        let is_under_way = self.at_work.iter().any(|one| one.job == order.job);
        if is_under_way || !self.links.reach(order.sender, order.sender) {
            return;
        }
        match self.is_calm || !self.random.one_in(8) {
            true => _ = self.post.swap_remove(number),
            false => self.judge.fire(ORDER),
        }
        self.slices.entry(order.job).or_insert_with(|| Slice::new(order));
    }

    /// One command does what it can.
    pub fn command(&mut self) {
        if self.commands.is_empty() {
            return;
        }
        let number = self.random.below(self.commands.len() as u64) as usize;
        let mut command = self.commands.swap_remove(number);
        let at = command.at;
        if !self.links.reach(at, at) {
            return self.commands.push(command);
        }
        self.etcd.is_reached = self.links.reach(at, self.links.coordinator());
        let Site { now_ms, is_calm, links, source, random, judge, slices, post, kept, etcd, .. } = self;
        let links = &*links;
        command.step(&mut Around {
            now_ms: *now_ms + links.clock_ms(at),
            is_calm: *is_calm,
            source,
            reaches: &|other| links.reach(at, other),
            random,
            judge,
            slices,
            post,
            kept: &mut kept[at],
            etcd,
        });
        if std::mem::take(&mut self.etcd.has_lost_an_answer) {
            self.judge.fire(ANSWER);
        }
        match command.ended {
            None => self.commands.push(command),
            Some(is_done) => {
                self.say(|| format!("the command at {at} ends: {is_done}"));
                if is_done && command.is_last {
                    self.is_done = true;
                    self.judge.end();
                }
            }
        }
    }

    pub fn give_if_none(&mut self, ground: &Ground) {
        if self.commands.is_empty() {
            self.give(ground);
        }
    }

    /// Somebody gives the command. One of a host goes on alone there; what others do is for the lock.
    pub fn give(&mut self, ground: &Ground) {
        let at = match self.engine {
            Engine::Head => 0,
            Engine::Etcd => self.random.below(self.links.count() as u64) as usize,
        };
        let are_others = !self.commands.is_empty();
        let is_here = self.commands.iter().any(|command| command.at == at);
        let is_enough = self.commands.len() >= COMMANDS_MAX || self.is_calm && are_others || self.is_done;
        if is_here || is_enough || !self.links.reach(at, at) {
            return;
        }
        let opened = match self.engine {
            Engine::Head => None,
            Engine::Etcd => {
                self.etcd.is_reached = self.links.reach(at, self.links.coordinator());
                match Mirror::open(&mut self.etcd, &mut self.random) {
                    Ok(Some(opened)) => Some(opened),
                    // Another one is at work, or nobody answers.
                    Ok(None) | Err(_) => return,
                }
            }
        };
        let (mut mirror, left) = opened.unzip();
        let kept = &mut self.kept[at];
        kept.extend(left.into_iter().flatten());
        kept.sort_unstable();
        kept.dedup();
        if let Some(mirror) = &mut mirror {
            mirror.keep(kept);
        }
        let sides = (self.links.senders(), self.links.receivers().len());
        let command = Command::new(at, ground.parts(), sides, kept.clone()).with_mirror(mirror);
        let pages = if self.random.one_in(2) { 0 } else { u64::MAX };
        let mut command = command.with_pages(pages);
        command.is_last = self.is_calm;
        self.commands.push(command);
        self.given += 1;
        self.say(|| format!("the command is given at {at}"));
        if are_others {
            self.judge.fire(LEASE);
        }
        if self.links.clock_ms(at) > 0 {
            self.judge.fire(CLOCKS);
        }
    }

    /// Something goes wrong, or well again. Returns a host that is to die.
    pub fn befall(&mut self) -> Option<usize> {
        let host = self.random.below(self.links.count() as u64) as usize;
        let is_free = !self.at_work.iter().any(|one| one.host == host);
        match self.random.below(19) {
            0 if is_free && self.has_part(host) => {
                self.judge.fire(KILL);
                return Some(host);
            }
            1 | 2 if is_free && self.has_part(host) => {
                self.links.pause(host, true);
                self.judge.fire(STOP);
                self.say(|| format!("{host} stands still"));
            }
            3..=5 => self.cut(host),
            6..=9 => {
                let number = self.random.below(4) as usize;
                self.links.heal(number);
                self.etcd.is_up = true;
            }
            10..=12 => self.wake(),
            13 | 14 => (0..self.links.count()).for_each(|host| self.links.start(host)),
            15 | 16 => {
                let file = self.random.below(self.source.len() as u64) as usize;
                self.source[file] += 1;
                self.judge.fire(CHANGE);
            }
            17 if !self.commands.is_empty() => {
                let number = self.random.below(self.commands.len() as u64) as usize;
                let command = self.commands.swap_remove(number);
                self.judge.fire(COMMAND);
                self.say(|| format!("the command at {} is killed", command.at));
            }
            18 if self.engine == Engine::Etcd => {
                self.etcd.is_up = false;
                self.judge.fire(SILENCE);
            }
            _ => {}
        }
        None
    }

    /// A host dies. Returns what it had open: whoever drops that holds no lock.
    pub fn kill(&mut self, host: usize) -> Vec<Desk> {
        self.say(|| format!("{host} is killed"));
        self.links.kill(host);
        self.commands.retain(|command| command.at != host);
        let mut desks = Vec::new();
        for slice in self.slices.values_mut().filter(|slice| slice.status == Status::Open) {
            if slice.order.receiver == host {
                desks.extend(slice.die());
            } else if slice.order.sender == host {
                slice.is_cut = true;
            }
        }
        desks
    }

    /// All faults end.
    pub fn calm(&mut self) {
        self.say(|| "all faults end".to_owned());
        (self.is_calm, self.etcd.is_calm, self.etcd.is_up) = (true, true, true);
        self.links.calm();
    }

    /// What everybody does when nothing is wrong, but for the steps of slices.
    pub fn go_on(&mut self, ground: &Ground) {
        for _ in 0..self.post.len() {
            self.deliver();
        }
        for _ in 0..self.commands.len() {
            self.command();
        }
        self.give(ground);
    }

    /// What is still under way; nothing in the end.
    pub fn open(&self) -> Option<String> {
        let open = self.slices.values().filter(|slice| slice.status == Status::Open).count();
        let is_over = self.is_done && self.commands.is_empty() && self.post.is_empty() && open == 0;
        let (commands, orders) = (self.commands.len(), self.post.len());
        (!is_over).then(|| format!("{commands} commands, {orders} orders and {open} slices are under way"))
    }

    /// Hosts that stand still go on, but for one in the middle of a call.
    fn wake(&mut self) {
        for host in 0..self.links.count() {
            if !self.at_work.iter().any(|one| one.host == host) {
                self.links.pause(host, false);
            }
        }
    }

    fn cut(&mut self, host: usize) {
        let other = self.random.below(self.links.count() as u64 + 1) as usize;
        if self.links.cut(host, other) {
            self.judge.fire(CUT);
            self.say(|| format!("{host} and {other} do not reach each other"));
        }
    }

    fn has_part(&self, host: usize) -> bool {
        let is_its = |slice: &Slice| slice.order.sender == host || slice.order.receiver == host;
        self.links.is_up(host) && self.slices.values().any(|slice| slice.status == Status::Open && is_its(slice))
    }
}
