//! `trial kill`: `kill -9` of the real program before and after every call that changes storage, for every part it plays.
//!
//! A first run counts the durable calls of the victim. Then each trial kills it at one of them, checks what is visible
//! (I1, I5), starts what died again, gives the same command again, and checks everything (I6, I7, I20). A double kill
//! dies again while it recovers.
//!
//! A sender changes next to nothing: its points are the calls that read the source as well.
//!
//! Acknowledgements are held against the disk: what a copy reported as delivered is there, also where it then failed (I2).
//! What a recovery sends is held against `resent::bound` (I10). Kills before the copy has said its first word, and after it
//! was told of success, are classes of their own and stand for no fault of the table.
//!
//! The order of calls differs from run to run, because threads do: a point is the n-th durable call, and a run that has
//! fewer is inert.

use crate::calls::{CALLS, Seen, durable_numbers};
use crate::check;
use crate::instrument::Instrument;
use crate::job::{Bed, Buffer, Direction, Ground, GroundArgs, PATIENCE, check_words};
use crate::process::{Ended, Process, Tracing};
use crate::random::Random;
use crate::record::{Outcome, Tally};
use crate::relay::Witness;
use crate::sys::{Answer, Moment};
use crate::{large, pool, resent, tree};
use anyhow::Result;
use std::path::Path;
use std::str::FromStr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

#[derive(clap::Args, Clone, Debug)]
pub struct Args {
    #[command(flatten)]
    ground: GroundArgs,
    /// Every point, before and after, of every part
    #[arg(long)]
    all: bool,
    /// Every K-th point instead of random ones
    #[arg(long, value_name = "K")]
    every: Option<u64>,
    /// Random points
    #[arg(long, value_name = "N", default_value_t = 24)]
    trials: u64,
    /// Trials with a second kill during recovery; every fourth of them has a third one
    #[arg(long, value_name = "N", default_value_t = 6)]
    double: u64,
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Trials at the same time
    #[arg(long, value_name = "N", default_value_t = 2)]
    jobs: usize,
    /// Which part dies, in all trials; while files grow, where each takes seconds, only if it is named here
    #[arg(long)]
    case: Option<Case>,
    /// One trial: at which durable call; given again, the recovery dies there
    #[arg(long, value_name = "N:before|N:after", requires = "case")]
    point: Vec<Point>,
    /// Instead, one copy of 2 GiB and 20,000 files, killed ten times on both sides
    #[arg(long)]
    large: bool,
}

/// Even a recovery that has nothing to do opens its state and looks at the destination.
const POINTS_OF_A_RECOVERY_MIN: u64 = 8;
const LOOK_INTERVAL: Duration = Duration::from_millis(1);
const CHUNK_SIZE: &str = "1MiB";
const CHUNK_BYTES: u64 = 1 << 20;

/// Which program dies, and what it does in the copy.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub enum Case {
    /// The endpoint, while a client sends to it
    PushReceiver,
    /// The client that sends
    PushSender,
    /// The client that fetches
    PullReceiver,
    /// The endpoint, while a client fetches from it
    PullSender,
    /// As push-receiver, with names, owners and attributes kept, through io_uring
    PushWhole,
    /// As pull-receiver, with names, owners and attributes kept, through io_uring
    PullWhole,
    /// As push-receiver, with everything through the endpoint's buffer
    PushBuffered,
    /// The client that sends, while what it sent waits in the endpoint's buffer
    PushBufferedSender,
    /// The client that sends what it reads ahead into a buffer of its own
    PushAhead,
    /// The endpoint that sends what it reads ahead into its buffer
    PullAhead,
    /// The endpoint, while a client follows files that grow
    FollowReceiver,
    /// The client that follows files while they grow
    FollowSender,
}

