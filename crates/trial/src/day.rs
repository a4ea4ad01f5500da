//! `trial day`: a day of a facility in minutes. Five users hand jobs of all kinds, classes and sizes in at a hub; its two endpoints, the hub
//! itself, the path between them and the storage of one fail again and again. Soon after its beginning every process becomes one of the program
//! under trial, and what follows is held against that.
//!
//! Held against it: every job ends well; what was handed in twice under one key is one job; at every destination is what was at the source
//! and nothing else, and a source that was moved is empty; users who ask for the same get the same, whoever came first; jobs run while the
//! program changes, and no process exits unasked; while nothing runs, each process has the memory and descriptors that it had once it
//! had settled.

mod held;
mod narrow;
mod programs;
mod town;
mod work;

use crate::outside::ground;
use crate::random::Random;
use crate::record::{Outcome, Tally};
use anyhow::{Result, ensure};
use model::Exit;
use programs::Programs;
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use town::{FAULTS, Fault, REST, ROLES, Role, Town};
use work::{CHECK, USERS, Work, bytes_of, compared_bytes};

const LOOK: Duration = Duration::from_millis(500);
/// Of the time: until when jobs are handed in, from when on the program changes as soon as a job runs, and until when faults come; the
/// processes that live from then on work for a while before they are held against what they held.
const HANDED_IN_BY: f64 = 0.6;
const UPGRADED_AT: f64 = 0.05;
const FAULTS_UNTIL: f64 = 0.45;
const UPGRADED: &str = "day, every process replaced by one of another program";
/// Faults that come once, beside those that are drawn.
const ONCE: [(f64, Fault); 2] = [(0.15, Fault::Full), (0.3, Fault::Away)];
/// With what a move ends that finds nothing left of its source.
const GONE: [Exit; 2] = [Exit::SourceDirectoryNotFound, Exit::SourceFileNotFound];
/// How long the rest may take, in times of the whole; jobs wait longer and longer between attempts.
const PATIENCE: f64 = 3.0;
const FAULTS_MIN: u32 = 6;
const FAULT_EVERY: Duration = Duration::from_secs(22);
/// By then a process has grown to what it needs; in a short day a tenth of it.
const SETTLED: Duration = Duration::from_secs(60);
/// How far the share of a user may be from a fifth, of the whole, beside one job, which is the queue's smallest turn.
const SHARE_OFF_MAX: f64 = 0.05;
/// What the storage that is made full holds otherwise, beside all that moves.
const ROOM_BYTES: u64 = 256 << 20;

#[derive(clap::Args, Clone, Debug)]
pub struct Args {
    /// How long the day is
    #[arg(long, value_name = "N", default_value_t = 10)]
    minutes: u64,
    /// How many jobs there are
    #[arg(long, value_name = "M", default_value_t = 100)]
    jobs: usize,
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// The program [default: thalweg beside this program]; THALWEG_PREVIOUS_BIN names one that the day begins with
    #[arg(long)]
    program: Option<PathBuf>,
}

/// What a day came to.
#[derive(Default)]
struct Diary {
    faults: Vec<(f64, Fault)>,
    /// What each user had had when enough had arrived in all, after every process had become another.
    shares: Option<BTreeMap<String, u64>>,
    jobs: Vec<Value>,
    /// Since when no job has run.
    idle_since: Option<Instant>,
    /// How many jobs ran when the program began to change.
    ran_on: Option<usize>,
    /// A job has waited for room.
    has_waited_for_space: bool,
    seconds: f64,
}

pub fn run(args: &Args) -> Result<Tally> {
    ensure!(rustix::process::geteuid().is_root(), "network namespaces need root");
    let started = Instant::now();
    let program = ground::program(args.program.as_deref())?;
    let dir = ground::directory()?;
    let programs = Programs::find(&program, Programs::previous(), dir.path())?;
    let day = Duration::from_secs(args.minutes * 60);
    let bytes = bytes_of(args.jobs);
    // Moving takes less than half of the time where nothing fails.
    let bits_per_second = bytes as f64 * 8.0 / (day.as_secs_f64() * 0.4);
    let mut town = Town::build(programs, dir.path(), bits_per_second as u64, 2 * bytes + ROOM_BYTES, args.seed)?;
    let work = Work::make(&|site| town.root(site), args.jobs, args.seed)?;
    let mut diary = Diary::default();
    let ended = live(args, &mut town, &work, day, &mut diary);
    let mut tally = Tally::new("trial day");
    tally.figures.extend(town.programs().told().map(|(name, text)| (name.to_owned(), text)));
    let replay = format!("trial day --minutes {} --jobs {} --seed {}", args.minutes, args.jobs, args.seed);
    let settled = SETTLED.min(day / 10);
    let rested = ended.and_then(|()| town.rest(settled));
    let mut outcome = judge(&town, &work, &diary, &mut tally, settled)?;
    if let Err(error) = rested {
        outcome = Outcome::Violated(match outcome {
            Outcome::Violated(more) => format!("{error:#}; {more}"),
            _ => format!("{error:#}"),
        });
    }
    let inert = Outcome::Inert;
    for (class, faults) in ONCE.map(|(_, fault)| fault.class()) {
        tally.plan(class, faults);
    }
    tally.plan(UPGRADED, &[]);
    // The same program at another place is none that replaced it.
    let upgraded = if town.programs().is_upgrade() { &outcome } else { &inert };
    tally.count(UPGRADED, &[], upgraded, &replay);
    for fault in FAULTS.into_iter().chain(ONCE.map(|(_, fault)| fault)) {
        let (class, faults) = fault.class();
        let has_fired = fault != Fault::Full || diary.has_waited_for_space;
        let outcome = if has_fired { &outcome } else { &inert };
        for _ in diary.faults.iter().filter(|(_, other)| *other == fault) {
            tally.count(class, faults, outcome, &replay);
        }
    }
    tally.seconds = started.elapsed().as_secs_f64();
    Ok(tally)
}

