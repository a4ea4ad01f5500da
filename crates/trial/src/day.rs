//! `trial day`: a day of a facility in minutes. Five users hand jobs of all kinds, classes and sizes in at a hub; its two endpoints, the hub
//! itself and the path between them fail again and again, and in the middle every process becomes one of another program.
//!
//! Held against it: every job ends well; what was handed in twice under one key is one job; at every destination is what was at the source
//! and nothing else; users who ask for the same get the same; memory and descriptors go back to what they were.

mod town;
mod work;

use crate::outside::{ground, tree};
use crate::random::Random;
use crate::record::{Outcome, Tally};
use anyhow::{Context, Result, ensure};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use town::{FAULTS, Fault, ROLES, Town};
use work::{USERS, Work};

const LOOK: Duration = Duration::from_millis(500);
/// Of the time: until when jobs are handed in, when the program changes, and until when faults come.
const HANDED_IN_BY: f64 = 0.6;
const UPGRADED_AT: f64 = 0.5;
const FAULTS_UNTIL: f64 = 0.75;
/// How long the rest may take, in times of the whole; jobs wait longer and longer between attempts.
const PATIENCE: f64 = 3.0;
const FAULTS_MIN: u32 = 6;
/// Beyond which what a process holds in the end is a leak.
const DESCRIPTORS_MORE_MAX: u64 = 24;
const MEMORY_KIB_MAX: u64 = 256 << 10;
/// How far the share of a user may be from that of the others, besides the part of one job.
const SHARE_OFF_MAX: f64 = 0.05;

#[derive(clap::Args, Clone, Debug)]
pub struct Args {
    /// How long the day is
    #[arg(long, value_name = "N", default_value_t = 3)]
    minutes: u64,
    /// How many jobs there are
    #[arg(long, value_name = "M", default_value_t = 30)]
    jobs: usize,
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// The program [default: thalweg beside this program]
    #[arg(long)]
    program: Option<PathBuf>,
}

/// What a day came to.
#[derive(Default)]
struct Diary {
    faults: Vec<(f64, Fault)>,
    /// What each user had of the bytes when half of them were delivered.
    shares: Option<BTreeMap<String, u64>>,
    jobs: Vec<Value>,
    seconds: f64,
}

pub fn run(args: &Args) -> Result<Tally> {
    ensure!(rustix::process::geteuid().is_root(), "network namespaces need root");
    let started = Instant::now();
    let program = ground::program(args.program.as_deref())?;
    let dir = ground::directory()?;
    let work = Work::make(dir.path(), args.jobs, args.seed)?;
    let day = Duration::from_secs(args.minutes * 60);
    // Moving takes less than half of the time where nothing fails.
    let bits_per_second = work.bytes() as f64 * 8.0 / (day.as_secs_f64() * 0.4);
    let mut town = Town::build(&program, dir.path(), bits_per_second as u64, args.seed)?;
    let diary = live(args, &mut town, &work, day)?;
    let mut tally = Tally::new("trial day");
    let replay = format!("trial day --minutes {} --jobs {} --seed {}", args.minutes, args.jobs, args.seed);
    let outcome = judge(&mut town, dir.path(), &work, &diary, &mut tally)?;
    for fault in FAULTS {
        let (class, faults) = fault.class();
        for _ in diary.faults.iter().filter(|(_, other)| *other == fault) {
            tally.count(class, faults, &outcome, &replay);
        }
    }
    tally.seconds = started.elapsed().as_secs_f64();
    Ok(tally)
}

