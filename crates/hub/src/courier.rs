//! Speaks with one endpoint: hands orders in, steers them, and asks again and again what there is of ours.
//!
//! One session carries it all, and a second one errands for which the first has no room. A thread looks, a few others run errands,
//! so that a distant endpoint is not waited for one order at a time; all of them end when there is nothing to do.
//!
//! Invariants:
//! - An order whose fate is not known is not given again: the endpoint is asked what it has (`Word::Census`), and one
//!   that it misses is taken back before another attempt is given (`Errand::TakeBack`).
//! - What is on its way to the endpoint is not sent again: each census asks for it until it has arrived, and more is asked for in a
//!   round trip than can be said in one.
//! - A census says what was true when it was asked for: orders taken later are not missed in it (`Census::as_of`).

mod inbox;

use crate::crews::{Crews, Outcome};
use crate::order::{Attempt, order_id, warrant_id};
use daemon::hand_in::{Desk, TAKES_NONE, Told};
use daemon::{Endpoint, EndpointBook, Error};
pub use inbox::Errand;
use inbox::{DESKS, Inbox, RUNNERS_MAX};
use model::order::Steer;
use model::{Class, Exit, JobId, Pin};
use net::Identity;
use queue::Answer;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::SyncSender;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tracing::warn;
use transfer::HostShare;

/// How often an endpoint is asked that has orders of ours.
const LOOK: Duration = Duration::from_millis(100);
/// How often one that has none, so that it is known whether it answers.
const LOOK_IDLE: Duration = Duration::from_secs(10);
/// How often one that did not answer, unless the queue wants it sooner (`queue::Action::Probe`).
const LOOK_AWAY: Duration = Duration::from_secs(30);
/// A thread that had nothing to do for so long ends.
const IDLE_MAX: Duration = Duration::from_secs(60);
/// An endpoint that has not answered for so long counts as away, although its session goes on: its storage may hang.
const ANSWER_MAX: Duration = Duration::from_secs(60);
/// The longest answer in a census; then it is not known what is missing.
const TOLD_MAX: usize = 1024;

/// What a courier tells its hub.
pub enum Word {
    /// The order was taken, or may have been; `stamp` says when.
    Taken {
        job: JobId,
        attempt: u32,
        stamp: u64,
    },
    Answered {
        job: JobId,
        attempt: u32,
        answer: Answer,
    },
    /// The endpoint was not reached, or did not take it for the moment.
    RateUntold {
        order: JobId,
    },
    Census(Census),
    /// How an order stands that several hosts carry out.
    News {
        endpoint: String,
        order: JobId,
        told: Box<Told>,
    },
    /// With what failed in it, and what each of several hosts has done.
    Ended {
        order: JobId,
        told: Box<Told>,
        hosts: Vec<HostShare>,
    },
    Unreached {
        endpoint: String,
        text: String,
    },
    TakesNone {
        endpoint: String,
    },
}

pub struct Census {
    pub endpoint: String,
    pub as_of: u64,
    pub told: Vec<(JobId, Told)>,
    /// What is not in it is not there.
    pub is_whole: bool,
}

/// With whose it is.
type OpenDesk = (Pin, Arc<Desk>);

pub struct Courier {
    pub name: String,
    book: EndpointBook,
    identity: Identity,
    crews: Arc<Crews>,
    words: SyncSender<Word>,
    /// Held to move an errand in or out.
    inbox: Mutex<Inbox>,
    filled: Condvar,
    /// The first is for looking as well. Each is held to open it.
    desks: [Mutex<Option<OpenDesk>>; DESKS],
    /// Counts orders that were taken.
    clock: AtomicU64,
    /// Orders of ours that are open there, as the hub knows it.
    pub open: AtomicUsize,
    is_over: AtomicBool,
}

/// Until the next look at an endpoint.
fn pause(is_answered: bool, has_work: bool) -> Duration {
    match (is_answered, has_work) {
        (false, _) => LOOK_AWAY,
        (true, true) => LOOK,
        (true, false) => LOOK_IDLE,
    }
}

