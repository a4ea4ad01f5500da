//! `trial soak`: copies all the time, a fault now and then, everything checked at the end of each copy.
//!
//! Three beds take turns: one sends, one fetches, and one sends to an endpoint that no fault ends, so that its memory and
//! descriptors can be sampled over the whole time; a slope that is not about zero is a leak. A copy fills an empty
//! destination, replaces some of what it finds, or finds everything done.

use crate::check;
use crate::job::{Bed, Direction, Ground, GroundArgs, PATIENCE, check_words};
use crate::process::Process;
use crate::random::Random;
use crate::record::{Outcome, Tally};
use crate::tree;
use anyhow::{Context, Result};
use rustix::process::Signal;
use std::fs;
use std::time::{Duration, Instant};

const LOOK_INTERVAL: Duration = Duration::from_millis(2);
/// How long a program is stopped by SIGSTOP: longer than any pause of a healthy one, shorter than a timeout.
const STOPPED: Duration = Duration::from_secs(5);
/// Samples of an endpoint that is still taking its first memory.
const SAMPLES_SKIPPED: usize = 3;

#[derive(clap::Args, Clone, Debug)]
pub struct Args {
    #[command(flatten)]
    ground: GroundArgs,
    /// How long copies are started
    #[arg(long, value_name = "S", default_value_t = 10)]
    seconds: u64,
    /// A fault each so many seconds
    #[arg(long, value_name = "S", default_value_t = 3)]
    faults_every: u64,
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

#[derive(Clone, Copy, Debug)]
enum Fault {
    KillClient,
    KillEndpoint,
    StopClient,
    StopEndpoint,
    TerminateClient,
    TerminateEndpoint,
}

const FAULTS: [Fault; 6] = [
    Fault::KillClient,
    Fault::KillEndpoint,
    Fault::StopClient,
    Fault::StopEndpoint,
    Fault::TerminateClient,
    Fault::TerminateEndpoint,
];

impl Fault {
    /// The class of its trials and its number in the table of faults; a stop of seconds has none.
    fn class(self) -> (&'static str, &'static [&'static str]) {
        match self {
            Fault::KillClient => ("soak, kill -9 of the client", &["F087"]),
            Fault::KillEndpoint => ("soak, kill -9 of the endpoint", &["F087"]),
            Fault::StopClient => ("soak, SIGSTOP of the client for 5 s", &[]),
            Fault::StopEndpoint => ("soak, SIGSTOP of the endpoint for 5 s", &[]),
            Fault::TerminateClient => ("soak, SIGTERM of the client", &["F094"]),
            Fault::TerminateEndpoint => ("soak, SIGTERM of the endpoint", &["F094"]),
        }
    }
}

impl Fault {
    fn ends_the_endpoint(self) -> bool {
        matches!(self, Fault::KillEndpoint | Fault::TerminateEndpoint)
    }
}

/// What the system says of an endpoint: seconds since the start, KiB of memory, descriptors.
type Samples = Vec<(f64, f64, f64)>;

pub fn run(args: &Args) -> Result<Tally> {
    let started = Instant::now();
    let ground = Ground::new(&args.ground, "8MiB", tree::fill_soak)?;
    let mut beds = Vec::new();
    for direction in [Direction::Push, Direction::Pull, Direction::Push] {
        beds.push(Bed::new(&ground, direction, tree::fill_older)?);
    }
    let mut samples = Samples::new();
    let mut random = Random::new(args.seed);
    let mut tally = Tally::new("trial soak --seconds 3600 --faults-every 60");
    let (mut copies, mut next_fault) = (0u64, Duration::from_secs(args.faults_every));
    while started.elapsed() < Duration::from_secs(args.seconds) {
        let which = (copies % 3) as usize;
        let lasts = which == 2;
        let mut fault = None;
        if started.elapsed() >= next_fault {
            let may_be = FAULTS.into_iter().filter(|fault| !lasts || !fault.ends_the_endpoint()).collect::<Vec<_>>();
            fault = Some(may_be[random.below(may_be.len() as u64) as usize]);
            next_fault += Duration::from_secs(args.faults_every.max(1));
        }
        let outcome = one_copy(&mut beds[which], fault, &mut random)?;
        count(&mut tally, fault, &outcome, &format!("trial soak --seed {} (copy {})", args.seed, copies + 1));
        if lasts {
            samples.extend(sample(&beds[which], started));
        }
        copies += 1;
    }
    for bed in &mut beds {
        if bed.endpoint.is_some() && bed.stop()?.is_none_or(|ended| ended.code != Some(0)) {
            count(
                &mut tally,
                None,
                &Outcome::Violated("the endpoint did not shut down cleanly".to_owned()),
                "trial soak",
            );
        }
    }
    tally
        .figures
        .insert("copies".to_owned(), format!("{copies} of {} bytes in {} objects", ground.bytes(), ground.objects()));
    tell_slopes(&mut tally, &samples);
    tally.seconds = started.elapsed().as_secs_f64();
    Ok(tally)
}

/// A copy without a fault is no trial; only its failure counts.
fn count(tally: &mut Tally, fault: Option<Fault>, outcome: &Outcome, replay: &str) {
    match fault {
        Some(fault) => tally.count(fault.class().0, fault.class().1, outcome, replay),
        None if *outcome != Outcome::Survived => tally.count("soak, no fault", &[], outcome, replay),
        None => {}
    }
}

/// One copy to its end, with a fault in the middle if there is one, and everything checked.
fn one_copy(bed: &mut Bed<'_>, fault: Option<Fault>, random: &mut Random) -> Result<Outcome> {
    prepare(bed, random)?;
    if let Err(why) = serve(bed)? {
        return Ok(Outcome::Violated(why));
    }
    if let Some(fault) = fault {
        match faulty_copy(bed, fault, random)? {
            Ok(true) => {}
            Ok(false) => return Ok(Outcome::Inert),
            Err(why) => return Ok(Outcome::Violated(format!("{fault:?}: {why}"))),
        }
        if let Err(why) = serve(bed)? {
            return Ok(Outcome::Violated(why));
        }
    }
    let client = bed.copy(None)?.wait(PATIENCE)?;
    let held = match client {
        None => Err("hang: a copy did not end".to_owned()),
        Some(ended) if ended.code != Some(0) => Err(format!("code {:?}: {}", ended.code, ended.errors.trim())),
        Some(ended) => check::done(&ended.output, 0, bed.ground.objects()).and_then(|_| bed.check_complete()),
    };
    Ok(held.and_then(|()| nothing_is_left(bed)).map_or_else(Outcome::Violated, |()| Outcome::Survived))
}

/// Starts a copy and lets the fault happen after some of it; false when the copy was over before.
fn faulty_copy(bed: &mut Bed<'_>, fault: Fault, random: &mut Random) -> Result<Result<bool, String>> {
    let (up, down) = bed.relay.passed();
    let after_bytes = random.below(bed.ground.bytes() / 2);
    let client = bed.copy(None)?;
    let passed = |bed: &Bed<'_>| (bed.relay.passed().0 - up) + (bed.relay.passed().1 - down);
    while passed(bed) < after_bytes && !client.has_ended() {
        std::thread::park_timeout(LOOK_INTERVAL);
    }
    let has_fired = !client.has_ended();
    match fault {
        Fault::KillClient => client.signal(Signal::KILL),
        Fault::TerminateClient => client.signal(Signal::TERM),
        Fault::StopClient => pause(&client),
        Fault::StopEndpoint => bed.endpoint.iter().for_each(pause),
        Fault::KillEndpoint => _ = bed.buried()?,
        Fault::TerminateEndpoint => match bed.stop()? {
            Some(ended) if ended.code == Some(0) => {}
            Some(ended) => return Ok(Err(format!("the endpoint ended with {:?}", ended.code))),
            None => return Ok(Err("hang: the endpoint did not drain".to_owned())),
        },
    }
    let Some(ended) = client.wait(PATIENCE)? else { return Ok(Err("hang: the client did not end".to_owned())) };
    let must_keep = matches!(fault, Fault::StopClient | Fault::StopEndpoint);
    if must_keep && ended.code != Some(0) {
        return Ok(Err(format!("code {:?}: {}", ended.code, ended.errors.trim())));
    }
    let held = check_words(&ended.errors).and_then(|()| bed.check_half_done());
    Ok(held.and_then(|()| if ended.code == Some(0) { bed.check_complete() } else { Ok(()) }).map(|()| has_fired))
}

fn pause(process: &Process) {
    process.signal(Signal::STOP);
    // The pause is the fault.
    std::thread::sleep(STOPPED);
    process.signal(Signal::CONT);
}

/// Empties the destination, makes some of it older, or leaves it as it is.
fn prepare(bed: &mut Bed<'_>, random: &mut Random) -> Result<()> {
    let destination = bed.destination();
    match random.below(4) {
        0 => {}
        1 => {
            for (path, object) in bed.ground.new.iter().filter(|_| random.below(3) == 0) {
                if let check::Kind::File { .. } = object.kind
                    && object.mode & 0o200 != 0
                    && destination.join(path).exists()
                {
                    fs::write(destination.join(path), b"older").context("make a file older")?;
                }
            }
        }
        _ => {
            let old = bed.dir.join(format!("removed-{}", random.next()));
            fs::rename(&destination, &old).context("empty the destination")?;
            // What this user may not remove goes with the ground.
            let _ = fs::remove_dir_all(&old);
            fs::create_dir(&destination).context("make the destination")?;
            tree::fill_older(&destination)?;
        }
    }
    bed.old = check::tree(&destination).context("read the destination")?;
    Ok(())
}

fn serve(bed: &mut Bed<'_>) -> Result<Result<(), String>> {
    if bed.endpoint.as_ref().is_none_or(Process::has_ended) && !bed.serve(None)? {
        return Ok(Err("the endpoint did not start".to_owned()));
    }
    bed.enrol()
}

/// A job that was cut off ends after its successor may have begun: its staging goes with it.
fn nothing_is_left(bed: &Bed<'_>) -> Result<(), String> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        match bed.check_swept() {
            Err(_) if Instant::now() < deadline => std::thread::park_timeout(LOOK_INTERVAL),
            swept => return swept,
        }
    }
}

