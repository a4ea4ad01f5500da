//! A transfer from its first attempt to its end: tries again when the connection is lost, and says what came of it.
//!
//! Invariant: a job that is tried again has the same id, and options that differ in its rate at most, so that nothing verified is
//! sent twice.

use crate::attempt::Attempt;
use crate::chunks::Chunks;
use crate::control::Control;
use crate::ended::{Ended, nothing_moved};
use crate::error::{Error, Kind, NO_TREE, Result, plain};
use crate::means::Means;
use crate::route::Route;
use crate::sample::bottleneck;
use crate::witness::Witness;
use model::progress::Counts;
use model::quantity::counted;
use model::{FailureKind, JobId, Location, TransferOptions, TransferSpec};
use mover::receiver::{BUFFERED, Tally};
use mover::session::Standby;
use mover::{CloseCode, Ending, PathReport, Progress, Removal, Report};
use net::Identity;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// The pause before the first retry; it doubles up to `PAUSE_MAX`.
const PAUSE_FIRST: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_secs(60);
/// What to do where nobody has what a catalogue lists.
const OTHER_CONTENT: &str = "name another holder with --from; what is verified is kept";
/// And where the user listed what the source does not have.
const NOT_THERE: &str = "they do not exist at the source: correct the list, or copy again once they are there";

pub struct Run {
    pub spec: TransferSpec,
    /// As the transfer started: what is chosen is settled.
    pub options: TransferOptions,
    pub means: Means,
    pub route: Route,
    pub identity: Option<Identity>,
    pub job: JobId,
    pub witness: Arc<Witness>,
    pub control: Arc<Control>,
    pub sums: Sums,
    pub standby: Arc<Standby>,
    pub chunks: Chunks,
    pub started: Instant,
}

/// What earlier attempts of this run have done.
#[derive(Default)]
pub struct Sums {
    attempts: u32,
    files: u64,
    bytes: u64,
    /// Of every attempt, those that failed included.
    pub sent_bytes: u64,
    wire_bytes: u64,
    /// Of the first attempt: from a run before this one.
    resumed_bytes: Option<u64>,
    /// Of the attempt before.
    resumed_bytes_last: Option<u64>,
    first_byte_seconds: Option<f64>,
    paths: Vec<PathReport>,
    sources: Vec<(String, Tally)>,
}

/// What came of an attempt.
struct Tried {
    attempted: Result<Report>,
    /// Why it could not go on, where that says more than its report.
    failed: Option<Error>,
    /// A file was delivered, or more was found kept of large files than by the attempt before.
    has_moved: bool,
}

/// What is to be done after an attempt.
enum Verdict {
    Done,
    Failed(Error),
}

impl Run {
    /// Runs to the end.
    pub fn run(mut self) -> Ended {
        let (mut report, failed) = self.until_the_end();
        if let Some(report) = &mut report {
            report.notes.extend(through_here(&self.spec, &report.snapshot.counts));
        }
        let piped = self.spec.has_pipe().then(|| self.spec.clone());
        let ended = self.conclude(report, failed);
        match piped {
            Some(spec) => of_pipe(&spec, ended),
            None => ended,
        }
    }

