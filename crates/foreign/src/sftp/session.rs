//! One conversation: requests are numbered and sent at once, answers come in any order and find whoever waits.
//!
//! Invariants:
//! - The thread that reads answers never waits for anybody: a side that is busy sending cannot lock up the other.
//! - An answer that nobody asked for, or a packet that is none, ends the conversation; everybody who waits hears why.

use super::packet::{self, INIT, Input, Malformed, Output, PACKET_BYTES_MAX, Reply, VERSION, VERSION_REPLY, status};
use super::pipe::{Pipe, Writer};
use crate::tree::{Attributes, Faulty};
use model::FailureKind;
use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// A server that says nothing for so long, while it is asked, says nothing any more; one that takes nothing takes nothing any more.
pub const PATIENCE: Duration = Duration::from_secs(180);
/// What a greeting may list.
const EXTENSIONS_MAX: usize = 256;

/// Why a request came to nothing.
#[derive(Clone, Debug)]
pub enum Fault {
    Status {
        code: u32,
        text: String,
    },
    /// The conversation is over.
    Lost(Arc<str>),
    Malformed(&'static str),
}

pub type Result<T> = std::result::Result<T, Fault>;

impl Fault {
    pub fn is(&self, wanted: u32) -> bool {
        matches!(self, Fault::Status { code, .. } if *code == wanted)
    }
}

impl Faulty for Fault {
    fn is_absent(&self) -> bool {
        self.is(status::NO_SUCH_FILE)
    }

    fn is_lost(&self) -> bool {
        matches!(self, Fault::Lost(_))
    }

    fn beyond(why: &'static str) -> Fault {
        Fault::Malformed(why)
    }

    fn on(&self, operation: &'static str, subject: &[u8]) -> store::Error {
        let (kind, why) = match self {
            Fault::Status { code: status::NO_SUCH_FILE, .. } => (FailureKind::NotFound, "it is not there".to_owned()),
            Fault::Status { code: status::PERMISSION_DENIED, .. } => {
                (FailureKind::Permission, "the server does not permit it".to_owned())
            }
            Fault::Status { code: status::UNSUPPORTED, .. } => {
                (FailureKind::Other, "the server cannot do that".to_owned())
            }
            Fault::Status { code, text } if text.is_empty() => {
                (FailureKind::Other, format!("the server refused (status {code})"))
            }
            Fault::Status { text, .. } => (FailureKind::Other, format!("the server says {text:?}")),
            Fault::Lost(why) => (FailureKind::Other, why.to_string()),
            Fault::Malformed(why) => (FailureKind::Other, format!("the server does not keep to the protocol: {why}")),
        };
        store::Error::of_kind(kind.or_by(operation), operation, subject, &why)
    }
}

impl From<Malformed> for Fault {
    fn from(Malformed(why): Malformed) -> Fault {
        Fault::Malformed(why)
    }
}

/// What the server can do beyond the draft.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Extensions {
    pub posix_rename: bool,
    pub fsync: bool,
    pub limits: bool,
    pub statvfs: bool,
}

pub struct Session {
    shared: Arc<Shared>,
    pub can: Extensions,
}

struct Shared {
    writer: Mutex<Option<Writer>>,
    waiting: Mutex<Waiting>,
    /// For how long the server may say nothing while it is asked.
    silence: Duration,
}

#[derive(Default)]
struct Waiting {
    by_number: HashMap<u32, SyncSender<Reply>>,
    next: u32,
    /// When the server last said something.
    heard: Option<Instant>,
    lost: Option<Arc<str>>,
}

