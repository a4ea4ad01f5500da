//! A seed under way: events drawn one after the other, steps of slices among them, and the calls to storage in which a
//! host stands still or dies.
//!
//! There is one thread. A host that stands still in the middle of a call does so by the others' events happening before
//! that call is made: the production code is then interrupted between two calls to storage, for as long as it takes
//! others to give its slice up and to take it over. A host that dies there makes no further call.
//!
//! Invariants:
//! - The lock on the site is held by nobody who calls a sink, or drops what one has given.
//! - Nothing is interrupted while it holds a lock on a directory of staging alone: another host would wait for it for
//!   ever.

use super::super::faults::Fired;
use super::super::seen::Seen;
use super::ground::{Ground, version_of};
use super::judge::{CLASSES, KILL_IN_CALL, STOP_IN_CALL};
use super::site::{AtWork, Engine, Site};
use super::slice::{Op, Status};
use crate::random::Random;
use anyhow::Result;
use model::JobId;
use os::simulation::{Call, Disk, Verdict};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::ffi::CStr;
use std::fs::File;
use std::io::Read;
use std::os::fd::BorrowedFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use store::Sink;

/// Events with faults, and rounds without within which everything has to end.
const EVENTS: u64 = 240;
const ROUNDS: u64 = 4_000;
const ROUND_MS: u64 = 500;
/// How long a host stands still in a call: shorter and longer than it counts as there.
const STILL_MS: [u64; 3] = [1_000, 20_000, 90_000];
const ALLOWED: &[&str] = &["KEEP"];

pub struct Scene {
    ground: Ground,
    site: Mutex<Site>,
}

/// What becomes of a call.
enum Break {
    No,
    Death,
    Still { host: usize, events: u64 },
}

impl Scene {
    pub fn new(seed: u64, engine: Engine, dir: &Path, is_told: bool) -> Result<Scene> {
        let mut random = Random::new(seed);
        let ground = Ground::new(&mut random, dir)?;
        let site = Site::new(random, engine, ground.file_count(), is_told);
        Ok(Scene { ground, site: Mutex::new(site) })
    }

    pub fn play(&self) {
        for _ in 0..EVENTS {
            if self.is_broken() {
                return;
            }
            self.event();
        }
        self.site().calm();
        for _ in 0..ROUNDS {
            if self.is_broken() || self.site().open().is_none() {
                break;
            }
            self.round();
        }
        self.judge_end();
    }

    /// What was seen, and a number that is the same for the same course. Lets go of all that is open.
    pub fn end(&self) -> (Seen, u64) {
        let open = std::mem::take(&mut self.site().slices);
        drop(open);
        let mut site = self.site();
        let fired = CLASSES.into_iter().filter(|(class, _)| site.judge.has_fired(class));
        let fired = fired.map(|(class, faults)| (class, faults, ALLOWED, Fired::InTime)).collect();
        let seen = Seen { fired, states: 0, attempts: site.given, broken: site.judge.broken().cloned() };
        (seen, site.random.next() ^ site.now_ms)
    }

    pub fn breaks(&self, what: String) {
        self.site().judge.breaks(what);
    }

    fn site(&self) -> MutexGuard<'_, Site> {
        self.site.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_broken(&self) -> bool {
        self.site().judge.broken().is_some()
    }

    fn event(&self) {
        let drawn = {
            let mut site = self.site();
            let ms = match site.random.below(100) {
                0 => 20_000,
                1 => 5_000,
                _ => site.random.below(400),
            };
            site.pass(ms);
            site.random.below(100)
        };
        match drawn {
            0..45 => self.any_step(),
            45..65 => {
                let mut site = self.site();
                site.give_if_none(&self.ground);
                site.command();
            }
            65..85 => self.site().deliver(),
            85..87 => self.site().give(&self.ground),
            _ => {
                let dying = self.site().befall();
                if let Some(host) = dying {
                    self.kill(host);
                }
            }
        }
    }

    /// Everybody goes on, and nothing is wrong.
    fn round(&self) {
        let able = {
            let mut site = self.site();
            site.pass(ROUND_MS);
            site.go_on(&self.ground);
            site.able()
        };
        able.into_iter().for_each(|job| self.step(job));
    }

    fn any_step(&self) {
        let job = {
            let mut site = self.site();
            let able = site.able();
            let number = site.random.below(able.len() as u64) as usize;
            able.get(number).copied()
        };
        if let Some(job) = job {
            self.step(job);
        }
    }