    /// Tries until the job ends, or trying again is pointless. Returns the last report, and why there is no more.
    fn until_the_end(&mut self) -> (Option<Report>, Option<Error>) {
        let mut last: Option<Report> = None;
        let mut failures = 0;
        // Of several holders, how many have led in vain since something moved.
        let mut leads = 0;
        loop {
            let Tried { attempted, failed, has_moved } = self.once();
            (failures, leads) = if has_moved { (0, 0) } else { (failures, leads) };
            let verdict = match attempted {
                Ok(report) => {
                    let told = failed.filter(|_| !self.control.is_stopped()).map(Verdict::Failed);
                    let verdict = told.unwrap_or_else(|| self.judge(&report));
                    if let Some(earlier) = last.replace(report) {
                        self.sums.add(&earlier);
                    }
                    verdict
                }
                Err(e) => Verdict::Failed(e),
            };
            let error = match verdict {
                Verdict::Done => return (last, None),
                Verdict::Failed(error) => error,
            };
            let is_lost = matches!(error.kind, Kind::Temporary | Kind::Unreachable) && !self.control.is_stopped();
            let has_leads = self.means.catalogue.is_none();
            if is_lost && has_leads && leads < self.route.replicas() && self.route.next_lead() {
                leads += 1;
                self.means.watcher.will_retry(&error, leads as u32, Duration::ZERO);
                continue;
            }
            // An endpoint that was never reached is more likely named wrongly than just down.
            let may_retry = error.kind == Kind::Temporary || (error.kind == Kind::Unreachable && last.is_some());
            let is_last = failures >= self.control.retries() || self.spec.has_pipe();
            if !may_retry || is_last || self.control.is_stopped() {
                return (last, Some(error));
            }
            failures += 1;
            let pause = pause_after(failures, PAUSE_FIRST, PAUSE_MAX);
            self.means.watcher.will_retry(&error, failures, pause);
            if self.control.pause(pause, self.started) {
                return (last, Some(error));
            }
            if let Some(error) = self.out_of_bounds() {
                return (last, Some(error));
            }
        }
    }

    /// Runs one attempt.
    fn once(&mut self) -> Tried {
        self.sums.attempts += 1;
        let progress = Progress::new();
        self.control.begin_attempt(self.sums.attempts, &progress, self.route.direction());
        let before_seconds = self.started.elapsed().as_secs_f64();
        self.means.watcher.attempt_started(self.sums.attempts, &progress);
        let attempt = Attempt {
            spec: &self.spec,
            options: &self.options,
            means: &self.means,
            route: &self.route,
            identity: self.identity.as_ref(),
            job: self.job,
            witness: &self.witness,
            control: &self.control,
            started: self.started,
            standby: &self.standby,
            chunks: &self.chunks,
            tallies: Mutex::default(),
            failed: Mutex::default(),
        };
        let attempted = attempt.run(&progress, self.sums.sent_bytes);
        let (tallies, failed) = (attempt.tallies.into_inner(), attempt.failed.into_inner());
        self.sums.add_sources(tallies.unwrap_or_default());
        self.means.watcher.attempt_ended();
        let snapshot = progress.snapshot();
        if let Some(first) = snapshot.first_payload {
            self.sums.first_byte_seconds.get_or_insert(before_seconds + first.as_secs_f64());
        }
        let counts = snapshot.counts;
        self.sums.sent_bytes += counts.bytes_sent;
        self.sums.wire_bytes += counts.bytes_wire;
        let has_moved = counts.files_done > 0 || keeps_more(&mut self.sums.resumed_bytes_last, &counts);
        Tried { attempted, failed: failed.unwrap_or_default(), has_moved }
    }

    /// Whether the attempt was the last one needed.
    fn judge(&self, report: &Report) -> Verdict {
        let is_complete = matches!(report.ending, Ending::Finished(_)) && report.snapshot.counts.files_failed == 0;
        if self.control.is_stopped() && !is_complete {
            return Verdict::Failed(Error::stopped(&self.spec));
        }
        let (by_peer, refusal) = match &report.ending {
            Ending::Finished(_) => return Verdict::Done,
            Ending::Lost(why) => {
                let error = Error::new(Kind::Temporary, "", format!("the connection was lost: {}", plain(why)));
                return Verdict::Failed(error.advice("the same command continues where this one stopped"));
            }
            Ending::Cancelled { by_peer, refusal } => (*by_peer, refusal),
        };
        let is_own = !by_peer && refusal.code == CloseCode::Cancelled;
        let has_failed = self.spec.bounds.is_fail_fast && self.witness.has_failed();
        Verdict::Failed(match () {
            () if refusal.code == CloseCode::Reached => self.sent_enough(),
            () if is_own && has_failed => {
                self.failed_fast(Error::kind_of_failures(self.witness.kinds()).unwrap_or(Kind::Partial))
            }
            () if is_own && self.spec.destination == Location::Pipe && self.witness.has_failed() => {
                return Verdict::Done;
            }
            () if is_own && self.out_of_time().is_some() => {
                return self.out_of_time().map_or(Verdict::Done, Verdict::Failed);
            }
            () if by_peer => self.route.refused(refusal),
            () => self.route.given_up(refusal),
        })
    }

