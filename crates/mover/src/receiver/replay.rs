//! Carries a job on without its sender, from what lies in a buffer: the messages that described it, in their order, then the content.
//!
//! Invariants:
//! - What was sent of an object is enough for it, or it stays what it was: nothing is published that is not whole.
//! - What came to its end once is not brought to its place again: whatever stands there by now is newer.
//! - What storage refuses and may take later stays here, and all the rest is brought to its place.
//!
//! Not here: which jobs there are, and when they are tried again (`session::draining`).

use super::ReceiveJob;
use super::drain::start_missing;
use super::events::Event;
use super::hold::{Hold, settled_in};
use super::large::Large;
use crate::job::{Ending, Port};
use model::name::Escaped;
use model::options::Buffer;
use model::{Entry, ExtentSet, FailureKind, JobId, Pin, Warrant};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use store::spool::{OWNER_BYTES, Owner, Spool};
use wire::frame::HEADER_BYTES;
use wire::message::{self, Open, Resend};
use wire::{Message, Refusal, bounded};

const INTERVAL: Duration = Duration::from_millis(20);
const OPENING_MAGIC: &[u8; 8] = b"twopen 1";
/// Of one that has a warrant; the warrant follows the name.
const WARRANTED_MAGIC: &[u8; 8] = b"twopen 2";

/// Who asked for a job, and for what: the first of a journal.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Opening {
    pub pin: Pin,
    pub account: String,
    pub name: String,
    /// In whose name, where that is not its own: who signed the warrant, and what it says.
    pub warrant: Option<(Pin, Warrant)>,
    pub open: Open,
}

impl Opening {
    pub fn encode(&self) -> Vec<u8> {
        let warrant = self.warrant.as_ref().map(|(issuer, warrant)| [&issuer.0[..], &warrant.body()].concat());
        let mut bytes = if warrant.is_some() { WARRANTED_MAGIC } else { OPENING_MAGIC }.to_vec();
        bytes.extend_from_slice(&self.pin.0);
        for part in [self.account.as_bytes(), self.name.as_bytes()].into_iter().chain(warrant.as_deref()) {
            bytes.extend_from_slice(&(part.len() as u32).to_le_bytes());
            bytes.extend_from_slice(part);
        }
        bytes.extend_from_slice(&message::encode(self.open.clone()));
        bytes
    }

    pub fn decode(bytes: &[u8]) -> Option<Opening> {
        let is_warranted = bytes.starts_with(WARRANTED_MAGIC);
        let magic = if is_warranted { WARRANTED_MAGIC } else { OPENING_MAGIC };
        let (pin, mut rest) = bytes.strip_prefix(magic)?.split_first_chunk::<32>()?;
        let mut part = || {
            let (length, behind) = rest.split_first_chunk::<4>()?;
            let (part, behind) = behind.split_at_checked(u32::from_le_bytes(*length) as usize)?;
            rest = behind;
            Some(part.to_vec())
        };
        let (account, name) = (String::from_utf8(part()?).ok()?, String::from_utf8(part()?).ok()?);
        let mut warrant = None;
        if is_warranted {
            let bytes = part()?;
            let (issuer, body) = bytes.split_first_chunk::<32>()?;
            warrant = Some((Pin(*issuer), Warrant::read(body)?));
        }
        match message::decode(rest.get(HEADER_BYTES..)?).ok()?? {
            Message::Open(open) => Some(Opening { pin: Pin(*pin), account, name, warrant, open }),
            _ => None,
        }
    }
}

/// The owner of what one attempt at a job keeps; never the same twice.
pub(crate) fn owner_of(pin: Pin, job: JobId) -> Owner {
    let mut bytes = [0; OWNER_BYTES];
    bytes[..32].copy_from_slice(&pin.0);
    bytes[32..48].copy_from_slice(&job.0);
    bytes[48..].copy_from_slice(&os::random().unwrap_or(0).to_le_bytes());
    Owner(bytes)
}

