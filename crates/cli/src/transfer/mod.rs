//! Carries out one copy, whatever its ends: finds the way, opens the ends, tries again when the connection is lost,
//! and tells what came of it.
//!
//! `route` decides which way bytes go, `far` reaches the other side, `between` has two far hosts copy, `ends` opens what is
//! on this host, `attempt` runs the mover once, `witness` keeps what failed and what was delivered, `presence` lets other
//! processes see it.
//! Invariant: a job that is tried again has the same id and options, so that nothing verified is sent twice.

mod route;
mod far;
pub mod between;
mod ends;
mod attempt;
mod witness;
pub mod bounds;
pub mod presence;

use crate::exit::{self, Error, Result, error};
use crate::interrupt::Interrupt;
use crate::output::json::{Events, Start};
use crate::output::progress::{self, Mode};
use crate::output::{self, duration};
use attempt::Attempt;
use bounds::Bounds;
pub use far::{Far, Ssh, Use};
use model::progress::Bottleneck;
use model::quantity::Rate;
use model::{Exit, Failure, JobId, Location, TransferOptions};
use mover::{CloseCode, Ending, Progress, Removal, Report};
use net::Identity;
use presence::{Presence, Subject};
use route::Route;
use serde::Serialize;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};
use witness::Witness;

/// The pause before the first retry; it doubles up to `PAUSE_MAX`.
const PAUSE_FIRST: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_secs(60);

/// What the user asked for.
#[derive(Clone, Debug)]
pub struct Request {
    pub command: &'static str,
    pub sources: Vec<Location>,
    pub destination: Location,
    pub options: TransferOptions,
    pub streams: Option<u32>,
    pub congestion: Option<String>,
    /// For all lanes of this side.
    pub memory_bytes: usize,
    /// How often in a row an attempt may fail without progress.
    pub retries: u32,
    pub bounds: Bounds,
    pub manifest: Option<PathBuf>,
    pub progress: Mode,
    pub ssh: Ssh,
}

impl Request {
    /// With everything chosen by itself, and silent.
    pub fn plain(sources: Vec<Location>, destination: Location) -> Request {
        Request {
            command: "cp",
            sources,
            destination,
            options: TransferOptions::default(),
            streams: None,
            congestion: None,
            memory_bytes: mover::limits::MEMORY_BYTES_MAX,
            retries: 5,
            bounds: Bounds::default(),
            manifest: None,
            progress: Mode::None,
            ssh: Ssh::default(),
        }
    }

    fn synthetic(&self) -> Vec<&'static str> {
        let is_made = self.sources.iter().any(Location::is_synthetic).then_some("source");
        let is_forgotten = self.destination.is_synthetic().then_some("destination");
        is_made.into_iter().chain(is_forgotten).collect()
    }
}

/// Which way the bytes go.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Direction {
    Push,
    Pull,
    Local,
}

/// What came of it, all attempts together.
pub struct Ended {
    pub direction: Direction,
    pub options: TransferOptions,
    pub destination: String,
    /// The ends without storage.
    pub synthetic: Vec<&'static str>,
    /// Of the last attempt that ran.
    pub report: Option<Report>,
    pub files_ok: u64,
    pub files_skipped: u64,
    pub files_failed: u64,
    /// Removed, or that would be.
    pub removed: u64,
    pub directories: u64,
    /// Of the files delivered.
    pub bytes: u64,
    /// Verified by an earlier run and not sent again.
    pub resumed_bytes: u64,
    /// Moved by all attempts, what was sent again included.
    pub sent_bytes: u64,
    /// What compressed streams carried of it.
    pub wire_bytes: Option<u64>,
    pub seconds: f64,
    pub first_byte_seconds: Option<f64>,
    pub bottleneck: Bottleneck,
    pub attempts: u32,
    /// What failed, as far as it is kept.
    pub failures: Vec<Failure>,
    /// Failures and special files that are not kept.
    pub failures_not_kept: u64,
    /// What ended the run, or sums up its failures.
    pub error: Option<Error>,
    pub exit: Exit,
}