/// A request that was sent.
#[must_use]
pub struct Ticket {
    answer: Receiver<Reply>,
    shared: Arc<Shared>,
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Session {
    /// Greets, and waits to be greeted.
    ///
    /// # Errors
    /// Says what came instead; an end of the input is told as such, and so is nothing at all for as long as `patience`. Later on the
    /// server may be silent, or take nothing, for as long as `silence`.
    pub fn start(
        mut reader: Box<dyn Read + Send>,
        writer: Box<dyn Pipe + Send>,
        name: &str,
        [patience, silence]: [Duration; 2],
    ) -> io::Result<Session> {
        let mut writer = Writer::new(writer, silence)?;
        let greeting = [&5u32.to_be_bytes()[..], &[INIT], &VERSION.to_be_bytes()].concat();
        let sent = writer.write_all(&greeting).and_then(|()| writer.flush());
        let shared = Arc::new(Shared { writer: Mutex::new(Some(writer)), waiting: Mutex::default(), silence });
        let (for_thread, name) = (shared.clone(), name.to_owned());
        let (tell, told) = sync_channel(1);
        let run = move || {
            let found = greeted(&mut reader);
            let is_server = found.is_ok();
            if tell.send(found).is_err() || !is_server {
                return;
            }
            let why = match for_thread.listen(&mut reader) {
                Err(e) if e.kind() == io::ErrorKind::InvalidData => {
                    format!("{name} does not keep to the SFTP protocol: {e}")
                }
                _ => format!("the connection to {name} was lost"),
            };
            for_thread.lose(&why);
        };
        std::thread::Builder::new().name("sftp".to_owned()).spawn(run)?;
        // Who has gone by now may have left words. The thread ends with the line.
        let can = told.recv_timeout(patience).map_err(|_| io::Error::from(io::ErrorKind::TimedOut))??;
        sent?;
        Ok(Session { shared, can })
    }

    pub fn is_lost(&self) -> bool {
        lock(&self.shared.waiting).lost.is_some()
    }

    pub fn send(&self, request: Output) -> Ticket {
        self.send_with(request, b"")
    }

    /// Sends a request that ends in `tail`.
    pub fn send_with(&self, request: Output, tail: &[u8]) -> Ticket {
        let (sender, answer) = sync_channel(1);
        let ticket = Ticket { answer, shared: self.shared.clone() };
        let mut waiting = lock(&self.shared.waiting);
        if waiting.lost.is_some() {
            return ticket;
        }
        let number = waiting.next;
        waiting.next = number.wrapping_add(1);
        waiting.by_number.insert(number, sender);
        drop(waiting);
        let head = request.finish(number, tail.len());
        let mut writer = lock(&self.shared.writer);
        let written = match &mut *writer {
            Some(writer) => writer.write_all(&head).and_then(|()| writer.write_all(tail)).and_then(|()| writer.flush()),
            None => Err(io::ErrorKind::BrokenPipe.into()),
        };
        if let Err(e) = written {
            *writer = None;
            drop(writer);
            lock(&self.shared.waiting).by_number.remove(&number);
            // Otherwise the thread that reads finds out why.
            if e.kind() == io::ErrorKind::TimedOut {
                self.shared.lose(&format!("the server has taken nothing for {} s", self.shared.silence.as_secs()));
            }
        }
        ticket
    }
}

impl Drop for Session {
    /// The other side finds the end of its input, and ends; the thread that reads with it.
    fn drop(&mut self) {
        lock(&self.shared.writer).take();
    }
}

impl Shared {
    fn listen(&self, reader: &mut dyn Read) -> io::Result<()> {
        let mut body = Vec::new();
        loop {
            let (kind, number) = read_packet(reader, &mut body)?;
            let reply = packet::read(kind, &body).map_err(|Malformed(why)| invalid(why))?;
            let mut waiting = lock(&self.waiting);
            waiting.heard = Some(Instant::now());
            let waits = waiting.by_number.remove(&number);
            drop(waiting);
            let waits = waits.ok_or_else(|| invalid("an answer to nothing that was asked"))?;
            // Who does not listen any more does not mind.
            let _ = waits.try_send(reply);
        }
    }

