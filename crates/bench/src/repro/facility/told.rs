//! What the hub tells while nothing moves, held against what happened to the chain: both are read from the lines that a run leaves.
//!
//! A sentence is of the last seconds, and holds where what it names was under way in them. That more is to be written at the source
//! holds until everything is.
//!
//! Not here: who writes the lines (`course`).

use std::collections::BTreeMap;

use serde_json::Value;

/// Nothing has moved for so long: a moment of which the hub has to say what it waits for.
const STILL_SECONDS: f64 = 2.0;
/// A sentence is of four seconds, and told within two.
const OLD_SECONDS: f64 = 6.0;
/// So long after something was killed or cut, what comes of it may still be what is waited for.
const BACK_SECONDS: f64 = 15.0;
/// Between two events, unless the hub itself was killed.
const SILENT_SECONDS: f64 = 3.0;

/// What a sentence begins with behind `limited by `, and of what it would be true.
const NAMED: &[(&str, &[&str])] = &[
    ("the source's storage", &["Storage", "Kill(Instrument)"]),
    (DESTINATION, &["Stall", "Kill(Store)", "Kill(Archive)", "Cut"]),
    ("the network", &["Cut", "Kill(Archive)", "Kill(Instrument)"]),
    ("socket buffers", &["Cut", "Kill(Archive)", "Kill(Instrument)"]),
];
const DESTINATION: &str = "the destination's storage";
const WRITTEN: &str = "what is written at the source";

/// What came of it.
#[derive(Default, Debug)]
pub struct Told {
    /// Events from the first byte on.
    pub events: usize,
    /// Of those, such of which nothing moved.
    pub still: usize,
    /// Where nothing was said, or what was not so.
    pub untrue: Vec<String>,
}

/// `course` and `events` have one JSON object a line.
pub fn check(course: &str, events: &str, volume_bytes: u64) -> Told {
    let mut runs: BTreeMap<String, Run> = BTreeMap::new();
    for line in lines(course) {
        runs.entry(text(&line["run"])).or_default().note(&line, volume_bytes);
    }
    let mut told = Told::default();
    for event in lines(events) {
        // Others tell a change of a job, and nothing of its rate.
        let job = &event["data"]["jobs"][0];
        if job.is_object() {
            runs.entry(text(&event["run"])).or_default().hear(&event, job, &mut told);
        }
    }
    told
}

fn lines(text: &str) -> impl Iterator<Item = Value> {
    text.lines().filter_map(|line| serde_json::from_str(line).ok())
}