/// Whether an endpoint is to be told again what it did not take: not what it refused for good, nor of an order that has ended there or
/// is gone (`Exit::Failed`), of which the next census says so.
fn is_untold(e: &Error, is_heard: bool) -> bool {
    !is_heard || matches!(e.exit, Exit::Temporary | Exit::NoSpace)
}

/// Whether an endpoint said nothing: its session is over, or it did not answer in time.
fn is_silent(e: &Error, is_open: bool) -> bool {
    !is_open || e.exit == Exit::Interrupted
}

fn refused(e: &Error) -> Answer {
    Answer::Refused { code: e.exit as i32, text: e.message.clone(), hint: e.hint.clone().unwrap_or_default() }
}

impl Courier {
    pub fn new(
        name: &str,
        book: EndpointBook,
        identity: Identity,
        crews: Arc<Crews>,
        words: SyncSender<Word>,
    ) -> Arc<Courier> {
        Arc::new(Courier {
            name: name.to_owned(),
            book,
            identity,
            crews,
            words,
            inbox: Mutex::default(),
            filled: Condvar::new(),
            desks: Default::default(),
            clock: AtomicU64::new(0),
            open: AtomicUsize::new(0),
            is_over: AtomicBool::new(false),
        })
    }

    /// False where one like it is on its way.
    pub fn send(self: &Arc<Courier>, errand: Errand) -> bool {
        let mut inbox = self.lock();
        if !inbox.take_in(errand) {
            return false;
        }
        self.hire(&mut inbox);
        drop(inbox);
        self.filled.notify_all();
        true
    }

    /// Starts another thread for errands, if none is free. If that fails, they wait for the other threads, or for the
    /// next errand or look.
    fn hire(self: &Arc<Courier>, inbox: &mut Inbox) {
        if inbox.idle == 0 && inbox.runners < RUNNERS_MAX {
            let courier = self.clone();
            let spawned = std::thread::Builder::new().name("errands".into()).spawn(move || courier.run_errands());
            inbox.runners += usize::from(spawned.is_ok());
        }
    }

    /// Asks what the endpoint has of ours, and goes on asking as long as it has something.
    pub fn look(self: &Arc<Courier>) {
        let mut inbox = self.lock();
        inbox.is_wanted = true;
        if !inbox.is_looking {
            let courier = self.clone();
            let spawned = std::thread::Builder::new().name("looks".into()).spawn(move || courier.keep_looking());
            inbox.is_looking = spawned.is_ok();
        }
        drop(inbox);
        self.filled.notify_all();
    }

    /// Whether an errand waits or is being run.
    #[cfg(test)]
    pub fn has(&self, errand: &Errand) -> bool {
        errand.key().is_some_and(|key| self.lock().pending.contains(&key))
    }

