//! One transfer over four links, each of a card of its own at both ends: what it gets of their sum, with equal and with
//! unequal links (S4 table 6 computes that from runs over one), how long its end takes, when not all of them have work,
//! and what it costs when one of them is down for a time, or again and again.
//!
//! Raw: `cards.jsonl`, one line a run with the program's last event; `events.jsonl` has all events of the last links.

use std::fs::{self, File};
use std::io::Write;
use std::ops::Range;
use std::time::Duration;

use serde_json::{Value, json};

use super::context::Context;
use super::endpoints::{Ended, Endpoints};
use super::judge::{Check, median};
use crate::error::{Error, Kind, Result};

const MBIT: u64 = 1_000_000;
const CARDS: usize = 4;
const RTT_MS: u64 = 74;
const RUN_SECONDS: u64 = 24;
const FILE_BYTES: u64 = 1 << 20;
/// Rates of the links, in hundredths of the fastest one's.
const LINKS: [(&str, [u64; CARDS]); 3] =
    [("equal", [100; CARDS]), ("unequal", [100, 100, 50, 25]), ("very unequal", [100, 20, 10, 2])];
/// The part of a run in which all links have work.
const MIDDLE: Range<f64> = 0.25..0.75;
const TAIL_SECONDS_MAX: f64 = 1.0;

/// How a link fails while a copy runs: so often it is down for a time, with a time between.
#[derive(Clone, Copy)]
struct Failure {
    name: &'static str,
    times: u32,
    down: Duration,
    up: Duration,
}

const NONE: Failure = failing("none failing", 0, [0, 0]);
const FAILURES: [Failure; 3] =
    [NONE, failing("one down for 20 s", 1, [20, 0]), failing("one down for 5 s, four times", 4, [5, 5])];
/// The last one: what controls a copy goes over the first.
const FAILING: &str = "wan4";
/// From the beginning of a copy, until its link fails.
const FAILS_AFTER: Duration = Duration::from_secs(10);
/// The seconds of a copy whose rate is that of all links: they have begun, and none has failed.
const BEFORE: Range<f64> = 3.0..10.0;
/// What all links need for the set: a link fails for 45 s at most, and then has the time that it may take to be back.
const FAILURE_SECONDS: u64 = 72;
/// The link may be without use for so long in all, 20 s of which it is down.
const LOST_SECONDS_MAX: f64 = 40.0;
const BACK_SECONDS_MAX: f64 = 20.0;
const BACK: f64 = 0.95;
/// Events, one a second, over which the rate has to be back.
const BACK_EVENTS: usize = 4;

const fn failing(name: &'static str, times: u32, [down, up]: [u64; 2]) -> Failure {
    Failure { name, times, down: Duration::from_secs(down), up: Duration::from_secs(up) }
}

impl Failure {
    fn come(self, stand: &Endpoints) -> Result<()> {
        for turn in 0..self.times {
            stand.pass(if turn == 0 { FAILS_AFTER } else { self.up });
            stand.cut(FAILING, true)?;
            stand.pass(self.down);
            stand.cut(FAILING, false)?;
        }
        Ok(())
    }

    /// From the beginning of a copy, until the link is up for good.
    fn over(self) -> Duration {
        FAILS_AFTER + self.down * self.times + self.up * self.times.saturating_sub(1)
    }
}