    fn lose(&self, why: &str) {
        let mut waiting = lock(&self.waiting);
        waiting.lost.get_or_insert_with(|| why.into());
        waiting.by_number.clear();
        drop(waiting);
        // A writer that is held up gives up after its own time limit.
        if let Ok(mut writer) = self.writer.try_lock() {
            writer.take();
        }
    }
}

impl Ticket {
    pub fn wait(self) -> Result<Reply> {
        match self.hear() {
            Ok(Reply::Status { code, text }) if code != status::OK => Err(Fault::Status { code, text }),
            Ok(reply) => Ok(reply),
            Err(e) => {
                let silence = self.shared.silence;
                if e == RecvTimeoutError::Timeout {
                    self.shared.lose(&format!("the server has not answered for {} s", silence.as_secs()));
                }
                let lost = lock(&self.shared.waiting).lost.clone();
                Err(Fault::Lost(lost.unwrap_or_else(|| "the connection was lost".into())))
            }
        }
    }

    /// The answer, however late, as long as the server says anything: it may have much to do for others first.
    fn hear(&self) -> std::result::Result<Reply, RecvTimeoutError> {
        let silence = self.shared.silence;
        let mut patience = silence;
        loop {
            let heard = match self.answer.recv_timeout(patience) {
                Err(RecvTimeoutError::Timeout) => lock(&self.shared.waiting).heard,
                answer => return answer,
            };
            let left = heard.and_then(|heard| silence.checked_sub(heard.elapsed())).filter(|left| !left.is_zero());
            patience = left.ok_or(RecvTimeoutError::Timeout)?;
        }
    }

    pub fn done(self) -> Result<()> {
        match self.wait()? {
            Reply::Status { .. } => Ok(()),
            _ => Err(Fault::Malformed("it answered something else than a status")),
        }
    }

    pub fn handle(self) -> Result<Vec<u8>> {
        match self.wait()? {
            Reply::Handle(handle) => Ok(handle),
            _ => Err(Fault::Malformed("it answered something else than a handle")),
        }
    }

    pub fn attributes(self) -> Result<Attributes> {
        match self.wait()? {
            Reply::Attributes(attributes) => Ok(attributes),
            _ => Err(Fault::Malformed("it answered something else than attributes")),
        }
    }

    pub fn names(self) -> Result<Vec<(Vec<u8>, Attributes)>> {
        match self.wait()? {
            Reply::Names(names) if !names.is_empty() => Ok(names),
            Reply::Names(_) => Err(Fault::Malformed("it answered with no name, and not that there are no more")),
            _ => Err(Fault::Malformed("it answered something else than names")),
        }
    }

    /// At least one byte and at most `bytes_max`; nothing at the end of a file.
    pub fn data(self, bytes_max: usize) -> Result<Option<Vec<u8>>> {
        match self.wait() {
            Ok(Reply::Data(bytes)) if (1..=bytes_max).contains(&bytes.len()) => Ok(Some(bytes)),
            Ok(Reply::Data(bytes)) if bytes.is_empty() => Err(Fault::Malformed("it answered a read with no byte")),
            Ok(Reply::Data(_)) => Err(Fault::Malformed("it answered a read with more than was asked for")),
            Ok(_) => Err(Fault::Malformed("it answered a read with something else than data")),
            Err(fault) if fault.is(status::EOF) => Ok(None),
            Err(fault) => Err(fault),
        }
    }
}

fn invalid(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why.to_owned())
}

fn read_length(reader: &mut dyn Read) -> io::Result<usize> {
    let mut length = [0; 4];
    reader.read_exact(&mut length)?;
    let shown = u32::from_be_bytes(length);
    if shown > PACKET_BYTES_MAX {
        // Letters make a long packet: something other than the server speaks.
        let is_text = length.iter().all(|byte| byte.is_ascii_graphic() || byte.is_ascii_whitespace());
        return Err(invalid(match is_text {
            true => "it begins with text: its login scripts must print nothing in sessions without a terminal",
            false => "a packet is longer than 512 KiB",
        }));
    }
    Ok(shown as usize)
}