fn is_empty_source(words: &str) -> bool {
    words.starts_with("0 B of ") && words.ends_with(" waiting at the source")
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// From when to when something was as it is called.
struct Cause {
    name: String,
    from: f64,
    until: f64,
}

#[derive(Default)]
struct Run {
    causes: Vec<Cause>,
    /// When all was written.
    written_at: Option<f64>,
    last: Option<Last>,
}

/// What was told last.
struct Last {
    at: f64,
    moved_at: f64,
    /// Bytes on their way, and of complete files.
    moved: (u64, u64),
}

impl Run {
    fn note(&mut self, line: &Value, volume_bytes: u64) {
        let at = line["at"].as_f64().unwrap_or(0.0);
        if line["written"].as_u64().is_some_and(|written| written >= volume_bytes) {
            self.written_at.get_or_insert(at);
        }
        let Some(word) = line["happens"].as_str() else { return };
        let (name, until) = match (word.strip_suffix("(true)"), word.strip_suffix("(false)")) {
            (Some(name), _) => (name, f64::INFINITY),
            (_, Some(name)) => {
                let ended = self.causes.iter_mut().filter(|cause| cause.name == name);
                return ended.for_each(|cause| cause.until = cause.until.min(at));
            }
            _ => (word, at + BACK_SECONDS),
        };
        self.causes.push(Cause { name: name.to_owned(), from: at, until });
    }

    fn hear(&mut self, event: &Value, job: &Value, told: &mut Told) {
        let bytes = |value: &Value| value.as_u64().unwrap_or(0);
        let (at, run) = (event["at"].as_f64().unwrap_or(0.0), text(&event["run"]));
        let moved = (bytes(&job["bytes_reached"]), bytes(&job["bytes"]["ok"]));
        let Some(Last { at: before, moved_at, moved: moved_before }) = self.last.take() else {
            let is_first = moved.0 > 0;
            self.last = is_first.then_some(Last { at, moved_at: at, moved });
            told.events += usize::from(is_first);
            return;
        };
        told.events += 1;
        if at - before > SILENT_SECONDS && !self.was("Kill(Hub)", before, at) {
            told.untrue.push(format!("{run}: nothing is told from {before:.0} to {at:.0} s"));
        }
        let moved_at = if moved == moved_before { moved_at } else { at };
        self.last = Some(Last { at, moved_at, moved });
        if at - moved_at < STILL_SECONDS {
            return;
        }
        told.still += 1;
        if let Some(why) = self.untruth(at, at - moved_at, job) {
            told.untrue.push(format!("{run} at {at:.0} s: {why}"));
        }
    }

    /// Why what is said of a moment is not so, after nothing has moved for so many seconds.
    fn untruth(&self, at: f64, still: f64, job: &Value) -> Option<String> {
        let said = job["bottleneck"].as_str().unwrap_or_default();
        if said.is_empty() {
            return Some("nobody says what is waited for".into());
        }
        let said = said.strip_prefix("limited by ").unwrap_or(said);
        if said.starts_with(WRITTEN) {
            let written_at = self.written_at.filter(|written_at| written_at + OLD_SECONDS < at)?;
            return Some(format!("{WRITTEN}, which was over at {written_at:.0} s"));
        }
        // In what moved until then each part of the chain had its share.
        if still < OLD_SECONDS {
            return None;
        }
        let (name, causes) = NAMED.iter().find(|(name, _)| said.starts_with(name))?;
        // Everything was written, and has left the source: what is left is the destination's.
        let is_read = said.contains("read at 0 bit/s") && said.split(", ").any(is_empty_source);
        let is_left = *name == DESTINATION && self.written_at.is_some() && is_read;
        let is_so = is_left || causes.iter().any(|cause| self.was(cause, at - OLD_SECONDS, at));
        (!is_so).then(|| format!("{name}, to which nothing had happened"))
    }

    fn was(&self, name: &str, from: f64, until: f64) -> bool {
        self.causes.iter().any(|cause| cause.name == name && cause.from <= until && cause.until >= from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All is written at 20 s, the store stands still from 27 to 30, the hub is killed at 50.
    const COURSE: &str = r#"{"run":"a","at":19.0,"written":99}
{"run":"a","at":20.0,"written":100}
{"run":"a","at":27.0,"happens":"Stall(true)"}
{"run":"a","at":30.0,"happens":"Stall(false)"}
{"run":"a","at":50.0,"happens":"Kill(Hub)"}
"#;

    /// One event a second, of which nothing moves after the first.
    fn events(seconds: std::ops::RangeInclusive<u32>, said: &str) -> String {
        let event = |at: u32| {
            let job = format!(r#"{{"bytes_reached":50,"bytes":{{"ok":10}},"bottleneck":"{said}"}}"#);
            format!(r#"{{"run":"a","at":{at},"data":{{"jobs":[{job}]}}}}"#)
        };
        seconds.map(event).collect::<Vec<_>>().join("\n")
    }

    fn untrue(seconds: std::ops::RangeInclusive<u32>, said: &str) -> usize {
        let told = check(COURSE, &events(seconds.clone(), said), 100);
        assert_eq!((told.events, told.still), (seconds.clone().count(), seconds.count() - 2), "{told:?}");
        told.untrue.len()
    }

    #[test]
    fn whoever_waits_has_to_say_for_what() {
        assert_eq!(untrue(10..=15, ""), 4);
        assert_eq!(untrue(10..=15, "limited by memory: lanes waited"), 0);
    }

    #[test]
    fn more_is_to_be_written_until_everything_is() {
        let said = "limited by what is written at the source: lanes waited 90 % of the time for more";
        assert_eq!(untrue(10..=26, said), 0, "the sentence is of the last seconds");
        assert_eq!(untrue(10..=28, said), 2);
    }

    #[test]
    fn what_is_named_had_something_happen_to_it() {
        let store = "limited by the destination's storage: the receiver's lanes spent 90 % of the time writing";
        assert_eq!(untrue(25..=36, store), 0);
        assert_eq!(untrue(25..=38, store), 2, "the store moves since 30");
        let read = "; read at 0 bit/s, stored at 0 bit/s, 0 B of 368 MiB waiting at the source";
        assert_eq!(untrue(40..=47, &format!("{store}{read}")), 0, "nothing is left but to store it");
        assert_eq!(untrue(10..=17, "limited by the network: the sender's lanes waited"), 2);
    }

    #[test]
    fn a_hub_that_is_silent_was_killed() {
        let said = "limited by memory";
        let with_a_gap = |before: u32, after: u32| events(before..=before, said) + "\n" + &events(after..=after, said);
        assert_eq!(check(COURSE, &with_a_gap(40, 46), 100).untrue.len(), 1);
        assert_eq!(check(COURSE, &with_a_gap(49, 55), 100).untrue.len(), 0);
        assert_eq!(check(COURSE, "", 100).events, 0);
    }
}
