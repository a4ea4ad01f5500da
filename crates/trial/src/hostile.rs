//! `trial hostile`: strangers and enrolled clients that break the rules of the real endpoint, and an honest copy beside them.
//!
//! A trial is one breach by one peer under one seed (`breaches`). It survived when the endpoint ended what it had to end, in
//! time, and still answers. After all of them: the program lives, panicked nowhere, holds no more descriptors than before,
//! published nothing of theirs, and an honest copy through it is complete (I1, I5, I7, I12).

mod breaches;
pub(crate) mod peer;

use crate::job::{ATTACKED, Bed, Direction, Ground, GroundArgs, PATIENCE, check_words};
use crate::process::Ended;
use crate::random::Random;
use crate::record::{Outcome, Tally};
use crate::{pool, tree};
use anyhow::{Result, bail};
use breaches::BREACHES;
use peer::Target;
use std::fs;
use std::path::Path;
use std::sync::Mutex;
use std::time::Instant;

#[derive(clap::Args, Clone, Debug)]
pub struct Args {
    #[command(flatten)]
    ground: GroundArgs,
    /// Trials of each kind of breach
    #[arg(long, value_name = "N", default_value_t = 6)]
    trials: u64,
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Peers at the same time
    #[arg(long, value_name = "N", default_value_t = 4)]
    jobs: usize,
    /// Only the breach of this name
    #[arg(long, value_name = "NAME")]
    only: Option<String>,
}

/// What may be answered as well: it is wrong only for the object or the stream that it is about.
const ANSWERED: &[&str] = &[
    "a length beyond any file",
    "a chunk of other content",
    "a chunk that breaks off",
    "frames of noise on a data stream",
    "messages of noise",
    "digests of any length",
    "a proof that is none",
];
/// What the endpoint may keep after all of them beyond what it held before: what its allocator does not give back.
const KEPT_KIB_MAX: u64 = 48 << 10;
/// What it may hold at most while they are there, beyond what it held before: blocks of all lanes (`--memory`), and buffers of
/// some connections.
const PEAK_KIB_MAX: u64 = 192 << 10;

/// What the endpoint holds, as the kernel counts it.
struct Holdings {
    descriptors: usize,
    resident_kib: u64,
    peak_kib: u64,
}

pub fn run(args: &Args) -> Result<Tally> {
    let started = Instant::now();
    let ground = Ground::new(&args.ground, "1MiB", tree::fill_source)?;
    let mut bed = Bed::new(&ground, Direction::Push, tree::fill_older)?;
    if !bed.serve(None)? {
        bail!("the endpoint did not start: {}", bed.buried()?.map_or(String::new(), |ended| ended.errors));
    }
    let target = Target::of(&bed)?;
    let breaches: Vec<_> =
        BREACHES.iter().filter(|breach| args.only.as_ref().is_none_or(|only| only == breach.name)).collect();
    if breaches.is_empty() {
        let names: Vec<_> = BREACHES.iter().map(|breach| breach.name).collect();
        bail!("no breach has this name; there are: {}", names.join(", "));
    }
    let before = holdings(&bed)?;
    let tally = Mutex::new(Tally::new("trial hostile --trials 1000"));
    let seeds: Vec<u64> = (args.seed..args.seed + args.trials).collect();
    let all: Vec<_> = seeds.iter().flat_map(|seed| breaches.iter().map(move |breach| (*breach, *seed))).collect();
    pool::run(args.jobs, &all, |(breach, seed)| {
        let outcome = match (breach.act)(&target, &mut Random::new(*seed)) {
            Ok(()) => Outcome::Survived,
            Err(why) => Outcome::Violated(why),
        };
        let replay = format!("trial hostile --trials 1 --seed {seed} --only '{}'", breach.name);
        let (class, mut tally) = (format!("peer: {}", breach.name), tally.lock().unwrap());
        tally.count(&class, breach.faults, &outcome, &replay);
        tally.allow(&class, if ANSWERED.contains(&breach.name) { &["REFUSE", "answered"] } else { &["REFUSE"] });
    });
    let mut tally = tally.into_inner().unwrap();
    let held = settled(&bed, &before);
    let outcome = match held.and_then(|after| {
        let figure = format!("{} {} {}", before.resident_kib, after.resident_kib, after.peak_kib);
        tally.figures.insert("resident KiB before, after and at most".to_owned(), figure);
        judge_memory(&before, &after)?;
        aftermath(&mut bed)
    }) {
        Ok(()) => Outcome::Survived,
        Err(why) => Outcome::Violated(why),
    };
    let replay = format!("trial hostile --trials {} --seed {}", args.trials, args.seed);
    tally.count("peer: an honest one after all of them", &[], &outcome, &replay);
    tally.plan_all();
    tally.seconds = started.elapsed().as_secs_f64();
    Ok(tally)
}