/// From the first job that is handed in to the last that has ended.
fn live(args: &Args, town: &mut Town, work: &Work, day: Duration, diary: &mut Diary) -> Result<()> {
    let (began, mut random) = (Instant::now(), Random::new(args.seed));
    let at = |share: f64| day.mul_f64(share);
    let mut due = work.due(at(HANDED_IN_BY), &mut random);
    let every = FAULT_EVERY.min(at(FAULTS_UNTIL) / FAULTS_MIN);
    let mut next_fault = every;
    let mut once = ONCE.into_iter().peekable();
    loop {
        // Of the same moment, and before anything else happens.
        diary.look(town, args.jobs);
        town.sample(diary.idle_since.is_some_and(|since| since.elapsed() >= REST))?;
        let now = began.elapsed();
        while due.last().is_some_and(|(when, _)| *when <= now) {
            let (_, number) = due.pop().expect("there is one");
            // Somebody is not sure whether it went through.
            let ids = [town.submit(work, number)?, town.submit(work, number)?];
            ensure!(ids[0] == ids[1], "job {number} was handed in twice under one key: {ids:?}");
            // It may have ended before the next look.
            diary.idle_since = None;
        }
        // Nothing else happens to a town of which an endpoint is away.
        let is_away = town.stays_away()?;
        let fault = if is_away {
            None
        } else if let Some((_, fault)) = once.next_if(|(share, _)| now >= at(*share)) {
            Some(fault)
        } else if diary.ran_on.is_some() && now >= next_fault && now < at(FAULTS_UNTIL) {
            Some(FAULTS[random.below(FAULTS.len() as u64) as usize])
        } else {
            None
        };
        if let Some(fault) = fault {
            town.suffer(fault)?;
            diary.faults.push((now.as_secs_f64(), fault));
        }
        if is_away || fault.is_some() {
            next_fault = began.elapsed() + every;
        }
        let is_time = now >= at(UPGRADED_AT) && (running(&diary.jobs) > 0 || now >= at(FAULTS_UNTIL));
        // A fault takes its time, in which what ran may end.
        if is_time && fault.is_none() && diary.ran_on.is_none() && !town.stays_away()? {
            diary.ran_on = Some(running(&diary.jobs));
            town.upgrade()?;
            next_fault = began.elapsed() + every;
        }
        let is_over = due.is_empty() && diary.ran_on.is_some() && now >= at(FAULTS_UNTIL) && !town.stays_away()?;
        let has_all = diary.jobs.len() >= work.len() && diary.jobs.iter().all(|job| job["ended"].is_string());
        if is_over && has_all || now > day.mul_f64(PATIENCE) {
            diary.seconds = now.as_secs_f64();
            return Ok(());
        }
        std::thread::park_timeout(LOOK);
    }
}

impl Diary {
    /// Notes how all jobs stand.
    fn look(&mut self, town: &Town, jobs: usize) {
        let found = town.jobs();
        let is_idle = found.as_ref().is_ok_and(|jobs| running(jobs) == 0);
        self.idle_since = is_idle.then(|| self.idle_since.unwrap_or_else(Instant::now));
        if let Ok(found) = found {
            self.jobs = found;
            self.count(compared_bytes(jobs));
        }
        self.has_waited_for_space |= self.jobs.iter().any(|job| job["reason"] == "space");
    }

    /// What each user has had, once so many bytes have arrived in all: the turns of a hub go by the last hours, and it remembers them.
    fn count(&mut self, enough: u64) {
        let is_wanted = self.ran_on.is_some() && self.shares.is_none();
        let Some(had) = arrived(&self.jobs).filter(|_| is_wanted) else { return };
        if had.values().sum::<u64>() >= enough {
            self.shares = Some(had);
        }
    }
}