/// Whose it is.
pub(crate) fn job_of(owner: Owner) -> (Pin, JobId) {
    let (pin, job) = (owner.0[..32].try_into().expect("32 bytes"), owner.0[32..48].try_into().expect("16 bytes"));
    (Pin(pin), JobId(job))
}

impl ReceiveJob {
    /// Lets content wait in a buffer of the client's own: what is in it when the client ends comes again. Before `start`.
    pub fn wait_in(&self, spool: Arc<Spool>, how: Buffer) {
        self.buffer_in(Hold::of_client(spool, owner_of(self.sender, self.id), how));
    }

    /// Whether storage may take later what it refuses of a job that has no sender: what is here of it stays, and the job is tried again.
    pub(super) fn is_for_next_time(&self, entry: &Entry, kind: FailureKind, why: &str) -> bool {
        use FailureKind::{NotFound, Other, Permission, ReadError, ReadOnly, WriteError};
        let may_pass = matches!(kind, NotFound | Other | Permission | ReadError | ReadOnly | WriteError);
        let is_here = |hold: &&Hold| may_pass && hold.is_alone() && hold.has(entry.id.0);
        let Some(hold) = self.hold.get().filter(is_here) else { return false };
        hold.refuse(entry.id.0);
        let why = format!("{}: {why}", Escaped(&self.sink.path(entry)));
        let again = Resend { job: self.number, why: bounded(&why).to_owned(), ..Resend::default() };
        self.port.send(again.into());
        true
    }

    /// It came to its end before the job lost its sender, or when it was carried on before.
    pub(super) fn was_settled(&self, id: u64) -> bool {
        self.replayed.get().is_some() && self.hold.get().is_some_and(|hold| hold.was_settled(id))
    }
}

/// Nobody hears what the job says; why it first asks for something again is noted.
#[derive(Default)]
pub(crate) struct Deaf {
    asks: OnceLock<String>,
}

impl Port for Deaf {
    fn send(&self, message: Message) {
        if let Message::Resend(again) = message {
            let _ = self.asks.set(again.why);
        }
    }
}

/// How far a job came without its sender.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Came {
    /// To its end, or as far as what was sent of it reaches: nothing of it is worth keeping in the buffer.
    Through,
    /// Storage did not take something, or lost it, or this side stopped: what is left is for the next time.
    Stuck,
}

/// Carries a job on, which has its hold, its messages with `messages`, and `port` as its port.
///
/// # Errors
/// When the messages are not what a sender may say.
pub(crate) fn replay(job: &Arc<ReceiveJob>, messages: &[Vec<u8>], port: &Deaf) -> Result<Came, Refusal> {
    let hold = job.hold.get().expect("it is carried on from there");
    hold.pass_over(settled_before(messages)?);
    let _ = job.replayed.set(hold.objects().into_iter().collect());
    job.listing.lock().unwrap().grant(u64::MAX);
    job.start();
    let mut is_finished = false;
    for bytes in messages {
        match decode(bytes)? {
            // Done when the rest is.
            Some(Message::Finish(_)) => is_finished = true,
            Some(Message::Settled(_)) | None => {}
            Some(message) => job.handle(message)?,
        }
        while !job.decider.is_idle() && !job.end.is_set() {
            job.end.wait(INTERVAL / 10);
        }
    }
    start_missing(job);
    let mut is_through = false;
    let may_finish = is_finished || job.options.deletion.is_none();
    let mut is_asked_to_finish = false;
    while job.end.wait(INTERVAL).is_none() {
        start_missing(job);
        // In this order: what leaves the hold was settled before.
        let is_empty = hold.is_empty();
        let is_settled = job.table.lock().unwrap().is_empty() && !hold.has_refused();
        if is_settled && may_finish && job.progress.is_listing_complete.load(Relaxed) {
            if !std::mem::replace(&mut is_asked_to_finish, true) {
                job.is_finish_heard.store(true, Relaxed);
                job.decider.push(Event::Finish);
            }
        } else if let Some(why) = port.asks.get().filter(|_| hold.is_drained() && !is_under_way(job, hold)) {
            job.stop(Ending::Lost(format!("storage did not take all of it: {why}")));
        } else if is_settled || is_empty || is_in_vain(job, hold) {
            let lost = if is_finished { lost(job, hold) } else { None };
            // Otherwise the rest was never sent.
            is_through = lost.is_none();
            let why = || "its sender is gone, and what it sent is in its place".to_owned();
            job.stop(Ending::Lost(lost.unwrap_or_else(why)));
        }
    }
    Ok(match job.end.get() {
        Some(Ending::Finished(_)) => Came::Through,
        Some(Ending::Lost(_)) if is_through => Came::Through,
        _ => Came::Stuck,
    })
}