pub const CASES: [Case; 12] = [
    Case::PushReceiver,
    Case::PushSender,
    Case::PullReceiver,
    Case::PullSender,
    Case::PushWhole,
    Case::PullWhole,
    Case::PushBuffered,
    Case::PushBufferedSender,
    Case::PushAhead,
    Case::PullAhead,
    Case::FollowReceiver,
    Case::FollowSender,
];

impl Case {
    pub fn direction(self) -> Direction {
        match self {
            Case::PullReceiver | Case::PullSender | Case::PullWhole | Case::PullAhead => Direction::Pull,
            _ => Direction::Push,
        }
    }

    pub fn is_endpoint(self) -> bool {
        match self {
            Case::PushReceiver | Case::PushWhole | Case::PushBuffered | Case::FollowReceiver => true,
            Case::PullSender | Case::PullAhead => true,
            Case::PushSender | Case::PushBufferedSender | Case::PushAhead | Case::FollowSender => false,
            Case::PullReceiver | Case::PullWhole => false,
        }
    }

    /// Which of the two has a buffer that everything goes through.
    pub fn buffer(self) -> Option<Buffer> {
        match self {
            Case::PushBuffered | Case::PushBufferedSender | Case::PullAhead => Some(Buffer::Endpoint),
            Case::PushAhead => Some(Buffer::Client),
            _ => None,
        }
    }

    pub fn is_whole(self) -> bool {
        matches!(self, Case::PushWhole | Case::PullWhole)
    }

    fn is_following(self) -> bool {
        matches!(self, Case::FollowReceiver | Case::FollowSender)
    }

    /// What a trial of it begins with. Where files are followed, the destination is empty.
    fn bed(self, ground: &Ground, seed: u64) -> Result<Bed<'_>> {
        let older = if self.is_following() { |_: &Path| Ok(()) } else { tree::fill_older };
        let mut bed = Bed::new(ground, self.direction(), older)?;
        (bed.is_whole, bed.buffer) = (self.is_whole(), self.buffer());
        if self.is_following() {
            bed.instrument = Some(Instrument::new(bed.dir.join("grown"), seed)?);
        }
        Ok(bed)
    }

    pub fn name(self) -> &'static str {
        match self {
            Case::PushReceiver => "push-receiver",
            Case::PushSender => "push-sender",
            Case::PullReceiver => "pull-receiver",
            Case::PullSender => "pull-sender",
            Case::PushWhole => "push-whole",
            Case::PullWhole => "pull-whole",
            Case::PushBuffered => "push-buffered",
            Case::PushBufferedSender => "push-buffered-sender",
            Case::PushAhead => "push-ahead",
            Case::PullAhead => "pull-ahead",
            Case::FollowReceiver => "follow-receiver",
            Case::FollowSender => "follow-sender",
        }
    }
}

/// The n-th durable call, counted from 1.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Point {
    n: u64,
    is_after: bool,
}

impl std::fmt::Display for Point {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}", self.n, if self.is_after { "after" } else { "before" })
    }
}

impl FromStr for Point {
    type Err = String;

    fn from_str(text: &str) -> Result<Point, String> {
        let wrong = || format!("{text:?} is not a point such as 17:before or 17:after");
        let (n, moment) = text.split_once(':').ok_or_else(wrong)?;
        let is_after = match moment {
            "before" => false,
            "after" => true,
            _ => return Err(wrong()),
        };
        Ok(Point { n: n.parse().map_err(|_| wrong())?, is_after })
    }
}

/// What the tracer saw of a victim.
#[derive(Default)]
pub struct Watched {
    counted: u64,
    /// Bytes that had passed the relay when the copy was started; none: it was not yet.
    began: Option<u64>,
    hit: Option<Hit>,
}

/// Where a victim was killed.
struct Hit {
    call: String,
    /// The copy was under way: something of it had passed the relay.
    is_begun: bool,
}

/// When a kill came.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    StartUp,
    UnderWay,
    /// The copy knew of its success.
    After,
}

struct Plan {
    case: Case,
    points: Vec<Point>,
}