impl Ended {
    /// A request that could not be begun.
    pub fn before_the_start(request: &Request, error: Error) -> Ended {
        let is_pull = request.sources.iter().any(Location::is_remote);
        Ended {
            direction: match (is_pull, request.destination.is_remote()) {
                (true, _) => Direction::Pull,
                (false, true) => Direction::Push,
                (false, false) => Direction::Local,
            },
            options: request.options.clone(),
            destination: request.destination.to_string(),
            synthetic: request.synthetic(),
            report: None,
            files_ok: 0,
            files_skipped: 0,
            files_failed: 0,
            removed: 0,
            directories: 0,
            bytes: 0,
            resumed_bytes: 0,
            sent_bytes: 0,
            wire_bytes: None,
            seconds: 0.0,
            first_byte_seconds: None,
            bottleneck: nothing_moved(),
            attempts: 0,
            failures: Vec::new(),
            failures_not_kept: 0,
            exit: error.exit,
            error: Some(error),
        }
    }

    /// Something beside the copy failed: the figures stay, and so does the exit code of what failed before.
    pub fn add_error(&mut self, error: Error) {
        match &mut self.error {
            Some(first) => first.message = format!("{}; {}", first.message, error.message),
            None => {
                self.exit = error.exit;
                self.error = Some(error);
            }
        }
    }

    /// Bytes sent for each byte that compressed streams carried.
    pub fn compression_ratio(&self) -> Option<f64> {
        self.wire_bytes.map(|wire_bytes| self.sent_bytes as f64 / wire_bytes.max(1) as f64)
    }

    pub fn rate(&self) -> Rate {
        Rate::over(self.bytes.saturating_sub(self.resumed_bytes), self.seconds)
    }
}

/// Runs the request to its end. An error means that nothing was tried.
pub fn run(request: &Request, started: Instant, interrupt: &Interrupt, events: Option<Arc<Events>>) -> Result<Ended> {
    let paths = daemon::Paths::from_env();
    let route = Route::find(request, paths.as_ref())?;
    let identity = match &route {
        Route::Local => None,
        _ => Some(paths.as_ref().map_err(Clone::clone)?.identity()?),
    };
    let job = route.job_id(request, identity.as_ref());
    run_on(Way { route, identity, job }, request, started, interrupt, events)
}

/// Which way a request takes, as whom, and what the job is called.
pub struct Way {
    route: Route,
    identity: Option<Identity>,
    job: JobId,
}

/// Runs the request on a way that was found already.
pub fn run_on(
    way: Way,
    request: &Request,
    started: Instant,
    interrupt: &Interrupt,
    events: Option<Arc<Events>>,
) -> Result<Ended> {
    let Way { route, identity, job } = way;
    let witness = Witness::new(request.manifest.as_deref(), request.options.digest, events.clone())?;
    let witness = Arc::new(witness.itemizing(&request.options, route.direction()));
    let sources: Vec<_> = request.sources.iter().map(Location::to_string).collect();
    let (destination, direction) = (request.destination.to_string(), route.direction());
    let command = request.command;
    let subject = Subject { command, direction, job, sources: sources.clone(), destination: destination.clone() };
    let presence = Presence::start(&subject, daemon::Paths::from_env().as_ref().ok());
    if let Some(events) = &events {
        events.start(&Start { command, direction, job, sources: &sources, destination: &destination });
    }
    let deadline = request.bounds.deadline(started);
    let attempt = Attempt { request, route: &route, identity, job, witness: &witness, interrupt, deadline };
    let mut run = Run { request, direction, attempt, events, presence, sums: Sums::default(), started };
    let (report, failed) = run.until_the_end();
    Ok(run.conclude(report, failed))
}

struct Run<'a> {
    request: &'a Request,
    direction: Direction,
    attempt: Attempt<'a>,
    events: Option<Arc<Events>>,
    presence: Presence,
    sums: Sums,
    started: Instant,
}

