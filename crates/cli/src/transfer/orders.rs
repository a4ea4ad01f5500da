//! A copy from one endpoint to another: the job is handed in at one of them, which carries it out, and is followed from here.
//!
//! The source's endpoint sends; if it cannot reach the other one, the destination's endpoint fetches. Invariant: a job is handed in
//! at the second endpoint only after the first has confirmed that it stopped.
//!
//! Not here: what an endpoint makes of a job (`daemon`).

use super::remote::Reachable;
use super::request::{Finished, Request, stopped};
use crate::exit::{Error, Result, error, usage};
use crate::interrupt::Interrupt;
use crate::output::json::{Events, Start};
use crate::output::progress::Mode;
use crate::output::{self, counted, duration};
use ::transfer::{Direction, Ended, Peers, Sample};
use daemon::Endpoint;
use daemon::hand_in::{Desk, HandIn, OrderEnded, OrderNews, TAKES_NONE, Told, job_of, status_of};
use model::name::Escaped;
use model::options::Fsync;
use model::order::{Kind, Reason, Role, Status, Steer};
use model::progress::Counts;
use model::quantity::{ByteCount, Rate};
use model::{Exit, Failure, FailureKind, JobId, Location, TransferSpec};
use net::Identity;
use serde_json::json;
use std::sync::Arc;
use std::time::{Duration, Instant};

const LOOK: Duration = Duration::from_millis(200);
pub(super) const LINE_EVERY: Duration = Duration::from_secs(30);
/// How long a job that was handed in is looked at before `--detach` lets go of it.
const FIRST_LOOK: Duration = Duration::from_secs(3);
/// How long an endpoint that carries a job out may be away before whoever follows it gives up. The job goes on.
const AWAY_MAX: Duration = Duration::from_secs(300);

/// Two endpoints of a request.
pub struct Ordered {
    from: Endpoint,
    to: Endpoint,
    identity: Identity,
    kind: Kind,
    job: JobId,
}

/// Hands in what is to be done without this command, and says its id.
pub fn detach(request: &Request, kind: Kind, is_json: bool) -> Result<Exit> {
    let ordered = Ordered::of_kind(request, kind)?;
    let none = || usage("--detach is for jobs between two endpoints", "name both as ENDPOINT:PATH, or omit --detach");
    ordered.ok_or_else(none)?.detach(request, is_json)
}

impl Ordered {
    /// The endpoints of a request that has one on either side. The copy that a command goes on with is one like any other.
    pub fn of(request: &Request) -> Result<Option<Ordered>> {
        Ordered::of_kind(request, if request.command == "sync" { Kind::Sync } else { Kind::Copy })
    }

    fn of_kind(request: &Request, kind: Kind) -> Result<Option<Ordered>> {
        let TransferSpec { sources, destination, .. } = &request.spec;
        if !sources.iter().chain([destination]).all(Location::is_remote) {
            return Ok(None);
        }
        let reachable = Reachable::new(request.ssh.clone());
        let book = reachable.book()?;
        let find = |location: &Location| match location {
            Location::Named { name, .. } if book.has(name) => book.get(name).map(Some),
            Location::Address { address, .. } => book.find_by_address(address).map(Some),
            _ => Ok(None),
        };
        let (Some(from), Some(to)) = (find(&sources[0])?, find(destination)?) else { return Ok(None) };
        for source in &sources[1..] {
            if find(source)?.is_none_or(|other| other.name != from.name) {
                return Err(usage("the sources are at several endpoints", "give a command for each endpoint"));
            }
        }
        let identity = reachable.identity()?;
        let job = job_of(identity.pin(), kind, &request.spec);
        Ok(Some(Ordered { from, to, identity, kind, job }))
    }

