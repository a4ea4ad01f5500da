//! Newline-delimited events for programs, as docs/json.md lists them and a test pins them.
//!
//! Invariants: the last event of a command is `done`; sizes are integers; a text is escaped as on a terminal, so that
//! every path has a form and reads back. Fields may be added; none changes its meaning within one `v`.

use crate::exit::{self, Error};
use daemon::Endpoint;
use daemon::Enrolment;
use daemon::limited::Limited;
use model::change::Subject;
use model::fidelity::Warning;
use model::name::Escaped;
use model::options::Verify;
use model::progress::{Behind, Bottleneck, Fill};
use model::{Change, Exit, Failure, FailureKind, JobId};
use mover::receiver::{BUFFERED, Tally};
use mover::{Ending, Followed, PathReport, Report, Snapshot};
use serde::Serialize;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use transfer::{Direction, Ended, HostShare, Legs, Sample, legs};

const VERSION: u32 = 1;

/// Writes events to standard output, until nobody reads them.
#[derive(Default)]
pub struct Events {
    is_closed: AtomicBool,
}

impl Events {
    pub fn start(&self, start: &Start<'_>) {
        self.write("start", start);
    }

    pub fn progress(&self, sample: &Sample) {
        self.write("progress", &Progress::of(sample));
    }

    /// A file that was not delivered.
    pub fn file(&self, failure: &Failure) {
        let outcome = if failure.kind == FailureKind::Special { "skipped" } else { "failed" };
        self.write(
            "file",
            &File {
                path: Escaped(&failure.path).to_string(),
                outcome,
                reason: failure.kind.name(),
                message: Escaped(failure.message.as_bytes()).to_string(),
            },
        );
    }

    /// What became of a file that is followed, and each second how far the destination is behind.
    pub fn followed(&self, event: &Followed) {
        #[derive(Serialize)]
        struct Path {
            path: String,
            #[serde(skip_serializing_if = "Option::is_none")]
            bytes: Option<u64>,
        }
        #[derive(Serialize)]
        struct Moved {
            path: String,
            to: String,
        }
        #[derive(Serialize)]
        struct Alarm {
            is_behind: bool,
            #[serde(flatten)]
            lag: Lag,
        }
        let (name, path, bytes) = match event {
            Followed::Lag(behind) => return self.write("lag", &Lag::of(behind)),
            Followed::LagAlarm(behind) => {
                return self.write("lag_alarm", &Alarm { is_behind: behind.is_alarmed, lag: Lag::of(behind) });
            }
            Followed::Moved { path, to } => {
                let [path, to] = [path, to].map(|path| Escaped(path).to_string());
                return self.write("moved", &Moved { path, to });
            }
            Followed::Sealed { path, size_bytes } => ("sealed", path, Some(*size_bytes)),
            Followed::Reopened { path } => ("reopened", path, None),
            Followed::Truncated { path } => ("truncated", path, None),
            Followed::Replaced { path } => ("replaced", path, None),
            Followed::Rewritten { path } => ("rewritten", path, None),
            Followed::Vanished { path } => ("vanished", path, None),
        };
        self.write(name, &Path { path: Escaped(path).to_string(), bytes });
    }

    /// What ended an attempt, and whether there will be another.
    pub fn error(&self, error: &Error, retry_seconds: Option<f64>) {
        let hint = error.hint.as_deref().unwrap_or_else(|| exit::hint_for(error.exit));
        let retry_seconds = retry_seconds.map(rounded);
        self.write("error", &Problem { message: &error.message, hint, code: error.exit as i32, retry_seconds });
    }

    pub fn done(&self, ended: &Ended, durable: &str, exit: Exit) {
        self.write("done", &Done::of(ended, durable, exit));
    }

    fn write(&self, event: &'static str, fields: &impl Serialize) {
        #[derive(Serialize)]
        struct Event<'a, T> {
            v: u32,
            event: &'static str,
            #[serde(flatten)]
            fields: &'a T,
        }
        if self.is_closed.load(Relaxed) {
            return;
        }
        let text = serde_json::to_string(&Event { v: VERSION, event, fields }).expect("plain values have a JSON form");
        if !super::line(&text) {
            self.is_closed.store(true, Relaxed);
        }
    }
}

#[derive(Serialize)]
pub struct Start<'a> {
    pub command: &'static str,
    pub direction: &'static str,
    #[serde(serialize_with = "id")]
    pub job: JobId,
    pub sources: &'a [String],
    pub destination: &'a str,
}

/// The fields of a `progress` event.
pub fn progress_fields(sample: &Sample) -> serde_json::Value {
    serde_json::to_value(Progress::of(sample)).expect("plain values have a JSON form")
}

