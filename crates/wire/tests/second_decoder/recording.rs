//! A recorded session as a file: the plaintext of its streams, in the order in which a relay between the two sides passed
//! it on.
//!
//! The relay recorded bytes before it passed them on, so what one side sent because of something it received stands after
//! it: checks that depend on order across streams (credit, content after want) are sound.
//!
//! Layout, integers little-endian: `twsession 1\n`; the number of streams (1); for each of them the length of its name (1),
//! the name, the pin of the client (32) and the exporter value (32); then events up to the end. An event is the stream (1),
//! a mark (1), and for bytes their count (4) followed by steps until the count is reached. A step is a literal length (4),
//! the literal, a copy length (4) and a distance (4) back in everything recorded for this stream and side. Repetitive
//! content stays small that way.

use std::collections::HashMap;

const MAGIC: &[u8] = b"twsession 1\n";

/// Positions at multiples of this can be copied from, and no copy is shorter.
const COPY_BYTES_MIN: usize = 32;

/// Expanding stops here: a damaged file must not fill the memory.
const BYTES_MAX: usize = 64 << 20;

#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Recording {
    pub streams: Vec<Stream>,
    pub events: Vec<Event>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Stream {
    /// For the reader of a transcript.
    pub name: String,
    /// SHA-256 of the key that the client showed on this stream.
    pub client_pin: [u8; 32],
    /// Exporter value of the stream for the session that it belongs to.
    pub exporter: [u8; 32],
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Event {
    pub stream: usize,
    pub from: Side,
    pub what: What,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Side {
    Client,
    Server,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum What {
    Bytes(Vec<u8>),
    /// The side ended its direction with `close_notify`.
    Ended,
    /// The side's direction stopped without it.
    Cut,
}

impl Side {
    pub fn other(self) -> Side {
        match self {
            Side::Client => Side::Server,
            Side::Server => Side::Client,
        }
    }
}

impl Recording {
    pub fn to_file(&self) -> Vec<u8> {
        let mut file = MAGIC.to_vec();
        file.push(self.streams.len() as u8);
        for stream in &self.streams {
            file.push(stream.name.len() as u8);
            file.extend_from_slice(stream.name.as_bytes());
            file.extend_from_slice(&stream.client_pin);
            file.extend_from_slice(&stream.exporter);
        }
        let mut writers: HashMap<(usize, Side), Packer> = HashMap::new();
        for event in &self.events {
            file.push(event.stream as u8);
            file.push(mark(event.from, &event.what));
            if let What::Bytes(bytes) = &event.what {
                file.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
                writers.entry((event.stream, event.from)).or_default().write(bytes, &mut file);
            }
        }
        file
    }

    pub fn of_file(file: &[u8]) -> Result<Recording, String> {
        let mut rest = file.strip_prefix(MAGIC).ok_or("the file is no recording")?;
        let mut recording = Recording::default();
        for _ in 0..take::<1>(&mut rest)?[0] {
            let length = take::<1>(&mut rest)?[0];
            let name = take_slice(&mut rest, length.into())?;
            let name = String::from_utf8(name.to_vec()).map_err(|_| "a stream's name is no UTF-8")?;
            recording.streams.push(Stream { name, client_pin: take(&mut rest)?, exporter: take(&mut rest)? });
        }
        let mut histories: HashMap<(usize, Side), Vec<u8>> = HashMap::new();
        let mut expanded = 0;
        while !rest.is_empty() {
            let [stream, mark] = take(&mut rest)?;
            let stream = usize::from(stream);
            if stream >= recording.streams.len() {
                return Err(format!("stream {stream} was not declared"));
            }
            let (from, what) = of_mark(mark)?;
            let what = match what {
                What::Bytes(_) => {
                    let length = number(&mut rest)?;
                    expanded += length;
                    if expanded > BYTES_MAX {
                        return Err(format!("a recording of more than {BYTES_MAX} bytes"));
                    }
                    What::Bytes(unpack(&mut rest, length, histories.entry((stream, from)).or_default())?)
                }
                end => end,
            };
            recording.events.push(Event { stream, from, what });
        }
        Ok(recording)
    }
}

fn mark(from: Side, what: &What) -> u8 {
    match (from, what) {
        (Side::Client, What::Bytes(_)) => b'>',
        (Side::Server, What::Bytes(_)) => b'<',
        (Side::Client, What::Ended) => b']',
        (Side::Server, What::Ended) => b'[',
        (Side::Client, What::Cut) => b')',
        (Side::Server, What::Cut) => b'(',
    }
}

fn of_mark(mark: u8) -> Result<(Side, What), String> {
    let kinds = [What::Bytes(Vec::new()), What::Ended, What::Cut].into_iter();
    let mut all = kinds.flat_map(|what| [(Side::Client, what.clone()), (Side::Server, what)]);
    all.find(|(from, what)| self::mark(*from, what) == mark).ok_or_else(|| format!("{mark} marks no event"))
}

/// Finds repetitions in what one side sent on one stream.
#[derive(Default)]
struct Packer {
    history: Vec<u8>,
    places: HashMap<[u8; COPY_BYTES_MIN], usize>,
    indexed: usize,
}

impl Packer {
    fn write(&mut self, bytes: &[u8], file: &mut Vec<u8>) {
        let start = self.history.len();
        self.history.extend_from_slice(bytes);
        let (mut literal, mut at) = (start, start);
        while at < self.history.len() {
            self.index_up_to(at);
            let (length, distance) = self.repetition(at);
            if length > 0 {
                self.step(literal..at, length, distance, file);
                at += length;
                literal = at;
            } else {
                at += 1;
            }
        }
        if literal < at {
            self.step(literal..at, 0, 0, file);
        }
    }

    fn step(&self, literal: std::ops::Range<usize>, length: usize, distance: usize, file: &mut Vec<u8>) {
        file.extend_from_slice(&(literal.len() as u32).to_le_bytes());
        file.extend_from_slice(&self.history[literal]);
        file.extend_from_slice(&(length as u32).to_le_bytes());
        file.extend_from_slice(&(distance as u32).to_le_bytes());
    }

    /// Length and distance of a repetition that starts at `at`; zeros when there is none.
    fn repetition(&self, at: usize) -> (usize, usize) {
        let window = self.history[at..].first_chunk::<COPY_BYTES_MIN>();
        let Some(&place) = window.and_then(|window| self.places.get(window)) else { return (0, 0) };
        let length = (at..self.history.len()).take_while(|&n| self.history[n] == self.history[n - at + place]).count();
        (length, at - place)
    }

    fn index_up_to(&mut self, end: usize) {
        while self.indexed + COPY_BYTES_MIN <= end {
            if let Some(&window) = self.history[self.indexed..].first_chunk() {
                self.places.entry(window).or_insert(self.indexed);
            }
            self.indexed += COPY_BYTES_MIN;
        }
    }
}

fn unpack(rest: &mut &[u8], length: usize, history: &mut Vec<u8>) -> Result<Vec<u8>, String> {
    let start = history.len();
    while history.len() < start + length {
        let left = start + length - history.len();
        let literal = number(rest)?;
        let literal = take_slice(rest, literal)?;
        let (copied, distance) = (number(rest)?, number(rest)?);
        if literal.len() + copied > left || literal.len() + copied == 0 {
            return Err("a step does not fit its event".to_owned());
        }
        history.extend_from_slice(literal);
        if copied > 0 && (distance == 0 || distance > history.len()) {
            return Err("a copy from before the start".to_owned());
        }
        for _ in 0..copied {
            history.push(history[history.len() - distance]);
        }
    }
    Ok(history[start..].to_vec())
}

fn number(rest: &mut &[u8]) -> Result<usize, String> {
    take(rest).map(|bytes| u32::from_le_bytes(bytes) as usize)
}

fn take<const N: usize>(rest: &mut &[u8]) -> Result<[u8; N], String> {
    let (taken, after) = rest.split_first_chunk::<N>().ok_or("the file ends early")?;
    *rest = after;
    Ok(*taken)
}

fn take_slice<'a>(rest: &mut &'a [u8], length: usize) -> Result<&'a [u8], String> {
    let (taken, after) = rest.split_at_checked(length).ok_or("the file ends early")?;
    *rest = after;
    Ok(taken)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recording() -> Recording {
        let stream = |name: &str| Stream { name: name.to_owned(), client_pin: [1; 32], exporter: [2; 32] };
        let pattern: Vec<u8> = (0..100_000_u32).map(|n| (n % 1000 % 251) as u8).collect();
        let event = |stream, from, what| Event { stream, from, what };
        Recording {
            streams: vec![stream("control"), stream("data")],
            events: vec![
                event(0, Side::Client, What::Bytes(b"hello".to_vec())),
                event(1, Side::Client, What::Bytes(pattern.clone())),
                event(1, Side::Server, What::Bytes(Vec::new())),
                event(1, Side::Client, What::Bytes(pattern)),
                event(1, Side::Client, What::Ended),
                event(0, Side::Server, What::Cut),
            ],
        }
    }

    #[test]
    fn a_recording_survives_its_file_which_holds_repetitions_once() {
        let file = recording().to_file();
        assert_eq!(Recording::of_file(&file).unwrap(), recording());
        assert!(file.len() < 2500, "{} bytes", file.len());
    }

    #[test]
    fn a_damaged_file_never_panics() {
        let file = recording().to_file();
        for at in 0..file.len() {
            let mut damaged = file.clone();
            damaged[at] ^= 0x40;
            // The same content can be written in several ways, so that some damage does none.
            let _ = Recording::of_file(&damaged);
            assert!(Recording::of_file(&file[..at]) != Ok(recording()), "cut at {at}");
        }
    }
}