/// What a trial measured.
struct Measured {
    bytes_passed: u64,
    recovery_ms: u128,
}

pub fn run(args: &Args) -> Result<Tally> {
    if args.large {
        return large::run(&args.ground, args.seed);
    }
    let started = Instant::now();
    let ground = Ground::new(&args.ground, CHUNK_SIZE, tree::fill_source)?;
    let mut tally = Tally::new("trial kill --all --double 1000");
    let mut baselines = Vec::new();
    for case in CASES.into_iter().filter(|case| args.case.map_or(!case.is_following(), |only| only == *case)) {
        let (points, bytes_passed) = count(&ground, case)?;
        tally.figures.insert(format!("durable calls of {}", case.name()), points.to_string());
        baselines.push((case, points, bytes_passed));
    }
    let plans = plans(args, &baselines);
    if args.all {
        for (case, ..) in &baselines {
            tally.plan(&format!("kill -9, {}", case.name()), &["F087"]);
        }
    }
    let results = Mutex::new((tally, Vec::new()));
    pool::run(args.jobs, &plans, |plan| {
        let trial = trial(&ground, plan);
        let (tally, figures) = &mut *results.lock().unwrap();
        let Trial { outcome, phases, measured } = match trial {
            Ok(found) => found,
            Err(e) => Trial::new(Outcome::Violated(format!("the trial could not be carried out: {e:#}")), Vec::new()),
        };
        let (class, faults) = class(plan, &phases);
        tally.count(&class, faults, &outcome, &replay(plan));
        tally.allow(&class, &["KEEP"]);
        figures.extend(measured.map(|measured| (plan.case, plan.points.len(), measured)));
    });
    let (mut tally, figures) = results.into_inner().unwrap();
    tell_figures(&mut tally, &figures, &baselines);
    tally.seconds = started.elapsed().as_secs_f64();
    Ok(tally)
}

/// Class and faults of the table; a kill outside the job is of none.
fn class(plan: &Plan, phases: &[Phase]) -> (String, &'static [&'static str]) {
    let name = plan.case.name();
    let is_within = phases.iter().all(|phase| *phase == Phase::UnderWay);
    match (plan.points.len(), phases) {
        (1, [Phase::StartUp]) => (format!("kill -9 before the copy's first word, {name}"), &[]),
        (1, [Phase::After]) => (format!("kill -9 after the copy's success, {name}"), &[]),
        (1, _) => (format!("kill -9, {name}"), &["F087"]),
        (n, _) if is_within => (format!("kill -9 {n} times, {name}"), &["F088"]),
        (n, _) => (format!("kill -9 {n} times, not always within the copy, {name}"), &[]),
    }
}

fn replay(plan: &Plan) -> String {
    let points: Vec<_> = plan.points.iter().map(|point| format!("--point {point}")).collect();
    format!("trial kill --case {} {}", plan.case.name(), points.join(" "))
}

/// The trials that were asked for.
fn plans(args: &Args, counted: &[(Case, u64, u64)]) -> Vec<Plan> {
    if let Some(case) = args.case.filter(|_| !args.point.is_empty()) {
        return vec![Plan { case, points: args.point.clone() }];
    }
    let mut random = Random::new(args.seed);
    let mut plans = Vec::new();
    let step = if args.all { Some(1) } else { args.every };
    if let Some(step) = step {
        for (case, points, _) in counted {
            let points = (1..=*points).step_by(step.max(1) as usize);
            let both = points.flat_map(|n| [false, true].map(|is_after| Point { n, is_after }));
            plans.extend(both.map(|point| Plan { case: *case, points: vec![point] }));
        }
    }
    let singles = if step.is_some() { 0 } else { args.trials };
    for i in 0..singles + args.double {
        let (case, points, _) = counted[random.below(counted.len() as u64) as usize];
        let first = point(&mut random, points);
        let mut at = vec![first];
        if i >= singles {
            // A recovery has less to do, the less the later the first kill came.
            let left = (points - first.n).max(POINTS_OF_A_RECOVERY_MIN);
            at.push(point(&mut random, left));
            if i % 4 == 0 {
                at.push(point(&mut random, left));
            }
        }
        plans.push(Plan { case, points: at });
    }
    plans
}

