//! Sections 4 and 5: the control stream, the joins of data streams, and which job a message or a frame belongs to.

use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;

use super::content::{Piece, read_chunk, read_pack, require_zero, u32_at};
use super::frame::{CHUNK, Deframer, END, Frame, JOIN, MESSAGE, PACK, Place};
use super::job::{Job, State, require};
use super::object::Outcome;
use super::protobuf::{Message, Value};
use super::recording::{Event, Recording, Side, Stream, What};
use super::schema::Schema;
use super::sha256::hmac_sha256;

const VERSION: u64 = 1;
const FEATURES_NEEDED: u64 = 0b101;
const VERSION_REFUSED: u64 = 4;

#[derive(Clone)]
pub struct Session<'a> {
    schema: Rc<Schema>,
    streams: Vec<StreamState<'a>>,
    /// Lines for a reader: everything that was said, in order.
    pub transcript: Vec<String>,
    control: Option<usize>,
    hello: Option<Message>,
    features: u64,
    is_welcome: bool,
    closed_by: Vec<Side>,
    /// Numbers of pings that were not answered, by the side that sent them.
    pings: BTreeMap<Side, VecDeque<u64>>,
    jobs: BTreeMap<u64, Job>,
    earlier: &'a Outcome,
}

#[derive(Clone)]
struct StreamState<'a> {
    stream: &'a Stream,
    deframers: [Deframer; 2],
    role: Role,
}

#[derive(Clone)]
enum Role {
    /// No frame came.
    Unknown,
    Control,
    Data(Joined),
}

#[derive(Clone)]
struct Joined {
    body: Vec<u8>,
    job: u64,
    payload_from: Side,
    is_checked: bool,
    is_ended: bool,
}

