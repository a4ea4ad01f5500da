//! Sections 6 to 8: one job. Follows the messages and the content of a job and holds the rules of both roles.
//!
//! Every method returns an error when a side broke a rule. Content is kept in memory until the object is published.

use std::collections::BTreeMap;

use super::content::{Algorithm, Piece, Status};
use super::object::{Kind, Object, Outcome, Progress, Want};
use super::protobuf::Message;
use super::recording::Side;

const REPLACEMENT_ID_MIN: u64 = 1 << 62;
const ENTRIES_GRANTED: u64 = 4096;
const IN_FLIGHT_BYTES_GRANTED: u64 = 64 << 20;
const BATCH_ENTRIES_MAX: u64 = 1024;
const PATHS_MAX: usize = 128;
const PATH_BYTES_MAX: usize = 4096;
const RUN_COUNT_MAX: u64 = 65_536;

#[derive(Clone)]
pub struct Job {
    pub sender: Side,
    pub chunk_bytes: u64,
    pub algorithm: Algorithm,
    pub state: State,
    /// `Accept` or `Reject` came. The server may say other things before it.
    is_answered: bool,
    is_cancelled: bool,
    is_single: bool,
    /// By id, in the order of description.
    objects: BTreeMap<u64, Object>,
    listed: u64,
    replaced: u64,
    listed_file_bytes: u64,
    is_listed: bool,
    entries_granted: u64,
    in_flight_bytes_max: u64,
    in_flight_bytes: u64,
    /// Content that an earlier session left at the receiver.
    earlier: Outcome,
}

/// In the order in which a job passes through them.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum State {
    Open,
    Finishing,
    /// Finished, rejected or cancelled: messages are ignored.
    Over,
}

impl Job {
    pub fn open(open: &Message, features: u64, earlier: Outcome) -> Result<Job, String> {
        require(open.bytes("job_id")?.len() == 16, || "the job id has not 16 bytes".to_owned())?;
        let sender = match open.number("direction")? {
            1 => Side::Client,
            2 => Side::Server,
            other => return Err(format!("direction {other} does not exist")),
        };
        check_paths(&open.all_bytes("paths")?, sender)?;
        let options = open.messages("options")?;
        let options = options.last().ok_or("a job without options")?;
        let (algorithm, feature) = match options.number("digest")? {
            1 => (Algorithm::Crc64Nvme, 0),
            2 => (Algorithm::Blake3, 1),
            other => return Err(format!("digest {other} does not exist")),
        };
        require(features >> feature & 1 == 1, || format!("the job needs feature {feature}"))?;
        check_options(options)?;
        Ok(Job {
            sender,
            chunk_bytes: options.number("chunk_bytes")?,
            algorithm,
            state: State::Open,
            is_answered: false,
            is_cancelled: false,
            is_single: open.number("is_single")? == 1,
            objects: BTreeMap::new(),
            listed: 0,
            replaced: 0,
            listed_file_bytes: 0,
            is_listed: false,
            entries_granted: ENTRIES_GRANTED,
            in_flight_bytes_max: IN_FLIGHT_BYTES_GRANTED,
            in_flight_bytes: 0,
            earlier,
        })
    }

    /// A message of the job other than `Open`.
    pub fn message(&mut self, from: Side, message: &Message) -> Result<(), String> {
        let role = match message.kind.as_str() {
            "Accept" | "Reject" => Some(Side::Server),
            "Entries" | "SourceFailures" | "ListEnd" | "Finish" => Some(self.sender),
            "Want" | "Settled" | "Held" | "Resend" | "Credit" | "Finished" => Some(self.sender.other()),
            "Cancel" | "Times" => None,
            other => return Err(format!("{other} is no message of a job")),
        };
        require(role.is_none_or(|role| role == from), || format!("{} from the wrong side", message.kind))?;
        let is_answer = matches!(message.kind.as_str(), "Accept" | "Reject");
        require(!is_answer || !self.is_answered, || "a second answer".to_owned())?;
        self.is_answered |= is_answer;
        match message.kind.as_str() {
            "Accept" => self.accept(message),
            "Reject" | "Cancel" => self.give_up(message),
            "Entries" => self.entries(message),
            "SourceFailures" => self.source_failures(message),
            "ListEnd" => self.list_end(message),
            "Want" => self.want(message),
            "Settled" => self.settled(message),
            "Held" => self.held(message),
            "Resend" => self.resend(message),
            "Credit" => self.credit(message),
            "Finish" => self.finish(),
            "Finished" => self.finished(message),
            _ => Ok(()),
        }
    }