/// What earlier attempts of this run have done.
#[derive(Default)]
struct Sums {
    attempts: u32,
    files: u64,
    bytes: u64,
    /// Of every attempt, those that failed included.
    sent_bytes: u64,
    wire_bytes: u64,
    /// Of the first attempt: from a run before this one.
    resumed_bytes: Option<u64>,
    /// Of the attempt before.
    resumed_bytes_last: Option<u64>,
    first_byte_seconds: Option<f64>,
}

impl Run<'_> {
    /// Tries until the job ends, or trying again is pointless. Returns the last report, and why there is no more.
    fn until_the_end(&mut self) -> (Option<Report>, Option<Error>) {
        let mut last: Option<Report> = None;
        let mut failures = 0;
        loop {
            let (attempted, has_moved) = self.once();
            failures = if has_moved { 0 } else { failures };
            let error = match attempted {
                Ok(report) => {
                    let error = self.judge(&report);
                    if let Some(earlier) = last.replace(report) {
                        self.sums.add(&earlier);
                    }
                    error
                }
                Err(e) => Some(e),
            };
            let Some(error) = error else { return (last, None) };
            // An endpoint that was never reached is more likely named wrongly than just down.
            let may_retry = error.exit == Exit::Temporary || (error.exit == Exit::Unreachable && last.is_some());
            let is_last = failures >= self.request.retries || self.attempt.route.has_pipe(self.request);
            if !may_retry || is_last || self.attempt.interrupt.is_set() {
                return (last, Some(error));
            }
            failures += 1;
            let pause = pause(failures);
            self.tell_retry(&error, failures, pause);
            if self.attempt.interrupt.wait(self.attempt.left(pause)) {
                return (last, Some(error));
            }
            if let Some(error) = self.out_of_bounds() {
                return (last, Some(error));
            }
        }
    }

    /// Runs one attempt; tells also whether there was progress: a file was delivered, or this attempt found more kept of
    /// large files than the one before.
    fn once(&mut self) -> (Result<Report>, bool) {
        self.sums.attempts += 1;
        let progress = Progress::new();
        self.presence.show(self.sums.attempts, &progress, self.direction);
        let before_seconds = self.started.elapsed().as_secs_f64();
        let display =
            progress::Display::start(progress.clone(), self.direction, self.request.progress, self.events.clone());
        let attempted = self.attempt.run(&progress, self.sums.sent_bytes);
        drop(display);
        let snapshot = progress.snapshot();
        if let Some(first) = snapshot.first_payload {
            self.sums.first_byte_seconds.get_or_insert(before_seconds + first.as_secs_f64());
        }
        let counts = snapshot.counts;
        self.sums.sent_bytes += counts.bytes_sent;
        self.sums.wire_bytes += counts.bytes_wire;
        let resumed_before = self.sums.resumed_bytes_last.replace(counts.bytes_resumed);
        (attempted, counts.files_done > 0 || resumed_before.is_some_and(|before| counts.bytes_resumed > before))
    }

    /// Why the attempt was not the last one needed; `None` when it was.
    fn judge(&self, report: &Report) -> Option<Error> {
        let is_complete = matches!(report.ending, Ending::Finished(_)) && report.snapshot.counts.files_failed == 0;
        if self.attempt.interrupt.is_set() && !is_complete {
            let why = if self.attempt.route.has_pipe(self.request) {
                error(self.attempt.interrupt.exit(), "stopped", "a pipe cannot be continued: nothing was published")
            } else {
                stopped(self.attempt.interrupt)
            };
            return Some(why);
        }
        let has_failed = self.request.bounds.is_fail_fast && self.attempt.witness.has_failed();
        match &report.ending {
            Ending::Finished(_) => None,
            Ending::Cancelled { refusal, .. } if refusal.code == CloseCode::Reached => Some(self.sent_enough()),
            Ending::Cancelled { by_peer: false, refusal } if refusal.code == CloseCode::Cancelled && has_failed => {
                Some(self.failed_fast(Exit::from_failures(self.attempt.witness.kinds())))
            }
            Ending::Cancelled { by_peer: false, refusal }
                if refusal.code == CloseCode::Cancelled && self.out_of_time().is_some() =>
            {
                self.out_of_time()
            }
            Ending::Cancelled { by_peer: true, refusal } => Some(self.attempt.route.refused(refusal)),
            Ending::Cancelled { refusal, .. } => Some(self.attempt.route.given_up(refusal)),
            Ending::Lost(_) => Some(error(
                Exit::Temporary,
                report.ending.to_string(),
                "the same command continues where this one stopped",
            )),
        }
    }

    fn tell_retry(&self, error: &Error, failures: u32, pause: Duration) {
        if let Some(events) = &self.events {
            events.error(error, Some(pause.as_secs_f64()));
        }
        let again =
            format!("trying again in {} ({failures} of {})", duration(pause.as_secs_f64()), self.request.retries);
        output::note(&format!("{}; {again}", error.message));
    }

    fn conclude(self, report: Option<Report>, failed: Option<Error>) -> Ended {
        let witnessed = self.attempt.witness.finish();
        let counts = report.as_ref().map(|report| report.snapshot.counts).unwrap_or_default();
        let exit = match &failed {
            Some(error) => error.exit,
            None => Exit::from_failures(witnessed.kinds.iter().copied()),
        };
        let error = failed.or_else(|| summed_up(exit, witnessed.failed));
        let stopped = report.as_ref().and_then(too_many);
        let (exit, error) = match (error, stopped) {
            (None, Some(stopped)) => (stopped.exit, Some(stopped)),
            (error, _) => (exit, error),
        };
        let bottleneck = match &report {
            Some(report) => progress::bottleneck(None, &report.snapshot, self.direction),
            None => nothing_moved(),
        };
        let here_before = counts.files_skipped.min(self.sums.files);
        let mut ended = Ended {
            direction: self.direction,
            options: self.request.options.clone(),
            destination: self.request.destination.to_string(),
            synthetic: self.request.synthetic(),
            files_ok: counts.files_done + here_before,
            files_skipped: counts.files_skipped - here_before,
            files_failed: witnessed.failed.max(counts.files_failed),
            removed: report.as_ref().map_or(0, |report| report.removed),
            directories: counts.directories,
            bytes: counts.bytes_done + counts.bytes_skipped.min(self.sums.bytes),
            resumed_bytes: self.sums.resumed_bytes.unwrap_or(counts.bytes_resumed),
            sent_bytes: self.sums.sent_bytes,
            wire_bytes: Some(self.sums.wire_bytes).filter(|bytes| *bytes > 0),
            seconds: self.started.elapsed().as_secs_f64(),
            first_byte_seconds: self.sums.first_byte_seconds,
            bottleneck,
            attempts: self.sums.attempts,
            failures: witnessed.failures,
            failures_not_kept: witnessed.not_kept,
            error,
            exit,
            report,
        };
        witnessed.manifest_error.into_iter().for_each(|error| ended.add_error(error));
        ended
    }
}

