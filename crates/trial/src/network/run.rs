//! One network trial: a copy over a path, the fault in its middle, and the judgement afterwards.
//!
//! Invariants:
//! - The fault counts only if its injector's counter rose while the command was running.
//! - What stands at the destination is judged by `tree`, from the known content of the source.
//! - Nothing waits longer than the profile's limit: a command that does is killed, and that is a violation (I11).

use super::bed::Bed;
use super::inject::{self, Before};
use super::profile::{Expect, Profile};
use crate::outside::process::{Finished, LOOK_INTERVAL, Running};
use crate::outside::tree::{self, Files, Seen};
use crate::record::Outcome;
use anyhow::Result;
use serde::Serialize;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Payload that has to cross again before a job counts as recovered.
const RECOVERED_BYTES: u64 = 64 << 10;
/// Small, so that what one interruption may cost is far less than the set.
pub const CHUNK_BYTES: u64 = 1 << 20;
/// One interruption may cost each stream the chunk under way and what its socket held. What no checkpoint covers yet is read back
/// and counts: neither host lost its memory.
const WINDOW_BYTES: u64 = CHUNK_BYTES + (1 << 20);

/// The files that cross.
#[derive(Debug)]
pub struct Set {
    pub name: &'static str,
    pub source: PathBuf,
    pub files: Files,
    pub bytes: u64,
    pub bits_per_second: u64,
}

/// What a trial measured, for the figures.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Measured {
    pub profile: String,
    pub why: String,
    pub size: String,
    pub seed: u64,
    pub outcome: String,
    /// The injector's counter.
    pub fired: u64,
    /// Of the first run of the command.
    pub code: Option<i32>,
    pub seconds: f64,
    pub attempts: u64,
    /// Data streams at most.
    pub streams: u64,
    pub retransmits: u64,
    pub error: String,
    /// Why attempts of the first run ended that were followed by another one.
    pub lost: Vec<String>,
    /// From the end of the fault until content crossed again; none: it never stood still, or did not recover.
    pub recovery_seconds: Option<f64>,
    /// Goodput of the first run as a share of the path's rate, where it delivered.
    pub rate_share: Option<f64>,
    /// Sent by all runs beyond the bytes of the set.
    pub sent_twice_bytes: Option<i64>,
    /// What I10 allows: streams x window for each attempt. None where that would not be less than the set, so that nothing
    /// could break it.
    pub sent_twice_bytes_max: Option<u64>,
    pub resumed_bytes: u64,
    pub second_seconds: Option<f64>,
}

pub struct Trial<'a> {
    pub profile: &'a Profile,
    pub set: &'a Set,
    pub program: &'a Path,
    pub dir: &'a Path,
    pub seed: u64,
}

/// What one run of the command left.
struct Ran {
    finished: Option<Finished>,
    fired: u64,
    recovery_seconds: Option<f64>,
    /// Final names that showed a wrong length while it ran.
    odd: Vec<PathBuf>,
}