    /// The content of one frame. Gives a word on what becomes of each piece.
    pub fn content(&mut self, pieces: Vec<Piece>) -> Result<Vec<&'static str>, String> {
        let before = self.in_flight_bytes;
        let mut fates = Vec::new();
        for piece in pieces {
            fates.push(self.piece(piece)?);
        }
        // A smaller grant takes nothing back, and one frame may always be in flight.
        require(before == 0 || self.in_flight_bytes <= self.in_flight_bytes_max.max(before), || {
            format!("{} bytes in flight, {} granted", self.in_flight_bytes, self.in_flight_bytes_max)
        })?;
        Ok(fates)
    }

    fn piece(&mut self, piece: Piece) -> Result<&'static str, String> {
        let id = piece.object;
        let object = self.objects.get_mut(&id).ok_or_else(|| format!("object {id} was not described"))?;
        if object.is_over() {
            return Ok("dropped");
        }
        object.check_place(&piece, self.chunk_bytes)?;
        piece.check(self.algorithm)?;
        if !object.chunks.contains_key(&piece.start) {
            self.in_flight_bytes += piece.payload.len() as u64;
        }
        match piece.status {
            Status::Changed | Status::Unreadable => {
                object.keep(piece);
                self.take_back(id, Progress::Void)?;
                return Ok("void");
            }
            Status::Final => object.is_final = true,
            // A packed file is whole.
            Status::Good => object.is_final |= piece.size.is_none(),
        }
        Ok(if object.keep(piece) { "kept" } else { "again" })
    }

    /// Nothing may be missing when the session ended well.
    pub fn check_end(&self) -> Result<(), String> {
        require(self.state == State::Over, || format!("the session ends with a job that is {:?}", self.state))?;
        require(self.is_answered || self.is_cancelled, || "a job without an answer".to_owned())
    }

    pub fn outcome(&self) -> Outcome {
        let mut outcome = Outcome::default();
        for object in self.objects.values() {
            outcome.add(object.path.clone(), object);
        }
        outcome
    }

    fn accept(&mut self, accept: &Message) -> Result<(), String> {
        if self.sender == Side::Server {
            self.is_single = accept.number("is_single")? == 1;
        }
        require(!self.is_single || self.listed <= 1, || "a job of a single file describes more".to_owned())
    }

    fn give_up(&mut self, message: &Message) -> Result<(), String> {
        self.state = State::Over;
        self.is_cancelled = true;
        require(message.bytes("text")?.len() <= 1024, || "a text is too long".to_owned())
    }

    fn entries(&mut self, batch: &Message) -> Result<(), String> {
        let (first, entries) = (batch.number("first")?, batch.messages("entries")?);
        let count = entries.len() as u64;
        require((1..=BATCH_ENTRIES_MAX).contains(&count), || format!("a batch of {count} entries"))?;
        let is_replacement = first >= REPLACEMENT_ID_MIN;
        let expected = if is_replacement { REPLACEMENT_ID_MIN + self.replaced } else { 1 + self.listed };
        require(first == expected, || format!("a batch begins with {first}, not {expected}"))?;
        require(is_replacement || !self.is_listed, || "entries after the end of the listing".to_owned())?;
        for (id, entry) in (first..).zip(entries) {
            let parent = entry.number("parent")?;
            let parent_path = match self.objects.get(&parent) {
                None if parent == 0 => Vec::new(),
                Some(parent) if parent.kind == Kind::Directory => parent.path.clone(),
                _ => return Err(format!("the parent of {id}, {parent}, is no directory described before")),
            };
            let object = Object::describe(id, &parent_path, entry)?;
            require(!self.is_single || (self.listed == 0 || is_replacement) && object.kind != Kind::Directory, || {
                "a job of a single file describes more".to_owned()
            })?;
            if is_replacement {
                self.replaced += 1;
            } else {
                self.listed += 1;
                self.listed_file_bytes = self.listed_file_bytes.saturating_add(object.listed_bytes());
            }
            self.objects.insert(id, object);
        }
        let described = self.listed + self.replaced;
        require(described <= self.entries_granted, || {
            format!("{described} entries described, {} granted", self.entries_granted)
        })
    }

    fn source_failures(&mut self, message: &Message) -> Result<(), String> {
        let failures = message.messages("failures")?;
        check_failures(&failures)?;
        for failure in failures {
            match failure.number("object")? {
                0 => {}
                id => self.take_back(id, Progress::GivenUp)?,
            }
        }
        Ok(())
    }

    /// The sender takes an object back. It may not know yet that the receiver settled it.
    fn take_back(&mut self, id: u64, progress: Progress) -> Result<(), String> {
        let object = self.object(id)?;
        let freed = object.acknowledge(0..u64::MAX);
        if !object.is_over() {
            object.progress = progress;
        }
        self.in_flight_bytes -= freed;
        Ok(())
    }

    fn list_end(&mut self, end: &Message) -> Result<(), String> {
        require(!self.is_listed, || "the listing ends twice".to_owned())?;
        self.is_listed = true;
        let (entries, bytes) = (end.number("entries")?, end.number("bytes")?);
        require((entries, bytes) == (self.listed, self.listed_file_bytes), || {
            format!(
                "the listing ends with {entries} entries and {bytes} bytes, not {} and {}",
                self.listed, self.listed_file_bytes
            )
        })
    }

    fn want(&mut self, want: &Message) -> Result<(), String> {
        for id in runs(want, "runs")? {
            self.enter_want(id, Want::Whole)?;
        }
        let mut parts: BTreeMap<u64, Vec<(u64, u64)>> = BTreeMap::new();
        for (id, start, end) in extents(want)? {
            parts.entry(id).or_default().push((start, end));
        }
        for (id, extents) in parts {
            let object = self.objects.get(&id).ok_or_else(|| format!("object {id} was not described"))?;
            object.check_extents(&extents, self.chunk_bytes)?;
            let is_in_order = extents.windows(2).all(|pair| pair[0].1 <= pair[1].0);
            require(is_in_order, || format!("the extents of {id} are not in order"))?;
            self.enter_want(id, Want::Extents(extents))?;
        }
        Ok(())
    }

    fn enter_want(&mut self, id: u64, want: Want) -> Result<(), String> {
        let object = self.object(id)?;
        require(object.kind.has_content(), || format!("object {id} has no content to be wanted"))?;
        if object.is_taken_back() {
            return Ok(());
        }
        require(object.progress == Progress::Described, || format!("object {id} is wanted and {:?}", object.progress))?;
        object.progress = Progress::Wanted(want);
        Ok(())
    }

    fn settled(&mut self, settled: &Message) -> Result<(), String> {
        let mut digests = BTreeMap::new();
        for record in settled.messages("digests")? {
            let id = record.number("object")?;
            let is_new = digests.insert(id, record.bytes("digest")?.to_vec()).is_none();
            require(is_new, || format!("two digests of object {id}"))?;
        }
        let (algorithm, chunk_bytes) = (self.algorithm, self.chunk_bytes);
        for id in runs(settled, "published")? {
            let object = self.objects.get_mut(&id).ok_or_else(|| format!("object {id} was not described"))?;
            let held = self.earlier.held(object);
            require(!object.is_taken_back(), || format!("object {id}: published and taken back"))?;
            object.publish(held, digests.remove(&id), algorithm, chunk_bytes)?;
            self.settle(id, Progress::Published)?;
        }
        require(digests.is_empty(), || "a digest of an object that is not published".to_owned())?;
        for id in runs(settled, "skipped")? {
            self.settle(id, Progress::Skipped)?;
        }
        let failed = settled.messages("failed")?;
        check_failures(&failed)?;
        for failure in failed {
            self.settle(failure.number("object")?, Progress::Failed)?;
        }
        Ok(())
    }

    fn settle(&mut self, id: u64, progress: Progress) -> Result<(), String> {
        let object = self.object(id)?;
        require(object.kind != Kind::Directory, || format!("directory {id} is settled singly"))?;
        if object.is_taken_back() {
            return Ok(());
        }
        require(!object.is_over(), || format!("object {id} is settled and {:?}", object.progress))?;
        object.progress = progress;
        self.in_flight_bytes -= object.acknowledge(0..u64::MAX);
        Ok(())
    }

    fn held(&mut self, held: &Message) -> Result<(), String> {
        for (id, start, end) in extents(held)? {
            let object = self.object(id)?;
            let is_known = object.is_taken_back() || object.holds_chunk(start, end);
            require(is_known, || format!("object {id}, {start}..{end}: held and not received"))?;
            self.in_flight_bytes -= object.acknowledge(start..end);
        }
        Ok(())
    }

    fn resend(&mut self, resend: &Message) -> Result<(), String> {
        let whole = runs(resend, "runs")?.into_iter().map(|id| (id, 0, u64::MAX));
        for (id, start, end) in whole.chain(extents(resend)?) {
            let object = self.object(id)?;
            let is_wanted = matches!(object.progress, Progress::Wanted(_));
            if object.is_taken_back() {
                continue;
            }
            require(is_wanted, || format!("object {id} is to be sent again and {:?}", object.progress))?;
            let freed = object.acknowledge(start..end);
            object.chunks.retain(|&chunk, _| !(start..end).contains(&chunk));
            self.in_flight_bytes -= freed;
        }
        Ok(())
    }

    fn credit(&mut self, credit: &Message) -> Result<(), String> {
        self.entries_granted = self.entries_granted.max(credit.number("entries")?);
        self.in_flight_bytes_max = credit.number("in_flight_bytes")?;
        Ok(())
    }

    fn finish(&mut self) -> Result<(), String> {
        require(self.is_listed, || "the job finishes before its listing ended".to_owned())?;
        let open = self.objects.values().find(|object| object.kind != Kind::Directory && !object.is_over());
        require(open.is_none(), || format!("the job finishes with {:?}", open.map(|object| object.id)))?;
        require(self.state == State::Open, || format!("the job finishes and is {:?}", self.state))?;
        self.state = State::Finishing;
        Ok(())
    }

    fn finished(&mut self, finished: &Message) -> Result<(), String> {
        require(self.state == State::Finishing, || format!("the job is finished and was {:?}", self.state))?;
        let durable = finished.bytes("durable")?;
        let is_known = [b"file".as_slice(), b"batch", b"never", b"memory"].contains(&durable);
        require(is_known, || format!("durable {}", durable.escape_ascii()))?;
        self.state = State::Over;
        for object in self.objects.values_mut().filter(|object| object.kind == Kind::Directory) {
            object.progress = Progress::Published;
        }
        check_failures(&finished.messages("failures")?)
    }

    fn object(&mut self, id: u64) -> Result<&mut Object, String> {
        self.objects.get_mut(&id).ok_or_else(|| format!("object {id} was not described"))
    }
}

