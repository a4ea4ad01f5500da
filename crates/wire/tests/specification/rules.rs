//! Golden sessions whose frames were dropped, doubled, moved or made up: each breaks one rule of the specification, and the
//! second decoder names it. Shows that the decoder holds the rules and does not only parse.
//!
//! The session is the push. Its object 1 is a directory, 3 the file of three chunks and 4 that of one.

use crate::golden::recording;
use crate::second_decoder::recording::{Event, Recording, Side, What};
use crate::second_decoder::{Outcome, decode};
use wire::message::{
    self, Credit, Entries, EntryRecord, ExtentRecord, Finish, Held, Resend, Run, Settled, Times, Want,
};
use wire::{FrameHeader, Message, frame};

/// What a session is after an edit.
#[derive(Clone, Copy, Debug)]
enum Verdict {
    /// Refused, with this in the reason.
    Refused(&'static str),
    /// Allowed, with this in the transcript.
    Said(&'static str),
}
use Verdict::{Refused, Said};

type Edit = fn(&mut Frames);

#[test]
fn a_frame_that_is_missing_is_missed() {
    for (label, verdict) in [
        ("Hello", Refused("the server speaks first")),
        ("Welcome", Refused("does not belong here")),
        ("Open", Refused("content of job 1")),
        ("Accept", Refused("a job without an answer")),
        ("Entries", Refused("the listing ends with")),
        ("ListEnd", Refused("finishes before its listing ended")),
        ("Want", Refused("content for what is Described")),
        ("Settled", Refused("the job finishes with")),
        ("Finish", Refused("is finished and was Open")),
        ("Finished", Refused("a job that is Finishing")),
        ("join", Refused("does not belong here")),
        ("chunk at 1048576", Refused("held and not received")),
        ("pack", Refused("published and not known to be good")),
        ("Close", Said("the session ends without a Close")),
    ] {
        check(label, |frames| drop(frames.take(label)), verdict);
    }
}

#[test]
fn a_frame_that_comes_twice_is_refused_unless_it_may() {
    for (label, verdict) in [
        ("Hello", Refused("does not belong here")),
        ("Welcome", Refused("does not belong here")),
        ("Open", Refused("job 1 is open")),
        ("Accept", Refused("a second answer")),
        ("Entries", Refused("a batch begins with 1, not 27")),
        ("ListEnd", Refused("the listing ends twice")),
        ("Want", Refused("is wanted and Wanted")),
        ("Settled", Refused("is settled and Published")),
        ("Finish", Refused("finishes and is Finishing")),
        ("Close", Refused("a message after Close")),
        ("join", Refused("does not belong here")),
        ("end", Refused("content after the end")),
        ("chunk at 1048576", Said("again")),
        ("Finished", Said("(ignored)")),
    ] {
        check(label, |frames| frames.double(label), verdict);
    }
}

#[test]
fn a_frame_that_comes_too_early_is_refused() {
    for (label, before, verdict) in [
        ("chunk at 1048576", "Want", Refused("content for what is Described")),
        ("Want", "Entries", Refused("was not described")),
        ("Finish", "Want", Refused("the job finishes with")),
        ("Finished", "Finish", Refused("is finished and was Open")),
        ("Held", "Want", Refused("held and not received")),
        ("ListEnd", "Entries", Refused("the listing ends with")),
    ] {
        check(label, |frames| frames.move_before(before, label), verdict);
    }
}

#[test]
fn a_message_of_the_wrong_side_or_about_the_wrong_object_is_refused() {
    let want = |first, count| Want { job: 1, runs: vec![Run { first, count }], extents: Vec::new() };
    let extents = |object, start, end| vec![ExtentRecord { object, start, end }];
    let run = |first| vec![Run { first, count: 1 }];
    let cases: [(Message, Side, &str, Verdict); 12] = [
        (entries(27, 1).into(), Side::Server, "Open", Refused("from the wrong side")),
        (want(1, 1).into(), Side::Client, "Entries", Refused("from the wrong side")),
        (want(1, 1).into(), Side::Server, "Want", Refused("has no content to be wanted")),
        (want(1, 0).into(), Side::Server, "Want", Refused("a run of 0")),
        (want(27, 1).into(), Side::Server, "Want", Refused("was not described")),
        (want(u64::MAX, 2).into(), Side::Server, "Want", Refused("a run of 2")),
        (want(1, 1 << 40).into(), Side::Server, "Want", Refused("a run of 1099511627776")),
        (
            Settled { job: 1, skipped: run(1), ..Settled::default() }.into(),
            Side::Server,
            "Want",
            Refused("settled singly"),
        ),
        (
            Held { job: 1, extents: extents(3, 0, 1 << 20) }.into(),
            Side::Server,
            "Want",
            Refused("held and not received"),
        ),
        (Finish { job: 1 }.into(), Side::Client, "ListEnd", Refused("the job finishes with")),
        (
            Resend { job: 1, runs: run(4), ..Resend::default() }.into(),
            Side::Server,
            "Finish",
            Refused("to be sent again"),
        ),
        (Times::default().into(), Side::Client, "Open", Said("(ignored)")),
    ];
    for (message, from, after, verdict) in cases {
        check(after, |frames| frames.insert_after(after, from, &message::encode(message.clone())), verdict);
    }
}

#[test]
fn wants_of_parts_name_whole_chunks_in_order() {
    let big = 3;
    for (extents, verdict) in [
        (vec![(0, 1 << 20), (2 << 20, 5 << 19)], Said("start=2097152 end=2621440")),
        (vec![(2 << 20, 5 << 19), (0, 1 << 20)], Refused("are not in order")),
        (vec![(1, 1 << 20)], Refused("is no row of chunks")),
        (vec![(0, 1000)], Refused("is no row of chunks")),
        (vec![(0, 3 << 20)], Refused("is no row of chunks")),
        (vec![(1 << 20, 1 << 20)], Refused("the extent 1048576..1048576")),
    ] {
        let records = extents.into_iter().map(|(start, end)| ExtentRecord { object: big, start, end }).collect();
        let want = Want { job: 1, runs: Vec::new(), extents: records };
        let edit = |frames: &mut Frames| {
            let place = frames.place("Want");
            // Only the message is looked at: what follows would not fit it.
            frames.recording.events.truncate(place);
            frames.insert_after("ListEnd", Side::Server, &message::encode(want.clone()));
        };
        check("extents", edit, verdict);
    }
}

#[test]
fn credit_and_batch_limits_are_held() {
    let cases: [(&str, Edit, Verdict); 7] = [
        ("entries", |s| s.describe(4, 1024), Refused("4122 entries described, 4096 granted")),
        ("entries with credit", |s| s.describe_with_credit(), Refused("not 4122")),
        ("a large batch", |s| s.describe(1, 1025), Refused("a batch of 1025 entries")),
        ("an empty batch", |s| s.describe(1, 0), Refused("a batch of 0 entries")),
        ("a gap", |s| s.insert_after("Entries", Side::Client, &message::encode(entries(28, 1))), Refused("not 27")),
        ("bytes in flight", |s| s.shrink_credit(), Refused("in flight, 1 granted")),
        (
            "one frame in flight",
            |s| {
                s.shrink_credit();
                s.keep_first_content();
            },
            Refused("the job finishes with"),
        ),
    ];
    for (name, edit, verdict) in cases {
        check(name, edit, verdict);
    }
}

#[test]
fn unknown_frames_and_messages_are_skipped_only_where_they_say_so() {
    let with_type = |frame_type, flags| [&[frame_type, flags, 0, 0, 3, 0, 0, 0][..], &[0xfa, 7, 0]].concat();
    for (bytes, verdict) in [
        (with_type(200, 1), Said("type 200 skipped, 3 bytes")),
        (with_type(200, 0), Refused("unknown and may not be skipped")),
        (with_type(200, 3), Refused("are not zero")),
        (with_type(1, 0), Said("Envelope unknown=127 skipped")),
        (with_type(5, 0), Refused("does not belong here")),
        (frame::encode(wire::FrameType::Message, &[]), Refused("0 fields in an envelope")),
        (with_two_fields(), Refused("2 fields in an envelope")),
        (FrameHeader::new(wire::FrameType::Message, (1 << 20) + 1).encode().to_vec(), Refused("more than 1048576")),
    ] {
        check("a frame", |frames| frames.insert_after("Open", Side::Client, &bytes), verdict);
    }
}

fn with_two_fields() -> Vec<u8> {
    let both = [Finish { job: 9 }.into(), Message::from(Times::default())].map(|m| message::encode(m).split_off(8));
    frame::encode(wire::FrameType::Message, &both.concat())
}

fn entries(first: u64, count: u64) -> Entries {
    let entry = |id| EntryRecord { name: format!("more-{id}").into_bytes(), kind: 2, ..EntryRecord::default() };
    Entries { job: 1, first, entries: (first..first + count).map(entry).collect() }
}

fn check(name: &str, edit: impl Fn(&mut Frames), verdict: Verdict) {
    let mut frames = Frames::of(&recording("push"));
    // Allowed, and the edits need not care where it came.
    frames.move_after("Hello", "Welcome");
    edit(&mut frames);
    let read = decode(&frames.recording, &Outcome::default());
    let is_expected = match (&read, verdict) {
        (Err(refusal), Refused(reason)) => refusal.reason.contains(reason),
        (Ok((transcript, _)), Said(words)) => transcript.iter().any(|line| line.contains(words)),
        _ => false,
    };
    let found = read.map(|(transcript, _)| transcript);
    assert!(is_expected, "{name}: expected {verdict:?}, found {found:#?}");
}

/// A recording in which every event is one frame or the end of a direction.
struct Frames {
    recording: Recording,
    /// What each event is, in step with the events.
    labels: Vec<String>,
}

impl Frames {
    fn of(recording: &Recording) -> Frames {
        let mut frames = Frames { recording: Recording::default(), labels: Vec::new() };
        frames.recording.streams.clone_from(&recording.streams);
        let mut partial: std::collections::BTreeMap<(usize, Side), Vec<u8>> = Default::default();
        for event in &recording.events {
            let What::Bytes(bytes) = &event.what else {
                frames.labels.push("ended".to_owned());
                frames.recording.events.push(event.clone());
                continue;
            };
            let held = partial.entry((event.stream, event.from)).or_default();
            held.extend_from_slice(bytes);
            while let Some(length) = held.get(4..8).map(|length| u32::from_le_bytes(length.try_into().unwrap()))
                && held.len() >= 8 + length as usize
            {
                let rest = held.split_off(8 + length as usize);
                let frame = std::mem::replace(held, rest);
                frames.labels.push(label(&frame));
                frames.recording.events.push(Event { what: What::Bytes(frame), ..event.clone() });
            }
        }
        frames
    }

    fn place(&self, label: &str) -> usize {
        self.labels.iter().position(|found| found == label).unwrap_or_else(|| panic!("no {label} in {:?}", self.labels))
    }

    fn take(&mut self, label: &str) -> Event {
        let place = self.place(label);
        self.labels.remove(place);
        self.recording.events.remove(place)
    }

    fn put(&mut self, place: usize, label: &str, event: Event) {
        self.labels.insert(place, label.to_owned());
        self.recording.events.insert(place, event);
    }

    fn double(&mut self, label: &str) {
        let place = self.place(label);
        self.put(place, label, self.recording.events[place].clone());
    }

    fn move_before(&mut self, before: &str, label: &str) {
        let event = self.take(label);
        self.put(self.place(before), label, event);
    }

    fn move_after(&mut self, after: &str, label: &str) {
        let event = self.take(label);
        self.put(self.place(after) + 1, label, event);
    }

    /// Puts a frame on the control stream.
    fn insert_after(&mut self, after: &str, from: Side, frame: &[u8]) {
        let stream = self.recording.events[self.place("Hello")].stream;
        self.put(self.place(after) + 1, "inserted", Event { stream, from, what: What::Bytes(frame.to_vec()) });
    }

    fn describe(&mut self, batches: u64, count: u64) {
        for batch in (0..batches).rev() {
            self.insert_after("Entries", Side::Client, &message::encode(entries(27 + batch * count, count)));
        }
    }

    fn describe_with_credit(&mut self) {
        self.move_after("Credit", "Entries");
        self.move_after("Entries", "ListEnd");
        self.describe(4, 1024);
    }

    /// Leaves one byte of credit and no acknowledgement.
    fn shrink_credit(&mut self) {
        self.retain(|label| label != "Held" && label != "Settled");
        let credit = Credit { job: 1, entries: 0, in_flight_bytes: 1 };
        self.insert_after("Want", Side::Server, &message::encode(credit));
    }

    fn keep_first_content(&mut self) {
        let mut is_first = true;
        self.retain(|label| {
            let is_content = label.starts_with("chunk") || label == "pack";
            !is_content || std::mem::take(&mut is_first)
        });
    }

    fn retain(&mut self, mut is_kept: impl FnMut(&str) -> bool) {
        let events = std::mem::take(&mut self.recording.events);
        let frames = std::mem::take(&mut self.labels).into_iter().zip(events).filter(|(label, _)| is_kept(label));
        (self.labels, self.recording.events) = frames.unzip();
    }
}

fn label(frame: &[u8]) -> String {
    match frame[0] {
        1 => {
            let message = format!("{:?}", message::decode(&frame[8..]).unwrap().unwrap());
            message.split('(').next().unwrap().to_owned()
        }
        2 => "join".to_owned(),
        3 => format!("chunk at {}", u64::from_le_bytes(frame[16..24].try_into().unwrap())),
        4 => "pack".to_owned(),
        _ => "end".to_owned(),
    }
}