    /// Hands the job in and follows it to its end.
    pub fn run(
        &self,
        request: &Request,
        started: Instant,
        interrupt: &Interrupt,
        events: Option<Arc<Events>>,
    ) -> Result<Finished> {
        let stop = || interrupt.is_set();
        let (executor, told) = self.begin(request, &stop, None)?;
        let id = id_of(&executor.name, self.job);
        if let Some(events) = &events {
            let sources: Vec<_> = request.spec.sources.iter().map(ToString::to_string).collect();
            let destination = request.spec.destination.to_string();
            let command = request.command;
            events.start(&Start {
                command,
                direction: "remote",
                job: self.job,
                sources: &sources,
                destination: &destination,
            });
        } else if request.progress != Mode::None {
            output::note(&format!("{} carries this out as job {id}", executor.name));
        }
        let mut follower = Follower::new(executor, &self.identity, self.job, request.progress, events.clone());
        let told = follower.follow(told, interrupt, true)?;
        if let Some(told) = told {
            let finished = finished(request, &told, started);
            tell_failures(events.as_deref(), &finished);
            return Ok(finished);
        }
        Ok(Finished {
            ended: Ended::before_the_start(&request.spec, Direction::Push),
            error: Some(self.let_go(executor, interrupt)),
            durable: String::new(),
        })
    }

    /// Hands the job in and says its id.
    pub fn detach(&self, request: &Request, is_json: bool) -> Result<Exit> {
        let interrupt = Interrupt::watch()?;
        let (executor, told) = self.begin(request, &|| interrupt.is_set(), Some(FIRST_LOOK))?;
        let Some(told) = told else { return Err(self.let_go(executor, &interrupt)) };
        if let Some(failed) = told.failure() {
            return Err(failed);
        }
        let id = id_of(&executor.name, self.job);
        match is_json {
            true => output::line(&json!({"v": 1, "event": "order", "id": id}).to_string()),
            false => output::line(&format!("{} carries this out as job {id}", executor.name)),
        };
        Ok(Exit::Done)
    }

    /// Hands the job in where it can be carried out. What is known of it then comes along; nothing where the user stopped that,
    /// and the job may have arrived.
    fn begin(
        &self,
        request: &Request,
        stop: &dyn Fn() -> bool,
        patience: Option<Duration>,
    ) -> Result<(&Endpoint, Option<Told>)> {
        let ends = [(Role::Sends, &self.from, &self.to), (Role::Fetches, &self.to, &self.from)];
        let mut failures = Vec::new();
        for (role, executor, peer) in ends {
            let (kind, job, spec) = (self.kind, self.job, &request.spec);
            let desk = Desk::open(executor, &self.identity)?;
            let warrant_id = net::random_bytes();
            match begin_at(&desk, &HandIn { job, kind, role, executor, peer, spec, warrant_id }, stop, patience) {
                Ok(Ok(told)) => return Ok((executor, Some(told))),
                Ok(Err(failure)) => failures.push(failure),
                Err(_) if stop() => return Ok((executor, None)),
                Err(e) => return Err(e),
            }
        }
        let (from, to) = (&self.from.name, &self.to.name);
        let text = format!("neither {from} nor {to} can reach the other: {}", failures.join("; and the other way, "));
        Err(error(Exit::Unreachable, text, "open a port of one of them to the other, or copy to this host first"))
    }

    /// The user stopped the command. Ctrl-C is meant for the job; a session that ends is not.
    fn let_go(&self, executor: &Endpoint, interrupt: &Interrupt) -> Error {
        if interrupt.exit() == Exit::Interrupted {
            self.stop(executor, Steer::Cancel);
            return stopped(interrupt);
        }
        let hint = format!("`thalweg job watch {}` comes back to it", id_of(&executor.name, self.job));
        error(interrupt.exit(), "no longer followed; the job goes on", hint)
    }

    fn stop(&self, executor: &Endpoint, steer: Steer) {
        let asked = Instant::now();
        let patient = || asked.elapsed() >= Duration::from_secs(10);
        let stopped = Desk::open(executor, &self.identity).and_then(|desk| desk.steer(self.job, steer, &patient));
        if let Err(e) = stopped {
            let id = id_of(&executor.name, self.job);
            output::note(&format!("the job goes on: {}; `thalweg job cancel {id}` ends it", e.message));
        }
    }
}

