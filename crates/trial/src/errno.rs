//! `trial errno`: every call on storage made to return every error of the table, in the real program.
//!
//! Each (call, error) of `injections::ROWS` is put in at the first, a middle and a random occurrence, once, and from the
//! first on for ever. The outcome must be one that the row allows; no panic, no hang, nothing half done (I1); what failed
//! is named, with a hint. Then the same command without the fault must complete everything: also the disk that was full.

use crate::calls::{Area, CALLS, Seen, numbers_of};
use crate::check::{self, Kind};
use crate::injections::{Part, ROWS, Row, SHORT, Word, errno, fault};
use crate::job::{Bed, Ground, GroundArgs, PATIENCE, check_words};
use crate::kill::{CASES, Case};
use crate::process::{Ended, Tracing};
use crate::random::Random;
use crate::record::{Outcome, Tally};
use crate::sys::{Answer, Moment};
use crate::{pool, tree};
use anyhow::{Result, bail};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Instant;

#[derive(clap::Args, Clone, Debug)]
pub struct Args {
    #[command(flatten)]
    ground: GroundArgs,
    /// The whole table
    #[arg(long)]
    all: bool,
    /// Random trials of the table
    #[arg(long, value_name = "N", default_value_t = 30)]
    trials: usize,
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Trials at the same time
    #[arg(long, value_name = "N", default_value_t = 2)]
    jobs: usize,
    /// The trials whose name begins so: PART/CALL/AREA/ERROR/N/once|forever
    #[arg(long, value_name = "NAME")]
    only: Option<String>,
}

struct Injection {
    row: &'static Row,
    case: Case,
    error: &'static str,
    /// The occurrence that is hit, from 1; none where the part never makes the call.
    n: Option<u64>,
    is_forever: bool,
}

impl Injection {
    fn name(&self) -> String {
        let area = format!("{:?}", self.row.area).to_lowercase();
        let often = if self.is_forever { "forever" } else { "once" };
        let n = self.n.map_or("none".to_owned(), |n| n.to_string());
        format!("{}/{}/{area}/{}/{n}/{often}", self.case.name(), self.row.call, self.error)
    }

    /// Errors that are the same fault, or none, are counted together.
    fn class(&self) -> (String, Vec<&'static str>) {
        let faults: Vec<_> = fault(self.row, self.error).into_iter().collect();
        let name = match (self.error, faults.first()) {
            (SHORT, _) => "short read or write".to_owned(),
            (error, Some(fault)) => format!("errno {error}, {fault}"),
            (error, None) => format!("errno {error}"),
        };
        (name, faults)
    }

    fn allowed(&self) -> &'static [Word] {
        if self.is_forever { self.row.forever } else { self.row.once }
    }
}

/// Occurrences of each call at each kind of place, for each part.
type Counts = BTreeMap<(&'static str, &'static str, Area), u64>;

pub fn run(args: &Args) -> Result<Tally> {
    let started = Instant::now();
    let ground = Ground::new(&args.ground, "1MiB", tree::fill_source)?;
    let mut counts = Counts::new();
    for case in CASES.into_iter().filter(|case| case.buffer().is_none()) {
        count(&ground, case, &mut counts)?;
    }
    let injections = injections(args, &counts);
    let mut tally = Tally::new("trial errno --all");
    for injection in &injections {
        let (class, faults) = injection.class();
        if args.all && injection.n.is_some() {
            tally.plan(&class, &faults);
        }
        let words: Vec<_> = injection.allowed().iter().map(|word| word.name()).collect();
        tally.allow(&class, &words);
    }
    let tally = Mutex::new(tally);
    pool::run(args.jobs, &injections, |injection| {
        let found = match injection.n {
            None => Ok((Outcome::Inert, None)),
            Some(n) => trial(&ground, injection, n),
        };
        let failed = |e| (Outcome::Violated(format!("the trial could not be carried out: {e:#}")), None);
        let (outcome, word) = found.unwrap_or_else(failed);
        let replay = format!("trial errno --only {}", injection.name());
        let (class, faults) = injection.class();
        let mut tally = tally.lock().unwrap();
        tally.count(&class, &faults, &outcome, &replay);
        if let (Outcome::Survived, Some(word)) = (outcome, word) {
            tally.ended(&class, word.name());
        }
    });
    let mut tally = tally.into_inner().unwrap();
    let pairs: BTreeSet<_> = injections.iter().map(|i| (i.row.call, i.error)).collect();
    tally.figures.insert("pairs of call and error".to_owned(), pairs.len().to_string());
    tally.seconds = started.elapsed().as_secs_f64();
    Ok(tally)
}