#[derive(Serialize)]
struct Progress {
    seconds: f64,
    files: ProgressFiles,
    directories: u64,
    bytes: ProgressBytes,
    is_listing_complete: bool,
    bytes_per_second: u64,
    bytes_per_second_average: u64,
    files_per_second: u64,
    seconds_left: Option<f64>,
    streams: u32,
    bottleneck: Limit,
    lag_bytes: Option<u64>,
    lag_seconds_p99: Option<f64>,
    legs: Option<DoneLegs>,
}

/// How far the destination of a source that is followed is behind.
#[derive(Serialize)]
struct Lag {
    bytes: u64,
    files: u64,
    seconds_p50: Option<f64>,
    seconds_p99: Option<f64>,
    seconds_oldest: Option<f64>,
}

impl Lag {
    fn of(behind: &Behind) -> Lag {
        let [seconds_p50, seconds_p99, seconds_oldest] =
            [behind.lag.p50, behind.lag.p99, behind.lag.oldest].map(seconds);
        Lag { bytes: behind.bytes, files: behind.files, seconds_p50, seconds_p99, seconds_oldest }
    }
}

/// The legs of a transfer with buffers.
#[derive(Serialize)]
struct DoneLegs {
    read_bytes_per_second: u64,
    sent_bytes_per_second: u64,
    stored_bytes_per_second: u64,
    source_buffer: Option<Buffered>,
    destination_buffer: Option<Buffered>,
    limit: Option<&'static str>,
}

#[derive(Serialize)]
struct Buffered {
    capacity_bytes: u64,
    waiting_bytes: u64,
}

impl DoneLegs {
    fn of(legs: &Legs) -> DoneLegs {
        let fill = |fill: Fill| {
            let Fill { capacity_bytes, waiting_bytes } = fill;
            (capacity_bytes > 0).then_some(Buffered { capacity_bytes, waiting_bytes })
        };
        let [read, sent, stored] = legs.rates.map(|rate| rate.bytes_per_second as u64);
        DoneLegs {
            read_bytes_per_second: read,
            sent_bytes_per_second: sent,
            stored_bytes_per_second: stored,
            source_buffer: fill(legs.source),
            destination_buffer: fill(legs.destination),
            limit: legs.limit,
        }
    }
}

#[derive(Serialize)]
struct ProgressFiles {
    listed: u64,
    ok: u64,
    skipped: u64,
    failed: u64,
}

#[derive(Serialize)]
struct ProgressBytes {
    listed: u64,
    ok: u64,
    skipped: u64,
    sent: u64,
    resumed: u64,
}

impl Progress {
    fn of(sample: &Sample) -> Progress {
        let counts = &sample.counts;
        Progress {
            seconds: rounded(sample.seconds),
            files: ProgressFiles {
                listed: counts.files_listed,
                ok: counts.files_done,
                skipped: counts.files_skipped,
                failed: counts.files_failed,
            },
            directories: counts.directories,
            bytes: ProgressBytes {
                listed: counts.bytes_listed,
                ok: counts.bytes_done,
                skipped: counts.bytes_skipped,
                sent: counts.bytes_sent,
                resumed: counts.bytes_resumed,
            },
            is_listing_complete: sample.is_listing_complete,
            bytes_per_second: sample.rate_now.bytes_per_second as u64,
            bytes_per_second_average: sample.rate_average.bytes_per_second as u64,
            files_per_second: sample.files_per_second as u64,
            seconds_left: sample.seconds_left.map(rounded),
            streams: sample.streams,
            bottleneck: Limit { stage: sample.bottleneck.stage, share: rounded(sample.bottleneck.share) },
            lag_bytes: sample.behind.map(|behind| behind.bytes),
            lag_seconds_p99: sample.behind.and_then(|behind| seconds(behind.lag.p99)),
            legs: sample.legs.as_ref().map(DoneLegs::of),
        }
    }
}

#[derive(Serialize)]
struct File {
    path: String,
    outcome: &'static str,
    reason: &'static str,
    message: String,
}

/// A change, as an event.
pub fn change(change: &Change, is_sent: bool) -> String {
    #[derive(Serialize)]
    struct Line {
        v: u32,
        event: &'static str,
        path: String,
        action: &'static str,
        kind: &'static str,
        letters: String,
    }
    let kind = match change.subject {
        Subject::File => "file",
        Subject::Directory => "directory",
        Subject::Symlink => "link",
        Subject::Special => "special",
        Subject::Device => "device",
    };
    let path = Escaped(&change.path).to_string();
    let line =
        Line { v: VERSION, event: "change", path, action: change.action(), kind, letters: change.letters(is_sent) };
    serde_json::to_string(&line).expect("plain values have a JSON form")
}

#[derive(Serialize)]
struct Problem<'a> {
    message: &'a str,
    hint: &'a str,
    code: i32,
    retry_seconds: Option<f64>,
}