fn point(random: &mut Random, points: u64) -> Point {
    Point { n: 1 + random.below(points), is_after: random.below(2) == 1 }
}

/// Counts the durable calls of a victim in a run without faults, and the bytes that it takes.
fn count(ground: &Ground, case: Case) -> Result<(u64, u64)> {
    let mut bed = case.bed(ground, 0)?;
    let watched = Arc::new(Mutex::new(Watched::default()));
    let mut held = killed(&mut bed, case, None, &watched)?.held;
    if held.is_ok() {
        // The second run of the same command skips everything; what it costs is a part of recovering.
        held = recovered(&mut bed)?;
    }
    if let Err(why) = held {
        anyhow::bail!("{} without any fault: {why}", case.name());
    }
    let counted = watched.lock().unwrap().counted;
    let (up, down) = bed.relay.passed();
    Ok((counted, up + down))
}

/// What became of one plan.
struct Trial {
    outcome: Outcome,
    /// Of each kill that came.
    phases: Vec<Phase>,
    measured: Option<Measured>,
}

impl Trial {
    fn new(outcome: Outcome, phases: Vec<Phase>) -> Trial {
        Trial { outcome, phases, measured: None }
    }
}

fn trial(ground: &Ground, plan: &Plan) -> Result<Trial> {
    let mut bed = plan.case.bed(ground, plan.points[0].n)?;
    let (mut hits, mut phases) = (Vec::new(), Vec::new());
    for point in &plan.points {
        let watched = Arc::new(Mutex::new(Watched::default()));
        let Killed { held, is_told_of_success } = killed(&mut bed, plan.case, Some(*point), &watched)?;
        let hit = watched.lock().unwrap().hit.take();
        let is_inert = hit.is_none();
        if let Some(Hit { call, is_begun }) = hit {
            hits.push(call);
            phases.push(match (is_told_of_success, is_begun) {
                (true, _) => Phase::After,
                (false, true) => Phase::UnderWay,
                (false, false) => Phase::StartUp,
            });
        }
        if let Err(why) = held {
            return Ok(Trial::new(Outcome::Violated(format!("{why}; killed at: {}", hits.join(", "))), phases));
        }
        if is_inert {
            return Ok(Trial::new(Outcome::Inert, phases));
        }
    }
    let started = Instant::now();
    let witness = bed.relay.witness();
    let (passed_before, bound) = (witness.bytes(), bound(&bed)?);
    if let Err(why) = recovered(&mut bed)? {
        return Ok(Trial::new(Outcome::Violated(format!("recovery: {why}; killed at: {}", hits.join(", "))), phases));
    }
    let bytes_passed = witness.bytes();
    let sent = bytes_passed - passed_before;
    let outcome = match sent > bound {
        true => {
            let at = hits.join(", ");
            Outcome::Violated(format!("I10: the recovery took {sent} bytes, more than {bound}; killed at: {at}"))
        }
        false => Outcome::Survived,
    };
    let measured = Measured { bytes_passed, recovery_ms: started.elapsed().as_millis() };
    Ok(Trial { outcome, phases, measured: Some(measured) })
}

/// What the recovery may send.
fn bound(bed: &Bed<'_>) -> Result<u64> {
    if let Some(instrument) = &bed.instrument {
        // All of it, and once more the files whose front was patched: each is one chunk.
        return Ok(2 * instrument.bytes() + resent::PROTOCOL_BYTES);
    }
    let staged = check::staged(&bed.dir.join("root"));
    let (source, destination) = (&bed.ground.source, bed.destination());
    Ok(resent::bound(source, &bed.ground.new, &destination, &staged, CHUNK_BYTES)?)
}