impl Trial<'_> {
    pub fn run(&self) -> Result<(Outcome, Measured)> {
        let mut bed = Bed::make(self.profile, self.program, self.dir, self.set.bits_per_second, self.seed)?;
        let ran = self.first_run(&mut bed)?;
        let mut measured = self.measured(&ran);
        let outcome = self.judge(&mut bed, &ran, &mut measured)?;
        measured.outcome = match &outcome {
            Outcome::Violated(why) => format!("violated: {why}"),
            other => format!("{other:?}").to_lowercase(),
        };
        Ok((outcome, measured))
    }

    fn first_run(&self, bed: &mut Bed) -> Result<Ran> {
        let (profile, fault) = (self.profile, &self.profile.fault);
        inject::prepare(fault, bed)?;
        let mut before = Before::of(bed)?;
        let deadline = Instant::now() + Duration::from_secs(profile.limit);
        if profile.at == 0.0 {
            inject::begin(fault, bed, None)?;
        }
        let mut client = bed.start_client(&self.set.source, "first")?;
        let mut ran = Ran { finished: None, fired: 0, recovery_seconds: None, odd: Vec::new() };
        while !inject::follow(fault, bed)? && !client.has_ended() && Instant::now() < deadline {
            std::thread::park_timeout(LOOK_INTERVAL);
        }
        if profile.at > 0.0 {
            self.await_share(bed, &before, &mut client, deadline)?;
            for turn in 0..profile.times {
                if client.has_ended() || Instant::now() >= deadline {
                    break;
                }
                if turn > 0 {
                    hold(&mut client, deadline, profile.pause);
                }
                before = Before::of(bed)?;
                self.one_turn(bed, &before, &mut client, deadline, &mut ran)?;
            }
        }
        ran.finished = client.finish(deadline, || {});
        ran.fired = ran.fired.max(inject::count(fault, bed, &before)?);
        Ok(ran)
    }

    /// Lets the fault come, last and go; it stays if it is to outlast the run.
    fn one_turn(
        &self,
        bed: &mut Bed,
        before: &Before,
        client: &mut Running,
        deadline: Instant,
        ran: &mut Ran,
    ) -> Result<()> {
        let fault = &self.profile.fault;
        inject::begin(fault, bed, Some(client))?;
        ran.odd.extend(tree::odd_lengths(&bed.destination(), &self.set.files));
        let Some(lasts) = self.profile.lasts else { return Ok(()) };
        hold(client, deadline, lasts);
        // A job that ended meanwhile met the fault all the same: the counters are those of its own packets.
        ran.fired = ran.fired.max(inject::count(fault, bed, before)?);
        let crossed_before = crossed(bed);
        inject::end(fault, bed, Some(client))?;
        let healed = Instant::now();
        while crossed(bed) < crossed_before + RECOVERED_BYTES && !client.has_ended() && Instant::now() < deadline {
            std::thread::park_timeout(LOOK_INTERVAL);
        }
        ran.recovery_seconds = Some(healed.elapsed().as_secs_f64());
        ran.odd.extend(tree::odd_lengths(&bed.destination(), &self.set.files));
        Ok(())
    }

    /// Waits until the profile's share of the bytes has crossed.
    fn await_share(&self, bed: &Bed, before: &Before, client: &mut Running, deadline: Instant) -> Result<()> {
        let due = before.crossed_bytes() + (self.profile.at * self.set.bytes as f64) as u64;
        while crossed(bed) < due && !client.has_ended() && Instant::now() < deadline {
            std::thread::park_timeout(LOOK_INTERVAL);
        }
        Ok(())
    }

    fn measured(&self, ran: &Ran) -> Measured {
        let mut measured = Measured {
            profile: self.profile.name.clone(),
            why: self.profile.why.clone(),
            size: self.set.name.to_owned(),
            seed: self.seed,
            fired: ran.fired,
            recovery_seconds: ran.recovery_seconds,
            ..Measured::default()
        };
        let Some(finished) = &ran.finished else { return measured };
        let done = done(finished);
        let number = |name: &str| done.as_ref().and_then(|done| done[name].as_u64()).unwrap_or(0);
        measured.code = finished.code;
        measured.seconds = finished.seconds;
        measured.attempts = number("attempts");
        measured.streams = number("streams");
        measured.retransmits = number("retransmits");
        measured.error = error_of(finished);
        measured.lost = lost(finished);
        let rate = (self.set.bits_per_second / u64::from(self.profile.stretch)) as f64 / 8.0;
        measured.rate_share = (finished.code == Some(0)).then(|| self.set.bytes as f64 / finished.seconds / rate);
        measured
    }

    fn judge(&self, bed: &mut Bed, ran: &Ran, measured: &mut Measured) -> Result<Outcome> {
        let seen = tree::compare(&bed.destination(), &self.set.files, &Files::new())?;
        if let Some(broken) = broken_names(ran, &seen) {
            return Ok(Outcome::Violated(broken));
        }
        let Some(finished) = &ran.finished else {
            return Ok(Outcome::Violated(format!("I11: not over after {} s", self.profile.limit)));
        };
        if finished.code == Some(0) && !seen.is_complete() {
            return Ok(Outcome::Violated(format!(
                "I7: exit 0 with {} of {} missing",
                seen.absent,
                self.set.files.len()
            )));
        }
        if !bed.is_nothing_elsewhere() {
            return Ok(Outcome::Violated("I5: another endpoint got something".into()));
        }
        if ran.fired == 0 {
            return Ok(Outcome::Inert);
        }
        let sent = sent_bytes(finished);
        if self.profile.expect == Expect::Keep {
            if finished.code != Some(0) {
                let code = finished.code;
                return Ok(Outcome::Violated(format!("the job ended with {code:?}: {}", measured.error)));
            }
            return Ok(self.judge_bytes(sent, None, measured));
        }
        if let Some(wrong) = self.wrong_diagnosis(finished, &measured.error) {
            return Ok(Outcome::Violated(wrong));
        }
        inject::end(&self.profile.fault, bed, None)?;
        let mut again = bed.start_client(&self.set.source, "second")?;
        let Some(second) = again.finish(Instant::now() + Duration::from_secs(self.profile.limit), || {}) else {
            return Ok(Outcome::Violated("I11: the second run of the command is not over in time".into()));
        };
        measured.second_seconds = Some(second.seconds);
        measured.resumed_bytes = done(&second).and_then(|done| done["resumed_bytes"].as_u64()).unwrap_or(0);
        let seen_then = tree::compare(&bed.destination(), &self.set.files, &Files::new())?;
        if second.code != Some(0) || !seen_then.is_complete() {
            let said = error_of(&second);
            return Ok(Outcome::Violated(format!("the second run ended with {:?}: {said}", second.code)));
        }
        Ok(self.judge_bytes(sent, Some((seen.complete_bytes, sent_bytes(&second))), measured))
    }

    fn wrong_diagnosis(&self, finished: &Finished, said: &str) -> Option<String> {
        let is_expected = finished.code.is_some_and(|code| self.profile.exits.contains(&code));
        if !is_expected {
            return Some(format!("exit {:?} instead of one of {:?}: {said}", finished.code, self.profile.exits));
        }
        let is_said = self.profile.says.iter().any(|words| said.contains(words.as_str()));
        (!is_said).then(|| format!("the error names none of {:?}: {said}", self.profile.says))
    }

    /// I10, and that what was published is not sent again. Runs that do not tell what they sent are not judged.
    fn judge_bytes(&self, sent: Option<u64>, second: Option<(u64, Option<u64>)>, measured: &mut Measured) -> Outcome {
        let Some(mut sent) = sent else { return Outcome::Survived };
        if let Some((published, sent_then)) = second {
            let Some(sent_then) = sent_then else { return Outcome::Survived };
            if published + sent_then > self.set.bytes {
                let (all, twice) = (self.set.bytes, published + sent_then - self.set.bytes);
                return Outcome::Violated(format!("{twice} published bytes of {all} were sent again"));
            }
            sent += sent_then;
        }
        let twice = sent as i64 - self.set.bytes as i64;
        measured.sent_twice_bytes = Some(twice);
        let bound = twice_bytes_max(measured.attempts, measured.streams);
        measured.sent_twice_bytes_max = (bound < self.set.bytes).then_some(bound);
        if twice > bound as i64 {
            return Outcome::Violated(format!("I10: {twice} bytes were sent twice, more than {bound}"));
        }
        Outcome::Survived
    }
}