pub fn require(is_kept: bool, broken: impl FnOnce() -> String) -> Result<(), String> {
    if is_kept { Ok(()) } else { Err(broken()) }
}

fn check_paths(paths: &[&[u8]], sender: Side) -> Result<(), String> {
    let count = paths.len();
    require(count == 1 || sender == Side::Server && (1..=PATHS_MAX).contains(&count), || format!("{count} paths"))?;
    for path in paths {
        let is_inside = !path.starts_with(b"/") && path.split(|&byte| byte == b'/').all(|part| part != b"..");
        require(is_inside && path.len() <= PATH_BYTES_MAX, || format!("path {}", path.escape_ascii()))?;
    }
    Ok(())
}

fn check_options(options: &Message) -> Result<(), String> {
    let within = |name: &str, allowed: std::ops::RangeInclusive<u64>| {
        let value = options.number(name)?;
        require(allowed.contains(&value), || format!("{name} is {value}"))
    };
    within("fsync", 1..=3)?;
    within("verify", 1..=2)?;
    within("engine", 0..=2)?;
    within("chunk_bytes", 1 << 20..=1 << 30)?;
    require(options.number("chunk_bytes")?.is_power_of_two(), || "chunk_bytes is no power of two".to_owned())?;
    for name in ["chmod_files", "chmod_directories"] {
        let mode = options.number(name)?;
        require(mode == 0 || mode & !0o777 == 0o10000, || format!("{name} is {mode:#o}"))?;
    }
    Ok(())
}

fn check_failures(failures: &[&Message]) -> Result<(), String> {
    for failure in failures {
        let is_named = failure.number("object")? != 0 || !failure.bytes("path")?.is_empty();
        require(is_named, || "a failure of nothing".to_owned())?;
        require(failure.bytes("text")?.len() <= 1024, || "a text is too long".to_owned())?;
    }
    Ok(())
}

/// The ids of a list of runs.
fn runs(message: &Message, name: &str) -> Result<Vec<u64>, String> {
    let mut ids = Vec::new();
    for run in message.messages(name)? {
        let (first, count) = (run.number("first")?, run.number("count")?);
        let end = first.checked_add(count).filter(|_| first > 0 && (1..=RUN_COUNT_MAX).contains(&count));
        ids.extend(first..end.ok_or_else(|| format!("a run of {count} from {first}"))?);
    }
    Ok(ids)
}

fn extents(message: &Message) -> Result<Vec<(u64, u64, u64)>, String> {
    let mut extents = Vec::new();
    for extent in message.messages("extents")? {
        let (start, end) = (extent.number("start")?, extent.number("end")?);
        require(start < end, || format!("the extent {start}..{end}"))?;
        extents.push((extent.number("object")?, start, end));
    }
    Ok(extents)
}