/// A run in which the victim died, or was to.
struct Killed {
    /// What must hold right after it.
    held: Result<(), String>,
    is_told_of_success: bool,
}

/// One run in which the victim dies at the point.
fn killed(bed: &mut Bed<'_>, case: Case, point: Option<Point>, watched: &Arc<Mutex<Watched>>) -> Result<Killed> {
    let failed = |why: String| Ok(Killed { held: Err(why), is_told_of_success: false });
    let tracing = watch(bed, case, point, watched.clone());
    let witness = bed.relay.witness();
    let begin = || watched.lock().unwrap().began = Some(witness.bytes());
    let (client, endpoint) = if case.is_endpoint() {
        let mut client = None;
        if bed.serve(Some(tracing))? && bed.enrol()?.is_ok() {
            begin();
            client = copied(bed)?;
        }
        // Ended in order, so that its last calls are points too.
        (client, Some(bed.stop()?))
    } else {
        if bed.endpoint.is_none() {
            if !bed.serve(None)? {
                return failed("the endpoint did not start".to_owned());
            }
            if let Err(why) = bed.enrol()? {
                return failed(format!("the client could not enrol: {why}"));
            }
        }
        begin();
        (Some(bed.copy(Some(tracing))?.wait(PATIENCE)?), None)
    };
    let is_told_of_success = client.as_ref().is_some_and(|ended| ended.as_ref().is_some_and(is_success));
    Ok(Killed { held: judge(bed, client, endpoint), is_told_of_success })
}

/// Runs the copy to its end. One that follows outlives its endpoint and goes on with the next one.
fn copied(bed: &mut Bed<'_>) -> Result<Option<Option<Ended>>> {
    let copy = bed.goes_on()?;
    let deadline = Instant::now() + PATIENCE;
    while bed.instrument.is_some() && !copy.has_ended() && Instant::now() < deadline {
        if bed.endpoint.as_ref().is_none_or(Process::has_ended) {
            bed.client = Some(copy);
            return Ok(None);
        }
        std::thread::park_timeout(LOOK_INTERVAL);
    }
    Ok(Some(copy.wait(PATIENCE)?))
}

/// A client that was killed may have said so before.
fn is_success(client: &Ended) -> bool {
    let last = client.output.lines().last().and_then(|line| serde_json::from_str::<serde_json::Value>(line).ok());
    last.is_some_and(|event| event["event"] == "done" && event["code"] == 0)
}

/// What must hold at every instant, and what the programs may have said.
fn judge(bed: &Bed<'_>, client: Option<Option<Ended>>, endpoint: Option<Option<Ended>>) -> Result<(), String> {
    bed.check_half_done()?;
    for ended in [&client, &endpoint].into_iter().flatten() {
        match ended {
            None => return Err(format!("hang: a program did not end within {} s", PATIENCE.as_secs())),
            Some(ended) => check_words(&ended.errors)?,
        }
    }
    if let (Some(instrument), Some(Some(Ended { output, .. }))) = (&bed.instrument, &client) {
        instrument.check_sealed(&bed.destination(), output)?;
    }
    let Some(Some(Ended { code: Some(code), output, .. })) = &client else { return Ok(()) };
    // Nothing is printed by a copy that could not begin.
    if !output.is_empty() && bed.instrument.is_none() {
        let (ok, skipped, _) = check::done(output, *code, bed.ground.objects())?;
        check::acknowledged(&bed.destination(), &bed.ground.new, ok + skipped)?;
    }
    match code {
        0 => bed.check_complete(),
        _ => Ok(()),
    }
}

