//! Several hosts that share a file system work on one job: it is cut into slices, each of which is an order to one of them.
//!
//! Whoever calls `run` lists the source, hands slices out and takes them back (`cluster::Board`); content goes straight from host to
//! host. When all slices are done, one host does the whole job once more as any copy does: it skips what is there, sends what was
//! left, and gives directories their times. What that last one says is the result.
//!
//! In reading order:
//! - `work`: what is asked for
//! - `ground`: whether hosts have the same files
//! - `state`: who has what
//! - `slice`: carries one slice out
//! - `peer`: whether its other side is there
//! - `alone`: has one host carry one out while the others wait
//! - `journal`: remembers slices that are open
//! - `mirror`: does so where other hosts see it
//!
//! Invariants:
//! - A host is told of a slice after the journal has it.
//! - A slice that was lost is named to every one that is handed out after it, until one that was told of it has succeeded: its
//!   receiver has then seen to it that nothing more appears of the lost one (`Sink::fence`). Where more are lost than one can be
//!   told of, they are taken over before anything else is handed out (`alone`).
//! - Nothing counts because the host of a part says so: the last slice compares everything. The word of its host is the result.
//!
//! Not here: who holds which bundle (`cluster`), what an order is (`hand_in`, `orders`).

mod alone;
mod ground;
mod journal;
mod mirror;
mod peer;
mod same_directory;
mod slice;
mod state;
mod work;

use crate::error::{Error, Result};
use crate::hand_in::{OrderNews, Told};
use crate::hosts::Site;
use cluster::{Bundle, Cut};
pub use cluster::{Counts, Weight};
pub use ground::{can_share, holds};
use journal::Journal;
pub use journal::{attempt, forget, forget_attempt, forget_old, inherited, left, left_since, note_attempt};
use model::files::{ALL_LEVELS, FileKind, Found, Question};
use model::options::{Buffer, Wait};
use model::order::{Role, Status, Steer};
use model::{Exit, JobId, Pin, TransferSpec};
use mover::session::AskError;
pub use slice::revoke;
use slice::{Carrier, Outcome, Task, steer};
use state::{FAILURES_MAX, Part, State};
use std::cell::Cell;
use std::collections::BTreeSet;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::Scope;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use transfer::{HostShare, check_apart_there};
use wire::limits::ORDER_TRANSFER_BYTES_MAX;
pub use work::{Common, Work};
use work::{Sites, thread};

/// Work for so long is handed out at once, by the rate of the host's last slice.
const PAGE_MS: u64 = 15_000;
/// At most so many times what it has brought at once: how fast it is in its first seconds may be another rate than its own.
const GROWTH: u64 = 2;
/// And for so long at the end, which beginning it is worth.
const LAST_MS: u64 = 2_000;
/// Bundles that wait; the listing waits for them.
const OPEN_MAX: usize = 1000;
const LOOK: Duration = Duration::from_millis(200);
/// For a host that lists and tells of nothing more, as where its storage hangs.
const LISTING_PATIENCE: Duration = Duration::from_secs(300);
/// How often is asked who the hosts are.
const ROSTER: Duration = Duration::from_secs(3);
/// Of an order, for what is in it beside paths and options.
const ORDER_SPARE_BYTES: usize = 24 << 10;

pub struct Done {
    pub shares: Vec<HostShare>,
    /// Of the last slice, which went over everything.
    pub last: Told,
    pub counts: Counts,
    /// Slices that were taken over.
    pub voided: Vec<JobId>,
}