fn running(jobs: &[Value]) -> usize {
    jobs.iter().filter(|job| job["status"] == "running" || job["status"] == "stopping").count()
}

/// Bytes of each user that have arrived.
fn arrived(jobs: &[Value]) -> Option<BTreeMap<String, u64>> {
    let mut of: BTreeMap<String, u64> = USERS.iter().map(|user| (format!("token:{user}"), 0)).collect();
    // What is compared moves nothing. What an attempt brought that failed is there, and the next one does not count it as its own.
    for job in jobs.iter().filter(|job| job["job"]["kind"] != CHECK) {
        let had = job["bytes_reached"].as_u64().max(job["bytes"]["ok"].as_u64()).unwrap_or(0);
        *of.entry(job["owner"].as_str()?.to_owned()).or_default() += had;
    }
    Some(of)
}

fn judge(town: &Town, work: &Work, diary: &Diary, tally: &mut Tally, settled: Duration) -> Result<Outcome> {
    let wrong: Vec<Option<String>> = (0..work.len()).map(|number| work.wrong(number)).collect::<Result<_>>()?;
    let mut broken = failed(diary, &wrong, tally);
    broken.extend(wrong.into_iter().flatten());
    if diary.jobs.len() != work.len() {
        broken.push(format!("{} jobs were handed in, and the hub has {}", work.len(), diary.jobs.len()));
    }
    broken.extend(unfair(diary, work, tally));
    for role in ROLES {
        let (line, wrong) = town.lives(role).judge(settled);
        broken.extend(wrong.map(|wrong| format!("{} {wrong}", role.name())));
        tally.figures.insert(format!("what the process of {} held", role.name()), line);
    }
    match diary.ran_on {
        Some(0) => broken.push("no job ran when the program changed: nothing was to go on".into()),
        Some(jobs) => _ = tally.figures.insert("jobs that ran when the program changed".into(), jobs.to_string()),
        None => broken.push("the program was never changed".into()),
    }
    broken.extend(town.said_wrong());
    let attempts: u64 = diary.jobs.iter().filter_map(|job| job["attempt"].as_u64()).sum();
    let told = format!(
        "{} jobs of {} bytes in {:.0} s, {attempts} attempts, {} faults",
        work.len(),
        bytes_of(work.len()),
        diary.seconds,
        diary.faults.len()
    );
    tally.figures.insert("the day".into(), told);
    Ok(if broken.is_empty() { Outcome::Survived } else { Outcome::Violated(broken.join("; ")) })
}

/// Jobs that did not end well. Of a move that is known whose endpoint died before it had written down that nothing is left to be moved
/// (docs/decisions/037): of those, as many as endpoints were killed are told.
fn failed(diary: &Diary, wrong: &[Option<String>], tally: &mut Tally) -> Vec<String> {
    let text = |job: &Value, key: &str| job[key].as_str().unwrap_or_default().to_owned();
    let is_kill = |fault: &Fault| matches!(fault, Fault::Kill(Role::SiteA | Role::SiteB) | Fault::Away);
    let kills = diary.faults.iter().filter(|(_, fault)| is_kill(fault)).count();
    let (mut broken, mut moved) = (Vec::new(), 0);
    for job in diary.jobs.iter().filter(|job| job["code"] != 0) {
        let number = job["job"]["labels"]["number"].as_str().and_then(|number| number.parse::<usize>().ok());
        let is_done = number.and_then(|number| wrong.get(number)).is_some_and(Option::is_none);
        let is_gone = GONE.into_iter().any(|exit| job["code"] == exit as i32);
        if moved < kills && is_done && is_gone && job["job"]["kind"] == work::MOVE && job["ended"].is_string() {
            moved += 1;
            continue;
        }
        let why = ["status", "reason", "text"].map(|key| text(job, key)).join(" ");
        broken.push(format!("a job did not end well: {} {} {why}", job["job"]["destination"], job["code"]));
    }
    tally.figures.insert("moves that ended as failed when all was moved".into(), moved.to_string());
    broken
}