    pub fn stop(&self) {
        self.is_over.store(true, Ordering::Relaxed);
        self.filled.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, Inbox> {
        self.inbox.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }

    pub(crate) fn desk(&self) -> Result<Arc<Desk>, Error> {
        self.desk_at(0)
    }

    /// Says when to stop waiting for an answer: so long after this call, or when the hub ends.
    fn patience(&self, answer_max: Duration) -> impl Fn() -> bool {
        let until = Instant::now() + answer_max;
        move || self.is_over() || Instant::now() >= until
    }

    fn desk_at(&self, at: usize) -> Result<Arc<Desk>, Error> {
        let mut desk = self.desks[at].lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, desk)) = desk.as_ref().filter(|(pin, desk)| desk.is_open() && self.is_still(*pin)) {
            return Ok(desk.clone());
        }
        *desk = None;
        let known = self.book.get(&self.name)?;
        let opened = Arc::new(Desk::open(&known, &self.identity)?);
        *desk = Some((known.pin, opened.clone()));
        Ok(opened)
    }

    /// Whether nobody else has the endpoint's name by now. A session with one that is no longer known goes on.
    fn is_still(&self, pin: Pin) -> bool {
        !matches!(self.book.get(&self.name), Ok(known) if known.pin != pin)
    }

    fn say(&self, word: Word) {
        // A hub that ends does not listen any more.
        let _ = self.words.send(word);
    }

    fn lost(&self, error: &Error) {
        let text = match error.exit {
            Exit::Interrupted => format!("it is connected, and did not answer within {} s", ANSWER_MAX.as_secs()),
            _ => error.message.clone(),
        };
        self.say(Word::Unreached { endpoint: self.name.clone(), text });
    }

    fn run_errands(self: Arc<Courier>) {
        let mut inbox = self.lock();
        loop {
            if self.is_over() {
                break;
            }
            if let Some((errand, desk)) = inbox.hand_out() {
                drop(inbox);
                let key = errand.key();
                self.run(errand, desk);
                inbox = self.lock();
                inbox.busy[desk] -= 1;
                key.map(|key| inbox.pending.remove(&key));
                continue;
            }
            inbox.idle += 1;
            let (woken, waited) = self.filled.wait_timeout(inbox, IDLE_MAX).unwrap_or_else(PoisonError::into_inner);
            inbox = woken;
            inbox.idle -= 1;
            if waited.timed_out() && inbox.errands.is_empty() {
                break;
            }
        }
        inbox.runners -= 1;
    }

    fn run(self: &Arc<Courier>, errand: Errand, at: usize) {
        match errand {
            Errand::HandIn(attempt) => self.begin(attempt, at),
            Errand::Renew(attempt) => self.renew(&attempt, at),
            Errand::Stop { order } if self.crews.stop(order) => {}
            Errand::Stop { order } => self.steer(order, Steer::Cancel, at),
            Errand::TakeBack { job, attempt } => self.take_back(job, attempt, at),
            Errand::Abandon { job, attempt } => self.abandon(job, attempt, at),
            // Its parts have warrants of their own, which end with them.
            Errand::Revoke { order } if self.crews.has(order) => {}
            Errand::Revoke { order } => {
                self.tell(&|desk| desk.revoke(warrant_id(order), &self.patience(ANSWER_MAX)), at);
            }
            Errand::RevokeParts { parts, .. } => self.crews.revoke(&parts, &self.name),
            Errand::Forget { order } => self.steer(order, Steer::Remove, at),
            Errand::Change { order, rate, class } if self.crews.change(order, rate.as_deref(), class) => {}
            Errand::Change { order, rate, class } => self.change(order, rate.as_deref(), class, at),
            Errand::Report { order } => self.report(order, at),
        }
    }

    fn report(&self, order: JobId, at: usize) {
        match self.desk_at(at).and_then(|desk| desk.ask(order, &self.patience(ANSWER_MAX))) {
            Ok(told) => self.say(Word::Ended { order, told: Box::new(told), hosts: Vec::new() }),
            // The next census asks for it again.
            Err(e) if matches!(e.exit, Exit::Temporary | Exit::Unreachable | Exit::Interrupted) => self.lost(&e),
            Err(_) => {}
        }
    }

    /// What breaks a session may leave an order on its way over it. Taken back, it is there by now, or never comes.
    fn take_back(&self, job: JobId, attempt: u32, at: usize) {
        let order = order_id(job, attempt);
        let desk = match self.desk_at(at) {
            Ok(desk) => desk,
            Err(e) => return self.lost(&e),
        };
        let stop = self.patience(ANSWER_MAX);
        let asked = match desk.revoke(warrant_id(order), &stop) {
            Err(e) if is_silent(&e, desk.is_open()) => Err(e),
            // Where it cannot be written down, the job would wait for ever.
            _ => desk.ask(order, &stop).map(drop),
        };
        match asked {
            Err(e) if is_silent(&e, desk.is_open()) => self.lost(&e),
            Err(e) if e.exit == Exit::Failed => self.say(Word::Answered { job, attempt, answer: Answer::Unknown }),
            // It came after all, and goes on; or the next census misses it again.
            _ => {}
        }
    }

    /// What an endpoint has that carries out nothing any more comes to nothing, should it go on: others may have it.
    fn abandon(&self, job: JobId, attempt: u32, at: usize) {
        let desk = match self.desk_at(at) {
            Ok(desk) => desk,
            Err(e) => return self.lost(&e),
        };
        match desk.revoke(warrant_id(order_id(job, attempt)), &self.patience(ANSWER_MAX)) {
            Ok(()) => {
                let answer = Answer::TakesNone { text: TAKES_NONE.to_owned() };
                self.say(Word::Answered { job, attempt, answer });
            }
            Err(e) if is_silent(&e, desk.is_open()) => self.lost(&e),
            // The next look asks for it again.
            Err(_) => {}
        }
    }

    /// Gives an attempt to several hosts, if they may do it, else to the endpoint.
    fn begin(self: &Arc<Courier>, mut attempt: Box<Attempt>, at: usize) {
        let (job, number, order) = (attempt.job, attempt.attempt, attempt.id());
        let is_alone = attempt.is_alone;
        let answer = if self.crews.take(&attempt) {
            let courier = self.clone();
            let together = move || courier.work_together(attempt);
            let Err(e) = std::thread::Builder::new().name("together".into()).spawn(together) else { return };
            self.crews.leave(order);
            Some(refused(&Error::new(Exit::Temporary, format!("start a thread: {e}"))))
        } else {
            match self.crews.inherit(&mut attempt) {
                Ok(()) => self.hand_in(&attempt, at),
                Err(e) => Some(refused(&e)),
            }
        };
        if is_alone && answer.is_none() {
            // What was changed of the job meanwhile reached nobody.
            self.say(Word::RateUntold { order });
        }
        if let Some(answer) = answer {
            self.say(Word::Answered { job, attempt: number, answer });
        }
    }

    /// Has several hosts carry an attempt out. No endpoint has such an order: it counts as on its way until it ended.
    fn work_together(self: Arc<Courier>, mut attempt: Box<Attempt>) {
        let (job, number, order) = (attempt.job, attempt.attempt, attempt.id());
        let show = |told: Told| self.say(Word::News { endpoint: self.name.clone(), order, told: Box::new(told) });
        let answer = match self.crews.run(&attempt, &show) {
            Outcome::Ended(told, hosts) => {
                self.say(Word::Ended { order, told, hosts });
                // Where the hub could not write that down, the endpoint misses the order from here on: it is given once more.
                return self.say(self.taken(&attempt));
            }
            Outcome::Alone => {
                attempt.is_alone = true;
                self.send(Errand::HandIn(attempt));
                return;
            }
            Outcome::Stopped => Answer::Unknown,
            Outcome::Failed(e) => refused(&e),
        };
        self.say(Word::Answered { job, attempt: number, answer });
    }

    fn taken(&self, attempt: &Attempt) -> Word {
        let stamp = self.clock.fetch_add(1, Ordering::SeqCst) + 1;
        Word::Taken { job: attempt.job, attempt: attempt.attempt, stamp }
    }

    /// What the endpoint answers, if that settles it; otherwise the next census does.
    fn hand_in(&self, attempt: &Attempt, at: usize) -> Option<Answer> {
        let (executor, peer) = match self.ends(attempt) {
            Ok(ends) => ends,
            Err(e) => return Some(refused(&e)),
        };
        let desk = match self.desk_at(at) {
            Ok(desk) => desk,
            Err(e) => {
                self.lost(&e);
                return Some(Answer::Unknown);
            }
        };
        match desk.hand_in(&attempt.order(&executor, &peer), &self.patience(ANSWER_MAX)) {
            Ok(()) => {
                self.say(self.taken(attempt));
                None
            }
            Err(e) if e.message.contains(TAKES_NONE) => Some(Answer::TakesNone { text: e.message }),
            Err(e) if is_silent(&e, desk.is_open()) => {
                self.say(self.taken(attempt));
                self.lost(&e);
                None
            }
            Err(e) => Some(refused(&e)),
        }
    }

    fn ends(&self, attempt: &Attempt) -> Result<(Endpoint, Endpoint), Error> {
        Ok((self.book.get(&self.name)?, self.book.get(&attempt.peer)?))
    }

    fn renew(&self, attempt: &Attempt, at: usize) {
        let Ok((executor, peer)) = self.ends(attempt) else { return };
        let order = attempt.order(&executor, &peer);
        self.tell(&|desk| desk.renew_as(&order, Steer::Retry, &self.patience(ANSWER_MAX)), at);
    }

    fn steer(&self, order: JobId, steer: Steer, at: usize) {
        self.tell(&|desk| desk.steer(order, steer, &self.patience(ANSWER_MAX)), at);
    }

    fn change(&self, order: JobId, rate: Option<&str>, class: Option<Class>, at: usize) {
        let (told, is_open) = match self.desk_at(at) {
            Ok(desk) => {
                let stop = self.patience(ANSWER_MAX);
                let told = desk.set_rate(order, rate, &stop).and_then(|()| desk.set_class(order, class, &stop));
                (told, desk.is_open())
            }
            Err(e) => (Err(e), false),
        };
        let Err(e) = told else { return };
        let is_heard = !is_silent(&e, is_open);
        if !is_heard {
            self.lost(&e);
        }
        if is_untold(&e, is_heard) {
            self.say(Word::RateUntold { order });
        } else if e.exit != Exit::Failed {
            warn!(order = %order, endpoint = %self.name, error = %e.message, "an order keeps its rate or class");
        }
    }

    /// What is refused needs no answer: the order ended meanwhile, or is gone, and the next census says so; or the word is said again.
    fn tell(&self, word: &dyn Fn(&Desk) -> Result<(), Error>, at: usize) {
        let told = self.desk_at(at).and_then(|desk| match word(&desk) {
            Err(e) if is_silent(&e, desk.is_open()) => Err(e),
            _ => Ok(()),
        });
        if let Err(e) = told {
            self.lost(&e);
        }
    }

    fn keep_looking(self: Arc<Courier>) {
        let mut idle_since = Instant::now();
        loop {
            self.lock().is_wanted = false;
            let is_answered = self.look_once();
            let has_work = self.open.load(Ordering::Relaxed) > 0;
            if has_work {
                idle_since = Instant::now();
            }
            let pause = pause(is_answered, has_work);
            let mut inbox = self.lock();
            if inbox.runners == 0 && !inbox.errands.is_empty() {
                self.hire(&mut inbox);
            }
            let until = Instant::now() + pause;
            loop {
                let has_work = self.open.load(Ordering::Relaxed) > 0;
                let is_due = Instant::now() >= until || inbox.is_wanted || has_work && pause == LOOK_IDLE;
                if self.is_over() || is_due {
                    break;
                }
                let left = until.saturating_duration_since(Instant::now());
                inbox = self.filled.wait_timeout(inbox, left).unwrap_or_else(PoisonError::into_inner).0;
            }
            let is_needless = idle_since.elapsed() >= IDLE_MAX && !inbox.is_wanted && inbox.errands.is_empty();
            if self.is_over() || is_needless {
                inbox.is_looking = false;
                drop(inbox);
                self.desks.iter().for_each(|desk| *desk.lock().unwrap_or_else(PoisonError::into_inner) = None);
                return;
            }
        }
    }

    /// Whether the endpoint answered.
    fn look_once(&self) -> bool {
        let as_of = self.clock.load(Ordering::SeqCst);
        let desk = match self.desk() {
            Ok(desk) => desk,
            Err(e) => {
                self.lost(&e);
                return false;
            }
        };
        match desk.list(&self.patience(ANSWER_MAX)) {
            Ok(told) => {
                let is_whole = told.len() < TOLD_MAX;
                let named = |told: Told| JobId::from_slice(&told.news.job_id).map(|order| (order, told));
                let told: Vec<_> = told.into_iter().filter_map(named).collect();
                debug_assert!(told.iter().all(|(_, told)| told.ended.is_none() || told.status().is_end()));
                self.say(Word::Census(Census { endpoint: self.name.clone(), as_of, told, is_whole }));
            }
            Err(e) if e.exit == Exit::Version || e.message.contains(TAKES_NONE) => {
                self.say(Word::TakesNone { endpoint: self.name.clone() });
            }
            // It is busy, and asked again.
            Err(e) if self.is_over() || !is_silent(&e, desk.is_open()) => {}
            Err(e) => {
                self.lost(&e);
                return false;
            }
        }
        true
    }
}

#[cfg(test)]
mod tests;