/// What an earlier holder brought to its end, as it put down.
fn settled_before(messages: &[Vec<u8>]) -> Result<ExtentSet, Refusal> {
    let mut settled = ExtentSet::new();
    for bytes in messages {
        if let Some(Message::Settled(told)) = decode(bytes)? {
            settled_in(&told, &mut settled);
        }
    }
    Ok(settled)
}

fn decode(bytes: &[u8]) -> Result<Option<Message>, Refusal> {
    message::decode(&bytes[HEADER_BYTES.min(bytes.len())..])
}

/// Something that storage took is on its way to its name.
fn is_under_way(job: &ReceiveJob, hold: &Hold) -> bool {
    let open = job.table.lock().unwrap().open_objects();
    open.into_iter().filter(|(id, ..)| !hold.is_refused(*id)).any(|(id, _, large)| match large {
        Some(large) => large.is_complete(),
        None => job.table.lock().unwrap().is_under_way(id),
    })
}

/// All that came was handed to storage, and is not enough for what is open: the chunk that seals an object stays, while others of
/// that object were never sent.
fn is_in_vain(job: &ReceiveJob, hold: &Hold) -> bool {
    let open = job.table.lock().unwrap().open_objects();
    let is_short = |(id, _, large): &(u64, u64, Option<Arc<Large>>)| match large {
        Some(large) => !large.is_complete(),
        None => !hold.has(*id),
    };
    hold.is_handed_on() && open.iter().all(is_short)
}

/// What is lost of objects of which something is here, in a job whose sender was let go: all of it was durable by then, in the buffer or
/// in staging, and storage failed a sync of that staging.
fn lost(job: &ReceiveJob, hold: &Hold) -> Option<String> {
    let open = job.table.lock().unwrap().open_objects();
    let mut lost = open.into_iter().filter(|(id, ..)| hold.has(*id)).filter_map(|(_, _, large)| large);
    let path = job.sink.path(lost.next()?.entry());
    let (path, others) = (String::from_utf8_lossy(&path), lost.count());
    Some(format!("storage lost a part of {path}, and of {others} other files: they are to be copied again"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_asked_for_reads_back_and_what_is_cut_reads_as_nothing() {
        let open = Open { job: 3, job_id: vec![7; 16], paths: vec![b"in/".to_vec()], ..Open::default() };
        let said = Warrant {
            holder: Pin([1; 32]),
            audience: Pin([2; 32]),
            job: JobId([7; 16]),
            verbs: Default::default(),
            not_before: 1,
            expires: 2,
            id: [4; 16],
            paths: vec![b"in".to_vec()],
        };
        for warrant in [None, Some((Pin([9; 32]), said))] {
            let (account, name, open) = ("serve".into(), "lab".into(), open.clone());
            let opening = Opening { pin: Pin([1; 32]), account, name, warrant, open };
            let bytes = opening.encode();
            assert_eq!(Opening::decode(&bytes), Some(opening));
            assert!((0..bytes.len() - 1).all(|length| Opening::decode(&bytes[..length]).is_none()));
        }
    }

    #[test]
    fn an_owner_names_its_job_and_is_never_the_same() {
        let of = || owner_of(Pin([3; 32]), JobId([5; 16]));
        assert_eq!(job_of(of()), (Pin([3; 32]), JobId([5; 16])));
        assert_ne!(of(), of());
    }
}