/// From the first job that is handed in to the last that has ended.
fn live(args: &Args, town: &mut Town, work: &Work, day: Duration) -> Result<Diary> {
    let (began, mut random, mut diary) = (Instant::now(), Random::new(args.seed), Diary::default());
    let at = |share: f64| day.mul_f64(share);
    let mut due = work.due(at(HANDED_IN_BY), &mut random);
    let every = at(FAULTS_UNTIL) / FAULTS_MIN.max((args.minutes * 2) as u32);
    let (mut next_fault, mut is_upgraded) = (every, false);
    loop {
        let now = began.elapsed();
        while due.last().is_some_and(|(when, _)| *when <= now) {
            let (_, number) = due.pop().expect("there is one");
            // Somebody is not sure whether it went through.
            let ids = [town.submit(work, number)?, town.submit(work, number)?];
            ensure!(ids[0] == ids[1], "job {number} was handed in twice under one key: {ids:?}");
        }
        if now >= next_fault && now < at(FAULTS_UNTIL) {
            let fault = FAULTS[random.below(FAULTS.len() as u64) as usize];
            town.suffer(fault)?;
            diary.faults.push((now.as_secs_f64(), fault));
            next_fault += every;
        }
        if now >= at(UPGRADED_AT) && !is_upgraded {
            town.upgrade()?;
            is_upgraded = true;
        }
        town.sample();
        diary.jobs = town.jobs().unwrap_or(diary.jobs);
        if diary.shares.is_none() {
            diary.shares = shares(&diary.jobs, work.bytes());
        }
        let is_over = due.is_empty() && is_upgraded && now >= at(FAULTS_UNTIL);
        if is_over && diary.jobs.iter().all(|job| job["ended"].is_string()) || now > day.mul_f64(PATIENCE) {
            diary.seconds = now.as_secs_f64();
            return Ok(diary);
        }
        std::thread::park_timeout(LOOK);
    }
}

/// Bytes of each user, once half of all are there.
fn shares(jobs: &[Value], all: u64) -> Option<BTreeMap<String, u64>> {
    let mut of: BTreeMap<String, u64> = USERS.iter().map(|user| (format!("token:{user}"), 0)).collect();
    for job in jobs {
        *of.entry(job["owner"].as_str()?.to_owned()).or_default() += job["bytes"]["ok"].as_u64().unwrap_or(0);
    }
    (of.values().sum::<u64>() * 2 >= all).then_some(of)
}

fn judge(town: &mut Town, dir: &Path, work: &Work, diary: &Diary, tally: &mut Tally) -> Result<Outcome> {
    let mut broken = Vec::new();
    let text = |job: &Value, key: &str| job[key].as_str().unwrap_or_default().to_owned();
    for job in diary.jobs.iter().filter(|job| job["code"] != 0) {
        let why = ["status", "reason", "text"].map(|key| text(job, key)).join(" ");
        broken.push(format!("a job did not end well: {} {why}", job["job"]["destination"]));
    }
    if diary.jobs.len() != work.len() {
        broken.push(format!("{} jobs were handed in, and the hub has {}", work.len(), diary.jobs.len()));
    }
    for number in 0..work.len() {
        let seen = tree::compare(&dir.join(work.destination(number)), work.files(number), &tree::Files::new())?;
        if !seen.is_complete() || !seen.foreign.is_empty() {
            broken.push(format!("job {number}: {seen:?}"));
        }
    }
    let half = work.bytes() as f64 / 2.0;
    let allowed = SHARE_OFF_MAX + work.largest() as f64 / half;
    if let Some(shares) = &diary.shares {
        let all = shares.values().sum::<u64>() as f64;
        let of: Vec<f64> = shares.values().map(|bytes| *bytes as f64 / all).collect();
        let fair = 1.0 / USERS.len() as f64;
        let off = of.iter().map(|share| (share - fair).abs()).fold(0.0, f64::max);
        let shown: Vec<_> = of.iter().map(|share| format!("{share:.3}")).collect();
        tally.figures.insert(
            "shares of users at half of the bytes".into(),
            format!("{} (off by up to {off:.3}, allowed {allowed:.3})", shown.join(" ")),
        );
        if off > allowed {
            broken.push(format!("a user's share is off by {off:.3}"));
        }
    }
    for role in ROLES {
        let (first, last) = town.held(role).context("a process has ended")?;
        let line = format!(
            "descriptors {} then {}, memory {} then {} KiB",
            first.descriptors, last.descriptors, first.memory_kib, last.memory_kib
        );
        if last.descriptors > first.descriptors + DESCRIPTORS_MORE_MAX || last.memory_kib > MEMORY_KIB_MAX {
            broken.push(format!("{} holds more than it did: {line}", role.name()));
        }
        tally.figures.insert(format!("{}, from its start to the end", role.name()), line);
    }
    broken.extend(town.said_wrong());
    let attempts: u64 = diary.jobs.iter().filter_map(|job| job["attempt"].as_u64()).sum();
    let told = format!(
        "{} jobs of {} bytes in {:.0} s, {attempts} attempts, {} faults and an upgrade",
        work.len(),
        work.bytes(),
        diary.seconds,
        diary.faults.len()
    );
    tally.figures.insert("the day".into(), told);
    Ok(if broken.is_empty() { Outcome::Survived } else { Outcome::Violated(broken.join("; ")) })
}