impl Done {
    /// What the last slice says, with what all of them have done.
    pub fn told(&self) -> Told {
        let mut told = self.last.clone();
        let Some(ended) = &mut told.ended else { return told };
        let sum = |of: fn(&HostShare) -> u64| self.shares.iter().map(of).fold(0, u64::saturating_add);
        // It skips what the others have delivered, and completes what they have brought of files.
        let before_files = sum(|one| one.files).saturating_sub(ended.files_done);
        ended.files_done = ended.files_done.saturating_add(before_files);
        ended.files_skipped = ended.files_skipped.saturating_sub(before_files);
        ended.bytes = ended.bytes.max(sum(|one| one.bytes));
        ended.bytes_sent = sum(|one| one.bytes_sent);
        let busiest = self.shares.iter().max_by_key(|one| one.bytes).filter(|one| !one.bottleneck.is_empty());
        if let Some(share) = busiest {
            ended.bottleneck = format!("{}: {}", share.name, share.bottleneck);
        }
        told
    }
}

pub struct Crew<'a> {
    work: &'a Work<'a>,
    /// What a list of paths may take in an order.
    list_bytes_max: usize,
    started: Instant,
    state: Mutex<State>,
    changed: Condvar,
}

/// Runs the job to its end.
///
/// # Errors
/// When hosts cannot work on it, or none is left that does. What is done stays done, and the same command goes on.
pub fn run(work: &Work<'_>) -> Result<Done> {
    check(work.spec)?;
    if work.senders.iter().any(|one| work.receivers.iter().any(|other| other.pin == one.pin)) {
        check_apart_there(&work.spec.sources, &work.spec.destination, false)?;
    }
    // Before anything is written down of a run that may not begin.
    let (senders, receivers) = ground::usable(work)?;
    let journal = Journal::open(work.state, work.job, work.common.as_ref(), work.tell)?;
    let bare = serde_json::to_string(work.spec).map_or(usize::MAX, |text| text.len());
    let list_bytes_max = ORDER_TRANSFER_BYTES_MAX.saturating_sub(bare).saturating_sub(ORDER_SPARE_BYTES);
    let crew = Crew {
        work,
        list_bytes_max,
        started: Instant::now(),
        changed: Condvar::new(),
        state: Mutex::new(State::new(journal, senders, receivers, work.do_fetch)),
    };
    crew.run()
}

/// Whether several hosts can do that, from a directory at the first sender.
pub fn suits(work: &Work<'_>) -> bool {
    check(work.spec).is_ok() && ground::is_directory(work, &work.senders[0], work.spec.sources[0].path())
}

/// # Errors
/// With what several hosts cannot do together.
pub fn check(spec: &TransferSpec) -> Result<()> {
    let TransferSpec { options, choice, bounds, .. } = spec;
    let asked = [
        (spec.sources.len() != 1 || !spec.replicas.is_empty(), "several sources"),
        (choice.listed.is_some(), "a list of files"),
        // Each part would count back from its own beginning.
        (choice.newer_than.is_some() || choice.older_than.is_some(), "--newer-than or --older-than"),
        (options.deletion.is_some(), "removing files"),
        (options.follow.is_some(), "following what is written"),
        (options.backup.is_some(), "--backup-dir"),
        (options.is_dry_run || options.tells_changes, "a dry run, or a list of changes"),
        (options.fidelity.hard_links, "--hard-links"),
        (options.pace.is_some() || options.payload_bytes_max.is_some(), "--bwlimit or --max-transfer"),
        (bounds.duration_max.is_some() || bounds.is_fail_fast, "--max-duration or --fail-fast"),
        (options.buffer == Buffer::Always || options.wait != Wait::Delivered, "--buffer or --wait"),
    ];
    match asked.iter().find(|(is_asked, _)| *is_asked) {
        Some((_, what)) => Err(Error::new(Exit::Usage, format!("{what}: not for copies by several hosts"))
            .hint("omit it, or omit --hosts and --to-hosts")),
        None => Ok(()),
    }
}