fn injections(args: &Args, counts: &Counts) -> Vec<Injection> {
    let mut random = Random::new(args.seed);
    let mut all = Vec::new();
    for row in ROWS {
        let cases = CASES.into_iter().filter(|case| match row.part {
            Part::Receiver => matches!(case, Case::PushReceiver | Case::PullReceiver),
            Part::Whole => matches!(case, Case::PushWhole | Case::PullWhole),
            Part::Sender => matches!(case, Case::PushSender | Case::PullSender),
            Part::Endpoint => *case == Case::PushReceiver,
        });
        for case in cases {
            let occurrences = counts.get(&(case.name(), row.call, row.area)).copied().unwrap_or(0);
            for error in row.errors {
                let injection = |n, is_forever| Injection { row, case, error, n, is_forever };
                if occurrences == 0 {
                    all.push(injection(None, false));
                    continue;
                }
                let points = [1, occurrences.div_ceil(2), 1 + random.below(occurrences)];
                let points: BTreeSet<u64> = points.into_iter().collect();
                all.extend(points.into_iter().map(|n| injection(Some(n), false)));
                if !row.forever.is_empty() {
                    all.push(injection(Some(1), true));
                }
            }
        }
    }
    if let Some(only) = &args.only {
        all.retain(|injection| injection.name().starts_with(only));
        // A replay may name an occurrence that another seed chose.
        if all.is_empty() {
            all.extend(named(only));
        }
    } else if !args.all {
        all.retain(|injection| injection.n.is_some());
        while all.len() > args.trials {
            all.swap_remove(random.below(all.len() as u64) as usize);
        }
    }
    all
}

fn named(name: &str) -> Option<Injection> {
    let [case, call, area, error, n, often] = name.split('/').collect::<Vec<_>>().try_into().ok()?;
    let case = CASES.into_iter().find(|known| known.name() == case)?;
    let is_row = |row: &&Row| row.call == call && format!("{:?}", row.area).to_lowercase() == area;
    let row = ROWS.iter().filter(is_row).find(|row| row.errors.contains(&error))?;
    let error = row.errors.iter().find(|known| **known == error)?;
    Some(Injection { row, case, error, n: Some(n.parse().ok()?), is_forever: often == "forever" })
}

