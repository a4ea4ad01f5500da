//! One transfer over four links, each of a card of its own at both ends: what it gets of their sum, with equal and with
//! unequal links (S4 table 6 computes that from runs over one), and how long its end takes, when not all of them have
//! work.
//!
//! Raw: `cards.jsonl`, one line a run with the program's last event; `events.jsonl` has all events of the last links.

use std::fs::{self, File};
use std::io::Write;
use std::ops::Range;

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
                    let ended = copy(&mut stand, &format!("{files}x{of_file}"), paths, &name)?;
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
    Ok(())
}

/// What the end of the last run took beyond the time that its bytes need at the rate of the run's middle, by its
/// events. The time to connect is in it, some round trips: progress is told from then on.
fn tail_seconds(events: &str) -> Option<f64> {
    let events: Vec<Value> = events.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    let begin = events.iter().rposition(|event| event["event"] == "start")?;
    let done = events.last().filter(|event| event["event"] == "done")?;
    let (seconds, sent) = (done["seconds"].as_f64()?, done["sent_bytes"].as_f64()?);
    let progress = events[begin..].iter().filter(|event| event["event"] == "progress");
    let points: Vec<(f64, f64)> =
        progress.filter_map(|event| Some((event["seconds"].as_f64()?, event["bytes"]["sent"].as_f64()?))).collect();
    let from = points.iter().find(|(at, _)| *at >= seconds * MIDDLE.start)?;
    let to = points.iter().rfind(|(at, _)| *at <= seconds * MIDDLE.end)?;
    let rate = (to.1 - from.1) / (to.0 - from.0);
    (rate > 0.0).then(|| seconds - to.0 - (sent - to.1) / rate)
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

fn copy(stand: &mut Endpoints, set: &str, paths: &str, what: &str) -> Result<Ended> {
    stand.done("a", "home-client", &["gen", set, "from/set"])?;
    let running = stand.start(&["--fsync", "never", "--paths", paths, "from/set/", "b:set/"])?;
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
}
