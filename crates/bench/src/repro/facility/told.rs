//! What the hub tells of a run, held against what happened to the chain: both are read from the lines that a run leaves.
//!
//! A sentence is of the last seconds, and holds where what it names was under way in them. That more is to be written at
//! the source holds until everything is. Invariant: a gap in time may be the machine's, and is kept apart from words that
//! are missing or untrue.
//!
//! Not here: who writes the lines (`course`).

use std::collections::BTreeMap;

use serde_json::Value;

use super::super::judge::Check;

/// Nothing has moved for so long: a moment of which the hub has to say what it waits for.
const STILL_SECONDS: f64 = 2.0;
/// And for so long, that what moved before has little part in a sentence.
const NAMED_SECONDS: f64 = STILL_SECONDS + 2.0;
/// A sentence is of four seconds, and told within two.
const OLD_SECONDS: f64 = 6.0;
/// So long after something was killed, cut or begun, what comes of it may still be what is waited for.
const BACK_SECONDS: f64 = 15.0;
/// Without an event, unless the hub itself was killed.
const SILENT_SECONDS: f64 = 3.0;
/// Of what is untrue, so much is shown.
const SHOWN_MAX: usize = 3;

/// An attempt has begun, and a job waits for its turn: these are heard of the hub and did not happen to the chain.
const NEW: &str = "New";
const WAITS: &str = "Waits";

/// What a sentence begins with behind `limited by `, and of what it would be true.
const NAMED: &[(&str, &[&str])] = &[
    ("the source's storage", &["Storage", "Kill(Instrument)"]),
    (DESTINATION, FAR),
    ("what the receiver has not confirmed", FAR),
    ("limited after the sender", FAR),
    ("limited before the receiver", &["Storage", "Kill(Instrument)", "Cut"]),
    ("the network", PATH),
    ("socket buffers", PATH),
    // Both sides list.
    ("finding work", &["Storage", "Stall", "Kill(Store)", "Kill(Archive)", "Kill(Instrument)", "Cut"]),
    ("too short to tell", BEGINS),
    ("connecting to ", BEGINS),
    ("waits for its turn at ", BEGINS),
    ("its order is on its way to ", BEGINS),
    ("instrument is asked ", &["Kill(Hub)"]),
    ("instrument has not answered ", &["Kill(Instrument)"]),
    ("archive has not answered ", &["Kill(Archive)", "Cut"]),
];
const BEGINS: &[&str] = &[NEW, "Kill(Archive)", "Kill(Instrument)", "Cut"];
const FAR: &[&str] = &["Stall", "Kill(Store)", "Kill(Archive)", "Cut"];
const PATH: &[&str] = &["Cut", "Kill(Archive)", "Kill(Instrument)"];
/// While one of these is so, no other name is true.
const STANDS: [&str; 3] = ["Stall", "Storage", "Cut"];
/// What an event has of all legs and both buffers.
const LEGS: [&str; 3] = ["read at ", " waiting at the source", " waiting at the destination"];
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
    /// Events of sessions that are not new, and such of them as leave out a leg or a buffer.
    pub settled: usize,
    pub partial: usize,
    /// Moments at which a job waited, and no reason was told.
    pub mute: usize,
    /// When nothing was told of a job that ran.
    pub silent: Vec<String>,
    /// Events before the first byte, and such of them as say nothing of what is waited for.
    pub early: usize,
    pub unsaid: usize,
    /// When a job was told to be less far than before.
    pub fell: Vec<String>,
    /// What was said to be waited for, and in how many events.
    pub named: BTreeMap<String, usize>,
}

impl Told {
    /// The claims; `late` is why gaps in time may be the laboratory's.
    pub fn checks(&self, late: &[String]) -> [Check; 7] {
        let some = |count: String, of: &[String]| {
            [vec![count], of.iter().take(SHOWN_MAX).cloned().collect()].concat().join("; ")
        };
        let Told { events, still, untrue, settled, partial, mute, silent, early, unsaid, fell, named } = self;
        let words = some(format!("{} of {still}, {events} events in all", untrue.len()), untrue);
        let is_so = untrue.is_empty() && *events > 0;
        let gaps = (some(silent.len().to_string(), silent), silent.is_empty());
        let partial = (*settled > 0).then_some(*partial as f64);
        // The first byte may have been quicker than the first event.
        let begun = (*early > 0).then(|| (format!("{unsaid} of {early}"), *unsaid == 0));
        let fallen = (some(fell.len().to_string(), fell), fell.is_empty());
        let mut named: Vec<_> = named.iter().collect();
        named.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
        let named: Vec<_> = named.into_iter().map(|(name, count)| format!("{name} {count}")).collect();
        let claims = [
            "seconds without progress of which the hub says nothing, or what was not so",
            "seconds of which events do not tell all legs and both buffers, in sessions that are not new",
            "moments at which a job waits and nobody says why",
            "gaps of more than 3 s in what the hub tells of a job that runs",
            "seconds before the first byte of which the hub does not say what is waited for",
            "times that the hub tells of fewer bytes than before, over all attempts",
            "what the hub said was waited for, in seconds",
        ];
        [
            Check::of(claims[0], "0, and events", Some((words, is_so))).of_any_machine(),
            Check::at_most(claims[1], 0.0, partial).of_any_machine(),
            Check::at_most(claims[2], 0.0, Some(*mute as f64)).of_any_machine(),
            Check::of(claims[3], "0", Some(gaps)).beside(late),
            Check::of(claims[4], "0", begun).of_any_machine(),
            Check::of(claims[5], "0", Some(fallen)).of_any_machine(),
            Check::told(claims[6], "", named.join(", ")),
        ]
    }
}