/// Hands a job in at one endpoint, and looks on until it has begun. One that is not carried out there comes back as the reason: it
/// may be tried elsewhere.
fn begin_at(
    desk: &Desk,
    handed_in: &HandIn<'_>,
    stop: &dyn Fn() -> bool,
    patience: Option<Duration>,
) -> Result<Result<Told, String>> {
    let job = handed_in.job;
    match desk.hand_in(handed_in, stop) {
        Err(e) if e.message.contains(TAKES_NONE) && handed_in.role == Role::Sends => return Ok(Err(e.message)),
        ended => ended?,
    }
    let begun = Instant::now();
    let told = loop {
        let told = desk.ask(job, stop)?;
        let (status, news) = (told.status(), &told.news);
        let has_met = news.files_listed + news.files_failed > 0 || news.is_listing_complete;
        let is_decided = status.is_end() || status == Status::Waiting || has_met;
        // One that waits for others to end has not tried to reach anybody.
        let is_late = status == Status::Queued && begun.elapsed() >= FIRST_LOOK;
        if is_decided || is_late || patience.is_some_and(|patience| begun.elapsed() >= patience) {
            break told;
        }
        std::thread::park_timeout(LOOK / 4);
    };
    if !is_out_of_reach(&told.news) {
        return Ok(Ok(told));
    }
    desk.steer(job, Steer::Cancel, stop)?;
    while !desk.ask(job, stop)?.status().is_end() {
        std::thread::park_timeout(LOOK);
    }
    Ok(Err(Escaped(told.news.text.as_bytes()).to_string()))
}

/// Follows a job, from whatever place it was handed in.
pub struct Follower<'a> {
    executor: &'a Endpoint,
    identity: &'a Identity,
    job: JobId,
    mode: Mode,
    events: Option<Arc<Events>>,
    desk: Option<Desk>,
    begun: Instant,
    line: Instant,
    event: Instant,
    last_state: String,
}

impl<'a> Follower<'a> {
    pub fn new(
        executor: &'a Endpoint,
        identity: &'a Identity,
        job: JobId,
        mode: Mode,
        events: Option<Arc<Events>>,
    ) -> Follower<'a> {
        let now = Instant::now();
        let last_state = String::new();
        Follower { executor, identity, job, mode, events, desk: None, begun: now, line: now, event: now, last_state }
    }

    /// Until the job ends; nothing where the user stops that. `is_own`: what would keep the command waiting for somebody else
    /// ends it.
    pub fn follow(&mut self, first: Option<Told>, interrupt: &Interrupt, is_own: bool) -> Result<Option<Told>> {
        let (mut told, mut away) = (first, None::<Instant>);
        loop {
            if let Some(told) = told.take() {
                let status = told.status();
                if status.is_end() {
                    return Ok(Some(told));
                }
                self.show(&told.news);
                if is_own && status == Status::Waiting && told.news.reason == Reason::Credentials as u32 {
                    let text = Escaped(told.news.text.as_bytes()).to_string();
                    let id = id_of(&self.executor.name, self.job);
                    return Err(error(
                        Exit::Authentication,
                        text,
                        format!("the job waits; `thalweg job retry {id}` gives it a new warrant"),
                    ));
                }
            }
            if interrupt.wait(LOOK) {
                return Ok(None);
            }
            match self.look(interrupt) {
                Ok(found) => (told, away) = (Some(found), None),
                Err(_) if interrupt.is_set() => return Ok(None),
                Err(e) if !matches!(e.exit, Exit::Temporary | Exit::Unreachable) => return Err(e),
                Err(e) => {
                    self.desk = None;
                    let since = *away.get_or_insert_with(|| {
                        output::note(&format!("{}; the job goes on without this command, which reconnects", e.message));
                        Instant::now()
                    });
                    if since.elapsed() >= AWAY_MAX {
                        let id = id_of(&self.executor.name, self.job);
                        return Err(Error { hint: Some(format!("`thalweg job watch {id}` comes back to it")), ..e });
                    }
                    if interrupt.wait(Duration::from_secs(1)) {
                        return Ok(None);
                    }
                }
            }
        }
    }

    fn look(&mut self, interrupt: &Interrupt) -> Result<Told> {
        if self.desk.is_none() {
            self.desk = Some(Desk::open(self.executor, self.identity)?);
        }
        self.desk.as_ref().expect("opened above").ask(self.job, &|| interrupt.is_set())
    }

    fn show(&mut self, news: &OrderNews) {
        if let Some(events) = &self.events {
            if self.event.elapsed() >= Duration::from_secs(1) {
                self.event = Instant::now();
                events.progress(&sample_of(news, self.begun.elapsed()));
            }
            return;
        }
        let state = state_of(news);
        let is_changed = state != self.last_state && status_of(news) != Status::Running;
        if self.mode == Mode::None || !(is_changed || self.line.elapsed() >= LINE_EVERY) {
            return;
        }
        (self.line, self.last_state) = (Instant::now(), state.clone());
        output::note(&format!("{state}: {}", amounts(news)));
    }
}