#[derive(Serialize)]
struct Done {
    /// The ends without storage.
    synthetic: Vec<&'static str>,
    files: DoneFiles,
    removed: u64,
    is_dry_run: bool,
    directories: u64,
    bytes: u64,
    resumed_bytes: u64,
    sent_bytes: u64,
    compression: &'static str,
    wire_bytes: Option<u64>,
    compression_ratio: Option<f64>,
    seconds: f64,
    bytes_per_second: u64,
    first_byte_seconds: Option<f64>,
    durable: Option<String>,
    verify: String,
    cloned_bytes: u64,
    store_copied_bytes: u64,
    kernel_copied_bytes: u64,
    tls: bool,
    streams: u32,
    paths: Vec<DonePath>,
    sources: Vec<DoneSource>,
    hosts: Vec<DoneHost>,
    engine: Option<String>,
    cc: Option<String>,
    rtt_us: Option<u64>,
    retransmits: u64,
    tail_seconds: Option<f64>,
    lone_lane_seconds: Option<f64>,
    attempts: u32,
    bottleneck: Verdict,
    legs: Option<DoneLegs>,
    lag_seconds_p50: Option<f64>,
    lag_seconds_p99: Option<f64>,
    notes: Vec<String>,
    warnings: Vec<Warned>,
    code: i32,
}

/// A network path.
#[derive(Serialize)]
struct DonePath {
    name: String,
    local: Option<String>,
    remote: String,
    bytes: u64,
    streams: u32,
    failure: Option<String>,
}

impl DonePath {
    fn of(path: &PathReport) -> DonePath {
        DonePath {
            name: path.name.clone(),
            local: path.local.clone(),
            remote: path.remote.clone(),
            bytes: path.bytes,
            streams: path.streams,
            failure: path.failure.as_ref().map(|why| Escaped(why.as_bytes()).to_string()),
        }
    }
}

/// One of several holders.
#[derive(Serialize)]
struct DoneSource {
    name: String,
    bytes: u64,
    files: u64,
    bad_chunks: u64,
    differing: u64,
    difference: Option<String>,
    dropped: Option<String>,
}

impl DoneSource {
    fn of((name, tally): &(String, Tally)) -> DoneSource {
        DoneSource {
            name: name.clone(),
            bytes: tally.bytes,
            files: tally.files,
            bad_chunks: tally.bad_chunks,
            differing: tally.differing,
            difference: tally.difference.clone(),
            dropped: tally.dropped.clone(),
        }
    }
}

/// One of several hosts that sent.
#[derive(Serialize)]
struct DoneHost {
    name: String,
    bytes: u64,
    files: u64,
    slices: u64,
    lost: u64,
    bottleneck: String,
}

impl DoneHost {
    fn of(share: &HostShare) -> DoneHost {
        let HostShare { name, files, bytes, bytes_sent: _, slices, lost, bottleneck } = share.clone();
        DoneHost { name, bytes, files, slices, lost, bottleneck }
    }
}

/// Something that could not be kept of objects that arrived.
#[derive(Serialize)]
struct Warned {
    text: String,
    count: u64,
    path: String,
}

#[derive(Serialize)]
struct DoneFiles {
    ok: u64,
    skipped: u64,
    failed: u64,
}

#[derive(Serialize)]
struct Limit {
    stage: &'static str,
    share: f64,
}

#[derive(Serialize)]
struct Verdict {
    stage: &'static str,
    share: f64,
    sentence: String,
    advice: Option<String>,
    link_gain: Option<f64>,
}

impl Verdict {
    fn of(found: &Bottleneck) -> Verdict {
        Verdict {
            stage: found.stage,
            share: rounded(found.share),
            sentence: Escaped(found.sentence.as_bytes()).to_string(),
            advice: (!found.advice.is_empty()).then(|| Escaped(found.advice.as_bytes()).to_string()),
            link_gain: found.link_gain.map(rounded),
        }
    }
}

impl Warned {
    fn of(warning: &Warning) -> Warned {
        let path = Escaped(&warning.path).to_string();
        Warned { text: warning.text.clone(), count: warning.count, path }
    }
}

/// The last moment: the other side has not told that nothing waits any more.
fn at_the_end(report: &Report) -> Snapshot {
    let mut snapshot = report.snapshot.clone();
    if matches!(report.ending, Ending::Finished(_)) && report.durable != BUFFERED {
        (snapshot.here.fill.waiting_bytes, snapshot.there.fill.waiting_bytes) = (0, 0);
    }
    snapshot
}