/// `course` and `events` have one JSON object a line.
pub fn check(course: &str, events: &str, volume_bytes: u64) -> Told {
    let (mut runs, mut told): (BTreeMap<String, Run>, Told) = Default::default();
    for line in lines(course) {
        runs.entry(text(&line["run"])).or_default().note(&line, volume_bytes, &mut told);
    }
    for event in lines(events) {
        // Others tell a change of a job, and nothing of its rate.
        let job = &event["data"]["jobs"][0];
        if job.is_object() {
            runs.entry(text(&event["run"])).or_default().hear(&event, job, &mut told);
        }
    }
    for (name, run) in &runs {
        let from = run.last.as_ref().map_or(0.0, |last| last.at);
        told.silent.extend(run.silence(name, from, run.asked_at));
    }
    told
}

fn lines(text: &str) -> impl Iterator<Item = Value> {
    text.lines().filter_map(|line| serde_json::from_str(line).ok())
}

fn is_empty_source(words: &str) -> bool {
    words.starts_with("0 B of ") && words.ends_with(" waiting at the source")
}

/// What a sentence says is waited for, without how much of it.
fn name_of(said: &str) -> String {
    let said = said.strip_prefix("limited by ").unwrap_or(said);
    let name = said.split([':', ';']).next().unwrap_or(said);
    // How long somebody has not answered differs from second to second.
    let name = name.split(" for ").next().unwrap_or(name);
    if name.is_empty() { "nothing was said".to_owned() } else { name.to_owned() }
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
    /// When the hub last answered for the job, of which round and attempt, and whether that waited without a reason.
    asked_at: f64,
    turn: Option<(Option<u64>, Option<u64>)>,
    is_mute: bool,
    last: Option<Last>,
    /// By who told it, and the job.
    reached: BTreeMap<(&'static str, String), u64>,
}

/// What was told last.
struct Last {
    at: f64,
    moved_at: f64,
    /// Bytes on their way, and of complete files.
    moved: (u64, u64),
}

impl Run {
    fn note(&mut self, line: &Value, volume_bytes: u64, told: &mut Told) {
        let at = line["at"].as_f64().unwrap_or(0.0);
        if line["written"].as_u64().is_some_and(|written| written >= volume_bytes) {
            self.written_at.get_or_insert(at);
        }
        if line["job"].is_object() {
            self.answered(at, line, told);
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
        self.began(name, at, until);
    }

    fn answered(&mut self, at: f64, line: &Value, told: &mut Told) {
        let job = &line["job"];
        let waits = job["status"] == "waiting";
        // One that is about to run has no reason, and runs at the next moment.
        let was_mute = std::mem::replace(&mut self.is_mute, waits && !job["reason"].is_string());
        told.mute += usize::from(was_mute && self.is_mute);
        if waits {
            self.began(WAITS, at, at + SILENT_SECONDS);
        }
        let turn = (line["round"].as_u64(), job["attempt"].as_u64());
        if self.turn.replace(turn) != Some(turn) {
            self.began(NEW, at, at + BACK_SECONDS);
        }
        self.asked_at = at;
        self.reach("the job", at, line, job, told);
    }

    /// Whether a job is not less far than it was.
    fn reach(&mut self, who: &'static str, at: f64, line: &Value, job: &Value, told: &mut Told) {
        let reached = job["bytes_reached"].as_u64().unwrap_or(0);
        let before = self.reached.insert((who, text(&job["id"])), reached).unwrap_or(0);
        if reached < before {
            told.fell.push(format!("{} at {at:.0} s: {who} says {reached} after {before}", text(&line["run"])));
        }
    }

    fn began(&mut self, name: &str, from: f64, until: f64) {
        self.causes.push(Cause { name: name.to_owned(), from, until });
    }

    fn hear(&mut self, event: &Value, job: &Value, told: &mut Told) {
        let bytes = |value: &Value| value.as_u64().unwrap_or(0);
        let (at, run) = (event["at"].as_f64().unwrap_or(0.0), text(&event["run"]));
        let moved = (bytes(&job["bytes_reached"]), bytes(&job["bytes"]["ok"]));
        let said = job["bottleneck"].as_str().unwrap_or_default();
        *told.named.entry(name_of(said)).or_default() += 1;
        self.reach("an event", at, event, job, told);
        let Some(Last { at: before, moved_at, moved: moved_before }) = self.last.take() else {
            let is_first = moved.0 > 0;
            self.last = is_first.then_some(Last { at, moved_at: at, moved });
            told.events += usize::from(is_first);
            told.early += usize::from(!is_first);
            told.unsaid += usize::from(!is_first && said.is_empty());
            return;
        };
        told.events += 1;
        told.silent.extend(self.silence(&run, before, at));
        if !self.is_new(at) {
            told.settled += 1;
            told.partial += usize::from(!LEGS.iter().all(|leg| said.contains(leg)));
        }
        let moved_at = if moved == moved_before { moved_at } else { at };
        self.last = Some(Last { at, moved_at, moved });
        if at - moved_at < STILL_SECONDS {
            return;
        }
        told.still += 1;
        if let Some(why) = self.untruth(at, moved_at, job) {
            told.untrue.push(format!("{run} at {at:.0} s: {why}"));
        }
    }

    /// Whether an attempt, or a process that has a part in it, has begun so shortly before that it tells less.
    fn is_new(&self, at: f64) -> bool {
        let is_start = |cause: &Cause| cause.name == NEW || cause.name == "Cut" || cause.name.starts_with("Kill");
        self.causes.iter().any(|cause| is_start(cause) && cause.from <= at && cause.until >= at)
    }

    /// What is to be said of a time without events: a hub that is killed has so long to come back, and of a job that
    /// waits its status is told.
    fn silence(&self, run: &str, from: f64, until: f64) -> Option<String> {
        let (mut longest, mut told_until) = (0.0, from);
        let is_excuse = |cause: &&Cause| cause.name == "Kill(Hub)" || cause.name == WAITS;
        for cause in self.causes.iter().filter(is_excuse) {
            if cause.from < until && cause.until > told_until {
                longest = f64::max(longest, cause.from - told_until);
                told_until = cause.until;
            }
        }
        let is_silent = f64::max(longest, until - told_until) > SILENT_SECONDS;
        is_silent.then(|| format!("{run}: nothing is told from {from:.0} to {until:.0} s"))
    }

    /// Why what is said of a moment is not so, where nothing has moved since another.
    fn untruth(&self, at: f64, moved_at: f64, job: &Value) -> Option<String> {
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
        if at - moved_at < NAMED_SECONDS {
            return None;
        }
        let Some((name, causes)) = NAMED.iter().find(|(name, _)| said.starts_with(name)) else {
            let stands = STANDS.into_iter().find(|cause| self.was(cause, moved_at, at))?;
            return Some(format!("{}, and there was a {stands}", name_of(said)));
        };
        // Everything was written, and has left the source: what is left is the destination's.
        let is_read = said.contains("read at 0 bit/s") && said.split(", ").any(is_empty_source);
        let is_written = self.written_at.is_some_and(|written_at| written_at <= at);
        let is_left = *name == DESTINATION && is_written && is_read;
        let is_so = is_left || causes.iter().any(|cause| self.was(cause, at - OLD_SECONDS, at));
        (!is_so).then(|| format!("{name}, to which nothing had happened"))
    }

    fn was(&self, name: &str, from: f64, until: f64) -> bool {
        self.causes.iter().any(|cause| cause.name == name && cause.from <= until && cause.until >= from)
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::Verdict;
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
        assert_eq!(check(COURSE, "", 100).checks(&[])[0].verdict, Verdict::Fail, "no event at all");
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
        assert_eq!(untrue(10..=17, "limited by the network: the sender's lanes waited"), 4);
    }

    #[test]
    fn a_name_that_can_be_the_limit_of_nothing_that_stands_is_untrue_while_something_does() {
        assert_eq!(untrue(24..=30, "limited by memory: lanes waited"), 3);
        assert_eq!(untrue(24..=30, "nothing stood out as the limit"), 3);
        assert_eq!(untrue(24..=30, "limited after the sender: the sender's lanes waited"), 0);
        assert_eq!(untrue(32..=38, "nothing stood out as the limit"), 0, "the store moves since 30");
    }

    #[test]
    fn a_hub_that_is_silent_was_killed_and_is_back_in_time() {
        let said = "limited by memory";
        let silent = |before: u32, after: u32| {
            let events = events(before..=before, said) + "\n" + &events(after..=after, said);
            check(COURSE, &events, 100).silent.len()
        };
        assert_eq!([silent(40, 46), silent(49, 55), silent(49, 67)], [1, 0, 0]);
        assert_eq!([silent(45, 55), silent(49, 69)], [1, 1], "silent before it was killed, and long after");
    }

    /// What the hub answers for the job at two moments.
    fn answers([one, other]: [u32; 2], job: &str) -> String {
        [one, other].map(|at| format!("{{\"run\":\"a\",\"at\":{at},\"round\":1,\"job\":{job}}}\n")).concat()
    }

    #[test]
    fn events_come_until_the_job_is_over_unless_it_waits() {
        let silent = |job: &str, events: &str| check(&answers([0, 46], job), events, 100).silent.len();
        let (running, waiting) = (r#"{"status":"running"}"#, r#"{"status":"waiting","reason":"retry"}"#);
        let heard = |until: u32| events(30..=until, "limited by memory");
        assert_eq!([silent(running, &heard(42)), silent(running, &heard(44)), silent(running, "")], [1, 0, 1]);
        let course = answers([43, 46], waiting);
        assert_eq!(check(&course, &heard(42), 100).silent.len(), 0);
    }

    #[test]
    fn a_job_that_waits_says_why() {
        let mute = |job: &str| check(&answers([1, 2], job), "", 100).mute;
        assert_eq!(mute(r#"{"status":"waiting"}"#), 1);
        assert_eq!(mute(r#"{"status":"waiting","reason":"space"}"#), 0);
        assert_eq!(mute(r#"{"status":"running"}"#), 0);
    }

    #[test]
    fn a_session_that_is_not_new_tells_all_legs_and_both_buffers() {
        let judged = |said: &str| {
            let told = check(&answers([1, 20], r#"{"attempt":1}"#), &events(10..=20, said), 100);
            (told.settled, told.partial)
        };
        let source = "limited by memory; read at 0 bit/s, stored at 0 bit/s, 0 B of 9 B waiting at the source";
        assert_eq!(judged(source), (4, 4), "from 17 on it is not new");
        assert_eq!(judged(&format!("{source}, 0 B of 9 B waiting at the destination")), (4, 0));
        let gaps = Told { settled: 4, silent: vec!["a gap".to_owned()], events: 1, ..Told::default() }.checks(&[]);
        assert_eq!(gaps.each_ref().map(|check| check.is_of_time), [false, false, false, true, false, false, true]);
        let verdicts = gaps.map(|check| check.verdict);
        assert_eq!(verdicts[..4], [Verdict::Pass, Verdict::Pass, Verdict::Pass, Verdict::Fail]);
        assert_eq!(verdicts[4..], [Verdict::Void, Verdict::Pass, Verdict::Told], "no second was before the first byte");
    }

    #[test]
    fn before_its_first_byte_a_job_says_what_it_waits_for() {
        let early = |said: &str| {
            let told = check("", &events(1..=3, said).replace(r#""bytes_reached":50"#, r#""bytes_reached":0"#), 100);
            assert_eq!((told.events, told.early), (0, 3));
            told.checks(&[])[4].verdict
        };
        assert_eq!([early("connecting to archive"), early("")], [Verdict::Pass, Verdict::Fail]);
    }

    #[test]
    fn a_job_is_never_told_to_be_less_far_whoever_asks() {
        let said = events(10..=11, "limited by memory");
        let fallen = said.clone() + "\n" + &events(12..=12, "").replace("50", "49");
        assert_eq!([said, fallen].map(|events| check("", &events, 100).fell.len()), [0, 1]);
        let asked =
            |job: &str| check(&(answers([1, 2], r#"{"bytes_reached":7}"#) + &answers([3, 4], job)), "", 100).fell;
        assert!(asked(r#"{"bytes_reached":7}"#).is_empty());
        assert_eq!(asked("{}"), ["a at 3 s: the job says 0 after 7"]);
    }

    #[test]
    fn what_was_waited_for_is_counted_by_its_name() {
        let said = [
            "limited by memory: lanes waited 4 %",
            "instrument has not answered for 5 s; where it runs, the job goes on",
        ];
        let told = check("", &said.map(|said| events(1..=2, said)).join("\n"), 100);
        let named = told.checks(&[])[6].measured.clone();
        assert_eq!(named, "instrument has not answered 2, memory 2");
    }
}