/// As a user names a job.
pub fn id_of(executor: &str, job: JobId) -> String {
    format!("{executor}/{job}")
}

fn is_out_of_reach(news: &OrderNews) -> bool {
    status_of(news) == Status::Waiting && news.reason == Reason::Unreachable as u32 && news.files_listed == 0
}

/// One line on how a job stands, with what it waits for.
pub fn state_of(news: &OrderNews) -> String {
    let reason = Reason::from_number(news.reason).unwrap_or(Reason::None);
    let status = status_of(news);
    match (status, reason) {
        (Status::Waiting, reason) if !news.text.is_empty() => {
            format!("waiting ({reason}: {})", Escaped(news.text.as_bytes()))
        }
        (Status::Waiting, reason) => format!("waiting ({reason})"),
        (status, _) => status.word().to_owned(),
    }
}

pub fn amounts(news: &OrderNews) -> String {
    let files = counted(news.files_done, "file", "files");
    let mut text = format!("{files}, {}", ByteCount(news.bytes_done));
    if news.is_listing_complete {
        let total = ByteCount(news.bytes_listed);
        text.push_str(&format!(" of {}, {total}", counted(news.files_listed, "file", "files")));
    }
    if news.bytes_per_second > 0 {
        text.push_str(&format!(", {}", Rate { bytes_per_second: news.bytes_per_second as f64 }));
    }
    text
}

/// `time`: for how long the command has watched.
pub(super) fn sample_of(news: &OrderNews, time: Duration) -> Sample {
    let rate = Rate { bytes_per_second: news.bytes_per_second as f64 };
    let counts = Counts {
        files_listed: news.files_listed,
        files_done: news.files_done,
        files_skipped: news.files_skipped,
        files_failed: news.files_failed,
        bytes_listed: news.bytes_listed,
        bytes_done: news.bytes_done,
        ..Counts::default()
    };
    Sample::told(counts, news.is_listing_complete, rate, time)
}

/// What an ended job left, as lines for a person.
pub fn summary(kind: u32, ended: &OrderEnded, destination: &str) -> Vec<String> {
    let seconds = ended.milliseconds as f64 / 1000.0;
    let (files, bytes) = (counted(ended.files_done, "file", "files"), ByteCount(ended.bytes));
    let kind = Kind::from_number(kind).unwrap_or(Kind::Copy);
    if kind == Kind::Check {
        let same = if ended.files_done == 1 { "is the same" } else { "are the same" };
        let differing = counted(ended.files_failed, "difference", "differences");
        return vec![format!("{files} {same}, {bytes}; {differing}; took {}", duration(seconds))];
    }
    let done = if kind == Kind::Move { "moved" } else { "copied" };
    let mut first = format!("{done} {files}, {bytes} to {destination}");
    for (count, what) in [(ended.files_skipped, "skipped"), (ended.removed, "removed"), (ended.files_failed, "failed")]
    {
        if count > 0 {
            first.push_str(&format!("; {count} {what}"));
        }
    }
    let rate = match ended.bytes_sent {
        0 => String::new(),
        bytes => format!(" at {}", Rate::over(bytes, seconds)),
    };
    let mut lines = vec![first, format!("{}{rate}, directly between the two endpoints", duration(seconds))];
    if !ended.bottleneck.is_empty() {
        lines.push(Escaped(ended.bottleneck.as_bytes()).to_string());
    }
    lines
}