/// Starts again what died, gives the same command again, and checks everything.
fn recovered(bed: &mut Bed<'_>) -> Result<Result<(), String>> {
    if bed.endpoint.is_none() && !bed.serve(None)? {
        let said = bed.buried()?.map_or(String::new(), |ended| ended.errors);
        return Ok(Err(format!("the endpoint did not start again: {said}")));
    }
    if let Err(why) = bed.enrol()? {
        return Ok(Err(format!("the client could not enrol: {why}")));
    }
    let client = bed.goes_on()?.wait(PATIENCE)?;
    let endpoint = bed.stop()?;
    if let Some(Ended { code, errors, .. }) = &client
        && *code != Some(0)
    {
        return Ok(Err(format!("the same command ended with {code:?}: {}", errors.trim())));
    }
    if let Some(Ended { code, errors, .. }) = &endpoint
        && *code != Some(0)
    {
        return Ok(Err(format!("the endpoint ended with {code:?}: {}", errors.trim())));
    }
    Ok(judge(bed, Some(client), Some(endpoint)).and_then(|()| bed.check_swept()))
}

/// Stops at durable calls; a sender hardly makes any, and is stopped where it reads the source too.
fn watch(bed: &Bed<'_>, case: Case, point: Option<Point>, watched: Arc<Mutex<Watched>>) -> Tracing {
    let is_sender = matches!(case, Case::PushSender | Case::PullSender | Case::FollowSender);
    let witness: Witness = bed.relay.witness();
    let each = move |seen: &Seen| {
        if seen.moment != Moment::Before {
            return Answer::Kill;
        }
        if !(seen.is_durable() || is_sender && seen.is_reading()) {
            return Answer::GoOn;
        }
        let mut watched = watched.lock().unwrap();
        watched.counted += 1;
        match point {
            Some(point) if watched.counted == point.n => {
                let call = format!("{} of {:?} {}", seen.call, seen.area, seen.path.display());
                let is_begun = watched.began.is_some_and(|began| witness.bytes() > began);
                watched.hit = Some(Hit { call, is_begun });
                if point.is_after { Answer::StopAfter } else { Answer::Kill }
            }
            _ => Answer::GoOn,
        }
    };
    let numbers = if is_sender { CALLS.iter().map(|call| call.number).collect() } else { durable_numbers() };
    Tracing { numbers, areas: bed.areas(), each: Box::new(each) }
}

/// Bytes sent again (I10) and the time of recovery, by part and number of kills.
fn tell_figures(tally: &mut Tally, found: &[(Case, usize, Measured)], baselines: &[(Case, u64, u64)]) {
    for (case, _, baseline) in baselines {
        for (is_double, what) in [(false, "one kill"), (true, "two kills or more")] {
            let of_case: Vec<_> = found.iter().filter(|(c, kills, _)| c == case && (*kills > 1) == is_double).collect();
            if of_case.is_empty() {
                continue;
            }
            let again = of_case.iter().map(|(_, _, m)| m.bytes_passed.saturating_sub(*baseline));
            let recovery = of_case.iter().map(|(_, _, m)| m.recovery_ms as u64);
            let name = case.name();
            tally.figures.insert(format!("bytes sent again, {name}, {what}"), spread(again.collect()));
            tally.figures.insert(format!("recovery in ms, {name}, {what}"), spread(recovery.collect()));
        }
    }
}

fn spread(mut values: Vec<u64>) -> String {
    values.sort_unstable();
    let mean = values.iter().sum::<u64>() / values.len() as u64;
    let p99 = values[(values.len() * 99).div_ceil(100) - 1];
    format!("mean {mean}, p99 {p99}, max {}, of {}", values[values.len() - 1], values.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_point_reads_back_as_it_is_shown() {
        for text in ["17:before", "1:after"] {
            assert_eq!(text.parse::<Point>().unwrap().to_string(), text);
        }
        assert!("17".parse::<Point>().is_err() && "x:after".parse::<Point>().is_err());
    }

    #[test]
    fn the_spread_of_few_values_is_among_them() {
        assert_eq!(spread(vec![5]), "mean 5, p99 5, max 5, of 1");
        assert_eq!(spread((1..=200).rev().collect()), "mean 100, p99 198, max 200, of 200");
    }
}