impl Crew<'_> {
    fn run(self) -> Result<Done> {
        let crew = &self;
        crew.clear()?;
        std::thread::scope(|scope| {
            let begun = thread("list")
                .spawn_scoped(scope, move || crew.list())
                .and_then(|_| thread("roster").spawn_scoped(scope, move || crew.follow(scope)));
            crew.begin(scope);
            let mut state = crew.lock();
            if let Err(e) = begun {
                state.failed.get_or_insert(Error::new(Exit::Failed, format!("start a thread: {e}")));
            }
            while !crew.is_over(&state) {
                let (news, counts) = (state.news(), state.board.counts());
                drop(state);
                (crew.work.show)(&news, counts);
                state = crew.wait(crew.lock());
            }
        });
        let failed = self.lock().failed.take();
        if let Some(error) = failed {
            return Err(error);
        }
        let last = self.finish()?;
        let State { journal, hosts, board, voided, .. } =
            self.state.into_inner().unwrap_or_else(PoisonError::into_inner);
        if last.status() != Status::Failed {
            journal.end();
        }
        let shares = hosts.into_iter().map(|host| host.share).collect();
        Ok(Done { shares, last, counts: board.counts(), voided: voided.into_iter().collect() })
    }

    /// Starts the threads of hosts that have none and take something.
    fn begin<'s>(&'s self, scope: &'s Scope<'s, '_>) {
        let mut state = self.lock();
        let lanes = state.lanes();
        for number in 0..state.hosts.len() {
            let host = &mut state.hosts[number];
            if host.lanes == 0 && host.takes() {
                let serve = || thread("host").spawn_scoped(scope, move || self.serve(number));
                host.lanes = (0..lanes).take_while(|_| serve().is_ok()).count();
            }
        }
    }

    /// Sees who joins and who leaves while the job runs.
    fn follow<'s>(&'s self, scope: &'s Scope<'s, '_>) {
        let mut looked = Instant::now();
        let mut differing = BTreeSet::new();
        while !self.is_ended() {
            if looked.elapsed() < ROSTER {
                std::thread::park_timeout(LOOK);
                continue;
            }
            let Some((senders, receivers)) = self.look() else { return };
            for (site, is_receiver) in [(&senders, false), (&receivers, true)] {
                site.iter().for_each(|site| self.join(site, is_receiver, &mut differing));
            }
            let leaving = |site: &Option<Site>| site.as_ref().map(|site| site.leaving.clone());
            let (from, to) = (leaving(&senders), leaving(&receivers));
            self.lock().leave(from.as_deref(), to.as_deref(), self.work.tell);
            self.begin(scope);
            looked = Instant::now();
        }
    }

    /// Nothing where the job ends meanwhile: an endpoint that hangs is not waited for.
    fn look(&self) -> Option<Sites> {
        let (look, (tell, told)) = (self.work.look.clone(), mpsc::channel());
        if thread("look").spawn(move || _ = tell.send(look())).is_err() {
            return Some((None, None));
        }
        while !self.is_ended() {
            match told.recv_timeout(LOOK) {
                Err(RecvTimeoutError::Timeout) => {}
                sites => return Some(sites.unwrap_or((None, None))),
            }
        }
        None
    }

    fn join(&self, site: &Site, is_receiver: bool, differing: &mut BTreeSet<Pin>) {
        for host in &site.working {
            let state = self.lock();
            let has_ranges = state.has_ranges;
            let is_there = match is_receiver {
                true => state.receivers.iter().any(|one| one.endpoint.pin == host.pin),
                false => state.hosts.iter().any(|one| one.endpoint.pin == host.pin),
            };
            let (known, spec) = (state.known(is_receiver), self.work.spec);
            let path = if is_receiver { spec.destination.path() } else { spec.sources[0].path() };
            drop(state);
            if is_there {
                continue;
            }
            match ground::joins(self.work, &known, host, path) {
                Ok(()) if has_ranges && !ground::know_ranges(self.work, std::slice::from_ref(host)) => {
                    if differing.insert(host.pin) {
                        let advice = "install this version of thalweg there";
                        (self.work.tell)(&format!(
                            "{} does not join: it knows no ranges of files: {advice}",
                            host.name
                        ));
                    }
                    continue;
                }
                Ok(()) if is_receiver => self.lock().receivers.push(state::Receiver::new(host.clone())),
                Ok(()) => self.lock().hosts.push(state::Host::new(host.clone(), self.work.do_fetch)),
                Err(e) if differing.insert(host.pin) => {
                    (self.work.tell)(&format!("{} does not join: {}", host.name, e.message));
                    continue;
                }
                Err(_) => continue,
            }
            (self.work.tell)(&format!("{} joins", host.name));
        }
    }

    /// Cuts the source into bundles as it is listed. What is not listed is left to the last slice.
    fn list(&self) {
        let endpoints: Vec<_> = self.lock().hosts.iter().map(|host| host.endpoint.clone()).collect();
        let has_ranges = self.has_ranges();
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_secs() as i64);
        let selection = self.work.spec.choice.at(now);
        let question =
            Question::List { paths: vec![self.work.spec.sources[0].path().to_vec()], levels: ALL_LEVELS, digest: None };
        for endpoint in &endpoints {
            let Ok(client) = ground::client(self.work, endpoint) else { continue };
            let mut cut = match has_ranges {
                true => Cut::with_ranges(self.work.spec.options.chunk_bytes),
                false => Cut::default(),
            };
            let mut add = |bundle: Bundle| self.add(bundle);
            let heard = Cell::new(Instant::now());
            let is_enough = || self.is_ended() || heard.get().elapsed() >= LISTING_PATIENCE;
            let listed = client.ask(&question, &is_enough, &mut |record| {
                if let Found::Object { status, .. } = &record.found {
                    let is_directory = status.is_directory();
                    let file = (status.kind == FileKind::File).then_some((status.size_bytes, status.modified.seconds));
                    if is_directory {
                        cut.take(&record.path, None, &mut add);
                    } else if selection.takes(&record.path, false, file) {
                        let bytes = file.map_or(0, |(bytes, _)| bytes);
                        cut.take(&record.path, Some(Weight { files: 1, bytes }), &mut add);
                    }
                }
                heard.set(Instant::now());
                !self.is_ended()
            });
            client.close();
            if let Err(e) = &listed
                && !self.is_ended()
            {
                let why = match e {
                    AskError::Interrupted(_) => format!("{} stopped sending its listing", endpoint.name),
                    e => ground::of_ask(endpoint, e).message,
                };
                (self.work.tell)(&format!("{why}; one host copies what was not listed"));
            }
            cut.finish(&mut add);
            break;
        }
        let mut state = self.lock();
        state.board.complete();
        state.is_listed = true;
        self.changed.notify_all();
    }

    /// Whether large files are handed out in ranges: where chunks are compared with what is there, that needs one receiver.
    fn has_ranges(&self) -> bool {
        let state = self.lock();
        let senders = state.hosts.iter().map(|host| &host.endpoint);
        let hosts: Vec<_> = senders.chain(state.receivers.iter().map(|one| &one.endpoint)).cloned().collect();
        drop(state);
        let has = !self.work.spec.options.is_delta && ground::know_ranges(self.work, &hosts);
        self.lock().has_ranges = has;
        has
    }

    fn add(&self, bundle: Bundle) {
        let mut state = self.lock();
        while state.board.counts().open >= OPEN_MAX && !self.is_over(&state) {
            state = self.wait(state);
        }
        let weight = bundle.weight;
        state.listed.add(weight);
        state.ranged_bytes += if bundle.range.is_some() { weight.bytes } else { 0 };
        state.board.add(Arc::new(bundle), weight);
        self.changed.notify_all();
    }

    /// One lane of a host.
    fn serve(&self, host: usize) {
        while let Some(task) = self.next(host) {
            let outcome = self.carry_out(&task);
            self.settle(&task, outcome);
        }
        self.lock().hosts[host].lanes -= 1;
    }

    /// Waits for something to do; nothing when there is nothing more.
    fn next(&self, host: usize) -> Option<Task> {
        let mut state = self.lock();
        loop {
            if self.is_over(&state) || !state.hosts[host].takes() {
                return None;
            }
            let now_ms = self.now_ms();
            if state.hosts[host].not_before_ms <= now_ms && state.has_receiver(now_ms) && state.has_room() {
                if let Some(late) = state.board.late(host, now_ms) {
                    state.lose(late);
                }
                let (rate, largest) = (state.hosts[host].rate, state.hosts[host].largest);
                let most = rate.saturating_mul(PAGE_MS).min(largest.saturating_mul(GROWTH));
                let cost = rate.saturating_mul(LAST_MS).min(most)..most;
                let mut room = self.list_bytes_max;
                let claimants = state.hosts.iter().filter(|host| host.takes()).count() * state.lanes();
                let mut last: Option<Arc<Bundle>> = None;
                let page = state.board.claim(host, (claimants, cost), now_ms, &mut |bundle| {
                    let goes_with = |last: &Arc<Bundle>| match last.range {
                        Some(_) => bundle.continues(last),
                        None => bundle.range.is_none() && bundle.list_bytes <= room,
                    };
                    let fits = last.as_ref().is_none_or(goes_with);
                    room = room.saturating_sub(bundle.list_bytes);
                    last = Some(bundle.clone());
                    fits
                });
                if let Some(page) = page {
                    let epoch = page.epoch;
                    match state.task(self.work, host, Part::Page(page), now_ms) {
                        Ok(task) => return Some(task),
                        Err(e) => {
                            state.board.lose(epoch);
                            state.fail(e);
                        }
                    }
                    continue;
                }
            }
            state = self.wait(state);
        }
    }

    fn settle(&self, task: &Task, outcome: Outcome) {
        let mut state = self.lock();
        state.forget(task.job);
        state.receivers[task.receiver].tasks -= 1;
        let mut is_receivers = false;
        let why = match outcome {
            Outcome::Ended(told) => {
                match told.status() {
                    Status::Succeeded | Status::Partial if state.commit(task, &told, self.now_ms()) => {
                        drop(state);
                        self.changed.notify_all();
                        // What it did is known here.
                        return steer(self.work, task, Steer::Remove);
                    }
                    Status::Succeeded | Status::Partial => None,
                    status => Some(told.failure().unwrap_or_else(|| Error::new(Exit::Temporary, status.word()))),
                }
            }
            Outcome::Lost(why) => {
                // Whoever carries it out is silent.
                is_receivers = task.role == Role::Fetches;
                Some(Error::new(Exit::Temporary, why))
            }
            Outcome::Stuck(why) => {
                // The other one is what it cannot go on with.
                is_receivers = task.role == Role::Sends;
                Some(Error::new(Exit::Temporary, why))
            }
            Outcome::Refused(e) => {
                // Where a receiver says so, another one may not.
                if task.role == Role::Sends {
                    state.hosts[task.host].failures = FAILURES_MAX;
                }
                Some(e)
            }
            Outcome::Full(text) => {
                state.fail(
                    Error::new(Exit::NoSpace, text)
                        .hint("make room at the destination; what is delivered stays, and the same command goes on"),
                );
                drop(state);
                self.changed.notify_all();
                return steer(self.work, task, Steer::Cancel);
            }
            Outcome::TakesNone if task.role == Role::Sends => {
                state.hosts[task.host].role = Role::Fetches;
                state.give_back(task);
                self.changed.notify_all();
                return;
            }
            Outcome::TakesNone => Some(Error::new(Exit::Temporary, "neither side carries out jobs")),
            Outcome::Taken | Outcome::Stopped => None,
        };
        if let Some(epoch) = task.epoch {
            state.lose(epoch);
        }
        match why {
            Some(why) if is_receivers => state.blame_receiver(task, &why.message, self.now_ms(), self.work.tell),
            Some(why) => state.blame(task, why, self.now_ms(), self.work.tell),
            None => {}
        }
        self.changed.notify_all();
    }

    fn carry_out(&self, task: &Task) -> Outcome {
        let work = self.work;
        let (still_holds, show) = (|| self.still_holds(task), |news: &OrderNews| self.show(task, news));
        Carrier { work, still_holds: &still_holds, show: &show }.carry_out(task)
    }

    fn still_holds(&self, task: &Task) -> bool {
        let state = self.lock();
        state.failed.is_none() && task.epoch.is_none_or(|epoch| state.board.holds(epoch))
    }

    fn show(&self, task: &Task, news: &OrderNews) {
        let mut state = self.lock();
        state.note(task, news);
        let (news, counts) = (state.news(), state.board.counts());
        let is_last = state.board.is_over();
        drop(state);
        // While slices run, somebody else shows how they stand together.
        if is_last {
            (self.work.show)(&news, counts);
        }
    }

    fn is_ended(&self) -> bool {
        self.is_over(&self.lock())
    }

    fn is_over(&self, state: &State) -> bool {
        state.board.is_over() || state.failed.is_some() || (self.work.stop)()
    }

    fn now_ms(&self) -> u64 {
        self.started.elapsed().as_millis() as u64
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'s>(&self, state: MutexGuard<'s, State>) -> MutexGuard<'s, State> {
        self.changed.wait_timeout(state, LOOK).unwrap_or_else(PoisonError::into_inner).0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hand_in::OrderEnded;
    use model::Location;

    #[test]
    fn the_result_is_the_last_slices_word_with_the_sums_of_all() {
        let share = |name: &str, files, bytes, bottleneck: &str| {
            let (name, bottleneck) = (name.to_owned(), bottleneck.to_owned());
            HostShare { name, files, bytes, bytes_sent: bytes, bottleneck, ..HostShare::default() }
        };
        let ended = OrderEnded { files_done: 2, files_skipped: 10, files_failed: 1, bytes: 5, ..OrderEnded::default() };
        let last = Told { news: OrderNews::default(), ended: Some(ended), events: None };
        let counts = Counts { open: 0, all: 2, done: 2, aside: 0 };
        let shares = vec![share("a", 4, 40, "its card"), share("a.a2", 6, 60, "the network")];
        let done = Done { shares, last, counts, voided: Vec::new() };
        let told = done.told().ended.unwrap();
        assert_eq!((told.files_done, told.files_skipped, told.files_failed), (10, 2, 1));
        assert_eq!((told.bytes, told.bytes_sent, &told.bottleneck[..]), (100, 100, "a.a2: the network"));
        // Whatever hosts say of themselves.
        let shares = vec![share("a", u64::MAX, u64::MAX, ""), share("a.a2", u64::MAX, u64::MAX, "")];
        assert_eq!(Done { shares, ..done }.told().ended.unwrap().files_done, u64::MAX);
    }

    #[test]
    fn what_follows_its_source_is_no_job_for_several_hosts() {
        let at = |name: &str| Location::Named { name: name.to_owned(), path: b"d/".to_vec() };
        let mut spec = TransferSpec::new(vec![at("a")], at("b"));
        assert!(check(&spec).is_ok());
        let text = r#"{"version":1,"sources":["a:d/"],"destination":"b:d/","until":"close"}"#;
        spec.options.follow = serde_json::from_str::<TransferSpec>(text).unwrap().options.follow;
        assert!(check(&spec).unwrap_err().message.contains("following"));
    }

    #[test]
    fn what_is_chosen_by_its_age_is_no_job_for_several_hosts() {
        let at = |name: &str| Location::Named { name: name.to_owned(), path: b"d/".to_vec() };
        let age = Some(Duration::from_secs(60));
        for (newer_than, older_than) in [(age, None), (None, age)] {
            let mut spec = TransferSpec::new(vec![at("a")], at("b"));
            (spec.choice.newer_than, spec.choice.older_than) = (newer_than, older_than);
            assert!(check(&spec).unwrap_err().message.contains("--older-than"));
        }
    }
}
