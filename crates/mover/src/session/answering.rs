//! Answers to questions about files: one thread for each, in parts that the client's `Proceed` lets out.
//!
//! Invariant: a part that is sent is counted, and waits for its turn in `asks`.
//!
//! Not here: what an answer says (`files::answer`), who gets a place (`room`).

use super::Session;
use super::asks::Asked;
use super::host::{Grant, Host};
use super::server::Server;
use crate::files::{How, NotReached, Reach, answer};
use model::files::Record;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};
use store::Shelf;
use wire::files::{answered_of, question_of, record_bytes, record_of};
use wire::handshake::feature;
use wire::limits::{RECORD_BATCH_BYTES, RECORDS_MAX};
use wire::message::{self, Ask, FileRecord, Records};
use wire::{CloseCode, Refusal};

/// A part that is not full goes out after this long: a person waits for it.
const PART_INTERVAL: Duration = Duration::from_millis(100);

impl Server {
    /// Begins to answer a question, or tells the client why not.
    pub(super) fn ask(self: &Arc<Server>, session: &Arc<Session>, grant: &Grant, ask: Ask) {
        let number = ask.number;
        let begun = self.check_ask(session, ask).and_then(|asked| {
            let (server, of_thread, grant) = (self.clone(), session.clone(), grant.clone());
            let run = move || server.run_ask(&of_thread, &grant, number, asked);
            let spawned = std::thread::Builder::new().name("files".into()).spawn(run);
            spawned.map(drop).map_err(|_| {
                session.asks.forget(number);
                Refusal::new(CloseCode::Busy, "the endpoint has no free thread")
            })
        });
        if let Err(refusal) = begun {
            let _ = session.control.send(message::encode(answered_of(number, &Err(refusal))));
        }
    }

    fn check_ask(&self, session: &Session, ask: Ask) -> Result<Arc<Asked>, Refusal> {
        if session.features.load(Relaxed) & feature::FILES == 0 {
            return Err(Refusal::new(CloseCode::Version, "the session lacks the feature for queries about files"));
        }
        let number = ask.number;
        let question = question_of(ask)?;
        let seat = self.seat_ask(session.guest()?)?;
        session.note_rest();
        session.asks.begin(number, question, seat)
    }

    fn run_ask(&self, session: &Session, grant: &Grant, number: u32, asked: Arc<Asked>) {
        let place = Place { session, number };
        let reach = HostReach { host: &*self.host, grant };
        let mut parts =
            Parts { session, number, asked: &asked, records: Vec::new(), bytes: 0, sent: 0, last: Instant::now() };
        let answered = answer(&asked.question, &reach, &|| asked.is_stopped(), &mut |record| parts.add(record));
        parts.flush();
        let answered = asked.refusal().map_or(answered, Err);
        drop(place);
        self.host.answered(grant, &asked.question, &answered);
        // With the answer a client may ask again at once: the seat is free before.
        drop(asked);
        let _ = session.control.send(message::encode(answered_of(number, &answered)));
    }
}

/// A question's place among the open ones. Released on drop, also if the thread panics; the client is then told.
struct Place<'a> {
    session: &'a Session,
    number: u32,
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.session.asks.forget(self.number);
        self.session.note_rest();
        if std::thread::panicking() {
            let refusal = Refusal::new(CloseCode::Internal, "a thread of the endpoint failed; this is a bug");
            let _ = self.session.control.send(message::encode(answered_of(self.number, &Err(refusal))));
        }
    }
}

/// What the host lets one client reach.
struct HostReach<'a> {
    host: &'a dyn Host,
    grant: &'a Grant,
}

impl Reach for HostReach<'_> {
    fn reach(&self, path: &[u8], how: How) -> Result<Box<dyn Shelf>, NotReached> {
        self.host.reach(self.grant, path, how)
    }
}

/// Gathers records and sends them in parts.
struct Parts<'a> {
    session: &'a Session,
    number: u32,
    asked: &'a Asked,
    records: Vec<FileRecord>,
    bytes: usize,
    sent: u64,
    last: Instant,
}

impl Parts<'_> {
    fn add(&mut self, record: Record) -> bool {
        let record = record_of(record);
        self.bytes += record_bytes(&record);
        self.records.push(record);
        let is_full = self.records.len() >= RECORDS_MAX || self.bytes >= RECORD_BATCH_BYTES;
        if is_full || self.last.elapsed() >= PART_INTERVAL {
            return self.flush();
        }
        !self.asked.is_stopped()
    }

    fn flush(&mut self) -> bool {
        if self.records.is_empty() {
            return !self.asked.is_stopped();
        }
        self.sent += 1;
        if !self.asked.wait_for_room(self.sent, self.session.no_progress_timeout()) {
            return false;
        }
        let records = std::mem::take(&mut self.records);
        (self.bytes, self.last) = (0, Instant::now());
        let parts = message::encode(Records { number: self.number, records });
        self.asked.hand_over(self.last, || self.session.control.send(parts)).is_ok()
    }
}