    fn conclude(mut self, report: Option<Report>, failed: Option<Error>) -> Ended {
        if let Some(report) = &report {
            self.sums.add_paths(&report.paths);
        }
        let witnessed = self.witness.finish();
        let direction = self.route.direction();
        let counts = report.as_ref().map(|report| report.snapshot.counts).unwrap_or_default();
        let left_out = || {
            let error = summed_up(Error::kind_of_failures(witnessed.kinds.iter().copied())?, witnessed.failed)?;
            let is_of_holders = self.means.catalogue.is_some() && error.kind == Kind::Integrity;
            let is_missing = |kind: &FailureKind| matches!(kind, FailureKind::NotFound | FailureKind::Special);
            let is_listed = self.spec.choice.listed.is_some();
            Some(match error.kind {
                _ if is_of_holders => error.advice(OTHER_CONTENT),
                Kind::Changed if is_listed && witnessed.kinds.iter().all(is_missing) => error.advice(NOT_THERE),
                _ => error,
            })
        };
        let nothing_piped = || {
            let is_skipped = counts.files_done == 0 && witnessed.kinds.contains(&FailureKind::Special);
            (is_skipped && self.spec.destination == Location::Pipe).then(|| {
                Error::new(Kind::Partial, "", "nothing was written to standard output").advice("name a regular file")
            })
        };
        let buffered =
            || report.as_ref().filter(|report| report.durable == BUFFERED).map(|_| left_there(&self.spec, &counts));
        let error = failed
            .or_else(left_out)
            .or_else(|| too_many(report.as_ref()?))
            .or_else(|| not_removed(report.as_ref()?))
            .or_else(nothing_piped)
            .or_else(buffered);
        let here_before = counts.files_skipped.min(self.sums.files);
        let mut ended = Ended {
            options: self.options.clone(),
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
            bottleneck: report
                .as_ref()
                .map_or_else(nothing_moved, |report| bottleneck(None, &report.snapshot, direction)),
            paths: self.sums.paths,
            sources: self.sums.sources,
            attempts: self.sums.attempts,
            failures: witnessed.failures,
            failures_not_kept: witnessed.not_kept,
            error,
            report,
            ..Ended::before_the_start(&self.spec, direction)
        };
        witnessed.manifest_error.into_iter().for_each(|error| ended.add_error(error));
        ended
    }
}

impl Sums {
    fn add(&mut self, report: &Report) {
        let counts = &report.snapshot.counts;
        self.files += counts.files_done;
        self.bytes += counts.bytes_done;
        self.resumed_bytes.get_or_insert(counts.bytes_resumed);
        self.add_paths(&report.paths);
    }

    /// A holder of several attempts is one; what the last one says of it counts.
    fn add_sources(&mut self, tallies: Vec<(String, Tally)>) {
        for (name, tally) in tallies {
            match self.sources.iter_mut().find(|(known, _)| *known == name) {
                Some((_, known)) => known.add(tally),
                None => self.sources.push((name, tally)),
            }
        }
    }

    /// A path of several attempts is one.
    fn add_paths(&mut self, paths: &[PathReport]) {
        for path in paths {
            let is_same = |known: &&mut PathReport| (&known.local, &known.remote) == (&path.local, &path.remote);
            match self.paths.iter_mut().find(is_same) {
                Some(known) => {
                    let bytes = known.bytes + path.bytes;
                    *known = PathReport { bytes, streams: known.streams.max(path.streams), ..path.clone() };
                }
                None => self.paths.push(path.clone()),
            }
        }
    }
}

/// Between servers that other programs have copy among themselves: which way content went.
fn through_here(spec: &TransferSpec, counts: &Counts) -> Option<String> {
    let is_server = |location: &Location| matches!(location.scheme(), "gsiftp" | "sshftp" | "ftp" | "sftp");
    let are_servers = spec.sources.iter().chain([&spec.destination]).all(is_server);
    let is_moved = !spec.options.is_dry_run && counts.bytes_done > 0;
    (are_servers && is_moved).then(|| {
        "content went through this host: GridFTP, FTP and SFTP servers are not told to copy among themselves".to_owned()
    })
}

