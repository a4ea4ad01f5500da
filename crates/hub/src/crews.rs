//! Attempts that several hosts of an endpoint carry out together: this hub hands their parts out, as `cp` does.
//!
//! Which ones is seen before anything is begun: copies of what is in one directory, more than a small job has, between
//! endpoints of which one told of several hosts, with nothing that several hosts cannot do together. All others are orders
//! to one host.
//!
//! Invariants:
//! - An attempt is at work from before its first part is handed out until after its hosts were told of its end.
//! - Which attempt it is has been written down before its first part is handed out (`was_begun`), and is gone before one
//!   host has it.
//! - Where several hosts get nowhere, one does it: whatever is in their way, the job goes on as it would without. Only
//!   what several have begun waits for an endpoint that does not answer.
//! - Whoever does a job alone that several have begun takes over what is open of it (`inherit`).
//!
//! Not here: how hosts share a job (`daemon::crew`), sessions with endpoints and what the hub is told (`courier`).

mod watch;

use crate::order::{Attempt, order_id};
use crate::{Error, Result};
use daemon::crew::{self, Counts, Done, Weight, Work};
use daemon::hand_in::{OrderNews, Told};
use daemon::hosts::{Site, known};
use daemon::{Endpoint, EndpointBook};
use model::options::{Buffer, Compare, Verify};
use model::order::{Kind, Role, Status};
use model::{Class, Exit, JobId, Location, TransferSpec};
use net::Identity;
use queue::Work as Amount;
use std::collections::{HashMap, HashSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tracing::{info, warn};
use transfer::HostShare;
use watch::Watch;

/// Each takes a few threads for each of its hosts.
const AT_WORK_MAX: usize = 16;
/// After an attempt of which nothing moved, for so long none between the same two endpoints is for several hosts.
const FRUITLESS_KEPT: Duration = Duration::from_secs(3600);
const SHOW_EVERY: Duration = Duration::from_secs(1);
/// For hosts to hear that the hub ends.
const STOP_PATIENCE: Duration = Duration::from_secs(10);
/// What is said of each file that only one host could write (`store`).
const NOT_FOR_SEVERAL: &str = "several hosts cannot work on one job";
/// So long warrants hold: for older parts nobody is let in any more.
const WARRANTS_HOLD: Duration = Duration::from_secs(86_400);
/// What is known of open parts is of no use for longer: no warrant holds so long, and no mark at a destination stays.
const LEFT_MAX: Duration = Duration::from_secs(30 * 86_400);

pub struct Crews {
    book: EndpointBook,
    identity: Identity,
    state_dir: PathBuf,
    /// Held to look up who is at work, or to note it.
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// By the order that the attempt would be.
    at_work: HashMap<JobId, Arc<Running>>,
    fruitless: HashMap<[String; 2], Instant>,
    is_over: bool,
}

struct Running {
    ends: [String; 2],
    class: Option<Class>,
    is_stopped: AtomicBool,
    /// Each is an order that no job has.
    parts: Mutex<HashSet<JobId>>,
}

/// What came of it.
pub enum Outcome {
    /// With what each of the hosts has done.
    Ended(Box<Told>, Vec<HostShare>),
    Failed(Error),
    /// It was told to.
    Stopped,
    /// One host is to do it.
    Alone,
}

impl Running {
    fn stop(&self) {
        self.is_stopped.store(true, Relaxed);
    }

    fn is_stopped(&self) -> bool {
        self.is_stopped.load(Relaxed)
    }
}

/// The hosts of an endpoint; itself, where it never told of several.
fn site(book: &EndpointBook, identity: &Identity, name: &str) -> Result<Site> {
    let endpoint = book.get(name)?;
    match known::has_several(book, name) {
        true => known::ask(&endpoint, book, identity),
        false => Ok(Site { working: vec![endpoint], leaving: Vec::new() }),
    }
}

impl Crews {
    pub fn new(book: EndpointBook, identity: Identity, state_dir: &Path) -> Arc<Crews> {
        let (state, changed) = Default::default();
        let crews = Crews { book, identity, state_dir: state_dir.to_owned(), state, changed };
        crews.forget_old();
        Arc::new(crews)
    }

    /// Whether several hosts may do it. Then it is at work, until `run` returns or somebody has it `leave`.
    pub fn take(&self, attempt: &Attempt) -> bool {
        let Some(ends) = ends_of(&attempt.spec) else { return false };
        let options = &attempt.spec.options;
        let may_share = attempt.kind == Kind::Copy
            && !(attempt.is_alone || attempt.is_for_one)
            // Each time it makes room for another it would begin anew with large files.
            && options.class != Some(Class::Low)
            // While what is there is read, no part says that it gets on: it would be taken for stuck.
            && !(options.is_delta || options.compare == Compare::Checksum || options.verify == Verify::Reread)
            // Filters see other paths below a directory that is named itself, and its attributes are copied.
            && attempt.spec.sources[0].path().ends_with(b"/")
            && crew::check(&attempt.spec).is_ok();
        if !may_share || !ends.iter().any(|end| known::has_several(&self.book, end)) {
            return false;
        }
        let mut state = self.lock();
        state.fruitless.retain(|_, since| since.elapsed() < FRUITLESS_KEPT);
        if state.is_over || state.at_work.len() >= AT_WORK_MAX || state.fruitless.contains_key(&ends) {
            return false;
        }
        let (class, (is_stopped, parts)) = (options.class, Default::default());
        let running = Running { ends, class, is_stopped, parts };
        state.at_work.insert(attempt.id(), Arc::new(running));
        true
    }

    /// Carries out what was taken, to its end. `show` hears every second how it stands.
    pub fn run(&self, attempt: &Attempt, show: &(dyn Fn(Told) + Sync)) -> Outcome {
        let order = attempt.id();
        let Some(running) = self.find(order) else { return Outcome::Stopped };
        let outcome = catch_unwind(AssertUnwindSafe(|| self.work(&running, attempt, show)));
        let outcome = outcome.map(|outcome| match outcome {
            Outcome::Alone => match crew::forget_attempt(&self.state_dir, attempt.job) {
                Ok(()) => Outcome::Alone,
                Err(e) => Outcome::Failed(e),
            },
            outcome => outcome,
        });
        self.leave(order);
        match outcome {
            Ok(Outcome::Alone) if running.is_stopped() => Outcome::Stopped,
            Ok(outcome) => outcome,
            Err(_) => {
                let text = "what several hosts worked on ended unexpectedly, which is a bug";
                Outcome::Failed(Error::new(Exit::Fatal, text))
            }
        }
    }

    fn work(&self, running: &Running, attempt: &Attempt, show: &(dyn Fn(Told) + Sync)) -> Outcome {
        let mut spec = attempt.spec.clone();
        spec.destination.name_contents();
        let watch = Watch::new();
        let shown = Mutex::new(watch.begun);
        let (book, identity, ends) = (self.book.clone(), self.identity.clone(), running.ends.clone());
        let told = move |end: &str| site(&book, &identity, end).ok();
        let mut work = Work {
            job: attempt.job,
            spec: &spec,
            senders: Vec::new(),
            receivers: Vec::new(),
            do_fetch: attempt.role == Role::Fetches,
            look: Arc::new(move || (told(&ends[0]), told(&ends[1]))),
            identity: self.identity.clone(),
            state: &self.state_dir,
            common: None,
            stop: &|| running.is_stopped() || watch.gives_up(),
            begun: &|part: JobId| _ = lock(&running.parts).insert(part),
            tell: &|text: &str| info!(job = %attempt.job, text, "several hosts work on a job"),
            show: &|news: &OrderNews, counts: Counts| {
                watch.note(news, counts);
                let mut last = lock(&shown);
                if last.elapsed() >= SHOW_EVERY {
                    *last = Instant::now();
                    drop(last);
                    show(Told { news: news.clone(), ended: None, events: None });
                }
            },
        };
        let ready = self.choose(running, &mut work);
        let ready = ready.and_then(|()| crew::note_attempt(&self.state_dir, attempt.job, attempt.attempt));
        if let Err(e) = ready {
            if running.is_stopped() {
                return Outcome::Stopped;
            }
            if e.exit == Exit::Unreachable && self.was_divided(attempt.job) {
                return Outcome::Failed(e);
            }
            info!(job = %attempt.job, why = %e.message, "one host does a job that several might have done");
            return Outcome::Alone;
        }
        watch.start();
        match crew::run(&work) {
            Ok(done) if is_for_one(&done) => {
                warn!(job = %attempt.job, "several hosts cannot write all of a job: one host does it");
                self.lock().fruitless.insert(running.ends.clone(), Instant::now());
                Outcome::Alone
            }
            Ok(done) => ended(done, watch.begun),
            Err(_) if running.is_stopped() => Outcome::Stopped,
            Err(e) if watch.is_fruitless() => {
                warn!(job = %attempt.job, error = %e.message, "several hosts get nowhere with a job: one host does it");
                self.note_fruitless(running, &e);
                Outcome::Alone
            }
            Err(e) => Outcome::Failed(e),
        }
    }

    /// Finds out whether it is for several hosts, and for which: what is small is known before endpoints are asked for theirs.
    fn choose(&self, running: &Running, work: &mut Work<'_>) -> Result<()> {
        let [from, to] = [self.book.get(&running.ends[0])?, self.book.get(&running.ends[1])?];
        let small = || Err(Error::new(Exit::Usage, "it is small"));
        work.senders = vec![from.clone()];
        let is_seen = match crew::holds(work, &is_enough) {
            Ok(false) => return small(),
            // That one may be away.
            holds => holds.is_ok(),
        };
        (work.senders, work.receivers) = (self.site(&from.name)?.working, self.site(&to.name)?.working);
        if work.senders.is_empty() || work.receivers.is_empty() {
            return Err(Error::new(Exit::Temporary, "all hosts of one endpoint are drained"));
        }
        let has_others = |hosts: &[Endpoint], known: &Endpoint| hosts.iter().any(|host| host.pin != known.pin);
        if !has_others(&work.senders, &from) && !has_others(&work.receivers, &to) {
            return Err(Error::new(Exit::Usage, "one host works at each end"));
        }
        if !is_seen && !crew::holds(work, &is_enough)? {
            return small();
        }
        crew::can_share(work)
    }

    /// What may be so for other jobs between these endpoints too.
    fn note_fruitless(&self, running: &Running, e: &Error) {
        if matches!(e.exit, Exit::Temporary | Exit::Unreachable | Exit::Interrupted) {
            self.lock().fruitless.insert(running.ends.clone(), Instant::now());
        }
    }

    fn site(&self, name: &str) -> Result<Site> {
        site(&self.book, &self.identity, name)
    }

    /// Has an attempt stop; false where it is not at work.
    pub fn stop(&self, order: JobId) -> bool {
        let running = self.find(order);
        running.iter().for_each(|running| running.stop());
        running.is_some()
    }

    /// Has an attempt begin anew if that is needed for what was changed of its job; false where it is not at work.
    pub fn change(&self, order: JobId, rate: Option<&str>, class: Option<Class>) -> bool {
        let running = self.find(order);
        // Of several hosts, each would have the rate for itself.
        let changed = running.iter().filter(|running| rate.is_some() || running.class != class);
        changed.for_each(|running| running.stop());
        running.is_some()
    }

    pub fn has(&self, order: JobId) -> bool {
        self.find(order).is_some()
    }

    #[cfg(test)]
    pub fn note_part(&self, order: JobId, part: JobId) {
        self.find(order).into_iter().for_each(|running| _ = lock(&running.parts).insert(part));
    }

    /// Whether an order is a part of an attempt that is at work.
    pub fn has_part(&self, order: JobId) -> bool {
        self.lock().at_work.values().any(|running| lock(&running.parts).contains(&order))
    }

    /// Whether several hosts had an attempt that is at work no more, as after another hub: no endpoint has its order.
    pub fn was_begun(&self, job: JobId, attempt: u32) -> bool {
        crew::attempt(&self.state_dir, job) == Some(attempt) && !self.has(order_id(job, attempt))
    }

    /// Whether several hosts had the last attempt of a job that anybody had.
    pub fn was_divided(&self, job: JobId) -> bool {
        crew::attempt(&self.state_dir, job).is_some()
    }

    /// Jobs of which hosts may still be at something.
    pub fn all_left(&self) -> Vec<JobId> {
        crew::left_since(&self.state_dir, WARRANTS_HOLD)
    }

    /// What hosts may still be at of a job.
    pub fn left(&self, job: JobId) -> Vec<JobId> {
        crew::left(&self.state_dir, job)
    }

    /// Has all hosts of an endpoint let nobody in any more for these parts.
    pub fn revoke(&self, parts: &[JobId], endpoint: &str) {
        if let Ok(site) = self.site(endpoint) {
            crew::revoke(parts, &site.working, &self.identity);
        }
    }

    pub fn leave(&self, order: JobId) {
        self.lock().at_work.remove(&order);
        self.changed.notify_all();
    }

    /// Has all attempts stop, and waits a while for them.
    pub fn stop_all(&self) {
        let mut state = self.lock();
        state.is_over = true;
        state.at_work.values().for_each(|running| running.stop());
        let are_left = |state: &mut State| !state.at_work.is_empty();
        let waited = self.changed.wait_timeout_while(state, STOP_PATIENCE, are_left);
        drop(waited.unwrap_or_else(PoisonError::into_inner));
    }

    /// Has one host take over what several have begun of its job, if they have.
    pub fn inherit(&self, attempt: &mut Attempt) -> Result<()> {
        if let Some(slice) = crew::inherited(&self.state_dir, attempt.job, attempt.id())? {
            crew::forget_attempt(&self.state_dir, attempt.job)?;
            attempt.spec.destination.name_contents();
            attempt.spec.options.slice = Some(Arc::new(slice));
            // As with every part: what waits there is brought to its place by nobody who could be told of a take-over.
            attempt.spec.options.buffer = Buffer::Never;
        }
        Ok(())
    }

    /// The job is done, or is to be known no more.
    pub fn forget(&self, job: JobId) {
        crew::forget(&self.state_dir, job);
    }

    pub fn forget_old(&self) {
        crew::forget_old(&self.state_dir, LEFT_MAX);
    }

    fn find(&self, order: JobId) -> Option<Arc<Running>> {
        self.lock().at_work.get(&order).cloned()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

fn ended(done: Done, begun: Instant) -> Outcome {
    let mut told = done.told();
    let Some(ended) = told.ended.as_mut() else {
        let text = "the host that ended the job says nothing of what came of it";
        return Outcome::Failed(Error::new(Exit::Fatal, text));
    };
    ended.milliseconds = begun.elapsed().as_millis() as u64;
    Outcome::Ended(Box::new(told), done.shares)
}

/// Whether only one host could write some of it, as where another file system begins at the destination or below it. Where
/// the last part failed as a whole, parts are open, and whoever takes them over could not write it either.
fn is_for_one(done: &Done) -> bool {
    let mut failures = done.last.events.iter().flat_map(|events| &events.failures);
    done.last.status() != Status::Failed && failures.any(|failure| failure.text.contains(NOT_FOR_SEVERAL))
}

/// Source and destination, where both are endpoints.
fn ends_of(spec: &TransferSpec) -> Option<[String; 2]> {
    let name = |location: &Location| match location {
        Location::Named { name, .. } => Some(name.clone()),
        _ => None,
    };
    Some([name(spec.sources.first()?)?, name(&spec.destination)?])
}

/// More than a small job has.
fn is_enough(weight: Weight) -> bool {
    let Weight { files, bytes } = weight;
    let amount = Amount { files_listed: files, bytes_listed: bytes, is_listed: true, ..Amount::default() };
    amount.is_small() == Some(false)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job_file::JobFile;
    use crate::scene::state;
    use daemon::hand_in::{OrderEvents, OrderFailure};
    use daemon::trust::make_private_directory;

    fn crews(dir: &Path) -> Arc<Crews> {
        Crews::new(EndpointBook::new(dir.join("endpoints")), Identity::generate().unwrap(), dir)
    }

    /// As after `endpoint add` with an endpoint that told of its hosts.
    fn tell_of_several(dir: &Path) {
        std::fs::write(dir.join("endpoints").join("a.hosts"), "[]").unwrap();
    }

    fn attempt(number: u8, source: &str, more: &str) -> Attempt {
        let text = format!(r#"{{"source":"{source}","destination":"b:y"{more}}}"#);
        let wish = JobFile::from_json(&text).unwrap().wish("anna").unwrap();
        Attempt {
            job: JobId([number; 16]),
            attempt: 1,
            kind: wish.kind,
            role: Role::Sends,
            peer: "b".to_owned(),
            spec: wish.spec,
            is_for_one: false,
            is_alone: false,
        }
    }

    #[test]
    fn a_copy_is_for_several_hosts_where_an_endpoint_told_of_several_and_nothing_else_is() {
        let dir = state();
        let crews = crews(dir.path());
        let taken = |source: &str, more: &str| crews.take(&attempt(1, source, more));
        assert!(!taken("a:x/", ""), "one host at each end");
        tell_of_several(dir.path());
        assert!(taken("a:x/", "") && taken("a:x/", r#","class":"high""#));
        assert!(!taken("a:x", "") && !taken("a:", ""), "below the destination it has its name and its attributes");
        assert!(!taken("a:x/", r#","class":"low""#), "it makes room for others");
        for option in [
            r#""newer-than":86400"#,
            r#""older-than":86400"#,
            r#""delta":true"#,
            r#""compare":"checksum""#,
            r#""verify":"reread""#,
        ] {
            assert!(!taken("a:x/", &format!(r#","options":{{{option}}}"#)), "{option}");
        }
        for more in [r#","kind":"sync""#, r#","kind":"move""#, r#","rate":"1M""#, r#","options":{"dry-run":true}"#] {
            assert!(!taken("a:x/", more), "{more}");
        }
        assert!(!taken("b:x/", ""));
        assert!(!crews.take(&Attempt { is_alone: true, ..attempt(1, "a:x/", "") }));
        assert!(!crews.take(&Attempt { is_for_one: true, ..attempt(1, "a:x/", "") }));
    }

    #[test]
    fn so_many_attempts_are_at_work_at_once_and_their_parts_are_known() {
        let dir = state();
        let crews = crews(dir.path());
        tell_of_several(dir.path());
        let attempt = |number| attempt(number, "a:x/", "");
        assert!((0..AT_WORK_MAX as u8).all(|number| crews.take(&attempt(number))));
        assert!(!crews.take(&attempt(99)));
        let part = JobId([200; 16]);
        crews.note_part(attempt(1).id(), part);
        assert!(crews.has_part(part) && !crews.has_part(JobId([201; 16])));
        (0..AT_WORK_MAX as u8).for_each(|number| crews.leave(attempt(number).id()));
        assert!(!crews.has_part(part) && crews.take(&attempt(99)));
        crews.note_fruitless(&crews.find(attempt(99).id()).unwrap(), &Error::new(Exit::Temporary, "nothing moves"));
        assert!(!crews.take(&attempt(1)));
        crews.leave(attempt(99).id());
        crews.stop_all();
        assert!(!crews.take(&attempt(1)));
    }

    #[test]
    fn what_several_hosts_cannot_even_begin_is_for_one() {
        let dir = state();
        let crews = crews(dir.path());
        tell_of_several(dir.path());
        let attempt = attempt(1, "a:x/", "");
        assert!(matches!(crews.run(&attempt, &|_| {}), Outcome::Stopped), "it was not taken");
        assert!(crews.take(&attempt) && matches!(crews.run(&attempt, &|_| {}), Outcome::Alone));
        assert!(!crews.has(attempt.id()) && !crews.stop(attempt.id()));
        assert!(crews.take(&attempt) && crews.stop(attempt.id()));
        assert!(matches!(crews.run(&attempt, &|_| {}), Outcome::Stopped));
    }

    #[test]
    fn another_rate_or_class_has_an_attempt_begin_anew_and_another_priority_does_not() {
        let dir = state();
        let crews = crews(dir.path());
        tell_of_several(dir.path());
        let attempt = attempt(1, "a:x/", r#","class":"high""#);
        let is_stopped = |rate: Option<&str>, class| {
            assert!(crews.take(&attempt) && crews.change(attempt.id(), rate, class));
            crews.find(attempt.id()).unwrap().is_stopped()
        };
        assert!(!is_stopped(None, Some(Class::High)));
        assert!(is_stopped(Some("1M"), Some(Class::High)) && is_stopped(None, None));
        crews.leave(attempt.id());
        assert!(!crews.change(attempt.id(), Some("1M"), None), "an endpoint has it, if anybody");
    }

    #[test]
    fn one_host_that_goes_on_with_what_several_have_begun_is_told_of_it() {
        let dir = state();
        let crews = crews(dir.path());
        let inherited = || {
            let mut attempt = attempt(1, "a:x/", "");
            crews.inherit(&mut attempt).unwrap();
            (attempt.spec.destination.path().to_vec(), attempt.spec.options.slice)
        };
        assert_eq!(inherited(), (b"y".to_vec(), None));
        make_private_directory(&dir.path().join("crews").join(JobId([1; 16]).to_string())).unwrap();
        let (to, slice) = inherited();
        assert_eq!((&to[..], slice.map(|slice| slice.run.is_some())), (&b"y/"[..], Some(true)));
        crews.forget(JobId([1; 16]));
        assert_eq!(inherited(), (b"y".to_vec(), None));
    }

    #[test]
    fn an_attempt_that_several_hosts_had_is_known_after_another_hub_until_one_is_to_have_it() {
        let dir = state();
        tell_of_several(dir.path());
        let (before, mut attempt) = (crews(dir.path()), attempt(1, "a:x/", ""));
        assert!(before.take(&attempt) && !before.was_begun(attempt.job, 1));
        crew::note_attempt(dir.path(), attempt.job, 1).unwrap();
        assert!(!before.was_begun(attempt.job, 1), "it is at work");
        let after = crews(dir.path());
        assert!(after.was_begun(attempt.job, 1) && !after.was_begun(attempt.job, 2));
        // Nobody answers: several go on with it later.
        let outcome = before.run(&attempt, &|_| {});
        assert!(matches!(outcome, Outcome::Failed(e) if e.exit == Exit::Unreachable));
        assert!(after.was_begun(attempt.job, 1) && after.was_divided(attempt.job));
        after.inherit(&mut attempt).unwrap();
        assert!(!after.was_begun(attempt.job, 1) && !after.was_divided(attempt.job));
    }

    #[test]
    fn what_only_one_host_can_write_is_for_one() {
        let done = |status: Status, text: &str| {
            let failure = OrderFailure { text: text.to_owned(), ..OrderFailure::default() };
            let events = Some(OrderEvents { failures: vec![failure], ..OrderEvents::default() });
            let counts = Counts { open: 0, all: 1, done: 1, aside: 0 };
            let news = OrderNews { status: status as u32, ..OrderNews::default() };
            let last = Told { news, ended: None, events };
            Done { shares: Vec::new(), last, counts, voided: Vec::new() }
        };
        let text = "another file system begins here, where several hosts cannot work on one job: omit --hosts";
        assert!(is_for_one(&done(Status::Partial, text)) && !is_for_one(&done(Status::Failed, text)));
        assert!(!is_for_one(&done(Status::Partial, "permission denied")));
    }

    #[test]
    fn small_jobs_are_for_one_host() {
        let weight = |files, bytes| Weight { files, bytes };
        assert!(!is_enough(weight(999, (64 << 20) - 1)));
        assert!(is_enough(weight(1000, 0)) && is_enough(weight(1, 64 << 20)));
    }
}