fn sample(bed: &Bed<'_>, started: Instant) -> Option<(f64, f64, f64)> {
    let id = bed.endpoint.as_ref()?.id;
    let status = fs::read_to_string(format!("/proc/{id}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let memory_kib = line.trim().trim_end_matches(" kB").parse().ok()?;
    let descriptors = fs::read_dir(format!("/proc/{id}/fd")).ok()?.count() as f64;
    Some((started.elapsed().as_secs_f64(), memory_kib, descriptors))
}

fn tell_slopes(tally: &mut Tally, samples: &Samples) {
    let settled = samples.get(SAMPLES_SKIPPED..).unwrap_or_default();
    let memory: Vec<(f64, f64)> = settled.iter().map(|sample| (sample.0, sample.1)).collect();
    let descriptors: Vec<(f64, f64)> = settled.iter().map(|sample| (sample.0, sample.2)).collect();
    for (what, points) in [("memory, KiB", memory), ("descriptors", descriptors)] {
        let Some(slope) = slope(&points) else { continue };
        let (first, last) = (points[0], points[points.len() - 1]);
        let most = points.iter().map(|point| point.1).fold(0.0, f64::max);
        let text = format!(
            "{} samples in {:.0} s, first {}, last {}, most {most}, slope {:.1} an hour",
            points.len(),
            last.0 - first.0,
            first.1,
            last.1,
            slope * 3600.0
        );
        tally.figures.insert(format!("endpoint, {what}"), text);
    }
}

/// By least squares; nothing for fewer than three points.
fn slope(points: &[(f64, f64)]) -> Option<f64> {
    if points.len() < 3 {
        return None;
    }
    let n = points.len() as f64;
    let (x, y) = points.iter().fold((0.0, 0.0), |(x, y), point| (x + point.0 / n, y + point.1 / n));
    let (above, below) =
        points.iter().fold((0.0, 0.0), |(a, b), p| (a + (p.0 - x) * (p.1 - y), b + (p.0 - x) * (p.0 - x)));
    (below > 0.0).then(|| above / below)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_slope_of_a_line_is_its_slope() {
        let line: Vec<_> = (0..10).map(|x| (f64::from(x), 3.0 + 2.0 * f64::from(x))).collect();
        assert!((slope(&line).unwrap() - 2.0).abs() < 1e-9);
        assert_eq!(slope(&line[..2]), None);
    }
}