/// The job's end as that of the command.
pub(super) fn finished(request: &Request, told: &Told, started: Instant) -> Finished {
    let mut ended = Ended::before_the_start(&request.spec, Direction::Push);
    let nothing = OrderEnded::default();
    let found = told.ended.as_ref().unwrap_or(&nothing);
    ended.files_ok = found.files_done;
    ended.files_skipped = found.files_skipped;
    ended.files_failed = found.files_failed;
    ended.directories = found.directories;
    ended.bytes = found.bytes;
    ended.sent_bytes = found.bytes_sent;
    ended.removed = found.removed;
    ended.seconds = started.elapsed().as_secs_f64();
    ended.attempts = told.news.attempt;
    ended.bottleneck.sentence = Escaped(found.bottleneck.as_bytes()).to_string();
    if let Some(events) = &told.events {
        let failure = |record: &daemon::hand_in::OrderFailure| Failure {
            path: record.path.clone(),
            kind: FailureKind::from_number(record.kind),
            message: record.text.clone(),
        };
        ended.failures = events.failures.iter().map(failure).collect();
        ended.failures_not_kept = events.untold;
    }
    let error = told.failure();
    if request.progress != Mode::None && error.is_none() {
        summary(told.news.kind, found, &output::shown(&ended.destination)).iter().for_each(|line| output::note(line));
    }
    let durable = match request.spec.options.fsync {
        // Whatever an endpoint says of it.
        Fsync::Never if !found.durable.is_empty() => Fsync::Never.name().to_owned(),
        _ => found.durable.clone(),
    };
    Finished { ended, error, durable }
}

/// The endpoint tells its failures with the end of a job.
pub(super) fn tell_failures(events: Option<&Events>, finished: &Finished) {
    if let Some(events) = events {
        finished.ended.failures.iter().for_each(|failure| events.file(failure));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whatever an endpoint says of a job has words.
    #[test]
    fn no_number_of_an_endpoint_ends_the_program() {
        for most in [u64::MAX, i64::MAX as u64, 1 << 62, 0] {
            let ended = OrderEnded {
                code: most as u32,
                files_done: most,
                files_skipped: most,
                files_failed: most,
                bytes: most,
                bytes_sent: most,
                removed: most,
                milliseconds: most,
                ..OrderEnded::default()
            };
            let number = most as u32;
            let news = OrderNews {
                status: Status::Failed as u32,
                reason: number,
                attempt: number,
                kind: number,
                role: number,
                created: most,
                until: most,
                files_listed: most,
                files_done: most,
                bytes_listed: most,
                bytes_done: most,
                bytes_per_second: most,
                is_listing_complete: true,
                ..OrderNews::default()
            };
            assert_eq!(summary(number, &ended, "b:").len(), 2);
            assert!(!amounts(&news).is_empty() && state_of(&news) == "failed");
            let sample = sample_of(&news, Duration::from_secs(3));
            assert_eq!((sample.counts.files_done, sample.seconds), (most, 3.0));
            let told = Told { news, ended: Some(ended), events: None };
            // One that failed is no success, whatever code it has.
            assert!(told.failure().is_some_and(|e| e.exit != Exit::Done && !e.message.is_empty()), "{most}");
            assert!(!crate::commands::job::shown(&told).is_empty());
        }
    }
}