/// What is wrong with the shares of the users.
fn unfair(diary: &Diary, work: &Work, tally: &mut Tally) -> Option<String> {
    let Some(shares) = &diary.shares else {
        return Some("what was handed in at first never arrived: what each user had of it is not known".into());
    };
    let all = shares.values().sum::<u64>() as f64;
    let allowed = SHARE_OFF_MAX + work.largest() as f64 / all;
    let of: Vec<f64> = shares.values().map(|bytes| *bytes as f64 / all).collect();
    let fair = 1.0 / USERS.len() as f64;
    let off = of.iter().map(|share| (share - fair).abs()).fold(0.0, f64::max);
    let shown: Vec<_> = of.iter().map(|share| format!("{share:.3}")).collect();
    let line = format!("{} (off by up to {off:.3} of the whole, allowed {allowed:.3})", shown.join(" "));
    tally.figures.insert("shares of users while all of them had more to come".into(), line);
    if allowed >= fair {
        return Some(format!("users had {all} bytes: too few to compare; take more --jobs"));
    }
    (off > allowed).then(|| format!("a user's share is off by {off:.3}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_has_arrived_is_of_all_attempts_and_a_check_moves_nothing() {
        let job = |kind: &str, reached: u64, ok: u64| {
            let bytes = json!({"ok": ok});
            json!({"owner": "token:anna", "job": {"kind": kind}, "bytes_reached": reached, "bytes": bytes})
        };
        let of_anna = |jobs: &[Value]| arrived(jobs).unwrap()["token:anna"];
        assert_eq!(of_anna(&[job("copy", 0, 49), job(CHECK, 100, 100)]), 49);
        assert_eq!(of_anna(&[job("copy", 50, 1)]), 50, "the attempt before brought the rest");
    }

    #[test]
    fn shares_are_counted_once_enough_has_arrived_in_all_and_the_program_has_changed() {
        let mut diary = Diary::default();
        let mut of_anna = |ran_on: Option<usize>, bytes: u64| {
            diary.jobs = vec![json!({"owner": "token:anna", "job": {"kind": "copy"}, "bytes_reached": bytes})];
            diary.ran_on = ran_on;
            diary.count(50);
            diary.shares.as_ref().map(|shares| shares["token:anna"])
        };
        assert_eq!([of_anna(None, 60), of_anna(Some(1), 30), of_anna(Some(1), 49)], [None; 3]);
        assert_eq!([of_anna(Some(1), 51), of_anna(Some(1), 90)], [Some(51); 2]);
    }

    #[test]
    fn what_comes_once_comes_to_the_program_under_trial_and_in_time() {
        let due: Vec<f64> = ONCE.into_iter().map(|(at, _)| at).collect();
        assert!(due.iter().all(|at| (2.0 * UPGRADED_AT..HANDED_IN_BY).contains(at)), "{due:?}");
    }

    #[test]
    fn a_failed_move_is_known_only_where_everything_was_moved_and_an_endpoint_was_killed() {
        let job = |number: usize, kind: &str, code: i32| {
            let labels = json!({"number": number.to_string()});
            json!({"code": code, "ended": "then", "job": {"kind": kind, "labels": labels}})
        };
        let [directory, file] = GONE.map(|exit| exit as i32);
        let broken = |moves: [i32; 3], faults: &[Fault]| {
            let moves = moves.into_iter().enumerate().map(|(number, code)| job(number, work::MOVE, code));
            let jobs = moves.chain([job(3, "copy", file), job(4, "copy", 0)]).collect();
            let faults = faults.iter().map(|fault| (1.0, *fault)).collect();
            let wrong = [None, None, Some("half".to_owned()), None, None];
            failed(&Diary { jobs, faults, ..Diary::default() }, &wrong, &mut Tally::new("trial day")).len()
        };
        let kills = [Fault::Kill(Role::SiteA), Fault::Away];
        assert_eq!(broken([file, directory, file], &kills), 2, "the copy, and the move of a half");
        assert_eq!(broken([file, directory, 0], &kills[..1]), 2, "the copy, and one more than was killed");
        assert_eq!(broken([Exit::Partial as i32, 0, 0], &kills), 2, "that says something else");
        assert_eq!(broken([file, 0, 0], &[Fault::Kill(Role::Hub), Fault::Cut]), 2, "no endpoint was killed");
    }

    #[test]
    fn a_day_without_known_shares_is_no_success() {
        let dir = tempfile::tempdir().unwrap();
        let work = Work::make(&|site| dir.path().join(site), 5, 1).unwrap();
        let mut tally = Tally::new("trial day");
        assert!(unfair(&Diary::default(), &work, &mut tally).unwrap().contains("never arrived"));
        let mut judged = |anna: u64| {
            let bytes = |user: &str| if user == "anna" { anna << 20 } else { 100 << 20 };
            let shares = USERS.iter().map(|user| (format!("token:{user}"), bytes(user))).collect();
            unfair(&Diary { shares: Some(shares), ..Diary::default() }, &work, &mut tally)
        };
        assert_eq!((judged(100), judged(900)), (None, Some("a user's share is off by 0.492".into())));
        let few = USERS.iter().map(|user| (format!("token:{user}"), 1)).collect();
        let wrong = unfair(&Diary { shares: Some(few), ..Diary::default() }, &work, &mut tally);
        assert!(wrong.unwrap().contains("too few to compare"));
    }
}