fn twice_bytes_max(attempts: u64, streams: u64) -> u64 {
    attempts.max(1) * streams.max(1) * WINDOW_BYTES
}

/// Bytes that left the path towards the server.
fn crossed(bed: &Bed) -> u64 {
    bed.counts()[0].wire_bytes_delivered
}

/// Waits for a time, or until the client has ended.
fn hold(client: &mut Running, deadline: Instant, seconds: f64) {
    let until = deadline.min(Instant::now() + Duration::from_secs_f64(seconds));
    while Instant::now() < until && !client.has_ended() {
        std::thread::park_timeout(LOOK_INTERVAL);
    }
}

fn broken_names(ran: &Ran, seen: &Seen) -> Option<String> {
    if let Some(odd) = ran.odd.first() {
        return Some(format!("I1: {} of another length was visible while the job ran", odd.display()));
    }
    if let Some(wrong) = seen.wrong.first() {
        return Some(format!("I1: {} wrong files at final names, such as {}", seen.wrong.len(), wrong.display()));
    }
    let foreign = seen.foreign.first()?;
    Some(format!("I20: {} is no name of the job", foreign.display()))
}

fn done(finished: &Finished) -> Option<serde_json::Value> {
    let last = finished.stdout.lines().rfind(|line| !line.trim().is_empty())?;
    serde_json::from_str::<serde_json::Value>(last).ok().filter(|event| event["event"] == "done")
}

fn lost(finished: &Finished) -> Vec<String> {
    let events = finished.stdout.lines().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
    let retried = events.filter(|event| event["event"] == "error" && event["retry_seconds"].is_number());
    retried.filter_map(|event| event["message"].as_str().map(str::to_owned)).collect()
}

fn sent_bytes(finished: &Finished) -> Option<u64> {
    done(finished)?["sent_bytes"].as_u64()
}

/// The two lines of an error.
fn error_of(finished: &Finished) -> String {
    let lines = finished.stderr.lines().filter(|line| line.starts_with("error: ") || line.starts_with("hint: "));
    lines.collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_an_interruption_may_cost_is_less_than_the_large_set_at_the_default_scale() {
        // 256 MiB by a tenth, two streams that a network of 20 ms gets, the first attempt and two more.
        let set_bytes = (256 << 20) / 10;
        assert!(twice_bytes_max(3, 2) < set_bytes / 2);
        // Sending all of it again with each attempt, as a program that keeps nothing does, breaks it.
        assert!(set_bytes / 2 > twice_bytes_max(2, 2));
    }
}