/// What a pipe cannot do: content that came by one cannot be sent again, and a directory has no place in one. That is said
/// once, not of each object in it.
fn of_pipe(spec: &TransferSpec, mut ended: Ended) -> Ended {
    let is_tree = ended.failures.iter().any(|failure| failure.message.ends_with(NO_TREE));
    let source = spec.sources.first().filter(|source| is_tree && !source.is_synthetic());
    if let Some(source) = source.filter(|_| spec.destination == Location::Pipe) {
        let (attempts, error) = (ended.attempts, Some(Error::directory_to_pipe(source)));
        return Ended { attempts, error, ..Ended::before_the_start(spec, ended.direction) };
    }
    ended.error = ended.error.map(Error::of_pipe);
    ended
}

/// What was not waited for.
fn left_there(spec: &TransferSpec, counts: &Counts) -> Error {
    let rest = counted(counts.files_listed - (counts.files_done + counts.files_skipped), "file", "files");
    let text = format!(
        "{rest} not delivered yet: verified, and durable in the buffer of the endpoint of {}",
        spec.destination
    );
    Error::new(Kind::Buffered, "", text)
        .advice("the endpoint delivers them without this host; the same command shows when all is there")
}

/// The one error of a run that ended in order and left files out.
fn summed_up(kind: Kind, failed: u64) -> Option<Error> {
    let files = counted(failed, "file was", "files were");
    let advice = match kind {
        _ if model::mutant::is_on("claim-success") => return None,
        Kind::Changed => {
            "they changed or vanished while being read; give the same command again when they no longer change"
        }
        Kind::NoSpace => "make room at the destination; the same command continues where this one stopped",
        Kind::Integrity => "memory, a disk or a driver changes data: find out which before trusting this host",
        _ => "fix the problems listed and give the same command again; files that are already there are skipped",
    };
    Some(Error::new(kind, "", format!("{files} not delivered")).advice(advice))
}

/// Whether more was kept than an attempt found before. One that never came so far as to find anything says nothing: between two that
/// find the same it would make the second one look like headway.
fn keeps_more(found_last: &mut Option<u64>, counts: &Counts) -> bool {
    let before = *found_last;
    if counts.bytes_resumed > 0 || counts.bytes_sent > 0 {
        *found_last = Some(counts.bytes_resumed);
    }
    before.is_some_and(|before| counts.bytes_resumed > before)
}

/// Nothing was removed, because more would have gone than was allowed.
fn too_many(report: &Report) -> Option<Error> {
    let max = report.options.deletion.and_then(|deletion| deletion.removals_max).unwrap_or(0);
    (report.removal == Removal::TooMany).then(|| {
        let would = counted(report.extraneous, "object", "objects");
        let text = format!("{would} would be removed, more than --max-delete {max}: nothing was removed");
        let advice = "list them with --dry-run; a larger --max-delete allows their removal";
        Error::new(Kind::RemovalLimit, "--max-delete", text).advice(advice)
    })
}

/// Where a failure says why, that one is told.
fn not_removed(report: &Report) -> Option<Error> {
    (report.removal == Removal::ListingNotWhole).then(|| {
        let text = "nothing was removed: what the source has could not be told for certain";
        Error::new(Kind::Partial, "--delete", text)
            .advice("a source may have 16 million names, and a list of what is to go needs room in TMPDIR; synchronize parts of it")
    })
}

