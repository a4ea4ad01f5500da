//! Questions about files at the endpoint: one thread for each, answers in parts that the client's `Proceed` lets out.
//!
//! Invariants:
//! - A question holds one thread and what `files::answer` bounds; questions of a session are bounded (`ASKS_MAX`), those of a
//!   key, a client and all clients are shared out (`room`).
//! - A question ends with its session, and when the client says `Stop`: between two names, never in the middle of one.
//! - At most `BATCHES_AHEAD` parts are sent that the client has not taken, and an answer that is not taken for as long as a
//!   job may stand still ends.

use super::Session;
use super::host::{Grant, Host};
use super::room::Seat;
use super::server::{Server, guest_of};
use crate::files::{How, NotReached, Reach, answer};
use model::files::{Question, Record};
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};
use store::Shelf;
use wire::files::{answered_of, question_of, record_bytes, record_of};
use wire::handshake::feature;
use wire::limits::{ASKS_MAX, BATCHES_AHEAD, RECORD_BATCH_BYTES, RECORDS_MAX};
use wire::message::{self, Ask, FileRecord, Proceed, Records};
use wire::{CloseCode, Refusal};

/// A part that is not full goes out after this long: a person waits for it.
const PART_INTERVAL: Duration = Duration::from_millis(100);

/// The questions of one session.
#[derive(Default)]
pub struct Asks {
    open: Mutex<HashMap<u32, Arc<Asked>>>,
}

/// A question under way.
pub struct Asked {
    pub question: Question,
    is_stopped: AtomicBool,
    /// Why it was stopped, if not by the client.
    refused: OnceLock<Refusal>,
    /// Parts that may be sent in all.
    granted: Mutex<u64>,
    changed: Condvar,
    /// Since when a part waits to be taken.
    waits_since: Mutex<Option<Instant>>,
    seat: Seat,
}

impl Asks {
    pub fn count(&self) -> usize {
        self.open.lock().unwrap().len()
    }

    pub fn all(&self) -> Vec<Arc<Asked>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner).values().cloned().collect()
    }

    /// The session is over.
    pub fn stop_all(&self) {
        self.all().iter().for_each(|asked| asked.stop());
    }

    pub fn stop(&self, number: u32) {
        if let Some(asked) = self.find(number) {
            asked.stop();
        }
    }

    pub fn proceed(&self, proceed: Proceed) {
        if let Some(asked) = self.find(proceed.number) {
            let mut granted = asked.granted.lock().unwrap();
            *granted = proceed.batches.max(*granted);
            asked.changed.notify_all();
        }
    }

    fn forget(&self, number: u32) {
        self.open.lock().unwrap().remove(&number);
    }

    fn find(&self, number: u32) -> Option<Arc<Asked>> {
        self.open.lock().unwrap().get(&number).cloned()
    }
}

impl Asked {
    pub fn stop(&self) {
        self.is_stopped.store(true, Relaxed);
        // Whoever waits for room has to look again, also one that has just looked.
        drop(self.granted.lock().unwrap_or_else(PoisonError::into_inner));
        self.changed.notify_all();
    }

    /// Ends the answer because of rights that have ended.
    pub fn refuse(&self, refusal: Refusal) {
        let _ = self.refused.set(refusal);
        self.stop();
    }

    /// The same, and its place is free at once.
    pub fn give_up(&self, refusal: Refusal) {
        self.seat.give_up();
        self.refuse(refusal);
    }

    fn is_stopped(&self) -> bool {
        self.is_stopped.load(Relaxed)
    }

    /// For how long a part has waited to be taken, if one does.
    pub fn waits_for(&self) -> Option<Duration> {
        self.waits_since.lock().unwrap().map(|since| since.elapsed())
    }

    /// Waits until part `number`, counted from 1, may be sent. False when none is wanted any more.
    fn wait_for_room(&self, number: u64, patience: Duration) -> bool {
        let mut granted = self.granted.lock().unwrap();
        if *granted < number {
            let since = Instant::now();
            *self.waits_since.lock().unwrap() = Some(since);
            while *granted < number && !self.is_stopped() {
                let Some(left) = patience.checked_sub(since.elapsed()) else {
                    let text = format!("none of the answer was read for {} s", patience.as_secs());
                    let _ = self.refused.set(Refusal::new(CloseCode::NoProgress, &text));
                    self.is_stopped.store(true, Relaxed);
                    break;
                };
                granted = self.changed.wait_timeout(granted, left).unwrap().0;
            }
            *self.waits_since.lock().unwrap() = None;
        }
        !self.is_stopped()
    }
}

impl Server {
    /// Begins to answer a question, or tells the client why not.
    pub(super) fn ask(self: &Arc<Server>, session: &Arc<Session>, grant: &Grant, ask: Ask) {
        let number = ask.number;
        let begun = self.check_ask(session, ask).and_then(|asked| {
            let (server, of_thread, grant) = (self.clone(), session.clone(), grant.clone());
            let run = move || server.run_ask(&of_thread, &grant, number, &asked);
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
        let seat = self.seat_ask(guest_of(session)?)?;
        session.note_rest();
        let mut open = session.asks.open.lock().unwrap();
        if open.contains_key(&number) || open.len() >= ASKS_MAX {
            return Err(Refusal::new(CloseCode::Limit, "a question of this number is open, or too many are"));
        }
        let granted = Mutex::new(BATCHES_AHEAD);
        let (is_stopped, refused, changed) = (AtomicBool::new(false), OnceLock::new(), Condvar::new());
        let waits_since = Mutex::default();
        let asked = Arc::new(Asked { question, is_stopped, refused, granted, changed, waits_since, seat });
        open.insert(number, asked.clone());
        Ok(asked)
    }

    fn run_ask(&self, session: &Session, grant: &Grant, number: u32, asked: &Asked) {
        let place = Place { session, number };
        let reach = HostReach { host: &*self.host, grant };
        let mut parts = Parts { session, number, asked, records: Vec::new(), bytes: 0, sent: 0, last: Instant::now() };
        let answered = answer(&asked.question, &reach, &|| asked.is_stopped(), &mut |record| parts.add(record));
        parts.flush();
        let answered = asked.refused.get().cloned().map_or(answered, Err);
        drop(place);
        self.host.answered(grant, &asked.question, &answered);
        let _ = session.control.send(message::encode(answered_of(number, &answered)));
    }
}

/// A question's place among the open ones. It is given back also when its thread panics, and then the client is told.
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
        // A client that does not read its control stream holds the answer up here.
        *self.asked.waits_since.lock().unwrap() = Some(self.last);
        let sent = self.session.control.send(message::encode(Records { number: self.number, records }));
        *self.asked.waits_since.lock().unwrap() = None;
        sent.is_ok()
    }
}