pub fn run(context: &mut Context) -> Result<()> {
    let rate = context.options.bits_per_second.unwrap_or(200 * MBIT);
    fs::create_dir_all(&context.dir).map_err(Error::io("create", &context.dir))?;
    let path = context.dir.join("cards.jsonl");
    let mut raw = File::create(&path).map_err(Error::io("create", &path))?;
    for (links, hundredths) in LINKS {
        let rates = hundredths.map(|of| rate * of / 100);
        let (sum, together) = (rates.iter().sum::<u64>(), rates.iter().sum::<u64>() / 8 * RUN_SECONDS);
        let mut stand = stand(context, rates, together)?;
        for (what, of_file) in [("one file", None), ("files of 1 MiB", Some(FILE_BYTES))] {
            let (mut seconds, mut tails) = ([Vec::new(), Vec::new()], Vec::new());
            let mut late = Vec::<String>::new();
            for round in 1..=context.options.rounds.unwrap_or(3) {
                for (paths, seconds) in ["1", "all"].into_iter().zip(&mut seconds) {
                    let bytes = if paths == "1" { rate / 8 * RUN_SECONDS } else { together };
                    let (files, of_file) = of_file.map_or((1, bytes), |of_file| (bytes / of_file, of_file));
                    let name = format!("{links} links, {what}, --paths {paths}");
                    let ended = copy(&mut stand, &format!("{files}x{of_file}"), paths, NONE, &name)?;
                    let took = ended.seconds;
                    let events = fs::read_to_string(context.dir.join("events.jsonl")).unwrap_or_default();
                    let tail = tail_seconds(&events);
                    let head = format!(r#"{{"case":"{name}","round":{round},"seconds":{took:.3}"#);
                    let head = format!(r#"{head},"tail_seconds":{}"#, json!(tail));
                    writeln!(raw, r#"{head},"set_bytes":{},{}}}"#, files * of_file, ended.raw())
                        .map_err(Error::io("write", &path))?;
                    late.extend(ended.late(&format!("--paths {paths}, round {round}")));
                    seconds.push((files * of_file) as f64 * 8.0 / took);
                    tails.extend(tail.filter(|_| paths == "all"));
                    (context.progress())(&format!("{name}: {took:.1} s"));
                }
            }
            let [one, all] = seconds.map(median);
            // What one card gives of its link is taken for all of them.
            let share = one.zip(all).map(|(one, all)| all / (one * sum as f64 / rate as f64));
            let claim = format!("{what} over four {links} links / the sum of what each would give alone");
            context.check(Check::at_least(claim, 0.95, share).beside(&late));
            let claim = format!("{what} over four {links} links: seconds that the end takes beyond what it needs");
            context.check(Check::at_most(claim, TAIL_SECONDS_MAX, median(tails)).beside(&late));
        }
    }
    let shown = |(links, hundredths): (&str, [u64; CARDS])| format!("{links}: {hundredths:?}");
    let shown = LINKS.map(shown).join("; ");
    context.note(format!("hundredths of {} Mbit/s, {RTT_MS} ms away: {shown}", rate / MBIT));
    failures(context, &mut raw, rate / 2)
}

/// One file over four links of a rate, one of which fails.
fn failures(context: &mut Context, raw: &mut File, rate: u64) -> Result<()> {
    let bytes = rate / 8 * CARDS as u64 * FAILURE_SECONDS;
    let mut stand = stand(context, [rate; CARDS], bytes)?;
    let (mut runs, mut late) = (Vec::<(usize, f64, Option<f64>)>::new(), Vec::<String>::new());
    for round in 1..=context.options.rounds.unwrap_or(3) {
        for (number, failure) in FAILURES.into_iter().enumerate() {
            let name = format!("four links, {}", failure.name);
            let ended = copy(&mut stand, &format!("1x{bytes}"), "all", failure, &name)?;
            let took = ended.seconds;
            let events = fs::read_to_string(context.dir.join("events.jsonl")).unwrap_or_default();
            let back = back_seconds(&events, took, failure.over().as_secs_f64()).filter(|_| failure.times > 0);
            let head = format!(r#"{{"case":"{name}","round":{round},"seconds":{took:.3}"#);
            let head = format!(r#"{head},"back_seconds":{},"set_bytes":{bytes}"#, json!(back));
            writeln!(raw, "{head},{}}}", ended.raw()).map_err(Error::io("write", "cards.jsonl"))?;
            late.extend(ended.late(&format!("{name}, round {round}")));
            runs.push((number, took, back));
            (context.progress())(&format!("{name}: {took:.1} s"));
        }
    }
    let took = |of: usize| median(runs.iter().filter(|run| run.0 == of).map(|run| run.1));
    for (number, failure) in FAILURES.into_iter().enumerate().skip(1) {
        let lost = took(number).zip(took(0)).map(|(took, calm)| (took - calm) * CARDS as f64);
        let claim = format!("four links, {}: what it cost, in seconds of one link", failure.name);
        context.check(Check::at_most(claim, LOST_SECONDS_MAX, lost).beside(&late));
        let back = median(runs.iter().filter(|run| run.0 == number).filter_map(|run| run.2));
        let claim = format!("four links, {}: seconds from its return to {BACK} of the rate before", failure.name);
        context.check(Check::at_most(claim, BACK_SECONDS_MAX, back).beside(&late));
    }
    context.note(format!("the links of which one fails have {} Mbit/s each", rate / MBIT));
    Ok(())
}

/// What the end of the last run took beyond the time that its bytes need at the rate of the run's middle, by its
/// events. The time to connect is in it, some round trips: progress is told from then on.
fn tail_seconds(events: &str) -> Option<f64> {
    let (points, done) = last_run(events)?;
    let (seconds, sent) = (done["seconds"].as_f64()?, done["sent_bytes"].as_f64()?);
    let from = points.iter().find(|(at, _)| *at >= seconds * MIDDLE.start)?;
    let to = points.iter().rfind(|(at, _)| *at <= seconds * MIDDLE.end)?;
    let rate = rate_of(&[*from, *to])?;
    (rate > 0.0).then(|| seconds - to.0 - (sent - to.1) / rate)
}

/// How long the last run needed, from a moment of the time that its command took, until it was as fast again as before
/// anything failed; all of the rest if it never was.
fn back_seconds(events: &str, took: f64, over: f64) -> Option<f64> {
    let (points, done) = last_run(events)?;
    // Its own clock began later.
    let over = over - (took - done["seconds"].as_f64()?);
    let before: Vec<_> = points.iter().copied().filter(|(at, _)| BEFORE.contains(at)).collect();
    let wanted = BACK * rate_of(&before)?;
    let after: Vec<_> = points.into_iter().filter(|(at, _)| *at >= over).collect();
    let back = after.windows(BACK_EVENTS).find(|events| rate_of(events).is_some_and(|rate| rate >= wanted));
    Some(back.map_or(after.last()?.0, |events| events[0].0) - over)
}

/// When the last run had sent how many bytes, by its events, and its end.
fn last_run(events: &str) -> Option<(Vec<(f64, f64)>, Value)> {
    let mut events: Vec<Value> = events.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    let done = events.pop().filter(|event| event["event"] == "done")?;
    let begin = events.iter().rposition(|event| event["event"] == "start")?;
    let progress = events[begin..].iter().filter(|event| event["event"] == "progress");
    let points = progress.filter_map(|event| Some((event["seconds"].as_f64()?, event["bytes"]["sent"].as_f64()?)));
    let points = points.collect();
    Some((points, done))
}

/// Bytes a second from the first to the last of them.
fn rate_of(points: &[(f64, f64)]) -> Option<f64> {
    let (first, last) = (points.first()?, points.last()?);
    (last.0 > first.0).then(|| (last.1 - first.1) / (last.0 - first.0))
}

fn stand<'a>(context: &Context<'a>, rates: [u64; CARDS], bytes: u64) -> Result<Endpoints<'a>> {
    let mut text = "[site.a]\n[site.b]\n".to_owned();
    for (number, rate) in rates.iter().enumerate() {
        text.push_str(&format!("[link.wan{}]\nbetween = [\"a\", \"b\"]\nrtt = \"{RTT_MS}ms\"\n", number + 1));
        text.push_str(&format!("rate = \"{}kbit\"\nqueue = \"1bdp\"\n", rate / 1000));
    }
    let mut stand = Endpoints::new(context, "cards", &text, "a", 2 * bytes)?;
    let root = stand.path("to");
    fs::create_dir_all(&root).map_err(Error::io("create", &root))?;
    stand.serve("b", "home-b", "to", &[])?;
    Ok(stand)
}

fn copy(stand: &mut Endpoints, set: &str, paths: &str, failure: Failure, what: &str) -> Result<Ended> {
    stand.done("a", "home-client", &["gen", set, "from/set"])?;
    let running = stand.start(&["--fsync", "never", "--paths", paths, "from/set/", "b:set/"])?;
    failure.come(stand)?;
    let done = stand.end(running, what)?;
    let is_same = stand.are_same("from/set", "to/set")?;
    for path in ["from/set", "to/set"] {
        let _ = fs::remove_dir_all(stand.path(path));
    }
    match is_same {
        true => Ok(done),
        false => Err(Error::new(Kind::Failed, "copy", what, "what was delivered is not the set")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A run at 10 bytes a second of which the last 20 bytes take so long.
    fn run(last_seconds: f64) -> String {
        let start = r#"{"event":"start"}"#.to_owned();
        let progress =
            (1..=20).map(|at| json!({"event": "progress", "seconds": at, "bytes": {"sent": at * 10}}).to_string());
        let done = json!({"event": "done", "seconds": 20.0 + last_seconds, "sent_bytes": 220}).to_string();
        [start].into_iter().chain(progress).chain([done]).collect::<Vec<_>>().join("\n")
    }

    #[test]
    fn the_end_of_the_last_run_is_held_against_the_middle_of_it() {
        assert_eq!(tail_seconds(&run(2.0)), Some(0.0));
        let tail = tail_seconds(&format!("{}\n{}", run(2.0), run(5.0))).unwrap();
        assert!((tail - 3.0).abs() < 1e-9, "{tail}");
        assert_eq!((tail_seconds(""), tail_seconds(r#"{"event":"start"}"#)), (None, None));
    }

    /// A run at 10 bytes a second, and at 7.5 from its twelfth second on until a later one.
    fn run_that_slows(until: u64) -> String {
        let mut sent = 0.0;
        let mut lines = vec![json!({"event": "start"}).to_string()];
        for at in 1..30 {
            sent += if (12..until).contains(&at) { 7.5 } else { 10.0 };
            lines.push(json!({"event": "progress", "seconds": at, "bytes": {"sent": sent}}).to_string());
        }
        lines.push(json!({"event": "done", "seconds": 30.0, "sent_bytes": sent}).to_string());
        lines.join("\n")
    }

    #[test]
    fn a_run_is_back_once_it_is_as_fast_as_before_and_otherwise_not_until_its_end() {
        // Its command took half a second more than it says itself.
        assert_eq!(back_seconds(&run_that_slows(21), 30.5, 15.5), Some(5.0));
        assert_eq!(back_seconds(&run_that_slows(99), 30.5, 15.5), Some(14.0));
        assert_eq!(back_seconds("", 30.0, 15.0), None);
    }

    #[test]
    fn a_link_that_fails_several_times_is_up_for_good_after_the_last_and_before_the_set_is_through() {
        assert_eq!(FAILURES.map(|failure| failure.over().as_secs()), [10, 30, 45]);
        let room = (FAILURE_SECONDS - 45) as f64;
        assert!(room > BACK_SECONDS_MAX + BACK_EVENTS as f64, "{room} s are left");
    }
}