impl<'a> Session<'a> {
    pub fn new(recording: &'a Recording, earlier: &'a Outcome) -> Result<Session<'a>, String> {
        let state =
            |stream| StreamState { stream, deframers: [Deframer::default(), Deframer::default()], role: Role::Unknown };
        Ok(Session {
            schema: Rc::new(Schema::of_the_documents()?),
            streams: recording.streams.iter().map(state).collect(),
            transcript: Vec::new(),
            control: None,
            hello: None,
            features: 0,
            is_welcome: false,
            closed_by: Vec::new(),
            pings: BTreeMap::new(),
            jobs: BTreeMap::new(),
            earlier,
        })
    }

    pub fn event(&mut self, event: &Event) -> Result<(), String> {
        let &Event { stream, from, ref what } = event;
        let state = self.streams.get_mut(stream).ok_or_else(|| format!("stream {stream} was not declared"))?;
        let deframer = &mut state.deframers[from as usize];
        match what {
            What::Bytes(bytes) => {
                deframer.push(bytes);
                while self.frame(stream, from)? {}
            }
            What::Ended => {
                let rest = deframer.rest();
                require(rest == 0, || format!("the stream ends well with {rest} bytes of a frame"))?;
                self.say(stream, from, "ended");
            }
            What::Cut => {
                let rest = deframer.rest();
                self.say(stream, from, &format!("cut off, {rest} bytes of a frame"));
            }
        }
        Ok(())
    }

    /// Checks that nothing is missing, unless the session was cut off, and gives what it leaves behind.
    pub fn finish(mut self) -> Result<(Vec<String>, Outcome), String> {
        self.check_joins()?;
        if let [.., _] = self.closed_by.as_slice() {
            self.jobs.values().try_for_each(Job::check_end)?;
        } else {
            self.transcript.push("the session ends without a Close".to_owned());
        }
        let mut outcome = Outcome::default();
        for job in self.jobs.values() {
            outcome.join(job.outcome());
        }
        Ok((self.transcript, outcome))
    }

    /// Takes one frame, if a whole one is there.
    fn frame(&mut self, stream: usize, from: Side) -> Result<bool, String> {
        let Some(place) = self.place(stream, from)? else { return Ok(false) };
        let Some(frame) = self.streams[stream].deframers[from as usize].next(place)? else { return Ok(false) };
        if frame.flags != 0 {
            self.say(stream, from, &format!("flags {:#04x}", frame.flags));
        }
        match (frame.kind, place) {
            (MESSAGE, _) => self.message_frame(stream, from, &frame)?,
            (JOIN, _) => self.join(stream, &frame.body)?,
            (CHUNK | PACK | END, Place::Data { chunk_bytes }) => self.content(stream, from, &frame, chunk_bytes)?,
            (kind, _) => self.say(stream, from, &format!("type {kind} skipped, {} bytes", frame.body.len())),
        }
        Ok(true)
    }

    /// Where the next frame stands. None when there is no byte of it.
    fn place(&mut self, stream: usize, from: Side) -> Result<Option<Place>, String> {
        if self.streams[stream].deframers[from as usize].rest() == 0 {
            return Ok(None);
        }
        match (&self.streams[stream].role, from) {
            (Role::Unknown, Side::Client) => Ok(Some(Place::FirstOfClient)),
            (Role::Unknown, Side::Server) => Err("the server speaks first".to_owned()),
            (Role::Control, _) => Ok(Some(Place::Control)),
            (Role::Data(joined), _) => {
                let joined = joined.clone();
                require(joined.payload_from == from, || "payload against the direction of the join".to_owned())?;
                self.check_joins()?;
                let job = self.jobs.get(&joined.job).ok_or_else(|| format!("content of job {}", joined.job))?;
                require(job.sender == from, || "the join's direction is not that of the job".to_owned())?;
                Ok(Some(Place::Data { chunk_bytes: job.chunk_bytes }))
            }
        }
    }

    fn message_frame(&mut self, stream: usize, from: Side, frame: &Frame) -> Result<(), String> {
        if from == Side::Client && matches!(self.streams[stream].role, Role::Unknown) {
            require(self.control.is_none(), || "a second control stream".to_owned())?;
            self.control = Some(stream);
            self.streams[stream].role = Role::Control;
        }
        let envelope = Message::decode(&self.schema, "Envelope", &frame.body)?;
        let present: Vec<&Value> = envelope.present().flat_map(|(_, values)| values).collect();
        match present.as_slice() {
            [Value::Message(message)] => {
                let unknown = if envelope.has_unknown() { " beside unknown fields" } else { "" };
                let is_ignored = self.message(stream, from, message).map_err(|e| format!("{message}: {e}"))?;
                let ignored = if is_ignored { " (ignored)" } else { "" };
                self.say(stream, from, &format!("{message}{unknown}{ignored}"));
                Ok(())
            }
            [] if envelope.has_unknown() => {
                self.say(stream, from, &format!("{envelope} skipped"));
                Ok(())
            }
            _ => Err(format!("{} fields in an envelope", present.len())),
        }
    }

    /// Follows one message; true when it has no effect by the rules.
    fn message(&mut self, stream: usize, from: Side, message: &Message) -> Result<bool, String> {
        require(Some(stream) == self.control, || "a message on a data stream".to_owned())?;
        require(!self.closed_by.contains(&from), || "a message after Close".to_owned())?;
        let is_first = match from {
            Side::Client => self.hello.is_none(),
            Side::Server => !self.is_welcome,
        };
        let kind = message.kind.as_str();
        let opens = matches!((from, kind), (Side::Client, "Hello") | (Side::Server, "Welcome"));
        require(opens == is_first || is_first && kind == "Close", || format!("{kind} does not belong here"))?;
        if self.closed_by.contains(&from.other()) && kind != "Close" {
            return Ok(true);
        }
        match kind {
            "Hello" => self.hello(message)?,
            "Welcome" => self.welcome(message)?,
            "Close" => self.close(from, message)?,
            "Ping" => self.pings.entry(from).or_default().push_back(message.number("number")?),
            "Pong" => {
                let asked = self.pings.entry(from.other()).or_default().pop_front();
                require(asked == Some(message.number("number")?), || format!("the ping was {asked:?}"))?;
            }
            "Open" => self.open(message)?,
            _ => {
                let job = self.jobs.get_mut(&message.number("job")?).filter(|job| job.state != State::Over);
                let Some(job) = job else { return Ok(true) };
                job.message(from, message)?;
            }
        }
        Ok(false)
    }

    fn hello(&mut self, hello: &Message) -> Result<(), String> {
        let (min, max) = (hello.number("version_min")?, hello.number("version_max")?);
        require(min <= max, || format!("versions {min} to {max}"))?;
        require(hello.bytes("session")?.len() == 16, || "the session id has not 16 bytes".to_owned())?;
        self.features = hello.number("features")?;
        self.hello = Some(hello.clone());
        Ok(())
    }

    fn welcome(&mut self, welcome: &Message) -> Result<(), String> {
        let hello = self.hello.as_ref().ok_or("a welcome before the hello")?;
        let (version, features) = (welcome.number("version")?, welcome.number("features")?);
        let offered = hello.number("version_min")?..=hello.number("version_max")?;
        require(version == VERSION && offered.contains(&version), || format!("version {version} of {offered:?}"))?;
        let is_subset = features & !hello.number("features")? == 0;
        require(is_subset && features & FEATURES_NEEDED == FEATURES_NEEDED, || format!("features {features:#b}"))?;
        self.features = features;
        self.is_welcome = true;
        Ok(())
    }

    fn close(&mut self, from: Side, close: &Message) -> Result<(), String> {
        require(close.bytes("text")?.len() <= 1024, || "a text is too long".to_owned())?;
        if let (VERSION_REFUSED, Some(hello)) = (close.number("code")?, &self.hello) {
            let offered = hello.number("version_min")?..=hello.number("version_max")?;
            let is_speakable = offered.contains(&VERSION) && self.features & FEATURES_NEEDED == FEATURES_NEEDED;
            require(!is_speakable, || "refused for a version or feature that both have".to_owned())?;
        }
        self.closed_by.push(from);
        Ok(())
    }

    fn open(&mut self, open: &Message) -> Result<(), String> {
        let number = open.number("job")?;
        let is_free = self.jobs.get(&number).is_none_or(|job| job.state == State::Over);
        require(is_free, || format!("job {number} is open"))?;
        self.jobs.insert(number, Job::open(open, self.features, self.earlier.clone())?);
        Ok(())
    }

    fn join(&mut self, stream: usize, body: &[u8]) -> Result<(), String> {
        require(body.len() == 60, || format!("a join of {} bytes", body.len()))?;
        require_zero(&body[25..28])?;
        let payload_from = match body[24] {
            1 => Side::Client,
            2 => Side::Server,
            other => return Err(format!("direction {other} does not exist")),
        };
        let (job, number) = (u64::from(u32_at(body, 16)?), u32_at(body, 20)?);
        let joined = Joined { body: body.to_vec(), job, payload_from, is_checked: false, is_ended: false };
        self.streams[stream].role = Role::Data(joined);
        let proof: String = body[28..].iter().map(|byte| format!("{byte:02x}")).collect();
        let direction = if payload_from == Side::Client { '>' } else { '<' };
        self.say(stream, Side::Client, &format!("join job={job} stream={number} direction={direction} proof={proof}"));
        Ok(())
    }

    /// Checks the proofs that can be checked: a join may come before the hello of its session.
    fn check_joins(&mut self) -> Result<(), String> {
        let unchecked = self.streams.iter().position(|s| matches!(&s.role, Role::Data(joined) if !joined.is_checked));
        let Some(at) = unchecked else { return Ok(()) };
        let (Some(hello), Some(control)) = (&self.hello, self.control) else {
            return Err("a data stream of an unknown session".to_owned());
        };
        let (session, control) = (hello.bytes("session")?.to_vec(), self.streams[control].stream);
        let StreamState { stream, role: Role::Data(joined), .. } = &mut self.streams[at] else { return Ok(()) };
        require(joined.body[..16] == session, || "the join names another session".to_owned())?;
        require(stream.client_pin == control.client_pin, || "the join has another pin".to_owned())?;
        let proof = hmac_sha256(&control.exporter, &[&joined.body[..28], &stream.exporter].concat());
        require(joined.body[28..] == proof, || "the proof of a join is wrong".to_owned())?;
        joined.is_checked = true;
        self.check_joins()
    }

    fn content(&mut self, stream: usize, from: Side, frame: &Frame, chunk_bytes: u64) -> Result<(), String> {
        let Role::Data(joined) = &mut self.streams[stream].role else {
            return Err("content without a join".to_owned());
        };
        require(!joined.is_ended, || "content after the end".to_owned())?;
        joined.is_ended = frame.kind == END;
        let job = self.jobs.get_mut(&joined.job).ok_or("content of no job")?;
        let (name, pieces) = match frame.kind {
            CHUNK => ("chunk", vec![read_chunk(&frame.body, job.algorithm, chunk_bytes)?]),
            PACK => ("pack", read_pack(&frame.body, job.algorithm)?),
            _ => ("end", Vec::new()),
        };
        let shown = |piece: &Piece| {
            let size = piece.size.map_or(String::new(), |size| format!(" of {size}"));
            format!("{}:{}..{}{size} {:?}", piece.object, piece.start, piece.end(), piece.status)
        };
        let lines: Vec<String> = pieces.iter().map(shown).collect();
        let mut line = name.to_owned();
        for (piece, fate) in lines.iter().zip(job.content(pieces)?) {
            line.push_str(&format!(" {piece} {fate}"));
        }
        self.say(stream, from, &line);
        Ok(())
    }

    fn say(&mut self, stream: usize, from: Side, what: &str) {
        let arrow = if from == Side::Client { '>' } else { '<' };
        let name = &self.streams[stream].stream.name;
        self.transcript.push(format!("{name} {arrow} {what}"));
    }
}