impl Done {
    fn of(ended: &Ended, durable: &str, exit: Exit) -> Done {
        let said = |text: &str| (!text.is_empty()).then(|| Escaped(text.as_bytes()).to_string());
        let report = ended.report.as_ref();
        let facts = report.map(|report| report.snapshot.stream_facts).unwrap_or_default();
        let lag = report.and_then(|report| report.snapshot.behind).map(|behind| behind.lag);
        let tail = report.and_then(|report| report.snapshot.tail);
        let unread = report.map(|report| report.unread).unwrap_or_default();
        Done {
            synthetic: ended.synthetic.clone(),
            files: DoneFiles { ok: ended.files_ok, skipped: ended.files_skipped, failed: ended.files_failed },
            removed: ended.removed,
            is_dry_run: ended.options.is_dry_run,
            directories: ended.directories,
            bytes: ended.bytes,
            resumed_bytes: ended.resumed_bytes,
            sent_bytes: ended.sent_bytes,
            compression: ended.options.compression.name(),
            wire_bytes: ended.wire_bytes,
            compression_ratio: ended.compression_ratio().map(rounded),
            seconds: rounded(ended.seconds),
            bytes_per_second: ended.rate().bytes_per_second as u64,
            first_byte_seconds: ended.first_byte_seconds.map(rounded),
            durable: said(durable),
            verify: match ended.options.verify {
                _ if super::is_unverified(ended) => Verify::None.name().to_owned(),
                Verify::Stream => ended.options.digest.name().to_owned(),
                Verify::Reread => format!("{}+reread", ended.options.digest),
                Verify::None => Verify::None.name().to_owned(),
            },
            cloned_bytes: unread.shared_bytes,
            store_copied_bytes: unread.store_bytes,
            kernel_copied_bytes: unread.kernel_bytes,
            tls: ended.direction != Direction::Local,
            streams: report.map_or(0, |report| report.streams),
            paths: ended.paths.iter().map(DonePath::of).collect(),
            sources: ended.sources.iter().map(DoneSource::of).collect(),
            hosts: ended.hosts.iter().map(DoneHost::of).collect(),
            engine: report.and_then(|report| said(&report.engine)),
            cc: report.and_then(|report| said(&report.congestion)),
            rtt_us: (facts.rtt_us_min > 0).then_some(facts.rtt_us_min),
            retransmits: facts.retransmits,
            tail_seconds: seconds(tail.map(|tail| tail.whole)),
            lone_lane_seconds: seconds(tail.and_then(|tail| tail.alone)),
            attempts: ended.attempts,
            bottleneck: Verdict::of(&ended.bottleneck),
            legs: report.and_then(|report| legs(None, &at_the_end(report), ended.direction)).as_ref().map(DoneLegs::of),
            lag_seconds_p50: lag.and_then(|lag| seconds(lag.p50)),
            lag_seconds_p99: lag.and_then(|lag| seconds(lag.p99)),
            notes: report.map(|report| report.notes.clone()).unwrap_or_default(),
            warnings: report.map(|report| report.warnings.iter().map(Warned::of).collect()).unwrap_or_default(),
            code: exit as i32,
        }
    }
}

/// A known endpoint, for `endpoint ls --json`.
pub fn endpoint(endpoint: &Endpoint) -> String {
    #[derive(Serialize)]
    struct Line<'a> {
        v: u32,
        name: &'a str,
        addresses: &'a [String],
        identity: String,
        added: &'a str,
    }
    let (name, addresses, added) = (&endpoint.name, &endpoint.addresses, &endpoint.added);
    let line = Line { v: VERSION, name, addresses, identity: endpoint.pin.to_string(), added };
    serde_json::to_string(&line).expect("plain values have a JSON form")
}

/// A limited ticket, for `ticket ls --json`.
pub fn ticket(ticket: &Limited, uses: u32) -> String {
    let limits = &ticket.limits;
    let line = serde_json::json!({"v": VERSION, "id": ticket.id, "path": ticket.path_text(), "read": limits.may_read,
        "write": limits.may_write, "created": ticket.created, "expires": ticket.expires_text(),
        "uses_max": limits.uses_max, "class_max": limits.class_max.name(), "manage_rates": limits.may_manage, "uses": uses});
    line.to_string()
}

/// An enrolled client, for `ticket clients --json`.
pub fn client(client: &Enrolment) -> String {
    let name = Escaped(client.name.as_bytes()).to_string();
    let line = serde_json::json!({"v": VERSION, "identity": client.pin, "ticket": client.ticket,
        "enrolled": client.enrolled, "name": name, "write": client.may_write});
    line.to_string()
}

fn id<S: serde::Serializer>(job: &JobId, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(job)
}

fn seconds(time: Option<std::time::Duration>) -> Option<f64> {
    time.map(|time| rounded(time.as_secs_f64()))
}

/// Microseconds are enough, and keep the text short.
fn rounded(value: f64) -> f64 {
    (value * 1e6).round() / 1e6
}