    fn step(&self, job: JobId) {
        let (mut slice, source, host) = {
            let mut site = self.site();
            let Some(slice) = site.slices.remove(&job) else { return };
            let (host, op) = (slice.order.receiver, slice.next_op());
            site.at_work.push(AtWork { job, host, op });
            if op != Op::Close {
                site.judge.goes_on(job);
            }
            site.say(|| format!("{host} {op:?} of {job}"));
            (slice, site.source.clone(), host)
        };
        let void = slice.advance(&self.ground, &source);
        let has_died = {
            let mut site = self.site();
            site.at_work.pop();
            let has_died = std::mem::take(&mut site.is_dying);
            match has_died {
                // Whatever came of it, nobody was told.
                true => slice.status = Status::Open,
                false => site.judge.take_over(&void),
            }
            site.slices.insert(job, slice);
            has_died
        };
        if has_died {
            self.kill(host);
        }
    }

    /// A host dies: what it has open is closed by the system, and nothing is tidied up.
    fn kill(&self, host: usize) {
        let desks = {
            let mut site = self.site();
            site.is_dying = true;
            site.kill(host)
        };
        drop(desks);
        self.site().is_dying = false;
    }

    fn break_at(&self, call: &Call<'_>) -> Break {
        let mut site = self.site();
        if site.is_dying {
            return Break::Death;
        }
        let &[AtWork { host, op, .. }] = &site.at_work[..] else { return Break::No };
        if site.is_calm || site.breaks_left == 0 || !may_break(op, call) {
            return Break::No;
        }
        let one_in = if op == Op::Fence { 6 } else { 40 };
        if !site.random.one_in(one_in) {
            return Break::No;
        }
        site.breaks_left -= 1;
        if site.random.one_in(5) {
            site.is_dying = true;
            site.judge.fire(KILL_IN_CALL);
            site.say(|| format!("{host} dies at {call:?}"));
            return Break::Death;
        }
        site.judge.fire(STOP_IN_CALL);
        site.say(|| format!("{host} stands still at {call:?}"));
        site.links.pause(host, true);
        let ms = STILL_MS[site.random.below(STILL_MS.len() as u64) as usize];
        site.pass(ms);
        Break::Still { host, events: 10 + site.random.below(50) }
    }

    fn judge_end(&self) {
        let receivers = self.site().links.receivers();
        // A copy that has nothing to stage removes what one that died has left.
        receivers.for_each(|host| self.ground.sink(host).close());
        let staged = self.ground.staged();
        let mut site = self.site();
        if let Some(open) = site.open() {
            site.judge.breaks(format!("I11: no end in sight: {open}"));
        }
        for file in 0..self.ground.file_count() {
            let newest = site.source[file];
            site.judge.is_delivered(file, self.ground.version_there(file), newest);
        }
        if let Some(path) = staged {
            site.judge.breaks(format!("I20: {} stays in staging", path.display()));
        }
    }
}

impl Disk for Scene {
    fn before(&self, call: &Call<'_>) -> Verdict {
        match self.break_at(call) {
            Break::No => Verdict::Go,
            Break::Death => Verdict::Fail(Errno::IO),
            Break::Still { host, events } => {
                for _ in 0..events {
                    if !self.is_broken() {
                        self.event();
                    }
                }
                self.site().links.pause(host, false);
                Verdict::Go
            }
        }
    }

    /// Whatever gets the name of a file is judged at that moment.
    fn after(&self, call: &Call<'_>, _: Option<BorrowedFd<'_>>) {
        let (Call::Rename { to, new_name, .. } | Call::HardLink { to, new_name, .. }) = *call else { return };
        let Some(file) = number_of(new_name) else { return };
        let version = read(to, new_name).and_then(|(bytes, seconds)| version_of(file, &bytes, seconds));
        let mut site = self.site();
        let Some(AtWork { job, .. }) = site.at_work.last().copied() else { return };
        let newest = site.source.get(file).copied().unwrap_or_default();
        site.judge.appears(job, file, version, newest);
    }

    fn magic(&self) -> i64 {
        self.ground.magic
    }
}

/// Where no step holds a lock on a directory alone: not while staging is swept or removed.
fn may_break(op: Op, call: &Call<'_>) -> bool {
    match op {
        Op::Fence => true,
        Op::Look => matches!(call, Call::MakeDirectory { .. }),
        Op::Stage => match call {
            Call::Open { flags, .. } => flags.contains(OFlags::CREATE),
            Call::MakeDirectory { .. } | Call::Write { .. } | Call::Times { .. } => true,
            _ => false,
        },
        Op::Publish => true,
        Op::Close => false,
    }
}

/// The number of the file that has this name; names in staging have no such form.
fn number_of(name: &CStr) -> Option<usize> {
    name.to_str().ok()?.strip_prefix('f')?.parse().ok()
}

/// Content and time of what has a name.
fn read(directory: BorrowedFd<'_>, name: &CStr) -> Option<(Vec<u8>, i64)> {
    let opened = rustix::fs::openat(directory, name, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok()?;
    let (mut file, mut bytes) = (File::from(opened), Vec::new());
    file.read_to_end(&mut bytes).ok()?;
    Some((bytes, file.metadata().ok()?.mtime()))
}