fn nothing_moved() -> Bottleneck {
    Bottleneck { stage: "none", share: 0.0, sentence: "nothing moved".into(), advice: String::new(), link_gain: None }
}

impl Sums {
    fn add(&mut self, report: &Report) {
        let counts = &report.snapshot.counts;
        self.files += counts.files_done;
        self.bytes += counts.bytes_done;
        self.resumed_bytes.get_or_insert(counts.bytes_resumed);
    }
}

/// The one error of a run that ended in order and left files out.
fn summed_up(exit: Exit, failed: u64) -> Option<Error> {
    let files = output::counted(failed, "file was", "files were");
    let hint = match exit {
        Exit::Done => return None,
        _ if model::mutant::is_on("claim-success") => return None,
        Exit::Changed => "they changed or vanished while they were read; give the same command again when they rest",
        Exit::NoSpace => "make room at the destination; the same command continues where this one stopped",
        Exit::Integrity => "memory, a disk or a driver changes data: find out which before trusting this host",
        _ => "put right what is listed and give the same command again; what is there already is skipped",
    };
    Some(error(exit, format!("{files} not delivered"), hint))
}

/// Nothing was removed, because more would have gone than was allowed.
fn too_many(report: &Report) -> Option<Error> {
    let max = report.options.deletion.and_then(|deletion| deletion.removals_max).unwrap_or(0);
    (report.removal == Removal::TooMany).then(|| {
        let would = output::counted(report.extraneous, "object", "objects");
        let message = format!("{would} would be removed, more than --max-delete {max}: nothing was removed");
        error(Exit::LimitCrossed, message, "look at them with --dry-run; a larger --max-delete lets them go")
    })
}