/// Reads an answer's kind and number, and its rest into `body`.
pub fn read_packet(reader: &mut dyn Read, body: &mut Vec<u8>) -> io::Result<(u8, u32)> {
    let length = read_length(reader)?;
    if length < 5 {
        return Err(invalid("a packet is too short"));
    }
    let mut head = [0; 5];
    reader.read_exact(&mut head)?;
    body.resize(length - 5, 0);
    reader.read_exact(body)?;
    Ok((head[0], u32::from_be_bytes([head[1], head[2], head[3], head[4]])))
}

/// Reads the server's greeting: what it can do.
pub fn greeted(reader: &mut dyn Read) -> io::Result<Extensions> {
    let length = read_length(reader)?;
    let mut packet = vec![0; length];
    reader.read_exact(&mut packet)?;
    let none = |_: Malformed| invalid("its greeting is cut");
    let mut input = Input(&packet);
    if input.take(1).map_err(none)? != [VERSION_REPLY] {
        return Err(invalid("it does not begin with a greeting"));
    }
    let version = input.u32().map_err(none)?;
    if version != VERSION {
        return Err(invalid(&format!("it speaks version {version}, and this program version {VERSION}")));
    }
    let mut can = Extensions::default();
    for _ in 0..EXTENSIONS_MAX {
        if input.0.is_empty() {
            break;
        }
        let (name, data) = (input.string().map_err(none)?, input.string().map_err(none)?);
        match (name, data) {
            (b"posix-rename@openssh.com", b"1") => can.posix_rename = true,
            (b"fsync@openssh.com", b"1") => can.fsync = true,
            (b"limits@openssh.com", b"1") => can.limits = true,
            (b"statvfs@openssh.com", b"2") => can.statvfs = true,
            _ => {}
        }
    }
    Ok(can)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::pipe;

    const GREETING: [u8; 9] = [0, 0, 0, 5, VERSION_REPLY, 0, 0, 0, 3];

    /// A server that answers so many requests, one in each of `step`, and is silent then.
    fn session(answers: u32, step: Duration, silence: Duration) -> Session {
        let ((mut asked, input), (output, mut said)) = (pipe().unwrap(), pipe().unwrap());
        let serve = move || {
            said.write_all(&GREETING).unwrap();
            let (mut length, mut answered) = ([0; 4], 0);
            while asked.read_exact(&mut length).is_ok() {
                let mut body = vec![0; u32::from_be_bytes(length) as usize];
                asked.read_exact(&mut body).unwrap();
                if body[0] != INIT && answered < answers {
                    answered += 1;
                    std::thread::sleep(step);
                    let status = [&17u32.to_be_bytes()[..], &[101], &body[1..5], &[0; 12]].concat();
                    said.write_all(&status).unwrap();
                }
            }
        };
        std::thread::spawn(serve);
        Session::start(Box::new(output), Box::new(input), "far", [Duration::from_secs(10), silence]).unwrap()
    }

    #[test]
    fn a_server_that_takes_nothing_holds_nobody_up_for_ever() {
        let ((_asked, input), (output, mut said)) = (pipe().unwrap(), pipe().unwrap());
        said.write_all(&GREETING).unwrap();
        let patience = [Duration::from_secs(10), Duration::from_millis(200)];
        let deaf = Session::start(Box::new(output), Box::new(input), "far", patience).unwrap();
        let Err(Fault::Lost(why)) = deaf.write(b"h", 0, &vec![0; 8 << 20]).done() else { panic!("it was taken") };
        assert!(why.contains("has taken nothing for 0 s") && deaf.is_lost(), "{why}");
    }

    #[test]
    fn an_answer_may_be_late_as_long_as_the_server_says_anything() {
        let slow = session(10, Duration::from_millis(150), Duration::from_secs(1));
        let mut tickets: Vec<Ticket> = (0..10).map(|_| slow.lstat(b"/")).collect();
        let last = tickets.pop().unwrap();
        last.done().unwrap();
        let silent = session(1, Duration::ZERO, Duration::from_millis(200));
        silent.lstat(b"/").done().unwrap();
        let Err(Fault::Lost(why)) = silent.lstat(b"/").wait() else { panic!("it answered") };
        assert!(why.contains("has not answered for 0 s"), "{why}");
    }
}