/// Memory that attackers could make an endpoint keep, or hold beside the work it does, is a way to end it.
fn judge_memory(before: &Holdings, after: &Holdings) -> Result<(), String> {
    let (kept, peak) = (before.resident_kib + KEPT_KIB_MAX, before.resident_kib + PEAK_KIB_MAX);
    if after.resident_kib > kept {
        return Err(format!("I12: {} KiB are resident after all of them, at most {kept} may be", after.resident_kib));
    }
    if after.peak_kib > peak {
        return Err(format!("I12: {} KiB were resident, at most {peak} may be", after.peak_kib));
    }
    Ok(())
}

/// Waits until what the peers held is free again. Returns what is still held.
fn settled(bed: &Bed<'_>, before: &Holdings) -> Result<Holdings, String> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let now = holdings(bed).map_err(|e| format!("the endpoint is gone: {e:#}"))?;
        if now.descriptors <= before.descriptors {
            return Ok(now);
        }
        if Instant::now() > deadline {
            return Err(format!("I12: {} descriptors, {} before", now.descriptors, before.descriptors));
        }
        std::thread::park_timeout(peer::LOOK_INTERVAL);
    }
}

fn holdings(bed: &Bed<'_>) -> Result<Holdings> {
    let Some(endpoint) = &bed.endpoint else { bail!("it is not running") };
    if endpoint.has_ended() {
        bail!("it ended");
    }
    let dir = Path::new("/proc").join(endpoint.id.to_string());
    let status = fs::read_to_string(dir.join("status"))?;
    let kib = |name: &str| -> Result<u64> {
        let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default();
        Ok(line.trim().trim_end_matches(" kB").parse()?)
    };
    let descriptors = fs::read_dir(dir.join("fd"))?.count();
    Ok(Holdings { descriptors, resident_kib: kib("VmRSS:")?, peak_kib: kib("VmHWM:")? })
}

/// An honest copy, and what must hold after it.
fn aftermath(bed: &mut Bed<'_>) -> Result<(), String> {
    let failed = |e: anyhow::Error| format!("{e:#}");
    bed.enrol().map_err(failed)?.map_err(|why| format!("an honest client could not enrol: {why}"))?;
    let client = bed.copy(None).and_then(|copy| copy.wait(PATIENCE)).map_err(failed)?;
    match client {
        None => return Err("hang: an honest copy did not end".to_owned()),
        Some(Ended { code: Some(0), .. }) => {}
        Some(Ended { errors, .. }) => return Err(format!("an honest copy failed: {}", errors.trim())),
    }
    let Some(endpoint) = bed.stop().map_err(failed)? else { return Err("hang: the endpoint did not end".to_owned()) };
    check_words(&endpoint.errors)?;
    bed.check_complete()?;
    bed.check_swept()?;
    let theirs = crate::check::tree(&bed.dir.join("root").join(ATTACKED)).unwrap_or_default();
    match theirs.iter().find(|(_, object)| object.kind != crate::check::Kind::Directory) {
        Some((path, _)) => Err(format!("I1: {} of a hostile peer was published", path.display())),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_that_is_kept_or_was_held_beyond_the_bounds_is_a_violation() {
        let of = |resident_kib, peak_kib| Holdings { descriptors: 9, resident_kib, peak_kib };
        let before = of(13_000, 14_000);
        assert_eq!(judge_memory(&before, &of(32_000, 90_000)), Ok(()));
        assert!(judge_memory(&before, &of(13_001 + KEPT_KIB_MAX, 90_000)).is_err());
        assert!(judge_memory(&before, &of(32_000, 13_001 + PEAK_KIB_MAX)).is_err());
    }
}