/// A run without faults in which every call is counted.
fn count(ground: &Ground, case: Case, counts: &mut Counts) -> Result<()> {
    let mut bed = Bed::new(ground, case.direction(), tree::fill_older)?;
    bed.is_whole = case.is_whole();
    let seen = Arc::new(Mutex::new(BTreeMap::<(&'static str, Area), u64>::new()));
    let for_tracer = seen.clone();
    let each = move |seen: &Seen| {
        *for_tracer.lock().unwrap().entry((seen.call, seen.area)).or_default() += 1;
        Answer::GoOn
    };
    let numbers = CALLS.iter().map(|call| call.number).collect();
    let tracing = Tracing { numbers, areas: bed.areas(), each: Box::new(each) };
    match copied(&mut bed, case, Some(tracing))? {
        Said::Copy(Some(Ended { code: Some(0), .. })) => {}
        other => bail!("{} without any fault: {}", case.name(), other.text()),
    }
    bed.stop()?;
    let seen = seen.lock().unwrap();
    counts.extend(seen.iter().map(|((call, area), n)| ((case.name(), *call, *area), *n)));
    Ok(())
}

/// Who told how it ended.
enum Said {
    /// The copy; nothing when it hung.
    Copy(Option<Ended>),
    /// The endpoint did not start, or did not take the client: what was printed.
    Sooner(String),
}

impl Said {
    fn text(&self) -> String {
        match self {
            Said::Copy(Some(ended)) => {
                let failed = ended.output.lines().find(|line| line.contains("\"failed\"")).unwrap_or_default();
                format!("code {:?}: {} {failed}", ended.code, ended.errors.trim())
            }
            Said::Copy(None) => "it hung".to_owned(),
            Said::Sooner(text) => text.trim().to_owned(),
        }
    }
}

/// Runs the copy with one of the programs traced.
fn copied(bed: &mut Bed<'_>, case: Case, tracing: Option<Tracing>) -> Result<Said> {
    let (for_endpoint, for_client) = if case.is_endpoint() { (tracing, None) } else { (None, tracing) };
    if bed.endpoint.is_none() && !bed.serve(for_endpoint)? {
        let ended = bed.buried()?;
        return Ok(Said::Sooner(ended.map_or("hang: the endpoint neither started nor ended".to_owned(), |e| e.errors)));
    }
    if let Err(said) = bed.enrol()? {
        return Ok(Said::Sooner(said));
    }
    Ok(Said::Copy(bed.copy(for_client)?.wait(PATIENCE)?))
}

/// What became of one injection, and the word for how it ended.
fn trial(ground: &Ground, injection: &Injection, n: u64) -> Result<(Outcome, Option<Word>)> {
    let mut bed = Bed::new(ground, injection.case.direction(), tree::fill_older)?;
    bed.is_whole = injection.case.is_whole();
    let is_armed = Arc::new(AtomicBool::new(true));
    let fired = Arc::new(AtomicU64::new(0));
    let tracing = inject(&bed, injection, n, is_armed.clone(), fired.clone());
    let said = copied(&mut bed, injection.case, Some(tracing))?;
    is_armed.store(false, Relaxed);
    if fired.load(Relaxed) == 0 {
        return Ok((Outcome::Inert, None));
    }
    let judged = judge(&bed, &said, injection.allowed());
    let held = judged.and_then(|word| clean(&mut bed).unwrap_or_else(|e| Err(format!("{e:#}"))).map(|()| word));
    Ok(match held {
        Ok(word) => (Outcome::Survived, Some(word)),
        Err(why) => (Outcome::Violated(why), None),
    })
}

fn inject(bed: &Bed<'_>, injection: &Injection, n: u64, is_armed: Arc<AtomicBool>, fired: Arc<AtomicU64>) -> Tracing {
    let (call, area, is_forever) = (injection.row.call, injection.row.area, injection.is_forever);
    let number = errno(injection.error);
    let mut counted = 0;
    let each = move |seen: &Seen| {
        if seen.moment != Moment::Before || (seen.call, seen.area) != (call, area) || !is_armed.load(Relaxed) {
            return Answer::GoOn;
        }
        counted += 1;
        if counted != n && !(is_forever && counted > n) {
            return Answer::GoOn;
        }
        match number {
            Some(number) => {
                fired.fetch_add(1, Relaxed);
                Answer::Fail(number)
            }
            None if seen.length > 1 => {
                fired.fetch_add(1, Relaxed);
                Answer::Shorten(seen.length / 2)
            }
            None => Answer::GoOn,
        }
    };
    Tracing { numbers: numbers_of(&[call]), areas: bed.areas(), each: Box::new(each) }
}

/// The outcome is an allowed one, is told properly, and nothing is half done.
fn judge(bed: &Bed<'_>, said: &Said, allowed: &[Word]) -> Result<Word, String> {
    bed.check_half_done()?;
    let (word, told) = match said {
        Said::Copy(None) => return Err(format!("hang: no end within {} s", PATIENCE.as_secs())),
        Said::Sooner(text) if text.starts_with("hang") => return Err(text.clone()),
        Said::Sooner(text) => {
            check_words(text)?;
            let is_told = text.contains("error: ") && text.contains("hint: ");
            (Word::FailJob, if is_told { Ok(()) } else { Err(format!("no error with a hint: {}", text.trim())) })
        }
        Said::Copy(Some(ended)) => {
            check_words(&ended.errors)?;
            judge_copy(bed, ended)?
        }
    };
    if !allowed.contains(&word) {
        return Err(format!("{word:?} instead of {allowed:?}: {}", said.text()));
    }
    told.map(|()| word)
}

fn judge_copy(bed: &Bed<'_>, ended: &Ended) -> Result<(Word, Result<(), String>), String> {
    let Some(code) = ended.code else { return Err(format!("it died of signal {:?}", ended.signal)) };
    let (_, _, failed) = check::done(&ended.output, code, bed.ground.objects())?;
    let events: Vec<serde_json::Value> = ended.output.lines().filter_map(|l| serde_json::from_str(l).ok()).collect();
    let is_told = |event: &serde_json::Value, fields: &[&str]| {
        fields.iter().all(|field| event[*field].as_str().is_some_and(|text| !text.is_empty()))
    };
    let errors: Vec<_> = events.iter().filter(|event| event["event"] == "error").collect();
    let told_error = match errors.iter().any(|event| is_told(event, &["message", "hint"])) {
        true => Ok(()),
        false => Err(format!("no error event with message and hint: {}", ended.errors.trim())),
    };
    match code {
        0 => {
            // What of owners and attributes could not be kept is a warning, and everything else is there.
            bed.check_content()?;
            Ok((Word::Keep, Ok(())))
        }
        23 | 24 | 40 if failed > 0 => {
            let named = events.iter().filter(|event| event["event"] == "file" && event["outcome"] == "failed");
            let named: Vec<_> = named.collect();
            if let Some(event) = named.iter().find(|event| !is_told(event, &["message", "reason"])) {
                return Err(format!("a failure without a reason: {event}"));
            }
            let named = named.iter().filter_map(|event| event["path"].as_str().map(PathBuf::from)).collect();
            others_are_there(bed, &named)?;
            Ok((Word::FailFile, told_error))
        }
        _ => Ok((Word::FailJob, told_error)),
    }
}

/// What no failure names is delivered (I6): of a directory that failed, nothing is expected.
fn others_are_there(bed: &Bed<'_>, named: &BTreeSet<PathBuf>) -> Result<(), String> {
    let is_excused = |path: &Path| path.ancestors().any(|at| named.contains(at));
    for (path, wanted) in bed.ground.new.iter().filter(|(_, object)| object.kind != Kind::Directory) {
        let there = check::object(&bed.destination().join(path)).map_err(|e| format!("the checker failed: {e}"))?;
        if there.as_ref() != Some(wanted) && !is_excused(path) {
            return Err(format!("I6: {} is not delivered, and no failure names it: {named:?}", path.display()));
        }
    }
    Ok(())
}

/// The same command without the fault, with the same endpoint where it lives, completes everything.
fn clean(bed: &mut Bed<'_>) -> Result<Result<(), String>> {
    match copied(bed, Case::PushReceiver, None)? {
        Said::Copy(Some(Ended { code: Some(0), output, .. })) => {
            if let Err(why) = check::done(&output, 0, bed.ground.objects()) {
                return Ok(Err(why));
            }
        }
        other => return Ok(Err(format!("the same command without the fault: {}", other.text()))),
    }
    let Some(endpoint) = bed.stop()? else { return Ok(Err("hang: the endpoint did not end".to_owned())) };
    Ok(check_words(&endpoint.errors).and_then(|()| bed.check_complete()).and_then(|()| bed.check_swept()))
}
