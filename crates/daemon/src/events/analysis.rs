//! Event logs of several hosts, read together: one order of all events, and the rate at any moment.
//!
//! The clocks of two hosts differ. What the log of one host says of a job lies between the start and the end of what the other
//! host asked for; each job that both know bounds their difference from both sides. Where the clocks are within these bounds they
//! are believed; where they are not, the least correction is made that puts no effect before its cause.
//!
//! Not here: writing events (`super`).

use model::mutant;
use serde_json::Value;
use std::collections::{BTreeMap, HashMap};
use std::io::{self, BufRead, Read};

const LINE_BYTES_MAX: u64 = 64 << 10;
/// Of all logs together; they are held in memory to be ordered.
pub const EVENTS_MAX: usize = 1_000_000;

/// A line of a log.
#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    /// Microseconds since 1970, by the clock of its host.
    pub at_us: i64,
    pub host: String,
    pub name: String,
    pub guid: String,
    /// The whole line.
    pub fields: Value,
}

/// What was read of a log.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Log {
    pub events: Vec<Event>,
    /// Lines that are no events: torn, too long, or of something else.
    pub left_out: u64,
}

/// Reads a log, at most `room` events of it.
pub fn read(mut from: impl BufRead, room: usize) -> io::Result<Log> {
    let mut read = Log::default();
    let mut line = Vec::new();
    loop {
        line.clear();
        if (&mut from).take(LINE_BYTES_MAX).read_until(b'\n', &mut line)? == 0 {
            return Ok(read);
        }
        if line.last() != Some(&b'\n') && line.len() as u64 >= LINE_BYTES_MAX {
            skip_line(&mut from)?;
        }
        match event(&line) {
            Some(_) if read.events.len() >= room => {
                return Err(io::Error::other(format!("more than {EVENTS_MAX} events in all: give shorter logs")));
            }
            Some(event) => read.events.push(event),
            None => read.left_out += u64::from(!line.trim_ascii().is_empty()),
        }
    }
}

fn skip_line(from: &mut impl BufRead) -> io::Result<()> {
    loop {
        let part = from.fill_buf()?;
        let end = part.iter().position(|byte| *byte == b'\n');
        let used = end.map_or(part.len(), |end| end + 1);
        let is_over = end.is_some() || part.is_empty();
        from.consume(used);
        if is_over {
            return Ok(());
        }
    }
}

fn event(line: &[u8]) -> Option<Event> {
    let fields: Value = serde_json::from_slice(line).ok()?;
    let text = |key: &str| fields[key].as_str().map(str::to_owned);
    let (at_us, host, name, guid) = (parse_ts(fields["ts"].as_str()?)?, text("host")?, text("event")?, text("guid")?);
    Some(Event { at_us, host, name, guid, fields })
}