/// How long to wait after so many failures: `first`, then twice as long each time up to `max`, each up to a quarter longer or
/// shorter, so that many clients do not come back at once.
pub fn pause_after(failures: u32, first: Duration, max: Duration) -> Duration {
    let pause = first.saturating_mul(1 << failures.saturating_sub(1).min(16)).min(max);
    let [random] = net::random_bytes::<1>();
    pause.mul_f64(0.75 + f64::from(random) / 512.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::PIPE_ADVICE;
    use crate::route::Direction;
    use model::Failure;

    #[test]
    fn what_was_kept_long_ago_is_no_headway_whoever_was_not_reached_in_between() {
        let found = |bytes_resumed, bytes_sent| Counts { bytes_resumed, bytes_sent, ..Counts::default() };
        let mut last = None;
        let attempts = [found(0, 5), found(5, 0), found(0, 0), found(5, 0), found(0, 0), found(5, 3), found(8, 0)];
        let headway = attempts.map(|counts| keeps_more(&mut last, &counts));
        assert_eq!(headway, [false, true, false, false, false, false, true]);
    }

    #[test]
    fn a_copy_between_two_servers_says_which_way_its_content_went() {
        let told = |from: &str, to: &str, bytes_done, is_dry_run| {
            let [from, to] = [from, to].map(|text| Location::parse(text.as_ref()).unwrap());
            let mut spec = TransferSpec::new(vec![from], to);
            spec.options.is_dry_run = is_dry_run;
            through_here(&spec, &Counts { files_done: 1, bytes_done, ..Counts::default() })
        };
        let way = "content went through this host: GridFTP, FTP and SFTP servers are not told to copy among themselves";
        for (from, to) in [("gsiftp://a/x", "gsiftp://b/y"), ("sshftp://a/x", "sftp://b/y")] {
            assert_eq!(told(from, to, 1, false).as_deref(), Some(way), "{from} {to}");
            // Links have no content, and a dry run moves none.
            assert_eq!([told(from, to, 0, false), told(from, to, 1, true)], [None, None], "{from} {to}");
        }
        for (from, to) in [("x", "gsiftp://b/y"), ("gsiftp://a/x", "y"), ("davs://a/x", "davs://b/y")] {
            assert_eq!(told(from, to, 1, false), None, "{from} {to}");
        }
    }

    #[test]
    fn a_directory_to_standard_output_is_said_once_and_no_pipe_is_said_to_go_on() {
        let spec = |from: &str, to: &str| {
            let [from, to] = [from, to].map(|text| Location::parse(text.as_ref()).unwrap());
            TransferSpec::new(vec![from], to)
        };
        let failed = |spec: &TransferSpec, why: &str| {
            let (kind, message) = (FailureKind::InTheWay, why.to_owned());
            let mut ended = Ended::before_the_start(spec, Direction::Pull);
            ended.failures = vec![Failure { path: b"a".to_vec(), kind, message }; 2];
            ended.error = summed_up(Kind::NoSpace, 2);
            of_pipe(spec, ended)
        };
        let tree = failed(&spec("lab:d", "-"), &format!("write directory: {NO_TREE}"));
        let error = tree.error.unwrap();
        assert_eq!((error.kind, tree.failures.len()), (Kind::Request, 0));
        assert_eq!(error.text, "lab:d is a directory: standard output takes one file, not a tree");
        let link = failed(&spec("lab:l", "-"), "links are not followed");
        assert_eq!((link.error.unwrap().kind, link.failures.len()), (Kind::NoSpace, 2));
        let sent = failed(&spec("-", "lab:f"), "write file: No space left on device");
        assert_eq!(sent.error.unwrap().advice, Some(format!("make room at the destination; {PIPE_ADVICE}")));
    }

    #[test]
    fn pauses_double_within_a_quarter_up_to_a_bound() {
        for (failures, seconds) in [(0, 1.0), (1, 1.0), (2, 2.0), (3, 4.0), (7, 60.0), (40, 60.0)] {
            let ratio = pause_after(failures, PAUSE_FIRST, PAUSE_MAX).as_secs_f64() / seconds;
            assert!((0.75..1.25).contains(&ratio), "{failures}: {ratio}");
        }
    }

    #[test]
    fn a_run_with_failures_is_summed_up_in_one_error() {
        let error = summed_up(Kind::Partial, 2).unwrap();
        assert_eq!((error.kind, &error.text[..]), (Kind::Partial, "2 files were not delivered"));
        assert_eq!(summed_up(Kind::Changed, 1).unwrap().text, "1 file was not delivered");
    }
}