/// 1, 2, 4 ... seconds, each up to a quarter longer or shorter, so that many clients do not come back at once.
fn pause(failures: u32) -> Duration {
    let pause = PAUSE_FIRST.saturating_mul(1 << (failures - 1).min(16)).min(PAUSE_MAX);
    let [random] = net::random_bytes::<1>();
    pause.mul_f64(0.75 + f64::from(random) / 512.0)
}

/// The user asked to stop, and can go on later.
pub fn stopped(interrupt: &Interrupt) -> Error {
    let hint = format!("to go on, give the same command again: {}", command_line());
    error(interrupt.exit(), "stopped; what was verified is kept", hint)
}

/// The command as the user gave it, quoted for a shell.
fn command_line() -> String {
    let is_plain = |b: &u8| b.is_ascii_alphanumeric() || b"-_./:=,@%+[]".contains(b);
    let quoted = std::env::args_os().map(|word| {
        let word = output::shown(word);
        if !word.is_empty() && word.bytes().all(|b| is_plain(&b)) {
            word
        } else {
            format!("'{}'", word.replace('\'', "'\\''"))
        }
    });
    quoted.collect::<Vec<_>>().join(" ")
}

/// An error of the storage as one of the program.
pub fn of_store(e: &store::Error, subject: &str) -> Error {
    use model::FailureKind as Kind;
    let (exit, hint) = match e.kind {
        Kind::NotFound => (Exit::SourceFileNotFound, "check the path"),
        Kind::Permission => (Exit::Failed, "give this user the right to it, or run as a user who has it"),
        Kind::NoSpace => (Exit::NoSpace, "make room at the destination; the same command continues where it stopped"),
        Kind::ReadOnly => (Exit::Failed, "name a place on a writable file system"),
        Kind::InTheWay => (Exit::Usage, "something of another kind stands there: check the path"),
        Kind::NameRefused => (Exit::Usage, "check the path"),
        _ => (Exit::Failed, "the operating system's reason is above"),
    };
    let at = if e.subject.is_empty() { format!(" {subject}") } else { String::new() };
    let message = match at.is_empty() {
        true => e.to_string(),
        false => format!("{}{at}: {}", e.operation, exit::plain(&e.source)),
    };
    error(exit, message, hint)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_within_a_quarter_up_to_a_bound() {
        for (failures, seconds) in [(1, 1.0), (2, 2.0), (3, 4.0), (7, 60.0), (40, 60.0)] {
            let ratio = pause(failures).as_secs_f64() / seconds;
            assert!((0.75..1.25).contains(&ratio), "{failures}: {ratio}");
        }
    }

    #[test]
    fn a_run_with_failures_is_summed_up_in_one_error() {
        assert!(summed_up(Exit::Done, 0).is_none());
        let error = summed_up(Exit::Partial, 2).unwrap();
        assert_eq!((error.exit, &error.message[..]), (Exit::Partial, "2 files were not delivered"));
        assert_eq!(summed_up(Exit::Changed, 1).unwrap().message, "1 file was not delivered");
    }
}
