//! `trial kill --large`: one copy of 2 GiB and 20,000 files, killed ten times on both sides at random moments.
//!
//! A moment is a number of bytes that have passed the relay, so that a slow machine is hit at the same places. At the end
//! an independent program (`diff -r`) compares the trees as well.

use crate::check;
use crate::job::{Bed, Direction, Ground, GroundArgs, PATIENCE, check_words};
use crate::process::Process;
use crate::random::Random;
use crate::record::{Outcome, Tally};
use crate::tree;
use anyhow::{Context, Result};
use rustix::process::Signal;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const KILLS: u64 = 10;
/// Two gigabytes take their time on a slow disk.
const COPY_PATIENCE: Duration = Duration::from_secs(600);
const LOOK_INTERVAL: Duration = Duration::from_millis(1);
const CLASS: &str = "kill -9, 2 GiB and 20,000 files";

pub fn run(args: &GroundArgs, seed: u64) -> Result<Tally> {
    let started = Instant::now();
    let ground = Ground::new(args, "8MiB", tree::fill_large)?;
    let mut bed = Bed::new(&ground, Direction::Push, |_| Ok(()))?;
    let mut random = Random::new(seed);
    let mut tally = Tally::new(&format!("trial kill --large --seed {seed}"));
    let mut killed = [0, 0];
    for kill in 0..KILLS {
        let is_endpoint = random.below(2) == 1;
        // Ten kills end at about half of the copy, so that none comes too late.
        let after_bytes = ground.bytes() / 100 + random.below(ground.bytes() / KILLS / 2);
        let outcome = killed_once(&mut bed, is_endpoint, after_bytes)?;
        killed[usize::from(is_endpoint)] += u64::from(outcome == Outcome::Survived);
        let replay = format!("trial kill --large --seed {seed} (kill {})", kill + 1);
        tally.count(CLASS, &["F087"], &outcome, &replay);
    }
    let finished = finish(&mut bed)?;
    let (up, down) = bed.relay.passed();
    if let Err(why) = finished {
        let replay = format!("trial kill --large --seed {seed}");
        tally.count(CLASS, &["F087"], &Outcome::Violated(why), &replay);
    }
    let again = (up + down).saturating_sub(ground.bytes());
    let share = again as f64 * 100.0 / ground.bytes() as f64;
    let figures = [
        ("killed", format!("client {} times, endpoint {} times", killed[0], killed[1])),
        ("bytes of the copy", ground.bytes().to_string()),
        ("bytes that crossed the network, TLS and listings included", (up + down).to_string()),
        ("bytes sent again at most", format!("{again} ({share:.1} % of the copy, {} for each kill)", again / KILLS)),
        ("compared by", "diff -r --no-dereference, and blake3 of every file, mode and time".to_owned()),
    ];
    tally.figures.extend(figures.map(|(name, figure)| (name.to_owned(), figure)));
    tally.seconds = started.elapsed().as_secs_f64();
    Ok(tally)
}

/// Runs the copy until so many bytes more have passed, and kills one side.
fn killed_once(bed: &mut Bed<'_>, is_endpoint: bool, after_bytes: u64) -> Result<Outcome> {
    if let Err(why) = serve(bed)? {
        return Ok(Outcome::Violated(why));
    }
    let before = bed.relay.passed().0;
    let client = bed.copy(None)?;
    let deadline = Instant::now() + COPY_PATIENCE;
    while bed.relay.passed().0 - before < after_bytes && !client.has_ended() && Instant::now() < deadline {
        std::thread::park_timeout(LOOK_INTERVAL);
    }
    if client.has_ended() {
        return Ok(Outcome::Inert);
    }
    let endpoint = if is_endpoint { bed.buried()? } else { None };
    if !is_endpoint {
        client.signal(Signal::KILL);
    }
    let Some(client) = client.wait(PATIENCE)? else {
        return Ok(Outcome::Violated(format!("hang: the client did not end within {} s", PATIENCE.as_secs())));
    };
    // One that ended before the signal was not killed, and a copy that succeeded lost nothing by it.
    let killed = if is_endpoint { endpoint.as_ref() } else { Some(&client) };
    if killed.and_then(|ended| ended.signal) != Some(Signal::KILL.as_raw()) || client.code == Some(0) {
        return Ok(Outcome::Inert);
    }
    let mut held = check_words(&client.errors);
    // Nothing is printed by a copy that could not begin.
    if let (Ok(()), Some(code), false) = (&held, client.code, client.output.is_empty()) {
        let counts = check::done(&client.output, code, bed.ground.objects());
        held =
            counts.and_then(|(ok, skipped, _)| check::acknowledged(&bed.destination(), &bed.ground.new, ok + skipped));
    }
    Ok(held.and_then(|()| bed.check_half_done()).map_or_else(Outcome::Violated, |()| Outcome::Survived))
}

fn serve(bed: &mut Bed<'_>) -> Result<Result<(), String>> {
    if bed.endpoint.as_ref().is_none_or(Process::has_ended) && !bed.serve(None)? {
        return Ok(Err("the endpoint did not start".to_owned()));
    }
    bed.enrol()
}

fn finish(bed: &mut Bed<'_>) -> Result<Result<(), String>> {
    if let Err(why) = serve(bed)? {
        return Ok(Err(why));
    }
    let client = bed.copy(None)?.wait(COPY_PATIENCE)?;
    let Some(client) = client else { return Ok(Err("hang: the last copy did not end".to_owned())) };
    if client.code != Some(0) {
        return Ok(Err(format!("the last copy ended with {:?}: {}", client.code, client.errors.trim())));
    }
    bed.stop()?;
    let mut diff = Command::new("diff");
    diff.args(["-r", "--no-dereference"]).arg(&bed.ground.source).arg(bed.destination());
    let differs = !diff.stdout(Stdio::null()).status().context("run diff")?.success();
    if differs {
        return Ok(Err("diff -r found a difference".to_owned()));
    }
    Ok(bed.check_complete().and_then(|()| bed.check_swept()))
}
