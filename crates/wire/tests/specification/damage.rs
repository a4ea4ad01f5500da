//! Damaged golden sessions: the second decoder refuses them or tells another story, and never panics.
//!
//! Every byte that is not payload is damaged once, in a bit that depends on its place; of payload, one byte in some
//! thousands.

use crate::golden::{SESSIONS, joined, left_before, recording};
use crate::second_decoder::recording::{Event, Recording, Side, What};
use crate::second_decoder::session::Session;
use crate::second_decoder::{Outcome, decode};

const PAYLOAD_STRIDE: usize = 49_999;

#[test]
fn every_damaged_byte_is_refused_or_seen() {
    for (name, _) in SESSIONS {
        let whole = recording(name);
        let mut events = whole.events.clone();
        let earlier = left_before(name);
        let story = Story::of(&whole, &earlier);
        let places = places(&whole);
        assert!(places.len() > 100, "{name}: {} places", places.len());
        for &(event, at) in &places {
            let bit = 1 << ((at + event) % 8);
            flip(&mut events[event], at, bit);
            let is_another = story.is_another_from(event, &events);
            assert!(is_another, "{name}: bit {bit:#04x} of byte {at} of event {event}");
            flip(&mut events[event], at, bit);
        }
        assert!(!story.is_another_from(0, &events), "{name} is whole again");
    }
}

#[test]
fn a_session_that_lost_events_never_panics() {
    for (name, _) in SESSIONS {
        let whole = recording(name);
        let earlier = left_before(name);
        for lost in 0..whole.events.len() {
            let mut damaged = whole.clone();
            damaged.events.remove(lost);
            let _ = decode(&damaged, &earlier);
            damaged.events.truncate(lost);
            let _ = decode(&damaged, &earlier);
        }
    }
}

/// How a session reads, event by event.
struct Story<'a> {
    /// What was known before each event, and after the last.
    states: Vec<Session<'a>>,
    transcript: Vec<String>,
    outcome: Outcome,
}

impl<'a> Story<'a> {
    fn of(recording: &'a Recording, earlier: &'a Outcome) -> Story<'a> {
        let mut session = Session::new(recording, earlier).unwrap();
        let mut states = vec![session.clone()];
        for event in &recording.events {
            session.event(event).unwrap();
            states.push(session.clone());
        }
        let (transcript, outcome) = session.finish().unwrap();
        Story { states, transcript, outcome }
    }

    /// Whether the session is refused or reads differently when its events from the `first` on are these. Stops at the
    /// first difference.
    fn is_another_from(&self, first: usize, events: &[Event]) -> bool {
        let mut session = self.states[first].clone();
        for (event, expected) in events.iter().zip(&self.states[1..]).skip(first) {
            if session.event(event).is_err() || session.transcript != expected.transcript {
                return true;
            }
        }
        session.finish().map_or(true, |(transcript, outcome)| transcript != self.transcript || outcome != self.outcome)
    }
}

fn flip(event: &mut Event, at: usize, bit: u8) {
    let What::Bytes(bytes) = &mut event.what else { panic!("an event without bytes") };
    bytes[at] ^= bit;
}

/// Events and positions in them of the bytes to damage.
fn places(recording: &Recording) -> Vec<(usize, usize)> {
    let mut places = Vec::new();
    for stream in 0..recording.streams.len() {
        for from in [Side::Client, Side::Server] {
            let mut wanted = chosen(&joined(recording, stream, from)).into_iter().peekable();
            let mut start = 0;
            for (number, event) in recording.events.iter().enumerate() {
                let What::Bytes(bytes) = &event.what else { continue };
                if (event.stream, event.from) != (stream, from) {
                    continue;
                }
                while let Some(at) = wanted.next_if(|&at| at < start + bytes.len()) {
                    places.push((number, at - start));
                }
                start += bytes.len();
            }
        }
    }
    places
}

/// Positions in the whole frames of one side of a stream: all but payload, and a little of that.
fn chosen(bytes: &[u8]) -> Vec<usize> {
    let mut chosen = Vec::new();
    let mut start = 0;
    while let Some(&[kind, _, _, _, ref length @ ..]) = bytes.get(start..).and_then(|rest| rest.first_chunk::<8>()) {
        let end = start + 8 + u32::from_le_bytes(*length) as usize;
        if end > bytes.len() {
            // The stream was cut off in this frame: it does not count.
            break;
        }
        let (head_bytes, tail_bytes) = match kind {
            // Rows are more than 24 bytes long at least, so that this is a part of them where they are longer.
            4 => (16 + 24 * usize::from(bytes[start + 8]), 0),
            3 => (8 + 24, 24),
            _ => (end - start, 0),
        };
        let payload = (start + head_bytes).min(end)..end.saturating_sub(tail_bytes);
        chosen.extend((start..end).filter(|at| !payload.contains(at) || at % PAYLOAD_STRIDE == 0));
        start = end;
    }
    chosen
}