/// `2026-11-23T06:20:00.123456Z`.
fn parse_ts(text: &str) -> Option<i64> {
    let bytes = text.as_bytes();
    let is_shaped = bytes.len() == 27 && text.is_ascii() && bytes[10] == b'T' && bytes[19] == b'.' && bytes[26] == b'Z';
    let number = |from: usize, to: usize| text.get(from..to)?.parse::<u32>().ok().map(i64::from);
    let (year, month, day) = (number(0, 4)?, number(5, 7)?, number(8, 10)?);
    let (hour, minute, second, micros) = (number(11, 13)?, number(14, 16)?, number(17, 19)?, number(20, 26)?);
    if !is_shaped || !(1..=12).contains(&month) || !(1..=31).contains(&day) || hour > 23 || minute > 59 || second > 60 {
        return None;
    }
    // Days since 1970 of a Gregorian date, years counted from March.
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let (era, of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let days = era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + (153 * month + 2) / 5 + day - 1 - 719_468;
    Some(((days * 24 + hour) * 60 + minute) * 60_000_000 + second * 1_000_000 + micros)
}

/// How far each host's clock has to be set forward, in microseconds, so that no effect comes before its cause; the first host's is
/// believed.
pub fn corrections(events: &[Event]) -> BTreeMap<String, i64> {
    // By job and host: who asked (`order`), and who did (`job`), with the first start and the last end of each.
    let mut spans: Spans<'_> = HashMap::new();
    for event in events {
        let asks = event.name.starts_with("thalweg.order.");
        if !asks && !event.name.starts_with("thalweg.job.") {
            continue;
        }
        let span = spans.entry(&event.guid).or_default().entry((&event.host, asks)).or_default();
        match () {
            () if event.name.ends_with(".start") => span.0 = Some(span.0.map_or(event.at_us, |at| at.min(event.at_us))),
            () if event.name.ends_with(".end") => span.1 = span.1.max(Some(event.at_us)),
            () => {}
        }
    }
    let mut hosts: BTreeMap<String, i64> = BTreeMap::new();
    let Some(first) = events.first() else { return hosts };
    hosts.insert(first.host.clone(), 0);
    // From the hosts whose clocks are known to those that share a job with them, until nothing more is learnt.
    while let Some((host, correction)) = next_host(&spans, &hosts) {
        hosts.insert(host, correction);
    }
    for event in events {
        hosts.entry(event.host.clone()).or_insert(0);
    }
    hosts
}

/// When something began and ended, as far as it is known.
type Span = (Option<i64>, Option<i64>);
type Spans<'a> = HashMap<&'a str, HashMap<(&'a str, bool), Span>>;

fn next_host(spans: &Spans<'_>, known: &BTreeMap<String, i64>) -> Option<(String, i64)> {
    let mut bounds: BTreeMap<&str, (i64, i64)> = BTreeMap::new();
    for of_job in spans.values() {
        let asked = of_job.iter().filter(|((_, asks), _)| *asks);
        for ((asker, _), outer) in asked {
            for ((doer, _), inner) in of_job.iter().filter(|((_, asks), _)| !*asks) {
                // What is done lies within what was asked for: so much at least, and at most, has to be added to one clock.
                let starts = outer.0.zip(inner.0).map(|(outer, inner)| outer.saturating_sub(inner));
                let ends = outer.1.zip(inner.1).map(|(outer, inner)| outer.saturating_sub(inner));
                let (host, low, high) = match (known.get(*asker), known.get(*doer)) {
                    (Some(at), None) => {
                        (*doer, starts.map(|by| by.saturating_add(*at)), ends.map(|by| by.saturating_add(*at)))
                    }
                    (None, Some(at)) => {
                        (*asker, ends.map(|by| at.saturating_sub(by)), starts.map(|by| at.saturating_sub(by)))
                    }
                    _ => continue,
                };
                let bound = bounds.entry(host).or_insert((i64::MIN, i64::MAX));
                *bound = (bound.0.max(low.unwrap_or(i64::MIN)), bound.1.min(high.unwrap_or(i64::MAX)));
            }
        }
    }
    let (host, (low, high)) = bounds.into_iter().next()?;
    if mutant::is_on("clocks-are-right") {
        return Some((host.to_owned(), 0));
    }
    // Bounds that exclude each other: the clock was set in between. The middle is as good as anything.
    let correction = if low > high { low / 2 + high / 2 } else { 0.clamp(low, high) };
    Some((host.to_owned(), correction))
}

/// All events in one order, each with the time by the first host's clock.
pub fn merged(mut events: Vec<Event>) -> (Vec<Event>, BTreeMap<String, i64>) {
    let corrections = corrections(&events);
    for event in &mut events {
        event.at_us = event.at_us.saturating_add(corrections[&event.host]);
    }
    events.sort_by_key(|event| (event.at_us, rank(&event.name)));
    (events, corrections)
}

/// At one moment a start comes before an end, and what was asked for goes around what was done.
fn rank(name: &str) -> u8 {
    match (name.ends_with(".end"), name.starts_with("thalweg.order.")) {
        (false, true) => 0,
        (false, false) => 1,
        (true, false) => 2,
        (true, true) => 3,
    }
}

/// From this moment on, until the next one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Moment {
    pub at_us: i64,
    pub bytes_per_second: f64,
    pub jobs: u32,
}

/// The rate at each moment: every job counts from its start to its end with its mean rate, and those that overlap are added up. A
/// job that both ends tell of counts once.
pub fn rates(events: &[Event]) -> Vec<Moment> {
    let mut open: HashMap<(&str, &str), i64> = HashMap::new();
    let mut spans: HashMap<&str, Vec<(i64, i64, f64, &str)>> = HashMap::new();
    for event in events {
        let Some(rest) = event.name.strip_prefix("thalweg.job.") else { continue };
        let key = (event.guid.as_str(), event.host.as_str());
        if rest.ends_with(".start") {
            open.insert(key, event.at_us);
        } else if rest.ends_with(".end")
            && let Some(start) = open.remove(&key)
        {
            let moved = ["bytes_sent", "bytes"].iter().find_map(|key| event.fields[key].as_u64());
            let bytes = moved.unwrap_or(0) as f64;
            spans.entry(&event.guid).or_default().push((start, event.at_us, bytes, &event.host));
        }
    }
    let mut steps: BTreeMap<i64, (f64, i32)> = BTreeMap::new();
    for of_job in spans.values() {
        let host = of_job.iter().map(|(_, _, _, host)| *host).min();
        for (start, end, bytes, _) in of_job.iter().filter(|(_, _, _, of)| Some(*of) == host) {
            let rate = bytes * 1e6 / (end - start).max(1) as f64;
            let from = steps.entry(*start).or_default();
            (from.0, from.1) = (from.0 + rate, from.1 + 1);
            let to = steps.entry((*end).max(start + 1)).or_default();
            (to.0, to.1) = (to.0 - rate, to.1 - 1);
        }
    }
    let (mut rate, mut jobs) = (0.0, 0);
    let step = |(at_us, (more, started)): (i64, (f64, i32))| {
        (rate, jobs) = (rate + more, jobs + started);
        // Without a job nothing is left but what rounding left.
        let bytes_per_second = if jobs == 0 { 0.0 } else { f64::max(rate, 0.0) };
        Moment { at_us, bytes_per_second, jobs: jobs.max(0) as u32 }
    };
    steps.into_iter().map(step).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn line(host: &str, at_us: i64, name: &str, guid: &str, bytes: u64) -> Event {
        let (host, name, guid) = (host.to_owned(), name.to_owned(), guid.to_owned());
        Event { at_us, host, name, guid, fields: json!({"bytes": bytes}) }
    }

    #[test]
    fn what_is_written_is_read_and_the_rest_is_counted() {
        let dir = tempfile::tempdir().unwrap();
        let log = super::super::EventLog::new(dir.path(), "a");
        log.start("thalweg.job.send", "1", json!({}));
        let mut text = std::fs::read(dir.path().join("events.jsonl")).unwrap();
        text.extend_from_slice(b"{\"ts\":\"2026-11-23T06:20:00.000001Z\"}\nnonsense\n\xff\n\n");
        text.extend(std::iter::repeat_n(b'x', 100_000));
        text.extend_from_slice(
            b"\n{\"ts\":\"1970-01-02T00:00:01.000002Z\",\"host\":\"b\",\"event\":\"e\",\"guid\":\"g\"}",
        );
        let found = read(&text[..], 10).unwrap();
        assert_eq!((found.events.len(), found.left_out), (2, 4));
        assert_eq!(found.events[1].at_us, 86_401_000_002);
        assert!(read(&text[..], 1).is_err());
        for wrong in ["", "2026-13-01T00:00:00.000000Z", "2026-01-01 00:00:00.000000Z", "2026-01-01T00:00:00Z"] {
            assert_eq!(parse_ts(wrong), None, "{wrong}");
        }
        assert_eq!(parse_ts("2096-10-02T07:06:40.000000Z"), Some(4_000_000_000_000_000));
    }

    #[test]
    fn no_effect_comes_before_its_cause_however_wrong_the_clocks_are() {
        for offset in [-3_600_000_000, -1, 0, 5, 1_000_000, 7_200_000_000i64] {
            let mut events = vec![
                line("a", 1_000_000, "thalweg.order.attempt.start", "j", 0),
                line("a", 9_000_000, "thalweg.order.attempt.end", "j", 0),
            ];
            events.extend([
                line("b", 2_000_000 + offset, "thalweg.job.receive.start", "j", 0),
                line("b", 8_000_000 + offset, "thalweg.job.receive.end", "j", 5),
            ]);
            let (merged, corrections) = merged(events);
            let names: Vec<_> = merged.iter().map(|event| (&event.host[..], event.name.ends_with("start"))).collect();
            assert_eq!(names, [("a", true), ("b", true), ("b", false), ("a", false)], "{offset}: {corrections:?}");
            assert_eq!(corrections["a"], 0);
            assert!(offset.abs() > 1_000_000 || corrections["b"] == 0, "a clock that may be right is believed");
        }
    }

    #[test]
    fn a_host_that_nobody_knows_of_keeps_its_clock() {
        let (merged, corrections) = merged(vec![line("a", 5, "x.start", "1", 0), line("z", 1, "x.start", "2", 0)]);
        assert_eq!((&merged[0].host[..], corrections["z"]), ("z", 0));
        assert_eq!(super::merged(Vec::new()).0, []);
    }

    #[test]
    fn overlapping_means_are_added_up_and_a_job_counts_once() {
        let events = [
            line("a", 0, "thalweg.job.send.start", "1", 0),
            line("b", 0, "thalweg.job.receive.start", "1", 0),
            line("a", 1_000_000, "thalweg.job.send.start", "2", 0),
            line("b", 2_000_000, "thalweg.job.receive.end", "1", 2000),
            line("a", 2_000_000, "thalweg.job.send.end", "1", 2000),
            line("a", 3_000_000, "thalweg.job.send.end", "2", 8000),
            line("a", 4_000_000, "thalweg.job.send.end", "unknown", 1),
        ];
        let told: Vec<_> = rates(&events).iter().map(|m| (m.at_us / 1_000_000, m.bytes_per_second, m.jobs)).collect();
        assert_eq!(told, [(0, 1000.0, 1), (1, 5000.0, 2), (2, 4000.0, 1), (3, 0.0, 0)]);
    }
}
